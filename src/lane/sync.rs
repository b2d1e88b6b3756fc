//! The atomics and queues of the lane code, and their stand-ins under `cfg(loom)`.
//!
//! crossbeam's queues have no loom form: there a mutex over a deque stands in for them. The models therefore
//! prove our use of the queues (what is pushed before what is checked), not the queues themselves.

#[cfg(not(loom))]
pub use std::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub use loom::{
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(not(loom))]
pub use crossbeam::queue::ArrayQueue;

#[cfg(not(loom))]
pub use nix::sys::eventfd::EventFd;

/// An eventfd that nobody sleeps on a read of.
#[cfg(not(loom))]
pub fn eventfd() -> std::io::Result<EventFd> {
    use nix::sys::eventfd::EfdFlags;
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// The stand-in for an eventfd: its counter, as loom sees it. (The real one beside it is only to be named.)
#[cfg(loom)]
pub struct EventFd(AtomicU64, nix::sys::eventfd::EventFd);

#[cfg(loom)]
pub fn eventfd() -> std::io::Result<EventFd> {
    Ok(EventFd(AtomicU64::new(0), nix::sys::eventfd::EventFd::new()?))
}

#[cfg(loom)]
impl std::os::fd::AsFd for EventFd {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.1.as_fd()
    }
}

#[cfg(loom)]
impl EventFd {
    pub fn write(&self, count: u64) -> Result<usize, ()> {
        self.0.fetch_add(count, Ordering::SeqCst);
        Ok(8)
    }
    pub fn read(&self) -> Result<u64, ()> {
        match self.0.swap(0, Ordering::SeqCst) {
            0 => Err(()),
            count => Ok(count),
        }
    }
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// A cell that loom watches: access is by closure, as loom has it.
#[cfg(not(loom))]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }
    pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
        look(self.0.get())
    }
    pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
        change(self.0.get())
    }
}

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// The stand-in for crossbeam's bounded queue. How many items there are is told by atomics outside of the mutex:
/// whoever only asks is ordered by nothing, as with crossbeam's.
#[cfg(loom)]
pub struct ArrayQueue<T> {
    capacity: usize,
    items: Mutex<std::collections::VecDeque<T>>,
    pushed: AtomicU64,
    popped: AtomicU64,
}

#[cfg(loom)]
impl<T> ArrayQueue<T> {
    pub fn new(capacity: usize) -> Self {
        let items = Mutex::new(std::collections::VecDeque::new());
        ArrayQueue { capacity, items, pushed: AtomicU64::new(0), popped: AtomicU64::new(0) }
    }
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock().unwrap();
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        self.pushed.fetch_add(1, Ordering::Release);
        Ok(())
    }
    pub fn force_push(&self, item: T) -> Option<T> {
        let mut items = self.items.lock().unwrap();
        let evicted = if items.len() == self.capacity { items.pop_front() } else { None };
        items.push_back(item);
        if evicted.is_none() {
            self.pushed.fetch_add(1, Ordering::Release);
        }
        evicted
    }
    pub fn pop(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let item = self.items.lock().unwrap().pop_front();
        if item.is_some() {
            self.popped.fetch_add(1, Ordering::Relaxed);
        }
        item
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn len(&self) -> usize {
        self.pushed.load(Ordering::Relaxed).saturating_sub(self.popped.load(Ordering::Relaxed)) as usize
    }
}

/// Locks a mutex whose holder may have panicked: the data behind ours stays whole at every step.
#[cfg(not(loom))]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(loom)]
pub fn lock<T>(mutex: &Mutex<T>) -> loom::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
