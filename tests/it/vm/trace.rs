//! The kernel's tracer, in an instance of its own: what io_uring was given and what the NVMe driver made of it.

use super::seen::{Seen, parse};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

const TRACING: &str = "/sys/kernel/tracing";
/// KiB for each CPU: a command leaves about 600 bytes of events.
const BUFFER_KIB: u32 = 12 << 10;
/// io_uring's submission has another name before kernel 6.3.
const EVENTS: [&str; 8] = [
    "io_uring/io_uring_submit_sqe",
    "io_uring/io_uring_submit_req",
    "io_uring/io_uring_queue_async_work",
    "io_uring/io_uring_complete",
    "io_uring/io_uring_cqe_overflow",
    "block/block_plug",
    "nvme/nvme_setup_cmd",
    "nvme/nvme_complete_rq",
];

/// A trace that runs until [`Tracer::stop`].
#[derive(Debug)]
pub struct Tracer(PathBuf);

/// What a trace holds.
#[derive(Debug)]
pub struct Trace {
    /// Every NVMe command that was set up, in that order.
    pub commands: Vec<Seen>,
    /// The trace as text, for what a test looks for itself.
    pub text: String,
}

impl Tracer {
    /// # Panics
    /// If this kernel has no such tracer: then the machine is not the one that tests/vm makes.
    pub fn start() -> Tracer {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fullbore-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tracer = Tracer(PathBuf::from(TRACING).join("instances").join(name));
        fs::create_dir(&tracer.0).expect("an instance of the tracer (root, tracefs mounted)");
        // Stopped while it is set up; and when it is full it stops by itself, which `lost` sees.
        tracer.write("tracing_on", "0");
        tracer.write("options/overwrite", "0");
        // One clock for all CPUs: their events are merged by time.
        tracer.write("trace_clock", "mono");
        tracer.write("buffer_size_kb", &BUFFER_KIB.to_string());
        let there = EVENTS.iter().map(|event| format!("events/{event}/enable"));
        let enabled = there.filter(|file| tracer.0.join(file).exists()).map(|file| tracer.write(&file, "1"));
        assert!(enabled.count() >= EVENTS.len() - 1, "this kernel lacks events of io_uring or nvme");
        tracer.write("tracing_on", "1");
        tracer
    }

    /// Ends the trace.
    ///
    /// # Panics
    /// If events were lost: what is missing in such a trace proves nothing.
    pub fn stop(self) -> Trace {
        self.write("tracing_on", "0");
        let lost = self.lost();
        assert_eq!(lost, 0, "the trace lost {lost} events; make BUFFER_KIB larger or the load smaller");
        let text = fs::read_to_string(self.0.join("trace")).expect("the trace can be read");
        Trace { commands: parse(&text), text }
    }

    fn lost(&self) -> u64 {
        let cpus = fs::read_dir(self.0.join("per_cpu")).expect("a folder a CPU");
        let stats = cpus.map(|cpu| {
            fs::read_to_string(cpu.expect("an entry").path().join("stats")).expect("its statistics")
        });
        stats.map(|text| lost_in(&text)).sum()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|e| panic!("tracer: {file} = {text}: {e}"));
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("events/enable"), "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Events that a CPU's statistics say were lost: overwritten, or dropped as there was no room.
pub fn lost_in(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"))
        .map(|(name, count)| count.trim().parse::<u64>().unwrap_or_else(|e| panic!("{name}: {count}: {e}")))
        .sum()
}
