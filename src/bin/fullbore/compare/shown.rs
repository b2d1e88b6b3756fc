//! What is said of a comparison with fio.

use serde_json::{Value, json};

use super::{Compared, Rival};
use crate::fio::{FioJob, Run};
use crate::pairs::{PAIRS, median};
use crate::units::{count, human, short};

impl Compared {
    /// A few lines for people.
    pub fn lines(&self) -> Vec<String> {
        let best = &self.rivals[0];
        let (rate, serial) = (best.pairs.rate(), self.serial.rate());
        let of = |job: &FioJob| {
            let memory = human(job.footprint());
            format!("{} of {} x {} ({memory})", count(job.jobs, "job"), job.depth, short(job.bs))
        };
        let objects =
            |rival: &Rival| format!("{} of {}", count(rival.ours.0 as u64, "object"), short(rival.ours.1));
        let mut lines = vec![format!(
            "against {}, {PAIRS} pairs: {} in flight ({}), {}{}:",
            self.version,
            objects(best),
            human(best.footprint()[0]),
            if self.rivals.len() > 1 { "the best of fio's, " } else { "" },
            of(&best.job)
        )];
        lines.push(format!(
            "  engine {:.2} GB/s, fio {:.2} GB/s: ratio {}",
            rate.ours,
            rate.theirs,
            rate.words()
        ));
        lines.push(best.pairs.cpu_line("fio"));
        for rival in &self.rivals[1..] {
            let (rate, cpu) = (rival.pairs.rate(), rival.pairs.cpu());
            lines.push(format!(
                "  fio as {}: {:.2} GB/s, CPU s/GiB {:.3}; engine, {}: {:.2} GB/s, CPU s/GiB {:.3}",
                of(&rival.job),
                rate.theirs,
                cpu.theirs,
                objects(rival),
                rate.ours,
                cpu.ours
            ));
        }
        lines.push(best.pairs.first_line("fio"));
        if let Some((bs, memory, runs)) = &self.whole {
            let gbps = median(runs.iter().map(|run| run.gbps));
            lines.push(format!(
                "  engine with whole objects of {} ({}), for information: {gbps:.2} GB/s",
                short(*bs),
                human(*memory)
            ));
        }
        if let Some((depth, gbps)) = self.hot {
            let hot = FioJob { depth, ..best.job.clone() };
            lines
                .push(format!("  fio with small hot buffers, {}: {gbps:.2} GB/s, for information", of(&hot)));
        }
        lines.push(format!(
            "  serial loop {:.2} GB/s, fio psync {:.2} GB/s, both into one hot {} buffer: ratio {}",
            serial.ours,
            serial.theirs,
            short(best.job.bs),
            serial.words()
        ));
        lines
    }

    fn whole_json(&self) -> Option<Value> {
        let (bs, memory, runs) = self.whole.as_ref()?;
        let (rate, cpu) = (self.rivals[0].pairs.rate().theirs, self.rivals[0].pairs.cpu().theirs);
        let gbps = median(runs.iter().map(|run| run.gbps));
        let cpu_s_per_gib = median(runs.iter().map(|run| run.cpu_s_per_gib));
        Some(json!({
            "object_bytes": bs,
            "footprint_bytes": memory,
            "ours_gbps": gbps,
            "ours_cpu_s_per_gib": cpu_s_per_gib,
            "ratio": gbps / rate,
            "cpu_ratio": cpu_s_per_gib / cpu,
        }))
    }

    pub fn json(&self) -> Value {
        let pair = |(ours, fio): &(Run, Run)| json!({ "ours_gbps": ours.gbps, "fio_gbps": fio.gbps });
        let best = &self.rivals[0];
        let pairs: Vec<Value> = best.pairs.rest.iter().map(pair).collect();
        let (rate, cpu, serial) = (best.pairs.rate(), best.pairs.cpu(), self.serial.rate());
        json!({
            "fio_gbps": rate.theirs,
            "ours_gbps": rate.ours,
            "ratio": rate.ratio,
            "ratio_min": rate.least,
            "ratio_max": rate.most,
            "fio_cpu_s_per_gib": cpu.theirs,
            "ours_cpu_s_per_gib": cpu.ours,
            "cpu_ratio": best.pairs.cpu_ratio(),
            "hot_fio_gbps": self.hot.map(|(_, gbps)| gbps),
            "fio_version": self.version,
            "iodepth": self.iodepth,
            "objects_in_flight": best.ours.0,
            "object_bytes": best.ours.1,
            "footprint_bytes": best.footprint()[0],
            "fio_footprint_bytes": best.footprint()[1],
            "whole_objects": self.whole_json(),
            "fio_jobs": best.job.jobs,
            "fio_iodepth": best.job.depth,
            "fio_bs": best.job.bs,
            "first": best.pairs.first.as_ref().map(pair),
            "pairs": pairs,
            "fio": self.rivals.iter().map(|rival| json!({
                "jobs": rival.job.jobs,
                "iodepth": rival.job.depth,
                "footprint_bytes": rival.footprint()[1],
                "ours_footprint_bytes": rival.footprint()[0],
                "ours_gbps": rival.pairs.rate().ours,
                "gbps": rival.pairs.rate().theirs,
                "cpu_s_per_gib": rival.pairs.cpu().theirs,
            })).collect::<Vec<_>>(),
            "serial_hot": {
                "fio_gbps": serial.theirs,
                "ours_gbps": serial.ours,
                "ratio": serial.ratio,
                "ratio_min": serial.least,
                "ratio_max": serial.most,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::FioEngine;
    use crate::pairs::{Pairs, Ratio};

    fn run(gbps: f64) -> Run {
        Run { gbps, cpu_s_per_gib: 1.0 / gbps }
    }

    fn pairs(pairs: &[(f64, f64)]) -> Pairs {
        let mut all = Pairs::default();
        all.add((run(0.5), run(0.25)));
        pairs.iter().for_each(|&(ours, fio)| all.add((run(ours), run(fio))));
        all
    }

    fn job(engine: FioEngine, jobs: u64, depth: u64) -> FioJob {
        FioJob { file: "/f".into(), engine, bs: 131_072, depth, jobs, region: 1 << 30, total: 1 << 32 }
    }

    fn compared() -> Compared {
        let main = pairs(&[(4.0, 2.0), (3.0, 2.0), (5.0, 4.0), (4.0, 4.0), (6.0, 4.0)]);
        Compared {
            version: "fio-3.33".into(),
            iodepth: 8,
            rivals: vec![Rival { job: job(FioEngine::Ring, 2, 640), ours: (8, 20 << 20), pairs: main }],
            whole: None,
            hot: Some((32, 9.0)),
            serial: pairs(&[(1.0, 1.0)]),
        }
    }

    #[test]
    fn the_ratio_is_of_medians_and_the_spread_of_pairs() {
        let ratio = compared().rivals[0].pairs.rate();
        assert_eq!(ratio, Ratio { ours: 4.0, theirs: 4.0, ratio: 1.0, least: 1.0, most: 2.0 });
    }

    #[test]
    fn there_is_no_ratio_of_what_is_counted_on_one_side_alone() {
        let mut compared = compared();
        compared.rivals[0].pairs.workers = true;
        let (lines, json) = (compared.lines().join("\n"), compared.json());
        assert!(lines.contains("fio 0.250 without the kernel workers that read for it: no ratio"), "{lines}");
        assert_eq!((&json["cpu_ratio"], json["ours_cpu_s_per_gib"].as_f64()), (&Value::Null, Some(0.25)));
    }

    #[test]
    fn people_and_programs_read_the_same_numbers() {
        let lines = compared().lines().join("\n");
        assert!(lines.contains("ratio 1.00 (pairs 1.00 to 2.00)"), "{lines}");
        assert!(
            lines.contains("8 objects of 20m in flight (160 MiB), 2 jobs of 640 x 128k (160 MiB)"),
            "{lines}"
        );
        assert!(lines.contains("CPU s/GiB: engine 0.250, fio 0.250: ratio"), "{lines}");
        let json = compared().json();
        assert_eq!((json["ratio"].as_f64(), json["hot_fio_gbps"].as_f64()), (Some(1.0), Some(9.0)));
        assert_eq!((json["cpu_ratio"].as_f64(), json["fio_cpu_s_per_gib"].as_f64()), (Some(1.0), Some(0.25)));
        assert_eq!(json["pairs"].as_array().map(Vec::len), Some(5));
        // What may have been cold is said, and is in no median.
        assert!(
            lines.contains(
                "the first pair, apart (device and memory may be cold): engine 0.500 GB/s, fio 0.250"
            )
        );
        assert_eq!((json["first"]["fio_gbps"].as_f64(), json["ratio_max"].as_f64()), (Some(0.25), Some(2.0)));
    }

    #[test]
    fn all_ways_over_passthrough_are_reported() {
        let rival = |jobs, depth, fio| Rival {
            job: job(FioEngine::Passthrough, jobs, depth),
            ours: (8, jobs * depth * (131_072 / 8)),
            pairs: pairs(&[(2.0, fio)]),
        };
        let whole = Some((20 << 20, 160 << 20, vec![run(3.0)]));
        let rivals = vec![rival(2, 32, 2.0), rival(1, 16, 1.0)];
        let compared = Compared { rivals, whole, hot: None, ..compared() };
        let lines = compared.lines().join("\n");
        let head = "8 objects of 1m in flight (8 MiB), the best of fio's, 2 jobs of 32 x 128k (8 MiB)";
        assert!(lines.contains(head), "{lines}");
        assert!(lines.contains("whole objects of 20m (160 MiB), for information: 3.00 GB/s"), "{lines}");
        assert!(lines.contains("; engine, 8 objects of 256k: 2.00 GB/s"), "{lines}");
        assert!(
            lines.contains("fio as 1 job of 16 x 128k (2 MiB): 1.00 GB/s") && !lines.contains("hot b"),
            "{lines}"
        );
        let json = compared.json();
        assert_eq!((json["fio"][1]["iodepth"].as_u64(), json["hot_fio_gbps"].is_null()), (Some(16), true));
        for footprints in [&json, &json["fio"][1]].map(|of| (of["footprint_bytes"].as_u64(), of)) {
            let other = ["fio_footprint_bytes", "ours_footprint_bytes"]
                .iter()
                .find_map(|&key| footprints.1[key].as_u64());
            assert!(footprints.0.is_some() && footprints.0 == other, "{json:#}");
        }
        assert_eq!(json["whole_objects"]["footprint_bytes"].as_u64(), Some(160 << 20));
    }
}
