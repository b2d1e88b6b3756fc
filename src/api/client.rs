//! A caller's handle: submit on it, receive completions on it.

use super::shared::Shared;
use super::submit::Rejected;
use super::ticket::{Ticket, park};
use super::{Engine, Target};
use crate::error::{Error, ErrorKind};
use crate::lane::{Completion, Handle, Mailbox, RawOptions, Signal, Stop, Transfer};
use crate::memory::{RawExtent, Snapshot};
use crate::target::Op;
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names a tagged or raw transfer, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId(Handle);

impl TransferId {
    /// The same as a number.
    pub fn to_u64(self) -> u64 {
        u64::from(self.0.generation) << 32 | u64::from(self.0.index)
    }

    /// Of a number that [`TransferId::to_u64`] gave. One that was made up may name a transfer of another client.
    pub fn from_u64(number: u64) -> TransferId {
        TransferId(Handle { index: number as u32, generation: (number >> 32) as u32 })
    }
}

/// A caller's handle. One per thread: it may move to another thread, but not be shared.
///
/// Dropping it lets transfers under way go on; completions of tagged ones are lost, their memory comes back to its
/// region.
///
/// In a forked child submitting and waiting are refused with `Forked`; completions of what was under way come to the
/// parent alone.
pub struct Client {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// Regions as this client last saw them, with the version.
    regions: RefCell<(u64, Arc<Snapshot>)>,
    /// Tagged and raw transfers whose completions were not fetched. (It also keeps the client from being shared.)
    under_way: Cell<usize>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "client of {:?}", self.shared)
    }
}

impl Engine {
    /// A handle to submit on.
    pub fn client(&self) -> Result<Client, Error> {
        let shared = self.shared().clone();
        shared.check()?;
        let mailbox = Arc::new(Mailbox::new(shared.core.table.len()));
        let regions = RefCell::new((0, Arc::new(Snapshot::default())));
        Ok(Client { shared, mailbox, regions, under_way: Cell::new(0) })
    }
}

impl Client {
    /// Submits a transfer; its completion comes through the ticket. Never blocks.
    #[allow(clippy::result_large_err)] // the transfer comes back by value, on purpose
    pub fn submit(&self, transfer: Transfer) -> Result<Ticket, Rejected> {
        let handle = self.shared.accept(transfer, None, 0)?;
        Ok(Ticket::new(self.shared.clone(), handle))
    }

    /// Submits a transfer; its completion comes through [`Client::poll`] or [`Client::wait`], with `tag`.
    #[allow(clippy::result_large_err)] // the transfer comes back by value, on purpose
    pub fn submit_tagged(&self, transfer: Transfer, tag: u64) -> Result<TransferId, Rejected> {
        let handle = self.shared.accept(transfer, Some(self.mailbox.clone()), tag)?;
        self.under_way.set(self.under_way.get() + 1);
        Ok(TransferId(handle))
    }

    /// Submits a list of (offset, pointer, length) as it is; outcomes are written in place, and the completion comes
    /// through [`Client::poll`] or [`Client::wait`]. `options` is a bare tag, or [`RawOptions`].
    ///
    /// Pointers inside registered regions use their registered buffers; others take the path "uring", visibly. Device
    /// pointers inside a region over GPU memory go its way; all extents of a list are in memory of one GPU, or of the host.
    ///
    /// # Safety
    /// Until the completion, the list and the memory it names must stay mapped, and be touched by nobody. GPU memory must lie
    /// in a region ([`Engine::register_cuda`]): what lies in none is refused by an engine that has such regions, and taken
    /// for the host's, and followed, by one that has none. If the completion says `Abandoned`, this holds on until no region
    /// of the list answers `Quarantined` any more (or, for unregistered memory, for ever).
    pub unsafe fn submit_raw(
        &self,
        target: &Target,
        op: Op,
        extents: &mut [RawExtent],
        options: impl Into<RawOptions>,
    ) -> Result<TransferId, Error> {
        let mut regions = self.regions.borrow_mut();
        let version = self.shared.core.regions.version();
        if regions.0 != version {
            *regions = (version, self.shared.core.regions.snapshot());
        }
        let to = (self.mailbox.clone(), options.into());
        // SAFETY: passed on to the caller.
        let handle = unsafe { self.shared.accept_raw(&target.inner, op, extents, &regions.1, to) }?;
        self.under_way.set(self.under_way.get() + 1);
        Ok(TransferId(handle))
    }

    /// Makes everything durable that was written to `target` and completed before.
    pub fn flush(&self, target: &Target) -> Result<Ticket, Error> {
        let handle = self.shared.accept_flush(&target.inner, None, 0)?;
        Ok(Ticket::new(self.shared.clone(), handle))
    }

    /// The same; its completion comes through [`Client::poll`] or [`Client::wait`], with `tag`.
    pub fn flush_tagged(&self, target: &Target, tag: u64) -> Result<TransferId, Error> {
        let handle = self.shared.accept_flush(&target.inner, Some(self.mailbox.clone()), tag)?;
        self.under_way.set(self.under_way.get() + 1);
        Ok(TransferId(handle))
    }

    /// Appends the completions that are there; answers how many. No system call.
    ///
    /// In a forked child there are none, ever: who polls in a loop asks [`Client::wait`] with no time at all, which
    /// says so.
    pub fn poll(&self, out: &mut Vec<Completion>) -> usize {
        let before = out.len();
        out.extend(std::iter::from_fn(|| self.poll_one()));
        out.len() - before
    }

    /// The next completion, if one is there. See [`Client::poll`].
    pub fn poll_one(&self) -> Option<Completion> {
        if self.shared.fork.forked() {
            return None; // a lane may have been half way through a `put`, and nobody is left to end it
        }
        loop {
            let handle = self.mailbox.take()?;
            self.under_way.set(self.under_way.get().saturating_sub(1));
            if let Some(completion) = self.shared.core.consume(handle) {
                return Some(completion);
            }
        }
    }

    /// A descriptor that is readable (poll, epoll: level-triggered) while completions are there to be fetched, for event
    /// loops. It goes down when [`Client::poll`] or [`Client::poll_one`] has found nothing more; now and then it is up
    /// once for nothing. It is the client's: wait for it, but neither read nor close it. From the first call on a lane
    /// that completes a transfer makes one system call more, unless the descriptor is up already.
    ///
    /// # Errors
    /// `Resource`: no descriptor is left (ulimit -n); `Forked` in a forked child.
    pub fn completion_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.shared.check_fork()?;
        let message = "cannot make an eventfd; raise the limit of open files (ulimit -n)";
        self.mailbox.signal().map(Signal::fd).map_err(|e| Error::io(message, &e))
    }

    /// Waits until at least `min` completions are there or `timeout` is over, and appends what is there; answers how
    /// many. With no timeout the transfers' own deadlines end the wait, and it waits for no more than are under way on
    /// this client: with none it is an error.
    ///
    /// # Errors
    /// `InvalidInput` when it would wait for ever, `Forked` in a forked child. What became of a transfer is in its
    /// completion's `result`.
    pub fn wait(
        &self,
        min: usize,
        out: &mut Vec<Completion>,
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        self.await_ready(min, timeout)?;
        Ok(self.poll(out))
    }

    /// Waits as [`Client::wait`] does, and leaves the completions where they are; answers how many are there.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub fn await_ready(&self, min: usize, timeout: Option<Duration>) -> Result<usize, Error> {
        self.shared.check_fork()?;
        let until = timeout.and_then(|t| Instant::now().checked_add(t));
        let under_way = self.under_way.get();
        if timeout.is_none() && under_way == 0 && min > 0 {
            let message = "no transfer is under way on this client; submit one that answers here first, or give a timeout";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let min = if timeout.is_none() { min.min(under_way) } else { min };
        while self.mailbox.len() < min {
            self.shared.check_fork()?;
            if park(until, |waker| self.mailbox.wait(waker, min)) {
                break;
            }
        }
        Ok(self.mailbox.len())
    }

    /// Refuses what a forked child may not do.
    #[cfg(feature = "capi")]
    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        self.shared.check_fork()
    }

    /// Stops issuing a transfer and drains it; its one completion still comes. False when it is over already, and in
    /// a forked child, whose parent's transfers go on.
    pub fn cancel(&self, id: TransferId) -> bool {
        if self.shared.fork.forked() || id.0.index as usize >= self.shared.core.table.len() {
            return false;
        }
        let under_way = self.shared.core.table.is_active(id.0);
        self.shared.stop(id.0, Stop::Cancelled);
        under_way
    }
}

impl From<Rejected> for Error {
    /// For `?` where the error alone is wanted: the transfer is dropped, and its leases go back to their regions.
    fn from(rejected: Rejected) -> Error {
        rejected.error
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.shared.fork.forked() {
            return;
        }
        self.mailbox.close();
        while let Some(handle) = self.mailbox.take() {
            // Not looked at: a raw list may be gone, as its region was let go of when it ended.
            drop(self.shared.core.table.consume(handle));
        }
    }
}
