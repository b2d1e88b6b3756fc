//! The kinds of memory that a transfer moves to and from.

use crate::support::effective_capabilities;
use fullbore::{Engine, Mem, Region};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Leases of a region that the engine allocated.
    Leased,
    /// Ranges of memory of ours that was registered.
    Registered,
    /// Raw pointers into registered memory.
    RawRegistered,
    /// Raw pointers that the engine knows nothing of.
    RawUnregistered,
}

pub const KINDS: [Kind; 4] = [Kind::Leased, Kind::Registered, Kind::RawRegistered, Kind::RawUnregistered];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Leased => "leased",
            Kind::Registered => "registered",
            Kind::RawRegistered => "raw registered",
            Kind::RawUnregistered => "raw unregistered",
        }
    }

    pub fn is_raw(self) -> bool {
        matches!(self, Kind::RawRegistered | Kind::RawUnregistered)
    }
}

/// Memory of one kind. What is ours is unmapped only after its region was released.
pub struct Memory {
    pub kind: Kind,
    pub len: usize,
    region: Option<Region>,
    map: Option<NonNull<u8>>,
}

pub fn map(len: usize) -> NonNull<u8> {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    let size = NonZeroUsize::new(len).expect("some bytes");
    // SAFETY: an anonymous mapping where the kernel likes touches nothing of ours.
    unsafe { mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags) }
        .expect("address space")
        .cast()
}

impl Memory {
    pub fn new(engine: &Engine, kind: Kind, len: usize) -> Memory {
        let map = (kind != Kind::Leased).then(|| map(len));
        Memory::over(engine, kind, len, map)
    }

    /// Over memory that is mapped already (`None`: the engine allocates).
    pub fn over(engine: &Engine, kind: Kind, len: usize, map: Option<NonNull<u8>>) -> Memory {
        let region = match (kind, map) {
            (Kind::Leased, _) => Some(engine.alloc_host(len).expect("memory")),
            (Kind::RawUnregistered, _) => None,
            // SAFETY: stays mapped until `drop` has released the region.
            (_, Some(p)) => Some(unsafe { engine.register_host(p, len) }.expect("registers")),
            (_, None) => unreachable!("registered memory is mapped first"),
        };
        if let Some(note) = region.as_ref().and_then(Region::registration_note) {
            let may_lock = effective_capabilities() & (1 << 14) != 0;
            assert!(!may_lock, "CAP_IPC_LOCK is there, so registration must work: {note}");
            eprintln!("skipped: fixed buffers: {note}");
        }
        Memory { kind, len, region, map }
    }

    /// Whether commands over it are to use fixed buffers.
    pub fn is_fixed(&self) -> bool {
        self.region.as_ref().is_some_and(Region::is_registered)
    }

    pub fn ptr(&self) -> *mut u8 {
        match (&self.map, &self.region) {
            (Some(map), _) => map.as_ptr(),
            (None, Some(region)) => region.as_ptr(),
            (None, None) => unreachable!("memory is mapped or allocated"),
        }
    }

    /// All its bytes. No transfer over it may be under way.
    pub fn bytes<T>(&mut self, see: impl FnOnce(&mut [u8]) -> T) -> T {
        match (&self.region, self.map) {
            (Some(region), None) => see(&mut region.lease(0..self.len).expect("every lease came back")),
            // SAFETY: mapped and ours; `&mut self` and the caller's word make this the only access.
            (_, Some(map)) => see(unsafe { std::slice::from_raw_parts_mut(map.as_ptr(), self.len) }),
            (None, None) => unreachable!("memory is mapped or allocated"),
        }
    }

    /// The memory of an extent (not for raw kinds).
    pub fn mem(&self, at: usize, len: usize) -> Mem {
        let region = self.region.as_ref().expect("raw memory has no leases");
        match self.kind {
            Kind::Leased => region.lease(at..at + len).expect("a free range").into(),
            _ => region.range(at..at + len).expect("a free range").into(),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let released = self.region.take().map_or(Ok(()), |r| r.release(Duration::from_secs(20)));
        if std::thread::panicking() {
            return; // the memory stays: a transfer may be under way
        }
        released.expect("no lease is out and nothing is in flight");
        if let Some(map) = self.map {
            // SAFETY: mapped by `map`, and its region has let go of it.
            unsafe { munmap(map.cast(), self.len) }.expect("unmaps");
        }
    }
}
