//! The life of a unit: claimed, filled by its child, copied, given back; a store the other way round.

use super::lane::{GpuLane, Line};
use super::layout::{self, Part, SLACK};
use super::route::path_of_job;
use super::slot::{Slot, Stage};
use crate::error::{Error, ErrorKind};
use crate::lane::core::FLUSHED;
use crate::lane::job::{Job, Source};
use crate::lane::path::Path;
use crate::lane::schedule::Share;
use crate::lane::slots::{Claim, Stop};
use crate::lane::transfer::{Completion, Transfer};
use crate::memory::{RegionRange, Window};
use crate::plan::{Extents, Unit};
use crate::queue::cuda::{Copy, Ended, MOST_PIECES, Way};
use crate::target::Op;
use std::sync::Arc;

impl GpuLane {
    pub(super) fn has_room(&self, line: Line) -> bool {
        let ready = |slot: &Slot| slot.stage == Stage::Ready && slot.path == Path::DaxToGpu;
        !self.free.is_empty()
            && match line {
                // Claimed no earlier than it can be copied: until then a more urgent one may overtake.
                Line::Straight => self.may_copy(Way::In, 1) && !self.slots.iter().any(ready),
                Line::Direct => self.has_direct_room(),
                // Over a broken context none is needed: it is only told why.
                Line::Bounce => !self.buffers.is_empty() || !self.lost.is_empty() || self.broken.is_some(),
            }
    }

    /// Claims the next unit of a line and starts it. False: there is none, or no room for it.
    pub(super) fn begin(&mut self, line: Line) -> bool {
        let Some(index) = self.free.last().copied() else { return false };
        let fed = if line == Line::Bounce { self.fed() } else { Vec::new() };
        let free = |share: &Share| !fed.contains(&share.target);
        let GpuLane { schedules, spec, .. } = self;
        let schedule = &mut schedules[line as usize];
        let Some(class) = schedule.pick(|_| false, free) else { return false };
        // The last buffer is kept for the urgent.
        let kept = (class > 0 && spec.buffers - self.lost.len() > 1) as usize;
        let needs = line == Line::Bounce && self.broken.is_none();
        if needs && self.buffers.len() <= kept && !self.find_lost() {
            return false;
        }
        let GpuLane { schedules, core, .. } = self;
        let schedule = &mut schedules[line as usize];
        let Some(share) = schedule.front(class, free) else { return false };
        if share.deadline <= self.now {
            core.stop(share.handle, Stop::TimedOut);
        }
        let Some(claim) = core.table.claim(share.handle, 0) else {
            schedule.drop_front(class, free);
            return true;
        };
        let deadline = share.deadline;
        if claim.unit == 0 {
            self.core.table.mark_started(&claim, self.now);
        }
        let unit = self.core.table.body(&claim).and_then(|job| share.cursor.seek(job, claim.unit));
        self.free.pop();
        self.claimed += 1;
        let slot = &mut self.slots[index as usize];
        (slot.order, slot.deadline, slot.begun) = ((class as u8, self.claimed), deadline, self.now);
        (slot.paths, slot.stage, slot.apart) = (0, Stage::Ready, false);
        if let (Some(job), Some(unit)) = (self.core.table.body(&claim), unit) {
            slot.to_gpu = job.op == Op::Read;
            slot.target = Arc::as_ptr(job.target()) as usize;
            list(job, unit, &mut slot.parts);
        }
        slot.claim = Some(claim);
        self.start(index);
        true
    }

    /// The targets that have enough to do. Buffers that would only wait there are not taken: the fewer go round, the more of
    /// them are in the CPU's caches when they are filled, and when the GPU reads them.
    fn fed(&self) -> Vec<usize> {
        let children = || self.slots.iter().filter(|slot| slot.stage == Stage::Child);
        let mut fed = Vec::new();
        for slot in children() {
            let Some(job) = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim)) else {
                continue;
            };
            let given: u64 = children().filter(|other| other.target == slot.target).map(Slot::good).sum();
            // Twice what keeps it busy: lanes do not end together. And one that lies ready.
            let enough = 2 * self.spec.feeder.appetite(job.target()) + self.spec.buffer as u64;
            if given >= enough && !fed.contains(&slot.target) {
                fed.push(slot.target);
            }
        }
        fed
    }

    fn start(&mut self, index: u16) {
        let GpuLane { slots, core, .. } = self;
        let Slot { claim, parts, copies, bulk, paths, path: taken, .. } = &mut slots[index as usize];
        let Some(job) = claim.as_ref().and_then(|claim| core.table.body(claim)) else {
            return self.close(index);
        };
        let region = job.region_of(0, &core.regions);
        let path = region.and_then(|region| Some(path_of_job(job, region.device()?).0));
        let path = path.unwrap_or(Path::PinnedBounce);
        *taken = path;
        let refused = job.require().filter(|wanted| *wanted != path);
        if let Some(error) = self.broken.map(|error| error.error("the GPU is not used any more")) {
            return self.fail(index, error, libc::EIO);
        }
        if let Some(wanted) = refused {
            let message = format!("path \"{wanted}\" was demanded, and \"{path}\" would run");
            return self.fail(index, Error::new(ErrorKind::PathUnavailable, message), libc::EOPNOTSUPP);
        }
        *paths |= path as u32;
        match path {
            Path::DaxToGpu if lay_out_mapping(job, parts, copies, bulk) => return,
            Path::DaxToGpu => return self.fail(index, gone(), libc::EIO),
            Path::CuFile | Path::CuFileCompat => return self.go_direct(index),
            _ => {}
        }
        let Some(buffer) = self.buffers.pop() else {
            // It waited for cuFile, which has let go of its memory since.
            let message = "its path is not there any more, and no bounce buffer is free; submit it again";
            return self.fail(index, Error::new(ErrorKind::PathUnavailable, message), libc::EAGAIN);
        };
        let slot = &mut self.slots[index as usize];
        slot.buffer = Some(buffer);
        layout::place(&mut slot.parts, self.spec.buffer + SLACK, &mut slot.runs);
        if slot.to_gpu {
            self.feed(index);
        }
    }

    /// Has the child move between the target and the bounce buffer.
    fn feed(&mut self, index: u16) {
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
        let slot = &mut self.slots[index as usize];
        if slot.to_gpu && slot.good() > 0 {
            slot.stage = Stage::Ready; // `fill` copies it, in its turn
        } else {
            self.close(index);
        }
    }

    /// Puts what is ready into the copy engines, in the order over all requests.
    pub(super) fn copy_what_is_ready(&mut self) {
        for way in [Way::In, Way::Out] {
            while let Some(index) = self.next_ready(way) {
                if !self.may_copy(way, self.slots[index as usize].good()) || !self.copy(index, way) {
                    break;
                }
            }
        }
    }

    fn next_ready(&self, way: Way) -> Option<u16> {
        let ready = |slot: &Slot| slot.stage == Stage::Ready && slot.to_gpu == (way == Way::In);
        let ready = (0..self.slots.len()).filter(|index| ready(&self.slots[*index]));
        ready.min_by_key(|index| self.slots[*index].order).map(|index| index as u16)
    }

    /// Queues the copies of a unit. False: it needs staging, and all is in use.
    fn copy(&mut self, index: u16, way: Way) -> bool {
        let (stride, bounce) = (self.stride(), self.spec.bounce.clone());
        let slot = &mut self.slots[index as usize];
        let buffer =
            |at: usize, len: usize| bounce.window(slot.buffer.unwrap_or(0) as usize * stride + at, len);
        if slot.path != Path::DaxToGpu {
            slot.copies.clear();
            for part in slot.parts.iter().filter(|part| !part.failed) {
                let host = buffer(part.at, part.len as usize);
                layout::push_copy(&mut slot.copies, host, part.device, |_| true);
            }
        }
        let bytes = slot.good();
        // Pieces that do not follow one another in a mapping gain nothing by staging.
        let gains = slot.path != Path::DaxToGpu || slot.bulk.len() <= slot.copies.len() / 2;
        let scattered =
            gains && layout::is_scattered(slot.copies.len(), bytes) && slot.copies.len() <= MOST_PIECES;
        if scattered {
            match self.mover.has_staging() {
                Ok(false) => return false,
                Ok(true) => return self.copy_scattered(index, way, bytes),
                Err(error) => {
                    tracing::warn!(?error, "pieces are copied one by one: no kernel, or no memory for it")
                }
            }
        }
        let slot = &mut self.slots[index as usize];
        (slot.stage, slot.copying) = (Stage::Copying, bytes);
        self.copying[way as usize] += bytes;
        self.mover.copy(index as u32, way, &slot.copies);
        true
    }

    fn copy_scattered(&mut self, index: u16, way: Way, bytes: u64) -> bool {
        let (stride, bounce) = (self.stride(), self.spec.bounce.clone());
        let slot = &mut self.slots[index as usize];
        layout::pieces(slot.parts.iter().filter(|part| !part.failed), &mut slot.pieces);
        let end = slot.pieces.iter().map(|piece| piece.at + piece.len).max().unwrap_or(0);
        (slot.stage, slot.copying) = (Stage::Copying, bytes);
        self.copying[way as usize] += bytes;
        if slot.path == Path::DaxToGpu {
            self.mover.scatter(index as u32, &slot.bulk, &slot.pieces);
            return true;
        }
        let host = bounce.window(slot.buffer.unwrap_or(0) as usize * stride, end);
        match way {
            Way::In => self.mover.scatter(index as u32, &[(host, 0)], &slot.pieces),
            Way::Out => self.mover.gather(index as u32, host, &slot.pieces),
        }
        true
    }

    /// The copies of a unit have ended.
    pub(super) fn copy_ended(&mut self, ended: Ended) {
        let index = ended.token as u16;
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        let way = if slot.to_gpu { Way::In } else { Way::Out };
        self.copying[way as usize] -= std::mem::take(&mut slot.copying);
        if let Err(error) = ended.result {
            if ended.unknown {
                tracing::error!(?error, "the GPU's context is broken; the lane copies nothing more");
                self.broken = Some(error);
                // Never used again: nobody can say that the copy is over.
                slot.buffer = None;
            }
            let what =
                if slot.to_gpu { "the copy to the GPU failed" } else { "the copy from the GPU failed" };
            return self.fail(index, error.error(what), libc::EIO);
        }
        let stopped = slot.claim.as_ref().is_some_and(|claim| self.core.table.stopped(claim).is_some());
        if slot.to_gpu || stopped {
            // What landed landed; a store that was stopped goes no further.
            if !slot.to_gpu {
                slot.parts.iter_mut().for_each(|part| part.failed = true);
            }
            return self.close(index);
        }
        self.feed(index);
    }

    /// Notes an error of a child, or of a copy, as its parent's.
    pub(super) fn note(&mut self, index: u16, error: Error) {
        let slot = &self.slots[index as usize];
        let Some(claim) = &slot.claim else { return };
        let reason = match error.kind() {
            ErrorKind::TimedOut => Some(Stop::TimedOut),
            ErrorKind::Cancelled => Some(Stop::Cancelled),
            ErrorKind::Shutdown => Some(Stop::Shutdown),
            _ => None,
        };
        if let Some(reason) = reason {
            return self.core.stop(claim.handle, reason);
        }
        let extent = error.offset().and_then(|at| {
            slot.parts.iter().find(|part| (part.offset..part.offset + part.len).contains(&at))
        });
        let (first, offset, len) = slot.place();
        let error = if error.offset().is_some() { error } else { error.at(offset, len) };
        let error = error.extent(extent.map_or(first, |part| part.extent));
        let error = match self.core.table.body(claim) {
            Some(job) => error.on(&job.target().name),
            None => error,
        };
        self.core.table.fault(claim, error);
    }

    /// Fails all of a unit.
    fn fail(&mut self, index: u16, error: Error, errno: i32) {
        self.note(index, error);
        let slot = &mut self.slots[index as usize];
        let job = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim));
        for part in &mut slot.parts {
            part.failed = true;
            job.iter().for_each(|job| job.fail(part.extent, errno));
        }
        self.close(index);
    }

    /// Gives a unit back, with what it moved; behind a durable write, a flush comes first.
    pub(super) fn close(&mut self, index: u16) {
        let moved = self.slots[index as usize].stage != Stage::Ready;
        let slot = &mut self.slots[index as usize];
        self.buffers.extend(slot.buffer.take());
        let Some(claim) = slot.claim.take() else { return self.release(index) };
        let mut bytes = 0;
        if let (Some(job), true, true) = (self.core.table.body(&claim), moved, slot.stage != Stage::Flushing)
        {
            for part in slot.parts.iter().filter(|part| !part.failed) {
                job.credit(part.extent, part.len);
                bytes += part.len;
            }
        }
        let path = slot.path;
        let counters = &self.inbox.counters;
        counters.commands.add(1);
        counters.moved(path, bytes);
        counters.took(self.now.saturating_sub(slot.begun));
        self.core.table.credit(&claim, bytes, slot.paths);
        let flushed = slot.paths & FLUSHED != 0;
        let Some(last) = self.core.table.finish(claim) else { return self.release(index) };
        let table = &self.core.table;
        let wants = table.body(last.claim()).is_some_and(|job| job.durable && job.op == Op::Write);
        if !wants || flushed || table.faulted(last.claim()) || table.stopped(last.claim()).is_some() {
            self.core.publish(last);
            return self.release(index);
        }
        let claim = table.reopen(last);
        self.flush(index, claim);
    }

    /// Has a child make durable what was written.
    fn flush(&mut self, index: u16, claim: Claim) {
        let slot = &mut self.slots[index as usize];
        slot.parts.clear();
        (slot.stage, slot.paths) = (Stage::Flushing, 0);
        let target = self.core.table.body(&claim).map(|job| (job.target().clone(), job.trace_id));
        slot.claim = Some(claim);
        let Some((target, trace_id)) = target else { return self.close(index) };
        let source = Source::Flush(target);
        let child =
            Job { op: Op::Flush, source, trace_id, durable: false, mailbox: Some(self.children.clone()) };
        let (order, deadline) = (slot.order, slot.deadline);
        match self.spec.feeder.feed(child, order.0, deadline, index as u64) {
            Ok(handle) => self.slots[index as usize].child = Some(handle),
            Err(error) => self.fail(index, error, libc::EIO),
        }
    }

    fn release(&mut self, index: u16) {
        self.slots[index as usize].stage = Stage::Free;
        self.free.push(index);
    }

    fn stride(&self) -> usize {
        self.spec.buffer + SLACK
    }

    /// Takes buffers back that abandoned children have let go of meanwhile. True: there is one to use.
    fn find_lost(&mut self) -> bool {
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

/// The parts of extents that lie in a unit.
fn list(job: &Job, unit: Unit, parts: &mut Vec<Part>) {
    parts.clear();
    let (mut extent, mut pos, mut left) = (unit.extent, unit.pos, unit.bytes);
    while left > 0 && extent < job.count() {
        let piece = job.piece(extent);
        let len = left.min(piece.len - pos);
        let (offset, device) = (piece.offset + pos, piece.window.addr() + pos);
        parts.push(Part { extent, offset, len, device, at: 0, run: 0, failed: false });
        (extent, pos, left) = (extent + 1, 0, left - len);
    }
}

/// Copies straight out of the target's mapping, and the same as `bulk` for staging, where places on the GPU do not
/// matter. False: it is not there any more.
fn lay_out_mapping(
    job: &Job,
    parts: &mut [Part],
    copies: &mut Vec<Copy>,
    bulk: &mut Vec<(Window, usize)>,
) -> bool {
    copies.clear();
    bulk.clear();
    let target = job.target();
    let mut at = 0;
    for part in parts {
        part.at = at;
        let end = at + part.len as usize;
        target.each_mapped(part.offset, part.len, |host, joins| {
            layout::push_copy(copies, host, part.device + (at - part.at) as u64, |_| joins);
            match bulk.last_mut() {
                Some((last, _)) if joins && last.addr() + last.len() as u64 == host.addr() => {
                    *last = last.joined(host);
                }
                _ => bulk.push((host, at)),
            }
            at += host.len();
        });
        if at < end {
            return false;
        }
    }
    true
}

fn gone() -> Error {
    Error::new(ErrorKind::Io, "the target's memory is not there any more; was the file cut short?")
}
