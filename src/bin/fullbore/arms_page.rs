//! The page of charts of the table of arms.

use crate::args::Plan;
use crate::failure::Failure;
use crate::html::{Axis, Chart, Figure, Line, Lines, Page, Row as Shares, Table};
use crate::report::{Row, date};
use crate::units::{human, nanos};

/// `head` is what the report of lines begins with.
pub fn page(head: &[String], plan: &Plan, rows: &[Row], failure: Option<&Failure>) -> Page {
    let split = |line: &String| match line.split_once(": ") {
        Some((name, value)) if !name.contains(' ') => (name.to_owned(), value.to_owned()),
        _ => ("program".to_owned(), line.clone()),
    };
    let mut facts: Vec<_> = head.iter().map(split).collect();
    facts.push(("date".into(), date(std::time::SystemTime::now())));
    facts.extend(failure.map(|failure| ("error".into(), failure.to_string())));
    let what = head.iter().find_map(|line| line.strip_prefix("file: ")).unwrap_or("arms");
    let what = what.split(" (").next().unwrap_or(what);
    Page {
        title: format!("fullbore bench: {} of {what}", plan.rw.name()),
        facts,
        figures: vec![curve(plan, rows), over_time(plan, rows), latency(plan, rows), occupancy(plan, rows)],
    }
}

/// What to call an arm.
fn name(plan: &Plan, row: &Row) -> String {
    let round = if plan.repeat > 1 { format!(", round {}", row.round + 1) } else { String::new() };
    match row.arm {
        "serial" => format!("serial{round}"),
        _ => format!("{} in flight{round}", row.iodepth * plan.jobs),
    }
}

fn gbps(row: &Row) -> f64 {
    row.outcome.spent.gbps(row.outcome.bytes)
}

fn curve(plan: &Plan, rows: &[Row]) -> Figure {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let name =
            if plan.repeat > 1 { format!("{}, round {}", row.arm, row.round + 1) } else { row.arm.into() };
        let point = ((row.iodepth * plan.jobs) as f64, gbps(row));
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let best = rows.iter().max_by(|a, b| gbps(a).total_cmp(&gbps(b)));
    let head = ["arm", "GB/s", "of the best", "x serial", "CPU s/GiB", "commands", "objects", "path"];
    let cells = |row: &Row| {
        let outcome = &row.outcome;
        vec![
            name(plan, row),
            format!("{:.3}", gbps(row)),
            format!("{:.0}%", 100.0 * gbps(row) / best.map_or(1.0, gbps).max(1e-9)),
            row.times_serial.map_or_else(|| "-".into(), |times| format!("{times:.2}")),
            format!("{:.3}", outcome.spent.cpu_s_per_gib(outcome.bytes)),
            outcome.max_commands.max(outcome.max_units).to_string(),
            outcome.max_objects.to_string(),
            outcome.path.clone(),
        ]
    };
    let ticks = lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
    Figure {
        id: "sweep",
        title: "Throughput by objects in flight".into(),
        caption: "The dashed line is the best arm: what the others fall short of.".into(),
        chart: Chart::Lines(Lines {
            x: Axis { label: "in flight".into(), log: true, ticks },
            y: Axis { label: "GB/s".into(), ..Axis::default() },
            lines,
            dots: true,
            steps: false,
            rule: best.map(|row| (gbps(row), format!("best: {:.3} GB/s, {}", gbps(row), name(plan, row)))),
        }),
        table: Table { head: head.map(String::from).into(), rows: rows.iter().map(cells).collect() },
    }
}

fn over_time(plan: &Plan, rows: &[Row]) -> Figure {
    let mut lines = Vec::new();
    let mut cells = Vec::new();
    for row in rows {
        // A part with fewer objects would show the objects, and not the rate.
        let parts = (row.outcome.bytes / plan.item().max(1) / 8).clamp(1, 60) as usize;
        let rates = row.outcome.series.rates(parts);
        let of = |pick: fn(f64, f64) -> f64, from| {
            if rates.is_empty() {
                return "-".into();
            }
            format!("{:.3}", rates.iter().map(|(_, rate)| *rate).fold(from, pick) / 1e9)
        };
        cells.push(vec![
            name(plan, row),
            format!("{:.3}", gbps(row)),
            of(f64::min, f64::MAX),
            of(f64::max, 0.0),
            human(row.outcome.bytes),
            format!("{:.3}", row.outcome.spent.wall.as_secs_f64()),
        ]);
        lines.push(Line::of_rates(name(plan, row), &rates));
    }
    let head = ["arm", "GB/s", "least", "most", "bytes", "seconds"];
    Figure {
        id: "throughput",
        title: "Throughput over time".into(),
        caption: "Each arm from its start; least and most are of the parts that are drawn.".into(),
        chart: Chart::Lines(Lines::over_time(lines)),
        table: Table { head: head.map(String::from).into(), rows: cells },
    }
}

fn latency(plan: &Plan, rows: &[Row]) -> Figure {
    let what = if plan.requests.is_some() { "requests" } else { "objects" };
    let line = |row: &Row| Line::of_curve(name(plan, row), &row.outcome.curve);
    let cells = |row: &Row| {
        let times = row.outcome.latency;
        vec![name(plan, row), nanos(times.p50), nanos(times.p99), nanos(times.max)]
    };
    Figure {
        id: "latency",
        title: format!("Latency of {what}"),
        caption: format!("The share of {what} that took no longer, from submission to completion."),
        chart: Chart::Lines(Lines::of_latency(rows.iter().map(line).collect())),
        table: Table {
            head: ["arm", "p50", "p99", "max"].map(String::from).into(),
            rows: rows.iter().map(cells).collect(),
        },
    }
}

fn occupancy(plan: &Plan, rows: &[Row]) -> Figure {
    let of = |row: &Row| {
        let arm = name(plan, row);
        let lane = move |(lane, counts): &(String, Vec<u64>)| {
            let lane = lane.split(", ").next().unwrap_or(lane);
            Shares { name: format!("{arm}: {lane}"), counts: counts.clone() }
        };
        row.outcome.occupancy.iter().map(lane).collect::<Vec<_>>()
    };
    Figure::of_occupancy(rows.iter().flat_map(of).collect())
}
