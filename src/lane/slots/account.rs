//! What is noted of a transfer while lanes work on it, and what can be asked.

use super::super::phase::{Phase, phase_of};
use super::super::sync::{Ordering, lock};
use super::{Claim, Handle, Spent, Stop, Table};
use crate::error::Error;

impl<B> Table<B> {
    /// Whether the transfer was stopped, and why.
    pub fn stopped(&self, claim: &Claim) -> Option<Stop> {
        Stop::from_code(self.entry(claim.handle).stop.load(Ordering::Relaxed))
    }

    /// Whether the watchdog published it as abandoned.
    pub fn is_abandoned(&self, claim: &Claim) -> bool {
        let phase = phase_of(self.entry(claim.handle).state.load(Ordering::Acquire));
        matches!(phase, Phase::Abandoned | Phase::Forgotten)
    }

    /// The same of a handle: it was published while lanes held its body, and nobody took the outcome yet.
    pub fn given_up(&self, handle: Handle) -> bool {
        let state = self.entry(handle).state.load(Ordering::Acquire);
        (state >> 32) as u32 == handle.generation && phase_of(state) == Phase::Abandoned
    }

    /// Notes when the first command was issued. Each part has a first one: the first of them stays.
    pub fn mark_started(&self, claim: &Claim, now: u64) {
        let started = &self.entry(claim.handle).started;
        let _ = started.compare_exchange(0, now.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Adds the time since the last call to what it was spent on; the first call begins. One lane's alone.
    pub fn spend(&self, claim: &Claim, now: u64, on: Spent) {
        let entry = self.entry(claim.handle);
        let seen = entry.seen.swap(now.max(1), Ordering::Relaxed);
        let counter = match on {
            Spent::Waiting => &entry.waited,
            Spent::Copies => &entry.copied,
            Spent::Target => return, // the rest
        };
        if seen > 0 {
            counter.fetch_add(now.saturating_sub(seen), Ordering::Relaxed);
        }
    }

    /// Adds what a unit moved, and by which paths.
    pub fn credit(&self, claim: &Claim, bytes: u64, paths: u32) {
        let entry = self.entry(claim.handle);
        entry.bytes.fetch_add(bytes, Ordering::Relaxed);
        if entry.paths.load(Ordering::Relaxed) & paths != paths {
            entry.paths.fetch_or(paths, Ordering::Relaxed);
        }
    }

    /// Notes a failure. The one that lies first in the transfer (extent, then offset) is kept.
    pub fn fault(&self, claim: &Claim, error: Error) {
        let mut fault = lock(&self.entry(claim.handle).fault);
        let place = |e: &Error| (e.extent_index(), e.offset());
        if fault.as_ref().is_none_or(|old| place(&error) < place(old)) {
            *fault = Some(error);
        }
    }

    /// The defect `ErrorOverwritten`.
    pub fn forget_fault(&self, claim: &Claim) {
        *lock(&self.entry(claim.handle).fault) = None;
    }

    /// Whether something failed so far.
    pub fn faulted(&self, claim: &Claim) -> bool {
        lock(&self.entry(claim.handle).fault).is_some()
    }

    /// An active transfer whose deadline lies at or before `now`.
    pub fn overdue(&self, index: u32, now: u64) -> Option<(Handle, u64)> {
        let entry = &self.entries[index as usize];
        let state = entry.state.load(Ordering::Acquire);
        let deadline = entry.deadline.load(Ordering::Relaxed);
        let handle = Handle { index, generation: (state >> 32) as u32 };
        (phase_of(state) == Phase::Active && deadline <= now).then_some((handle, deadline))
    }

    /// The transfer at `index`, if it is active (shutdown stops each).
    pub fn active(&self, index: u32) -> Option<Handle> {
        let state = self.entries[index as usize].state.load(Ordering::Acquire);
        (phase_of(state) == Phase::Active).then_some(Handle { index, generation: (state >> 32) as u32 })
    }

    /// Whether the client may consume.
    pub fn published(&self, handle: Handle) -> bool {
        let state = self.entry(handle).state.load(Ordering::Acquire);
        (state >> 32) as u32 == handle.generation
            && matches!(phase_of(state), Phase::Done | Phase::Abandoned | Phase::Absorbed)
    }

    /// Whether the handle names a transfer that is under way.
    pub fn is_active(&self, handle: Handle) -> bool {
        let state = self.entry(handle).state.load(Ordering::Acquire);
        (state >> 32) as u32 == handle.generation && phase_of(state) == Phase::Active
    }

    /// Whether the handle names the entry's present use.
    #[cfg(test)]
    pub fn is_current(&self, handle: Handle) -> bool {
        (self.entry(handle).state.load(Ordering::Acquire) >> 32) as u32 == handle.generation
    }
}
