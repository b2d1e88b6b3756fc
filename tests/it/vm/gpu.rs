//! GPUs that are stand-ins, at places of real devices: one beside d0 on node 0, one beside d1 on node 1.

use super::dax;
use super::drives::{Drive, drives};
use crate::support::cuda::{Fake, with_cuda};
use crate::support::{build, fill, first_mismatch};
use fullbore::{Engine, OpenOptions, Transfer};
use std::fs;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const WAIT: Duration = Duration::from_secs(60);

/// Runs `body` where GPU i has the place of the i-th drive.
#[track_caller]
fn beside(test: &str, drives: &[Drive], body: impl FnOnce(Fake)) {
    let places: Vec<_> = drives.iter().map(Drive::pci_address).collect();
    let count = drives.len().to_string();
    let env = [("FAKE_CUDA_DEVICES", count.as_str()), ("FAKE_CUDA_PCI", &places.join(","))];
    with_cuda(test, &env).keep_capabilities().limit(120).run(|| {
        let fake = Fake::load();
        body(fake);
        assert_eq!(fake.violations(), "");
    });
}

/// Bytes of this process's memory that is bound to a node: there, and elsewhere.
fn bound_to(node: u32) -> (u64, u64) {
    let maps = fs::read_to_string("/proc/self/numa_maps").expect("a kernel with NUMA");
    let (mut there, mut elsewhere) = (0, 0);
    for line in maps.lines() {
        let mut words = line.split(' ').skip(1);
        if words.next().is_none_or(|policy| !policy.ends_with(&format!(":{node}"))) {
            continue;
        }
        let values: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
        let number = |text: &str| text.parse::<u64>().ok();
        let page =
            values.iter().find(|(name, _)| *name == "kernelpagesize_kB").and_then(|(_, size)| number(size));
        for (name, pages) in &values {
            let of_node = name.strip_prefix('N').and_then(number);
            let bytes = number(pages).unwrap_or(0) * page.unwrap_or(4) * 1024;
            match of_node {
                Some(of_node) if of_node == u64::from(node) => there += bytes,
                Some(_) => elsewhere += bytes,
                None => {}
            }
        }
    }
    (there, elsewhere)
}

/// Where a lane's thread may run, as the kernel says.
fn cpus_of_thread(name: &str) -> String {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten().map(|task| task.path());
    let is_it = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let task = tasks.into_iter().find(is_it).expect("a thread of that name");
    let status = fs::read_to_string(task.join("status")).expect("its status");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("its CPUs");
    cpus.trim().into()
}

#[test]
fn a_gpus_lane_and_its_bounce_buffers_are_on_its_node() {
    let Some(both) = drives(["d0", "d1"]) else { return };
    beside("vm::gpu::a_gpus_lane_and_its_bounce_buffers_are_on_its_node", &both, |fake| {
        for (gpu, drive) in (0..).zip(&both) {
            let node = drive.node_number().expect("a drive on a node");
            let engine = build(Engine::builder());
            let target = engine.open(&drive.filled(20 * MIB).node, OpenOptions::read()).expect("a drive");
            assert_eq!(bound_to(node).1, 0);
            let before = bound_to(node).0;
            let memory = fake.alloc(gpu, 20 * MIB);
            // SAFETY: the stand-in's memory, which outlives the engine.
            let region = unsafe { engine.register_cuda(memory, 20 << 20) }.expect("a region");
            let transfer = Transfer::read(&target).extent(0, region.range(0..20 << 20).expect("all of it"));
            let mut ticket = engine.client().expect("a client").submit(transfer).expect("room");
            let done = ticket.wait_timeout(WAIT).expect("in time");
            done.result.as_ref().expect("it lands");
            assert!(done.paths.to_string().contains("pinned bounce"), "{}", done.paths);
            assert_eq!(first_mismatch(&fake.peek(memory, 20 << 20), 0, drive.seed()), None);

            let (there, elsewhere) = bound_to(node);
            assert_eq!(elsewhere, 0, "GPU {gpu} is on node {node}");
            assert!(there - before >= 20 * MIB, "bounce buffers of {} bytes on node {node}", there - before);
            let near =
                fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).expect("a node");
            let stats = engine.stats();
            let name = format!("gpu {gpu}");
            let lane =
                stats.lanes.iter().position(|lane| lane.drive.as_deref() == Some(&name)).expect("its lane");
            assert_eq!(stats.lanes[lane].cpus, near.trim(), "as it is told");
            assert_eq!(cpus_of_thread(&format!("fullbore-{lane}")), near.trim(), "as it is");
        }
    });
}

/// Mappings of real DAX devices, and of a stripe of both: registered as they are, the GPU copies straight out of them. Into
/// them the CPU copies: what a GPU writes may stay in its caches.
#[test]
fn dax_devices_are_loaded_from_directly() {
    let Some(both) = drives(["d0", "d1"]).filter(|_| dax::there()) else { return };
    beside("vm::gpu::dax_devices_are_loaded_from_directly", &both, |fake| {
        const LEN: u64 = 20 * MIB + 12_345;
        let engine = build(Engine::builder());
        let client = engine.client().expect("a client");
        let run = |transfer: Transfer, path: &str| {
            let done = client.submit(transfer).expect("room").wait_timeout(WAIT).expect("in time");
            done.result.as_ref().expect("it is moved");
            assert_eq!(done.paths.to_string(), path);
        };
        let devices = dax::open(&engine);
        let stripe = engine.stripe(&devices, 2 << 20).expect("alike");
        for (seed, target) in (1..).zip(devices.iter().chain([&stripe])) {
            for gpu in [0, 1] {
                let memory = fake.alloc(gpu, 2 * LEN);
                // SAFETY: the stand-in's memory, which outlives the engine.
                let region = unsafe { engine.register_cuda(memory, 2 * LEN as usize) }.expect("a region");
                let half = |i: usize| region.range(i * LEN as usize..(i + 1) * LEN as usize).expect("a half");
                let mut content = vec![0; LEN as usize];
                fill(&mut content, 4097, seed + 10 * gpu as u64);
                fake.poke(memory, &content);
                run(Transfer::write(target).extent(4097, half(0)).durable(), "cpu copy + pinned bounce");
                run(Transfer::read(target).extent(4097, half(1)), "dax -> gpu direct");
                let wrong =
                    first_mismatch(&fake.peek(memory + LEN, LEN as usize), 4097, seed + 10 * gpu as u64);
                assert_eq!(wrong, None, "{} to GPU {gpu}", target.name());
            }
        }
        assert_eq!(fake.count("pageable"), 0, "nothing pageable is handed to the driver");
    });
}
