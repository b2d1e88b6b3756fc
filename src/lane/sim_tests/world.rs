//! A schedule's world: lanes over one device, clients, a watchdog and a clock, on one thread.

use super::client::Mail;
use super::memory::Memory;
use super::plan::{Plan, slot_bits};
use super::ride::Ride;
use super::stripes::{disks, groups, targets};
use crate::lane::bell::Bell;
use crate::lane::lane_loop::Lane;
use crate::lane::slots::Table;
use crate::lane::thread::Turns;
use crate::lane::{Acks, Clock, Control, Core, Inbox, LaneOptions, Stop, Watch, thread};
use crate::memory::Regions;
use crate::queue::Queue;
use crate::queue::sim::{Device, Fault, Port, Rng, Sim, trace_of};
use crate::target::TargetInner;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Targets, and the slots of their (first) disks: read directly, written, read through the page cache.
pub const READ: usize = 0;
pub const WRITTEN: usize = 1;
pub const CACHED: usize = 2;
/// How many targets there are; the further members of a stripe come behind.
pub const TARGETS: usize = 3;
/// What the engine believes a disk to hold.
pub const DISK: u64 = 1 << 20;
/// Most transfers of a schedule.
pub const MOST: usize = 100;

/// A lane, and what its enter answered if it sleeps in it.
pub struct Turn {
    pub lane: Lane<Sim>,
    pub asleep: Option<Result<u32, i32>>,
}

pub struct World {
    pub plan: Plan,
    pub core: Arc<Core>,
    pub inboxes: Vec<Arc<Inbox>>,
    /// `None`: it is being stepped, or has ended.
    pub lanes: RefCell<Vec<Option<Turn>>>,
    pub device: Rc<RefCell<Device>>,
    pub clock: Arc<AtomicU64>,
    pub memory: Memory,
    pub targets: Vec<Arc<TargetInner>>,
    /// Lanes by group.
    pub groups: Vec<Vec<usize>>,
    pub rides: RefCell<Vec<Ride>>,
    pub mail: RefCell<Vec<Mail>>,
    pub watch: RefCell<Watch>,
    pub next_tick: Cell<u64>,
    /// How far the written disk was given out.
    pub written: Cell<u64>,
    /// Submissions refused for want of an entry; for want of memory.
    pub busy: Cell<u64>,
    pub crowded: Cell<u64>,
    pub rng: RefCell<Rng>,
    /// Worlds within worlds.
    nested: Cell<u32>,
    pub steps: Cell<u64>,
    /// A lane broke or panicked.
    pub failed: Cell<bool>,
    /// Step and time at which each lane's present half turn began.
    pub began: Vec<Cell<(u64, u64)>>,
}

/// What a lane panics with when the schedule wants it to.
struct Deliberate;

thread_local! {
    static CURRENT: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
}

/// The world whose schedule runs on this thread.
pub fn current() -> Option<Rc<World>> {
    CURRENT.with(|current| current.borrow().upgrade())
}

impl World {
    pub fn build(plan: Plan) -> Rc<World> {
        let mut rng = Rng::new(plan.seed ^ 0x5eed);
        let clock = Arc::new(AtomicU64::new(1_000));
        let disks = disks(&plan, &mut rng);
        let device = Device::new(rng.fork(), clock.clone(), plan.faults, disks, MOST + 1);
        let mut core = Core::new(plan.entries, Arc::new(Regions::default()), Clock::Sim(clock.clone()));
        core.table = Table::new(plan.entries, plan.entry_generation);
        core.mutation = plan.mutation;
        let core = Arc::new(core);
        let rings: Vec<_> = (0..plan.lanes).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let inbox = |rings: &Arc<AtomicU64>| {
            let rings = rings.clone();
            let ring = move || {
                rings.fetch_add(1, Ordering::SeqCst);
            };
            let bell = Bell::simulated(ring);
            Arc::new(Inbox::new(plan.entries, plan.depth, bell))
        };
        let inboxes: Vec<_> = rings.iter().map(inbox).collect();
        core.add_lanes(inboxes.iter().cloned());
        let grace = Duration::from_nanos(plan.grace);
        let world = Rc::new(World {
            memory: Memory::new(&core, &plan),
            watch: RefCell::new(Watch::new(core.clone(), grace)),
            lanes: RefCell::default(),
            device: Rc::new(RefCell::new(device)),
            targets: targets(&plan),
            groups: groups(&plan),
            rides: RefCell::default(),
            mail: RefCell::new((0..3).map(|_| Mail::new(plan.entries)).collect()),
            next_tick: Cell::new(plan.tick),
            written: Cell::new(0),
            busy: Cell::new(0),
            crowded: Cell::new(0),
            rng: RefCell::new(rng),
            nested: Cell::new(0),
            steps: Cell::new(0),
            failed: Cell::new(false),
            began: (0..plan.lanes).map(|_| Cell::default()).collect(),
            plan,
            core,
            inboxes,
            clock,
        });
        CURRENT.with(|current| *current.borrow_mut() = Rc::downgrade(&world));
        world.start(&rings);
        world
    }

    /// Makes the lanes, and tells them of files and regions.
    fn start(self: &Rc<World>, rings: &[Arc<AtomicU64>]) {
        let plan = &self.plan;
        let options = LaneOptions {
            depth: plan.depth,
            command_size: plan.command,
            first_generation: plan.slot_generation,
            spread: true,
        };
        for (number, inbox) in self.inboxes.iter().enumerate() {
            let (bits, rings) = (slot_bits(plan.depth), rings[number].clone());
            let port = Port::new(plan.depth, plan.room, bits, plan.deferred, rings);
            self.device.borrow_mut().ports.push(port);
            let weak = Rc::downgrade(self);
            let world = Rc::new(move |port, pushing| {
                weak.upgrade().into_iter().for_each(|world: Rc<World>| world.intrude(port, pushing))
            });
            let queue = Sim { device: self.device.clone(), port: number, world };
            let lane =
                Lane::new(self.core.clone(), inbox.clone(), queue, options).expect("memory for scratch");
            self.lanes.borrow_mut().push(Some(Turn { lane, asleep: None }));
            let slots = 0..(TARGETS * plan.members) as u32;
            slots.for_each(|slot| inbox.send(Control::File { slot, fd: 0, acks: Acks::new(1) }));
        }
        (0..3).for_each(|kind| self.tell_of(kind));
        let weak = Rc::downgrade(self);
        self.device.borrow_mut().guard = Box::new(move |_, request| {
            weak.upgrade().into_iter().for_each(|world| world.check_held(request));
        });
        let weak = Rc::downgrade(self);
        self.device.borrow_mut().begun = Box::new(move |lane, request| {
            weak.upgrade().into_iter().for_each(|world| world.check_begun(lane, request));
        });
    }

    /// Tells every lane of a region.
    pub fn tell_of(&self, kind: usize) {
        self.memory.tell(kind, |control| {
            let Control::AddBuffers { id, slabs, .. } = control else { return };
            for inbox in &self.inboxes {
                inbox.send(Control::AddBuffers { id, slabs, acks: Acks::new(1) });
            }
        });
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn roll<R>(&self, with: impl FnOnce(&mut Rng) -> R) -> R {
        with(&mut self.rng.borrow_mut())
    }

    pub fn advance(&self, by: u64) {
        self.clock.fetch_add(by, Ordering::Relaxed);
    }

    /// A request whose memory lies in a range, pushed or with the device.
    pub fn held_in(&self, range: std::ops::Range<u64>) -> Option<String> {
        let device = self.device.borrow();
        let inside = |addr: u64| range.contains(&addr);
        let held = device.ports.iter().flat_map(Port::held).find(|request| inside(request.window.addr()));
        held.map(|request| format!("{request:?}"))
    }

    /// Whether a transfer has requests pushed or with the device.
    pub fn holds(&self, trace: usize) -> bool {
        let device = self.device.borrow();
        device.ports.iter().flat_map(Port::held).any(|request| trace_of(request) == trace)
    }

    /// Some lane ended with commands in flight.
    pub fn leaked(&self) -> bool {
        self.inboxes.iter().any(|inbox| inbox.leaked.load(Ordering::SeqCst))
    }

    pub fn ended(&self, lane: usize) -> bool {
        !self.inboxes[lane].alive.load(Ordering::SeqCst)
    }

    /// Goes on with a lane, and with time when it sleeps, looking at nothing.
    pub fn go(&self, lane: usize) {
        let Some(mut turn) = self.lanes.borrow_mut()[lane].take() else { return };
        if turn.asleep.is_some() && !self.device.borrow().ports[lane].wakes(self.now()) {
            self.advance(1_000);
        } else {
            assert_eq!(self.half(lane, &mut turn), Ok(true));
        }
        self.lanes.borrow_mut()[lane] = Some(turn);
    }

    /// Goes one half of a turn on with a lane. False: it sleeps, has ended, or is in the midst of a step.
    pub fn step(&self, lane: usize) -> bool {
        let Some(mut turn) = self.lanes.borrow_mut()[lane].take() else { return false };
        if turn.asleep.is_some() && !self.device.borrow().ports[lane].wakes(self.now()) {
            self.lanes.borrow_mut()[lane] = Some(turn);
            return false;
        }
        self.steps.set(self.steps.get() + 1);
        self.began[lane].set((self.steps.get(), self.now()));
        let nested = self.nested.get();
        let result = catch_unwind(AssertUnwindSafe(|| self.half(lane, &mut turn)));
        self.nested.set(nested);
        match result {
            Ok(Ok(true)) => self.lanes.borrow_mut()[lane] = Some(turn),
            Ok(Ok(false)) => self.end(lane, turn, Stop::Shutdown, false),
            Ok(Err(_)) => self.end(lane, turn, Stop::LaneFailed, false),
            Err(panic) => match panic.downcast::<Deliberate>() {
                Ok(_) => self.end(lane, turn, Stop::LaneFailed, true),
                Err(panic) => resume_unwind(panic),
            },
        }
        self.check();
        true
    }

    fn half(&self, port: usize, turn: &mut Turn) -> Result<bool, i32> {
        if let Some(entered) = turn.asleep.take() {
            let mut device = self.device.borrow_mut();
            device.settle(port);
            device.ports[port].asleep = None;
            drop(device);
            return turn.lane.conclude(entered).map(|()| true);
        }
        let Some(wait) = turn.lane.prepare() else { return Ok(false) };
        let entered = turn.lane.queue.enter(wait);
        if self.device.borrow().ports[port].asleep.is_some() {
            turn.asleep = Some(entered);
            return Ok(true);
        }
        turn.lane.conclude(entered).map(|()| true)
    }

    /// A lane ends as its thread would. One that panicked has a sound ring, and time enough to drain.
    pub fn end(&self, lane: usize, mut turn: Turn, reason: Stop, panicked: bool) {
        self.device.borrow_mut().ports[lane].draining = true;
        self.failed.set(self.failed.get() || reason == Stop::LaneFailed);
        self.began[lane].set((u64::MAX, u64::MAX));
        let nested = self.nested.replace(1);
        let never = std::mem::replace(&mut self.device.borrow_mut().faults.never, 0);
        let grace = if panicked { u64::MAX / 4 } else { self.plan.grace };
        if panicked {
            self.device.borrow_mut().revive();
        }
        let drained = turn.lane.drain(Duration::from_nanos(grace), reason);
        thread::part(turn.lane, drained, reason);
        self.device.borrow_mut().faults.never = never;
        self.nested.set(nested);
        let leaked = self.inboxes[lane].leaked.load(Ordering::SeqCst);
        let sound = panicked && !self.device.borrow().ports[lane].broken;
        assert!(!(sound && leaked), "I1: a lane could drain, and did not");
        if !leaked {
            let device = self.device.borrow();
            assert_eq!(
                device.ports[lane].held().count(),
                0,
                "I1: a lane's ring and scratch went with commands in it"
            );
        }
    }

    /// A message to some lane, as opening a file sends it.
    fn knock(&self) {
        let (lane, slot) = self.roll(|rng| (rng.below(self.plan.lanes as u64) as usize, rng.below(3) as u32));
        self.inboxes[lane].send(Control::File { slot, fd: 0, acks: Acks::new(1) });
    }

    /// The world moves while a lane is in the midst of a step.
    fn intrude(&self, lane: usize, pushing: bool) {
        let depth = self.nested.get();
        // A lane that ends is an occasion: what reaches it now is nobody's.
        let often = if self.began[lane].get().0 == u64::MAX { 200 } else { self.plan.intrude };
        if depth >= 2 || !self.roll(|rng| rng.chance(often)) {
            return;
        }
        self.nested.set(depth + 1);
        match self.roll(|rng| rng.below(16)) {
            0..=2 => drop(self.submit()),
            3 => self.cancel(),
            4 => self.leave(),
            5 | 6 => self.poll(),
            7 => self.advance(self.roll(|rng| rng.below(20_000))),
            8 => self.tick(),
            9 => self.knock(),
            10 if self.plan.panics && depth == 0 && !pushing && self.roll(|rng| rng.chance(100)) => {
                self.device.borrow_mut().counts.add(Fault::Broken);
                resume_unwind(Box::new(Deliberate));
            }
            _ => {
                let other = self.roll(|rng| rng.below(self.plan.lanes as u64)) as usize;
                if other != lane {
                    self.step(other);
                }
            }
        }
        self.nested.set(depth);
    }
}
