//! The path between every target and every memory, as the engine would take it.

use crate::doctor::facts::{Device, Memory, Pair};
use fullbore::{Engine, Path, PathReport, Region, Target};

/// Bytes of the regions that are asked about.
const LEN: usize = 1 << 20;
/// Bytes of peer memory: a page, as there may be little of it.
const PEER: usize = 4096;

/// Memory to ask about, or why there is none.
pub struct Memories(Vec<(Memory, Result<Option<Region>, String>)>);

impl Memories {
    /// Of every kind: host memory, registered or not, each GPU, and PCI peers that publish theirs.
    pub fn of(engine: &Engine, gpus: u32, peers: &[String]) -> Memories {
        let region = |made: Result<Region, fullbore::Error>| made.map(Some).map_err(|e| e.to_string());
        let mut all = vec![(Memory::Host, region(engine.alloc_host(LEN))), (Memory::Unregistered, Ok(None))];
        all.extend((0..gpus).map(|gpu| (Memory::Gpu(gpu), region(engine.alloc_gpu(gpu, LEN)))));
        let peer = |address: &String| (Memory::Peer(address.clone()), region(engine.map_peer(address, PEER)));
        all.extend(peers.iter().map(peer));
        Memories(all)
    }

    /// Those with a target that is open.
    pub fn with(&self, engine: &Engine, device: &Device, target: &Target) -> Vec<Pair> {
        let pair = |(memory, region): &(Memory, Result<Option<Region>, String>)| {
            let report = match region {
                Ok(Some(_)) if matches!(memory, Memory::Peer(_)) && target.is_mapped() => {
                    Err("the CPU copies mapped memory, and does not write to a device's".to_owned())
                }
                Ok(Some(region)) => Ok(engine.path(target, region)),
                Ok(None) => Ok(engine.path_unregistered(target)),
                Err(why) => Err(why.clone()),
            };
            of(device, memory, report)
        };
        self.0.iter().map(pair).collect()
    }
}

/// Of a target that is not open: there is no path, whatever the memory.
pub fn without(device: &Device, why: &str) -> Vec<Pair> {
    vec![of(device, &Memory::Host, Err(why.to_owned()))]
}

fn of(device: &Device, memory: &Memory, report: Result<PathReport, String>) -> Pair {
    let (path, reason): (Option<Path>, String) = match report {
        Ok(report) => (Some(report.path), report.reason),
        Err(why) => (None, why),
    };
    Pair { device: device.path.clone(), memory: memory.clone(), path, reason }
}
