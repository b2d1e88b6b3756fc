//! The engine under test with its target and its pool: one for the whole run, so that every arm moves
//! between the same file and the same memory.

use std::fs;
use std::time::Duration;

use fullbore::{Engine, HostLease, LaneStats, Region, Target};

use crate::args::{ALIGN, Plan};
use crate::counted;
use crate::failure::Failure;
use crate::place::Place;
use crate::units::human;

/// Objects the pool holds beyond those in flight.
const SPARE: usize = 4;
/// Far below what any device does: a transfer that waits for a full pool ahead of it is not late.
const SLOWEST: usize = 50_000_000;

pub struct Rig {
    pub engine: Engine,
    pub target: Target,
    region: Region,
    bs: usize,
    /// Objects start on a page.
    stride: usize,
    slots: usize,
}

/// Starts the engine. This comes before the file is made: where io_uring is refused, nothing is left to undo.
pub fn engine(plan: &Plan) -> Result<Engine, Failure> {
    let in_flight = plan.max_depth() * plan.jobs;
    let patience = Duration::from_secs(30 + (in_flight as u64 * plan.bs) / SLOWEST as u64);
    let builder = Engine::builder()
        .command_size(plan.cmd_size)
        .lane_depth(plan.lane_depth)
        .max_transfers(in_flight.max(1024))
        .deadline(Some(patience))
        .lanes(plan.lanes)
        .processes(plan.processes);
    builder.build().map_err(Failure::setup)
}

impl Rig {
    pub fn new(engine: Engine, plan: &Plan, place: &Place) -> Result<Self, Failure> {
        let targets = place.members.iter().map(|member| member.target(plan, &engine));
        let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
        let target = match (place.stripe, targets.pop()) {
            (None, Some(target)) => target,
            (Some(chunk), Some(last)) => {
                targets.push(last);
                engine.stripe(&targets, chunk).map_err(Failure::setup)?
            }
            (_, None) => return Err(Failure::setup("nothing to measure")),
        };
        if target.size() < place.size {
            let (plain, size) = (place.plain_name(), human(target.size()));
            return Err(Failure::Setup(format!("{}: it holds {size}, less than {plain}", place.name())));
        }
        let slots = plan.max_depth() * plan.jobs + SPARE;
        let stride = plan.bs.next_multiple_of(ALIGN) as usize;
        // One slot more, for the odd end of the file and the guard behind it.
        let bytes =
            stride.checked_mul(slots + 1).filter(|&bytes| bytes as u64 <= available()).ok_or_else(|| {
                let (slots, bs, free) = (slots + 1, human(plan.bs), human(available()));
                Failure::Setup(format!(
                    "a pool of {slots} objects of {bs} does not fit in the {free} of memory at hand: \
                 lower --iodepth or --bs"
                ))
            })?;
        let region = engine.alloc_host(bytes).map_err(Failure::setup)?;
        Ok(Self { engine, target, region, bs: plan.bs as usize, stride, slots })
    }

    /// Objects that the pool of the arms holds.
    pub fn slots(&self) -> usize {
        self.slots
    }

    pub fn footprint(&self, slots: usize) -> u64 {
        (slots * self.stride) as u64
    }

    /// The first `count` places of the pool, an object each.
    pub fn leases(&self, count: usize) -> Result<Vec<HostLease>, Failure> {
        (0..count).map(|slot| self.lease(slot * self.stride, self.bs)).collect()
    }

    /// A place for the odd end of the file, and the bytes behind it that nothing may touch.
    pub fn odd_end(&self, len: usize) -> Result<(HostLease, Option<HostLease>), Failure> {
        let start = self.slots * self.stride;
        let guard = self.stride - len;
        let guard = if guard == 0 { None } else { Some(self.lease(start + len, guard)?) };
        Ok((self.lease(start, len)?, guard))
    }

    fn lease(&self, start: usize, len: usize) -> Result<HostLease, Failure> {
        self.region.lease(start..start + len).map_err(Failure::setup)
    }

    /// What the engine has to say about its memory, if not all is as fast as it could be.
    pub fn note(&self) -> Option<&str> {
        self.region.registration_note()
    }

    /// Bytes of a command: what was asked for, or less if the drive takes less whole.
    pub fn command(&self, plan: &Plan) -> u32 {
        plan.cmd_size.min(self.target.geometry().max_bytes)
    }

    /// The path that the library says it will take, and why; the arms report what was taken.
    pub fn path(&self) -> String {
        let report = self.engine.path(&self.target, &self.region);
        format!("{} ({})", report.path, report.reason)
    }

    /// What the lanes that serve the target have counted so far.
    pub fn lanes(&self) -> Vec<LaneStats> {
        counted::of_target(self.engine.stats().lanes)
    }

    /// Threads of the kernel that work for those lanes at this moment.
    pub fn kernel_workers(&self) -> usize {
        self.lanes().iter().map(|lane| lane.kernel_workers).sum()
    }
}

/// Memory that can be had without pushing others out, in bytes.
fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_at_hand_is_known() {
        assert!(available() > 1 << 20);
    }
}
