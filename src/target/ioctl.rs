//! System calls about targets that nix does not wrap.

use fullbore_sys::{NVME_IOCTL_ADMIN_CMD, NVME_IOCTL_ID, NVME_IOCTL_IO_CMD, nvme_passthru_cmd};
use std::io;
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

/// Whether the file system cannot be asked without blocking: then a ring hands each command to a kernel worker.
pub fn blocks(fd: RawFd) -> bool {
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let mut block = Block([0; 4096]);
    let part = libc::iovec { iov_base: block.0.as_mut_ptr().cast(), iov_len: block.0.len() };
    // SAFETY: one buffer of ours, which lives across the call.
    let read = unsafe { libc::preadv2(fd, &part, 1, 0, libc::RWF_NOWAIT) };
    read < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP)
}

/// Number of the NVMe namespace that an open node belongs to. ENOTTY: it is no namespace's.
pub fn nvme_id(fd: RawFd) -> io::Result<u32> {
    // SAFETY: this request takes no argument and touches no memory.
    let rc = unsafe { libc::ioctl(fd, NVME_IOCTL_ID as libc::Ioctl) };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(rc as u32) }
}

/// Identify: the data structure that `cns` names. A status greater than 0 is the device's.
pub fn nvme_identify(fd: RawFd, nsid: u32, cns: u32, into: &mut [u8; 4096]) -> io::Result<u16> {
    let command = nvme_passthru_cmd { opcode: 0x06, nsid, cdw10: cns, ..Default::default() };
    nvme_passthru(fd, NVME_IOCTL_ADMIN_CMD, command, into)
}

/// Get Log Page: the first bytes of the log `page` of the whole controller. A status greater than 0 is the device's.
pub fn nvme_log(fd: RawFd, page: u32, into: &mut [u8; 512]) -> io::Result<u16> {
    let dwords = into.len() as u32 / 4 - 1;
    let command =
        nvme_passthru_cmd { opcode: 0x02, nsid: u32::MAX, cdw10: dwords << 16 | page, ..Default::default() };
    nvme_passthru(fd, NVME_IOCTL_ADMIN_CMD, command, into)
}

/// Reads one block, `into.len()` bytes, by passthrough. A status greater than 0 is the device's.
pub fn nvme_read_block(fd: RawFd, nsid: u32, lba: u64, into: &mut [u8]) -> io::Result<u16> {
    let (cdw10, cdw11) = (lba as u32, (lba >> 32) as u32);
    let command = nvme_passthru_cmd { opcode: 0x02, nsid, cdw10, cdw11, ..Default::default() };
    nvme_passthru(fd, NVME_IOCTL_IO_CMD, command, into)
}

/// A command of which the device writes at most `into.len()` bytes. The driver's own time limit is in force.
fn nvme_passthru(
    fd: RawFd,
    request: u32,
    mut command: nvme_passthru_cmd,
    into: &mut [u8],
) -> io::Result<u16> {
    command.addr = into.as_mut_ptr() as u64;
    command.data_len = u32::try_from(into.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `command` and the `data_len` bytes at `addr` are ours until this returns, which is after the command
    // ended; a device that moves more than its command's length breaks any caller, not this one alone.
    let rc = unsafe { libc::ioctl(fd, request as libc::Ioctl, &mut command) };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(rc as u16) }
}

/// Bytes of a page of this machine's memory.
pub fn page_size() -> u32 {
    // SAFETY: a question without arguments in memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).unwrap_or(4096)
}
