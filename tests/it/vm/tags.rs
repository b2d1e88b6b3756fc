//! The boot whose queues have few tags (`nvme.io_queue_depth=8`) and one polled queue (`nvme.poll_queues=1`).

use super::drives::drives;
use super::rig::{MIB, Object, Rig, best_path, row};
use super::seen::{by_queue, most_outstanding};
use super::trace::Tracer;
use crate::support::{threads, within};
use fullbore::{Engine, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(90);

fn parameter(name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/sys/module/nvme/parameters/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Whether this boot has few tags.
fn few_tags() -> bool {
    let depth = parameter("io_queue_depth");
    if depth != 8 {
        println!("skipped: this boot has nvme.io_queue_depth={depth}, not 8");
    }
    depth == 8
}

/// Names of the kernel's workers seen while `body` ran.
fn workers_during(body: impl FnOnce()) -> Vec<String> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                seen.extend(threads("iou-wrk"));
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.into_iter().collect()
        });
        body();
        done.store(true, Ordering::Relaxed);
        watch.join().expect("it only looks")
    })
}

#[test]
fn depth_past_the_tags_makes_no_kernel_workers() {
    let Some([drive]) = drives(["d0"]) else { return };
    if !few_tags() {
        return;
    }
    within(LIMIT, "few tags", || {
        let rig = Rig::new(drive.filled(20 * MIB), Engine::builder().lanes(2).lane_depth(32), 20 * MIB);
        let tracer = Tracer::start();
        let workers = workers_during(|| {
            rig.load(&row(1, 5, 4 * MIB));
        });
        let trace = tracer.stop();
        // A worker that lived shorter than our look is in the trace.
        assert!(workers.is_empty(), "{workers:?}");
        assert!(!trace.text.contains("io_uring_queue_async_work"), "commands were handed to kernel workers");
        let commands = super::rig::on(trace.commands, &drive);
        let most = most_outstanding(&commands);
        println!("measured: at most {most} outstanding, by queue {:?}", by_queue(&commands));
        assert!(most > 2, "and not one by one: {most}");
        let stats = rig.engine.stats();
        assert!(stats.lanes.iter().all(|lane| lane.kernel_workers == 0));
    });
}

#[test]
fn polled_lanes_land_on_the_polled_queue_and_sleep_when_idle() {
    let Some([drive]) = drives(["d0"]) else { return };
    if parameter("poll_queues") == 0 {
        return println!("skipped: this boot has no poll queue");
    }
    let options = OpenOptions::read().polled();
    within(LIMIT, "polled", || {
        let interrupts: Vec<u32> = drive.queue_of_cpus().into_values().collect();
        let rig =
            Rig::with(drive.filled(20 * MIB), Engine::builder().lanes(1).lane_depth(4), 20 * MIB, options);
        let (_, commands) = rig.traced(&[Object { trace: 1, offset: 0, len: 20 * MIB }]);
        let queues = by_queue(&commands);
        assert!(
            queues.keys().all(|queue| !interrupts.contains(queue)),
            "{queues:?}, interrupts {interrupts:?}"
        );
        // Idle: parked.
        std::thread::sleep(Duration::from_millis(200));
        let (cpu, began) = (cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(3));
        let share = (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
        println!("measured: an idle polled engine takes {:.2} % of a CPU", share * 100.0);
        assert!(share < 0.02, "{share}");
        rig.load(&[Object { trace: 2, offset: 0, len: MIB }]);
    });
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which lives across the call.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    assert_eq!(rc, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// This boot has multipath off: names and queue folders are the plain ones, and the tests above ran on them.
#[test]
fn names_without_multipath() {
    let Some([drive]) = drives(["d0"]) else { return };
    let multipath = std::fs::read_to_string("/sys/module/nvme_core/parameters/multipath").unwrap_or_default();
    if multipath.trim() != "N" {
        return println!("skipped: this boot has multipath");
    }
    within(LIMIT, "plain names", || {
        assert_eq!(drive.path_entry().file_name().and_then(|n| n.to_str()), Some(drive.disk.as_str()));
        let rig = Rig::new(drive.filled(MIB), Engine::builder().lanes(2), MIB);
        assert_eq!(rig.load(&row(1, 1, MIB))[0].paths, best_path());
    });
}
