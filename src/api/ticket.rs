//! A ticket: the one who asks for the completion of one transfer.

use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::lane::{Completion, Handle, Stop};
use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The claim on one completion. It may be waited for, polled, or awaited; dropping it lets the transfer go on, and
/// its memory comes back to its region at the end.
///
/// In a forked child the transfer is the parent's. There a ticket answers at once, with a completion whose result is
/// `Forked` and that has no transfer ([`Ticket::wait`]: with that error); nothing waits and the parent is not disturbed.
#[derive(Debug)]
#[must_use = "dropping a ticket discards the completion and the leases in it"]
pub struct Ticket {
    shared: Arc<Shared>,
    /// `None` once the completion was handed out.
    handle: Option<Handle>,
}

impl Ticket {
    pub(super) fn new(shared: Arc<Shared>, handle: Handle) -> Ticket {
        Ticket { shared, handle: Some(handle) }
    }

    /// Waits for the completion; the transfer's deadline and grace bound the wait.
    ///
    /// # Errors
    /// `InvalidInput` when the completion was handed out before, `Forked` in a forked child. What became of the
    /// transfer is in the completion's `result`.
    pub fn wait(mut self) -> Result<Completion, Error> {
        if self.handle.is_none() {
            let message = "the completion was handed out before; a ticket answers once";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        loop {
            self.shared.check_fork()?;
            if let Some(done) = self.wait_until(None) {
                return Ok(done);
            }
        }
    }

    /// Waits at most `timeout`; `None` when it is over, or when the completion was handed out before.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Completion> {
        self.wait_until(Instant::now().checked_add(timeout))
    }

    fn wait_until(&mut self, until: Option<Instant>) -> Option<Completion> {
        let handle = self.handle?;
        while !self.shared.core.table.published(handle) {
            if self.shared.fork.forked() || park(until, |waker| self.shared.core.table.wait(handle, waker)) {
                break;
            }
        }
        self.poll()
    }

    /// The completion, if it is there and was not handed out before.
    pub fn poll(&mut self) -> Option<Completion> {
        let handle = self.handle?;
        let completion = match self.shared.check_fork() {
            Ok(()) => self.shared.core.consume(handle)?,
            Err(error) => Completion::unheard(error),
        };
        self.handle = None;
        Some(completion)
    }

    /// Stops issuing the transfer and drains it; its one completion still comes. Does nothing in a forked child.
    pub fn cancel(&self) {
        if let Some(handle) = self.handle {
            self.shared.stop(handle, Stop::Cancelled);
        }
    }
}

impl Future for Ticket {
    type Output = Completion;

    /// # Panics
    /// If it is polled again after it was ready, as a future must not be.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        let handle = self.handle.expect("a ticket is not awaited again after it was ready");
        if !self.shared.fork.forked() && !self.shared.core.table.wait(handle, cx.waker()) {
            return Poll::Pending;
        }
        Ticket::poll(&mut self).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take().filter(|_| !self.shared.fork.forked()) else { return };
        if self.shared.core.table.detach(handle) {
            drop(self.shared.core.consume(handle));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// This thread's waker, made once.
    static WAKER: OnceCell<Waker> = const { OnceCell::new() };
}

/// Stores this thread's waker with `register` and sleeps until it is woken, unless `register` answers that there is
/// no need. True when `until` has come.
pub(super) fn park(until: Option<Instant>, register: impl FnOnce(&Waker) -> bool) -> bool {
    let there = WAKER
        .with(|cell| register(cell.get_or_init(|| Waker::from(Arc::new(Unpark(std::thread::current()))))));
    match until {
        _ if there => false,
        None => {
            std::thread::park();
            false
        }
        Some(until) => {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::park_timeout(left);
            Instant::now() >= until
        }
    }
}

impl Shared {
    /// A forked child has no lanes: nothing would ever wake it.
    pub(super) fn check_fork(&self) -> Result<(), Error> {
        if self.fork.forked() { self.check() } else { Ok(()) }
    }
}
