//! The regions of an engine: their numbers, and a sorted snapshot through which raw pointers resolve.

use super::{RegionInner, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// Most regions of an engine: each takes at least one of a ring's 16 384 buffers.
pub const MOST: usize = 16_384;

/// What raw submission looks addresses up in. It is replaced whole when a region comes or goes.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Sorted by their bases.
    regions: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    base: u64,
    end: u64,
    /// The furthest end of this one and of those before it: regions may overlap.
    reach: u64,
    /// Weak, so that a client's old snapshot keeps no memory mapped.
    region: Weak<RegionInner>,
}

impl Snapshot {
    fn new<'a>(regions: impl Iterator<Item = &'a Arc<RegionInner>>) -> Snapshot {
        let mut regions: Vec<_> = regions
            .map(|r| {
                let end = r.base() + r.len() as u64;
                Place { base: r.base(), end, reach: end, region: Arc::downgrade(r) }
            })
            .collect();
        // Of those with one base the shortest comes last: it is the first that is found.
        regions.sort_by_key(|place| (place.base, std::cmp::Reverse(place.end)));
        let mut reach = 0;
        for place in &mut regions {
            reach = place.end.max(reach);
            place.reach = reach;
        }
        Snapshot { regions }
    }

    /// The region in which `len` bytes at `addr` lie whole. Of several it is the one that begins last.
    pub fn find(&self, addr: u64, len: u64) -> Option<Arc<RegionInner>> {
        let end = addr.checked_add(len)?;
        let after = self.regions.partition_point(|place| place.base <= addr);
        let mut before = self.regions[..after].iter().rev().take_while(|place| place.reach >= end);
        before.find_map(|place| if place.end >= end { place.region.upgrade() } else { None })
    }

    /// Whether some of `len` bytes at `addr` lie in a region: those that [`Snapshot::find`] does not find cross an edge
    /// then.
    pub fn touches(&self, addr: u64, len: u64) -> bool {
        let Some(end) = addr.checked_add(len) else { return true };
        let before = self.regions.partition_point(|place| place.base < end);
        before.checked_sub(1).is_some_and(|last| self.regions[last].reach > addr)
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
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Snapshot::new(slots.iter().flatten()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;
    use proptest::prelude::*;
    use std::ptr::NonNull;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// Regions may overlap, lie in one another and be the same: a region is found wherever there is one.
        #[test]
        fn what_lies_whole_in_a_region_is_found(
            places in prop::collection::vec((0u64..40, 1u64..24), 0..6),
            asked in prop::collection::vec((0u64..64, 1u64..24), 1..40),
        ) {
            let memory = Mapping::new(128).expect("memory");
            let (base, regions) = (memory.ptr().as_ptr() as u64, Regions::default());
            for (from, len) in &places {
                let ptr = NonNull::new(memory.ptr().as_ptr().wrapping_add(*from as usize)).expect("not null");
                let make = |id| RegionInner::registered(id, 0, regions.raw_counts(), ptr, *len as usize);
                regions.insert(make).expect("a free number");
            }
            let snapshot = regions.snapshot();
            for (from, len) in asked {
                let whole = |(at, room): &(u64, u64)| *at <= from && from + len <= at + room;
                let some = |(at, room): &(u64, u64)| *at < from + len && from < at + room;
                let found = snapshot.find(base + from, len);
                prop_assert_eq!(found.is_some(), places.iter().any(whole));
                if let Some(region) = found {
                    prop_assert!(whole(&(region.base() - base, region.len() as u64)));
                }
                prop_assert_eq!(snapshot.touches(base + from, len), places.iter().any(some));
            }
        }
    }
}
