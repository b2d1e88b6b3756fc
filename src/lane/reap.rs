//! From answers to completions. Every result is compared with what was asked (invariant I4).

use super::Mutation;
use super::core::FLUSHED;
use super::failure::Failure;
use super::issue::registered;
use super::lane_loop::Lane;
use super::path::Path;
use super::records::{Record, Work};
use crate::queue::{Answer, Queue};
use crate::target::{Decoded, Fault, Op};

/// How often a command is asked again with nothing gained.
const ATTEMPTS: u8 = 8;
/// The first pause after EAGAIN, in ns; it doubles each time.
const PAUSE: u64 = 50_000;

/// What becomes of a command after an answer.
enum Verdict {
    Done,
    /// Ask for the rest.
    Continue,
    /// Ask again after a pause.
    Pause,
    Fail(Failure),
}

impl<Q: Queue> Lane<Q> {
    pub(super) fn reap(&mut self) {
        if !self.queue.ready() {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        self.queue.reap(&mut answers);
        self.now = self.core.clock.now();
        for answer in answers.drain(..) {
            self.take_answer(answer);
        }
        self.answers = answers;
        self.inbox.counters.in_flight.set(self.in_flight as u64);
    }

    fn take_answer(&mut self, answer: Answer) {
        let (index, ours) = match self.slots.find(answer.user_data) {
            Some((index, current)) => (index, current || self.core.mutant(Mutation::StaleGeneration)),
            None => (0, false),
        };
        if !ours {
            self.inbox.counters.stale.add(1);
            tracing::error!(answer.user_data, answer.result, "an answer to no command of ours");
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        match self.judge(index, answer.result) {
            Verdict::Done => self.close_command(index, None),
            Verdict::Fail(failure) => self.close_command(index, Some(failure)),
            Verdict::Continue => {
                self.inbox.counters.shorts.add(1);
                self.ask_later(index, 0);
            }
            Verdict::Pause => {
                self.inbox.counters.retries.add(1);
                let attempts = self.slots.get(index).attempts;
                self.ask_later(index, self.now + (PAUSE << attempts));
            }
        }
    }

    fn judge(&mut self, index: u16, result: i32) -> Verdict {
        let eof_again = self.core.mutant(Mutation::EofResubmitted);
        let short_is_success = self.core.mutant(Mutation::ShortIsSuccess);
        let status_is_length = self.core.mutant(Mutation::StatusIsLength);
        let status_retried = self.core.mutant(Mutation::StatusRetried);
        let Some(run) = &self.runs[self.slots.get(index).run as usize] else { return Verdict::Done };
        let Some(job) = self.core.table.body(&run.claim) else { return Verdict::Done };
        let (target, op, stopped) = (job.target(), job.op, self.core.table.stopped(&run.claim).is_some());
        let slot = self.slots.get_mut(index);
        let decoded = match target.decode(result, slot.command.len - slot.done) {
            Decoded::Again(Fault::Nvme(_)) | Decoded::Failed(Fault::Nvme(_)) if status_is_length => {
                Decoded::Moved(result as u32)
            }
            Decoded::Failed(fault @ Fault::Nvme(_)) if status_retried => Decoded::Again(fault),
            decoded => decoded,
        };
        match decoded {
            Decoded::Moved(_) if slot.flush => Verdict::Done,
            Decoded::Moved(bytes) => {
                let command = slot.command;
                let before = slot.done;
                slot.done = before.saturating_add(bytes).min(command.len);
                // An unaligned tail is there when its own bytes are; the block's rest may lie past the end.
                if slot.done >= command.skip + command.take || short_is_success {
                    return Verdict::Done;
                }
                // Only whole blocks count: a direct command must begin on one.
                slot.done &= !(target.geometry.block - 1);
                if slot.done > before || (eof_again && bytes == 0) {
                    slot.attempts = 0;
                    return Verdict::Continue;
                }
                Verdict::Fail(Failure::ended(op))
            }
            // Of a stopped transfer it is not asked again: `ask_again` drops it, and it is no failure.
            Decoded::Again(_) if stopped => Verdict::Pause,
            Decoded::Again(_) if slot.attempts < ATTEMPTS => {
                slot.attempts += 1;
                Verdict::Pause
            }
            Decoded::Again(fault) => Verdict::Fail(Failure::exhausted(op, fault)),
            // Its region was dropped between its push and its enter: it goes on unregistered.
            Decoded::Failed(Fault::Errno(libc::EFAULT))
                if slot.path.is_fixed() && registered(&self.fixed, slot.region, slot.memory).is_none() =>
            {
                Verdict::Pause
            }
            Decoded::Failed(fault) => Verdict::Fail(Failure::of(op, fault)),
        }
    }

    /// Fails a command that was not pushed: another path was demanded.
    pub(super) fn refuse(&mut self, index: u16, path: Path) {
        self.close_command(index, Some(Failure::other_path(path)));
    }

    fn close_command(&mut self, index: u16, failure: Option<Failure>) {
        let slot = *self.slots.get(index);
        self.slots.free(index);
        let counters = &self.inbox.counters;
        counters.commands.add(1);
        counters.took(self.now.saturating_sub(slot.issued));
        let error_overwritten = self.core.mutant(Mutation::ErrorOverwritten);
        let first_counts = self.core.mutant(Mutation::FirstFlushCounts);
        let Some(run) = &mut self.runs[slot.run as usize] else { return };
        run.outstanding -= 1;
        let Some(job) = self.core.table.body(&run.claim) else { return };
        let (command, take) = (slot.command, slot.command.take as u64);
        self.core.records.note(|| Record {
            work: Work::Command,
            lane: self.inbox.number,
            slot: index,
            trace_id: job.trace_id,
            op: if slot.flush { Op::Flush } else { job.op },
            path: slot.path,
            offset: command.offset + u64::from(command.skip),
            bytes: if slot.flush { 0 } else { take },
            begun: slot.issued,
            ended: self.now,
            failed: failure.is_some(),
        });
        match failure {
            None if slot.flush => {
                run.flushed += 1;
                let wanted = if first_counts { 1 } else { self.core.flushes_of(&run.claim) };
                if run.flushed == wanted {
                    run.paths |= FLUSHED;
                }
            }
            None => {
                counters.moved(slot.path, take);
                run.paths |= slot.path as u32;
                if command.scratch && job.op == Op::Read {
                    let from =
                        self.scratch.window(index as usize).sub(command.skip as usize, slot.memory.len());
                    slot.memory.copy_from(from);
                }
                if run.credit_extent != slot.extent {
                    job.credit(run.credit_extent, std::mem::take(&mut run.credit));
                    run.credit_extent = slot.extent;
                }
                run.credit += take;
                run.moved += take;
            }
            Some(failure) => {
                let errno = failure.errno;
                let region = self.core.regions.get(slot.region);
                let failure = if region.is_some_and(|r| r.peer) { failure.over_peer() } else { failure };
                let failure = match job.target().member_at(command.offset) {
                    Some(member) => failure.on_member(&member),
                    None => failure,
                };
                let mut error = failure.error().on(&job.target().name);
                // A flush has no place: what it was for was written, and is not known to be durable.
                if !slot.flush {
                    let done = slot.done.max(command.skip);
                    let rest = (command.skip + command.take).saturating_sub(done);
                    error = error.at(command.offset + done as u64, rest as u64).extent(slot.extent);
                    job.fail(slot.extent, errno);
                }
                if error_overwritten {
                    self.core.table.forget_fault(&run.claim);
                }
                self.core.table.fault(&run.claim, error);
            }
        }
        self.close_if_done(slot.run);
    }

    /// Gives a run's claim back when nothing of it is left, and flushes behind a durable write.
    pub(super) fn close_if_done(&mut self, index: u16) {
        let skip_the_drain = self.core.mutant(Mutation::SkipTheDrain);
        let table = &self.core.table;
        let Some(run) = &self.runs[index as usize] else { return };
        let stopped = table.stopped(&run.claim).is_some();
        let drained = run.outstanding == 0 || (skip_the_drain && stopped);
        if run.left > 0 && !stopped || run.flushes > 0 || !drained {
            return;
        }
        self.close_early(index);
    }

    /// Gives a run's claim back.
    pub(super) fn close_early(&mut self, index: u16) {
        let Some(run) = self.runs[index as usize].take() else { return };
        self.free_runs.push(index);
        if let Some(share) = run.share {
            self.schedule.gave_back(share, run.claim.handle);
        }
        self.cutting.iter_mut().filter(|c| **c == Some(index)).for_each(|c| *c = None);
        let table = &self.core.table;
        if let Some(job) = table.body(&run.claim) {
            job.credit(run.credit_extent, run.credit);
        }
        table.credit(&run.claim, run.moved, run.paths);
        let Some(last) = table.finish(run.claim) else { return };
        let claim = last.claim();
        let wants_flush = table.body(claim).is_some_and(|job| job.durable && job.op == Op::Write);
        let flushed = run.paths & FLUSHED != 0 || table.faulted(claim) || table.stopped(claim).is_some();
        if wants_flush && !flushed {
            let claim = table.reopen(last);
            let flushes = self.core.flushes_of(&claim);
            let index = self.open_run((claim, None), (0, 0, 0), flushes);
            self.flushes.push_back(index);
        } else {
            self.core.publish(last);
        }
    }
}
