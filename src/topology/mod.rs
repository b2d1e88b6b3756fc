//! The machine as lanes see it: CPUs and NUMA nodes, read from sysfs, and which CPUs each lane runs on.
//!
//! A lane is given all CPUs of a node that the process may use, never one CPU picked from the front: several
//! processes share a machine, and if each took "the first CPU" they would all run on top of one another.
#![forbid(unsafe_code)]

mod cpuset;
#[cfg(test)]
mod fake;
#[cfg(feature = "hwloc")]
mod hwloc;
mod lanes;
mod queues;
mod signals;
mod sysfs;

pub use cpuset::{CpuSet, pin_current_thread};
pub use lanes::{Lanes, Place, place_lanes};
pub use queues::{HardwareQueue, QueueKind, QueueMap};
pub use signals::block_signals;

/// The most lanes that [`default_lanes`] answers.
pub const MAX_DEFAULT_LANES: usize = 8;

/// The CPUs and NUMA nodes of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The NUMA nodes, by ascending id (ids may have gaps). Nodes of memory alone are here too, without CPUs.
    pub nodes: Vec<Node>,
    /// All CPUs that are online.
    pub cpus: CpuSet,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node.
    pub id: u32,
    /// The node's CPUs that are online; none on a node of memory alone.
    pub cpus: CpuSet,
    /// How far memory on each node is, by the firmware's account: one number for each of the topology's nodes, in
    /// their order, 10 for the node itself. Empty where the machine does not say.
    pub distance: Vec<u32>,
}

impl Topology {
    /// This machine: from hwloc where the feature is on and hwloc answers, else from sysfs.
    pub fn here() -> std::io::Result<Topology> {
        #[cfg(feature = "hwloc")]
        match Topology::from_hwloc() {
            Ok(topology) => return Ok(topology),
            Err(error) => tracing::warn!(%error, "hwloc does not answer; sysfs is read"),
        }
        Topology::read()
    }

    /// A machine of one node, number 0, with these CPUs.
    pub fn flat(cpus: CpuSet) -> Topology {
        Topology { nodes: vec![Node { id: 0, cpus: cpus.clone(), distance: Vec::new() }], cpus }
    }

    /// The same machine with only the CPUs that are in `allowed`. Nodes that lose all theirs are kept.
    pub fn within(&self, allowed: &CpuSet) -> Topology {
        let restrict = |node: &Node| Node { cpus: node.cpus.intersection(allowed), ..node.clone() };
        Topology { nodes: self.nodes.iter().map(restrict).collect(), cpus: self.cpus.intersection(allowed) }
    }

    /// The CPUs nearest to a node's memory that are in `allowed`: the node's own; where it has none, as a node of
    /// memory alone (CXL), those of the nearest node that has some, or of all such nodes that are equally near.
    /// `allowed` itself where the machine does not say what is near.
    pub fn nearest_cpus(&self, node: u32, allowed: &CpuSet) -> CpuSet {
        let Some(home) = self.nodes.iter().find(|other| other.id == node) else {
            return allowed.clone();
        };
        let own = home.cpus.intersection(allowed);
        if !own.is_empty() || home.distance.len() != self.nodes.len() {
            return if own.is_empty() { allowed.clone() } else { own };
        }
        let known = self.nodes.iter().zip(&home.distance);
        let usable: Vec<_> = known.filter(|(other, _)| other.cpus.meets(allowed)).collect();
        let Some(least) = usable.iter().map(|(_, distance)| **distance).min() else {
            return allowed.clone();
        };
        let nearest = usable.iter().filter(|(_, distance)| **distance == least);
        nearest.flat_map(|(other, _)| other.cpus.iter()).filter(|&cpu| allowed.contains(cpu)).collect()
    }

    /// The node that has all of these CPUs, if one has.
    pub fn node_of(&self, cpus: &CpuSet) -> Option<u32> {
        let has_all = |node: &&Node| !cpus.is_empty() && cpus.is_within(&node.cpus);
        self.nodes.iter().find(has_all).map(|node| node.id)
    }
}

/// How many lanes serve files when the caller does not say: one for each CPU at hand, and at most
/// [`MAX_DEFAULT_LANES`]; at least one.
///
/// Each lane is one thread and one ring. A lane more than there are CPUs only takes turns with another. And one
/// lane already keeps dozens of commands in flight, so a few lanes saturate what a file can give; on files more
/// than that adds no bandwidth, only threads that contend in the file system (its inode lock, its page and extent
/// bookkeeping). Other engines shipped this: a pool of more threads made loads slower, and too many requests on
/// one file made them 3 to 22 times slower (FACTS §6.14). Whoever has measured otherwise asks for more.
pub fn default_lanes(allowed: &CpuSet) -> usize {
    allowed.len().clamp(1, MAX_DEFAULT_LANES)
}

/// The CPUs for each of `lanes` lanes: those of the lane's node that are in `allowed`.
///
/// Lanes are dealt over the nodes in proportion to the CPUs that the process may use there, one node after the
/// other, so that even a few lanes are spread; nodes without such CPUs get none. Should `allowed` have no CPU in
/// any node, every lane gets `allowed` itself.
pub fn lane_cpus(topology: &Topology, allowed: &CpuSet, lanes: usize) -> Vec<CpuSet> {
    let nodes = topology.within(allowed).nodes;
    let mut given = vec![0; nodes.len()];
    let mut dealt = Vec::with_capacity(lanes);
    for _ in 0..lanes {
        let Some(node) = neediest(&nodes, &given) else {
            return vec![allowed.clone(); lanes];
        };
        given[node] += 1;
        dealt.push(nodes[node].cpus.clone());
    }
    dealt
}

/// The node that would have the most CPUs for each of its lanes if it got one more; the first of equals.
fn neediest(nodes: &[Node], given: &[usize]) -> Option<usize> {
    let mut best = None;
    for (i, node) in nodes.iter().enumerate().filter(|(_, node)| !node.cpus.is_empty()) {
        // cpus/(given + 1) of one node against that of the other, without the fractions.
        let more = |&b: &usize| node.cpus.len() * (given[b] + 1) > nodes[b].cpus.len() * (given[i] + 1);
        if best.as_ref().is_none_or(more) {
            best = Some(i);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn machine(nodes: &[(u32, &str)]) -> Topology {
        let nodes: Vec<Node> =
            nodes.iter().map(|&(id, cpus)| Node { id, cpus: set(cpus), distance: Vec::new() }).collect();
        let cpus = nodes.iter().flat_map(|node| node.cpus.iter()).collect();
        Topology { nodes, cpus }
    }

    fn lanes(topology: &Topology, allowed: &str, lanes: usize) -> Vec<String> {
        lane_cpus(topology, &set(allowed), lanes).iter().map(CpuSet::to_string).collect()
    }

    #[test]
    fn lanes_by_default_follow_the_cpus_up_to_eight() {
        for (cpus, lanes) in [("", 1), ("5", 1), ("0-1", 2), ("0-7", 8), ("0-127", 8)] {
            assert_eq!(default_lanes(&set(cpus)), lanes, "{cpus:?}");
        }
    }

    #[test]
    fn lanes_are_spread_over_equal_nodes() {
        let two = machine(&[(0, "0-3"), (1, "4-7")]);
        assert_eq!(lanes(&two, "0-7", 4), ["0-3", "4-7", "0-3", "4-7"]);
        assert_eq!(lanes(&two, "0-7", 1), ["0-3"], "a mask of the whole node, not its first CPU");
        assert_eq!(lanes(&two, "0-7", 0), [""; 0]);
    }

    #[test]
    fn lanes_are_dealt_in_proportion_to_the_allowed_cpus() {
        let two = machine(&[(0, "0-15"), (1, "16-31")]);
        let dealt = lanes(&two, "0-5,16-17", 8);
        assert_eq!(dealt.iter().filter(|cpus| *cpus == "0-5").count(), 6);
        assert_eq!(dealt.iter().filter(|cpus| *cpus == "16-17").count(), 2);
    }

    #[test]
    fn lanes_stay_within_the_cpuset_of_the_process() {
        let odd = machine(&[(0, "0-3,8-11"), (2, ""), (5, "4-7,12-15")]);
        assert_eq!(lanes(&odd, "9", 3), ["9"; 3], "a cpuset of one CPU");
        assert_eq!(
            lanes(&odd, "6-8", 2),
            ["6-7", "8"],
            "sparse numbers, and the memory-only node has no lane"
        );
        assert_eq!(lanes(&odd, "12-13", 2), ["12-13"; 2], "a node outside the cpuset has no lane");
        assert_eq!(lanes(&odd, "40-41", 2), ["40-41"; 2], "a cpuset that sysfs does not know");
    }

    #[test]
    fn within_restricts_and_keeps_nodes() {
        let two = machine(&[(0, "0-3"), (1, "4-7")]);
        let some = two.within(&set("2-3,90"));
        assert_eq!(some, Topology { nodes: machine(&[(0, "2-3"), (1, "")]).nodes, cpus: set("2-3") });
    }

    #[test]
    fn nearest_cpus_go_by_distance_and_stay_within_the_allowed() {
        let mut cxl = machine(&[(0, "0-3"), (1, "4-7"), (2, ""), (5, "")]);
        cxl.nodes[0].distance = vec![10, 21, 14, 24];
        cxl.nodes[2].distance = vec![24, 14, 10, 26];
        cxl.nodes[3].distance = vec![17, 17, 26, 10];
        for (node, allowed, nearest, why) in [
            (0, "0-7", "0-3", "its own"),
            (0, "6-7", "6-7", "a node outside the cpuset: the nearest that is inside"),
            (1, "0-3", "0-3", "no distances known: anywhere"),
            (2, "0-7", "4-7", "a node of memory alone"),
            (2, "0-3,6", "6", "nearest counts only allowed CPUs"),
            (2, "0-1", "0-1", "the nearest node is outside the cpuset"),
            (5, "0-7", "0-7", "two nodes are equally near"),
            (9, "2-5", "2-5", "a node that is not there"),
            (2, "64", "64", "a cpuset that sysfs does not know"),
        ] {
            assert_eq!(cxl.nearest_cpus(node, &set(allowed)).to_string(), nearest, "{why}");
        }
        cxl.nodes[2].distance = vec![24];
        assert_eq!(
            cxl.nearest_cpus(2, &set("0-7")).to_string(),
            "0-7",
            "a row that does not fit says nothing"
        );
    }

    #[test]
    fn the_node_of_cpus_has_all_of_them() {
        let two = machine(&[(0, "0-3"), (1, "4-7"), (2, "")]);
        let of = |cpus: &str| two.node_of(&set(cpus));
        assert_eq!((of("4,7"), of("3-4"), of(""), of("9")), (Some(1), None, None, None));
    }
}
