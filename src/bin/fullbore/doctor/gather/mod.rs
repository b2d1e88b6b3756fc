//! Gathers facts. It writes to no device, changes no setting, loads no module; of a folder it makes a file of 1 MiB in it
//! and removes that.

mod cgroup;
mod device;
mod find;
mod gpus;
mod pairs;
mod pci;
mod process;
mod sys;

use super::Args;
use super::facts::{Facts, Machine, Refusal, What};
use super::quick;
use crate::failure::Failure;
use crate::place::temp_folder;
use crate::stop;
use device::{Eyes, Seen};
use fullbore::machine::{self, CpuSet, Feature, Topology};
use fullbore::{CuFileUse, Engine, Error};
use pairs::Memories;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use sys::Sys;

/// Bytes that are registered to see whether that works.
const TRIAL: usize = 8 << 20;
/// How long each device is read.
const BENCH: Duration = Duration::from_secs(3);
/// How long a build that lacks memory is tried again.
const PATIENCE: Duration = Duration::from_secs(2);

/// The bytes of memory that control groups leave this process, if they limit it.
pub fn memory_limit() -> Option<u64> {
    cgroup::read(&Sys::here()).memory_max
}

pub fn facts(args: &Args) -> Result<Facts, Failure> {
    let sys = Sys::here();
    let mut process = process::read(&sys);
    let cpus = "cannot tell this process's CPUs: is /proc mounted?";
    let allowed = CpuSet::of_process().map_err(|error| Failure::Setup(format!("{cpus} ({error})")))?;
    let topology = Topology::here().unwrap_or_else(|_| Topology::flat(allowed.clone()));
    let features = machine::io_uring();
    // Without rings that can be entered there is nothing to build on.
    let refused =
        |it: &Feature| matches!(it.name, "rings" | "commands" | "large_entries") && it.errno.is_some();
    let built = (!features.iter().any(refused)).then(|| build(args));
    let engine = built.as_ref().and_then(|built| built.as_ref().ok());
    process.registered = engine.map(registered);
    let found = if args.paths.is_empty() {
        find::everything(&sys, temp_folder())
    } else {
        let mut once: Vec<PathBuf> = Vec::new();
        args.paths.iter().for_each(|path| {
            if !once.contains(path) {
                once.push(path.clone())
            }
        });
        find::Found { paths: once, ..find::Found::default() }
    };
    stop::check()?;
    let gpus = gpus::look(&sys, engine);
    let eyes = Eyes { sys: &sys, engine, topology: &topology, allowed: &allowed };
    let seen = look(&eyes, &found.paths)?;
    let mut facts = Facts {
        pairs: pairs(engine, &seen, gpus.list.len() as u32),
        machine: Machine {
            kernel: sys.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            online: topology.cpus.clone(),
            allowed: allowed.clone(),
            nodes: topology.nodes.clone(),
            features,
            no_engine: built.as_ref().and_then(|built| built.as_ref().err().cloned()).map(Refusal::from),
        },
        process,
        devices: Vec::new(),
        gpus,
        unseen: found.unseen,
        quick_bench: args.quick_bench,
    };
    if let (true, Some(engine)) = (args.quick_bench, engine) {
        measure(engine, &sys, seen, &mut facts)?;
    } else {
        facts.devices = seen.into_iter().map(|seen| seen.device).collect();
    }
    Ok(facts)
}

/// The rings that were tried go, with what they were charged for, a little after they were closed: what lacks room for its
/// own is built again.
fn build(args: &Args) -> Result<Engine, Error> {
    let cufile = if args.ask_cufile { CuFileUse::Asked } else { CuFileUse::WhereDirect };
    let until = Instant::now() + PATIENCE;
    loop {
        match Engine::builder().cufile(cufile).build() {
            Err(error) if error.errno() == Some(libc::ENOMEM) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            built => return built,
        }
    }
}

/// Whether memory can be registered with the rings: tried, since limits count what others of the user hold.
fn registered(engine: &Engine) -> Result<(), String> {
    let region = engine.alloc_host(TRIAL).map_err(|error| error.to_string())?;
    region.registration_note().map_or(Ok(()), |note| Err(note.to_owned()))
}

fn look(eyes: &Eyes, paths: &[PathBuf]) -> Result<Vec<Seen>, Failure> {
    let each = |path: &PathBuf| stop::check().map(|()| eyes.look(path));
    paths.iter().map(each).collect()
}

fn pairs(engine: Option<&Engine>, seen: &[Seen], gpus: u32) -> Vec<super::facts::Pair> {
    let published = seen.iter().flat_map(|seen| &seen.device.pci).filter(|pci| pci.peer_memory);
    let mut peers: Vec<String> = published.map(|pci| pci.address.clone()).collect();
    peers.sort_unstable();
    peers.dedup();
    let memories = engine.map(|engine| Memories::of(engine, gpus, &peers));
    let of = |seen: &Seen| match (engine, &memories, &seen.target, &seen.device.opened) {
        (Some(engine), Some(memories), Some(target), _) => memories.with(engine, &seen.device, target),
        (.., Some(Err(refused))) => pairs::without(&seen.device, &refused.text),
        _ => pairs::without(&seen.device, "no engine can be built in this process: see above"),
    };
    seen.iter().flat_map(of).collect()
}

/// Reads each device for a while. What was made to look at a folder is no device.
fn measure(engine: &Engine, sys: &Sys, seen: Vec<Seen>, facts: &mut Facts) -> Result<(), Failure> {
    for seen in seen {
        stop::check()?;
        let mut device = seen.device;
        if let Some(target) = seen.target.filter(|_| device.what != What::Folder) {
            device.bench = Some(quick::target(engine, &target, BENCH));
        }
        facts.devices.push(device);
    }
    for gpu in &mut facts.gpus.list {
        stop::check()?;
        gpu.bench = Some(quick::gpu(engine, gpu.ordinal, BENCH));
        // While it is still warm.
        let again = gpu.gpu.as_ref().ok().and_then(|known| pci::read(sys, &known.address));
        gpu.pci = again.or(gpu.pci.take());
    }
    Ok(())
}
