//! `--output-format=html`: a page that needs nothing but itself: charts in SVG, a table of the numbers under each, no script.

use std::fmt::Write;

mod chart;
mod common;
mod heat;
mod scale;
#[cfg(test)]
mod tests;

pub use chart::{Axis, Line, Lines, Rule};
pub use heat::{Heat, Row};

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    pub title: String,
    /// What is to be known of the run: a name and a value each.
    pub facts: Vec<(String, String)>,
    pub figures: Vec<Figure>,
    /// What the report in lines says, which is more than charts and tables do.
    pub report: String,
}

/// A chart with its numbers.
#[derive(Debug)]
pub struct Figure {
    /// Of the element in the page.
    pub id: &'static str,
    pub title: String,
    /// What it shows and how to read it.
    pub caption: String,
    pub chart: Chart,
    pub table: Table,
}

#[derive(Debug)]
pub enum Chart {
    Lines(Lines),
    Heat(Heat),
}

/// The first cell of a row is its name.
#[derive(Debug, Default)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Page {
    /// The whole text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let title = escape(&self.title);
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<main>\n<h1>{title}</h1>\n<dl class=\"facts\">\n"
        );
        for (name, value) in &self.facts {
            let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
        }
        out += "</dl>\n";
        for figure in &self.figures {
            figure.write(&mut out);
        }
        if !self.report.trim().is_empty() {
            let lines = escape(self.report.trim_matches('\n'));
            let _ = writeln!(
                out,
                "<section id=\"report\">\n<h2>The report in lines</h2>\n<pre>{lines}</pre>\n</section>"
            );
        }
        out + "</main>\n</body>\n</html>\n"
    }
}

impl Figure {
    fn write(&self, out: &mut String) {
        let (id, title, caption) = (self.id, escape(&self.title), escape(&self.caption));
        let _ = writeln!(out, "<section id=\"{id}\">\n<figure>\n<h2>{title}</h2>\n<p>{caption}</p>");
        match &self.chart {
            Chart::Lines(lines) => lines.write(out, &title),
            Chart::Heat(heat) => heat.write(out, &title),
        }
        *out += "</figure>\n";
        self.table.write(out);
        *out += "</section>\n";
    }
}

impl Table {
    fn write(&self, out: &mut String) {
        *out += "<div class=\"wide\"><table>\n<thead><tr>";
        for cell in &self.head {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(cell));
        }
        *out += "</tr></thead>\n<tbody>\n";
        for row in &self.rows {
            *out += "<tr>";
            for (number, cell) in row.iter().enumerate() {
                let cell = escape(cell);
                let _ = match number {
                    0 => write!(out, "<th scope=\"row\">{cell}</th>"),
                    _ => write!(out, "<td>{cell}</td>"),
                };
            }
            *out += "</tr>\n";
        }
        *out += "</tbody>\n</table></div>\n";
    }
}

/// Text that is nothing but text, in an element and in an attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // What no page may contain.
            control if control.is_control() && !matches!(control, '\n' | '\t') => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

const STYLE: &str = include_str!("style.css");
