//! Units that cuFile moves: between storage and GPU memory, with no memory of ours between.

use super::lane::GpuLane;
use super::route;
use super::slot::Stage;
use crate::error::{Error, ErrorKind};
use crate::lane::failure::Failure;
use crate::memory::cuda::Gpu;
use crate::queue::cufile::{CuFile, CuFileError, Done, Job, Workers};
use crate::target::Op;
use crossbeam::queue::SegQueue;
use std::sync::Arc;

/// Calls of the library at once, and units in their hands: a thread that is done finds the next there.
const THREADS: usize = 8;
pub const UNITS: usize = 2 * THREADS;
/// How often a call is made again that the library says may do better later.
const ATTEMPTS: u8 = 8;

/// cuFile for one lane.
pub struct Direct {
    workers: Workers,
    done: Arc<SegQueue<Done>>,
}

impl Direct {
    pub fn new(cufile: &Arc<CuFile>, gpu: Arc<Gpu>, wake: Box<dyn Fn() + Send + Sync>) -> Direct {
        let done: Arc<SegQueue<Done>> = Arc::default();
        let prepare = Box::new(move || {
            if let Err(error) = gpu.adopt() {
                tracing::warn!(?error, "a thread of cuFile has no context: its calls will fail");
            }
        });
        Direct { workers: Workers::new(cufile, THREADS, done.clone(), wake, prepare), done }
    }

    pub fn ready(&self) -> bool {
        !self.done.is_empty()
    }
}

/// What comes back with a job: the slot, and the part of the unit.
fn user(index: u16, part: usize) -> u64 {
    (part as u64) << 16 | u64::from(index)
}

impl GpuLane {
    pub(super) fn has_direct_room(&self) -> bool {
        self.slots.iter().filter(|slot| slot.stage == Stage::Direct).count() < UNITS
    }

    /// Gives every part of a unit to cuFile.
    pub(super) fn go_direct(&mut self, index: u16) {
        self.settle(index);
        let slot = &mut self.slots[index as usize];
        (slot.stage, slot.waiting, slot.attempts) = (Stage::Direct, slot.parts.len(), 0);
        for part in 0..self.slots[index as usize].parts.len() {
            self.call(index, part);
        }
    }

    fn call(&mut self, index: u16, part: usize) {
        let slot = &self.slots[index as usize];
        let Some(job) = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim)) else { return };
        let mine = slot.parts[part];
        let held = job.region_of(mine.extent, &self.core.regions);
        let buffer = held.as_ref().and_then(|region| route::buffer(region.device()?));
        let (Some(handle), Some(buffer), Some(direct)) = (route::handle(job.target()), buffer, &self.direct)
        else {
            let gone = Error::new(
                ErrorKind::PathUnavailable,
                "cuFile does not know the file or the memory any more",
            );
            return self.part_ended(index, part, Some((gone, libc::EIO)));
        };
        let call = Job {
            op: if slot.to_gpu { Op::Read } else { Op::Write },
            offset_in_buffer: mine.device - buffer.base(),
            handle,
            buffer,
            file_offset: mine.offset,
            len: mine.len as usize,
            user: user(index, part),
        };
        if let Err(error) = direct.workers.submit(call) {
            self.part_ended(index, part, Some(failure(error)));
        }
    }

    /// Takes cuFile's answers.
    pub(super) fn reap_direct(&mut self) {
        while let Some(done) = self.direct.as_ref().and_then(|direct| direct.done.pop()) {
            self.now = self.core.clock.now();
            let (index, part) = (done.user as u16, (done.user >> 16) as usize);
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            let Some(mine) = slot.parts.get(part) else { continue };
            let op = if slot.to_gpu { Op::Read } else { Op::Write };
            match done.result {
                Ok(bytes) if bytes as u64 == mine.len => self.part_ended(index, part, None),
                Ok(bytes) => {
                    let (at, rest) = (mine.offset + bytes as u64, mine.len - bytes as u64);
                    let ended = Failure::ended(op);
                    let errno = ended.errno;
                    self.part_ended(index, part, Some((ended.error().at(at, rest), errno)));
                }
                Err(error) if error.retryable() && slot.attempts < ATTEMPTS => {
                    slot.attempts += 1;
                    self.call(index, part);
                }
                Err(error) => self.part_ended(index, part, Some(failure(error))),
            }
        }
    }

    fn part_ended(&mut self, index: u16, part: usize, failed: Option<(Error, i32)>) {
        let slot = &mut self.slots[index as usize];
        slot.waiting -= 1;
        let waits = slot.waiting > 0;
        if let Some((error, errno)) = failed {
            let mine = &mut slot.parts[part];
            mine.failed = true;
            let error = if error.offset().is_some() { error } else { error.at(mine.offset, mine.len) };
            if let Some(job) = slot.claim.as_ref().and_then(|claim| self.core.table.body(claim)) {
                job.fail(slot.parts[part].extent, errno);
            }
            self.note(index, error);
        }
        if !waits {
            self.close(index);
        }
    }

    /// Takes back from cuFile what it has not begun of stopped transfers.
    pub(super) fn revoke(&mut self) {
        let stopped: Vec<u16> = (0..self.slots.len() as u16)
            .filter(|index| {
                let slot = &self.slots[*index as usize];
                let stopped = |claim| self.core.table.stopped(claim).is_some();
                slot.stage == Stage::Direct && slot.claim.as_ref().is_some_and(stopped)
            })
            .collect();
        let Some(direct) = self.direct.as_ref().filter(|_| !stopped.is_empty()) else { return };
        for job in direct.workers.revoke(|user| stopped.contains(&(user as u16))) {
            let (index, part) = (job.user as u16, (job.user >> 16) as usize);
            self.slots[index as usize].parts[part].failed = true;
            self.part_ended(index, part, None);
        }
    }
}

fn failure(error: CuFileError) -> (Error, i32) {
    let errno = error.errno().unwrap_or(libc::EIO);
    let kind = match error.errno() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => ErrorKind::Resource,
        _ => ErrorKind::Io,
    };
    let made = Error::new(kind, format!("cuFile failed it: {error}"));
    let made = error.code().into_iter().fold(made, Error::with_cufile);
    (error.cuda().into_iter().fold(made, |made, code| made.with_cuda(code as u32)), errno)
}
