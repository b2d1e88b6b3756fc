//! The progress bar: on a terminal, and only there.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One phase of the run. It vanishes when dropped. No colours, so NO_COLOR asks for nothing more.
pub struct Progress {
    bar: Option<ProgressBar>,
    moved: AtomicU64,
}

impl Progress {
    /// `bytes` is what the phase will move, if that is known.
    pub fn new(phase: &str, bytes: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self { bar: None, moved: AtomicU64::new(0) };
        }
        let (bar, look) = match bytes {
            Some(bytes) => {
                (ProgressBar::new(bytes), "{msg:26} [{bar:36}] {percent:>3}% {decimal_bytes_per_sec:>12}")
            }
            None => (ProgressBar::new_spinner(), "{msg:26} {spinner} {decimal_bytes_per_sec:>12}"),
        };
        if let Ok(style) = ProgressStyle::with_template(look) {
            bar.set_style(style.progress_chars("=> "));
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
