//! Mapped memory as a target: DAX devices (`/dev/dax0.0`: persistent or CXL memory), and files that are mapped when it is
//! asked for (on a DAX file system, tmpfs, hugetlbfs).
//!
//! Bounds are checked when a transfer is submitted, against the size at open. A file that is cut short while it is
//! mapped answers an access with SIGBUS, which ends the process: see `OpenOptions::guard_sigbus`.

use crate::error::{Error, ErrorKind};
use crate::memory::{Mapping, copy};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mapping of a target.
#[derive(Debug)]
pub struct Dax {
    /// Whose lanes serve it: the device, or all mapped files.
    pub name: String,
    pub mapping: Mapping,
    /// Bytes.
    pub size: u64,
    /// The NUMA node of the memory.
    pub node: Option<u32>,
    /// The page cache lies between: a flush has the kernel write it out. Otherwise what was copied is where the
    /// device promises to keep it, since the copy ends with a fence behind stores that pass the caches by.
    pub cached: bool,
}

/// The folder of a DAX device in sysfs; `None`: it is none.
pub fn device(sys: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    let rdev = std::fs::metadata(path)?.rdev();
    let (major, minor) = (nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev));
    let Ok(folder) = sys.join(format!("dev/char/{major}:{minor}")).canonicalize() else { return Ok(None) };
    let subsystem = folder.join("subsystem").canonicalize().ok();
    Ok(subsystem.is_some_and(|it| it.ends_with("dax")).then_some(folder))
}

/// What sysfs says of a DAX device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaxDevice {
    /// Its name, such as `dax0.0`.
    pub name: String,
    /// Bytes that can be mapped: whole multiples of the alignment.
    pub size: u64,
    /// Bytes. The kernel maps whole multiples of it, at multiples of it.
    pub align: u64,
    /// The NUMA node that its memory is on, or is nearest to.
    pub node: Option<u32>,
}

/// Reads it from the device's folder in sysfs.
pub fn read_device(folder: &Path) -> Result<DaxDevice, Error> {
    let number = |name: &str| -> Result<u64, Error> {
        let text = std::fs::read_to_string(folder.join(name));
        text.ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
            let message = format!("sysfs does not say the device's {name}; is /sys mounted?");
            Error::new(ErrorKind::Unsupported, message)
        })
    };
    // The kernel maps whole multiples of the device's alignment alone.
    let (size, align) = (number("size")?, number("align").unwrap_or(2 << 20).max(1));
    let size = size / align * align;
    let node = number("numa_node").ok().or_else(|| number("target_node").ok()).map(|node| node as u32);
    let name = folder.file_name().map_or("dax".into(), |name| name.to_string_lossy().into_owned());
    Ok(DaxDevice { name, size, align, node })
}

/// Maps a DAX device whose folder in sysfs is `folder`.
pub fn map_device(file: &File, folder: &Path, write: bool) -> Result<Dax, Error> {
    let DaxDevice { name, size, node, .. } = read_device(folder)?;
    if size == 0 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the device has no memory; see ndctl list or daxctl list",
        ));
    }
    let mapping = map(file, size, write)?;
    Ok(Dax { name, mapping, size, node, cached: false })
}

/// Maps a file.
pub fn map_file(file: &File, size: u64, write: bool) -> Result<Dax, Error> {
    if size == 0 {
        let message = "a file of no bytes cannot be mapped; create it with OpenOptions::create(size)";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(Dax { name: "mapped files".into(), mapping: map(file, size, write)?, size, node: None, cached: true })
}

fn map(file: &File, size: u64, write: bool) -> Result<Mapping, Error> {
    let len =
        usize::try_from(size).map_err(|_| Error::new(ErrorKind::Unsupported, "more than can be mapped"))?;
    Mapping::of_file(file, len, write).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => {
            Error::io("the file system does not map files; open it without mapped()", &error)
                .with_kind(ErrorKind::Unsupported)
        }
        Some(libc::ENOMEM) => {
            Error::io("too many mappings, or no address space (ulimit -v); raise the limit", &error)
        }
        _ => Error::io("it cannot be mapped; see the errno and the kernel's log", &error),
    })
}

/// Has SIGBUS in copies turned into an error of the transfer.
pub fn guard() -> Result<(), Error> {
    copy::guard().map_err(|e| Error::io("cannot install a handler of SIGBUS; is another in the way?", &e))
}
