//! What the engine counted, as a snapshot.

use super::shared::Shared;
use crate::lane::{Inbox, LatencyHistogram};
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
    /// CPUs it may run on, as the kernel writes lists.
    pub cpus: String,
    /// The setup flags of its ring.
    pub ring_flags: String,
    /// Commands that ended.
    pub commands: u64,
    /// Bytes moved by those that succeeded.
    pub bytes: u64,
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
        let lanes = self.lanes.iter().enumerate();
        let registered = |r: &std::sync::Arc<crate::memory::RegionInner>| {
            matches!(r.registration.get(), Some(Ok(_))).then(|| self.memlock_for(r.len() as u64))
        };
        Stats {
            lanes: lanes
                .map(|(i, lane)| lane_stats(lane, self.cpus[i].to_string(), self.flags[i].clone()))
                .collect(),
            active: self.core.table.taken(),
            quarantined_bytes: self.core.quarantined.load(Ordering::Relaxed),
            clone_buffers: self.table_ring.clones(),
            memlock_bytes: self.core.regions.all().iter().filter_map(registered).sum(),
        }
    }
}

fn lane_stats(lane: &Inbox, cpus: String, ring_flags: String) -> LaneStats {
    let counters = &lane.counters;
    LaneStats {
        cpus,
        ring_flags,
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
