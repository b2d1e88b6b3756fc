//! Several processes on one machine and one file (FACTS §6.19: each pinned to the first CPUs, all on top of one
//! another). Rates are printed; whether they are good is for benches/ to say.

use super::support::load::load;
use super::support::{build, child, cpus_of, eventually, folders, uring};
use fullbore::{Engine, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const SEED: u64 = 0x4a0c;
const SIZE: u64 = 32 << 20;
const OBJECT: usize = 4 * MIB;
const PROCESSES: usize = 4;
/// Which of the processes this is.
const RANK: &str = "FULLBORE_IT_RANK";
const PLACE: &str = "FULLBORE_IT_PLACE";

#[test]
fn four_processes_on_one_file_all_load_what_is_there() {
    if !uring() {
        return;
    }
    let test = "processes::four_processes_on_one_file_all_load_what_is_there";
    if let (Ok(rank), Ok(place)) = (std::env::var(RANK), std::env::var(PLACE)) {
        return child(test, &[]).run(|| one_of_four(&rank, Path::new(&place)));
    }
    for folder in folders() {
        folder.file("data", SIZE, SEED);
        let place = folder.path.to_str().unwrap();
        std::thread::scope(|scope| {
            for rank in 0..PROCESSES {
                scope.spawn(move || {
                    child(test, &[(RANK, &rank.to_string()), (PLACE, place)])
                        .run(|| unreachable!("not a child"));
                });
            }
        });
        let rate = |rank| std::fs::read_to_string(folder.path.join(format!("rate-{rank}"))).expect("a rate");
        let rates: Vec<f64> = (0..PROCESSES).map(|rank| rate(rank).parse().unwrap()).collect();
        let (sum, slowest) = (rates.iter().sum::<f64>(), rates.iter().copied().fold(f64::MAX, f64::min));
        eprintln!(
            "measured: {}, {PROCESSES} processes {sum:.2} GB/s, slowest {:.2} of the mean",
            folder.name,
            slowest * PROCESSES as f64 / sum
        );
    }
}

/// Loads and checks the file some times over, from the moment on when all processes are there.
fn one_of_four(rank: &str, place: &Path) {
    let engine = build(Engine::builder());
    let target = engine.open(place.join("data"), OpenOptions::read()).unwrap();
    let (client, region) = (engine.client().unwrap(), engine.alloc_host(OBJECT).unwrap());
    let mut lease = region.lease(0..OBJECT).unwrap();
    std::fs::write(place.join(format!("ready-{rank}")), "").unwrap();
    let ready = || (0..PROCESSES).all(|other| place.join(format!("ready-{other}")).exists());
    assert!(eventually(Duration::from_secs(20), ready), "all processes start");

    let (begin, mut bytes) = (Instant::now(), 0);
    let own: u64 = rank.parse().unwrap();
    for round in 0..4 {
        for object in 0..SIZE / OBJECT as u64 {
            // Each at a place of its own.
            let offset = (object + 2 * own + round) * OBJECT as u64 % SIZE;
            lease = load(&client, &target, lease, offset, SEED).0;
            bytes += OBJECT as u64;
        }
    }
    let rate = bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
    std::fs::write(place.join(format!("rate-{rank}")), rate.to_string()).unwrap();
}

/// The CPUs of each lane's thread, as the kernel lists them.
fn lane_cpus() -> Vec<String> {
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let line = |text: &str, key: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(key)).expect("the line is there");
        line.trim().to_string()
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(status);
    let lanes = threads.filter(|text| {
        let name = line(text, "Name:");
        name.strip_prefix("fullbore-").is_some_and(|number| number.parse::<u32>().is_ok())
    });
    lanes.map(|text| line(&text, "Cpus_allowed_list:")).collect()
}

/// A mask of its node, not one CPU: processes would all take the same one.
#[test]
fn lanes_run_on_all_cpus_of_their_node_and_not_on_the_first_alone() {
    if !uring() {
        return;
    }
    child("processes::lanes_run_on_all_cpus_of_their_node_and_not_on_the_first_alone", &[]).run(|| {
        let engine = build(Engine::builder().lanes(3));
        let mut found = lane_cpus();
        assert_eq!(found.len(), 3, "three lanes: {found:?}");
        let mine = cpus_of(0);
        let nodes = std::fs::read_dir("/sys/devices/system/node").map_or(1, |folder| {
            folder.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("node")).count().max(1)
        });
        // With as many lanes as this at least one node has two of them, and they share its mask.
        let widest = found.iter().map(|list| count(list)).max().unwrap();
        assert!(widest >= mine.len() / nodes, "a mask of a node's CPUs: {found:?} of {mine:?}");
        let mut reported: Vec<_> = engine.stats().lanes.into_iter().map(|lane| lane.cpus).collect();
        reported.sort();
        found.sort();
        assert_eq!(reported, found, "the statistics say where lanes run");
    });
}

/// How many CPUs a list of the kernel's names.
fn count(list: &str) -> usize {
    let number = |text: &str| text.parse::<usize>().expect("a CPU's number");
    let part = |part: &str| part.split_once('-').map_or(1, |(a, b)| number(b) - number(a) + 1);
    list.split(',').map(part).sum()
}

/// The last CPU that we may use, so that "the first CPU of the machine" is wrong where there are two.
#[test]
fn lanes_of_a_process_on_one_cpu_stay_there() {
    if !uring() {
        return;
    }
    let cpu = *cpus_of(0).last().unwrap();
    child("processes::lanes_of_a_process_on_one_cpu_stay_there", &[]).on_cpu(cpu).run(|| {
        let _engine = build(Engine::builder().lanes(2));
        assert_eq!(lane_cpus(), vec![cpu.to_string(); 2]);
    });
}
