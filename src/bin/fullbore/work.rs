//! What an arm has to do and how it is measured: the order of objects, the shared feed, clocks and times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fullbore::Times;
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use crate::args::Limit;
use crate::failure::Failure;
use crate::stop;
use crate::units::nanos;

/// Objects that an arm moves at least, unless time ends it.
const MIN_OBJECTS: u64 = 256;

/// How often a pause looks whether there is anything left to pause for.
const PAUSE_LOOK: Duration = Duration::from_millis(10);

/// The offsets of whole objects, in order or shuffled, over the file again and again.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    count: u64,
    bs: u64,
    shuffled: bool,
}

impl Order {
    pub fn new(size: u64, bs: u64, shuffled: bool) -> Self {
        Self { count: (size / bs).max(1), bs, shuffled }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Objects an arm moves: all of the file, and no fewer than make a steady number.
    pub fn objects_an_arm(&self) -> u64 {
        self.count.max(MIN_OBJECTS)
    }

    /// File offset of the `index`-th object. Each round over the file takes every object once.
    pub fn offset(&self, index: u64) -> u64 {
        let (round, index) = (index / self.count, index % self.count);
        let object = if self.shuffled { permuted(index, self.count, round) } else { index };
        object * self.bs
    }
}

/// A keyed permutation of 0..count: a Feistel network over the next even number of bits, walked until it lands
/// inside. It needs no memory, however many objects a device holds.
pub fn permuted(index: u64, count: u64, key: u64) -> u64 {
    let bits = (u64::BITS - (count - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << bits) - 1;
    let mut at = index;
    loop {
        let (mut left, mut right) = (at >> bits, at & mask);
        for turn in 0..4 {
            let mixed = right.wrapping_add(turn << 56).wrapping_add(key << 32);
            let hash = (mixed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (left, right) =
                (right, left ^ ((hash ^ (hash >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32 & mask));
        }
        at = left << bits | right;
        if at < count {
            return at;
        }
    }
}

/// Deals objects, or requests of many, to the threads of an arm until the count, the time, an error or Ctrl-C ends it.
pub struct Feed {
    order: Order,
    /// Objects of an item.
    objects: u64,
    next: AtomicU64,
    total: u64,
    until: Option<Instant>,
    halted: AtomicBool,
}

impl Feed {
    /// The whole of an arm, from now on.
    pub fn new(order: Order, limit: Limit) -> Self {
        Self::requests(order, 1, limit, order.objects_an_arm())
    }

    /// As many requests of so many objects, or those that the time is enough for.
    pub fn requests(order: Order, objects: u64, limit: Limit, total: u64) -> Self {
        let total = if limit.time_based { u64::MAX } else { total };
        let until = limit.runtime.map(|time| Instant::now() + time);
        Self { order, objects, next: AtomicU64::new(0), total, until, halted: AtomicBool::new(false) }
    }

    /// A given number of objects.
    pub fn of(order: Order, total: u64) -> Self {
        Self::requests(order, 1, Limit { time_based: false, runtime: None }, total)
    }

    /// The target offset of an object of the item that `take` gave.
    pub fn offset(&self, item: u64, object: u64) -> u64 {
        self.order.offset(item * self.objects + object)
    }

    /// The next item, or `None` when the arm is to drain.
    pub fn take(&self) -> Option<u64> {
        if !self.goes_on() {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.total).then_some(index)
    }

    fn goes_on(&self) -> bool {
        let ended = self.halted.load(Ordering::Relaxed) || stop::requested() || self.time_is_over();
        !ended && self.next.load(Ordering::Relaxed) < self.total
    }

    /// A pause between two items. Behind the last one there is none, since it would be in the arm's time.
    pub fn pause(&self, time: Duration) {
        let begun = Instant::now();
        while self.goes_on() {
            let left = time.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(PAUSE_LOOK));
        }
    }

    /// Whether the arm had a time, and it is over.
    pub fn time_is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// When the arm's time is over, if it has one.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Lets every thread of the arm drain: one of them failed.
    pub fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
    }

    /// Items the arm will move, if a count ends it.
    pub fn total(&self) -> Option<u64> {
        (self.total != u64::MAX).then_some(self.total)
    }
}

/// Times of objects, in nanoseconds.
pub struct Latency(Histogram<u64>);

impl Latency {
    pub fn new() -> Result<Self, Failure> {
        Histogram::new_with_bounds(1, 3_600_000_000_000, 3).map(Self).map_err(Failure::setup)
    }

    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn add(&mut self, other: &Self) -> Result<(), Failure> {
        self.0.add(&other.0).map_err(Failure::setup)
    }

    pub fn summary(&self) -> LatencySummary {
        let (p50, p99) = (self.0.value_at_quantile(0.5), self.0.value_at_quantile(0.99));
        LatencySummary { p50, p99, max: self.0.max() }
    }
}

/// Steps of a curve at most.
const STEPS: f64 = 400.0;

impl Latency {
    /// Times, and the share of objects that took no longer.
    pub fn curve(&self) -> Vec<(u64, f64)> {
        let (all, mut sum, mut last) = (self.0.len().max(1) as f64, 0, -1.0);
        let mut curve = Vec::new();
        for step in self.0.iter_recorded() {
            sum += step.count_at_value();
            let share = sum as f64 / all;
            if share - last >= 1.0 / STEPS || sum == self.0.len() {
                curve.push((step.value_iterated_to(), share));
                last = share;
            }
        }
        curve
    }
}

/// What the report says of the times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencySummary {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

/// What the time of objects, or requests, went to, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    n: u64,
    waiting: Duration,
    device: Duration,
    copy: Duration,
}

impl Split {
    pub fn add(&mut self, times: &Times) {
        self.n += 1;
        self.waiting += times.waited;
        self.device += times.on_target();
        self.copy += times.copied;
    }

    /// Of the serial loop: all of it is the device's.
    pub fn add_device(&mut self, time: Duration) {
        self.n += 1;
        self.device += time;
    }

    pub fn merge(&mut self, other: &Self) {
        self.n += other.n;
        self.waiting += other.waiting;
        self.device += other.device;
        self.copy += other.copy;
    }

    /// Means of waiting, device and copy in nanoseconds; they add up to that of the whole.
    fn means(&self) -> [u64; 3] {
        let mean = |sum: Duration| (sum.as_nanos() / u128::from(self.n.max(1))) as u64;
        [self.waiting, self.device, self.copy].map(mean)
    }

    pub fn json(&self) -> Value {
        let [waiting, device, copy] = self.means();
        json!({ "waiting": waiting, "device": device, "copy": copy })
    }

    /// For people.
    pub fn line(&self) -> String {
        let [waiting, device, copy] = self.means().map(nanos);
        format!("waiting for room {waiting}, device {device}, copy {copy} (means)")
    }
}

/// Wall clock and CPU clock of an arm.
pub struct Clocks {
    started: SystemTime,
    wall: Instant,
    cpu: Duration,
}

impl Clocks {
    pub fn start() -> Result<Self, Failure> {
        Ok(Self { started: SystemTime::now(), cpu: cpu()?, wall: Instant::now() })
    }

    pub fn stop(&self) -> Result<Spent, Failure> {
        let wall = self.wall.elapsed();
        Ok(Spent { started: Some(self.started), wall, cpu: cpu()?.saturating_sub(self.cpu) })
    }
}

/// What an arm took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    pub started: Option<SystemTime>,
    pub wall: Duration,
    pub cpu: Duration,
}

impl Spent {
    /// When it began, in seconds since 1970: to see how far arms of several processes overlap.
    pub fn started_unix(&self) -> Option<f64> {
        Some(self.started?.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
    }

    /// 10^9 bytes a second.
    pub fn gbps(&self, bytes: u64) -> f64 {
        bytes as f64 / self.wall.as_secs_f64().max(1e-9) / 1e9
    }

    pub fn cpu_s_per_gib(&self, bytes: u64) -> f64 {
        self.cpu.as_secs_f64() / (bytes.max(1) as f64 / (1u64 << 30) as f64)
    }
}

/// CPU time of the process. The kernel's io_uring workers are threads of it and count.
fn cpu() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(Failure::setup)?;
    let [user, system] = [usage.user_time(), usage.system_time()];
    let micros = (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_takes_every_object_once() {
        for count in [1, 2, 3, 51, 256, 1000] {
            let order = Order::new(count * 4096, 4096, true);
            for round in 0..3 {
                let mut seen: Vec<u64> = (0..count).map(|i| order.offset(round * count + i) / 4096).collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..count), "{count} objects, round {round}");
            }
        }
    }

    #[test]
    fn shuffled_is_not_in_order_and_rounds_differ() {
        let order = Order::new(1000 * 4096, 4096, true);
        let round = |n: u64| (0..1000).map(|i| order.offset(n * 1000 + i)).collect::<Vec<_>>();
        let in_order = round(0).windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
        assert!(in_order < 10, "{in_order} of 999 are in order");
        assert_ne!(round(0), round(1));
        assert_eq!(round(2), round(2), "the same seed gives the same order");
    }

    #[test]
    fn an_arm_takes_256_objects_or_all_of_a_large_file() {
        assert_eq!(Order::new(1 << 30, 20 << 20, false).objects_an_arm(), 256);
        assert_eq!(Order::new(1 << 30, 1 << 20, false).objects_an_arm(), 1024);
        let feed = Feed::new(Order::new(3 * 4096, 4096, false), Limit { time_based: false, runtime: None });
        let offsets: Vec<u64> = std::iter::from_fn(|| feed.take().map(|item| feed.offset(item, 0))).collect();
        assert_eq!(offsets.len(), 256);
        assert_eq!(offsets[..4], [0, 4096, 8192, 0]);
    }

    #[test]
    fn requests_walk_over_the_objects_of_the_file() {
        let order = Order::new(3 * 4096, 4096, false);
        let feed = Feed::requests(order, 2, Limit { time_based: false, runtime: None }, 2);
        let offsets = |item| [feed.offset(item, 0), feed.offset(item, 1)];
        assert_eq!((feed.take().map(offsets), feed.take().map(offsets)), (Some([0, 4096]), Some([8192, 0])));
        assert!(feed.take().is_none());
    }

    #[test]
    fn there_is_no_pause_behind_the_last_item() {
        let feed = Feed::of(Order::new(4096, 4096, false), 2);
        let paused = |time| {
            let begun = Instant::now();
            feed.pause(Duration::from_millis(time));
            begun.elapsed()
        };
        assert_eq!(feed.take(), Some(0));
        assert!(paused(25) >= Duration::from_millis(25));
        let other = thread::scope(|scope| {
            let other = scope.spawn(|| paused(60_000)); // until another thread has what is left
            assert_eq!(feed.take(), Some(1));
            other.join().unwrap()
        });
        assert!(other < Duration::from_secs(30) && paused(60_000) < Duration::from_secs(30));
    }

    #[test]
    fn time_and_errors_end_a_feed() {
        let order = Order::new(1 << 20, 4096, false);
        let over = Feed::new(order, Limit { time_based: true, runtime: Some(Duration::ZERO) });
        assert!(over.take().is_none() && over.total().is_none());
        let feed = Feed::of(order, 10);
        assert!(feed.take().is_some());
        feed.halt();
        assert!(feed.take().is_none());
    }

    #[test]
    fn rates_are_what_the_columns_say() {
        let spent = Spent { wall: Duration::from_secs(2), cpu: Duration::from_secs(3), ..Spent::default() };
        assert!((spent.gbps(4_000_000_000) - 2.0).abs() < 1e-9);
        assert!((spent.cpu_s_per_gib(3 << 30) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn times_are_kept_to_three_digits() {
        let mut latency = Latency::new().unwrap();
        (1..=100).for_each(|ms| latency.record(Duration::from_millis(ms)));
        let summary = latency.summary();
        assert!(summary.p50.abs_diff(50_000_000) < 100_000 && summary.p99.abs_diff(99_000_000) < 200_000);
        assert!(summary.max >= 100_000_000);
    }
}
