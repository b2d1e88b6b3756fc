//! What a drive counts of itself: its SMART / Health Information log.

use super::{Node, answered, forbidden, ioctl, kind_of, refuse_other};
use crate::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// The log's number.
const PAGE: u32 = 0x02;

/// Bytes that went to and from a drive since it was made, by its own count, whoever moved them and over whatever
/// namespace. It counts whole units of [`UNIT`](Self::UNIT) bytes, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smart {
    /// Bytes that hosts read: Data Units Read.
    pub read: u64,
    /// Bytes that hosts wrote: Data Units Written.
    pub written: u64,
}

impl Smart {
    /// Bytes of a unit: a thousand blocks of 512, whatever the format (NVMe Base Specification, SMART log page).
    pub const UNIT: u64 = 512_000;

    fn parse(log: &[u8; 512]) -> Smart {
        let units = |at: usize| {
            let bytes = log[at..].first_chunk().copied().unwrap_or_default();
            u64::try_from(u128::from_le_bytes(bytes)).unwrap_or(u64::MAX).saturating_mul(Self::UNIT)
        };
        Smart { read: units(32), written: units(48) }
    }
}

/// Asks the drive behind the namespace at `path`.
pub fn smart(path: &Path) -> Result<Smart, Error> {
    let name: Arc<str> = path.to_string_lossy().into();
    ask(path).map_err(|error| error.on(&name))
}

fn ask(path: &Path) -> Result<Smart, Error> {
    // Looked up, not tried: to another driver the same request may mean anything.
    match kind_of(path).map_err(|e| Error::io("it cannot be looked at; check the path", &e))? {
        Node::Namespace => {}
        other => refuse_other(other)?,
    }
    let file = File::open(path).map_err(|e| Error::io("it cannot be opened; run as root", &e))?;
    let mut log = [0; 512];
    let status = ioctl::nvme_log(file.as_raw_fd(), PAGE, &mut log).map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            Error::io("the drive's SMART log is for CAP_SYS_ADMIN alone; run as root", &e)
        }
        _ => forbidden(&e),
    })?;
    answered("reading the SMART log", status)?;
    Ok(Smart::parse(&log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_where_the_specification_has_them() {
        let mut log = [0xff; 512];
        log[32..48].copy_from_slice(&3_u128.to_le_bytes());
        log[48..64].copy_from_slice(&(1_u128 << 20).to_le_bytes());
        assert_eq!(Smart::parse(&log), Smart { read: 1_536_000, written: 512_000 << 20 });
        // 128 bits hold more than we count.
        assert_eq!(Smart::parse(&[0xff; 512]).read, u64::MAX);
    }

    #[test]
    fn what_is_no_namespace_is_not_asked() {
        for path in ["/dev/null", "/", "/nonexistent"] {
            let error = smart(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path) && !error.contains('\n'), "{error}");
        }
    }
}
