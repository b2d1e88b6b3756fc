//! The file that is measured: an existing one, or one that is made, filled, and removed at the end.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::{statfs, statvfs};

use crate::args::{ALIGN, Plan};
use crate::content;
use crate::direct::{self, PageBuf};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::stop::{self, MadeFile};
use crate::units::human;

/// What the bytes of a file are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Our content with this seed.
    Content(u64),
    /// What pread gives.
    Pread,
}

/// A file to measure.
#[derive(Debug)]
pub struct Place {
    pub path: PathBuf,
    /// Bytes that are used.
    pub size: u64,
    pub file_bytes: u64,
    /// Name of the file system, or what else it is.
    pub kind: String,
    pub truth: Truth,
    /// Removes the file when the place is dropped.
    made: Option<MadeFile>,
}

/// Bytes of a write while a file is filled, and how far apart an existing file is looked at.
const CHUNK: usize = 4 << 20;

impl Place {
    /// Finds or makes the file that the plan asks for.
    pub fn of(plan: &Plan) -> Result<Self, Failure> {
        let Some(path) = &plan.filename else { return Self::anywhere(plan) };
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Self::made_in(plan, path).map_err(|cause| {
                Failure::Setup(format!("{cause}: name a folder on another file system with --filename"))
            }),
            Ok(meta) => Self::existing(plan, path, &meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::made(plan, path.clone()).map_err(|cause| {
                    Failure::Setup(format!("{cause}: name another file or folder with --filename"))
                })
            }
            Err(error) => Err(Failure::Setup(format!("{}: {error}: check --filename", path.display()))),
        }
    }

    pub fn was_made(&self) -> bool {
        self.made.is_some()
    }

    /// Fills a file that was just made with content, preallocated so that no write finds a hole. Does
    /// nothing to a file that was there before.
    pub fn lay_out(&self) -> Result<(), Failure> {
        let (Some(_), Truth::Content(seed)) = (&self.made, self.truth) else { return Ok(()) };
        let say = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Setup(format!(
                "{what} {} failed: {error}: free space or lower --size",
                self.path.display()
            ))
        };
        let file = direct::open(&self.path, true).map_err(|error| say("opening", &error))?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.size as i64) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
            Err(error) => return Err(say("preallocating", &error)),
        }
        let progress = Progress::new("making the file", Some(self.size));
        let mut chunk = PageBuf::new(CHUNK);
        let mut at = 0;
        while at < self.size {
            stop::check()?;
            let len = (self.size - at).min(CHUNK as u64);
            content::fill(&mut chunk[..len as usize], at, seed);
            file.write_all_at(&chunk[..len as usize], at).map_err(|error| say("writing", &error))?;
            progress.add(len);
            at += len;
        }
        file.sync_all().map_err(|error| say("flushing", &error))?;
        // Direct writes leave nothing there; this is for file systems that keep pages all the same.
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    /// The first of the temp folder, the build folder and the home folder that takes direct I/O.
    fn anywhere(plan: &Plan) -> Result<Self, Failure> {
        let mut causes = Vec::new();
        for (name, folder) in folders() {
            match Self::made_in(plan, &folder) {
                Ok(place) => return Ok(place),
                Err(cause) => causes.push(format!("{name} folder: {cause}")),
            }
        }
        let causes = causes.join("; ");
        Err(Failure::Setup(format!(
            "no place for a file ({causes}): name a folder that can hold one with --filename"
        )))
    }

    fn made_in(plan: &Plan, folder: &Path) -> Result<Self, String> {
        Self::made(plan, folder.join(format!("fullbore-bench-{}", process::id())))
    }

    /// Makes an empty file for content, after proof that direct I/O works there and that it will fit.
    fn made(plan: &Plan, path: PathBuf) -> Result<Self, String> {
        let size = plan.new_file_size();
        if !size.is_multiple_of(ALIGN) {
            return Err(format!("--size={size} is not a multiple of 4k, as a file to be made must be"));
        }
        if size < plan.bs {
            return Err(format!("a file of {} does not hold one object of {}", human(size), human(plan.bs)));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let free = free_bytes(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        if let Some(free) = free
            && free < size
        {
            return Err(format!("{}: {} free, {} needed", folder.display(), human(free), human(size)));
        }
        let say = |error: io::Error| format!("{}: {}", path.display(), why(&error));
        // Made without O_DIRECT: a file system that refuses that flag refuses it only after it made the file.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(say)?;
        let made = MadeFile::new(path.clone());
        direct::open(&path, true).and_then(|file| direct::probe(&file)).map_err(say)?;
        let truth = Truth::Content(new_seed());
        Ok(Self { kind: kind(&path), path, size, file_bytes: size, truth, made: Some(made) })
    }

    fn existing(plan: &Plan, path: &Path, meta: &fs::Metadata) -> Result<Self, Failure> {
        let refuse = |text: String| Err(Failure::Setup(format!("{}: {text}", path.display())));
        let device = meta.file_type().is_block_device();
        if !meta.is_file() && !device {
            return refuse("neither a file nor a block device: name one of these with --filename".into());
        }
        if plan.rw.writes() && !plan.destructive {
            return refuse(format!("--rw={} would overwrite it: add --allow-destructive", plan.rw.name()));
        }
        let mut file = match direct::open(path, plan.rw.writes()) {
            Ok(file) => file,
            Err(error) => return refuse(format!("{}: name another file with --filename", why(&error))),
        };
        let file_bytes = file.seek(SeekFrom::End(0)).map_err(Failure::setup)?;
        let mut size = plan.size.unwrap_or(file_bytes);
        if size > file_bytes {
            return refuse(format!("it holds {}: lower --size", human(file_bytes)));
        }
        if plan.rw.writes() {
            size -= size % ALIGN; // a direct write cannot end elsewhere
        }
        if size < plan.bs {
            return refuse(format!(
                "{} do not hold one object of {}: lower --bs",
                human(size),
                human(plan.bs)
            ));
        }
        let truth = match plan.rw.writes() {
            true => Truth::Content(new_seed()),
            false => seed_of(&file, size).map_or(Truth::Pread, Truth::Content),
        };
        let kind = if device { "block device".into() } else { kind(path) };
        Ok(Self { path: path.to_owned(), size, file_bytes, kind, truth, made: None })
    }
}

/// Where a file may be made without asking. A build folder is known by the tag that cargo leaves in it.
fn folders() -> Vec<(&'static str, PathBuf)> {
    let mut folders = vec![("temp", env::temp_dir())];
    let beside = env::current_exe().ok().and_then(|exe| {
        exe.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file()).map(Path::to_owned)
    });
    folders.extend(env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).or(beside).map(|path| ("build", path)));
    folders.extend(env::var_os("HOME").map(|path| ("home", path.into())));
    folders
}

/// Free bytes, where the file system counts them.
fn free_bytes(folder: &Path) -> io::Result<Option<u64>> {
    let stat = statvfs::statvfs(folder)?;
    Ok((stat.blocks() > 0).then(|| stat.blocks_available() * stat.fragment_size()))
}

/// An error in words; the one that says nothing by itself is put into ours.
fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EINVAL) => "the file system does not take direct I/O (O_DIRECT)".into(),
        _ => error.to_string(),
    }
}

fn kind(path: &Path) -> String {
    let Ok(stat) = statfs::statfs(path) else { return "unknown".into() };
    let known = [
        (statfs::EXT4_SUPER_MAGIC, "ext4"),
        (statfs::XFS_SUPER_MAGIC, "xfs"),
        (statfs::BTRFS_SUPER_MAGIC, "btrfs"),
        (statfs::TMPFS_MAGIC, "tmpfs"),
        (statfs::OVERLAYFS_SUPER_MAGIC, "overlayfs"),
        (statfs::NFS_SUPER_MAGIC, "nfs"),
        (statfs::FUSE_SUPER_MAGIC, "fuse"),
    ];
    let found = known.iter().find(|(magic, _)| *magic == stat.filesystem_type());
    found.map_or_else(|| format!("file system {:#x}", stat.filesystem_type().0), |(_, name)| (*name).into())
}

/// Unlike that of any run before, so that blocks which an earlier file left on the device are wrong here.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64);
    now ^ u64::from(process::id()).rotate_right(20)
}

/// The seed of a file that holds our content, by a look at its first page and many others.
fn seed_of(file: &File, size: u64) -> Option<u64> {
    const LOOKS: u64 = 256;
    let pages = size / ALIGN;
    let mut page = PageBuf::new(ALIGN as usize);
    let mut seed = None;
    for look in 0..LOOKS.min(pages) {
        let offset = (pages - 1) * look / (LOOKS.min(pages) - 1).max(1) * ALIGN;
        file.read_exact_at(&mut page, offset).ok()?;
        let found = match page.first_chunk().and_then(content::claim) {
            Some((there, found)) if there == offset => found,
            _ => return None,
        };
        if *seed.get_or_insert(found) != found {
            return None;
        }
    }
    seed
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::args::{Limit, Rw};

    /// A place that nothing is done to.
    pub fn nowhere() -> (Plan, Place) {
        let (path, kind) = (PathBuf::from("/nowhere"), "none".into());
        let place =
            Place { path: path.clone(), size: 8192, file_bytes: 8192, kind, truth: Truth::Pread, made: None };
        (plan(path, 8192), place)
    }

    fn plan(filename: PathBuf, size: u64) -> Plan {
        Plan {
            filename: Some(filename),
            bs: 4096,
            depths: vec![1],
            jobs: 1,
            lanes: None,
            cmd_size: 4096,
            lane_depth: 1,
            size: Some(size),
            limit: Limit { time_based: false, runtime: None },
            rw: Rw::Read,
            verify: true,
            destructive: false,
            json: false,
            output: None,
            compare: false,
        }
    }

    /// A folder of a test's own; `None`, and a line that says so, where the temp folder takes no direct I/O.
    fn folder(name: &str) -> Option<PathBuf> {
        let folder = env::temp_dir().join(format!("fullbore-place-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let probe = plan(folder.clone(), 8192);
        match Place::of(&probe) {
            Ok(_) => Some(folder),
            Err(cause) => {
                println!("skipped: {cause}");
                None
            }
        }
    }

    #[test]
    fn a_made_file_is_filled_recognised_and_removed() {
        let Some(folder) = folder("made") else { return };
        let path = folder.join("file");
        let wanted = plan(path.clone(), (5 << 20) + 4096);
        let place = Place::of(&wanted).unwrap();
        place.lay_out().unwrap();
        let again = Place::of(&wanted).unwrap();
        assert!(place.was_made() && !again.was_made());
        assert_eq!((place.truth, place.size), (again.truth, again.size));
        let bytes = fs::read(&path).unwrap();
        let Truth::Content(seed) = place.truth else { panic!("no content") };
        assert_eq!((bytes.len() as u64, content::check(&bytes, 0, seed).bytes), (place.size, 0));
        drop(again);
        assert!(path.exists());
        drop(place);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn foreign_files_are_pread_and_never_overwritten_unasked() {
        let Some(folder) = folder("foreign") else { return };
        let path = folder.join("file");
        fs::write(&path, vec![7; 10_001]).unwrap();
        let mut wanted = plan(path.clone(), 10_001);
        let place = Place::of(&wanted).unwrap();
        assert_eq!((place.truth, place.size), (Truth::Pread, 10_001));
        wanted.rw = Rw::Write;
        let refused = Place::of(&wanted).unwrap_err().to_string();
        assert!(refused.contains("--allow-destructive"), "{refused}");
        wanted.destructive = true;
        assert_eq!(Place::of(&wanted).unwrap().size, 8192);
        assert_eq!(fs::read(&path).unwrap(), vec![7; 10_001]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_cannot_be_is_one_line_with_a_remedy() {
        let Some(folder) = folder("refused") else { return };
        fs::write(folder.join("small"), "x").unwrap();
        for (name, size) in [("small", 8192), ("none/file", 8192), ("huge", 1 << 60), ("odd", 10_001)] {
            let refused = Place::of(&plan(folder.join(name), size)).unwrap_err().to_string();
            assert!(refused.contains("--") && !refused.contains('\n'), "{refused}");
            assert!(name == "small" || !folder.join(name).exists());
        }
        assert!(Place::of(&plan("/dev/null".into(), 8192)).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
