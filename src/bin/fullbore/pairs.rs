//! Runs in turns, ours and a rival's, and what they come to.

use serde_json::{Value, json};

use crate::fio::{FioJob, Run};
use crate::units::{human, short};

/// Pairs that count; one comes before them, apart.
pub const PAIRS: usize = 5;

/// Runs in turns, ours and theirs.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// It may have found the device and memory cold, and counts for nothing.
    pub first: Option<(Run, Run)>,
    pub rest: Vec<(Run, Run)>,
    /// Kernel workers serve the file, and fio's CPU time is of its jobs' threads alone: ours is no multiple of it.
    pub workers: bool,
}

/// What pairs come to: medians, their ratio, and the ends of the ratios of the single pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub ours: f64,
    pub theirs: f64,
    pub ratio: f64,
    pub least: f64,
    pub most: f64,
}

impl Ratio {
    /// The ratio and its spread, for people.
    pub fn words(&self) -> String {
        format!("{:.2} (pairs {:.2} to {:.2})", self.ratio, self.least, self.most)
    }
}

impl Pairs {
    /// Runs both in turns, ours first.
    pub fn run<E>(
        mut ours: impl FnMut() -> Result<Run, E>,
        mut theirs: impl FnMut() -> Result<Run, E>,
    ) -> Result<Self, E> {
        let mut pairs = Self::default();
        for _ in 0..=PAIRS {
            pairs.add((ours()?, theirs()?));
        }
        Ok(pairs)
    }

    pub fn add(&mut self, pair: (Run, Run)) {
        if self.first.is_none() {
            self.first = Some(pair);
        } else {
            self.rest.push(pair);
        }
    }

    /// The first pair, a line for people.
    pub fn first_line(&self, rival: &str) -> String {
        let (ours, theirs) = self.first.unwrap_or_default();
        format!(
            "  the first pair, apart (device and memory may be cold): engine {:.3} GB/s, {rival} {:.3} GB/s",
            ours.gbps, theirs.gbps
        )
    }

    fn ratio(&self, of: impl Fn(&Run) -> f64) -> Ratio {
        let ours = median(self.rest.iter().map(|pair| of(&pair.0)));
        let theirs = median(self.rest.iter().map(|pair| of(&pair.1)));
        let ratios = || self.rest.iter().map(|(ours, theirs)| of(ours) / of(theirs));
        let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        Ratio { ours, theirs, ratio: ours / theirs, least, most }
    }

    pub fn rate(&self) -> Ratio {
        self.ratio(|run| run.gbps)
    }

    pub fn cpu(&self) -> Ratio {
        self.ratio(|run| run.cpu_s_per_gib)
    }

    pub fn cpu_ratio(&self) -> Option<f64> {
        (!self.workers).then(|| self.cpu().ratio)
    }

    pub fn json(&self) -> Value {
        let pair =
            |(ours, theirs): &(Run, Run)| json!({ "ours_gbps": ours.gbps, "theirs_gbps": theirs.gbps });
        let (rate, cpu) = (self.rate(), self.cpu());
        json!({
            "ours_gbps": rate.ours,
            "theirs_gbps": rate.theirs,
            "ratio": rate.ratio,
            "ratio_min": rate.least,
            "ratio_max": rate.most,
            "ours_cpu_s_per_gib": cpu.ours,
            "theirs_cpu_s_per_gib": cpu.theirs,
            "cpu_ratio": self.cpu_ratio(),
            "first": self.first.as_ref().map(pair),
            "pairs": self.rest.iter().map(pair).collect::<Vec<_>>(),
        })
    }

    /// The CPU time of both, a line for people.
    pub fn cpu_line(&self, rival: &str) -> String {
        let cpu = self.cpu();
        let both = format!("  CPU s/GiB: engine {:.3}, {rival} {:.3}", cpu.ours, cpu.theirs);
        if self.workers {
            return format!("{both} without the kernel workers that read for it: no ratio");
        }
        format!("{both}: ratio {}", cpu.words())
    }
}

/// Objects in flight, and the bytes of one, that land in so much memory: `objects` of `bs`, or where these need more, about as
/// many smaller ones of whole commands.
pub fn fitted(memory: u64, (objects, bs): (usize, u64), command: u64) -> (usize, u64) {
    let many = objects as u64;
    if many * bs <= memory {
        return (objects, bs);
    }
    let bs = (memory / many / command).max(1) * command;
    ((memory / bs).max(1) as usize, bs)
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The engine in turns with a rival that does the same work into the same footprint.
#[derive(Debug, Clone)]
pub struct Beside {
    /// `serial`, or fio's version.
    pub rival: String,
    /// How it is run, in words.
    pub how: String,
    /// Bytes of memory that ours lands in, and theirs.
    pub footprint: [u64; 2],
    pub pairs: Pairs,
}

impl Beside {
    /// Beside fio: objects in flight and the bytes of one, as they are asked for and as they run, cut to fio's memory.
    pub fn fio(
        version: &str,
        job: &FioJob,
        whole: (usize, u64),
        (objects, bs): (usize, u64),
        pairs: Pairs,
    ) -> Self {
        let cut = match (objects, bs) == whole {
            true => String::new(),
            false => format!(", cut from {} of {} to fio's memory", whole.0, short(whole.1)),
        };
        let how = format!("{objects} of {} in flight{cut}, against {}", short(bs), job.words());
        let footprint = [objects as u64 * bs, job.footprint()];
        Self { rival: version.to_owned(), how, footprint, pairs }
    }

    /// A few lines for people.
    pub fn lines(&self) -> Vec<String> {
        let (rate, rival) = (self.pairs.rate(), &self.rival);
        let memory = match self.footprint {
            [ours, theirs] if ours == theirs => format!("{} of memory both", human(ours)),
            [ours, theirs] => format!("{} of memory and {}", human(ours), human(theirs)),
        };
        vec![
            format!("against {rival}, {PAIRS} pairs in turn: {}, {memory}:", self.how),
            format!(
                "  engine {:.3} GB/s, {rival} {:.3} GB/s: ratio {}",
                rate.ours,
                rate.theirs,
                rate.words()
            ),
            self.pairs.cpu_line(rival),
            self.pairs.first_line(rival),
        ]
    }

    pub fn json(&self) -> Value {
        let mut all = self.pairs.json();
        all["rival"] = self.rival.as_str().into();
        all["how"] = self.how.as_str().into();
        all["footprint_bytes"] = self.footprint[0].into();
        all["rival_footprint_bytes"] = self.footprint[1].into();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_take_turns_and_the_first_run_is_apart() {
        let calls = std::cell::RefCell::new(String::new());
        let run = |name: char, gbps| {
            calls.borrow_mut().push(name);
            let n = calls.borrow().len();
            // The first of each is slow, and is not counted.
            Ok::<_, ()>(Run { gbps: if n <= 2 { 0.1 } else { gbps }, cpu_s_per_gib: 0.5 })
        };
        let pairs = Pairs::run(|| run('o', 4.0), || run('t', 2.0)).unwrap();
        let beside =
            Beside { rival: "serial".into(), how: "8 in flight".into(), footprint: [1 << 20; 2], pairs };
        assert_eq!(*calls.borrow(), "ot".repeat(PAIRS + 1));
        assert_eq!(beside.pairs.rate(), Ratio { ours: 4.0, theirs: 2.0, ratio: 2.0, least: 2.0, most: 2.0 });
        let (lines, json) = (beside.lines().join("\n"), beside.json());
        assert!(
            lines.contains("ratio 2.00 (pairs 2.00 to 2.00)") && lines.contains("1 MiB of memory both"),
            "{lines}"
        );
        assert!(
            lines.contains("first pair, apart (device and memory may be cold): engine 0.100 GB/s"),
            "{lines}"
        );
        assert_eq!(
            (json["ratio"].as_f64(), json["pairs"].as_array().map(Vec::len)),
            (Some(2.0), Some(PAIRS))
        );
        assert_eq!(json["first"]["ours_gbps"].as_f64(), Some(0.1));
    }

    #[test]
    fn objects_are_cut_to_land_in_a_rivals_memory() {
        const K: u64 = 1 << 10;
        const M: u64 = 1 << 20;
        assert_eq!(fitted(160 * M, (8, 20 * M), 128 * K), (8, 20 * M));
        assert_eq!(fitted(8 * M, (8, 20 * M), 128 * K), (8, M));
        assert_eq!(fitted(2 * M, (8, 20 * M), 128 * K), (8, 256 * K));
        // No object is less than a command: then others are in flight, fewer or more, to fill the memory.
        assert_eq!(fitted(2 * M, (64, 20 * M), 128 * K), (16, 128 * K));
        assert_eq!(fitted(8 * M, (40, 20 * M), 128 * K), (64, 128 * K));
        assert_eq!(fitted(2 * M, (3, 20 * M), 128 * K), (3, 5 * 128 * K));
        for (memory, objects) in [(2 * M, 5), (8 * M, 7), (128 * K, 9)] {
            let (objects, bs) = fitted(memory, (objects, 20 * M), 128 * K);
            assert!(objects as u64 * bs <= memory && objects > 0, "{objects} of {bs} in {memory}");
        }
    }
}
