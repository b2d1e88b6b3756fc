//! A chart of lines.

use std::fmt::Write;

use super::escape;
use super::scale::{Scale, short};

/// What an axis is of.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    pub label: String,
    /// Powers are equally far apart.
    pub log: bool,
    /// The values that have a name, and what it is, if not round ones.
    pub ticks: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Default)]
pub struct Line {
    pub name: String,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Default)]
pub struct Lines {
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Each point is marked.
    pub dots: bool,
    /// A value goes on until the next one.
    pub steps: bool,
    /// What the lines are held against.
    pub rules: Vec<Rule>,
}

/// A dashed line from point to point.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// It goes all across, at the height of its points.
    pub across: bool,
}

/// Half of the line at a point that is alone.
const ALONE: f64 = 24.0;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
/// Around the plot: above, right, below, left.
const ABOVE: f64 = 26.0;
const RIGHT: f64 = 20.0;
const BELOW: f64 = 44.0;
const LEFT: f64 = 56.0;
/// Names of an axis that are nearer than that would run into each other.
const APART: f64 = 44.0;

/// The colour, and once they are used up the dashes, of the line with that number.
fn class(number: usize) -> String {
    match number / 8 % 4 {
        0 => format!("s{}", number % 8),
        dash => format!("s{} dash{dash}", number % 8),
    }
}

struct Plot {
    x: Scale,
    y: Scale,
}

impl Plot {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let across = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT);
        (across, HEIGHT - BELOW - self.y.place(y) * (HEIGHT - ABOVE - BELOW))
    }
}

impl Lines {
    /// `title` is escaped.
    pub fn write(&self, out: &mut String, title: &str) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let highest = points().chain(self.rules.iter().flat_map(|rule| &rule.points)).map(|(_, y)| *y);
        let plot = Plot {
            x: Scale::over(points().map(|(x, _)| *x), self.x.log),
            y: Scale::over(highest, false).rounded(),
        };
        let _ = writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">");
        self.axes(out, &plot);
        for (number, line) in self.lines.iter().enumerate() {
            self.line(out, &plot, number, line);
        }
        self.rules(out, &plot);
        *out += "</svg>\n";
        self.key(out);
    }

    fn axes(&self, out: &mut String, plot: &Plot) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for tick in plot.y.ticks() {
            let (_, y) = plot.at((0.0, tick));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>"
            );
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", short(tick));
        }
        let round = || plot.x.ticks().into_iter().map(|tick| (tick, short(tick))).collect();
        let ticks = if self.x.ticks.is_empty() { round() } else { self.x.ticks.clone() };
        let mut last = f64::MIN;
        for (tick, name) in ticks {
            let (x, _) = plot.at((tick, 0.0));
            let _ = writeln!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{ABOVE}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>"
            );
            if x - last >= APART {
                last = x;
                let y = bottom + 18.0;
                // The last one does not reach over the edge.
                let (x, anchor) = if x > right - 1.0 { (WIDTH, "end") } else { (x, "middle") };
                let (x, anchor) = if name.len() > 4 { (x, anchor) } else { (x.min(right), "middle") };
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
                    escape(&name)
                );
            }
        }
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>"
        );
        let (middle, low) = ((LEFT + right) / 2.0, HEIGHT - 6.0);
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">{}</text>",
            escape(&self.x.label)
        );
        let _ = writeln!(out, "<text x=\"8\" y=\"14\">{}</text>", escape(&self.y.label));
    }

    fn rules(&self, out: &mut String, plot: &Plot) {
        let right = WIDTH - RIGHT;
        let ends: Vec<f64> =
            self.rules.iter().filter_map(|rule| rule.points.last().map(|point| plot.at(*point).1)).collect();
        for rule in &self.rules {
            let Some((x, y)) = rule.points.last().map(|point| plot.at(*point)) else { continue };
            let mut path = String::new();
            match &rule.points[..] {
                _ if rule.across => path = format!("M{LEFT} {y:.1}H{right}"),
                [_] => path = format!("M{:.1} {y:.1}H{:.1}", (x - ALONE).max(LEFT), (x + ALONE).min(right)),
                points => {
                    for (index, point) in points.iter().enumerate() {
                        let (x, y) = plot.at(*point);
                        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
                    }
                }
            }
            let _ = writeln!(out, "<path class=\"rule\" d=\"{path}\"/>");
            // Above its line, unless another's stands there.
            let taken = |other: &f64| *other < y - 0.05 && y - other < 20.0;
            let foot = if ends.iter().any(taken) { y + 15.0 } else { y - 6.0 };
            let name = escape(&rule.name);
            let _ = writeln!(
                out,
                "<text class=\"name\" x=\"{right}\" y=\"{foot:.1}\" text-anchor=\"end\">{name}</text>"
            );
        }
    }

    fn line(&self, out: &mut String, plot: &Plot, number: usize, line: &Line) {
        let (class, name) = (class(number), escape(&line.name));
        let mut path = String::new();
        for (index, point) in line.points.iter().enumerate() {
            let (x, y) = plot.at(*point);
            let _ = match (index, self.steps) {
                (0, _) => write!(path, "M{x:.1} {y:.1}"),
                (_, false) => write!(path, "L{x:.1} {y:.1}"),
                (_, true) => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
        let _ = writeln!(out, "<path class=\"curve {class}\" d=\"{path}\"><title>{name}</title></path>");
        if !self.dots && line.points.len() > 1 {
            return;
        }
        for point in &line.points {
            let (x, y) = plot.at(*point);
            let said = format!("{name}: {} at {}", short(point.1), short(point.0));
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{said}</title></circle>"
            );
        }
    }

    /// Which line is which. One alone needs no such list.
    fn key(&self, out: &mut String) {
        if self.lines.len() < 2 {
            return;
        }
        *out += "<ul class=\"key\">\n";
        for (number, line) in self.lines.iter().enumerate() {
            let (class, name) = (class(number), escape(&line.name));
            let _ = writeln!(
                out,
                "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"curve {class}\" d=\"M1 5H25\"/></svg>{name}</li>"
            );
        }
        *out += "</ul>\n";
    }
}
