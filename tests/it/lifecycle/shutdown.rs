//! Dropping the engine with transfers in flight, and regions that are released while they are used.

use super::{LIMIT, SEED, place, slow};
use crate::support::load::{lease_of, raw};
use crate::support::{check, eventually, kernel::Pages, poison, within};
use fullbore::{Completion, Engine, ErrorKind, Op, Region, ReleaseError, Target, Transfer};
use std::time::{Duration, Instant};

const OBJECT: usize = 1 << 20;

fn read(target: &Target, region: &Region, number: usize) -> Transfer {
    let at = number * OBJECT;
    let mut lease = region.lease(at..at + OBJECT).expect("free");
    poison(&mut lease);
    Transfer::read(target).extent(at as u64, lease)
}

/// Whole and right, or shut down.
fn judge(done: Completion) -> bool {
    let result = done.result.clone();
    match result {
        Ok(()) => {
            let lease = lease_of(done);
            check(&lease, lease.start() as u64, SEED, "loaded before the end");
            true
        }
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Shutdown, "{e}");
            assert!(e.to_string().contains("engine was shut down"), "{e}");
            assert_eq!(lease_of(done).len(), OBJECT, "the lease comes back all the same");
            false
        }
    }
}

#[test]
fn every_ticket_gets_one_completion_when_the_engine_goes() {
    let Some(place) = place() else { return };
    within(LIMIT, "shutdown with tickets out", || {
        let mut cut_off = 0;
        for round in 0..8 {
            let engine = Engine::builder().lanes(2).lane_depth(4).command_size(16 << 10).build().unwrap();
            let (target, region) = (place.open(&engine), engine.alloc_host(20 * OBJECT).unwrap());
            let (client, waiting) = (engine.client().unwrap(), engine.client().unwrap());
            let mut tickets: Vec<_> =
                (0..8).map(|i| client.submit(read(&target, &region, i)).unwrap()).collect();
            for i in 8..16 {
                client.submit_tagged(read(&target, &region, i), i as u64).unwrap();
            }
            // One that another thread sleeps on meanwhile.
            let slept_on = waiting.submit(read(&target, &region, 16)).unwrap();
            let sleeper = std::thread::spawn(move || slept_on.wait().expect("a completion"));
            std::thread::sleep(Duration::from_micros(500) * round);
            drop(engine);
            let mut whole = 0;
            for ticket in &mut tickets {
                whole += judge(ticket.poll().expect("there at once: the engine is gone")) as u32;
                assert!(ticket.poll().is_none(), "one completion");
            }
            let mut done = Vec::new();
            assert_eq!(client.poll(&mut done), 8, "one completion each");
            let mut tags: Vec<_> = done.iter().map(|d| d.tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (8..16).collect::<Vec<_>>());
            whole += done.into_iter().map(|d| judge(d) as u32).sum::<u32>();
            whole += judge(sleeper.join().unwrap()) as u32;
            cut_off += (whole < 17) as u32;
            region.release(LIMIT).expect("everything came back");
        }
        assert!(cut_off > 0, "nothing was in flight when the engine went");
    });
}

/// What is in flight is waited for, not cut off: the drop ends soon all the same.
#[test]
fn shutdown_waits_for_what_is_in_flight_only() {
    let Some(place) = place() else { return };
    within(LIMIT, "a quick shutdown", || {
        let engine = slow().build().unwrap();
        let (target, region) = (place.open(&engine), engine.alloc_host(16 * OBJECT).unwrap());
        let client = engine.client().unwrap();
        let tickets: Vec<_> = (0..16).map(|i| client.submit(read(&target, &region, i)).unwrap()).collect();
        let since = Instant::now();
        drop(engine);
        let took = since.elapsed();
        let whole = tickets.into_iter().map(|t| judge(t.wait().unwrap())).filter(|whole| *whole).count();
        assert!(whole < 16, "it did not carry on with what was queued");
        assert!(took < Duration::from_secs(3), "{took:?}");
    });
}

/// Registered memory: busy while leased or in flight, free to be unmapped after an Ok.
#[test]
fn memory_is_unmapped_only_after_a_release() {
    let Some(place) = place() else { return };
    within(LIMIT, "release, then munmap", || {
        let engine = slow().build().unwrap();
        let (target, client) = (place.open(&engine), engine.client().unwrap());
        let pages = Pages::new(2 * OBJECT);
        // SAFETY: `pages` is unmapped after the release has answered Ok, at the end.
        let region = unsafe { engine.register_host(pages.ptr(), 2 * OBJECT) }.unwrap();
        let range = region.range(0..OBJECT).unwrap();
        let region = busy(region.release(Duration::from_secs(1)), (1, 0));
        let ticket = client.submit(Transfer::read(&target).extent(0, range)).unwrap();
        let region = busy(region.release(Duration::from_secs(1)), (1, 0));
        let mut list = [raw(0, pages.ptr().as_ptr().wrapping_add(OBJECT), OBJECT)];
        // SAFETY: list and memory stay until the completion is waited for.
        unsafe { client.submit_raw(&target, Op::Read, &mut list, 5) }.unwrap();
        let region = busy(region.release(Duration::from_secs(1)), (1, 1));
        drop(ticket.wait().unwrap());
        let mut done = Vec::new();
        client.wait(1, &mut done, Some(LIMIT)).unwrap();
        done[0].result.as_ref().unwrap();
        region.release(LIMIT).expect("nothing uses it");
        drop(pages);
        assert!(eventually(LIMIT, || crate::support::threads("fullbore-").len() >= 2), "the lane lives on");
        let memory = engine.alloc_host(OBJECT).unwrap();
        let done = client.submit(read(&target, &memory, 0)).unwrap().wait().unwrap();
        assert!(judge(done));
    });
}

/// A raw transfer goes on when its client is dropped: its memory counts as in use until the end.
#[test]
fn a_raw_transfer_outlives_its_client() {
    let Some(place) = place() else { return };
    within(LIMIT, "a raw transfer without a client", || {
        let engine = slow().build().unwrap();
        let (target, client) = (place.open(&engine), engine.client().unwrap());
        let pages = Pages::new(OBJECT);
        // SAFETY: `pages` is unmapped after the release has answered Ok, at the end.
        let mut region = unsafe { engine.register_host(pages.ptr(), OBJECT) }.unwrap();
        let mut list = [raw(0, pages.ptr().as_ptr(), OBJECT)];
        // SAFETY: list and memory stay until the region says that nothing is in flight.
        unsafe { client.submit_raw(&target, Op::Read, &mut list, 5) }.unwrap();
        drop(client);
        let (since, mut busy) = (Instant::now(), 0);
        loop {
            match region.release(LIMIT) {
                Ok(()) => break,
                Err(ReleaseError::Busy { region: back, leases: 0, raw: 1 }) => {
                    (region, busy) = (back, busy + 1)
                }
                Err(other) => panic!("{other:?}"),
            }
            assert!(since.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(busy > 0, "it was in flight when the client went");
        assert_eq!((list[0].outcome.bytes, list[0].outcome.errno), (OBJECT as u64, 0));
        check(pages.bytes(), 0, SEED, "without a client");
        assert!(eventually(LIMIT, || engine.stats().active == 0), "its entry came back");
    });
}

/// Completions of a client that is gone have no reader: entries and leases come back all the same.
#[test]
fn a_dropped_clients_transfers_give_their_memory_back() {
    let Some(place) = place() else { return };
    within(LIMIT, "transfers without a client", || {
        let engine = slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(4 * OBJECT).unwrap(), engine.client().unwrap());
        for i in 0..4 {
            client.submit_tagged(read(&target, &region, i), 1).unwrap();
        }
        assert_eq!(engine.stats().active, 4);
        drop(client);
        assert!(region.lease(3 * OBJECT..4 * OBJECT).is_err(), "still in flight");
        assert!(eventually(LIMIT, || engine.stats().active == 0), "entries come back");
        let lease = region.lease(0..4 * OBJECT).expect("leases came back");
        check(&lease, 0, SEED, "they were carried to their ends");
        // So it is with a ticket that nobody holds, and with one that is dropped after its completion was published.
        drop(lease);
        drop(engine.client().unwrap().submit(read(&target, &region, 0)).unwrap());
        assert!(eventually(LIMIT, || engine.stats().active == 0), "entries come back");
        let ticket = engine.client().unwrap().submit(read(&target, &region, 0)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(ticket);
        assert!(eventually(LIMIT, || engine.stats().active == 0), "entries come back");
        region.release(LIMIT).expect("nothing uses it");
    });
}

/// Raw transfers that the engine's end cuts off say so in their lists.
#[test]
fn raw_transfers_end_with_the_engine() {
    let Some(place) = place() else { return };
    within(LIMIT, "shutdown with raw transfers", || {
        let engine = slow().build().unwrap();
        let (target, client) = (place.open(&engine), engine.client().unwrap());
        let mut pages = Pages::new(8 * OBJECT);
        poison(pages.bytes_mut());
        let at = |i: usize| raw((i * OBJECT) as u64, pages.ptr().as_ptr().wrapping_add(i * OBJECT), OBJECT);
        let mut list: Vec<_> = (0..8).map(at).collect();
        // SAFETY: list and memory stay until the completion, which is there when the engine is gone.
        unsafe { client.submit_raw(&target, Op::Read, &mut list, 9) }.unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(engine);
        let mut done = Vec::new();
        assert_eq!(client.poll(&mut done), 1, "one completion");
        assert_eq!(done[0].result.as_ref().unwrap_err().kind(), ErrorKind::Shutdown);
        assert_eq!(done[0].bytes, list.iter().map(|e| e.outcome.bytes).sum::<u64>());
        for extent in &list {
            let whole = extent.outcome.bytes == OBJECT as u64;
            assert_eq!(extent.outcome.errno, if whole { 0 } else { libc::ECANCELED });
        }
        assert_ne!(list[7].outcome.errno, 0, "it was not carried to its end");
    });
}

#[track_caller]
fn busy(answer: Result<(), ReleaseError>, wanted: (usize, u64)) -> Region {
    match answer {
        Err(ReleaseError::Busy { region, leases, raw }) => {
            assert_eq!((leases, raw), wanted);
            region
        }
        other => panic!("busy was expected: {other:?}"),
    }
}
