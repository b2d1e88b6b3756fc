//! The one error type of the crate.
//!
//! Every error says what was attempted, the likely cause and the remedy. It is turned into an errno only
//! at the C edge.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What went wrong, coarse enough to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument makes no sense (zero length, overflow, option out of range).
    InvalidInput,
    /// A range lies outside its target or region.
    OutOfBounds,
    /// Offset, length or memory address break an alignment that the target needs.
    Misaligned,
    /// A write to a target that was opened for reading.
    ReadOnly,
    /// The target or the engine is closed.
    Closed,
    /// Target, region or client belong to another engine.
    WrongEngine,
    /// A lease overlaps one that is out.
    Overlap,
    /// All of the engine's `max_transfers` entries are taken; try again after a completion.
    Busy,
    /// There is no such file or device (ENOENT).
    NotFound,
    /// The machine or the file system does not offer what is needed.
    Unsupported,
    /// The caller may not do this.
    Permission,
    /// A limit of the process or the machine was hit (memlock, open files, memory, space, file size).
    Resource,
    /// The path that was demanded is not the one that would run.
    PathUnavailable,
    /// The target is mounted, held, or the memory is still in use.
    InUse,
    /// The process forked; the engine lives in the parent.
    Forked,
    /// The device or the kernel failed a command.
    Io,
    /// The target ended before the range did.
    UnexpectedEof,
    /// The deadline passed; what was in flight has drained.
    TimedOut,
    /// The deadline and the grace passed and commands are still in flight: the memory is quarantined.
    Abandoned,
    /// The caller cancelled the transfer.
    Cancelled,
    /// The engine was shut down.
    Shutdown,
    /// A lane died; the transfer could not be carried on.
    LaneFailed,
    /// Memory cannot be released: late results may still land in it.
    Quarantined,
}

/// An error: its kind, where it happened and a message with cause and remedy.
///
/// Offsets and lengths are in bytes; `errno` is the kernel's positive number. `Display` gives all of it in one line:
/// target, message, place and errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    kind: ErrorKind,
    message: Cow<'static, str>,
    target: Option<Arc<str>>,
    offset: Option<u64>,
    len: Option<u64>,
    extent: Option<u32>,
    errno: Option<i32>,
    nvme: Option<u16>,
    cuda: Option<u32>,
    cufile: Option<i32>,
}

impl Error {
    /// An error of `kind` with a message that says cause and remedy.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        Error {
            kind,
            message: message.into(),
            target: None,
            offset: None,
            len: None,
            extent: None,
            errno: None,
            nvme: None,
            cuda: None,
            cufile: None,
        }
    }

    /// An error that stems from a failed system call.
    pub(crate) fn os(message: impl Into<Cow<'static, str>>, errno: i32) -> Error {
        let kind = match errno {
            libc::EACCES | libc::EPERM => ErrorKind::Permission,
            libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EDQUOT | libc::EFBIG => {
                ErrorKind::Resource
            }
            libc::ENOENT => ErrorKind::NotFound,
            libc::ENOSYS | libc::EOPNOTSUPP => ErrorKind::Unsupported,
            libc::EROFS => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        Error { errno: Some(errno), ..Error::new(kind, message) }
    }

    /// The same, from an [`std::io::Error`].
    pub(crate) fn io(message: impl Into<Cow<'static, str>>, error: &std::io::Error) -> Error {
        match error.raw_os_error() {
            Some(errno) => Error::os(message, errno),
            None => Error::new(ErrorKind::Io, format!("{}: {error}", message.into())),
        }
    }

    /// Names the target.
    pub(crate) fn on(mut self, target: &Arc<str>) -> Error {
        self.target = Some(target.clone());
        self
    }

    /// Names the byte range of the target.
    pub(crate) fn at(mut self, offset: u64, len: u64) -> Error {
        self.offset = Some(offset);
        self.len = Some(len);
        self
    }

    /// Names the extent of the transfer, counted from 0.
    pub(crate) fn extent(mut self, index: u32) -> Error {
        self.extent = Some(index);
        self
    }

    /// The same error as another kind (an errno whose usual kind is too coarse here).
    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Error {
        self.kind = kind;
        self
    }

    /// Notes the status that an NVMe device answered. There is no errno then: the kernel failed nothing.
    pub(crate) fn with_nvme(mut self, status: u16) -> Error {
        (self.nvme, self.errno) = (Some(status), None);
        self
    }

    /// Notes what the CUDA driver answered.
    pub(crate) fn with_cuda(mut self, code: u32) -> Error {
        self.cuda = Some(code);
        self
    }

    /// Notes what cuFile answered.
    pub(crate) fn with_cufile(mut self, code: i32) -> Error {
        self.cufile = Some(code);
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message alone, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The target's name, where one is concerned.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    /// First byte of the range concerned, on the target.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Length of the range concerned, in bytes.
    pub fn length(&self) -> Option<u64> {
        self.len
    }

    /// The extent of the transfer concerned, counted from 0.
    pub fn extent_index(&self) -> Option<u32> {
        self.extent
    }

    /// The kernel's errno, where one was given.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// The status with which an NVMe device ended the command, as the kernel hands it up: status code in bits 0-7,
    /// status code type in bits 8-10, and 0x4000 for "do not retry". It is never an errno, and [`Error::errno`] is
    /// `None` beside it; the message has its name.
    pub fn nvme_status(&self) -> Option<u16> {
        self.nvme
    }

    /// What cuFile answered (a `CUfileOpError`, 5001 and up), where it failed a call; the message has its name.
    pub fn cufile_code(&self) -> Option<i32> {
        self.cufile
    }

    /// What the CUDA driver answered (a `CUresult`), where it failed a call; the message has its name.
    pub fn cuda_code(&self) -> Option<u32> {
        self.cuda
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(target) = &self.target {
            write!(f, "{target}: ")?;
        }
        f.write_str(&self.message)?;
        match (self.extent, self.offset, self.len) {
            (Some(extent), Some(offset), Some(len)) => {
                write!(f, " (extent {extent}, offset {offset}, length {len})")?
            }
            (Some(extent), ..) => write!(f, " (extent {extent})")?,
            (None, Some(offset), Some(len)) => write!(f, " (offset {offset}, length {len})")?,
            _ => {}
        }
        if let Some(errno) = self.errno {
            write!(f, ": {}", std::io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_names_place_cause_and_errno() {
        let error = Error::os("read failed", libc::EIO).on(&Arc::from("/dev/x")).at(4096, 512).extent(3);
        // The errno in the C library's words (Miri has others).
        let words = std::io::Error::from_raw_os_error(libc::EIO);
        let expected = format!("/dev/x: read failed (extent 3, offset 4096, length 512): {words}");
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.extent_index(), Some(3));
        // A place is optional, and so is each part of it.
        let error = Error::new(ErrorKind::InvalidInput, "no");
        assert_eq!(error.to_string(), "no");
        assert_eq!(error.clone().at(1, 2).to_string(), "no (offset 1, length 2)");
        assert_eq!(error.extent(0).to_string(), "no (extent 0)");
    }

    #[test]
    fn errnos_have_kinds() {
        for (errno, kind) in [
            (libc::ENOENT, ErrorKind::NotFound),
            (libc::EFBIG, ErrorKind::Resource),
            (libc::ENOSPC, ErrorKind::Resource),
            (libc::EACCES, ErrorKind::Permission),
            (libc::EROFS, ErrorKind::ReadOnly),
            (libc::ENOSYS, ErrorKind::Unsupported),
            (libc::EIO, ErrorKind::Io),
        ] {
            assert_eq!(Error::os("failed", errno).kind(), kind, "{errno}");
        }
    }

    /// FACTS §6.4: what a device answered was handed up as an errno.
    #[test]
    fn an_nvme_status_is_no_errno() {
        let error = Error::new(ErrorKind::Io, "Unrecovered Read Error: sct 2, sc 0x81").with_nvme(0x4281);
        assert_eq!((error.nvme_status(), error.errno()), (Some(0x4281), None));
        assert_eq!(error.to_string(), "Unrecovered Read Error: sct 2, sc 0x81");
        assert_eq!(Error::os("read failed", libc::EIO).nvme_status(), None);
        assert_eq!(Error::os("read failed", libc::EIO).with_nvme(7).errno(), None);
    }
}
