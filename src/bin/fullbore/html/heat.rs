//! A chart of shares: a row each, and a column for each of some numbers, darker where the share is larger.

use std::fmt::Write;

use super::escape;

#[derive(Debug, Clone, Default)]
pub struct Row {
    pub name: String,
    /// Of each number from 0 its count.
    pub counts: Vec<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Heat {
    /// What the columns are of.
    pub label: String,
    pub rows: Vec<Row>,
}

const WIDTH: f64 = 860.0;
/// Room for names, and the letters that fit in it.
const NAMES: f64 = 210.0;
const LETTERS: usize = 30;
const RIGHT: f64 = 14.0;
const HIGH: f64 = 22.0;
const ABOVE: f64 = 8.0;
const BELOW: f64 = 42.0;
const COLUMNS: usize = 32;
const APART: f64 = 40.0;

impl Heat {
    /// `title` is escaped.
    pub fn write(&self, out: &mut String, title: &str) {
        let numbers = self.rows.iter().map(|row| row.counts.len()).max().unwrap_or(0).max(1);
        // Numbers of a column.
        let wide = numbers.div_ceil(COLUMNS);
        let columns = numbers.div_ceil(wide);
        let each = (WIDTH - NAMES - RIGHT) / columns as f64;
        let bottom = ABOVE + HIGH * self.rows.len() as f64;
        let height = bottom + BELOW;
        let _ = writeln!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">");
        let name = |column: usize| match (column * wide, ((column + 1) * wide - 1).min(numbers - 1)) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}\u{2013}{last}"),
        };
        for (number, row) in self.rows.iter().enumerate() {
            let y = ABOVE + HIGH * number as f64;
            let (x, middle) = (NAMES - 10.0, y + HIGH / 2.0 + 4.0);
            let _ = writeln!(
                out,
                "<text class=\"name\" x=\"{x}\" y=\"{middle}\" text-anchor=\"end\">{}<title>{}</title></text>",
                escape(&cut(&row.name)),
                escape(&row.name)
            );
            let all = row.counts.iter().sum::<u64>().max(1) as f64;
            for (column, counts) in row.counts.chunks(wide).enumerate() {
                let share = counts.iter().sum::<u64>() as f64 / all;
                if share == 0.0 {
                    continue;
                }
                // What is seldom is seen too.
                let (x, dark) = (NAMES + each * column as f64, 0.12 + 0.88 * share.sqrt());
                let _ = writeln!(
                    out,
                    "<rect class=\"cell\" x=\"{x:.1}\" y=\"{y}\" width=\"{each:.1}\" height=\"{HIGH}\" fill-opacity=\"{dark:.3}\">\
                     <title>{}, {}: {:.1}%</title></rect>",
                    escape(&row.name),
                    name(column),
                    100.0 * share
                );
            }
            let long = each * columns as f64;
            let _ = writeln!(
                out,
                "<rect class=\"frame\" x=\"{NAMES}\" y=\"{y}\" width=\"{long:.1}\" height=\"{HIGH}\"/>"
            );
        }
        let mut last = f64::MIN;
        for column in 0..columns {
            let (x, y) = (NAMES + each * (column as f64 + 0.5), bottom + 16.0);
            if x - last >= APART {
                last = x;
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
                    name(column)
                );
            }
        }
        let (middle, y) = ((NAMES + WIDTH - RIGHT) / 2.0, bottom + 36.0);
        let _ = writeln!(
            out,
            "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{}</text>\n</svg>",
            escape(&self.label)
        );
    }
}

/// A name that fits.
fn cut(name: &str) -> String {
    if name.chars().count() <= LETTERS {
        return name.into();
    }
    name.chars().take(LETTERS - 1).chain(['\u{2026}']).collect()
}
