//! A closed loop over requests: so many threads, each with one transfer of many objects in flight; marks on the way;
//! and, when it is asked for, an urgent load now and then while all of them are queued.

use std::convert::identity;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fullbore::{Client, Completion, ErrorKind, Marks, Mem, Priority, Transfer};

use crate::args::Plan;
use crate::arm::{LOOK, Outcome, Tally, Watch, aim, at_rest, most_workers, sum, whole};
use crate::direct::Op;
use crate::failure::Failure;
use crate::kv_workload::Load;
use crate::options::Requests;
use crate::pool::Part;
use crate::progress::Progress;
use crate::rig::Rig;
use crate::stop;
use crate::threads::Seat;
use crate::timeline::{Aim, Tape, Track};
use crate::work::{Clocks, Feed, Latency, LatencySummary, Order};

/// What is known of a loop over requests beside its rate.
#[derive(Debug, Clone, Default)]
pub struct Looped {
    /// Each request, in no order.
    pub loads: Vec<Load>,
    /// From the start of the arm to the completion of each request, in order.
    pub completed: Vec<Duration>,
    /// Of each mark: the objects before it, and the times from a request's submission to its landing.
    pub marks: Vec<(u64, LatencySummary)>,
    /// Of each urgent load its time, and how many requests were in flight when it was submitted.
    pub urgent: Vec<(Duration, u64)>,
    pub urgent_latency: LatencySummary,
}

/// How often an urgent load is submitted.
const URGENT_EVERY: Duration = Duration::from_millis(50);

/// The objects before each mark: every so many, and all of them.
fn marked(every: u64, objects: u64) -> Vec<u64> {
    (1..=objects).filter(|n| n % every == 0 || *n == objects).collect()
}

/// The last extent of each object that a mark is behind.
fn extents(parts: &[Part], marked: &[u64]) -> Vec<u32> {
    marked.iter().map(|&objects| parts.partition_point(|part| part.object < objects) as u32 - 1).collect()
}

/// Of each object of a request its place on the target, and its bytes.
fn objects(parts: &[Part], feed: &Feed, item: u64) -> Vec<(u64, u64)> {
    let of_object = parts.chunk_by(|a, b| a.object == b.object);
    let bytes = |parts: &[Part]| parts.iter().map(|part| part.len as u64).sum();
    of_object.map(|parts| (feed.offset(item, parts[0].object), bytes(parts))).collect()
}

/// The feed of an arm.
pub fn feed(plan: &Plan, requests: &Requests, order: Order) -> Feed {
    Feed::requests(order, plan.objects_an_item(), plan.limit, requests.count)
}

/// What all threads of the arm share.
struct Shared<'a> {
    feed: &'a Feed,
    parts: &'a [Part],
    requests: &'a Requests,
    /// A request, for the timeline.
    aim: Aim,
    progress: Progress,
    /// Passed twice, as in an arm.
    start: Barrier,
    in_flight: AtomicU64,
    most: AtomicU64,
    /// Threads that are not at their end.
    left: AtomicU64,
}

/// The arm: so many requests in flight.
pub fn run(
    rig: &Rig,
    plan: &Plan,
    requests: &Requests,
    inflight: usize,
    feed: &Feed,
    (phase, tape): (&str, Option<&Tape>),
) -> Result<Outcome, Failure> {
    let urgent = rig.urgent()?;
    let shared = &Shared {
        feed,
        parts: &rig.parts,
        requests,
        aim: whole(rig, plan),
        progress: Progress::of_arm(phase, feed, requests.size),
        start: Barrier::new(inflight + 1 + usize::from(urgent.is_some())),
        in_flight: AtomicU64::new(0),
        most: AtomicU64::new(0),
        left: AtomicU64::new(inflight as u64),
    };
    let marked = requests.mark_every.map(|every| marked(every.into(), plan.objects_an_item()));
    let marked = marked.unwrap_or_default();
    let mut users = Vec::new();
    for mems in rig.items(inflight)?.into_iter().enumerate() {
        let track = tape.map(|tape| tape.track(mems.0, format!("thread {}", mems.0)));
        users.push(User { track, ..User::new(rig, plan, mems, &marked)? });
    }
    let mut probe = urgent.map(|mem| Probe::new(rig, plan, mem)).transpose()?;
    if let Some(probe) = &mut probe {
        probe.track = tape.map(|tape| tape.track(inflight, "urgent"));
    }
    let watch = Watch::new(rig);
    let (mut workers, mut series) = Default::default();
    let (results, probed, spent, started) = thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        let seat = |_: &User| {
            let running = running.clone();
            Seat::new(scope, move |user: User| {
                let _until_the_end = running;
                user.run(shared)
            })
        };
        let seats = users.iter().map(seat).collect::<Result<Vec<_>, _>>()?;
        let beside = probe.as_ref().map(|_| Seat::new(scope, move |probe: Probe| probe.run(shared)));
        let beside = beside.transpose()?;
        let threads: Vec<_> = seats.into_iter().zip(users).map(|(seat, user)| seat.work(user)).collect();
        let probe = beside.zip(probe).map(|(seat, probe)| seat.work(probe));
        drop(running);
        shared.start.wait();
        // As in an arm: none goes before the clock does.
        let (clocks, started) = (Clocks::start(), Instant::now());
        shared.start.wait();
        (workers, series) = most_workers(rig, &ended, started, plan.draws().then_some(&shared.progress));
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().and_then(identity)).collect();
        let spent = clocks.and_then(|clocks| clocks.stop());
        Ok((results, probe.map(|probe| probe.join().and_then(identity)), spent, started))
    })?;
    let max_objects = shared.most.load(Ordering::Relaxed);
    let mut outcome = Outcome { spent: spent?, max_objects, workers, series, ..Outcome::default() };
    watch.ends(rig, plan, &mut outcome);
    let mut looped = add_up(&mut outcome, results, marked, started)?;
    stop::check()?;
    if let Some(probed) = probed {
        let probed = probed?;
        (looped.urgent, looped.urgent_latency) = (probed.times, probed.latency.summary());
        outcome.bytes += probed.bytes; // they were moved beside the others, and count in the paths
    }
    outcome.looped = Some(looped);
    Ok(outcome)
}

/// Adds up what the threads did.
fn add_up(
    outcome: &mut Outcome,
    users: Vec<Result<User, Failure>>,
    marked: Vec<u64>,
    started: Instant,
) -> Result<Looped, Failure> {
    let mut looped = Looped::default();
    let mut landings = marked.iter().map(|_| Latency::new()).collect::<Result<Vec<_>, _>>()?;
    let mut tallies = Vec::new();
    for user in users {
        let user = user?;
        looped.loads.extend(user.loads.iter().map(|&(begun, took)| {
            let begun = begun.saturating_duration_since(started);
            Load { begun, took, gpu: user.gpu }
        }));
        looped.completed.extend(user.completed.iter().map(|at| at.saturating_duration_since(started)));
        for (all, of_user) in landings.iter_mut().zip(&user.landings) {
            all.add(of_user)?;
        }
        tallies.push(Ok((user.tally, user.latency)));
    }
    sum(outcome, tallies)?;
    looped.completed.sort_unstable();
    looped.marks = marked.into_iter().zip(landings.iter().map(Latency::summary)).collect();
    Ok(looped)
}

/// A thread that asks for one request after another.
struct User {
    client: Client,
    transfer: Option<Transfer>,
    marks: Option<Marks>,
    tally: Tally,
    latency: Latency,
    completed: Vec<Instant>,
    /// When each was submitted, and its time.
    loads: Vec<(Instant, Duration)>,
    gpu: Option<u32>,
    /// Of each mark.
    landings: Vec<Latency>,
    /// The objects before each.
    marked: Vec<u64>,
    track: Option<Track>,
}

impl User {
    fn new(rig: &Rig, plan: &Plan, (slot, mems): (usize, Vec<Mem>), marked: &[u64]) -> Result<Self, Failure> {
        // As the pool deals its places.
        let gpus = &plan.memory.gpus;
        let gpu = if gpus.is_empty() { None } else { Some(gpus[slot % gpus.len()]) };
        let marks = (!marked.is_empty()).then(|| Marks::after(extents(&rig.parts, marked)));
        Ok(Self {
            client: rig.engine.client().map_err(Failure::setup)?,
            transfer: Some(at_rest(rig, plan, mems)),
            marks: marks.transpose().map_err(Failure::setup)?,
            tally: Tally::default(),
            latency: Latency::new()?,
            completed: Vec::new(),
            loads: Vec::new(),
            gpu,
            landings: marked.iter().map(|_| Latency::new()).collect::<Result<_, _>>()?,
            marked: marked.to_vec(),
            track: None,
        })
    }

    fn run(mut self, shared: &Shared<'_>) -> Result<Self, Failure> {
        shared.start.wait();
        shared.start.wait();
        let result = self.all(shared);
        shared.left.fetch_sub(1, Ordering::Relaxed);
        if result.is_err() {
            shared.feed.halt();
        }
        result.map(|()| self)
    }

    fn all(&mut self, shared: &Shared<'_>) -> Result<(), Failure> {
        while let (Some(item), Some(mut transfer)) = (shared.feed.take(), self.transfer.take()) {
            let mut tag = aim(&mut transfer, shared.parts, shared.feed, item);
            if let Some(track) = &mut self.track {
                (transfer, tag) = track.put(transfer, Aim { offset: tag, ..shared.aim.clone() });
                track.holds(tag as usize, objects(shared.parts, shared.feed, item));
            }
            if let Some(marks) = &self.marks {
                transfer = transfer.marks(marks);
            }
            let begun = Instant::now();
            let flying = shared.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            self.client.submit_tagged(transfer, tag).map_err(|rejected| Failure::data(rejected.error))?;
            shared.most.fetch_max(flying, Ordering::Relaxed);
            self.hear(begun)?;
            let completion = one(&self.client)?;
            self.completed.push(Instant::now());
            if let Some(track) = &mut self.track {
                track.end(std::slice::from_ref(&completion));
            }
            shared.in_flight.fetch_sub(1, Ordering::Relaxed);
            completion.result.map_err(Failure::data)?;
            self.latency.record(completion.times.total);
            self.loads.push((begun, completion.times.total));
            self.tally.add(completion.bytes, &completion.times, completion.paths);
            shared.progress.add(completion.bytes);
            self.transfer = completion.transfer;
            shared.feed.pause(shared.requests.think);
        }
        Ok(())
    }

    /// Waits for each mark. A transfer that ended without one says why in its completion.
    fn hear(&mut self, begun: Instant) -> Result<(), Failure> {
        let Some(marks) = &self.marks else { return Ok(()) };
        for (number, landing) in self.landings.iter_mut().enumerate() {
            loop {
                match marks.wait(number, LOOK) {
                    Ok(()) => {
                        landing.record(begun.elapsed());
                        if let Some(track) = &mut self.track {
                            track.landed(0, self.marked[number]);
                        }
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::TimedOut => {}
                    Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(()),
                    Err(error) => return Err(Failure::data(error)),
                }
            }
        }
        Ok(())
    }
}

/// The one completion that is to come: its deadline ends the wait.
pub fn one(client: &Client) -> Result<Completion, Failure> {
    let mut done = Vec::with_capacity(1);
    while done.is_empty() {
        client.wait(1, &mut done, Some(LOOK)).map_err(Failure::data)?;
    }
    done.pop().ok_or_else(|| Failure::data("no completion"))
}

/// A thread that now and then loads something urgent.
struct Probe {
    client: Client,
    transfer: Transfer,
    /// Offsets that it goes round.
    order: Order,
    track: Option<Track>,
}

/// What the urgent loads came to.
struct Probed {
    times: Vec<(Duration, u64)>,
    latency: Latency,
    bytes: u64,
}

impl Probe {
    fn new(rig: &Rig, plan: &Plan, mem: Mem) -> Result<Self, Failure> {
        let order = Order::new(rig.target.size().min(plan.size.unwrap_or(u64::MAX)), mem.len() as u64, true);
        let transfer = Transfer::read(&rig.target).priority(Priority::Urgent).extent(0, mem);
        Ok(Self { client: rig.engine.client().map_err(Failure::setup)?, transfer, order, track: None })
    }

    fn run(mut self, shared: &Shared<'_>) -> Result<Probed, Failure> {
        let mut probed = Probed { times: Vec::new(), latency: Latency::new()?, bytes: 0 };
        shared.start.wait();
        shared.start.wait();
        loop {
            thread::sleep(URGENT_EVERY);
            // Once the time is over the others become fewer.
            if shared.left.load(Ordering::Relaxed) == 0 || shared.feed.time_is_over() {
                return Ok(probed);
            }
            let behind = shared.in_flight.load(Ordering::Relaxed);
            if behind == 0 {
                continue; // all of them think
            }
            let offset = self.order.offset(probed.times.len() as u64);
            self.transfer.extents_mut().iter_mut().for_each(|extent| extent.set_offset(offset));
            let mut tag = offset;
            if let Some(track) = &mut self.track {
                let bytes = self.transfer.extents().iter().map(|extent| extent.len()).sum();
                let aim = Aim { op: Op::Read, offset, bytes, ..shared.aim.clone() };
                (self.transfer, tag) = track.put(self.transfer, aim);
            }
            let begun = Instant::now();
            self.client.submit_tagged(self.transfer, tag).map_err(|rejected| {
                shared.feed.halt();
                Failure::data(rejected.error)
            })?;
            let completion = one(&self.client)?;
            let took = begun.elapsed();
            if let Some(track) = &mut self.track {
                track.end(std::slice::from_ref(&completion));
            }
            completion.result.map_err(|error| {
                shared.feed.halt();
                Failure::data(error)
            })?;
            probed.bytes += completion.bytes;
            // One that ended after all others had nothing to overtake for part of its time.
            if shared.in_flight.load(Ordering::Relaxed) > 0 {
                probed.latency.record(took);
                probed.times.push((took, behind));
            }
            let Some(transfer) = completion.transfer else { return Ok(probed) };
            self.transfer = transfer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::layout;

    #[test]
    fn marks_are_behind_every_so_many_objects_and_the_last() {
        assert_eq!(marked(2, 5), [2, 4, 5]);
        assert_eq!(marked(5, 5), [5]);
        assert_eq!(marked(9, 5), [5]);
        assert_eq!(extents(&layout(50, 10, 10), &[2, 4, 5]), [1, 3, 4]);
        assert_eq!(extents(&layout(50, 10, 5), &[2, 4, 5]), [3, 7, 9]);
        assert_eq!(extents(&layout(45, 10, 5), &[4, 5]), [7, 8], "the last object is cut short");
    }
}
