//! Leases of a region, without an engine.

use super::*;
use crate::memory::{Mapping, Regions};
use proptest::prelude::*;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

fn region(len: usize) -> Arc<RegionInner> {
    let raw: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0)]);
    Arc::new(RegionInner::owned(0, 0, &raw, Mapping::new(len).expect("memory"), len))
}

proptest! {
    /// Against a model that has a flag for each byte.
    #[test]
    fn leases_are_exclusive(
        steps in proptest::collection::vec((0u8..3, 0usize..66, 0usize..20, any::<prop::sample::Index>()), 1..100),
    ) {
        const LEN: usize = 64;
        let (region, mut out, mut taken) = (region(LEN), Vec::<RegionRange>::new(), [false; LEN + 100]);
        for (what, from, len, which) in steps {
            match what {
                0 => {
                    let range = from..from + len;
                    let free = len > 0 && range.end <= LEN && !taken[range.clone()].contains(&true);
                    let lease = RegionRange::take(region.clone(), range.clone());
                    prop_assert_eq!(lease.is_ok(), free, "{:?}", range);
                    if let Ok(lease) = lease {
                        taken[range].fill(true);
                        out.push(lease);
                    }
                }
                1 if !out.is_empty() => {
                    let lease = out.swap_remove(which.index(out.len()));
                    taken[lease.start()..lease.start() + lease.len()].fill(false);
                }
                _ if !out.is_empty() => {
                    let at = which.index(out.len());
                    let inside = len > 0 && len < out[at].len();
                    let (start, all) = (out[at].start(), out[at].len());
                    let tail = out[at].split_off(len);
                    prop_assert_eq!(tail.is_ok(), inside);
                    if let Ok(tail) = tail {
                        prop_assert_eq!((out[at].len(), tail.start(), tail.len()), (len, start + len, all - len));
                        out.push(tail);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(region.leases(), out.len());
        }
    }
}

/// A list moved its tail for each lease given back: seconds for a transfer of 100 000 extents.
#[test]
fn many_leases_come_back_in_time() {
    let (region, many) = (region(400_000), 400_000);
    let since = Instant::now();
    let out: Vec<_> =
        (0..many).rev().map(|at| RegionRange::take(region.clone(), at..at + 1).expect("free")).collect();
    out.into_iter().rev().for_each(drop);
    assert_eq!(region.leases(), 0);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

/// A client may have looked a region up just before another thread released it, and its number went to the next one.
#[test]
fn a_region_that_was_released_counts_no_raw_extent_against_its_number() {
    let (regions, memory) = (Regions::default(), Mapping::new(4096).expect("memory"));
    let make = |id| RegionInner::registered(id, 0, regions.raw_counts(), memory.ptr(), 4096);
    let region = regions.insert(make).expect("a number");
    assert_eq!(region.hold_raw(), Some(region.id));
    region.dropped.store(true, Ordering::SeqCst);
    regions.sweep();
    assert!(regions.get(region.id).is_some(), "not while an extent counts");
    region.raw_in_flight().store(0, Ordering::SeqCst);
    regions.sweep();
    let next = regions.insert(make).expect("a number");
    assert_eq!((region.hold_raw(), next.id), (None, region.id));
    assert_eq!(next.raw_in_flight().load(Ordering::SeqCst), 0);
}
