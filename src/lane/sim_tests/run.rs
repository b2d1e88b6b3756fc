//! From a plan to the end of its schedule.

use super::memory::{OWNED, RAW};
use super::plan::Plan;
use super::ride::{Route, State};
use super::world::World;
use crate::error::ErrorKind;
use crate::lane::{Control, Stop};
use crate::queue::sim::{Command, Counts};
use crate::target::Op;
use std::sync::atomic::Ordering;

/// Half turns that no schedule needs.
const MOST_STEPS: u64 = 200_000;

/// What schedules saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub faults: Counts,
    pub schedules: u64,
    pub transfers: u64,
    pub steps: u64,
    pub busy: u64,
    pub released: u64,
    pub refused: u64,
    /// Transfers with several parts.
    pub parted: u64,
    /// Those of which some members were flushed, and others could not be.
    pub half_flushed: u64,
    /// Completions by kind: success, cancelled, timed out, abandoned, a lane failed, shut down, its path was not
    /// left, another error.
    pub results: [u64; 8],
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.faults.merge(&other.faults);
        let sums = [&mut self.schedules, &mut self.transfers, &mut self.steps, &mut self.busy];
        let more = [other.schedules, other.transfers, other.steps, other.busy];
        sums.into_iter().zip(more).for_each(|(sum, n)| *sum += n);
        self.released += other.released;
        self.refused += other.refused;
        self.parted += other.parted;
        self.half_flushed += other.half_flushed;
        self.results.iter_mut().zip(other.results).for_each(|(sum, n)| *sum += n);
    }

    /// Whether everything that schedules are made to see was seen.
    pub fn is_rich(&self) -> bool {
        let faults = Counts::ALL.iter().all(|fault| self.faults.get(*fault) > 0);
        faults
            && self.busy > 0
            && self.released > 0
            && self.refused > 0
            && self.parted > 0
            && self.half_flushed > 0
            && self.results.iter().all(|n| *n > 0)
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [good, cancelled, late, abandoned, dead, shut, path, failed] = self.results;
        let (schedules, transfers, steps) = (self.schedules, self.transfers, self.steps);
        write!(
            f,
            "{schedules} schedules, {transfers} transfers, {steps} half turns; completions: {good} good, "
        )?;
        write!(f, "{cancelled} cancelled, {late} timed out, {abandoned} abandoned, {failed} failed, ")?;
        write!(f, "{dead} by a dead lane, {shut} by shutdown, {path} for want of their path; ")?;
        write!(f, "of several parts: {}, half flushed: {}; ", self.parted, self.half_flushed)?;
        write!(f, "submissions refused as busy: {}; ", self.busy)?;
        write!(
            f,
            "regions released during I/O: {}, refused: {}; faults: {}",
            self.released, self.refused, self.faults
        )
    }
}

/// Runs a schedule to its end. It panics where an invariant breaks.
pub fn run(plan: Plan) -> Seen {
    let world = World::build(plan);
    let (released, refused) = world.busy_phase();
    if world.plan.shutdown {
        world.shutdown();
    }
    world.quiet_phase();
    world.check_end();
    let (rides, device) = (world.rides.borrow(), world.device.borrow());
    let mut results = [0; 8];
    for ride in
        rides.iter().filter(|ride| matches!(ride.state, State::Returned | State::Abandoned | State::Over))
    {
        results[match ride.error {
            None if matches!(ride.route, Route::Nobody) => continue,
            None => 0,
            Some(ErrorKind::Cancelled) => 1,
            Some(ErrorKind::TimedOut) => 2,
            Some(ErrorKind::Abandoned) => 3,
            Some(ErrorKind::LaneFailed) => 4,
            Some(ErrorKind::Shutdown) => 5,
            Some(ErrorKind::PathUnavailable) => 6,
            Some(_) => 7,
        }] += 1;
    }
    Seen {
        faults: device.counts,
        schedules: 1,
        transfers: rides.len() as u64,
        steps: world.steps.get(),
        busy: world.busy.get(),
        released,
        refused,
        half_flushed: device.log.iter().filter(|log| is_half_flushed(log)).count() as u64,
        parted: rides.iter().filter(|ride| ride.parts > 1).count() as u64,
        results,
    }
}

/// Whether one flush of a transfer succeeded, and another failed.
fn is_half_flushed(log: &[Command]) -> bool {
    let ended = |good: bool| {
        let results = log.iter().filter(|c| c.op == Op::Flush).filter_map(|c| c.answers.last());
        results.filter(|(_, result)| (*result == 0) == good).count() > 0
    };
    ended(true) && ended(false)
}

impl World {
    /// Clients submit, cancel and leave while lanes step.
    fn busy_phase(&self) -> (u64, u64) {
        let mut regions = (0, 0);
        let mut refused = 0;
        while self.rides.borrow().len() < self.plan.transfers && refused < 20_000 {
            self.bound();
            match self.roll(|rng| rng.below(1000)) {
                0..300 => refused += !self.submit() as u32,
                300..308 => self.leave(),
                308..420 => self.poll(),
                420..430 => self.fiddle(&mut regions),
                430..440 if self.plan.breaks && self.roll(|rng| rng.chance(100)) => self.break_a_lane(),
                440..448 => drop(self.device.borrow_mut().revive()),
                n if n < 448 + self.plan.cancel => self.cancel(),
                _ => self.go_on(),
            }
        }
        regions
    }

    /// Tries to release a region during I/O.
    fn fiddle(&self, (released, refused): &mut (u64, u64)) {
        if self.roll(|rng| rng.chance(300)) {
            return self.memory.drop_owned(self);
        }
        let kind = self.roll(|rng| rng.within(OWNED as u64, RAW as u64)) as usize;
        match self.memory.release(self, kind, false) {
            Ok(()) => *released += 1,
            Err(_) => *refused += 1,
        }
    }

    fn break_a_lane(&self) {
        let lane = self.roll(|rng| rng.below(self.plan.lanes as u64)) as usize;
        self.device.borrow_mut().ports[lane].broken = true;
    }

    fn bound(&self) {
        assert!(self.steps.get() < MOST_STEPS, "no end: {} steps", self.steps.get());
    }

    /// Steps a lane; when all sleep, time goes on to what comes next.
    fn go_on(&self) {
        let lanes = self.plan.lanes;
        let first = self.roll(|rng| rng.below(lanes as u64)) as usize;
        let some = (0..lanes).any(|i| self.step((first + i) % lanes));
        if some {
            self.advance(self.roll(|rng| rng.below(1_000)));
        } else {
            let next = self.next_event().min(self.next_tick.get()).max(self.now() + 1);
            self.clock.store(next, Ordering::Relaxed);
        }
        self.tick();
    }

    /// When the device or a sleeping lane goes on by itself.
    fn next_event(&self) -> u64 {
        let device = self.device.borrow();
        let living = (0..self.plan.lanes).filter(|lane| !self.ended(*lane));
        living.map(|lane| device.ports[lane].next_event()).min().unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        let rides = self.rides.borrow();
        let leaked = self.leaked();
        rides.iter().all(|ride| match ride.state {
            State::Returned | State::Over => true,
            // What a leaked lane holds is never over, but its client is told.
            State::Abandoned => leaked,
            State::UnderWay => leaked && matches!(ride.route, Route::Nobody),
        })
    }

    /// Nothing new comes. The device answers everything in the end: so must the lanes.
    fn quiet_phase(&self) {
        let mut idle = 0;
        self.device.borrow_mut().faults.never = 0;
        while !self.is_over() {
            self.bound();
            let before = self.steps.get();
            self.go_on();
            self.poll();
            self.settle_accounts();
            let moves = self.steps.get() > before || self.next_event() != u64::MAX;
            idle = if moves { 0 } else { idle + 1 };
            // Past all deadlines and graces with nobody moving: the device comes to, or someone hangs.
            if idle > 20 + (self.plan.grace / self.plan.tick) && self.device.borrow_mut().revive() == 0 {
                let longest = self.rides.borrow().iter().map(|r| r.deadline).filter(|d| *d != u64::MAX).max();
                let until = longest.unwrap_or(0) + 2 * self.plan.grace + 2 * self.plan.tick;
                assert!(self.now() < until, "I3: hang: {}", self.describe());
                self.clock.store(until, Ordering::Relaxed);
                idle = 0;
            }
        }
    }

    /// The engine is dropped: see `Engine::drop`, which this follows.
    fn shutdown(&self) {
        let table = &self.core.table;
        self.core.closing.store(true, Ordering::SeqCst);
        let active = || (0..table.len() as u32).filter_map(|index| table.active(index));
        active().for_each(|handle| self.core.stop(handle, Stop::Shutdown));
        self.inboxes.iter().for_each(|inbox| inbox.send(Control::Stop));
        let until = self.now() + self.plan.grace + 1_000_000;
        while self.now() < until && (0..self.plan.lanes).any(|lane| !self.ended(lane)) {
            self.bound();
            self.go_on();
        }
        active().for_each(|handle| assert!(self.core.abandon(handle), "I3: neither over nor abandoned"));
        self.poll();
        assert_eq!(active().count(), 0, "I3: under way after the engine is gone");
    }

    fn describe(&self) -> String {
        let rides = self.rides.borrow();
        let open =
            rides.iter().enumerate().filter(|(_, r)| matches!(r.state, State::UnderWay | State::Abandoned));
        let open: Vec<String> = open.map(|(i, ride)| format!("transfer {}: {ride:?}", i + 1)).collect();
        let lanes = self.lanes.borrow();
        let lanes: Vec<String> = lanes.iter().flatten().map(|turn| format!("{:?}", turn.lane.runs)).collect();
        format!("{}\nruns: {}", open.join("\n"), lanes.join("\n"))
    }
}
