//! The device's side of one lane: what was pushed, what is with the device, and what waits to be reaped.

use crate::memory::Slabs;
use crate::queue::Answer;
use crate::target::Request;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request that the device has accepted and not answered: its memory is the device's.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    pub request: Request,
    pub due: u64,
    /// Order of acceptance.
    pub number: u64,
    /// Writes answered when it was accepted: what a flush makes durable.
    pub writes: u64,
    /// Its registered buffer was gone when it was accepted.
    pub lost: bool,
}

/// The device's side of one lane.
pub struct Port {
    pub depth: usize,
    /// Requests that fit before an enter.
    pub room: usize,
    pub slot_bits: u32,
    /// Answers and the bell show only to an enter that waits, as with DEFER_TASKRUN.
    pub deferred: bool,
    /// How often the lane's bell was rung: each ring is a write to its descriptor.
    pub rings: Arc<AtomicU64>,
    pub queued: VecDeque<Request>,
    pub owned: Vec<Owned>,
    /// Answers to be reaped; false for stale ones.
    pub answers: Vec<(Answer, bool)>,
    /// Accepted and not reaped.
    pub unreaped: usize,
    pub heard: u64,
    pub bell: bool,
    /// The lane sleeps in enter until then at the latest.
    pub asleep: Option<u64>,
    /// Every enter fails from now on.
    pub broken: bool,
    /// Nobody else will move the clock: an enter that waits does.
    pub draining: bool,
    /// The last user_data pushed by each slot, and those before.
    pub latest: Vec<u64>,
    pub old: Vec<u64>,
    pub files: Vec<u32>,
    pub slabs: Vec<Slabs>,
}

impl Port {
    pub fn new(depth: usize, room: usize, slot_bits: u32, deferred: bool, rings: Arc<AtomicU64>) -> Port {
        Port {
            depth,
            room,
            slot_bits,
            deferred,
            rings,
            queued: VecDeque::new(),
            owned: Vec::new(),
            answers: Vec::new(),
            unreaped: 0,
            heard: 0,
            bell: false,
            asleep: None,
            broken: false,
            draining: false,
            latest: vec![0; 1 << slot_bits],
            old: Vec::new(),
            files: Vec::new(),
            slabs: Vec::new(),
        }
    }

    /// Requests whose memory the lane may not give back.
    pub fn held(&self) -> impl Iterator<Item = &Request> {
        self.queued.iter().chain(self.owned.iter().map(|owned| &owned.request))
    }

    pub fn ready(&self) -> bool {
        self.bell || !self.answers.is_empty()
    }

    /// Whether a sleeping lane's enter returns by `now`.
    pub fn wakes(&self, now: u64) -> bool {
        let answered = self.owned.iter().any(|owned| owned.due <= now);
        self.ready()
            || answered
            || self.rings.load(Ordering::SeqCst) > self.heard
            || self.asleep.is_some_and(|until| until <= now)
    }

    /// When something happens by itself.
    pub fn next_event(&self) -> u64 {
        let due = self.owned.iter().map(|owned| owned.due).min().unwrap_or(u64::MAX);
        due.min(self.asleep.unwrap_or(u64::MAX))
    }

    /// Stale answers that were not reaped.
    pub fn stale(&self) -> u64 {
        self.answers.iter().filter(|(_, real)| !real).count() as u64
    }

    /// Whether the ring has a registered buffer of that number around the request's memory.
    pub fn knows(&self, request: &Request, buffer: u16) -> bool {
        self.slabs.iter().any(|slabs| slabs.fixed().buffer(request.window) == Some(buffer))
    }

    pub fn reap(&mut self, answers: &mut Vec<Answer>) {
        self.bell = false;
        self.unreaped -= self.answers.iter().filter(|(_, real)| *real).count();
        answers.extend(self.answers.drain(..).map(|(answer, _)| answer));
    }
}
