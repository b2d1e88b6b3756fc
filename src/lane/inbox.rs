//! What reaches a lane from other threads.

use super::bell::Bell;
use super::schedule::Share;
use super::slots::Handle;
use super::stats::Counters;
use super::sync::{ArrayQueue, AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use crate::memory::Slabs;
use crossbeam::queue::SegQueue;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts lanes that have done what a message asked.
#[derive(Debug)]
pub struct Acks {
    /// Lanes that have not answered, and the first errno.
    state: Mutex<(usize, Option<i32>)>,
    changed: Condvar,
}

/// Longer than anyone waits, and short enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(1 << 30);

impl Acks {
    pub fn new(lanes: usize) -> Arc<Acks> {
        Arc::new(Acks { state: Mutex::new((lanes, None)), changed: Condvar::new() })
    }

    /// A lane answers.
    pub fn answer(&self, result: std::io::Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = state.0.saturating_sub(1);
        if let Err(error) = result {
            state.1 = state.1.or(Some(error.raw_os_error().unwrap_or(libc::EIO)));
        }
        self.changed.notify_all();
    }

    /// Waits for all: `None` if some did not answer in time, else the first errno.
    pub fn wait(&self, within: Duration) -> Option<Result<(), i32>> {
        let until = Instant::now() + within.min(LONGEST);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.0 > 0 {
            let left = until.checked_duration_since(Instant::now())?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(state.1.map_or(Ok(()), Err))
    }
}

/// A message about what only the lane's thread may touch: its ring.
#[derive(Debug)]
pub enum Control {
    /// Puts a file into the ring's table.
    File { slot: u32, fd: RawFd, acks: Arc<Acks> },
    /// Takes it out, and drops `done`.
    CloseFile { slot: u32, done: Arc<dyn std::fmt::Debug + Send + Sync> },
    /// Makes registered buffers of region `id` known.
    AddBuffers { id: u32, slabs: Slabs, acks: Arc<Acks> },
    /// Lets go of them.
    DropBuffers { id: u32, slabs: Slabs, acks: Arc<Acks> },
    /// Drains and ends.
    Stop,
}

/// The shared half of a lane.
pub struct Inbox {
    /// Work. It has room for every entry of the engine, so that dealing cannot fail halfway: see `deal`.
    pub shares: ArrayQueue<Share>,
    pub control: SegQueue<Control>,
    pub bell: Bell,
    /// The lane's number in its engine.
    pub number: u32,
    /// It has a ring, which files and regions are made known to.
    pub has_ring: bool,
    pub alive: AtomicBool,
    /// It died with commands in flight: its ring may still write to memory.
    pub leaked: AtomicBool,
    /// The lane's thread is inside `enter` with commands to see to.
    pub entered: AtomicBool,
    pub stalled: AtomicBool,
    /// Commands in its hands when it entered the kernel last: issued, being issued, or waiting to be asked again.
    pub in_hand: AtomicU32,
    /// Clock when it died; `u64::MAX` while it lives.
    pub died: AtomicU64,
    /// The kernel's number of its thread, 0 before it runs.
    pub tid: AtomicU32,
    pub counters: Counters,
}

impl Inbox {
    pub fn new(room: usize, depth: usize, bell: Bell) -> Inbox {
        Inbox {
            shares: ArrayQueue::new(room),
            control: SegQueue::new(),
            bell,
            number: 0,
            has_ring: true,
            alive: AtomicBool::new(true),
            leaked: AtomicBool::new(false),
            entered: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            in_hand: AtomicU32::new(0),
            died: AtomicU64::new(u64::MAX),
            tid: AtomicU32::new(0),
            counters: Counters::new(depth),
        }
    }

    /// Deals a share. False: the lane is dead, and the caller must call `bury`.
    ///
    /// The inbox has a place for each entry. A lane that was held up may find it full all the same: of shares whose
    /// transfers others finished meanwhile. One of those, not one that is `claimable`, makes room.
    #[must_use]
    pub fn deal(&self, mut share: Share, claimable: impl Fn(&Share) -> bool) -> bool {
        if !self.alive.load(Ordering::SeqCst) {
            return false;
        }
        while let Some(evicted) = self.shares.force_push(share).filter(&claimable) {
            share = evicted;
        }
        self.bell.ring_if_asleep(); // with a fence: see `die`
        self.alive.load(Ordering::SeqCst)
    }

    /// Whether the lane runs and, as far as the watchdog knows, does not stand still.
    pub fn moves(&self) -> bool {
        self.alive.load(Ordering::Relaxed) && !self.stalled.load(Ordering::Relaxed)
    }

    /// Sends a message. It is answered also when the lane is dead.
    pub fn send(&self, control: Control) {
        self.control.push(control);
        self.bell.ring();
        fence(Ordering::SeqCst);
        if !self.alive.load(Ordering::SeqCst) {
            let _ = self.bury();
        }
    }

    /// From here on nobody hears the inbox: what is in it is seen to here, what comes later by whoever brings it.
    pub fn die(&self) -> impl Iterator<Item = Handle> + '_ {
        self.alive.store(false, Ordering::SeqCst);
        // Pairs with the fences in `deal` and `send`: either they see that the lane is dead, or we see what they put in.
        fence(Ordering::SeqCst);
        self.bury()
    }

    /// Sees to what a dead lane left in its inbox: answers messages, and hands out the transfers that waited for it.
    /// The dying lane calls it, and so does whoever puts something in later: each item is taken out once.
    pub fn bury(&self) -> impl Iterator<Item = Handle> + '_ {
        while let Some(control) = self.control.pop() {
            match control {
                // A ring that is gone holds no buffers; one that was leaked does, and nobody may say otherwise.
                Control::DropBuffers { acks, .. } if !self.leaked.load(Ordering::SeqCst) => {
                    acks.answer(Ok(()))
                }
                Control::DropBuffers { .. } | Control::CloseFile { .. } | Control::Stop => {}
                Control::File { acks, .. } | Control::AddBuffers { acks, .. } => {
                    acks.answer(Err(std::io::Error::from_raw_os_error(libc::EOWNERDEAD)));
                }
            }
        }
        std::iter::from_fn(|| self.shares.pop().map(|share| share.handle))
    }
}
