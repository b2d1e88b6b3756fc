//! Where bytes lie when a schedule's targets are stripes, and which lanes serve them.

use super::plan::Plan;
use super::world::{CACHED, DISK, READ, TARGETS, WRITTEN, World};
use crate::lane::{Handle, Share, Stop};
use crate::plan::{PARTS, UnitCursor};
use crate::queue::sim::{Command, Disk, Rng};
use crate::target::{Kind, Op, TargetInner, stripe};
use std::sync::Arc;

/// Lanes by group: first all of them, as they serve files; then, if members are apart, those of each drive.
pub fn groups(plan: &Plan) -> Vec<Vec<usize>> {
    let mut groups = vec![(0..plan.lanes).collect()];
    if plan.apart && plan.members > 1 {
        let drives = plan.members.min(plan.lanes);
        let of = |drive| (0..plan.lanes).filter(|lane| lane % drives == drive).collect();
        groups.extend((0..drives).map(of));
    }
    groups
}

fn group_of(plan: &Plan, member: usize) -> usize {
    if plan.apart && plan.members > 1 { 1 + member % plan.members.min(plan.lanes) } else { 0 }
}

fn members(plan: &Plan, target: usize) -> usize {
    if target == CACHED { 1 } else { plan.members }
}

/// Bytes of each member that the engine knows of.
fn member_size(plan: &Plan, target: usize) -> u64 {
    (DISK / members(plan, target) as u64).next_multiple_of(4096)
}

/// All disks: member `m` of target `t` is `t + TARGETS * m`.
pub fn disks(plan: &Plan, rng: &mut Rng) -> Vec<Disk> {
    let block = plan.block as u64;
    let disk = |slot: usize| {
        let size = member_size(plan, slot % TARGETS);
        let disk = match slot % TARGETS {
            // It ends before the engine believes it does, and not on a block.
            READ => Disk::full(slot as u32, block, size - rng.below((16 << 10) / plan.members as u64)),
            WRITTEN => Disk::blank(block, size),
            _ => return Disk::full(slot as u32, 1, size),
        };
        Disk { passthrough: plan.passthrough, ..disk }
    };
    (0..TARGETS * plan.members).map(disk).collect()
}

/// The targets over them.
pub fn targets(plan: &Plan) -> Vec<Arc<TargetInner>> {
    (0..TARGETS).map(|number| Arc::new(target(plan, number))).collect()
}

fn target(plan: &Plan, number: usize) -> TargetInner {
    let direct = number != CACHED;
    let simple = |member: usize| {
        let (slot, size) = ((number + TARGETS * member) as u32, member_size(plan, number));
        let mut target = TargetInner::simulated(slot, plan.geometry(direct), direct, size);
        if direct && plan.passthrough {
            target.kind = Kind::Nvme;
        }
        let group = if direct { group_of(plan, member) } else { 0 };
        target.groups.set(vec![group]).expect("set once");
        target
    };
    if members(plan, number) == 1 {
        return simple(0);
    }
    let all = (0..plan.members).map(|member| Arc::new(simple(member))).collect();
    let mut target = stripe(all, 4096, 0).expect("members are alike");
    // Chunks may be smaller here than an engine takes, so that small transfers have several parts.
    target.striped.as_mut().expect("a stripe").stripe.size = plan.chunk;
    target
}

impl World {
    /// Where byte `at` of a target lies: on which disk, and where there. Chunks go to the members in turn.
    pub fn place(&self, target: usize, at: u64) -> (usize, u64) {
        let (members, chunk) = (members(&self.plan, target) as u64, self.plan.chunk);
        let (number, within) = (at / chunk, at % chunk);
        (target + TARGETS * (number % members) as usize, number / members * chunk + within)
    }

    /// A command as it would be on the whole target.
    pub fn laid(&self, target: usize, command: &Command) -> Command {
        assert_eq!(command.disk % TARGETS, target, "a command to a disk of another target: {command:?}");
        let (members, chunk) = (members(&self.plan, target) as u64, self.plan.chunk);
        let mut laid = command.clone();
        if members > 1 {
            let (number, within) = (command.offset / chunk, command.offset % chunk);
            assert!(within + command.len <= chunk, "a command across two chunks: {command:?}");
            laid.offset = (number * members + (command.disk / TARGETS) as u64) * chunk + within;
            let shift = laid.offset - command.offset;
            laid.answers.iter_mut().for_each(|(offset, _)| *offset += shift);
            let group = &self.groups[group_of(&self.plan, command.disk / TARGETS)];
            let served = group.contains(&command.port) || command.op == Op::Flush;
            assert!(served, "lane {} does not serve that member: {command:?}", command.port);
        }
        laid
    }

    /// The disks of a target.
    pub fn disks_of(&self, target: usize) -> impl Iterator<Item = usize> {
        (0..members(&self.plan, target)).map(move |member| target + TARGETS * member)
    }

    /// See `Shared::deal`, which this follows.
    pub fn deal(&self, rng: &mut Rng, handle: Handle, target: &TargetInner, job: Dealt) {
        for part in (0..target.parts()).filter(|part| job.units[*part] > 0) {
            let cursor = UnitCursor::over(target.part(part), self.plan.unit, target.geometry.block);
            // The engine leaves each lane its part: any number may be that.
            let shallow = 1 + rng.below(u64::from(self.plan.depth as u32)) as u32;
            let depth = rng.pick(&[shallow, u32::MAX]);
            let most = 1 + rng.below(u64::from(job.units[part])) as u32;
            let (class, deadline) = (job.class, job.deadline);
            let share = Share {
                handle,
                class,
                part: part as u8,
                deadline,
                cursor,
                most,
                in_hand: 0,
                target: 0,
                depth,
            };
            let group = target.groups.get().map_or(0, |groups| groups[part]);
            if self.deal_part(rng, share, group, job.units[part] as usize) == 0 {
                self.core.stop(handle, Stop::LaneFailed);
            }
        }
    }

    /// See `Shared::deal_part`.
    fn deal_part(&self, rng: &mut Rng, share: Share, group: usize, units: usize) -> usize {
        let (mut dealt, mut dead) = (0, false);
        let group = &self.groups[group];
        let lanes = group.len();
        let near = if units < lanes { rng.below(lanes as u64) as usize } else { 0 };
        for step in 0..lanes {
            let inbox = &self.inboxes[group[(near + step) % lanes]];
            let taken = inbox.deal(share, |share| self.core.claimable(share));
            dealt += taken as usize;
            dead |= !taken;
            if dealt == units {
                break;
            }
        }
        if dead {
            let dead = (0..self.plan.lanes).filter(|lane| self.ended(*lane));
            dead.flat_map(|lane| self.inboxes[lane].bury()).for_each(|h| self.core.stop(h, Stop::LaneFailed));
        }
        dealt
    }
}

/// What a transfer is dealt with.
pub struct Dealt {
    pub class: u8,
    pub deadline: u64,
    pub units: [u32; PARTS],
}
