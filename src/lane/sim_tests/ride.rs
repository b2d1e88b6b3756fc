//! A transfer as its client remembers it.

use super::memory::Fence;
use crate::error::ErrorKind;
use crate::lane::{Handle, Path};
use crate::memory::{RawExtent, Window};
use crate::target::Op;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

/// An extent: what was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub offset: u64,
    pub len: u64,
    pub window: Window,
}

impl Span {
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }
}

/// Who asks for the completion.
#[derive(Clone, Debug)]
pub enum Route {
    Ticket,
    /// The ticket's owner sleeps until it is woken.
    Asleep(Arc<Flag>),
    /// A client's mailbox, by number.
    Mail(usize),
    /// Its ticket or its client was dropped.
    Nobody,
}

/// Where a transfer stands, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    UnderWay,
    /// Its completion was taken; the memory came back.
    Returned,
    /// Its completion said that late results may still land in its memory.
    Abandoned,
    /// Nobody asked, and its entry is free again.
    Over,
}

#[derive(Debug)]
pub struct Ride {
    pub handle: Handle,
    pub op: Op,
    pub target: usize,
    /// Parts of a stripe that it has units in.
    pub parts: usize,
    pub require: Option<Path>,
    pub spans: Vec<Span>,
    pub raw: Option<Vec<RawExtent>>,
    pub fences: Vec<Fence>,
    pub durable: bool,
    pub submitted: u64,
    pub deadline: u64,
    /// The step after which it was cancelled.
    pub cancelled: Option<u64>,
    pub route: Route,
    pub state: State,
    /// What its completion said.
    pub error: Option<ErrorKind>,
    /// Ticks that found it overdue with nothing in flight.
    pub idle_ticks: u32,
}

/// A waker that says whether it was woken.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_up(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub fn waker(self: &Arc<Flag>) -> Waker {
        self.clone().into()
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
