//! Mapped memory as a target. (Reads, writes and odd ranges over every kind of memory: `conformance`, target "mapped".
//! DAX devices: `vm::dax`.)

use super::support::{build, check, child, eventually, folders, poison, uring};
use fullbore::{Engine, ErrorKind, OpenOptions, Path, Transfer};
use std::fs::File;
use std::time::Duration;

const MIB: usize = 1 << 20;
const SEED: u64 = 31;

#[test]
fn a_file_is_mapped_on_demand_and_its_path_says_so() {
    if !uring() {
        return;
    }
    for folder in folders() {
        let path = folder.file("data", 8 * MIB as u64 + 77, SEED);
        let engine = build(Engine::builder());
        let files = engine.lanes();
        let target = engine.open(&path, OpenOptions::read().mapped()).expect("it is mapped");
        assert!(target.is_mapped() && target.size() == 8 * MIB as u64 + 77);
        assert!(engine.lanes() > files, "copying has lanes of its own");
        let region = engine.alloc_host(8 * MIB).unwrap();
        let report = engine.path(&target, &region);
        assert_eq!(report.path, Path::Copy);
        assert!(report.reason.contains("stores") || report.reason.contains("memcpy"), "{}", report.reason);
        let mut lease = region.lease(0..8 * MIB).unwrap();
        poison(&mut lease);
        let transfer = Transfer::read(&target).extent(77, lease).require(Path::Copy);
        let done = engine.client().unwrap().submit(transfer).unwrap().wait().unwrap();
        assert_eq!(done.paths.to_string(), "cpu copy");
        check(&done.into_leases().expect("it is read")[0], 77, SEED, folder.name);
        // One object is for every lane; one that has no CPU for a while comes too late for so few milliseconds.
        let copiers = engine.lanes() - files;
        let all_took_part = eventually(Duration::from_secs(10), || {
            let transfer = Transfer::read(&target).extent(0, region.lease(0..8 * MIB).unwrap());
            engine.client().unwrap().submit(transfer).unwrap().wait().unwrap().result.expect("it is read");
            engine.stats().lanes.iter().filter(|lane| lane.commands > 0).count() == copiers.min(8)
        });
        assert!(all_took_part, "of {copiers} lanes");
        drop(target);
        assert!(
            engine
                .open(&path, OpenOptions::write().mapped().create(16 << 20))
                .is_ok_and(|t| t.size() == 16 << 20)
        );
    }
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    if !uring() {
        return;
    }
    let engine = build(Engine::builder());
    for folder in folders() {
        let empty = folder.path.join("empty");
        File::create(&empty).unwrap();
        let error = engine.open(&empty, OpenOptions::read().mapped()).expect_err("no bytes");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains("create(size)"), "{error}");
        for options in [OpenOptions::read().mapped().polled(), OpenOptions::read().mapped().buffered()] {
            assert_eq!(engine.open(&empty, options).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let gone = engine.open(folder.path.join("gone"), OpenOptions::read().mapped()).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    }
}

/// The guard turns SIGBUS in a copy into that transfer's error; others, and the handler from before, go on.
#[test]
fn a_mapped_file_that_is_cut_short_is_an_error_under_the_guard() {
    if !uring() {
        return;
    }
    child("dax::a_mapped_file_that_is_cut_short_is_an_error_under_the_guard", &[]).run(|| {
        for folder in folders() {
            let path = folder.file("data", 8 * MIB as u64, SEED);
            let engine = build(Engine::builder().lanes(2));
            let target =
                engine.open(&path, OpenOptions::write().mapped().guard_sigbus()).expect("it is mapped");
            let region = engine.alloc_host(8 * MIB).unwrap();
            let client = engine.client().unwrap();
            File::options().write(true).open(&path).and_then(|file| file.set_len(MIB as u64)).unwrap();
            let transfer = Transfer::read(&target).extent(0, region.lease(0..8 * MIB).unwrap());
            let done = client.submit(transfer).unwrap().wait().unwrap();
            let error = done.result.expect_err("most of the file is gone");
            assert_eq!(
                (error.kind(), error.offset()),
                (ErrorKind::UnexpectedEof, Some(MIB as u64)),
                "{error}"
            );
            assert_eq!(done.bytes, MIB as u64, "what is there was read");
            drop(done.transfer);
            let transfer = Transfer::write(&target).extent(4 << 20, region.lease(0..MIB).unwrap());
            assert!(client.submit(transfer).unwrap().wait().unwrap().result.is_err());
            let mut lease = region.lease(0..MIB).unwrap();
            poison(&mut lease);
            let done = client.submit(Transfer::read(&target).extent(0, lease)).unwrap().wait().unwrap();
            check(&done.into_leases().expect("the lanes live")[0], 0, SEED, folder.name);
        }
    });
}

static HEARD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn heard(_: libc::c_int) {
    HEARD.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// The handler is the whole process's: a SIGBUS that is not of the engine's copies goes to whoever had it before.
#[test]
fn the_guard_leaves_other_bus_errors_to_the_handler_from_before() {
    if !uring() {
        return;
    }
    child("dax::the_guard_leaves_other_bus_errors_to_the_handler_from_before", &[]).run(|| {
        let Some(folder) = folders().pop() else { return };
        let path = folder.file("data", 2 * MIB as u64, SEED);
        // SAFETY: the handler does nothing but count.
        unsafe { libc::signal(libc::SIGBUS, heard as *const () as libc::sighandler_t) };
        let engine = build(Engine::builder());
        let target = engine.open(&path, OpenOptions::read().mapped().guard_sigbus()).expect("it is mapped");
        // SAFETY: there is a handler.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(HEARD.load(std::sync::atomic::Ordering::Relaxed), 1);
        File::options().write(true).open(&path).and_then(|file| file.set_len(4096)).unwrap();
        let region = engine.alloc_host(2 * MIB).unwrap();
        let read = Transfer::read(&target).extent(0, region.lease(0..2 * MIB).unwrap());
        let done = engine.client().unwrap().submit(read).unwrap().wait().unwrap();
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(HEARD.load(std::sync::atomic::Ordering::Relaxed), 1, "that one was the engine's");
    });
}
