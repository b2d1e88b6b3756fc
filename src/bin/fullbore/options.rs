//! Options of `bench` that fio does not have: which memory objects land in, closed loops over requests, and which
//! arms run.

use std::time::Duration;

use clap::{ArgAction, ValueEnum};

use crate::args::{ALIGN, BenchArgs};
use crate::failure::Failure;
use crate::units;

/// What else does the same work, to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    Fio,
    Serial,
}

impl Rival {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Serial => "serial",
        }
    }
}

/// How the target is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TargetKind {
    Auto,
    Dax,
}

/// The GPUs of `--mem`; none: host memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus(pub Vec<u32>);

/// The arms of `--arm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arms {
    pub serial: bool,
    /// Objects, or requests, in flight.
    pub depths: Vec<usize>,
}

/// Bytes and number of the bounce buffers.
pub type Bounce = (u64, usize);

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Memory, requests, arms")]
pub struct MoreArgs {
    /// Memory that objects land in: host, gpu:0, or gpu:0,1 (objects are dealt over the GPUs in turn)
    #[arg(
        long,
        alias = "iomem",
        value_name = "WHERE",
        default_value = "host",
        hide_default_value = true,
        value_parser = gpus
    )]
    pub mem: Gpus,
    /// dax: map the files and copy straight out of them (/dev/dax0.0 is mapped anyway)
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        hide_default_value = true,
        hide_possible_values = true,
        value_name = "HOW"
    )]
    pub target: TargetKind,
    /// Scatter every object over pieces of so many bytes, in a fixed order that looks random
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub scatter: Option<u64>,
    /// Closed loop over so many requests, each one transfer of many objects [default: 32 of 4g]
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Bytes of a request
    #[arg(long = "request_size", alias = "request-size", value_name = "SIZE", value_parser = units::size)]
    pub request_size: Option<u64>,
    /// Requests in flight, a thread each [default: 8]
    #[arg(long, value_name = "N")]
    pub inflight: Option<usize>,
    /// Pause of each thread between its requests, in milliseconds
    #[arg(long = "think_ms", alias = "think-ms", value_name = "MS")]
    pub think_ms: Option<u64>,
    /// A mark after every so many objects of a request; the report has the times to each mark's landing
    #[arg(long = "mark-every", alias = "mark_every", value_name = "N")]
    pub mark_every: Option<u32>,
    /// An urgent load of 8 MiB every 50 ms while all requests are queued
    #[arg(long = "priority-probe", alias = "priority_probe", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_missing_value = "1", default_value = "0", hide_default_value = true,
          value_name = "1", value_parser = units::switch)]
    pub priority_probe: bool,
    /// Pinned bounce buffers of a GPU: bytes of one and how many [default: 8m,8]
    #[arg(long, value_name = "SIZE,N", value_parser = bounce)]
    pub bounce: Option<Bounce>,
    /// Most bytes that wait in a GPU's copy engine [default: 32m]
    #[arg(long = "gpu_outstanding", alias = "gpu-outstanding", value_name = "SIZE", value_parser = units::size)]
    pub gpu_outstanding: Option<u64>,
    /// A GPU's lane polls for the ends of copies instead of sleeping
    #[arg(long, alias = "gpu_polling", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "1", default_value = "0", hide_default_value = true,
          value_name = "1", value_parser = units::switch)]
    pub polling: bool,
    /// Run these arms alone: serial, and objects (or requests) in flight, as 8 or serial,1,8
    #[arg(long, value_name = "LIST", value_parser = arms, conflicts_with_all = ["iodepth", "inflight"])]
    pub arm: Option<Arms>,
    /// Run the arms so many times in turn, a row each
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    pub repeat: usize,
    /// Measure each arm for this long: --runtime and --time_based in one
    #[arg(long, value_name = "TIME", value_parser = units::time, conflicts_with = "runtime")]
    pub seconds: Option<Duration>,
}

/// The memory that objects land in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// None: host memory.
    pub gpus: Vec<u32>,
    /// Bytes of the pieces that an object is scattered over.
    pub scatter: Option<u64>,
    pub bounce: Option<Bounce>,
    pub outstanding: Option<u64>,
    pub polling: bool,
}

impl Memory {
    pub fn on_gpu(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// As in `--mem`.
    pub fn name(&self) -> String {
        let numbers: Vec<String> = self.gpus.iter().map(u32::to_string).collect();
        if self.on_gpu() { format!("gpu:{}", numbers.join(",")) } else { "host".into() }
    }
}

/// A closed loop over requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requests {
    pub count: u64,
    /// Bytes of one.
    pub size: u64,
    pub think: Duration,
    /// Objects from one mark to the next.
    pub mark_every: Option<u32>,
    /// An urgent load now and then.
    pub probe: bool,
}

const REQUESTS: u64 = 32;
const REQUEST_SIZE: u64 = 4 << 30;
const INFLIGHT: usize = 8;
/// Requests in flight at most: each has a thread.
const MOST_INFLIGHT: usize = 256;

impl BenchArgs {
    /// The closed loop, if anything asks for one.
    pub fn loop_of_requests(&self) -> Result<Option<Requests>, Failure> {
        let more = &self.more;
        let asked = more.requests.is_some()
            || more.request_size.is_some()
            || more.inflight.is_some()
            || more.think_ms.is_some()
            || more.mark_every.is_some()
            || more.priority_probe;
        if !asked {
            return Ok(None);
        }
        if self.iodepth.is_some() || self.numjobs > 1 {
            return refuse(
                "a request holds all its objects: use --inflight in place of --iodepth and --numjobs",
            );
        }
        let (count, size) = (more.requests.unwrap_or(REQUESTS), more.request_size.unwrap_or(REQUEST_SIZE));
        if count == 0 || more.mark_every == Some(0) {
            return refuse("--requests and --mark-every count from 1: give a larger number, or leave it out");
        }
        if size < self.bs || size % ALIGN != 0 || size > 1 << 40 {
            return refuse(format!(
                "--request_size={} is not a multiple of 4k from --bs={} to 1t: give one like 4g",
                units::short(size),
                units::short(self.bs)
            ));
        }
        let think = Duration::from_millis(more.think_ms.unwrap_or(0));
        Ok(Some(Requests { count, size, think, mark_every: more.mark_every, probe: more.priority_probe }))
    }

    /// What the arms have in flight when requests are looped over.
    pub fn inflight(&self, requests: &Requests) -> Result<Vec<usize>, Failure> {
        let of_arms = self.more.arm.as_ref().map(|arms| arms.depths.clone());
        let queued = usize::try_from(requests.count).unwrap_or(usize::MAX);
        let otherwise = || vec![if requests.probe { queued } else { INFLIGHT.min(queued) }];
        let depths = of_arms.or_else(|| self.more.inflight.map(|n| vec![n])).unwrap_or_else(otherwise);
        match depths.iter().find(|&&n| n == 0 || n > MOST_INFLIGHT) {
            Some(n) => refuse(format!("--inflight={n} is out of range: give 1 to {MOST_INFLIGHT}")),
            None => Ok(depths),
        }
    }

    pub fn memory(&self) -> Memory {
        let more = &self.more;
        Memory {
            gpus: more.mem.0.clone(),
            scatter: more.scatter,
            bounce: more.bounce,
            outstanding: more.gpu_outstanding,
            polling: more.polling,
        }
    }

    pub fn check_more(&self) -> Result<(), Failure> {
        let more = &self.more;
        let host = more.mem.0.is_empty();
        if let Some(piece) = more.scatter {
            let whole = |bytes: u64| bytes.is_multiple_of(piece);
            let request = self.loop_of_requests()?.map_or(self.bs, |requests| requests.size);
            if piece == 0 || piece % 512 != 0 || !whole(self.bs) || !whole(request) {
                return refuse(format!(
                    "--scatter={piece} does not divide an object (or a request) into pieces of whole 512 bytes: give \
                     one like 32k"
                ));
            }
        }
        if host && (more.bounce.is_some() || more.gpu_outstanding.is_some() || more.polling) {
            return refuse("--bounce, --gpu_outstanding and --polling are of GPU memory: add --mem=gpu:0");
        }
        let compare = self.compare.is_some();
        let rival = self.compare.map_or("", Rival::name);
        if compare && (!host || more.scatter.is_some() || more.target == TargetKind::Dax) {
            return refuse(format!(
                "--compare={rival} reads files to host memory: leave out --mem, --scatter and --target"
            ));
        }
        if self.compare == Some(Rival::Fio) && self.loop_of_requests()?.is_some() {
            return refuse(
                "fio knows no requests: write --compare=serial, or leave out --requests and what belongs to it",
            );
        }
        if self.polled && more.target == TargetKind::Dax {
            return refuse("--polled is for NVMe namespaces: leave it out with --target=dax");
        }
        match &more.arm {
            Some(arms) if arms.serial && !host => {
                refuse("--arm=serial loads to host memory: leave it out, or --mem")
            }
            Some(arms) if arms.depths.iter().any(|&n| n == 0 || n > 4096) => {
                refuse("--arm names what is in flight: give 1 to 4096, or serial")
            }
            _ if more.repeat == 0 || more.repeat > 1000 => {
                refuse(format!("--repeat={} is out of range: give 1 to 1000", more.repeat))
            }
            _ => Ok(()),
        }
    }
}

/// Parses where objects land.
pub fn gpus(text: &str) -> Result<Gpus, String> {
    if text == "host" {
        return Ok(Gpus::default());
    }
    let wrong = || "write host, gpu:0 or gpu:0,1".to_string();
    let list = text.strip_prefix("gpu:").ok_or_else(wrong)?;
    let gpus = list.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>().map_err(|_| wrong())?;
    let mut once = gpus.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() < gpus.len() {
        return Err("a GPU is named twice; write each once, as gpu:0,1".into());
    }
    Ok(Gpus(gpus))
}

/// Parses the size and number of bounce buffers.
fn bounce(text: &str) -> Result<Bounce, String> {
    let wrong = || "write the bytes of a buffer and how many there are, like 8m,8".to_string();
    let (bytes, buffers) = text.split_once(',').ok_or_else(wrong)?;
    Ok((units::size(bytes)?, buffers.parse().map_err(|_| wrong())?))
}

/// Parses a list of arms.
fn arms(text: &str) -> Result<Arms, String> {
    let mut arms = Arms { serial: false, depths: Vec::new() };
    for word in text.split(',') {
        match word {
            "serial" => arms.serial = true,
            number => arms.depths.push(
                number.parse().map_err(|_| "write serial, or what is in flight, like 8 or serial,1,8")?,
            ),
        }
    }
    Ok(arms)
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Setup(text.into()))
}
