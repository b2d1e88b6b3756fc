//! Where a client's completions arrive.

use super::signal::Signal;
use super::slots::Handle;
use super::sync::{ArrayQueue, AtomicBool, Mutex, Ordering, fence, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::task::Waker;

/// Handles of published transfers, for one client. It has room for every entry of the engine, so that a lane never
/// finds it full.
pub struct Mailbox {
    handles: ArrayQueue<Handle>,
    /// A waker is stored.
    waiting: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// Up while there are handles, once an event loop asked for it.
    pub(super) signal: OnceLock<Signal>,
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
            signal: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Puts a handle in and wakes the client if it sleeps. True: the client is gone, take them out again.
    pub fn put(&self, handle: Handle) -> bool {
        let _ = self.handles.push(handle); // it has a place for each entry
        // Pairs with the fences in `wait` and `signal`: either we see the flag, or the client sees the handle.
        fence(Ordering::SeqCst);
        self.signal.get().into_iter().for_each(Signal::raise);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::AcqRel) {
            // Taken out first: the woken client stores the next one under the same lock.
            let waker = lock(&self.waker).take();
            // A waker may be anyone's code: its panic must not end a lane.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
        }
        self.closed.load(Ordering::SeqCst)
    }

    /// Takes a handle out. When there is none the signal goes down.
    pub fn take(&self) -> Option<Handle> {
        let taken = self.handles.pop();
        if let (None, Some(signal)) = (taken, self.signal.get()) {
            signal.lower(|| self.len() > 0);
        }
        taken
    }

    /// What is up while there are handles, made when it is first asked for.
    pub fn signal(&self) -> std::io::Result<&Signal> {
        if self.signal.get().is_none() {
            let _ = self.signal.set(Signal::new()?);
        }
        let signal = self.signal.get().ok_or(std::io::ErrorKind::Other)?; // it is there
        fence(Ordering::SeqCst);
        if self.len() > 0 {
            signal.raise();
        }
        Ok(signal)
    }

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    /// Each handle is put in as soon as the one before was taken out, which is when the reader lowers the signal: a wake-up
    /// that is lost there is a poll that never returns.
    #[test]
    fn no_wake_up_is_lost_when_a_put_races_with_the_lowering() {
        let rounds = if cfg!(miri) { 100 } else { 1_000_000 };
        let (mailbox, taken) = (Arc::new(Mailbox::new(2)), Arc::new(AtomicU32::new(0)));
        let (put, seen) = (mailbox.clone(), taken.clone());
        let lane = std::thread::spawn(move || {
            for index in 0..rounds {
                while seen.load(Ordering::Acquire) < index {
                    std::thread::yield_now();
                }
                put.put(Handle { index, generation: 0 });
            }
        });
        let signal = mailbox.signal().expect("an eventfd");
        let mut got = 0;
        while got < rounds {
            let mut fds = [PollFd::new(signal.fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(60_000u16)).expect("poll");
            assert_eq!(ready, 1, "after {got} rounds a handle lies there and nobody is told");
            while let Some(handle) = mailbox.take() {
                assert_eq!(handle.index, got);
                got += 1;
                taken.store(got, Ordering::Release);
            }
        }
        lane.join().expect("the lane");
        assert!(mailbox.take().is_none());
        let mut fds = [PollFd::new(signal.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::ZERO).expect("poll"), 0, "it is down when nothing is there");
    }
}
