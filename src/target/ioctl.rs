//! System calls about targets that nix does not wrap.

use std::os::fd::RawFd;

/// Memory and offset alignment that statx reports for O_DIRECT (kernel 6.1); zeros mean "not here".
pub fn statx_dio(fd: RawFd) -> Option<(u32, u32)> {
    // SAFETY: all-zero is a valid statx.
    let mut out: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; `out` lives across the call.
    let rc = unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut out) };
    let known = rc == 0 && out.stx_mask & libc::STATX_DIOALIGN != 0;
    known.then_some((out.stx_dio_mem_align, out.stx_dio_offset_align))
}
