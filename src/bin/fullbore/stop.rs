//! Ctrl-C, and the promise that a file made here is removed on every way out.

use std::fs;
use std::io::ErrorKind;
use std::mem;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::failure::{self, Failure};

static STOP: AtomicBool = AtomicBool::new(false);
/// The file to remove when the program cannot unwind: the second Ctrl-C.
static MADE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Some senders (`timeout` is one) signal the process and its group: that is one request, not two.
const ONE_REQUEST: Duration = Duration::from_millis(500);

/// Catches SIGINT, SIGTERM and SIGHUP. The first asks the loops to drain; a later one does not wait for them.
pub fn install() -> Result<(), Failure> {
    let mut first: Option<Instant> = None;
    let handler = move || {
        STOP.store(true, Ordering::Relaxed);
        if first.get_or_insert_with(Instant::now).elapsed() > ONE_REQUEST {
            if let Some(path) = MADE.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = fs::remove_file(path);
            }
            process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| {
        Failure::Setup(format!(
            "Ctrl-C cannot be caught, which takes a thread: {error}: raise the limit (ulimit -u)"
        ))
    })
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// For the `?` of loops that a request to stop ends.
pub fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Stopped) } else { Ok(()) }
}

/// A file made by this run. Dropping it removes the file, also while a panic unwinds.
#[derive(Debug)]
pub struct MadeFile(PathBuf);

impl MadeFile {
    /// Takes charge of a file that was just made at `path`.
    pub fn new(path: PathBuf) -> Self {
        *MADE.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.clone());
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Lets the file stay.
    pub fn keep(self) {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if made.as_deref() == Some(self.path()) {
            *made = None;
        }
        drop(made);
        mem::forget(self);
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != ErrorKind::NotFound
        {
            failure::tell(format_args!("{} is left behind: {error}", self.0.display()));
        }
        if made.as_deref() == Some(self.path()) {
            *made = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_file_goes_on_drop_and_on_panic() {
        let path = std::env::temp_dir().join(format!("fullbore-guard-{}", process::id()));
        fs::write(&path, "x").unwrap();
        drop(MadeFile::new(path.clone()));
        assert!(!path.exists());
        fs::write(&path, "x").unwrap();
        let guarded = path.clone();
        let panicked = std::panic::catch_unwind(move || {
            let _guard = MadeFile::new(guarded);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && !path.exists());
    }
}
