//! Ways to ask for a completion, and to stop a transfer.

use super::{LIMIT, SEED, place, slow};
use crate::support::load::lease_of;
use crate::support::{POISON, check, poison, within};
use fullbore::{Completion, Engine, ErrorKind, OpenOptions, Region, Target, Ticket, Transfer};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

const BIG: usize = 16 << 20;

fn read(target: &Target, region: &Region, offset: u64, at: usize, len: usize) -> Transfer {
    let mut lease = region.lease(at..at + len).expect("free");
    poison(&mut lease);
    Transfer::read(target).extent(offset, lease)
}

/// A cancelled transfer completes once; what it says was moved was, and nothing else, also a little later.
fn expect_cancelled(done: Completion) {
    let error = done.result.clone().expect_err("it was cancelled long before its end");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    let bytes = done.bytes;
    assert!(bytes < BIG as u64);
    let extent = &done.transfer.as_ref().expect("nothing is in flight").extents()[0];
    assert_eq!((extent.bytes(), extent.error()), (bytes, Some(libc::ECANCELED)));
    let lease = lease_of(done);
    std::thread::sleep(Duration::from_millis(15)); // what had not drained would land now
    let mut moved = 0;
    for (number, block) in lease.chunks(4096).enumerate() {
        if block.iter().any(|b| *b != POISON) {
            check(block, number as u64 * 4096, SEED, "a block that was moved");
            moved += block.len() as u64;
        }
    }
    assert_eq!(moved, bytes, "bytes says what was moved");
}

/// As many commands in flight as can be when the cancel comes.
#[test]
fn a_cancel_waits_for_what_is_in_flight() {
    let Some(place) = place() else { return };
    within(LIMIT, "cancel with a full lane", || {
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(BIG).unwrap(), engine.client().unwrap());
        let mut cancelled = 0;
        for round in 0..12 {
            let ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
            std::thread::sleep(Duration::from_micros(100) * round);
            ticket.cancel();
            let done = ticket.wait().unwrap();
            if done.result.is_err() {
                cancelled += 1;
                expect_cancelled(done);
            }
        }
        assert!(cancelled > 0, "each of the transfers was faster than its cancel");
    });
}

#[test]
fn a_cancelled_ticket_completes_once() {
    let Some(place) = place() else { return };
    within(LIMIT, "cancel by ticket", || {
        let engine = slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(BIG).unwrap(), engine.client().unwrap());
        let ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        ticket.cancel();
        ticket.cancel();
        expect_cancelled(ticket.wait().unwrap());
        assert_eq!(engine.stats().active, 0);
        // The lane goes on: the same memory is loaded right after.
        let ticket = client.submit(read(&target, &region, 4096, 0, 1 << 20)).unwrap();
        let done = ticket.wait().unwrap();
        done.result.as_ref().unwrap();
        check(&lease_of(done), 4096, SEED, "after a cancel");
        // Too late: it is over.
        let mut ticket = client.submit(read(&target, &region, 0, 0, 4096)).unwrap();
        let done = ticket.wait_timeout(LIMIT).unwrap();
        ticket.cancel();
        done.result.unwrap();
        assert!(ticket.poll().is_none(), "one completion");
    });
}

#[test]
fn a_cancelled_tagged_transfer_completes_once() {
    let Some(place) = place() else { return };
    within(LIMIT, "cancel by tag", || {
        let engine = slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(BIG + 8192).unwrap(), engine.client().unwrap());
        let big = client.submit_tagged(read(&target, &region, 0, 0, BIG), 1).unwrap();
        // Waits behind the big one: nothing of it was issued when it is cancelled.
        let behind = client.submit_tagged(read(&target, &region, 0, BIG, 4096), 2).unwrap();
        let after = client.submit_tagged(read(&target, &region, 0, BIG + 4096, 4096), 3).unwrap();
        assert!(client.cancel(behind));
        let mut done = Vec::new();
        client.wait(1, &mut done, Some(LIMIT)).unwrap();
        let first = done.pop().unwrap();
        assert_eq!((first.tag, first.bytes, first.result.unwrap_err().kind()), (2, 0, ErrorKind::Cancelled));
        assert!(lease_untouched(first.transfer), "nothing of it was issued");
        assert!(!client.cancel(behind), "it is over");
        assert!(client.cancel(big));
        client.wait(2, &mut done, Some(LIMIT)).unwrap();
        assert_eq!(done.iter().map(|d| d.tag).collect::<Vec<_>>(), [1, 3]);
        assert!(!client.cancel(big) && !client.cancel(after), "they are over");
        done.pop().unwrap().result.expect("nobody cancelled it");
        expect_cancelled(done.pop().unwrap());
        assert_eq!((client.poll(&mut done), engine.stats().active), (0, 0));
    });
}

fn lease_untouched(transfer: Option<Transfer>) -> bool {
    let lease = transfer.unwrap().into_extents().remove(0).into_mem().into_host().unwrap();
    crate::support::untouched(&lease)
}

#[test]
fn waiting_with_a_timeout() {
    let Some(place) = place() else { return };
    within(LIMIT, "wait_timeout", || {
        let engine = slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(BIG).unwrap(), engine.client().unwrap());
        let mut ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
        assert!(ticket.poll().is_none());
        assert!(ticket.wait_timeout(Duration::ZERO).is_none());
        let since = Instant::now();
        assert!(
            ticket.wait_timeout(Duration::from_millis(5)).is_none(),
            "16 MiB, 4 KiB at a time, take longer"
        );
        assert!(since.elapsed() >= Duration::from_millis(5));
        // A wake-up ends a wait long before its time.
        ticket.cancel();
        let since = Instant::now();
        let done = ticket.wait_timeout(Duration::from_secs(40)).expect("it comes");
        assert!(since.elapsed() < Duration::from_secs(20));
        expect_cancelled(done);
        assert!(
            ticket.wait_timeout(Duration::from_secs(40)).is_none(),
            "handed out already: answered at once"
        );
        assert!(ticket.poll().is_none());
    });
}

#[test]
fn a_client_waits_for_so_many_or_so_long() {
    let Some(place) = place() else { return };
    within(LIMIT, "Client::wait", || {
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(8 << 20).unwrap(), engine.client().unwrap());
        let mut done = Vec::new();
        let error = client.wait(1, &mut done, None).expect_err("nothing is under way");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(client.wait(0, &mut done, None).unwrap(), 0);
        let since = Instant::now();
        assert_eq!(client.wait(1, &mut done, Some(Duration::from_millis(20))).unwrap(), 0);
        assert!(since.elapsed() >= Duration::from_millis(20));

        for tag in 0..8 {
            let at = tag as usize * (1 << 20);
            client.submit_tagged(read(&target, &region, at as u64, at, 1 << 20), tag).unwrap();
        }
        assert!(client.wait(3, &mut done, None).unwrap() >= 3);
        assert!(done.len() >= 3, "appended");
        let before = done.len();
        let more = client.wait(8 - before, &mut done, Some(LIMIT)).unwrap();
        assert_eq!((more, done.len()), (8 - before, 8));
        // Asked for more than there are: what came meanwhile is handed over when the time is up.
        client.submit_tagged(done.pop().unwrap().transfer.unwrap(), 100).unwrap();
        let mut one = Vec::new();
        assert_eq!(client.wait(5, &mut one, Some(Duration::from_millis(200))).unwrap(), 1);
        assert_eq!(one[0].tag, 100);
        done.append(&mut one);
        assert_eq!(client.poll(&mut done), 0);
        for done in done {
            done.result.as_ref().unwrap();
            let lease = lease_of(done);
            check(&lease, lease.start() as u64, SEED, "a tagged load");
        }
    });
}

struct Waking {
    thread: Thread,
    wakes: AtomicU32,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// As small as an executor can be: it polls when it was woken, and only then.
fn block_on<F: Future>(future: F) -> (F::Output, u32) {
    let waking = Arc::new(Waking { thread: std::thread::current(), wakes: AtomicU32::new(0) });
    let (waker, mut future) = (Waker::from(waking.clone()), pin!(future));
    let mut seen = 0;
    for polls in 1.. {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (out, polls);
        }
        while waking.wakes.load(Ordering::SeqCst) == seen {
            std::thread::park();
        }
        seen = waking.wakes.load(Ordering::SeqCst);
    }
    unreachable!("a loop without end")
}

#[test]
fn a_ticket_is_a_future() {
    let Some(place) = place() else { return };
    within(LIMIT, "a ticket as a future", || {
        let engine = slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(BIG).unwrap(), engine.client().unwrap());
        let ticket = client.submit(read(&target, &region, 0, 0, 4 << 20)).unwrap();
        let (done, polls) = block_on(ticket);
        done.result.as_ref().unwrap();
        check(&lease_of(done), 0, SEED, "an awaited load");
        assert!((1..=3).contains(&polls), "{polls} polls: pending, woken, ready");

        // Two at once, by one task.
        let both =
            [0, 1].map(|i| client.submit(read(&target, &region, i * 4096, i as usize * 4096, 4096)).unwrap());
        let [first, second] = both;
        let (done, _) = block_on(async { (first.await, second.await) });
        assert_eq!((done.0.bytes, done.1.bytes), (4096, 4096));
        drop(done);

        // A task that moved polls with another waker: the last one counts. It is long: a busy machine may hold this thread
        // up between the submission and the poll.
        let mut ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
        let stale = Arc::new(Waking { thread: std::thread::current(), wakes: AtomicU32::new(0) });
        let waker = Waker::from(stale.clone());
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        let moved = std::thread::spawn(move || block_on(ticket).0);
        assert_eq!(moved.join().unwrap().bytes, BIG as u64);

        // A future that is dropped while pending lets go: the lease comes back at the end.
        let mut ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop::<Ticket>(ticket);
        assert!(crate::support::eventually(LIMIT, || region.lease(0..BIG).is_ok()), "the lease came back");
        assert_eq!(engine.stats().active, 0);
    });
}

/// The short way after a load: every lease with its bytes, in the order of the extents, or the error.
#[test]
fn the_leases_of_a_completion() {
    let Some(place) = place() else { return };
    within(LIMIT, "into_leases", || {
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(1 << 20).unwrap(), engine.client().unwrap());
        let lease = |at: usize, len| region.lease(at..at + len).unwrap();
        let many = Transfer::read(&target)
            .extent(8192, lease(4096, 100))
            .extent(0, lease(0, 4096))
            .extent(1 << 20, region.range(8192..12_288).unwrap())
            .extent(99, lease(12_288, 3));
        let leases = client.submit(many).unwrap().wait().unwrap().into_leases().unwrap();
        assert_eq!(
            leases.iter().map(|l| (l.start(), l.len())).collect::<Vec<_>>(),
            [(4096, 100), (0, 4096), (12_288, 3)]
        );
        for (lease, offset) in leases.iter().zip([8192, 0, 99]) {
            check(lease, offset, SEED, "an extent");
        }
        drop(leases);
        // A flush has no memory.
        let writable = engine.open(&place.path, OpenOptions::write()).unwrap();
        assert!(client.flush(&writable).unwrap().wait().unwrap().into_leases().unwrap().is_empty());

        let slow = slow().build().unwrap();
        let (target, client) = (place.open(&slow), slow.client().unwrap());
        let region = slow.alloc_host(BIG).unwrap();
        let ticket = client.submit(read(&target, &region, 0, 0, BIG)).unwrap();
        ticket.cancel();
        let error = ticket.wait().unwrap().into_leases().expect_err("cancelled");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        region.lease(0..BIG).expect("on an error the leases went back");
    });
}
