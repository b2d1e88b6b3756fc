//! Lists of (offset, pointer, length) that a connector hands over as they are.

use super::Window;
use std::sync::atomic::{AtomicI32, AtomicU64};

/// What came of one extent of a raw transfer, written in place before the completion is published.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawOutcome {
    /// Bytes that were moved. All of them, if `errno` is 0.
    pub bytes: u64,
    /// 0, or the positive errno of the first failure in this extent.
    pub errno: i32,
    /// The engine's while the transfer is in flight.
    pub reserved: u32,
}

/// One extent of a raw transfer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawExtent {
    /// First byte on the target.
    pub offset: u64,
    /// Memory to move to or from: a host pointer, or a device pointer inside a region over GPU memory. The engine tells
    /// them apart by its regions alone.
    pub ptr: *mut u8,
    /// Bytes.
    pub len: u64,
    /// What came of it.
    pub outcome: RawOutcome,
}

/// A raw list in flight.
#[derive(Debug)]
pub struct RawList {
    extents: *mut RawExtent,
    count: u32,
}

// SAFETY: the contract of `new` makes the list the engine's until the completion.
unsafe impl Send for RawList {}
// SAFETY: as above; offsets, pointers and lengths are only read, outcomes only touched as atomics.
unsafe impl Sync for RawList {}

impl RawList {
    /// Takes over a list until its transfer is completed.
    ///
    /// # Safety
    /// The list, and the memory that its pointers name, must stay mapped and be neither read nor written by
    /// others until the completion; after an abandoned one, until its late results are in (see `Client::submit_raw`).
    pub unsafe fn new(extents: &mut [RawExtent]) -> RawList {
        RawList { extents: extents.as_mut_ptr(), count: extents.len() as u32 }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    fn at(&self, index: u32) -> *mut RawExtent {
        assert!(index < self.count, "extents are counted");
        // SAFETY: inside the list, by the assertion.
        unsafe { self.extents.add(index as usize) }
    }

    /// Offset and length of extent `index`.
    pub fn range(&self, index: u32) -> (u64, u64) {
        let extent = self.at(index);
        // SAFETY: mapped and unwritten by the contract of `new`; the outcome is not touched.
        unsafe { ((*extent).offset, (*extent).len) }
    }

    /// The memory of extent `index`.
    pub fn window(&self, index: u32) -> Window {
        let extent = self.at(index);
        // SAFETY: mapped until the completion, by the contract of `new`.
        unsafe { Window::new((*extent).ptr, (*extent).len as usize) }
    }

    /// The region that extent `index` resolved to at submit, `u32::MAX` for none.
    pub fn region(&self, index: u32) -> u32 {
        // SAFETY: written once at submit, before any lane saw the list.
        unsafe { (*self.at(index)).outcome.reserved }
    }

    /// Clears the outcome of extent `index` and notes its region.
    pub fn prepare(&mut self, index: u32, region: u32) {
        // SAFETY: `&mut self`, before any lane sees the list.
        unsafe { (*self.at(index)).outcome = RawOutcome { bytes: 0, errno: 0, reserved: region } };
    }

    /// The outcome of extent `index`, as lanes write it.
    pub fn outcome(&self, index: u32) -> (&AtomicU64, &AtomicI32) {
        let extent = self.at(index);
        // SAFETY: aligned fields inside the list, touched only as atomics until the completion.
        unsafe {
            let outcome = &raw mut (*extent).outcome;
            (AtomicU64::from_ptr(&raw mut (*outcome).bytes), AtomicI32::from_ptr(&raw mut (*outcome).errno))
        }
    }
}
