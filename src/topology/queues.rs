//! The hardware queues of a disk, and which commands from which CPU land on them.
//!
//! What sysfs says, as seen on kernels 6.1 and 7.3 and read in their sources:
//!
//! - `block/DISK/mq/N` is hardware queue N. A queue that no CPU is mapped to has no folder: numbers may have gaps.
//! - The CPUs mapped to it are the folders `mq/N/cpuM` (block/blk-mq-sysfs.c, `blk_mq_register_hctx`). The file
//!   `cpu_list` is not the same: since 6.8, and 6.1's later updates, it leaves isolated CPUs out (block/blk-mq.c, `blk_mq_map_swqueue`: no
//!   kernel worker shall run there), although commands from such a CPU do land on the queue, and it ends at a
//!   page. Both list CPUs that are offline.
//! - Every possible CPU is mapped to one queue of each kind that there is. The kinds are numbered one after the
//!   other: default, then read, then polled (drivers/nvme/host/pci.c, `nvme_pci_map_queues`; virtio-blk and null_blk
//!   do the same). Sysfs does not say the kind, but a CPU that is mapped again says that the next kind has begun.
//! - A command lands on a polled queue if it is polled, else on a read queue if it is a plain block-layer **read**
//!   (of a file or the block device), else on a default queue (block/blk-mq.h, `blk_mq_get_hctx_type`).
//!   **Passthrough is never a plain read** (drivers/nvme/host/nvme.h, `nvme_req_op`: DRV_IN, DRV_OUT): its reads and
//!   writes alike land on the default queues, also where `nvme.write_queues` made read queues. Where a kind is
//!   missing, the default queues take its commands.
//! - There are polled queues if and only if `queue/io_poll` is 1. That tells two kinds apart when there are two.
//!   `/sys/module/nvme/parameters` only has what was asked for, not what the drive granted, and is not read.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use super::CpuSet;
use super::sysfs::naming;

/// Which commands land on a hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueKind {
    /// Passthrough, writes, and all else that no queue of another kind takes.
    Default,
    /// Reads of files and block devices, but not of passthrough.
    Read,
    /// Polled commands (IOPOLL); it has no interrupt.
    Polled,
}

/// One hardware queue of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareQueue {
    /// The kernel's number of it, as in `mq/N`. (NVMe calls it N + 1, as its queue 0 is for administration.)
    pub number: u32,
    /// The CPUs whose commands land on it, offline ones too.
    pub cpus: CpuSet,
    /// The commands that it takes at a time, without those that the driver keeps for itself. All namespaces of a
    /// controller share them.
    pub tags: u32,
    /// Which commands land on it.
    pub kind: QueueKind,
}

/// The hardware queues of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMap {
    /// By ascending number.
    pub queues: Vec<HardwareQueue>,
    /// The disk's NUMA node, if it is known to be on one.
    pub node: Option<u32>,
}

/// Tags that any drive has.
const SURE_TAGS: u32 = 31;

impl QueueMap {
    /// Of a drive whose queues are not to be seen: one for all of `cpus`, with few tags.
    pub fn unknown(cpus: CpuSet) -> QueueMap {
        let queue = HardwareQueue { number: 0, cpus, tags: SURE_TAGS, kind: QueueKind::Default };
        QueueMap { queues: vec![queue], node: None }
    }

    /// Whether commands land on the same queues. How many tags these have may have been changed meanwhile.
    pub fn is_like(&self, other: &QueueMap) -> bool {
        let shape = |map: &QueueMap| -> Vec<_> {
            map.queues.iter().map(|queue| (queue.number, queue.cpus.clone(), queue.kind)).collect()
        };
        self.node == other.node && shape(self) == shape(other)
    }

    /// The map of a disk, named as in `/sys/block`: `nvme0n1`. An NVMe multipath head has no queues; its paths
    /// have: `nvme0c0n1`.
    pub fn read(disk: &str) -> io::Result<QueueMap> {
        QueueMap::read_from(Path::new("/sys"), disk)
    }

    /// The same with `root` in the place of `/sys`.
    pub fn read_from(root: &Path, disk: &str) -> io::Result<QueueMap> {
        let folder = root.join("block").join(disk);
        let mut queues = read_queues(&folder)?;
        let polls = read_number(&folder.join("queue/io_poll"))? == Some(1);
        tell_kinds(&mut queues, polls).map_err(|error| naming(&folder.join("mq"), error))?;
        Ok(QueueMap { queues, node: read_node(root, &folder) })
    }

    /// Those that commands land on which are neither polled nor plain reads: all of passthrough, writes of files.
    pub fn interrupt_queues(&self) -> QueueMap {
        self.of_kind(QueueKind::Default)
    }

    /// Those that reads of a file or block device land on: read queues, or else the default ones.
    pub fn read_queues(&self) -> QueueMap {
        let read = self.of_kind(QueueKind::Read);
        if read.queues.is_empty() { self.interrupt_queues() } else { read }
    }

    /// Those that polled commands land on. None at all if the driver made none: then a polled command is not
    /// polled, but lands on the default queues, so whoever wants polling has to look.
    pub fn polled_queues(&self) -> QueueMap {
        self.of_kind(QueueKind::Polled)
    }

    fn of_kind(&self, kind: QueueKind) -> QueueMap {
        let queues = self.queues.iter().filter(|queue| queue.kind == kind).cloned().collect();
        QueueMap { queues, node: self.node }
    }
}

fn read_queues(disk: &Path) -> io::Result<Vec<HardwareQueue>> {
    let mq = disk.join("mq");
    let none = || {
        let why = "no hardware queues: no such disk, or one whose queues are those of the devices below it \
                   (for an NVMe multipath head: its paths nvmeXcYnZ)";
        naming(&mq, io::Error::new(io::ErrorKind::NotFound, why))
    };
    let numbers = match numbered(&mq, "") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
        numbers => numbers?,
    };
    if numbers.is_empty() {
        return Err(none());
    }
    let requests = read_number(&disk.join("queue/nr_requests"))?;
    let read = |number: u32| read_queue(&mq.join(number.to_string()), number, requests);
    numbers.into_iter().map(read).collect()
}

/// `requests` is what the whole disk is set to: an administrator's lower number binds each queue, but `nr_tags` still
/// says what the driver allotted.
fn read_queue(folder: &Path, number: u32, requests: Option<u32>) -> io::Result<HardwareQueue> {
    let path = folder.join("cpu_list");
    let list = fs::read_to_string(&path).map_err(|error| naming(&path, error))?;
    // Blanks after the commas, which the kernel's other lists do not have.
    let listed: CpuSet = list.replace(' ', "").parse().map_err(|error| naming(&path, error))?;
    let cpus = listed.iter().chain(numbered(folder, "cpu")?).collect();
    let allotted = read_number(&folder.join("nr_tags"))?;
    let reserved = read_number(&folder.join("nr_reserved_tags"))?.unwrap_or(0);
    let Some(tags) = allotted.into_iter().chain(requests).min() else {
        let why = "neither this nor queue/nr_requests is there: the depth of the queue is unknown";
        return Err(naming(&folder.join("nr_tags"), io::Error::new(io::ErrorKind::NotFound, why)));
    };
    Ok(HardwareQueue { number, cpus, tags: tags.saturating_sub(reserved).max(1), kind: QueueKind::Default })
}

/// See the top of this file: a CPU that an earlier queue of the kind has begins the next kind.
fn tell_kinds(queues: &mut [HardwareQueue], polls: bool) -> io::Result<()> {
    let mut times_seen: HashMap<u32, usize> = HashMap::new();
    let mut rank = 0;
    let mut ranks = Vec::with_capacity(queues.len());
    for queue in queues.iter() {
        for cpu in queue.cpus.iter() {
            let seen = times_seen.entry(cpu).or_default();
            rank = rank.max(*seen);
            *seen += 1;
        }
        ranks.push(rank);
    }
    let kinds: &[QueueKind] = match (rank, polls) {
        (0, _) => &[QueueKind::Default],
        (1, true) => &[QueueKind::Default, QueueKind::Polled],
        (1, false) => &[QueueKind::Default, QueueKind::Read],
        (2, _) => &[QueueKind::Default, QueueKind::Read, QueueKind::Polled],
        _ => {
            let why = "a CPU is mapped to more than three queues, but there are three kinds";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    };
    for (queue, rank) in queues.iter_mut().zip(ranks) {
        queue.kind = kinds[rank];
    }
    Ok(())
}

/// The first `numa_node` at the disk's device or above it: an NVMe controller has one, and so has its PCI device; a
/// virtio or SCSI device has none of its own. -1 is "none".
fn read_node(root: &Path, disk: &Path) -> Option<u32> {
    let root = root.canonicalize().ok()?;
    let device = disk.join("device").canonicalize().ok()?;
    let above = device.ancestors().take_while(|folder| *folder != root);
    let says = |folder: &Path| fs::read_to_string(folder.join("numa_node")).ok()?.trim_ascii().parse().ok();
    above.into_iter().find_map(says)
}

/// The numbers of the folders called `PREFIX` and a number, ascending.
fn numbered(folder: &Path, prefix: &str) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(folder).map_err(|error| naming(folder, error))?;
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| naming(folder, error))?.file_name();
        let number: Option<u32> =
            name.to_str().and_then(|name| name.strip_prefix(prefix)).and_then(|n| n.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// None where there is no such file.
fn read_number(path: &Path) -> io::Result<Option<u32>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(naming(path, error)),
        Ok(text) => text.trim_ascii().parse().map(Some).map_err(|_| {
            let message = format!("{:?} is not a number", text.trim_ascii());
            naming(path, io::Error::new(io::ErrorKind::InvalidData, message))
        }),
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
