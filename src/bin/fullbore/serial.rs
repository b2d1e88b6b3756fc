//! The serial arm: a plain loop on the calling thread, a command, wait, the next.

use std::collections::BTreeMap;
use std::time::Instant;

use fullbore::Mem;

use crate::args::Plan;
use crate::arm::{Outcome, op};
use crate::direct::{Op, Plain, serial_object};
use crate::failure::Failure;
use crate::pool::Part;
use crate::progress::Progress;
use crate::series::Series;
use crate::stop;
use crate::timeline::{Aim, Section, Sort, Tape, Track, Work};
use crate::units::human;
use crate::work::{Clocks, Feed, Latency, Split};

/// Where in the file an object of an item begins.
pub type At<'a> = &'a dyn Fn(u64) -> u64;

/// Runs the arm. `load` moves one item, an object or a request of several: through which of so many slots, and where its
/// objects lie.
pub fn run(
    plan: &Plan,
    slots: usize,
    feed: &Feed,
    mut load: impl FnMut(usize, At<'_>) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let progress = Progress::of_arm("serial", feed, plan.item());
    let mut latency = Latency::new()?;
    let (mut bytes, mut slot, mut split) = (0, 0, Split::default());
    let (clocks, began, mut series) = (Clocks::start()?, Instant::now(), Series::default());
    // One look at the clock an item, whose end is the next one's start, and none for its commands: what the loop costs per
    // command is its system call alone.
    let mut last = began;
    while let Some(index) = feed.take() {
        load(slot, &|object| feed.offset(index, object))?;
        let now = Instant::now();
        let took = now - last;
        last = now;
        latency.record(took);
        split.add_device(took);
        progress.add(plan.item());
        bytes += plan.item();
        if plan.draws() {
            series.note(now - began, bytes);
        }
        slot = (slot + 1) % slots;
        if let Some(requests) = plan.requests.as_ref().filter(|requests| !requests.think.is_zero()) {
            feed.pause(requests.think);
            last = Instant::now();
        }
    }
    let spent = clocks.stop()?;
    stop::check()?;
    let path = path(plan);
    Ok(Outcome {
        bytes,
        spent,
        latency: latency.summary(),
        split,
        curve: latency.curve(),
        series,
        max_commands: 1,
        mean_commands: 1.0,
        max_objects: 1,
        path: path.into(),
        paths: BTreeMap::from([(path, bytes)]),
        ..Outcome::default()
    })
}

/// What the loop does.
fn path(plan: &Plan) -> &'static str {
    let path = if op(plan) == Op::Read { "pread direct" } else { "pwrite direct" };
    if plan.mapped { path.trim_end_matches(" direct") } else { path }
}

/// The loop on the timeline, where its commands are those of a lane with one slot.
pub struct Recorded<'a> {
    plain: &'a Plain,
    plan: &'a Plan,
    track: Track,
    aim: Aim,
    work: Vec<Work>,
    room: usize,
    lost: u64,
}

impl<'a> Recorded<'a> {
    pub fn new(plain: &'a Plain, plan: &'a Plan, track: Track, aim: Aim, room: usize) -> Self {
        Self { plain, plan, track, aim, work: Vec::new(), room, lost: 0 }
    }

    /// As [`item`], command by command.
    pub fn item(&mut self, (parts, mems): (&[Part], &mut [Mem]), at: At<'_>) -> Result<(), Failure> {
        let id = self.track.begin(0, Aim { offset: at(0), ..self.aim.clone() });
        let command = self.plan.serial_command() as usize;
        for (part, mem) in parts.iter().zip(mems) {
            let Mem::Host(lease) = mem else {
                return Err(Failure::setup("the serial arm is of host memory"));
            };
            for begin in (0..part.len).step_by(command) {
                let len = command.min(part.len - begin);
                let begun = Instant::now();
                let from = at(part.object) + part.within + begin as u64;
                piece(self.plain, op(self.plan), self.plan, &mut lease[begin..], from, len)?;
                self.note(id, (from, len as u64), begun);
            }
        }
        self.track.end_plain(0);
        Ok(())
    }

    fn note(&mut self, id: u32, (offset, bytes): (u64, u64), begun: Instant) {
        if self.work.len() == self.room {
            self.lost += 1;
            return;
        }
        self.work.push(Work {
            sort: Sort::Command,
            lane: 0,
            slot: 0,
            id,
            op: op(self.plan).name(),
            path: path(self.plan),
            offset,
            bytes,
            begun,
            ended: Instant::now(),
            failed: false,
        });
    }

    /// Adds what it collected to the section of its tape.
    pub fn section(self, tape: Tape) -> Section {
        drop(self.track);
        let lanes = vec!["the loop".into()];
        let mut section = Section { lanes, work: self.work, ..tape.objects() };
        section.lost.work = self.lost;
        section
    }
}

/// Moves an item between the file and its pieces of host memory.
pub fn item(
    plain: &Plain,
    plan: &Plan,
    (parts, mems): (&[Part], &mut [Mem]),
    at: At<'_>,
) -> Result<(), Failure> {
    for (part, mem) in parts.iter().zip(mems) {
        let Mem::Host(lease) = mem else { return Err(Failure::setup("the serial arm is of host memory")) };
        piece(plain, op(plan), plan, lease, at(part.object) + part.within, part.len)?;
    }
    Ok(())
}

/// Moves one piece; see [`serial_object`].
pub fn piece(
    plain: &Plain,
    op: Op,
    plan: &Plan,
    buf: &mut [u8],
    offset: u64,
    len: usize,
) -> Result<(), Failure> {
    serial_object(plain, op, plan.serial_command() as usize, buf, offset, len)
        .map_err(|error| Failure::Data(format!("serial, {} at offset {offset}: {error}", human(len as u64))))
}
