//! Storage that fails while it feeds a GPU, or takes from one.

use super::rig::{MIB, Rig, SEED, WAIT, gpu};
use crate::support::cuda::with_cuda;
use crate::support::kernel::Stuck;
use crate::support::{POISON, does, eventually, first_mismatch, private_mounts, root, threads};
use fullbore::{Engine, ErrorKind, OpenOptions, Transfer};
use std::fs::File;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// A file cut short: the extents that it still has land and say so, the others fail at the byte where it ends.
#[test]
fn a_file_cut_short_fails_only_what_it_lacks() {
    gpu("gpu::storage::a_file_cut_short_fails_only_what_it_lacks", &[], |fake| {
        for (count, gap) in [(2, 0), (2, MIB), (40, 0), (40, 4096)] {
            let rig = Rig::new(fake, Engine::builder(), 64 * MIB);
            let (path, target) = rig.file(40 * MIB, OpenOptions::read());
            let len = 16 * MIB / count; // of each, `gap` apart: in one unit and in several
            let offset = |i: u64| i * (len + gap);
            let cut = offset(count * 3 / 4) + len / 2; // in the middle of a unit, or of two
            File::options().write(true).open(&path).expect("the file").set_len(cut).expect("it is cut");
            rig.poison(0, 64 * MIB);
            let transfer = (0..count)
                .fold(Transfer::read(&target), |t, i| rig.add(t, offset(i), (count - 1 - i) * len, len));
            let done = rig.run(transfer);
            let what = format!("{count} of {len}, {gap} apart");
            let error = done.result.expect_err(&what);
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{what}: {error}");
            assert_eq!(error.offset().map(|at| at / 4096), Some(cut / 4096), "{what}: {error}");
            assert_eq!(error.extent_index(), Some(count as u32 * 3 / 4), "{what}: {error}");
            assert!(error.target().is_some_and(|name| name.ends_with("data")), "{error}");
            let transfer = done.transfer.expect("it comes back");
            let mut sum = 0;
            for (i, extent) in transfer.extents().iter().enumerate() {
                let (i, at) = (i as u64, (count - 1 - i as u64) * len);
                sum += extent.bytes();
                if extent.succeeded() {
                    assert!(offset(i) + len <= cut, "{what}: {i}");
                    rig.check(offset(i), at, len);
                } else {
                    assert!(extent.error().is_some(), "{what}: {i}");
                }
                let there = offset(i) + len <= cut;
                assert_eq!(extent.succeeded(), there, "{what}: extent {i}, which is there: {there}");
                // Nothing that the file does not have counts, nor is anything written past it.
                assert!(extent.bytes() <= cut.saturating_sub(offset(i)), "{what}: {i}");
                if offset(i) >= cut {
                    assert!(
                        fake.peek(rig.memory + at, len as usize).iter().all(|b| *b == POISON),
                        "{what}: {i}"
                    );
                }
            }
            assert_eq!(sum, done.bytes, "{what}");
            drop(transfer);
            rig.works(&target);
        }
    });
}

#[test]
fn a_mapping_that_is_too_short_is_refused() {
    gpu("gpu::storage::a_mapping_that_is_too_short_is_refused", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 4 * MIB);
        let (_, target) = rig.file(2 * MIB, OpenOptions::read().mapped());
        let refused = |transfer| rig.client.submit(transfer).map(drop).expect_err("refused").error;
        let past = refused(rig.to_read(&target, 2 * MIB - 4096, 0, 8192));
        assert_eq!(past.kind(), ErrorKind::OutOfBounds, "{past}");
        let store = refused(rig.add(Transfer::write(&target), 0, 0, 4096));
        assert_eq!(store.kind(), ErrorKind::ReadOnly, "{store}");
        rig.works(&target);
    });
}

/// A disk that fills up: what is reported as written is, and not a byte more.
#[test]
fn a_full_disk_fails_what_it_cannot_take() {
    if !root() {
        return eprintln!("skipped: a small file system needs root");
    }
    let test = "gpu::storage::a_full_disk_fails_what_it_cannot_take";
    with_cuda(test, &[]).keep_capabilities().run(|| {
        let fake = crate::support::cuda::Fake::load();
        let rig = Rig::new(fake, Engine::builder().bounce(1 << 20, 4), 24 * MIB);
        private_mounts();
        let place = rig.folder.path.join("small");
        std::fs::create_dir(&place).expect("a folder");
        assert!(does("mount", &["-t", "tmpfs", "-o", "size=8m", "none", &place.display().to_string()]));
        let path = place.join("data");
        File::create(&path).and_then(|f| f.set_len(20 << 20)).expect("a sparse file");
        let target = rig.engine.open(&path, OpenOptions::write()).expect("a target");
        let mut bytes = vec![0; 16 << 20];
        crate::support::fill(&mut bytes, 0, 9);
        fake.poke(rig.memory, &bytes);
        let transfer =
            (0..16).fold(Transfer::write(&target), |t, i| rig.add(t, i * MIB, i * MIB, MIB)).durable();
        let done = rig.run(transfer);
        let error = done.result.expect_err("it is full");
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Resource, Some(libc::ENOSPC)), "{error}");
        let transfer = done.transfer.expect("it comes back");
        let file = std::fs::read(&path).expect("the file");
        let good = transfer.extents().iter().filter(|e| e.succeeded()).map(|e| {
            let (from, to) = (e.offset() as usize, (e.offset() + e.len()) as usize);
            assert_eq!(first_mismatch(&file[from..to], e.offset(), 9), None, "it says that it is written");
            e.len()
        });
        assert!(good.sum::<u64>() >= 4 * MIB, "what there was room for");
        let failed = transfer.extents().iter().filter(|e| e.error() == Some(libc::ENOSPC)).count();
        assert!(failed >= 8, "{failed} say that there was no room");
        assert!(done.bytes <= 8 * MIB);
        drop(transfer);
        rig.run(rig.add(Transfer::write(&target), 0, 0, MIB)).result.expect("where there is room it works");
        assert_eq!((fake.violations(), fake.count("pageable")), (String::new(), 0));
    });
}

/// A durable store is flushed once, behind its last byte; a store that failed is not said to be durable.
#[test]
fn durable_stores_are_flushed() {
    gpu("gpu::storage::durable_stores_are_flushed", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder().bounce(1 << 20, 4), 20 * MIB);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (_, target) = rig.file(20 * MIB, options);
            let commands = || {
                let of = |l: &fullbore::LaneStats| {
                    l.drive.as_ref().is_none_or(|d| !d.starts_with("gpu")) as u64 * l.commands
                };
                rig.engine.stats().lanes.iter().map(of).sum::<u64>()
            };
            let count = |durable: bool| {
                let before = commands();
                let transfer = rig.add(Transfer::write(&target), 0, 0, 17 * MIB);
                let transfer = if durable { transfer.durable() } else { transfer };
                rig.run(transfer).result.expect("it is written");
                commands() - before
            };
            let (plain, durable) = (count(false), count(true));
            assert_eq!(durable, plain + 1, "one flush");
            fake.order("copy", 5, 1);
            let before = commands();
            rig.run(rig.add(Transfer::write(&target), 0, 0, 17 * MIB).durable())
                .result
                .expect_err("a copy failed");
            assert!(commands() - before < plain, "no flush, and one buffer less");
            rig.client.flush(&target).expect("accepted").wait().expect("an end").result.expect("flushed");
        }
    });
}

/// A lane hangs in the kernel while it fills a bounce buffer.
#[test]
fn a_load_whose_storage_hangs_ends_in_time() {
    let test = "gpu::storage::a_load_whose_storage_hangs_ends_in_time";
    with_cuda(test, &[]).keep_capabilities().run(|| {
        let stuck = match Stuck::new() {
            Ok(stuck) => stuck,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let fake = crate::support::cuda::Fake::load();
        let builder = Engine::builder().lanes(2).deadline(Some(SECOND)).grace(SECOND).bounce(1 << 20, 2);
        let rig = Rig::new(fake, builder, 20 * MIB);
        // The mapping's pages are those of a memory file that is watched: whoever copies from it hangs.
        let path = rig.folder.file("hanging", 8 * MIB, SEED);
        let target = hanging(&rig, &path, &stuck);
        let begin = Instant::now();
        let mut ticket = rig.submit(rig.add(Transfer::write(&target), 0, 0, 4 * MIB));
        let done = ticket.wait_timeout(WAIT).expect("an end");
        let error = done.result.expect_err("it hangs");
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Abandoned), "{error}");
        assert!(begin.elapsed() < 5 * SECOND, "{:?}", begin.elapsed());
        // The GPU's lane goes on with other targets, and with memory that an abandoned store does not hold.
        let (_, other) = rig.file(4 * MIB, OpenOptions::read());
        // However slow the machine is: the engine's deadline is for what hangs.
        let read = |at| rig.run(rig.to_read(&other, 0, at, 4 * MIB).deadline(WAIT / 2)).result;
        read(8 * MIB).expect("other files are not concerned");
        stuck.serve(mapping(&path) as *mut u8, 8 << 20);
        assert!(
            eventually(WAIT, || rig.engine.stats().active == 0 && rig.engine.stats().quarantined_bytes == 0)
        );
        for _ in 0..20 {
            read(0).expect("all buffers are back");
        }
        rig.region.release(WAIT).expect("nothing is in flight");
        assert_eq!(fake.violations(), "");
    });
}

/// A mapped target whose pages block whoever touches them first.
fn hanging(rig: &Rig, path: &std::path::Path, stuck: &Stuck) -> fullbore::Target {
    std::fs::write(path, []).expect("the file");
    File::options().write(true).open(path).expect("the file").set_len(8 << 20).expect("holes");
    rig.fake.order("register", 0, 1); // or the driver would touch them
    let target = rig.engine.open(path, OpenOptions::write().mapped()).expect("a target");
    stuck.watch(mapping(path) as *mut u8, 8 << 20);
    target
}

/// Where this process has the file mapped.
fn mapping(path: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|l| l.ends_with(&path.display().to_string())).expect("it is mapped");
    usize::from_str_radix(line.split('-').next().expect("a range"), 16).expect("an address")
}

/// Loads, stores and pieces under way when the engine goes: each has its one end.
#[test]
fn an_engine_dropped_with_everything_in_flight_answers_all() {
    let env = [("FAKE_CUDA_GBPS", "1")];
    gpu("gpu::storage::an_engine_dropped_with_everything_in_flight_answers_all", &env, |fake| {
        for wait in [0, 1, 5, 20, 50] {
            let rig = Rig::new(fake, Engine::builder().bounce(1 << 20, 3), 128 * MIB);
            let (_, target) = rig.file(16 * MIB, OpenOptions::write());
            let (_, mapped) = rig.file(16 * MIB, OpenOptions::read().mapped());
            let transfers = (0..8).map(|i| match i % 4 {
                0 => rig.add(Transfer::write(&target).durable(), 0, i * 16 * MIB, 16 * MIB),
                1 => rig.to_read(&mapped, 0, i * 16 * MIB, 16 * MIB),
                2 => rig.to_read(&target, 0, i * 16 * MIB, 16 * MIB),
                _ => (0..100).fold(Transfer::read(&mapped), |t, k| {
                    rig.add(t, k * 100_000, i * 16 * MIB + k * 37 % 100 * 150_000, 99_999)
                }),
            });
            let tickets: Vec<_> = transfers.map(|t| rig.submit(t)).collect();
            std::thread::sleep(Duration::from_millis(wait));
            let Rig { engine, client, region, .. } = rig;
            let begin = Instant::now();
            drop(engine);
            assert!(begin.elapsed() < SECOND, "{:?}", begin.elapsed());
            for mut ticket in tickets {
                let done = ticket.wait_timeout(SECOND).expect("an end");
                let ok = done.result.as_ref().map_err(|e| e.kind());
                assert!(matches!(ok, Ok(()) | Err(ErrorKind::Shutdown)), "{:?}", done.result);
                let transfer = done.transfer.expect("nothing was abandoned");
                assert_eq!(transfer.extents().iter().map(|e| e.bytes()).sum::<u64>(), done.bytes);
            }
            drop(client);
            region.release(WAIT).expect("nothing is in flight");
            assert!(eventually(WAIT, || threads("fullbore").is_empty()), "{:?}", threads("fullbore"));
        }
    });
}
