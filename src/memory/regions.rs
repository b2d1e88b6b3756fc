//! The regions of an engine: their numbers, and a sorted snapshot through which raw pointers resolve.

use super::{RegionInner, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// Most regions of an engine: each takes at least one of a ring's 16 384 buffers.
pub const MOST: usize = 16_384;

/// What raw submission looks addresses up in. It is replaced whole when a region comes or goes.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Base address, length, region; sorted. Weak, so that a client's old snapshot keeps no memory mapped.
    regions: Vec<(u64, u64, Weak<RegionInner>)>,
}

impl Snapshot {
    /// The region in which `len` bytes at `addr` lie whole.
    pub fn find(&self, addr: u64, len: u64) -> Option<Arc<RegionInner>> {
        let after = self.regions.partition_point(|(base, ..)| *base <= addr);
        let (base, room, region) = self.regions.get(after.checked_sub(1)?)?;
        if addr.checked_add(len)? <= base + room { region.upgrade() } else { None }
    }
}

impl Snapshot {
    /// Whether `len` bytes at `addr` cross the edge of a region. (Of regions that overlap, the innermost counts.)
    pub fn straddles(&self, addr: u64, len: u64) -> bool {
        let Some(end) = addr.checked_add(len) else { return true };
        let after = self.regions.partition_point(|(base, ..)| *base <= addr);
        let before = after.checked_sub(1).and_then(|i| self.regions.get(i));
        match before {
            Some((base, room, _)) if addr < base + room => end > base + room,
            _ => self.regions.get(after).is_some_and(|(base, ..)| *base < end),
        }
    }
}

/// The regions of an engine.
#[derive(Debug)]
pub struct Regions {
    /// By number; a free number is `None`.
    slots: Mutex<Vec<Option<Arc<RegionInner>>>>,
    snapshot: RwLock<Arc<Snapshot>>,
    version: AtomicU64,
    /// Raw extents in flight, by region number: lanes count them down without a lock.
    raw_in_flight: Arc<[AtomicU64]>,
    /// There is, or was, one over GPU memory.
    devices: AtomicBool,
}

impl Default for Regions {
    fn default() -> Self {
        Regions {
            slots: Mutex::default(),
            snapshot: RwLock::default(),
            version: AtomicU64::new(1),
            raw_in_flight: (0..MOST).map(|_| AtomicU64::new(0)).collect(),
            devices: AtomicBool::new(false),
        }
    }
}

impl Regions {
    /// The counts that regions share.
    pub fn raw_counts(&self) -> &Arc<[AtomicU64]> {
        &self.raw_in_flight
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Option<Arc<RegionInner>>>> {
        lock(&self.slots)
    }

    /// Makes a region under a free number.
    pub fn insert(&self, make: impl FnOnce(u32) -> RegionInner) -> Option<Arc<RegionInner>> {
        let mut slots = self.slots();
        let id = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        if id >= MOST {
            return None;
        }
        let region = Arc::new(make(id as u32));
        slots[id] = Some(region.clone());
        if region.device().is_some() {
            self.devices.store(true, Ordering::Release);
        }
        self.publish(&slots);
        Some(region)
    }

    /// Forgets regions whose handle was dropped under raw transfers, once those have ended.
    pub fn sweep(&self) {
        let mut slots = self.slots();
        let mut swept = false;
        for slot in slots.iter_mut() {
            let ended = |r: &Arc<RegionInner>| {
                r.dropped.load(Ordering::SeqCst) && r.raw_in_flight().load(Ordering::SeqCst) == 0
            };
            if slot.as_ref().is_some_and(ended) {
                (*slot, swept) = (None, true);
            }
        }
        if swept {
            self.publish(&slots);
        }
    }

    /// The region of that number.
    pub fn get(&self, id: u32) -> Option<Arc<RegionInner>> {
        self.slots().get(id as usize)?.clone()
    }

    /// Whether there is, or was, one over GPU memory.
    pub fn has_devices(&self) -> bool {
        self.devices.load(Ordering::Acquire)
    }

    /// All regions.
    pub fn all(&self) -> Vec<Arc<RegionInner>> {
        self.slots().iter().flatten().cloned().collect()
    }

    fn publish(&self, slots: &[Option<Arc<RegionInner>>]) {
        let mut regions: Vec<_> =
            slots.iter().flatten().map(|r| (r.base(), r.len() as u64, Arc::downgrade(r))).collect();
        regions.sort_by_key(|(base, ..)| *base);
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Snapshot { regions });
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever the snapshot does: a client keeps its own Arc and takes no lock while nothing changed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The present snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
