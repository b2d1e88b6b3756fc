//! Mappings: the engine's own memory, a device's, and the page that tells a forked child from its parent.

use super::cuda::{CudaError, Gpu, Pinned};
use super::{PAGE, Window, lock};
use crate::error::{Error, ErrorKind};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Huge pages are this large here; mappings at least as long are aligned to it.
const HUGE: usize = 2 << 20;

/// With the CUDA driver, or why it refuses. A copy is in the hands of none but those who are looking at it.
pub type Registration = Result<Arc<Pinned>, Arc<str>>;

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    /// What was mapped, with the slack that alignment took.
    whole: (NonNull<u8>, usize),
    /// Of a file or a device.
    shared: bool,
    /// Its registration with the CUDA driver; unset: nobody asked for one.
    pinned: RwLock<Option<Registration>>,
    /// Held while it is registered, which takes long: whoever only looks is not held up.
    pinning: Mutex<()>,
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
        // Miri knows no other flags than the first.
        let reserve = if cfg!(miri) { MapFlags::empty() } else { MapFlags::MAP_NORESERVE };
        let flags = MapFlags::MAP_PRIVATE | reserve;
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
        Ok(Mapping {
            ptr,
            len,
            whole: (whole, all.get()),
            shared: false,
            pinned: RwLock::default(),
            pinning: Mutex::default(),
        })
    }

    /// Maps the first `len` bytes (rounded up to pages) of a file, shared; to be written to or not.
    pub fn of_file(file: &File, len: usize, write: bool) -> io::Result<Mapping> {
        let len = len.max(1).checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::InvalidInput)?;
        let all = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let rights = if write { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let ptr = unsafe { mmap(None, all, rights, MapFlags::MAP_SHARED, file, 0)? }.cast();
        Ok(Mapping {
            ptr,
            len,
            whole: (ptr, len),
            shared: true,
            pinned: RwLock::default(),
            pinning: Mutex::default(),
        })
    }

    /// The bytes `from .. from + len` of it; cut to what is there. Its owner keeps it mapped while they are used.
    pub fn window(&self, from: usize, len: usize) -> Window {
        // SAFETY: inside the mapping; commands over it end before the target that owns it is dropped (I1).
        unsafe { Window::new(self.ptr.as_ptr(), self.len) }.sub(from, len)
    }

    /// Registers it with the CUDA driver, for every GPU; mapped for writing or not. `Err` says why it cannot be. Once is
    /// enough, unless the registration went with its context.
    pub fn pin(&self, gpu: &Arc<Gpu>, write: bool) -> Result<(), Arc<str>> {
        let _pinning = lock(&self.pinning);
        match self.pinned() {
            Some(Err(why)) => return Err(why),
            Some(Ok(pinned)) if pinned.is_there() => return Ok(()),
            _ => {}
        }
        // SAFETY: mapped until our own drop, which unregisters it before.
        let pinned = unsafe { Pinned::new(gpu, self.ptr.as_ptr() as u64, self.len, write) };
        let why = |e: CudaError| e.error("the driver does not register the memory").to_string().into();
        let made = pinned.map(Arc::new).map_err(why);
        let answer = made.as_ref().map(drop).map_err(Arc::clone);
        *self.pinned.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        answer
    }

    /// Its registration with the driver, or why there is none; `None`: nobody asked for one.
    pub fn pinned(&self) -> Option<Registration> {
        self.pinned.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All its bytes, for whoever owns it alone; of a file's or a device's mapping, which others share, none.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.shared {
            return &mut [];
        }
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

/// Whether some of `len` bytes at `addr` are mapped, and not for writing: what the kernel would answer with EFAULT, and
/// our own copy with a SIGSEGV.
pub fn read_only(addr: u64, len: u64) -> bool {
    if cfg!(miri) {
        return false; // it has memory of its own
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let parse = |number: &str| u64::from_str_radix(number, 16).ok();
        let range = range.and_then(|(from, to)| Some((parse(from)?, parse(to)?)));
        let meets = range.is_some_and(|(from, to)| from < addr + len && addr < to);
        meets && fields.next().is_some_and(|rights| !rights.contains('w'))
    })
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        // SAFETY: the mapping is ours and, by I1, no command is in flight into it when its owner drops it.
        let _ = unsafe { munmap(self.whole.0.cast(), self.whole.1) };
    }
}

/// Remembers the process that made it and tells a forked child from it: a check costs two loads.
///
/// A page of the process holds its number, and the kernel clears it in a forked child, which takes another number
/// when it makes a guard of its own. No lock: a child may inherit one that nobody is left to open.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard(u64);

/// The page with this process's number; mapped once and for ever.
static NUMBER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// The next process's number.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn number() -> Option<&'static AtomicU64> {
    // SAFETY: null, or the page that `ForkGuard::new` mapped for ever, aligned and never written but as an atomic.
    unsafe { NUMBER.load(Ordering::Acquire).as_ref() }
}

impl ForkGuard {
    pub fn new() -> io::Result<ForkGuard> {
        if cfg!(miri) {
            return Err(io::ErrorKind::Unsupported.into()); // it knows no such advice, and forks nobody
        }
        if number().is_none() {
            let page = Mapping::new(PAGE)?;
            // SAFETY: advice on our own page, which is empty.
            unsafe { madvise(page.ptr.cast(), page.len, MmapAdvise::MADV_WIPEONFORK)? };
            let (new, none) = (page.ptr.as_ptr().cast(), std::ptr::null_mut());
            if NUMBER.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                std::mem::forget(page);
            }
        }
        let number = number().ok_or(io::ErrorKind::NotFound)?;
        let _ = number.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0).then(|| NEXT.fetch_add(1, Ordering::Relaxed))
        });
        Ok(ForkGuard(number.load(Ordering::Acquire)))
    }

    /// Whether this process is a fork of the one that made the guard.
    pub fn forked(&self) -> bool {
        number().is_none_or(|now| now.load(Ordering::Relaxed) != self.0)
    }

    /// Refuses what only the process that made the guard may do.
    pub fn check(&self) -> Result<(), Error> {
        if !self.forked() {
            return Ok(());
        }
        let message = "the process forked after the engine was built, and its lanes live in the parent; build an \
                       engine in the child, or fork before";
        Err(Error::new(ErrorKind::Forked, message))
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
