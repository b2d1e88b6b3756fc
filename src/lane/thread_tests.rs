//! A lane that panics, or whose ring breaks, on threads as they are in an engine: every transfer gets one completion,
//! every message its answer, and other lanes go on.

use super::over;
use super::{LaneSpec, LaneThread, QueueKind, run};
use crate::error::ErrorKind;
use crate::lane::bell::Bell;
use crate::lane::{
    Acks, Admission, Clock, Control, Core, Inbox, Job, LaneOptions, Mailbox, Share, Source, Stop, Transfer,
    units_of,
};
use crate::memory::{Mapping, Region, RegionInner, Regions, Releaser, Slabs, TableRing};
use crate::plan::UnitCursor;
use crate::queue::{Answer, Local, Queue, Wait};
use crate::target::{Op, Request, TargetInner, open_null};
use crate::topology::CpuSet;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const UNIT: usize = 64 << 10;
const COMMAND: u32 = 16 << 10;
/// Transfers under way at most.
const ROOM: usize = 64;
/// Of each transfer, in units: dealt to both lanes, as an engine does.
const UNITS: usize = 4;
/// Of a lane that cannot drain.
const GRACE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(10);

/// What goes wrong, once or from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    PanicInPush,
    PanicInEnter,
    PanicInReap,
    /// From then on, as when the ring's descriptor is gone.
    EnterFails(i32),
    PanicAlways,
}

/// The null queue, but answers come one enter late, so that commands are in flight when the fault comes.
struct Faulty {
    queue: Local,
    fault: Fault,
    /// Enters with commands in flight until the fault.
    left: u32,
    /// Accepted, to be answered by the next enter.
    late: Vec<Answer>,
    ready: Vec<Answer>,
}

impl Faulty {
    /// Whether the fault comes here and now.
    fn strikes(&mut self, here: Fault) -> bool {
        let strikes = self.fault == here && self.left == 0;
        if strikes && !matches!(here, Fault::EnterFails(_) | Fault::PanicAlways) {
            self.left = u32::MAX; // once
        }
        strikes
    }
}

impl Queue for Faulty {
    fn room(&self) -> usize {
        self.queue.room().saturating_sub(self.late.len() + self.ready.len())
    }

    fn push(&mut self, request: &Request) -> bool {
        assert!(!self.strikes(Fault::PanicInPush), "a fault of the test's");
        self.queue.push(request)
    }

    fn enter(&mut self, wait: Wait) -> Result<u32, i32> {
        if !self.late.is_empty() && self.left != u32::MAX {
            self.left = self.left.saturating_sub(1);
        }
        assert!(!self.strikes(Fault::PanicAlways), "a fault of the test's");
        assert!(!self.strikes(Fault::PanicInEnter), "a fault of the test's");
        if let Fault::EnterFails(errno) = self.fault
            && self.strikes(self.fault)
        {
            return Err(errno);
        }
        let wait = if self.late.is_empty() { wait } else { Wait::No };
        self.ready.append(&mut self.late);
        let accepted = self.queue.enter(wait);
        self.queue.reap(&mut self.late);
        accepted
    }

    fn ready(&self) -> bool {
        !self.ready.is_empty()
    }

    fn reap(&mut self, answers: &mut Vec<Answer>) {
        assert!(!self.strikes(Fault::PanicInReap), "a fault of the test's");
        answers.append(&mut self.ready);
    }

    fn set_file(&mut self, _slot: u32, _fd: Option<RawFd>) -> io::Result<()> {
        Ok(())
    }

    fn add_buffers(&mut self, _slabs: &Slabs) -> io::Result<()> {
        Ok(())
    }

    fn drop_buffers(&mut self, _slabs: &Slabs) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "faulty".into()
    }
}

/// No rings to take a region out of.
#[derive(Debug)]
struct Quiet;

impl Releaser for Quiet {
    fn release(&self, _region: &Arc<RegionInner>, _within: Duration) -> bool {
        true
    }
}

/// Two lanes, of which the first is going to fail, and a client.
struct World {
    core: Arc<Core>,
    faulty: Arc<Inbox>,
    thread: std::thread::JoinHandle<()>,
    healthy: LaneThread,
    target: Arc<TargetInner>,
    region: Region,
    mailbox: Arc<Mailbox>,
    submitted: u64,
    place: usize,
    /// By tag: how it ended.
    ended: Vec<Option<Result<(), ErrorKind>>>,
}

impl World {
    fn new(fault: Fault, grace: Duration) -> World {
        let core = Arc::new(Core::new(ROOM, Arc::new(Regions::default()), Clock::Real(Instant::now())));
        let options = LaneOptions { depth: 8, command_size: COMMAND, first_generation: 0, spread: true };
        let cpus = CpuSet::of_process().expect("CPUs");
        let spec = |number| LaneSpec {
            number,
            kind: QueueKind::Local { work: crate::queue::NOTHING },
            options,
            cpus: cpus.clone(),
            grace,
        };
        let faulty = Arc::new(Inbox::new(ROOM, options.depth, Bell::new().expect("a bell")));
        let bell = faulty.bell.fd().expect("a descriptor").try_clone_to_owned().expect("a descriptor");
        let queue = Local::new(options.depth, crate::queue::NOTHING, bell);
        let queue = Faulty { queue, fault, left: 5, late: Vec::new(), ready: Vec::new() };
        let (shared, inbox, spec_0) = (core.clone(), faulty.clone(), spec(0));
        let thread = std::thread::spawn(move || {
            let lane = over(shared, inbox, spec_0.options, Ok(queue));
            run(lane, String::new(), (0, spec_0.grace), channel().0);
        });
        let healthy = LaneThread::start(&core, spec(1)).expect("a lane");
        let size = ROOM * UNITS * UNIT;
        let raw = core.regions.raw_counts();
        let owned = |id| RegionInner::owned(id, 0, raw, Mapping::new(size).expect("memory"), size);
        let region = Region::new(core.regions.insert(owned).expect("a region"), Arc::new(Quiet));
        let target = Arc::new(open_null(size as u64, 0, COMMAND).expect("a target"));
        let mailbox = Arc::new(Mailbox::new(ROOM));
        World {
            core,
            faulty,
            thread,
            healthy,
            target,
            region,
            mailbox,
            submitted: 0,
            place: 0,
            ended: Vec::new(),
        }
    }

    /// Submits a transfer, dealt as an engine would: to `lanes`, or to those of them that live.
    fn submit(&mut self, lanes: &[&Arc<Inbox>], deadline: u64) -> bool {
        // Abandoned transfers keep their memory: their places are passed over.
        self.place = (self.place + 1) % ROOM;
        let place = self.place;
        let units = if lanes.len() == 1 { 1 } else { UNITS };
        let from = place * UNITS * UNIT;
        let Ok(lease) = self.region.lease(from..from + units * UNIT) else { return false };
        let transfer = Transfer::new(Op::Read, self.target.clone()).extent(from as u64, lease);
        let (source, mailbox) = (Source::Owned(transfer), Some(self.mailbox.clone()));
        let job = Job { op: Op::Read, source, trace_id: 0, durable: false, mailbox };
        let units = units_of(&job, UNIT as u64);
        let admission = Admission { units, deadline, submitted: self.core.clock.now(), tag: self.submitted };
        let Ok(handle) = self.core.table.activate(job, admission) else { return false };
        let cursor = UnitCursor::new(UNIT as u64, self.target.geometry.block);
        let share =
            Share { handle, class: 0, part: 0, deadline, cursor, most: 2, in_hand: 0, target: 0, depth: 64 };
        let dealt = lanes.iter().filter(|lane| lane.deal(share, |share| self.core.claimable(share))).count();
        if dealt < lanes.len() {
            let dead = lanes.iter().filter(|lane| !lane.moves());
            dead.flat_map(|lane| lane.bury()).for_each(|h| self.core.stop(h, Stop::LaneFailed));
        }
        if dealt == 0 {
            self.core.stop(handle, Stop::LaneFailed);
        }
        self.submitted += 1;
        self.ended.push(None);
        true
    }

    /// Takes what completions there are. Each transfer has one.
    fn take(&mut self) {
        while let Some(handle) = self.mailbox.take() {
            let done = self.core.consume(handle).expect("what is in the mailbox can be consumed");
            let ended = &mut self.ended[done.tag as usize];
            assert_eq!(*ended, None, "transfer {} completed twice", done.tag);
            *ended = Some(done.result.map_err(|error| error.kind()));
        }
    }

    fn take_all(&mut self) {
        let until = Instant::now() + LIMIT;
        while self.ended.iter().any(Option::is_none) {
            self.take();
            let missing = self.ended.iter().filter(|ended| ended.is_none()).count();
            assert!(Instant::now() < until, "{missing} transfers were left without a completion");
            std::thread::yield_now();
        }
    }

    fn count(&self, of: Result<(), ErrorKind>) -> usize {
        self.ended.iter().filter(|ended| **ended == Some(of)).count()
    }
}

/// Submits before, while and after the lane dies, to both lanes and to it alone. No transfer has a deadline: nobody
/// but the dying lane can end what it holds.
fn a_lane_dies(fault: Fault) -> World {
    // A lane that can drain does, however slow its machine is.
    let drains = matches!(fault, Fault::PanicInEnter | Fault::PanicInReap);
    let mut world = World::new(fault, if drains { LIMIT } else { GRACE });
    let (faulty, healthy) = (world.faulty.clone(), world.healthy.inbox.clone());
    let begin = Instant::now();
    let mut after = 0;
    while after < 20 {
        assert!(begin.elapsed() < LIMIT, "the lane does not die of {fault:?}");
        let both = world.submit(&[&faulty, &healthy], u64::MAX);
        let alone = world.submit(&[&faulty], u64::MAX);
        after += (both && alone && !faulty.alive.load(super::Ordering::SeqCst)) as u32;
        world.take();
    }
    world.take_all();

    let kinds = [Ok(()), Err(ErrorKind::LaneFailed), Err(ErrorKind::Abandoned)];
    let counts = kinds.map(|kind| world.count(kind));
    assert_eq!(counts.iter().sum::<usize>(), world.ended.len(), "{fault:?}: {:?}", world.ended);
    assert!(counts[0] > 0 && counts[1] > 0, "{fault:?}: {counts:?}");
    assert!(healthy.alive.load(super::Ordering::SeqCst), "the other lane lives");

    // The other lane goes on, alone: from here on everything succeeds.
    let from = world.ended.len();
    let begin = Instant::now();
    while world.ended.len() < from + 2 * ROOM {
        assert!(begin.elapsed() < LIMIT, "entries or memory do not come back after {fault:?}");
        world.submit(&[&faulty, &healthy], u64::MAX);
        world.take();
    }
    world.take_all();
    assert!(world.ended[from..].iter().all(|ended| *ended == Some(Ok(()))), "{fault:?}");
    world
}

/// Messages to the dead lane are answered, so that nobody who releases memory waits; what still may land in memory
/// keeps it.
fn assert_answers(world: World, drained: bool) {
    let slabs = TableRing::new(false).unwrap().add(world.region.inner(), COMMAND).unwrap();
    let ask = |message: &dyn Fn(Arc<Acks>) -> Control, limit| {
        let acks = Acks::new(1);
        world.faulty.send(message(acks.clone()));
        acks.wait(limit)
    };
    let limit = if drained { LIMIT } else { Duration::from_millis(100) };
    let dropped = ask(&|acks| Control::DropBuffers { id: 0, slabs, acks }, limit);
    assert_eq!(
        dropped,
        drained.then_some(Ok(())),
        "a ring that is gone holds nothing, one that is left behind does"
    );
    assert_eq!(ask(&|acks| Control::AddBuffers { id: 0, slabs, acks }, LIMIT), Some(Err(libc::EOWNERDEAD)));
    assert_eq!(ask(&|acks| Control::File { slot: 0, fd: 0, acks }, LIMIT), Some(Err(libc::EOWNERDEAD)));
    assert_eq!(world.core.quarantined.load(super::Ordering::SeqCst) > 0, !drained);
    let World { mut healthy, thread, .. } = world;
    thread.join().expect("the lane's thread ends in order");
    healthy.stop();
    assert!(healthy.join(LIMIT), "the other lane ends when told");
}

#[test]
fn a_panic_in_enter_fails_what_the_lane_held_and_nothing_else() {
    let world = a_lane_dies(Fault::PanicInEnter);
    assert_eq!(world.count(Err(ErrorKind::Abandoned)), 0, "everything drained");
    assert_answers(world, true);
}

#[test]
fn a_panic_in_reap_fails_what_the_lane_held_and_nothing_else() {
    let world = a_lane_dies(Fault::PanicInReap);
    assert_eq!(world.count(Err(ErrorKind::Abandoned)), 0, "everything drained");
    assert_answers(world, true);
}

/// Nobody can say what became of the command that was being pushed: its transfer, alone, is abandoned.
#[test]
fn a_panic_in_push_abandons_the_transfer_that_was_pushed() {
    let world = a_lane_dies(Fault::PanicInPush);
    assert_eq!(world.count(Err(ErrorKind::Abandoned)), 1);
    assert_answers(world, false);
}

/// What is in flight on a ring that is gone cannot be drained: abandoned, at once and not at some deadline.
#[test]
fn a_broken_ring_abandons_what_was_in_flight() {
    let world = a_lane_dies(Fault::EnterFails(libc::EBADF));
    assert!(world.count(Err(ErrorKind::Abandoned)) > 0);
    assert_answers(world, false);
}

#[test]
fn a_lane_that_panics_in_its_drain_too_abandons_what_was_in_flight() {
    let world = a_lane_dies(Fault::PanicAlways);
    assert!(world.count(Err(ErrorKind::Abandoned)) > 0);
    assert_answers(world, false);
}

/// A drain takes a while. What is dealt to the lane meanwhile, and to it alone, it fails itself: nobody need come by
/// later.
#[test]
fn what_comes_while_a_lane_drains_is_failed_at_its_end() {
    let grace = Duration::from_secs(1);
    let mut world = World::new(Fault::PanicInPush, grace); // one command never comes: it drains for all of it
    let faulty = world.faulty.clone();
    let begin = Instant::now();
    while faulty.alive.load(super::Ordering::SeqCst) {
        world.submit(&[&faulty], u64::MAX);
        world.take();
        std::thread::sleep(grace / 100);
        assert!(begin.elapsed() < LIMIT, "the lane does not die");
    }
    world.take_all();
    assert_eq!(world.count(Err(ErrorKind::Abandoned)), 1, "{:?}", world.ended);
    assert!(world.count(Err(ErrorKind::LaneFailed)) > 5, "some came while it drained: {:?}", world.ended);
    assert_answers(world, false);
}
