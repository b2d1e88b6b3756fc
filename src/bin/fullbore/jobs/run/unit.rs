//! What is reported as one: a clone of a job, or with group_reporting all clones of a group.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::live::{First, Live};
use super::section::Section;
use super::stats::{Counts, READ, Sum, WRITE};
use super::usage::Usage;
use super::{Watch, Wave};
use crate::jobs::report::{Shown, Timing};
use crate::jobs::spec::Job;
use crate::series::Series;

/// Samples of the rates of one way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Samples {
    /// KiB a second.
    pub rate: Sum,
    pub iops: Sum,
}

/// Clones that are reported together.
pub struct Unit {
    /// Which job gives its name.
    job: usize,
    group: usize,
    /// Section of the wave and clone of each.
    members: Vec<(usize, usize)>,
    samples: [Samples; 2],
    /// Bytes of reads, and of writes, by when.
    series: [Series; 2],
    /// Bytes and I/Os at the sample before.
    last: [(u64, u64); 2],
    at: Instant,
}

impl Unit {
    pub fn of(jobs: &[Job], wave: &Wave) -> Vec<Self> {
        let mut units: Vec<Self> = Vec::new();
        for (section, &(job, group)) in wave.iter().enumerate() {
            for clone in 0..jobs[job].numjobs {
                let together = units.iter_mut().find(|unit| {
                    jobs[job].group_reporting && unit.group == group && jobs[unit.job].group_reporting
                });
                match together {
                    Some(unit) => unit.members.push((section, clone)),
                    None => units.push(Self {
                        job,
                        group,
                        members: vec![(section, clone)],
                        samples: Default::default(),
                        series: Default::default(),
                        last: Default::default(),
                        at: Instant::now(),
                    }),
                }
            }
        }
        units
    }

    /// Notes what was moved until now, once all members are at work.
    pub fn note(&mut self, lives: &[Vec<Live>]) {
        // Before the members are looked at: one that is at work then ends later.
        let now = Instant::now();
        let (mut from, mut bytes, mut busy) = (now, [0; 2], false);
        for &(section, clone) in &self.members {
            let state = lives[section][clone].state();
            let Some(began) = state.from.filter(|_| !state.ramping) else { return };
            from = from.min(began);
            busy |= state.ended.is_none();
            bytes.iter_mut().zip(&state.counts.ways).for_each(|(sum, way)| *sum += way.bytes);
        }
        if busy && from < now {
            self.series.iter_mut().zip(bytes).for_each(|(series, bytes)| series.note(now - from, bytes));
        }
    }

    /// From the begin of the first member to the end of the last, or until now: the time that the series are of.
    fn span(&self, lives: &[Vec<Live>]) -> Duration {
        span(self.members.iter().map(|&(section, clone)| &lives[section][clone]))
    }

    /// Takes a sample of the rates since the one before.
    pub fn sample(&mut self, lives: &[Vec<Live>]) {
        let mut now = [(0, 0); 2];
        for &(section, clone) in &self.members {
            let state = lives[section][clone].state();
            if state.ended.is_some() || state.ramping {
                // A member that is not at work would make the others look slow.
                continue;
            }
            for (sum, way) in now.iter_mut().zip(&state.counts.ways) {
                *sum = (sum.0 + way.bytes, sum.1 + way.ios);
            }
        }
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        for way in [READ, WRITE] {
            let (bytes, ios) = now[way];
            let (old_bytes, old_ios) = self.last[way];
            self.last[way] = now[way];
            if bytes <= old_bytes || ios <= old_ios {
                continue;
            }
            let rate = |n: u64| (n as f64 / seconds).round() as u64;
            self.samples[way].rate.add(rate((bytes - old_bytes) / 1024));
            self.samples[way].iops.add(rate(ios - old_ios));
        }
    }

    /// What is to be said of it now.
    pub fn shown<'a>(
        &self,
        jobs: &'a [Job],
        sections: &[Section<'_>],
        lives: &[Vec<Live>],
        watch: &Watch,
    ) -> Shown<'a> {
        let mut counts = Counts::default();
        let mut usage = Usage::default();
        let mut timing = Timing::default();
        let (mut failed, mut facts, mut notes) = (None, None, Vec::new());
        let mut moved = vec![0; sections.len()];
        let mut first: Option<First> = None;
        for &(section, clone) in &self.members {
            let live = &lives[section][clone];
            let state = live.state();
            counts.merge(&state.counts);
            usage = usage + state.usage;
            moved[section] += state.counts.bytes();
            if let Some(one) = &state.first {
                first.get_or_insert_default().merge(one);
            }
            timing.flying += live.flying.load(Ordering::Relaxed);
            if let Some(from) = state.from {
                let ran = state.ended.unwrap_or_else(Instant::now).saturating_duration_since(from);
                timing.add(ran, &state.counts);
            }
            if failed.is_none() {
                failed = state.failed.as_ref().map(|(errno, failure)| (*errno, failure.to_string()));
            }
        }
        for (number, section) in sections.iter().enumerate() {
            if !self.members.iter().any(|(member, _)| *member == number) {
                continue;
            }
            let all: u64 = lives[number].iter().map(|live| live.state().counts.bytes()).sum();
            let (lanes, found) = watch.of(number, section, span(&lives[number]));
            // Lanes serve all clones: each has its share by bytes.
            usage = usage + lanes.part(if all > 0 { moved[number] as f64 / all as f64 } else { 0.0 });
            facts.get_or_insert(found);
            notes.extend(
                section.job.notes.iter().filter(|note| !notes.contains(*note)).cloned().collect::<Vec<_>>(),
            );
        }
        let (mut series, span) = (self.series.clone(), self.span(lives));
        for (series, way) in series.iter_mut().zip(&counts.ways) {
            series.end(span, way.bytes);
        }
        Shown {
            series,
            job: &jobs[self.job],
            number: self.job,
            group: self.group,
            members: self.members.len(),
            counts,
            usage,
            timing,
            samples: self.samples,
            first,
            failed,
            facts: facts.unwrap_or_default(),
            notes,
        }
    }
}

/// From the first begin to the last end, or until now.
fn span<'a>(lives: impl IntoIterator<Item = &'a Live>) -> Duration {
    let (mut from, mut to) = (None, None);
    for state in lives.into_iter().map(Live::state) {
        if let Some(began) = state.from {
            from = Some(from.map_or(began, |from: Instant| from.min(began)));
            to = to.max(Some(state.ended.unwrap_or_else(Instant::now)));
        }
    }
    from.zip(to).map_or(Duration::ZERO, |(from, to)| to.saturating_duration_since(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::tests::jobs;

    /// The longest run of a member was taken for the end: what was noted after that made times that go back.
    #[test]
    fn a_series_goes_from_the_first_begin_to_the_last_end() {
        let jobs = jobs("--group_reporting --name=a --name=b").unwrap();
        let mut units = Unit::of(&jobs, &vec![(0, 0), (1, 0)]);
        let (unit, lives) = (&mut units[0], [vec![Live::default()], vec![Live::default()]]);
        assert_eq!(unit.members.len(), 2);
        let began = Instant::now() - Duration::from_secs(3);
        {
            let (mut first, mut second) = (lives[0][0].state(), lives[1][0].state());
            (first.from, first.ended) = (Some(began), Some(began + Duration::from_secs(2)));
            second.from = Some(began + Duration::from_secs(2));
        }
        unit.note(&lives);
        lives[1][0].state().ended = Some(Instant::now());
        unit.note(&lives);
        let span = unit.span(&lives);
        let mut series = unit.series[READ].clone();
        series.end(span, 1);
        assert!(span >= Duration::from_secs(3));
        assert_eq!(series.rates(60).last().map(|(at, _)| *at), Some(span.as_secs_f64()));
    }
}
