//! What a file or block device can take: asked of the kernel, then tried.

use super::ioctl::statx_dio;
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

/// The drive that a block device is on, and the disks of `/sys/block` that have its hardware queues.
///
/// Of NVMe it has its controllers' names, as a character device's has: the tags are theirs.
pub fn drive(file: &File) -> Option<(String, Vec<String>)> {
    let folder = sysfs_folder(file)?;
    let name = folder.file_name()?.to_str()?.to_string();
    let disks = if folder.join("mq").is_dir() { vec![name.clone()] } else { paths_of(&name)? };
    let controller = |disk: &String| {
        let device = PathBuf::from(format!("/sys/block/{disk}/device")).canonicalize().ok()?;
        device.file_name()?.to_str().filter(|it| it.starts_with("nvme")).map(str::to_string)
    };
    let controllers: Option<Vec<String>> = disks.iter().map(controller).collect();
    Some((controllers.map_or(name, |names| names.join("+")), disks))
}

/// The paths behind a NVMe multipath head: `nvme0n1` leads to `nvme0c1n1`.
fn paths_of(name: &str) -> Option<Vec<String>> {
    let (subsystem, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
    let is_path = |disk: &String| {
        let path = disk.strip_prefix("nvme").and_then(|disk| disk.strip_prefix(subsystem)?.strip_prefix('c'));
        path.and_then(|path| path.split_once('n')).is_some_and(|(_, number)| number == namespace)
    };
    let all = std::fs::read_dir("/sys/block").ok()?.flatten();
    let mut paths: Vec<String> =
        all.filter_map(|disk| disk.file_name().into_string().ok()).filter(is_path).collect();
    paths.sort();
    (!paths.is_empty()).then_some(paths)
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
    let meta = file.metadata().ok().filter(|m| m.file_type().is_block_device())?;
    let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    Some(if folder.join("partition").exists() { folder.parent()?.to_path_buf() } else { folder })
}
