//! The progress bar: on a terminal, and only there.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::units;
use crate::work::Feed;

/// One phase of the run. It vanishes when dropped. No colours, so NO_COLOR asks for nothing more.
pub struct Progress {
    bar: Option<ProgressBar>,
    moved: AtomicU64,
}

impl Progress {
    /// `bytes` is what the phase will move, if that is known.
    pub fn new(phase: &str, bytes: Option<u64>) -> Self {
        Self::until(phase, bytes, None)
    }

    /// Of an arm, which moves items of so many bytes until their count or its time ends it.
    pub fn of_arm(phase: &str, feed: &Feed, item: u64) -> Self {
        Self::until(phase, feed.total().map(|items| items * item), feed.until())
    }

    fn until(phase: &str, bytes: Option<u64>, until: Option<Instant>) -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: None, moved: AtomicU64::new(0) };
        }
        let (bar, look) = match (bytes, until) {
            (Some(bytes), _) => (
                ProgressBar::new(bytes),
                "{msg:26} [{bar:20}] {percent:>3}% {decimal_bytes_per_sec:>12} eta {left}",
            ),
            (None, Some(_)) => {
                (ProgressBar::new_spinner(), "{msg:26} {spinner} {decimal_bytes_per_sec:>12} eta {left}")
            }
            (None, None) => (ProgressBar::new_spinner(), "{msg:26} {spinner} {decimal_bytes_per_sec:>12}"),
        };
        if let Ok(style) = ProgressStyle::with_template(look) {
            let left = move |state: &ProgressState, out: &mut dyn fmt::Write| {
                let left = left(state, bytes.is_some(), until).map(|left| left.as_secs_f64());
                let _ = write!(out, "{}", units::clock(left));
            };
            bar.set_style(style.progress_chars("=> ").with_key("left", left));
        }
        bar.set_message(phase.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar: Some(bar), moved: AtomicU64::new(0) }
    }

    /// Bytes so far.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    pub fn add(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// By the rate so far where a count ends it, and by the clock where a time may. None: nothing has moved yet.
fn left(state: &ProgressState, counted: bool, until: Option<Instant>) -> Option<Duration> {
    let by_time = until.map(|until| until.saturating_duration_since(Instant::now()));
    let by_rate = (counted && state.pos() > 0).then(|| state.eta());
    by_time.into_iter().chain(by_rate).min()
}
