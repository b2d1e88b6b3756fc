//! How a sleeping lane is woken: a word that says how deep it sleeps, and an eventfd that its queue waits on.

use super::sync::{AtomicBool, AtomicU32, Ordering, fence};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::thread::Thread;

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
    /// `None` where the thread itself is woken, and under simulation.
    eventfd: Option<EventFd>,
    /// The thread to wake, where the lane polls: its ring can wait for nothing.
    thread: OnceLock<Thread>,
    /// Called instead of a write to the descriptor.
    #[cfg(test)]
    listener: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Bell {
    /// A bell that wakes whoever waits on its descriptor.
    pub fn new() -> std::io::Result<Bell> {
        let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Bell { eventfd: Some(eventfd), ..Bell::silent() })
    }

    /// A bell that wakes the thread that calls `is_mine`, out of `std::thread::park` (a futex).
    pub fn of_thread() -> Bell {
        Bell::silent()
    }

    /// The calling thread is the one that the bell wakes. It has not looked at its inbox yet: nothing is missed.
    pub fn is_mine(&self) {
        let _ = self.thread.set(std::thread::current());
    }

    /// A bell without a descriptor.
    pub fn silent() -> Bell {
        Bell {
            state: AtomicU32::new(AWAKE),
            rung: AtomicBool::new(false),
            eventfd: None,
            thread: OnceLock::new(),
            #[cfg(test)]
            listener: None,
        }
    }

    /// A bell that calls `listener` where another writes to its descriptor.
    #[cfg(test)]
    pub fn simulated(listener: impl Fn() + Send + Sync + 'static) -> Bell {
        Bell { listener: Some(Box::new(listener)), ..Bell::silent() }
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
        self.listener.iter().for_each(|heard| heard());
        if let Some(eventfd) = &self.eventfd {
            // EAGAIN means that the counter is full: the lane wakes all the same.
            let _ = eventfd.write(1);
        } else if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The lane is about to wait, and looks once more whether it has `heard` something. True: it may sleep, and whoever
    /// brings something from here on wakes it.
    pub fn lie_down(&self, has_room: bool, heard: impl FnOnce() -> bool) -> bool {
        self.state.store(if has_room { SLEEPING } else { NAPPING }, Ordering::Release);
        fence(Ordering::SeqCst);
        // Rung since it got up: its queue may have reaped the sign of that meanwhile, and a bell that is rung writes
        // no other.
        let sleeps = !self.rung.load(Ordering::Relaxed) && !heard();
        if !sleeps {
            self.state.store(AWAKE, Ordering::Relaxed);
        }
        sleeps
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
}
