//! The engine and fio in turns: the same file, the same bytes, landing in as many distinct bytes of memory.

use serde_json::{Value, json};

use crate::args::Plan;
use crate::arm;
use crate::direct::{self, PageBuf};
use crate::failure::Failure;
use crate::fio::{Fio, FioJob};
use crate::place::Place;
use crate::progress::Progress;
use crate::rig::Rig;
use crate::units::{count, human, short};
use crate::work::{Feed, Order};

const PAIRS: usize = 5;
/// Objects in flight when `--iodepth` names none.
const DEPTH: usize = 8;
/// Buffers that a ring can register.
const MOST_BUFFERS: u64 = 16 << 10;
/// Objects of the serial pairs; they are there to check the serial arm, not to be precise.
const SERIAL_OBJECTS: u64 = 64;

/// Rates of runs in turns, ours and theirs.
#[derive(Debug, Clone, Default)]
pub struct Pairs(Vec<(f64, f64)>);

/// What pairs come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    pub ours: f64,
    pub fio: f64,
    pub ratio: f64,
    pub least: f64,
    pub most: f64,
}

impl Pairs {
    /// The ratio of the medians, and the ends of the ratios of the single pairs.
    fn ratio(&self) -> Ratio {
        let ours = median(self.0.iter().map(|pair| pair.0));
        let fio = median(self.0.iter().map(|pair| pair.1));
        let ratios = || self.0.iter().map(|(ours, fio)| ours / fio);
        let (least, most) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        Ratio { ours, fio, ratio: ours / fio, least, most }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the comparison found.
#[derive(Debug, Clone)]
pub struct Compared {
    version: String,
    iodepth: usize,
    /// Bytes of memory that each side lands in.
    footprint: u64,
    job: FioJob,
    pairs: Pairs,
    hot_depth: u64,
    hot_gbps: f64,
    serial: Pairs,
}

/// What the plan asks fio to do beside `depth` objects in flight of ours.
fn job(plan: &Plan, place: &Place, order: &Order, lanes: usize, footprint: u64) -> Result<FioJob, Failure> {
    let bs = u64::from(plan.cmd_size).min(plan.bs);
    let jobs = (lanes as u64).min(order.count() * plan.bs / bs).max(1);
    let depth = footprint / bs / jobs;
    if depth > MOST_BUFFERS || depth == 0 {
        let (footprint, bs) = (short(footprint), short(bs));
        return Err(Failure::Setup(format!(
            "--compare=fio cannot land in {footprint} of memory with {jobs} jobs of 1 to 16384 buffers \
             of {bs}: change --iodepth, --cmd_size or --lanes"
        )));
    }
    let (region, total) = (order.count() * plan.bs, order.objects_an_arm() * plan.bs);
    Ok(FioJob { file: place.path.clone(), ring: true, bs, depth, jobs, region, total })
}

/// Runs the pairs.
pub fn run(fio: &Fio, rig: &Rig, plan: &Plan, place: &Place) -> Result<Compared, Failure> {
    let order = Order::new(place.size, plan.bs, false);
    let iodepth = if plan.depths.contains(&DEPTH) { DEPTH } else { plan.max_depth() };
    let slots = iodepth * plan.jobs;
    let footprint = rig.footprint(slots);
    let job = job(plan, place, &order, rig.engine.lanes(), footprint)?;
    let mut pairs = Pairs::default();
    for _ in 0..PAIRS {
        let feed = Feed::of(order, order.objects_an_arm());
        // No spare places here: fio lands in what is in flight, and so must we.
        let ours = arm::engine(rig, plan, iodepth, rig.leases(slots)?, &feed, "engine, same footprint")?;
        pairs.0.push((ours.spent.gbps(ours.bytes), watched(fio, &job, "fio, same footprint")?));
    }
    let hot_depth = u64::from(plan.lane_depth);
    let hot = FioJob { depth: hot_depth, ..job.clone() };
    let hot_gbps = watched(fio, &hot, "fio, small hot buffers")?;
    let serial = serial(fio, plan, place, &order, &job)?;
    Ok(Compared { version: fio.version.clone(), iodepth, footprint, job, pairs, hot_depth, hot_gbps, serial })
}

/// The serial arm beside fio with one command in flight, both into one hot buffer: whether our serial
/// loop is as good as a serial loop can be.
fn serial(fio: &Fio, plan: &Plan, place: &Place, order: &Order, job: &FioJob) -> Result<Pairs, Failure> {
    let objects = SERIAL_OBJECTS.min(order.objects_an_arm());
    let job = FioJob { ring: false, depth: 1, jobs: 1, total: objects * plan.bs, ..job.clone() };
    let file = direct::open(&place.path, false).map_err(Failure::setup)?;
    let hot = Plan { bs: job.bs, ..plan.clone() };
    let order = Order::new(job.region, job.bs, false);
    let mut pairs = Pairs::default();
    for _ in 0..PAIRS {
        let feed = Feed::of(order, job.total / job.bs);
        let ours = arm::serial(&file, &hot, &mut [PageBuf::new(job.bs as usize)], &feed)?;
        pairs.0.push((ours.spent.gbps(ours.bytes), watched(fio, &job, "fio, serial")?));
    }
    Ok(pairs)
}

fn watched(fio: &Fio, job: &FioJob, phase: &str) -> Result<f64, Failure> {
    let _progress = Progress::new(phase, None);
    fio.run(job)
}

impl Compared {
    /// A few lines for people.
    pub fn lines(&self) -> Vec<String> {
        let (jobs, depth, bs) = (count(self.job.jobs, "job"), self.job.depth, short(self.job.bs));
        let (main, serial) = (self.pairs.ratio(), self.serial.ratio());
        let spread = |r: &Ratio| format!("{:.2} (pairs {:.2} to {:.2})", r.ratio, r.least, r.most);
        vec![
            format!(
                "against {}, {PAIRS} pairs, both into {} ({} objects in flight; {jobs} of {depth} x {bs}):",
                self.version,
                human(self.footprint),
                self.iodepth
            ),
            format!("  engine {:.2} GB/s, fio {:.2} GB/s: ratio {}", main.ours, main.fio, spread(&main)),
            format!(
                "  fio with small hot buffers ({jobs} of {} x {bs}): {:.2} GB/s, for information",
                self.hot_depth, self.hot_gbps
            ),
            format!(
                "  serial loop {:.2} GB/s, fio psync {:.2} GB/s, both into one hot {bs} buffer: ratio {}",
                serial.ours,
                serial.fio,
                spread(&serial)
            ),
        ]
    }

    pub fn json(&self) -> Value {
        let pair = |(ours, fio): &(f64, f64)| json!({ "ours_gbps": ours, "fio_gbps": fio });
        let pairs: Vec<Value> = self.pairs.0.iter().map(pair).collect();
        let (main, serial) = (self.pairs.ratio(), self.serial.ratio());
        json!({
            "fio_gbps": main.fio,
            "ours_gbps": main.ours,
            "ratio": main.ratio,
            "ratio_min": main.least,
            "ratio_max": main.most,
            "hot_fio_gbps": self.hot_gbps,
            "fio_version": self.version,
            "iodepth": self.iodepth,
            "footprint_bytes": self.footprint,
            "fio_jobs": self.job.jobs,
            "fio_iodepth": self.job.depth,
            "fio_bs": self.job.bs,
            "pairs": pairs,
            "serial_hot": {
                "fio_gbps": serial.fio,
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

    fn compared() -> Compared {
        let pairs = Pairs(vec![(4.0, 2.0), (3.0, 2.0), (5.0, 4.0), (4.0, 4.0), (6.0, 4.0)]);
        let job = FioJob {
            file: "/f".into(),
            ring: true,
            bs: 131_072,
            depth: 640,
            jobs: 2,
            region: 1 << 30,
            total: 1 << 32,
        };
        let (serial, version) = (Pairs(vec![(1.0, 1.0)]), "fio-3.33".into());
        Compared {
            version,
            iodepth: 8,
            footprint: 160 << 20,
            job,
            pairs,
            hot_depth: 32,
            hot_gbps: 9.0,
            serial,
        }
    }

    #[test]
    fn the_ratio_is_of_medians_and_the_spread_of_pairs() {
        let ratio = compared().pairs.ratio();
        assert_eq!(ratio, Ratio { ours: 4.0, fio: 4.0, ratio: 1.0, least: 1.0, most: 2.0 });
    }

    #[test]
    fn people_and_programs_read_the_same_numbers() {
        let lines = compared().lines().join("\n");
        assert!(
            lines.contains("ratio 1.00 (pairs 1.00 to 2.00)") && lines.contains("2 jobs of 640 x 128k"),
            "{lines}"
        );
        assert!(lines.contains("into 160 MiB"), "{lines}");
        let json = compared().json();
        assert_eq!((json["ratio"].as_f64(), json["hot_fio_gbps"].as_f64()), (Some(1.0), Some(9.0)));
        assert_eq!(json["pairs"].as_array().map(Vec::len), Some(5));
    }
}
