//! A clone of a job: a thread that keeps its depth in flight, at its pace, until its time or its I/O is over.

use std::collections::VecDeque;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fullbore::{Client, Completion, Transfer};

use super::check::Check;
use super::course::{Course, Io, Pace, bytes_of, total};
use super::live::Live;
use super::section::{Part, Section, of};
use super::stats::{Counts, READ};
use super::usage::{self, Usage};
use crate::arm::{LOOK, transfer};
use crate::direct::Op;
use crate::failure::Failure;
use crate::jobs::spec::Job;
use crate::stop;
use crate::timeline::{Aim, Track};

/// A buffer and the transfer that it is in.
struct Slot {
    transfer: Option<Transfer>,
    op: Op,
    target: usize,
    io: Option<Io>,
}

mod first;

/// A clone.
pub struct Worker<'a> {
    pub job: &'a Job,
    part: &'a Part,
    section: &'a Section<'a>,
    number: usize,
    live: &'a Live,
    client: Client,
    course: Course,
    slots: Vec<Slot>,
    /// Slots at rest: first in, first out, so that all of the memory takes turns.
    free: VecDeque<usize>,
    done: Vec<Completion>,
    check: Check,
    over: bool,
    /// Of the timeline, if there is one.
    pub track: Option<Track>,
}

/// The errno where there is none: EIO.
const EIO: i32 = 5;

impl<'a> Worker<'a> {
    pub fn new(section: &'a Section<'a>, number: usize, live: &'a Live) -> Result<Self, Failure> {
        let (job, part) = (section.job, &section.parts[number]);
        let client = section.engine.client().map_err(|error| of(job, error))?;
        let op = if job.rw.reads { Op::Read } else { Op::Write };
        let at_rest = |mem| Slot {
            transfer: Some(transfer(op, &part.targets[0]).extent(0, mem)),
            op,
            target: 0,
            io: None,
        };
        let slots: Vec<Slot> = section.memory(number)?.into_iter().map(at_rest).collect();
        let seed = seed(job, number, section.run);
        let planned = total(job, &part.spans);
        live.state().planned = bytes_of(job, planned);
        let course = Course::new(job, part.spans.clone(), planned, seed);
        let free = (0..slots.len()).collect();
        let check = Check::new(job, part);
        Ok(Self {
            job,
            part,
            section,
            number,
            live,
            client,
            course,
            free,
            slots,
            done: Vec::new(),
            check,
            over: false,
            track: None,
        })
    }

    /// Runs it. `start`: all clones of the wave are ready, and then begin together.
    pub fn run(mut self, start: &Barrier) {
        let ready = self.section.pin_clone(self.number).and_then(|()| self.prepare());
        // A first run is apart on the timeline, too.
        self.track.iter_mut().for_each(Track::forget);
        start.wait();
        start.wait();
        let is_ready = ready.is_ok();
        if let Err(failure) = ready {
            self.fail(EIO, failure);
        }
        self.rest(self.job.startdelay);
        let started = Instant::now();
        let mut before = usage::of_this_thread();
        {
            let mut state = self.live.state();
            (state.from, state.ramping) = (Some(started), !self.job.ramp_time.is_zero());
        }
        // One that is not ready may have lost a slot: it runs nothing.
        if is_ready {
            self.measured(started, &mut before);
        }
        let mut state = self.live.state();
        (state.ended, state.ramping) = (Some(Instant::now()), false);
        state.usage = usage::of_this_thread() - before;
        let failed = state.failed.is_some();
        drop(state);
        while (self.job.rw.writes || self.job.verify) && !self.live.is_looked_at() {
            thread::sleep(Duration::from_millis(1));
        }
        if !failed && let Err(failure) = self.finish() {
            self.fail(EIO, failure);
        }
    }

    /// Sleeps, unless Ctrl-C comes.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.over && !stop::requested() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK));
        }
    }

    /// What is measured.
    fn measured(&mut self, started: Instant, before: &mut Usage) {
        let counted_from = started + self.job.ramp_time;
        let mut until = self.job.runtime.map(|time| counted_from + time);
        let mut ramping = !self.job.ramp_time.is_zero();
        let mut pace = Pace::new(self.job, started);
        loop {
            // One look at the clock for a batch.
            let now = Instant::now();
            if ramping && now >= counted_from {
                ramping = false;
                // As in fio the whole runtime counts, also where the end of the ramp was seen late.
                until = self.job.runtime.map(|time| now + time);
                *before = usage::of_this_thread();
                let mut state = self.live.state();
                (state.counts, state.from, state.ramping) = (Counts::default(), Some(now), false);
            }
            self.over |= until.is_some_and(|until| now >= until) || stop::requested();
            let due = self.submit(now, &mut pace);
            let pause = due.map_or(LOOK, |due| due.saturating_duration_since(now).min(LOOK));
            if self.flying() > 0 {
                self.wait(pause);
            } else if due.is_some() {
                thread::sleep(pause);
            } else {
                break;
            }
        }
    }

    fn flying(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Submits what there is room for. Answers when the next may be, if it has to wait for its pace.
    fn submit(&mut self, now: Instant, pace: &mut Pace) -> Option<Instant> {
        let mut submitted = Vec::new();
        let mut due = None;
        while !self.over && !self.free.is_empty() {
            let Some(io) = self.course.peek_by(pace, now) else { break };
            due = pace.due_at(io.way, self.course.at(io)).filter(|&due| due > now);
            if due.is_some() {
                break;
            }
            self.course.take();
            if !self.launch(io, io.way == READ) {
                break;
            }
            pace.submitted(io.way, io.len);
            submitted.push(self.flying() as u64);
        }
        self.live.flying.store(self.flying() as u64, Ordering::Relaxed);
        if !submitted.is_empty() {
            let counts = &mut self.live.state().counts;
            counts.submitted(submitted.len());
            submitted.into_iter().for_each(|n| counts.flying(n));
        }
        if self.over { None } else { due }
    }

    /// Submits one.
    pub fn launch(&mut self, io: Io, read: bool) -> bool {
        let Some(number) = self.free.pop_front() else { return false };
        let op = if read { Op::Read } else { Op::Write };
        let target = self.part.spans[io.span].target;
        let slot = &mut self.slots[number];
        let Some(mut aimed) = slot.transfer.take() else { return false };
        if aimed.extents()[0].mem().len() as u64 != io.len {
            // Only objects of a manifest differ in size.
            drop(aimed);
            let slot_of_job = self.number * self.job.iodepth + number;
            let mem = match self.section.mem(slot_of_job, io.len as usize) {
                Ok(mem) => mem,
                Err(failure) => {
                    self.free.push_back(number);
                    self.fail(EIO, failure);
                    return false;
                }
            };
            aimed = transfer(op, &self.part.targets[target]).extent(io.offset, mem);
            (slot.op, slot.target) = (op, target);
        } else if (slot.op, slot.target) == (op, target) {
            aimed.extents_mut()[0].set_offset(io.offset);
        } else {
            let mems = aimed.into_extents().into_iter().map(|extent| extent.into_mem());
            aimed = mems
                .fold(transfer(op, &self.part.targets[target]), |aimed, mem| aimed.extent(io.offset, mem));
            (slot.op, slot.target) = (op, target);
        }
        slot.io = Some(io);
        let prepared = self.check.prepare(&mut aimed, io, target, read);
        if let Some(track) = &mut self.track {
            let (offset, bytes) = (io.offset, io.len);
            let aim = Aim { op, target: self.part.targets[target].name().into(), offset, bytes };
            aimed = aimed.trace_id(track.begin(number, aim));
        }
        let result = prepared.map_err(|failure| (EIO, failure)).and_then(|()| {
            let submitted = self.client.submit_tagged(aimed, number as u64);
            submitted
                .map_err(|rejected| (rejected.error.errno().unwrap_or(EIO), Failure::data(rejected.error)))
        });
        if let Err((errno, failure)) = result {
            self.free.push_back(number); // empty: nothing more is submitted
            self.fail(errno, failure);
            return false;
        }
        true
    }

    /// Waits for completions, and counts them.
    fn wait(&mut self, pause: Duration) {
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.client.wait(1, &mut done, Some(pause)) {
            self.fail(EIO, Failure::data(error));
            // Nothing more is heard of them.
            self.free = (0..self.slots.len()).collect();
        }
        self.note(&done);
        let mut times = Vec::with_capacity(done.len());
        let mut paths = Vec::new();
        for completion in done.drain(..) {
            let (bytes, taken) = (completion.bytes, completion.times);
            let path = completion.paths;
            if let Some(io) = self.absorb(completion) {
                times.push((io.way, bytes, taken));
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        self.done = done;
        self.live.flying.store(self.flying() as u64, Ordering::Relaxed);
        if !times.is_empty() {
            let counts = &mut self.live.state().counts;
            counts.completed(times.len());
            for path in paths {
                counts.paths.insert(path.to_string());
            }
            times.into_iter().for_each(|(way, bytes, times)| counts.ended(way, bytes, &times));
        }
    }

    /// Puts their ends on the timeline.
    fn note(&mut self, done: &[Completion]) {
        if let Some(track) = &mut self.track {
            track.end(done);
        }
    }

    /// Takes back what a completion brings; answers what it was if it was well.
    fn absorb(&mut self, completion: Completion) -> Option<Io> {
        let number = completion.tag as usize;
        let io = self.slots[number].io.take();
        if let Some(back) = &completion.transfer
            && completion.result.is_ok()
            && let Some(io) = io
        {
            let target = self.slots[number].target;
            let op = self.slots[number].op;
            let looked = self.check.landed(back, io, target, op == Op::Read);
            match looked {
                Ok(None) => {}
                Ok(Some((bytes, wrong))) => self.checked(bytes, wrong),
                Err(failure) => self.fail(EIO, failure),
            }
        }
        // None: abandoned, and the memory may still be written to. The slot is empty, and nothing more is submitted.
        self.over |= completion.transfer.is_none();
        self.slots[number].transfer = completion.transfer;
        self.free.push_back(number);
        match completion.result {
            Ok(()) => io,
            Err(error) => {
                self.fail(error.errno().unwrap_or(EIO), Failure::data(error));
                None
            }
        }
    }

    /// Notes what a check of an object found: bytes, and what is wrong with them in words.
    fn checked(&mut self, bytes: u64, wrong: Option<(u64, String)>) {
        let mut state = self.live.state();
        let checked = &mut state.counts.checked;
        checked.bytes += bytes;
        let Some((wrong, words)) = wrong else { return };
        checked.wrong += wrong;
        let name = &self.job.name;
        let failure = Failure::Data(format!(
            "job {name}: verify: {words}: another job or program wrote there too, or the storage or the engine is broken"
        ));
        checked.first.get_or_insert(words);
        state.failed.get_or_insert((EILSEQ, failure));
        self.over |= self.job.verify_fatal;
    }

    /// Keeps the first failure and drains.
    fn fail(&mut self, errno: i32, failure: Failure) {
        self.live.state().failed.get_or_insert((errno, failure));
        self.over = true;
    }

    /// After the clock: what was written is made durable if that was asked for, and read back.
    fn finish(&mut self) -> Result<(), Failure> {
        if self.job.end_fsync && self.job.rw.writes {
            for target in &self.part.targets {
                let done =
                    self.client.flush(target).and_then(|ticket| ticket.wait()).map_err(Failure::data)?;
                done.result.map_err(Failure::data)?;
            }
        }
        self.over = false;
        let mut back = self.check.after(&self.course).into_iter().peekable();
        while !stop::requested() && !self.over {
            while let Some(io) = back.peek().copied().filter(|_| !self.free.is_empty()) {
                back.next();
                if !self.launch(io, true) {
                    break;
                }
            }
            if self.flying() == 0 {
                break;
            }
            self.read_back()?;
        }
        while self.flying() > 0 {
            self.read_back()?;
        }
        Ok(())
    }

    fn read_back(&mut self) -> Result<(), Failure> {
        let mut done = Vec::new();
        self.client.wait(1, &mut done, Some(LOOK)).map_err(Failure::data)?;
        self.note(&done);
        for completion in done {
            self.absorb(completion);
        }
        Ok(())
    }
}

/// What the order of a clone's I/O is made of.
pub fn seed(job: &Job, number: usize, run: u64) -> u64 {
    job.randseed ^ if job.randrepeat { 0 } else { run } ^ (number as u64) << 40
}

/// What fio ends a job with whose content is wrong.
const EILSEQ: i32 = 84;
