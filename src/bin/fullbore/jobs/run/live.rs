//! A clone as others see it while it runs: what it counts, and how far it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::stats::Counts;
use super::usage::Usage;
use crate::failure::Failure;

/// What is known of a clone, while it runs and after.
#[derive(Debug, Default)]
pub struct State {
    pub counts: Counts,
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
