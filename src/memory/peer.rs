//! PCI peer memory: memory of a device that publishes it (kernel documentation, "PCI Peer-to-Peer DMA Support"), such
//! as a NVMe drive's controller memory buffer. Other devices move to and from it without touching host memory.

use super::Mapping;
use crate::error::{Error, ErrorKind};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Maps `bytes` of the peer memory of the PCI device at `address` (`0000:01:00.0`).
pub fn map(address: &str, bytes: usize) -> Result<Mapping, Error> {
    let device = folder(Path::new("/sys/bus/pci/devices"), address)?;
    let file = open(&device)?;
    Mapping::of_file(&file, bytes, true).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EINVAL) => {
            let free = read(&device, "available");
            let message = format!(
                "the device has no {bytes} bytes of peer memory in one piece left (of {} bytes {free} are free); ask \
                 for less, or release regions",
                read(&device, "size")
            );
            Error::io(message, &error).with_kind(ErrorKind::Resource)
        }
        _ => Error::io("cannot map the device's peer memory; see the kernel's log", &error),
    })
}

fn folder(devices: &Path, address: &str) -> Result<PathBuf, Error> {
    let odd = address.is_empty() || address.contains('/') || address.starts_with('.');
    let device = devices.join(address);
    if odd || !device.exists() {
        let message =
            format!("there is no PCI device {address:?}; give an address such as 0000:01:00.0 (lspci -D)");
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    Ok(device)
}

fn open(device: &Path) -> Result<File, Error> {
    let node = device.join("p2pmem/allocate");
    OpenOptions::new().read(true).write(true).open(node).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::io(
            "the device publishes no peer memory (p2pmem/allocate): it has none, its driver does not offer it, or the \
             kernel is older than 6.2 or built without CONFIG_PCI_P2PDMA",
            &error,
        )
        .with_kind(ErrorKind::Unsupported),
        _ => Error::io("the device's p2pmem/allocate may not be opened; run as root, or change its mode", &error),
    })
}

fn read(device: &Path, file: &str) -> String {
    let text = std::fs::read_to_string(device.join("p2pmem").join(file)).unwrap_or_default();
    if text.trim().is_empty() { "?".into() } else { text.trim().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_is_refused() {
        for address in ["", "..", "../../x", "ffff:ff:1f.7", "nonsense"] {
            assert_eq!(map(address, 4096).unwrap_err().kind(), ErrorKind::NotFound, "{address:?}");
        }
    }
}
