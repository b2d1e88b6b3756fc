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

/// The stand-in for crossbeam's bounded queue.
#[cfg(loom)]
pub struct ArrayQueue<T> {
    capacity: usize,
    items: Mutex<std::collections::VecDeque<T>>,
}

#[cfg(loom)]
impl<T> ArrayQueue<T> {
    pub fn new(capacity: usize) -> Self {
        ArrayQueue { capacity, items: Mutex::new(std::collections::VecDeque::new()) }
    }
    pub fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock().unwrap();
        if items.len() == self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }
    pub fn force_push(&self, item: T) -> Option<T> {
        let mut items = self.items.lock().unwrap();
        items.push_back(item);
        if items.len() > self.capacity { items.pop_front() } else { None }
    }
    pub fn pop(&self) -> Option<T> {
        self.items.lock().unwrap().pop_front()
    }
    pub fn is_empty(&self) -> bool {
        self.items.lock().unwrap().is_empty()
    }
    pub fn len(&self) -> usize {
        self.items.lock().unwrap().len()
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
