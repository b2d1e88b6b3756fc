//! Blocks: the last one, none past it, both sizes, misaligned ones, writes and flushes.

use super::drives::{Drive, drives};
use super::rig::{KIB, MIB, Object, Rig, best_path, old_kernel, on};
use super::trace::Tracer;
use crate::support::kernel::Pages;
use crate::support::load::{lease_of, load_raw, raw};
use crate::support::{check, fill, poison, untouched, within};
use fullbore::{Engine, ErrorKind, OpenOptions, Transfer};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn rig(drive: &Drive) -> Rig {
    Rig::new(drive.filled(MIB), Engine::builder().lanes(2), 2 * MIB)
}

#[test]
fn the_last_block_is_read_and_none_past_it() {
    let Some([wide, narrow]) = drives(["d0", "b512"]) else { return };
    within(LIMIT, "the end of a drive", || {
        for drive in [wide, narrow] {
            drive.put(drive.size - MIB, MIB);
            let rig = rig(&drive);
            assert_eq!(rig.target.size(), drive.size, "{}", drive.name);
            let tail =
                [drive.lba, 100 * KIB, MIB].map(|len| Object { trace: 1, offset: drive.size - len, len });
            for object in tail {
                rig.load(&[object]);
            }
            for (offset, len) in [(drive.size, drive.lba), (drive.size - drive.lba, 2 * drive.lba)] {
                let lease = rig.region.lease(0..len as usize).unwrap();
                let rejected = rig.client.submit(Transfer::read(&rig.target).extent(offset, lease));
                let error = rejected.expect_err("past the end").error;
                assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
            }
        }
    });
}

#[test]
fn both_block_sizes_are_taken_as_they_are() {
    let Some([wide, narrow]) = drives(["d0", "b512"]) else { return };
    within(LIMIT, "block sizes", || {
        for (drive, block) in [(wide, 4096), (narrow, 512)] {
            let rig = rig(&drive);
            assert_eq!((drive.lba, u64::from(rig.target.block_size())), (block, block), "{}", drive.name);
            // Odd blocks, an odd number of them.
            let object = Object { trace: 3, offset: 3 * block, len: 77 * block };
            let (loaded, commands) = rig.traced(&[object]);
            assert_eq!(loaded[0].paths, best_path(), "{}", drive.name);
            let blocks = std::slice::from_ref(&(3..80));
            assert_eq!(super::seen::extents(&commands, 3), blocks, "{}", drive.name);
        }
    });
}

#[test]
fn what_is_not_whole_blocks_or_not_aligned_goes_through_scratch_and_says_so() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "misaligned", || {
        let rig = rig(&drive);
        // The range.
        let loaded = rig.load(&[Object { trace: 1, offset: 100, len: 300 * KIB + 1 }]);
        assert!(loaded[0].paths.contains("uring-cmd scratch"), "{}", loaded[0].paths);
        // The memory: the kernel would copy silently (FACTS §4).
        let mut pages = Pages::new(MIB as usize);
        let len = 256 << 10;
        poison(pages.bytes_mut());
        let done = load_raw(&rig.client, &rig.target, &mut [raw(4096, pages.addr() as *mut u8, len)]);
        assert_eq!((done.result.is_ok(), done.paths.to_string().as_str()), (true, "uring-cmd"));
        check(&pages.bytes()[..len], 4096, drive.seed(), "unregistered memory");
        poison(pages.bytes_mut());
        let to = (pages.addr() + 1) as *mut u8;
        let done = load_raw(&rig.client, &rig.target, &mut [raw(4096, to, len)]);
        done.result.as_ref().expect("misaligned memory is served");
        assert_eq!(done.paths.to_string(), "uring-cmd scratch");
        check(&pages.bytes()[1..=len], 4096, drive.seed(), "misaligned memory");
        assert!(untouched(&pages.bytes()[..1]) && untouched(&pages.bytes()[len + 1..]), "nothing beside it");
    });
}

#[test]
fn what_is_written_is_there_and_a_flush_reaches_the_drive() {
    let Some([drive]) = drives(["d1"]) else { return };
    within(LIMIT, "write and flush", || {
        let (offset, len, seed) = (64 * MIB, 3 * MIB + 4096, 99);
        let rig = Rig::with(&drive, Engine::builder().lanes(2), 4 * MIB, OpenOptions::write());
        let mut lease = rig.region.lease(0..len as usize).unwrap();
        fill(&mut lease, offset, seed);
        let tracer = Tracer::start();
        let transfer = Transfer::write(&rig.target).extent(offset, lease).trace_id(5).durable();
        let done = rig.client.submit(transfer).unwrap().wait().unwrap();
        let commands = on(tracer.stop().commands, &drive);
        done.result.as_ref().expect("written");
        assert_eq!(done.bytes, len);
        drop(lease_of(done));
        drive.holds(offset, len as usize, seed, "read back past the engine");
        // It is a flush of everything written: after the last write ended.
        let written = commands.iter().filter(|c| c.opcode == "write").filter_map(|c| c.complete_ns).max();
        let flush: Vec<_> = commands.iter().filter(|c| c.opcode == "flush").collect();
        assert_eq!(flush.len(), 1, "one flush: {commands:?}");
        assert!(Some(flush[0].setup_ns) > written, "the flush came after the writes");
        assert_eq!((flush[0].trace_id(), flush[0].status), (Some(5), Some(0)));
    });
}

#[test]
fn a_client_can_flush() {
    let Some([drive]) = drives(["d1"]) else { return };
    within(LIMIT, "flush", || {
        let rig = Rig::with(&drive, Engine::builder().lanes(1), MIB, OpenOptions::write());
        let tracer = Tracer::start();
        let done = rig.client.flush(&rig.target).unwrap().wait().unwrap();
        done.result.expect("flushed");
        let commands = on(tracer.stop().commands, &drive);
        assert_eq!(commands.iter().map(|c| c.opcode.as_str()).collect::<Vec<_>>(), ["flush"]);
    });
}

#[test]
fn the_drive_counts_the_bytes_that_we_say_we_read() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "SMART", || {
        let rig = Rig::new(drive.filled(20 * MIB), Engine::builder().lanes(2), 20 * MIB);
        let moved = |rig: &Rig| rig.engine.stats().lanes.iter().map(|lane| lane.bytes).sum::<u64>();
        let (before, ours) = (drive.smart_bytes_read(), moved(&rig));
        for _ in 0..4 {
            rig.load(&[Object { trace: 1, offset: 0, len: 20 * MIB }]);
        }
        let (grown, ours) = (drive.smart_bytes_read() - before, moved(&rig) - ours);
        println!("measured: SMART says {grown} bytes, we {ours}");
        assert_eq!(ours, 80 * MIB);
        // It rounds to units, at both ends.
        assert!(grown.abs_diff(ours) <= 2 * super::drives::SMART_UNIT, "{grown} against {ours}");
    });
}

#[test]
fn paths_can_be_asked_for_and_demanded() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "paths", || {
        let rig = rig(&drive);
        let report = rig.engine.path(&rig.target, &rig.region);
        println!("measured: {}: {}", report.path, report.reason);
        assert_eq!(report.path.name(), best_path());
        let says = if old_kernel() { "EINVAL" } else { "registered" };
        assert!(report.reason.contains(says), "{}", report.reason);
        assert_eq!(rig.load(&[Object { trace: 1, offset: 0, len: MIB }])[0].paths, best_path());
        // A path of files is not this one: refused, not replaced.
        let lease = rig.region.lease(0..4096).unwrap();
        let transfer = Transfer::read(&rig.target).extent(0, lease).require(fullbore::Path::Fixed);
        let error = rig.client.submit(transfer).expect_err("it cannot take that path").error;
        assert!(error.to_string().contains("uring-cmd"), "the error names the path there is: {error}");
    });
}
