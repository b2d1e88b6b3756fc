//! Anonymous mappings: the engine's own memory, and the page that tells a forked child from its parent.

use super::PAGE;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Huge pages are this large here; mappings at least as long are aligned to it.
const HUGE: usize = 2 << 20;

/// An anonymous private mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    /// What was mapped, with the slack that alignment took.
    whole: (NonNull<u8>, usize),
}

// SAFETY: a mapping is memory; who may touch which bytes when is the business of leases.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (rounded up to pages), aligned to a huge page when it is as long as one.
    pub fn new(len: usize) -> io::Result<Mapping> {
        let len = len.max(1).checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::InvalidInput)?;
        let slack = if len >= HUGE { HUGE - PAGE } else { 0 };
        let all = len.checked_add(slack).and_then(NonZeroUsize::new).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let whole =
            unsafe { mmap_anonymous(None, all, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)? }.cast();
        let pad = if slack > 0 {
            (whole.as_ptr() as usize).next_multiple_of(HUGE) - whole.as_ptr() as usize
        } else {
            0
        };
        // SAFETY: `pad <= slack`, so the result lies inside the mapping.
        let ptr = unsafe { whole.add(pad) };
        Ok(Mapping { ptr, len, whole: (whole, all.get()) })
    }

    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All its bytes, for whoever owns it alone.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: zero-filled anonymous memory of ours, borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// Asks for huge pages; answers whether the kernel took the advice.
    pub fn advise_huge(&self) -> bool {
        // SAFETY: advice on our own mapping; it changes no content.
        self.len >= HUGE && unsafe { madvise(self.ptr.cast(), self.len, MmapAdvise::MADV_HUGEPAGE) }.is_ok()
    }

    /// Makes all pages now (kernel 5.14; else when they are first used).
    pub fn populate(&self) {
        // SAFETY: our own mapping; pages that are there keep their content.
        let rc = unsafe { libc::madvise(self.ptr.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE) };
        if rc != 0 {
            tracing::debug!(error = %io::Error::last_os_error(), "pages are not made beforehand");
        }
    }

    /// Prefers NUMA node `node` for pages that are not there yet.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; 16];
        let word = mask.get_mut(node as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (node % 64);
        // SAFETY: mbind on our own mapping with a mask that lives across the call.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.ptr.as_ptr(),
                self.len,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                1024,
                0,
            )
        };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and, by I1, no command is in flight into it when its owner drops it.
        let _ = unsafe { munmap(self.whole.0.cast(), self.whole.1) };
    }
}

/// A page that the kernel clears in a forked child: a check costs one load.
#[derive(Debug)]
pub struct ForkGuard(Mapping);

impl ForkGuard {
    pub fn new() -> io::Result<ForkGuard> {
        let page = Mapping::new(PAGE)?;
        // SAFETY: advice on our own page; then one write to it, before anyone else knows it.
        unsafe {
            madvise(page.ptr.cast(), page.len, MmapAdvise::MADV_WIPEONFORK)?;
            page.ptr.as_ptr().write_volatile(1);
        }
        Ok(ForkGuard(page))
    }

    /// Whether this process is a fork of the one that made the engine.
    pub fn forked(&self) -> bool {
        // SAFETY: the page is mapped as long as the guard lives and is never written after `new`.
        unsafe { self.0.ptr.as_ptr().read_volatile() == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_mappings_are_huge_page_aligned() {
        for len in [1, PAGE + 1, HUGE, 5 * HUGE + 3] {
            let m = Mapping::new(len).unwrap();
            assert!(m.len() >= len && m.len().is_multiple_of(PAGE));
            assert_eq!(m.ptr().as_ptr() as usize % if len >= HUGE { HUGE } else { PAGE }, 0);
        }
    }

    #[test]
    fn absurd_length_is_an_error() {
        assert!(Mapping::new(usize::MAX).is_err());
        assert!(Mapping::new(usize::MAX / 2).is_err());
    }
}
