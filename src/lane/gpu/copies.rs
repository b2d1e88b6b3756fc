//! What is ready goes into the copy engines, in one order over all requests.

use super::lane::GpuLane;
use super::layout::{self, Part};
use super::slot::{Slot, Stage};
use crate::lane::job::Job;
use crate::lane::path::Path;
use crate::lane::records::Work;
use crate::memory::Window;
use crate::queue::cuda::{Copy, Ended, MOST_PIECES, Way};

/// How long a unit of a lower class may wait for others, in ns.
const PATIENCE: u64 = 200_000_000;
/// How long staging that could not be had is not asked for again, in ns.
const NEXT_TRY: u64 = 1_000_000_000;

impl GpuLane {
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
        // A lower class gets its turn too: what was claimed so long ago holds up its buffer.
        let order = |slot: &Slot| match slot.order {
            (_, since) if self.now.saturating_sub(slot.begun) > PATIENCE => (0, since),
            order => order,
        };
        ready.min_by_key(|index| order(&self.slots[*index])).map(|index| index as u16)
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
        if scattered && self.now >= self.staging_from {
            match self.mover.has_staging() {
                Ok(false) => return false,
                Ok(true) => return self.copy_scattered(index, way, bytes),
                Err(error) => {
                    // A try costs more than the copies: the next comes later.
                    self.staging_from = self.now + NEXT_TRY;
                    tracing::warn!(?error, "pieces are copied one by one: no kernel, or no memory for it")
                }
            }
        }
        self.settle(index);
        let slot = &mut self.slots[index as usize];
        (slot.stage, slot.copying, slot.queued) = (Stage::Copying, bytes, self.now);
        self.copying[way as usize] += bytes;
        self.mover.copy(index as u32, way, &slot.copies);
        true
    }

    fn copy_scattered(&mut self, index: u16, way: Way, bytes: u64) -> bool {
        self.settle(index);
        let (stride, bounce) = (self.stride(), self.spec.bounce.clone());
        let slot = &mut self.slots[index as usize];
        layout::pieces(slot.parts.iter().filter(|part| !part.failed), &mut slot.pieces);
        let end = slot.pieces.iter().map(|piece| piece.at + piece.len).max().unwrap_or(0);
        (slot.stage, slot.copying, slot.queued) = (Stage::Copying, bytes, self.now);
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
        let (bytes, queued) = (std::mem::take(&mut slot.copying), slot.queued);
        self.copying[way as usize] -= bytes;
        if let Some(claim) = self.slots[index as usize].claim.as_ref() {
            self.record(Work::Copy, index, claim, bytes, queued, ended.result.is_err());
        }
        let slot = &mut self.slots[index as usize];
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
}

/// Copies straight out of the target's mapping, and the same as `bulk` for staging, where places on the GPU do not
/// matter. False: it is not there any more.
pub(super) fn lay_out_mapping(
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
