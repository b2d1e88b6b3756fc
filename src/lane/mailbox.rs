//! Where a client's completions arrive.

use super::slots::Handle;
use super::sync::{ArrayQueue, AtomicBool, Mutex, Ordering, fence, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Handles of published transfers, for one client. It has room for every entry of the engine, so that a lane never
/// finds it full.
pub struct Mailbox {
    handles: ArrayQueue<Handle>,
    /// A waker is stored.
    waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// The client is gone: whoever puts a handle in takes it out again.
    closed: AtomicBool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mailbox of {}", self.handles.len())
    }
}

impl Mailbox {
    pub fn new(room: usize) -> Mailbox {
        Mailbox {
            handles: ArrayQueue::new(room),
            waiting: AtomicBool::new(false),
            waker: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Puts a handle in and wakes the client if it sleeps. True: the client is gone, take them out again.
    pub fn put(&self, handle: Handle) -> bool {
        let _ = self.handles.push(handle); // it has a place for each entry
        // Pairs with the fence in `wait`: either we see the flag, or the client sees the handle.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::AcqRel) {
            // Taken out first: the woken client stores the next one under the same lock.
            let waker = lock(&self.waker).take();
            // A waker may be anyone's code: its panic must not end a lane.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
        }
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes a handle out.
    pub fn take(&self) -> Option<Handle> {
        self.handles.pop()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Stores a waker for the next `put`. True when there are `enough` handles already: do not wait.
    pub fn wait(&self, waker: &Waker, enough: usize) -> bool {
        *lock(&self.waker) = Some(waker.clone());
        self.waiting.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.handles.len() >= enough
    }

    /// The client is gone.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Pairs with the fence in `put`: either it sees that we are gone, or what it put in is found now.
        fence(Ordering::SeqCst);
    }
}
