//! The report: a table for people as the run goes, or one JSON object at its end.

use std::fs;
use std::time::SystemTime;

use fullbore::LaneStats;
use serde_json::{Value, json};

use crate::args::Plan;
use crate::arm::Outcome;
use crate::ceilings::Way;
use crate::compare::Compared;
use crate::counted;
use crate::dates::date;
use crate::failure::Failure;
use crate::honest::Honest;
use crate::json;
use crate::kv_workload::KvPlan;
use crate::place::{Place, Truth};
use crate::rig::Rig;
use crate::sheets::{self, Out, Sheet};
use crate::timeline::{Section, Tape};
use crate::units::{count, human, nanos, short};
use crate::verify::Verified;

/// One row of the table.
#[derive(Debug, Clone, Default)]
pub struct Row {
    pub arm: &'static str,
    /// Objects in flight of each job.
    pub iodepth: usize,
    pub outcome: Outcome,
    /// Unless there is no serial arm.
    pub times_serial: Option<f64>,
    /// Which of the rounds over the arms, from 0.
    pub round: usize,
    pub verified: Option<Verified>,
}

/// What is said of the run as a whole.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Those that serve the target.
    pub lanes: Vec<LaneStats>,
    /// Bytes of the engine's commands, within the limits of the target.
    pub command: u32,
    /// The path to be expected, and why.
    pub path: String,
    /// The target is mapped, not read.
    pub mapped: bool,
    pub pool_objects: usize,
    pub pool_bytes: u64,
    pub note: Option<String>,
}

/// The report and where it goes.
pub struct Report<'a> {
    plan: &'a Plan,
    place: &'a Place,
    out: &'a mut Out,
    pub facts: Facts,
    pub rows: Vec<Row>,
    pub compared: Option<Compared>,
    pub honest: Honest,
}

impl<'a> Report<'a> {
    pub fn new(plan: &'a Plan, place: &'a Place, facts: Facts, out: &'a mut Out) -> Self {
        let (rows, compared, honest) = Default::default();
        let report = Self { plan, place, out, facts, rows, compared, honest };
        report.out.begin(report.head(), plan.swept.as_ref());
        report.out.say(&[String::new(), title(plan.requests.is_some())]);
        report
    }

    /// Lines for people.
    pub fn say(&mut self, lines: &[String]) {
        self.out.say(lines);
    }

    /// The fastest arm, in 10^9 bytes a second.
    pub fn best(&self) -> f64 {
        sheets::best(&self.rows)
    }

    pub fn add(&mut self, row: Row) {
        self.say(&[line(&row)]);
        // Of host memory it is waiting alone, which p50 shows.
        let whose = if self.plan.requests.is_some() { "a request's" } else { "an object's" };
        let split =
            self.plan.memory.on_gpu().then(|| format!("  of {whose} time: {}", row.outcome.split.line()));
        self.say(split.as_slice());
        let probe = self.plan.requests.as_ref().is_some_and(|requests| requests.probe);
        let looped = row.outcome.looped.as_ref();
        let of_kv =
            self.plan.kv.as_ref().zip(looped).map(|(kv, looped)| kv.lines(&looped.loads, row.iodepth));
        self.say(&of_kv.unwrap_or_default());
        self.say(&looped.map_or_else(Vec::new, |looped| json::lines(looped, probe)));
        // In a file there is room for it.
        let completions = looped.filter(|_| self.plan.output.is_some()).map(json::completions);
        self.say(completions.as_slice());
        self.rows.push(row);
    }

    /// What the timeline of an arm is collected on, if there is to be one.
    pub fn tape(&self, rig: &Rig, arm: String) -> Result<Option<Tape>, Failure> {
        let Some(timeline) = &self.out.timeline else { return Ok(None) };
        let arm = match &self.plan.swept {
            None => arm,
            Some((key, value)) => format!("{key}={value}: {arm}"),
        };
        let requests = self.plan.requests.is_some();
        let tracks = if requests { self.plan.max_depth() + 1 } else { self.plan.jobs };
        let tape = timeline.tape(&rig.engine, arm, tracks)?;
        Ok(Some(if requests { tape.of_requests() } else { tape }))
    }

    /// Writes what was collected.
    pub fn keep(&mut self, section: Option<Section>) -> Result<(), Failure> {
        let both = self.out.timeline.as_mut().zip(section);
        both.map_or(Ok(()), |(timeline, section)| timeline.add(&section))
    }

    /// What it came to. `failure` is why the run ended early, if it did.
    pub fn sheet(self, way: Way, failure: Option<&Failure>) -> Sheet {
        let (head, json) = (self.head(), self.json(failure));
        let ceilings = self.honest.ceilings;
        Sheet { plan: self.plan.clone(), head, facts: self.facts, rows: self.rows, json, way, ceilings }
    }

    fn head(&self) -> Vec<String> {
        let (plan, place, facts) = (self.plan, self.place, &self.facts);
        let jobs = if plan.jobs > 1 { format!(", {} jobs", plan.jobs) } else { String::new() };
        let moved = match &plan.requests {
            Some(requests) => format!("requests of {}, each of objects", human(requests.size)),
            None => "objects".into(),
        };
        let memory = match (plan.memory.on_gpu(), plan.memory.scatter) {
            (false, None) => String::new(),
            (_, None) => format!(" of {}", plan.memory.name()),
            (_, Some(piece)) => format!(" of {}, scattered by {}", plan.memory.name(), short(piece)),
        };
        let what = if plan.requests.is_some() { "request" } else { "object" };
        let striped = place.stripe.map_or_else(String::new, |chunk| format!("stripe of {}, ", short(chunk)));
        let mut lines = vec![
            format!("fullbore {} on Linux {}", env!("CARGO_PKG_VERSION"), kernel()),
            format!(
                "file: {} ({striped}{}, {} of {})",
                place.name(),
                place.kind,
                human(place.size),
                human(place.file_bytes)
            ),
            format!(
                "{}: {moved} of {} in commands of {}; {}{jobs}; every arm rotates through {} ({}){memory}",
                plan.rw.name(),
                human(plan.bs),
                human(facts.command.into()),
                counted::describe(&facts.lanes),
                count(facts.pool_objects as u64, what),
                human(facts.pool_bytes)
            ),
        ];
        for drive in place.drives() {
            let node = drive.node.map_or_else(String::new, |node| format!(", NUMA node {node}"));
            lines.push(format!("drive: {}, serial {}{node}", drive.model, drive.serial));
        }
        lines.extend(plan.kv.as_ref().map(KvPlan::head));
        if plan.requests.as_ref().is_some_and(|requests| requests.size > place.size) {
            lines.push("note: the file holds less than a request, which reads the same bytes again".into());
        }
        lines.push(format!("path: {}", facts.path));
        if plan.memory.on_gpu() || place.is_dax() {
            lines.push("note: no serial arm: a plain loop reads files to host memory".into());
        }
        if place.name() != place.plain_name() {
            let plain = place.plain_name();
            lines.push(format!("note: the serial arm goes through the block layer, {plain} with O_DIRECT"));
        }
        if place.kind == "tmpfs" && !facts.mapped {
            lines
                .push("note: tmpfs is memory: this measures copies, and kernel workers, not a device".into());
        }
        if facts.mapped && !place.is_dax() {
            lines.push("note: mapped files are in the page cache, whose rate this is".into());
        }
        lines.extend(facts.note.iter().map(|note| format!("note: {note}")));
        lines
    }

    fn json(&self, failure: Option<&Failure>) -> Value {
        let (plan, place, facts) = (self.plan, self.place, &self.facts);
        let mut all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": kernel(),
            "date": date(SystemTime::now()),
            "cpus": std::thread::available_parallelism().map_or(0, usize::from),
            "swept": plan.swept.as_ref().map(|(key, value)| json!({ "key": key, "value": value })),
            "file": place.name(),
            "serial_file": place.plain_name(),
            "stripe": place.stripe,
            "drives": place.drives().map(|drive| json!({
                "model": drive.model,
                "serial": drive.serial,
                "namespace": drive.namespace,
                "node": drive.node,
                "block": drive.block_name,
            })).collect::<Vec<_>>(),
            "lanes": facts.lanes.iter().map(|lane| json!({
                "drive": lane.drive,
                "queue": lane.queue,
                "depth": lane.depth,
                "cpus": lane.cpus,
            })).collect::<Vec<_>>(),
            "polled": plan.polled,
            "processes": plan.processes,
            "file_system": place.kind,
            "file_bytes": place.file_bytes,
            "size": place.size,
            "made": place.was_made(),
            "content": match place.truth { Truth::Content(_) => "own", Truth::Pread => "foreign" },
            "rw": plan.rw.name(),
            "numjobs": plan.jobs,
            "pool_objects": facts.pool_objects,
            "pool_bytes": facts.pool_bytes,
            "mem": plan.memory.name(),
            "gpus": plan.memory.gpus,
            "scatter": plan.memory.scatter,
            "mapped": facts.mapped,
            "path": facts.path,
            "note": facts.note,
            "verify": plan.verify,
            "error": failure.map(Failure::to_string),
            "arms": self.rows.iter().map(|row| json::arm(plan, facts, row)).collect::<Vec<_>>(),
        });
        self.honest.json(&mut all, self.best());
        if let Some(compared) = &self.compared {
            all["compare"] = compared.json();
        }
        all
    }

    /// Says if kernel workers did some of the work.
    pub fn workers(&mut self) {
        let Some(most) = self.rows.iter().map(|row| row.outcome.workers).max().filter(|&most| most > 0)
        else {
            return;
        };
        let who = if self.place.drives().next().is_some() { "the driver" } else { "the file system" };
        self.say(&[format!(
            "{who} hands commands to {} (tmpfs, ext4 writes into unallocated blocks, and full queues do)",
            count(most as u64, "kernel worker")
        )]);
    }
}

fn title(requests: bool) -> String {
    let (depth, what) = if requests { ("inflight", "requests") } else { ("iodepth", "objects") };
    format!(
        "{:<7} {depth:>8} {:>7} {:>8} {:>9} {what:>8} {:>9} {:>9} {:>9}  {}",
        "arm", "GB/s", "x serial", "commands", "CPU s/GiB", "p50", "p99", "path"
    )
}

fn line(row: &Row) -> String {
    let outcome = &row.outcome;
    format!(
        "{:<7} {:>8} {:>7.2} {:>8} {:>9} {:>8} {:>9.3} {:>9} {:>9}  {}",
        row.arm,
        row.iodepth,
        outcome.gbps(),
        row.times_serial.map_or_else(|| "-".into(), |times| format!("{times:.2}")),
        // Where no command is needed, what GPUs' lanes work on.
        if outcome.max_commands > 0 { outcome.max_commands } else { outcome.max_units },
        outcome.max_objects,
        outcome.cpu_s_per_gib(),
        nanos(outcome.latency.p50),
        nanos(outcome.latency.p99),
        outcome.path
    )
}

pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{LatencySummary, Spent};
    use std::time::Duration;

    fn row() -> Row {
        let spent =
            Spent { wall: Duration::from_secs(1), cpu: Duration::from_millis(500), ..Spent::default() };
        let latency = LatencySummary { p50: 1_500_000, p99: 2_500_000, max: 3_000_000 };
        let path = "uring fixed".into();
        let outcome = Outcome {
            bytes: 5 << 30,
            spent,
            latency,
            max_commands: 64,
            mean_commands: 60.5,
            max_objects: 8,
            path,
            paths: [("uring fixed", 5 << 30)].into(),
            workers: 2,
            ..Outcome::default()
        };
        let verified = Some(Verified { bytes: 1 << 30, mismatches: 3, first: Some("x".into()) });
        Row { arm: "engine", iodepth: 8, outcome, times_serial: Some(4.5), verified, ..Row::default() }
    }

    #[test]
    fn columns_stand_under_their_titles() {
        let (title, line) = (title(false), line(&row()));
        for (name, value) in
            [("GB/s", "5.37"), ("x serial", "4.50"), ("CPU s/GiB", "0.100"), ("p50", "1.50 ms")]
        {
            let end = |text: &str, part: &str| text.find(part).map(|at| at + part.len());
            assert_eq!(end(&title, name), end(&line, value), "{name}\n{title}\n{line}");
        }
        assert!(line.ends_with("  uring fixed"));
    }

    #[test]
    fn json_has_what_the_table_has() {
        let (plan, place) = crate::place_tests::nowhere();
        let facts =
            Facts { lanes: vec![LaneStats { depth: 30, ..LaneStats::default() }; 2], ..Facts::default() };
        let mut out = Out::to(Box::new(std::io::sink()), true);
        let mut report = Report::new(&plan, &place, facts, &mut out);
        report.add(row());
        let all = report.json(Some(&Failure::data("bad")));
        let arm = &all["arms"][0];
        for key in ["arm", "iodepth", "bs", "cmd_size", "lanes", "lane_depth", "gbps", "times_serial", "path"]
        {
            assert!(!arm[key].is_null(), "{key}");
        }
        for key in ["max_commands_in_flight", "max_objects_in_flight", "cpu_s_per_gib", "verified_bytes"] {
            assert!(arm[key].is_number(), "{key}");
        }
        assert_eq!((arm["lanes"].as_u64(), arm["lane_depth"].as_u64()), (Some(2), Some(30)));
        assert_eq!(
            (arm["paths"]["uring fixed"].as_u64(), arm["kernel_workers"].as_u64()),
            (Some(5 << 30), Some(2))
        );
        assert_eq!(all["lanes"][1]["depth"].as_u64(), Some(30));
        assert_eq!(arm["lat_ns"], json!({"p50": 1_500_000, "p99": 2_500_000, "max": 3_000_000}));
        assert_eq!((arm["mismatches"].as_u64(), all["error"].as_str()), (Some(3), Some("bad")));
        for key in ["version", "kernel", "date", "file", "size"] {
            assert!(!all[key].is_null(), "{key}");
        }
    }
}
