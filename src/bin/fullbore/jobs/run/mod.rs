//! Jobs as fio runs them: side by side, in groups that a stonewall parts.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::report::{Facts, Moment, Report, Shown};
use super::spec::Job;
use crate::ceilings::Known;
use crate::failure::Failure;
use crate::honest::Drives;
use crate::stop;
use crate::threads::Seat;
use crate::timeline::Tape;

mod check;
mod course;
pub mod disks;
pub mod files;
pub mod live;
mod rival;
pub mod section;
pub mod stats;
pub mod unit;
pub mod usage;
mod worker;

use disks::Disks;
use files::Made;
use live::{Live, State};
use section::{Look, Section};
use unit::Unit;
use worker::Worker;

/// How often the running jobs are looked at.
const TICK: Duration = Duration::from_millis(100);
/// Time of a sample of the rate, as in fio.
const SAMPLE: Duration = Duration::from_millis(500);

/// Jobs that run at the same time, each with the number of its group of reports.
pub type Wave = Vec<(usize, usize)>;

/// Deals jobs to waves, and numbers their groups.
pub fn waves(jobs: &[Job]) -> Vec<Wave> {
    let mut waves: Vec<Wave> = vec![Vec::new()];
    let mut group = 0;
    for (number, job) in jobs.iter().enumerate() {
        if number > 0 && (job.stonewall || job.new_group) {
            group += 1;
        }
        if number > 0 && job.stonewall {
            waves.push(Vec::new());
        }
        if let Some(wave) = waves.last_mut() {
            wave.push((number, group));
        }
    }
    waves
}

/// Runs all jobs, and has them reported.
pub fn run<'a>(jobs: &'a [Job], report: &mut Report<'a>) -> Result<(), Failure> {
    let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    let mut made = Made::of(jobs);
    let paths: Vec<_> = jobs.iter().flat_map(|job| files::names(job, 0)).collect();
    let mut disks = None;
    // Said before any is run, and in the report.
    let mut first = made.look(jobs).err();
    let nodes: BTreeSet<_> = paths.iter().filter(|path| rival::is_namespace(path)).cloned().collect();
    let drives = Drives::look(nodes.into_iter().collect());
    report.begin();
    let waves = if first.is_none() { waves(jobs) } else { Vec::new() };
    for wave in waves {
        let failed = one_wave(jobs, &wave, (&mut made, run), report, || {
            // Files are there by now, and what laying them out and the first run cost is not counted.
            disks.get_or_insert_with(|| Disks::beneath(paths.iter().map(|path| &**path)));
        });
        for &(number, _) in wave.iter().filter(|(number, _)| jobs[*number].unlink) {
            made.unlink(&jobs[number]);
        }
        match failed {
            // What ran is reported, also when what came next could not start.
            Err(failure) => {
                first.get_or_insert(failure);
                break;
            }
            Ok(failed) => first = first.or(failed),
        }
        if stop::requested() {
            first = Some(Failure::Stopped);
            break;
        }
    }
    report.disks = disks.map_or_else(Vec::new, |disks| disks.counted());
    let on_drives = |job: &Job| files::names(job, 0).iter().any(|name| rival::is_namespace(name));
    report.smart = drives.map(|drives| drives.counted(report.moved(on_drives)));
    // What follows is none of the jobs' own: neither the disks' counters nor the drive's have it.
    let mut known = Known::default();
    for job in jobs.iter().enumerate() {
        if first.is_some() {
            break;
        }
        match rival::beyond(job, &mut known, &mut made, run) {
            Ok(found) => report.beyond.extend(found),
            Err(failure) => first = Some(failure),
        }
    }
    for beyond in &mut report.beyond {
        if let Some(best) = known.best(&rival::way(&jobs[beyond.number])) {
            beyond.ceilings = best.clone();
        }
    }
    report.end(first.as_ref())?;
    first.map_or(Ok(()), Err)
}

/// Runs the jobs of a wave. Answers the first failure of one that ran.
fn one_wave<'a>(
    jobs: &'a [Job],
    wave: &Wave,
    (made, run): (&mut Made, u64),
    report: &mut Report<'a>,
    ready: impl FnOnce(),
) -> Result<Option<Failure>, Failure> {
    let sections = wave
        .iter()
        .map(|&(number, _)| Section::open(&jobs[number], made, run))
        .collect::<Result<Vec<_>, _>>()?;
    let lives: Vec<Vec<Live>> = sections
        .iter()
        .map(|section| section.job)
        .map(|job| (0..job.numjobs).map(|_| Live::default()).collect())
        .collect();
    let tapes = report.tapes(&sections)?;
    let mut workers = Vec::new();
    for (index, (section, lives)) in sections.iter().zip(&lives).enumerate() {
        for (number, live) in lives.iter().enumerate() {
            let mut worker = Worker::new(section, number, live)?;
            worker.track = tapes.get(index).map(|tape: &Tape| tape.track(number, format!("clone {number}")));
            workers.push(worker);
        }
    }
    let start = Barrier::new(workers.len() + 1);
    thread::scope(|scope| {
        let seats = workers.iter().map(|_| Seat::new(scope, |worker: Worker<'_>| worker.run(&start)));
        let seats = seats.collect::<Result<Vec<_>, _>>()?;
        let threads: Vec<_> =
            seats.into_iter().zip(workers).map(|(seat, worker)| seat.work(worker)).collect();
        // All are ready, and the first runs are over. Disks and engines are looked at, and then all begin.
        start.wait();
        tapes.iter().zip(&sections).for_each(|(tape, section)| tape.forget(&section.engine));
        ready();
        let mut units = Unit::of(jobs, wave);
        let mut watch = Watch::new(&sections);
        start.wait();
        let began = Instant::now();
        let mut sampled = began;
        let mut written = Ok(());
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(TICK.min(Duration::from_millis(5 + began.elapsed().as_millis() as u64 / 8)));
            watch.look(&sections, &lives);
            units.iter_mut().for_each(|unit| unit.note(&lives));
            if sampled.elapsed() >= SAMPLE {
                sampled = Instant::now();
                units.iter_mut().for_each(|unit| unit.sample(&lives));
            }
            if report.wants_status() && written.is_ok() {
                let shown = units.iter().map(|unit| unit.shown(jobs, &sections, &lives, &watch)).collect();
                written = report.status(shown, left(jobs, wave, &lives));
            }
            if report.eta().is_due() {
                report.eta().show(moment(jobs, wave, &lives));
            }
        }
        report.clear_progress();
        for thread in threads {
            thread.join()?;
        }
        watch.look(&sections, &lives);
        let shown: Vec<Shown> =
            units.iter().map(|unit| unit.shown(jobs, &sections, &lives, &watch)).collect();
        report.add(shown);
        written
    })?;
    report.keep(tapes, &sections)?;
    Ok(lives.iter().flatten().find_map(|live| live.state().failed.take().map(|(_, failure)| failure)))
}

/// How far the running jobs are.
fn moment(jobs: &[Job], wave: &Wave, lives: &[Vec<Live>]) -> Moment {
    let mut moment = Moment::default();
    let (mut done, mut known) = (0.0, 0);
    for (&(number, _), lives) in wave.iter().zip(lives) {
        let job = &jobs[number];
        for live in lives {
            let state = live.state();
            for (way, counts) in state.counts.ways.iter().enumerate() {
                moment.bytes[way] += counts.bytes;
                moment.ios[way] += counts.ios;
            }
            moment.flying += live.flying.load(Ordering::Relaxed);
            if state.ended.is_none() {
                moment.running += 1;
                moment.letters.push(letter(job));
            }
            done += part(job, &state);
            known += 1;
        }
    }
    moment.done = (known > 0).then(|| done / f64::from(known));
    moment
}

/// How much of a clone's run is over, between 0 and 1.
fn part(job: &Job, state: &State) -> f64 {
    if state.ended.is_some() {
        return 1.0;
    }
    let by_time = job.runtime.map(|time| state.ran().as_secs_f64() / time.as_secs_f64());
    let by_bytes = state.counts.bytes() as f64 / state.planned.max(1) as f64;
    by_time.map_or(by_bytes, |time| time.max(by_bytes)).min(1.0)
}

/// How long the running jobs still take, as far as can be known: the last of them ends the wave.
fn left(jobs: &[Job], wave: &Wave, lives: &[Vec<Live>]) -> Duration {
    let of = |job: &Job, live: &Live| {
        let state = live.state();
        let part = part(job, &state);
        let left = if part > 0.0 { state.ran().as_secs_f64() * (1.0 - part) / part } else { 0.0 };
        Duration::try_from_secs_f64(left).unwrap_or_default()
    };
    let each = wave.iter().zip(lives).flat_map(|(&(number, _), lives)| {
        let job = &jobs[number];
        lives.iter().map(move |live| of(job, live))
    });
    each.max().unwrap_or_default()
}

/// As fio has them: capital in order, small at random; M for a mix.
fn letter(job: &Job) -> char {
    let letter = match (job.rw.reads, job.rw.writes) {
        (true, true) => 'M',
        (true, false) => 'R',
        _ => 'W',
    };
    if job.rw.random { letter.to_ascii_lowercase() } else { letter }
}

/// What the engines of a wave had done when counting began, and at its end.
pub struct Watch {
    from: Vec<Look>,
    to: Vec<Option<Look>>,
    ramping: Vec<bool>,
}

impl Watch {
    fn new(sections: &[Section<'_>]) -> Self {
        let ramping = sections.iter().map(|section| !section.job.ramp_time.is_zero()).collect();
        let to = sections.iter().map(|_| None).collect();
        Self { from: sections.iter().map(Section::look).collect(), to, ramping }
    }

    /// Begins anew where a ramp is over, and ends where all I/O that counts is: what follows is the check of content.
    fn look(&mut self, sections: &[Section<'_>], lives: &[Vec<Live>]) {
        for (number, (section, lives)) in sections.iter().zip(lives).enumerate() {
            let counts = |live: &Live| {
                let state = live.state();
                state.from.is_some() && !state.ramping
            };
            if self.ramping[number] && lives.iter().all(counts) {
                self.ramping[number] = false;
                self.from[number] = section.look();
            }
            if self.to[number].is_none() && lives.iter().all(|live| live.state().ended.is_some()) {
                self.to[number] = Some(section.look());
                lives.iter().for_each(Live::was_looked_at);
            }
        }
    }

    /// What a section's engine did in its span of time: what its threads cost, and the facts of its lanes.
    fn of(&self, number: usize, section: &Section<'_>, span: Duration) -> (usage::Usage, Facts) {
        let now;
        let to = match &self.to[number] {
            Some(look) => look,
            None => {
                now = section.look();
                &now
            }
        };
        let (counted, of_gpus) = self.from[number].until(to);
        let on_gpu = !section.job.memory.gpus.is_empty();
        let lanes = section.lanes();
        let facts = Facts {
            path: section.path.clone(),
            lanes: lanes.len(),
            command: section.parts[0].targets[0].geometry().max_bytes,
            lane_depth: lanes.iter().map(|lane| lane.depth).max().unwrap_or(0),
            most_commands: counted.most,
            mean_commands: counted.mean(span),
            paths: if on_gpu { of_gpus.paths } else { counted.paths.clone() },
            storage_paths: if on_gpu { counted.paths } else { Default::default() },
            kernel_workers: lanes.iter().map(|lane| lane.kernel_workers).sum(),
            note: section.note.clone(),
            each_lane: self.from[number].each_lane(to),
        };
        (to.usage - self.from[number].usage, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::tests::jobs;

    #[test]
    fn a_stonewall_parts_waves_and_groups() {
        let line = "--name=a --stonewall --name=b --name=c --new_group --name=d --stonewall --name=e";
        assert_eq!(waves(&jobs(line).unwrap()), [vec![(0, 0), (1, 0), (2, 1)], vec![(3, 2), (4, 2)]]);
    }
}
