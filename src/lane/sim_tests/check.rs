//! The invariants, looked at after every half of a turn and at every completion.

use super::ride::{Ride, Route, State};
use super::world::{MOST, World};
use crate::queue::sim::{Fault, Port, trace_of};
use crate::target::{Op, Request};
use std::sync::atomic::Ordering;

impl World {
    /// I1 and I2 for everything that is pushed or with the device; no lane or client sleeps through its wake-up.
    pub fn check(&self) {
        let device = self.device.borrow();
        for port in &device.ports {
            port.held().for_each(|request| self.check_held(request));
        }
        let lanes = self.lanes.borrow();
        let present = lanes.iter().enumerate().filter_map(|(i, turn)| turn.as_ref().map(|turn| (i, turn)));
        for (number, turn) in present {
            let (lane, port, inbox) = (&turn.lane, &device.ports[number], &self.inboxes[number]);
            let accepted = turn.asleep.and_then(Result::ok).unwrap_or(0);
            let (queued, in_flight) = (lane.queued - accepted.min(lane.queued), lane.in_flight + accepted);
            assert_eq!(queued as usize, port.queued.len(), "lane {number} miscounts what it pushed");
            assert_eq!(in_flight as usize, port.unreaped, "lane {number} miscounts what is in flight");
            if turn.asleep.is_some() && !port.wakes(self.now()) {
                assert!(inbox.control.is_empty(), "lost wake-up: lane {number} sleeps over a message");
                let work = !inbox.shares.is_empty() && lane.credits() > 0;
                assert!(!work, "lost wake-up: lane {number} sleeps over a share");
            }
        }
        drop(lanes);
        self.check_waiters();
    }

    /// A request names memory of a transfer that still has it.
    pub fn check_held(&self, request: &Request) {
        let rides = self.rides.borrow();
        let ride = &rides[trace_of(request) - 1];
        assert_ne!(ride.state, State::Returned, "I1: memory came back with a command over it: {request:?}");
        assert!(
            self.core.table.is_current(ride.handle),
            "I1: the entry is free, a command is not: {request:?}"
        );
        let window = request.window;
        let mine =
            |addr: u64| ride.spans.iter().any(|s| (s.window.addr()..s.window.addr() + s.len).contains(&addr));
        if window.len() == 0 || !mine(window.addr()) {
            return; // a flush, or scratch
        }
        match (self.memory.find(window), ride.raw.is_some()) {
            (Some((region, range)), false) => {
                assert!(
                    region.take(&range).is_err(),
                    "I1: no lease on memory with a command over it: {request:?}"
                )
            }
            (None, false) => panic!("I1: the region went with a command over it: {request:?}"),
            (Some((region, _)), true) => {
                assert!(region.raw_in_flight().load(Ordering::SeqCst) > 0, "I1: not counted: {request:?}")
            }
            (None, true) => {} // loose memory
        }
    }

    /// A command begins: its transfer was neither cancelled nor overdue when the lane looked.
    pub fn check_begun(&self, lane: usize, request: &Request) {
        let rides = self.rides.borrow();
        let (ride, (step, now)) = (&rides[trace_of(request) - 1], self.began[lane].get());
        assert_ne!(step, u64::MAX, "issued by a lane that ends: {request:?}");
        assert!(ride.cancelled.is_none_or(|at| at >= step), "issued after it was cancelled: {request:?}");
        // A flush behind a write has no share any more: the watchdog stops it.
        let overdue = ride.deadline <= now && (request.op != Op::Flush || ride.op == Op::Flush);
        assert!(!overdue, "I5: issued past its deadline: {request:?}, {ride:?}");
    }

    /// Who sleeps until a completion is woken by it.
    fn check_waiters(&self) {
        for ride in self.rides.borrow().iter().filter(|ride| ride.state == State::UnderWay) {
            if let Route::Asleep(flag) = &ride.route {
                let missed = self.core.table.published(ride.handle) && !flag.is_up();
                assert!(!missed, "lost wake-up: a ticket sleeps over its completion");
            }
        }
        for mail in self.mail.borrow().iter() {
            let missed = mail.asleep.as_ref().is_some_and(|flag| !flag.is_up()) && mail.mailbox.len() > 0;
            assert!(!missed, "lost wake-up: a client sleeps over its mailbox");
        }
    }

    /// Whether an abandoned transfer has memory there, and may still be written to.
    pub fn abandoned_in(&self, range: std::ops::Range<u64>) -> bool {
        let rides = self.rides.borrow();
        let late = |ride: &&Ride| ride.state == State::Abandoned && self.core.table.is_current(ride.handle);
        rides.iter().filter(late).flat_map(|ride| &ride.spans).any(|span| range.contains(&span.window.addr()))
    }

    /// The watchdog's turn, and what it promises.
    pub fn tick(&self) {
        if self.now() < self.next_tick.get() {
            return;
        }
        self.next_tick.set(self.now() + self.plan.tick);
        self.watch.borrow_mut().tick();
        let overdue: Vec<usize> = {
            let rides = self.rides.borrow();
            (0..rides.len()).filter(|i| self.is_overdue(&rides[*i])).collect()
        };
        for index in overdue {
            self.check_overdue(index);
        }
        self.settle_accounts();
    }

    fn is_overdue(&self, ride: &Ride) -> bool {
        ride.state == State::UnderWay && ride.deadline <= self.now()
    }

    /// I5: past deadline and grace it is published; past the deadline alone it is, once nothing of it is in flight.
    fn check_overdue(&self, index: usize) {
        let busy = self.holds(index + 1) || self.is_moving();
        let mut rides = self.rides.borrow_mut();
        let ride = &mut rides[index];
        if self.core.table.active(ride.handle.index) != Some(ride.handle) {
            return;
        }
        let past_grace = ride.deadline.saturating_add(self.plan.grace) <= self.now();
        assert!(!past_grace, "I5: transfer {} is past its deadline and grace, and not published", index + 1);
        ride.idle_ticks = if busy { 0 } else { ride.idle_ticks + 1 };
        assert!(ride.idle_ticks < 2, "I5: transfer {} is overdue, nothing of it is in flight", index + 1);
    }

    /// Whether some lane has something to do by itself, or is gone with what it had.
    fn is_moving(&self) -> bool {
        let lanes = self.lanes.borrow();
        (0..self.plan.lanes).any(|lane| match &lanes[lane] {
            Some(turn) => turn.asleep.is_none() || !turn.lane.again.is_empty(),
            None => true,
        })
    }

    /// Notes transfers that nobody asks for, or that were abandoned, and whose entries are free by now.
    pub fn settle_accounts(&self) {
        let count = self.rides.borrow().len();
        for index in 0..count {
            let fences = {
                let mut rides = self.rides.borrow_mut();
                let ride = &mut rides[index];
                let waits = matches!(
                    (ride.state, &ride.route),
                    (State::UnderWay, Route::Nobody) | (State::Abandoned, _)
                );
                if !waits || self.core.table.is_current(ride.handle) {
                    continue;
                }
                ride.state = State::Over;
                std::mem::take(&mut ride.fences)
            };
            assert!(!self.holds(index + 1), "I1: transfer {} is over with commands in flight", index + 1);
            for fence in fences {
                fence.check();
                self.memory.give_back(fence);
            }
        }
    }

    /// Nothing is left when all is over: I3, and I5 for what was abandoned.
    pub fn check_end(&self) {
        self.settle_accounts();
        assert!(self.rides.borrow().len() <= MOST);
        for (index, ride) in self.rides.borrow().iter().enumerate() {
            let told = matches!(ride.state, State::Returned | State::Over | State::Abandoned);
            let trace = index + 1;
            assert!(told || matches!(ride.route, Route::Nobody), "I3: transfer {trace} has no completion");
            if !self.leaked() {
                assert!(
                    matches!(ride.state, State::Returned | State::Over),
                    "I3: transfer {trace} is not over"
                );
            }
        }
        for mail in self.mail.borrow().iter() {
            assert_eq!(mail.mailbox.len(), 0, "I3: a completion too many");
        }
        if self.leaked() {
            return;
        }
        let device = self.device.borrow();
        let (sent, unread) =
            (device.counts.get(Fault::Stale), device.ports.iter().map(Port::stale).sum::<u64>());
        let counted: u64 = self.inboxes.iter().map(|inbox| inbox.counters.stale.get()).sum();
        assert_eq!(counted, sent - unread, "stale answers");
        drop(device);
        assert_eq!(self.core.table.taken(), 0, "an entry is lost");
        assert_eq!(self.core.quarantined.load(Ordering::SeqCst), 0, "bytes stay quarantined");
        for kind in 0..3 {
            let released = self.memory.release(self, kind, true);
            assert_eq!(released, Ok(()), "I5: region {kind} is not releasable when all is over");
        }
    }
}
