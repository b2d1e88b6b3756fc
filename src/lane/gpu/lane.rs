//! The loop of a GPU's lane.

use super::Feeder;
use super::direct::Direct;
use super::route::path_of_job;
use super::slot::{Slot, Stage};
use crate::lane::bell::Bell;
use crate::lane::core::Core;
use crate::lane::inbox::{Control, Inbox};
use crate::lane::job::Job;
use crate::lane::mailbox::Mailbox;
use crate::lane::path::Path;
use crate::lane::schedule::Schedule;
use crate::lane::slots::{Handle, Stop};
use crate::lane::thread::Turns;
use crate::memory::RegionInner;
use crate::memory::cuda::{CudaError, Gpu};
use crate::queue::cuda::{Mover, Way};
use crate::queue::cufile::CuFile;
use crate::queue::{BellWait, fine_timers};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Slots beside those with a bounce buffer, for units straight from mappings.
const STRAIGHT: usize = 4;

/// How long a lane that polls goes on when nothing is in its hands, in ns.
const LINGERS: u64 = 1_000_000;

/// How often lost buffers are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// What a GPU's lane is made of.
pub struct GpuSpec {
    /// Bounce buffers, in one region: `buffers` of `buffer` + [`super::SLACK`] bytes.
    pub bounce: Arc<RegionInner>,
    pub buffers: usize,
    pub buffer: usize,
    /// Most bytes in a copy engine at once.
    pub outstanding: u64,
    /// The lane asks for the ends of copies instead of sleeping until they come.
    pub polled: bool,
    pub gpu: Arc<Gpu>,
    /// Where it may be used.
    pub cufile: Option<Arc<CuFile>>,
    pub feeder: Arc<dyn Feeder>,
}

impl GpuSpec {
    /// Most units in hand: those with a bounce buffer, and those that need none.
    pub fn slots(&self) -> usize {
        self.buffers + STRAIGHT + if self.cufile.is_some() { super::direct::UNITS } else { 0 }
    }
}

/// Which way units are fed: straight from mappings, by cuFile, or through bounce buffers. Each has a schedule of its own,
/// so that a full set of buffers holds up no unit that needs none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Straight = 0,
    Direct = 1,
    Bounce = 2,
}

impl Line {
    pub const ALL: [Line; 3] = [Line::Straight, Line::Direct, Line::Bounce];

    fn of(path: Path) -> Line {
        match path {
            Path::DaxToGpu => Line::Straight,
            Path::CuFile | Path::CuFileCompat => Line::Direct,
            _ => Line::Bounce,
        }
    }
}

/// See the module above.
pub struct GpuLane {
    pub(super) core: Arc<Core>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) spec: GpuSpec,
    pub(super) mover: Mover,
    pub(super) schedules: [Schedule; 3],
    pub(super) direct: Option<Direct>,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u16>,
    /// Free bounce buffers, and those that an abandoned child may still write to.
    pub(super) buffers: Vec<u16>,
    pub(super) lost: Vec<u16>,
    /// Where children's completions arrive.
    pub(super) children: Arc<Mailbox>,
    waker: Waker,
    bell: BellWait,
    /// Bytes in the copy engines, by way.
    pub(super) copying: [u64; 2],
    /// Until then nobody asks for staging, which could not be had.
    pub(super) staging_from: u64,
    /// The context is broken: nothing more is copied.
    pub(super) broken: Option<CudaError>,
    pub(super) claimed: u64,
    pub(super) now: u64,
    /// When it had something in hand last.
    worked: u64,
    deadline: u64,
    stopping: bool,
}

/// Rings the lane's bell.
struct Ring(Arc<Inbox>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.0.bell.ring();
    }
}

impl GpuLane {
    /// A lane on the calling thread, which takes the GPU's context for good.
    pub fn new(
        core: Arc<Core>,
        inbox: Arc<Inbox>,
        spec: GpuSpec,
        mover: Mover,
        bell: OwnedFd,
    ) -> io::Result<GpuLane> {
        mover.adopt().map_err(|e| io::Error::other(e.error("the lane cannot use the GPU")))?;
        fine_timers();
        let slots = spec.slots();
        let rung = inbox.clone();
        let wake = Box::new(move || rung.bell.ring_if_asleep());
        let direct = spec.cufile.as_ref().map(|cufile| Direct::new(cufile, spec.gpu.clone(), wake));
        let room = core.table.len();
        Ok(GpuLane {
            mover,
            schedules: std::array::from_fn(|_| Schedule::new(room)),
            direct,
            slots: (0..slots).map(|_| Slot::new()).collect(),
            free: (0..slots as u16).rev().collect(),
            buffers: (0..spec.buffers as u16).rev().collect(),
            lost: Vec::with_capacity(spec.buffers),
            children: Arc::new(Mailbox::new(room)),
            waker: Waker::from(Arc::new(Ring(inbox.clone()))),
            bell: BellWait::new(bell),
            copying: [0; 2],
            staging_from: 0,
            broken: None,
            claimed: 0,
            now: core.clock.now(),
            worked: 0,
            deadline: u64::MAX,
            stopping: false,
            core,
            inbox,
            spec,
        })
    }

    fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn bell(&self) -> &Bell {
        &self.inbox.bell
    }

    /// Takes messages and shares in.
    fn hear(&mut self) {
        while let Some(control) = self.inbox.control.pop() {
            match control {
                // It has no ring: there is nothing to register, and nothing to let go of.
                Control::File { acks, .. }
                | Control::AddBuffers { acks, .. }
                | Control::DropBuffers { acks, .. } => acks.answer(Ok(())),
                Control::CloseFile { done, .. } => drop(done),
                Control::Stop => self.stopping = true,
            }
        }
        while let Some(share) = self.inbox.shares.pop() {
            self.deadline = self.deadline.min(share.deadline);
            let line = self.line_of(share.handle);
            self.schedules[line as usize].push(share, |share| self.core.claimable(share));
        }
    }

    fn line_of(&self, handle: Handle) -> Line {
        let Some(pin) = self.core.table.pin(handle) else { return Line::Bounce };
        let path = self.core.table.body(&pin).map(|job| self.path(job));
        if let Some(last) = self.core.table.finish(pin) {
            self.core.publish(last);
        }
        path.map_or(Line::Bounce, Line::of)
    }

    /// The path of a job's units.
    pub(super) fn path(&self, job: &Job) -> Path {
        let region = job.region_of(0, &self.core.regions);
        region.and_then(|region| Some(path_of_job(job, region.device()?).0)).unwrap_or(Path::PinnedBounce)
    }

    /// Stops transfers whose deadline has come.
    fn expire(&mut self) {
        if self.now < self.deadline {
            return;
        }
        self.deadline = u64::MAX;
        // Units too: when the last one of a transfer is claimed, its share goes.
        let shares =
            self.schedules.iter().flat_map(Schedule::iter).map(|share| (share.handle, share.deadline));
        let units = self.slots.iter().filter_map(|slot| Some((slot.claim.as_ref()?.handle, slot.deadline)));
        for (handle, deadline) in shares.chain(units) {
            if deadline <= self.now {
                self.core.stop(handle, Stop::TimedOut);
            } else {
                self.deadline = self.deadline.min(deadline);
            }
        }
    }

    /// Takes the answers that are there. The clock is read behind each: it ended no later.
    fn reap(&mut self) {
        while let Some(handle) = self.children.take() {
            self.now = self.core.clock.now();
            if let Some(done) = self.core.consume(handle) {
                self.child_ended(done);
            }
        }
        while let Some(ended) = self.mover.ended() {
            self.now = self.core.clock.now();
            self.copy_ended(ended);
        }
        self.reap_direct();
        self.inbox.counters.in_flight.set(self.busy() as u64);
    }

    /// Begins units while there is room, and puts what is ready into the copy engines.
    fn fill(&mut self) {
        self.copy_what_is_ready();
        for line in Line::ALL {
            while self.has_room(line) && self.begin(line) {
                self.copy_what_is_ready();
            }
        }
        self.inbox.counters.occupied(self.busy() as u64);
    }

    /// Sleeps until the bell rings, at most `most`.
    fn sleep(&mut self, most: Option<Duration>) {
        let (look, in_hand) = (self.mover.next_look(), self.busy());
        if in_hand > 0 {
            self.worked = self.now;
        }
        self.inbox.counters.enters.add(1);
        self.inbox.in_hand.store(in_hand as u32, Ordering::Relaxed);
        self.inbox.entered.store(in_hand > 0, Ordering::Relaxed);
        let here = self.children.wait(&self.waker, 1);
        let heard = || {
            let messages = !self.inbox.control.is_empty() || !self.inbox.shares.is_empty();
            messages || here || self.mover.ready() || self.direct.as_ref().is_some_and(Direct::ready)
        };
        if self.spec.polled && (look.is_some() || self.now - self.worked < LINGERS) {
            std::hint::spin_loop();
        } else if self.bell().lie_down(true, heard) {
            self.inbox.counters.waits.add(1);
            let left = Duration::from_nanos(self.deadline.saturating_sub(self.now).max(1000));
            let until = (self.deadline != u64::MAX).then_some(left);
            self.bell.wait(most.into_iter().chain(until).chain(look).min());
        }
        self.bell().get_up();
        self.inbox.entered.store(false, Ordering::Relaxed);
    }

    /// Of what was stopped, ends what is in nobody's hands (it waits for its turn), and has children go no further.
    fn let_go(&mut self) {
        self.revoke();
        for index in 0..self.slots.len() as u16 {
            let slot = &self.slots[index as usize];
            let stopped = slot.claim.as_ref().and_then(|claim| self.core.table.stopped(claim));
            match (slot.stage, slot.child, stopped) {
                (Stage::Ready, _, Some(_)) => self.close(index),
                (Stage::Child, Some(child), Some(reason)) => self.core.stop(child, reason),
                _ => {}
            }
        }
    }

    /// Bytes that may still be put into a copy engine; always enough for one unit into an idle one.
    pub(super) fn may_copy(&self, way: Way, bytes: u64) -> bool {
        let outstanding = self.copying[way as usize];
        outstanding == 0 || outstanding + bytes <= self.spec.outstanding
    }
}

impl Turns for GpuLane {
    fn shared(&self) -> (Arc<Core>, Arc<Inbox>) {
        (self.core.clone(), self.inbox.clone())
    }

    fn step(&mut self) -> Result<bool, i32> {
        self.inbox.counters.beats.add(1);
        self.hear();
        // After that: nothing that was heard begins before it was submitted.
        self.now = self.core.clock.now();
        self.expire();
        self.reap();
        self.let_go();
        self.fill();
        let idle = self.busy() == 0 && self.schedules.iter().all(Schedule::is_empty);
        // Not before all that is queued was told why.
        if self.broken.is_some() && idle {
            return Err(libc::EIO); // memory that is registered from now on gets a new lane
        }
        if self.stopping && idle {
            return Ok(false);
        }
        // Nobody rings when the late results of an abandoned child are in and its buffer can be used again.
        self.sleep((!self.lost.is_empty()).then_some(LOOK));
        Ok(true)
    }

    fn drain(&mut self, grace: Duration, reason: Stop) -> bool {
        for slot in self.slots.iter() {
            slot.claim.iter().for_each(|claim| self.core.stop(claim.handle, reason));
            slot.child.into_iter().for_each(|child| self.core.stop(child, reason));
        }
        let until = self.core.clock.now() + u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX / 2);
        loop {
            self.now = self.core.clock.now();
            self.hear();
            for share in self.schedules.iter_mut().flat_map(Schedule::drain) {
                self.core.stop(share.handle, reason);
            }
            self.reap();
            self.let_go();
            if self.busy() == 0 {
                return true;
            }
            if self.now >= until {
                return false;
            }
            self.sleep(Some(Duration::from_millis(10)));
        }
    }

    /// Leaves streams and bounce buffers behind for ever: copies that did not end may still land.
    fn leak(self) {
        for claim in self.slots.iter().filter_map(|slot| slot.claim.as_ref()) {
            self.core.abandon(claim.handle);
        }
        std::mem::forget(self);
    }
}
