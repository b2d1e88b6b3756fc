//! How a sleeping lane is woken: a word that says how deep it sleeps, and an eventfd that its queue waits on.

use super::sync::{AtomicBool, AtomicU32, Ordering, fence};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};

/// Awake: it will look at its inbox by itself.
const AWAKE: u32 = 0;
/// Waits for results with every credit in use: new work need not wake it.
const NAPPING: u32 = 1;
/// Waits and has room: new work must wake it.
const SLEEPING: u32 = 2;

/// A lane's bell.
pub struct Bell {
    state: AtomicU32,
    /// Rung and not yet heard: a second ring writes nothing.
    rung: AtomicBool,
    /// `None` under simulation, where the scheduler looks at `rung`.
    eventfd: Option<EventFd>,
    /// How often the descriptor was, or would have been, written to.
    #[cfg(test)]
    rings: super::sync::AtomicU64,
}

impl Bell {
    /// A bell that wakes whoever waits on its descriptor.
    pub fn new() -> std::io::Result<Bell> {
        let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Bell { eventfd: Some(eventfd), ..Bell::silent() })
    }

    /// A bell without a descriptor.
    pub fn silent() -> Bell {
        Bell {
            state: AtomicU32::new(AWAKE),
            rung: AtomicBool::new(false),
            eventfd: None,
            #[cfg(test)]
            rings: super::sync::AtomicU64::new(0),
        }
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.eventfd.as_ref().map(AsFd::as_fd)
    }

    /// Rings if the lane sleeps. Call it after the inbox was filled.
    pub fn ring_if_asleep(&self) {
        // Pairs with the fence in `lie_down`: either we see it asleep, or it sees the inbox.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == SLEEPING {
            self.ring();
        }
    }

    /// Rings in any case.
    pub fn ring(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        #[cfg(test)]
        self.rings.fetch_add(1, Ordering::SeqCst);
        if let Some(eventfd) = &self.eventfd {
            // EAGAIN means that the counter is full: the lane wakes all the same.
            let _ = eventfd.write(1);
        }
    }

    /// The lane says that it is about to wait. It must look at its inbox once more afterwards.
    pub fn lie_down(&self, has_room: bool) {
        self.state.store(if has_room { SLEEPING } else { NAPPING }, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// The lane is back. True if it was rung. Call it before the inbox is emptied.
    pub fn get_up(&self) -> bool {
        self.state.store(AWAKE, Ordering::Release);
        if !self.rung.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(eventfd) = &self.eventfd {
            let _ = eventfd.read();
        }
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// How often its descriptor would have been written to. A queue that waits for the next write sleeps on although
    /// the bell is rung, if the write that rang it came before.
    #[cfg(test)]
    pub fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }
}
