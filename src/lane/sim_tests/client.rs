//! What clients do: submit, cancel, wait, and walk away.

use super::memory::{Fence, LOOSE, OWNED, POISON, RAW, REGISTERED};
use super::ride::{Flag, Ride, Route, Span, State};
use super::stripes::Dealt;
use super::world::{CACHED, DISK, READ, WRITTEN, World};
use crate::lane::{
    Admission, Extent, Handle, Job, Mailbox, Path, Priority, Source, Stop, Transfer, units_of,
};
use crate::memory::{RawExtent, RawOutcome};
use crate::plan::routes;
use crate::queue::sim::{Rng, bytes_mut, content, raw_list};
use crate::target::Op;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A client's mailbox, and the flag that its owner sleeps on.
pub struct Mail {
    pub mailbox: Arc<Mailbox>,
    pub asleep: Option<Arc<Flag>>,
}

impl Mail {
    pub fn new(room: usize) -> Mail {
        Mail { mailbox: Arc::new(Mailbox::new(room)), asleep: None }
    }
}

/// What is about to be submitted.
struct Draft {
    op: Op,
    disk: usize,
    spans: Vec<Span>,
    fences: Vec<Fence>,
    durable: bool,
    source: Source,
    raw: Option<Vec<RawExtent>>,
    mail: Option<usize>,
}

impl World {
    /// Submits a transfer of some kind. False: all were submitted, or there is no room now.
    pub fn submit(&self) -> bool {
        let trace = self.rides.borrow().len() + 1;
        if trace > self.plan.transfers {
            return false;
        }
        let mut rng = self.roll(Rng::fork);
        let kind = rng.below(100);
        let draft = match kind {
            0..4 => Some(self.flush(&mut rng)),
            4..24 => self.raw(&mut rng, trace),
            _ => self.owned(&mut rng, trace),
        };
        let Some(draft) = draft else {
            self.crowded.set(self.crowded.get() + 1);
            return false;
        };
        self.enter(&mut rng, trace, draft)
    }

    fn flush(&self, rng: &mut Rng) -> Draft {
        let disk = rng.pick(&[READ as u64, WRITTEN as u64]) as usize;
        let source = Source::Flush(self.targets[disk].clone());
        let (spans, fences) = (Vec::new(), Vec::new());
        Draft { op: Op::Flush, disk, spans, fences, durable: false, source, raw: None, mail: None }
    }

    /// Lengths and offsets on a disk: apart by a block or more, so that each command tells whose it is.
    fn places(&self, rng: &mut Rng, op: Op, disk: usize) -> Vec<(u64, u64)> {
        let (block, unit, command) = (self.plan.block as u64, self.plan.unit, self.plan.command as u64);
        let count = if rng.chance(120) { rng.within(5, 16) } else { rng.within(1, 4) };
        let most = if count > 4 { unit / 2 } else { rng.pick(&[block, command, unit, 4 * unit]) };
        let mut places = Vec::new();
        let mut at = match op {
            Op::Write => self.written.get(),
            // Now and then across the end that the engine does not know of.
            _ if disk == READ && rng.chance(200) => DISK - (18 << 10),
            _ => rng.below(DISK / 2),
        };
        for _ in 0..count {
            let mut len = rng.within(1, most.max(2));
            let straight = op == Op::Write || rng.chance(500);
            if straight {
                (at, len) = (at.next_multiple_of(block), len.next_multiple_of(block));
            }
            if at + len + 2 * block > DISK {
                break;
            }
            places.push((at, len));
            at = (at + len).next_multiple_of(block) + block + if straight { 0 } else { rng.below(block) };
        }
        if op == Op::Write {
            self.written.set(at.next_multiple_of(block));
        }
        if rng.chance(300) {
            let half = rng.below(places.len().max(1) as u64) as usize;
            places.rotate_left(half);
        }
        places
    }

    /// A transfer of leases.
    fn owned(&self, rng: &mut Rng, trace: usize) -> Option<Draft> {
        let op = if rng.chance(300) { Op::Write } else { Op::Read };
        let disk = if op == Op::Write {
            WRITTEN
        } else {
            rng.pick(&[READ as u64, READ as u64, CACHED as u64]) as usize
        };
        let mut transfer = Transfer::new(op, self.targets[disk].clone());
        let (mut spans, mut fences) = (Vec::new(), Vec::new());
        for (offset, len) in self.places(rng, op, disk) {
            let kind = rng.pick(&[OWNED as u64, OWNED as u64, REGISTERED as u64]) as usize;
            let skew = if rng.chance(700) { 0 } else { rng.within(1, 255) as usize };
            let Some((mem, fence)) = self.memory.lease(rng, kind, len as usize, skew) else { continue };
            fences.push(fence);
            transfer.push(offset, mem);
            let window = transfer.extents().last().expect("just pushed").window();
            spans.push(self.fill(op, trace, Span { offset, len, window }));
        }
        if rng.chance(300) {
            transfer.require = self.demandable(&transfer);
        }
        let durable = op == Op::Write && rng.chance(400);
        transfer.durable = durable;
        let mail = rng.chance(400).then(|| rng.below(3) as usize);
        let source = Source::Owned(transfer);
        (!spans.is_empty()).then_some(Draft { op, disk, spans, fences, durable, source, raw: None, mail })
    }

    /// The path that all of a transfer would take, if it is one: see `Shared::check_path`.
    fn demandable(&self, transfer: &Transfer) -> Option<Path> {
        let target = &transfer.target;
        let path = |extent: &Extent| {
            let fixed = !self.memory.is_gone(extent.window());
            match routes(&target.geometry, extent.offset(), extent.len(), extent.window().addr()) {
                (true, false) => Some(Path::of(target.kind, target.direct, false, fixed)),
                (false, true) => Some(Path::of(target.kind, target.direct, true, false)),
                _ => None,
            }
        };
        let first = path(transfer.extents().first()?)?;
        transfer.extents().iter().all(|extent| path(extent) == Some(first)).then_some(first)
    }

    /// A list of pointers, into a registered region or into loose memory.
    fn raw(&self, rng: &mut Rng, trace: usize) -> Option<Draft> {
        let op = if rng.chance(300) { Op::Write } else { Op::Read };
        let disk = if op == Op::Write { WRITTEN } else { READ };
        let (mut spans, mut fences) = (Vec::new(), Vec::new());
        for (offset, len) in self.places(rng, op, disk) {
            let kind = rng.pick(&[RAW as u64, RAW as u64, LOOSE as u64]) as usize;
            let skew = if rng.chance(700) { 0 } else { rng.within(1, 255) as usize };
            let Some((window, fence)) = self.memory.cells(rng, kind, len as usize, skew) else { continue };
            fences.push(fence);
            spans.push(self.fill(op, trace, Span { offset, len, window }));
        }
        let extent = |span: &Span| RawExtent {
            offset: span.offset,
            ptr: span.window.ptr(),
            len: span.len,
            outcome: RawOutcome { bytes: 99, errno: 99, reserved: 99 },
        };
        let mut raw: Vec<RawExtent> = spans.iter().map(extent).collect();
        if raw.is_empty() {
            return None;
        }
        let (mut list, snapshot) = (raw_list(&mut raw), self.core.regions.snapshot());
        for index in 0..list.count() {
            // As submission does: see `Shared::hold`.
            let region = snapshot.find(list.window(index).addr(), list.range(index).1);
            let held = region.map_or(u32::MAX, |region| {
                region.raw_in_flight().fetch_add(1, Ordering::SeqCst);
                region.id
            });
            list.prepare(index, held);
        }
        let source = Source::Raw { list, target: self.targets[disk].clone(), options: 0.into() };
        let mail = Some(rng.below(3) as usize);
        Some(Draft { op, disk, spans, fences, durable: false, source, raw: Some(raw), mail })
    }

    /// Poison where bytes are to come, content where they come from.
    fn fill(&self, op: Op, trace: usize, span: Span) -> Span {
        let bytes = bytes_mut(span.window);
        match op {
            Op::Write => {
                bytes.iter_mut().zip(span.offset..).for_each(|(b, at)| *b = content(trace as u32, at))
            }
            _ => bytes.fill(POISON),
        }
        span
    }

    /// Takes an entry and deals the transfer to lanes, as submission does.
    fn enter(&self, rng: &mut Rng, trace: usize, draft: Draft) -> bool {
        let submitted = self.now();
        let deadline = if rng.chance(self.plan.hurried) {
            submitted + rng.within(0, 2_000_000)
        } else {
            rng.pick(&[u64::MAX, submitted + 400_000_000])
        };
        let mailbox = draft.mail.map(|client| self.mail.borrow()[client].mailbox.clone());
        let job = Job {
            op: draft.op,
            source: draft.source,
            trace_id: trace as u32,
            durable: draft.durable,
            mailbox,
        };
        let (units, require, target) = (units_of(&job, self.plan.unit), job.require(), job.target().clone());
        let admission = Admission { units, deadline, submitted, tag: trace as u64 };
        let handle = match self.core.table.activate(job, admission) {
            Ok(handle) => handle,
            Err(job) => {
                assert_eq!(self.core.table.taken(), self.plan.entries, "refused with an entry free");
                job.release_raw(&self.core.regions);
                drop(job);
                draft.fences.into_iter().for_each(|fence| self.memory.give_back(fence));
                self.busy.set(self.busy.get() + 1);
                return false;
            }
        };
        let route = draft.mail.map_or(Route::Ticket, Route::Mail);
        self.rides.borrow_mut().push(Ride {
            handle,
            op: draft.op,
            target: draft.disk,
            parts: units.iter().filter(|units| **units > 0).count(),
            require,
            spans: draft.spans,
            raw: draft.raw,
            fences: draft.fences,
            durable: draft.durable,
            submitted,
            deadline,
            cancelled: None,
            route,
            state: State::UnderWay,
            error: None,
            idle_ticks: 0,
        });
        let class = rng.pick(&[Priority::Urgent, Priority::High, Priority::Normal, Priority::Low]) as u8;
        self.deal(rng, handle, &target, Dealt { class, deadline, units });
        if self.core.closing.load(Ordering::SeqCst) {
            self.core.stop(handle, Stop::Shutdown);
        }
        true
    }

    fn some_ride(&self, wanted: impl Fn(&Ride) -> bool) -> Option<usize> {
        let rides = self.rides.borrow();
        let found: Vec<usize> = (0..rides.len()).filter(|i| wanted(&rides[*i])).collect();
        (!found.is_empty()).then(|| found[self.roll(|rng| rng.below(found.len() as u64)) as usize])
    }

    /// Cancels a transfer: one under way, or one that was over long ago.
    pub fn cancel(&self) {
        let old = self.roll(|rng| rng.chance(200));
        let Some(index) = self.some_ride(|ride| (ride.state == State::UnderWay) != old) else { return };
        let handle = {
            let mut rides = self.rides.borrow_mut();
            if !old && rides[index].cancelled.is_none() {
                rides[index].cancelled = Some(self.steps.get());
            }
            rides[index].handle
        };
        self.core.stop(handle, Stop::Cancelled);
    }

    /// Drops a ticket, or a client.
    pub fn leave(&self) {
        if self.roll(|rng| rng.chance(150)) {
            let client = self.roll(|rng| rng.below(3)) as usize;
            let new = Mail::new(self.plan.entries);
            let old = std::mem::replace(&mut self.mail.borrow_mut()[client], new);
            old.mailbox.close();
            while let Some(handle) = old.mailbox.take() {
                drop(self.core.consume(handle));
            }
            for ride in self.rides.borrow_mut().iter_mut() {
                if matches!(ride.route, Route::Mail(mine) if mine == client) && ride.state == State::UnderWay
                {
                    ride.route = Route::Nobody;
                }
            }
            return;
        }
        let ticket = |ride: &Ride| {
            ride.state == State::UnderWay && matches!(ride.route, Route::Ticket | Route::Asleep(_))
        };
        let Some(index) = self.some_ride(ticket) else { return };
        let handle = self.rides.borrow()[index].handle;
        if self.core.table.detach(handle) {
            drop(self.core.consume(handle));
        }
        self.rides.borrow_mut()[index].route = Route::Nobody;
    }

    /// Looks for completions, or lies down to wait for them.
    pub fn poll(&self) {
        let count = self.rides.borrow().len();
        for index in 0..count {
            self.poll_ticket(index);
        }
        for client in 0..3 {
            self.poll_mail(client);
        }
    }

    fn poll_ticket(&self, index: usize) {
        let (handle, route) = {
            let ride = &self.rides.borrow()[index];
            if ride.state != State::UnderWay {
                return;
            }
            (ride.handle, ride.route.clone())
        };
        match route {
            Route::Mail(_) | Route::Nobody => return,
            Route::Asleep(flag) if !flag.is_up() => return,
            Route::Ticket | Route::Asleep(_) => {}
        }
        if !self.core.table.published(handle) && self.roll(|rng| rng.chance(100)) {
            let flag = Arc::new(Flag::default());
            if !self.core.table.wait(handle, &flag.waker()) {
                self.rides.borrow_mut()[index].route = Route::Asleep(flag);
                return;
            }
        }
        self.rides.borrow_mut()[index].route = Route::Ticket;
        if let Some(completion) = self.core.consume(handle) {
            self.completed(index, completion);
        }
    }

    fn poll_mail(&self, client: usize) {
        let mailbox = {
            let mail = &mut self.mail.borrow_mut()[client];
            if mail.asleep.as_ref().is_some_and(|flag| !flag.is_up()) {
                return;
            }
            mail.asleep = None;
            mail.mailbox.clone()
        };
        while let Some(handle) = mailbox.take() {
            self.open(client, handle);
        }
        if self.roll(|rng| rng.chance(50)) {
            let flag = Arc::new(Flag::default());
            if !mailbox.wait(&flag.waker(), 1) {
                self.mail.borrow_mut()[client].asleep = Some(flag);
            }
        }
    }

    fn open(&self, client: usize, handle: Handle) {
        let index = {
            let rides = self.rides.borrow();
            let waits = |ride: &Ride| {
                ride.handle == handle
                    && ride.state == State::UnderWay
                    && matches!(ride.route, Route::Mail(mine) if mine == client)
            };
            rides.iter().position(waits).expect("I3: a completion that nobody waits for, or a second one")
        };
        let completion = self.core.consume(handle).expect("I3: in the mailbox, and not published");
        assert_eq!(completion.tag, index as u64 + 1, "I3: the completion of another");
        self.completed(index, completion);
    }
}
