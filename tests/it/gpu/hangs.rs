//! Copies that are slow, or do not end: deadlines, quarantine, memory that goes meanwhile, an engine that goes.

use super::rig::{MIB, Rig, WAIT, gpu, ok};
use crate::support::cuda::Fake;
use crate::support::eventually;
use fullbore::{Engine, EngineBuilder, ErrorKind, OpenOptions, Priority, ReleaseError, Transfer};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// The watchdog's period, and what a busy machine adds.
const LATE: Duration = Duration::from_secs(3);

fn short() -> EngineBuilder {
    Engine::builder().deadline(Some(SECOND)).grace(SECOND)
}

/// Waits until the copy engine has a copy.
fn copying(fake: Fake, name: &str, before: u64) {
    assert!(eventually(WAIT, || fake.count(name) > before), "a copy is queued");
}

#[test]
fn slow_copies_and_copies_that_hang_for_a_while_are_only_late() {
    gpu("gpu::hangs::slow_copies_and_copies_that_hang_for_a_while_are_only_late", &[], |fake| {
        for polling in [false, true] {
            let rig = Rig::new(fake, Engine::builder().gpu_polling(polling), 40 * MIB);
            let (_, target) = rig.file(20 * MIB, OpenOptions::write());
            fake.order("slow", 0, 4);
            let done = rig.read(&target, 3, 5, 19 * MIB);
            assert!(
                done.times.total >= Duration::from_millis(100),
                "the time is the copies': {:?}",
                done.times
            );
            ok(done);
            rig.check(3, 5, 19 * MIB);
            for write in [false, true] {
                let (name, transfer) = match write {
                    false => ("cuMemcpyHtoDAsync_v2", Transfer::read(&target)),
                    true => ("cuMemcpyDtoHAsync_v2", Transfer::write(&target)),
                };
                let before = fake.count(name);
                fake.order("hang", 0, 1);
                let mut ticket = rig.submit(rig.add(transfer, 0, 0, 20 * MIB));
                copying(fake, name, before);
                assert!(
                    ticket.wait_timeout(Duration::from_millis(100)).is_none(),
                    "it is not told before its end"
                );
                fake.release();
                ticket.wait_timeout(WAIT).expect("an end").result.expect("it was only late");
            }
            rig.works(&target);
        }
    });
}

/// Past deadline and grace: abandoned once, the memory quarantined until the copy ends, then as before.
#[test]
fn a_copy_that_hangs_is_abandoned_and_its_memory_quarantined() {
    gpu("gpu::hangs::a_copy_that_hangs_is_abandoned_and_its_memory_quarantined", &[], |fake| {
        let cases = [(false, false), (false, true), (true, false)];
        let all_abandoned = Barrier::new(cases.len());
        std::thread::scope(|scope| {
            for (polling, write) in cases {
                let rig = Rig::new(fake, short().gpu_polling(polling), 20 * MIB);
                let (_, target) = rig.file(20 * MIB, OpenOptions::write());
                let (name, transfer) = match write {
                    false => ("cuMemcpyHtoDAsync_v2", Transfer::read(&target)),
                    true => ("cuMemcpyDtoHAsync_v2", Transfer::write(&target)),
                };
                let before = fake.count(name);
                fake.order("hang", 0, 1);
                let ticket = rig.submit(rig.add(transfer, 0, 0, 4 * MIB));
                copying(fake, name, before);
                let all_abandoned = &all_abandoned;
                scope.spawn(move || abandoned(rig, target, ticket, all_abandoned));
            }
        });
    });
}

fn abandoned(rig: Rig, target: fullbore::Target, mut ticket: fullbore::Ticket, all_abandoned: &Barrier) {
    let begin = Instant::now();
    let done = ticket.wait_timeout(WAIT).expect("an end");
    assert!(begin.elapsed() < 2 * SECOND + LATE, "in time: {:?}", begin.elapsed());
    let error = done.result.expect_err("it never ended");
    assert_eq!(error.kind(), ErrorKind::Abandoned, "{error}");
    assert!(done.transfer.is_none(), "its memory is not given back");
    assert_eq!(rig.engine.stats().quarantined_bytes, 4 * MIB);
    let region = match rig.region.release(SECOND) {
        Err(ReleaseError::Quarantined(region)) => region,
        other => panic!("a copy may still land in it: {other:?}"),
    };
    all_abandoned.wait(); // a release lets all copies go on
    rig.fake.release();
    assert!(eventually(WAIT, || rig.engine.stats().quarantined_bytes == 0), "the late end is absorbed");
    let rig = Rig { region, ..rig };
    assert!(eventually(WAIT, || rig.engine.stats().active == 0), "and its entry free");
    rig.works(&target);
    rig.region.release(WAIT).expect("nothing is in flight any more");
}

/// Units that wait for their turn behind a copy that hangs are in nobody's hands: they time out, and do not count as
/// abandoned.
#[test]
fn what_waits_behind_a_copy_that_hangs_times_out() {
    gpu("gpu::hangs::what_waits_behind_a_copy_that_hangs_times_out", &[], |fake| {
        let rig = Rig::new(fake, short().gpu_outstanding(1 << 20).bounce(1 << 20, 8), 40 * MIB);
        let (_, target) = rig.file(20 * MIB, OpenOptions::read());
        let (_, mapped) = rig.file(20 * MIB, OpenOptions::read().mapped());
        fake.order("hang", 0, 1);
        let mut first = rig.submit(rig.to_read(&target, 0, 0, MIB));
        copying(fake, "cuMemcpyHtoDAsync_v2", 0);
        // One has its bytes in a bounce buffer, one a part of them, one is mapped.
        let rest = [(&target, 1, 1), (&target, 2, 20), (&mapped, 22, 10)];
        let rest: Vec<_> =
            rest.into_iter().map(|(t, at, len)| rig.submit(rig.to_read(t, 0, at * MIB, len * MIB))).collect();
        for mut ticket in rest {
            let done = ticket.wait_timeout(WAIT).expect("an end");
            let error = done.result.expect_err("the copy engine stands still");
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert_eq!(done.bytes, 0);
            assert!(done.times.total < SECOND + LATE, "{:?}", done.times);
            assert!(
                done.transfer.is_some_and(|t| t.extents().iter().all(|e| e.error() == Some(libc::ETIMEDOUT)))
            );
        }
        let error = first.wait_timeout(WAIT).expect("an end").result.expect_err("it never ended");
        assert_eq!(error.kind(), ErrorKind::Abandoned, "{error}");
        fake.release();
        assert!(eventually(WAIT, || rig.engine.stats().active == 0));
        rig.works(&target);
        rig.works(&mapped);
    });
}

/// The last bounce buffer is kept for the urgent: loads that stand still have all others.
#[test]
fn an_urgent_store_passes_loads_that_hang() {
    gpu("gpu::hangs::an_urgent_store_passes_loads_that_hang", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder().bounce(1 << 20, 4).gpu_outstanding(1 << 20), 20 * MIB);
        let (_, target) = rig.file(20 * MIB, OpenOptions::write());
        fake.order("hang", 0, 1);
        let mut load = rig.submit(rig.to_read(&target, 0, 0, 10 * MIB));
        copying(fake, "cuMemcpyHtoDAsync_v2", 0);
        std::thread::sleep(Duration::from_millis(100)); // the others are full by now
        let store = rig.add(Transfer::write(&target), 10 * MIB, 10 * MIB, MIB).priority(Priority::Urgent);
        let done = rig.submit(store).wait_timeout(5 * SECOND);
        fake.release();
        ok(done.expect("it has a buffer"));
        ok(load.wait_timeout(WAIT).expect("an end"));
    });
}

/// The engine goes although a copy never ends: bounded, and everybody has an answer.
#[test]
fn an_engine_with_a_copy_that_hangs_can_be_dropped() {
    gpu("gpu::hangs::an_engine_with_a_copy_that_hangs_can_be_dropped", &[], |fake| {
        for polling in [false, true] {
            let builder = Engine::builder().grace(SECOND).gpu_polling(polling);
            let Rig { engine, client, region, folder, .. } = {
                let rig = Rig::new(fake, builder, 64 * MIB);
                rig.file(20 * MIB, OpenOptions::read());
                rig
            };
            let target = engine.open(folder.path.join("data"), OpenOptions::read()).expect("a target");
            fake.order("hang", 0, 1);
            let before = fake.count("cuMemcpyHtoDAsync_v2");
            let submit = |i: usize| {
                let range = region.range((i * 20) << 20..((i + 1) * 20) << 20).expect("a range");
                client
                    .submit(Transfer::read(&target).extent(0, range))
                    .map_err(|r| r.error)
                    .expect("accepted")
            };
            let tickets: Vec<_> = (0..3).map(submit).collect();
            copying(fake, "cuMemcpyHtoDAsync_v2", before);
            let begin = Instant::now();
            drop(engine);
            assert!(begin.elapsed() < 2 * SECOND + LATE, "drop took {:?}", begin.elapsed());
            let kinds: Vec<_> = tickets
                .into_iter()
                .map(|mut t| {
                    t.wait_timeout(SECOND).expect("an end").result.expect_err("it did not land").kind()
                })
                .collect();
            assert_eq!(kinds[0], ErrorKind::Abandoned);
            assert!(
                kinds.iter().all(|k| matches!(k, ErrorKind::Abandoned | ErrorKind::Shutdown)),
                "{kinds:?}"
            );
            match region.release(SECOND) {
                Err(ReleaseError::Quarantined(region)) => std::mem::forget(region),
                other => panic!("a copy may still land in it: {other:?}"),
            }
            fake.release(); // what lands late lands in memory that is still there: no violation
            drop(client);
        }
    });
}

/// Memory whose handle goes while copies are queued: a release is refused, a drop keeps it until they end.
#[test]
fn memory_that_goes_while_copies_are_queued_stays_until_they_end() {
    gpu("gpu::hangs::memory_that_goes_while_copies_are_queued_stays_until_they_end", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), MIB);
        for mapped in [false, true] {
            let options = if mapped { OpenOptions::read().mapped() } else { OpenOptions::read() };
            let (_, target) = rig.file(20 * MIB, options);
            let region = rig.engine.alloc_gpu(0, 20 << 20).expect("memory");
            let (freed, before) = (fake.count("cuMemFree_v2"), fake.count("cuMemcpyHtoDAsync_v2"));
            fake.order("hang", 0, 1);
            let range = region.range(0..20 << 20).expect("a range");
            let mut ticket = rig.submit(Transfer::read(&target).extent(0, range));
            copying(fake, "cuMemcpyHtoDAsync_v2", before);
            let region = match region.release(SECOND) {
                Err(ReleaseError::Busy { region, leases: 1, .. }) => region,
                other => panic!("a copy is queued: {other:?}"),
            };
            drop((region, target)); // the target, too: the transfer keeps its mapping
            assert_eq!(fake.count("cuMemFree_v2"), freed);
            fake.release();
            let done = ticket.wait_timeout(WAIT).expect("an end");
            done.result.as_ref().expect("it lands");
            drop(done);
            assert!(eventually(WAIT, || fake.count("cuMemFree_v2") > freed), "then it is freed");
        }
    });
}

/// Cancelled with copies queued and children under way: one end, and what landed is said.
#[test]
fn a_cancelled_transfer_ends_once_and_says_what_landed() {
    let env = [("FAKE_CUDA_GBPS", "0.1")];
    gpu("gpu::hangs::a_cancelled_transfer_ends_once_and_says_what_landed", &env, |fake| {
        // What is in the copy engine is waited for: 40 ms.
        let builder = Engine::builder().bounce(1 << 20, 4).gpu_outstanding(4 << 20);
        let rig = Rig::new(fake, builder, 64 * MIB);
        let (_, target) = rig.file(64 * MIB, OpenOptions::write());
        let (_, mapped) = rig.file(64 * MIB, OpenOptions::read().mapped());
        for (target, write) in [(&target, false), (&mapped, false), (&target, true)] {
            let transfer = if write { Transfer::write(target) } else { Transfer::read(target) };
            rig.poison(0, 64 * MIB);
            let mut ticket = rig.submit(rig.add(transfer, 0, 0, 64 * MIB));
            std::thread::sleep(Duration::from_millis(20));
            ticket.cancel();
            let done = ticket.wait_timeout(WAIT).expect("an end");
            let error = done.result.expect_err("64 MiB take 640 ms");
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            assert!(
                done.bytes < 64 * MIB && done.times.total < Duration::from_millis(500),
                "{:?}",
                done.times
            );
            assert_eq!(rig.engine.stats().active, 0);
            if !write {
                rig.check(0, 0, done.bytes / MIB * MIB); // copies are in order
            }
        }
    });
}

/// After a time of slow copies, fast ones are not slept over.
#[test]
fn slow_copies_are_forgotten() {
    gpu("gpu::hangs::slow_copies_are_forgotten", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 32 * MIB);
        let (_, target) = rig.file(16 * MIB, OpenOptions::read().mapped());
        fake.order("slow", 0, 30);
        for _ in 0..30 {
            ok(rig.read(&target, 0, 0, MIB));
        }
        let slow = rig.read(&target, 0, 0, MIB).times.total;
        for _ in 0..3 {
            ok(rig.read(&target, 0, 0, 16 * MIB));
        }
        let fast = rig.read(&target, 0, 0, 16 * MIB).times.total;
        assert!(fast < Duration::from_millis(100), "{fast:?}, and 1 MiB took {slow:?} before");
    });
}
