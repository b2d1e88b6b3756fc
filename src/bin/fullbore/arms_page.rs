//! The page of charts of the table of arms.

use crate::args::Plan;
use crate::dates::date;
use crate::failure::Failure;
use crate::html::{Chart, Figure, Line, Lines, Page, Row as Shares, Table};
use crate::report::Row;
use crate::sheets::Sheet;
use crate::sweep::Sweep;
use crate::units::{human, nanos};

/// A table of arms, or one for each value of a sweep. `report`: the same in lines.
pub fn page(sheets: &[Sheet], sweep: Option<&Sweep>, failure: Option<&Failure>, report: String) -> Page {
    let split = |line: &String| match line.split_once(": ") {
        Some((name, value)) if !name.contains(' ') => (name.to_owned(), value.to_owned()),
        _ => ("program".to_owned(), line.clone()),
    };
    // The same is said once.
    let mut head: Vec<&String> = Vec::new();
    for line in sheets.iter().flat_map(|sheet| &sheet.head) {
        if !head.contains(&line) {
            head.push(line);
        }
    }
    let mut facts: Vec<_> = head.iter().map(|line| split(line)).collect();
    facts.push(("date".into(), date(std::time::SystemTime::now())));
    facts.extend(failure.map(|failure| ("error".into(), failure.to_string())));
    let what = head.iter().find_map(|line| line.strip_prefix("file: ")).unwrap_or("arms");
    let what = what.split(" (").next().unwrap_or(what);
    let rw = sheets.first().map_or("", |sheet| sheet.plan.rw.name());
    let title = match sweep {
        None => format!("fullbore bench: {rw} of {what}"),
        Some(sweep) => format!("fullbore bench: sweep of {}", sweep.key),
    };
    let arms: Vec<Arm> =
        sheets.iter().flat_map(|sheet| sheet.rows.iter().map(move |row| (&sheet.plan, row))).collect();
    let curve = match sweep {
        Some(sweep) => Some(sweep.figure()),
        None => sheets.first().map(curve),
    };
    let others = [over_time(&arms), latency(&arms), occupancy(&arms)];
    Page { title, facts, figures: curve.into_iter().chain(others).collect(), report }
}

type Arm<'a> = (&'a Plan, &'a Row);

/// What to call an arm.
fn name((plan, row): Arm<'_>) -> String {
    let round = if plan.repeat > 1 { format!(", round {}", row.round + 1) } else { String::new() };
    let swept = plan.swept.as_ref().map_or_else(String::new, |(key, value)| format!("{key}={value}, "));
    match row.arm {
        "serial" => format!("{swept}serial{round}"),
        _ => format!("{swept}{} in flight{round}", row.iodepth * plan.jobs),
    }
}

/// By what is in flight: the curve of one table.
fn curve(sheet: &Sheet) -> Figure {
    let plan = &sheet.plan;
    let point = |row: &Row| {
        let round = if plan.repeat > 1 { format!(", round {}", row.round + 1) } else { String::new() };
        sheet.point(format!("{}{round}", row.arm), (row.iodepth * plan.jobs).to_string(), row)
    };
    let rows: Vec<_> = sheet.rows.iter().map(point).collect();
    let per_second = if plan.requests.is_some() { "requests/s" } else { "IOPS" };
    let sweep = Sweep { key: "in flight", of: "arm", per_second, rows };
    let head =
        ["arm", "GB/s", "of the ceiling", "x serial", "CPU s/GiB", "commands", plan.in_flight(), "path"];
    let cells = |(row, point): (&Row, &crate::sweep::Row)| {
        let outcome = &row.outcome;
        vec![
            name((plan, row)),
            format!("{:.3}", row.outcome.gbps()),
            point.of_ceiling(),
            row.times_serial.map_or_else(|| "-".into(), |times| format!("{times:.2}")),
            format!("{:.3}", outcome.cpu_s_per_gib()),
            outcome.max_commands.max(outcome.max_units).to_string(),
            outcome.max_objects.to_string(),
            outcome.path.clone(),
        ]
    };
    let rows = sheet.rows.iter().zip(&sweep.rows).map(cells).collect();
    let table = Table { head: head.map(String::from).into(), rows };
    Figure { title: format!("Throughput by {} in flight", plan.in_flight()), table, ..sweep.figure() }
}

fn over_time(arms: &[Arm<'_>]) -> Figure {
    let mut lines = Vec::new();
    let mut cells = Vec::new();
    for &(plan, row) in arms {
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
            name((plan, row)),
            format!("{:.3}", row.outcome.gbps()),
            of(f64::min, f64::MAX),
            of(f64::max, 0.0),
            human(row.outcome.bytes),
            format!("{:.3}", row.outcome.spent.wall.as_secs_f64()),
        ]);
        lines.push(Line::of_rates(name((plan, row)), &rates));
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

fn latency(arms: &[Arm<'_>]) -> Figure {
    let what = arms.first().map_or("objects", |(plan, _)| plan.in_flight());
    let line = |&(plan, row): &Arm<'_>| Line::of_curve(name((plan, row)), &row.outcome.curve);
    let cells = |&(plan, row): &Arm<'_>| {
        let times = row.outcome.latency;
        vec![name((plan, row)), nanos(times.p50), nanos(times.p99), nanos(times.max)]
    };
    Figure {
        id: "latency",
        title: format!("Latency of {what}"),
        caption: format!("The share of {what} that took no longer, from submission to completion."),
        chart: Chart::Lines(Lines::of_latency(arms.iter().map(line).collect(), what)),
        table: Table {
            head: ["arm", "p50", "p99", "max"].map(String::from).into(),
            rows: arms.iter().map(cells).collect(),
        },
    }
}

fn occupancy(arms: &[Arm<'_>]) -> Figure {
    let of = |&(plan, row): &Arm<'_>| {
        let arm = name((plan, row));
        let lane = move |(lane, counts): &(String, Vec<u64>)| {
            let lane = lane.split(", ").next().unwrap_or(lane);
            Shares { name: format!("{arm}: {lane}"), counts: counts.clone() }
        };
        row.outcome.occupancy.iter().map(lane).collect::<Vec<_>>()
    };
    Figure::of_occupancy(arms.iter().flat_map(of).collect())
}
