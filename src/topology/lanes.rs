//! Which lanes a drive gets, on which CPUs, and how deep: pure, from a drive's hardware queues and a machine.

use super::queues::{HardwareQueue, QueueKind, QueueMap};
use super::{CpuSet, MAX_DEFAULT_LANES, Topology};

/// How many lanes serve an NVMe drive, and on which CPUs.
///
/// A lane is one submitter thread with one ring. The kernel puts a command on the hardware queue of the CPU that it
/// is submitted from, so where a lane runs decides which queue its commands go to. Whatever is chosen, lanes stay on
/// CPUs that the process may use, and all lanes together never have more in flight on a hardware queue than this
/// process's share of the queue's tags: each one's depth is lowered to fit.
///
/// A number stands for itself: `Lanes::from(2)` is `Lanes::Count(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lanes {
    /// One lane for each hardware queue that the process has a CPU of, up to 8. A drive with more queues gets 8 lanes
    /// spread over them, on queues near the drive (of its NUMA node) as far as there are such.
    #[default]
    Auto,
    /// One lane for each hardware queue that the process has a CPU of, on exactly those CPUs, however many.
    PerQueue,
    /// One lane for each NUMA node that the process has a CPU of, on all of those. It may move between the node's
    /// hardware queues, so its depth counts against each of them.
    PerNuma,
    /// So many lanes, spread evenly over the hardware queues, those near the drive first; where there are more lanes
    /// than queues, several share one. At least one, and no more than the tags give each a command to have in flight.
    Count(usize),
}

impl From<usize> for Lanes {
    fn from(count: usize) -> Lanes {
        Lanes::Count(count)
    }
}

/// Where a lane runs and how deep it may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPUs to pin the lane to.
    pub cpus: CpuSet,
    /// The hardware queue that all its commands land on; none if they may land on several.
    pub queue: Option<u32>,
    /// The NUMA node that has all its CPUs, if one has: where its memory belongs.
    pub node: Option<u32>,
    /// The most commands that it may have in flight; at least 1.
    pub depth: u32,
}

/// Where the lanes of a drive run.
///
/// `map` is one kind of the drive's queues, as [`QueueMap::interrupt_queues`] and its fellows answer; of a whole map
/// the default queues are taken. `allowed` is where the process may run (not empty), `depth` the most that a lane
/// shall have in flight, `processes` how many use the drive: each keeps to its share of the tags.
///
/// At least one lane is answered, also when the process may run on no CPU of any queue: then it is on the allowed
/// CPUs nearest to the drive. Every lane has a CPU, all of them allowed and, if there are such, online.
///
/// For each hardware queue: the depths of all lanes that can submit to it add up to no more than its tags divided by
/// `processes`, or to the number of those lanes should that be more, as each has at least 1. (With `PerNuma`, or more
/// processes than tags; the other ways make no more lanes than there are tags to share.)
pub fn place_lanes(
    map: &QueueMap,
    topology: &Topology,
    allowed: &CpuSet,
    lanes: Lanes,
    depth: u32,
    processes: u32,
) -> Vec<Place> {
    let online = allowed.intersection(&topology.cpus);
    let usable = if online.is_empty() { allowed.clone() } else { online };
    let queues = one_kind(map);
    let share = |queue: &HardwareQueue| (queue.tags / processes.max(1)).max(1);
    let near = map.node.map_or_else(|| usable.clone(), |node| topology.nearest_cpus(node, &usable));
    let reachable: Vec<&HardwareQueue> =
        queues.iter().copied().filter(|queue| queue.cpus.meets(&usable)).collect();

    let chosen = match lanes {
        Lanes::PerNuma => Vec::new(),
        Lanes::PerQueue => reachable,
        Lanes::Auto => near_first(&reachable, &near, reachable.len().min(MAX_DEFAULT_LANES)),
        Lanes::Count(count) => {
            let least = reachable.iter().map(|queue| share(queue)).min().unwrap_or(1) as usize;
            near_first(&reachable, &near, count.clamp(1, (least * reachable.len()).max(1)))
        }
    };
    let mut sets: Vec<CpuSet> = chosen.iter().map(|queue| queue.cpus.intersection(&usable)).collect();
    if lanes == Lanes::PerNuma {
        sets = topology.within(&usable).nodes.into_iter().map(|node| node.cpus).collect();
        sets.retain(|cpus| !cpus.is_empty());
    }
    if sets.is_empty() {
        sets.push(near);
    }

    let depths = depths(&queues, &sets, depth, share);
    let place = |(cpus, depth): (CpuSet, u32)| {
        let queue = queues.iter().find(|queue| cpus.is_within(&queue.cpus)).map(|queue| queue.number);
        Place { queue, node: topology.node_of(&cpus), depth, cpus }
    };
    sets.into_iter().zip(depths).map(place).collect()
}

/// A command lands on one queue of its kind, so queues of several kinds cannot be placed together.
fn one_kind(map: &QueueMap) -> Vec<&HardwareQueue> {
    let default: Vec<_> = map.queues.iter().filter(|queue| queue.kind == QueueKind::Default).collect();
    if default.is_empty() { map.queues.iter().collect() } else { default }
}

/// Item `i * len / count` for each `i` below `count`: evenly spread, or evenly shared.
fn spread<'a>(queues: &[&'a HardwareQueue], count: usize) -> Vec<&'a HardwareQueue> {
    // With no queues there is no index, and the answer is empty.
    (0..count).filter_map(|i| queues.get(i * queues.len() / count).copied()).collect()
}

/// `count` of them; where they are more, those with a CPU in `near` before the others, each evenly spread.
fn near_first<'a>(queues: &[&'a HardwareQueue], near: &CpuSet, count: usize) -> Vec<&'a HardwareQueue> {
    if queues.len() <= count {
        return spread(queues, count);
    }
    let (local, remote): (Vec<_>, Vec<_>) = queues.iter().copied().partition(|queue| queue.cpus.meets(near));
    let mut chosen = spread(&local, local.len().min(count));
    chosen.extend(spread(&remote, count - chosen.len()));
    chosen.sort_unstable_by_key(|queue| queue.number);
    chosen
}

/// Each lane's depth: `depth`, or an equal part of the scarcest queue that it can submit to.
///
/// A lane that can reach several queues counts wholly against each of them, as all its commands may be on one. And a
/// lane with a CPU of no queue that we know may land on any.
fn depths(
    queues: &[&HardwareQueue],
    sets: &[CpuSet],
    depth: u32,
    share: impl Fn(&HardwareQueue) -> u32,
) -> Vec<u32> {
    let mapped: CpuSet = queues.iter().flat_map(|queue| queue.cpus.iter()).collect();
    let mut depths = vec![depth.max(1); sets.len()];
    for queue in queues {
        let reaches = |cpus: &CpuSet| cpus.meets(&queue.cpus) || !cpus.is_within(&mapped);
        let reaching: Vec<usize> = (0..sets.len()).filter(|&lane| reaches(&sets[lane])).collect();
        let part = share(queue) / reaching.len().max(1) as u32;
        for lane in reaching {
            depths[lane] = depths[lane].min(part.max(1));
        }
    }
    depths
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
