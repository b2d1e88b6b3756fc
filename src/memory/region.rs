//! Regions: what is registered once and moved to and from many times.

use super::region_inner::RegionInner;
use super::{HostLease, RegionRange};
use crate::error::{Error, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
        self.inner().ptr().as_ptr()
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
        let (leases, raw) = (inner.leases(), inner.raw_in_flight().load(Ordering::SeqCst));
        if inner.quarantined.load(Ordering::SeqCst) > 0 {
            return Err(ReleaseError::Quarantined(self));
        }
        if leases > 0 || raw > 0 {
            return Err(ReleaseError::Busy { region: self, leases, raw });
        }
        if !self.releaser.release(&inner, within) {
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
