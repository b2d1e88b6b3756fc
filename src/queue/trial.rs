//! What a drive and this kernel take is tried once, when a target is opened: version numbers do not tell.

use super::uring::{Ring, entry};
use crate::error::{Error, ErrorKind};
use crate::memory::{Mapping, PAGE};
use crate::target::{Decoded, Fault, Op, TargetInner};
use io_uring::types::{SubmitArgs, Timespec};
use std::io;
use std::time::Duration;

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
    let plain = read_first(&mut ring, target, &memory, None);
    plain.map_err(explain)?;
    let iovec = libc::iovec { iov_base: memory.ptr().as_ptr().cast(), iov_len: memory.len() };
    // SAFETY: the mapping lives until the ring has let go of it, below.
    if let Err(error) = unsafe { ring.submitter().register_buffers(&[iovec]) } {
        // Regions will be refused for the same cause, and say so.
        tracing::debug!(%error, "registered buffers could not be tried");
        return Ok(None);
    }
    let fixed = read_first(&mut ring, target, &memory, Some(0));
    if let Err(Trial::Stuck) = fixed {
        std::mem::forget((ring, memory));
        return Err(explain(Trial::Stuck));
    }
    let _ = ring.submitter().unregister_buffers();
    Ok(fixed.err().map(|trial| {
        let why = match trial {
            Trial::Fault(Fault::Errno(libc::EINVAL)) => {
                "EINVAL: before 6.2 or so the kernel counts all pages to the \
                                                          end of the buffer against the drive's segments"
                    .to_string()
            }
            other => explain(other).to_string(),
        };
        format!("this kernel refuses passthrough into a registered buffer ({why})")
    }))
}

/// What came of a first read that did not succeed.
enum Trial {
    Io(io::Error),
    Fault(Fault),
    /// No answer: the memory is the drive's.
    Stuck,
}

fn read_first(
    ring: &mut Ring,
    target: &TargetInner,
    memory: &Mapping,
    buffer: Option<u16>,
) -> Result<(), Trial> {
    // SAFETY: the mapping outlives the command: it is waited for, or the mapping is leaked.
    let window = unsafe { crate::memory::Window::new(memory.ptr().as_ptr(), target.geometry.block as usize) };
    let request = target.encode(Op::Read, 0, window, buffer, 0);
    // SAFETY: as above; the target's file is open.
    unsafe { ring.submission().push(&entry(&request, &[])) }.map_err(|_| Trial::Stuck)?;
    let time = Timespec::from(PATIENCE);
    match ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)) {
        Err(e) if !matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => return Err(Trial::Io(e)),
        _ => {}
    }
    let result = ring.completion().next().map(|answer| answer.result());
    match result.map(|result| target.decode(result, window.len() as u32)) {
        Some(Decoded::Moved(_)) => Ok(()),
        Some(Decoded::Again(fault) | Decoded::Failed(fault)) => Err(Trial::Fault(fault)),
        None => Err(Trial::Stuck),
    }
}

fn explain(trial: Trial) -> Error {
    match trial {
        Trial::Io(error) => Error::io("a first read could not be submitted; see the kernel's log", &error),
        Trial::Stuck => Error::new(
            ErrorKind::TimedOut,
            "a first read was not answered: the drive hangs; see the kernel's log",
        ),
        Trial::Fault(Fault::Nvme(status)) => {
            Error::new(ErrorKind::Io, format!("the drive failed a first read: {status}; see its log")).with_nvme(status.0)
        }
        Trial::Fault(Fault::Errno(errno @ (libc::EACCES | libc::EPERM))) => Error::os(
            "NVMe passthrough is not permitted: before 6.2 it takes CAP_SYS_ADMIN, later the rights of the device node \
             decide (chmod, or a udev rule); a container must be given the device",
            errno,
        ),
        Trial::Fault(Fault::Errno(errno @ (libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS))) => Error::os(
            "this kernel has no NVMe passthrough over io_uring (5.19 does); open the block device (/dev/nvme0n1)",
            errno,
        )
        .with_kind(ErrorKind::Unsupported),
        Trial::Fault(Fault::Errno(errno)) => {
            Error::os("a first read by passthrough failed; see the kernel's log for the drive", errno)
        }
    }
}
