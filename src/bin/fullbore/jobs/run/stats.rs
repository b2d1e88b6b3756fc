//! What jobs count, in fio's own terms: sums, bins of times, distributions of depth.

use std::time::Duration;

use fullbore::Times;

use crate::work::Split;

/// Index of reads, and of writes, wherever there are two of a thing.
pub const READ: usize = 0;
pub const WRITE: usize = 1;

/// Least, most, mean and spread of some numbers, kept as they come (Welford's way, which loses no digits).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    pub n: u64,
    pub min: u64,
    pub max: u64,
    pub mean: f64,
    /// Squares of the distances from the mean, added up.
    squares: f64,
}

impl Sum {
    pub fn add(&mut self, value: u64) {
        self.min = if self.n == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.n += 1;
        let away = value as f64 - self.mean;
        self.mean += away / self.n as f64;
        self.squares += away * (value as f64 - self.mean);
    }

    pub fn merge(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = *other;
            return;
        }
        let (n, m) = (self.n as f64, other.n as f64);
        let away = other.mean - self.mean;
        self.squares += other.squares + away * away * n * m / (n + m);
        self.mean = (self.mean * n + other.mean * m) / (n + m);
        self.n += other.n;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
    }

    pub fn stddev(&self) -> f64 {
        if self.n > 1 { (self.squares / (self.n - 1) as f64).sqrt() } else { 0.0 }
    }
}

/// Bins of each power of two, as many as fio has.
const BITS: u32 = 6;
const BINS: usize = 29 << BITS;

/// Times in fio's bins: exact up to 128 ns, then 64 to each power of two.
#[derive(Debug, Clone)]
pub struct Bins(Vec<u64>);

impl Default for Bins {
    fn default() -> Self {
        Self(vec![0; BINS])
    }
}

impl Bins {
    fn index(ns: u64) -> usize {
        let top = 63 - ns.max(1).leading_zeros();
        if top <= BITS {
            return ns as usize;
        }
        let shift = top - BITS;
        let within = (ns >> shift) as usize & ((1 << BITS) - 1);
        (((shift as usize + 1) << BITS) + within).min(BINS - 1)
    }

    /// The middle of a bin, by which fio names it.
    fn middle(index: usize) -> u64 {
        if index < 2 << BITS {
            return index as u64;
        }
        let shift = (index >> BITS) as u32 - 1;
        let within = (index & ((1 << BITS) - 1)) as u64;
        (1 << (shift + BITS)) + (within << shift) + (1 << shift >> 1)
    }

    pub fn add(&mut self, ns: u64) {
        self.0[Self::index(ns)] += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// Those that are not empty: their middle, and how many.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().enumerate().filter(|(_, n)| **n > 0).map(|(index, n)| (Self::middle(index), *n))
    }

    /// The bins in which the percentiles lie; the list ascends.
    pub fn percentiles(&self, list: &[f64]) -> Vec<u64> {
        let all: u64 = self.0.iter().sum();
        let mut left = list.iter().peekable();
        let (mut sum, mut found) = (0, Vec::with_capacity(list.len()));
        for (middle, n) in self.filled() {
            sum += n;
            while left.next_if(|&&percent| sum as f64 >= percent / 100.0 * all as f64).is_some() {
                found.push(middle);
            }
        }
        found
    }
}

/// The bounds of fio's distribution of times: below so many of a unit. The last of milliseconds is all that is longer.
pub const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// A distribution of times over nanoseconds, microseconds and milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    pub ns: [u64; 10],
    pub us: [u64; 10],
    pub ms: [u64; 12],
}

impl Spread {
    pub fn add(&mut self, ns: u64) {
        let place = |value: u64| BOUNDS.iter().position(|&bound| value < bound);
        match ns {
            0..1_000 => self.ns[place(ns).unwrap_or(9)] += 1,
            1_000..1_000_000 => self.us[place(ns / 1_000).unwrap_or(9)] += 1,
            _ => {
                let ms = ns / 1_000_000;
                self.ms[place(ms).unwrap_or(if ms < 2000 { 10 } else { 11 })] += 1;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        add_up(&mut self.ns, &other.ns);
        add_up(&mut self.us, &other.us);
        add_up(&mut self.ms, &other.ms);
    }
}

fn add_up<const N: usize>(mine: &mut [u64; N], theirs: &[u64; N]) {
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
}

/// I/O of one way.
#[derive(Debug, Clone, Default)]
pub struct Way {
    pub ios: u64,
    pub bytes: u64,
    pub slat: Sum,
    pub clat: Sum,
    pub lat: Sum,
    pub clat_bins: Bins,
    pub lat_bins: Bins,
}

/// What was read back or checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked {
    pub bytes: u64,
    pub wrong: u64,
    /// The first wrong one, in words.
    pub first: Option<String>,
}

/// What a clone of a job counts.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub ways: [Way; 2],
    /// I/Os by how many were in flight then: 1, 2, 4, 8, 16, 32, 64 and more.
    pub depth: [u64; 7],
    /// Batches by their size: none, up to 4, 8, 16, 32, 64, and more.
    pub submit: [u64; 7],
    pub complete: [u64; 7],
    pub spread: Spread,
    /// What the time of I/Os went to.
    pub split: Split,
    /// In flight, most at once.
    pub most: u64,
    pub checked: Checked,
    /// Names of the paths that were taken.
    pub paths: std::collections::BTreeSet<String>,
}

impl Counts {
    /// Notes an I/O that ended.
    pub fn ended(&mut self, way: usize, bytes: u64, times: &Times) {
        let (queued, total) = (nanos(times.queued), nanos(times.total));
        self.split.add(times);
        let way = &mut self.ways[way];
        way.ios += 1;
        way.bytes += bytes;
        let clat = total.saturating_sub(queued);
        way.slat.add(queued.min(total));
        way.clat.add(clat);
        way.lat.add(total);
        way.clat_bins.add(clat);
        way.lat_bins.add(total);
        self.spread.add(total);
    }

    /// Notes that so many are in flight, with the one just submitted.
    pub fn flying(&mut self, n: u64) {
        self.depth[(63 - n.max(1).leading_zeros()).min(6) as usize] += 1;
        self.most = self.most.max(n);
    }

    pub fn submitted(&mut self, n: usize) {
        self.submit[batch(n)] += 1;
    }

    pub fn completed(&mut self, n: usize) {
        self.complete[batch(n)] += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.ways.iter_mut().zip(&other.ways) {
            mine.ios += theirs.ios;
            mine.bytes += theirs.bytes;
            mine.slat.merge(&theirs.slat);
            mine.clat.merge(&theirs.clat);
            mine.lat.merge(&theirs.lat);
            mine.clat_bins.merge(&theirs.clat_bins);
            mine.lat_bins.merge(&theirs.lat_bins);
        }
        add_up(&mut self.depth, &other.depth);
        add_up(&mut self.submit, &other.submit);
        add_up(&mut self.complete, &other.complete);
        self.spread.merge(&other.spread);
        self.split.merge(&other.split);
        self.most += other.most;
        self.checked.bytes += other.checked.bytes;
        self.checked.wrong += other.checked.wrong;
        if self.checked.first.is_none() {
            self.checked.first.clone_from(&other.checked.first);
        }
        self.paths.extend(other.paths.iter().cloned());
    }

    pub fn bytes(&self) -> u64 {
        self.ways.iter().map(|way| way.bytes).sum()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn batch(n: usize) -> usize {
    [0, 4, 8, 16, 32, 64].iter().position(|&most| n <= most).unwrap_or(6)
}

/// Shares of a hundred; one that is not nothing is at least `least`, as fio has it.
pub fn shares<const N: usize>(counts: &[u64; N], total: u64, least: f64) -> [f64; N] {
    counts.map(|n| if n == 0 { 0.0 } else { (n as f64 / total.max(1) as f64 * 100.0).max(least) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_whole_however_they_are_cut() {
        let values: Vec<u64> = (0..100).map(|n| n * n % 37 + 5).collect();
        let sum = |values: &[u64]| {
            let mut sum = Sum::default();
            values.iter().for_each(|&value| sum.add(value));
            sum
        };
        let whole = sum(&values);
        let mean = values.iter().sum::<u64>() as f64 / 100.0;
        let square: f64 = values.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
        assert!((whole.mean - mean).abs() < 1e-9 && (whole.stddev() - (square / 99.0).sqrt()).abs() < 1e-9);
        let mut parts = sum(&values[..30]);
        parts.merge(&sum(&values[30..]));
        parts.merge(&Sum::default());
        assert!((parts.stddev() - whole.stddev()).abs() < 1e-9 && parts.n == 100);
        assert_eq!((parts.min, parts.max), (whole.min, whole.max));
    }

    #[test]
    fn bins_are_fios() {
        // As fio 3.33 prints them for times of such a length.
        for bin in [90, 127, 120_320, 125_440, 164_864, 403_456, 468_992, 12_124_160] {
            assert_eq!(Bins::middle(Bins::index(bin)), bin);
        }
        let mut last = 0;
        for power in 0..34 {
            for ns in [1u64 << power, (1 << power) + (1 << power >> 1)] {
                let middle = Bins::middle(Bins::index(ns));
                assert!(middle.abs_diff(ns) as f64 <= ns as f64 / 64.0 && middle >= last, "{ns} {middle}");
                last = middle;
            }
        }
        assert_eq!(Bins::index(u64::MAX), BINS - 1);
    }

    #[test]
    fn percentiles_lie_where_so_many_are_below() {
        let mut bins = Bins::default();
        (1..=100).for_each(|ns| bins.add(ns));
        assert_eq!(bins.percentiles(&[1.0, 50.0, 99.0, 100.0]), [1, 50, 99, 100]);
        assert_eq!(bins.percentiles(&[]), [0u64; 0]);
        assert!(Bins::default().percentiles(&[50.0]).is_empty());
    }

    #[test]
    fn distributions_are_fios() {
        let mut spread = Spread::default();
        for ns in [1, 3, 999, 1_000, 999_999, 1_000_000, 1_999_000_000, 2_000_000_000] {
            spread.add(ns);
        }
        assert_eq!((spread.ns[0], spread.ns[1], spread.ns[9]), (1, 1, 1));
        assert_eq!((spread.us[0], spread.us[9], spread.ms[0], spread.ms[10], spread.ms[11]), (1, 1, 1, 1, 1));
        let mut counts = Counts::default();
        for n in [1, 2, 3, 4, 64, 1000] {
            counts.flying(n);
        }
        assert_eq!(counts.depth, [1, 2, 1, 0, 0, 0, 2]);
        for n in [0, 1, 4, 5, 64, 65] {
            counts.submitted(n);
        }
        assert_eq!(counts.submit, [1, 2, 1, 0, 0, 1, 1]);
        assert_eq!(shares(&[1, 0, 9999], 10_000, 0.1), [0.1, 0.0, 99.99]);
    }
}
