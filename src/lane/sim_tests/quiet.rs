//! Single cases, in a world in which nothing goes wrong by chance and nobody interferes.

use super::memory::{OWNED, REGISTERED};
use super::plan::Plan;
use super::world::{READ, World};
use crate::error::ErrorKind;
use crate::lane::thread::Turns;
use crate::lane::{
    Acks, Admission, Control, Handle, Job, Path, Priority, Share, Source, Stop, Transfer, units_of,
};
use crate::plan::UnitCursor;
use crate::queue::sim::{Faults, Rng};
use crate::target::Op;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

fn world(entries: usize) -> Rc<World> {
    let plan = Plan { faults: Faults::default(), intrude: 0, depth: 4, room: 4, ..Plan::new(1, None) };
    let plan = Plan { members: 1, passthrough: false, ..plan };
    let world = World::build(Plan { entries, block: 64, command: 64, unit: 256, ..plan });
    // The guards look transfers up that these cases do not keep.
    world.device.borrow_mut().guard = Box::new(|_, _| {});
    world.device.borrow_mut().begun = Box::new(|_, _| {});
    world
}

impl World {
    /// Submits a read to lane 0 alone.
    fn read(&self, trace: u32, priority: Priority, len: usize) -> Handle {
        self.read_by(trace, priority, len, None)
    }

    fn read_by(&self, trace: u32, priority: Priority, len: usize, require: Option<Path>) -> Handle {
        let target = self.targets[READ].clone();
        let kind = if len > 64 && require.is_none() { REGISTERED } else { OWNED };
        let lease = self.memory.lease(&mut Rng::new(trace as u64), kind, len, 0);
        let (mem, fence) = lease.expect("memory");
        drop(fence);
        let mut transfer = Transfer::new(Op::Read, target.clone()).extent(0, mem);
        transfer.require = require;
        let source = Source::Owned(transfer);
        let job = Job { op: Op::Read, source, trace_id: trace, durable: false, mailbox: None };
        let (units, deadline) = (units_of(&job, self.plan.unit), u64::MAX);
        let admission = Admission { units, deadline, submitted: 0, tag: 0 };
        let handle = self.core.table.activate(job, admission).expect("an entry");
        let cursor = UnitCursor::new(self.plan.unit, target.geometry.block);
        let share = Share {
            handle,
            class: priority as u8,
            part: 0,
            deadline,
            cursor,
            most: u32::MAX,
            in_hand: 0,
            target: 0,
            depth: u32::MAX,
        };
        assert!(self.inboxes[0].deal(share, |share| self.core.claimable(share)));
        handle
    }

    fn commands(&self, trace: usize) -> usize {
        self.device.borrow().log[trace].len()
    }
}

#[test]
fn shares_that_others_finished_cost_a_class_no_turn() {
    let world = world(40);
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

/// Other lanes finish transfers while one is held up; the shares that it has not heard of fill its inbox.
#[test]
fn an_inbox_full_of_shares_that_others_finished_takes_the_next() {
    let world = world(4);
    for trace in 2..30 {
        let stale = world.read(trace, Priority::Normal, 64);
        world.core.stop(stale, Stop::Cancelled);
        assert!(world.core.consume(stale).is_some());
    }
    let last = world.read(1, Priority::Normal, 64);
    for _ in 0..1000 {
        world.go(0);
    }
    let completion = world.core.consume(last).expect("its share was lost");
    assert_eq!(completion.bytes, 64);
}

/// The region's handle goes while a transfer over it is under way that may go by no other path.
#[test]
fn a_demanded_path_that_is_lost_midway_fails_the_transfer_once() {
    let world = world(4);
    let handle = world.read_by(1, Priority::Normal, 64 * 40, Some(Path::Fixed));
    while world.commands(1) < 8 {
        world.go(0);
    }
    let (id, slabs) = world.memory.pinned(OWNED).expect("it is registered");
    world.inboxes[0].send(Control::DropBuffers { id, slabs, acks: Acks::new(1) });
    for _ in 0..1000 {
        world.go(0);
    }
    let completion = world.core.consume(handle).expect("it hangs");
    let error = completion.result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PathUnavailable, "{error}");
    assert!(world.core.consume(handle).is_none(), "a second completion");
    let issued = world.commands(1);
    assert!(
        issued < 40 && world.device.borrow().log[1].iter().all(|command| command.fixed),
        "{issued} issued"
    );
    assert_eq!((completion.bytes, completion.paths.0), (64 * issued as u64, Path::Fixed as u32));
    assert_eq!(error.offset(), Some(completion.bytes), "the first that was not moved");
}

/// A drain may take the whole grace. Whoever sends a message or deals a share meanwhile is answered meanwhile.
#[test]
fn a_lane_that_drains_hears_messages_and_stops_shares_as_they_come() {
    let world = world(4);
    world.device.borrow_mut().faults.never = 1000;
    let stuck = world.read(1, Priority::Normal, 64);
    while world.commands(1) == 0 {
        world.go(0);
    }
    let mut turn = world.lanes.borrow_mut()[0].take().expect("nobody steps it");
    world.device.borrow_mut().ports[0].draining = true;
    let (here, sent, answered) = (Rc::downgrade(&world), Rc::new(RefCell::new(None)), Rc::new(Cell::new(0)));
    let (brought, count) = (sent.clone(), answered.clone());
    turn.lane.queue.world = Rc::new(move |_, _| {
        let Some(world) = here.upgrade() else { return };
        let mut brought = brought.borrow_mut();
        let (acks, late): &(Arc<Acks>, Handle) = brought.get_or_insert_with(|| {
            let acks = Acks::new(1);
            world.inboxes[0].send(Control::File { slot: 0, fd: 0, acks: acks.clone() });
            (acks, world.read(2, Priority::Normal, 64))
        });
        let told = acks.wait(Duration::ZERO) == Some(Ok(())) && world.core.table.published(*late);
        count.set(count.get() + told as u32);
    });
    assert!(!turn.lane.drain(Duration::from_secs(1), Stop::LaneFailed), "a command is stuck");
    assert!(answered.get() > 50, "told in {} calls of the queue, or when all was over", answered.get());
    let (_, late) = sent.take().expect("a drain calls its queue");
    let error = world.core.consume(late).expect("its client waits for ever").result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LaneFailed);
    turn.lane.queue.world = Rc::new(|_, _| {});
    world.device.borrow_mut().revive();
    assert!(turn.lane.drain(Duration::from_secs(1), Stop::LaneFailed), "the device came to");
    assert!(world.core.consume(stuck).is_some());
}

/// Nobody hears what reaches a lane after it drained; whoever waits for it is told all the same.
#[test]
fn a_share_that_is_dealt_while_its_lane_ends_fails_its_transfer() {
    let world = world(40);
    let (drained, late) = (world.read(1, Priority::Normal, 64), Rc::new(RefCell::new(Vec::new())));
    while world.commands(1) == 0 {
        world.go(0);
    }
    let mut turn = world.lanes.borrow_mut()[0].take().expect("nobody steps it");
    let (here, there) = (Rc::downgrade(&world), late.clone());
    turn.lane.queue.world = Rc::new(move |_, _| {
        let trace = 2 + there.borrow().len() as u32;
        there.borrow_mut().extend(here.upgrade().map(|world| world.read(trace, Priority::Normal, 64)));
    });
    // The drain has heard the inbox by the time that it calls its queue last.
    world.end(0, turn, Stop::LaneFailed, true);
    assert!(world.core.consume(drained).is_some(), "what was in flight has drained");
    assert!(!late.borrow().is_empty(), "a drain calls its queue");
    for late in late.take() {
        let error = world.core.consume(late).expect("its client waits for ever").result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LaneFailed);
    }
}
