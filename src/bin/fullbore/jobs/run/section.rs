//! A job made ready: its files, an engine of its own, memory for its objects.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fullbore::{AllocOptions, Engine, LaneStats, Mem, OpenOptions, Region, Target};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::course::Span;
use super::files::{self, Made};
use super::usage::{self, Usage};
use crate::args::ALIGN;
use crate::counted::{self, Counted};
use crate::failure::Failure;
use crate::jobs::report::Lane;
use crate::jobs::spec::Job;
use crate::jobs::value;
use crate::jobs::words::Theirs;
use crate::member::refusal;
use crate::pool::available;
use crate::threads;
use crate::units::{count, human};

/// Far below what any device does: a transfer that waits for others ahead of it is not late.
const SLOWEST: u64 = 50_000_000;

/// What a clone works on.
pub struct Part {
    pub targets: Vec<Target>,
    /// Of the content of each.
    pub seeds: Vec<u64>,
    pub spans: Vec<Span>,
}

/// A job that is ready to run.
pub struct Section<'a> {
    pub job: &'a Job,
    pub engine: Engine,
    pub parts: Vec<Part>,
    regions: Vec<Region>,
    /// The engine's threads.
    threads: Vec<u32>,
    pub path: String,
    /// What the engine has to say of its memory.
    pub note: Option<String>,
    /// Distinguishes runs, where a job asks for that.
    pub run: u64,
}

/// What the engine's threads and lanes had done at a moment.
pub struct Look {
    pub usage: Usage,
    lanes: Vec<LaneStats>,
}

impl<'a> Section<'a> {
    pub fn open(job: &'a Job, made: &mut Made, run: u64) -> Result<Self, Failure> {
        for clone in 0..job.numjobs {
            for path in files::names(job, clone) {
                made.ready(job, &path, files::seed(&path, job, run))?;
            }
        }
        let before = usage::threads();
        let cpus = cpus(job)?;
        // Lanes run where the thread may that builds the engine.
        let opened = thread::scope(|scope| {
            let open = || {
                pin(&cpus).map_err(|why| of(job, why))?;
                Opened::new(job, run)
            };
            let thread = thread::Builder::new().spawn_scoped(scope, open).map_err(threads::refused)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let threads = usage::threads().into_iter().filter(|thread| !before.contains(thread)).collect();
        let Opened { engine, parts, regions } = opened;
        let report = engine.path(&parts[0].targets[0], &regions[0]);
        let note = regions[0].registration_note().filter(|_| job.memory.gpus.is_empty()).map(str::to_owned);
        let path = format!("{} ({})", report.path, report.reason);
        Ok(Self { job, engine, parts, regions, threads, path, note, run })
    }

    /// Memory for the objects that a clone has in flight.
    pub fn memory(&self, clone: usize) -> Result<Vec<Mem>, Failure> {
        let (depth, bs) = (self.job.iodepth, self.job.bs as usize);
        (clone * depth..(clone + 1) * depth).map(|slot| self.mem(slot, bs)).collect()
    }

    /// The first bytes of a slot of that memory, which nothing else has.
    pub fn mem(&self, slot: usize, len: usize) -> Result<Mem, Failure> {
        let region = &self.regions[slot % self.regions.len()];
        let start = slot / self.regions.len() * stride(self.job);
        let range = start..start + len;
        if self.job.memory.gpus.is_empty() {
            region.lease(range).map(Mem::from)
        } else {
            region.range(range).map(Mem::from)
        }
        .map_err(|error| of(self.job, error))
    }

    /// Keeps the calling thread, that of a clone, on its CPUs.
    pub fn pin_clone(&self, clone: usize) -> Result<(), Failure> {
        let cpus = cpus(self.job)?;
        let own = if self.job.split_cpus { vec![cpus[clone % cpus.len()]] } else { cpus };
        pin(&own).map_err(|why| of(self.job, why))
    }

    pub fn look(&self) -> Look {
        let mut threads = self.threads.clone();
        threads.extend(usage::workers(&self.threads));
        Look { usage: usage::of_threads(&threads), lanes: self.engine.stats().lanes }
    }

    /// The lanes that serve what is measured.
    pub fn lanes(&self) -> Vec<LaneStats> {
        counted::of_target(self.engine.stats().lanes)
    }
}

impl Look {
    /// What lanes counted since then: of the target, and of GPUs.
    pub fn until(&self, later: &Self) -> (Counted, Counted) {
        let of = |pick: fn(Vec<LaneStats>) -> Vec<LaneStats>| {
            counted::between(&pick(self.lanes.clone()), &pick(later.lanes.clone()))
        };
        (of(counted::of_target), of(counted::of_gpus))
    }

    /// The same by lane.
    pub fn each_lane(&self, later: &Self) -> Vec<Lane> {
        let before = counted::of_target(self.lanes.clone());
        let one = |(number, lane): (usize, LaneStats)| {
            let old = before.get(number);
            let old_enters =
                |depth: usize| old.and_then(|old| old.occupancy.get(depth)).copied().unwrap_or(0);
            let latency = old.map_or_else(|| lane.latency.clone(), |old| lane.latency.since(&old.latency));
            let enters = lane.occupancy.iter().enumerate();
            let enters = enters.map(|(depth, n)| (depth, n.saturating_sub(old_enters(depth))));
            Lane {
                commands: lane.commands.saturating_sub(old.map_or(0, |old| old.commands)),
                occupancy: enters.filter(|(_, n)| *n > 0).collect(),
                p50: latency.quantile(0.5),
                p99: latency.quantile(0.99),
                drive: lane.drive,
                queue: lane.queue,
                depth: lane.depth,
                cpus: lane.cpus,
            }
        };
        counted::of_target(later.lanes.clone()).into_iter().enumerate().map(one).collect()
    }
}

/// A failure of a job.
pub fn of(job: &Job, why: impl std::fmt::Display) -> Failure {
    Failure::Setup(format!("job {}: {why}", job.name))
}

fn stride(job: &Job) -> usize {
    job.bs.next_multiple_of(ALIGN) as usize
}

/// What the thread that may run where the job may has opened.
struct Opened {
    engine: Engine,
    parts: Vec<Part>,
    regions: Vec<Region>,
}

impl Opened {
    fn new(job: &Job, run: u64) -> Result<Self, Failure> {
        let engine = engine(job)?;
        let mut open: HashMap<PathBuf, Target> = HashMap::new();
        let mut parts = Vec::with_capacity(job.numjobs);
        for clone in 0..job.numjobs {
            let names = files::names(job, clone);
            let mut targets = Vec::with_capacity(names.len());
            for name in &names {
                let target = match open.get(name) {
                    Some(target) => target.clone(),
                    None => open_one(job, &engine, name)?,
                };
                open.insert(name.clone(), target.clone());
                targets.push(target);
            }
            let seeds = names.iter().map(|name| files::seed(name, job, run)).collect();
            if let Some(chunk) = job.stripe {
                targets = vec![engine.stripe(&targets, chunk).map_err(|error| of(job, error))?];
            }
            let mut spans = Vec::with_capacity(targets.len());
            for (index, target) in targets.iter().enumerate() {
                if let Some(replay) = &job.replay {
                    replay.fits(target).map_err(Failure::Setup)?;
                    spans.push(Span { target: index, start: 0, count: replay.entries.len() as u64 });
                    continue;
                }
                let (start, len) = files::range(job, clone, targets.len(), Some(target.size()))
                    .and_then(|range| whole_blocks(job, range.0, target).map(|()| range))
                    .map_err(|why| of(job, format!("{}: {why}", target.name())))?;
                spans.push(Span { target: index, start, count: len / job.bs });
            }
            parts.push(Part { targets, seeds, spans });
        }
        let regions = regions(job, &engine)?;
        Ok(Self { engine, parts, regions })
    }
}

/// Direct writes are whole blocks; reads need not be, they go by way of a scratch buffer.
fn whole_blocks(job: &Job, start: u64, target: &Target) -> Result<(), String> {
    let block = u64::from(target.block_size()).max(1);
    let whole = [start, job.bs].iter().all(|bytes| bytes.is_multiple_of(block));
    if whole || !job.rw.writes || !job.direct || target.is_mapped() {
        return Ok(());
    }
    Err(format!(
        "writes of {} bytes from byte {start} are not whole blocks of {block}: change bs or offset, or write direct=0",
        job.bs
    ))
}

fn engine(job: &Job) -> Result<Engine, Failure> {
    let in_flight = job.iodepth * job.numjobs;
    let patience = Duration::from_secs(30 + (in_flight as u64).saturating_mul(job.bs) / SLOWEST);
    let mut builder = Engine::builder()
        .lane_depth(job.lane_depth)
        .lanes(job.lanes)
        .processes(job.processes)
        .max_transfers(in_flight.max(1024))
        .deadline(Some(patience));
    if let Some(bytes) = job.cmd_size {
        builder = builder.command_size(bytes);
    }
    let engine = builder.build().map_err(|error| of(job, error))?;
    if let Some(&most) = job.memory.gpus.iter().max() {
        let there = engine.gpus().map_err(|error| of(job, error))?;
        if most >= there {
            let there = count(there.into(), "GPU");
            return Err(of(
                job,
                format!("there is no gpu:{most}, this process sees {there}: name others in mem"),
            ));
        }
    }
    Ok(engine)
}

fn open_one(job: &Job, engine: &Engine, path: &Path) -> Result<Target, Failure> {
    let mut options = if job.rw.writes { OpenOptions::write() } else { OpenOptions::read() };
    if !job.direct {
        options = options.buffered();
    }
    if job.polled {
        options = options.polled();
    }
    if job.mapped {
        // One that is cut short is a failure, not the end of the program.
        options = options.mapped().guard_sigbus();
    }
    let here = [("buffered()", "direct=0"), ("polled()", "hipri")];
    let target = engine.open(path, options).map_err(|error| of(job, refusal(&error, &here)))?;
    let passthrough = matches!(job.ioengine, Some((_, Theirs::Passthrough)));
    if passthrough && target.drive().is_none_or(|_| target.is_mapped()) {
        let path = path.display();
        return Err(of(
            job,
            format!(
                "{path}: ioengine=io_uring_cmd needs an NVMe namespace: name one like /dev/ng0n1, or write io_uring"
            ),
        ));
    }
    Ok(target)
}

/// Memory for all clones: of the host, or dealt over GPUs in turn.
fn regions(job: &Job, engine: &Engine) -> Result<Vec<Region>, Failure> {
    let slots = (job.iodepth * job.numjobs).div_ceil(job.memory.gpus.len().max(1));
    let bytes = stride(job).saturating_mul(slots);
    if job.memory.gpus.is_empty() {
        if bytes as u64 > available() {
            let (bs, free) = (human(job.bs), human(available()));
            let why = format!(
                "{slots} objects of {bs} do not fit in the {free} of memory at hand: lower iodepth, numjobs or bs"
            );
            return Err(of(job, why));
        }
        let options = AllocOptions { node: job.memory.node, ..AllocOptions::default() };
        return Ok(vec![engine.alloc_host_with(bytes, &options).map_err(|error| of(job, error))?]);
    }
    let one = |&gpu: &u32| engine.alloc_gpu(gpu, bytes).map_err(|error| of(job, error));
    job.memory.gpus.iter().map(one).collect()
}

/// The CPUs of a job; none: all.
fn cpus(job: &Job) -> Result<Vec<u32>, Failure> {
    let mut cpus = job.cpus.clone();
    for node in &job.nodes {
        let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
        let list =
            list.map_err(|error| of(job, format!("NUMA node {node}: {error}: check numa_cpu_nodes")))?;
        let of_node = value::numbers(list.trim());
        cpus.extend(
            of_node.map_err(|_| of(job, format!("NUMA node {node} has no CPUs: check numa_cpu_nodes")))?,
        );
    }
    Ok(cpus)
}

/// Keeps the calling thread on some CPUs; on all if there are none.
fn pin(cpus: &[u32]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let refused = |error| format!("cpus_allowed: the kernel refuses CPUs {cpus:?}: {error}: name others");
    let mut mask = CpuSet::new();
    for &cpu in cpus {
        mask.set(cpu as usize).map_err(refused)?;
    }
    sched_setaffinity(Pid::from_raw(0), &mask).map_err(refused)
}
