//! Opening a target: what may be opened how, and what is refused with which remedy.

use super::inner::{Kind, TargetInner};
use super::{dax, ioctl, nvme, probe};
use crate::error::{Error, ErrorKind};
use crate::plan::Geometry;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How to open a target.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    write: bool,
    create: Option<u64>,
    buffered: bool,
    force: bool,
    polled: bool,
    mapped: bool,
    guard: bool,
}

impl OpenOptions {
    /// For reading.
    pub fn read() -> OpenOptions {
        OpenOptions {
            write: false,
            create: None,
            buffered: false,
            force: false,
            polled: false,
            mapped: false,
            guard: false,
        }
    }

    /// For reading and writing.
    pub fn write() -> OpenOptions {
        OpenOptions { write: true, ..OpenOptions::read() }
    }

    /// Makes the file if it is not there, and sees that it has at least `size` bytes, preallocated: direct writes
    /// into a file without allocated blocks are punted to kernel workers by the file system.
    pub fn create(mut self, size: u64) -> OpenOptions {
        (self.write, self.create) = (true, Some(size));
        self
    }

    /// Goes through the page cache instead of O_DIRECT. Never chosen by itself.
    pub fn buffered(mut self) -> OpenOptions {
        self.buffered = true;
        self
    }

    /// Has the drive's lanes poll for completions instead of waiting for interrupts (NVMe character devices only, and
    /// only where the driver was loaded with `nvme.poll_queues`). A lane that polls uses its CPU wholly while
    /// commands are in flight, and sleeps when none are.
    pub fn polled(mut self) -> OpenOptions {
        self.polled = true;
        self
    }

    /// Maps a file and has the CPU copy from and to it, by streaming stores on several lanes: for files on a DAX file
    /// system, tmpfs or hugetlbfs. (DAX devices, `/dev/dax0.0`, are always mapped.)
    ///
    /// The file must not be cut short while it is open: an access past its end is a SIGBUS, which ends the process,
    /// unless [`OpenOptions::guard_sigbus`] was asked for.
    pub fn mapped(mut self) -> OpenOptions {
        self.mapped = true;
        self
    }

    /// Has a SIGBUS in the engine's own copies turned into an error of the transfer. It installs a handler for the
    /// whole process, once and for ever, which hands every other SIGBUS to the handler that was there before; that
    /// is why it is off by default.
    pub fn guard_sigbus(mut self) -> OpenOptions {
        self.guard = true;
        self
    }

    /// Writes to a drive although it is mounted, held by another driver or has partitions.
    pub fn force(mut self) -> OpenOptions {
        self.force = true;
        self
    }

    /// What does not go with a kind of target.
    fn check(&self, kind: Kind) -> Result<(), Error> {
        let bad = |message: &'static str| Err(Error::new(ErrorKind::InvalidInput, message));
        match kind {
            Kind::Nvme if self.buffered => bad(
                "NVMe commands pass the page cache by; open the block device (/dev/nvme0n1) for buffered()",
            ),
            Kind::File | Kind::Block | Kind::Dax | Kind::Null if self.polled => {
                bad("only a NVMe character device (/dev/ng0n1) can be polled; leave polled() off")
            }
            Kind::Block | Kind::Nvme if self.mapped => bad("only a file can be mapped; leave mapped() off"),
            Kind::Dax if self.mapped && self.buffered => {
                bad("mapped() and buffered() are two ways; choose one")
            }
            Kind::Block | Kind::Nvme if self.create.is_some() => {
                bad("a device has the size that it has; open it with OpenOptions::write()")
            }
            _ => Ok(()),
        }
    }
}

/// Most bytes of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSizes {
    /// To a device that takes them as they come.
    pub device: u32,
    /// To a file that kernel workers serve: each command is handed over to a thread and back.
    pub worker: u32,
}

impl CommandSizes {
    /// What was asked for, or what was measured to be best (benches/RESULTS.md).
    pub fn of(asked: Option<u32>) -> CommandSizes {
        CommandSizes { device: asked.unwrap_or(128 << 10), worker: asked.unwrap_or(512 << 10) }
    }

    pub fn largest(&self) -> u32 {
        self.device.max(self.worker)
    }
}

/// Opens a file, a block device or a NVMe namespace's character device.
pub fn open(
    path: &Path,
    options: &OpenOptions,
    engine: u64,
    sizes: CommandSizes,
) -> Result<TargetInner, Error> {
    let name: Arc<str> = path.to_string_lossy().into();
    let kind = kind_of(path, options).and_then(|kind| options.check(kind).map(|()| kind));
    let opened = kind.and_then(|kind| match kind {
        Kind::Nvme => open_namespace(path, options, &name, engine, sizes.device),
        Kind::Dax => open_mapped(path, options, &name, engine, sizes.device),
        kind => open_blocks(path, options, kind, &name, engine, sizes),
    });
    opened.map_err(|e| e.on(&name))
}

fn open_blocks(
    path: &Path,
    options: &OpenOptions,
    kind: Kind,
    name: &str,
    engine: u64,
    sizes: CommandSizes,
) -> Result<TargetInner, Error> {
    if kind == Kind::Block && options.write && !options.force {
        refuse_if_held(path)?;
    }
    let mut file = open_file(path, options, !options.buffered).map_err(|e| explain_open(&e, options))?;
    let size = file
        .seek(SeekFrom::End(0))
        .map_err(|e| Error::io("cannot tell its size; is it a device that was unplugged?", &e))?;
    let punts = ioctl::blocks(file.as_raw_fd());
    let command_size = if punts { sizes.worker } else { sizes.device };
    let geometry =
        probe::geometry(&file, !options.buffered, command_size).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => no_direct(),
            _ => Error::io("a first read failed; see the kernel's log for the device", &e),
        })?;
    geometry.check()?;
    let mut target = TargetInner::bare(name, engine, kind, geometry, size);
    (target.direct, target.writable) = (!options.buffered, options.write);
    (target.punts, target.file) = (punts, Some(file));
    match options.create {
        Some(wanted) if size < wanted => target.set_size(wanted)?,
        _ => {}
    }
    Ok(target)
}

fn open_namespace(
    path: &Path,
    options: &OpenOptions,
    name: &Arc<str>,
    engine: u64,
    command_size: u32,
) -> Result<TargetInner, Error> {
    let file = open_file(path, options, false).map_err(|e| explain_open(&e, options))?;
    let namespace = nvme::open(&file, name, options.write, options.force, command_size)?;
    if options.polled && !namespace.poll {
        let message = "the driver has no queues that are polled; load it with nvme.poll_queues=1 or more (on the \
                       kernel's command line, or as an option of the module nvme)";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let (geometry, size) = (namespace.geometry, namespace.size);
    let mut target = TargetInner::bare(name, engine, Kind::Nvme, geometry, size);
    (target.writable, target.polled) = (options.write, options.polled);
    (target.file, target.namespace) = (Some(file), Some(Box::new(namespace)));
    Ok(target)
}

fn open_mapped(
    path: &Path,
    options: &OpenOptions,
    name: &Arc<str>,
    engine: u64,
    command_size: u32,
) -> Result<TargetInner, Error> {
    let mut file = open_file(path, options, false).map_err(|e| explain_open(&e, options))?;
    let folder = dax::device(Path::new("/sys"), path).map_err(|e| explain_open(&e, options))?;
    if options.guard {
        dax::guard()?;
    }
    let dax = match folder {
        Some(_) if options.create.is_some() || options.buffered => {
            let message =
                "a DAX device has the size that it has and no page cache; leave create() and buffered() off";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Some(folder) => dax::map_device(&file, &folder, options.write)?,
        None => {
            let size = |file: &mut File| file.seek(SeekFrom::End(0));
            let old = size(&mut file).map_err(|e| Error::io("cannot tell its size; is it a file?", &e))?;
            let mut whole =
                TargetInner::bare(name, engine, Kind::File, Geometry::unlimited(command_size), old);
            (whole.writable, whole.file) = (options.write, Some(file));
            match options.create {
                Some(wanted) if old < wanted => whole.set_size(wanted)?,
                _ => {}
            }
            let size = whole.size();
            file = whole
                .file
                .take()
                .ok_or_else(|| Error::new(ErrorKind::Io, "the file is gone; open it again"))?;
            dax::map_file(&file, size, options.write)?
        }
    };
    let geometry = Geometry::unlimited(command_size);
    let mut target = TargetInner::bare(name, engine, Kind::Dax, geometry, dax.size);
    (target.writable, target.file) = (options.write, Some(file));
    target.unfixed = Some("copies need no registered buffers".into());
    target.dax = Some(dax);
    Ok(target)
}

/// A target of `size` bytes whose commands complete at once and move nothing.
pub fn open_null(size: u64, engine: u64, command_size: u32) -> Result<TargetInner, Error> {
    let geometry = Geometry { block: 512, memory_align: 4, ..Geometry::unlimited(command_size) };
    geometry.check()?;
    Ok(TargetInner::bare("null", engine, Kind::Null, geometry, size))
}

impl TargetInner {
    /// Makes a file `size` bytes long, its blocks preallocated.
    pub fn set_size(&self, size: u64) -> Result<(), Error> {
        let fail = |kind, message: &'static str| Err(Error::new(kind, message).on(&self.name).at(0, size));
        let Some(file) = self.file.as_ref().filter(|_| self.kind == Kind::File) else {
            return fail(
                ErrorKind::Unsupported,
                "only a file that is not mapped can be given a size; a device's is fixed",
            );
        };
        if !self.writable {
            return fail(
                ErrorKind::ReadOnly,
                "the target was opened for reading; open it with OpenOptions::write()",
            );
        }
        let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE).unwrap_or((u64::MAX, 0));
        if size > limit {
            // Tried, the kernel would send SIGXFSZ, which ends a process that does not expect it.
            let message = format!("files may grow to {limit} bytes; raise the limit (ulimit -f)");
            return Err(Error::os(message, libc::EFBIG).on(&self.name).at(0, size));
        }
        let old = self.size();
        let grown = match i64::try_from(size) {
            Err(_) => return fail(ErrorKind::InvalidInput, "the size overflows a file offset"),
            Ok(len) if size > old => {
                fallocate(file, FallocateFlags::empty(), 0, len).map_err(io::Error::from)
            }
            Ok(_) => file.set_len(size),
        };
        match grown {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                tracing::warn!(target = %self.name, "the file system does not preallocate: the file is sparse");
                file.set_len(size)
            }
            other => other,
        }
        .map_err(|e| {
            let message = "cannot give the file its size; is the file system full, or a quota or ulimit -f reached?";
            Error::io(message, &e).on(&self.name).at(old, size.saturating_sub(old))
        })?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}

fn kind_of(path: &Path, options: &OpenOptions) -> Result<Kind, Error> {
    let file_type = match std::fs::metadata(path) {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound && options.create.is_some() => {
            return Ok(if options.mapped { Kind::Dax } else { Kind::File });
        }
        Err(e) => return Err(explain_open(&e, options)),
    };
    if file_type.is_file() {
        Ok(if options.mapped { Kind::Dax } else { Kind::File })
    } else if file_type.is_block_device() {
        Ok(Kind::Block)
    } else if file_type.is_char_device() {
        namespace_or_not(path)
    } else {
        let what = if file_type.is_dir() { "a directory" } else { "not a regular file or a device" };
        let remedy = "name a file, a block device or a NVMe character device (/dev/ng0n1)";
        Err(Error::new(ErrorKind::InvalidInput, format!("it is {what}; {remedy}")))
    }
}

/// A character device is a NVMe namespace, or no target.
fn namespace_or_not(path: &Path) -> Result<Kind, Error> {
    let bad = |message: &'static str| Err(Error::new(ErrorKind::InvalidInput, message));
    match nvme::kind_of(path).map_err(|e| Error::io("cannot tell what it is; is /proc mounted?", &e))? {
        nvme::Node::Namespace => Ok(Kind::Nvme),
        nvme::Node::Controller => bad("it is a NVMe controller; name one of its namespaces (/dev/ng0n1)"),
        nvme::Node::Other if dax::device(Path::new("/sys"), path).is_ok_and(|it| it.is_some()) => {
            Ok(Kind::Dax)
        }
        nvme::Node::Other => bad(
            "it is a device, and no NVMe namespace; name a file, a block device or a NVMe character device (/dev/ng0n1)",
        ),
    }
}

fn open_file(path: &Path, options: &OpenOptions, direct: bool) -> io::Result<File> {
    let direct = if direct { libc::O_DIRECT } else { 0 };
    std::fs::OpenOptions::new()
        .read(true)
        .write(options.write)
        .create(options.create.is_some())
        .custom_flags(direct | libc::O_CLOEXEC)
        .open(path)
}

fn refuse_if_held(path: &Path) -> Result<(), Error> {
    if !nvme::held(path) {
        return Ok(());
    }
    let message = "the device is mounted, or held by LVM, RAID or another driver (lsblk shows by what); writing would \
                   destroy that; unmount it, or force";
    Err(Error::os(message, libc::EBUSY).with_kind(ErrorKind::InUse))
}

fn no_direct() -> Error {
    Error::os(
        "the file system does not take O_DIRECT here; use a file on ext4, xfs or a block device, or ask for the \
         page cache with OpenOptions::buffered()",
        libc::EINVAL,
    )
    .with_kind(ErrorKind::Unsupported)
}

fn explain_open(error: &io::Error, options: &OpenOptions) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) if !options.buffered => no_direct(),
        Some(libc::ENOENT) => Error::io("there is no such file; check the path, or create it", error),
        Some(libc::EACCES | libc::EPERM) => {
            Error::io("may not be opened; check its owner and mode, or run as a user who may", error)
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            Error::io("too many open files; raise the limit (ulimit -n) or close some", error)
        }
        Some(libc::EROFS) => {
            Error::io("the file system is mounted read-only; remount it, or open for reading", error)
        }
        _ => Error::io("cannot be opened; see the errno and the kernel's log", error),
    }
}
