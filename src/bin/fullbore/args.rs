//! The command line of `bench`, in fio's `--key=value` style, and the checked plan made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ValueEnum};
use fullbore::Lanes;

use crate::failure::Failure;
use crate::kv_workload::{KvArgs, KvPlan};
use crate::member;
use crate::options::{Memory, MoreArgs, Requests, Rival, TargetKind};
use crate::sweep::Swept;
use crate::units;

mod checks;

/// What is done to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    Read,
    Write,
    Randread,
    Randwrite,
}

impl Rw {
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Randwrite)
    }

    pub fn random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
        }
    }
}

/// How the report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Normal,
    Json,
    Csv,
    Html,
}

/// Measure loads of large objects: a serial loop against the engine, on one file, in one run
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = AFTER_HELP, args_override_self = true)]
pub struct BenchArgs {
    /// File, block device, NVMe namespace (/dev/ng0n1), or folder to make a file in (and remove it);
    /// several as A:B with --stripe (write a colon in a name as \:)
    #[arg(long, value_name = "PATH")]
    pub filename: Option<PathBuf>,
    /// Stripe the files or devices of --filename: so many bytes go to each in turn
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub stripe: Option<u64>,
    /// Size of an object
    #[arg(long, alias = "blocksize", value_name = "SIZE", default_value = "20m", value_parser = units::size)]
    pub bs: u64,
    /// Objects in flight of each job [default: 1 2 4 8 16 32 in turn]
    #[arg(long, value_name = "N")]
    pub iodepth: Option<usize>,
    /// Jobs: threads that submit, each with its own iodepth
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: usize,
    /// Lanes: a number, queue (one for each hardware queue of a drive), numa (one for each node), or
    /// auto: one for each CPU at hand, or hardware queue, at most 8
    #[arg(long, value_name = "HOW", default_value = "auto", hide_default_value = true, value_parser = lanes)]
    pub lanes: Lanes,
    /// Poll for completions (NVMe namespaces, driver loaded with nvme.poll_queues); also --hipri
    #[arg(long, alias = "hipri", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "0", hide_default_value = true,
          value_name = "1", value_parser = units::switch)]
    pub polled: bool,
    /// Processes that use the drive at the same time: each keeps to its share of the drive's tags
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub processes: u32,
    /// Size of a command, the piece a device takes whole [default: 128k; 512k to tmpfs and its like]
    #[arg(long = "cmd_size", alias = "cmd-size", value_name = "SIZE", value_parser = units::size)]
    pub cmd_size: Option<u64>,
    /// Commands in flight on each lane
    #[arg(long = "lane_depth", alias = "lane-depth", value_name = "N", default_value_t = 32)]
    pub lane_depth: u32,
    /// Bytes of the file to use [default: all; 1g if it is made]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub size: Option<u64>,
    /// Measure each arm for at most this long: 10, 10s, 2m
    #[arg(long, alias = "timeout", value_name = "TIME", value_parser = units::time)]
    pub runtime: Option<Duration>,
    /// Measure each arm for all of --runtime
    #[arg(long = "time_based", alias = "time-based", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "1", default_value = "0",
          hide_default_value = true, value_name = "1", value_parser = units::switch)]
    pub time_based: bool,
    /// read, write, randread or randwrite
    #[arg(
        long,
        alias = "readwrite",
        value_enum,
        default_value = "read",
        hide_possible_values = true,
        value_name = "HOW"
    )]
    pub rw: Rw,
    /// Check every byte where it landed; --verify=0 does not
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "1", hide_default_value = true,
          value_name = "1", value_parser = crate::jobs::checks)]
    pub verify: bool,
    /// Let --rw=write overwrite an existing file or device; one that is mounted or held stays refused
    #[arg(long, alias = "allow_destructive", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "0", hide_default_value = true,
          value_name = "1", value_parser = units::switch)]
    pub allow_destructive: bool,
    /// normal, json, csv or html
    #[arg(
        long,
        alias = "output_format",
        value_enum,
        default_value = "normal",
        hide_possible_values = true,
        value_name = "HOW"
    )]
    pub output_format: Format,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a trace of what was in flight to this file: Perfetto's viewer opens it
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// fio or serial: run it in turns with 8 (or `iodepth`) objects, same footprint
    #[arg(long, value_enum, hide_possible_values = true, value_name = "RIVAL")]
    pub compare: Option<Rival>,
    /// Measure for a second each how fast the device is by deep reads, and the link by pinned copies
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "0", hide_default_value = true,
          value_name = "1", value_parser = units::switch)]
    pub ceilings: bool,
    /// KEY=A,B,C: all of it once for each value, a table and a curve of what each came to
    #[arg(long, value_name = "KEY=LIST")]
    pub sweep: Option<String>,
    #[command(flatten)]
    pub more: MoreArgs,
    #[command(flatten)]
    pub kv: KvArgs,
}

const AFTER_HELP: &str = "\
Options are written --key=value, sizes 4096, 128k, 20m or 1g (k is 1024).
With no option it makes a 1 GiB file, measures it and removes it.
Column `commands`: the most in flight, the deepest of each lane added up.
Column `CPU s/GiB`: all threads of the process, kernel workers included.
The serial arm is a loop of one command, wait, next: pread or pwrite with
O_DIRECT. Of an NVMe namespace it uses the block device (/dev/nvme0n1), and
so does the check of content that is not ours.
Exit status: 1 a transfer failed or a byte is wrong, 2 it could not start, 130 Ctrl-C.";

/// When an arm has done enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Not the count of objects ends the arm, only its time.
    pub time_based: bool,
    pub runtime: Option<Duration>,
}

/// A checked command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is measured; empty: a file is made. Several are striped.
    pub files: Vec<PathBuf>,
    /// Bytes of a chunk of the stripe.
    pub stripe: Option<u64>,
    pub bs: u64,
    /// Objects in flight of each job, an engine arm each.
    pub depths: Vec<usize>,
    pub jobs: usize,
    pub lanes: Lanes,
    pub polled: bool,
    pub processes: u32,
    /// `None`: the engine's choice.
    pub cmd_size: Option<u32>,
    pub lane_depth: u32,
    pub size: Option<u64>,
    pub limit: Limit,
    pub rw: Rw,
    pub verify: bool,
    pub destructive: bool,
    pub format: Format,
    pub output: Option<PathBuf>,
    pub timeline: Option<PathBuf>,
    pub compare: Option<Rival>,
    pub ceilings: bool,
    pub memory: Memory,
    /// Files are mapped.
    pub mapped: bool,
    /// Instead of objects, requests are in flight: transfers of many objects.
    pub requests: Option<Requests>,
    /// The cache of a model, whose objects and requests these are.
    pub kv: Option<KvPlan>,
    /// Whether the serial arm runs, if that was said.
    pub serial: Option<bool>,
    /// Rounds over the arms.
    pub repeat: usize,
    /// The key and value of the sweep that it is a part of.
    pub swept: Option<Swept>,
    /// Bytes that objects land in, at least: as many at all values of a sweep.
    pub footprint: u64,
}

/// Objects in flight of the engine's arms when `--iodepth` names none.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes of an object unless it is said.
pub const OBJECT: u64 = 20 << 20;
const DEFAULT_SIZE: u64 = 1 << 30;
/// What an engine has under way at most.
pub const MOST_TRANSFERS: usize = 65_536;
/// What memory, files and most devices are aligned to; smaller objects would measure the scratch path.
pub const ALIGN: u64 = 4096;

impl Plan {
    /// Bytes of a command of the serial loop.
    pub fn serial_command(&self) -> u32 {
        self.cmd_size.unwrap_or(128 << 10)
    }

    /// The bytes of a file that bench makes.
    pub fn new_file_size(&self) -> u64 {
        self.size.unwrap_or(DEFAULT_SIZE)
    }

    pub fn max_depth(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(1)
    }

    /// Whether the report has charts.
    pub fn draws(&self) -> bool {
        self.format == Format::Html
    }

    /// Bytes of a transfer: an object, or a request.
    pub fn item(&self) -> u64 {
        self.requests.as_ref().map_or(self.bs, |requests| requests.size)
    }

    /// Objects of a transfer; the last one of a request may be cut short.
    pub fn objects_an_item(&self) -> u64 {
        self.item().div_ceil(self.bs)
    }
}

impl BenchArgs {
    /// Checks what can be checked before anything is opened. Each refusal is one line with its remedy.
    pub fn plan(mut self) -> Result<Plan, Failure> {
        let kv = self.lay_out_kv()?;
        self.check_numbers()?;
        self.check_sizes()?;
        self.check_combinations()?;
        self.check_more()?;
        let files = self.filename.as_deref().map_or_else(|| Ok(Vec::new()), member::names)?;
        self.check_stripe(files.len())?;
        if self.polled && files.is_empty() {
            return refuse("--polled is for NVMe namespaces: add --filename=/dev/ng0n1 or leave it out");
        }
        let requests = self.loop_of_requests()?;
        let arms = self.more.arm.as_ref();
        let depths = match (&requests, arms) {
            (Some(requests), _) => self.inflight(requests)?,
            (None, Some(arms)) => arms.depths.clone(),
            (None, None) => self.iodepth.map_or_else(|| DEPTHS.to_vec(), |n| vec![n]),
        };
        let runtime = self.more.seconds.or(self.runtime);
        Ok(Plan {
            memory: self.memory(),
            mapped: self.more.target == TargetKind::Dax,
            serial: arms.map(|arms| arms.serial),
            repeat: self.more.repeat,
            requests,
            kv,
            files,
            stripe: self.stripe,
            bs: self.bs,
            depths,
            jobs: self.numjobs,
            lanes: self.lanes,
            polled: self.polled,
            processes: self.processes,
            cmd_size: self.cmd_size.map(|bytes| bytes as u32),
            lane_depth: self.lane_depth,
            size: self.size,
            limit: Limit { time_based: self.time_based || self.more.seconds.is_some(), runtime },
            rw: self.rw,
            verify: self.verify,
            destructive: self.allow_destructive,
            format: self.output_format,
            output: self.output,
            timeline: self.timeline,
            compare: self.compare,
            ceilings: self.ceilings || self.compare.is_some(),
            swept: None,
            footprint: 0,
        })
    }
}

/// Parses how many lanes: a number or the name of a rule.
pub fn lanes(text: &str) -> Result<Lanes, String> {
    match text {
        "auto" => Ok(Lanes::Auto),
        "queue" => Ok(Lanes::PerQueue),
        "numa" => Ok(Lanes::PerNuma),
        number => number.parse().map(Lanes::Count).map_err(|_| "write auto, queue, numa or a number".into()),
    }
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Setup(text.into()))
}
