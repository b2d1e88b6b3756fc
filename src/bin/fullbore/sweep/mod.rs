//! `--sweep=KEY=A,B,C`: the same once for each value, of jobs and of the table of arms: which values, and the table and
//! curve of what each came to, held against the ceilings.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::ceilings::{self, Ceilings, Found};
use crate::failure::Failure;
use crate::jobs::keys::{self, Key};
use crate::units::nanos;

pub mod figure;
#[cfg(test)]
mod tests;

/// Most values, so that a slip of the pen is no run of a week.
const MOST: usize = 64;

/// The key and value that something was run with.
pub type Swept = (&'static str, String);

/// What is swept.
#[derive(Debug)]
pub struct Asked {
    pub key: &'static Key,
    pub values: Vec<String>,
}

/// Parses `KEY=A,B,C`. A comma in a value is `\,`.
pub fn parse(text: &str) -> Result<Asked, String> {
    let wrong = "write a key and its values, like iodepth=1,2,4";
    let (name, values) = text.split_once('=').ok_or(wrong)?;
    let name = name.trim();
    let key = keys::find(name).map_err(|why| format!("{name}: {why}"))?;
    if key.name == "name" || key.is_of_the_run() {
        return Err(format!("{name} is of the whole run, which has it once: sweep another key"));
    }
    let values = parts(values);
    if values.len() > MOST {
        return Err(format!("more than {MOST} values: leave some out"));
    }
    for (number, value) in values.iter().enumerate() {
        if value.is_empty() {
            return Err(format!("a value of {name} is empty: {wrong}"));
        }
        if values[..number].contains(value) {
            return Err(format!("{name}={value} is there twice: leave one out"));
        }
    }
    Ok(Asked { key, values })
}

fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&',') => part.extend(letters.next()),
            ',' => parts.push(std::mem::take(&mut part)),
            other => part.push(other),
        }
    }
    parts.push(part);
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

/// A refusal of the text of a sweep.
pub fn refuse(text: &str, why: impl std::fmt::Display) -> Failure {
    Failure::Setup(format!("--sweep={text}: {why}"))
}

/// A command line, and what was put behind it.
pub type Line = (Vec<OsString>, Option<Swept>);

/// The command lines of the table of arms, one for each value, or the one there is. The sweep's own words stay where they
/// are: it is the value behind them that counts, since the last of a key's does.
pub fn lines(words: Vec<OsString>) -> Result<Vec<Line>, Failure> {
    let mut found: Vec<String> = Vec::new();
    let mut left = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = left.next() {
        match word.trim_start_matches('-').split_once('=') {
            Some(("sweep", text)) => found.push(text.to_owned()),
            None if word == "--sweep" => found.extend(left.next().map(String::from)),
            _ => {}
        }
    }
    let Some(text) = found.pop() else { return Ok(vec![(words, None)]) };
    if !found.is_empty() {
        return Err(refuse(&text, TWICE));
    }
    let asked = parse(&text).map_err(|why| refuse(&text, why))?;
    let name = asked.key.name;
    if !asked.key.is_of_arms() {
        return Err(refuse(&text, format!("{name} is of jobs: name one with --name=NAME first")));
    }
    let line = |value: String| {
        let mut words = words.clone();
        words.push(format!("--{name}={value}").into());
        (words, Some((name, value)))
    };
    Ok(asked.values.into_iter().map(line).collect())
}

/// Why there is one sweep at most.
pub const TWICE: &str =
    "one key is swept at a time: leave out the other --sweep, and run it for each of its values";

/// A row of the table: a point of a curve.
#[derive(Debug, Clone)]
pub struct Row {
    /// The curve that it is a point of: a job, or an arm.
    pub line: String,
    pub value: String,
    /// Bytes a second, both ways together.
    pub rate: f64,
    /// Of objects, or of requests.
    pub per_second: f64,
    /// Latency in nanoseconds: median and 99th percentile.
    pub times: Option<[u64; 2]>,
    pub cpu_s_per_gib: f64,
    /// Of the way that it went. None: they were not looked for yet.
    pub ceilings: Option<Found>,
    /// Something of it failed: its figures are of what went well until then, and count for nothing.
    pub failed: bool,
}

impl Row {
    pub fn gbps(&self) -> f64 {
        self.rate / 1e9
    }

    pub fn limits(&self) -> Option<&Ceilings> {
        self.ceilings.as_ref().and_then(|found| found.as_ref().ok())
    }

    /// How much of what it could have, in words.
    pub fn of_ceiling(&self) -> String {
        if self.failed {
            return "failed".into();
        }
        let share = self.limits().map(|limits| 100.0 * limits.share(self.gbps()));
        share.map_or_else(|| "-".into(), |percent| format!("{percent:.0}%"))
    }

    /// Median and 99th percentile in words.
    pub fn words(&self) -> [String; 2] {
        self.times.map_or_else(|| ["-".into(), "-".into()], |times| times.map(nanos))
    }
}

/// What all values came to.
#[derive(Debug, Clone)]
pub struct Sweep {
    pub key: &'static str,
    /// What `line` is of: `job` or `arm`.
    pub of: &'static str,
    /// What is counted by the second: `IOPS`, or `requests/s`.
    pub per_second: &'static str,
    pub rows: Vec<Row>,
}

/// Cells of the longest bar.
const LONGEST: usize = 40;

impl Sweep {
    /// The fastest, in 10^9 bytes a second.
    pub fn best<'a>(rows: impl IntoIterator<Item = &'a Row>) -> f64 {
        rows.into_iter().filter(|row| !row.failed).map(Row::gbps).fold(0.0, f64::max)
    }

    /// The ceilings, or why there are none, each with the values that they are of.
    pub fn ceilings(&self) -> Vec<(&Found, Vec<&Row>)> {
        let mut all: Vec<(&Found, Vec<&Row>)> = Vec::new();
        for row in &self.rows {
            let Some(found) = &row.ceilings else { continue };
            match all.iter_mut().find(|(known, _)| *known == found) {
                Some((_, rows)) => rows.push(row),
                None => all.push((found, vec![row])),
            }
        }
        all
    }

    /// The table, with a bar for each rate: the curve. Where the ceiling is known, a `|` stands at it.
    pub fn table(&self) -> String {
        if self.rows.is_empty() {
            return String::new(); // it ended within the first value
        }
        let most = self.rows.iter().map(|row| row.gbps().max(row.limits().map_or(0.0, |it| it.binds().1)));
        let most = most.fold(0.0, f64::max);
        let width = |of: fn(&Row) -> &str, title: &str| {
            self.rows.iter().map(|row| of(row).len()).max().unwrap_or(0).max(title.len())
        };
        let (line, value) = (width(|row| &row.line, self.of), width(|row| &row.value, self.key));
        let mut out = format!(
            "\nSweep of {}:\n  {:<line$} {:>value$} {:>8} {:>10} {:>10} {:>9} {:>9} {:>9}\n",
            self.key,
            self.of,
            self.key,
            "GB/s",
            "of ceiling",
            self.per_second,
            "lat p50",
            "lat p99",
            "CPU s/GiB"
        );
        for row in &self.rows {
            let [p50, p99] = row.words();
            out += &format!(
                "  {:<line$} {:>value$} {:>8.3} {:>10} {:>10.1} {p50:>9} {p99:>9} {:>9.3} {}\n",
                row.line,
                row.value,
                row.gbps(),
                row.of_ceiling(),
                row.per_second,
                row.cpu_s_per_gib,
                bar(row, most)
            );
        }
        let ceilings = self.ceilings();
        for (found, rows) in &ceilings {
            let whose = if ceilings.len() > 1 { self.whose(rows) + ": " } else { String::new() };
            let mark = if found.is_ok() { " (| in the curve)" } else { "" };
            out += &format!("{whose}{}{mark}\n", ceilings::line(found, Self::best(rows.iter().copied())));
        }
        out
    }

    /// Which points some are, in words: the lines that they are, or the values that they are of.
    fn whose(&self, rows: &[&Row]) -> String {
        let all: Vec<&Row> = self.rows.iter().collect();
        let values = if values(rows) == values(&all) {
            None
        } else {
            Some(format!("{}={}", self.key, values(rows).join(",")))
        };
        let lines = (names(rows) != names(&all)).then(|| names(rows).join(", "));
        let parts: Vec<String> = lines.into_iter().chain(values).collect();
        parts.join(" of ")
    }

    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                self.of: row.line,
                "value": row.value,
                "gbps": row.gbps(),
                "per_second": row.per_second,
                "lat_ns": row.times.map(|[p50, p99]| json!({ "p50": p50, "p99": p99 })),
                "cpu_s_per_gib": row.cpu_s_per_gib,
                "ceiling_gbps": row.limits().map(|limits| limits.binds().1),
                "of_ceiling": row.limits().map(|limits| limits.share(row.gbps())),
                "failed": row.failed,
            })
        };
        let ceilings = self.ceilings();
        let measured = ceilings.iter().map(|(found, rows)| {
            let mut all = match found {
                Ok(limits) => limits.json(Self::best(rows.iter().copied())),
                Err(why) => json!({ "not_measured": why }),
            };
            all["values"] = values(rows).into();
            all["lines"] = names(rows).into();
            all
        });
        json!({
            "key": self.key,
            "values": values(&self.rows.iter().collect::<Vec<_>>()),
            "counted": self.per_second,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "ceilings": measured.collect::<Vec<_>>(),
        })
    }
}

/// The values, each once, in their order.
fn values<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    each(rows.iter().map(|row| row.value.as_str()))
}

/// The lines, each once, in their order.
fn names<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    each(rows.iter().map(|row| row.line.as_str()))
}

fn each<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut once: Vec<&str> = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// `most` is what the longest bar stands for.
fn bar(row: &Row, most: f64) -> String {
    if row.failed {
        return String::new();
    }
    let cells = |gbps: f64| if most > 0.0 { (gbps / most * LONGEST as f64).round() as usize } else { 0 };
    let mut bar: Vec<char> = vec!['#'; cells(row.gbps())];
    if let Some(limits) = row.limits() {
        let at = cells(limits.binds().1);
        bar.resize(bar.len().max(at + 1), ' ');
        bar[at] = '|';
    }
    bar.into_iter().collect()
}
