//! The command line of `bench`, in fio's `--key=value` style, and the checked plan made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ValueEnum};

use crate::failure::Failure;
use crate::units;

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
}

/// What else does the same work, to be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    Fio,
}

/// Measure loads of large objects: a serial loop against the engine, on one file, in one run
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct BenchArgs {
    /// File, block device, or folder to make a file in (and remove it)
    #[arg(long, value_name = "PATH")]
    pub filename: Option<PathBuf>,
    /// Size of an object
    #[arg(long, value_name = "SIZE", default_value = "20m", value_parser = units::size)]
    pub bs: u64,
    /// Objects in flight of each job [default: 1 2 4 8 16 32 in turn]
    #[arg(long, value_name = "N")]
    pub iodepth: Option<usize>,
    /// Jobs: threads that submit, each with its own iodepth
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub numjobs: usize,
    /// Lanes of the engine [default: the CPUs at hand, at most 8]
    #[arg(long, value_name = "N")]
    pub lanes: Option<usize>,
    /// Size of a command, the piece a device takes whole
    #[arg(long = "cmd_size", alias = "cmd-size", value_name = "SIZE",
          default_value = "128k", value_parser = units::size)]
    pub cmd_size: u64,
    /// Commands in flight on each lane
    #[arg(long = "lane_depth", alias = "lane-depth", value_name = "N", default_value_t = 32)]
    pub lane_depth: u32,
    /// Bytes of the file to use [default: all; 1g if it is made]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub size: Option<u64>,
    /// Measure each arm for at most this long: 10, 10s, 2m
    #[arg(long, value_name = "TIME", value_parser = units::time)]
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
          value_name = "1", value_parser = units::switch)]
    pub verify: bool,
    /// Let --rw=write overwrite an existing file or device
    #[arg(long, alias = "allow_destructive")]
    pub allow_destructive: bool,
    /// normal or json
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
    /// fio: run it in turns with 8 (or `iodepth`) objects, same footprint
    #[arg(long, value_enum, hide_possible_values = true, value_name = "RIVAL")]
    pub compare: Option<Rival>,
}

const AFTER_HELP: &str = "\
Options are written --key=value, sizes 4096, 128k, 20m or 1g (k is 1024).
With no option it makes a 1 GiB file, measures it and removes it.
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
    pub filename: Option<PathBuf>,
    pub bs: u64,
    /// Objects in flight of each job, an engine arm each.
    pub depths: Vec<usize>,
    pub jobs: usize,
    pub lanes: Option<usize>,
    pub cmd_size: u32,
    pub lane_depth: u32,
    pub size: Option<u64>,
    pub limit: Limit,
    pub rw: Rw,
    pub verify: bool,
    pub destructive: bool,
    pub json: bool,
    pub output: Option<PathBuf>,
    pub compare: bool,
}

/// Objects in flight of the engine's arms when `--iodepth` names none.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const DEFAULT_SIZE: u64 = 1 << 30;
/// What memory, files and most devices are aligned to; smaller objects would measure the scratch path.
pub const ALIGN: u64 = 4096;

impl Plan {
    /// The bytes of a file that bench makes.
    pub fn new_file_size(&self) -> u64 {
        self.size.unwrap_or(DEFAULT_SIZE)
    }

    pub fn max_depth(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(1)
    }
}

impl BenchArgs {
    /// Checks what can be checked before anything is opened. Each refusal is one line with its remedy.
    pub fn plan(self) -> Result<Plan, Failure> {
        self.check_numbers()?;
        self.check_sizes()?;
        self.check_combinations()?;
        Ok(Plan {
            filename: self.filename,
            bs: self.bs,
            depths: self.iodepth.map_or_else(|| DEPTHS.to_vec(), |n| vec![n]),
            jobs: self.numjobs,
            lanes: self.lanes,
            cmd_size: self.cmd_size as u32,
            lane_depth: self.lane_depth,
            size: self.size,
            limit: Limit { time_based: self.time_based, runtime: self.runtime },
            rw: self.rw,
            verify: self.verify,
            destructive: self.allow_destructive,
            json: self.output_format == Format::Json,
            output: self.output,
            compare: self.compare.is_some(),
        })
    }

    fn check_numbers(&self) -> Result<(), Failure> {
        let numbers = [
            ("iodepth", self.iodepth.unwrap_or(1), 4096),
            ("numjobs", self.numjobs, 256),
            ("lanes", self.lanes.unwrap_or(1), 256),
            ("lane_depth", self.lane_depth as usize, 4096),
        ];
        for (name, value, most) in numbers {
            if value == 0 || value > most {
                return refuse(format!("--{name}={value} is out of range: give 1 to {most}"));
            }
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Failure> {
        for (name, value) in [("bs", self.bs), ("cmd_size", self.cmd_size)] {
            if value == 0 || value % ALIGN != 0 {
                return refuse(format!("--{name}={value} is not a multiple of 4k: give one, like 128k"));
            }
        }
        if self.cmd_size > 64 << 20 {
            let given = units::short(self.cmd_size);
            return refuse(format!(
                "--cmd_size={given} is more than any device takes whole: give 64m or less"
            ));
        }
        if self.bs > 1 << 40 {
            return refuse(format!("--bs={} is too large an object: give 1t or less", units::short(self.bs)));
        }
        if self.size.is_some_and(|size| size < self.bs) {
            let (size, bs) = (units::short(self.size.unwrap_or(0)), units::short(self.bs));
            return refuse(format!(
                "--size={size} does not hold one object of --bs={bs}: raise it or lower --bs"
            ));
        }
        Ok(())
    }

    fn check_combinations(&self) -> Result<(), Failure> {
        if self.time_based && self.runtime.is_none() {
            return refuse("--time_based needs a time: add --runtime=10s");
        }
        if self.runtime == Some(Duration::ZERO) {
            return refuse("--runtime=0 measures nothing: give a time like 10s, or leave it out");
        }
        if self.compare.is_some() && self.rw != Rw::Read {
            let rw = self.rw.name();
            return refuse(format!("--compare=fio does not do --rw={rw}: compare with --rw=read"));
        }
        if self.compare.is_some() && self.runtime.is_some() {
            return refuse(
                "--compare=fio moves the same bytes on both sides: leave out --runtime, use --size",
            );
        }
        if self.allow_destructive && !self.rw.writes() {
            return refuse("--allow-destructive is only for writing: add --rw=write or leave it out");
        }
        Ok(())
    }
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Setup(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn plan(line: &str) -> Result<Plan, Failure> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        match Line::try_parse_from(words) {
            Ok(line) => line.bench.plan(),
            Err(error) => Err(Failure::Setup(error.to_string())),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_readme() {
        let plan = plan("").unwrap();
        assert_eq!((plan.bs, plan.cmd_size, plan.lane_depth, plan.jobs), (20 << 20, 128 << 10, 32, 1));
        assert_eq!(plan.depths, [1, 2, 4, 8, 16, 32]);
        assert_eq!(plan.new_file_size(), 1 << 30);
        assert!(plan.verify && !plan.destructive && !plan.json && !plan.compare);
        assert_eq!(plan.limit, Limit { time_based: false, runtime: None });
    }

    #[test]
    fn fios_style_is_understood() {
        let line = "--filename=/x --bs=8m --iodepth=4 --numjobs=2 --lanes=3 --cmd_size=64k \
                    --lane_depth=8 --size=2g --runtime=10 --time_based --rw=randwrite --verify=0 \
                    --allow-destructive --output-format=json";
        let plan = plan(line).unwrap();
        assert_eq!((plan.bs, plan.cmd_size, plan.size), (8 << 20, 64 << 10, Some(2 << 30)));
        assert_eq!((plan.depths, plan.jobs, plan.lanes), (vec![4], 2, Some(3)));
        assert_eq!(plan.limit, Limit { time_based: true, runtime: Some(Duration::from_secs(10)) });
        assert!(plan.rw.writes() && plan.rw.random() && !plan.verify && plan.destructive && plan.json);
    }

    #[test]
    fn switches_take_values_as_fios_do() {
        assert!(plan("--verify").unwrap().verify);
        assert!(plan("--verify=1").unwrap().verify);
        assert!(!plan("--time_based=0").unwrap().limit.time_based);
        assert!(plan("--verify=maybe").is_err());
    }

    #[test]
    fn bad_combinations_are_one_line_with_a_remedy() {
        for line in [
            "--iodepth=0",
            "--iodepth=5000",
            "--numjobs=0",
            "--lanes=0",
            "--lane_depth=0",
            "--bs=0",
            "--bs=1000",
            "--cmd_size=1000",
            "--cmd_size=1g",
            "--bs=2t",
            "--size=1m",
            "--time_based",
            "--runtime=0",
            "--compare=fio --rw=write",
            "--compare=fio --rw=randread",
            "--compare=fio --runtime=5",
            "--allow-destructive",
        ] {
            let Err(Failure::Setup(text)) = plan(line) else { panic!("{line} was taken") };
            assert!(!text.contains('\n') && text.contains(": "), "{line}: {text}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(plan("--rw=trim").is_err() && plan("--compare=dd").is_err() && plan("--bogus=1").is_err());
    }
}
