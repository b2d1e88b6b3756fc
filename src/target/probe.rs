//! What a file or block device can take: asked of the kernel, then tried.

use super::ioctl::statx_dio;
use super::nvme;
use crate::memory::{Mapping, PAGE};
use crate::plan::Geometry;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The limits of an open file or device, or the errno with which it refused an O_DIRECT read.
pub fn geometry(file: &File, direct: bool, command_size: u32) -> io::Result<Geometry> {
    let unlimited = Geometry::unlimited(command_size);
    if !direct {
        return Ok(unlimited);
    }
    let known = logical_block(file);
    let mut page = Mapping::new((2 * PAGE).max(known as usize))?;
    let page = page.bytes();
    // Asked: statx (kernel 6.1; zeros mean that this file takes no O_DIRECT). Where it does not tell: tried.
    let (memory_align, offset) = match statx_dio(file.as_raw_fd()) {
        Some((0, _) | (_, 0)) => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        Some(known) => known,
        None if read_in(file, &mut page[512..1024], 512).is_ok() => (512, 512),
        None => (PAGE as u32, PAGE as u32),
    };
    let block = offset.max(known);
    let all = page.len();
    read_in(file, &mut page[..all.min(PAGE.max(block as usize))], 0)?;
    Ok(Geometry { block, memory_align, ..unlimited })
}

/// The drive that a block device is on, and the disks of `/sys/block` that have its hardware queues; `None`: it has none.
///
/// Of NVMe it has its controllers' names, as a character device's has: the tags are theirs.
pub fn drive(file: &File) -> Option<(String, Vec<String>)> {
    let folder = sysfs_folder(file)?;
    let name = folder.file_name()?.to_str()?.to_string();
    if let Some(controllers) = nvme::controllers_of(&name) {
        return Some(nvme::drive_of(&controllers));
    }
    folder.join("mq").is_dir().then(|| (name.clone(), vec![name]))
}

fn read_in(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(into, offset)
}

/// A block device's logical block size, in bytes; 1 for anything else.
fn logical_block(file: &File) -> u32 {
    let Some(folder) = sysfs_folder(file) else { return 1 };
    let text = std::fs::read_to_string(folder.join("queue/logical_block_size")).unwrap_or_default();
    text.trim().parse().unwrap_or(512)
}

/// The sysfs folder of the whole disk that a block device is, or is a partition of.
fn sysfs_folder(file: &File) -> Option<PathBuf> {
    disk_of(file.metadata().ok().filter(|m| m.file_type().is_block_device())?.rdev())
}

/// The sysfs folder of the whole disk that a block device of that number is, or is a partition of.
pub fn disk_of(device: u64) -> Option<PathBuf> {
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    Some(if folder.join("partition").exists() { folder.parent()?.to_path_buf() } else { folder })
}
