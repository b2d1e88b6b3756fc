//! `compare` and `ceilings` of a job: after it ran, the same work again in turns with a rival, and how fast the device and the
//! link are by themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use fullbore::machine;

use super::course::{Course, total};
use super::files::{self, Made};
use super::live::Live;
use super::section::{Section, of};
use super::worker::{Worker, seed};
use crate::ceilings::{Known, Way};
use crate::direct::{Op, PageBuf, Plain, serial_object};
use crate::failure::Failure;
use crate::fio::{Fio, FioEngine, FioJob, MOST_BUFFERS, Run};
use crate::jobs::report::Beyond;
use crate::jobs::spec::Job;
use crate::jobs::value::Amount;
use crate::options::Rival;
use crate::pairs::{Beside, Pairs, fitted};
use crate::place::why;
use crate::progress::Progress;
use crate::stop;
use crate::threads::Seat;
use crate::units::short;
use crate::work::Clocks;

/// Most commands in flight, and jobs, of fio over an NVMe namespace, where more only wait for the drive's tags.
const PASSTHROUGH: (u64, u64) = (32, 2);

impl Job {
    /// Whether a rival can do the same work.
    pub fn compares(&self, rival: Rival) -> Result<(), String> {
        if self.rw.writes {
            return Err("rivals only read: write rw=read, or leave it out".into());
        }
        if !self.memory.gpus.is_empty() || self.mapped {
            return Err("rivals read files to host memory: leave out mem and target, or compare".into());
        }
        if self.runtime.is_some() || self.rate != [None; 2] || self.rate_iops != [None; 2] {
            return Err("both move the same bytes as fast as they can: leave out runtime and rate".into());
        }
        if rival == Rival::Fio && !self.direct {
            return Err("fio reads with O_DIRECT: leave out direct=0, or write serial".into());
        }
        let many = self.nrfiles > 1 || self.files.len() > 1 || self.offset_increment != Amount::Bytes(0);
        if rival == Rival::Fio && (many || self.replay.is_some()) {
            return Err(
                "fio reads one part of one file: leave out replay, nrfiles, offset_increment and other \
                        files, or write serial"
                    .into(),
            );
        }
        Ok(())
    }
}

/// What a job asks for beside its run.
pub fn beyond(
    (number, job): (usize, &Job),
    known: &mut Known,
    made: &mut Made,
    run: u64,
) -> Result<Option<Beyond>, Failure> {
    let asked = job.compare.is_some() || job.ceilings;
    // The curve of a sweep is held against them in any case.
    if !asked && job.swept.is_none() {
        return Ok(None);
    }
    let ceilings = match job.unlink {
        true => Err("unlink=1 has removed the file".into()),
        false => known.measure(&way(job), asked)?,
    };
    let beside = match job.compare {
        None => None,
        Some(rival) => Some(beside(rival, job, made, run)?),
    };
    Ok(Some(Beyond { number, job: job.name.clone(), swept: job.swept.clone(), ceilings, beside }))
}

/// What its ceilings are measured of.
pub fn way(job: &Job) -> Way {
    let files: Vec<PathBuf> = if job.stripe.is_some() {
        files::names(job, 0)
    } else {
        let all: BTreeSet<PathBuf> = (0..job.numjobs).flat_map(|clone| files::names(job, clone)).collect();
        all.into_iter().collect()
    };
    Way {
        files,
        stripe: job.stripe,
        mapped: job.mapped,
        buffered: !job.direct,
        processes: job.processes,
        gpus: job.memory.gpus.clone(),
        writes: job.rw.writes,
    }
}

fn beside(rival: Rival, job: &Job, made: &mut Made, run: u64) -> Result<Beside, Failure> {
    // The same work without what is not measured: its content has been checked.
    let quiet = Job {
        verify: false,
        first_run: false,
        ramp_time: Default::default(),
        startdelay: Default::default(),
        ..job.clone()
    };
    let section = Section::open(&quiet, made, run)?;
    let footprint = (job.iodepth * job.numjobs) as u64 * job.bs;
    match rival {
        Rival::Serial => {
            let plains = plains(&section)?;
            let how = format!(
                "{} of {} in flight against one command of {}",
                job.iodepth * job.numjobs,
                short(job.bs),
                short(u64::from(job.serial_command()).min(job.bs))
            );
            let pairs = Pairs::run(|| ours(&section), || serial(&section, &plains))?;
            Ok(Beside { rival: "serial".into(), how, footprint: [footprint; 2], pairs })
        }
        Rival::Fio => {
            let theirs = fio_job(&section, footprint)?;
            match cut(&quiet, &theirs)? {
                None => beside_fio(&section, &theirs, job),
                Some(small) => {
                    let section = Section::open(&small, made, run)?;
                    let theirs = fio_job(&section, theirs.footprint())?;
                    beside_fio(&section, &theirs, job)
                }
            }
        }
    }
}

/// The job with objects that land in as much memory as fio does, where its own need more: over passthrough fio has a buffer for
/// each command in flight, and more of them than the drive has tags would hold it up.
fn cut(job: &Job, theirs: &FioJob) -> Result<Option<Job>, Failure> {
    if theirs.engine != FioEngine::Passthrough {
        return Ok(None);
    }
    let whole = (job.iodepth * job.numjobs, job.bs);
    let (objects, bs) = fitted(theirs.footprint(), whole, theirs.bs);
    if (objects, bs) == whole {
        return Ok(None);
    }
    if objects < job.numjobs {
        let why = "compare=fio: so many jobs cannot land in the memory of fio's: lower numjobs";
        return Err(of(job, why));
    }
    // As many bytes.
    let number_ios = job.number_ios.map(|ios| (ios * job.bs / bs).max(1));
    Ok(Some(Job { bs, iodepth: objects / job.numjobs, number_ios, ..job.clone() }))
}

fn beside_fio(section: &Section<'_>, theirs: &FioJob, whole: &Job) -> Result<Beside, Failure> {
    let fio = Fio::find()?;
    let mut pairs = Pairs::run(|| ours(section), || fio.watched(theirs, "fio"))?;
    let mut targets = section.parts.iter().flat_map(|part| &part.targets);
    pairs.workers = targets.any(|target| section.engine.facts(target).kernel_workers);
    let objects = |job: &Job| (job.iodepth * job.numjobs, job.bs);
    Ok(Beside::fio(&fio.version, theirs, objects(whole), objects(section.job), pairs))
}

/// The job once more, by the engine.
fn ours(section: &Section<'_>) -> Result<Run, Failure> {
    let lives: Vec<Live> = (0..section.job.numjobs).map(|_| Live::default()).collect();
    let mut workers = Vec::new();
    for (number, live) in lives.iter().enumerate() {
        live.was_looked_at();
        workers.push(Worker::new(section, number, live)?);
    }
    let _progress = Progress::new(&format!("{}: engine", section.job.name), None);
    let start = Barrier::new(workers.len() + 1);
    let spent = thread::scope(|scope| {
        let seats = workers.iter().map(|_| Seat::new(scope, |worker: Worker<'_>| worker.run(&start)));
        let seats = seats.collect::<Result<Vec<_>, _>>()?;
        let threads: Vec<_> =
            seats.into_iter().zip(workers).map(|(seat, worker)| seat.work(worker)).collect();
        start.wait();
        let clocks = Clocks::start();
        start.wait();
        for thread in threads {
            thread.join()?;
        }
        clocks?.stop()
    })?;
    stop::check()?;
    if let Some((_, failure)) = lives.iter().find_map(|live| live.state().failed.take()) {
        return Err(failure);
    }
    Ok(Run::of(spent, lives.iter().map(|live| live.state().counts.bytes()).sum()))
}

/// The files of each clone, without the engine.
fn plains(section: &Section<'_>) -> Result<Vec<Vec<Plain>>, Failure> {
    let job = section.job;
    let one = |paths: &[&Path]| {
        Plain::open(paths, job.stripe, false, !job.direct)
            .map_err(|(path, error)| of(job, format!("compare: {}: {}", path.display(), why(&error))))
    };
    let clone = |number| {
        let names: Vec<PathBuf> = files::names(job, number).iter().map(|name| plain_name(name)).collect();
        let names: Vec<&Path> = names.iter().map(|name| &**name).collect();
        if job.stripe.is_some() {
            Ok(vec![one(&names)?])
        } else {
            names.iter().map(|name| one(&[name])).collect()
        }
    };
    (0..job.numjobs).map(clone).collect()
}

/// The block device of an NVMe namespace; of all else itself.
fn plain_name(path: &Path) -> PathBuf {
    if !is_namespace(path) {
        return path.to_owned();
    }
    let disk = machine::look(path).ok().and_then(|survey| survey.block);
    disk.map_or_else(|| path.to_owned(), |disk| Path::new("/dev").join(disk))
}

/// Whether it is the node of an NVMe namespace, or a link to one.
pub fn is_namespace(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_default();
    real.starts_with("/dev") && real.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ng"))
}

/// The same objects in the same order, a command, wait, the next: through as many buffers in turn as the engine has.
fn serial(section: &Section<'_>, plains: &[Vec<Plain>]) -> Result<Run, Failure> {
    let job = section.job;
    let mut buffers: Vec<PageBuf> =
        (0..job.iodepth * job.numjobs).map(|_| PageBuf::new(job.bs as usize)).collect();
    // Touched, as the engine's are.
    buffers.iter_mut().for_each(|buffer| buffer.fill(1));
    let _progress = Progress::new(&format!("{}: serial", job.name), None);
    let (mut bytes, mut turn) = (0, 0);
    let clocks = Clocks::start()?;
    for (number, (part, plains)) in section.parts.iter().zip(plains).enumerate() {
        let seed = seed(job, number, section.run);
        let mut course = Course::new(job, part.spans.clone(), total(job, &part.spans), seed);
        while let Some(io) = course.peek() {
            stop::check()?;
            course.take();
            let (count, len) = (buffers.len(), io.len as usize);
            let (plain, buffer) = (&plains[part.spans[io.span].target], &mut buffers[turn % count]);
            turn += 1;
            serial_object(plain, Op::Read, job.serial_command() as usize, &mut buffer[..len], io.offset, len)
                .map_err(|error| {
                    Failure::Data(format!("job {}: serial, at {}: {error}", job.name, io.offset))
                })?;
            bytes += io.len;
        }
    }
    Ok(Run::of(clocks.stop()?, bytes))
}

/// The job in fio's words: commands of the same size, as many as fit in the same footprint.
fn fio_job(section: &Section<'_>, footprint: u64) -> Result<FioJob, Failure> {
    let (job, span) = (section.job, section.parts[0].spans[0]);
    let refuse = |why: &str| of(job, format!("compare=fio {why}"));
    if section.parts.iter().any(|part| part.spans != [span]) {
        let why = "reads one part of one file: leave out offset_increment and nrfiles, or write serial";
        return Err(refuse(why));
    }
    let file = files::names(job, 0).swap_remove(0);
    let bs = u64::from(section.parts[0].targets[0].geometry().max_bytes).min(job.bs);
    let region = span.count * job.bs;
    let moved = total(job, &section.parts[0].spans) * job.bs * job.numjobs as u64;
    let random = FioJob::random(job.rw.random, job.bs, bs).map_err(refuse)?;
    let lanes = (section.lanes().len() as u64).clamp(1, region / bs / random.unwrap_or(1));
    let (engine, jobs, depth) = match is_namespace(&file) {
        true => (FioEngine::Passthrough, lanes.min(PASSTHROUGH.1), PASSTHROUGH.0),
        false => (FioEngine::Ring, lanes, u64::MAX),
    };
    let jobs = jobs.min(footprint / bs).max(1);
    let depth = depth.min(footprint / bs / jobs);
    if depth == 0 || depth > MOST_BUFFERS {
        let why =
            "cannot land in the same memory with 1 to 16384 buffers a job: change iodepth, cmd_size or lanes";
        return Err(refuse(why));
    }
    Ok(FioJob { file, engine, bs, depth, jobs, random, start: span.start, region, total: moved })
}
