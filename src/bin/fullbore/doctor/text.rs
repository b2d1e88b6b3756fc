//! The report for people, read from top to bottom: what each thing is, how it stands, and what to type.

use super::describe::{self, Line};
use super::facts::Facts;
use super::judge::{About, Finding, Level, pair, worst};
use std::fmt::Write;

/// Columns of a label and of a mark.
const LABEL: usize = 8;
const MARK: usize = 16;

/// Colours, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    fn mark(self, level: Level) -> String {
        let padded = format!("{:MARK$}", level.name());
        let colour = match level {
            Level::Ok => "32",
            Level::Better => "33",
            Level::Broken => "31;1",
        };
        if self.0 { format!("\x1b[{colour}m{padded}\x1b[0m") } else { padded }
    }

    fn bold(self, text: &str) -> String {
        if self.0 { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }
}

pub fn report(facts: &Facts, findings: &[Finding], paint: Paint) -> String {
    let mut out = Report { text: String::new(), findings, paint };
    let machine = &facts.machine;
    let nodes = match machine.nodes.len() {
        0 | 1 => String::new(),
        many => format!(", {many} nodes"),
    };
    let version = env!("CARGO_PKG_VERSION");
    out.line(&format!(
        "fullbore doctor {version}: Linux {}, {} CPUs{nodes}",
        machine.kernel,
        machine.online.len()
    ));
    out.section("this process", &describe::process(facts), &About::Process);
    if findings.iter().any(|finding| finding.about == About::Machine) {
        out.section("this machine", &[], &About::Machine);
    }
    for device in &facts.devices {
        out.section(
            &describe::heading(device),
            &describe::device(device),
            &About::Device(device.path.clone()),
        );
    }
    if findings.iter().any(|finding| finding.about == About::Gpus) {
        out.section("GPUs", &[], &About::Gpus);
    }
    for gpu in &facts.gpus.list {
        out.section(&describe::gpu_heading(gpu), &describe::gpu(gpu), &About::Gpu(gpu.ordinal));
    }
    out.paths(facts);
    out.verdict();
    out.text
}

struct Report<'a> {
    text: String,
    findings: &'a [Finding],
    paint: Paint,
}

impl Report<'_> {
    fn line(&mut self, text: &str) {
        self.text += text.trim_end();
        self.text.push('\n');
    }

    fn section(&mut self, heading: &str, facts: &[Line], about: &About) {
        self.line("");
        self.line(&self.paint.bold(heading));
        for (label, value) in facts {
            self.line(&format!("  {label:LABEL$} {value}"));
        }
        let findings = self.findings.iter().filter(|finding| finding.about == *about);
        for finding in findings.collect::<Vec<_>>() {
            self.line(&format!("  {}{}", self.paint.mark(finding.level), finding.text));
            if let Some(remedy) = &finding.remedy {
                self.line(&format!("  {:MARK$}$ {remedy}", ""));
            }
        }
    }

    /// Every target and memory, in a table.
    fn paths(&mut self, facts: &Facts) {
        if facts.pairs.is_empty() {
            return;
        }
        self.line("");
        self.line(&self.paint.bold("paths"));
        let rows: Vec<[String; 3]> = facts
            .pairs
            .iter()
            .map(|row| {
                let path = row.path.map_or("none".to_owned(), |path| path.to_string());
                [row.device.clone(), pair::name(&row.memory), path]
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        for [device, memory, path] in &rows {
            self.line(&format!("  {device:first$}  to {memory:second$}  {path}"));
        }
    }

    fn verdict(&mut self) {
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        let (better, broken) = (count(Level::Better), count(Level::Broken));
        let mut text = String::new();
        let _ = match worst(self.findings) {
            Level::Ok => write!(text, "all is well: the best path is open everywhere"),
            Level::Better => write!(text, "{better} could be better"),
            Level::Broken => write!(text, "{broken} broken, {better} could be better"),
        };
        self.line("");
        self.line(&self.paint.bold(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{judge, sample};
    use super::*;

    #[test]
    fn it_is_read_from_top_to_bottom_with_a_command_under_what_is_not_well() {
        let facts = sample::sick();
        let findings = judge(&facts);
        let text = report(&facts, &findings, Paint(false));
        assert!(!text.contains('\x1b'), "no colours in a pipe");
        let lines: Vec<&str> = text.lines().collect();
        for finding in &findings {
            let at = lines.iter().position(|line| {
                line.trim_start().starts_with(finding.level.name()) && line.ends_with(&finding.text)
            });
            let at = at.unwrap_or_else(|| panic!("{finding:?} is not in:\n{text}"));
            if let Some(remedy) = &finding.remedy {
                assert_eq!(lines[at + 1].trim_start(), format!("$ {remedy}"));
            }
        }
        let order = ["this process", "/dev/ng0n1 (", "gpu 0", "paths", "broken, "];
        let at: Vec<usize> =
            order.iter().map(|word| text.find(word).unwrap_or_else(|| panic!("{word}:\n{text}"))).collect();
        assert!(at.is_sorted(), "{at:?}:\n{text}");
        assert!(lines.iter().all(|line| *line == line.trim_end()), "no blanks at line ends");
    }

    #[test]
    fn colours_are_for_terminals_and_change_no_word() {
        let facts = sample::healthy();
        let findings = judge(&facts);
        let (plain, painted) =
            (report(&facts, &findings, Paint(false)), report(&facts, &findings, Paint(true)));
        assert!(painted.contains("\x1b[32mok"));
        let mut bare = painted;
        for code in ["\x1b[32m", "\x1b[33m", "\x1b[31;1m", "\x1b[1m", "\x1b[0m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, plain);
        assert!(plain.contains("all is well"), "{plain}");
    }
}
