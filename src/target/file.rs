//! Files and block devices: encoding a command, decoding its result.

use crate::error::{Error, ErrorKind};
use crate::memory::Window;
use crate::plan::Geometry;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
    pub user_data: u64,
}

/// What a result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// So many bytes were moved; it may be fewer than asked for.
    Moved(u32),
    /// Nothing happened; ask again.
    Again,
    /// It failed for good.
    Failed(i32),
}

/// What kind of thing a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// Nothing: commands complete at once, no bytes move.
    Null,
}

/// Is told when a target is gone. The engine does it; target/ knows nothing of lanes.
pub trait Closer: Send + Sync + std::fmt::Debug {
    /// The place `slot` of the rings' file tables is not used any more.
    fn closed(&self, slot: u32);

    /// Refuses what a forked child may not do to a file that it shares with its parent.
    fn check_fork(&self) -> Result<(), Error>;
}

/// The inner half of a target, which transfers keep alive.
#[derive(Debug)]
pub struct TargetInner {
    pub name: Arc<str>,
    /// The engine it belongs to.
    pub engine: u64,
    pub kind: Kind,
    pub geometry: Geometry,
    /// O_DIRECT.
    pub direct: bool,
    pub writable: bool,
    pub(super) file: Option<File>,
    pub(super) size: AtomicU64,
    pub(super) closed: AtomicBool,
    /// Place in the rings' file tables; `u32::MAX` for none.
    pub slot: AtomicU32,
    pub closer: OnceLock<Box<dyn Closer>>,
}

impl Drop for TargetInner {
    fn drop(&mut self) {
        let slot = *self.slot.get_mut();
        if let (Some(closer), true) = (self.closer.get(), slot != u32::MAX) {
            closer.closed(slot);
        }
    }
}

impl TargetInner {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The descriptor, if there is one.
    pub fn fd(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn error(&self, kind: ErrorKind, message: &'static str, offset: u64, len: u64) -> Error {
        Error::new(kind, message).on(&self.name).at(offset, len)
    }

    /// Everything about the target that can be checked before a transfer is issued.
    pub fn check(&self, op: Op) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the target is closed; open it again").on(&self.name));
        }
        if op == Op::Write && !self.writable {
            let message = "the target was opened for reading; open it with OpenOptions::write()";
            return Err(Error::new(ErrorKind::ReadOnly, message).on(&self.name));
        }
        Ok(())
    }

    /// Everything about a range that can be checked before a transfer is issued.
    pub fn check_range(&self, op: Op, offset: u64, len: u64) -> Result<(), Error> {
        if len == 0 {
            let message = "an extent of no bytes; give a length of at least one byte";
            return Err(self.error(ErrorKind::InvalidInput, message, offset, len));
        }
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end else {
            let message = "offset and length overflow a file offset; check the arithmetic that made them";
            return Err(self.error(ErrorKind::InvalidInput, message, offset, len));
        };
        if end > self.size() {
            let message = match op {
                Op::Write => "the range ends past the end of the target; grow it first with Target::set_size",
                _ => "the range ends past the end of the target; see Target::size",
            };
            return Err(self.error(ErrorKind::OutOfBounds, message, offset, len));
        }
        if op == Op::Write && !self.geometry.aligned(offset, len) {
            let message =
                "a direct write must be whole blocks; align offset and length to Target::block_size";
            return Err(self.error(ErrorKind::Misaligned, message, offset, len));
        }
        Ok(())
    }

    /// Encodes a command for a queue.
    pub fn encode(
        &self,
        op: Op,
        offset: u64,
        window: Window,
        buffer: Option<u16>,
        user_data: u64,
    ) -> Request {
        let slot = self.slot.load(Ordering::Relaxed);
        let file = FileRef { fd: self.fd().unwrap_or(-1), slot: (slot != u32::MAX).then_some(slot) };
        Request { op, file, offset, window, buffer, user_data }
    }

    /// Decodes a queue's result: a length, or a negative errno.
    pub fn decode(&self, result: i32) -> Decoded {
        match -result {
            errno if errno <= 0 => Decoded::Moved(result as u32),
            libc::EAGAIN | libc::EINTR => Decoded::Again,
            errno => Decoded::Failed(errno),
        }
    }
}

#[cfg(all(test, not(loom)))]
impl TargetInner {
    /// A target of the simulation, which knows it by `slot`.
    pub fn simulated(slot: u32, geometry: Geometry, direct: bool, size: u64) -> TargetInner {
        TargetInner {
            name: format!("sim{slot}").into(),
            engine: 0,
            kind: Kind::File,
            geometry,
            direct,
            writable: true,
            file: None,
            size: AtomicU64::new(size),
            closed: AtomicBool::new(false),
            slot: AtomicU32::new(slot),
            closer: OnceLock::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FACTS §6.4: what a device answered was handed up as an errno, or an errno taken for a length.
    #[test]
    fn results_are_lengths_or_errnos() {
        let target = super::super::open_null(1 << 20, 0, 128 << 10).unwrap();
        for bytes in [0, 1, 4096, i32::MAX] {
            assert_eq!(target.decode(bytes), Decoded::Moved(bytes as u32));
        }
        for errno in [libc::EAGAIN, libc::EINTR] {
            assert_eq!(target.decode(-errno), Decoded::Again);
        }
        for errno in [libc::EPERM, libc::EIO, libc::ENOSPC, libc::EFAULT, libc::ECANCELED, 4095] {
            assert_eq!(target.decode(-errno), Decoded::Failed(errno));
        }
    }
}
