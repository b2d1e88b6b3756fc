//! A lane stuck inside enter (FACTS §4): its destination is memory whose first touch blocks the kernel.

use crate::support::kernel::{Pages, Stuck, become_nobody, limit};
use crate::support::load::{lease_of, load, raw};
use crate::support::{Folder, build, check, child, eventually, folders, poison, threads, untouched, uring};
use fullbore::{
    Client, Completion, Engine, ErrorKind, Op, OpenOptions, RawExtent, Region, ReleaseError, Target, Transfer,
};
use nix::sys::resource::Resource;
use std::time::{Duration, Instant};

const SEED: u64 = 0x57a1;
const PIECE: usize = 128 * 1024;
const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
/// The watchdog's, and what a busy machine adds.
const PERIOD: Duration = SECOND;
const SLACK: Duration = SECOND;

/// An engine of two lanes over a file, with a destination that blocks whoever touches it.
struct Rig {
    engine: Engine,
    target: Target,
    client: Client,
    stuck: Stuck,
    pages: Pages,
    /// Over `pages`; not registered, or the pages would be there.
    region: Option<Region>,
    /// For other loads; made before, since a stuck lane answers no message.
    pool: Region,
    /// The list that the engine writes outcomes into.
    list: Box<[RawExtent; 1]>,
    folder: Folder,
}

/// `Err` says why there can be none.
fn rig(folder: Folder, deadline: Duration, grace: Duration) -> Result<Rig, String> {
    let path = folder.file("data", 8 * MIB as u64, SEED);
    let stuck = Stuck::new()?;
    let engine = build(Engine::builder().lanes(2).deadline(Some(deadline)).grace(grace));
    let target = engine.open(&path, OpenOptions::read()).expect("the file opens");
    let client = engine.client().expect("a client");
    let pages = Pages::new(PIECE);
    pages.accessible(false); // so that it cannot be pinned, hence not registered
    // SAFETY: the pages outlive the region: `Rig` drops the engine first, and tests release it.
    let region = unsafe { engine.register_host(pages.ptr(), PIECE) }.expect("a region");
    assert!(!region.is_registered(), "it cannot be registered");
    pages.accessible(true);
    stuck.watch(pages.ptr().as_ptr(), PIECE);
    let list = Box::new([raw(0, pages.ptr().as_ptr(), PIECE)]);
    let pool = engine.alloc_host(8 * MIB).expect("memory");
    Ok(Rig { engine, target, client, stuck, pages, region: Some(region), pool, list, folder })
}

impl Rig {
    /// Submits the transfer that gets stuck, and waits until it is.
    fn get_stuck(&mut self) -> Instant {
        let begin = Instant::now();
        // SAFETY: list and memory live as long as the rig, which ends after the last late result.
        unsafe { self.client.submit_raw(&self.target, Op::Read, &mut self.list[..], 42) }.expect("room");
        assert!(self.stuck.touched(5 * SECOND), "the kernel touches the destination");
        begin
    }

    /// Lets the stuck transfer go on.
    fn serve(&self) {
        self.stuck.serve(self.pages.ptr().as_ptr(), PIECE);
    }

    fn done(&self, within: Duration) -> Vec<Completion> {
        let mut done = Vec::new();
        self.client.wait(1, &mut done, Some(within)).expect("a wait");
        done
    }

    /// All of the file, through whatever lane is not stuck.
    #[track_caller]
    fn load_all(&self) {
        load(&self.client, &self.target, self.pool.lease(0..8 * MIB).unwrap(), 0, SEED);
    }
}

impl Rig {
    /// One unit each: they go to one lane, and one that is known to stand still is not chosen.
    fn load_in_small_pieces(&self) {
        for index in 0..16 {
            let lease = self.pool.lease(0..PIECE).unwrap();
            load(&self.client, &self.target, lease, (index * PIECE) as u64, SEED);
        }
    }
}

/// Runs `body` on each file system in a process of its own: what is left of a failed test blocks nobody else.
fn on_each(test: &str, deadline: Duration, grace: Duration, body: impl Fn(Rig) + Sync) {
    if !uring() {
        return;
    }
    child(test, &[]).keep_capabilities().run(|| {
        std::thread::scope(|scope| {
            for folder in folders() {
                scope.spawn(|| match rig(folder, deadline, grace) {
                    Ok(rig) => body(rig),
                    Err(why) => eprintln!("skipped: {why}"),
                });
            }
        });
    });
}

/// Invariants I1, I3, I5; DESIGN §3: deadlines.
#[test]
fn a_transfer_that_does_not_drain_is_abandoned_once_and_its_memory_quarantined() {
    let test = "stalls::stuck::a_transfer_that_does_not_drain_is_abandoned_once_and_its_memory_quarantined";
    on_each(test, SECOND, SECOND, |mut rig| {
        let begin = rig.get_stuck();
        rig.load_all();
        let done = rig.done(8 * SECOND);
        let took = begin.elapsed();
        let name = rig.folder.name;
        assert_eq!(done.len(), 1, "on {name}");
        let error = done[0].result.as_ref().expect_err("it never ended");
        assert_eq!((error.kind(), done[0].tag), (ErrorKind::Abandoned, 42), "on {name}: {error}");
        assert!(took >= 2 * SECOND, "not before deadline and grace are over: {took:?} on {name}");
        assert!(took <= 2 * SECOND + 2 * PERIOD + SLACK, "in time: {took:?} on {name}");

        let stats = rig.engine.stats();
        assert_eq!(stats.quarantined_bytes, PIECE as u64, "on {name}");
        let stalled = || rig.engine.stats().lanes.iter().filter(|lane| lane.stalled).count();
        assert!(eventually(3 * PERIOD, || stalled() == 1), "one lane stands still, and it shows, on {name}");
        let region = assert_quarantined(rig.region.take().unwrap(), name);
        assert!(untouched_by_now(&rig.done(SECOND / 2)), "one transfer, one completion, on {name}");
        rig.load_all();
        rig.load_in_small_pieces();

        rig.serve();
        let absorbed = || rig.engine.stats().quarantined_bytes == 0;
        assert!(eventually(5 * SECOND, absorbed), "the late result is absorbed on {name}");
        region.release(5 * SECOND).unwrap_or_else(|e| panic!("nothing is in flight any more on {name}: {e}"));
        assert!(untouched_by_now(&rig.done(SECOND / 4)), "the late result is not told, on {name}");
        assert!(eventually(3 * PERIOD, || stalled() == 0), "the lane moves again on {name}");
        check(rig.pages.bytes(), 0, SEED, "the late result");
        rig.load_all();
        assert_drops(rig, 2 * SECOND);
    });
}

fn untouched_by_now(done: &[Completion]) -> bool {
    done.is_empty()
}

#[track_caller]
fn assert_quarantined(region: Region, name: &str) -> Region {
    match region.release(5 * SECOND) {
        Err(ReleaseError::Quarantined(region)) => region,
        other => panic!("late results may still land in it, on {name}: {other:?}"),
    }
}

#[track_caller]
fn assert_drops(rig: Rig, within: Duration) {
    let Rig { engine, pages, list, .. } = rig;
    let begin = Instant::now();
    drop(engine);
    assert!(begin.elapsed() < within, "drop took {:?}", begin.elapsed());
    drop((pages, list));
}

/// FACTS §6.13: times are the device's, not those of the call that submitted.
#[test]
fn a_transfer_that_is_late_but_in_time_succeeds_and_its_times_say_so() {
    let test = "stalls::stuck::a_transfer_that_is_late_but_in_time_succeeds_and_its_times_say_so";
    on_each(test, 20 * SECOND, SECOND, |mut rig| {
        let late = Duration::from_millis(300);
        rig.get_stuck();
        std::thread::sleep(late);
        assert!(rig.done(Duration::ZERO).is_empty(), "nothing has come yet");
        rig.serve();
        let done = rig.done(10 * SECOND);
        assert_eq!(done.len(), 1);
        done[0].result.as_ref().expect("it was only late");
        assert!(done[0].times.total >= late, "{:?}", done[0].times);
        assert!(done[0].times.queued < late, "it was issued at once: {:?}", done[0].times);
        let longest = rig.engine.stats().lanes.iter().map(|lane| lane.latency.max()).max().unwrap();
        assert!(longest >= late.as_nanos() as u64, "the histogram shows it: {longest} ns");
        check(rig.pages.bytes(), 0, SEED, "late, but whole");
        rig.region.take().unwrap().release(SECOND).expect("nothing is in flight");
    });
}

/// Dropping an engine whose lane is stuck: bounded, and everybody gets an answer. The lane ends when it can.
#[test]
fn dropping_an_engine_with_a_stuck_lane_does_not_hang() {
    let test = "stalls::stuck::dropping_an_engine_with_a_stuck_lane_does_not_hang";
    on_each(test, 20 * SECOND, SECOND, |mut rig| {
        rig.get_stuck();
        let name = rig.folder.name;
        let Rig { engine, client, stuck, pages, list, region, .. } = rig;
        let begin = Instant::now();
        drop(engine);
        assert!(begin.elapsed() < 2 * SECOND + 2 * SLACK, "drop took {:?} on {name}", begin.elapsed());
        let mut done = Vec::new();
        client.wait(1, &mut done, Some(5 * SECOND)).unwrap();
        assert_eq!(done.len(), 1, "on {name}");
        let kind = done[0].result.as_ref().expect_err("it never ended").kind();
        assert_eq!(kind, ErrorKind::Abandoned, "its memory may still be written to, on {name}");
        let region = assert_quarantined(region.unwrap(), name);
        stuck.serve(pages.ptr().as_ptr(), PIECE);
        let mut region = Some(region);
        let released = eventually(5 * SECOND, || match region.take().map(|r| r.release(SECOND)) {
            Some(Err(ReleaseError::Quarantined(back) | ReleaseError::Busy { region: back, .. })) => {
                region = Some(back);
                false
            }
            _ => true,
        });
        assert!(released, "the late result is absorbed also when nobody holds the engine, on {name}");
        assert_eq!(client.poll(&mut done), 0, "one transfer, one completion, on {name}");
        drop((client, pages, list));
    });
}

/// What waits behind a stuck lane has deadlines of its own, which fire without that lane's help.
#[test]
fn transfers_queued_behind_a_stuck_lane_time_out_in_time() {
    let test = "stalls::stuck::transfers_queued_behind_a_stuck_lane_time_out_in_time";
    on_each(test, 20 * SECOND, SECOND, |mut rig| {
        rig.get_stuck();
        let name = rig.folder.name;
        let begin = Instant::now();
        // One unit each: some are dealt to the lane that is stuck, near the caller as it is.
        let submit = |i: usize| {
            let mut lease = rig.pool.lease(i * PIECE..(i + 1) * PIECE).unwrap();
            poison(&mut lease);
            let transfer = Transfer::read(&rig.target).extent((i * PIECE) as u64, lease);
            rig.client.submit(transfer.deadline(Duration::from_millis(200))).unwrap()
        };
        let tickets: Vec<_> = (0..64).map(submit).collect();
        for (index, ticket) in tickets.into_iter().enumerate() {
            let done = ticket.wait().unwrap();
            let result = done.result.clone();
            let lease = lease_of(done);
            match result {
                Ok(()) => check(&lease, (index * PIECE) as u64, SEED, "by the other lane"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut, "on {name}: {error}");
                    assert!(untouched(&lease), "nothing of it was issued");
                }
            }
        }
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(200) + PERIOD + SLACK, "took {took:?} on {name}");
        rig.serve();
        let done = rig.done(10 * SECOND);
        done[0].result.as_ref().expect("the one that was stuck has time enough");
        rig.region.take().unwrap().release(SECOND).expect("nothing is in flight");
    });
}

/// Memory of the engine's own under an abandoned transfer: it stays mapped although every handle is dropped, until
/// the late result is in.
#[test]
fn memory_of_the_engine_stays_mapped_until_late_results_are_in() {
    if !uring() {
        return;
    }
    let test = "stalls::stuck::memory_of_the_engine_stays_mapped_until_late_results_are_in";
    child(test, &[]).keep_capabilities().run(|| {
        let Some(folder) = folders().into_iter().find(|f| f.name == "tmpfs") else { return };
        let path = folder.file("data", 8 * MIB as u64, SEED);
        let stuck = match Stuck::new() {
            Ok(stuck) => stuck,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        // So that the region is not registered, and its pages are not there.
        become_nobody([&folder]);
        limit(Resource::RLIMIT_MEMLOCK, 64 << 10);
        let engine = build(Engine::builder().lanes(2).deadline(Some(SECOND / 2)).grace(SECOND / 2));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let client = engine.client().unwrap();
        let region = engine.alloc_host(8 * MIB).unwrap();
        assert!(!region.is_registered());
        let ptr = region.as_ptr();
        // The attempt to pin them has made the pages; nobody has written to them.
        // SAFETY: our own memory, no lease is out; zeros stay zeros.
        assert_eq!(unsafe { libc::madvise(ptr.cast(), 8 * MIB, libc::MADV_DONTNEED) }, 0);
        stuck.watch(ptr, PIECE);
        let ticket =
            client.submit(Transfer::read(&target).extent(0, region.lease(0..PIECE).unwrap())).unwrap();
        let done = ticket.wait().unwrap();
        assert_eq!(done.result.unwrap_err().kind(), ErrorKind::Abandoned);
        assert!(done.transfer.is_none(), "its memory is not given back");
        let region = assert_quarantined(region, "tmpfs");
        drop(region);
        // A new region takes neither its number nor its place.
        let second = engine.alloc_host(8 * MIB).unwrap();
        assert!(mapped(ptr), "a late result would land in memory of somebody else");
        stuck.serve(ptr, PIECE);
        assert!(eventually(5 * SECOND, || engine.stats().quarantined_bytes == 0), "absorbed");
        assert!(eventually(5 * SECOND, || !mapped(ptr)), "then it is given back to the system");
        second.release(SECOND).expect("the late result concerned another region");
        drop(engine);
        // A thread that was joined may show for a moment.
        assert!(eventually(5 * SECOND, || threads("fullbore-").is_empty()), "{:?}", threads("fullbore-"));
    });
}

/// The handle of a region under an abandoned raw transfer may be dropped. Its number must not go to another region
/// before the late result is in: that one would answer for it.
#[test]
fn a_region_dropped_under_an_abandoned_transfer_harms_no_other() {
    let test = "stalls::stuck::a_region_dropped_under_an_abandoned_transfer_harms_no_other";
    on_each(test, SECOND / 2, SECOND / 2, |mut rig| {
        if rig.folder.name != "tmpfs" {
            return; // a lane that is stuck itself would not answer to the new region
        }
        rig.get_stuck();
        let done = rig.done(8 * SECOND);
        assert_eq!(done[0].result.as_ref().unwrap_err().kind(), ErrorKind::Abandoned);
        drop(rig.region.take());
        let next = rig.engine.alloc_host(MIB).unwrap();
        rig.serve();
        assert!(eventually(5 * SECOND, || rig.engine.stats().quarantined_bytes == 0), "absorbed");
        next.release(SECOND).expect("it had no part in this");
        check(rig.pages.bytes(), 0, SEED, "the late result");
    });
}

fn mapped(ptr: *mut u8) -> bool {
    let mut there = 0u8;
    // SAFETY: asks about one page; a hole is an error, not a fault.
    unsafe { libc::mincore(ptr.cast(), 4096, &mut there) == 0 }
}
