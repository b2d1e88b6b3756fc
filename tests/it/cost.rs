//! What the engine itself costs: heap allocations, enters, CPU when idle, and what tracers see of each command.

mod traced;

use super::support::kernel::Pages;
use super::support::load::raw;
use super::support::{Folder, build, child, folders, uring};
use fullbore::{Client, Engine, Op, OpenOptions, Region, Target, Transfer};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The system's allocator, with a count of what all threads ask it for while counting is on.
struct Counting;

static COUNT: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

impl Counting {
    fn count() {
        if COUNT.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: everything is passed on to the system's allocator as it came; counting touches two atomics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Counting::count();
        // SAFETY: the caller's contract is the system's.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What all threads of the process allocate while `body` runs. In a child only: other tests allocate too.
pub(crate) fn allocations(body: impl FnOnce()) -> u64 {
    ALLOCATIONS.store(0, Ordering::SeqCst);
    COUNT.store(true, Ordering::SeqCst);
    body();
    COUNT.store(false, Ordering::SeqCst);
    ALLOCATIONS.load(Ordering::SeqCst)
}

const EXTENT: usize = 4096;
const MOST: usize = 4096;
const FLYING: usize = 4;

/// An engine and a target, with memory for some transfers of the most extents.
struct Rig {
    engine: Engine,
    target: Target,
    client: Client,
    region: Region,
    name: &'static str,
    _folder: Option<Folder>,
}

fn rigs() -> Vec<Rig> {
    let rig = |engine: Engine, target: Target, name, folder| {
        let client = engine.client().unwrap();
        let region = engine.alloc_host(FLYING * MOST * EXTENT).unwrap();
        Rig { engine, target, client, region, name, _folder: folder }
    };
    let null = build(Engine::builder().lanes(2).null());
    let nowhere = null.open_null((MOST * EXTENT) as u64).unwrap();
    let mut rigs = vec![rig(null, nowhere, "null", None)];
    for folder in folders() {
        let path = folder.file("data", (MOST * EXTENT) as u64, 1);
        let engine = build(Engine::builder().lanes(2));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        rigs.push(rig(engine, target, folder.name, Some(folder)));
    }
    rigs
}

/// Invariant I7. Three shapes, three ways to submit, over nothing and over files.
#[test]
fn a_warm_transfer_allocates_nothing() {
    if !uring() {
        return;
    }
    child("cost::a_warm_transfer_allocates_nothing", &[]).keep_capabilities().run(|| {
        let counted = allocations(|| drop(std::hint::black_box(Box::new(1))));
        assert_eq!(counted, 1, "the count counts");
        let rigs = rigs();
        // A thread makes its waker when it first sleeps; transfers may come too soon for that, warm or not.
        rigs[0].client.wait(1, &mut Vec::new(), Some(Duration::from_millis(1))).unwrap();
        for rig in rigs {
            for extents in [1, 16, MOST] {
                let rounds = if extents == MOST { 4 } else { 64 };
                for (way, count) in [
                    ("tagged", tagged(&rig, extents, rounds)),
                    ("tickets", tickets(&rig, extents, rounds)),
                    ("raw", pointers(&rig, extents, rounds)),
                ] {
                    assert_eq!(count, 0, "{rounds} {way} transfers of {extents} extents over {}", rig.name);
                }
            }
            assert_eq!(sum(&rig.engine.stats().lanes, |lane| lane.stale), 0, "over {}", rig.name);
        }
    });
}

fn transfer(rig: &Rig, extents: usize, place: usize) -> Transfer {
    let mut transfer = Transfer::read(&rig.target);
    for index in 0..extents {
        let from = (place * MOST + index) * EXTENT;
        transfer.push((index * EXTENT) as u64, rig.region.lease(from..from + EXTENT).unwrap());
    }
    transfer
}

/// Several in flight; completions give the transfers back, which are submitted again.
fn tagged(rig: &Rig, extents: usize, rounds: usize) -> u64 {
    let mut idle: Vec<_> = (0..FLYING).map(|place| transfer(rig, extents, place)).collect();
    let mut done = Vec::with_capacity(FLYING);
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            for (tag, transfer) in idle.drain(..).enumerate() {
                rig.client.submit_tagged(transfer, tag as u64).unwrap();
            }
            rig.client.wait(FLYING, &mut done, None).unwrap();
            for completion in done.drain(..) {
                completion.result.unwrap();
                idle.push(completion.transfer.unwrap());
            }
        }
    };
    run(rounds);
    allocations(|| run(rounds))
}

/// One after the other, each waited for.
fn tickets(rig: &Rig, extents: usize, rounds: usize) -> u64 {
    let mut idle = Some(transfer(rig, extents, 0));
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            let done = rig.client.submit(idle.take().unwrap()).unwrap().wait().unwrap();
            done.result.unwrap();
            idle = done.transfer;
        }
    };
    run(rounds);
    allocations(|| run(rounds))
}

/// Lists of pointers, into a region and into memory that is not registered.
fn pointers(rig: &Rig, extents: usize, rounds: usize) -> u64 {
    let pages = Pages::new(MOST * EXTENT);
    let bases = [rig.region.as_ptr(), pages.ptr().as_ptr()];
    let list = |base: &*mut u8| {
        let each = |i: usize| raw((i * EXTENT) as u64, base.wrapping_add(i * EXTENT), EXTENT);
        (0..extents).map(each).collect::<Vec<_>>()
    };
    let mut lists: Vec<_> = bases.iter().map(list).collect();
    let mut done = Vec::with_capacity(FLYING);
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            for list in &mut lists {
                // SAFETY: lists and memory stay until the completions below, and nobody touches them.
                unsafe { rig.client.submit_raw(&rig.target, Op::Read, list, 1) }.unwrap();
            }
            rig.client.wait(2, &mut done, None).unwrap();
            done.drain(..).for_each(|completion| completion.result.unwrap());
        }
    };
    run(rounds);
    allocations(|| run(rounds))
}

/// CPU time of this process, all threads, in user and kernel.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process knows its usage");
    let time =
        |t: TimeVal| Duration::from_secs(t.tv_sec() as u64) + Duration::from_micros(t.tv_usec() as u64);
    time(usage.user_time()) + time(usage.system_time())
}

/// How often the lanes, and the watchdogs, of this process went to sleep; and how many watchdogs there are.
fn sleeps() -> (u64, u64, usize) {
    let (mut lanes, mut watchdogs, mut count) = (0, 0, 0);
    for task in std::fs::read_dir("/proc/self/task").expect("threads").flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let value = |name| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
        let often = value("voluntary_ctxt_switches:").parse().unwrap_or(0);
        match value("Name:").strip_prefix("fullbore-") {
            Some("watch") => (watchdogs, count) = (watchdogs + often, count + 1),
            Some(lane) if lane.parse::<u32>().is_ok() => lanes += often,
            _ => {}
        }
    }
    (lanes, watchdogs, count)
}

/// Invariant I9, FACTS §6.10: 100 % CPU while idle. Set FULLBORE_IDLE_SECONDS=10 for the number of the benchmarks.
#[test]
fn an_idle_engine_uses_no_cpu() {
    if !uring() {
        return;
    }
    child("cost::an_idle_engine_uses_no_cpu", &[]).keep_capabilities().run(|| {
        let seconds = std::env::var("FULLBORE_IDLE_SECONDS").map_or(2, |s| s.parse().expect("seconds"));
        let rigs = rigs();
        let engines = rigs.len() as u32;
        for rig in &rigs {
            tickets(rig, 16, 4); // awake once, then idle
        }
        std::thread::sleep(Duration::from_millis(100));
        let look = |_| {
            let (used, before) = (cpu(), sleeps());
            std::thread::sleep(Duration::from_secs(seconds));
            let (each, after) = ((cpu() - used) / engines, sleeps());
            (each, after.0 - before.0, after.1 - before.1)
        };
        // The least of three: what is not ours (a worker of the kernel that ends, an interrupt) may wake a lane, too.
        let looks: Vec<_> = (0..3).map(look).collect();
        eprintln!(
            "measured: idle for {seconds} s: CPU of each of {engines}, lanes and watchdogs awake: {looks:?}"
        );
        let (lanes, watchdogs) =
            (looks.iter().map(|look| look.1).min(), looks.iter().map(|look| look.2).min());
        assert_eq!((sleeps().2, lanes), (rigs.len(), Some(0)), "no lane wakes up");
        assert!(watchdogs <= Some(u64::from(engines) * (seconds + 1)), "once a second: {watchdogs:?}");
        // What a wake-up costs is the machine's: some count half a millisecond of a thread that does nothing.
        let each = looks.iter().map(|look| look.0).min().expect("three");
        assert!(each <= Duration::from_millis(10 * seconds), "{each:?} each in {seconds} s");
    });
}

/// Invariants I2 and I7: batches, and never more in flight than the depth.
#[test]
fn enters_are_at_most_an_eighth_of_commands_at_depth_32() {
    let engine = build(Engine::builder().lanes(2).lane_depth(32).null());
    let target = engine.open_null(1 << 30).unwrap();
    let region = engine.alloc_host(8 * (20 << 20)).unwrap();
    let client = engine.client().unwrap();
    let object = |i: usize| region.lease(i * (20 << 20)..(i + 1) * (20 << 20)).unwrap();
    let mut idle: Vec<_> = (0..8).map(|i| Transfer::read(&target).extent(0, object(i))).collect();
    let mut done = Vec::new();
    for _ in 0..50 {
        for transfer in idle.drain(..) {
            client.submit_tagged(transfer, 0).unwrap();
        }
        client.wait(8, &mut done, None).unwrap();
        idle.extend(done.drain(..).map(|completion| completion.transfer.unwrap()));
    }
    let lanes = engine.stats().lanes;
    let (commands, enters) = (sum(&lanes, |l| l.commands), sum(&lanes, |l| l.enters));
    assert_eq!(commands, 50 * 8 * 160, "20 MiB are 160 commands");
    assert!(enters * 8 <= commands, "{enters} enters for {commands} commands");
    assert!(lanes.iter().all(|l| l.max_in_flight <= 32), "never more in flight than the depth");
    assert_eq!(sum(&lanes, |l| l.occupancy.iter().enumerate().map(|(d, n)| d as u64 * n).sum()), commands);
}

fn sum(lanes: &[fullbore::LaneStats], of: impl Fn(&fullbore::LaneStats) -> u64) -> u64 {
    lanes.iter().map(of).sum()
}
