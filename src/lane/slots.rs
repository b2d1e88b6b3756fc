//! The table of entries: one for each transfer that is under way, shared by clients, lanes and the watchdog.
//!
//! An entry's life is in three atomic words, each of which carries the entry's generation in its high half so
//! that a stale handle can do nothing:
//!
//! - `state`: the phase (free, active, done, abandoned, ...) and two flags. Table of transitions: [`next`].
//! - `claims`: how many units no lane has claimed yet, a word for each part (the lanes of one group claim the units
//!   of one part; only stripes have several). Taking them all away stops the transfer.
//! - `left`: how many holders keep the body alive: units not finished yet, claimed or not, and pins.
//!
//! Whoever takes `left` to 0 holds the [`Last`] and publishes. The body belongs to the lanes until then; then to
//! the client, or, when the watchdog abandoned the transfer meanwhile, to the last holder, which drops it.
//!
//! This file is one of the few outside the unsafe rooms that has `unsafe`: it hands out the body by reference to
//! whoever holds a [`Claim`], and by value exactly once.

use super::phase::{Event, Phase, next, phase_of, word};
use super::sync::{ArrayQueue, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, UnsafeCell, lock};
use crate::error::Error;
use crate::plan::PARTS;
use std::task::Waker;

mod account;
mod types;

pub use types::{Admission, Claim, Handle, Last, Outcome, Published, Spent, Stop};

/// A waker is stored: whoever publishes must take and wake it.
const WAITING: u64 = 0x100;
/// Nobody will ask: whoever publishes consumes too.
const DETACHED: u64 = 0x200;

struct Entry<B> {
    state: AtomicU64,
    claims: [AtomicU64; PARTS],
    left: AtomicU64,
    units: [AtomicU32; PARTS],
    /// Parts that have units, or had.
    parts: AtomicU32,
    deadline: AtomicU64,
    tag: AtomicU64,
    submitted: AtomicU64,
    started: AtomicU64,
    finished: AtomicU64,
    /// Of a transfer over GPU memory, which one lane serves: when its time was last added up, and what of it until then it
    /// waited, or was copied.
    seen: AtomicU64,
    waited: AtomicU64,
    copied: AtomicU64,
    bytes: AtomicU64,
    paths: AtomicU32,
    stop: AtomicU8,
    fault: Mutex<Option<Error>>,
    waker: Mutex<Option<Waker>>,
    body: UnsafeCell<Option<B>>,
}

// SAFETY: the body is reached only as the module's documentation says: by `&` under a claim (B: Sync) and by
// value exactly once (B: Send); every other field is an atomic or a mutex.
unsafe impl<B: Send + Sync> Sync for Entry<B> {}

/// The table: `len` entries, and a queue of the free ones.
pub struct Table<B> {
    entries: Box<[Entry<B>]>,
    free: ArrayQueue<u32>,
    /// Entries from here on are kept for lanes' own transfers.
    kept_from: u32,
    kept: ArrayQueue<u32>,
}

impl<B> Table<B> {
    #[cfg(test)]
    pub fn new(len: usize, first_generation: u32) -> Table<B> {
        Table::with_kept(len, 0, first_generation)
    }

    /// A table of `len` entries, and `kept` for transfers that lanes submit themselves.
    pub fn with_kept(len: usize, kept: usize, first_generation: u32) -> Table<B> {
        let filled = |from: usize, to: usize| {
            let queue = ArrayQueue::new((to - from).max(1));
            for index in from..to {
                let _ = queue.push(index as u32); // a place for each
            }
            queue
        };
        let (kept_from, all) = (len as u32, len + kept);
        let (free, kept) = (filled(0, len), filled(len, all));
        let entry = || Entry {
            state: AtomicU64::new(word(first_generation, Phase::Free as u32)),
            claims: std::array::from_fn(|_| AtomicU64::new(word(first_generation, 0))),
            left: AtomicU64::new(word(first_generation, 0)),
            units: std::array::from_fn(|_| AtomicU32::new(0)),
            parts: AtomicU32::new(0),
            deadline: AtomicU64::new(u64::MAX),
            tag: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            paths: AtomicU32::new(0),
            stop: AtomicU8::new(0),
            fault: Mutex::new(None),
            waker: Mutex::new(None),
            body: UnsafeCell::new(None),
        };
        Table { entries: (0..all).map(|_| entry()).collect(), free, kept_from, kept }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many entries are taken, of those that are not kept.
    pub fn taken(&self) -> usize {
        self.kept_from as usize - self.free.len()
    }

    /// Whether no entry is taken.
    pub fn is_idle(&self) -> bool {
        self.free.len() + self.kept.len() == self.entries.len()
    }

    fn entry(&self, handle: Handle) -> &Entry<B> {
        &self.entries[handle.index as usize]
    }

    /// Takes an entry and makes it active, or hands the body back when all are taken.
    ///
    /// After this, lanes that hold the handle may claim.
    pub fn activate(&self, body: B, admission: Admission) -> Result<Handle, B> {
        self.activate_from(&self.free, body, admission)
    }

    /// The same, of the entries that are kept.
    pub fn activate_kept(&self, body: B, admission: Admission) -> Result<Handle, B> {
        self.activate_from(&self.kept, body, admission)
    }

    fn activate_from(&self, free: &ArrayQueue<u32>, body: B, admission: Admission) -> Result<Handle, B> {
        let units = admission.units;
        let Some(index) = free.pop() else { return Err(body) };
        let entry = &self.entries[index as usize];
        let generation = (entry.state.load(Ordering::Acquire) >> 32) as u32;
        // SAFETY: a free entry popped from the queue is ours alone until its words below say otherwise.
        entry.body.with_mut(|place| unsafe { *place = Some(body) });
        entry.deadline.store(admission.deadline, Ordering::Relaxed);
        entry.tag.store(admission.tag, Ordering::Relaxed);
        entry.submitted.store(admission.submitted, Ordering::Relaxed);
        for counter in [&entry.started, &entry.seen, &entry.waited, &entry.copied] {
            counter.store(0, Ordering::Relaxed);
        }
        entry.bytes.store(0, Ordering::Relaxed);
        entry.paths.store(0, Ordering::Relaxed);
        entry.stop.store(0, Ordering::Relaxed);
        let parts = PARTS - units.iter().rev().take_while(|units| **units == 0).count();
        entry.parts.store(parts as u32, Ordering::Relaxed);
        entry.left.store(word(generation, units.iter().sum()), Ordering::Release);
        for (part, units) in units.into_iter().enumerate().take(parts) {
            entry.units[part].store(units, Ordering::Relaxed);
            entry.claims[part].store(word(generation, units), Ordering::Release);
        }
        let handle = Handle { index, generation };
        self.transit(handle, Event::Activate);
        Ok(handle)
    }

    /// Claims the next unit of a part, or `None` when none is left, the transfer was stopped or the handle is stale.
    pub fn claim(&self, handle: Handle, part: u8) -> Option<Claim> {
        let entry = self.entry(handle);
        let (word, units) = (&entry.claims[part as usize], &entry.units[part as usize]);
        let mut claims = word.load(Ordering::Acquire);
        loop {
            let left = claims as u32;
            // An entry is left with no units to claim: a stale handle finds none, whatever `units` says by then.
            if (claims >> 32) as u32 != handle.generation || left == 0 {
                return None;
            }
            match word.compare_exchange_weak(claims, claims - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Claim { handle, unit: units.load(Ordering::Relaxed) - left }),
                Err(now) => claims = now,
            }
        }
    }

    /// Whether a claim would succeed. A share for which it would not is stale: others took all units.
    pub fn claimable(&self, handle: Handle, part: u8) -> bool {
        let claims = self.entry(handle).claims[part as usize].load(Ordering::Acquire);
        (claims >> 32) as u32 == handle.generation && claims as u32 > 0
    }

    /// Keeps the body alive without working on it; `None` when the transfer is over or the handle stale.
    pub fn pin(&self, handle: Handle) -> Option<Claim> {
        let left = &self.entry(handle).left;
        let mut now = left.load(Ordering::Acquire);
        loop {
            if (now >> 32) as u32 != handle.generation || now as u32 == 0 {
                return None;
            }
            match left.compare_exchange_weak(now, now + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Claim { handle, unit: u32::MAX }),
                Err(changed) => now = changed,
            }
        }
    }

    /// The body, for whoever holds a claim on it.
    pub fn body<'a>(&'a self, claim: &'a Claim) -> Option<&'a B> {
        // SAFETY: the claim counts in `left`; the body is moved out only by whoever follows the one that took
        // `left` to 0, so it stays in place as long as this claim lives. Nobody writes it meanwhile.
        self.entry(claim.handle).body.with(|place| unsafe { (*place).as_ref() })
    }

    /// Gives a claim back. The holder of the last one gets the right to publish.
    pub fn finish(&self, claim: Claim) -> Option<Last> {
        self.release(claim, 1)
    }

    fn release(&self, claim: Claim, count: u32) -> Option<Last> {
        let before = self.entry(claim.handle).left.fetch_sub(count as u64, Ordering::AcqRel);
        (before as u32 == count).then_some(Last(claim))
    }

    /// Turns the right to publish back into one claim: a flush has to run first.
    pub fn reopen(&self, last: Last) -> Claim {
        self.entry(last.0.handle).left.fetch_add(1, Ordering::AcqRel);
        last.0
    }

    /// Stops issuing: no unit is claimed any more. The first reason stays. The caller publishes if it gets the
    /// `Last`: nothing was in flight.
    ///
    /// Of the first `most` parts, `PARTS` for all: fewer are the defect `PartForgottenAtStop`.
    pub fn stop(&self, handle: Handle, reason: Stop, most: usize) -> Option<Last> {
        let claim = self.pin(handle)?;
        let entry = self.entry(handle);
        let _ = entry.stop.compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Relaxed);
        // The pin keeps the generation in place, so these swaps cannot hit another transfer.
        let parts = &entry.claims[..most.min(entry.parts.load(Ordering::Relaxed) as usize)];
        let unclaimed: u32 =
            parts.iter().map(|part| part.swap(word(handle.generation, 0), Ordering::AcqRel) as u32).sum();
        self.release(claim, 1 + unclaimed)
    }

    /// Moves an entry on; answers the word before. Flags stay until it is free.
    fn transit(&self, handle: Handle, event: Event) -> Option<u64> {
        let state = &self.entry(handle).state;
        let mut now = state.load(Ordering::Acquire);
        loop {
            if (now >> 32) as u32 != handle.generation {
                return None;
            }
            let to = next(phase_of(now), event)?;
            let generation = handle.generation.wrapping_add((to == Phase::Free) as u32);
            let flags = if to == Phase::Free { 0 } else { now as u32 & !0xff };
            let then = word(generation, flags | to as u32);
            match state.compare_exchange_weak(now, then, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if to == Phase::Free {
                        let free = if handle.index < self.kept_from { &self.free } else { &self.kept };
                        let _ = free.push(handle.index); // it has a place for each entry
                    }
                    return Some(now);
                }
                Err(changed) => now = changed,
            }
        }
    }

    /// Moves the body out.
    ///
    /// # Safety
    /// Only its owner may call it: the one that holds the `Last` of an abandoned transfer, or the consumer of a
    /// done one. The entry must not be free yet.
    unsafe fn take_body(&self, handle: Handle) -> Option<B> {
        // SAFETY: the caller is the only owner of the body.
        self.entry(handle).body.with_mut(|place| unsafe { (*place).take() })
    }

    /// Publishes the completion of a transfer that nothing is in flight for.
    pub fn publish(&self, last: Last, now: u64) -> Published<B> {
        let handle = last.0.handle;
        let entry = self.entry(handle);
        entry.finished.store(now, Ordering::Relaxed);
        let mut state = entry.state.load(Ordering::Acquire);
        while phase_of(state) == Phase::Active {
            let done = state & !0xff | Phase::Done as u64;
            match entry.state.compare_exchange_weak(state, done, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if state & DETACHED != 0 => {
                    return Published::Detached(self.consume(handle).and_then(|o| o.body));
                }
                Ok(_) => return Published::Done { wake: self.waker_of(handle, state) },
                Err(changed) => state = changed,
            }
        }
        // Abandoned meanwhile: the client was told. What is left is the body, ours since we hold the `Last`.
        // SAFETY: `left` is 0 and the phase is not Done, so no consumer takes the body.
        let body = unsafe { self.take_body(handle) };
        *lock(&entry.fault) = None;
        self.transit(handle, Event::Finish);
        Published::Absorbed(body)
    }

    /// Publishes a transfer as abandoned while commands of it are in flight. False when it completed first.
    pub fn abandon(&self, pin: &Claim, now: u64) -> Option<Published<B>> {
        let handle = pin.handle;
        self.entry(handle).finished.store(now, Ordering::Relaxed);
        let before = self.transit(handle, Event::Abandon)?;
        if before & DETACHED != 0 {
            let _ = self.consume(handle);
            return Some(Published::Detached(None));
        }
        Some(Published::Done { wake: self.waker_of(handle, before) })
    }

    /// The stored waker, if the word says that there is one. It may be a later transfer's: a spurious wake-up,
    /// after which its owner stores another.
    fn waker_of(&self, handle: Handle, state: u64) -> Option<Waker> {
        (state & WAITING != 0).then(|| lock(&self.entry(handle).waker).take()).flatten()
    }

    /// Stores a waker to be woken at publication. True when it was published already: do not wait.
    pub fn wait(&self, handle: Handle, waker: &Waker) -> bool {
        let entry = self.entry(handle);
        {
            let mut slot = lock(&entry.waker);
            match &*slot {
                Some(old) if old.will_wake(waker) => {}
                _ => *slot = Some(waker.clone()),
            }
        }
        let before = entry.state.fetch_or(WAITING, Ordering::AcqRel);
        phase_of(before) != Phase::Active
    }

    /// Nobody will ask for the completion. The transfer goes on; true when it was published already, and the
    /// caller consumes it now.
    pub fn detach(&self, handle: Handle) -> bool {
        let before = self.entry(handle).state.fetch_or(DETACHED, Ordering::AcqRel);
        phase_of(before) != Phase::Active
    }

    /// Takes the outcome of a published transfer. Exactly one caller may: the ticket's owner, or the client that
    /// found the handle in its mailbox.
    pub fn consume(&self, handle: Handle) -> Option<Outcome<B>> {
        if !self.published(handle) {
            return None;
        }
        let entry = self.entry(handle);
        let done = phase_of(entry.state.load(Ordering::Acquire)) == Phase::Done;
        let mut outcome = Outcome {
            tag: entry.tag.load(Ordering::Relaxed),
            submitted: entry.submitted.load(Ordering::Relaxed),
            body: None,
            abandoned: !done,
            stop: Stop::from_code(entry.stop.load(Ordering::Relaxed)),
            fault: lock(&entry.fault).take(),
            bytes: entry.bytes.load(Ordering::Relaxed),
            paths: entry.paths.load(Ordering::Relaxed),
            started: entry.started.load(Ordering::Relaxed),
            finished: entry.finished.load(Ordering::Relaxed),
            waited: entry.waited.load(Ordering::Relaxed),
            copied: entry.copied.load(Ordering::Relaxed),
        };
        if done {
            // SAFETY: the phase is Done, which only its one consumer (the caller) moves on.
            outcome.body = unsafe { self.take_body(handle) };
        }
        self.transit(handle, Event::Consume);
        Some(outcome)
    }
}
