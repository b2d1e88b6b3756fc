//! From shares to commands in the queue.

use super::Mutation;
use super::lane_loop::{Lane, Run};
use super::path::Path;
use super::schedule::{CLASSES, Share};
use super::slots::{Claim, Stop};
use crate::memory::{Fixed, Window};
use crate::plan::{self, next_command};
use crate::queue::Queue;
use crate::target::Op;

/// The registered buffer that memory of a region lies in, as far as this lane's ring knows it.
pub(super) fn registered(fixed: &[Option<Fixed>], region: u32, memory: Window) -> Option<u16> {
    fixed.get(region as usize)?.as_ref()?.buffer(memory)
}

impl<Q: Queue> Lane<Q> {
    /// Pushes commands while there are credits and work.
    pub(super) fn fill(&mut self) {
        if self.now >= self.again_at {
            self.ask_due();
        }
        while self.credits() > 0 && self.queue.room() > 0 {
            let Some(run) = self.flushes.pop_front() else { break };
            if self.cut(run) {
                self.flushes.push_front(run);
            }
        }
        while self.credits() > 0 && self.queue.room() > 0 {
            let busy = self.slots.shallow();
            let cutting = |class: usize| self.cutting[class].is_some();
            let Some(class) = self.schedule.pick(cutting, |share| share.is_free(busy)) else {
                break;
            };
            let Some(run) = self.cutting[class].or_else(|| self.begin(class)) else { continue };
            self.cutting[class] = self.cut(run).then_some(run);
        }
        if self.credits() == 0 {
            self.let_go();
        }
    }

    /// Gives back stopped runs that only wait for a credit: while the device keeps all of them, nobody else would.
    fn let_go(&mut self) {
        let stopped = |lane: &Self, index: u16| {
            lane.runs[index as usize].as_ref().is_none_or(|run| lane.core.table.stopped(&run.claim).is_some())
        };
        for class in 0..CLASSES {
            if let Some(run) = self.cutting[class].filter(|run| stopped(self, *run)) {
                self.cutting[class] = None;
                self.cut(run);
            }
        }
        for _ in 0..self.flushes.len() {
            let Some(run) = self.flushes.pop_front() else { break };
            if stopped(self, run) {
                self.cut(run);
            } else {
                self.flushes.push_back(run);
            }
        }
    }

    /// Claims the next unit of the best share of a class, and drops shares that have none left: they cost it no turn.
    fn begin(&mut self, class: usize) -> Option<u16> {
        let (now, busy) = (self.now, self.slots.shallow());
        let free = |share: &Share| share.is_free(busy);
        let claim = loop {
            let share = self.schedule.front(class, free)?;
            let handle = share.handle;
            let part = if self.core.mutant(Mutation::UnitOfAnotherPart) { 0 } else { share.part };
            if share.deadline <= now {
                self.core.stop(handle, Stop::TimedOut);
            }
            match self.core.table.claim(handle, part) {
                Some(claim) => break claim,
                None => self.schedule.drop_front(class, free),
            }
        };
        if claim.unit == 0 {
            self.core.table.mark_started(&claim, now);
        }
        let share = self.schedule.front(class, free)?;
        share.in_hand += 1;
        let (counts, shallow) = (Some((share.class, share.part)), share.depth != u32::MAX);
        let unit = self.core.table.body(&claim).and_then(|job| share.cursor.seek(job, claim.unit));
        // A flush alone has no extents, hence no unit of bytes.
        let (extent, pos, left) = unit.map_or((0, 0, 0), |u| (u.extent, u.pos, u.bytes));
        let flushes = if unit.is_none() { self.core.flushes_of(&claim) } else { 0 };
        let index = self.open_run((claim, counts), (extent, pos, left), flushes);
        self.runs[index as usize].iter_mut().for_each(|run| run.shallow = shallow);
        Some(index)
    }

    pub(super) fn open_run(
        &mut self,
        (claim, share): (Claim, Option<(u8, u8)>),
        (extent, pos, left): (u32, u64, u64),
        flushes: u32,
    ) -> u16 {
        let index = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(None);
            self.runs.len() as u16 - 1
        });
        let run = Run {
            claim,
            share,
            shallow: false,
            extent,
            pos,
            left,
            outstanding: 0,
            flushes,
            flushed: 0,
            credit: 0,
            credit_extent: extent,
            moved: 0,
            paths: 0,
        };
        self.runs[index as usize] = Some(run);
        index
    }

    /// Cuts one command off a run and pushes it. True: the run has more to cut.
    fn cut(&mut self, index: u16) -> bool {
        let Some(run) = &mut self.runs[index as usize] else { return false };
        if self.core.table.stopped(&run.claim).is_some() {
            (run.left, run.flushes) = (0, 0);
            self.close_if_done(index);
            return false;
        }
        let Some(job) = self.core.table.body(&run.claim) else { return false };
        let Some(slot) = self.slots.take(run.shallow) else { return true };
        if run.flushes > 0 {
            run.flushes -= 1;
            run.outstanding += 1;
            let (more, at) = (run.flushes > 0, job.target().flush_at(run.flushes));
            self.fill_flush(slot, index, at);
            return more;
        }
        let (mut piece, target) = (job.piece(run.extent), job.target());
        if run.pos == piece.len {
            (run.extent, run.pos) = (run.extent + 1, 0);
            piece = job.piece(run.extent);
        }
        // The planner sees the extent up to the end of the unit, so that no command crosses into the next one.
        let end = piece.len.min(run.pos + run.left);
        let command = next_command(&target.geometry, piece.offset, end, piece.window.addr(), run.pos);
        let memory = piece.window.sub(run.pos as usize, command.take as usize);
        let extent = run.extent;
        run.pos += command.take as u64;
        run.left -= command.take as u64;
        run.outstanding += 1;
        let mut more = run.left > 0;
        if command.scratch && job.op == Op::Write {
            self.scratch.window(slot as usize).sub(0, memory.len()).copy_from(memory);
        }
        let now = self.now;
        let entry = self.slots.get_mut(slot);
        (entry.run, entry.extent, entry.command, entry.memory) = (index, extent, command, memory);
        entry.region = if command.scratch { u32::MAX } else { piece.region };
        (entry.done, entry.attempts, entry.issued, entry.flush) = (0, 0, now, false);
        self.push(slot);
        // Refused, and stopped meanwhile: the run may be closed by now.
        more &= self.runs[index as usize].is_some();
        if !more && self.core.mutant(Mutation::LeaseReturnedEarly) {
            self.close_early(index);
        }
        more
    }

    fn fill_flush(&mut self, slot: u16, run: u16, at: u64) {
        let now = self.now;
        let entry = self.slots.get_mut(slot);
        entry.command = plan::Command { offset: at, len: 0, skip: 0, take: 0, scratch: false };
        (entry.run, entry.extent, entry.memory, entry.region) = (run, 0, Window::empty(), u32::MAX);
        (entry.done, entry.attempts, entry.issued, entry.flush) = (0, 0, now, true);
        self.push(slot);
    }

    /// Has a command pushed again at `at` or later.
    pub(super) fn ask_later(&mut self, index: u16, at: u64) {
        self.slots.get_mut(index).not_before = at;
        self.again_at = self.again_at.min(at);
        self.again.push_back(index);
    }

    /// Asks again for all whose time has come; the nearest of the others is the next.
    fn ask_due(&mut self) {
        self.again_at = u64::MAX;
        for _ in 0..self.again.len() {
            let Some(index) = self.again.pop_front() else { return };
            let at = self.slots.get(index).not_before;
            if at <= self.now && self.queue.room() > 0 {
                self.ask_again(index);
            } else {
                self.ask_later(index, at);
            }
        }
    }

    /// Pushes a command again, unless its transfer was stopped meanwhile.
    fn ask_again(&mut self, index: u16) {
        let run = self.slots.get(index).run;
        let stopped =
            self.runs[run as usize].as_ref().is_none_or(|r| self.core.table.stopped(&r.claim).is_some());
        if !stopped {
            return self.push(index);
        }
        self.slots.free(index);
        if let Some(run) = &mut self.runs[run as usize] {
            run.outstanding -= 1;
        }
        self.close_if_done(run);
    }

    /// Pushes what is left of the command in a slot.
    pub(super) fn push(&mut self, index: u16) {
        let slot = *self.slots.get(index);
        let Some(run) = &self.runs[slot.run as usize] else { return };
        let Some(job) = self.core.table.body(&run.claim) else { return };
        let (op, command) = (if slot.flush { Op::Flush } else { job.op }, slot.command);
        let all = if command.scratch { self.scratch.window(index as usize) } else { slot.memory };
        let window = all.sub(slot.done as usize, (command.len - slot.done) as usize);
        // Looked up at each push: the region may have been taken out of the ring since the last one.
        let target = job.target();
        let buffer = registered(&self.fixed, slot.region, window).filter(|_| target.unfixed.is_none());
        let path = Path::of(target.kind, target.direct, command.scratch, buffer.is_some());
        self.slots.get_mut(index).path = path;
        let demanded =
            job.require().filter(|_| !slot.flush && !self.core.mutant(Mutation::PathNotCheckedAgain));
        if demanded.is_some_and(|wanted| wanted != path) {
            return self.refuse(index, path);
        }
        let user_data = self.slots.user_data(index, job.trace_id);
        let offset = command.offset + slot.done as u64;
        let mut request = target.encode(op, offset, window, buffer, user_data);
        // Reads copy side by side; writes to a file take turns at its lock, and workers would only wait there.
        request.aside = self.options.spread && slot.shallow && op == Op::Read;
        if self.queue.push(&request) {
            self.queued += 1;
        } else {
            self.ask_later(index, 0);
        }
    }

    /// The defect `EagainQueuedTwice`: pushes every queued command a second time.
    pub(super) fn push_all_again(&mut self) {
        for index in 0..self.options.depth as u16 {
            if self.slots.get(index).busy && self.queue.room() > 0 {
                self.push(index);
            }
        }
    }
}
