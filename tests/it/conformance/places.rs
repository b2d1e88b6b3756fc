//! The targets of this machine.

use crate::support::{self, Folder, Loop, folders};
use fullbore::OpenOptions;
use nix::sys::statfs::{EXT4_SUPER_MAGIC, FsType, TMPFS_MAGIC, XFS_SUPER_MAGIC, statfs};
use std::path::{Path, PathBuf};

/// Odd, and with room for the largest object at an odd offset.
const SIZE: u64 = (22 << 20) + 777;
/// What writes go to.
pub const WRITE_SIZE: u64 = 12 << 20;
/// Content of the file that is written to, before it is.
pub const OLD: u64 = 99;
const SECTOR: u32 = 4096;

/// How files are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Direct,
    Buffered,
    Mapped,
}

pub struct Place {
    pub name: &'static str,
    /// Holds `size` bytes with content of `seed`.
    pub read: PathBuf,
    pub size: u64,
    pub seed: u64,
    /// Holds [`WRITE_SIZE`] bytes.
    pub write: PathBuf,
    /// What a plain pread sees of `write`: the file itself, or the one under a loop device.
    pub witness: PathBuf,
    /// Where files can be made; `None` for a device.
    pub folder: Option<PathBuf>,
    how: How,
    _loops: Vec<Loop>,
    _folder: Folder,
}

impl Place {
    pub fn options(&self, options: OpenOptions) -> OpenOptions {
        match self.how {
            How::Direct => options,
            How::Buffered => options.buffered(),
            How::Mapped => options.mapped(),
        }
    }

    fn of_files(name: &'static str, folder: Folder, seed: u64, how: How) -> Place {
        let write = folder.file("write", WRITE_SIZE, OLD);
        Place {
            name,
            read: folder.file("read", SIZE, seed),
            size: SIZE,
            seed,
            witness: write.clone(),
            write,
            // What is mapped keeps its size.
            folder: (how != How::Mapped).then(|| folder.path.clone()),
            how,
            _loops: Vec::new(),
            _folder: folder,
        }
    }

    fn of_loops(folder: Folder, seed: u64) -> Result<Place, String> {
        let size = SIZE & !(SECTOR as u64 - 1);
        let (below_read, below_write) =
            (folder.file("read", size, seed), folder.file("write", WRITE_SIZE, OLD));
        let (read, write) = (Loop::over(&below_read, SECTOR)?, Loop::over(&below_write, SECTOR)?);
        Ok(Place {
            name: "loop",
            read: read.path.clone(),
            size,
            seed,
            write: write.path.clone(),
            witness: below_write,
            folder: None,
            how: How::Direct,
            _loops: vec![read, write],
            _folder: folder,
        })
    }
}

/// The first of them.
pub fn first() -> Option<Place> {
    folders().into_iter().next().map(|folder| Place::of_files(folder.name, folder, 1, How::Direct))
}

/// Every target that can be made here; what cannot is printed with its reason.
pub fn all() -> Vec<Place> {
    let mut places = Vec::new();
    for (seed, folder) in (1..).zip(folders()) {
        places.push(Place::of_files(folder.name, folder, seed, How::Direct));
    }
    // The page cache of a disk's file system, where there is one.
    if let Some(folder) = folders().pop() {
        places.push(Place::of_files("buffered", folder, 11, How::Buffered));
    }
    // Copied by the CPU from and to a mapping: the first folder's, which is in memory where there is such.
    if let Some(folder) = folders().into_iter().next() {
        places.push(Place::of_files("mapped", folder, 13, How::Mapped));
    }
    let over = folders().into_iter().next().ok_or_else(|| "no folder to put its file in".to_string());
    match over.and_then(|folder| Place::of_loops(folder, 12)) {
        Ok(place) => places.push(place),
        Err(why) => eprintln!("skipped: loop device: {why}"),
    }
    places
}

/// The targets that this machine is known to have, judged by other means than [`all`] uses: a suite that silently
/// skips them fails.
pub fn known() -> Vec<&'static str> {
    let is = |path: &Path, kinds: &[FsType]| statfs(path).is_ok_and(|s| kinds.contains(&s.filesystem_type()));
    let mut known = Vec::new();
    if is(Path::new("/dev/shm"), &[TMPFS_MAGIC]) && kernel() >= (6, 6) {
        known.extend(["tmpfs", "buffered", "mapped"]); // tmpfs takes O_DIRECT from 6.6 on
    }
    if is(&std::env::temp_dir(), &[EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC]) {
        known.extend(["disk", "buffered", "mapped"]);
    }
    if support::root() && Path::new("/dev/loop-control").exists() {
        known.push("loop");
    }
    known
}

fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(['.', '-']).map(|n| n.trim().parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
