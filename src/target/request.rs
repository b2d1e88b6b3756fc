//! A command as a queue takes it, and what its result means.

use super::nvme::Status;
use crate::memory::Window;
use fullbore_sys::nvme_uring_cmd;
use std::os::fd::RawFd;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From the target to memory.
    Read,
    /// From memory to the target.
    Write,
    /// Make what was written durable.
    Flush,
}

/// How a ring names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The descriptor.
    pub fd: RawFd,
    /// Its place in every ring's file table, if it has one.
    pub slot: Option<u32>,
}

/// A command, encoded for a queue.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub op: Op,
    pub file: FileRef,
    pub offset: u64,
    pub window: Window,
    /// Index of the registered buffer in which `window` lies whole.
    pub buffer: Option<u16>,
    /// The NVMe command, where the target takes those.
    pub passthrough: Option<nvme_uring_cmd>,
    /// The same bytes in the target's mapping, where it has one.
    pub mapped: Option<Window>,
    /// The file whose mapping a flush has the kernel write out.
    pub sync: Option<RawFd>,
    pub user_data: u64,
}

/// Why a command failed: an errno and an NVMe status are never taken for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Errno(i32),
    Nvme(Status),
}

/// What a result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// So many bytes were moved; it may be fewer than asked for.
    Moved(u32),
    /// Nothing happened; ask again. Should it stay so, this is why.
    Again(Fault),
    /// It failed for good.
    Failed(Fault),
}
