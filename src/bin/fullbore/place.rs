//! What is measured: existing files or devices, or a file that is made, filled, and removed at the end.

use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use fullbore::{Drive, Engine, Target};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::{statfs, statvfs};

use crate::args::{ALIGN, Plan};
use crate::content;
use crate::direct::{self, Mapped, Op, PageBuf, Plain, serial_object};
use crate::failure::Failure;
use crate::lay_out::lay_out;
use crate::member::Member;
use crate::progress::Progress;
use crate::stop::MadeFile;
use crate::units::human;

/// What the bytes of a file are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// Our content with this seed.
    Content(u64),
    /// What pread gives.
    Pread,
}

/// A file or device to measure, or several as a stripe.
#[derive(Debug)]
pub struct Place {
    pub members: Vec<Member>,
    /// Bytes of a chunk, of a stripe.
    pub stripe: Option<u64>,
    /// Bytes that are used.
    pub size: u64,
    pub file_bytes: u64,
    /// Name of the file system, or what else it is.
    pub kind: String,
    pub truth: Truth,
    /// Removes the file when the place is dropped.
    pub made: Option<MadeFile>,
}

impl Place {
    /// Finds or makes what the plan asks for. Members of a stripe must be there.
    pub fn of(plan: &Plan, engine: &Engine) -> Result<Self, Failure> {
        let path = match &plan.files[..] {
            [] => return Self::anywhere(plan),
            [path] => path,
            paths => return Self::existing(plan, engine, paths),
        };
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => Self::made_in(plan, path).map_err(|cause| {
                Failure::Setup(format!("{cause}: name a folder on another file system with --filename"))
            }),
            Ok(_) => Self::existing(plan, engine, &plan.files),
            // A name mistyped: nobody wants a file among the devices, in memory.
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_device_name(path) => {
                Err(Failure::Setup(format!("{}: there is no such device: check --filename", path.display())))
            }
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

    /// What it is called: the names with colons between.
    pub fn name(&self) -> String {
        let names: Vec<_> = self.members.iter().map(|member| member.path.to_string_lossy()).collect();
        names.join(":")
    }

    /// What plain reads go to, by the same names as in [`name`](Self::name).
    pub fn plain_name(&self) -> String {
        let names: Vec<_> = self.members.iter().map(|member| member.plain.to_string_lossy()).collect();
        names.join(":")
    }

    /// The same bytes without the engine: O_DIRECT on the files, or on the block devices of NVMe namespaces; through
    /// the page cache where files are mapped; of DAX devices with it.
    pub fn plain(&self, plan: &Plan, engine: &Engine, write: bool) -> Result<Plain, Failure> {
        plain(plan, engine, &self.members, write)
    }

    /// Whether it is of DAX devices, which plain reads cannot reach.
    pub fn is_dax(&self) -> bool {
        self.members.iter().any(Member::is_dax)
    }

    /// What the engine moves to and from.
    pub fn target(&self, plan: &Plan, engine: &Engine) -> Result<Target, Failure> {
        target(plan, engine, &self.members)
    }

    /// The nodes of NVMe namespaces.
    pub fn passthrough(&self) -> impl Iterator<Item = PathBuf> {
        self.members.iter().filter(|member| member.drive().is_some()).map(|member| member.path.clone())
    }

    /// The drives that are reached by passthrough.
    pub fn drives(&self) -> impl Iterator<Item = Drive> {
        self.members.iter().filter_map(Member::drive)
    }

    /// Fills a file that was just made with content. Does nothing to a file that was there before.
    pub fn lay_out(&self) -> Result<(), Failure> {
        let (Some(made), Truth::Content(seed)) = (&self.made, self.truth) else { return Ok(()) };
        let say = |what: &str, error: &dyn std::fmt::Display| {
            Failure::Setup(format!(
                "{what} {} failed: {error}: free space or lower --size",
                made.path().display()
            ))
        };
        let file = direct::open(made.path(), true).map_err(|error| say("opening", &error))?;
        let progress = Progress::new("making the file", Some(self.size));
        lay_out(&file, self.size, seed, &progress).map_err(|failed| match failed {
            Some((what, error)) => say(what, &error),
            None => Failure::Stopped,
        })?;
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
        let (kind, members) = (kind(&path), vec![Member::file(path)]);
        Ok(Self { members, stripe: None, kind, size, file_bytes: size, truth, made: Some(made) })
    }

    fn existing(plan: &Plan, engine: &Engine, paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut looks = Vec::new();
        for path in paths {
            looks.push((path, look(path)?));
        }
        let name = paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(":");
        let refuse = |text: String| Err(Failure::Setup(format!("{name}: {text}")));
        // Before anything is opened for it.
        if plan.rw.writes() && !plan.destructive {
            return refuse(format!("--rw={} would overwrite it: add --allow-destructive", plan.rw.name()));
        }
        let mut members = Vec::new();
        for (path, meta) in &looks {
            members.push(Member::existing(plan, engine, path, meta)?);
        }
        let plain = plain(plan, engine, &members, plan.rw.writes())?;
        let file_bytes = plain.size().map_err(Failure::setup)?;
        let mut size = plan.size.unwrap_or(file_bytes);
        if size > file_bytes {
            return refuse(format!("it holds {}: lower --size", human(file_bytes)));
        }
        if plan.rw.writes() {
            size -= size % ALIGN; // a direct write cannot end elsewhere
        }
        if size < plan.bs {
            let key = if plan.kv.is_some() { "--chunk_tokens" } else { "--bs" };
            let (size, bs) = (human(size), human(plan.bs));
            return refuse(format!("{size} do not hold one object of {bs}: lower {key}"));
        }
        let truth = match plan.rw.writes() {
            true => Truth::Content(new_seed()),
            false => seed_of(&plain, size).map_or(Truth::Pread, Truth::Content),
        };
        let kind = if members[0].is_dax() { "DAX device".into() } else { kind_of(&members[0], &looks[0].1) };
        Ok(Self { members, stripe: plan.stripe, size, file_bytes, kind, truth, made: None })
    }
}

pub fn is_device_name(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// What is there under that name, if it can be measured.
fn look(path: &Path) -> Result<fs::Metadata, Failure> {
    let refuse = |text: String| Err(Failure::Setup(format!("{}: {text}", path.display())));
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => return refuse(format!("{error}: check --filename")),
    };
    let kind = meta.file_type();
    if !meta.is_file() && !kind.is_block_device() && !kind.is_char_device() {
        return refuse("neither a file nor a device: name one of these with --filename".into());
    }
    Ok(meta)
}

fn target(plan: &Plan, engine: &Engine, members: &[Member]) -> Result<Target, Failure> {
    let targets = members.iter().map(|member| member.target(plan, engine));
    let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
    match (plan.stripe, targets.pop()) {
        (None, Some(target)) => Ok(target),
        (Some(chunk), Some(last)) => {
            targets.push(last);
            engine.stripe(&targets, chunk).map_err(Failure::setup)
        }
        (_, None) => Err(Failure::setup("nothing to measure")),
    }
}

fn plain(plan: &Plan, engine: &Engine, members: &[Member], write: bool) -> Result<Plain, Failure> {
    if members.iter().any(Member::is_dax) {
        let mapped = Mapped::new(engine, target(plan, engine, members)?).map_err(Failure::setup)?;
        return Ok(Plain::Mapped(Box::new(mapped)));
    }
    let paths: Vec<&Path> = members.iter().map(|member| &*member.plain).collect();
    Plain::open(&paths, plan.stripe, write, plan.mapped).map_err(|(path, error)| {
        Failure::Setup(format!("{}: {}: name another file with --filename", path.display(), why(&error)))
    })
}

/// The temp folder. TMPDIR may be set to nothing.
pub fn temp_folder() -> PathBuf {
    Some(env::temp_dir()).filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| "/tmp".into())
}

/// Where a file may be made without asking. A build folder is known by the tag that cargo leaves in it.
fn folders() -> Vec<(&'static str, PathBuf)> {
    let mut folders = vec![("temp", temp_folder())];
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
pub fn why(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EINVAL) => "the file system does not take direct I/O (O_DIRECT)".into(),
        _ => error.to_string(),
    }
}

/// What the first member is; the library sees to it that the others are alike.
fn kind_of(member: &Member, meta: &fs::Metadata) -> String {
    let kind = meta.file_type();
    match () {
        () if kind.is_char_device() => "NVMe namespace".into(),
        () if kind.is_block_device() => "block device".into(),
        () => self::kind(&member.path),
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
fn seed_of(plain: &Plain, size: u64) -> Option<u64> {
    const LOOKS: u64 = 256;
    let pages = size / ALIGN;
    let mut page = PageBuf::new(ALIGN as usize);
    let mut seed = None;
    for look in 0..LOOKS.min(pages) {
        let offset = (pages - 1) * look / (LOOKS.min(pages) - 1).max(1) * ALIGN;
        serial_object(plain, Op::Read, ALIGN as usize, &mut page, offset, ALIGN as usize).ok()?;
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
