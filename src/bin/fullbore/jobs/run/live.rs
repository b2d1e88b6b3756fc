//! A clone as others see it while it runs: what it counts, and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::stats::Counts;
use super::usage::Usage;
use crate::failure::Failure;

/// What was moved before counting began: the device and memory may have been cold.
#[derive(Debug, Clone, Copy, Default)]
pub struct First {
    /// Of reads, and of writes.
    pub bytes: [u64; 2],
    pub took: Duration,
}

impl First {
    /// Of clones that ran side by side.
    pub fn merge(&mut self, other: &Self) {
        self.bytes.iter_mut().zip(other.bytes).for_each(|(mine, theirs)| *mine += theirs);
        self.took = self.took.max(other.took);
    }

    pub fn all(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// 10^9 bytes a second.
    pub fn gbps(&self) -> f64 {
        self.all() as f64 / self.took.as_secs_f64().max(1e-9) / 1e9
    }
}

/// What is known of a clone, while it runs and after.
#[derive(Debug, Default)]
pub struct State {
    pub counts: Counts,
    /// The run before it, if there was one.
    pub first: Option<First>,
    /// When counting began, and when the last I/O ended.
    pub from: Option<Instant>,
    pub ended: Option<Instant>,
    /// Nothing is counted yet.
    pub ramping: bool,
    /// Bytes that it is to move, unless its time ends it before.
    pub planned: u64,
    /// Of its thread.
    pub usage: Usage,
    /// The first failure, with an errno.
    pub failed: Option<(i32, Failure)>,
}

impl State {
    /// How long it counts already.
    pub fn ran(&self) -> Duration {
        self.from.filter(|_| !self.ramping).map_or(Duration::ZERO, |from| from.elapsed())
    }
}

/// A clone as others see it.
#[derive(Debug, Default)]
pub struct Live {
    state: Mutex<State>,
    /// I/Os in flight.
    pub flying: AtomicU64,
    /// The engine was looked at after the last I/O that counts.
    looked_at: AtomicBool,
}

impl Live {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn was_looked_at(&self) {
        self.looked_at.store(true, Ordering::Release);
    }

    pub fn is_looked_at(&self) -> bool {
        self.looked_at.load(Ordering::Acquire)
    }
}
