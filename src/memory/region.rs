//! Regions: what is registered once and moved to and from many times.

use super::cuda::{Held, HostMemory};
use super::table::Slabs;
use super::{ForkGuard, HostLease, Mapping, RegionRange, Window, lock};
use crate::error::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What keeps memory that is not a mapping.
#[derive(Debug)]
pub enum Keeper {
    /// Memory on a GPU.
    Device(Held),
    /// Host memory that the CUDA driver allocated, kept for its drop.
    Driver(#[allow(dead_code)] HostMemory),
}

/// The inner half of a region, which leases and transfers keep alive.
pub struct RegionInner {
    /// Number of the region in its engine.
    pub id: u32,
    /// The engine it belongs to.
    pub engine: u64,
    ptr: NonNull<u8>,
    len: usize,
    /// What the memory is kept by, where it is not ours to map, or is a GPU's.
    keeper: Option<Keeper>,
    /// What we mapped; `None` for a caller's.
    mapping: Option<Mapping>,
    /// It is memory of a PCI device.
    pub peer: bool,
    /// It was mapped for reading alone when it was registered.
    read_only: bool,
    /// Ranges that are leased: begin to end. A map, since a transfer may give 100 000 of them back at once.
    leases: Mutex<BTreeMap<usize, usize>>,
    /// Extents of raw transfers in flight, by region number (shared by all regions of the engine).
    raw_in_flight: Arc<[AtomicU64]>,
    /// Release has begun: raw submissions must not resolve to it any more.
    pub closing: AtomicBool,
    /// The engine's clock when the rings were told of it: lanes that were dead by then never had it.
    pub pinned_at: AtomicU64,
    /// The rings began to let go of it: lanes that come later do not adopt it.
    pub unpinned: AtomicBool,
    /// Its handle is gone and the rings let go of it; only raw transfers still count against its number.
    pub dropped: AtomicBool,
    /// Buffers that some lane did not say to have let go of when registration failed.
    pub unanswered: OnceLock<Slabs>,
    /// Abandoned transfers whose late results may still land here.
    pub quarantined: AtomicU64,
    /// How it is registered with the rings, or why not. Set once, before the region is handed out.
    pub registration: OnceLock<Result<Slabs, String>>,
    /// The process that made it. A forked child takes no lock: nobody may be left to open it.
    fork: Option<ForkGuard>,
}

// SAFETY: the pointer is an address; access to its bytes is governed by leases and, for registered memory, by the
// contract of `Engine::register_host`.
unsafe impl Send for RegionInner {}
// SAFETY: as above; the rest is atomics and mutexes.
unsafe impl Sync for RegionInner {}

impl std::fmt::Debug for RegionInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "region {} of engine {}: {} bytes at {:p}", self.id, self.engine, self.len, self.ptr)
    }
}

impl RegionInner {
    /// A region over memory of our own.
    pub fn owned(id: u32, engine: u64, raw: &Arc<[AtomicU64]>, mapping: Mapping, len: usize) -> RegionInner {
        Self::make(id, engine, raw, (mapping.ptr(), len), Some(mapping))
    }

    /// A region over the caller's memory, which stays mapped until release: the contract of `register_host`.
    pub fn registered(
        id: u32,
        engine: u64,
        raw: &Arc<[AtomicU64]>,
        ptr: NonNull<u8>,
        len: usize,
    ) -> RegionInner {
        let read_only = super::mmap::read_only(ptr.as_ptr() as u64, len as u64);
        RegionInner { read_only, ..Self::make(id, engine, raw, (ptr, len), None) }
    }

    /// A region over memory of a PCI device.
    pub fn of_peer(
        id: u32,
        engine: u64,
        raw: &Arc<[AtomicU64]>,
        mapping: Mapping,
        len: usize,
    ) -> RegionInner {
        RegionInner { peer: true, ..Self::owned(id, engine, raw, mapping, len) }
    }

    /// A region over memory of a GPU: ours, or a caller's that stays until release.
    pub fn of_gpu(
        id: u32,
        engine: u64,
        raw: &Arc<[AtomicU64]>,
        held: Held,
        at: u64,
        len: usize,
    ) -> RegionInner {
        let ptr = NonNull::new(at as *mut u8).unwrap_or(NonNull::dangling());
        let keeper = Some(Keeper::Device(held));
        RegionInner { keeper, ..Self::make(id, engine, raw, (ptr, len), None) }
    }

    /// A region over host memory that the CUDA driver allocated.
    pub fn of_driver(id: u32, engine: u64, raw: &Arc<[AtomicU64]>, memory: HostMemory) -> RegionInner {
        let (ptr, len) = (NonNull::new(memory.ptr()).unwrap_or(NonNull::dangling()), memory.len());
        let keeper = Some(Keeper::Driver(memory));
        RegionInner { keeper, ..Self::make(id, engine, raw, (ptr, len), None) }
    }

    /// The GPU that its memory is on, and the group of the lane that serves it.
    pub fn device(&self) -> Option<&Held> {
        match &self.keeper {
            Some(Keeper::Device(held)) => Some(held),
            _ => None,
        }
    }

    fn make(
        id: u32,
        engine: u64,
        raw: &Arc<[AtomicU64]>,
        (ptr, len): (NonNull<u8>, usize),
        mapping: Option<Mapping>,
    ) -> RegionInner {
        RegionInner {
            id,
            engine,
            ptr,
            len,
            keeper: None,
            mapping,
            peer: false,
            read_only: false,
            leases: Mutex::default(),
            raw_in_flight: raw.clone(),
            closing: AtomicBool::new(false),
            pinned_at: AtomicU64::new(0),
            unpinned: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            unanswered: OnceLock::new(),
            quarantined: AtomicU64::new(0),
            registration: OnceLock::new(),
            fork: ForkGuard::new().ok(),
        }
    }

    /// Refuses what a forked child may not do.
    pub(super) fn check_fork(&self) -> Result<(), Error> {
        self.fork.map_or(Ok(()), |fork| fork.check())
    }

    pub fn base(&self) -> u64 {
        self.ptr.as_ptr() as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its bytes are host memory of our own, which leases give access to.
    pub fn is_owned(&self) -> bool {
        self.mapping.is_some() && !self.peer
    }

    /// The bytes `from .. from + len`, which the caller has a lease on.
    pub fn window(&self, from: usize, len: usize) -> Window {
        assert!(from <= self.len && len <= self.len - from, "a lease lies inside its region");
        // SAFETY: inside the region; its mapping lives as long as this Arc (owned) or until release, which waits
        // for leases and raw transfers (registered).
        unsafe { Window::new(self.ptr.as_ptr().add(from), len) }
    }

    /// Takes an exclusive lease on `range`.
    pub fn take(&self, range: &Range<usize>) -> Result<(), Error> {
        self.check_fork()?;
        let at = |kind, message| Error::new(kind, message).at(range.start as u64, range.len() as u64);
        if range.start >= range.end {
            return Err(at(
                ErrorKind::InvalidInput,
                "a lease of no bytes; give a range of at least one byte",
            ));
        }
        if range.end > self.len {
            return Err(at(ErrorKind::OutOfBounds, "the lease ends outside its region; see Region::len"));
        }
        let mut leases = lock(&self.leases);
        let last_before_its_end = leases.range(..range.end).next_back();
        if last_before_its_end.is_some_and(|(_, end)| *end > range.start) {
            return Err(at(
                ErrorKind::Overlap,
                "the lease overlaps one that is out; wait for its completion or drop it",
            ));
        }
        leases.insert(range.start, range.end);
        Ok(())
    }

    /// Cuts the lease that begins at `start` in two at `middle`.
    pub fn split(&self, start: usize, middle: usize) -> Result<(), Error> {
        self.check_fork()?;
        let mut leases = lock(&self.leases);
        if let Some(end) = leases.get_mut(&start) {
            let tail = std::mem::replace(end, middle);
            leases.insert(middle, tail);
        }
        Ok(())
    }

    /// Gives back the lease that begins at `start`. In a forked child it does nothing: the lease is the parent's.
    pub fn give_back(&self, start: usize) {
        if self.check_fork().is_err() {
            return;
        }
        lock(&self.leases).remove(&start);
    }

    /// Extents of raw transfers in flight that resolved to this region.
    pub fn raw_in_flight(&self) -> &AtomicU64 {
        &self.raw_in_flight[self.id as usize]
    }

    /// Whether nothing can be read into it: it was mapped for reading alone when it was registered, and is still.
    pub fn is_read_only(&self) -> bool {
        self.read_only && super::mmap::read_only(self.base(), self.len as u64)
    }

    /// Its registration with the rings, while they have it.
    pub fn pinned(&self) -> Option<Slabs> {
        let slabs = self.registration.get()?.as_ref().ok().copied();
        slabs.filter(|_| !self.unpinned.load(Ordering::SeqCst))
    }

    /// How many leases are out, in transfers or in callers' hands.
    pub fn leases(&self) -> usize {
        lock(&self.leases).len()
    }
}

/// Memory that the engine may move to and from.
///
/// Dropping it takes it out of the rings (waiting at most 1 s for the lanes). Leases that are out stay valid, and so
/// does memory of the engine's own until the last of them is gone; what they move from then on goes unregistered.
/// Memory that the caller registered must stay mapped until [`Region::release`] has answered `Ok`: do not drop it.
///
/// A forked child has a copy of the memory, not of the registration: it gets no leases, cannot release, and its drops
/// change nothing.
#[derive(Debug)]
pub struct Region {
    inner: Option<Arc<RegionInner>>,
    releaser: Arc<dyn Releaser>,
}

/// Takes a region out of the rings. The engine does it; memory/ knows nothing of lanes.
pub trait Releaser: Send + Sync + std::fmt::Debug {
    /// Unregisters, waiting at most `within` for every lane's acknowledgement. False: some lane cannot answer.
    fn release(&self, region: &Arc<RegionInner>, within: Duration) -> bool;
}

/// Why a region was not released. Its memory must not be freed; the region comes back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// Leases are out or transfers are in flight; here is the region back.
    #[error(
        "the region is in use: {leases} leases are out and {raw} raw extents are in flight; wait for their \
         completions and drop the leases, then release it again"
    )]
    Busy {
        /// The region, unharmed.
        region: Region,
        /// Leases that are out.
        leases: usize,
        /// Extents of raw transfers in flight.
        raw: u64,
    },
    /// Late results may still land in it, or a lane cannot answer; here is the region back. Try again later.
    #[error(
        "the region is quarantined: an abandoned transfer may still write to it, or a lane did not answer in time; \
         its memory must stay mapped; release it again later, when late results were absorbed"
    )]
    Quarantined(Region),
    /// This process is a fork of the one that built the engine, whose rings still hold the region; here is the
    /// child's copy back.
    #[error(
        "the process forked after the engine was built: the region is the parent's, and only the parent can release it"
    )]
    Forked(Region),
}

impl ReleaseError {
    /// The region, unharmed, to be released again.
    pub fn into_region(self) -> Region {
        match self {
            ReleaseError::Busy { region, .. }
            | ReleaseError::Quarantined(region)
            | ReleaseError::Forked(region) => region,
        }
    }
}

impl Region {
    pub(crate) fn new(inner: Arc<RegionInner>, releaser: Arc<dyn Releaser>) -> Region {
        Region { inner: Some(inner), releaser }
    }

    pub(crate) fn inner(&self) -> &Arc<RegionInner> {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a region is whole until it is released or dropped"),
        }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // a region is never empty
    pub fn len(&self) -> usize {
        self.inner().len()
    }

    /// Address of the first byte. Of GPU memory it is a device pointer, for [`RawExtent::ptr`](crate::RawExtent) and for
    /// CUDA: the CPU must not follow it.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner().ptr.as_ptr()
    }

    /// Whether commands over it use registered ("fixed") buffers of the rings; never of GPU memory, which rings do not
    /// reach.
    pub fn is_registered(&self) -> bool {
        matches!(self.inner().registration.get(), Some(Ok(_)))
    }

    /// The GPU that its memory is on, as CUDA counts (within CUDA_VISIBLE_DEVICES); `None`: it is host or peer memory.
    pub fn gpu(&self) -> Option<u32> {
        self.inner().device().map(|held| held.gpu.ordinal)
    }

    /// Exports GPU memory as a dma-buf, for whoever imports one. Its address and length must be whole pages (4096). No
    /// kernel of today (7.3) takes one into io_uring: the engine itself uses none.
    ///
    /// # Errors
    /// `Misaligned`; `Unsupported`: not GPU memory, or the driver exports none of it ([`Error::cuda_code`] 801).
    pub fn export_dma_buf(&self) -> Result<std::os::fd::OwnedFd, Error> {
        self.inner().check_fork()?;
        let Some(held) = self.inner().device() else {
            let message = "only a GPU's memory is exported as a dma-buf; this region is host or peer memory";
            return Err(Error::new(ErrorKind::Unsupported, message));
        };
        held.gpu.export(self.inner().base(), self.len())
    }

    /// Why it is not registered, and the remedy.
    pub fn registration_note(&self) -> Option<&str> {
        self.inner().registration.get().and_then(|r| r.as_ref().err()).map(String::as_str)
    }

    /// An exclusive lease on bytes of memory that the engine allocated. It derefs to the bytes.
    pub fn lease(&self, range: Range<usize>) -> Result<HostLease, Error> {
        if !self.inner().is_owned() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "memory that was registered is aliased by its owner, and a GPU's is not the CPU's: neither gives bytes; \
                 use Region::range",
            ));
        }
        HostLease::take(self.inner().clone(), range)
    }

    /// An exclusive range of any region. It gives no access to the bytes.
    pub fn range(&self, range: Range<usize>) -> Result<RegionRange, Error> {
        RegionRange::take(self.inner().clone(), range)
    }

    /// Takes the region out of every ring, waiting at most `within` for the lanes to acknowledge.
    ///
    /// After `Ok` no command touches the memory and the caller of `register_host` or `register_cuda` may free it. On an error the
    /// region is handed back and the memory must stay. In a forked child it is always an error: the rings are the
    /// parent's.
    pub fn release(mut self, within: Duration) -> Result<(), ReleaseError> {
        let inner = self.inner().clone();
        if inner.check_fork().is_err() {
            return Err(ReleaseError::Forked(self));
        }
        inner.closing.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        let (leases, raw) = (inner.leases(), inner.raw_in_flight().load(Ordering::SeqCst));
        if inner.quarantined.load(Ordering::SeqCst) > 0 {
            inner.closing.store(false, Ordering::SeqCst);
            return Err(ReleaseError::Quarantined(self));
        }
        if leases > 0 || raw > 0 {
            inner.closing.store(false, Ordering::SeqCst);
            return Err(ReleaseError::Busy { region: self, leases, raw });
        }
        if !self.releaser.release(&inner, within) {
            inner.closing.store(false, Ordering::SeqCst);
            return Err(ReleaseError::Quarantined(self));
        }
        self.inner = None;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Leases and transfers keep the inner half. Here the rings let go of it, if nothing uses it.
        let Some(inner) = self.inner.take() else { return };
        inner.closing.store(true, Ordering::SeqCst);
        if !self.releaser.release(&inner, Duration::from_secs(1)) {
            tracing::error!(
                region = inner.id,
                bytes = inner.len(),
                "a lane does not let go of a dropped region: kept"
            );
        }
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
