//! What the engine counted, as a snapshot.

use super::groups::GroupLane;
use super::shared::Shared;
use crate::lane::{LatencyHistogram, Path};
use std::sync::atomic::Ordering;

/// A snapshot of the engine's counters, which all run since it was built.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// One for each lane.
    pub lanes: Vec<LaneStats>,
    /// Transfers under way, or completed and not yet fetched.
    pub active: usize,
    /// Bytes under abandoned transfers: late results may still land in them.
    pub quarantined_bytes: u64,
    /// Whether lanes clone the table ring's registrations (kernel 6.13) or register for themselves.
    pub clone_buffers: bool,
    /// Bytes that registrations charge to RLIMIT_MEMLOCK.
    pub memlock_bytes: u64,
}

/// What one lane counted.
#[derive(Clone, Debug, Default)]
pub struct LaneStats {
    /// What it serves: a drive by its controllers' names (`nvme0`, `nvme0 polled`) or its disk's, a DAX device
    /// (`dax0.0`), `mapped files`, a GPU (`gpu 0`); `None`: files.
    pub drive: Option<String>,
    /// The hardware queue that its commands land on, where it is one.
    pub queue: Option<u32>,
    /// Most commands that it has in flight: the engine's lane depth, or this engine's share of the queue's tags; of a GPU,
    /// its bounce buffers, and what needs none (straight from a mapping, by cuFile) comes on top. What a GPU's lane counts as
    /// a command is a piece of a transfer, from its begin until the GPU (or the target) has it: the commands that fill the
    /// bounce buffers count where they run, and so do their bytes.
    pub depth: u32,
    /// CPUs it may run on, as the kernel writes lists.
    pub cpus: String,
    /// The setup flags of its ring.
    pub ring_flags: String,
    /// Commands that ended.
    pub commands: u64,
    /// Bytes moved by those that succeeded.
    pub bytes: u64,
    /// The same by path, for those paths that were taken.
    pub paths: Vec<(Path, u64)>,
    /// Threads of the kernel that work for its ring at this moment (iou-wrk). The engine's depth makes none; a file
    /// system that cannot be asked without blocking does (tmpfs, ext4 writes into blocks not allocated).
    pub kernel_workers: usize,
    /// Calls of io_uring_enter.
    pub enters: u64,
    /// Of those, how many could wait.
    pub waits: u64,
    /// Commands asked again, and enters refused, because the kernel was busy.
    pub retries: u64,
    /// Short results that were continued.
    pub shorts: u64,
    /// Answers to no command of ours (a defect, if it is not 0).
    pub stale: u64,
    /// Commands in flight now.
    pub in_flight: u64,
    /// Most commands in flight, between an enter that accepted them and their reap.
    pub max_in_flight: u64,
    /// `occupancy[d]`: enters that submitted and left `d` commands in flight.
    pub occupancy: Vec<u64>,
    /// Times of commands, push to reap.
    pub latency: LatencyHistogram,
    /// It stands still: the watchdog has seen no step for two periods while it had work.
    pub stalled: bool,
    /// Its thread runs.
    pub alive: bool,
}

impl Shared {
    pub(super) fn stats(&self) -> Stats {
        let registered = |r: &std::sync::Arc<crate::memory::RegionInner>| {
            r.pinned().map(|_| self.memlock_for(r.len() as u64))
        };
        let workers = kernel_workers();
        Stats {
            lanes: self
                .groups
                .iter()
                .flat_map(|group| {
                    group.lanes.iter().map(|lane| {
                        lane_stats(group.drive.as_ref().map(|drive| drive.0.clone()), lane, &workers)
                    })
                })
                .collect(),
            active: self.core.table.taken(),
            quarantined_bytes: self.core.quarantined.load(Ordering::Relaxed),
            clone_buffers: self.table_ring.clones(),
            memlock_bytes: self.core.regions.all().iter().filter_map(registered).sum(),
        }
    }
}

/// The threads whose rings the kernel's workers of this process serve, one for each worker: they are threads of the
/// process, and named after the ring's.
fn kernel_workers() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter_map(|name| name.trim().strip_prefix("iou-wrk-")?.parse().ok()).collect()
}

fn lane_stats(drive: Option<String>, lane: &GroupLane, workers: &[u32]) -> LaneStats {
    let (place, flags, lane) = (&lane.place, &lane.flags, &lane.inbox);
    let counters = &lane.counters;
    let tid = lane.tid.load(Ordering::Relaxed);
    LaneStats {
        drive,
        queue: place.queue,
        depth: place.depth,
        cpus: place.cpus.to_string(),
        ring_flags: flags.clone(),
        paths: counters.paths(),
        kernel_workers: workers.iter().filter(|worker| **worker == tid).count(),
        commands: counters.commands.get(),
        bytes: counters.bytes.get(),
        enters: counters.enters.get(),
        waits: counters.waits.get(),
        retries: counters.retries.get(),
        shorts: counters.shorts.get(),
        stale: counters.stale.get(),
        in_flight: counters.in_flight.get(),
        max_in_flight: counters.max_in_flight.get(),
        occupancy: counters.occupancy.iter().map(|c| c.get()).collect(),
        latency: counters.latency(),
        stalled: lane.stalled.load(Ordering::Relaxed),
        alive: lane.alive.load(Ordering::Relaxed),
    }
}
