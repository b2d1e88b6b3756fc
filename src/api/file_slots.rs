//! Places in the rings' file tables.

use super::shared::{ANSWER, Shared};
use crate::error::Error;
use crate::lane::Control;
use crate::memory::lock;
use crate::queue::FILES;
use crate::target::{Closer, TargetInner};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The free places; every ring uses the same ones.
pub struct FileSlots(Mutex<Vec<u32>>);

impl FileSlots {
    pub fn new() -> FileSlots {
        FileSlots(Mutex::new((0..FILES).rev().collect()))
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        lock(&self.0)
    }
}

/// Takes a target out of the rings' tables when its last transfer and handle are gone.
#[derive(Debug)]
pub struct Unregister(pub Weak<Shared>);

impl Closer for Unregister {
    fn closed(&self, slot: u32) {
        let Some(shared) = self.0.upgrade().filter(|s| !s.fork.forked()) else { return };
        // Nobody waits here: this may be a lane's own thread. The place is reused once every lane let go of it.
        let place = Arc::new(Place { slot, shared: Arc::downgrade(&shared) });
        for lane in shared.core.lanes() {
            lane.send(Control::CloseFile { slot, done: place.clone() });
        }
    }

    fn check_fork(&self) -> Result<(), Error> {
        self.0.upgrade().map_or(Ok(()), |shared| shared.check_fork())
    }
}

/// A place that becomes free when the last lane drops it.
#[derive(Debug)]
struct Place {
    slot: u32,
    shared: Weak<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.files.free().push(self.slot);
        }
    }
}

impl Shared {
    /// Registers a target's file with every ring. Without a place, requests name the descriptor.
    pub fn register_file(&self, target: &TargetInner) {
        let Some(fd) = target.fd() else { return };
        let Some(slot) = self.files.free().pop() else { return };
        match self.tell_lanes(ANSWER, |acks| Control::File { slot, fd, acks }) {
            Some(Ok(())) => target.slot.store(slot, Ordering::Release),
            // A place that some ring may hold is not used again.
            failed => {
                tracing::warn!(?failed, target = %target.name, "the file is not registered with the rings")
            }
        }
    }
}
