//! Statistics, as a struct and as JSON.

use super::border::{call, count, get};
use super::engine::fullbore_engine;
use super::error::Failure;
use super::sized::write;
use super::stats_json::json;
use super::types::fullbore_stats;
use crate::api::{LaneStats, Stats};
use std::ffi::{c_char, c_int};

/// What an engine counted since it was made. `stats->size` is set before. Any thread.
///
/// 0, -EINVAL, -ECHILD.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_stats_get(
    engine: *const fullbore_engine,
    stats: *mut fullbore_stats,
) -> c_int {
    // SAFETY: NULL or alive, and NULL or as long as its size says.
    call(|| unsafe { write(stats, || Ok(summed(&counted(engine)?))) })
}

/// The same as JSON, of each lane by itself: an object in UTF-8 that ends in a NUL. As much of it as `room` bytes hold is
/// written to `text` (NULL: nothing). Any thread.
///
/// "active", "quarantined_bytes", "clone_buffers" and "memlock_bytes" are as in `fullbore_stats`, and "lanes" has an object
/// for each lane: what it "serves" (null: files), its "queue", "depth", "cpus", "ring_flags", "alive", "stalled", the counts
/// of `fullbore_stats`, "bytes_by_path", "occupancy" (how many enters left 0, 1, ... commands in flight) and "command_ns"
/// ("count", "p50", "p99", "max"). Keys may come, and none goes while FULLBORE_ABI is 1.
///
/// Bytes that all of it takes, without the NUL: it was cut if that is not less than `room`. -EINVAL, -ECHILD.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_stats_json(
    engine: *const fullbore_engine,
    text: *mut c_char,
    room: usize,
) -> i64 {
    count(|| {
        // SAFETY: NULL, or alive.
        let made = json(&unsafe { counted(engine)? });
        if !text.is_null() && room > 0 {
            let fits = made.len().min(room - 1);
            // SAFETY: `room` bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(made.as_ptr(), text.cast(), fits);
                text.add(fits).write(0);
            }
        }
        Ok(made.len())
    })
}

/// # Safety
/// `engine` is NULL or alive.
unsafe fn counted(engine: *const fullbore_engine) -> Result<Stats, Failure> {
    // SAFETY: passed on to the caller.
    let engine = &unsafe { get(engine, "engine")? }.engine;
    engine.check_fork()?;
    Ok(engine.stats())
}

fn summed(stats: &Stats) -> fullbore_stats {
    let sum = |of: fn(&LaneStats) -> u64| stats.lanes.iter().map(of).sum();
    let some = |of: fn(&LaneStats) -> bool| stats.lanes.iter().filter(|lane| of(lane)).count() as u32;
    fullbore_stats {
        size: 0,
        lanes: stats.lanes.len() as u32,
        lanes_stalled: some(|lane| lane.stalled),
        lanes_dead: some(|lane| !lane.alive),
        kernel_workers: sum(|lane| lane.kernel_workers as u64) as u32,
        clone_buffers: u32::from(stats.clone_buffers),
        active: stats.active as u64,
        quarantined_bytes: stats.quarantined_bytes,
        memlock_bytes: stats.memlock_bytes,
        commands: sum(|lane| lane.commands),
        bytes: sum(|lane| lane.bytes),
        enters: sum(|lane| lane.enters),
        waits: sum(|lane| lane.waits),
        retries: sum(|lane| lane.retries),
        shorts: sum(|lane| lane.shorts),
        stale: sum(|lane| lane.stale),
        in_flight: sum(|lane| lane.in_flight),
        max_in_flight: sum(|lane| lane.max_in_flight),
        reserved: [0; 8],
    }
}
