//! What the library is to offer and does not yet, by the names that are agreed on: one place to change when it does.

use fullbore::{Engine, EngineBuilder, Error, LaneStats, OpenOptions, Target};

/// Prints why a test waits.
fn waits<T>(what: &str) -> Option<T> {
    println!("skipped: this library has no {what} yet");
    None
}

/// `engine.stripe(targets, stripe_bytes)`.
pub fn stripe(_: &Engine, _: &[Target], _: u64) -> Option<Result<Target, Error>> {
    waits("stripes")
}

/// `builder.lanes(Lanes::PerQueue)`.
pub fn per_queue(_: EngineBuilder) -> Option<EngineBuilder> {
    waits("lanes per hardware queue")
}

/// `options.polled()`.
pub fn polled(_: OpenOptions) -> Option<OpenOptions> {
    waits("polled lanes")
}

/// `lane.queue`, and `lane.drive` is there.
pub fn queue_of(_: &LaneStats) -> Option<u32> {
    waits("hardware queue in a lane's statistics")
}

/// `lane.kernel_workers`.
pub fn kernel_workers(_: &LaneStats) -> u64 {
    0
}

/// `error.nvme_status()`.
pub fn nvme_status(_: &Error) -> Option<u16> {
    waits("NVMe status in errors")
}
