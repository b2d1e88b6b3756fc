//! An engine on one drive, objects loaded over it, and what the tracer saw of that.

use super::drives::Drive;
use super::seen::Seen;
use super::trace::Tracer;
use crate::support::load::lease_of;
use crate::support::{build, check, poison};
use fullbore::{Client, Completion, Engine, EngineBuilder, HostLease, OpenOptions, Region, Target, Transfer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// The longest that any wait of a test may take, where it expects an answer at all.
const WAIT: Duration = Duration::from_secs(60);

/// What an engine needs to load objects from a drive.
#[derive(Debug)]
pub struct Rig {
    pub drive: Drive,
    pub client: Client,
    pub region: Region,
    pub target: Target,
    pub engine: Engine,
}

/// An object to be loaded: its trace id, where it begins, its length.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub trace: u32,
    pub offset: u64,
    pub len: u64,
}

/// `count` objects of `len` bytes, one behind the other; trace ids from `first` on.
pub fn row(first: u32, count: u32, len: u64) -> Vec<Object> {
    (0..count).map(|i| Object { trace: first + i, offset: u64::from(i) * len, len }).collect()
}

impl Rig {
    /// `bytes` of memory, and a drive that is opened for reading.
    pub fn new(drive: &Drive, builder: EngineBuilder, bytes: u64) -> Rig {
        Rig::with(drive, builder, bytes, OpenOptions::read())
    }

    pub fn with(drive: &Drive, builder: EngineBuilder, bytes: u64, options: OpenOptions) -> Rig {
        let engine = build(builder);
        let target = engine.open(&drive.node, options).unwrap_or_else(|e| panic!("{}: {e}", drive.name));
        let region = engine.alloc_host(bytes as usize).expect("memory");
        let client = engine.client().expect("a client");
        Rig { drive: drive.clone(), client, region, target, engine }
    }

    /// Loads all objects at once, each into memory of its own, and checks every byte.
    #[track_caller]
    pub fn load(&self, objects: &[Object]) -> Vec<Loaded> {
        let mut from = 0;
        let mut leases = objects.iter().map(|object| {
            let mut lease = self.region.lease(from..from + object.len as usize).expect("room for it");
            from += object.len as usize;
            poison(&mut lease);
            lease
        });
        let leases: Vec<_> = leases.by_ref().collect();
        let tickets: Vec<_> =
            objects.iter().zip(leases).map(|(object, lease)| self.submit(object, lease)).collect();
        objects.iter().zip(tickets).map(|(object, ticket)| self.loaded(object, ticket)).collect()
    }

    fn submit(&self, object: &Object, lease: HostLease) -> fullbore::Ticket {
        let transfer = Transfer::read(&self.target).extent(object.offset, lease).trace_id(object.trace);
        self.client.submit(transfer).expect("room for a transfer")
    }

    #[track_caller]
    fn loaded(&self, object: &Object, mut ticket: fullbore::Ticket) -> Loaded {
        let done = ticket.wait_timeout(WAIT).expect("a completion in time");
        done.result.as_ref().unwrap_or_else(|e| panic!("object {}: {e}", object.trace));
        assert_eq!(done.bytes, object.len, "object {}", object.trace);
        let (paths, took) = (done.paths.to_string(), done.times.total);
        let lease = lease_of(done);
        if self.drive.is_null() {
            assert!(lease.iter().all(|byte| *byte == 0), "object {}: poison", object.trace);
        } else {
            check(&lease, object.offset, self.drive.seed(), "an object");
        }
        Loaded { paths, took }
    }

    /// Loads objects; with it, the commands that the tracer saw on this drive meanwhile.
    #[track_caller]
    pub fn traced(&self, objects: &[Object]) -> (Vec<Loaded>, Vec<Seen>) {
        let tracer = Tracer::start();
        let loaded = self.load(objects);
        (loaded, on(tracer.stop().commands, &self.drive))
    }

    /// One read, whatever becomes of it.
    pub fn read(&self, offset: u64, len: u64) -> Completion {
        let lease = self.region.lease(0..len as usize).expect("room for it");
        let ticket =
            self.client.submit(Transfer::read(&self.target).extent(offset, lease)).expect("accepted");
        let mut ticket = ticket;
        ticket.wait_timeout(WAIT).expect("a completion in time")
    }

    /// Most in flight that the engine itself counted, over the lanes that had work.
    pub fn most_in_flight(&self) -> u64 {
        self.engine.stats().lanes.iter().map(|lane| lane.max_in_flight).sum()
    }
}

/// The path of an aligned load into registered memory. In 6.1 passthrough into a registered buffer is broken (FACTS §4):
/// the library steps down and says so.
pub fn best_path() -> &'static str {
    if old_kernel() { "uring-cmd" } else { "uring-cmd fixed" }
}

pub fn old_kernel() -> bool {
    std::env::var("FULLBORE_VM").is_ok_and(|kernel| kernel == "6.1")
}

/// How an object was loaded.
#[derive(Debug)]
pub struct Loaded {
    pub paths: String,
    pub took: Duration,
}

/// Those on one drive, each joined to what was submitted.
#[track_caller]
pub fn on(commands: Vec<Seen>, drive: &Drive) -> Vec<Seen> {
    let (of_it, _): (Vec<_>, Vec<_>) = commands.into_iter().partition(|command| command.disk == drive.disk);
    let strangers: Vec<_> = of_it.iter().filter(|command| command.user_data.is_none()).collect();
    assert!(strangers.is_empty(), "commands that nobody submitted by io_uring: {strangers:?}");
    of_it
}

/// What has to be seen once: the machine is emulated on CPUs that others use too, which can only hold an engine up.
/// `look` answers what was seen instead.
#[track_caller]
pub fn seen_once(mut look: impl FnMut() -> Result<(), String>) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        match look() {
            Ok(()) => return,
            Err(other) => seen.push(other),
        }
    }
    panic!("not once in three times: {seen:?}");
}

/// Runs `body`; with it, how long the machine stood still meanwhile: sleeps that took much too long, added up.
pub fn with_lateness<T>(body: impl FnOnce() -> T) -> (T, Duration) {
    const NAP: Duration = Duration::from_millis(10);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut late = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(NAP);
                let took = began.elapsed();
                late += if took > 5 * NAP { took } else { Duration::ZERO };
            }
            late
        });
        let out = body();
        over.store(true, Ordering::Relaxed);
        (out, watch.join().expect("it only sleeps"))
    })
}
