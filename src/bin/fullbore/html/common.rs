//! Charts that jobs and the table of arms have in common.

use super::{Axis, Chart, Figure, Heat, Line, Lines, Row, Table};

impl Line {
    /// Seconds and bytes a second.
    pub fn of_rates(name: String, rates: &[(f64, f64)]) -> Self {
        // A rate is that of all the time since the point before.
        let first = rates.first().map(|(_, rate)| (0.0, rate / 1e9));
        let points = first.into_iter().chain(rates.iter().map(|(at, rate)| (*at, rate / 1e9))).collect();
        Self { name, points }
    }

    /// Nanoseconds, and the share that took no longer.
    pub fn of_curve(name: String, curve: &[(u64, f64)]) -> Self {
        let millis = |ns: u64| ns.max(1) as f64 / 1e6;
        let first = curve.first().map(|(ns, _)| (millis(*ns), 0.0));
        let points = first.into_iter().chain(curve.iter().map(|(ns, share)| (millis(*ns), 100.0 * share)));
        Self { name, points: points.collect() }
    }
}

impl Lines {
    pub fn over_time(lines: Vec<Line>) -> Self {
        let axis = |label: &str| Axis { label: label.into(), ..Axis::default() };
        Self { x: axis("seconds"), y: axis("GB/s"), lines, ..Self::default() }
    }

    /// `what`: of which, as objects.
    pub fn of_latency(lines: Vec<Line>, what: &str) -> Self {
        let x = Axis { label: "milliseconds".into(), log: true, ticks: Vec::new() };
        Self {
            x,
            y: Axis { label: format!("% of {what}"), ..Axis::default() },
            lines,
            steps: true,
            ..Self::default()
        }
    }
}

impl Figure {
    pub fn of_occupancy(rows: Vec<Row>) -> Self {
        let cells = |row: &Row| {
            let all: u64 = row.counts.iter().sum();
            let sum: u64 = row.counts.iter().zip(0u64..).map(|(n, depth)| n * depth).sum();
            let most = row.counts.iter().rposition(|n| *n > 0).unwrap_or(0);
            let usual = row.counts.iter().enumerate().max_by_key(|(_, n)| **n).map_or(0, |(depth, _)| depth);
            let mean = format!("{:.1}", sum as f64 / all.max(1) as f64);
            let depth = row.counts.len().saturating_sub(1).to_string();
            vec![row.name.clone(), all.to_string(), mean, usual.to_string(), most.to_string(), depth]
        };
        let head = ["lane", "enters", "mean in flight", "most often", "most", "lane depth"];
        Self {
            id: "occupancy",
            title: "Depth occupancy of each lane".into(),
            caption: "How many commands were in flight after each enter that submitted some: the darker, the more often."
                .into(),
            table: Table { head: head.map(String::from).into(), rows: rows.iter().map(cells).collect() },
            chart: Chart::Heat(Heat { label: "commands in flight".into(), rows }),
        }
    }
}
