//! An arm as programs read it, and what else people read of a loop over requests.

use serde_json::{Map, Value, json};

use crate::args::Plan;
use crate::report::{Facts, Row};
use crate::requests::Looped;
use crate::units::{count, nanos};
use crate::work::LatencySummary;

/// One arm.
pub fn arm(plan: &Plan, facts: &Facts, row: &Row) -> Value {
    let outcome = &row.outcome;
    let serial = row.arm == "serial";
    let found = row.verified.as_ref();
    // Less than was asked for where a drive's queues have fewer tags.
    let lane_depth = facts.lanes.iter().map(|lane| lane.depth).max().unwrap_or(plan.lane_depth);
    let mut arm = json!({
        "arm": row.arm,
        "swept": plan.swept.as_ref().map(|(key, value)| json!({ "key": key, "value": value })),
        "round": row.round,
        "iodepth": row.iodepth,
        "bs": plan.bs,
        "cmd_size": if serial { plan.serial_command() } else { facts.command },
        "lanes": if serial { 0 } else { facts.lanes.len() },
        "lane_depth": if serial { 1 } else { lane_depth },
        "gpus": if serial { &[][..] } else { &plan.memory.gpus },
        "scatter": plan.memory.scatter,
        "bytes": outcome.bytes,
        "started_unix": outcome.spent.started_unix(),
        "seconds": outcome.spent.wall.as_secs_f64(),
        "gbps": outcome.gbps(),
        "times_serial": row.times_serial,
        "max_commands_in_flight": outcome.max_commands,
        "mean_commands_in_flight": outcome.mean_commands,
        "max_gpu_units_in_flight": outcome.max_units,
        "max_objects_in_flight": outcome.max_objects,
        "each_lane": outcome.occupancy.iter().map(lane).collect::<Vec<_>>(),
        "cpu_s_per_gib": outcome.cpu_s_per_gib(),
        "lat_ns": latency(&outcome.latency),
        "split_mean_ns": outcome.split.json(),
        "path": outcome.path,
        "paths": outcome.paths,
        "storage_paths": outcome.storage_paths,
        "kernel_workers": outcome.workers,
        "verified": found.is_some_and(|found| found.bytes > 0 && found.mismatches == 0),
        "verified_bytes": found.map_or(0, |found| found.bytes),
        "first_mismatch": found.and_then(|found| found.first.as_deref()),
        "mismatches": found.map_or(0, |found| found.mismatches),
    });
    if let (Some(looped), Some(requests)) = (&outcome.looped, &plan.requests) {
        arm["request_size"] = requests.size.into();
        arm["requests"] = looped.completed.len().into();
        arm["completed_s"] = looped.completed.iter().map(|at| at.as_secs_f64()).collect();
        arm["marks"] = looped.marks.iter().map(mark).collect();
        if let Some(kv) = &plan.kv {
            arm["kv"] = kv.json(&looped.loads, row.iodepth);
        }
        if requests.probe {
            arm["urgent"] = urgent(looped);
        }
    }
    arm
}

/// The columns of csv, by their names in JSON.
const COLUMNS: [&str; 21] = [
    "arm",
    "round",
    "iodepth",
    "bs",
    "cmd_size",
    "lanes",
    "lane_depth",
    "bytes",
    "seconds",
    "gbps",
    "times_serial",
    "max_commands_in_flight",
    "mean_commands_in_flight",
    "max_objects_in_flight",
    "cpu_s_per_gib",
    "lat_ns.p50",
    "lat_ns.p99",
    "lat_ns.max",
    "path",
    "verified",
    "swept",
];

/// The titles of the table of commas.
pub fn csv_head() -> String {
    COLUMNS.join(",") + "\n"
}

/// The arms as a table of commas, a row each.
pub fn csv(plan: &Plan, facts: &Facts, rows: &[Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        let arm = arm(plan, facts, row);
        let cell = |column: &&str| {
            let value = column.split('.').fold(&arm, |value, key| &value[key]);
            match value {
                Value::Null => String::new(),
                Value::String(text) => cell(text),
                Value::Object(swept) => {
                    cell(&["key", "value"].map(|part| swept[part].as_str().unwrap_or("")).join("="))
                }
                other => other.to_string(),
            }
        };
        lines += &(COLUMNS.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
    }
    lines
}

/// A cell with a comma or a quote stands in quotes (RFC 4180).
pub fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn latency(times: &LatencySummary) -> Value {
    json!({ "p50": times.p50, "p99": times.p99, "max": times.max })
}

/// How deep a lane was: enters by the commands that they left in flight.
fn lane((name, enters): &(String, Vec<u64>)) -> Value {
    let filled = enters.iter().enumerate().filter(|(_, n)| **n > 0);
    let occupancy: Map<_, _> = filled.map(|(depth, n)| (depth.to_string(), (*n).into())).collect();
    json!({ "lane": name, "occupancy": occupancy })
}

fn mark((objects, times): &(u64, LatencySummary)) -> Value {
    json!({ "objects": objects, "lat_ns": latency(times) })
}

fn urgent(looped: &Looped) -> Value {
    json!({
        "ms": looped.urgent.iter().map(|(took, _)| took.as_secs_f64() * 1e3).collect::<Vec<_>>(),
        "requests_in_flight": looped.urgent.iter().map(|(_, behind)| *behind).collect::<Vec<_>>(),
        "lat_ns": latency(&looped.urgent_latency),
    })
}

/// When each request completed, a line for people.
pub fn completions(looped: &Looped) -> String {
    let at: Vec<String> = looped.completed.iter().map(|at| format!("{:.3}", at.as_secs_f64())).collect();
    format!("  completed after s: {}", at.join(" "))
}

/// What people read below the row of a loop over requests.
pub fn lines(looped: &Looped, probe: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mark = |(objects, times): &(u64, LatencySummary)| {
        format!("after {} p50 {} p99 {}", count(*objects, "object"), nanos(times.p50), nanos(times.p99))
    };
    match &looped.marks[..] {
        [] => {}
        [only] => lines.push(format!("  mark: {}", mark(only))),
        [first, .., last] => lines.push(format!("  marks: {}, {}", mark(first), mark(last))),
    }
    if probe && looped.urgent.is_empty() {
        lines.push("  no urgent load: it was over too soon, so add --seconds=2 or raise --requests".into());
    } else if probe {
        let (loads, times) = (looped.urgent.len() as u64, &looped.urgent_latency);
        let least = looped.urgent.iter().map(|(_, behind)| *behind).min().unwrap_or(0);
        lines.push(format!(
            "  {} with {} or more queued: p50 {} max {}",
            count(loads, "urgent load"),
            count(least, "request"),
            nanos(times.p50),
            nanos(times.max)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn arms_are_rows_of_commas() {
        assert_eq!([cell("a"), cell("a,b"), cell("a\"b")], ["a", "\"a,b\"", "\"a\"\"b\""]);
        let (plan, _) = crate::place_tests::nowhere();
        let row = Row { arm: "engine", iodepth: 8, ..Row::default() };
        let table = csv_head() + &csv(&plan, &Facts::default(), &[row.clone(), row]);
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((lines.len(), lines[0][0], lines[1][0], lines[2][2]), (3, "arm", "engine", "8"));
        assert!(lines.iter().all(|line| line.len() == COLUMNS.len()), "{table}");
    }

    #[test]
    fn people_and_programs_read_of_marks_and_urgent_loads() {
        let times = LatencySummary { p50: 1_000_000, p99: 2_000_000, max: 3_000_000 };
        let looped = Looped {
            loads: Vec::new(),
            completed: vec![Duration::from_secs(1)],
            marks: vec![(1, times), (2, times), (205, times)],
            urgent: vec![(Duration::from_millis(2), 8), (Duration::from_millis(3), 7)],
            urgent_latency: times,
        };
        let text = lines(&looped, true).join("\n");
        assert!(text.contains("marks: after 1 object p50 1.00 ms p99 2.00 ms, after 205 objects"), "{text}");
        assert!(
            text.contains("2 urgent loads with 7 requests or more queued: p50 1.00 ms max 3.00 ms"),
            "{text}"
        );
        assert_eq!(completions(&looped), "  completed after s: 1.000");
        assert!(lines(&Looped::default(), true)[0].contains("--seconds"));
        assert!(lines(&Looped::default(), false).is_empty());
        assert_eq!(urgent(&looped)["ms"], json!([2.0, 3.0]));
        assert_eq!(lane(&("lane 0".into(), vec![0, 3, 0, 5]))["occupancy"], json!({ "1": 3, "3": 5 }));
        assert_eq!(mark(&looped.marks[1])["lat_ns"]["p99"], json!(2_000_000));
    }
}
