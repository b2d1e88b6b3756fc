//! Memory that the engine may move to and from: regions, leases on them, and their registration with the rings.
//!
//! Who owns what: a [`Region`] owns its mapping (or the promise of a registering caller) through an `Arc` that
//! every lease holds too. A lease is an exclusive range; it moves into a transfer and comes back in the
//! completion. Lanes see memory only as a [`Window`], whose validity rests on the transfer that holds the lease.

pub mod copy;
pub mod cuda;
mod host;
mod lease;
mod mmap;
pub mod peer;
mod raw;
mod region;
mod region_inner;
mod regions;
mod scratch;
pub mod table;
mod window;

pub use host::{AllocOptions, alloc};
pub use lease::{HostLease, Mem, RegionRange};
pub use mmap::{ForkGuard, Mapping};
pub use raw::{RawExtent, RawList, RawOutcome};
pub use region::{Region, ReleaseError, Releaser};
pub use region_inner::RegionInner;
pub use regions::{Regions, Snapshot};
pub use scratch::Scratch;
pub use table::{Fixed, Slabs, TableRing};
pub use window::Window;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; what a panic left behind is whole here (each critical section changes one thing).
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a page, as the kernel counts them.
pub const PAGE: usize = 4096;
