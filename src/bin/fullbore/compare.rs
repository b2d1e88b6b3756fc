//! The engine and fio in turns: the same file, the same bytes, the engine's in as many distinct bytes of memory as
//! fio's where fio can. Over an NVMe namespace fio runs as one and as two jobs of 16 and of 32 commands in flight,
//! and the best of these counts.

use serde_json::{Value, json};

use crate::args::Plan;
use crate::arm;
use crate::direct::{Op, PageBuf};
use crate::failure::Failure;
use crate::fio::{Fio, FioEngine, FioJob, Run};
use crate::pairs::{Beside, PAIRS, Pairs, Ratio};
use crate::place::Place;
use crate::progress::Progress;
use crate::rig::Rig;
use crate::serial as plain_loop;
use crate::units::{count, human, short};
use crate::work::{Feed, Order};

/// Objects in flight when `--iodepth` names none.
pub const DEPTH: usize = 8;
/// Jobs and commands in flight of fio over an NVMe namespace.
const PASSTHROUGH: [(u64, u64); 4] = [(1, 16), (1, 32), (2, 16), (2, 32)];
/// Buffers that a ring can register.
const MOST_BUFFERS: u64 = 16 << 10;
/// Objects of the serial pairs; they are there to check the serial arm, not to be precise.
const SERIAL_OBJECTS: u64 = 64;

/// One way to run fio, paired with the engine.
#[derive(Debug, Clone)]
struct Rival {
    job: FioJob,
    pairs: Pairs,
}

/// The engine beside the serial loop of the first arm: the same objects, through the same places of the pool.
pub fn with_serial(rig: &Rig, plan: &Plan, place: &Place) -> Result<Beside, Failure> {
    let order = Order::new(place.size, plan.bs, plan.rw.random());
    let iodepth = if plan.depths.contains(&DEPTH) { DEPTH } else { plan.max_depth() };
    let slots = iodepth * plan.jobs;
    let plain = place.plain(plan, &rig.engine, false)?;
    let how = format!(
        "{} of {} in flight against one command of {}",
        iodepth * plan.jobs,
        short(plan.bs),
        short(u64::from(plan.cmd_size))
    );
    let ours = || {
        let feed = Feed::of(order, order.objects_an_arm());
        arm::engine(rig, plan, iodepth, rig.items(slots)?, &feed, ("engine beside serial", None))
            .map(|run| run_of(&run))
    };
    let theirs = || {
        let feed = Feed::of(order, order.objects_an_arm());
        let mut pool = rig.items(slots)?;
        let load =
            |slot: usize, offset| plain_loop::object(&plain, plan, (&rig.parts, &mut pool[slot]), offset);
        plain_loop::run(plan, slots, &feed, load).map(|run| run_of(&run))
    };
    Beside::of(("serial".into(), how, [rig.pool.footprint(slots); 2]), ours, theirs)
}

/// What the comparison found.
#[derive(Debug, Clone)]
pub struct Compared {
    version: String,
    iodepth: usize,
    /// Bytes of memory that the engine lands in.
    footprint: u64,
    /// The best of them is the first.
    rivals: Vec<Rival>,
    /// fio with so many small hot buffers a job, and its rate; not over passthrough, where all its buffers are.
    hot: Option<(u64, f64)>,
    serial: Pairs,
}

/// What the plan asks fio to do beside objects of ours in so much memory.
fn jobs(
    plan: &Plan,
    place: &Place,
    order: &Order,
    rig: &Rig,
    footprint: u64,
) -> Result<Vec<FioJob>, Failure> {
    let bs = u64::from(rig.command(plan)).min(plan.bs);
    let (region, total) = (order.count() * plan.bs, order.objects_an_arm() * plan.bs);
    let (file, most) = (place.members[0].path.clone(), region / bs);
    let job = |engine, jobs, depth| FioJob { file: file.clone(), engine, bs, depth, jobs, region, total };
    if place.drives().next().is_some() {
        let passthrough = |(jobs, depth): (u64, u64)| job(FioEngine::Passthrough, jobs.min(most), depth);
        return Ok(PASSTHROUGH.into_iter().map(passthrough).collect());
    }
    let jobs = (rig.lanes().len() as u64).min(most).max(1);
    let depth = footprint / bs / jobs;
    if depth > MOST_BUFFERS || depth == 0 {
        let (footprint, bs) = (short(footprint), short(bs));
        return Err(Failure::Setup(format!(
            "--compare=fio cannot land in {footprint} of memory with {jobs} jobs of 1 to 16384 buffers \
             of {bs}: change --iodepth, --cmd_size or --lanes"
        )));
    }
    Ok(vec![job(FioEngine::Ring, jobs, depth)])
}

/// Runs the pairs.
pub fn run(fio: &Fio, rig: &Rig, plan: &Plan, place: &Place) -> Result<Compared, Failure> {
    let order = Order::new(place.size, plan.bs, false);
    let iodepth = if plan.depths.contains(&DEPTH) { DEPTH } else { plan.max_depth() };
    let slots = iodepth * plan.jobs;
    let footprint = rig.pool.footprint(slots);
    let jobs = jobs(plan, place, &order, rig, footprint)?;
    let first = jobs[0].clone();
    let mut rivals: Vec<_> = jobs.into_iter().map(|job| Rival { job, pairs: Pairs::default() }).collect();
    // The arms ran before: nothing is cold, and no pair has to be set apart.
    for _ in 0..PAIRS {
        let feed = Feed::of(order, order.objects_an_arm());
        // No spare places here: fio lands in what is in flight, and so must we.
        let ours = arm::engine(rig, plan, iodepth, rig.items(slots)?, &feed, ("engine beside fio", None))?;
        let ours = run_of(&ours);
        for rival in &mut rivals {
            rival.pairs.0.push((ours, watched(fio, &rival.job, "fio beside engine")?));
        }
    }
    rivals.sort_by(|a, b| b.pairs.rate().theirs.total_cmp(&a.pairs.rate().theirs));
    let hot = match first.engine {
        FioEngine::Passthrough => None,
        _ => {
            let hot = FioJob { depth: u64::from(plan.lane_depth), ..first.clone() };
            Some((hot.depth, watched(fio, &hot, "fio, small hot buffers")?.gbps))
        }
    };
    let serial = serial(fio, rig, plan, place, &order, &first)?;
    Ok(Compared { version: fio.version.clone(), iodepth, footprint, rivals, hot, serial })
}

pub fn run_of(outcome: &arm::Outcome) -> Run {
    let (spent, bytes) = (outcome.spent, outcome.bytes);
    Run { gbps: spent.gbps(bytes), cpu_s_per_gib: spent.cpu_s_per_gib(bytes) }
}

/// The serial arm beside fio with one command in flight, both into one hot buffer: whether our serial
/// loop is as good as a serial loop can be.
fn serial(
    fio: &Fio,
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    order: &Order,
    job: &FioJob,
) -> Result<Pairs, Failure> {
    let objects = SERIAL_OBJECTS.min(order.objects_an_arm());
    let (file, engine) = (place.members[0].plain.clone(), FioEngine::Psync);
    let job = FioJob { file, engine, depth: 1, jobs: 1, total: objects * plan.bs, ..job.clone() };
    let plain = place.plain(plan, &rig.engine, false)?;
    let hot = Plan { bs: job.bs, ..plan.clone() };
    let order = Order::new(job.region, job.bs, false);
    let mut pairs = Pairs::default();
    for _ in 0..PAIRS {
        let feed = Feed::of(order, job.total / job.bs);
        let (mut buf, len) = (PageBuf::new(job.bs as usize), job.bs as usize);
        let load = |_, offset| plain_loop::piece(&plain, Op::Read, &hot, &mut buf, offset, len);
        let ours = plain_loop::run(&hot, 1, &feed, load)?;
        pairs.0.push((run_of(&ours), watched(fio, &job, "fio, serial")?));
    }
    Ok(pairs)
}

fn watched(fio: &Fio, job: &FioJob, phase: &str) -> Result<Run, Failure> {
    let _progress = Progress::new(phase, None);
    fio.run(job)
}

impl Compared {
    /// A few lines for people.
    pub fn lines(&self) -> Vec<String> {
        let spread = |r: &Ratio| format!("{:.2} (pairs {:.2} to {:.2})", r.ratio, r.least, r.most);
        let best = &self.rivals[0];
        let (rate, cpu, serial) = (best.pairs.rate(), best.pairs.cpu(), self.serial.rate());
        let of = |job: &FioJob| {
            let memory = human(job.jobs * job.depth * job.bs);
            format!("{} of {} x {} ({memory})", count(job.jobs, "job"), job.depth, short(job.bs))
        };
        let mut lines = vec![format!(
            "against {}, {PAIRS} pairs: {} objects in flight ({}), {}{}:",
            self.version,
            self.iodepth,
            human(self.footprint),
            if self.rivals.len() > 1 { "the best of fio's, " } else { "" },
            of(&best.job)
        )];
        lines.push(format!(
            "  engine {:.2} GB/s, fio {:.2} GB/s: ratio {}",
            rate.ours,
            rate.theirs,
            spread(&rate)
        ));
        lines.push(format!(
            "  CPU s/GiB: engine {:.3}, fio {:.3}: ratio {}",
            cpu.ours,
            cpu.theirs,
            spread(&cpu)
        ));
        for rival in &self.rivals[1..] {
            let (rate, cpu) = (rival.pairs.rate().theirs, rival.pairs.cpu().theirs);
            lines.push(format!("  fio as {}: {rate:.2} GB/s, CPU s/GiB {cpu:.3}", of(&rival.job)));
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
            spread(&serial)
        ));
        lines
    }

    pub fn json(&self) -> Value {
        let pair = |(ours, fio): &(Run, Run)| json!({ "ours_gbps": ours.gbps, "fio_gbps": fio.gbps });
        let best = &self.rivals[0];
        let pairs: Vec<Value> = best.pairs.0.iter().map(pair).collect();
        let (rate, cpu, serial) = (best.pairs.rate(), best.pairs.cpu(), self.serial.rate());
        json!({
            "fio_gbps": rate.theirs,
            "ours_gbps": rate.ours,
            "ratio": rate.ratio,
            "ratio_min": rate.least,
            "ratio_max": rate.most,
            "fio_cpu_s_per_gib": cpu.theirs,
            "ours_cpu_s_per_gib": cpu.ours,
            "cpu_ratio": cpu.ratio,
            "hot_fio_gbps": self.hot.map(|(_, gbps)| gbps),
            "fio_version": self.version,
            "iodepth": self.iodepth,
            "footprint_bytes": self.footprint,
            "fio_footprint_bytes": best.job.jobs * best.job.depth * best.job.bs,
            "fio_jobs": best.job.jobs,
            "fio_iodepth": best.job.depth,
            "fio_bs": best.job.bs,
            "pairs": pairs,
            "fio": self.rivals.iter().map(|rival| json!({
                "jobs": rival.job.jobs,
                "iodepth": rival.job.depth,
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

    fn run(gbps: f64) -> Run {
        Run { gbps, cpu_s_per_gib: 1.0 / gbps }
    }

    fn pairs(pairs: &[(f64, f64)]) -> Pairs {
        Pairs(pairs.iter().map(|&(ours, fio)| (run(ours), run(fio))).collect())
    }

    fn job(engine: FioEngine, jobs: u64, depth: u64) -> FioJob {
        FioJob { file: "/f".into(), engine, bs: 131_072, depth, jobs, region: 1 << 30, total: 1 << 32 }
    }

    fn compared() -> Compared {
        let main = pairs(&[(4.0, 2.0), (3.0, 2.0), (5.0, 4.0), (4.0, 4.0), (6.0, 4.0)]);
        Compared {
            version: "fio-3.33".into(),
            iodepth: 8,
            footprint: 160 << 20,
            rivals: vec![Rival { job: job(FioEngine::Ring, 2, 640), pairs: main }],
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
    fn people_and_programs_read_the_same_numbers() {
        let lines = compared().lines().join("\n");
        assert!(lines.contains("ratio 1.00 (pairs 1.00 to 2.00)"), "{lines}");
        assert!(lines.contains("8 objects in flight (160 MiB), 2 jobs of 640 x 128k (160 MiB)"), "{lines}");
        assert!(lines.contains("CPU s/GiB: engine 0.250, fio 0.250"), "{lines}");
        let json = compared().json();
        assert_eq!((json["ratio"].as_f64(), json["hot_fio_gbps"].as_f64()), (Some(1.0), Some(9.0)));
        assert_eq!((json["cpu_ratio"].as_f64(), json["fio_cpu_s_per_gib"].as_f64()), (Some(1.0), Some(0.25)));
        assert_eq!(json["pairs"].as_array().map(Vec::len), Some(5));
    }

    #[test]
    fn all_ways_over_passthrough_are_reported() {
        let rival = |jobs, depth, fio| Rival {
            job: job(FioEngine::Passthrough, jobs, depth),
            pairs: pairs(&[(2.0, fio)]),
        };
        let compared =
            Compared { rivals: vec![rival(2, 32, 2.0), rival(1, 16, 1.0)], hot: None, ..compared() };
        let lines = compared.lines().join("\n");
        assert!(lines.contains("the best of fio's, 2 jobs of 32 x 128k (8 MiB)"), "{lines}");
        assert!(
            lines.contains("fio as 1 job of 16 x 128k (2 MiB): 1.00 GB/s") && !lines.contains("hot b"),
            "{lines}"
        );
        let json = compared.json();
        assert_eq!((json["fio"][1]["iodepth"].as_u64(), json["hot_fio_gbps"].is_null()), (Some(16), true));
    }
}
