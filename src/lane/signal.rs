//! A descriptor that is readable while something is there: for event loops (poll, epoll).

use super::sync::{AtomicBool, EventFd, Ordering};
use std::os::fd::{AsFd, BorrowedFd};

/// An eventfd with a word beside it, so that only the first of several signals makes a system call.
pub struct Signal {
    raised: AtomicBool,
    eventfd: EventFd,
}

impl Signal {
    pub fn new() -> std::io::Result<Signal> {
        Ok(Signal { raised: AtomicBool::new(false), eventfd: super::sync::eventfd()? })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    #[cfg(loom)]
    pub fn is_up(&self) -> bool {
        self.eventfd.is_up()
    }

    /// Makes it readable. Call it after the thing is there.
    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            let _ = self.eventfd.write(1); // EAGAIN: the counter is full, and it is readable
        }
    }

    /// Makes it unreadable, unless `more` then says that there is something. In this order: who raises it between the
    /// read and the swap writes nothing, but what was brought is seen behind the swap; who raised it before and writes
    /// only now leaves it readable for nothing, which the next call reads away.
    pub fn lower(&self, more: impl FnOnce() -> bool) {
        let _ = self.eventfd.read();
        self.raised.swap(false, Ordering::AcqRel);
        if more() {
            self.raise();
        }
    }
}
