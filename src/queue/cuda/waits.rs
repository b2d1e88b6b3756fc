//! When copies end. Nobody sleeps in the driver, whose wake-up takes 79 us (H200, driver 580) and brings an interrupt
//! behind every copy. A copy's end is predicted from the rate seen so far; the lane sleeps on its bell until then, and
//! asks in small steps from there on.

use super::stream::{Mark, Stream};
use crate::memory::cuda::{CudaError, Gpu};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What came of what was queued under a token.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub token: u32,
    pub result: Result<(), CudaError>,
    /// The driver does not say whether the copies have ended: the memory must not be used again.
    pub unknown: bool,
}

/// Bytes a nanosecond, before one is known: more than links of today have, so that the first look is early.
const FASTEST: f64 = 128.0;
/// A copy that was over at the first look may have been so for long: the next look is so much earlier.
const EARLIER: f64 = 1.0 / 4.0;
/// The first look comes at so much of the predicted time: copies differ by a few per cent.
const FIRST: f64 = 0.96;
/// Bytes of a copy that tells the rate.
const TELLING: u64 = 1 << 20;
/// Steps between looks, in ns: a thirty-second part of the time that it took so far.
const STEPS: (u64, u64) = (10_000, 10_000_000);
/// The longest sleep on the word of a rate, in ns: links of today move a whole unit in less.
const LONGEST: u64 = 10_000_000;

/// Waits for what was queued one way.
pub(super) struct Waits {
    gpu: Arc<Gpu>,
    queued: VecDeque<Job>,
    /// Bytes a nanosecond.
    rate: f64,
    /// When the last copy that ended was seen to.
    last: Instant,
}

struct Job {
    token: u32,
    bytes: u64,
    at: Instant,
    looks: u32,
    mark: Mark,
    /// What came of queueing: a failure stands, however the rest ends.
    result: Result<(), CudaError>,
}

impl Waits {
    pub fn new(gpu: &Arc<Gpu>) -> Waits {
        let (queued, last) = (VecDeque::with_capacity(16), Instant::now());
        Waits { gpu: gpu.clone(), queued, rate: FASTEST, last }
    }

    /// Has `token` end when what `stream` has so far does; `result`: what came of queueing its `bytes`.
    pub fn push(&mut self, token: u32, bytes: u64, stream: &Stream, result: Result<(), CudaError>) {
        let (at, mark) = (Instant::now(), stream.mark());
        self.queued.push_back(Job { token, bytes, at, looks: 0, mark, result });
    }

    /// How long to sleep before the next look; `None`: there is nothing to wait for.
    pub fn next_look(&self) -> Option<Duration> {
        let front = self.queued.front()?;
        let began = front.at.max(self.last);
        let so_far = began.elapsed().as_nanos() as u64;
        let predicted = (front.bytes as f64 / self.rate * FIRST) as u64;
        // One that takes many times what it should stands still: looking often would not help it.
        let part = if so_far > 8 * predicted { 4 } else { 32 };
        let step = (so_far / part).clamp(STEPS.0, STEPS.1);
        // Where a time of slow copies has gone by, the rate is learnt anew within few of them.
        let left = predicted.saturating_sub(so_far).min(LONGEST);
        Some(Duration::from_nanos(left.max(step)))
    }

    /// Looks, and adds what has ended.
    pub fn look(&mut self, ended: &mut VecDeque<Ended>) {
        let mut index = 0;
        while index < self.queued.len() {
            let mark = &self.queued[index].mark;
            let mut telling = self.queued.iter().skip(index + 1).filter(|later| mark.is_told_by(&later.mark));
            let told = || telling.any(|later| later.mark.come(&self.gpu) == Some(Ok(()))).then_some(Ok(()));
            let Some(known) = mark.come(&self.gpu).or_else(told) else {
                self.queued[index].looks += 1;
                index += 1;
                continue;
            };
            let Some(job) = self.queued.remove(index) else { return };
            if known.is_ok() {
                self.learn(&job);
            }
            job.mark.over();
            let result = known.map_err(|code| CudaError { call: "cuEventQuery", code }).and(job.result);
            ended.push_back(Ended { token: job.token, result, unknown: known.is_err() });
        }
    }

    fn learn(&mut self, job: &Job) {
        let now = Instant::now();
        let took = (now - job.at.max(self.last)).as_nanos().max(1) as f64;
        self.last = now;
        // What a small one takes is the way there and back, and says nothing of the rate.
        if job.bytes < TELLING {
            return;
        }
        let seen = job.bytes as f64 / took;
        self.rate = match job.looks {
            0 => (self.rate.max(seen) * (1.0 + EARLIER)).min(FASTEST),
            _ => self.rate + (seen - self.rate) / 4.0,
        };
    }
}
