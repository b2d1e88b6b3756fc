//! Where tests keep files: folders on tmpfs and on a disk's file system, and loop devices.

use super::{content, root};
use nix::sys::statfs::statfs;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of the test's own, removed with all that is in it when dropped.
#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
    /// "tmpfs" or "disk".
    pub name: &'static str,
    /// Whether files in it take O_DIRECT.
    pub direct: bool,
}

impl Folder {
    fn new(parent: &Path, name: &'static str) -> Option<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("fullbore-it-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let mut folder = Folder { path, name, direct: false };
        folder.direct = folder.takes_direct();
        Some(folder)
    }

    fn takes_direct(&self) -> bool {
        let probe = self.path.join("probe");
        let made = File::create(&probe).and_then(|mut f| f.write_all(&[0; 4096]));
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&probe);
        let _ = std::fs::remove_file(&probe);
        made.is_ok() && opened.is_ok()
    }

    /// Makes a file of `size` bytes with content of `seed`, on disk when this returns: no write-back runs behind a
    /// test.
    pub fn file(&self, name: &str, size: u64, seed: u64) -> PathBuf {
        let path = self.path.join(name);
        let file = File::create(&path).expect("a file in a folder of ours");
        let mut piece = vec![0; 4 << 20];
        let mut at = 0;
        while at < size {
            let len = (size - at).min(piece.len() as u64) as usize;
            content::fill(&mut piece[..len], at, seed);
            file.write_all_at(&piece[..len], at).expect("room for a test file");
            at += len as u64;
        }
        file.sync_data().expect("a test file is written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;

fn in_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|s| matches!(s.filesystem_type().0 as u32, TMPFS | RAMFS))
}

/// A folder of each kind that this machine has: "tmpfs" in /dev/shm, and "disk" in the first of the temp folder,
/// the build folder and the home folder that is not in memory and takes O_DIRECT. What is missing is printed.
pub fn folders() -> Vec<Folder> {
    let shm = Path::new("/dev/shm");
    let tmpfs = in_memory(shm).then(|| Folder::new(shm, "tmpfs")).flatten().filter(|f| f.direct);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let disk = [Some(std::env::temp_dir()), Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))), home]
        .into_iter()
        .flatten()
        .filter(|parent| !in_memory(parent))
        .find_map(|parent| Folder::new(&parent, "disk").filter(|f| f.direct));
    if tmpfs.is_none() {
        eprintln!("skipped: /dev/shm is no tmpfs that takes O_DIRECT");
    }
    if disk.is_none() {
        eprintln!("skipped: none of temp, build and home folder is on a disk and takes O_DIRECT");
    }
    [tmpfs, disk].into_iter().flatten().collect()
}

/// The folder of that name ("tmpfs", "disk"), if this machine has it.
pub fn folder_of(name: &str) -> Option<Folder> {
    folders().into_iter().find(|f| f.name == name)
}

/// A loop device over a file. The kernel detaches it when the last descriptor is closed, also if we are killed:
/// it was told to detach while we hold it open.
#[derive(Debug)]
pub struct Loop {
    pub path: PathBuf,
    _open: File,
}

impl Loop {
    /// `Err` says why this machine has none.
    pub fn over(file: &Path, sector: u32) -> Result<Loop, String> {
        if !root() {
            return Err("a loop device needs root".into());
        }
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(file)
            .output()
            .map_err(|e| format!("no losetup: {e}"))?;
        if !made.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&made.stderr).trim()));
        }
        let path = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let open = File::open(&path);
        let detached = Command::new("losetup").arg("--detach").arg(&path).status();
        assert!(detached.is_ok_and(|s| s.success()), "losetup --detach {}", path.display());
        Ok(Loop { _open: open.map_err(|e| format!("{}: {e}", path.display()))?, path })
    }
}
