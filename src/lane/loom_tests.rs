//! Models of what lanes, clients and the watchdog share, run by loom in every order that matters.
//!
//! crossbeam's queues are stood in for (see `sync`), so this proves what is done around them. Each model counts:
//! who published, who saw the body, who was woken. A lost wake-up shows as a thread that waits for ever, which loom
//! reports as too many branches.

mod inbox;

use super::slots::{Admission, Claim, Handle, Last, Published, Stop, Table};
use crate::plan::PARTS;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::task::{Wake, Waker};

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// A count that a thread waits on: rings of a bell, wake-ups of a client. (loom's `unpark` also wakes a thread that
/// waits for a mutex, which then breaks.)
#[derive(Default)]
struct Signs {
    count: Mutex<u32>,
    more: Condvar,
}

impl Signs {
    fn count(&self) -> u32 {
        *self.count.lock().unwrap()
    }

    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.more.notify_one();
    }

    /// Waits until there are more than `seen`; answers how many.
    fn wait(&self, seen: u32) -> u32 {
        let mut count = self.count.lock().unwrap();
        while *count == seen {
            count = self.more.wait(count).unwrap();
        }
        *count
    }
}

impl Wake for Signs {
    fn wake(self: std::sync::Arc<Self>) {
        self.add();
    }
}

/// A table, and what came of its transfers.
struct World {
    table: Table<u32>,
    /// Completions published for a client; bodies that lanes or the watchdog were left with.
    published: AtomicU32,
    bodies: AtomicU32,
}

const BODY: u32 = 7;

impl World {
    fn new(entries: usize) -> Arc<World> {
        // Generations begin before their wrap.
        let table = Table::new(entries, u32::MAX);
        Arc::new(World { table, published: AtomicU32::new(0), bodies: AtomicU32::new(0) })
    }

    fn submit(&self, units: u32) -> Handle {
        self.submit_parts(&[units])
    }

    fn submit_parts(&self, units: &[u32]) -> Handle {
        let mut parts = [0; PARTS];
        parts[..units.len()].copy_from_slice(units);
        let admission = Admission { units: parts, deadline: 0, submitted: 0, tag: 0 };
        self.table.activate(BODY, admission).expect("an entry is free")
    }

    fn count_body(&self) {
        self.bodies.fetch_add(1, Ordering::Relaxed);
    }

    /// What `Core::publish` does, without its regions.
    fn publish(&self, last: Last) {
        match self.table.publish(last, 1) {
            Published::Done { wake } => {
                self.published.fetch_add(1, Ordering::Relaxed);
                wake.into_iter().for_each(Waker::wake);
            }
            Published::Detached(body) => {
                self.published.fetch_add(1, Ordering::Relaxed);
                assert_eq!(body, Some(BODY));
                self.count_body();
            }
            Published::Absorbed(body) => {
                assert_eq!(body, Some(BODY));
                self.count_body();
            }
        }
    }

    fn finish(&self, claim: Claim) {
        assert_eq!(self.table.body(&claim), Some(&BODY), "a claim without a body");
        self.table.finish(claim).into_iter().for_each(|last| self.publish(last));
    }

    /// A lane: claims and finishes units until there are none. Answers how many.
    fn lane(&self, handle: Handle) -> u32 {
        self.lane_of(handle, 0)
    }

    /// The same of a part. Its units come in order, each once.
    fn lane_of(&self, handle: Handle, part: u8) -> u32 {
        let mut units = 0;
        let mut next = 0;
        while let Some(claim) = self.table.claim(handle, part) {
            assert!(claim.unit >= next, "unit {} of part {part} is claimed twice", claim.unit);
            next = claim.unit + 1;
            units += 1;
            self.finish(claim);
        }
        units
    }

    fn stop(&self, handle: Handle, reason: Stop) {
        self.table.stop(handle, reason, PARTS).into_iter().for_each(|last| self.publish(last));
    }

    /// What `Core::abandon` does, without its regions.
    fn abandon(&self, handle: Handle) {
        let Some(pin) = self.table.pin(handle) else { return };
        match self.table.abandon(&pin, 2) {
            Some(Published::Done { wake }) => {
                self.published.fetch_add(1, Ordering::Relaxed);
                wake.into_iter().for_each(Waker::wake);
            }
            Some(_) => drop(self.published.fetch_add(1, Ordering::Relaxed)),
            None => {}
        }
        self.finish(pin);
    }

    /// A ticket's owner: sleeps until its completion is there, and takes it.
    fn wait(&self, handle: Handle) {
        let (signs, mut woken) = (std::sync::Arc::new(Signs::default()), 0);
        let waker = Waker::from(signs.clone());
        while !self.table.published(handle) {
            if !self.table.wait(handle, &waker) {
                woken = signs.wait(woken);
            }
        }
        let outcome = self.table.consume(handle).expect("published");
        assert_eq!(outcome.abandoned, outcome.body.is_none());
        outcome.body.into_iter().for_each(|_| self.count_body());
        assert!(self.table.consume(handle).is_none(), "a completion is taken twice");
    }

    /// When all threads are done: one completion and one body for each transfer, and all entries free.
    fn all_over(&self, transfers: u32) {
        assert_eq!(self.published.load(Ordering::Relaxed), transfers, "completions");
        assert_eq!(self.bodies.load(Ordering::Relaxed), transfers, "bodies");
        assert_eq!(self.table.taken(), 0, "entries");
    }
}

fn spawn<T: 'static>(world: &Arc<World>, work: impl FnOnce(&World) -> T + 'static) -> thread::JoinHandle<T> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

#[test]
fn loom_two_lanes_and_a_sleeping_client() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit(2);
        let lanes = [spawn(&world, move |w| w.lane(handle)), spawn(&world, move |w| w.lane(handle))];
        world.wait(handle);
        let units: u32 = lanes.into_iter().map(|lane| lane.join().unwrap()).sum();
        assert_eq!(units, 2, "each unit is claimed once");
        world.all_over(1);
    });
}

#[test]
fn loom_a_lane_against_a_watchdog_that_abandons() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit(1);
        let lane = spawn(&world, move |w| w.lane(handle));
        let watchdog = spawn(&world, move |w| {
            w.stop(handle, Stop::TimedOut);
            w.abandon(handle);
        });
        world.wait(handle);
        (lane.join().unwrap(), watchdog.join().unwrap());
        world.all_over(1);
    });
}

#[test]
fn loom_cancel_against_the_last_finish() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit(2);
        let lane = spawn(&world, move |w| w.lane(handle));
        let cancel = spawn(&world, move |w| w.stop(handle, Stop::Cancelled));
        world.wait(handle);
        (lane.join().unwrap(), cancel.join().unwrap());
        world.all_over(1);
    });
}

/// Each part's units are claimed by a lane of its own, while somebody stops them all.
#[test]
fn loom_stop_against_claims_of_two_parts() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit_parts(&[1, 2]);
        let other = spawn(&world, move |w| w.lane_of(handle, 1));
        let stop = spawn(&world, move |w| {
            w.stop(handle, Stop::Cancelled);
            assert!((0..2).all(|part| !w.table.claimable(handle, part)), "a unit was left to be claimed");
        });
        assert!(world.lane_of(handle, 0) <= 1);
        // Units that were neither claimed nor taken away would leave it open for ever.
        world.wait(handle);
        assert!(other.join().unwrap() <= 2);
        stop.join().unwrap();
        world.all_over(1);
    });
}

/// A handle of two parts against the next use of its entry, which has other parts.
#[test]
fn loom_a_stale_part_against_the_next_use_of_its_entry() {
    model(|| {
        let world = World::new(1);
        let old = world.submit_parts(&[1, 1]);
        let late = spawn(&world, move |w| w.lane_of(old, 1));
        let stop = spawn(&world, move |w| w.stop(old, Stop::Cancelled));
        world.lane(old);
        world.wait(old);
        let new = world.submit_parts(&[0, 1]);
        assert_eq!(world.lane_of(new, 1), 1, "the units of a transfer are its own");
        world.wait(new);
        assert!(late.join().unwrap() <= 1);
        stop.join().unwrap();
        world.all_over(2);
    });
}

#[test]
fn loom_detach_against_publish() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit(1);
        let lane = spawn(&world, move |w| w.lane(handle));
        if world.table.detach(handle) {
            let body = world.table.consume(handle).expect("published").body;
            assert_eq!(body, Some(BODY));
            world.count_body();
        }
        lane.join().unwrap();
        world.all_over(1);
    });
}

#[test]
fn loom_detach_against_abandon_and_finish() {
    model(|| {
        let world = World::new(1);
        let handle = world.submit(1);
        let lane = spawn(&world, move |w| w.lane(handle));
        let watchdog = spawn(&world, move |w| w.abandon(handle));
        if world.table.detach(handle) {
            let body = world.table.consume(handle).expect("published").body;
            body.into_iter().for_each(|_| world.count_body());
        }
        (lane.join().unwrap(), watchdog.join().unwrap());
        world.all_over(1);
    });
}

/// A lane that was held up claims by a handle whose entry is another transfer's by then, one with more units.
#[test]
fn loom_a_stale_handle_against_the_next_use_of_its_entry() {
    model(|| {
        let world = World::new(1);
        let old = world.submit(1);
        let late = spawn(&world, move |w| w.lane(old));
        world.lane(old);
        world.wait(old);
        let new = world.submit(2);
        assert_eq!(world.lane(new), 2, "the units of a transfer are its own");
        world.wait(new);
        assert!(late.join().unwrap() <= 1);
        world.all_over(2);
    });
}

/// A cancel that comes late hits nobody else.
#[test]
fn loom_a_stale_cancel_against_the_next_use_of_its_entry() {
    model(|| {
        let world = World::new(1);
        let old = world.submit(1);
        let late = spawn(&world, move |w| w.stop(old, Stop::Cancelled));
        world.lane(old);
        world.wait(old);
        let new = world.submit(1);
        assert_eq!(world.lane(new), 1, "stopped by a cancel of another");
        world.wait(new);
        late.join().unwrap();
        world.all_over(2);
    });
}
