//! What sysfs shows of a path that is not opened: also a caller who may not open it can say what it is.

use super::{dax, nvme, probe};
use crate::error::Error;
use crate::topology::QueueMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// What is behind a path. Of a file it is what its file system's disk is; nothing, where that is no disk.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The disk in `/sys/block` that shows it, such as `nvme0n1`.
    pub block: Option<String>,
    /// The controllers by which a NVMe namespace is reached.
    pub controllers: Vec<nvme::Controller>,
    /// The hardware queues of the first of them, or of the disk, and its NUMA node; none where sysfs does not show them.
    pub queues: Option<QueueMap>,
    /// Most bytes that the driver takes in one command (`max_hw_sectors_kb`).
    pub driver_bytes: Option<u64>,
    /// Bytes at which the kernel's block layer splits what is read through it (`max_sectors_kb`).
    pub split_bytes: Option<u64>,
    /// Of a DAX device.
    pub dax: Option<dax::DaxDevice>,
}

/// Looks at a path. It is an error only where there is nothing.
pub fn survey(path: &Path) -> Result<Survey, Error> {
    let name = path.to_string_lossy().into();
    let failed = |e: std::io::Error| {
        let message = match e.kind() {
            std::io::ErrorKind::NotFound => "there is nothing of that name; check the path",
            _ => "it cannot be looked at; check the path, and that /sys is mounted",
        };
        Error::io(message, &e).on(&name)
    };
    let meta = std::fs::metadata(path).map_err(failed)?;
    let mut found = Survey::default();
    if meta.file_type().is_char_device() {
        of_character_device(path, &meta, &mut found).map_err(failed)?;
    } else {
        let device = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
        let folder = probe::disk_of(device);
        let name = folder.and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned()));
        found.controllers = name.as_deref().and_then(nvme::controllers_of).unwrap_or_default();
        found.block = name;
    }
    // A multipath head has no queues: its first path has.
    let disk = found.controllers.first().map(|first| &first.block).or(found.block.as_ref());
    if let Some(disk) = disk {
        found.queues = QueueMap::read(disk).ok();
        found.driver_bytes = kib(disk, "max_hw_sectors_kb");
    }
    found.split_bytes = found.block.as_deref().and_then(|block| kib(block, "max_sectors_kb"));
    Ok(found)
}

fn of_character_device(path: &Path, meta: &Metadata, found: &mut Survey) -> std::io::Result<()> {
    if nvme::kind_of(path)? == nvme::Node::Namespace {
        let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
        // Where there is no sysfs, as in some containers, it can be opened all the same.
        if let Ok(space) = nvme::found(major, minor) {
            (found.block, found.controllers) = (Some(space.block), space.controllers);
        }
    } else if let Some(folder) = dax::device(Path::new("/sys"), path)? {
        found.dax = dax::read_device(&folder).ok();
    }
    Ok(())
}

fn kib(disk: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/sys/block/{disk}/queue/{name}")).ok()?;
    text.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_on_its_disk_and_what_is_no_device_is_nothing() {
        let file = std::env::current_exe().unwrap();
        let found = survey(&file).unwrap();
        let number = std::fs::metadata(&file).unwrap().dev();
        assert_eq!(found.block.is_some(), probe::disk_of(number).is_some());
        assert!(found.dax.is_none());
        assert!(survey(Path::new("/proc/self/status")).unwrap().block.is_none());
        assert!(survey(Path::new("/dev/null")).unwrap().queues.is_none());
        assert_eq!(survey(Path::new("/no/such")).unwrap_err().errno(), Some(libc::ENOENT));
    }
}
