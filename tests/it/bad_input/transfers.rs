//! Transfers that make no sense, leases that cannot be.

use super::{SIZE, bench, refused, rejected};
use crate::support;
use fullbore::{Engine, ErrorKind as K, OpenOptions, Transfer};
use std::time::Duration;

#[test]
fn ranges_of_the_target() {
    let Some(b) = bench() else { return };
    let read = |offset, len: usize| Transfer::read(&b.read).extent(offset, b.region.lease(0..len).unwrap());
    let e = rejected(&b, K::OutOfBounds, &["past the end", "Target::size"], read(SIZE, 1));
    assert_eq!((e.offset(), e.length(), e.target()), (Some(SIZE), Some(1), Some(b.read.name())));
    rejected(&b, K::OutOfBounds, &["past the end"], read(SIZE - 1, 2));
    rejected(&b, K::OutOfBounds, &["past the end"], read(1 << 60, 4096));
    rejected(&b, K::InvalidInput, &["overflow", "arithmetic"], read(u64::MAX, 1));
    rejected(&b, K::InvalidInput, &["overflow"], read(u64::MAX - 4095, 4096));
    rejected(&b, K::InvalidInput, &["overflow"], read(i64::MAX as u64, 1));

    let write =
        |offset, len: usize| Transfer::write(&b.write).extent(offset, b.region.lease(0..len).unwrap());
    rejected(&b, K::OutOfBounds, &["past the end", "set_size"], write(1 << 20, 4096));
    rejected(&b, K::OutOfBounds, &["past the end", "set_size"], write((1 << 20) - 4096, 8192));
    rejected(&b, K::Misaligned, &["whole blocks", "block_size"], write(1, 4096));
    rejected(&b, K::Misaligned, &["whole blocks", "block_size"], write(0, 4095));
    rejected(&b, K::Misaligned, &["whole blocks", "block_size"], write(8191, 1));
}

#[test]
fn the_extent_concerned_is_named() {
    let Some(b) = bench() else { return };
    let leases = [b.region.lease(0..4096).unwrap(), b.region.lease(4096..8192).unwrap()];
    let [first, second] = leases;
    let e = rejected(
        &b,
        K::OutOfBounds,
        &[b.read.name(), "offset 1048576"],
        Transfer::read(&b.read).extent(0, first).extent(1 << 20, second),
    );
    assert_eq!(e.extent_index(), Some(1));
}

#[test]
fn empty_transfers() {
    let Some(b) = bench() else { return };
    rejected(&b, K::InvalidInput, &["at least one extent"], Transfer::read(&b.read));
    rejected(&b, K::InvalidInput, &["at least one extent"], Transfer::write(&b.write));
}

#[test]
fn closed_and_read_only_targets() {
    let Some(b) = bench() else { return };
    let lease = || b.region.lease(0..4096).unwrap();
    rejected(
        &b,
        K::ReadOnly,
        &["opened for reading", "OpenOptions::write"],
        Transfer::write(&b.read).extent(0, lease()),
    );
    refused(&b.engine, K::ReadOnly, &["opened for reading", "OpenOptions::write"], || b.read.set_size(4096));
    assert_eq!(b.read.size(), SIZE);
    refused(&b.engine, K::InvalidInput, &["overflow"], || b.write.set_size(u64::MAX));
    assert_eq!(b.write.size(), 1 << 20);

    let clone = b.write.clone();
    clone.close();
    rejected(&b, K::Closed, &["closed", "open it again"], Transfer::read(&b.write).extent(0, lease()));
    rejected(&b, K::Closed, &["closed", "open it again"], Transfer::write(&b.write).extent(0, lease()));
    refused(&b.engine, K::Closed, &["closed", "open it again"], || b.client.flush(&b.write));
    // Another target of the same file is another target.
    let again = b.engine.open(b.write.name(), OpenOptions::read()).unwrap();
    b.client.submit(Transfer::read(&again).extent(0, lease())).unwrap().wait().unwrap().result.unwrap();
}

#[test]
fn what_belongs_to_another_engine() {
    let Some(b) = bench() else { return };
    let other = Engine::builder().lanes(1).build().unwrap();
    let theirs = other.open(b.read.name(), OpenOptions::read()).unwrap();
    let region = other.alloc_host(8192).unwrap();
    let ours = b.region.lease(0..4096).unwrap();
    rejected(&b, K::WrongEngine, &["target", "another engine"], Transfer::read(&theirs).extent(0, ours));
    let mixed = Transfer::read(&b.read)
        .extent(0, b.region.lease(0..4096).unwrap())
        .extent(0, region.lease(0..4096).unwrap());
    let e = rejected(&b, K::WrongEngine, &["region", "another engine"], mixed);
    assert_eq!(e.extent_index(), Some(1));
    refused(&b.engine, K::WrongEngine, &["target", "another engine"], || b.client.flush(&theirs));
    // Their leases came back to them.
    region.release(Duration::from_secs(5)).unwrap();
}

#[test]
fn leases() {
    let Some(b) = bench() else { return };
    let (e, region, len) = (&b.engine, &b.region, b.region.len());
    let range = |start, end| std::ops::Range { start, end };
    refused(e, K::InvalidInput, &["no bytes", "at least one byte"], || region.lease(5..5));
    refused(e, K::InvalidInput, &["no bytes"], || region.lease(range(6, 5)));
    refused(e, K::OutOfBounds, &["outside its region", "Region::len"], || region.lease(0..len + 1));
    refused(e, K::OutOfBounds, &["outside its region"], || region.lease(len..len + 1));
    refused(e, K::OutOfBounds, &["outside its region"], || region.lease(0..usize::MAX));
    refused(e, K::OutOfBounds, &["outside its region"], || region.range(len - 1..len + 1));

    let held = region.lease(1000..2000).unwrap();
    for (start, end) in [(1000, 2000), (0, 1001), (1999, 3000), (1500, 1600), (0, len)] {
        refused(e, K::Overlap, &["overlaps", "wait for its completion or drop it"], || {
            region.lease(start..end)
        });
        refused(e, K::Overlap, &["overlaps"], || region.range(start..end));
    }
    let beside = (region.lease(0..1000).unwrap(), region.lease(2000..len).unwrap());
    let mut left = held;
    for at in [0, 1000, usize::MAX] {
        refused(e, K::InvalidInput, &["cut at a byte inside", "1 to 999"], || left.split_off(at));
        left.fill(at as u8);
        assert_eq!((left.start(), left.len()), (1000, 1000), "a bad place leaves the lease as it was");
    }
    let right = left.split_off(400).unwrap();
    assert_eq!((left.start(), left.len(), right.start(), right.len()), (1000, 400, 1400, 600));
    drop(left);
    refused(e, K::Overlap, &["overlaps"], || region.lease(1000..1401));
    let left = region.lease(1000..1400).expect("one half came back alone");
    drop((left, right, beside));
    drop(region.lease(0..len).expect("all came back"));
}

#[test]
fn regions() {
    let Some(b) = bench() else { return };
    refused(&b.engine, K::InvalidInput, &["no bytes", "at least one"], || b.engine.alloc_host(0));
    let error =
        refused(&b.engine, K::Resource, &["cannot map", "ask for less"], || b.engine.alloc_host(1 << 60));
    assert_eq!(error.errno(), Some(libc::ENOMEM));
    let pages = support::kernel::Pages::new(8192);
    let p = pages.ptr();
    // SAFETY: refused before anything is done with it.
    refused(&b.engine, K::InvalidInput, &["empty", "wraps"], || unsafe { b.engine.register_host(p, 0) });
    // SAFETY: refused before anything is done with it.
    refused(&b.engine, K::InvalidInput, &["wraps"], || unsafe { b.engine.register_host(p, usize::MAX) });

    // SAFETY: the pages outlive the region, which is released below.
    let region = unsafe { b.engine.register_host(p, 8192) }.unwrap();
    refused(&b.engine, K::InvalidInput, &["aliased by its owner", "Region::range"], || region.lease(0..4096));
    let mut range = region.range(0..4096).unwrap();
    assert_eq!((range.start(), range.len()), (0, 4096));
    refused(&b.engine, K::InvalidInput, &["cut", "1 to 4095"], || range.split_off(4096));
    let tail = range.split_off(4095).unwrap();
    assert_eq!((range.len(), tail.start(), tail.len()), (4095, 4095, 1));
    let busy = region.release(Duration::from_secs(5)).expect_err("two ranges are out");
    assert!(busy.to_string().contains("2 leases are out") && busy.to_string().contains("release it again"));
    let region = busy.into_region();
    drop((range, tail));
    region.release(Duration::from_secs(5)).unwrap();
}

#[test]
fn all_entries_taken_is_busy_and_loses_nothing() {
    let engine = Engine::builder().null().lanes(1).max_transfers(2).build().unwrap();
    let (target, region, client) =
        (engine.open_null(1 << 30).unwrap(), engine.alloc_host(1 << 20).unwrap(), engine.client().unwrap());
    let read = |at| Transfer::read(&target).extent(0, region.lease(at..at + 4096).unwrap());
    // Completed or not, an entry is taken until its completion was fetched.
    let (first, second) = (client.submit(read(0)).unwrap(), client.submit_tagged(read(4096), 9).unwrap());
    let words = ["entries are taken", "wait for a completion", "max_transfers"];
    let rejected = client.submit(read(8192)).expect_err("a third");
    super::is(&rejected.error, K::Busy, &words);
    let question_mark =
        || -> Result<(), fullbore::Error> { client.submit(read(12_288)).map(drop).map_err(From::from) };
    super::is(&question_mark().expect_err("as an error alone"), K::Busy, &words);
    drop(region.lease(12_288..16_384).expect("whose lease went back to its region"));
    let error = client.flush(&target).expect_err("a flush needs an entry too");
    super::is(&error, K::Busy, &words);
    assert_eq!(engine.stats().active, 2);
    let overlapping = region.lease(8192..8193).expect_err("the transfer that came back holds its lease");
    assert_eq!(overlapping.kind(), K::Overlap);

    first.wait().unwrap().result.unwrap();
    let third = client.submit(rejected.transfer).expect("the very transfer is accepted now");
    assert_eq!(third.wait().unwrap().bytes, 4096);
    let mut done = Vec::new();
    client.wait(1, &mut done, Some(Duration::from_secs(5))).unwrap();
    assert_eq!((done.len(), done[0].tag), (1, 9));
    let _ = second;
    assert_eq!(engine.stats().active, 0);
}

#[test]
fn after_shutdown_everything_is_closed() {
    let Some(b) = bench() else { return };
    let lease = b.region.lease(0..4096).unwrap();
    let super::Bench { engine, client, read, region, .. } = b;
    drop(engine);
    let rejected = client.submit(Transfer::read(&read).extent(0, lease)).expect_err("closed");
    super::is(&rejected.error, K::Closed, &["engine is shut down"]);
    assert_eq!(rejected.transfer.extents()[0].len(), 4096);
    super::is(&client.flush(&read).expect_err("closed"), K::Closed, &["engine is shut down"]);
    drop(rejected);
    region.release(Duration::from_secs(5)).expect("memory is released all the same");
}
