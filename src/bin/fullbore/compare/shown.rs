//! What is said of a comparison with fio.

use serde_json::{Value, json};

use super::{Compared, Rival};
use crate::fio::FioJob;
use crate::pairs::median;
use crate::units::{human, short};

impl Compared {
    /// A few lines for people.
    pub fn lines(&self) -> Vec<String> {
        let (best, serial) = (&self.rivals[0], self.serial.rate());
        let mut lines = best.beside.lines();
        if self.rivals.len() > 1 {
            lines.push(format!("  that is the best of fio's {} ways; the others:", self.rivals.len()));
        }
        for rival in &self.rivals[1..] {
            let (rate, cpu) = (rival.beside.pairs.rate(), rival.beside.pairs.cpu());
            lines.push(format!(
                "  {}: engine {:.2} GB/s, CPU s/GiB {:.3}; fio {:.2} GB/s, CPU s/GiB {:.3}",
                rival.beside.how, rate.ours, cpu.ours, rate.theirs, cpu.theirs
            ));
        }
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
            let hot = hot.words();
            lines.push(format!("  fio with small hot buffers, {hot}: {gbps:.2} GB/s, for information"));
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
        let best = &self.rivals[0].beside.pairs;
        let (rate, cpu) = (best.rate().theirs, best.cpu().theirs);
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

    /// The best of fio's ways as every comparison is, and what else there is.
    pub fn json(&self) -> Value {
        let best = &self.rivals[0];
        let way = |rival: &Rival| {
            let mut way = rival.beside.json();
            way["jobs"] = rival.job.jobs.into();
            way["iodepth"] = rival.job.depth.into();
            way
        };
        let mut all = best.beside.json();
        all["iodepth"] = self.iodepth.into();
        all["objects_in_flight"] = best.ours.0.into();
        all["object_bytes"] = best.ours.1.into();
        all["fio_jobs"] = best.job.jobs.into();
        all["fio_iodepth"] = best.job.depth.into();
        all["fio_bs"] = best.job.bs.into();
        all["fio"] = self.rivals.iter().map(way).collect();
        all["whole_objects"] = self.whole_json().into();
        all["hot_fio_gbps"] = self.hot.map(|(_, gbps)| gbps).into();
        all["serial_hot"] = self.serial.json();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::{FioEngine, Run};
    use crate::pairs::{Beside, Pairs, Ratio};

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
        let (random, start) = (None, 0);
        FioJob {
            file: "/f".into(),
            engine,
            bs: 131_072,
            depth,
            jobs,
            random,
            start,
            region: 1 << 30,
            total: 1 << 32,
        }
    }

    /// 8 of 20 MiB that were asked for, and objects of ours in so much memory.
    fn rival(job: FioJob, bs: u64, pairs: Pairs) -> Rival {
        Rival { beside: Beside::fio("fio-3.33", &job, (8, 20 << 20), (8, bs), pairs), job, ours: (8, bs) }
    }

    fn compared() -> Compared {
        let main = pairs(&[(4.0, 2.0), (3.0, 2.0), (5.0, 4.0), (4.0, 4.0), (6.0, 4.0)]);
        Compared {
            iodepth: 8,
            rivals: vec![rival(job(FioEngine::Ring, 2, 640), 20 << 20, main)],
            whole: None,
            hot: Some((32, 9.0)),
            serial: pairs(&[(1.0, 1.0)]),
        }
    }

    #[test]
    fn the_ratio_is_of_medians_and_the_spread_of_pairs() {
        let ratio = compared().rivals[0].beside.pairs.rate();
        assert_eq!(ratio, Ratio { ours: 4.0, theirs: 4.0, ratio: 1.0, least: 1.0, most: 2.0 });
    }

    #[test]
    fn there_is_no_ratio_of_what_is_counted_on_one_side_alone() {
        let mut compared = compared();
        compared.rivals[0].beside.pairs.workers = true;
        let (lines, json) = (compared.lines().join("\n"), compared.json());
        assert!(
            lines.contains("fio-3.33 0.250 without the kernel workers that read for it: no ratio"),
            "{lines}"
        );
        assert_eq!((&json["cpu_ratio"], json["ours_cpu_s_per_gib"].as_f64()), (&Value::Null, Some(0.25)));
    }

    #[test]
    fn people_and_programs_read_the_same_numbers() {
        let lines = compared().lines().join("\n");
        assert!(lines.contains("ratio 1.00 (pairs 1.00 to 2.00)"), "{lines}");
        assert!(
            lines.contains("8 of 20m in flight, against 2 jobs of 640 x 128k, 160 MiB of memory both:"),
            "{lines}"
        );
        assert!(lines.contains("CPU s/GiB: engine 0.250, fio-3.33 0.250: ratio"), "{lines}");
        let json = compared().json();
        assert_eq!((json["ratio"].as_f64(), json["hot_fio_gbps"].as_f64()), (Some(1.0), Some(9.0)));
        assert_eq!(
            (json["cpu_ratio"].as_f64(), json["theirs_cpu_s_per_gib"].as_f64()),
            (Some(1.0), Some(0.25))
        );
        assert_eq!(json["pairs"].as_array().map(Vec::len), Some(5));
        // What may have been cold is said, and is in no median.
        assert!(lines.contains(
            "the first pair, apart (device and memory may be cold): engine 0.500 GB/s, fio-3.33 0.250"
        ));
        assert_eq!(
            (json["first"]["theirs_gbps"].as_f64(), json["ratio_max"].as_f64()),
            (Some(0.25), Some(2.0))
        );
    }

    #[test]
    fn all_ways_over_passthrough_are_reported() {
        let way = |jobs, depth, fio| {
            let job = job(FioEngine::Passthrough, jobs, depth);
            rival(job.clone(), job.footprint() / 8, pairs(&[(2.0, fio)]))
        };
        let whole = Some((20 << 20, 160 << 20, vec![run(3.0)]));
        let rivals = vec![way(2, 32, 2.0), way(1, 16, 1.0)];
        let compared = Compared { rivals, whole, hot: None, ..compared() };
        let lines = compared.lines().join("\n");
        for said in [
            "8 of 1m in flight, cut from 8 of 20m to fio's memory, against 2 jobs of 32 x 128k, 8 MiB of memory both",
            "whole objects of 20m (160 MiB), for information: 3.00 GB/s",
            "the best of fio's 2 ways",
            "8 of 256k in flight, cut from 8 of 20m to fio's memory, against 1 job of 16 x 128k: engine 2.00 GB/s",
        ] {
            assert!(lines.contains(said), "{said} is not in: {lines}");
        }
        assert!(!lines.contains("hot b"), "{lines}");
        let json = compared.json();
        assert_eq!((json["fio"][1]["iodepth"].as_u64(), json["hot_fio_gbps"].is_null()), (Some(16), true));
        for way in [&json, &json["fio"][1]] {
            let both = ["footprint_bytes", "rival_footprint_bytes"].map(|key| way[key].as_u64());
            assert!(both[0].is_some() && both[0] == both[1], "{json:#}");
        }
        assert_eq!(json["whole_objects"]["footprint_bytes"].as_u64(), Some(160 << 20));
    }
}
