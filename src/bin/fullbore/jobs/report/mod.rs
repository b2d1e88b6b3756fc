//! Reports of jobs in fio's forms.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::run::disks::Disk;
use super::run::files;
use super::run::section::Section;
use super::run::stats::{READ, WRITE};
use super::script::{Script, Setting};
use super::spec::Job;
use crate::ceilings;
use crate::failure::Failure;
use crate::honest::Counted;
use crate::pairs::Beside;
use crate::sink;
use crate::sweep::Sweep;
use crate::timeline::{Tape, Timeline};

mod csv;
mod eta;
mod fiojson;
mod normal;
mod numbers;
mod page;
mod said;
mod shown;
mod swept;

use eta::Eta;
pub use eta::Moment;
use said::Form;
pub use said::Said;
pub use shown::{Beyond, Facts, Lane, Shown, Timing};

/// The report of a run, and where it goes.
pub struct Report<'a> {
    script: &'a Script,
    jobs: &'a [Job],
    forms: Vec<Form>,
    out: Box<dyn Write>,
    shown: Vec<Shown<'a>>,
    pub disks: Vec<Disk>,
    pub beyond: Vec<Beyond>,
    /// What the drives counted themselves.
    pub smart: Option<Counted>,
    began: Instant,
    /// How often a full report is written, and when it was.
    every: Option<Duration>,
    reported: Instant,
    /// How long what runs still takes.
    left: Duration,
    eta: Eta,
    timeline: Option<Timeline>,
    /// What is said of it.
    traced: String,
}

impl<'a> Report<'a> {
    pub fn new(script: &'a Script, jobs: &'a [Job]) -> Result<Self, Failure> {
        let Said { forms, every, eta } = Said::of(script)?;
        if forms.iter().all(|form| *form == Form::Csv) {
            let any = |what: fn(&Job) -> bool| jobs.iter().any(what);
            sink::warn_of_rows_alone(any(|job| job.compare.is_some()), any(|job| job.ceilings));
        }
        let mut taken: Vec<PathBuf> = script.files.clone();
        for job in jobs {
            taken.extend((0..job.numjobs).flat_map(|clone| files::names(job, clone)));
            taken.extend(job.replay.as_ref().map(|replay| replay.file.clone()));
        }
        let out: Box<dyn Write> = match script.run_setting("output") {
            None => Box::new(io::stdout()),
            Some(setting) => Box::new(setting.parse(|text| sink::create(text.as_ref(), &taken))?),
        };
        taken.extend(script.run_setting("output").map(|setting| setting.text().into()));
        let timeline = |setting: &Setting| Timeline::new(setting.text().as_ref(), jobs.len(), &taken);
        Ok(Self {
            script,
            jobs,
            forms,
            out,
            shown: Vec::new(),
            disks: Vec::new(),
            beyond: Vec::new(),
            smart: None,
            began: Instant::now(),
            every,
            reported: Instant::now(),
            left: Duration::ZERO,
            eta,
            timeline: script.run_setting("timeline").map(timeline).transpose()?,
            traced: String::new(),
        })
    }

    /// Says what will run.
    pub fn begin(&mut self) {
        if self.forms.contains(&Form::Normal) {
            self.write(&normal::head(self.jobs));
        }
    }

    pub fn add(&mut self, shown: Vec<Shown<'a>>) {
        self.shown.extend(shown);
    }

    /// Whether it is time for a full report.
    pub fn wants_status(&self) -> bool {
        self.every.is_some_and(|every| self.reported.elapsed() >= every)
    }

    /// Writes one: of what has ended, and of what runs.
    pub fn status(&mut self, running: Vec<Shown<'a>>, left: Duration) -> Result<(), Failure> {
        self.reported = Instant::now();
        self.clear_progress();
        let ended = self.shown.len();
        self.shown.extend(running);
        self.left = left;
        let text = self.text(None);
        self.left = Duration::ZERO;
        self.shown.truncate(ended);
        self.put(&text)
    }

    /// What a timeline is collected on, for each section, if there is to be one.
    pub fn tapes(&self, sections: &[Section<'_>]) -> Result<Vec<Tape>, Failure> {
        let Some(timeline) = &self.timeline else { return Ok(Vec::new()) };
        let one = |section: &Section<'_>| {
            let job = section.job;
            let swept = job.swept.as_ref().map_or_else(String::new, |(key, value)| format!(" {key}={value}"));
            timeline.tape(&section.engine, format!("{}{swept}", job.name), job.numjobs)
        };
        sections.iter().map(one).collect()
    }

    /// Writes what they collected.
    pub fn keep(&mut self, tapes: Vec<Tape>, sections: &[Section<'_>]) -> Result<(), Failure> {
        let Some(timeline) = &mut self.timeline else { return Ok(()) };
        let mut both = tapes.into_iter().zip(sections);
        both.try_for_each(|(tape, section)| timeline.add(&tape.section(&section.engine)))
    }

    /// Writes the last one.
    pub fn end(&mut self, failure: Option<&Failure>) -> Result<(), Failure> {
        // A trace that cannot be written does not take the report with it.
        let mut untraced = None;
        match self.timeline.take().map(Timeline::end) {
            Some(Ok(said)) => {
                self.traced = format!("\n{said}\n");
                if let Some(last) = self.shown.last_mut() {
                    last.notes.push(said);
                }
            }
            Some(Err(failure)) => untraced = Some(failure),
            None => {}
        }
        let text = self.text(failure.or(untraced.as_ref()));
        self.put(&text)?;
        untraced.map_or(Ok(()), Err)
    }

    fn text(&self, failure: Option<&Failure>) -> String {
        let mut text = String::new();
        let sweep = self.sweep();
        for form in &self.forms {
            match form {
                Form::Normal => text += &self.lines(sweep.as_ref()),
                Form::Json => text += &format!("{:#}\n", self.json(false, failure)),
                Form::JsonPlus => text += &format!("{:#}\n", self.json(true, failure)),
                Form::Csv => text += &csv::table(&self.shown),
                Form::Html => {
                    text +=
                        &page::page(&self.shown, sweep.as_ref(), failure, self.lines(sweep.as_ref())).text()
                }
            }
        }
        text
    }

    /// What people read.
    fn lines(&self, sweep: Option<&Sweep>) -> String {
        normal::body(&self.shown, sweep, &self.disks) + &self.beyond_lines() + &self.traced
    }

    /// The fastest of a job's reports, in 10^9 bytes a second.
    fn best(&self, beyond: &Beyond) -> f64 {
        let of_it =
            self.shown.iter().filter(|one| one.job.name == beyond.job && one.job.swept == beyond.swept);
        of_it.map(|one| (one.rate(READ) + one.rate(WRITE)) / 1e9).fold(0.0, f64::max)
    }

    /// Bytes that all jobs on NVMe namespaces read and wrote, first runs and checks of content included.
    pub fn moved(&self, is_theirs: impl Fn(&Job) -> bool) -> (u64, u64) {
        self.shown.iter().filter(|one| is_theirs(one.job)).fold((0, 0), |(read, written), one| {
            let (counts, first) = (&one.counts, one.first.unwrap_or_default().bytes);
            (
                read + first[READ] + counts.ways[READ].bytes + counts.checked.bytes,
                written + first[WRITE] + counts.ways[WRITE].bytes,
            )
        })
    }

    fn beyond_lines(&self) -> String {
        let mut lines: Vec<String> =
            self.smart.iter().map(|counted| format!("\n{}", counted.line())).collect();
        for one in &self.beyond {
            // Those of a sweep are in its table.
            if one.swept.is_none() {
                lines.push(format!("\n{}: {}", one.job, ceilings::line(&one.ceilings, self.best(one))));
            }
            lines.extend(one.beside.iter().flat_map(Beside::lines));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }

    fn json(&self, bins: bool, failure: Option<&Failure>) -> Value {
        let mut all = self.fio_json(bins, failure);
        for (number, one) in self.shown.iter().enumerate() {
            let best = (one.rate(READ) + one.rate(WRITE)) / 1e9;
            let measured = self.ceilings(one).and_then(|found| found.as_ref().ok());
            all["jobs"][number]["fullbore"]["ceilings"] = measured.map_or(Value::Null, |it| it.json(best));
        }
        let ours = &mut all["fullbore"];
        ours["smart"] = self.smart.as_ref().map_or(Value::Null, Counted::json);
        let of = |one: &Beyond| {
            json!({
                "job": one.job,
                "swept": one.swept.as_ref().map(|(key, value)| json!({ "key": key, "value": value })),
                "ceilings": one.ceilings.as_ref().ok().map(|it| it.json(self.best(one))),
                "no_ceilings": one.ceilings.as_ref().err(),
                "compare": one.beside.as_ref().map(Beside::json),
            })
        };
        ours["sweep"] = self.sweep().map_or(Value::Null, |sweep| sweep.json());
        ours["beyond"] = self.beyond.iter().map(of).collect();
        all
    }

    fn fio_json(&self, bins: bool, failure: Option<&Failure>) -> Value {
        fiojson::all(
            self.script,
            &self.shown,
            &self.disks,
            (SystemTime::now(), self.began.elapsed(), self.left),
            bins,
            failure,
        )
    }

    /// A reader that went away (`| head`) is no reason to stop measuring or to fail.
    fn write(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    fn put(&mut self, text: &str) -> Result<(), Failure> {
        sink::written(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()))
    }

    pub fn eta(&mut self) -> &mut Eta {
        &mut self.eta
    }

    pub fn clear_progress(&mut self) {
        self.eta.clear();
    }
}
