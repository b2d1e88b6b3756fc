//! The engine and fio in turns: the same file, the same bytes, and as many distinct bytes of memory. Over an NVMe namespace
//! fio runs as one and as two jobs of 16 and of 32 commands in flight, and the best of these counts. It has a buffer for
//! each command in flight and no more, and more in flight than the drive has tags would hold it up: there the engine lands in
//! fio's memory, with objects that are cut to it.

use crate::args::Plan;
use crate::arm;
use crate::direct::{Op, PageBuf};
use crate::failure::Failure;
use crate::fio::{Fio, FioEngine, FioJob, MOST_BUFFERS, Run};
use crate::pairs::{Beside, PAIRS, Pairs, fitted};
use crate::place::Place;
use crate::requests;
use crate::rig::Rig;
use crate::serial::{self as plain_loop, At};
use crate::units::short;
use crate::work::{Feed, Order};

mod shown;

/// Objects in flight when `--iodepth` names none.
pub const DEPTH: usize = 8;
/// Jobs and commands in flight of fio over an NVMe namespace.
const PASSTHROUGH: [(u64, u64); 4] = [(1, 16), (1, 32), (2, 16), (2, 32)];
/// Objects of the serial pairs; they are there to check the serial arm, not to be precise.
const SERIAL_OBJECTS: u64 = 64;

/// One way to run fio, paired with the engine.
#[derive(Debug, Clone)]
struct Rival {
    job: FioJob,
    /// Objects of ours in flight, and the bytes of one.
    ours: (usize, u64),
    beside: Beside,
}

/// The engine as it runs beside one of fio's ways: with the plan's objects, or with smaller ones and a pool of their own.
struct Ours {
    cut: Option<(Rig, Plan)>,
    iodepth: usize,
}

impl Ours {
    fn beside(rig: &Rig, plan: &Plan, iodepth: usize, memory: u64) -> Result<Self, Failure> {
        let (whole, command) = ((iodepth * plan.jobs, plan.bs), u64::from(rig.command()).min(plan.bs));
        let (objects, bs) = fitted(memory, whole, command);
        if (objects, bs) == whole {
            return Ok(Self { cut: None, iodepth });
        }
        let jobs = plan.jobs.min(objects);
        let (iodepth, plan) = (objects / jobs, Plan { bs, jobs, ..plan.clone() });
        Ok(Self { cut: Some((rig.with(&plan, iodepth * jobs)?, plan)), iodepth })
    }

    /// Moves so many bytes of so large a file, as one arm.
    fn run(&self, (rig, plan): (&Rig, &Plan), size: u64, total: u64) -> Result<Run, Failure> {
        let (rig, plan) = self.cut.as_ref().map_or((rig, plan), |(rig, plan)| (rig, plan));
        let order = Order::new(size, plan.bs, plan.rw.random());
        let feed = Feed::of(order, (total / plan.bs).max(1));
        // No spare places here: fio lands in what is in flight, and so must we.
        let items = rig.items(self.iodepth * plan.jobs)?;
        arm::engine(rig, plan, self.iodepth, items, &feed, ("engine beside fio", None))
            .map(|run| run_of(&run))
    }

    /// Objects in flight, and the bytes of one.
    fn objects(&self, plan: &Plan) -> (usize, u64) {
        let plan = self.cut.as_ref().map_or(plan, |(_, plan)| plan);
        (self.iodepth * plan.jobs, plan.bs)
    }
}

/// The engine beside the serial loop of the first arm: the same objects, or requests, through the same places of the pool.
pub fn with_serial(rig: &Rig, plan: &Plan, place: &Place) -> Result<Beside, Failure> {
    let order = Order::new(place.size, plan.bs, plan.rw.random());
    let iodepth = if plan.depths.contains(&DEPTH) { DEPTH } else { plan.max_depth() };
    let slots = iodepth * plan.jobs;
    let plain = place.plain(plan, &rig.engine, false)?;
    let how = format!(
        "{} of {} in flight against one command of {}",
        iodepth * plan.jobs,
        short(plan.item()),
        short(u64::from(plan.serial_command()).min(plan.bs))
    );
    let feed = || match &plan.requests {
        Some(requests) => requests::feed(plan, requests, order),
        None => Feed::of(order, order.objects_an_arm()),
    };
    let ours = || {
        let (feed, phase) = (feed(), ("engine beside serial", None));
        let run = match &plan.requests {
            Some(requests) => requests::run(rig, plan, requests, iodepth, &feed, phase),
            None => arm::engine(rig, plan, iodepth, rig.items(slots)?, &feed, phase),
        };
        run.map(|run| run_of(&run))
    };
    let theirs = || {
        let feed = feed();
        let mut pool = rig.items(slots)?;
        let load =
            |slot: usize, at: At<'_>| plain_loop::item(&plain, plan, (&rig.parts, &mut pool[slot]), at);
        plain_loop::run(plan, slots, &feed, load).map(|run| run_of(&run))
    };
    let footprint = [rig.pool.footprint(slots); 2];
    Ok(Beside { rival: "serial".into(), how, footprint, pairs: Pairs::run(ours, theirs)? })
}

/// What the comparison found.
#[derive(Debug, Clone)]
pub struct Compared {
    iodepth: usize,
    /// The best of them is the first.
    rivals: Vec<Rival>,
    /// The engine with whole objects, where those beside fio are cut: bytes of one, of the memory they land in, and its runs.
    whole: Option<(u64, u64, Vec<Run>)>,
    /// fio with so many small hot buffers a job, and its rate; not over passthrough, where all its buffers are.
    hot: Option<(u64, f64)>,
    serial: Pairs,
}

/// What the plan asks fio to do beside objects of ours in so much memory.
fn jobs(
    plan: &Plan,
    place: &Place,
    order: &Order,
    rig: &Rig,
    footprint: u64,
) -> Result<Vec<FioJob>, Failure> {
    let bs = u64::from(rig.command()).min(plan.bs);
    let (region, total) = (order.count() * plan.bs, order.objects_an_arm() * plan.bs);
    let random = FioJob::random(plan.rw.random(), plan.bs, bs)
        .map_err(|why| Failure::Setup(format!("--compare=fio {why}")))?;
    let (file, most) = (place.members[0].path.clone(), region / bs / random.unwrap_or(1));
    let job = |engine, jobs, depth| FioJob {
        file: file.clone(),
        engine,
        bs,
        depth,
        jobs,
        random,
        start: 0,
        region,
        total,
    };
    if place.drives().next().is_some() {
        let passthrough = |(jobs, depth): (u64, u64)| {
            let jobs = jobs.min(most);
            job(FioEngine::Passthrough, jobs, depth.min(footprint / bs / jobs).max(1))
        };
        return Ok(PASSTHROUGH.into_iter().map(passthrough).collect());
    }
    let jobs = (rig.lanes().len() as u64).min(most).max(1);
    let depth = footprint / bs / jobs;
    if depth > MOST_BUFFERS || depth == 0 {
        let (footprint, bs) = (short(footprint), short(bs));
        return Err(Failure::Setup(format!(
            "--compare=fio cannot land in {footprint} of memory with {jobs} jobs of 1 to 16384 buffers \
             of {bs}: change --iodepth, --cmd_size or --lanes"
        )));
    }
    Ok(vec![job(FioEngine::Ring, jobs, depth)])
}

/// Runs the pairs.
pub fn run(fio: &Fio, rig: &Rig, plan: &Plan, place: &Place) -> Result<Compared, Failure> {
    let order = Order::new(place.size, plan.bs, plan.rw.random());
    let iodepth = if plan.depths.contains(&DEPTH) { DEPTH } else { plan.max_depth() };
    let slots = iodepth * plan.jobs;
    let footprint = rig.pool.footprint(slots);
    let jobs = jobs(plan, place, &order, rig, footprint)?;
    let first = jobs[0].clone();
    let (mut rivals, mut beside) = (Vec::new(), Vec::new());
    for job in jobs {
        // A ring's buffers are as many as fit in ours.
        let memory = if job.engine == FioEngine::Passthrough { job.footprint() } else { footprint };
        let ours = Ours::beside(rig, plan, iodepth, memory)?;
        let pairs = Pairs { workers: rig.engine.facts(&rig.target).kernel_workers, ..Pairs::default() };
        let (objects, whole) = (ours.objects(plan), (slots, plan.bs));
        rivals.push(Rival {
            beside: Beside::fio(&fio.version, &job, whole, objects, pairs),
            job,
            ours: objects,
        });
        beside.push(ours);
    }
    let whole = Ours { cut: None, iodepth };
    let is_cut = beside.iter().any(|ours| ours.cut.is_some());
    let mut runs = Vec::new();
    let (size, total) = (place.size, order.objects_an_arm() * plan.bs);
    for _ in 0..=PAIRS {
        for (rival, ours) in rivals.iter_mut().zip(&beside) {
            let ours = ours.run((rig, plan), size, total)?;
            rival.beside.pairs.add((ours, fio.watched(&rival.job, "fio beside engine")?));
        }
        if is_cut {
            runs.push(whole.run((rig, plan), size, total)?);
        }
    }
    let whole = is_cut.then(|| (plan.bs, footprint, runs.split_off(1)));
    let rate = |rival: &Rival| rival.beside.pairs.rate().theirs;
    rivals.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let hot = match first.engine {
        FioEngine::Passthrough => None,
        _ => {
            let hot = FioJob { depth: u64::from(plan.lane_depth), ..first.clone() };
            Some((hot.depth, fio.watched(&hot, "fio, small hot buffers")?.gbps))
        }
    };
    let serial = serial(fio, rig, plan, place, &order, &first)?;
    Ok(Compared { iodepth, rivals, whole, hot, serial })
}

fn run_of(outcome: &arm::Outcome) -> Run {
    Run::of(outcome.spent, outcome.bytes)
}

/// The serial arm beside fio with one command in flight, both into one hot buffer: whether our serial
/// loop is as good as a serial loop can be. An object is one command here, so that ours looks at a clock for each: some 30 ns
/// of the tens of microseconds that it takes, to fio's advantage.
fn serial(
    fio: &Fio,
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    order: &Order,
    job: &FioJob,
) -> Result<Pairs, Failure> {
    let objects = SERIAL_OBJECTS.min(order.objects_an_arm());
    let (file, engine) = (place.members[0].plain.clone(), FioEngine::Psync);
    let job =
        FioJob { file, engine, depth: 1, jobs: 1, random: None, total: objects * plan.bs, ..job.clone() };
    let plain = place.plain(plan, &rig.engine, false)?;
    let hot = Plan { bs: job.bs, ..plan.clone() };
    let order = Order::new(job.region, job.bs, false);
    let mut pairs = Pairs::default();
    for _ in 0..=PAIRS {
        let feed = Feed::of(order, job.total / job.bs);
        let (mut buf, len) = (PageBuf::new(job.bs as usize), job.bs as usize);
        let load = |_, at: At<'_>| plain_loop::piece(&plain, Op::Read, &hot, &mut buf, at(0), len);
        let ours = plain_loop::run(&hot, 1, &feed, load)?;
        pairs.add((run_of(&ours), fio.watched(&job, "fio, serial")?));
    }
    Ok(pairs)
}
