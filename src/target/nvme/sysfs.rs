//! What sysfs says of a namespace: its names, its controllers and their limits.
//!
//! Two forms are met. Plain: `ng0n1` and the disk `nvme0n1`, which has the queues, belong to the controller. Multipath (a
//! subsystem that may have several controllers): `ng0n1` and `nvme0n1` belong to the subsystem, and behind them is one
//! hidden disk a controller, `nvme0c3n1` (of subsystem 0, by controller 3), which has the queues.
//!
//! `root` is `/sys`; tests give a tree of their own making.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The driver's own time limit for a command, where it does not say, in ms.
const DRIVER_TIMEOUT_MS: u32 = 30_000;

/// A controller by which a namespace is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its name, such as `nvme0`.
    pub name: String,
    /// The disk in `/sys/block` that has its queues of this namespace (`mq/`, `queue/`): `nvme0n1` or `nvme0c0n1`.
    pub block: String,
    /// Where it is: a PCI address such as `0000:41:00.0`, or what a fabric says.
    pub address: Option<String>,
    /// Its NUMA node.
    pub node: Option<u32>,
}

/// What sysfs says of a namespace. A limit is the least of all controllers'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The disk that shows the namespace, such as `nvme0n1`.
    pub block: String,
    /// At least one; by name.
    pub controllers: Vec<Controller>,
    /// Most bytes in one command.
    pub max_bytes: u64,
    /// Most memory segments in one command.
    pub max_segments: u32,
    /// Memory addresses are multiples of this.
    pub memory_align: u32,
    /// Every controller has queues that can be polled.
    pub poll: bool,
    /// After how long the driver begins to abort, in ms: the most of all controllers'.
    pub timeout_ms: u32,
}

/// What there is of the namespace whose generic node, `/dev/ng0n1` or a link to it, has this device number.
pub fn find(root: &Path, major: u64, minor: u64) -> io::Result<Found> {
    let link = root.join(format!("dev/char/{major}:{minor}"));
    let folder = fs::canonicalize(&link).map_err(|error| naming(&link, error))?;
    let generic = file_name(&folder);
    let Some((instance, number)) = generic.strip_prefix("ng").and_then(|rest| rest.split_once('n')) else {
        return Err(invalid(&folder, "is no NVMe namespace"));
    };
    let block = format!("nvme{instance}n{number}");
    let controllers = controllers(root, instance, number, &block)?;
    let queues: Vec<PathBuf> =
        controllers.iter().map(|it| root.join("block").join(&it.block).join("queue")).collect();
    let least = |name, absent| least(&queues, name, absent);
    let driver = driver_timeout_ms(root);
    let timeouts = queues.iter().map(|queue| Ok(read_number(&queue.join("io_timeout"))?.unwrap_or(0)));
    let timeout = timeouts.collect::<io::Result<Vec<u64>>>()?.into_iter().max().unwrap_or(0);
    Ok(Found {
        block,
        max_bytes: least("max_hw_sectors_kb", None)?.saturating_mul(1024),
        max_segments: clamp(least("max_segments", None)?),
        // A mask; kernels before 6.0 do not show it, and all ask for 4 bytes.
        memory_align: most(&queues, "dma_alignment", 3)?.saturating_add(1),
        poll: least("io_poll", Some(0))? != 0,
        timeout_ms: clamp(timeout).max(driver),
        controllers,
    })
}

/// After how long the driver begins to abort a command, if its disk does not say otherwise, in ms.
pub fn driver_timeout_ms(root: &Path) -> u32 {
    let seconds = read_number(&root.join("module/nvme_core/parameters/io_timeout")).ok().flatten();
    seconds.map_or(DRIVER_TIMEOUT_MS, |seconds| clamp(seconds.saturating_mul(1000)))
}

/// `major:minor` of a block device and of its partitions, each with its name. Partitions come after.
pub fn disks(root: &Path, block: &str) -> io::Result<Vec<(String, String)>> {
    let folder = root.join("block").join(block);
    let mut disks = vec![(block.to_owned(), read_text(&folder.join("dev"))?.unwrap_or_default())];
    for name in entries(&folder)? {
        let part = folder.join(&name);
        if part.join("partition").exists() {
            disks.push((name, read_text(&part.join("dev"))?.unwrap_or_default()));
        }
    }
    Ok(disks)
}

/// The names of a folder's entries, sorted; none where there is no folder.
pub fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| naming(folder, error))?,
    };
    let mut names = Vec::new();
    for entry in read {
        names.push(entry.map_err(|error| naming(folder, error))?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// The controllers behind a disk named `nvme0n1`, or `None` if it is no NVMe disk.
pub fn controllers_of(root: &Path, block: &str) -> Option<Vec<Controller>> {
    let (instance, number) = block.strip_prefix("nvme")?.split_once('n')?;
    controllers(root, instance, number, block).ok()
}

fn controllers(root: &Path, instance: &str, number: &str, block: &str) -> io::Result<Vec<Controller>> {
    let blocks = root.join("block");
    let disks = if blocks.join(block).join("mq").exists() {
        vec![block.to_owned()]
    } else {
        let (head, tail) = (format!("nvme{instance}c"), format!("n{number}"));
        let behind = |name: &String| {
            let middle = name.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail));
            middle.is_some_and(|middle| middle.parse::<u32>().is_ok())
        };
        entries(&blocks)?.into_iter().filter(behind).collect()
    };
    if disks.is_empty() {
        return Err(invalid(&blocks.join(block), "has no queues, and no controller is behind it"));
    }
    disks.into_iter().map(|disk| controller(root, disk)).collect()
}

fn controller(root: &Path, block: String) -> io::Result<Controller> {
    let link = root.join("block").join(&block).join("device");
    let folder = fs::canonicalize(&link).map_err(|error| naming(&link, error))?;
    let address = read_text(&folder.join("address"))?.filter(|text| !text.is_empty());
    // -1 where the machine does not say.
    let node = read_text(&folder.join("numa_node"))?.and_then(|text| text.parse().ok());
    Ok(Controller { name: file_name(&folder), block, address, node })
}

fn least(queues: &[PathBuf], name: &str, absent: Option<u64>) -> io::Result<u64> {
    let mut least = u64::MAX;
    for queue in queues {
        let path = queue.join(name);
        match read_number(&path)?.or(absent) {
            Some(value) => least = least.min(value),
            None => return Err(naming(&path, io::ErrorKind::NotFound.into())),
        }
    }
    Ok(least)
}

fn most(queues: &[PathBuf], name: &str, absent: u32) -> io::Result<u32> {
    let mut most = 0;
    for queue in queues {
        most = most.max(read_number(&queue.join(name))?.map_or(absent, clamp));
    }
    Ok(most)
}

fn clamp(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The number in a file; None where there is no file.
fn read_number(path: &Path) -> io::Result<Option<u64>> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| invalid(path, &format!("has {text:?}, which is no number")))
}

fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(naming(path, error)),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn naming(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn invalid(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::fake::Tree;
    use super::*;

    fn names(found: &Found) -> Vec<(&str, &str, Option<u32>)> {
        found.controllers.iter().map(|it| (&*it.name, &*it.block, it.node)).collect()
    }

    #[test]
    fn the_plain_form() {
        let tree = Tree::plain("plain");
        let found = find(tree.root(), 234, 0).unwrap();
        assert_eq!(found.block, "nvme0n1");
        assert_eq!(names(&found), [("nvme0", "nvme0n1", Some(1))]);
        assert_eq!(found.controllers[0].address.as_deref(), Some("0000:41:00.0"));
        let limits = (found.max_bytes, found.max_segments, found.memory_align, found.timeout_ms, found.poll);
        assert_eq!(limits, (512 << 10, 129, 4, 30_000, false));
    }

    #[test]
    fn the_multipath_form_has_the_limits_of_all_controllers_and_not_the_heads() {
        let tree = Tree::multipath("multipath");
        let found = find(tree.root(), 234, 0).unwrap();
        assert_eq!(names(&found), [("nvme10", "nvme0c10n1", Some(1)), ("nvme3", "nvme0c3n1", Some(0))]);
        assert_eq!((found.block.as_str(), found.max_bytes), ("nvme0n1", 512 << 10));
        tree.file("block/nvme0c3n1/queue/max_hw_sectors_kb", "32\n");
        tree.file("block/nvme0c10n1/queue/max_segments", "9\n");
        tree.file("block/nvme0c3n1/queue/dma_alignment", "511\n");
        tree.file("block/nvme0c10n1/queue/io_timeout", "60000\n");
        tree.file("block/nvme0c10n1/queue/io_poll", "1\n");
        let found = find(tree.root(), 234, 0).unwrap();
        let limits = (found.max_bytes, found.max_segments, found.memory_align, found.timeout_ms, found.poll);
        assert_eq!(limits, (32 << 10, 9, 512, 60_000, false), "only one of them can be polled");
        tree.file("block/nvme0c3n1/queue/io_poll", "1\n");
        assert!(find(tree.root(), 234, 0).unwrap().poll);
    }

    #[test]
    fn old_kernels_and_odd_machines() {
        let tree = Tree::plain("old");
        tree.remove("block/nvme0n1/queue/dma_alignment");
        tree.file("block/nvme0n1/device/numa_node", "-1\n");
        tree.remove("block/nvme0n1/device/address");
        tree.file("module/nvme_core/parameters/io_timeout", "4294967\n");
        let found = find(tree.root(), 234, 0).unwrap();
        assert_eq!((found.memory_align, found.timeout_ms), (4, 4_294_967_000));
        assert_eq!((found.controllers[0].node, found.controllers[0].address.as_deref()), (None, None));
        tree.file("module/nvme_core/parameters/io_timeout", "4294967295\n");
        assert_eq!(find(tree.root(), 234, 0).unwrap().timeout_ms, u32::MAX);
        tree.remove("module/nvme_core/parameters/io_timeout");
        assert_eq!(find(tree.root(), 234, 0).unwrap().timeout_ms, 30_000);
        tree.remove("block/nvme0n1/queue/io_timeout");
        assert_eq!(find(tree.root(), 234, 0).unwrap().timeout_ms, 30_000);
    }

    #[test]
    fn what_is_missing_or_broken_is_named() {
        let tree = Tree::plain("broken");
        let error = find(tree.root(), 1, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        tree.file("block/nvme0n1/queue/max_segments", "many\n");
        let error = find(tree.root(), 234, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("max_segments has \"many\""), "{error}");
        tree.remove("block/nvme0n1/queue/max_segments");
        assert!(find(tree.root(), 234, 0).unwrap_err().to_string().contains("max_segments"));
    }
}
