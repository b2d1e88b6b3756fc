//! NVMe namespaces through their generic character devices, `/dev/ngXnY`: what one is, and commands for it.

pub mod command;
#[cfg(test)]
mod fake;
mod identify;
mod in_use;
mod smart;
mod status;
mod sysfs;
#[cfg(test)]
mod tests;

pub use command::encode;
pub use in_use::held;
pub use smart::{Smart, smart};
pub use status::Status;
pub use sysfs::{Controller, Found};

use super::ioctl;
use crate::error::{Error, ErrorKind};
use crate::plan::Geometry;
use identify::{CNS_CONTROLLER, CNS_NAMESPACE, IdentifyController, IdentifyNamespace};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Segments that every kernel's driver takes, where sysfs does not say.
const SURE_SEGMENTS: u32 = 127;

/// An NVMe namespace, as it was found at open.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Its number in its subsystem.
    pub nsid: u32,
    /// A block has `1 << lba_shift` bytes.
    pub lba_shift: u8,
    /// The number of its LBA format.
    pub format: u8,
    /// Bytes.
    pub size: u64,
    /// All limits of a command.
    pub geometry: Geometry,
    /// What the drive itself says is the most bytes of a command (MDTS), and what the driver does: `max_hw_sectors_kb`.
    pub mdts: Option<u64>,
    pub driver_bytes: Option<u64>,
    /// What to give every command as its `timeout_ms`: not less than the driver's own.
    pub timeout_ms: u32,
    /// The block device that shows it, such as `nvme0n1`; None where there is no sysfs.
    pub block_name: Option<String>,
    /// By which controllers it is reached, and which disk in `/sys/block` has the queues of each. None known where
    /// there is no sysfs; more than one for a multipath namespace.
    pub controllers: Vec<Controller>,
    /// The driver has queues to poll for it.
    pub poll: bool,
    /// The NUMA node of its controllers, if they agree.
    pub node: Option<u32>,
    /// What is written is durable only after a flush.
    pub write_cache: bool,
    pub serial: String,
    pub model: String,
}

/// What sysfs says of the namespace whose generic node has this device number.
pub fn found(major: u64, minor: u64) -> io::Result<Found> {
    sysfs::find(Path::new("/sys"), major, minor)
}

/// The controllers behind a disk of `/sys/block`; `None`: it is no NVMe disk.
pub fn controllers_of(block: &str) -> Option<Vec<Controller>> {
    sysfs::controllers_of(Path::new("/sys"), block)
}

/// The drive that lanes serve, by the names of its controllers: the tags are theirs, whatever namespace uses them. And
/// the disks that have its hardware queues.
pub fn drive_of(controllers: &[Controller]) -> (String, Vec<String>) {
    let names: Vec<&str> = controllers.iter().map(|it| &*it.name).collect();
    (names.join("+"), controllers.iter().map(|it| it.block.clone()).collect())
}

/// What a character device is to NVMe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A namespace: `/dev/ng0n1`.
    Namespace,
    /// A controller: `/dev/nvme0`.
    Controller,
    /// None of NVMe's, or no character device.
    Other,
}

/// What the node at `path` is to NVMe. Links are followed.
pub fn kind_of(path: &Path) -> io::Result<Node> {
    let meta = std::fs::metadata(path)?;
    if !meta.file_type().is_char_device() {
        return Ok(Node::Other);
    }
    Ok(kind_of_major(nix::sys::stat::major(meta.rdev()), &std::fs::read_to_string("/proc/devices")?))
}

/// Looks a major number up in the text of `/proc/devices`.
fn kind_of_major(major: u64, devices: &str) -> Node {
    let characters = devices.lines().take_while(|line| !line.starts_with("Block devices"));
    let mut named = characters.filter_map(|line| line.trim().split_once(' '));
    match named.find(|(number, _)| number.parse() == Ok(major)) {
        Some((_, "nvme-generic")) => Node::Namespace,
        Some((_, "nvme")) => Node::Controller,
        _ => Node::Other,
    }
}

/// Finds out all about the namespace behind `file`, an open `/dev/ngXnY`.
///
/// `write`: it will be written to, which is refused if something else uses it, unless `force`. `command_size`: most
/// bytes a command, if the limits allow as many.
///
/// # Errors
/// InvalidInput: not a namespace. Permission: passthrough is forbidden. Unsupported: its format or its limits. InUse:
/// something else uses it. ReadOnly: it is write protected. Io, Unsupported: the device failed to say what it is.
pub fn open(
    file: &File,
    name: &Arc<str>,
    write: bool,
    force: bool,
    command_size: u32,
) -> Result<Namespace, Error> {
    let places = in_use::Places {
        sys: Path::new("/sys"),
        dev: Path::new("/dev"),
        mountinfo: &std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
    };
    open_in(file, write, force, command_size, places).map_err(|error| error.on(name))
}

fn open_in(
    file: &File,
    write: bool,
    force: bool,
    command_size: u32,
    places: in_use::Places,
) -> Result<Namespace, Error> {
    let meta = file
        .metadata()
        .map_err(|e| Error::io("cannot tell what it is; is the descriptor a device's?", &e))?;
    let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
    let fd = file.as_raw_fd();
    // Looked up, not tried: to another driver the same request number may mean anything, and a namespace's block device
    // would answer it.
    let kind = match std::fs::read_to_string("/proc/devices") {
        _ if !meta.file_type().is_char_device() => Node::Other,
        Ok(devices) => kind_of_major(major, &devices),
        Err(_) => Node::Namespace,
    };
    refuse_other(kind)?;
    let nsid = ioctl::nvme_id(fd).map_err(|error| forbidden(&error))?;
    let namespace = IdentifyNamespace::parse(&identify(fd, nsid, CNS_NAMESPACE)?)?;
    let controller = IdentifyController::parse(&identify(fd, 0, CNS_CONTROLLER)?);
    if namespace.metadata != 0 {
        return Err(metadata(&namespace));
    }
    let found = match sysfs::find(places.sys, major, minor) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::warn!(%error, "sysfs does not show the namespace: its limits are the controller's");
            None
        }
        found => Some(found.map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                Error::io("too many open files; raise the limit (ulimit -n) or close some", &e)
            }
            _ => Error::io("sysfs is not as it should be; is /sys mounted?", &e),
        })?),
    };
    let geometry = geometry(&namespace, &controller, found.as_ref(), command_size);
    geometry.check()?;
    if write {
        refuse_write(fd, nsid, &namespace, found.as_ref().map(|found| &*found.block), force, places)?;
    }
    let timeout_ms =
        found.as_ref().map_or_else(|| sysfs::driver_timeout_ms(places.sys), |found| found.timeout_ms);
    let poll = found.as_ref().is_some_and(|found| found.poll);
    let driver_bytes = found.as_ref().map(|found| found.max_bytes);
    let (block_name, controllers) = found.map(|found| (found.block, found.controllers)).unzip();
    let controllers: Vec<Controller> = controllers.unwrap_or_default();
    let node = controllers.first().and_then(|first| first.node);
    Ok(Namespace {
        nsid,
        lba_shift: namespace.lba_shift,
        format: namespace.format,
        size: namespace.size(),
        geometry,
        mdts: controller.max_bytes,
        driver_bytes,
        timeout_ms,
        block_name,
        node: node.filter(|_| controllers.iter().all(|it| it.node == node)),
        controllers,
        poll,
        write_cache: controller.write_cache,
        serial: controller.serial,
        model: controller.model,
    })
}

/// All limits of a command together (FACTS §4).
fn geometry(
    namespace: &IdentifyNamespace,
    controller: &IdentifyController,
    found: Option<&sysfs::Found>,
    command_size: u32,
) -> Geometry {
    let block = 1_u32 << namespace.lba_shift;
    let page = ioctl::page_size();
    let mdts = controller.max_bytes.unwrap_or(u64::MAX);
    let (max_bytes, max_segments, memory_align) = match found {
        Some(found) => (found.max_bytes, found.max_segments, found.memory_align),
        None => (mdts, (mdts / 4096).saturating_add(1).min(SURE_SEGMENTS as u64) as u32, 4),
    };
    let max_bytes = max_bytes.min(command_size as u64) as u32 & !(block - 1);
    Geometry { block, memory_align, max_bytes, max_segments, max_blocks: command::MAX_BLOCKS, page }
}

fn refuse_write(
    fd: RawFd,
    nsid: u32,
    namespace: &IdentifyNamespace,
    block: Option<&str>,
    force: bool,
    places: in_use::Places,
) -> Result<(), Error> {
    if namespace.write_protected {
        let message =
            "the namespace is write protected; see nvme get-feature -f 0x84, or open it for reading";
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if force {
        return Ok(());
    }
    let Some(block) = block else {
        let message = "cannot tell whether something else uses it, as sysfs does not show it here; mount sysfs, or ask \
                       to write all the same with OpenOptions::force";
        return Err(Error::new(ErrorKind::InUse, message));
    };
    in_use::refuse(block, places)?;
    // By passthrough, not through the block device: its page cache does not see what was written by passthrough.
    let read = |lba: u64| -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; 1 << namespace.lba_shift];
        if lba < namespace.blocks {
            let status = ioctl::nvme_read_block(fd, nsid, lba, &mut bytes).map_err(|e| forbidden(&e));
            answered("reading its first blocks, for a partition table,", status?)?;
        }
        Ok(bytes)
    };
    in_use::refuse_table(&read(0)?, &read(1)?)
}

fn identify(fd: RawFd, nsid: u32, cns: u32) -> Result<[u8; identify::BYTES], Error> {
    let mut bytes = [0; identify::BYTES];
    let mut answer = ioctl::nvme_identify(fd, nsid, cns, &mut bytes);
    // A controller that is being connected, reset or removed answers EAGAIN for a moment.
    for _ in 0..20 {
        if !answer.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        answer = ioctl::nvme_identify(fd, nsid, cns, &mut bytes);
    }
    let status = answer.map_err(|error| forbidden(&error))?;
    answered("Identify", status)?;
    Ok(bytes)
}

/// A status that the device answered, as an error.
fn answered(what: &str, status: u16) -> Result<(), Error> {
    match Status(status) {
        status if status.is_success() => Ok(()),
        status => {
            let message = format!("{what} failed: {status}; see the drive's log (nvme error-log)");
            Err(Error::new(status.kind(), message).with_nvme(status.0))
        }
    }
}

fn refuse_other(kind: Node) -> Result<(), Error> {
    let message = match kind {
        Node::Namespace => return Ok(()),
        Node::Controller => "it is an NVMe controller; name a namespace of it, such as /dev/ng0n1",
        Node::Other => "it is no NVMe namespace; name one, such as /dev/ng0n1, or a file or a block device",
    };
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// An ioctl that the kernel refused.
fn forbidden(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Error::io(
            "the kernel forbids NVMe passthrough to this process; before Linux 6.2 it needs CAP_SYS_ADMIN, since then \
             an open node is enough (chmod or chown it, or a udev rule), unless a container or seccomp forbids it",
            error,
        ),
        Some(libc::EAGAIN) => {
            Error::io("the controller is being connected, reset or removed; try again", error)
        }
        Some(libc::ENODEV | libc::ENXIO) => {
            Error::io("the drive is gone; open it anew when it is back", error)
        }
        _ => Error::io("the driver refused an NVMe passthrough command; see the kernel's log", error),
    }
}

fn metadata(namespace: &IdentifyNamespace) -> Error {
    let (bytes, block) = (namespace.metadata, 1_u32 << namespace.lba_shift);
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "its LBA format has {bytes} bytes of metadata with each block of {block}, which are not supported; use its \
             block device, or format it (destroys all data) to an LBA format without: nvme id-ns -H lists them, \
             nvme format sets one"
        ),
    )
}
