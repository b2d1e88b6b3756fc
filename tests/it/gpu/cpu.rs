//! Who waits sleeps.

use super::rig::{KIB, MIB, Rig, gpu};
use crate::support::eventually;
use fullbore::{Engine, OpenOptions, Transfer};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::time::Duration;

/// CPU time of this process, all threads, in user and kernel.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process knows its usage");
    let time =
        |t: TimeVal| Duration::from_secs(t.tv_sec() as u64) + Duration::from_micros(t.tv_usec() as u64);
    time(usage.user_time()) + time(usage.system_time())
}

fn used(during: impl FnOnce()) -> Duration {
    let before = cpu();
    during();
    cpu() - before
}

const WHILE: Duration = Duration::from_millis(1000);

/// Invariants I9 and I7: idle, and while only the GPU works.
#[test]
fn a_lane_that_waits_for_a_gpu_sleeps_unless_told_to_poll() {
    gpu("gpu::cpu::a_lane_that_waits_for_a_gpu_sleeps_unless_told_to_poll", &[], |fake| {
        let mut asleep = Duration::MAX;
        for polling in [false, true] {
            let rig = Rig::new(fake, Engine::builder().gpu_polling(polling), 20 * MIB);
            for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
                let (_, target) = rig.file(20 * MIB, options);
                rig.works(&target);
                let idle = used(|| std::thread::sleep(WHILE / 2));
                assert!(idle < Duration::from_millis(5), "idle it took {idle:?} of {:?}", WHILE / 2);
                for write in [false, true] {
                    let (name, transfer) = match write {
                        false => ("cuMemcpyHtoDAsync_v2", Transfer::read(&target)),
                        true => ("cuMemcpyDtoHAsync_v2", Transfer::write(&target)),
                    };
                    let before = fake.count(name);
                    fake.order("hang", 0, 1);
                    let mut ticket = rig.submit(rig.add(transfer, 0, 0, 20 * MIB));
                    assert!(eventually(Duration::from_secs(5), || fake.count(name) > before));
                    std::thread::sleep(Duration::from_millis(50));
                    let busy = used(|| std::thread::sleep(WHILE / 2));
                    fake.release();
                    ticket.wait_timeout(super::rig::WAIT).expect("an end").result.expect("it is moved");
                    eprintln!("measured: polling {polling}: {busy:?} of CPU in {:?} of copying", WHILE / 2);
                    match polling {
                        // Asleep it takes 3 ms. One that polls takes all that other programs leave it.
                        false => assert!(busy < Duration::from_millis(20), "asleep it took {busy:?}"),
                        true => assert!(busy > 3 * asleep, "it polls: {busy:?}, and asleep {asleep:?}"),
                    }
                    asleep = asleep.min(busy);
                }
            }
            assert_eq!(fake.count("cuEventSynchronize"), 0, "no thread waits in the driver");
            assert_eq!(fake.count("blocking_streams"), 0);
        }
    });
}

/// What is asked for and what is waited for is the same data.
#[test]
fn a_polling_engine_moves_the_same() {
    gpu("gpu::cpu::a_polling_engine_moves_the_same", &[("FAKE_CUDA_GBPS", "3")], |fake| {
        let rig = Rig::new(fake, Engine::builder().gpu_polling(true), 40 * MIB);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (path, target) = rig.file(20 * MIB, options);
            rig.read(&target, 5, 7, 19 * MIB).result.expect("it lands");
            rig.check(5, 7, 19 * MIB);
            let scattered = (0..500).fold(Transfer::read(&target), |t, i| {
                rig.add(t, i * 33 * KIB, (i * 37 % 500) * 64 * KIB, 33 * KIB)
            });
            rig.run(scattered).result.expect("it lands");
            (0..500).for_each(|i| rig.check(i * 33 * KIB, (i * 37 % 500) * 64 * KIB, 33 * KIB));
            rig.read(&target, 0, 0, 9 * MIB).result.expect("it lands");
            rig.run(rig.add(Transfer::write(&target), 9 * MIB, 0, 9 * MIB)).result.expect("it is written");
            let file = std::fs::read(path).expect("the file");
            assert!(file[9 << 20..18 << 20] == file[..9 << 20]);
        }
        assert!(fake.count("cuEventQuery") > 0);
    });
}
