//! A fork: the child's calls are refused, its drops do nothing, and the parent goes on.

use super::{Place, SEED, place};
use crate::support::load::load;
use crate::support::{self, check, eventually, fork, poison, threads, wait_for, within};
use fullbore::{
    Client, Completion, Engine, Error, ErrorKind, HostLease, Marks, Op, OpenOptions, Region, ReleaseError,
    Target, Ticket, Transfer, TransferId,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(5);

/// What the parent holds; the child takes its copy out and drops it.
struct Held {
    engine: Option<Engine>,
    client: Option<Client>,
    target: Option<Target>,
    region: Option<Region>,
    lease: Option<HostLease>,
    ticket: Option<Ticket>,
    marks: Marks,
}

fn hold(place: &Place) -> Held {
    let engine = Engine::builder().lanes(2).lane_depth(2).command_size(16 << 10).build().unwrap();
    let target = engine.open(&place.path, OpenOptions::write()).unwrap();
    let (region, client) = (engine.alloc_host(12 << 20).unwrap(), engine.client().unwrap());
    Held {
        lease: Some(region.lease(0..4 << 20).unwrap()),
        ticket: None,
        marks: Marks::after([0]).unwrap(),
        engine: Some(engine),
        client: Some(client),
        target: Some(target),
        region: Some(region),
    }
}

fn forked<T>(what: &str, answer: Result<T, Error>) -> bool {
    match answer {
        Err(e) if e.kind() == ErrorKind::Forked => {
            let text = e.to_string();
            let clear = text.contains("forked") && text.contains("build an engine in the child");
            if !clear {
                eprintln!("child: {what}: {text}");
            }
            clear
        }
        Err(e) => {
            eprintln!("child: {what}: {:?}: {e}", e.kind());
            false
        }
        Ok(_) => {
            eprintln!("child: {what} was not refused");
            false
        }
    }
}

/// Every call that would need a lane.
fn calls_are_refused(held: &mut Held, place: &Place) -> bool {
    let (engine, client) = (held.engine.as_ref().unwrap(), held.client.as_ref().unwrap());
    let target = held.target.as_ref().unwrap();
    let lease = held.lease.take().unwrap();
    let rejected = client.submit(Transfer::read(target).extent(0, lease)).map_err(|r| (r.transfer, r.error));
    let back = rejected.as_ref().err().is_some_and(|(transfer, _)| transfer.extents()[0].len() == 4 << 20);
    let tagged = rejected.map(|_| ()).map_err(|(transfer, error)| (client.submit_tagged(transfer, 1), error));
    let (tagged, first) = tagged.expect_err("refused");
    let mut list = [support::load::raw(0, held.region.as_ref().unwrap().as_ptr(), 4096)];
    // SAFETY: refused; if not, the process ends by its alarm before the memory does.
    let raw = unsafe { client.submit_raw(target, Op::Read, &mut list, 1) };
    let page = support::kernel::Pages::new(4096);
    // SAFETY: refused; else the child fails.
    let registered = unsafe { engine.register_host(page.ptr(), 4096) };
    let mut out = Vec::new();
    let checks = [
        back,
        forked("submit", Err::<(), _>(first)),
        forked("submit_tagged", tagged.map_err(|r| r.error)),
        forked("submit_raw", raw),
        forked("flush", client.flush(target)),
        forked("wait", client.wait(1, &mut out, None)),
        forked("wait with a timeout", client.wait(1, &mut out, Some(Duration::from_secs(9)))),
        forked("flush_tagged", client.flush_tagged(target, 1)),
        forked("await_ready", client.await_ready(1, None)),
        forked("completion_fd", client.completion_fd()),
        forked("marks", held.marks.wait(0, Duration::from_secs(9))),
        forked("client", engine.client()),
        forked("open", engine.open(&place.path, OpenOptions::read())),
        forked("alloc_host", engine.alloc_host(4096)),
        forked("register_host", registered),
        forked("set_size", target.set_size(4096)),
    ];
    checks.iter().all(|fine| *fine)
}

fn drop_all(held: &mut Held, order: usize) {
    // Each order begins with another handle.
    for step in 0..6 {
        match (order + step) % 6 {
            0 => held.engine = None,
            1 => held.client = None,
            2 => held.target = None,
            3 => held.region = None,
            4 => held.lease = None,
            _ => held.ticket = None,
        }
    }
}

#[test]
fn the_childs_calls_are_refused_and_its_drops_harm_nobody() {
    let name = "lifecycle::forks::the_childs_calls_are_refused_and_its_drops_harm_nobody";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        let mut held = hold(&place);
        let mut fastest = Duration::MAX;
        for order in 0..6 {
            let since = Instant::now();
            let length = std::fs::metadata(&place.path).unwrap().len();
            let child = fork(|| {
                let refused = calls_are_refused(&mut held, &place);
                drop_all(&mut held, order);
                refused
            });
            assert_eq!(wait_for(child), 0, "the child's exit code (order {order})");
            fastest = fastest.min(since.elapsed());
            assert_eq!(
                std::fs::metadata(&place.path).unwrap().len(),
                length,
                "the child cannot cut the file"
            );
            parent_goes_on(&mut held);
        }
        // A region's drop gives lanes a second to answer; the child has none to ask.
        assert!(fastest < Duration::from_millis(900), "the child waited for the parent's lanes: {fastest:?}");
        let region = held.region.take().unwrap();
        drop(held);
        region.release(Duration::from_secs(10)).expect("nothing was lost");
        assert!(eventually(SOON, || threads("fullbore-").is_empty()));
    });
}

fn parent_goes_on(held: &mut Held) {
    let (client, target) = (held.client.as_ref().unwrap(), held.target.as_ref().unwrap());
    let lease = held.lease.take().unwrap();
    held.lease = Some(load(client, target, lease, 8192, SEED).0);
    let stats = held.engine.as_ref().unwrap().stats();
    assert!(stats.lanes.iter().all(|l| l.alive && l.stale == 0));
    assert!(eventually(SOON, || threads("fullbore-").len() == stats.lanes.len() + 1));
}

/// A fork while commands are in flight: the child can wait for nothing, the parent gets everything.
#[test]
fn a_fork_with_transfers_in_flight() {
    let name = "lifecycle::forks::a_fork_with_transfers_in_flight";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        let mut held = hold(&place);
        for order in 0..6 {
            let mut lease = held.region.as_ref().unwrap().lease(4 << 20..12 << 20).unwrap();
            poison(&mut lease);
            let transfer = Transfer::read(held.target.as_ref().unwrap()).extent(0, lease);
            held.ticket = Some(held.client.as_ref().unwrap().submit(transfer).unwrap());
            let child = fork(|| {
                let ticket = held.ticket.take().unwrap();
                ticket.cancel(); // the parent's transfer is none of the child's business
                let refused = forked("Ticket::wait", ticket.wait());
                drop_all(&mut held, order);
                refused
            });
            let done = held.ticket.take().unwrap().wait().unwrap();
            done.result.as_ref().unwrap();
            check(&support::load::lease_of(done), 0, SEED, "in flight across a fork");
            assert_eq!(wait_for(child), 0, "the child's exit code (order {order})");
            parent_goes_on(&mut held);
        }
    });
}

fn answered(what: &str, completion: Option<Completion>) -> bool {
    let Some(done) = completion else {
        eprintln!("child: {what} gave no completion");
        return false;
    };
    let empty = done.bytes == 0 && done.transfer.is_none();
    forked(what, done.into_leases()) && empty
}

/// Every call that answers by a completion, or by none.
fn answers_end(tickets: [Ticket; 3], held: &Held, tagged: TransferId) -> bool {
    let [mut polled, mut waited, awaited] = tickets;
    let client = held.client.as_ref().unwrap();
    let mut awaited = pin!(awaited);
    let awaited = match awaited.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    };
    let mut out = Vec::new();
    let checks = [
        answered("Ticket::poll", polled.poll()),
        polled.poll().is_none(), // once
        answered("Ticket::wait_timeout", waited.wait_timeout(Duration::from_secs(60))),
        waited.wait_timeout(Duration::from_secs(60)).is_none(),
        answered("a ticket, awaited", awaited),
        !client.cancel(tagged),
        client.poll(&mut out) == 0 && out.is_empty(),
    ];
    checks.iter().enumerate().for_each(|(i, fine)| {
        if !fine {
            eprintln!("child: check {i} failed");
        }
    });
    checks.iter().all(|fine| *fine)
}

fn region_stays_the_parents(region: Region, registered: Region, lease: &mut HostLease) -> bool {
    let before = (lease.start(), lease.len());
    let checks = [
        forked("Region::lease", region.lease(0..4096)),
        forked("Region::range", region.range(0..4096)),
        forked("HostLease::split_off", lease.split_off(4096)),
        (lease.start(), lease.len()) == before,
    ];
    let released = [region, registered].map(|region| {
        let len = region.len();
        match region.release(Duration::from_secs(60)) {
            Err(e @ ReleaseError::Forked(_)) => {
                e.to_string().contains("only the parent") && e.into_region().len() == len
            }
            other => {
                eprintln!("child: release answered {other:?}");
                false
            }
        }
    });
    checks.iter().chain(&released).all(|fine| *fine)
}

/// Calls that cannot say no end all the same, at once, whether the transfer was over before the fork or not.
#[test]
fn nothing_in_the_child_waits_for_the_parents_transfers() {
    let name = "lifecycle::forks::nothing_in_the_child_waits_for_the_parents_transfers";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        for over in [false, true] {
            let mut held = hold(&place);
            let (client, region) = (held.client.as_ref().unwrap(), held.region.as_ref().unwrap());
            let read = |i: usize| {
                let lease = region.lease((4 + i) << 20..(5 + i) << 20).unwrap();
                Transfer::read(held.target.as_ref().unwrap()).extent((i as u64) << 20, lease)
            };
            let tickets = [0, 1, 2].map(|i| client.submit(read(i)).unwrap());
            let tagged = client.submit_tagged(read(3), 9).unwrap();
            let pages = support::kernel::Pages::new(1 << 20);
            // SAFETY: the pages outlive the region, which is released below.
            let registered =
                unsafe { held.engine.as_ref().unwrap().register_host(pages.ptr(), 1 << 20) }.unwrap();
            let active = || held.engine.as_ref().unwrap().stats().active;
            assert_eq!(active(), 4);
            if over {
                std::thread::sleep(Duration::from_millis(300));
            }
            // The child works on copies of the handles; the parent's are forgotten there only.
            let mut parts = Some((tickets, registered));
            let child = fork(|| {
                within(Duration::from_secs(20), "the child's calls", || {
                    let (tickets, registered) = parts.take().unwrap();
                    let ended = answers_end(tickets, &held, tagged);
                    let mut lease = held.lease.take().unwrap();
                    ended && region_stays_the_parents(held.region.take().unwrap(), registered, &mut lease)
                })
            });
            assert_eq!(wait_for(child), 0, "the child's exit code (over before: {over})");
            let (tickets, registered) = parts.take().unwrap();
            for (i, ticket) in tickets.into_iter().enumerate() {
                check(
                    &ticket.wait().unwrap().into_leases().unwrap()[0],
                    (i as u64) << 20,
                    SEED,
                    "the parent's",
                );
            }
            let mut done = Vec::new();
            held.client.as_ref().unwrap().wait(1, &mut done, Some(SOON)).unwrap();
            assert!(
                done.len() == 1 && done[0].tag == 9 && done[0].result.is_ok(),
                "nobody cancelled it: {done:?}"
            );
            drop(done);
            registered.release(SOON).expect("still registered in the parent, and now released");
            parent_goes_on(&mut held);
        }
    });
}

/// What the message says: the child can build an engine of its own, beside the copies of the parent's handles.
#[test]
fn the_child_builds_an_engine_of_its_own() {
    let name = "lifecycle::forks::the_child_builds_an_engine_of_its_own";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        let mut held = hold(&place);
        let child = fork(|| {
            let engine = Engine::builder().lanes(2).build().unwrap();
            let (target, region, client) =
                (place.open(&engine), engine.alloc_host(4 << 20).unwrap(), engine.client().unwrap());
            load(&client, &target, region.lease(0..4 << 20).unwrap(), 4096, SEED);
            drop((client, target, region));
            drop(engine);
            eventually(SOON, || threads("fullbore-").is_empty())
        });
        assert_eq!(wait_for(child), 0, "the child's exit code");
        parent_goes_on(&mut held);
    });
}
