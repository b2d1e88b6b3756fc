//! The order over all requests, and how much is in a copy engine at once.

use super::rig::{MIB, Rig, WAIT, gpu};
use crate::support::{eventually, status_kib};
use fullbore::{Completion, Engine, OpenOptions, Priority, Transfer};
use std::time::{Duration, Instant};

/// Submits transfers with tags from 0 and answers their completions in the order in which they came, with when.
fn ends(rig: &Rig, transfers: impl IntoIterator<Item = Transfer>) -> Vec<(u64, Duration, Completion)> {
    ends_after(rig, transfers, || ())
}

/// The same, with what is done when all are submitted.
fn ends_after(
    rig: &Rig,
    transfers: impl IntoIterator<Item = Transfer>,
    submitted: impl FnOnce(),
) -> Vec<(u64, Duration, Completion)> {
    let (mut done, mut ends, mut count) = (Vec::new(), Vec::new(), 0);
    let begin = Instant::now();
    for (tag, transfer) in transfers.into_iter().enumerate() {
        rig.client.submit_tagged(transfer, tag as u64).map_err(|r| r.error).expect("accepted");
        count += 1;
    }
    submitted();
    while ends.len() < count {
        rig.client.wait(1, &mut done, Some(WAIT)).expect("a wait");
        assert!(!done.is_empty(), "an end in time");
        ends.extend(done.drain(..).map(|c| (c.tag, begin.elapsed(), c)));
    }
    ends
}

#[test]
fn what_came_first_ends_first_and_no_other_is_in_its_way() {
    let env = [("FAKE_CUDA_GBPS", "1")];
    gpu("gpu::order::what_came_first_ends_first_and_no_other_is_in_its_way", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder(), 256 * MIB);
        for options in [OpenOptions::write().mapped(), OpenOptions::write()] {
            let (_, target) = rig.file(32 * MIB, options);
            let reads = || (0..8).map(|i| rig.to_read(&target, 0, i * 32 * MIB, 32 * MIB));
            // A busy machine may wake this thread late, when the next has ended too; not each time.
            let mut seen = Vec::new();
            let apart = (0..5).any(|_| {
                let times = in_order(ends(&rig, reads()));
                seen.push(times.clone());
                one_by_one(&times)
            });
            assert!(apart, "they ended when others were not still to come: {seen:?}");
        }
    });
}

/// At 1 GB/s.
const EACH: Duration = Duration::from_nanos(32 * MIB);

/// When each ended.
fn in_order(done: Vec<(u64, Duration, Completion)>) -> Vec<Duration> {
    let total = done[7].1;
    assert!(total >= 8 * EACH.mul_f64(0.95), "{total:?}: faster than the link");
    for (k, (tag, _, done)) in done.iter().enumerate() {
        done.result.as_ref().expect("it lands");
        assert_eq!(*tag, k as u64, "in their order");
    }
    done.into_iter().map(|(_, at, _)| at).collect()
}

fn one_by_one(times: &[Duration]) -> bool {
    let rest = |k: usize| EACH.mul_f64(0.6) * (7 - k as u32);
    times.iter().enumerate().all(|(k, at)| *at + rest(k) <= times[7])
}

/// Behind 8 large ones: its time is that of what is in the copy engine, not that of what is queued.
#[test]
fn an_urgent_transfer_overtakes() {
    let env = [("FAKE_CUDA_GBPS", "0.25")];
    gpu("gpu::order::an_urgent_transfer_overtakes", &env, |fake| {
        let builder = Engine::builder().bounce(4 << 20, 8).gpu_outstanding(8 << 20);
        let rig = Rig::new(fake, builder, 264 * MIB);
        for (options, write) in [
            (OpenOptions::write().mapped(), false),
            (OpenOptions::write(), false),
            (OpenOptions::write(), true),
        ] {
            let (_, target) = rig.file(32 * MIB, options);
            let make = || if write { Transfer::write(&target) } else { Transfer::read(&target) };
            let tickets: Vec<_> =
                (0..8).map(|i| rig.submit(rig.add(make(), 0, i * 32 * MIB, 32 * MIB))).collect();
            std::thread::sleep(Duration::from_millis(30));
            let urgent = rig.add(make(), 0, 256 * MIB, 4 * MIB).priority(Priority::Urgent);
            let done = rig.run(urgent);
            done.result.expect("it is moved");
            // 8 MiB are in the engine and 4 are its own: 52 ms; all the others are 1070.
            assert!(done.times.total < Duration::from_millis(400), "{:?}", done.times);
            for mut ticket in tickets {
                ticket.wait_timeout(WAIT).expect("an end").result.expect("it is moved");
            }
        }
    });
}

/// Storage is what is slow, and all buffers but the last wait for it: the urgent one is stored before them.
#[test]
fn an_urgent_store_overtakes_what_waits_for_storage() {
    gpu("gpu::order::an_urgent_store_overtakes_what_waits_for_storage", &[], |fake| {
        // 4 KiB at a time, one after the other.
        let builder = Engine::builder().lanes(1).lane_depth(1).command_size(4096).bounce(2 << 20, 32);
        let rig = Rig::new(fake, builder, 81 * MIB);
        let (_, target) = rig.file(81 * MIB, OpenOptions::write());
        let stored = || {
            let lanes = rig.engine.stats().lanes;
            lanes.iter().filter(|lane| lane.drive.is_none()).map(|lane| lane.bytes).sum::<u64>()
        };
        let mut ticket = rig.submit(rig.add(Transfer::write(&target), 0, 0, 80 * MIB));
        assert!(eventually(WAIT, || fake.count("bytes_d2h") >= 62 * MIB), "31 buffers are full");
        let before = stored();
        let urgent = rig.add(Transfer::write(&target), 80 * MIB, 80 * MIB, MIB).priority(Priority::Urgent);
        rig.run(urgent).result.expect("it is stored");
        let meanwhile = (stored() - before) / MIB;
        // Those of the time in which it is copied; a busy machine takes long over that.
        assert!(meanwhile < 32, "{meanwhile} MiB were stored before its one");
        ticket.wait_timeout(WAIT).expect("an end").result.expect("it is stored");
    });
}

#[test]
fn classes_come_in_their_order() {
    let env = [("FAKE_CUDA_GBPS", "0.25")];
    gpu("gpu::order::classes_come_in_their_order", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder().bounce(1 << 20, 4).gpu_outstanding(1 << 20), 160 * MIB);
        use Priority::{High, Low, Normal, Urgent};
        for options in [OpenOptions::read().mapped(), OpenOptions::read()] {
            let (_, target) = rig.file(32 * MIB, options);
            // What follows queues up behind a copy that stands still.
            let before = fake.count("cuMemcpyHtoDAsync_v2");
            fake.order("hang", 0, 1);
            let mut first = rig.submit(rig.to_read(&target, 0, 0, 16 * MIB));
            assert!(eventually(WAIT, || fake.count("cuMemcpyHtoDAsync_v2") > before));
            let rest = [Low, Normal, High, Urgent, Low, Normal, High, Urgent];
            let rest = rest.into_iter().enumerate().map(|(i, class)| {
                rig.to_read(&target, 0, (16 + i as u64 * 16) * MIB, 8 * MIB).priority(class)
            });
            let order = ends_after(&rig, rest, || fake.release()).into_iter().map(|(tag, _, done)| {
                done.result.expect("it lands");
                tag
            });
            let order: Vec<_> = order.collect();
            assert_eq!(order, [3, 7, 2, 6, 1, 5, 0, 4], "urgent, high, normal, low; in a class as they came");
            first.wait_timeout(WAIT).expect("an end").result.expect("it lands");
        }
    });
}

#[test]
fn few_bytes_are_in_the_copy_engine_and_copies_are_large() {
    let env = [("FAKE_CUDA_GBPS", "3")];
    gpu("gpu::order::few_bytes_are_in_the_copy_engine_and_copies_are_large", &env, |fake| {
        for (buffer, outstanding) in
            [(8 * MIB, 32 * MIB), (8 * MIB, 16 * MIB), (8 * MIB, MIB), (2 * MIB, 5 * MIB)]
        {
            let builder = Engine::builder().bounce(buffer, 4).gpu_outstanding(outstanding);
            let rig = Rig::new(fake, builder, 256 * MIB);
            for (mapped, write) in [(false, false), (false, true), (true, false)] {
                let options = OpenOptions::write();
                let (_, target) = rig.file(64 * MIB, if mapped { options.mapped() } else { options });
                fake.clear_most();
                let make = || if write { Transfer::write(&target) } else { Transfer::read(&target) };
                for (_, _, done) in ends(&rig, (0..4).map(|i| rig.add(make(), 0, i * 64 * MIB, 64 * MIB))) {
                    done.result.expect("it is moved");
                }
                let (most, least) = (fake.count("most_bytes_outstanding"), fake.count("least_copy"));
                let unit = if mapped { 2 * buffer } else { buffer };
                let what =
                    format!("buffer {buffer}, outstanding {outstanding}, mapped {mapped}, write {write}");
                assert!(most <= outstanding.max(unit), "{most} bytes at once: {what}");
                assert!(most >= outstanding.min(2 * unit) / 2, "the engine is kept busy: {most}, {what}");
                assert!(least >= unit && fake.count("most_copy") <= unit, "a copy of {least} bytes: {what}");
            }
        }
    });
}

/// What is in flight needs no more memory than the bounce buffers, however much that is.
#[test]
fn bounce_buffers_bound_the_memory() {
    let env = [("FAKE_CUDA_GBPS", "2")];
    gpu("gpu::order::bounce_buffers_bound_the_memory", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder().bounce(2 << 20, 2), 256 * MIB);
        let (_, target) = rig.file(32 * MIB, OpenOptions::read());
        rig.works(&target);
        let before = status_kib("VmSize") + status_kib("VmPin");
        let allocated =
            fake.count("cuMemHostAlloc") + fake.count("cuMemHostRegister_v2") + fake.count("cuMemAlloc_v2");
        let tickets: Vec<_> =
            (0..8).map(|i| rig.submit(rig.to_read(&target, 0, i * 32 * MIB, 32 * MIB))).collect();
        for (i, mut ticket) in tickets.into_iter().enumerate() {
            ticket.wait_timeout(WAIT).expect("an end").result.expect("it lands");
            assert!(status_kib("VmSize") + status_kib("VmPin") < before + (80 << 10), "at {i}");
        }
        let now =
            fake.count("cuMemHostAlloc") + fake.count("cuMemHostRegister_v2") + fake.count("cuMemAlloc_v2");
        assert_eq!(now, allocated, "the driver is asked for nothing while transfers run");
        (0..8).for_each(|i| rig.check(0, i * 32 * MIB, 32 * MIB));
    });
}

/// What small copies take says nothing about large ones: those behind many small ones are not slept over.
#[test]
fn a_large_copy_behind_small_ones_is_told_when_it_ends() {
    let env = [("FAKE_CUDA_GBPS", "1")];
    gpu("gpu::order::a_large_copy_behind_small_ones_is_told_when_it_ends", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder(), 16 * MIB);
        for options in [OpenOptions::read().mapped(), OpenOptions::read()] {
            let (_, target) = rig.file(16 * MIB, options);
            let large = || {
                (0..200).for_each(|i| rig.read(&target, i * 4096, 0, 4096).result.expect("it lands"));
                rig.read(&target, 0, 0, 8 * MIB).times.total
            };
            // 8.4 ms are the copy's own. A busy machine may add to them; not each time.
            let mut seen = Vec::new();
            let soon = (0..8).any(|_| {
                seen.push(large());
                seen.last() < Some(&Duration::from_millis(30))
            });
            assert!(soon, "it took {seen:?}");
        }
    });
}
