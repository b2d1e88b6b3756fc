//! The line that lives while jobs run: how many, how far, how fast, how deep, how long yet.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::numbers::{Unit, short};
use crate::failure::Failure;
use crate::jobs::script::Script;
use crate::jobs::value;
use crate::units;

/// What is known of the running jobs at a moment.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    pub running: usize,
    /// A letter for each that runs, as fio has them.
    pub letters: String,
    /// Of reads and of writes, since counting began.
    pub bytes: [u64; 2],
    pub ios: [u64; 2],
    pub flying: u64,
    /// Between 0 and 1, if it is known.
    pub done: Option<f64>,
}

/// The line.
pub struct Eta {
    shows: bool,
    newline: Option<Duration>,
    /// The last moment that was shown, and when.
    last: Option<(Moment, Instant)>,
    broken: Instant,
    on_line: bool,
}

/// How often it changes.
const EVERY: Duration = Duration::from_secs(1);

impl Eta {
    pub fn new(script: &Script) -> Result<Self, Failure> {
        let when = script
            .run_setting("eta")
            .map(|s| s.parse(|text| value::word(text, &["always", "never", "auto"])));
        let shows = match when.transpose()? {
            Some("always") => true,
            Some("never") => false,
            // It never gets into a pipe or a file by itself.
            _ => io::stderr().is_terminal(),
        };
        let newline =
            script.run_setting("eta-newline").map(|setting| setting.parse(units::time)).transpose()?;
        Ok(Self { shows, newline, last: None, broken: Instant::now(), on_line: false })
    }

    /// Whether it is time for another.
    pub fn is_due(&self) -> bool {
        self.shows && self.last.as_ref().is_none_or(|(_, at)| at.elapsed() >= EVERY)
    }

    pub fn show(&mut self, moment: Moment) {
        let before = self.last.take();
        if let Some((last, at)) = &before {
            let text = line(&moment, last, at.elapsed());
            let mut err = io::stderr();
            let newline = self.newline.is_some_and(|time| self.broken.elapsed() >= time);
            let end = if newline { "\n" } else { "" };
            let _ = write!(err, "\r{text:<79}{end}").and_then(|()| err.flush());
            self.on_line = !newline;
            if newline {
                self.broken = Instant::now();
            }
        }
        self.last = Some((moment, Instant::now()));
    }

    /// Makes room for something else.
    pub fn clear(&mut self) {
        if self.on_line {
            let _ = write!(io::stderr(), "\r{:<100}\r", "");
            self.on_line = false;
        }
    }
}

fn line(now: &Moment, last: &Moment, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    let rate = |new: u64, old: u64| (new.saturating_sub(old) as f64 / seconds) as u64;
    let bytes = |way: usize| short(rate(now.bytes[way], last.bytes[way]), true, Unit::BytePerSecond);
    let ios = |way: usize| short(rate(now.ios[way], last.ios[way]), false, Unit::None);
    let done = now.done.map_or_else(|| "-.-%".into(), |done| format!("{:.1}%", done * 100.0));
    // As long again as it took so far, by what is left to do.
    let left = now
        .done
        .zip(last.done)
        .filter(|(new, old)| new > old)
        .map(|(new, old)| (1.0 - new) / (new - old) * seconds);
    let left = units::clock(left);
    format!(
        "Jobs: {}: [{}][{done}][r={},w={}][r={},w={} IOPS][depth {}][eta {left}]",
        now.running,
        now.letters,
        bytes(0),
        bytes(1),
        ios(0),
        ios(1),
        now.flying
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_depth_and_time_left() {
        let last = Moment { done: Some(0.25), ..Moment::default() };
        let now = Moment {
            running: 2,
            letters: "Rw".into(),
            bytes: [2 << 30, 0],
            ios: [2000, 0],
            flying: 12,
            done: Some(0.5),
        };
        assert_eq!(
            line(&now, &last, Duration::from_secs(2)),
            "Jobs: 2: [Rw][50.0%][r=1024MiB/s,w=0B/s][r=1000,w=0 IOPS][depth 12][eta 00m:04s]"
        );
        assert!(line(&Moment::default(), &last, Duration::ZERO).contains("[-.-%]"));
    }
}
