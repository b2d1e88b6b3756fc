//! What the block layer counted of the disks beneath the files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Of one disk, between two looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disk {
    pub name: String,
    /// Of reads and of writes.
    pub ios: [u64; 2],
    pub merges: [u64; 2],
    /// Milliseconds.
    pub ticks: [u64; 2],
    pub in_queue: u64,
    /// Percent of the time.
    pub util: f64,
}

/// Looks at disks.
pub struct Disks {
    began: Instant,
    before: BTreeMap<PathBuf, Vec<u64>>,
}

/// The folder in sysfs of the disk beneath a file: the whole one, not its partition.
fn folder(path: &Path) -> Option<PathBuf> {
    let meta = fs::metadata(path).ok()?;
    let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if folder.join("partition").exists() { folder.parent().map(Path::to_owned) } else { Some(folder) }
}

fn counters(folder: &Path) -> Option<Vec<u64>> {
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

impl Disks {
    /// A look before. Files without a disk (tmpfs, character devices) have none.
    pub fn beneath<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        let found = paths.filter_map(folder).filter_map(|folder| Some((folder.clone(), counters(&folder)?)));
        Self { before: found.collect(), began: Instant::now() }
    }

    /// A look after.
    pub fn counted(&self) -> Vec<Disk> {
        let ms = self.began.elapsed().as_millis().max(1) as f64;
        let one = |(folder, before): (&PathBuf, &Vec<u64>)| {
            let after = counters(folder)?;
            let more = |n: usize| {
                after.get(n).zip(before.get(n)).map_or(0, |(after, before)| after.saturating_sub(*before))
            };
            Some(Disk {
                name: folder.file_name()?.to_string_lossy().into_owned(),
                ios: [more(0), more(4)],
                merges: [more(1), more(5)],
                ticks: [more(3), more(7)],
                in_queue: more(10),
                util: (more(9) as f64 / ms * 100.0).min(100.0),
            })
        };
        self.before.iter().filter_map(one).collect()
    }
}
