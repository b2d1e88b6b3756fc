//! Reads a device for a few seconds through the engine: how fast, and whether every count of the bytes agrees.

use super::facts::Measured;
use crate::stop;
use fullbore::{
    Completion, Engine, Error, Extent, LaneStats, Mem, OpenOptions, PathSet, Region, Target, Transfer,
};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Bytes of an object, of a device and of memory that is copied to a GPU, and how many are in flight.
const OBJECT: u64 = 4 << 20;
const COPY: u64 = 16 << 20;
const IN_FLIGHT: u64 = 16;
const COPIES: u64 = 8;

/// Reads a target to host memory.
pub fn target(engine: &Engine, target: &Target, time: Duration) -> Result<Measured, String> {
    let block = u64::from(target.block_size());
    let object = OBJECT.min(target.size() / block * block);
    if object == 0 {
        return Err("it is smaller than a block: there is nothing to read".into());
    }
    let region = engine.alloc_host((object * IN_FLIGHT) as usize).map_err(text)?;
    let memory = |from: u64| Ok(region.lease(range(from, object))?.into());
    run(engine, target, None, object, places(IN_FLIGHT, object, memory)?, time)
}

/// Copies memory to a GPU: its link, and no storage.
pub fn gpu(engine: &Engine, gpu: u32, time: Duration) -> Result<Measured, String> {
    let bytes = COPY * COPIES;
    let file = File::from(memfd_create("fullbore-doctor", MFdFlags::MFD_CLOEXEC).map_err(|e| e.to_string())?);
    file.set_len(bytes).map_err(|e| e.to_string())?;
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    // The GPU's lane first: mappings that come after are registered with its driver.
    let region: Region = engine.alloc_gpu(gpu, bytes as usize).map_err(text)?;
    // For writing: a mapping for reading alone is not registered by every driver. It is memory of ours.
    let source = engine.open(name, OpenOptions::write().mapped()).map_err(text)?;
    let memory = |from: u64| Ok(region.range(range(from, COPY))?.into());
    run(engine, &source, Some(gpu), COPY, places(COPIES, COPY, memory)?, time)
}

fn range(from: u64, len: u64) -> std::ops::Range<usize> {
    from as usize..(from + len) as usize
}

fn text(error: Error) -> String {
    error.to_string()
}

fn places(count: u64, len: u64, memory: impl Fn(u64) -> Result<Mem, Error>) -> Result<Vec<Mem>, String> {
    (0..count).map(|number| memory(number * len)).collect::<Result<_, _>>().map_err(text)
}

/// Keeps all places busy until the time is over, then drains.
fn run(
    engine: &Engine,
    target: &Target,
    gpu: Option<u32>,
    object: u64,
    places: Vec<Mem>,
    time: Duration,
) -> Result<Measured, String> {
    let client = engine.client().map_err(text)?;
    let (before, began) = (lanes(engine, gpu), Instant::now());
    let objects = (target.size() / object).max(1);
    let (mut next, mut paths) = (0, PathSet::default());
    let mut found = Measured::default();
    let mut start = |mem: Mem| -> Result<(), String> {
        let transfer = Transfer::read(target).extent(next % objects * object, mem);
        next += 1;
        client.submit_tagged(transfer, 0).map(drop).map_err(|rejected| rejected.error.to_string())
    };
    let mut under_way = places.len();
    places.into_iter().try_for_each(&mut start)?;
    let mut done: Vec<Completion> = Vec::new();
    while under_way > 0 {
        client.wait(1, &mut done, None).map_err(text)?;
        for completion in done.drain(..) {
            under_way -= 1;
            completion.result.map_err(text)?;
            found.bytes += completion.bytes;
            found.asked += object;
            paths = paths.union(completion.paths);
            if began.elapsed() < time && !stop::requested() {
                under_way += 1;
                let extents = completion.transfer.into_iter().flat_map(Transfer::into_extents);
                extents.map(Extent::into_mem).try_for_each(&mut start)?;
            }
        }
    }
    found.seconds = began.elapsed().as_secs_f64();
    for (number, lane) in lanes(engine, gpu).iter().enumerate() {
        let moved = lane.bytes - before.get(number).map_or(0, |before| before.bytes);
        found.counted += moved;
        found.most_in_flight += if moved > 0 { lane.max_in_flight } else { 0 };
    }
    found.paths = paths.to_string();
    Ok(found)
}

/// The lanes whose bytes count: of a GPU its own, else all that serve none. Lanes only come, at the end.
fn lanes(engine: &Engine, gpu: Option<u32>) -> Vec<LaneStats> {
    let mut lanes = engine.stats().lanes;
    lanes.retain(|lane| match (gpu, lane.drive.as_deref()) {
        (Some(gpu), name) => name == Some(&format!("gpu {gpu}")),
        (None, name) => name.is_none_or(|name| !name.starts_with("gpu ")),
    });
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over the null queue nothing moves, and the counts of completions and lanes agree all the same.
    #[test]
    fn what_was_asked_completed_and_counted_agrees() {
        let engine = Engine::builder().null().lanes(1).build().unwrap();
        let target = engine.open_null(9 << 20).unwrap();
        let found = super::target(&engine, &target, Duration::from_millis(50)).unwrap();
        assert!(found.agrees(), "{found:?}");
        assert!(found.asked >= IN_FLIGHT * OBJECT && found.paths == "null", "{found:?}");
        let wrong = Measured { counted: found.counted - 1, ..found };
        assert!(!wrong.agrees() && !Measured::default().agrees());
    }
}
