//! What the engine itself costs: transfers over the null queue, where every command completes at once and no byte
//! moves. The encoding, the slots, the reaping, the inbox and the completion are the ones of real devices.
//!
//! One lane of depth 32, objects of 20 MiB (160 commands of 128 KiB), 8 of them in flight from this thread, which is
//! not the lane's. The first line is JSON: nanoseconds per command, submit to completion, the median of 11 runs, and
//! enters per command. Then criterion measures the same; its `elem/s` are commands a second.
//!
//! ```text
//! cargo bench --bench null_queue
//! ```

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use fullbore::{Client, Completion, Engine, Error, Region, Target, Transfer};

const COMMAND: u32 = 128 << 10;
const OBJECT: u64 = 20 << 20;
const COMMANDS: u64 = OBJECT / COMMAND as u64;
const IN_FLIGHT: u64 = 8;
const RUNS: usize = 11;

/// Everything that exists before the clock starts.
struct Bench {
    engine: Engine,
    _region: Region,
    _target: Target,
    client: Client,
    /// Transfers at rest; they are submitted again and again, so that none is allocated while the clock runs.
    idle: Vec<Transfer>,
    done: Vec<Completion>,
}

impl Bench {
    fn new() -> Result<Bench, Error> {
        let builder = Engine::builder().null().lanes(1).lane_depth(32).command_size(COMMAND);
        let engine = builder.build()?;
        let target = engine.open_null(64 * OBJECT)?;
        let region = engine.alloc_host((IN_FLIGHT * OBJECT) as usize)?;
        let client = engine.client()?;
        let object = OBJECT as usize;
        let idle = (0..IN_FLIGHT as usize)
            .map(|i| {
                let lease = region.lease(i * object..(i + 1) * object)?;
                Ok(Transfer::read(&target).extent(i as u64 * OBJECT, lease))
            })
            .collect::<Result<_, Error>>()?;
        let done = Vec::with_capacity(IN_FLIGHT as usize);
        Ok(Bench { engine, _region: region, _target: target, client, idle, done })
    }

    /// Loads `objects` objects with up to `IN_FLIGHT` in flight and says how long that took.
    fn load(&mut self, objects: u64) -> Result<Duration, Error> {
        let (mut submitted, mut completed) = (0u64, 0u64);
        let begin = Instant::now();
        while completed < objects {
            while submitted < objects {
                let Some(transfer) = self.idle.pop() else { break };
                self.client.submit_tagged(transfer, submitted).map_err(|rejected| rejected.error)?;
                submitted += 1;
            }
            self.client.wait(1, &mut self.done, None)?;
            for completion in self.done.drain(..) {
                completion.result?;
                assert_eq!(
                    completion.bytes, OBJECT,
                    "a transfer ended without an error and without all its bytes"
                );
                completed += 1;
                self.idle.extend(completion.transfer);
            }
        }
        Ok(begin.elapsed())
    }

    /// (enters, commands) of the lane since the engine was made.
    fn counts(&self) -> (u64, u64) {
        let lanes = self.engine.stats().lanes;
        (lanes.iter().map(|lane| lane.enters).sum(), lanes.iter().map(|lane| lane.commands).sum())
    }
}

/// The line that the bars are held against.
fn medians(bench: &mut Bench, objects: u64) -> Result<serde_json::Value, Error> {
    bench.load(objects)?; // warm
    let (enters, commands) = bench.counts();
    let mut ns = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let took = bench.load(objects)?;
        ns.push(took.as_nanos() as f64 / (objects * COMMANDS) as f64);
    }
    let after = bench.counts();
    ns.sort_by(f64::total_cmp);
    Ok(serde_json::json!({
        "ns_per_command": ns[RUNS / 2],
        "ns_min": ns[0],
        "ns_max": ns[RUNS - 1],
        "runs": RUNS,
        "objects_a_run": objects,
        "objects_in_flight": IN_FLIGHT,
        "enters_per_command": (after.0 - enters) as f64 / (after.1 - commands) as f64,
    }))
}

fn main() {
    // `cargo bench` passes --bench; anything else (`cargo test --benches`, `-- --test`) wants to see it run once.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let full = args.iter().any(|arg| arg == "--bench") && !args.iter().any(|arg| arg == "--test");
    let mut bench = match Bench::new() {
        Ok(bench) => bench,
        Err(error) => {
            eprintln!("null_queue: {error}");
            std::process::exit(1);
        }
    };
    let objects = if full { 5_000 } else { 2 * IN_FLIGHT };
    match medians(&mut bench, objects) {
        Ok(line) => println!("{line}"),
        Err(error) => {
            eprintln!("null_queue: {error}");
            std::process::exit(1);
        }
    }

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("null_queue");
    group.throughput(Throughput::Elements(COMMANDS));
    group.bench_function("20 MiB objects, 8 in flight", |bencher| {
        bencher.iter_custom(|objects| bench.load(objects).expect("null transfers succeed"));
    });
    group.finish();
    criterion.final_summary();
}
