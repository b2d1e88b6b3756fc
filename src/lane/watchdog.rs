//! The watchdog: a thread of its own, since a lane that hangs inside the kernel cannot watch itself.

use super::core::Core;
use super::inbox::Inbox;
use super::slots::Stop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often it looks.
pub const PERIOD: Duration = Duration::from_secs(1);

/// What the watchdog knows; its thread calls `tick`, and so does the simulation.
pub struct Watch {
    core: Arc<Core>,
    grace: u64,
    /// Beats of each lane when last seen, and for how many ticks they stood.
    seen: Vec<(u64, u32)>,
}

impl Watch {
    pub fn new(core: Arc<Core>, grace: Duration) -> Watch {
        Watch { core, grace: grace.as_nanos() as u64, seen: Vec::with_capacity(64) }
    }

    /// Stops what is overdue, abandons what is overdue by more than the grace, reports lanes that stand still.
    pub fn tick(&mut self) {
        let now = self.core.clock.now();
        self.core.regions.sweep();
        let table = &self.core.table;
        // The table is larger than a cache: an idle engine does not walk through it.
        let entries = if table.is_idle() { 0 } else { table.len() as u32 };
        for index in 0..entries {
            let Some((handle, deadline)) = table.overdue(index, now) else { continue };
            self.core.stop(handle, Stop::TimedOut);
            if deadline.saturating_add(self.grace) <= now && self.core.abandon(handle) {
                tracing::error!(entry = index, "a transfer was abandoned: its commands do not come back");
            }
        }
        let seen = &mut self.seen;
        self.core.see_lanes(|lanes| {
            seen.resize(lanes.len(), (0, 0));
            lanes.iter().zip(seen).enumerate().for_each(|(number, (lane, seen))| look(number, lane, seen));
        });
    }
}

/// Reports a lane that stands still.
fn look(number: usize, lane: &Inbox, (beats, stood): &mut (u64, u32)) {
    let now = lane.counters.beats.get();
    *stood = if now == *beats && lane.entered.load(Ordering::Relaxed) { *stood + 1 } else { 0 };
    *beats = now;
    let stalled = *stood >= 2;
    if stalled && !lane.stalled.swap(stalled, Ordering::Relaxed) {
        let in_flight = lane.in_hand.load(Ordering::Relaxed);
        tracing::warn!(lane = number, in_flight, "the lane stands still: the device does not answer");
    }
    lane.stalled.store(stalled, Ordering::Relaxed);
}

/// The watchdog's thread. It ends when this is dropped.
pub struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Starts it.
    pub fn start(mut watch: Watch) -> std::io::Result<Watchdog> {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::Builder::new().name("fullbore-watch".into()).spawn(move || {
            crate::topology::block_signals();
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                // The watchdog wakes waiters, and a waker may be anyone's: it must outlive a panic there.
                let _ = catch_unwind(AssertUnwindSafe(|| watch.tick()));
            }
        })?;
        Ok(Watchdog { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
