//! The half of a region that its leases and transfers keep alive.

use super::cuda::{Held, HostMemory};
use super::table::Slabs;
use super::{ForkGuard, Mapping, Window, lock};
use crate::error::{Error, ErrorKind};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What keeps memory that is not a mapping.
#[derive(Debug)]
pub enum Keeper {
    /// Memory on a GPU.
    Device(Held),
    /// Host memory that the CUDA driver allocated, kept for its drop.
    Driver(#[allow(dead_code)] HostMemory),
}

/// See the module.
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

    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
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

    /// Counts a raw extent against it; answers its number. `None`: host memory that was released meanwhile, whose number
    /// may be another region's by now.
    pub fn hold_raw(&self) -> Option<u32> {
        self.raw_in_flight().fetch_add(1, Ordering::SeqCst);
        // Either we see that it was dropped, or the sweep behind that sees our count. (A GPU's memory may not be released
        // while something is submitted over it: in no region it would be taken for the host's.)
        if self.dropped.load(Ordering::SeqCst) && self.device().is_none() {
            self.raw_in_flight().fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        Some(self.id)
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
