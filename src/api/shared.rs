//! The engine's inner half, which every handle keeps alive.

use super::cufile::{CuFileUse, Here};
use super::file_slots::FileSlots;
use super::gpu::Served;
use super::groups::Groups;
use crate::error::{Error, ErrorKind};
use crate::lane::{Acks, Control, Core, Handle, Inbox, Stop, explain_ring};
use crate::memory::{AllocOptions, ForkGuard, RegionInner, Releaser, TableRing, alloc, lock, peer};
use crate::target::{CommandSizes, TargetInner};
use crate::topology::{CpuSet, Lanes, Topology};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

/// How long a lane may take to answer a message that a caller waits for.
pub const ANSWER: Duration = Duration::from_secs(5);

/// What the engine was built with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub command_sizes: CommandSizes,
    pub unit_size: u64,
    pub deadline: Option<Duration>,
    pub grace: Duration,
    pub null: bool,
    pub lanes: Lanes,
    pub lane_depth: u32,
    pub gpu: GpuSettings,
    pub cufile: CuFileUse,
    /// How many processes share the drives' tags.
    pub processes: u32,
}

/// How GPU memory is served.
#[derive(Clone, Copy, Debug)]
pub struct GpuSettings {
    /// Bytes of a bounce buffer, and how many a GPU has.
    pub buffer: u64,
    pub buffers: usize,
    /// Most bytes in a copy engine.
    pub outstanding: u64,
    pub polled: bool,
}

/// See the module.
pub struct Shared {
    pub id: u64,
    pub core: Arc<Core>,
    pub groups: Groups,
    /// Written while lanes are made, read while regions come and go: the ones miss none of the others.
    pub gate: RwLock<()>,
    pub topology: Topology,
    /// CPUs that lanes may run on.
    pub allowed: CpuSet,
    pub table_ring: TableRing,
    pub files: FileSlots,
    /// Targets that GPUs that come later are to reach.
    pub targets: Mutex<Vec<Weak<TargetInner>>>,
    /// Tried when the first GPU comes; or why it is not used.
    pub cufile: OnceLock<Result<Here, String>>,
    /// GPUs that have a lane.
    pub gpus: Mutex<Vec<Served>>,
    /// Itself, for lanes that submit.
    pub me: Weak<Shared>,
    pub fork: ForkGuard,
    pub settings: Settings,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "engine {} with {} lanes", self.id, self.core.see_lanes(<[_]>::len))
    }
}

impl Shared {
    /// Refuses calls in a forked child and after shutdown. No system call.
    pub fn check(&self) -> Result<(), Error> {
        self.fork.check()?;
        if self.core.closing.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Closed, "the engine is shut down; build a new one"));
        }
        Ok(())
    }

    /// Stops a transfer; see [`Core::stop`].
    pub fn stop(&self, handle: Handle, reason: Stop) {
        if !self.fork.forked() {
            self.core.stop(handle, reason);
        }
    }

    /// Sends each lane that lives and has a ring a message and waits for all answers. `None`: some lane did not answer in time.
    pub fn tell_lanes(
        &self,
        within: Duration,
        message: impl Fn(Arc<Acks>) -> Control,
    ) -> Option<Result<(), i32>> {
        let alive = |lane: &Arc<Inbox>| lane.has_ring && lane.alive.load(Ordering::SeqCst);
        tell(&self.core.lanes().into_iter().filter(alive).collect::<Vec<_>>(), within, message)
    }

    pub(super) fn still(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a region over memory of our own.
    pub fn alloc(&self, bytes: usize, options: &AllocOptions) -> Result<Arc<RegionInner>, Error> {
        let mapping = alloc(bytes, options)?;
        if !self.table_ring.clones() && !self.settings.null {
            // Lanes register for themselves, within their loops: the pages are made here, not there.
            mapping.populate();
        }
        self.admit(|id| RegionInner::owned(id, self.id, self.core.regions.raw_counts(), mapping, bytes))
    }

    /// Makes a region over memory of a PCI device.
    pub fn map_peer(&self, address: &str, bytes: usize) -> Result<Arc<RegionInner>, Error> {
        let mapping = peer::map(address, bytes)?;
        self.admit(|id| RegionInner::of_peer(id, self.id, self.core.regions.raw_counts(), mapping, bytes))
    }

    /// Makes a region over the caller's memory.
    ///
    /// # Safety
    /// See [`crate::Engine::register_host`].
    pub unsafe fn register(&self, ptr: NonNull<u8>, len: usize) -> Result<Arc<RegionInner>, Error> {
        self.admit(|id| RegionInner::registered(id, self.id, self.core.regions.raw_counts(), ptr, len))
    }

    pub(super) fn admit(&self, make: impl FnOnce(u32) -> RegionInner) -> Result<Arc<RegionInner>, Error> {
        let Some(region) = self.core.regions.insert(make) else {
            let message = "an engine has at most 16 384 regions; register larger pieces, or release some";
            return Err(Error::new(ErrorKind::Resource, message));
        };
        let _still = self.still();
        let registration = match (self.settings.null, region.peer, region.device()) {
            (true, ..) => Err("the null queue needs none".into()),
            (_, true, _) => Err("the kernel registers no PCI peer memory: it pins none for long".into()),
            (.., Some(_)) => Err("rings do not reach GPU memory: its copy engines do".into()),
            _ => self.pin(&region),
        };
        if let Err(note) = &registration {
            tracing::debug!(region = region.id, note, "a region is not registered with the rings");
        }
        let _ = region.registration.set(registration);
        Ok(region)
    }

    /// Registers a region with the table ring and every lane. `Err` says why it stays unregistered.
    fn pin(&self, region: &RegionInner) -> Result<crate::memory::Slabs, String> {
        let len = region.len() as u64;
        let slabs = self
            .table_ring
            .add(region, self.settings.command_sizes.largest())
            .map_err(|e| self.explain_pin(&e, len))?;
        let id = region.id;
        region.pinned_at.store(self.core.clock.now(), Ordering::SeqCst);
        match self.tell_lanes(ANSWER + pin_time(len), |acks| Control::AddBuffers { id, slabs, acks }) {
            Some(Ok(())) => Ok(slabs),
            other => {
                // What one lane refused, no lane keeps: the path would depend on the lane.
                if !self.unpin(region, &slabs, ANSWER) {
                    let _ = region.unanswered.set(slabs);
                }
                let errno = other.and_then(Result::err).unwrap_or(libc::ETIMEDOUT);
                Err(self.explain_pin(&std::io::Error::from_raw_os_error(errno), len))
            }
        }
    }

    fn unpin(&self, region: &RegionInner, slabs: &crate::memory::Slabs, within: Duration) -> bool {
        self.table_ring.clear(slabs);
        let (id, since) = (region.id, region.pinned_at.load(Ordering::SeqCst));
        let had_it = |lane: &Arc<Inbox>| lane.has_ring && lane.died.load(Ordering::SeqCst) >= since;
        let lanes: Vec<_> = self.core.lanes().into_iter().filter(had_it).collect();
        let done = tell(&lanes, within, |acks| Control::DropBuffers { id, slabs: *slabs, acks });
        match done {
            Some(Ok(())) => {
                self.table_ring.reuse(slabs);
                true
            }
            Some(Err(errno)) => {
                tracing::error!(region = id, errno, "a lane cannot let go of registered buffers");
                false
            }
            None => false,
        }
    }

    /// Bytes that registering `len` bytes charges to RLIMIT_MEMLOCK.
    pub fn memlock_for(&self, len: u64) -> u64 {
        let rings = |lanes: &[Arc<Inbox>]| lanes.iter().filter(|lane| lane.has_ring).count() as u64;
        if self.table_ring.clones() { len } else { len * self.core.see_lanes(rings) }
    }

    pub(super) fn explain_pin(&self, error: &std::io::Error, len: u64) -> String {
        let (need, clones) = (self.memlock_for(len), self.table_ring.clones());
        let each = if clones {
            ""
        } else {
            " (each lane registers for itself: clones are off, or this kernel has none)"
        };
        let limit =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_MEMLOCK).map_or(0, |l| l.0);
        match error.raw_os_error() {
            Some(libc::ENOMEM) => format!(
                "memlock limit: registering needs {need} bytes{each}, the limit is {limit}; raise it (ulimit -l, \
                 LimitMEMLOCK=, or CAP_IPC_LOCK). Commands run unregistered meanwhile"
            ),
            Some(libc::EFAULT) => format!(
                "the kernel cannot pin this memory ({error}): it is read-only, or a shared mapping of a file that is \
                 not on tmpfs. Commands run unregistered"
            ),
            Some(libc::EOVERFLOW) => "all 16 384 buffers of the rings are taken; release regions".into(),
            _ => format!("registering {len} bytes failed: {error}. Commands run unregistered"),
        }
    }
}

impl Releaser for Shared {
    fn release(&self, region: &Arc<RegionInner>, within: Duration) -> bool {
        if self.fork.forked() {
            return true; // the child's copy of the handle; the parent's rings are not ours to touch
        }
        let _still = self.still();
        region.unpinned.store(true, Ordering::SeqCst);
        let released = match region.registration.get() {
            Some(Ok(slabs)) => self.unpin(region, slabs, within),
            // A lane that did not answer may still come to register it, and then lets go of it.
            _ => region.unanswered.get().is_none_or(|slabs| self.unpin(region, slabs, within)),
        };
        if let Some(held) = region.device() {
            // cuFile lets go of the memory before its owner frees it; what is in flight holds on to it.
            drop(lock(&held.known).take());
        }
        // A handle may be dropped under raw transfers, also under abandoned ones. They count against the region's
        // number until they end, so it goes to no other region until then: the watchdog sweeps.
        if released {
            region.dropped.store(true, Ordering::SeqCst);
            self.core.regions.sweep();
        }
        released
    }
}

/// Sends each of `lanes` a message and waits for all answers. `None`: some lane did not answer in time.
pub fn tell(
    lanes: &[Arc<Inbox>],
    within: Duration,
    message: impl Fn(Arc<Acks>) -> Control,
) -> Option<Result<(), i32>> {
    let acks = Acks::new(lanes.len());
    lanes.iter().for_each(|lane| lane.send(message(acks.clone())));
    acks.wait(within)
}

/// A lane that registers for itself faults in and pins every page: that takes as long as there is memory.
pub fn pin_time(len: u64) -> Duration {
    Duration::from_secs(10 * (len >> 30) + 10)
}

/// The refusal of a ring, if this process gets none.
pub fn ring_refusal() -> Option<Error> {
    crate::queue::plain_ring_refusal().map(|error| explain_ring(&error))
}
