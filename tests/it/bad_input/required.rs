//! A path that is demanded runs, alone, or the transfer is refused: never a quiet substitute.

use super::{Bench, bench, rejected};
use crate::support;
use fullbore::{Engine, ErrorKind as K, OpenOptions, Path, Target, Transfer};
use std::time::Duration;

/// Reads `len` bytes at `offset` into the region at `at`, demanding `path`; answers the names of the paths taken.
fn granted(b: &Bench, target: &Target, path: Path, offset: u64, at: usize, len: usize) -> String {
    let read = Transfer::read(target).extent(offset, b.region.lease(at..at + len).unwrap()).require(path);
    let done =
        b.client.submit(read).unwrap_or_else(|r| panic!("{path} for {offset}, {at}, {len}: {}", r.error));
    let done = done.wait().unwrap();
    done.result.unwrap();
    let lease = done.transfer.unwrap().into_extents().remove(0).into_mem().into_host().unwrap();
    support::check(&lease, offset, super::SEED, "a demanded path");
    done.paths.to_string()
}

fn denied(b: &Bench, target: &Target, path: Path, (offset, at, len): (u64, usize, usize), words: &[&str]) {
    let read = Transfer::read(target).extent(offset, b.region.lease(at..at + len).unwrap()).require(path);
    let name = format!("\"{path}\" was demanded");
    let words: Vec<_> = std::iter::once(name.as_str()).chain(words.iter().copied()).collect();
    rejected(b, K::PathUnavailable, &words, read);
}

#[test]
fn straight_paths() {
    let Some(b) = bench() else { return };
    let straight = if b.region.is_registered() { Path::Fixed } else { Path::Plain };
    let other = if straight == Path::Fixed { Path::Plain } else { Path::Fixed };
    assert_eq!(b.engine.path(&b.read, &b.region).path, straight);
    assert_eq!(granted(&b, &b.read, straight, 4096, 8192, 256 << 10), straight.name());
    let would = format!("\"{straight}\" would run");
    denied(&b, &b.read, other, (4096, 8192, 4096), &[&would, "O_DIRECT"]);
    for path in [Path::Scratch, Path::FixedBuffered, Path::Buffered, Path::Null] {
        denied(&b, &b.read, path, (4096, 8192, 4096), &[&would]);
    }
    // An odd offset, address or length sends bytes through scratch.
    let remedy = ["scratch", "align"];
    denied(&b, &b.read, straight, (4097, 8192, 4096), &remedy);
    denied(&b, &b.read, straight, (4096, 8193, 4096), &remedy);
    denied(&b, &b.read, straight, (4096, 8192, 4095), &remedy);
}

#[test]
fn scratch() {
    let Some(b) = bench() else { return };
    assert_eq!(granted(&b, &b.read, Path::Scratch, 4096, 8193, 64 << 10), "uring scratch");
    assert_eq!(granted(&b, &b.read, Path::Scratch, 100, 8192, 5000), "uring scratch");
    assert_eq!(granted(&b, &b.read, Path::Scratch, 100, 0, 7), "uring scratch");
    // Its head alone would go through scratch, the rest straight.
    denied(&b, &b.read, Path::Scratch, (100, 100, 64 << 10), &["would run"]);
}

#[test]
fn the_page_cache() {
    let Some(b) = bench() else { return };
    let target = b.engine.open(b.read.name(), OpenOptions::read().buffered()).unwrap();
    let cached = if b.region.is_registered() { Path::FixedBuffered } else { Path::Buffered };
    let report = b.engine.path(&target, &b.region);
    assert_eq!(report.path, cached, "{}", report.reason);
    assert!(report.reason.contains("page cache"), "{}", report.reason);
    // Any byte range into any address is one path there.
    assert_eq!(granted(&b, &target, cached, 101, 8193, 4099), cached.name());
    denied(&b, &target, Path::Fixed, (4096, 8192, 4096), &["would run", "page cache"]);
}

/// One extent that cannot take the path refuses the whole transfer.
#[test]
fn every_extent_counts() {
    let Some(b) = bench() else { return };
    let straight = b.engine.path(&b.read, &b.region).path;
    let read = Transfer::read(&b.read)
        .extent(0, b.region.lease(0..4096).unwrap())
        .extent(4096, b.region.lease(8193..8193 + 4096).unwrap())
        .require(straight);
    let error = rejected(&b, K::PathUnavailable, &["scratch"], read);
    assert_eq!(error.extent_index(), Some(1));
}

/// A region that was dropped is not registered any more, although a lease on it lives.
#[test]
fn a_dropped_region_has_no_fixed_buffers() {
    let Some(b) = bench() else { return };
    let region = b.engine.alloc_host(1 << 20).unwrap();
    if !region.is_registered() {
        return eprintln!("skipped: {}", region.registration_note().unwrap_or_default());
    }
    let lease = region.lease(0..4096).unwrap();
    drop(region);
    let read = Transfer::read(&b.read).extent(0, lease).require(Path::Fixed);
    match b.client.submit(read) {
        Err(rejected) => assert_eq!(rejected.error.kind(), K::PathUnavailable),
        Ok(ticket) => {
            let done = ticket.wait().unwrap();
            done.result.unwrap();
            assert_eq!(done.paths.to_string(), "uring fixed", "demanded and accepted, so it must have run");
        }
    }
}

#[test]
fn null() {
    let engine = Engine::builder().null().lanes(1).build().unwrap();
    let (target, region) = (engine.open_null(1 << 20).unwrap(), engine.alloc_host(8192).unwrap());
    let client = engine.client().unwrap();
    let read = |path| Transfer::read(&target).extent(0, region.lease(0..4096).unwrap()).require(path);
    let rejected = client.submit(read(Path::Fixed)).expect_err("nothing moves there");
    super::is(&rejected.error, K::PathUnavailable, &["\"null\" would run", "moves nothing"]);
    drop(rejected);
    let done = client.submit(read(Path::Null)).unwrap().wait().unwrap();
    assert_eq!(done.paths.to_string(), "null");
    drop(done);
    // Nothing goes through scratch there, whatever the alignment.
    let odd = Transfer::read(&target).extent(3, region.lease(1..4096).unwrap()).require(Path::Null);
    assert_eq!(client.submit(odd).unwrap().wait().unwrap().paths.to_string(), "null");
    region.release(Duration::from_secs(5)).unwrap();
}
