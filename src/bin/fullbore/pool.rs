//! The memory that objects land in: host memory, or that of GPUs; each object in one piece, or scattered over many.

use std::fs;

use fullbore::{Engine, Mem, Region};

use crate::args::{ALIGN, Plan};
use crate::direct::PageBuf;
use crate::doctor;
use crate::failure::Failure;
use crate::units::human;
use crate::work::permuted;

/// A range of an item, an object or a request: an extent of its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which object of the item, from 0.
    pub object: u64,
    /// Where in that object it begins.
    pub within: u64,
    pub len: usize,
}

/// The parts of an item: objects, or pieces of them, the last one perhaps cut short.
pub fn layout(item: u64, object: u64, piece: u64) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < item {
        let within = at % object;
        let len = piece.min(object - within).min(item - at);
        parts.push(Part { object: at / object, within, len: len as usize });
        at += len;
    }
    parts
}

fn too_large(plan: &Plan, slots: usize) -> Failure {
    // Of a KV cache sizes follow from the model.
    let lower = match (&plan.kv, &plan.requests) {
        (Some(_), _) => "--inflight or --tokens",
        (None, Some(_)) => "--inflight or --request_size",
        (None, None) => "--iodepth or --bs",
    };
    let (what, item, free) = (plan.in_flight(), human(plan.item()), human(available()));
    Failure::Setup(format!(
        "a pool of {slots} {what} of {item} does not fit in the {free} of memory at hand: lower {lower}"
    ))
}

/// Room for a number of items, dealt over the GPUs in turn.
pub struct Pool {
    /// One of the host, or one of each GPU.
    regions: Vec<Region>,
    on_gpu: bool,
    item: usize,
    /// Bytes from one item of a region to its next: items start on a page.
    stride: usize,
    scatter: Option<usize>,
    /// Items of each region.
    each: usize,
    slots: usize,
}

impl Pool {
    pub fn new(engine: &Engine, plan: &Plan, slots: usize) -> Result<Self, Failure> {
        let gpus = &plan.memory.gpus;
        let each = slots.div_ceil(gpus.len().max(1));
        let item = plan.item() as usize;
        let stride = plan.item().next_multiple_of(ALIGN) as usize;
        // One object more, for the odd end of the file and the guard behind it.
        let bytes = stride.checked_mul(each).and_then(|bytes| bytes.checked_add(odd_room(plan)));
        let fits = |bytes: &usize| plan.memory.on_gpu() || *bytes as u64 <= available();
        let bytes = bytes.filter(fits).ok_or_else(|| too_large(plan, slots))?;
        let mut regions = Vec::new();
        for &gpu in gpus {
            regions.push(engine.alloc_gpu(gpu, bytes).map_err(Failure::setup)?);
        }
        if gpus.is_empty() {
            regions.push(engine.alloc_host(bytes).map_err(Failure::setup)?);
        }
        let scatter = plan.memory.scatter.map(|piece| piece as usize);
        Ok(Self { regions, on_gpu: plan.memory.on_gpu(), item, stride, scatter, each, slots })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn footprint(&self, slots: usize) -> u64 {
        (slots * self.stride) as u64
    }

    /// One of the regions: they all have the same path to the target.
    pub fn region(&self) -> &Region {
        &self.regions[0]
    }

    /// The memory of an item, cut as `parts` say.
    pub fn item(&self, slot: usize, parts: &[Part]) -> Result<Vec<Mem>, Failure> {
        let (region, slot) = (slot % self.regions.len(), slot / self.regions.len());
        let mut mems = Vec::with_capacity(parts.len());
        let mut at = slot * self.stride;
        for (number, part) in parts.iter().enumerate() {
            let start = match self.scatter {
                None => at,
                Some(piece) => self.scattered(slot, number, piece),
            };
            mems.push(self.mem(region, start, part.len)?);
            at += part.len;
        }
        Ok(mems)
    }

    /// Where a piece lies: the pieces of all items of a region are dealt over it as cards are.
    fn scattered(&self, slot: usize, number: usize, piece: usize) -> usize {
        let an_item = self.item.div_ceil(piece);
        let all = (an_item * self.each) as u64;
        permuted((slot * an_item + number) as u64, all, 0) as usize * piece
    }

    /// A place for the odd end of the file, and the bytes behind it that nothing may touch.
    pub fn odd_end(&self, len: usize, object: u64) -> Result<(Mem, Option<Mem>), Failure> {
        let start = self.each * self.stride;
        let guard = object.next_multiple_of(ALIGN) as usize - len;
        let guard = if guard == 0 { None } else { Some(self.mem(0, start + len, guard)?) };
        Ok((self.mem(0, start, len)?, guard))
    }

    fn mem(&self, region: usize, start: usize, len: usize) -> Result<Mem, Failure> {
        let (region, range) = (&self.regions[region], start..start + len);
        match self.on_gpu {
            true => region.range(range).map(Mem::from),
            false => region.lease(range).map(Mem::from),
        }
        .map_err(Failure::setup)
    }
}

/// Bytes of a region for the odd end of the file; requests have none.
fn odd_room(plan: &Plan) -> usize {
    if plan.requests.is_some() { 0 } else { plan.bs.next_multiple_of(ALIGN) as usize }
}

/// Lets `fill` write the bytes of a memory; those of a GPU by way of `by`, which is as long at least.
pub fn put(mem: &mut Mem, by: &mut PageBuf, fill: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
    match mem {
        Mem::Host(lease) => fill(lease),
        Mem::Range(range) => {
            let by = &mut by[..range.len()];
            fill(by);
            range.copy_in(by).map_err(Failure::data)?;
        }
    }
    Ok(())
}

/// Lets `look` see the bytes of a memory; those of a GPU by way of `by`, which is as long at least.
pub fn see<T>(mem: &Mem, by: &mut PageBuf, look: impl FnOnce(&[u8]) -> T) -> Result<T, Failure> {
    match mem {
        Mem::Host(lease) => Ok(look(lease)),
        Mem::Range(range) => {
            let by = &mut by[..range.len()];
            range.copy_out(by).map_err(Failure::data)?;
            Ok(look(by))
        }
    }
}

/// Memory that can be had without pushing others out, in bytes.
pub fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    // Above the limit of a control group the kernel does not refuse memory: it kills.
    kib.map_or(u64::MAX, |kib| kib << 10).min(doctor::memory_limit().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_at_hand_is_known() {
        assert!(available() > 1 << 20);
    }

    #[test]
    fn an_item_is_cut_into_objects_and_pieces() {
        let part = |object, within, len| Part { object, within, len };
        assert_eq!(layout(20, 20, 20), [part(0, 0, 20)]);
        assert_eq!(layout(50, 20, 20), [part(0, 0, 20), part(1, 0, 20), part(2, 0, 10)]);
        assert_eq!(layout(15, 10, 5), [part(0, 0, 5), part(0, 5, 5), part(1, 0, 5)]);
        assert_eq!(layout(15, 10, 4).iter().map(|part| part.len).sum::<usize>(), 15);
    }

    #[test]
    fn a_pool_that_does_not_fit_names_the_keys_that_make_it_smaller() {
        let plan = crate::place_tests::scattered(64 << 10, 4 << 10);
        let why = too_large(&plan, 5).to_string();
        assert!(
            why.starts_with("a pool of 5 objects of 64 KiB") && why.ends_with("--iodepth or --bs"),
            "{why}"
        );
    }

    #[test]
    fn scattered_pieces_of_all_items_are_apart_and_out_of_order() {
        let plan = crate::place_tests::scattered(64 << 10, 4 << 10);
        let engine = Engine::builder().null().lanes(1).build().unwrap();
        let pool = Pool::new(&engine, &plan, 5).unwrap();
        let parts = layout(64 << 10, 64 << 10, 4 << 10);
        let items: Vec<Vec<Mem>> = (0..5).map(|slot| pool.item(slot, &parts).unwrap()).collect();
        let start = |mem: &Mem| match mem {
            Mem::Host(lease) => lease.start(),
            Mem::Range(range) => range.start(),
        };
        let mut starts: Vec<usize> = items.iter().flatten().map(start).collect();
        let in_order = starts.windows(2).filter(|two| two[1] == two[0] + (4 << 10)).count();
        assert!(in_order < 20, "{in_order} of 79 follow each other");
        starts.sort_unstable();
        assert!(starts.iter().copied().eq((0..80).map(|n| n * (4 << 10))));
    }
}
