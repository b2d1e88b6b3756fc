//! Raw lists: the same judgement, and regions that are not left counting extents of a refused list.

use super::{Bench, SIZE, bench, refused};
use fullbore::{Engine, Error, ErrorKind as K, Op, OpenOptions, RawExtent, RawOutcome, Target};
use std::time::Duration;

fn submit(b: &Bench, target: &Target, op: Op, list: &mut [RawExtent]) -> Result<(), Error> {
    // SAFETY: refused, or the test fails; memory of the region outlives the engine's lanes in both cases.
    unsafe { b.client.submit_raw(target, op, list, 3) }.map(drop)
}

#[test]
fn raw_lists() {
    let Some(b) = bench() else { return };
    let base = b.region.as_ptr();
    let at = |offset, ptr: *mut u8, len| RawExtent { offset, ptr, len, outcome: RawOutcome::default() };
    let good = at(0, base, 4096);
    let read = |extents: &[RawExtent]| submit(&b, &b.read, Op::Read, &mut extents.to_vec());
    let write = |extents: &[RawExtent]| submit(&b, &b.write, Op::Write, &mut extents.to_vec());
    let e = &b.engine;

    refused(e, K::InvalidInput, &["at least one extent"], || read(&[]));
    refused(e, K::InvalidInput, &["reads or writes"], || submit(&b, &b.read, Op::Flush, &mut [good]));
    refused(e, K::InvalidInput, &["no bytes"], || read(&[at(0, base, 0)]));
    let error = refused(e, K::InvalidInput, &["null"], || read(&[good, at(0, std::ptr::null_mut(), 4096)]));
    assert_eq!(error.extent_index(), Some(1), "the extent is named");
    refused(e, K::InvalidInput, &["wraps"], || {
        read(&[at(0, std::ptr::without_provenance_mut(usize::MAX - 100), 4096)])
    });
    refused(e, K::InvalidInput, &["overflow"], || read(&[at(u64::MAX - 10, base, 4096)]));
    refused(e, K::InvalidInput, &["overflow"], || read(&[at(10, base, u64::MAX - 10)]));
    refused(e, K::OutOfBounds, &["past the end", "Target::size"], || read(&[good, at(SIZE - 1, base, 2)]));
    refused(e, K::OutOfBounds, &["past the end"], || read(&[at(0, base, 1 << 40)]));
    refused(e, K::Misaligned, &["whole blocks", "block_size"], || write(&[at(0, base, 4095)]));
    refused(e, K::Misaligned, &["whole blocks"], || write(&[at(1, base, 4096)]));
    refused(e, K::OutOfBounds, &["set_size"], || write(&[at(1 << 20, base, 4096)]));
    refused(e, K::ReadOnly, &["OpenOptions::write"], || submit(&b, &b.read, Op::Write, &mut [good]));

    let other = Engine::builder().lanes(1).build().unwrap();
    let theirs = other.open(b.read.name(), OpenOptions::read()).unwrap();
    refused(e, K::WrongEngine, &["another engine"], || submit(&b, &theirs, Op::Read, &mut [good]));
    b.read.close();
    refused(e, K::Closed, &["open it again"], || read(&[good]));
    b.region.release(Duration::from_secs(5)).expect("no refused extent counts against the region");
}

/// The count is refused before the list is looked at: the list is address space that nothing fills.
#[test]
fn too_many_extents() {
    let Some(b) = bench() else { return };
    let count = (1 << 24) + 1;
    let bytes = (count * size_of::<RawExtent>()).next_multiple_of(4096);
    let pages = crate::support::kernel::Pages::new(bytes);
    // SAFETY: zero-filled memory of ours that outlives the slice; all-zero is a RawExtent, if one of no use.
    let list = unsafe { std::slice::from_raw_parts_mut(pages.ptr().as_ptr().cast::<RawExtent>(), count) };
    refused(&b.engine, K::InvalidInput, &["at most 16 777 216"], || submit(&b, &b.read, Op::Read, list));
}

/// Busy refuses a raw list too, and the region does not go on counting its extents.
#[test]
fn busy_raw_lists() {
    let engine = Engine::builder().null().lanes(1).max_transfers(1).build().unwrap();
    let (target, region) = (engine.open_null(1 << 20).unwrap(), engine.alloc_host(8192).unwrap());
    let client = engine.client().unwrap();
    let mut lists =
        [RawExtent { offset: 0, ptr: region.as_ptr(), len: 4096, outcome: RawOutcome::default() }; 2];
    let [first, second] = &mut lists;
    // SAFETY: list and memory outlive the completion, which is waited for below.
    unsafe { client.submit_raw(&target, Op::Read, std::slice::from_mut(first), 1) }.unwrap();
    // SAFETY: as above, if it were accepted.
    let error =
        unsafe { client.submit_raw(&target, Op::Read, std::slice::from_mut(second), 2) }.expect_err("busy");
    super::is(&error, K::Busy, &["max_transfers"]);
    let mut done = Vec::new();
    client.wait(1, &mut done, Some(Duration::from_secs(5))).unwrap();
    assert_eq!((done.len(), done[0].tag, done[0].bytes), (1, 1, 4096));
    region.release(Duration::from_secs(5)).expect("nothing counts against the region any more");
}

/// The kernel answers EFAULT; our own copies, of heads and tails and of mapped files, would end the process.
#[test]
fn nothing_is_read_into_memory_that_is_mapped_for_reading_alone() {
    if !crate::support::uring() {
        return;
    }
    let Some(folder) = crate::support::folders().pop() else { return };
    let path = folder.file("data", 1 << 20, 1);
    let engine = crate::support::build(fullbore::Engine::builder());
    // SAFETY: a new mapping of its own.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            1 << 20,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let p = std::ptr::NonNull::new(p.cast::<u8>()).unwrap();
    // SAFETY: it stays mapped for as long as the process lives.
    let region = unsafe { engine.register_host(p, 1 << 20) }.expect("it may be written from");
    let client = engine.client().unwrap();
    for options in [fullbore::OpenOptions::write(), fullbore::OpenOptions::write().mapped()] {
        let target = engine.open(&path, options).unwrap();
        let read = fullbore::Transfer::read(&target).extent(1, region.range(0..100).unwrap());
        let refused = client.submit(read).unwrap_err().error;
        assert_eq!(refused.kind(), fullbore::ErrorKind::InvalidInput, "{refused}");
        assert!(refused.message().contains("PROT_WRITE"), "{refused}");
        let write = fullbore::Transfer::write(&target).extent(0, region.range(0..65536).unwrap());
        client.submit(write).unwrap().wait().unwrap().result.expect("it may be written from");
    }
}
