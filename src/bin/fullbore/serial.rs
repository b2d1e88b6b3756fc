//! The serial arm: a plain loop on the calling thread, a command, wait, the next.

use std::collections::BTreeMap;
use std::time::Instant;

use fullbore::Mem;

use crate::args::Plan;
use crate::arm::{Outcome, op};
use crate::direct::{Op, Plain, serial_object};
use crate::failure::Failure;
use crate::pool::Part;
use crate::progress::Progress;
use crate::stop;
use crate::units::human;
use crate::work::{Clocks, Feed, Latency};

/// Runs the arm. `load` moves one object: through which of so many slots, and at which offset of the file.
pub fn run(
    plan: &Plan,
    slots: usize,
    feed: &Feed,
    mut load: impl FnMut(usize, u64) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let progress = Progress::new("serial", feed.total().map(|objects| objects * plan.bs));
    let mut latency = Latency::new()?;
    let mut bytes = 0;
    let mut slot = 0;
    let clocks = Clocks::start()?;
    while let Some(index) = feed.take() {
        let start = Instant::now();
        load(slot, feed.offset(index, 0))?;
        latency.record(start.elapsed());
        progress.add(plan.bs);
        bytes += plan.bs;
        slot = (slot + 1) % slots;
    }
    let spent = clocks.stop()?;
    stop::check()?;
    let path = if op(plan) == Op::Read { "pread direct" } else { "pwrite direct" };
    let path = if plan.mapped { path.trim_end_matches(" direct") } else { path };
    Ok(Outcome {
        bytes,
        spent,
        latency: latency.summary(),
        max_commands: 1,
        mean_commands: 1.0,
        max_objects: 1,
        path: path.into(),
        paths: BTreeMap::from([(path, bytes)]),
        ..Outcome::default()
    })
}

/// Moves an object between the file and its pieces of host memory.
pub fn object(
    plain: &Plain,
    plan: &Plan,
    (parts, mems): (&[Part], &mut [Mem]),
    offset: u64,
) -> Result<(), Failure> {
    for (part, mem) in parts.iter().zip(mems) {
        let Mem::Host(lease) = mem else { return Err(Failure::setup("the serial arm is of host memory")) };
        piece(plain, op(plan), plan, lease, offset + part.within, part.len)?;
    }
    Ok(())
}

/// Moves one piece; see [`serial_object`].
pub fn piece(
    plain: &Plain,
    op: Op,
    plan: &Plan,
    buf: &mut [u8],
    offset: u64,
    len: usize,
) -> Result<(), Failure> {
    serial_object(plain, op, plan.cmd_size as usize, buf, offset, len)
        .map_err(|error| Failure::Data(format!("serial, {} at offset {offset}: {error}", human(len as u64))))
}
