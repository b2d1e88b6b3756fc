//! Before a job's clock: buffers are filled, content is looked up, and the first run, which may find the device, memory and
//! mappings cold, is measured apart.

use std::time::Instant;

use fullbore::Transfer;

use super::Worker;
use crate::arm::LOOK;
use crate::failure::Failure;
use crate::jobs::run::course::{Course, total};
use crate::jobs::run::live::First;
use crate::jobs::run::stats::READ;
use crate::jobs::spec::Job;
use crate::stop;

/// Whether a job has one apart. `ramp_time` sets its beginning apart already, and of a job through the page cache it would leave
/// pages behind that the job then finds there.
fn is_apart(job: &Job) -> bool {
    job.first_run && job.ramp_time.is_zero() && job.direct
}

impl Worker<'_> {
    /// Before the clock: buffers that are neither zeros nor content of ours; for a reading job, whose content it is.
    pub(super) fn prepare(&mut self) -> Result<(), Failure> {
        if self.job.rw.writes {
            for slot in &mut self.slots {
                let extents = slot.transfer.iter_mut().flat_map(|transfer| transfer.extents_mut());
                for extent in extents {
                    self.check.stain(extent.mem_mut())?;
                }
            }
        }
        if self.check.needs_seeds() {
            self.learn_seeds()?;
        }
        if is_apart(self.job) {
            self.first_run()?;
        }
        Ok(())
    }

    fn learn_seeds(&mut self) -> Result<(), Failure> {
        for span in 0..self.part.spans.len() {
            let io = self.course.io(READ, span, 0);
            self.launch(io, true);
            let back = self.one_back()?;
            let target = self.part.spans[span].target;
            self.check.learn(&back, target, self.part.targets[target].name())?;
            self.free.push_back(back.1);
            self.slots[back.1].transfer = Some(back.0);
        }
        Ok(())
    }

    /// The only one in flight.
    fn one_back(&mut self) -> Result<(Transfer, usize), Failure> {
        let mut done = Vec::new();
        self.client.wait(1, &mut done, None).map_err(Failure::data)?;
        self.note(&done);
        let lost = || Failure::data("a transfer did not come back");
        let completion = done.pop().ok_or_else(lost)?;
        completion.result.map_err(Failure::data)?;
        Ok((completion.transfer.ok_or_else(lost)?, completion.tag as usize))
    }

    /// How many I/Os that is: one into each place of the memory; of a mapping all, since each page costs a fault; of a job
    /// that is held to a pace one.
    fn first_ios(&self) -> u64 {
        let (job, spans) = (self.job, &self.part.spans);
        let paced = job.rate != [None; 2] || job.rate_iops != [None; 2] || job.replay.is_some();
        let all: u64 = spans.iter().map(|span| span.count).sum();
        let ios = match (paced, self.part.targets[0].is_mapped()) {
            (true, _) => 1,
            (_, true) => all,
            _ => self.slots.len() as u64,
        };
        ios.min(total(job, spans))
    }

    /// Moves what the job begins with.
    fn first_run(&mut self) -> Result<(), Failure> {
        let seed = super::seed(self.job, self.number, self.section.run);
        let mut course = Course::new(self.job, self.part.spans.clone(), self.first_ios(), seed);
        let (began, mut first, mut done) = (Instant::now(), First::default(), Vec::new());
        loop {
            while !self.over && !stop::requested() && !self.free.is_empty() {
                let Some(io) = course.peek() else { break };
                course.take();
                if !self.launch(io, io.way == READ) {
                    break;
                }
            }
            if self.flying() == 0 {
                break;
            }
            self.client.wait(1, &mut done, Some(LOOK)).map_err(Failure::data)?;
            self.note(&done);
            for completion in done.drain(..) {
                let bytes = completion.bytes;
                if let Some(io) = self.absorb(completion) {
                    first.bytes[io.way] += bytes;
                }
            }
        }
        first.took = began.elapsed();
        self.live.state().first = Some(first);
        Ok(())
    }
}
