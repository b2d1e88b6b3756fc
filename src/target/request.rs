//! A command as a queue takes it, and what its result means.

use super::nvme::Status;
use crate::memory::Window;
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

/// What every command to a namespace says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub nsid: u32,
    /// A block has `1 << lba_shift` bytes.
    pub lba_shift: u8,
    /// When the driver begins to abort, at least its own time.
    pub timeout_ms: u32,
}

/// A command, encoded for a queue. Lanes copy it about: it is kept small, and what is long is made by the queue.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub op: Op,
    pub file: FileRef,
    pub offset: u64,
    pub window: Window,
    /// Index of the registered buffer in which `window` lies whole.
    pub buffer: Option<u16>,
    /// The namespace, where the target takes NVMe commands.
    pub namespace: Option<Numbers>,
    /// The same bytes in the target's mapping; empty where it has none.
    pub mapped: Window,
    pub user_data: u64,
    /// It cannot be asked for without blocking: a kernel worker has it at once, another one if all are at work.
    pub aside: bool,
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
