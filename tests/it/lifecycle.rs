//! Handles may be dropped in any order at any time; every transfer still ends exactly once, and nothing is left.

mod completions;
mod drops;
mod forks;
mod order;
mod shutdown;
mod targets;
mod threads;

use crate::support::{self, Folder, folder_of, folders};
use fullbore::{Engine, EngineBuilder, OpenOptions, Target};
use std::path::PathBuf;
use std::time::Duration;

pub const SIZE: u64 = 24 << 20;
pub const SEED: u64 = 21;
/// No test here may take longer.
pub const LIMIT: Duration = Duration::from_secs(50);

/// A file with content, on a disk where there is one: there commands stay in flight for a while.
pub struct Place {
    pub path: PathBuf,
    _folder: Folder,
}

/// `None`, printed, where there is no ring or no O_DIRECT.
pub fn place() -> Option<Place> {
    let folder = support::uring().then(|| folder_of("disk").or_else(|| folders().pop()))??;
    Some(Place { path: folder.file("file", SIZE, SEED), _folder: folder })
}

impl Place {
    pub fn open(&self, engine: &Engine) -> Target {
        engine.open(&self.path, OpenOptions::read()).expect("opens")
    }
}

/// An engine that takes long over a transfer: 4 KiB at a time, one after the other.
pub fn slow() -> EngineBuilder {
    Engine::builder().lanes(1).lane_depth(1).command_size(4096)
}
