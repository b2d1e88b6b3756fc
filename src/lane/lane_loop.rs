//! The loop of a lane.

use super::Mutation;
use super::command::Slots;
use super::core::Core;
use super::inbox::{Control, Inbox};
use super::schedule::{CLASSES, Schedule};
use super::slots::{Claim, Stop};
use super::thread::Turns;
use crate::memory::{Fixed, Scratch};
use crate::queue::{Answer, Queue, Wait};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a lane is built with.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// Most commands in flight.
    pub depth: usize,
    /// Most bytes in a command.
    pub command_size: u32,
    /// Generation that command slots begin with (tests begin near the wrap).
    pub first_generation: u32,
    /// Reads that cannot be asked for without blocking have a kernel worker each at once, not one for all: there are CPUs
    /// for two threads a lane.
    pub spread: bool,
}

/// A unit that the lane works on.
#[derive(Debug)]
pub(super) struct Run {
    pub claim: Claim,
    /// Class and part of the share that it counts in; `None`: it is a flush, which does not.
    pub share: Option<(u8, u8)>,
    /// Its commands count against the share's depth.
    pub shallow: bool,
    /// Where the next command is cut: extent and byte in it.
    pub extent: u32,
    pub pos: u64,
    /// Bytes of the unit not cut yet.
    pub left: u64,
    /// Commands in slots.
    pub outstanding: u32,
    /// Flushes that are still to be issued, and those that succeeded.
    pub flushes: u32,
    pub flushed: u32,
    /// Bytes moved in `credit_extent` that were not added up yet.
    pub credit: u64,
    pub credit_extent: u32,
    /// All bytes moved, and by which paths.
    pub moved: u64,
    pub paths: u32,
}

/// A lane over some queue.
pub struct Lane<Q: Queue> {
    pub(super) core: Arc<Core>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) queue: Q,
    pub(super) options: LaneOptions,
    pub(super) schedule: Schedule,
    pub(super) slots: Slots,
    pub(super) runs: Vec<Option<Run>>,
    pub(super) free_runs: Vec<u16>,
    /// The unit that each class is cutting.
    pub(super) cutting: [Option<u16>; CLASSES],
    /// Commands to be pushed again: a short one's rest, or after EAGAIN.
    pub(super) again: VecDeque<u16>,
    /// The nearest time at which one of them may; `u64::MAX` for none.
    pub(super) again_at: u64,
    /// Registered regions by number, as this lane's ring knows them.
    pub(super) fixed: Vec<Option<Fixed>>,
    pub(super) scratch: Scratch,
    pub(super) answers: Vec<Answer>,
    pub(super) now: u64,
    /// Flushes behind durable writes, to be issued.
    pub(super) flushes: VecDeque<u16>,
    /// The nearest deadline of a share, or earlier.
    pub(super) deadline: u64,
    /// Pushed and not accepted; accepted and not reaped.
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    stopping: bool,
}

impl<Q: Queue> Lane<Q> {
    /// A lane over `queue`.
    pub fn new(
        core: Arc<Core>,
        inbox: Arc<Inbox>,
        queue: Q,
        options: LaneOptions,
    ) -> std::io::Result<Lane<Q>> {
        let depth = options.depth;
        let runs = depth + CLASSES + 1;
        let scratch_each = (options.command_size as usize).next_multiple_of(crate::memory::PAGE);
        Ok(Lane {
            schedule: Schedule::new(core.table.len()),
            slots: Slots::new(depth + cfg!(test) as usize, options.first_generation),
            runs: (0..runs).map(|_| None).collect(),
            free_runs: (0..runs as u16).rev().collect(),
            cutting: [None; CLASSES],
            again: VecDeque::with_capacity(depth),
            again_at: u64::MAX,
            flushes: VecDeque::with_capacity(depth),
            fixed: Vec::new(),
            scratch: Scratch::new(depth + cfg!(test) as usize, scratch_each)?,
            answers: Vec::with_capacity(depth + 1),
            now: core.clock.now(),
            deadline: u64::MAX,
            queued: 0,
            in_flight: 0,
            stopping: false,
            core,
            inbox,
            queue,
            options,
        })
    }

    /// The half of a turn before `enter`; `None`: it was told to stop, and nothing is left to do. The simulation takes
    /// the halves one by one: between them a lane sleeps and the world goes on.
    pub(super) fn prepare(&mut self) -> Option<Wait> {
        self.inbox.counters.beats.add(1);
        self.hear();
        // After that: nothing that was heard begins before it was submitted.
        self.now = self.core.clock.now();
        self.expire();
        self.fill();
        if self.stopping && self.idle() {
            return None;
        }
        let wait = self.wait();
        let counters = &self.inbox.counters;
        if wait != Wait::No {
            counters.waits.add(1);
        }
        counters.enters.add(1);
        let in_hand = self.slots.busy();
        self.inbox.in_hand.store(in_hand as u32, Ordering::Relaxed);
        self.inbox.entered.store(in_hand > 0, Ordering::Relaxed);
        Some(wait)
    }

    /// The half after it.
    pub(super) fn conclude(&mut self, entered: Result<u32, i32>) -> Result<(), i32> {
        self.inbox.bell.get_up();
        self.inbox.entered.store(false, Ordering::Relaxed);
        self.count(entered)?;
        self.reap();
        Ok(())
    }

    /// Whether nothing is in flight, queued or waiting to be issued.
    pub fn idle(&self) -> bool {
        self.in_flight + self.queued == 0 && self.again.is_empty() && !self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.schedule.is_empty() || !self.flushes.is_empty() || self.cutting.iter().any(Option::is_some)
    }

    /// Credits left: what may be pushed without exceeding the depth.
    pub(super) fn credits(&self) -> usize {
        let depth = self.options.depth + self.core.mutant(Mutation::OneCreditTooMany) as usize;
        depth - (self.slots.busy()).min(depth)
    }

    /// Takes messages and shares in. Messages first: a region is known before the first transfer over it.
    fn hear(&mut self) {
        while let Some(control) = self.inbox.control.pop() {
            self.obey(control);
        }
        while let Some(share) = self.inbox.shares.pop() {
            self.deadline = self.deadline.min(share.deadline);
            self.schedule.push(share, |share| self.core.claimable(share));
        }
    }

    fn obey(&mut self, control: Control) {
        match control {
            Control::File { slot, fd, acks } => acks.answer(self.queue.set_file(slot, Some(fd))),
            Control::CloseFile { slot, done } => {
                if let Err(error) = self.queue.set_file(slot, None) {
                    tracing::warn!(%error, slot, "a closed file stays in the ring's table");
                }
                drop(done);
            }
            Control::AddBuffers { id, slabs, acks } => {
                let done = self.queue.add_buffers(&slabs);
                if done.is_ok() {
                    let id = id as usize;
                    if self.fixed.len() <= id {
                        self.fixed.resize(id + 1, None);
                    }
                    self.fixed[id] = Some(slabs.fixed());
                }
                acks.answer(done);
            }
            Control::DropBuffers { id, slabs, acks } => {
                if let Some(fixed) = self.fixed.get_mut(id as usize) {
                    *fixed = None;
                }
                acks.answer(self.queue.drop_buffers(&slabs));
            }
            Control::Stop => self.stopping = true,
        }
    }

    /// Stops transfers whose deadline has come.
    fn expire(&mut self) {
        if self.now < self.deadline {
            return;
        }
        let (now, core) = (self.now, &self.core);
        self.deadline = u64::MAX;
        for share in self.schedule.iter() {
            if share.deadline <= now {
                core.stop(share.handle, Stop::TimedOut);
            } else {
                self.deadline = self.deadline.min(share.deadline);
            }
        }
    }

    /// Moves what an enter accepted from queued to in flight.
    fn count(&mut self, entered: Result<u32, i32>) -> Result<(), i32> {
        let accepted = match entered {
            Ok(accepted) => accepted,
            // The kernel is short of memory or the CQ is full: reap, then go on. What was pushed stays queued.
            Err(libc::EAGAIN | libc::EBUSY) => {
                self.inbox.counters.retries.add(1);
                if self.core.mutant(Mutation::EagainQueuedTwice) {
                    self.push_all_again();
                }
                0
            }
            Err(errno) => return Err(errno),
        };
        self.queued -= accepted.min(self.queued);
        self.in_flight += accepted;
        if accepted > 0 {
            self.inbox.counters.occupied(self.in_flight as u64);
        }
        Ok(())
    }

    /// How long the next enter may wait. Lies down first when it may: from then on the bell wakes us.
    fn wait(&mut self) -> Wait {
        if self.queue.ready() {
            return Wait::No;
        }
        let bell = &self.inbox.bell;
        let has_room = self.credits() > 0;
        let heard = || !self.inbox.control.is_empty() || (has_room && !self.inbox.shares.is_empty());
        if !bell.lie_down(has_room, heard) && !self.core.mutant(Mutation::LostWakeUp) {
            return Wait::No;
        }
        let until = self.deadline.min(self.again_at);
        let timeout =
            (until != u64::MAX).then(|| Duration::from_nanos(until.saturating_sub(self.now).max(1000)));
        Wait::ForOne { timeout }
    }
}

impl<Q: Queue> Turns for Lane<Q> {
    fn shared(&self) -> (Arc<Core>, Arc<Inbox>) {
        (self.core.clone(), self.inbox.clone())
    }

    fn step(&mut self) -> Result<bool, i32> {
        let Some(wait) = self.prepare() else { return Ok(false) };
        let entered = self.queue.enter(wait);
        self.conclude(entered)?;
        Ok(true)
    }

    fn drain(&mut self, grace: Duration, reason: Stop) -> bool {
        for run in self.runs.iter().flatten() {
            self.core.stop(run.claim.handle, reason);
        }
        let until = self.core.clock.now() + u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX / 2);
        loop {
            self.now = self.core.clock.now();
            // Whoever sends a message or deals a share meanwhile is answered now, not when all has drained.
            self.inbox.bell.get_up();
            self.hear();
            for share in self.schedule.drain() {
                self.core.stop(share.handle, reason);
            }
            self.fill(); // gives back what was claimed and not issued
            if self.in_flight + self.queued == 0 && self.runs.iter().all(Option::is_none) {
                return true;
            }
            if self.now >= until {
                return false;
            }
            let left = Duration::from_nanos(until - self.now);
            match self.queue.enter(Wait::ForOne { timeout: Some(left.min(Duration::from_millis(10))) }) {
                Err(libc::EINTR | libc::ETIME) => {}
                entered if self.count(entered).is_err() => return false,
                _ => {}
            }
            self.reap();
        }
    }

    /// Leaves the ring and its memory behind for ever: commands that did not drain may still land. Whoever waits for
    /// them is told now; no deadline need be waited for, and there may be none.
    fn leak(self) {
        for run in self.runs.iter().flatten() {
            self.core.abandon(run.claim.handle);
        }
        std::mem::forget(self);
    }
}
