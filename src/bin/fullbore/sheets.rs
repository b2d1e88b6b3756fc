//! What a table of arms came to, one for each value of a sweep, and the report of all of them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::args::{Format, Plan};
use crate::arms_page;
use crate::ceilings::{Found, Way};
use crate::dates::date;
use crate::failure::Failure;
use crate::json;
use crate::report::{Facts, Row, kernel};
use crate::sink;
use crate::sweep::{self, Sweep, Swept};
use crate::timeline::Timeline;

/// Where reports go: one, or one for each value of a sweep.
pub struct Out {
    to: Box<dyn Write>,
    /// Lines for people are written.
    people: bool,
    /// Lines for people, of a report that is written as a whole and has them too.
    kept: Option<String>,
    /// Why lines could not be written, if so: said at the end.
    unsaid: Option<io::Error>,
    pub timeline: Option<Timeline>,
    /// The head of the report before.
    head: Vec<String>,
}

impl Out {
    /// Opens it, before anything is measured of those files.
    pub fn open<'a>(plan: &Plan, files: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, Failure> {
        if plan.format == Format::Csv {
            sink::warn_of_rows_alone(plan.compare.is_some(), plan.ceilings);
        }
        let to: Box<dyn Write> = match &plan.output {
            None => Box::new(io::stdout()),
            Some(path) => {
                let refused = |why| Failure::Setup(format!("--output={}: {why}", path.display()));
                Box::new(sink::create(path, files).map_err(refused)?)
            }
        };
        let kept = (plan.format == Format::Html).then(String::new);
        Ok(Self { kept, ..Self::to(to, plan.format == Format::Normal) })
    }

    pub fn to(to: Box<dyn Write>, people: bool) -> Self {
        Self { to, people, kept: None, unsaid: None, timeline: None, head: Vec::new() }
    }

    /// Lines for people. A reader that went away (`| head`) is no reason to stop measuring or to fail.
    pub fn say(&mut self, lines: &[String]) {
        if let Some(kept) = &mut self.kept {
            lines.iter().for_each(|line| *kept += &format!("{line}\n"));
        }
        if self.people {
            let said = lines.iter().try_for_each(|line| writeln!(self.to, "{line}"));
            if let Err(error) = said.and_then(|()| self.to.flush()) {
                self.unsaid.get_or_insert(error);
            }
        }
    }

    /// A report that is written as a whole. Answers for lines that were said before, too.
    fn put(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush());
        sink::written(self.unsaid.take().map_or(written, Err))
    }

    /// A head, of which nothing is said twice.
    pub fn begin(&mut self, head: Vec<String>, swept: Option<&Swept>) {
        if let Some((key, value)) = swept {
            self.say(&[format!("{}{key}={value}:", if self.head.is_empty() { "" } else { "\n" })]);
        }
        let new: Vec<String> = head.iter().filter(|line| !self.head.contains(line)).cloned().collect();
        self.say(&new);
        self.head = head;
    }
}

/// A table of arms.
pub struct Sheet {
    pub plan: Plan,
    /// What the report of lines begins with.
    pub head: Vec<String>,
    pub facts: Facts,
    pub rows: Vec<Row>,
    pub json: Value,
    pub way: Way,
    pub ceilings: Option<Found>,
}

impl Plan {
    /// The same as a part of a sweep, if it is one. The serial arm has none of most keys, and runs there only where `--arm`
    /// has it.
    pub fn of_sweep(mut self, swept: Option<Swept>) -> Self {
        if swept.is_some() {
            self.serial.get_or_insert(false);
        }
        Self { swept, ..self }
    }

    /// What is in flight, and has the times of a row.
    pub fn in_flight(&self) -> &'static str {
        if self.requests.is_some() { "requests" } else { "objects" }
    }
}

/// Writes what is left to write. `failure` is why the run ended early, if it did.
pub fn finish(out: &mut Out, sheets: &[Sheet], failure: Option<&Failure>) -> Result<(), Failure> {
    // A trace that cannot be written does not take the report with it.
    let (traced, untraced) = match out.timeline.take().map(Timeline::end).transpose() {
        Ok(said) => (said, None),
        Err(failure) => (None, Some(failure)),
    };
    let failure = failure.or(untraced.as_ref());
    if let Some(first) = sheets.first() {
        let sweep = sweep(sheets);
        out.say(sweep.as_ref().map(|sweep| sweep.table().trim_end().to_owned()).as_slice());
        out.say(traced.as_slice());
        let text = match first.plan.format {
            Format::Normal => String::new(),
            Format::Json => format!("{:#}\n", all(sheets, sweep.as_ref(), traced, failure)),
            Format::Csv => {
                let rows = sheets.iter().map(|sheet| json::csv(&sheet.plan, &sheet.facts, &sheet.rows));
                json::csv_head() + &rows.collect::<String>()
            }
            Format::Html => {
                let lines = out.kept.take().unwrap_or_default();
                arms_page::page(sheets, sweep.as_ref(), failure, lines).text()
            }
        };
        out.put(&text)?;
    }
    untraced.map_or(Ok(()), Err)
}

/// One table as it is; of a sweep one for each value, and the curve.
fn all(sheets: &[Sheet], sweep: Option<&Sweep>, traced: Option<String>, failure: Option<&Failure>) -> Value {
    let mut all = match (sheets, sweep) {
        ([only], None) => only.json.clone(),
        (_, sweep) => json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": kernel(),
            "date": date(SystemTime::now()),
            "sweep": sweep.map(Sweep::json),
            "runs": sheets.iter().map(|sheet| &sheet.json).collect::<Vec<_>>(),
        }),
    };
    all["error"] = failure.map(Failure::to_string).into();
    all["timeline"] = traced.into();
    json!({ "fullbore": all })
}

/// What the values came to, if it is a sweep.
fn sweep(sheets: &[Sheet]) -> Option<Sweep> {
    let first = sheets.first()?;
    let (key, _) = first.plan.swept.as_ref()?;
    let rows = sheets.iter().flat_map(|sheet| sheet.rows.iter().filter_map(move |row| sheet.swept(row)));
    let per_second = if first.plan.requests.is_some() { "requests/s" } else { "IOPS" };
    Some(Sweep { key, of: "arm", per_second, rows: rows.collect() })
}

/// The fastest arm, in 10^9 bytes a second.
pub fn best(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.outcome.gbps()).fold(0.0, f64::max)
}

impl Sheet {
    pub fn best(&self) -> f64 {
        best(&self.rows)
    }

    /// What to call the curve that an arm is a point of.
    pub fn line(&self, row: &Row) -> String {
        let plan = &self.plan;
        let depth = if plan.requests.is_some() { "inflight" } else { "iodepth" };
        let of_many = row.arm != "serial" && plan.depths.len() > 1;
        let depth = if of_many { format!(", {depth}={}", row.iodepth) } else { String::new() };
        let round = if plan.repeat > 1 { format!(", round {}", row.round + 1) } else { String::new() };
        format!("{}{depth}{round}", row.arm)
    }

    /// A point of that curve.
    pub fn point(&self, line: String, value: String, row: &Row) -> sweep::Row {
        let outcome = &row.outcome;
        let seconds = outcome.spent.wall.as_secs_f64().max(1e-9);
        let items = match &outcome.looped {
            Some(looped) => looped.completed.len() as f64,
            None => outcome.bytes as f64 / self.plan.bs as f64,
        };
        sweep::Row {
            line,
            value,
            rate: outcome.bytes as f64 / seconds,
            per_second: items / seconds,
            times: Some([outcome.latency.p50, outcome.latency.p99]),
            cpu_s_per_gib: outcome.cpu_s_per_gib(),
            ceilings: self.ceilings.clone(),
            failed: false, // what fails ends the run
        }
    }

    fn swept(&self, row: &Row) -> Option<sweep::Row> {
        let (_, value) = self.plan.swept.clone()?;
        Some(self.point(self.line(row), value, row))
    }
}
