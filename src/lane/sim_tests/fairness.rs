//! What a class of priority is promised, with shares in its way that others have finished.

use super::memory::{OWNED, REGISTERED};
use super::plan::Plan;
use super::world::{READ, World};
use crate::lane::{Admission, Job, Priority, Share, Source, Stop, Transfer, units_of};
use crate::plan::UnitCursor;
use crate::queue::sim::{Faults, Rng};
use crate::target::Op;

/// A world in which nothing goes wrong and nobody interferes.
fn quiet() -> Plan {
    let plan = Plan::new(1, None);
    let (block, command, unit) = (64, 64, 256);
    let quiet = Plan { faults: Faults::default(), intrude: 0, entries: 40, depth: 4, room: 4, ..plan };
    Plan { block, command, unit, ..quiet }
}

impl World {
    /// Submits a read to lane 0 alone; answers its handle.
    fn read(&self, trace: u32, priority: Priority, len: usize) -> crate::lane::Handle {
        let target = self.targets[READ].clone();
        let kind = if len > 64 { REGISTERED } else { OWNED };
        let lease = self.memory.lease(&mut Rng::new(trace as u64), kind, len, 0);
        let (mem, fence) = lease.expect("memory");
        drop(fence);
        let transfer = Transfer::new(Op::Read, target.clone()).extent(0, mem);
        let source = Source::Owned(transfer);
        let job = Job { op: Op::Read, source, trace_id: trace, durable: false, mailbox: None };
        let (units, deadline) = (units_of(&job, self.plan.unit), u64::MAX);
        let admission = Admission { units, deadline, submitted: 0, tag: 0 };
        let handle = self.core.table.activate(job, admission).expect("an entry");
        let cursor = UnitCursor::new(self.plan.unit, target.geometry.block);
        let share = Share { handle, class: priority as u8, deadline, cursor };
        assert!(self.inboxes[0].deal(share, |_| true));
        handle
    }

    fn commands(&self, trace: usize) -> usize {
        self.device.borrow().log[trace].len()
    }
}

#[test]
fn shares_that_others_finished_cost_a_class_no_turn() {
    let world = World::build(quiet());
    // The guards look up transfers that this test does not keep.
    world.device.borrow_mut().guard = Box::new(|_, _| {});
    world.device.borrow_mut().begun = Box::new(|_, _| {});
    for trace in 3..23 {
        let stale = world.read(trace, Priority::Low, 64);
        world.core.stop(stale, Stop::Cancelled);
    }
    let (urgent, low) = (1, 2);
    world.read(low, Priority::Low, 64);
    world.read(urgent, Priority::Urgent, 64 * 400);
    while world.commands(low as usize) == 0 {
        world.go(0);
        assert!(world.commands(urgent as usize) < 100, "a low class with work waits for ever");
    }
    let before = world.commands(urgent as usize);
    assert!(before < 16 + world.plan.depth, "{before} urgent commands went before a low one");
}
