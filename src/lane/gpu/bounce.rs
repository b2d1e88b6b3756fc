//! Bounce buffers: filled, or emptied into the target, by a unit's child; and which targets have enough of them.

use super::lane::GpuLane;
use super::layout::SLACK;
use super::slot::{Slot, Stage};
use super::unit::gone;
use crate::lane::core::FLUSHED;
use crate::lane::job::{Job, Source};
use crate::lane::transfer::{Completion, Transfer};
use crate::memory::RegionRange;

impl GpuLane {
    /// The targets that have enough to do, each with the best class that has nothing to gain there: a better one is served
    /// before what waits. Buffers that would only wait are not taken: the fewer go round, the more of them are in the CPU's
    /// caches when they are filled, and when the GPU reads them.
    pub(super) fn fed(&self) -> Vec<(usize, u8)> {
        let children = || self.slots.iter().filter(|slot| slot.stage == Stage::Child);
        let mut fed = Vec::new();
        for slot in children() {
            let Some(job) = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim)) else {
                continue;
            };
            let before = |other: &&Slot| other.target == slot.target && other.order.0 <= slot.order.0;
            let given: u64 = children().filter(before).map(Slot::good).sum();
            // Twice what keeps it busy: lanes do not end together. And one that lies ready.
            let enough = 2 * self.spec.feeder.appetite(job.target()) + self.spec.buffer as u64;
            let found = (slot.target, slot.order.0);
            if given >= enough && !fed.contains(&found) {
                fed.push(found);
            }
        }
        fed
    }

    /// Has the child move between the target and the bounce buffer.
    pub(super) fn feed(&mut self, index: u16) {
        let (children, bounce, stride) = (self.children.clone(), self.spec.bounce.clone(), self.stride());
        let slot = &mut self.slots[index as usize];
        let Some(job) = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim)) else { return };
        let (op, trace_id, target) = (job.op, job.trace_id, job.target().clone());
        let mut transfer = slot.transfer.take().unwrap_or_else(|| Transfer::new(op, target.clone()));
        (transfer.op, transfer.target) = (op, target);
        let from = slot.buffer.unwrap_or(0) as usize * stride;
        let runs = slot.runs.iter().map(|run| (run.offset, run.len, run.at)).filter(|_| !slot.apart);
        let parts = slot.parts.iter().map(|part| (part.offset, part.len, part.at)).filter(|_| slot.apart);
        for (offset, len, at) in runs.chain(parts) {
            match RegionRange::take(bounce.clone(), from + at..from + at + len as usize) {
                Ok(range) => transfer.push(offset, range),
                Err(error) => return self.fail(index, error, libc::EIO),
            }
        }
        let source = Source::Owned(transfer);
        let child = Job { op, source, trace_id, durable: false, mailbox: Some(children) };
        let (order, deadline) = (slot.order, slot.deadline);
        match self.spec.feeder.feed(child, order.0, deadline, index as u64) {
            Ok(handle) => {
                self.settle(index);
                let slot = &mut self.slots[index as usize];
                (slot.child, slot.stage) = (Some(handle), Stage::Child);
            }
            Err(error) => self.fail(index, error, libc::EIO),
        }
    }

    /// A child has ended.
    pub(super) fn child_ended(&mut self, done: Completion) {
        let index = done.tag as u16;
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        slot.child = None;
        slot.paths |= done.paths.0;
        if slot.stage == Stage::Flushing {
            match done.result {
                Ok(()) => slot.paths |= FLUSHED,
                Err(error) => self.note(index, error),
            }
            return self.close(index);
        }
        // Abandoned: late results may still land in the buffer.
        let Some(mut transfer) = done.transfer else {
            self.lost.extend(slot.buffer.take());
            let error = done.result.err().unwrap_or_else(gone);
            return self.fail(index, error, libc::EIO);
        };
        let job = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim));
        let stopped = slot.claim.as_ref().is_some_and(|claim| self.core.table.stopped(claim).is_some());
        if done.result.is_err() && !slot.apart && !stopped && slot.runs.len() < slot.parts.len() {
            // What failed may be one of several parts that were moved as one run: each by itself now.
            transfer.extents.clear();
            (slot.transfer, slot.apart) = (Some(transfer), true);
            return self.feed(index);
        }
        // The child's extents are the runs, or the parts, in their order: two of them may name the same bytes.
        for (number, part) in slot.parts.iter_mut().enumerate().filter(|_| done.result.is_err()) {
            let extent = transfer.extents.get(if slot.apart { number } else { part.run });
            if extent.is_none_or(|extent| !extent.succeeded()) {
                part.failed = true;
                let errno = extent.and_then(|extent| extent.error()).unwrap_or(libc::EIO);
                job.iter().for_each(|job| job.fail(part.extent, errno));
            }
        }
        transfer.extents.clear();
        slot.transfer = Some(transfer);
        if let Err(error) = done.result {
            self.note(index, error);
        }
        let slot = &self.slots[index as usize];
        if slot.to_gpu && slot.good() > 0 {
            self.settle(index);
            self.slots[index as usize].stage = Stage::Ready; // `fill` copies it, in its turn
        } else {
            self.close(index);
        }
    }

    pub(super) fn stride(&self) -> usize {
        self.spec.buffer + SLACK
    }

    /// Takes buffers back that abandoned children have let go of meanwhile. True: there is one to use.
    pub(super) fn find_lost(&mut self) -> bool {
        let (stride, bounce) = (self.stride(), self.spec.bounce.clone());
        let free = |buffer: &u16| {
            let from = *buffer as usize * stride;
            RegionRange::take(bounce.clone(), from..from + stride).is_ok()
        };
        let (found, lost): (Vec<u16>, Vec<u16>) = self.lost.drain(..).partition(free);
        self.lost = lost;
        let any = !found.is_empty();
        self.buffers.extend(found);
        any
    }
}
