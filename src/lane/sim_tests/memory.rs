//! The memory of a schedule: regions of every kind, with guards around whatever is handed out.

use super::plan::Plan;
use super::world::{World, current};
use crate::lane::{Acks, Control, Core};
use crate::memory::{
    Mapping, Mem, Region, RegionInner, RegionRange, ReleaseError, Releaser, Slabs, TableRing, Window,
};
use crate::queue::sim::{Rng, bytes, bytes_mut};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bytes of each region.
const SIZE: usize = 96 << 10;
/// Bytes of a piece that raw transfers take memory in.
const CELL: usize = 1 << 10;
/// What lies around memory that was handed out.
const GUARD: u8 = 0xc3;
/// What a destination holds before it is read into.
pub const POISON: u8 = 0xff;

/// Regions by kind.
pub const OWNED: usize = 0;
pub const REGISTERED: usize = 1;
pub const RAW: usize = 2;
/// Not a region: memory that nobody registered.
pub const LOOSE: usize = 3;

pub struct Memory {
    regions: [RefCell<Option<Region>>; 3],
    /// Memory that the caller registered, and the loose.
    backing: Vec<Mapping>,
    /// Cells of `RAW` and `LOOSE` that are in use.
    cells: [RefCell<Vec<bool>>; 2],
    table: TableRing,
    command: u32,
    /// Dropped under leases.
    gone: RefCell<Vec<Weak<RegionInner>>>,
}

/// Memory around an extent that must stay as it is. It is leased as long as the extent's may be in use.
#[derive(Debug)]
pub struct Fence {
    windows: [Window; 2],
    _leases: Vec<RegionRange>,
    /// Which cells to give back.
    cells: Option<(usize, std::ops::Range<usize>)>,
}

impl Memory {
    pub fn new(core: &Core, plan: &Plan) -> Memory {
        let backing = (0..3).map(|_| Mapping::new(SIZE).expect("memory")).collect();
        let cells = || RefCell::new(vec![false; SIZE / CELL]);
        let memory = Memory {
            regions: Default::default(),
            backing,
            cells: [cells(), cells()],
            table: TableRing::new(false).expect("a table without clones"),
            command: plan.command,
            gone: RefCell::default(),
        };
        [OWNED, REGISTERED, RAW].into_iter().for_each(|kind| memory.make(core, kind));
        memory
    }

    /// Makes a region. The lanes are told by [`Memory::tell`].
    fn make(&self, core: &Core, kind: usize) {
        let raw = core.regions.raw_counts();
        let region = core.regions.insert(|id| match kind {
            OWNED => RegionInner::owned(id, 0, raw, Mapping::new(SIZE).expect("memory"), SIZE),
            _ => RegionInner::registered(id, 0, raw, self.backing[kind - 1].ptr(), SIZE),
        });
        let region = region.expect("there is room for a region");
        let slabs = self.table.add(&region, self.command).expect("there is room in the table");
        let _ = region.registration.set(Ok(slabs));
        *self.regions[kind].borrow_mut() = Some(Region::new(region, Arc::new(Quiet)));
    }

    /// Makes a region known to a lane.
    pub fn tell(&self, kind: usize, send: impl Fn(Control)) {
        let region = self.regions[kind].borrow();
        let inner = region.as_ref().expect("a region is made again at once").inner();
        if let Some(Ok(slabs)) = inner.registration.get() {
            send(Control::AddBuffers { id: inner.id, slabs: *slabs, acks: Acks::new(1) });
        }
    }

    /// The region that holds a window whole, and where in it.
    pub fn find(&self, window: Window) -> Option<(Arc<RegionInner>, std::ops::Range<usize>)> {
        let within = |inner: Arc<RegionInner>| {
            let from = window.addr().checked_sub(inner.base())? as usize;
            let range = from..from + window.len();
            (range.end <= inner.len()).then_some((inner, range))
        };
        let known = self.regions.iter().filter_map(|region| Some(region.borrow().as_ref()?.inner().clone()));
        let gone = self.gone.borrow();
        known.chain(gone.iter().filter_map(Weak::upgrade)).find_map(within)
    }

    /// Whether the rings let go of the region that a window lies in: it was dropped, or a lane would not release it.
    pub fn is_gone(&self, window: Window) -> bool {
        self.find(window).is_some_and(|(region, _)| region.pinned().is_none())
    }

    /// Number and registered buffers of a region.
    pub fn pinned(&self, kind: usize) -> Option<(u32, Slabs)> {
        let region = self.regions[kind].borrow();
        let inner = region.as_ref()?.inner();
        Some((inner.id, inner.pinned()?))
    }

    /// Drops the handle of the engine's own memory, whoever has leases on it, and makes another.
    pub fn drop_owned(&self, world: &World) {
        let Some(region) = self.regions[OWNED].borrow_mut().take() else { return };
        self.gone.borrow_mut().retain(|gone| gone.strong_count() > 0);
        self.gone.borrow_mut().push(Arc::downgrade(region.inner()));
        drop(region);
        self.make(&world.core, OWNED);
        world.tell_of(OWNED);
    }

    /// Leases `len` bytes with guards around, of `OWNED` or `REGISTERED`. `None`: no place was found.
    pub fn lease(&self, rng: &mut Rng, kind: usize, len: usize, skew: usize) -> Option<(Mem, Fence)> {
        let region = self.regions[kind].borrow();
        let region = region.as_ref()?;
        let (before, whole) = (256 + skew, 256 + skew + len + 32);
        for _ in 0..8 {
            let from = rng.below(((SIZE - whole) / 256) as u64) as usize * 256;
            let Ok(left) = region.range(from..from + before) else { continue };
            let Ok(right) = region.range(from + before + len..from + whole) else { continue };
            let range = from + before..from + before + len;
            let mem = match kind {
                OWNED => region.lease(range).ok().map(Mem::from),
                _ => region.range(range).ok().map(Mem::from),
            };
            let Some(mem) = mem else { continue };
            let windows = [left.window(), right.window()];
            return Some((mem, Fence::new(windows, vec![left, right], None)));
        }
        None
    }

    /// Takes `len` bytes with guards around, of `RAW` or `LOOSE`.
    pub fn cells(&self, rng: &mut Rng, kind: usize, len: usize, skew: usize) -> Option<(Window, Fence)> {
        let (before, whole) = (256 + skew, 256 + skew + len + 32);
        let count = whole.div_ceil(CELL);
        if kind == RAW && self.regions[RAW].borrow().is_none() {
            return None; // it is being released: a client that goes on with its memory is on its own
        }
        let mut used = self.cells[kind - RAW].borrow_mut();
        let from = rng.below((used.len() - count) as u64) as usize;
        let range = from..from + count;
        if used[range.clone()].contains(&true) {
            return None;
        }
        used[range.clone()].fill(true);
        let all = self.whole(kind).sub(from * CELL, count * CELL);
        let windows = [all.sub(0, before), all.sub(before + len, 32)];
        Some((all.sub(before, len), Fence::new(windows, Vec::new(), Some((kind, range)))))
    }

    fn whole(&self, kind: usize) -> Window {
        let mapping = &self.backing[kind - 1];
        crate::queue::sim::window(mapping.ptr(), mapping.len())
    }

    /// The memory that a fence stood around is free again.
    pub fn give_back(&self, fence: Fence) {
        if let Some((kind, range)) = fence.cells {
            self.cells[kind - RAW].borrow_mut()[range].fill(false);
        }
    }

    /// Tries to release a region, and makes it anew if that worked. At the end `last` it is not made anew.
    pub fn release(&self, world: &World, kind: usize, last: bool) -> Result<(), &'static str> {
        let Some(region) = self.regions[kind].borrow_mut().take() else { return Ok(()) };
        let (base, quarantined) = (region.as_ptr() as u64, {
            let count = &region.inner().quarantined;
            count.load(std::sync::atomic::Ordering::SeqCst)
        });
        let (back, why) = match region.release(Duration::ZERO) {
            Ok(()) => {
                assert_eq!(quarantined, 0, "I5: released in quarantine");
                let held = world.held_in(base..base + SIZE as u64);
                assert!(held.is_none(), "I1: released under {held:?}");
                if !last {
                    self.make(&world.core, kind);
                    world.tell_of(kind);
                }
                return Ok(());
            }
            Err(ReleaseError::Busy { region, leases, raw }) => {
                assert!(leases > 0 || raw > 0, "busy with nothing");
                let range = base..base + SIZE as u64;
                assert!(!world.abandoned_in(range), "I5: busy where it should be quarantined");
                (region, "busy")
            }
            Err(ReleaseError::Quarantined(region)) => (region, "quarantined"),
            Err(ReleaseError::Forked(region)) => (region, "forked"),
        };
        *self.regions[kind].borrow_mut() = Some(back);
        Err(why)
    }
}

impl Fence {
    fn new(
        windows: [Window; 2],
        leases: Vec<RegionRange>,
        cells: Option<(usize, std::ops::Range<usize>)>,
    ) -> Fence {
        windows.into_iter().for_each(|window| bytes_mut(window).fill(GUARD));
        Fence { windows, _leases: leases, cells }
    }

    pub fn check(&self) {
        for window in self.windows {
            assert!(bytes(window).iter().all(|byte| *byte == GUARD), "I4: a guard byte was written");
        }
    }
}

/// Takes regions out of the current world's lanes, one step after the other.
#[derive(Debug)]
struct Quiet;

impl Releaser for Quiet {
    fn release(&self, region: &Arc<RegionInner>, _within: Duration) -> bool {
        let Some(world) = current().filter(|_| !std::thread::panicking()) else { return true };
        let Some(Ok(slabs)) = region.registration.get() else { return true };
        region.unpinned.store(true, std::sync::atomic::Ordering::SeqCst);
        let acks = Acks::new(world.inboxes.len());
        for inbox in &world.inboxes {
            inbox.send(Control::DropBuffers { id: region.id, slabs: *slabs, acks: acks.clone() });
        }
        // Each lane is awake by now, or was dead: a few turns are enough.
        for _ in 0..4 {
            (0..world.inboxes.len()).for_each(|lane| {
                world.step(lane);
            });
        }
        match acks.wait(Duration::ZERO) {
            Some(Ok(())) => {}
            Some(Err(errno)) => panic!("a lane refused to let go: {errno}"),
            None => {
                assert!(world.leaked(), "I5: a living lane did not answer");
                return false;
            }
        }
        world.memory.table.reuse(slabs);
        region.dropped.store(true, std::sync::atomic::Ordering::SeqCst);
        world.core.regions.sweep();
        true
    }
}
