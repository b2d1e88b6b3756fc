//! The life of a unit: claimed, filled by its child, copied, given back; a store the other way round.

use super::copies::lay_out_mapping;
use super::lane::{GpuLane, Line};
use super::layout::{self, Part, SLACK};
use super::route::path_of_job;
use super::slot::{Slot, Stage};
use crate::error::{Error, ErrorKind};
use crate::lane::core::FLUSHED;
use crate::lane::job::{Job, Source};
use crate::lane::path::Path;
use crate::lane::records::{Record, Work};
use crate::lane::schedule::Share;
use crate::lane::slots::{Claim, Spent, Stop};
use crate::plan::{Extents, Unit};
use crate::queue::cuda::Way;
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
        let bounce = line == Line::Bounce && self.broken.is_none();
        if bounce && self.buffers.len() <= 1 {
            self.find_lost();
        }
        let fed = if bounce { self.fed() } else { Vec::new() };
        let GpuLane { schedules, core, spec, buffers, lost, .. } = self;
        // The last buffer is kept for the urgent.
        let (left, kept) = (buffers.len(), (spec.buffers - lost.len() > 1) as usize);
        let free = |share: &Share| {
            let room = !bounce || left > if share.class > 0 { kept } else { 0 };
            room && !fed.iter().any(|(target, class)| *target == share.target && *class <= share.class)
        };
        let schedule = &mut schedules[line as usize];
        let Some(class) = schedule.pick(|_| false, free) else { return false };
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
        self.settle(index);
        self.start(index);
        true
    }

    /// Before the stage of a slot changes: adds the time since the last change of its transfer to what that was at.
    pub(super) fn settle(&self, index: u16) {
        let Some(claim) = &self.slots[index as usize].claim else { return };
        let mut on = Spent::Waiting;
        for slot in &self.slots {
            if slot.claim.as_ref().is_none_or(|other| other.handle != claim.handle) {
                continue;
            }
            match slot.stage {
                Stage::Child | Stage::Direct | Stage::Flushing => {
                    on = Spent::Target;
                    break;
                }
                Stage::Copying => on = Spent::Copies,
                Stage::Free | Stage::Ready => {}
            }
        }
        self.core.table.spend(claim, self.now, on);
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
        // It was cut for copies out of a mapping, whose registration is gone since.
        let fits = parts.iter().map(|part| part.len).sum::<u64>() <= (self.spec.buffer + SLACK) as u64;
        let Some(buffer) = fits.then(|| self.buffers.pop()).flatten() else {
            // Or it waited for cuFile, which has let go of its memory since.
            let message = "its path is not there any more, and no bounce buffer is free or large enough; submit it again";
            return self.fail(index, Error::new(ErrorKind::PathUnavailable, message), libc::EAGAIN);
        };
        let slot = &mut self.slots[index as usize];
        slot.buffer = Some(buffer);
        layout::place(&mut slot.parts, self.spec.buffer + SLACK, &mut slot.runs);
        if slot.to_gpu {
            self.feed(index);
        }
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
    pub(super) fn fail(&mut self, index: u16, error: Error, errno: i32) {
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
        self.settle(index);
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
        let (path, paths, begun) = (slot.path, slot.paths, slot.begun);
        let counters = &self.inbox.counters;
        counters.commands.add(1);
        counters.moved(path, bytes);
        counters.took(self.now.saturating_sub(begun));
        let failed = slot.parts.iter().any(|part| part.failed);
        self.record(Work::Unit, index, &claim, bytes, begun, failed);
        self.core.table.credit(&claim, bytes, paths);
        let flushed = paths & FLUSHED != 0;
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

    /// For timelines: what was done for a unit since `begun`.
    pub(super) fn record(&self, work: Work, index: u16, claim: &Claim, bytes: u64, begun: u64, failed: bool) {
        let slot = &self.slots[index as usize];
        self.core.records.note(|| Record {
            work,
            lane: self.inbox.number,
            slot: index,
            trace_id: self.core.table.body(claim).map_or(0, |job| job.trace_id),
            op: match slot.stage {
                Stage::Flushing => Op::Flush,
                _ if slot.to_gpu => Op::Read,
                _ => Op::Write,
            },
            path: slot.path,
            offset: slot.parts.first().map_or(0, |part| part.offset),
            bytes,
            begun,
            ended: self.now,
            failed,
        });
    }

    /// Has a child make durable what was written.
    fn flush(&mut self, index: u16, claim: Claim) {
        let slot = &mut self.slots[index as usize];
        slot.parts.clear();
        // A piece of work of its own: the unit before it in this slot has ended.
        (slot.stage, slot.paths, slot.begun) = (Stage::Flushing, 0, self.now);
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

pub(super) fn gone() -> Error {
    Error::new(ErrorKind::Io, "the target's memory is not there any more; was the file cut short?")
}
