//! Bells, mailboxes and inboxes: nobody sleeps over what was brought, and nothing is left where nobody looks.

use super::{Signs, model};
use crate::lane::bell::Bell;
use crate::lane::inbox::Inbox;
use crate::lane::mailbox::Mailbox;
use crate::lane::schedule::Share;
use crate::lane::slots::Handle;
use crate::plan::UnitCursor;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::task::Waker;

/// A lane, its bell, and an inbox of two flags: shares, for which it needs room, and messages.
struct House {
    bell: Bell,
    /// Writes to the bell's descriptor.
    writes: std::sync::Arc<Signs>,
    share: AtomicBool,
    message: AtomicBool,
}

impl House {
    fn new() -> Arc<House> {
        let off = || AtomicBool::new(false);
        let writes = std::sync::Arc::new(Signs::default());
        let written = writes.clone();
        let bell = Bell::simulated(move || written.add());
        Arc::new(House { bell, writes, share: off(), message: off() })
    }

    /// As crossbeam's queues do, it looks before it takes, and may see what was there a while ago.
    fn hear(&self) -> u32 {
        let take = |flag: &AtomicBool| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::AcqRel);
        take(&self.share) as u32 + take(&self.message) as u32
    }

    /// The lane's loop around its sleep. A queue that polls the descriptor is woken by a *new* write, and may reap the
    /// sign of one whenever the lane reaps.
    fn lane(&self, expected: u32) {
        let (mut heard, mut reaped) = (self.hear(), 0);
        while heard < expected {
            let anything = || self.share.load(Ordering::Relaxed) || self.message.load(Ordering::Relaxed);
            if self.bell.lie_down(true, anything) {
                self.writes.wait(reaped);
            }
            self.bell.get_up();
            reaped = self.writes.count();
            heard += self.hear();
        }
    }
}

#[test]
fn loom_a_share_and_a_message_wake_a_sleeping_lane() {
    model(|| {
        let house = House::new();
        let (dealer, sender) = (house.clone(), house.clone());
        let deals = thread::spawn(move || {
            dealer.share.swap(true, Ordering::Release);
            dealer.bell.ring_if_asleep();
        });
        let sends = thread::spawn(move || {
            sender.message.swap(true, Ordering::Release);
            sender.bell.ring();
        });
        house.lane(2);
        (deals.join().unwrap(), sends.join().unwrap());
    });
}

/// Also with a message, whose ring the lane may reap the sign of before it sleeps.
#[test]
fn loom_a_ring_whose_sign_was_reaped_deafens_no_lane() {
    model(|| {
        let house = House::new();
        let dealer = house.clone();
        let deals = thread::spawn(move || {
            dealer.message.swap(true, Ordering::Release);
            dealer.bell.ring();
            dealer.share.swap(true, Ordering::Release);
            dealer.bell.ring_if_asleep();
        });
        house.lane(2);
        deals.join().unwrap();
    });
}

#[test]
fn loom_a_mailbox_wakes_its_client() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(2));
        let put = |index| {
            let mailbox = mailbox.clone();
            thread::spawn(move || assert!(!mailbox.put(Handle { index, generation: 0 })))
        };
        let lanes = [put(0), put(1)];
        let (signs, mut woken, mut got) = (std::sync::Arc::new(Signs::default()), 0, 0);
        let waker = Waker::from(signs.clone());
        while got < 2 {
            if !mailbox.wait(&waker, 1) {
                woken = signs.wait(woken);
            }
            while mailbox.take().is_some() {
                got += 1;
            }
        }
        lanes.into_iter().for_each(|lane| lane.join().unwrap());
    });
}

/// An event loop takes what is there while lanes put: what is left behind keeps the descriptor readable, and nothing
/// does once all was taken.
#[test]
fn loom_a_signal_is_up_while_something_is_there() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(3));
        mailbox.signal().unwrap();
        let put = |index| mailbox.put(Handle { index, generation: 0 });
        put(0);
        let lane = mailbox.clone();
        let lane = thread::spawn(move || {
            lane.put(Handle { index: 1, generation: 0 });
            lane.put(Handle { index: 2, generation: 0 });
        });
        while mailbox.take().is_some() {}
        lane.join().unwrap();
        assert!(
            mailbox.len() == 0 || mailbox.signal.get().unwrap().is_up(),
            "a completion that nobody hears of"
        );
        while mailbox.take().is_some() {}
        assert!(!mailbox.signal.get().unwrap().is_up(), "a loop that spins");
    });
}

/// The client goes while a lane puts: one of the two takes the handle out, and neither leaves it.
#[test]
fn loom_a_mailbox_closed_against_put_is_emptied() {
    model(|| {
        let mailbox = Arc::new(Mailbox::new(1));
        let lane = mailbox.clone();
        let lane = thread::spawn(move || {
            let closed = lane.put(Handle { index: 0, generation: 0 });
            u32::from(closed && lane.take().is_some())
        });
        mailbox.close();
        let taken = u32::from(mailbox.take().is_some());
        assert_eq!(taken + lane.join().unwrap(), 1, "a completion was left in a mailbox that nobody reads");
    });
}

/// A share that reaches an inbox while its lane dies is handed out by one of the two, so that its transfer fails.
#[test]
fn loom_a_share_dealt_to_a_dying_lane_is_buried_once() {
    model(|| {
        let inbox = Arc::new(Inbox::new(1, 1, Bell::silent()));
        let lane = inbox.clone();
        let lane = thread::spawn(move || lane.die().count());
        let handle = Handle { index: 0, generation: 0 };
        let cursor = UnitCursor::new(4096, 1);
        let taken = inbox.deal(
            Share {
                handle,
                class: 0,
                part: 0,
                deadline: 0,
                cursor,
                most: 1,
                in_hand: 0,
                target: 0,
                depth: 1,
            },
            |_| true,
        );
        let buried = if taken { 0 } else { inbox.bury().count() };
        let buried = buried + lane.join().unwrap();
        assert!(if taken { buried == 1 } else { buried <= 1 }, "a share was lost, or buried twice");
        assert_eq!(inbox.bury().count(), 0, "a share is left in an inbox that nobody hears");
    });
}
