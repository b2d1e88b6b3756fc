//! The table ring: one plain ring per engine that holds the registrations and never submits.
//!
//! Each lane clones the range that changed from it, on its own thread: the pages are pinned and charged to
//! RLIMIT_MEMLOCK once (kernel 6.13 and later). Without clones each lane registers the same iovecs for itself.
//!
//! A region longer than 1 GiB (the kernel's limit for one buffer) is covered by slabs that overlap by the largest
//! command, so that every command lies whole in one.

use super::{PAGE, RegionInner, Window, lock};
use io_uring::IoUring;
use io_uring::types::CloneBuffersFlags;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;

/// Most buffers a ring can hold.
const BUFFERS: u32 = 16_384;
/// Longest buffer the kernel registers.
const SLAB: u64 = 1 << 30;

/// How a region is laid over the buffer table. Made by [`TableRing::add`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slabs {
    /// Index of the first buffer.
    pub first: u32,
    /// How many buffers.
    pub count: u32,
    base: u64,
    len: u64,
    stride: u64,
}

impl Slabs {
    /// Slabs over `len` bytes at `base` for commands of at most `largest` bytes.
    fn over(base: u64, len: u64, largest: u32) -> Slabs {
        let overlap = (largest as u64).next_multiple_of(PAGE as u64);
        let stride = SLAB - overlap;
        let count = if len <= SLAB { 1 } else { 1 + (len - SLAB).div_ceil(stride) as u32 };
        Slabs { first: 0, count, base, len, stride }
    }

    /// Address and length of slab `i`.
    fn slab(&self, i: u32) -> (u64, u64) {
        let from = i as u64 * self.stride;
        (self.base + from, SLAB.min(self.len - from))
    }

    /// The range of buffer indices.
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// What lanes need to find the buffer of an address.
    pub fn fixed(&self) -> Fixed {
        Fixed { base: self.base, len: self.len, stride: self.stride, first: self.first, count: self.count }
    }

    fn iovecs(&self) -> Vec<libc::iovec> {
        (0..self.count)
            .map(|i| {
                let (base, len) = self.slab(i);
                libc::iovec { iov_base: base as *mut _, iov_len: len as usize }
            })
            .collect()
    }
}

/// A lane's view of a registered region: any (address, length) inside resolves to a buffer index.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    base: u64,
    len: u64,
    stride: u64,
    first: u32,
    count: u32,
}

impl Fixed {
    /// The registered buffer in which the window lies whole.
    pub fn buffer(&self, window: Window) -> Option<u16> {
        let from = window.addr().checked_sub(self.base)?;
        if from + window.len() as u64 > self.len {
            return None;
        }
        let slab = (from / self.stride).min(self.count as u64 - 1);
        let end = slab * self.stride + SLAB;
        (from + window.len() as u64 <= end).then_some((self.first as u64 + slab) as u16)
    }
}

/// The ring that holds the registrations, and the free runs of its table.
#[derive(Debug)]
pub struct TableRing {
    /// `None` when clones are off or the kernel has none: lanes register for themselves.
    ring: Option<Mutex<Ring>>,
    free: Mutex<Vec<Range<u32>>>,
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ring {}", self.0.as_raw_fd())
    }
}

impl TableRing {
    /// A table with clones if they are wanted and the kernel has them.
    pub fn new(clones: bool) -> io::Result<TableRing> {
        let ring = if clones && probe_clones()? {
            let ring = IoUring::new(1)?;
            ring.submitter().register_buffers_sparse(BUFFERS)?;
            Some(Mutex::new(Ring(ring)))
        } else {
            None
        };
        let all = 0..BUFFERS;
        Ok(TableRing { ring, free: Mutex::new(vec![all]) })
    }

    /// Whether lanes clone (true) or register for themselves.
    pub fn clones(&self) -> bool {
        self.ring.is_some()
    }

    /// The ring that lanes clone from.
    pub fn source(&self) -> Option<RawFd> {
        self.ring.as_ref().map(|r| lock(r).0.as_raw_fd())
    }

    /// Registers a region, for commands of at most `largest` bytes. It stays mapped, at the same pages, until every
    /// ring let go of it (`reuse`): a region promises that.
    pub fn add(&self, region: &RegionInner, largest: u32) -> io::Result<Slabs> {
        let mut slabs = Slabs::over(region.base(), region.len() as u64, largest);
        let run = self.take_run(slabs.count).ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        slabs.first = run.start;
        if let Some(ring) = &self.ring {
            // SAFETY: a region's bytes stay mapped until it is released, which comes after `reuse`.
            let done = unsafe { update(&lock(ring).0, &slabs) };
            if let Err(error) = done {
                self.clear(&slabs);
                self.give_run(run);
                return Err(error);
            }
        }
        Ok(slabs)
    }

    /// Drops the table ring's own hold on a region's buffers. Lanes clone the hole next.
    pub fn clear(&self, slabs: &Slabs) {
        let Some(ring) = &self.ring else { return };
        let holes = vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; slabs.count as usize];
        // SAFETY: an empty iovec names no memory.
        let done = unsafe { lock(ring).0.submitter().register_buffers_update(slabs.first, &holes, None) };
        if let Err(error) = done {
            tracing::error!(%error, ?slabs, "cannot clear registered buffers");
        }
    }

    /// Makes the indices free again, once every lane let go of them.
    pub fn reuse(&self, slabs: &Slabs) {
        self.give_run(slabs.range());
    }

    fn take_run(&self, count: u32) -> Option<Range<u32>> {
        let mut free = lock(&self.free);
        let at = free.iter().position(|r| r.len() as u32 >= count)?;
        let start = free[at].start;
        free[at].start += count;
        if free[at].is_empty() {
            free.remove(at);
        }
        Some(start..start + count)
    }

    fn give_run(&self, run: Range<u32>) {
        let mut free = lock(&self.free);
        let at = free.partition_point(|r| r.start < run.start);
        free.insert(at, run);
        // Runs that touch become one again.
        let merged = free.drain(..).fold(Vec::<Range<u32>>::new(), |mut runs, run| {
            match runs.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
            runs
        });
        *free = merged;
    }
}

/// A lane takes over buffers: by cloning from `source`, or by registering for itself in a table that [`prepare`] made.
pub fn adopt<S, C>(ring: &IoUring<S, C>, slabs: &Slabs, source: Option<RawFd>) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: io_uring::cqueue::EntryMarker,
{
    match source {
        Some(source) => clone_range(ring, slabs, source),
        // SAFETY: slabs are made by `TableRing::add` alone, of a region, which stays mapped until after `reuse`.
        None => unsafe { update(ring, slabs) },
    }
}

/// A lane lets go of buffers: by cloning the hole, or by clearing them itself.
pub fn abandon<S, C>(ring: &IoUring<S, C>, slabs: &Slabs, source: Option<RawFd>) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: io_uring::cqueue::EntryMarker,
{
    match source {
        Some(source) => clone_range(ring, slabs, source),
        None => {
            let holes =
                vec![libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; slabs.count as usize];
            // SAFETY: an empty iovec names no memory.
            unsafe { ring.submitter().register_buffers_update(slabs.first, &holes, None) }
        }
    }
}

/// Registers slabs one by one: of several in one call the kernel may take the first and say that all is well.
///
/// # Safety
/// The memory stays mapped, at the same pages, until the ring lets go of it.
unsafe fn update<S, C>(ring: &IoUring<S, C>, slabs: &Slabs) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: io_uring::cqueue::EntryMarker,
{
    for (iovec, index) in slabs.iovecs().iter().zip(slabs.range()) {
        // SAFETY: passed on to the caller.
        unsafe { ring.submitter().register_buffers_update(index, std::slice::from_ref(iovec), None)? };
    }
    Ok(())
}

/// Makes a lane's table when it registers for itself.
pub fn prepare<S, C>(ring: &IoUring<S, C>) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: io_uring::cqueue::EntryMarker,
{
    ring.submitter().register_buffers_sparse(BUFFERS)
}

fn clone_range<S, C>(ring: &IoUring<S, C>, slabs: &Slabs, source: RawFd) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: io_uring::cqueue::EntryMarker,
{
    let (first, count) = (slabs.first, slabs.count);
    ring.submitter().register_buffers_clone_offset(
        source,
        first,
        first,
        count,
        CloneBuffersFlags::DST_REPLACE,
    )
}

/// Whether the kernel clones ranges with REPLACE: tried, not read from a version number. What the process lacks, its
/// lanes would lack as well: that is an error.
fn probe_clones() -> io::Result<bool> {
    match try_clones() {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "this kernel does not clone registered buffers by range (6.13 does)");
            Ok(false)
        }
    }
}

/// Registers a page with one ring and has another clone it, twice.
pub fn try_clones() -> io::Result<()> {
    let page = super::Mapping::new(PAGE)?;
    let (source, lane) = (IoUring::new(1)?, IoUring::new(1)?);
    source.submitter().register_buffers_sparse(2)?;
    let iovec = libc::iovec { iov_base: page.ptr().as_ptr().cast(), iov_len: PAGE };
    // SAFETY: the page outlives both rings' tables: they are cleared before it is unmapped.
    unsafe { source.submitter().register_buffers_update(1, &[iovec], None)? };
    let slabs = Slabs { first: 1, count: 1, base: 0, len: 0, stride: SLAB };
    clone_range(&lane, &slabs, source.as_raw_fd())?;
    let result = clone_range(&lane, &slabs, source.as_raw_fd());
    drop((source, lane));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_command_lies_whole_in_the_buffer_found(
            gib in 0u64..5, extra in 1u64..1 << 30, from in 0u64..6 << 30, len in 1u64..=2 << 20,
        ) {
            let total = (gib << 30) + extra;
            prop_assume!(from + len <= total);
            let base = 1u64 << 40;
            let mut slabs = Slabs::over(base, total, 2 << 20);
            slabs.first = 7;
            // SAFETY: never dereferenced.
            let window = unsafe { Window::new((base + from) as *mut u8, len as usize) };
            let buffer = slabs.fixed().buffer(window).expect("inside the region") as u32;
            let (slab, slab_len) = slabs.slab(buffer - 7);
            prop_assert!(slab <= base + from && base + from + len <= slab + slab_len);
            prop_assert!(slab_len <= SLAB && buffer - 7 < slabs.count);
            let (last, last_len) = slabs.slab(slabs.count - 1);
            prop_assert_eq!(last + last_len, base + total, "the slabs cover the region");
        }

        #[test]
        fn runs_of_indices_never_overlap(ops in prop::collection::vec((1u32..200, any::<bool>()), 1..60)) {
            let all = 0..1000;
            let table = TableRing { ring: None, free: Mutex::new(vec![all.clone()]) };
            let mut held: Vec<Range<u32>> = Vec::new();
            for (count, give) in ops {
                if give && !held.is_empty() {
                    table.give_run(held.swap_remove(0));
                } else if let Some(run) = table.take_run(count) {
                    prop_assert!(held.iter().all(|h| run.end <= h.start || h.end <= run.start));
                    held.push(run);
                }
            }
            held.drain(..).for_each(|run| table.give_run(run));
            let free = lock(&table.free).clone();
            prop_assert_eq!(free, [all]);
        }
    }
}
