//! What lanes did, command by command: for timelines. Off until it is asked for; then a push into a queue each.

use super::path::Path;
use super::sync::{ArrayQueue, AtomicU64, Ordering};
use crate::target::Op;
use std::sync::OnceLock;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// A command of a lane: in its hands from the push into its queue to the reap.
    Command,
    /// A unit of a transfer over GPU memory, from its begin until the GPU, or the target, has it.
    Unit,
    /// Its turn in the GPU's copy engine, from when it was queued there: behind those before it.
    Copy,
}

/// One piece of work, as its lane saw it. Times are of the engine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub work: Work,
    pub lane: u32,
    pub slot: u16,
    pub trace_id: u32,
    pub op: Op,
    pub path: Path,
    /// Its first byte on the target.
    pub offset: u64,
    pub bytes: u64,
    pub begun: u64,
    pub ended: u64,
    pub failed: bool,
}

/// The records of an engine.
#[derive(Default)]
pub struct Records {
    queue: OnceLock<ArrayQueue<Record>>,
    lost: AtomicU64,
}

impl Records {
    /// Records from now on, until `most` are there that nobody took. It stays on.
    pub fn begin(&self, most: usize) {
        self.queue.get_or_init(|| ArrayQueue::new(most.max(1)));
    }

    pub fn note(&self, make: impl FnOnce() -> Record) {
        let Some(queue) = self.queue.get() else { return };
        if queue.push(make()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes out what is there; and how many found no room since the last time.
    pub fn take(&self) -> (Vec<Record>, u64) {
        let records = self.queue.get().map(|queue| {
            // As many as there are now: lanes may bring more as fast as they are taken.
            std::iter::from_fn(|| queue.pop()).take(queue.len()).collect()
        });
        (records.unwrap_or_default(), self.lost.swap(0, Ordering::Relaxed))
    }
}
