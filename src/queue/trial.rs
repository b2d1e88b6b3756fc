//! What a drive and this kernel take is tried once, when a target is opened: version numbers do not tell.

use super::uring::{Ring, entry};
use crate::error::{Error, ErrorKind};
use crate::memory::{Mapping, PAGE};
use crate::target::{Decoded, Fault, Op, TargetInner};
use io_uring::types::{SubmitArgs, Timespec};
use std::io;
use std::time::{Duration, Instant};

/// Longer than a drive takes for its first block, its own retries and a reset included.
const PATIENCE: Duration = Duration::from_secs(40);

/// Reads a drive's first block by passthrough: into plain memory, or the target cannot be used; then into the front
/// of a registered buffer of more pages than a command may have segments. `Some`: why registered buffers are not used.
pub fn try_passthrough(target: &TargetInner) -> Result<Option<String>, Error> {
    let geometry = &target.geometry;
    let pages = (geometry.max_segments as usize).min(1024) + 2;
    let memory = Mapping::new(pages * PAGE + geometry.block as usize)
        .map_err(|e| Error::io("no memory for a first read; free some", &e))?;
    let mut ring = Ring::builder()
        .build(2)
        .map_err(|e| Error::io("no ring for a first read; raise the limits (ulimit -l, -n)", &e))?;
    let mut answer = read_first(&mut ring, target, &memory, None);
    if let Ok(Ok(())) = answer {
        let iovec = libc::iovec { iov_base: memory.ptr().as_ptr().cast(), iov_len: memory.len() };
        // SAFETY: the mapping lives until the ring is gone, or both are left behind.
        if let Err(error) = unsafe { ring.submitter().register_buffers(&[iovec]) } {
            // Regions will be refused for the same cause, and say so.
            tracing::debug!(%error, "registered buffers could not be tried");
            return Ok(None);
        }
        answer = match read_first(&mut ring, target, &memory, Some(0)) {
            Ok(Err(fault)) => return Ok(Some(unfixed(fault))),
            other => other,
        };
    }
    match answer {
        Ok(Ok(())) => Ok(None),
        Ok(Err(errno)) => Err(explain(errno)),
        Err(stuck) => {
            // No answer: the memory may still be the drive's.
            std::mem::forget((ring, memory));
            Err(stuck)
        }
    }
}

/// Why registered buffers are not used.
fn unfixed(errno: i32) -> String {
    let why = match errno {
        libc::EINVAL => {
            "EINVAL: before 6.2 or so the kernel counts all pages to the end of the buffer against the \
                         drive's segments"
                .to_string()
        }
        errno => io::Error::from_raw_os_error(errno).to_string(),
    };
    format!("this kernel refuses passthrough into a registered buffer ({why})")
}

/// Reads the first block. The inner error is the kernel's errno: what the drive itself says of its first block, good or
/// bad, proves that the road is open. The outer one: there was no answer.
fn read_first(
    ring: &mut Ring,
    target: &TargetInner,
    memory: &Mapping,
    buffer: Option<u16>,
) -> Result<Result<(), i32>, Error> {
    let request = target.encode(Op::Read, 0, memory.window(0, target.geometry.block as usize), buffer, 0);
    // SAFETY: the caller keeps the mapping until there is an answer, else for ever; the target's file is open.
    let pushed = unsafe { ring.submission().push(&entry(&request, &[])) };
    let until = Instant::now() + PATIENCE;
    while pushed.is_ok() && ring.completion().is_empty() && Instant::now() < until {
        let time = Timespec::from(Duration::from_secs(1));
        match ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)) {
            Err(e)
                if !matches!(
                    e.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                return Err(Error::io("a first read could not be submitted; see the kernel's log", &e));
            }
            _ => {}
        }
    }
    let result = ring.completion().next().map(|answer| answer.result());
    match result.map(|result| target.decode(result, target.geometry.block)) {
        Some(Decoded::Again(Fault::Errno(errno)) | Decoded::Failed(Fault::Errno(errno))) => Ok(Err(errno)),
        Some(Decoded::Again(fault) | Decoded::Failed(fault)) => {
            tracing::warn!(?fault, target = %target.name, "the drive's first block cannot be read");
            Ok(Ok(()))
        }
        Some(Decoded::Moved(_)) => Ok(Ok(())),
        None => Err(Error::new(
            ErrorKind::TimedOut,
            "a first read was not answered: the drive hangs; see the kernel's log",
        )),
    }
}

/// Why the kernel refuses passthrough, and what helps.
fn explain(errno: i32) -> Error {
    match errno {
        libc::EACCES | libc::EPERM => Error::os(
            "NVMe passthrough is not permitted: before 6.2 it takes CAP_SYS_ADMIN, later the rights of the device node \
             decide (chmod, or a udev rule); a container must be given the device",
            errno,
        ),
        libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS => Error::os(
            "this kernel has no NVMe passthrough over io_uring (5.19 does); open the block device (/dev/nvme0n1)",
            errno,
        )
        .with_kind(ErrorKind::Unsupported),
        errno => Error::os("a first read by passthrough failed; see the kernel's log for the drive", errno),
    }
}
