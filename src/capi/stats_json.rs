//! Statistics as JSON.

use crate::api::{LaneStats, Stats};
use serde_json::{Value, json};

/// All that was counted, of each lane.
pub fn json(stats: &Stats) -> String {
    json!({
        "active": stats.active,
        "quarantined_bytes": stats.quarantined_bytes,
        "clone_buffers": stats.clone_buffers,
        "memlock_bytes": stats.memlock_bytes,
        "lanes": stats.lanes.iter().map(lane).collect::<Vec<_>>(),
    })
    .to_string()
}

fn lane(lane: &LaneStats) -> Value {
    let paths = lane.paths.iter().map(|(path, bytes)| (path.name().to_owned(), json!(bytes)));
    json!({
        "serves": lane.drive,
        "queue": lane.queue,
        "depth": lane.depth,
        "cpus": lane.cpus,
        "ring_flags": lane.ring_flags,
        "commands": lane.commands,
        "bytes": lane.bytes,
        "bytes_by_path": Value::Object(paths.collect()),
        "kernel_workers": lane.kernel_workers,
        "enters": lane.enters,
        "waits": lane.waits,
        "retries": lane.retries,
        "shorts": lane.shorts,
        "stale": lane.stale,
        "in_flight": lane.in_flight,
        "max_in_flight": lane.max_in_flight,
        "occupancy": lane.occupancy,
        "command_ns": {
            "count": lane.latency.count(),
            "p50": lane.latency.quantile(0.5),
            "p99": lane.latency.quantile(0.99),
            "max": lane.latency.max(),
        },
        "stalled": lane.stalled,
        "alive": lane.alive,
    })
}
