//! Leases: exclusive ranges of a region. They move into a transfer and come back in its completion.

use super::cuda::{Gpu, copy_in, copy_out};
use super::{RegionInner, Window};
use crate::error::{Error, ErrorKind};
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// An exclusive range of any region; it gives no access to the bytes (the owner of registered memory has that).
#[derive(Debug)]
pub struct RegionRange {
    region: Arc<RegionInner>,
    start: usize,
    len: usize,
}

impl RegionRange {
    pub(crate) fn take(region: Arc<RegionInner>, range: Range<usize>) -> Result<RegionRange, Error> {
        region.take(&range)?;
        Ok(RegionRange { start: range.start, len: range.len(), region })
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it begins in its region, in bytes.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Cuts it in two at byte `at`: keeps the bytes before, answers those from `at` on. Both must have a byte, else
    /// it stays as it was and the error is `InvalidInput`; in a forked child it is `Forked`.
    pub fn split_off(&mut self, at: usize) -> Result<RegionRange, Error> {
        if at == 0 || at >= self.len {
            let message = format!("a lease is cut at a byte inside it; give 1 to {}", self.len - 1);
            return Err(Error::new(ErrorKind::InvalidInput, message).at(at as u64, self.len as u64));
        }
        self.region.split(self.start, self.start + at)?;
        let tail = RegionRange { region: self.region.clone(), start: self.start + at, len: self.len - at };
        self.len = at;
        Ok(tail)
    }

    /// Copies its bytes out of a GPU's memory, and waits for that: for checks, not for speed.
    ///
    /// # Errors
    /// `InvalidInput` unless it lies in GPU memory and `to` is as long; what the driver answers.
    pub fn copy_out(&self, to: &mut [u8]) -> Result<(), Error> {
        let (gpu, at) = self.on_gpu(to.len())?;
        // SAFETY: inside the region, which is ours alone as a lease, and its owner's promise at registration.
        unsafe { copy_out(gpu, at, to) }.map_err(|e| e.error("cannot copy out of GPU memory"))
    }

    /// Copies bytes into a GPU's memory, and waits for that; see [`RegionRange::copy_out`].
    pub fn copy_in(&mut self, from: &[u8]) -> Result<(), Error> {
        let (gpu, at) = self.on_gpu(from.len())?;
        // SAFETY: as in `copy_out`.
        unsafe { copy_in(gpu, at, from) }.map_err(|e| e.error("cannot copy into GPU memory"))
    }

    fn on_gpu(&self, len: usize) -> Result<(&Arc<Gpu>, u64), Error> {
        self.region.check_fork()?;
        let bad = |message| Err(Error::new(ErrorKind::InvalidInput, message));
        let Some(held) = self.region.device() else {
            return bad("the range is in host or peer memory, which its owner reads and writes itself");
        };
        if len != self.len {
            return bad("the slice and the range differ in length; split the range, or take another");
        }
        Ok((&held.gpu, self.region.base() + self.start as u64))
    }

    pub(crate) fn region(&self) -> &Arc<RegionInner> {
        &self.region
    }

    pub(crate) fn window(&self) -> Window {
        self.region.window(self.start, self.len)
    }
}

impl Drop for RegionRange {
    fn drop(&mut self) {
        self.region.give_back(self.start);
    }
}

/// An exclusive range of memory that the engine allocated. It derefs to its bytes: while a caller holds it, no
/// command is in flight over them.
#[derive(Debug)]
pub struct HostLease(RegionRange);

impl HostLease {
    pub(super) fn take(region: Arc<RegionInner>, range: Range<usize>) -> Result<HostLease, Error> {
        RegionRange::take(region, range).map(HostLease)
    }

    /// Cuts it in two at byte `at`: keeps the bytes before, answers those from `at` on. Both must have a byte, else
    /// it stays as it was and the error is `InvalidInput`; in a forked child it is `Forked`.
    pub fn split_off(&mut self, at: usize) -> Result<HostLease, Error> {
        self.0.split_off(at).map(HostLease)
    }

    /// Where it begins in its region, in bytes.
    pub fn start(&self) -> usize {
        self.0.start
    }
}

impl Deref for HostLease {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let window = self.0.window();
        // SAFETY: anonymous memory of the engine's own, mapped while the Arc lives and zero-filled at first; the
        // lease is exclusive, and a lease inside a transfer cannot be reached by a caller.
        unsafe { std::slice::from_raw_parts(window.ptr(), window.len()) }
    }
}

impl DerefMut for HostLease {
    fn deref_mut(&mut self) -> &mut [u8] {
        let window = self.0.window();
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(window.ptr(), window.len()) }
    }
}

/// The memory of an extent.
#[derive(Debug)]
pub enum Mem {
    /// Memory of the engine's own.
    Host(HostLease),
    /// A range of any region.
    Range(RegionRange),
}

impl Mem {
    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // a lease is never empty
    pub fn len(&self) -> usize {
        self.range().len
    }

    /// The lease, if it derefs to bytes.
    pub fn into_host(self) -> Option<HostLease> {
        match self {
            Mem::Host(lease) => Some(lease),
            Mem::Range(_) => None,
        }
    }

    pub(crate) fn range(&self) -> &RegionRange {
        match self {
            Mem::Host(lease) => &lease.0,
            Mem::Range(range) => range,
        }
    }
}

impl From<HostLease> for Mem {
    fn from(lease: HostLease) -> Mem {
        Mem::Host(lease)
    }
}

impl From<RegionRange> for Mem {
    fn from(range: RegionRange) -> Mem {
        Mem::Range(range)
    }
}
