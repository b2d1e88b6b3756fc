//! The driver fails at each of its calls in turn: every transfer ends once, the error says what and where, and what
//! comes later works where it can.

use super::rig::{KIB, MIB, Rig, SEED, WAIT, failed, given_out, gpu, ok};
use crate::support::cuda::{EVER, Fake};
use crate::support::eventually;
use fullbore::{Engine, ErrorKind, OpenOptions, Path, Target, Transfer};

/// Code of the stand-in where a copy is refused, and where a context breaks.
const UNKNOWN: u32 = 999;
const LAUNCH_FAILED: u32 = 719;

fn rig(fake: Fake) -> Rig {
    Rig::new(fake, Engine::builder(), 40 * MIB)
}

/// Many small pieces, so that a kernel moves them.
fn pieces(rig: &Rig, mut transfer: Transfer) -> Transfer {
    for i in 0..64 {
        transfer = rig.add(transfer, i * 16 * KIB, (i * 37 % 64) * 32 * KIB, 16 * KIB);
    }
    transfer
}

#[track_caller]
fn pieces_landed(rig: &Rig) {
    (0..64).for_each(|i| rig.check(i * 16 * KIB, (i * 37 % 64) * 32 * KIB, 16 * KIB));
}

/// A mapping that the driver does not register, whether the GPU or the target came first.
#[test]
fn a_mapping_that_is_not_registered_goes_by_bounce_and_says_why() {
    gpu("gpu::faults::a_mapping_that_is_not_registered_goes_by_bounce_and_says_why", &[], |fake| {
        let rig = rig(fake);
        fake.order("register", 0, 1);
        let (path, target) = rig.file(20 * MIB, OpenOptions::read().mapped());
        let report = rig.engine.path(&target, &rig.region);
        assert_eq!(report.path, Path::PinnedBounce);
        assert!(
            report.reason.contains("801") && report.reason.contains("cuMemHostRegister"),
            "{}",
            report.reason
        );
        let done = rig.read(&target, 7, 9, 17 * MIB);
        let paths = done.paths;
        ok(done);
        assert!(paths.contains(Path::PinnedBounce) && !paths.contains(Path::DaxToGpu), "{paths}");
        rig.check(7, 9, 17 * MIB);
        let refused = rig.to_read(&target, 0, 0, MIB).require(Path::DaxToGpu);
        let refused = rig.client.submit(refused).map(drop).expect_err("it is not the path").error;
        assert_eq!(refused.kind(), ErrorKind::PathUnavailable, "{refused}");
        assert!(refused.to_string().contains("801"), "{refused}");
        // The target first.
        let engine = Engine::builder().build().expect("an engine");
        let target = engine.open(path, OpenOptions::read().mapped()).expect("a target");
        fake.order("register", 0, EVER); // the bounce buffers are the driver's own, then
        let region = engine.alloc_gpu(0, 1 << 20).expect("a region");
        assert_eq!(engine.path(&target, &region).path, Path::PinnedBounce);
        let range = region.range(0..1 << 20).expect("a range");
        let client = engine.client().expect("a client");
        let done = client
            .submit(Transfer::read(&target).extent(5, range))
            .expect("accepted")
            .wait()
            .expect("an end");
        done.result.expect("it lands");
        let bytes = fake.peek(region.as_ptr() as u64, 1 << 20);
        assert_eq!(crate::support::first_mismatch(&bytes, 5, SEED), None);
    });
}

#[test]
fn bounce_buffers_that_are_not_registered_are_allocated_by_the_driver() {
    gpu("gpu::faults::bounce_buffers_that_are_not_registered_are_allocated_by_the_driver", &[], |fake| {
        fake.order("register", 0, EVER);
        let rig = rig(fake);
        assert!(fake.count("cuMemHostAlloc") > 0);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (path, target) = rig.file(20 * MIB, options);
            rig.read(&target, 777, 5, 17 * MIB).result.expect("it lands");
            rig.check(777, 5, 17 * MIB);
            rig.run(pieces(&rig, Transfer::read(&target))).result.expect("it lands");
            pieces_landed(&rig);
            rig.read(&target, 0, 0, 9 * MIB).result.expect("it lands");
            let done = rig.run(rig.add(Transfer::write(&target), 9 * MIB, 0, 9 * MIB));
            done.result.expect("it is written");
            let file = std::fs::read(path).expect("the file");
            assert!(file[9 << 20..18 << 20] == file[..9 << 20]);
        }
    });
}

/// Each call of the driver on the way to a region fails once. Nothing is left behind, and the second try works.
#[test]
fn a_region_that_cannot_be_made_leaves_nothing_behind() {
    gpu("gpu::faults::a_region_that_cannot_be_made_leaves_nothing_behind", &[], |fake| {
        let memory = fake.alloc(0, 1 << 20);
        for (faults, code, given) in [
            (&[("retain", 0)][..], 2, "cuDevicePrimaryCtxRetain"),
            (&[("pointer", 0)], 999, ""),
            (&[("stream_create", 0)], 2, "cuStreamCreateWithPriority"),
            (&[("stream_create", 1)], 2, "cuStreamCreateWithPriority"),
            (&[("register", 0), ("host_alloc", 0)], 2, "cuMemHostAlloc"),
            (&[("register", 1), ("host_alloc", 0)], 2, "cuMemHostAlloc"),
        ] {
            let engine = Engine::builder().build().expect("an engine");
            let before = given_out(fake);
            faults.iter().for_each(|(fault, after)| fake.order(fault, *after, 1));
            // SAFETY: the stand-in's memory, which outlives the engine.
            let made = unsafe { engine.register_cuda(memory, 1 << 20) };
            let error = made.map(drop).expect_err("a call fails");
            assert_eq!(error.cuda_code(), Some(code), "{faults:?}: {error}");
            assert!(error.to_string().contains("answered CUDA_ERROR_"), "{error}");
            for ((what, is), (_, was)) in given_out(fake).into_iter().zip(before) {
                let failed = (what == given || faults[0].0 == "register" && what.contains("Register")) as i64;
                assert_eq!(is - was, failed, "{what} after {faults:?}");
            }
            assert_eq!(
                engine.stats().lanes.iter().filter(|l| l.drive.is_some()).count(),
                0,
                "no lane is left"
            );
            // SAFETY: as above.
            let region = unsafe { engine.register_cuda(memory, 1 << 20) }.expect("the second try works");
            region.release(WAIT).expect("it is released");
        }
        let engine = Engine::builder().build().expect("an engine");
        fake.order("alloc", 0, 1);
        let error = engine.alloc_gpu(0, 12345).expect_err("no memory");
        assert_eq!((error.kind(), error.cuda_code()), (ErrorKind::Resource, Some(2)), "{error}");
        assert!(error.to_string().contains("12345 bytes on GPU 0"), "{error}");
        engine.alloc_gpu(0, 12345).expect("the second try works");
    });
}

/// All that an engine takes from the driver it gives back.
#[test]
fn an_engine_gives_all_back() {
    gpu("gpu::faults::an_engine_gives_all_back", &[], |fake| {
        let once = || {
            let rig = rig(fake);
            let (_, target) = rig.file(20 * MIB, OpenOptions::write());
            let (_, mapped) = rig.file(20 * MIB, OpenOptions::read().mapped());
            rig.read(&target, 0, 0, 20 * MIB).result.expect("it lands");
            rig.read(&mapped, 0, 0, 20 * MIB).result.expect("it lands");
            rig.run(pieces(&rig, Transfer::read(&mapped))).result.expect("it lands");
            rig.run(pieces(&rig, Transfer::write(&target))).result.expect("it is written");
            let own = rig.engine.alloc_gpu(0, 1 << 20).expect("memory");
            drop((own, mapped, target));
            let memory = rig.memory;
            drop(rig);
            fake.free(0, memory);
        };
        once();
        let before = given_out(fake);
        once();
        for ((what, is), (_, was)) in given_out(fake).into_iter().zip(before) {
            // The stand-in's own helpers retain for good: to allocate, and to free.
            let kept = if what == "cuDevicePrimaryCtxRetain" { 2 } else { 0 };
            assert_eq!(is - was, kept, "{what}");
        }
    });
}

/// Both ways, by bounce and straight, large and in pieces; the first, second and third copy.
#[test]
fn a_copy_that_is_not_queued_fails_its_transfer_alone() {
    gpu("gpu::faults::a_copy_that_is_not_queued_fails_its_transfer_alone", &[], |fake| {
        let rig = rig(fake);
        for mapped in [false, true] {
            let options = OpenOptions::write();
            let (_, target) = rig.file(36 * MIB, if mapped { options.mapped() } else { options });
            let make = |target: &Target, write: bool| {
                if write { Transfer::write(target) } else { Transfer::read(target) }
            };
            for write in [false, true] {
                for after in 0..3 {
                    fake.order("copy", after, 1);
                    let done = rig.run(rig.add(make(&target, write), 0, 0, 36 * MIB));
                    assert!(done.bytes < 36 * MIB && done.bytes.is_multiple_of(64 * KIB), "{}", done.bytes);
                    let error = failed(done, UNKNOWN);
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                }
                fake.order("copy", 0, 1);
                let done = rig.run(pieces(&rig, make(&target, write)));
                assert_eq!(done.bytes, 0, "it is one copy");
                failed(done, UNKNOWN);
            }
            rig.read(&target, 0, 0, MIB + 4096).result.expect("it lands");
            rig.run(rig.add(Transfer::write(&target), 0, 0, MIB + 4096)).result.expect("it is written");
            rig.works(&target);
            rig.run(pieces(&rig, Transfer::read(&target))).result.expect("it lands");
        }
    });
}

/// A copy that breaks the context: all that is under way ends, what comes later fails with the reason, and the engine
/// can be dropped.
#[test]
fn a_broken_context_ends_everything_once() {
    broken("gpu::faults::a_broken_context_ends_everything_once", false, 3);
}

#[test]
fn a_broken_context_ends_everything_once_while_polling() {
    broken("gpu::faults::a_broken_context_ends_everything_once_while_polling", true, 0);
}

fn broken(test: &str, polling: bool, after: u64) {
    gpu(test, &[("FAKE_CUDA_GBPS", "4")], |fake| {
        let rig = Rig::new(fake, Engine::builder().gpu_polling(polling), 128 * MIB);
        let (_, target) = rig.file(32 * MIB, OpenOptions::write());
        fake.order("copy_lost", after, 1);
        let reads = (0..3).map(|i| rig.to_read(&target, 0, i * 32 * MIB, 32 * MIB));
        let store = rig.add(Transfer::write(&target), 0, 96 * MIB, 32 * MIB);
        let tickets: Vec<_> = reads.chain([store]).map(|t| rig.submit(t)).collect();
        let done: Vec<_> = tickets.into_iter().map(|mut t| t.wait_timeout(WAIT).expect("an end")).collect();
        assert!(done.iter().any(|done| done.result.is_err()));
        for done in done.into_iter().filter(|done| done.result.is_err()) {
            failed(done, LAUNCH_FAILED);
        }
        let error = rig.read(&target, 0, 0, MIB).result.expect_err("broken");
        let why =
            error.cuda_code() == Some(LAUNCH_FAILED) && error.to_string().contains("restart the process");
        assert!(why || error.kind() == ErrorKind::LaneFailed, "{error}");
        rig.run(pieces(&rig, Transfer::read(&target))).result.expect_err("broken");
        let host = rig.engine.alloc_host(1 << 20).expect("memory");
        let read = Transfer::read(&target).extent(0, host.lease(0..1 << 20).expect("a lease"));
        rig.run(read).result.expect("host memory is not concerned");
        assert_eq!(rig.engine.stats().active, 0);
        rig.region.release(WAIT).expect("nothing is in flight");
        drop((host, rig.engine));
        let error =
            Engine::builder().build().expect("an engine").alloc_gpu(0, 4096).expect_err("still broken");
        assert_eq!(error.cuda_code(), Some(LAUNCH_FAILED), "{error}");
    });
}

/// The host program calls cudaDeviceReset under us.
#[test]
fn a_context_that_was_reset_ends_everything_once() {
    let env = [("FAKE_CUDA_GBPS", "2")];
    gpu("gpu::faults::a_context_that_was_reset_ends_everything_once", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder(), 128 * MIB);
        let (path, target) = rig.file(32 * MIB, OpenOptions::write());
        let transfers = (0..4).map(|i| match i {
            3 => rig.add(Transfer::write(&target), 0, i * 32 * MIB, 32 * MIB),
            _ => rig.to_read(&target, 0, i * 32 * MIB, 32 * MIB),
        });
        let tickets: Vec<_> = transfers.map(|t| rig.submit(t)).collect();
        std::thread::sleep(std::time::Duration::from_millis(10));
        let before = rig.engine.open(&path, OpenOptions::read().mapped()).expect("a target");
        fake.reset_context(0);
        for mut ticket in tickets {
            let done = ticket.wait_timeout(WAIT).expect("an end");
            let code = done.result.as_ref().err().and_then(|e| e.cuda_code());
            assert!(done.result.is_ok() || matches!(code, Some(201 | 709 | 1)), "{:?}", done.result);
        }
        let error = rig.read(&target, 0, 0, MIB).result.expect_err("its memory is gone");
        let text = error.to_string();
        assert!(text.contains("register the memory anew") || text.contains("new engine"), "{error}");
        // The same engine serves memory of the new context, straight out of what is mapped now, too.
        let anew = rig.engine.alloc_gpu(0, 4 << 20).expect("a region");
        let mapped = rig.engine.open(&path, OpenOptions::read().mapped()).expect("a target");
        for target in [&target, &mapped, &before] {
            let read = Transfer::read(target).extent(0, anew.range(0..4 << 20).expect("a range"));
            rig.run(read).result.expect("memory that is registered anew works");
        }
        assert_eq!(fake.count("pageable"), 0, "what was registered before is registered again");
        assert_eq!(rig.engine.path(&mapped, &anew).path.to_string(), "dax -> gpu direct");
        drop((before, anew, mapped, rig.engine, rig.client, target));
        fake.clear_violations(); // copies into memory that the reset took away are the program's fault
        let new = Rig::new(fake, Engine::builder(), 4 * MIB);
        let target = new.engine.open(path, OpenOptions::read()).expect("a target");
        let done = new.read(&target, 0, 0, 4 * MIB);
        done.result.expect("a new engine works");
    });
}

/// What only tells of the end of copies fails: the copies are none the worse.
#[test]
fn events_that_fail_are_survived() {
    gpu("gpu::faults::events_that_fail_are_survived", &[], |fake| {
        for (fault, polling) in
            ["event_create", "event_record", "event_sync"].map(|f| [(f, false), (f, true)]).concat()
        {
            let rig = Rig::new(fake, Engine::builder().gpu_polling(polling), 20 * MIB);
            let (_, target) = rig.file(20 * MIB, OpenOptions::write());
            fake.order(fault, 0, EVER);
            rig.read(&target, 5, 7, 19 * MIB).result.expect("it lands");
            rig.check(5, 7, 19 * MIB);
            rig.read(&target, 0, 0, 9 * MIB).result.expect("it lands");
            rig.run(rig.add(Transfer::write(&target), 0, 0, 9 * MIB)).result.expect("it is written");
            rig.run(pieces(&rig, Transfer::read(&target))).result.expect("pieces land");
            pieces_landed(&rig);
            rig.run(pieces(&rig, Transfer::write(&target))).result.expect("pieces are written");
            fake.order(fault, 0, 0);
            rig.works(&target);
        }
    });
}

/// A copy without an event ends when one behind it has, not when the stream stands still at last.
#[test]
fn a_copy_without_an_event_does_not_wait_for_all_that_follows() {
    let test = "gpu::faults::a_copy_without_an_event_does_not_wait_for_all_that_follows";
    gpu(test, &[("FAKE_CUDA_GBPS", "1")], |fake| {
        let rig = Rig::new(fake, Engine::builder().gpu_outstanding(64 << 20), 128 * MIB);
        let (_, target) = rig.file(96 * MIB, OpenOptions::read().mapped());
        fake.order("event_record", 0, 1);
        let [mut first, mut rest] = [(0, 4 * MIB), (16 * MIB, 96 * MIB)]
            .map(|(at, len)| rig.submit(rig.to_read(&target, 0, at, len)));
        let [first, rest] = [&mut first, &mut rest].map(|t| t.wait_timeout(WAIT).expect("an end"));
        assert!(2 * first.times.total < rest.times.total, "{:?} {:?}", first.times, rest.times);
        [first, rest].into_iter().for_each(ok);
        rig.check(0, 0, 4 * MIB);
    });
}

/// No kernel, no memory for staging or its table: pieces are copied one by one.
#[test]
fn pieces_are_copied_one_by_one_where_there_is_no_kernel() {
    gpu("gpu::faults::pieces_are_copied_one_by_one_where_there_is_no_kernel", &[], |fake| {
        for faults in [
            &[("module", 0)][..],
            &[("alloc", 0)],
            &[("alloc", 2)],
            &[("register", 1), ("host_alloc", 0)],
            &[("stream_create", 0)],
        ] {
            let rig = rig(fake);
            let (path, target) = rig.file(2 * MIB, OpenOptions::write());
            faults.iter().for_each(|(fault, after)| fake.order(fault, *after, EVER));
            let launched = fake.count("cuLaunchKernel");
            rig.poison(0, 4 * MIB);
            rig.run(pieces(&rig, Transfer::read(&target))).result.expect("it lands");
            pieces_landed(&rig);
            rig.run(pieces(&rig, Transfer::write(&target))).result.expect("it is written");
            assert_eq!(fake.count("cuLaunchKernel"), launched, "after {faults:?}");
            let file = std::fs::read(path).expect("the file");
            assert_eq!(crate::support::first_mismatch(&file, 0, SEED), None);
            faults.iter().for_each(|(fault, _)| fake.order(fault, 0, 0));
            let tried = || {
                rig.run(pieces(&rig, Transfer::read(&target))).result.expect("it lands");
                fake.count("cuLaunchKernel") > launched
            };
            assert!(eventually(WAIT, tried), "it is tried again");
        }
    });
}

#[test]
fn a_kernel_that_is_not_launched_fails_its_transfer_alone() {
    gpu("gpu::faults::a_kernel_that_is_not_launched_fails_its_transfer_alone", &[], |fake| {
        let rig = rig(fake);
        let (_, target) = rig.file(2 * MIB, OpenOptions::write());
        for write in [false, true, false, true, false, true] {
            fake.order("launch", 0, 1);
            let transfer = if write { Transfer::write(&target) } else { Transfer::read(&target) };
            failed(rig.run(pieces(&rig, transfer)), 701);
        }
        rig.run(pieces(&rig, Transfer::read(&target))).result.expect("it lands");
        pieces_landed(&rig);
    });
}
