//! Registering and releasing memory while transfers run on all lanes. VmPin, the kernel's own count of pinned bytes,
//! is the judge of leaks and of early unpinning; it counts a whole process, so most tests have one of their own.

use super::support::kernel::{Pages, status_bytes};
use super::support::load::{Background, load, load_raw, path_into, raw};
use super::support::{
    Folder, build, check, child, eventually, first_mismatch, folders, poison, root, untouched, uring,
};
use fullbore::{Client, Engine, Op, OpenOptions, Region, ReleaseError, Target, Transfer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const MIB: usize = 1 << 20;
const SEED: u64 = 0x9e61;
const SOON: Duration = Duration::from_secs(5);

struct Rig {
    engine: Engine,
    target: Target,
    client: Client,
    _folder: Folder,
}

/// An engine of two lanes over a file on each file system at hand.
fn rigs(clones: bool, size: usize) -> Vec<Rig> {
    let open = |folder: Folder| {
        let path: PathBuf = folder.file("data", size as u64, SEED);
        let engine = build(Engine::builder().lanes(2).clone_buffers(clones));
        let target = engine.open(&path, OpenOptions::read()).expect("the file opens");
        let client = engine.client().expect("a client");
        Rig { engine, target, client, _folder: folder }
    };
    folders().into_iter().map(open).collect()
}

/// Whether the region is registered; a low limit on locked memory makes these tests pointless, and is told.
fn registered(region: &Region) -> bool {
    if let Some(note) = region.registration_note() {
        assert!(!root(), "root has no limit on locked memory: {note}");
        eprintln!("skipped: {note}");
    }
    region.is_registered()
}

fn register(engine: &Engine, pages: &Pages) -> Region {
    // SAFETY: tests keep the pages until the region is released.
    unsafe { engine.register_host(pages.ptr(), pages.len()) }.expect("a region")
}

fn pinned() -> u64 {
    status_bytes("VmPin")
}

/// The kernel lets go of a closed ring's buffers a little later: also of those of an engine that only probed.
#[track_caller]
fn assert_pinned(bytes: u64, what: &str) {
    assert!(eventually(SOON, || pinned() == bytes), "{what}: {} bytes are pinned, not {bytes}", pinned());
}

/// FACTS §4: after munmap and mmap at the same address a fixed read still "succeeds" into the old pages.
#[test]
fn the_same_address_registered_again_means_the_new_pages() {
    if !uring() {
        return;
    }
    for rig in [true, false].into_iter().flat_map(|clones| rigs(clones, 8 * MIB)) {
        let going = Background::start(&rig.engine, &rig.target, 4 * MIB, SEED);
        assert!(going.goes_on(1));
        let mut pages = Pages::new(2 * MIB);
        for round in 0..10u64 {
            pages.renew();
            poison(pages.bytes_mut());
            let region = register(&rig.engine, &pages);
            if !registered(&region) {
                return going.stop();
            }
            assert_loads(&rig, &pages, round, "uring fixed");
            region.release(SOON).expect("nothing of it is in flight");

            // Released and mapped anew: no ring and no list of regions may know the old pages still.
            pages.renew();
            poison(pages.bytes_mut());
            assert_loads(&rig, &pages, round + 1, "uring");
        }
        assert!(going.goes_on(1), "transfers on all lanes go on");
        going.stop();
        assert_eq!(rig.engine.stats().lanes.iter().map(|l| l.stale).sum::<u64>(), 0);
    }
}

/// Loads all of `pages`, with pointers, by `path`.
#[track_caller]
fn assert_loads(rig: &Rig, pages: &Pages, round: u64, path: &str) {
    let offset = round * 512 * 1024 % (4 * MIB as u64);
    // Two extents of several units, so that every lane takes part.
    let (half, ptr) = (pages.len() / 2, pages.ptr().as_ptr());
    let mut extents = [raw(offset, ptr, half), raw(offset + half as u64, ptr.wrapping_add(half), half)];
    let done = load_raw(&rig.client, &rig.target, &mut extents);
    done.result.expect("the load succeeds");
    assert_eq!(done.paths.to_string(), path, "round {round}");
    check(pages.bytes(), offset, SEED, &format!("round {round}, {path}"));
}

#[test]
fn a_storm_of_registrations_during_io_leaks_no_pin_with_clones() {
    storm("registration::a_storm_of_registrations_during_io_leaks_no_pin_with_clones", true);
}

#[test]
fn a_storm_of_registrations_during_io_leaks_no_pin_without_clones() {
    storm("registration::a_storm_of_registrations_during_io_leaks_no_pin_without_clones", false);
}

fn storm(test: &str, clones: bool) {
    if !uring() {
        return;
    }
    child(test, &[]).keep_capabilities().run(|| {
        for rig in rigs(clones, 8 * MIB) {
            let going = Background::start(&rig.engine, &rig.target, 2 * MIB, SEED);
            assert!(going.goes_on(1));
            let background = rig.engine.stats().memlock_bytes;
            if registered(&rig.engine.alloc_host(MIB).unwrap()) {
                std::thread::scope(|scope| {
                    for number in 0..4 {
                        let (engine, target) = (&rig.engine, &rig.target);
                        scope.spawn(move || register_load_release(engine, target, number));
                    }
                });
            }
            assert!(going.goes_on(1), "transfers on all lanes go on");
            assert_pinned(background, "after the storm");
            assert_eq!(rig.engine.stats().memlock_bytes, background);
            going.stop();
            drop(rig);
            assert_pinned(0, "after the engine");
        }
    });
}

/// One thread of the storm: memory of ours and of the engine's, whole and in part, released and dropped.
fn register_load_release(engine: &Engine, target: &Target, number: u64) {
    let client = engine.client().unwrap();
    for round in 0..25 {
        let offset = (number + round) * 64 * 1024 % (4 * MIB as u64);
        if round % 2 == 0 {
            let mut pages = Pages::new(MIB);
            poison(pages.bytes_mut());
            let region = register(engine, &pages);
            let done = load_raw(&client, target, &mut [raw(offset, pages.ptr().as_ptr(), MIB)]);
            done.result.expect("the load succeeds");
            assert_eq!(done.paths.to_string(), path_into(&region), "thread {number}, round {round}");
            check(pages.bytes(), offset, SEED, "a load in the storm");
            region.release(SOON).expect("nothing of it is in flight");
        } else {
            let region = engine.alloc_host(MIB).unwrap();
            let (lease, paths) = load(&client, target, region.lease(0..MIB).unwrap(), offset, SEED);
            assert_eq!(paths.to_string(), path_into(&region), "thread {number}, round {round}");
            drop(region); // before its lease
            drop(lease);
        }
    }
}

/// The number that is reported is the number that the kernel charges, and goes when the memory is released: not
/// before, as long as a transfer may land in it.
#[test]
fn memlock_bytes_are_what_the_kernel_counts_with_and_without_clones() {
    if !uring() {
        return;
    }
    child("registration::memlock_bytes_are_what_the_kernel_counts_with_and_without_clones", &[])
        .keep_capabilities()
        .run(|| {
            for clones in [true, false] {
                let engine = build(Engine::builder().lanes(2).clone_buffers(clones));
                let regions: Vec<_> = (1..4).map(|n| engine.alloc_host(2 * n * MIB).unwrap()).collect();
                if !registered(&regions[2]) {
                    return;
                }
                // Its lanes have no ring: nothing is registered for them.
                let folder = &folders()[0];
                let mapped = engine.open(folder.file("mapped", 4096, SEED), OpenOptions::read().mapped());
                assert!(mapped.is_ok() && engine.lanes() > 2, "{mapped:?}");
                let times = if engine.stats().clone_buffers { 1 } else { 2 };
                assert_eq!(engine.stats().memlock_bytes, times * 12 * MIB as u64, "clones: {clones}");
                assert_pinned(times * 12 * MIB as u64, &format!("clones: {clones}"));
                let mut left = 12;
                for (region, size) in regions.into_iter().zip([2, 4, 6]) {
                    region.release(SOON).unwrap();
                    left -= size;
                    let expected = times * left * MIB as u64;
                    assert_eq!(pinned(), expected, "Ok means that every lane let go; clones: {clones}");
                    assert_eq!(engine.stats().memlock_bytes, expected);
                }
            }
        });
}

/// FACTS §6.8: registered buffers were found only by their exact base address.
#[test]
fn every_part_of_a_region_is_found_registered() {
    if !uring() {
        return;
    }
    for rig in [true, false].into_iter().flat_map(|clones| rigs(clones, 4 * MIB)) {
        // Neighbours on both sides, so that a wrong index reaches mapped memory.
        let regions: Vec<_> = (0..3).map(|_| rig.engine.alloc_host(3 * MIB).unwrap()).collect();
        if !registered(&regions[2]) {
            return;
        }
        let align = rig.target.memory_alignment().max(rig.target.block_size()) as usize;
        let parts =
            [(0, 3 * MIB), (align, 2 * MIB), (MIB - align, 2 * align), (3 * MIB - align, align), (MIB, MIB)];
        for (from, len) in parts {
            for region in &regions {
                let lease = region.lease(from..from + len).unwrap();
                let (lease, paths) = load(&rig.client, &rig.target, lease, align as u64, SEED);
                assert_eq!(paths.to_string(), path_into(region), "{len} bytes at {from}");
                drop(lease);
                let ptr = region.as_ptr().wrapping_add(from);
                let done = load_raw(&rig.client, &rig.target, &mut [raw(0, ptr, len)]);
                assert_eq!(done.paths.to_string(), path_into(region), "{len} bytes at {from}, by pointer");
            }
        }
    }
}

/// One registered buffer is at most 1 GiB: a longer region takes several, and no command may cross from one to the
/// next (READ_FIXED over a seam is EFAULT).
#[test]
fn a_region_of_more_than_1_gib_is_registered_whole() {
    if !uring() {
        return;
    }
    const GIB: usize = 1 << 30;
    for rig in [true, false].into_iter().flat_map(|clones| rigs(clones, 8 * MIB)) {
        let file = memory_file(16 * MIB);
        let pages = Pages::repeated(&file, 2 * GIB + 16 * MIB);
        let region = register(&rig.engine, &pages);
        if !registered(&region) {
            return;
        }
        // Commands are 128 KiB: seams lie at multiples of 1 GiB less that, and at 1 GiB.
        let (stride, odd) = (GIB - 128 * 1024, 512.max(rig.target.memory_alignment() as usize));
        let mut places = vec![0, MIB + odd, pages.len() - 4 * MIB];
        for seam in [stride, GIB, 2 * stride, 2 * GIB] {
            places.extend([seam - 2 * MIB, seam - 2 * MIB + odd, seam - 2 * MIB - odd]);
        }
        for from in places {
            let from = from - from % odd;
            // SAFETY: no transfer is under way, and the bytes are mapped as long as `pages`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pages.ptr().as_ptr().add(from), 4 * MIB) };
            poison(bytes);
            let transfer = Transfer::read(&rig.target).extent(0, region.range(from..from + 4 * MIB).unwrap());
            let done = rig.client.submit(transfer).unwrap().wait().unwrap();
            done.result.unwrap_or_else(|e| panic!("at {from}: {e}"));
            assert_eq!(done.paths.to_string(), "uring fixed", "at {from}");
            assert_eq!(first_mismatch(bytes, 0, SEED), None, "at {from}");
        }
        region.release(SOON).expect("nothing of it is in flight");
    }
}

/// A file in memory: its mappings can be registered, and many of them hold its pages once.
fn memory_file(size: usize) -> std::fs::File {
    use std::os::fd::FromRawFd;
    // SAFETY: makes a descriptor, which is ours alone.
    let file = unsafe {
        let fd = libc::memfd_create(c"fullbore-it".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "memfd: {}", std::io::Error::last_os_error());
        std::fs::File::from_raw_fd(fd)
    };
    file.set_len(size as u64).expect("room");
    file
}

/// Numbers and buffers of released regions serve new ones, and old ones keep theirs.
#[test]
fn numbers_of_released_regions_serve_new_ones() {
    if !uring() {
        return;
    }
    for rig in [true, false].into_iter().flat_map(|clones| rigs(clones, 4 * MIB)) {
        let mut regions: Vec<_> = (0..40).map(|_| Some(rig.engine.alloc_host(64 * 1024).unwrap())).collect();
        if !registered(regions[0].as_ref().unwrap()) {
            return;
        }
        for round in 0..3 {
            for place in regions.iter_mut().skip(round % 2).step_by(2) {
                place.take().unwrap().release(SOON).unwrap();
            }
            for place in regions.iter_mut().filter(|place| place.is_none()) {
                *place = Some(rig.engine.alloc_host(96 * 1024).unwrap());
            }
            for (index, region) in regions.iter().flatten().enumerate() {
                let lease = region.lease(0..region.len()).unwrap();
                let (_, paths) =
                    load(&rig.client, &rig.target, lease, index as u64 * 65536 % (2 * MIB as u64), SEED);
                assert_eq!(paths.to_string(), path_into(region), "region {index}, round {round}");
            }
        }
    }
}

/// Invariant I1. The region comes back unharmed, and can be released once its transfers are over.
#[test]
fn a_region_in_use_is_busy_and_handed_back() {
    if !uring() {
        return;
    }
    for rig in [true, false].into_iter().flat_map(|clones| rigs(clones, 8 * MIB)) {
        let region = rig.engine.alloc_host(8 * MIB).unwrap();
        let lease = region.lease(0..4 * MIB).unwrap();
        let ticket = rig.client.submit(Transfer::read(&rig.target).extent(0, lease)).unwrap();
        let region = assert_busy(region.release(SOON), (1, 0));
        let done = ticket.wait().unwrap();
        done.result.as_ref().expect("an attempt to release harms nothing");
        let region = assert_busy(region.release(SOON), (1, 0)); // the completion holds the lease
        drop(done);
        region.release(SOON).expect("nothing of it is in flight");
    }
}

#[track_caller]
fn assert_busy(answer: Result<(), ReleaseError>, expected: (usize, u64)) -> Region {
    match answer {
        Err(ReleaseError::Busy { region, leases, raw }) => {
            assert_eq!((leases, raw), expected);
            region
        }
        other => panic!("not busy: {other:?}"),
    }
}

/// The same for pointers, which hold no lease. One lane of depth 1 and much to read: the release comes long before
/// the end.
#[test]
fn a_region_with_raw_transfers_in_flight_is_busy_and_handed_back() {
    if !uring() {
        return;
    }
    for folder in folders() {
        let path = folder.file("data", 8 * MIB as u64, SEED);
        let engine = Arc::new(build(Engine::builder().lanes(1).lane_depth(1)));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let client = engine.client().unwrap();
        let mut pages = Pages::new(64 * MIB);
        poison(pages.bytes_mut());
        let region = register(&engine, &pages);
        let at = |i: usize| raw(0, pages.ptr().as_ptr().wrapping_add(i * 8 * MIB), 8 * MIB);
        let mut extents: Vec<_> = (0..8).map(at).collect();
        // SAFETY: list and memory stay until the completion below, and nobody touches them.
        unsafe { client.submit_raw(&target, Op::Read, &mut extents, 1) }.unwrap();
        let region = match region.release(SOON) {
            Err(ReleaseError::Busy { region, leases: 0, raw: 8 }) => region,
            other => panic!("8 raw extents are in flight: {other:?}"),
        };
        let mut done = Vec::new();
        client.wait(1, &mut done, None).unwrap();
        done[0].result.as_ref().expect("an attempt to release harms nothing");
        for (index, bytes) in pages.bytes().chunks(8 * MIB).enumerate() {
            assert!(!untouched(&bytes[..4096]));
            check(bytes, 0, SEED, &format!("extent {index}"));
        }
        region.release(SOON).expect("nothing of it is in flight");
    }
}
