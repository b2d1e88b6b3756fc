//! Counters of a lane: written by its thread alone, read by anyone.

use super::path::{PATHS, Path};
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writer: no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn raise(&self, n: u64) {
        if n > self.get() {
            self.set(n);
        }
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets of the latency histogram: eight to each power of two, from 1 ns to over a day.
const BUCKETS: usize = 48 * 8;

fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let power = 63 - ns.leading_zeros() as usize;
    ((power - 3) * 8 + ((ns >> (power - 3)) as usize & 7)).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn bound(bucket: usize) -> u64 {
    let (power, eighth) = (bucket / 8 + 3, bucket as u64 % 8);
    ((8 + eighth + 1) << (power - 3)) - 1
}

/// What a lane counts.
#[derive(Debug)]
pub struct Counters {
    pub commands: Counter,
    pub bytes: Counter,
    pub enters: Counter,
    pub waits: Counter,
    pub retries: Counter,
    pub shorts: Counter,
    pub stale: Counter,
    pub in_flight: Counter,
    pub max_in_flight: Counter,
    /// Steps of the lane: the watchdog sees whether it moves.
    pub beats: Counter,
    pub occupancy: Box<[Counter]>,
    /// Bytes moved by each path.
    paths: [Counter; PATHS.len()],
    latency: Box<[Counter]>,
    /// Ns of all commands together.
    took: Counter,
}

impl Counters {
    pub fn new(depth: usize) -> Counters {
        let counters = |n| (0..n).map(|_| Counter::default()).collect();
        Counters {
            commands: Counter::default(),
            bytes: Counter::default(),
            enters: Counter::default(),
            waits: Counter::default(),
            retries: Counter::default(),
            shorts: Counter::default(),
            stale: Counter::default(),
            in_flight: Counter::default(),
            max_in_flight: Counter::default(),
            beats: Counter::default(),
            occupancy: counters(depth + 1),
            paths: Default::default(),
            latency: counters(BUCKETS),
            took: Counter::default(),
        }
    }

    /// Notes what a command moved, and how.
    pub fn moved(&self, path: Path, bytes: u64) {
        self.bytes.add(bytes);
        self.paths[path.index()].add(bytes);
    }

    /// Bytes that each path moved, for those that were taken.
    pub fn paths(&self) -> Vec<(Path, u64)> {
        let bytes = PATHS.into_iter().map(|path| (path, self.paths[path.index()].get()));
        bytes.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Notes the time of a command.
    pub fn took(&self, ns: u64) {
        self.latency[bucket(ns)].add(1);
        self.took.add(ns);
    }

    /// Notes how many commands are in flight after an enter.
    pub fn occupied(&self, in_flight: u64) {
        self.in_flight.set(in_flight);
        self.max_in_flight.raise(in_flight);
        if let Some(counter) = self.occupancy.get(in_flight as usize) {
            counter.add(1);
        }
    }

    pub fn latency(&self) -> LatencyHistogram {
        LatencyHistogram { buckets: self.latency.iter().map(Counter::get).collect(), sum: self.took.get() }
    }
}

/// How long commands took, from push to reap. Buckets are 12.5 % wide.
#[derive(Clone, Default)]
pub struct LatencyHistogram {
    buckets: Vec<u64>,
    sum: u64,
}

impl std::fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} commands, p50 {} ns, p99 {} ns", self.count(), self.quantile(0.5), self.quantile(0.99))
    }
}

impl LatencyHistogram {
    /// How many commands.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Those that came after `earlier`, which is of the same lane.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |index: usize| earlier.buckets.get(index).copied().unwrap_or(0);
        let more = self.buckets.iter().enumerate().map(|(index, n)| n.saturating_sub(before(index)));
        Self { buckets: more.collect(), sum: self.sum.saturating_sub(earlier.sum) }
    }

    /// The ns that all of them took together. By a span of time: how many were in flight in it, on average.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The time in ns within which the share `q` (0 to 1) of all commands ended; 0 without commands.
    pub fn quantile(&self, q: f64) -> u64 {
        let wanted = ((self.count() as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return bound(index);
            }
        }
        0
    }

    /// The longest time in ns.
    pub fn max(&self) -> u64 {
        self.buckets.iter().rposition(|count| *count > 0).map_or(0, bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values() {
        for ns in (0..45).flat_map(|p| [(1u64 << p), (1 << p) + (1 << p) / 3, (2 << p) - 1]) {
            let b = bucket(ns);
            assert!(bound(b) >= ns, "{ns} in bucket {b} up to {}", bound(b));
            assert!(ns <= 8 || bound(b) <= ns + ns / 7, "{ns} in bucket {b} up to {}", bound(b));
        }
    }

    #[test]
    fn quantiles() {
        let counters = Counters::new(4);
        (1..=100u64).for_each(|i| counters.took(i * 1000));
        let latency = counters.latency();
        assert_eq!(latency.count(), 100);
        assert!((50_000..57_000).contains(&latency.quantile(0.5)));
        assert!(latency.max() >= 100_000);
        (0..10).for_each(|_| counters.took(5_000_000));
        assert_eq!(latency.sum(), 5050 * 1000);
        let later = counters.latency().since(&latency);
        assert_eq!(later.sum(), 50_000_000);
        assert_eq!((later.count(), later.quantile(0.01) >= 5_000_000), (10, true));
        assert_eq!(latency.since(&LatencyHistogram::default()).count(), 100, "a lane that came later");
        assert_eq!(LatencyHistogram::default().quantile(0.5), 0);
    }
}
