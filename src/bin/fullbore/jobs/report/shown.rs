//! What a report has of each job.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ceilings::Found;
use crate::jobs::run::live::First;
use crate::jobs::run::stats::Counts;
use crate::jobs::run::unit::Samples;
use crate::jobs::run::usage::Usage;
use crate::jobs::spec::Job;
use crate::pairs::Beside;
use crate::series::Series;
use crate::sweep::Swept;

/// When it ran.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timing {
    /// Of each way, the longest of its members.
    pub ways: [Duration; 2],
    pub longest: Duration,
    /// All members added up.
    pub sum: Duration,
    /// I/Os in flight at this moment.
    pub flying: u64,
}

impl Timing {
    pub fn add(&mut self, ran: Duration, counts: &Counts) {
        for (time, way) in self.ways.iter_mut().zip(&counts.ways) {
            if way.ios > 0 {
                *time = (*time).max(ran);
            }
        }
        self.longest = self.longest.max(ran);
        self.sum += ran;
    }
}

/// What fio's reports do not have.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The path to be expected, and why.
    pub path: String,
    pub lanes: usize,
    /// Bytes of a command at most.
    pub command: u32,
    pub lane_depth: u32,
    pub most_commands: u64,
    pub mean_commands: f64,
    /// Bytes by path.
    pub paths: BTreeMap<&'static str, u64>,
    /// Of GPU memory, bytes between target and bounce buffers.
    pub storage_paths: BTreeMap<&'static str, u64>,
    pub kernel_workers: usize,
    pub note: Option<String>,
    pub each_lane: Vec<Lane>,
}

/// A lane that served the job.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    pub drive: Option<String>,
    pub queue: Option<u32>,
    pub depth: u32,
    pub cpus: String,
    pub commands: u64,
    /// Enters by the commands that they left in flight.
    pub occupancy: BTreeMap<usize, u64>,
    /// Times of its commands, in nanoseconds.
    pub p50: u64,
    pub p99: u64,
}

/// What is said of a job, or of a group.
#[derive(Debug, Clone)]
pub struct Shown<'a> {
    pub job: &'a Job,
    /// Of the job that gives its name.
    pub number: usize,
    pub group: usize,
    /// Clones.
    pub members: usize,
    pub counts: Counts,
    pub usage: Usage,
    pub timing: Timing,
    pub samples: [Samples; 2],
    pub series: [Series; 2],
    /// What ran before, and is in nothing else here.
    pub first: Option<First>,
    /// An errno, and the failure in words.
    pub failed: Option<(i32, String)>,
    pub facts: Facts,
    pub notes: Vec<String>,
}

impl Shown<'_> {
    /// Bytes a second.
    pub fn rate(&self, way: usize) -> f64 {
        self.counts.ways[way].bytes as f64 / self.timing.ways[way].as_secs_f64().max(1e-9)
    }

    pub fn iops(&self, way: usize) -> f64 {
        self.counts.ways[way].ios as f64 / self.timing.ways[way].as_secs_f64().max(1e-9)
    }

    pub fn cpu_s_per_gib(&self) -> f64 {
        let gib = self.counts.bytes().max(1) as f64 / (1u64 << 30) as f64;
        (self.usage.user + self.usage.system) / gib
    }

    /// Whether both are clones of one job, at one value of a sweep.
    pub fn is_twin(&self, other: &Self) -> bool {
        self.job.name == other.job.name && self.job.swept == other.job.swept
    }

    /// The paths that were taken.
    pub fn path(&self) -> String {
        self.counts.paths.iter().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// What is known of a job beyond its run.
#[derive(Debug, Clone)]
pub struct Beyond {
    pub number: usize,
    pub job: String,
    pub swept: Option<Swept>,
    pub ceilings: Found,
    pub beside: Option<Beside>,
}
