//! What a command's failure is called, and what helps.

use super::path::Path;
use crate::error::{Error, ErrorKind};
use crate::target::{Fault, Op};
use std::borrow::Cow;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    /// What the extent's outcome says.
    pub errno: i32,
    /// Of a drive that answered.
    pub status: Option<u16>,
    pub message: Cow<'static, str>,
}

impl Failure {
    fn new(kind: ErrorKind, errno: i32, message: impl Into<Cow<'static, str>>) -> Failure {
        Failure { kind, errno, status: None, message: message.into() }
    }

    /// A result that moved nothing although there was something to move.
    pub fn ended(op: Op) -> Failure {
        match op {
            Op::Write => Failure::new(
                ErrorKind::Io,
                libc::ENOSPC,
                "the target took no more bytes; is the file system or the device full, or was the file cut short?",
            ),
            _ => Failure::new(
                ErrorKind::UnexpectedEof,
                libc::ENODATA,
                "the target ended before the range did; was the file cut short after it was opened?",
            ),
        }
    }

    /// A command that failed for good.
    pub fn of(op: Op, fault: Fault) -> Failure {
        match fault {
            Fault::Errno(errno) => Failure::from_errno(op, errno),
            Fault::Nvme(status) => {
                let what = match op {
                    Op::Read => "read",
                    Op::Write => "write",
                    Op::Flush => "flush",
                };
                let message = format!("the drive failed a {what}: {status}; see its log (nvme error-log)");
                let failure = Failure::new(status.kind(), libc::EIO, message);
                Failure { status: Some(status.0), ..failure }
            }
        }
    }

    /// A command that was asked again and again.
    pub fn exhausted(op: Op, fault: Fault) -> Failure {
        match fault {
            Fault::Errno(_) => Failure::new(
                ErrorKind::Io,
                libc::EAGAIN,
                "the device kept answering that it is busy; lower the lane depth or the number of users",
            ),
            fault => Failure::of(op, fault),
        }
    }

    /// A command that would take another path than the one that was demanded.
    pub fn other_path(path: Path) -> Failure {
        let message = format!(
            "another path was demanded, and \"{path}\" is left: the region was dropped or released while the transfer \
             waited; keep it until the completion"
        );
        Failure::new(ErrorKind::PathUnavailable, libc::ENOTSUP, message)
    }

    /// The same of a command into PCI peer memory, of which not every device and every bridge takes any.
    pub fn over_peer(self) -> Failure {
        // Invalid Field, Invalid Use of Controller Memory Buffer, PRP Offset Invalid: all generic.
        let shape = self.status.is_some_and(|status| matches!(status & 0x7ff, 0x02 | 0x12 | 0x13));
        let road =
            self.status.is_none() && matches!(self.errno, libc::EREMOTEIO | libc::EINVAL | libc::EFAULT);
        if !shape && !road {
            return self;
        }
        let message = format!(
            "{} (the memory is PCI peer memory: the drive takes no command of this shape into it, or it cannot be \
             reached from there; try the block device, a smaller command size, or host memory)",
            self.message
        );
        Failure { message: message.into(), ..self }
    }

    /// The same, with the member of a stripe that it was and where there.
    pub fn on_member(self, member: &str) -> Failure {
        Failure { message: format!("{} (member {member})", self.message).into(), ..self }
    }

    fn from_errno(op: Op, errno: i32) -> Failure {
        let kind = match errno {
            libc::ENOSPC | libc::EDQUOT | libc::ENOMEM | libc::EFBIG | libc::ECANCELED => ErrorKind::Resource,
            libc::EACCES | libc::EPERM => ErrorKind::Permission,
            _ => ErrorKind::Io,
        };
        let message = match (op, errno) {
            (_, libc::ENOSPC | libc::EDQUOT) => "the file system is full or a quota is reached; free space",
            (_, libc::EFBIG) => "the file may not grow that far; raise the limit (ulimit -f)",
            (_, libc::ENODEV | libc::ENXIO | libc::ESHUTDOWN) => {
                "the device is gone: it was unplugged or its driver gave it up; open it anew when it is back"
            }
            (_, libc::EINVAL) => {
                "the target refused the command: its shape (please report Target::geometry), or the device is gone"
            }
            (_, libc::EFAULT) => {
                "the memory is not mapped (a GPU's must be registered: register_cuda), or was unmapped while registered; release it first"
            }
            (_, libc::EACCES | libc::EPERM) => "the kernel forbids the command; run as a user who may",
            // Of a stopped transfer this is not asked for: its stop says why.
            (_, libc::ECANCELED) => {
                "the kernel gave the command up, most likely as it could start no worker thread for it; raise the limit (ulimit -u)"
            }
            (Op::Read, _) => "read failed; see the kernel's log for the device",
            (Op::Write, _) => "write failed; see the kernel's log for the device",
            (Op::Flush, _) => "flush failed: nothing written since the last flush is known to be durable",
        };
        Failure::new(kind, errno, message)
    }

    pub fn error(self) -> Error {
        let error = Error::os(self.message, self.errno).with_kind(self.kind);
        self.status.into_iter().fold(error, Error::with_nvme)
    }
}
