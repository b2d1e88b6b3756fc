//! Fills a file that was just made with content, preallocated so that no write finds a hole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::content;
use crate::direct::PageBuf;
use crate::progress::Progress;
use crate::stop;

/// Bytes of a write.
const CHUNK: usize = 4 << 20;

/// Writes so many bytes of content, and syncs. An error comes with what failed. `Err(None)`: Ctrl-C.
pub fn lay_out(
    file: &File,
    bytes: u64,
    seed: u64,
    progress: &Progress,
) -> Result<(), Option<(&'static str, io::Error)>> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes as i64) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
        Err(error) => return Err(Some(("preallocating", error.into()))),
    }
    let mut chunk = PageBuf::new(CHUNK);
    let mut at = 0;
    while at < bytes {
        stop::check().map_err(|_| None)?;
        let len = (bytes - at).min(CHUNK as u64);
        let part = &mut chunk[..len as usize];
        content::fill(part, at, seed);
        file.write_all_at(part, at).map_err(|error| Some(("writing", error)))?;
        progress.add(len);
        at += len;
    }
    file.sync_all().map_err(|error| Some(("flushing", error)))
}
