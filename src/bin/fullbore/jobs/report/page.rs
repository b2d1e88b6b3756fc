//! The page of charts of a run of jobs.

use std::time::SystemTime;

use super::Shown;
use crate::dates::date;
use crate::failure::Failure;
use crate::html::{Chart, Figure, Line, Lines, Page, Row, Table};
use crate::jobs::run::stats::{Bins, READ, WRITE, Way};
use crate::report;
use crate::sweep::Sweep;
use crate::units::{self, human, nanos};

const GB: f64 = 1e9;
const NAMES: [&str; 2] = ["read", "write"];

/// `report`: the same in lines.
pub fn page(shown: &[Shown<'_>], sweep: Option<&Sweep>, failure: Option<&Failure>, report: String) -> Page {
    let mut names: Vec<&str> = Vec::new();
    for name in shown.iter().map(|one| one.job.name.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut figures: Vec<_> = sweep.map(Sweep::figure).into_iter().collect();
    figures.extend([over_time(shown), latency(shown), occupancy(shown)]);
    let title = format!("fullbore bench: {}", names.join(", "));
    Page { title, facts: facts(shown, failure), figures, report }
}

fn facts(shown: &[Shown<'_>], failure: Option<&Failure>) -> Vec<(String, String)> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("program", format!("fullbore {} on Linux {}", env!("CARGO_PKG_VERSION"), report::kernel())),
        fact("date", date(SystemTime::now())),
    ];
    // The same is said once.
    let mut add = |name: &str, value: String| {
        if !facts.iter().any(|known| known.1 == value) {
            facts.push(fact(name, value));
        }
    };
    for one in shown {
        let job = one.job;
        let (name, rw, clones) = (&job.name, job.rw.name(), units::count(job.numjobs as u64, "clone"));
        match &job.swept {
            None => {
                add("job", format!("{name}: {rw}, {} of {} in flight, {clones}", job.iodepth, human(job.bs)))
            }
            Some((key, _)) => add("job", format!("{name}: {rw}, once for each value of {key}")),
        }
    }
    for one in shown {
        add("path", one.facts.path.clone());
        one.notes.iter().chain(&one.facts.note).for_each(|note| add("note", note.clone()));
        if let Some((_, words)) = &one.failed {
            add("error", words.clone());
        }
    }
    if let Some(failure) = failure {
        add("error", failure.to_string());
    }
    facts
}

/// What to call each, by its number and way.
fn name(shown: &[Shown<'_>], number: usize, way: usize) -> String {
    let one = &shown[number];
    let mut name = one.job.name.clone();
    if let Some((key, value)) = &one.job.swept {
        name += &format!(", {key}={value}");
    }
    let same = |other: &&Shown<'_>| one.is_twin(other);
    if shown.iter().filter(same).count() > 1 {
        name += &format!(" #{}", shown[..number].iter().filter(same).count() + 1);
    }
    if one.counts.ways.iter().filter(|way| way.ios > 0).count() > 1 {
        name += &format!(", {}", NAMES[way]);
    }
    name
}

/// Those with I/O, each with its number and way.
fn ways<'a>(shown: &'a [Shown<'_>]) -> impl Iterator<Item = (usize, usize, &'a Way)> {
    let both = |(number, one): (usize, &'a Shown<'_>)| {
        [READ, WRITE].map(|way| (number, way, &one.counts.ways[way])).into_iter()
    };
    shown.iter().enumerate().flat_map(both).filter(|(_, _, way)| way.ios > 0)
}

fn over_time(shown: &[Shown<'_>]) -> Figure {
    let mut table = Table {
        head: ["job", "GB/s", "least", "most", "bytes", "seconds", "CPU s/GiB"].map(String::from).into(),
        rows: Vec::new(),
    };
    let mut lines = Vec::new();
    for (number, way, counts) in ways(shown) {
        let (one, name) = (&shown[number], name(shown, number, way));
        // A part with fewer objects would show the objects, and not the rate.
        let parts = (counts.ios / 8).clamp(1, 60) as usize;
        let rates = one.series[way].rates(parts);
        let extreme = |pick: fn(f64, f64) -> f64, from| {
            format!("{:.3}", rates.iter().map(|(_, rate)| *rate).fold(from, pick) / GB)
        };
        table.rows.push(vec![
            name.clone(),
            format!("{:.3}", one.rate(way) / GB),
            if rates.is_empty() { "-".into() } else { extreme(f64::min, f64::MAX) },
            if rates.is_empty() { "-".into() } else { extreme(f64::max, 0.0) },
            human(counts.bytes),
            format!("{:.3}", one.timing.ways[way].as_secs_f64()),
            format!("{:.3}", one.cpu_s_per_gib()),
        ]);
        lines.push(Line::of_rates(name, &rates));
    }
    Figure {
        id: "throughput",
        title: "Throughput over time".into(),
        caption: "Each job from when its counting began; least and most are of the parts that are drawn."
            .into(),
        chart: Chart::Lines(Lines::over_time(lines)),
        table,
    }
}

fn latency(shown: &[Shown<'_>]) -> Figure {
    let mut table = Table {
        head: ["job", "I/Os", "mean", "p50", "p90", "p99", "p99.9", "max"].map(String::from).into(),
        rows: Vec::new(),
    };
    let mut lines = Vec::new();
    for (number, way, counts) in ways(shown) {
        let name = name(shown, number, way);
        let times = counts.lat_bins.percentiles(&[50.0, 90.0, 99.0, 99.9]);
        let mut row = vec![name.clone(), counts.ios.to_string(), nanos(counts.lat.mean as u64)];
        row.extend(times.iter().map(|ns| nanos(*ns)));
        row.push(nanos(counts.lat.max));
        table.rows.push(row);
        lines.push(Line::of_curve(name, &shares(&counts.lat_bins)));
    }
    Figure {
        id: "latency",
        title: "Latency of objects".into(),
        caption: "The share of objects that took no longer, from submission to completion.".into(),
        chart: Chart::Lines(Lines::of_latency(lines, "objects")),
        table,
    }
}

fn shares(bins: &Bins) -> Vec<(u64, f64)> {
    let all: u64 = bins.filled().map(|(_, n)| n).sum();
    let mut sum = 0;
    let share = |(ns, n)| {
        sum += n;
        (ns, sum as f64 / all.max(1) as f64)
    };
    bins.filled().map(share).collect()
}

fn occupancy(shown: &[Shown<'_>]) -> Figure {
    let mut rows = Vec::new();
    for (number, one) in shown.iter().enumerate() {
        // The lanes are of the engine, which all clones of a job share.
        if number > 0 && shown[number - 1].number == one.number {
            continue;
        }
        let job = name(&shown[number..=number], 0, READ).trim_end_matches(", read").to_owned();
        for (index, lane) in one.facts.each_lane.iter().enumerate() {
            let depth = lane.occupancy.keys().max().map_or(0, |most| most + 1).max(lane.depth as usize + 1);
            let counts = (0..depth).map(|depth| lane.occupancy.get(&depth).copied().unwrap_or(0)).collect();
            rows.push(Row { name: format!("{job}: lane {index}"), counts });
        }
    }
    Figure::of_occupancy(rows)
}
