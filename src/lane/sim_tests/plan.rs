//! What a seed makes of a schedule.

use super::super::Mutation;
use crate::plan::Geometry;
use crate::queue::sim::{Faults, Rng};

/// Everything about a schedule that is fixed when it begins.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub mutation: Option<Mutation>,
    pub lanes: usize,
    pub depth: usize,
    /// Requests that a lane's queue takes before an enter.
    pub room: usize,
    /// `max_transfers`.
    pub entries: usize,
    pub transfers: usize,
    pub block: u32,
    pub command: u32,
    pub unit: u64,
    /// Generations that command slots and entries begin with.
    pub slot_generation: u32,
    pub entry_generation: u32,
    /// Members of the targets that are read and written directly, 1 for no stripe; bytes of a chunk.
    pub members: usize,
    pub chunk: u64,
    /// Lanes are dealt out to the members; otherwise all lanes serve all.
    pub apart: bool,
    /// Those targets are drives behind passthrough.
    pub passthrough: bool,
    pub faults: Faults,
    /// Rings that show answers only to an enter that waits.
    pub deferred: bool,
    /// How often, of a thousand calls that a lane makes to its queue, the world moves meanwhile.
    pub intrude: u64,
    /// Transfers with a deadline that may come, of a thousand.
    pub hurried: u64,
    /// Cancels, of a thousand moves.
    pub cancel: u64,
    pub grace: u64,
    pub tick: u64,
    /// A lane's ring breaks, or a lane panics.
    pub breaks: bool,
    pub panics: bool,
    /// The engine is dropped while transfers are under way.
    pub shutdown: bool,
}

/// Bits that `depth` slots (one more under test) take in a user_data: as `Slots::new` counts them.
pub fn slot_bits(depth: usize) -> u32 {
    usize::BITS - ((depth + 1).max(2) - 1).leading_zeros()
}

impl Plan {
    pub fn new(seed: u64, mutation: Option<Mutation>) -> Plan {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let depth = rng.pick(&[1, 2, 3, 4, 6, 8, 8, 12]) as usize;
        let block = rng.pick(&[64, 64, 128, 256]);
        let command = block * rng.pick(&[1, 4, 4, 8]);
        // Slots leave the highest generation out.
        let generations = u32::MAX >> slot_bits(depth);
        let lanes = rng.within(2, 4) as usize;
        let healthy = rng.chance(850);
        Plan {
            seed,
            mutation,
            lanes,
            depth,
            room: (depth as u64 + rng.pick(&[0, 0, 1, 3])).max(1) as usize,
            entries: rng.pick(&[3, 6, 12, 24, 40]) as usize,
            // Under Miri a transfer takes some hundred times as long.
            transfers: if cfg!(miri) { 8 } else { rng.within(64, 80) as usize },
            block: block as u32,
            command: command as u32,
            unit: command * rng.pick(&[1, 2, 4]),
            slot_generation: generations - 1 - rng.below(24) as u32,
            entry_generation: u32::MAX - rng.below(6) as u32,
            members: if rng.chance(400) { rng.within(2, 3) as usize } else { 1 },
            chunk: rng.pick(&[512, 1024, 4096]),
            apart: rng.chance(750),
            passthrough: rng.chance(300),
            faults: faults(rng),
            deferred: rng.chance(500),
            intrude: rng.pick(&[0, 5, 20, 60]),
            hurried: rng.pick(&[0, 200, 600]),
            cancel: rng.pick(&[0, 10, 40]),
            grace: 1_000_000,
            tick: rng.pick(&[300_000, 700_000]),
            breaks: !healthy && rng.chance(400),
            panics: !healthy && rng.chance(400),
            shutdown: rng.chance(250),
        }
    }

    /// Of a target to be read or written directly, or of one through the page cache.
    pub fn geometry(&self, direct: bool) -> Geometry {
        let block = if direct { self.block } else { 1 };
        Geometry { block, memory_align: block, ..Geometry::unlimited(self.command) }
    }
}

/// Some schedules see none of a fault, some a few, some many.
fn faults(rng: &mut Rng) -> Faults {
    if rng.chance(60) {
        return Faults::default();
    }
    let mut often = |few: u64, many: u64| rng.pick(&[0, few, few, many]);
    Faults {
        short: often(50, 300),
        zero: often(5, 30),
        fail: often(10, 60),
        again: often(30, 450),
        slow: often(50, 200),
        never: often(5, 25),
        refuse: often(20, 200),
        fewer: often(30, 250),
        stale: often(10, 100),
    }
}
