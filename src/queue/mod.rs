//! Queues: what a lane drives. Requests are pushed, one `enter` submits the batch and waits, results are reaped.

pub mod cuda;
pub mod cufile;
mod features;
mod local;
#[cfg(all(test, not(loom)))]
pub mod sim;
mod trial;
mod uring;

pub use features::{Feature, try_features};
pub use local::{BellWait, COPY, Local, NOTHING, Work, fine_timers};
pub use trial::try_passthrough;
pub use uring::{FILES, Uring, UringOptions, plain_ring_refusal};

use crate::memory::Slabs;
use crate::target::Request;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What came of a request: the user_data it was pushed with and the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub user_data: u64,
    pub result: i32,
}

/// How long `enter` may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until an answer is there, the bell rings or the time is over.
    ///
    /// One answer, not a batch of them: waiting for three at full depth cut the enters to a quarter, and the rate on
    /// tmpfs with it (8.1 to 5.7 GB/s over two lanes on two CPUs; 6.18, min_wait_usec 100).
    ForOne { timeout: Option<Duration> },
}

/// A queue belongs to one lane's thread.
pub trait Queue {
    /// How many requests fit before the next `enter`.
    fn room(&self) -> usize;

    /// Takes a request; false if there is no room. Its memory stays the device's until its answer was reaped.
    fn push(&mut self, request: &Request) -> bool;

    /// Submits what was pushed and waits. Answers how many of the pushed requests were accepted: it may be fewer
    /// than all, the rest stays queued and must not be pushed again. `Err(errno)`: as `Ok(0)`, and the cause.
    fn enter(&mut self, wait: Wait) -> Result<u32, i32>;

    /// Whether answers are there to be reaped without waiting.
    fn ready(&self) -> bool;

    /// Appends the answers that are there.
    fn reap(&mut self, answers: &mut Vec<Answer>);

    /// Puts a file into the queue's table, or takes it out (`None`).
    fn set_file(&mut self, slot: u32, fd: Option<RawFd>) -> io::Result<()>;

    /// Makes registered buffers known to the queue. That they stay mapped is the promise that `Slabs` stand for.
    fn add_buffers(&mut self, slabs: &Slabs) -> io::Result<()>;

    /// Lets go of registered buffers.
    fn drop_buffers(&mut self, slabs: &Slabs) -> io::Result<()>;

    /// The flags in use, for people.
    fn describe(&self) -> String;
}
