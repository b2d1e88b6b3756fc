//! A sweep's curve in the page of charts.

use super::{Row, Sweep, names, values};
use crate::ceilings::Ceilings;
use crate::html::{Axis, Chart, Figure, Line, Lines, Rule, Table};
use crate::jobs::keys::{self, Kind};
use crate::units;

/// Names of values that are longer would run into each other; their place is named instead.
const LONGEST: usize = 12;

const DEVICE: &str =
    "The dashed line is the ceiling, measured in the same run: what the device gives to deep reads.";
const BOTH: &str = "The dashed lines are ceilings, measured in the same run: what the device gives to deep reads, and the link \
                    to copies of pinned memory; the lower one binds.";

impl Sweep {
    pub fn figure(&self) -> Figure {
        let head = [self.of, self.key, "GB/s", "of the ceiling", self.per_second, "p50", "p99", "CPU s/GiB"];
        let cells = |row: &Row| {
            let [p50, p99] = row.words();
            let (line, value, cpu) =
                (row.line.clone(), row.value.clone(), format!("{:.3}", row.cpu_s_per_gib));
            let per_second = format!("{:.1}", row.per_second);
            vec![line, value, format!("{:.3}", row.gbps()), row.of_ceiling(), per_second, p50, p99, cpu]
        };
        Figure {
            id: "sweep",
            title: format!("Sweep of {}", self.key),
            caption: self.caption(),
            chart: Chart::Lines(self.lines()),
            table: Table { head: head.map(String::from).into(), rows: self.rows.iter().map(cells).collect() },
        }
    }

    /// What the curves are held against, or why nothing is drawn that they could be.
    pub fn caption(&self) -> String {
        let ceilings = self.ceilings();
        let mut said = Vec::new();
        let measured = || self.rows.iter().filter_map(Row::limits);
        if measured().any(|limits| limits.link().is_some()) {
            said.push(BOTH.to_owned());
        } else if measured().next().is_some() {
            said.push(DEVICE.into());
        }
        for (found, rows) in &ceilings {
            match found {
                Ok(limits) => {
                    let passed = limits
                        .passed(Self::best(rows.iter().copied()))
                        .map(|why| format!("Where a point is above: {why}."));
                    said.extend(passed.filter(|passed| !said.contains(passed)));
                }
                Err(why) => {
                    let of =
                        if ceilings.len() > 1 { format!(" of {}", self.whose(rows)) } else { String::new() };
                    said.push(format!("No ceiling{of} was measured: {why}."));
                }
            }
        }
        if said.is_empty() {
            "No ceiling was measured: the run ended before that.".into()
        } else {
            said.join(" ")
        }
    }

    /// The curves, and the ceilings.
    pub fn lines(&self) -> Lines {
        let numbers = self.numbers();
        let order = values(&self.rows.iter().collect::<Vec<_>>());
        // What is no number has its place in the order.
        let place =
            |value: &str| order.iter().position(|known| *known == value).map_or(0.0, |n| n as f64 + 1.0);
        let at = |value: &str| number(self.key, value).filter(|_| numbers).unwrap_or_else(|| place(value));
        let tick = |value: &&str| {
            let x = at(value);
            (x, if value.len() <= LONGEST { (*value).to_owned() } else { format!("{x:.0}.") })
        };
        let mut ticks: Vec<(f64, String)> = order.iter().map(tick).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = ticks.iter().any(|(_, name)| name.ends_with('.'));
        let label = if places { format!("{}, in the order of the table", self.key) } else { self.key.into() };
        let log = numbers && ticks.iter().all(|(x, _)| *x > 0.0);
        let (mut lines, mut held): (Vec<Line>, Vec<Held>) = Default::default();
        for name in names(&self.rows.iter().collect::<Vec<_>>()) {
            let mut of_it: Vec<(f64, &Row)> = self
                .rows
                .iter()
                .filter(|row| row.line == name && !row.failed)
                .map(|row| (at(&row.value), row))
                .collect();
            of_it.sort_by(|a, b| a.0.total_cmp(&b.0));
            let points = of_it.iter().map(|(x, row)| (*x, row.gbps())).collect();
            lines.push(Line { name: name.into(), points });
            let limits: Vec<_> = of_it.iter().filter_map(|(x, row)| Some((*x, row.limits()?))).collect();
            match held.iter_mut().find(|(_, known)| within(&limits, known) || within(known, &limits)) {
                Some((_, known)) if known.len() < limits.len() => *known = limits,
                Some(_) => {}
                None if limits.is_empty() => {}
                None => held.push((name, limits)),
            }
        }
        let several = held.len() > 1;
        let rules = held.iter().flat_map(|held| rules(held, several, ticks.len())).collect();
        let (x, y) = (Axis { label, log, ticks }, Axis { label: "GB/s".into(), ..Axis::default() });
        Lines { x, y, lines, dots: true, steps: false, rules }
    }

    /// Whether all values are numbers.
    fn numbers(&self) -> bool {
        self.rows.iter().all(|row| number(self.key, &row.value).is_some())
    }
}

/// A line, and the ceilings at its points.
type Held<'a> = (&'a str, Vec<(f64, &'a Ceilings)>);

/// Whether a line has no ceiling that another has not at the same value.
fn within(some: &[(f64, &Ceilings)], all: &[(f64, &Ceilings)]) -> bool {
    some.iter().all(|point| all.contains(point))
}

/// The device's, and the link's. One that is the same at all values goes across.
fn rules((line, limits): &Held<'_>, several: bool, values: usize) -> Vec<Rule> {
    let most = limits.iter().map(|(_, limits)| limits.named().len()).max().unwrap_or(0);
    let rule = |which: usize| {
        let named: Vec<(f64, f64, String)> = limits
            .iter()
            .filter_map(|(x, limits)| limits.named().into_iter().nth(which).map(|(y, name)| (*x, y, name)))
            .collect();
        let name = named.last().map_or("", |(.., name)| name);
        let same = named.iter().all(|(.., other)| other == name);
        // Where they differ the numbers are in the table.
        let name = if same { name } else { name.split(':').next().unwrap_or(name) };
        let name = if several { format!("{line}: {name}") } else { name.to_owned() };
        let points = named.iter().map(|(x, y, _)| (*x, *y)).collect();
        Rule { name, points, across: same && named.len() == values }
    };
    (0..most).map(rule).collect()
}

/// Where a value stands on the axis: a time in seconds, a size in bytes.
fn number(key: &str, text: &str) -> Option<f64> {
    if keys::find(key).is_ok_and(|key| key.kind == Kind::Time) {
        return units::time(text).ok().map(|time| time.as_secs_f64());
    }
    let text = text.strip_suffix('%').unwrap_or(text);
    text.parse().ok().or_else(|| units::size(text).ok().map(|bytes| bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{device, row, sweep};
    use super::*;

    #[test]
    fn the_rule_is_the_ceiling_and_not_the_best() {
        let held = sweep(vec![row("1", 1.0, device(8.0)), row("16", 4.0, device(8.0))]);
        let lines = held.lines();
        assert!(lines.rules.len() == 1 && lines.rules[0].across);
        assert_eq!(lines.rules[0].points, [(1.0, 8.0), (16.0, 8.0)]);
        assert!(lines.rules[0].name.contains("device") && lines.rules[0].name.contains("binds"));
        assert!(held.caption().contains("measured in the same run"), "{}", held.caption());
        assert_eq!(held.figure().table.rows[1][3], "50%");

        let both = Some(Ok(Ceilings { device: 8.0, links: vec![(0, 5.0)] }));
        let lines = sweep(vec![row("1", 1.0, both)]).lines();
        let names: Vec<(f64, bool)> =
            lines.rules.iter().map(|rule| (rule.points[0].1, rule.name.contains("binds"))).collect();
        assert_eq!(names, [(8.0, false), (5.0, true)], "both, and which binds");
        // Two jobs on two devices are held each against its own; two on one against the same.
        let other = Row { line: "b".into(), ..row("1", 1.0, device(2.0)) };
        let two = sweep(vec![row("1", 1.0, device(8.0)), other]).lines().rules;
        assert!(
            two.len() == 2 && two[1].name.starts_with("b: device") && two[1].points == [(1.0, 2.0)],
            "{two:?}"
        );
        let same = Row { line: "b".into(), ..row("2", 1.0, device(8.0)) };
        let first = Row { line: "b".into(), ..row("1", 1.0, Some(Err("it writes".into()))) };
        let one =
            sweep(vec![first, row("1", 1.0, device(8.0)), same, row("2", 1.0, device(8.0))]).lines().rules;
        assert!(one.len() == 1 && one[0].across, "{one:?}");
    }

    #[test]
    fn without_a_ceiling_the_page_says_why_and_draws_none() {
        let writes = sweep(vec![row("1", 1.0, Some(Err("it writes".into())))]);
        assert!(writes.lines().rules.is_empty());
        assert_eq!(writes.caption(), "No ceiling was measured: it writes.");
        assert_eq!(writes.figure().table.rows[0][3], "-");
        let early = sweep(vec![row("1", 1.0, None)]);
        assert!(early.caption().contains("ended before") && early.lines().rules.is_empty());
        let some =
            sweep(vec![row("read", 1.0, device(2.0)), row("write", 1.0, Some(Err("it writes".into())))]);
        assert!(
            some.caption().contains("No ceiling of iodepth=write was measured: it writes."),
            "{}",
            some.caption()
        );
        assert_eq!(
            (&some.lines().rules[0].points[..], some.lines().rules[0].across),
            (&[(1.0, 2.0)][..], false)
        );
    }

    #[test]
    fn values_have_their_place_and_their_name() {
        let keyed = |key, values: &[&str]| {
            let rows = values.iter().map(|value| row(value, 1.0, None)).collect();
            let lines = Sweep { key, ..sweep(rows) }.lines();
            (lines.x.log, lines.x.label, lines.x.ticks)
        };
        let ticks =
            |all: &[(f64, &str)]| all.iter().map(|(x, name)| (*x, (*name).to_owned())).collect::<Vec<_>>();
        assert_eq!(
            keyed("bs", &["4k", "1m"]),
            (true, "bs".into(), ticks(&[(4096.0, "4k"), (1048576.0, "1m")]))
        );
        assert_eq!(keyed("runtime", &["500ms", "2"]).2, ticks(&[(0.5, "500ms"), (2.0, "2")]));
        assert_eq!(
            keyed("lanes", &["auto", "1"]),
            (false, "lanes".into(), ticks(&[(1.0, "auto"), (2.0, "1")]))
        );
        let long = keyed("filename", &["/a/very/long/name/of/a/file", "/b"]);
        assert_eq!(
            (long.1.as_str(), long.2),
            ("filename, in the order of the table", ticks(&[(1.0, "1."), (2.0, "/b")]))
        );
    }
}
