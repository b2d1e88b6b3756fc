//! Regions of more than 1 GiB are registered as slabs that overlap; commands across a seam stay on fixed buffers.

use super::memory::{Kind, Memory, map};
use super::places::{self, Place};
use super::rig::{Piece, Rig};
use crate::support;
use fullbore::{Engine, OpenOptions};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Longest buffer that the kernel registers.
const SLAB: usize = 1 << 30;
const LEN: usize = SLAB + (100 << 20);
/// Memory of its own around the seam.
const CLOSE: usize = 8 << 20;
const ALIAS: usize = 12 << 20;

/// An address range of [`LEN`] bytes that takes little memory: far from the seam all of it is the same few pages.
fn sparse() -> NonNull<u8> {
    let base = map(LEN);
    let pages = File::from(memfd_create("fullbore-it", MFdFlags::MFD_CLOEXEC).expect("a memfd"));
    pages.set_len(ALIAS as u64).expect("grows");
    let (before, after) = (0..SLAB - CLOSE, SLAB + CLOSE..LEN);
    for range in [before, after] {
        for at in range.clone().step_by(ALIAS) {
            let len = NonZeroUsize::new(ALIAS.min(range.end - at)).expect("some bytes");
            // SAFETY: inside the mapping just made, of which nobody else knows.
            let place = unsafe { base.add(at) };
            let addr = NonZeroUsize::new(place.as_ptr() as usize);
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: replaces pages of the same mapping.
            unsafe { mmap(addr, len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags, &pages, 0) }
                .expect("maps");
        }
    }
    base
}

#[test]
fn destinations_across_a_slab_seam_stay_on_fixed_buffers() {
    if !support::uring() {
        return;
    }
    let places = places::all();
    for (clones, kind) in [(true, Kind::Registered), (false, Kind::RawRegistered)] {
        let engine = Engine::builder().clone_buffers(clones).lanes(2).build().expect("an engine");
        across(&engine, &places, Memory::over(&engine, kind, LEN, Some(sparse())));
    }
}

/// Memory of the engine's own is touched as a whole when it is registered: once is enough.
#[test]
fn allocated_regions_have_seams_too() {
    if !support::uring() {
        return;
    }
    let room = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |l: &str| l.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok();
    if room.lines().find_map(kib).unwrap_or(0u64) < 4 << 20 {
        return eprintln!("skipped: an allocated region of 1.1 GiB: less than 4 GiB of memory are free");
    }
    let Some(place) = places::first() else { return };
    let engine = Engine::builder().lanes(2).build().expect("an engine");
    across(&engine, &[place], Memory::new(&engine, Kind::Leased, LEN));
}

fn across(engine: &Engine, places: &[Place], memory: Memory) {
    let Some(first) = places.first().filter(|_| memory.is_fixed()) else { return }; // said so already
    let open = |place: &Place| engine.open(&place.read, place.options(OpenOptions::read())).expect("opens");
    let mut rig = Rig::new(engine, open(first), memory, String::new(), first.seed);
    for place in places {
        rig.turn_to(open(place));
        (rig.label, rig.seed) = (format!("{} / {}, seam", place.name, rig.memory.kind.name()), place.seed);
        // Commands of 128 KiB: the second slab begins that much before the first one ends.
        for seam in [SLAB - (128 << 10), SLAB] {
            // Begins before, on, and behind it; commands that lie across it, also by 512 bytes only.
            for (back, len) in
                [(1 << 20, 2 << 20), (64 << 10, 128 << 10), (512, 4096), (0, 1 << 20), (127 << 10, 5 << 20)]
            {
                let piece = Piece { offset: 1 << 20, at: seam - back + 512, len };
                // The oracle knows one path for it: fixed, since nothing is odd and 512 is alignment enough.
                rig.read(&[piece], &format!("{back} before {seam:#x}, + 512"));
            }
        }
        rig.read(
            &[Piece { offset: 77, at: SLAB - (1 << 20) + 1, len: (2 << 20) + 9 }],
            "all odd across the seam",
        );
    }
    rig.finish();
}
