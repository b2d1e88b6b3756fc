//! The rows of a sweep of jobs.

use super::{Report, Shown};
use crate::ceilings::Found;
use crate::jobs::run::stats::{READ, WRITE};
use crate::sweep::{self, Sweep};

impl Report<'_> {
    /// What the values of a sweep came to, if there is one. Clones of a job are one row: they ran side by side, so that
    /// their rates add up.
    pub fn sweep(&self) -> Option<Sweep> {
        let key = self.shown.iter().find_map(|one| Some(one.job.swept.as_ref()?.0))?;
        let mut parts: Vec<Vec<&Shown<'_>>> = Vec::new();
        for one in &self.shown {
            match parts.iter_mut().find(|part| part.iter().all(|other| one.is_twin(other))) {
                Some(part) => part.push(one),
                None => parts.push(vec![one]),
            }
        }
        let rows = parts.iter().filter_map(|part| self.swept(part)).collect();
        Some(Sweep { key, of: "job", per_second: "IOPS", rows })
    }

    fn swept(&self, clones: &[&Shown<'_>]) -> Option<sweep::Row> {
        let first = clones.first()?;
        let (_, value) = first.job.swept.clone()?;
        let mut bins = first.counts.ways[READ].lat_bins.clone();
        bins.merge(&first.counts.ways[WRITE].lat_bins);
        for other in &clones[1..] {
            other.counts.ways.iter().for_each(|way| bins.merge(&way.lat_bins));
        }
        let sum = |of: fn(&Shown<'_>) -> f64| clones.iter().map(|one| of(one)).sum::<f64>();
        Some(sweep::Row {
            line: first.job.name.clone(),
            value,
            rate: sum(|one| one.rate(READ) + one.rate(WRITE)),
            per_second: sum(|one| one.iops(READ) + one.iops(WRITE)),
            times: bins.percentiles(&[50.0, 99.0]).try_into().ok(),
            cpu_s_per_gib: sum(|one| one.usage.user + one.usage.system)
                / (sum(|one| one.counts.bytes() as f64).max(1.0) / (1u64 << 30) as f64),
            ceilings: self.ceilings(first).cloned(),
            failed: clones.iter().any(|one| one.failed.is_some()),
        })
    }

    /// What was measured beside it, if that was.
    pub fn ceilings(&self, one: &Shown<'_>) -> Option<&Found> {
        self.beyond.iter().find(|beyond| beyond.number == one.number).map(|beyond| &beyond.ceilings)
    }
}
