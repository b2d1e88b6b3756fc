//! An arm of the engine with so many objects in flight, and what every arm reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::identity;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fullbore::{Client, Completion, LaneStats, Mem, PathSet, Target, Times, Transfer};

use crate::args::Plan;
use crate::counted;
use crate::direct::Op;
use crate::failure::Failure;
use crate::pool::Part;
use crate::progress::Progress;
use crate::requests::Looped;
use crate::rig::Rig;
use crate::series::Series;
use crate::stop;
use crate::threads::Seat;
use crate::timeline::{Aim, Tape, Track};
use crate::work::{Clocks, Feed, Latency, LatencySummary, Spent, Split};

/// What an arm did.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub bytes: u64,
    pub spent: Spent,
    pub latency: LatencySummary,
    /// What the time of its objects went to.
    pub split: Split,
    pub max_commands: u64,
    pub mean_commands: f64,
    pub max_objects: u64,
    pub path: String,
    /// Bytes by path. Of GPU memory, those that the GPU's lane moved.
    pub paths: BTreeMap<&'static str, u64>,
    /// Of GPU memory, bytes of commands between the target and bounce buffers, by path.
    pub storage_paths: BTreeMap<&'static str, u64>,
    /// Most units that a GPU's lane worked on at once, added up over GPUs.
    pub max_units: u64,
    /// Most kernel workers that were seen at once.
    pub workers: usize,
    /// Times of objects, and the share that took no longer.
    pub curve: Vec<(u64, f64)>,
    /// Of each lane its name, and enters by the commands that they left in flight.
    pub occupancy: Vec<(String, Vec<u64>)>,
    /// Bytes over time, where the report shows them.
    pub series: Series,
    /// What else is known of a loop over requests.
    pub looped: Option<Looped>,
}

impl Outcome {
    /// 10^9 bytes a second.
    pub fn gbps(&self) -> f64 {
        self.spent.gbps(self.bytes)
    }

    pub fn cpu_s_per_gib(&self) -> f64 {
        self.spent.cpu_s_per_gib(self.bytes)
    }
}

/// How long a wait for completions goes without a look at Ctrl-C.
pub const LOOK: Duration = Duration::from_millis(100);
/// When kernel workers are first looked for, and how often later.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_secs(1);
/// Time of a point of what was moved by when.
const TICK: Duration = Duration::from_millis(10);

pub fn op(plan: &Plan) -> Op {
    if plan.rw.writes() { Op::Write } else { Op::Read }
}

pub fn transfer(op: Op, target: &Target) -> Transfer {
    match op {
        Op::Read => Transfer::read(target),
        Op::Write => Transfer::write(target),
    }
}

/// The engine, with `depth` objects in flight for each job, through `pool` in turn.
pub fn engine(
    rig: &Rig,
    plan: &Plan,
    depth: usize,
    pool: Vec<Vec<Mem>>,
    feed: &Feed,
    (phase, tape): (&str, Option<&Tape>),
) -> Result<Outcome, Failure> {
    let shared = Shared {
        feed,
        parts: &rig.parts,
        aim: whole(rig, plan),
        progress: Progress::of_arm(phase, feed, plan.bs),
        start: Barrier::new(plan.jobs + 1),
        in_flight: AtomicU64::new(0),
        most: AtomicU64::new(0),
        polls: plan.memory.polling,
    };
    let mut jobs = Vec::new();
    for number in 0..plan.jobs {
        let client = rig.engine.client().map_err(Failure::setup)?;
        jobs.push(Job {
            client,
            idle: VecDeque::new(),
            depth,
            latency: Latency::new()?,
            tally: Tally::default(),
            track: tape.map(|tape| tape.track(number, format!("job {number}"))),
        });
    }
    for (index, mems) in pool.into_iter().enumerate() {
        jobs[index % plan.jobs].idle.push_back(at_rest(rig, plan, mems));
    }
    let watch = Watch::new(rig);
    let shared = &shared;
    let (mut workers, mut series) = Default::default();
    let (results, spent) = thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        let seat = |_: &Job| {
            let running = running.clone();
            Seat::new(scope, move |job: Job| {
                let _until_the_end = running;
                job.run(shared)
            })
        };
        let seats = jobs.iter().map(seat).collect::<Result<Vec<_>, _>>()?;
        let threads: Vec<_> = seats.into_iter().zip(jobs).map(|(seat, job)| seat.work(job)).collect();
        drop(running);
        shared.start.wait();
        // All are ready, and none goes before the clock does: a short arm may be over until this thread runs again.
        let (clocks, began) = (Clocks::start(), Instant::now());
        shared.start.wait();
        (workers, series) = most_workers(rig, &ended, began, plan.draws().then_some(&shared.progress));
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().and_then(identity)).collect();
        Ok((results, clocks.and_then(|clocks| clocks.stop())))
    })?;
    let max_objects = shared.most.load(Ordering::Relaxed);
    let mut outcome = Outcome { spent: spent?, max_objects, workers, series, ..Outcome::default() };
    watch.ends(rig, plan, &mut outcome);
    sum(&mut outcome, results)?;
    stop::check()?;
    Ok(outcome)
}

/// A transfer that is not under way, over the memory of an item.
pub fn at_rest(rig: &Rig, plan: &Plan, mems: Vec<Mem>) -> Transfer {
    mems.into_iter().fold(transfer(op(plan), &rig.target), |transfer, mem| transfer.extent(0, mem))
}

/// Aims a transfer at an item that the feed gave; answers the offset of its first object.
pub fn aim(transfer: &mut Transfer, parts: &[Part], feed: &Feed, item: u64) -> u64 {
    for (extent, part) in transfer.extents_mut().iter_mut().zip(parts) {
        extent.set_offset(feed.offset(item, part.object) + part.within);
    }
    feed.offset(item, 0)
}

/// A transfer of an arm as the timeline knows it, at no offset yet.
pub fn whole(rig: &Rig, plan: &Plan) -> Aim {
    Aim { op: op(plan), target: rig.target.name().into(), offset: 0, bytes: plan.item() }
}

/// A look at the lanes before an arm.
pub struct Watch {
    lanes: Vec<LaneStats>,
    gpus: Vec<LaneStats>,
}

impl Watch {
    pub fn new(rig: &Rig) -> Self {
        Self { lanes: rig.lanes(), gpus: rig.gpu_lanes() }
    }

    /// A look after it.
    pub fn ends(self, rig: &Rig, plan: &Plan, outcome: &mut Outcome) {
        let counted = counted::between(&self.lanes, &rig.lanes());
        outcome.max_commands = counted.most;
        outcome.mean_commands = counted.mean(outcome.spent.wall);
        outcome.occupancy = counted::occupancy(&self.lanes, &rig.lanes());
        if plan.memory.on_gpu() {
            let of_gpus = counted::between(&self.gpus, &rig.gpu_lanes());
            outcome.max_units = of_gpus.most;
            (outcome.paths, outcome.storage_paths) = (of_gpus.paths, counted.paths);
        } else {
            outcome.paths = counted.paths;
        }
    }
}

/// The most kernel workers that are seen until all jobs have ended. A look reads a file of each thread, so looks
/// become rare in a long arm.
///
/// Besides, if the report shows them, how many bytes were moved by when.
pub fn most_workers(
    rig: &Rig,
    ended: &mpsc::Receiver<()>,
    began: Instant,
    shown: Option<&Progress>,
) -> (usize, Series) {
    let (mut most, mut pause) = (0, FIRST_LOOK);
    let (mut looked, mut series) = (began, Series::default());
    let tick = |pause: Duration| if shown.is_some() { pause.min(TICK) } else { pause };
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(tick(pause)) {
        if let Some(progress) = shown {
            series.note(began.elapsed(), progress.moved());
        }
        if looked.elapsed() >= pause {
            most = most.max(rig.kernel_workers());
            pause = (4 * pause).min(SELDOM);
            looked = Instant::now();
        }
    }
    if let Some(progress) = shown {
        series.end(began.elapsed(), progress.moved());
    }
    (most, series)
}

/// Adds up what the jobs did.
pub fn sum(outcome: &mut Outcome, results: Vec<Result<(Tally, Latency), Failure>>) -> Result<(), Failure> {
    let mut latency = Latency::new()?;
    let mut paths = BTreeSet::new();
    for result in results {
        let (tally, times) = result?;
        outcome.bytes += tally.bytes;
        outcome.split.merge(&tally.split);
        paths.extend(tally.paths);
        latency.add(&times)?;
    }
    (outcome.latency, outcome.curve) = (latency.summary(), latency.curve());
    outcome.path = paths.into_iter().collect::<Vec<_>>().join(", ");
    Ok(())
}

/// What the jobs of an arm have in common.
struct Shared<'a> {
    feed: &'a Feed,
    parts: &'a [Part],
    /// A transfer, for the timeline.
    aim: Aim,
    progress: Progress,
    /// Passed twice: all are ready; the clock runs.
    start: Barrier,
    in_flight: AtomicU64,
    most: AtomicU64,
    /// Jobs ask for completions instead of sleeping until they come.
    polls: bool,
}

/// One submitting thread: a closed loop that keeps `depth` objects in flight.
struct Job {
    client: Client,
    /// Transfers at rest, each with its place in the pool. First in, first out: all of the pool takes turns,
    /// however few objects are in flight, so that every arm lands in as many distinct bytes.
    idle: VecDeque<Transfer>,
    depth: usize,
    latency: Latency,
    tally: Tally,
    /// Of the timeline, if there is one. Tags are places of it then.
    track: Option<Track>,
}

/// What a thread of an arm moved, and what failed first.
#[derive(Default)]
pub struct Tally {
    bytes: u64,
    split: Split,
    paths: BTreeSet<String>,
    last_path: Option<PathSet>,
    pub failed: Option<Failure>,
}

impl Tally {
    pub fn add(&mut self, bytes: u64, times: &Times, paths: PathSet) {
        self.bytes += bytes;
        self.split.add(times);
        if self.last_path != Some(paths) {
            self.paths.insert(paths.to_string());
            self.last_path = Some(paths);
        }
    }
}

impl Job {
    fn run(mut self, shared: &Shared<'_>) -> Result<(Tally, Latency), Failure> {
        let mut done = Vec::with_capacity(self.depth);
        let mut flying = 0;
        shared.start.wait();
        shared.start.wait();
        loop {
            flying += self.submit(shared, self.depth - flying);
            if flying == 0 {
                break;
            }
            // Who has the lane poll polls too: asleep it would add its own wake-up to every object.
            while shared.polls && self.client.poll(&mut done) == 0 {
                std::hint::spin_loop();
            }
            if !shared.polls
                && let Err(error) = self.client.wait(1, &mut done, Some(LOOK))
            {
                shared.feed.halt();
                return Err(Failure::data(error));
            }
            if let Some(track) = &mut self.track {
                track.end(&done);
            }
            for completion in done.drain(..) {
                flying -= 1;
                self.absorb(shared, completion);
            }
        }
        match self.tally.failed.take() {
            Some(failure) => Err(failure),
            None => Ok((self.tally, self.latency)),
        }
    }

    /// Submits up to `room` objects and says how many it did.
    fn submit(&mut self, shared: &Shared<'_>, room: usize) -> usize {
        for submitted in 0..room {
            let Some(mut transfer) = self.idle.pop_front() else { return submitted };
            let Some(item) = shared.feed.take() else {
                self.idle.push_front(transfer);
                return submitted;
            };
            let mut tag = aim(&mut transfer, shared.parts, shared.feed, item);
            if let Some(track) = &mut self.track {
                (transfer, tag) = track.put(transfer, Aim { offset: tag, ..shared.aim.clone() });
            }
            let flying = shared.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            if let Err(rejected) = self.client.submit_tagged(transfer, tag) {
                shared.in_flight.fetch_sub(1, Ordering::Relaxed);
                self.fail(shared, Failure::data(rejected.error));
                return submitted;
            }
            shared.most.fetch_max(flying, Ordering::Relaxed);
        }
        room
    }

    fn absorb(&mut self, shared: &Shared<'_>, completion: Completion) {
        shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = completion.result {
            self.fail(shared, Failure::data(error));
        }
        self.latency.record(completion.times.total);
        self.tally.add(completion.bytes, &completion.times, completion.paths);
        shared.progress.add(completion.bytes);
        self.idle.extend(completion.transfer);
    }

    /// Keeps the first failure and lets all jobs drain.
    fn fail(&mut self, shared: &Shared<'_>, failure: Failure) {
        self.tally.failed.get_or_insert(failure);
        shared.feed.halt();
    }
}
