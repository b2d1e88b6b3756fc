//! A job with every key read: what a section asks for, checked as far as that can be done before anything is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore::Lanes;

use super::replay::Replay;
use super::script::{Section, Setting};
use super::value::{self, Amount};
use super::words::{Pattern, Theirs, checks, ioengine, mem_policy, memory, only_on, pages, positive, rival};
use crate::failure::Failure;
use crate::member;
use crate::options::Rival;
use crate::place::is_device_name;
use crate::sweep::Swept;
use crate::{args, units};

/// Where buffers are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryOf {
    /// None: host memory.
    pub gpus: Vec<u32>,
    /// NUMA node that host memory is to be on.
    pub node: Option<u32>,
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub name: String,
    pub description: Option<String>,
    pub files: Vec<PathBuf>,
    pub directories: Vec<PathBuf>,
    pub nrfiles: u64,
    pub size: Option<Amount>,
    pub filesize: Option<u64>,
    pub io_size: Option<Amount>,
    pub number_ios: Option<u64>,
    pub offset: Amount,
    pub offset_increment: Amount,
    pub bs: u64,
    pub iodepth: usize,
    pub numjobs: usize,
    pub rw: Pattern,
    pub rwmixread: u64,
    pub norandommap: bool,
    pub direct: bool,
    pub invalidate: bool,
    pub runtime: Option<Duration>,
    pub time_based: bool,
    pub ramp_time: Duration,
    /// What it begins with is moved once before, and reported apart.
    pub first_run: bool,
    pub startdelay: Duration,
    pub loops: u64,
    pub ioengine: Option<(String, Theirs)>,
    pub polled: bool,
    pub cpus: Vec<u32>,
    pub split_cpus: bool,
    pub nodes: Vec<u32>,
    pub memory: MemoryOf,
    pub group_reporting: bool,
    pub new_group: bool,
    pub stonewall: bool,
    /// Bytes a second, of reads and of writes.
    pub rate: [Option<u64>; 2],
    pub rate_iops: [Option<u64>; 2],
    pub verify: bool,
    pub do_verify: bool,
    pub verify_fatal: bool,
    pub randseed: u64,
    pub randrepeat: bool,
    pub clat_percentiles: bool,
    pub lat_percentiles: bool,
    pub percentiles: Vec<f64>,
    pub unlink: bool,
    pub allow_file_create: bool,
    pub end_fsync: bool,
    pub cmd_size: Option<u32>,
    pub lane_depth: u32,
    pub lanes: Lanes,
    pub processes: u32,
    pub stripe: Option<u64>,
    pub mapped: bool,
    pub destructive: bool,
    /// What it is compared with.
    pub compare: Option<Rival>,
    /// The ceilings are measured, too.
    pub ceilings: bool,
    /// The manifest that says what is moved.
    pub replay: Option<Arc<Replay>>,
    /// The key and value of a sweep that it is a part of.
    pub swept: Option<Swept>,
    /// What is done otherwise than in fio, for the report.
    pub notes: Vec<String>,
}

/// fio's seed where none is given.
const SEED: u64 = 0xb189_9bed;
/// fio's percentiles where none are given.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

impl Job {
    /// Bytes of a command of the serial loop.
    pub fn serial_command(&self) -> u32 {
        self.cmd_size.unwrap_or(128 << 10)
    }

    fn named(name: String) -> Self {
        Self {
            name,
            description: None,
            files: Vec::new(),
            directories: Vec::new(),
            nrfiles: 1,
            size: None,
            filesize: None,
            io_size: None,
            number_ios: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            bs: 4096,
            iodepth: 1,
            numjobs: 1,
            rw: Pattern { reads: true, writes: false, random: false },
            rwmixread: 50,
            norandommap: false,
            direct: true,
            invalidate: true,
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            first_run: true,
            startdelay: Duration::ZERO,
            loops: 1,
            ioengine: None,
            polled: false,
            cpus: Vec::new(),
            split_cpus: false,
            nodes: Vec::new(),
            memory: MemoryOf::default(),
            group_reporting: false,
            new_group: false,
            stonewall: false,
            rate: [None; 2],
            rate_iops: [None; 2],
            verify: false,
            do_verify: true,
            verify_fatal: false,
            randseed: SEED,
            randrepeat: true,
            clat_percentiles: true,
            lat_percentiles: false,
            percentiles: PERCENTILES.to_vec(),
            unlink: false,
            allow_file_create: true,
            end_fsync: false,
            cmd_size: None,
            lane_depth: 32,
            lanes: Lanes::Auto,
            processes: 1,
            stripe: None,
            mapped: false,
            destructive: false,
            compare: None,
            ceilings: false,
            replay: None,
            swept: None,
            notes: Vec::new(),
        }
    }

    /// Reads a section.
    pub fn of(section: &Section) -> Result<Self, Failure> {
        let mut job = Self::named(section.name.clone());
        job.swept.clone_from(&section.swept);
        for setting in section.settings() {
            let known = job.files_and_sizes(setting)?
                || job.io(setting)?
                || job.course(setting)?
                || job.machine(setting)?
                || job.report(setting)?
                || job.ours(setting)?;
            if !known {
                // The table has it and nothing here reads it: never to be passed over in silence.
                return Err(setting.refuse("it is of no use in a job: leave it out"));
            }
        }
        if let Some(setting) = section.settings().filter(|setting| setting.key.name == "replay").last() {
            let replay = setting.parse(|text| Replay::read(Path::new(text)))?;
            replay.apply(&mut job, section)?;
        }
        job.finish()?;
        Ok(job)
    }

    fn files_and_sizes(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "description" => self.description = Some(s.text().to_owned()),
            "filename" => self.files = member::names(s.text().as_ref()).map_err(|why| s.refuse(why))?,
            "directory" => {
                self.directories = member::names(s.text().as_ref()).map_err(|why| s.refuse(why))?
            }
            "nrfiles" => self.nrfiles = s.parse(|text| value::int_in(text, 1, 1024))?,
            "size" => self.size = Some(s.parse(value::amount)?),
            "filesize" => self.filesize = positive(Some(s.parse(units::size)?)),
            "io_size" => self.io_size = Some(s.parse(value::amount)?).filter(|&all| all != Amount::Bytes(0)),
            "number_ios" => self.number_ios = Some(s.parse(value::int)?).filter(|&ios| ios > 0),
            "offset" => self.offset = s.parse(value::amount)?,
            "offset_increment" => self.offset_increment = s.parse(value::amount)?,
            "unlink" => self.unlink = s.is_on(),
            "allow_file_create" => self.allow_file_create = s.is_on(),
            "end_fsync" => self.end_fsync = s.is_on(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn io(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "bs" => match s.parse(|text| value::pair(text, units::size))? {
                [Some(read), Some(write)] if read != write => {
                    return Err(s.refuse("objects of a job have one size: give one, or make two jobs"));
                }
                [Some(0), _] | [None, Some(0) | None] => return Err(s.refuse("give a size like 20m")),
                [read, write] => self.bs = read.or(write).unwrap_or(self.bs),
            },
            "iodepth" => self.iodepth = s.parse(|text| value::int_in(text, 1, 4096))? as usize,
            "numjobs" => self.numjobs = s.parse(|text| value::int_in(text, 1, 256))? as usize,
            "rw" => self.rw = s.parse(Pattern::parse)?,
            "rwmixread" => self.rwmixread = s.parse(|text| value::int_in(text, 0, 100))?,
            "rwmixwrite" => self.rwmixread = 100 - s.parse(|text| value::int_in(text, 0, 100))?,
            "norandommap" => self.norandommap = s.is_on(),
            "direct" => self.direct = s.is_on(),
            "buffered" => self.direct = !s.is_on(),
            "invalidate" => self.invalidate = s.is_on(),
            "rate" => self.rate = s.parse(|text| value::pair(text, units::size))?.map(positive),
            "rate_iops" => self.rate_iops = s.parse(|text| value::pair(text, value::int))?.map(positive),
            "verify" => self.verify = s.parse(checks)?,
            "do_verify" => self.do_verify = s.is_on(),
            "verify_fatal" => self.verify_fatal = s.is_on(),
            "randseed" => self.randseed = s.parse(value::int)?,
            "randrepeat" => self.randrepeat = s.is_on(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn course(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "runtime" => self.runtime = Some(s.parse(units::time)?).filter(|time| !time.is_zero()),
            "time_based" => self.time_based = s.is_on(),
            "ramp_time" => self.ramp_time = s.parse(units::time)?,
            "startdelay" => self.startdelay = s.parse(units::time)?,
            "loops" => self.loops = s.parse(|text| value::int_in(text, 1, u64::MAX))?,
            "stonewall" => self.stonewall = s.is_on(),
            "new_group" => self.new_group = s.is_on(),
            "group_reporting" => self.group_reporting = s.is_on(),
            "thread" => only_on(s, "jobs are threads of one engine")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn machine(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "ioengine" => self.ioengine = s.parse(ioengine)?,
            "cmd_type" => drop(s.parse(|text| value::word(text, &["nvme"]))?),
            "fixedbufs" => only_on(s, "the engine registers its memory")?,
            "registerfiles" => only_on(s, "the engine registers its files")?,
            "nonvectored" => only_on(s, "a command has one buffer")?,
            "hipri" => self.polled = s.is_on(),
            "cpus_allowed" => self.cpus = s.parse(value::numbers)?,
            "cpus_allowed_policy" => {
                self.split_cpus = s.parse(|text| value::word(text, &["shared", "split"]))? == "split";
            }
            "numa_cpu_nodes" => self.nodes = s.parse(value::numbers)?,
            "numa_mem_policy" => self.memory.node = s.parse(mem_policy)?,
            "mem" => self.memory.gpus = s.parse(memory)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn report(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "clat_percentiles" => self.clat_percentiles = s.is_on(),
            "lat_percentiles" => self.lat_percentiles = s.is_on(),
            "percentile_list" => self.percentiles = s.parse(value::percentiles)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn ours(&mut self, s: &Setting) -> Result<bool, Failure> {
        match s.key.name {
            "cmd_size" => self.cmd_size = Some(s.parse(pages(16 << 20))? as u32),
            "lane_depth" => self.lane_depth = s.parse(|text| value::int_in(text, 1, 4096))? as u32,
            "lanes" => {
                self.lanes = s.parse(args::lanes)?;
                if matches!(self.lanes, Lanes::Count(lanes) if lanes == 0 || lanes > 64) {
                    return Err(s.refuse("give 1 to 64"));
                }
            }
            "processes" => self.processes = s.parse(|text| value::int_in(text, 1, 1024))? as u32,
            "stripe" => self.stripe = Some(s.parse(pages(1 << 30))?),
            "target" => self.mapped = s.parse(|text| value::word(text, &["auto", "dax"]))? == "dax",
            "first_run" => self.first_run = s.is_on(),
            "allow-destructive" => self.destructive = s.is_on(),
            "compare" => self.compare = Some(s.parse(rival)?),
            "ceilings" => self.ceilings = s.is_on(),
            // Read when all else is: it says what many keys do.
            "replay" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What hangs together.
    fn finish(&mut self) -> Result<(), Failure> {
        let name = self.name.clone();
        let refuse = |why: &str| Err(Failure::Setup(format!("job {name}: {why}")));
        // As in fio: [/dev/sdb] is that device, not a file that is called so.
        if self.files.is_empty() && is_device_name(Path::new(&name)) {
            self.files.push(PathBuf::from(&name));
        }
        if self.iodepth * self.numjobs > args::MOST_TRANSFERS {
            let both = self.iodepth * self.numjobs;
            return refuse(&format!(
                "iodepth x numjobs is {both}, and {} is the most that are in flight: lower one",
                args::MOST_TRANSFERS
            ));
        }
        if self.time_based && self.runtime.is_none() {
            return refuse("time_based needs a time: add runtime=10s");
        }
        if self.stripe.is_some() != (self.files.len() > 1) && self.stripe.is_some() {
            return refuse("stripe needs several files or devices: give filename=A:B, or leave it out");
        }
        if self.nrfiles > 1 && !self.files.is_empty() {
            return refuse("nrfiles is for jobs that name no files: leave it out, or filename");
        }
        if self.mapped && (!self.direct || self.polled) {
            return refuse("target=dax maps the files: leave out direct=0 and hipri");
        }
        if self.split_cpus && self.cpus.len() < self.numjobs {
            return refuse(
                "cpus_allowed_policy=split needs a CPU for each of numjobs: name more in cpus_allowed",
            );
        }
        if self.unlink && (self.ceilings || self.compare.is_some()) {
            return refuse(
                "compare and ceilings come after all jobs, when unlink has removed the file: leave out one",
            );
        }
        if let Some(rival) = self.compare {
            self.compares(rival).map_err(|why| Failure::Setup(format!("job {name}: compare: {why}")))?;
        }
        if self.memory.node.is_some() && !self.memory.gpus.is_empty() {
            return refuse("numa_mem_policy is of host memory: leave it out, or mem");
        }
        if self.verify && self.rw.is_mixed() {
            self.notes.push(
                "verify: of a mix what was written is read back at the end; its reads are not checked".into(),
            );
        }
        if let Some((named, theirs)) = &self.ioengine {
            let one = *theirs == Theirs::Sync && self.iodepth > 1;
            let depth = if one { ", with one I/O in flight as there" } else { "" };
            self.notes.push(format!("ioengine={named}: fullbore's engine does the I/O{depth}"));
            if one {
                self.iodepth = 1;
            }
        }
        if self.mapped {
            self.notes.push("target=dax: files are mapped, through the page cache, whose rate this is; DAX devices have none".into());
        }
        if !self.direct {
            self.notes.push("direct=0: through the page cache, whose rate this is".into());
        }
        Ok(())
    }
}
