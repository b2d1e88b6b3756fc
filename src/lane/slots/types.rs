//! What goes into the table and comes out of it.

use crate::error::Error;
use crate::plan::PARTS;
use std::task::Waker;

/// Names one use of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    pub index: u32,
    pub generation: u32,
}

/// The right to work on one unit (or to look at the body): keeps the body alive until it is finished.
#[must_use]
#[derive(Debug)]
pub struct Claim {
    pub handle: Handle,
    pub unit: u32,
}

/// The right to publish: nothing of the transfer is in flight any more.
#[must_use]
#[derive(Debug)]
pub struct Last(pub(super) Claim);

impl Last {
    pub fn claim(&self) -> &Claim {
        &self.0
    }
}

/// Why a transfer was stopped before all of it was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stop {
    Cancelled = 1,
    TimedOut = 2,
    Shutdown = 3,
    LaneFailed = 4,
}

impl Stop {
    pub(super) fn from_code(code: u8) -> Option<Stop> {
        [Stop::Cancelled, Stop::TimedOut, Stop::Shutdown, Stop::LaneFailed]
            .into_iter()
            .find(|s| *s as u8 == code)
    }
}

/// What an entry is told of its transfer.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Of each part; at least 1 in all.
    pub units: [u32; PARTS],
    /// Clock, in ns; `u64::MAX` for none.
    pub deadline: u64,
    pub submitted: u64,
    /// The caller's number.
    pub tag: u64,
}

/// What a transfer over GPU memory spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Some of it is with the target.
    Target,
    /// Copies are under way, and nothing of it is with the target.
    Copies,
    /// Nothing of it is under way.
    Waiting,
}

/// What the client learns of a published transfer.
pub struct Outcome<B> {
    pub tag: u64,
    pub submitted: u64,
    /// `None` when lanes still hold it (abandoned), or held it when it was published.
    pub body: Option<B>,
    pub abandoned: bool,
    pub stop: Option<Stop>,
    pub fault: Option<Error>,
    pub bytes: u64,
    pub paths: u32,
    /// Clock at the first command, 0 if none was issued.
    pub started: u64,
    pub finished: u64,
    /// Ns of the time between in which nothing of it was under way, and in which copies alone were.
    pub waited: u64,
    pub copied: u64,
}

/// What publishing led to.
pub enum Published<B> {
    /// The client is to be told; `wake` must be woken.
    Done { wake: Option<Waker> },
    /// Nobody will ask (its ticket was dropped); here is the body.
    Detached(Option<B>),
    /// It had been abandoned: nobody is told twice; here is the body.
    Absorbed(Option<B>),
}
