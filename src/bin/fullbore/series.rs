//! Bytes moved over the time of a run, in memory that is bounded however long it is.

use std::time::Duration;

/// Points at most; when they are there every other is left out.
const MOST: usize = 512;

/// What had been moved by when.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    points: Vec<(Duration, u64)>,
    /// Of the points that come, one in so many is kept.
    every: u64,
    came: u64,
}

impl Series {
    /// Notes that all in all so many bytes were moved by then.
    pub fn note(&mut self, at: Duration, bytes: u64) {
        if self.came.is_multiple_of(self.every.max(1)) {
            self.points.push((at, bytes));
        }
        self.came += 1;
        if self.points.len() == MOST {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every = 2 * self.every.max(1);
        }
    }

    /// Notes the end, whatever is left out.
    pub fn end(&mut self, at: Duration, bytes: u64) {
        self.points.push((at, bytes));
    }

    /// The rates of so many parts at most: seconds at the end of each, and bytes a second.
    pub fn rates(&self, parts: usize) -> Vec<(f64, f64)> {
        let first = self.points.first().filter(|(at, _)| !at.is_zero()).map(|_| (Duration::ZERO, 0));
        let mut all: Vec<_> = first.into_iter().chain(self.points.iter().copied()).collect();
        let whole = all.last().map_or(Duration::ZERO, |(at, _)| *at) / parts.max(1) as u32;
        let (mut kept, last) = (Duration::ZERO, all.len().saturating_sub(1));
        let mut number = 0;
        all.retain(|(at, _)| {
            number += 1;
            let keep = number == 1 || number == last + 1 || *at >= kept + whole;
            kept = if keep { *at } else { kept };
            keep
        });
        // The last part is no sliver of one, whose rate would be that of a moment.
        if let [.., first, second, third] = all[..]
            && third.0 - second.0 < whole.max(second.0 - first.0) / 2
        {
            all.remove(all.len() - 2);
        }
        let rate = |pair: &[(Duration, u64)]| {
            let seconds = pair[1].0.saturating_sub(pair[0].0).as_secs_f64();
            let bytes = pair[1].1.saturating_sub(pair[0].1);
            (seconds > 0.0).then(|| (pair[1].0.as_secs_f64(), bytes as f64 / seconds))
        };
        all.windows(2).filter_map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_whole_however_long_it_is() {
        let mut series = Series::default();
        let ms = Duration::from_millis;
        (1..=100_000).for_each(|n| series.note(ms(n), n * 1000));
        series.end(ms(100_001), 100_001_000);
        assert!(series.points.len() <= MOST);
        let rates = series.rates(60);
        assert!(
            (50..=60).contains(&rates.len()) && rates.iter().all(|(_, rate)| (rate - 1e6).abs() < 1.0),
            "{rates:?}"
        );
        assert_eq!(rates.last().map(|(at, _)| *at), Some(100.001));
        assert!(Series::default().rates(60).is_empty());
    }
}
