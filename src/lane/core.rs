//! What clients, lanes and the watchdog share: the entries, the clock, and the one place where completions are
//! published.

use super::inbox::Inbox;
use super::job::{Job, Source};
use super::marks::Marks;
use super::records::Records;
use super::schedule::Share;
use super::slots::{Claim, Handle, Last, Outcome, Published, Stop, Table};
use super::transfer::{Completion, Times};
use super::{Mutation, PathSet};
use crate::error::{Error, ErrorKind};
use crate::memory::Regions;
use crate::plan::{Extents, PARTS, UnitCursor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Time in ns since the engine was built.
#[derive(Clone, Debug)]
pub enum Clock {
    Real(Instant),
    /// Set by the simulation.
    #[cfg_attr(any(not(test), loom), allow(dead_code))]
    Sim(Arc<AtomicU64>),
}

impl Clock {
    pub fn now(&self) -> u64 {
        match self {
            Clock::Real(start) => start.elapsed().as_nanos() as u64,
            Clock::Sim(now) => now.load(Ordering::Relaxed),
        }
    }
}

/// Beside the paths of an entry: a flush ran behind its writes.
pub const FLUSHED: u32 = 1 << 31;

/// See the module.
pub struct Core {
    pub table: Table<Job>,
    pub regions: Arc<Regions>,
    pub clock: Clock,
    pub closing: AtomicBool,
    /// All lanes of the engine. They only come.
    lanes: RwLock<Vec<Arc<Inbox>>>,
    /// Bytes of memory under abandoned transfers.
    pub quarantined: AtomicU64,
    /// What lanes did, if that was asked for.
    pub records: Records,
    /// A defect built in on purpose: the simulation must catch it.
    pub mutation: Option<Mutation>,
}

impl Core {
    #[cfg(test)]
    pub fn new(entries: usize, regions: Arc<Regions>, clock: Clock) -> Core {
        Core::with_kept(entries, 0, regions, clock)
    }

    /// With `kept` entries for transfers that lanes submit themselves.
    pub fn with_kept(entries: usize, kept: usize, regions: Arc<Regions>, clock: Clock) -> Core {
        Core {
            // From 1: the number of no transfer is 0.
            table: Table::with_kept(entries, kept, 1),
            regions,
            clock,
            closing: AtomicBool::new(false),
            lanes: RwLock::default(),
            quarantined: AtomicU64::new(0),
            records: Records::default(),
            mutation: None,
        }
    }

    /// All lanes there are, as a copy: whoever waits for them holds nobody up who makes new ones.
    pub fn lanes(&self) -> Vec<Arc<Inbox>> {
        self.see_lanes(<[_]>::to_vec)
    }

    /// Looks at all lanes there are, without a copy.
    pub fn see_lanes<T>(&self, look: impl FnOnce(&[Arc<Inbox>]) -> T) -> T {
        look(&self.lanes.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes lanes known.
    pub fn add_lanes(&self, lanes: impl IntoIterator<Item = Arc<Inbox>>) {
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).extend(lanes);
    }

    /// Whether a claim by this share would succeed. Otherwise it is stale: others took all units.
    pub fn claimable(&self, share: &Share) -> bool {
        self.table.claimable(share.handle, share.part)
    }

    /// Whether a built-in defect is on. Never, outside of tests.
    pub fn mutant(&self, mutation: Mutation) -> bool {
        cfg!(test) && self.mutation == Some(mutation)
    }

    /// How many flushes make what a transfer wrote durable: one for each member of a stripe.
    pub fn flushes_of(&self, claim: &Claim) -> u32 {
        let all = self.table.body(claim).map_or(0, |job| job.target().flushes());
        all - (all > 1 && self.mutant(Mutation::MemberNotFlushed)) as u32
    }

    /// Publishes a transfer for which nothing is in flight any more.
    pub fn publish(&self, last: Last) {
        let handle = last.claim().handle;
        let mut mailbox = None;
        if let Some(job) = self.table.body(last.claim()) {
            if let Some(stop) = self.table.stopped(last.claim()) {
                job.mark_stopped(stop);
            }
            if !self.table.is_abandoned(last.claim()) {
                job.release_raw(&self.regions);
            }
            job.marks().into_iter().for_each(Marks::release);
            mailbox = job.mailbox.clone();
        }
        match self.table.publish(last, self.clock.now()) {
            Published::Done { wake } => self.notify(handle, mailbox, wake),
            Published::Detached(job) => drop(job),
            Published::Absorbed(job) => {
                if let Some(job) = job {
                    let bytes = job.asked();
                    job.let_go(&self.regions);
                    self.quarantined.fetch_sub(bytes, Ordering::SeqCst);
                }
            }
        }
    }

    fn notify(
        &self,
        handle: Handle,
        mailbox: Option<Arc<super::mailbox::Mailbox>>,
        wake: Option<std::task::Waker>,
    ) {
        if let Some(waker) = wake {
            // A waker may be anyone's code: its panic must not end a lane.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        let Some(mailbox) = mailbox else { return };
        if self.mutant(Mutation::CompleteTwice) {
            mailbox.put(handle);
        }
        if mailbox.put(handle) {
            // The client is gone; its completions have no reader.
            while let Some(handle) = mailbox.take() {
                drop(self.table.consume(handle));
            }
        }
    }

    /// Stops a transfer: nothing more of it is issued. It completes when what is in flight has drained.
    pub fn stop(&self, handle: Handle, reason: Stop) {
        let parts = if self.mutant(Mutation::PartForgottenAtStop) { 1 } else { PARTS };
        if let Some(last) = self.table.stop(handle, reason, parts) {
            self.publish(last);
        }
    }

    /// Publishes a transfer as abandoned and quarantines its memory, unless it completes first.
    pub fn abandon(&self, handle: Handle) -> bool {
        let Some(pin) = self.table.pin(handle) else { return false };
        let mut abandoned = false;
        if let Some(job) = self.table.body(&pin) {
            self.quarantine(job, true);
            job.marks().into_iter().for_each(Marks::end);
            match self.table.abandon(&pin, self.clock.now()) {
                Some(Published::Done { wake }) => {
                    abandoned = true;
                    self.notify(handle, job.mailbox.clone(), wake);
                }
                Some(_) => abandoned = true,
                None => self.quarantine(job, false),
            }
        }
        if let Some(last) = self.table.finish(pin) {
            self.publish(last);
        }
        abandoned
    }

    fn quarantine(&self, job: &Job, on: bool) {
        let bytes = job.asked();
        if on {
            self.quarantined.fetch_add(bytes, Ordering::SeqCst);
            job.each_region(&self.regions, |r| {
                r.quarantined.fetch_add(1, Ordering::SeqCst);
            });
        } else {
            job.each_region(&self.regions, |r| {
                r.quarantined.fetch_sub(1, Ordering::SeqCst);
            });
            self.quarantined.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// Takes the completion of a published transfer. One caller only: see [`Table::consume`].
    pub fn consume(&self, handle: Handle) -> Option<Completion> {
        // An abandoned one's body stays with the lanes: its target's name is asked for before.
        let name = if self.table.given_up(handle) { self.target_of(handle) } else { None };
        self.table.consume(handle).map(|outcome| self.complete(outcome, name))
    }

    fn target_of(&self, handle: Handle) -> Option<Arc<str>> {
        let pin = self.table.pin(handle)?;
        let name = self.table.body(&pin).map(|job| job.target().name.clone());
        if let Some(last) = self.table.finish(pin) {
            self.publish(last);
        }
        name
    }

    fn complete(&self, outcome: Outcome<Job>, mut target: Option<Arc<str>>) -> Completion {
        let (mut whole, mut transfer) = (true, None);
        if let Some(job) = outcome.body {
            let flushed = outcome.paths & FLUSHED != 0;
            whole = outcome.bytes >= job.asked() && (flushed || !job.wants_flush());
            target = Some(job.target().name.clone());
            if let Source::Owned(owned) = job.source {
                transfer = Some(owned);
            }
        }
        let why = |stop| {
            let error = match stop {
                Stop::Cancelled => Error::new(ErrorKind::Cancelled, "the transfer was cancelled"),
                Stop::TimedOut => Error::new(
                    ErrorKind::TimedOut,
                    "the deadline passed before all of it was moved; the device is slow or the deadline short; \
                     lengthen it (Transfer::deadline), or queue less",
                ),
                Stop::Shutdown => Error::new(
                    ErrorKind::Shutdown,
                    "the engine was shut down before it was done; build a new one",
                ),
                Stop::LaneFailed => Error::new(
                    ErrorKind::LaneFailed,
                    "a lane died; see the log, and build a new engine; of a GPU whose context was lost, register its memory \
                     anew",
                ),
            };
            target.iter().fold(error, |error, name| error.on(name))
        };
        let result = match (outcome.abandoned, outcome.fault, outcome.stop) {
            (true, ..) => Err(target.iter().fold(abandoned(), |error, name| error.on(name))),
            (_, Some(fault), _) => Err(fault),
            (_, None, Some(stop)) if !whole => Err(why(stop)),
            (_, None, None) if !whole => Err(Error::new(
                ErrorKind::LaneFailed,
                "bytes are missing and nothing failed: a defect of this library; please report it",
            )),
            _ => Ok(()),
        };
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(outcome.submitted));
        let started = if outcome.started == 0 { outcome.finished } else { outcome.started };
        Completion {
            result,
            bytes: outcome.bytes,
            times: Times {
                queued: since(started),
                waited: since(started) + Duration::from_nanos(outcome.waited),
                copied: Duration::from_nanos(outcome.copied),
                total: since(outcome.finished),
            },
            paths: PathSet(outcome.paths & !FLUSHED),
            transfer,
            tag: outcome.tag,
        }
    }
}

fn abandoned() -> Error {
    Error::new(
        ErrorKind::Abandoned,
        "given up with commands in flight that do not come back, after deadline and grace, or at the engine's or a \
         lane's end: the device or its driver hangs (see the kernel's log); the memory is quarantined until they do",
    )
}

/// The units of a job, as the planner counts them, over the parts of its target; a flush is one.
pub fn units_of(job: &Job, unit_size: u64) -> [u32; PARTS] {
    let mut units = [0; PARTS];
    if job.count() == 0 {
        units[0] = 1;
        return units;
    }
    let target = job.target();
    for (part, units) in units.iter_mut().enumerate().take(target.parts()) {
        *units = UnitCursor::over(target.part(part), unit_size, target.geometry.block).count(job);
    }
    units
}
