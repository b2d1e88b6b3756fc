//! The queue of the simulation: seeded, with its own clock. It reorders, delays, shortens, fails, refuses, accepts
//! fewer than pushed, answers stale user_data, or does not answer until the test wakes the device.
//!
//! It knows at every moment which memory is the device's: from push to answer. No system call, no thread: a lane that
//! would sleep in `enter` is noted as asleep, and its scheduler goes on with it when one of the reasons to wake is
//! there: an answer is due, the bell was rung *since the device last looked* (as a poll on an eventfd sees it), or
//! the time is over.

mod device;
mod disk;
mod log;
mod passthrough;
mod port;
mod rng;

pub use device::{Device, trace_of};
pub use disk::{BLANK, Disk, bytes, bytes_mut};
pub use log::{Command, Counts, Fault, Faults};
pub use passthrough::passes;
pub use port::Port;
pub use rng::{Rng, content};

use super::{Answer, Queue, Wait};
use crate::memory::{RawExtent, RawList, Slabs};
use crate::target::Request;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

/// One lane's queue on a shared device.
pub struct Sim {
    pub device: Rc<RefCell<Device>>,
    pub port: usize,
    /// Called wherever the lane calls its queue, with the port and whether it is about to push: the rest of the world
    /// may move there.
    pub world: Rc<dyn Fn(usize, bool)>,
}

impl Sim {
    fn port<R>(&self, with: impl FnOnce(&mut Port) -> R) -> R {
        with(&mut self.device.borrow_mut().ports[self.port])
    }
}

impl Queue for Sim {
    fn room(&self) -> usize {
        (self.world)(self.port, true);
        self.port(|port| port.room - port.queued.len())
    }

    fn push(&mut self, request: &Request) -> bool {
        (self.world)(self.port, true);
        self.device.borrow_mut().push(self.port, request)
    }

    fn enter(&mut self, wait: Wait) -> Result<u32, i32> {
        (self.world)(self.port, false);
        self.device.borrow_mut().enter(self.port, wait)
    }

    fn ready(&self) -> bool {
        (self.world)(self.port, false);
        let mut device = self.device.borrow_mut();
        if !device.ports[self.port].deferred {
            device.settle(self.port);
        }
        device.ports[self.port].ready()
    }

    fn reap(&mut self, answers: &mut Vec<Answer>) {
        (self.world)(self.port, false);
        self.port(|port| port.reap(answers));
    }

    fn set_file(&mut self, slot: u32, fd: Option<RawFd>) -> io::Result<()> {
        self.port(|port| {
            port.files.retain(|file| *file != slot);
            port.files.extend(fd.map(|_| slot));
        });
        Ok(())
    }

    fn add_buffers(&mut self, slabs: &Slabs) -> io::Result<()> {
        self.port(|port| port.slabs.push(*slabs));
        Ok(())
    }

    fn drop_buffers(&mut self, slabs: &Slabs) -> io::Result<()> {
        self.port(|port| port.slabs.retain(|known| known != slabs));
        Ok(())
    }

    fn describe(&self) -> String {
        "sim".into()
    }
}

/// A raw list, as a client that keeps its contract hands it over.
pub fn raw_list(extents: &mut [RawExtent]) -> RawList {
    // SAFETY: the schedules keep list and memory until the transfer is over, also when it was abandoned.
    unsafe { RawList::new(extents) }
}

/// Memory of a mapping that outlives the schedule's device.
pub fn window(ptr: std::ptr::NonNull<u8>, len: usize) -> crate::memory::Window {
    // SAFETY: schedules keep their mappings until their device is gone, and share them out by leases or cells.
    unsafe { crate::memory::Window::new(ptr.as_ptr(), len) }
}
