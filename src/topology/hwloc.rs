//! [`Topology`] as hwloc sees it (feature `hwloc`).

use std::io;

use hwlocality::Topology as Hwloc;
use hwlocality::object::TopologyObject;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::BuildFlags;

use super::{CpuSet, Node, Topology};

impl Topology {
    /// This machine, read through libhwloc: the same as [`Topology::read`] answers on Linux. hwloc also takes a
    /// machine from a file (its variable `HWLOC_XMLFILE`) and corrects firmware that is known to be wrong.
    ///
    /// Errors are libhwloc's own.
    pub fn from_hwloc() -> io::Result<Topology> {
        // With what the process's cgroup keeps from it, as sysfs shows it: the caller restricts by its affinity.
        let builder =
            Hwloc::builder().with_flags(BuildFlags::INCLUDE_DISALLOWED).map_err(io::Error::other)?;
        converted(&builder.build().map_err(io::Error::other)?)
    }
}

fn converted(hwloc: &Hwloc) -> io::Result<Topology> {
    let cpus: CpuSet = hwloc.cpuset().iter_set().map(|cpu| usize::from(cpu) as u32).collect();
    let mut nodes = Vec::new();
    // hwloc 2 keeps NUMA nodes at a depth of their own, outside the tree of cores: by type they are found.
    for object in hwloc.objects_with_type(ObjectType::NUMANode) {
        let id =
            object.os_index().ok_or_else(|| io::Error::other("hwloc knows a NUMA node without a number"))?;
        let local = object.cpuset().into_iter().flat_map(|set| set.iter_set().collect::<Vec<_>>());
        let cpus = local.map(|cpu| usize::from(cpu) as u32).collect();
        nodes.push(Node { id: id as u32, cpus, distance: Vec::new() });
    }
    if nodes.is_empty() {
        return Ok(Topology::flat(cpus));
    }
    nodes.sort_unstable_by_key(|node| node.id);
    own_cpus_only(&mut nodes);
    add_distances(hwloc, &mut nodes)?;
    Ok(Topology { nodes, cpus })
}

/// To a node of memory alone hwloc may lend the CPUs of nodes near to it (in a machine of two nodes it does not). The
/// kernel says which node a CPU is of; hwloc does not, but as a rule nodes of memory alone are numbered after those
/// that have CPUs.
fn own_cpus_only(nodes: &mut [Node]) {
    let mut given = CpuSet::default();
    for node in nodes {
        node.cpus = node.cpus.iter().filter(|&cpu| !given.contains(cpu)).collect();
        given = given.iter().chain(node.cpus.iter()).collect();
    }
}

/// hwloc keeps no distances for a machine of one node; the kernel says 10, which is any node's distance to itself.
fn add_distances(hwloc: &Hwloc, nodes: &mut [Node]) -> io::Result<()> {
    if let [only] = nodes {
        only.distance = vec![10];
        return Ok(());
    }
    let ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
    let known = hwloc.distances_with_type(None, ObjectType::NUMANode).map_err(io::Error::other)?;
    // A person can add others, which sysfs does not have.
    let by_firmware = DistancesKind::FROM_OS | DistancesKind::MEANS_LATENCY;
    let Some(matrix) = known.iter().find(|distances| distances.kind().contains(by_firmware)) else {
        return Ok(());
    };
    let mut rows = vec![vec![None; ids.len()]; ids.len()];
    for ((from, to), distance) in matrix.object_distances() {
        let place = |object: Option<&TopologyObject>| {
            let id = object?.os_index()?;
            ids.iter().position(|&other| other as usize == id)
        };
        if let (Some(from), Some(to)) = (place(from), place(to)) {
            rows[from][to] = u32::try_from(distance).ok();
        }
    }
    for (node, row) in nodes.iter_mut().zip(rows) {
        // A row with a gap says nothing.
        node.distance = row.into_iter().collect::<Option<_>>().unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On any machine; what it is for is one of two nodes, as tests/vm/run makes.
    #[test]
    fn both_agree() {
        let (hwloc, sysfs) = (Topology::from_hwloc().unwrap(), Topology::read().unwrap());
        println!("{} nodes, CPUs {}: {:?}", sysfs.nodes.len(), sysfs.cpus, sysfs.nodes);
        assert_eq!(hwloc, sysfs);
    }

    fn synthetic(description: &str) -> Topology {
        converted(&Hwloc::builder().from_synthetic(description).unwrap().build().unwrap()).unwrap()
    }

    fn nodes(topology: &Topology) -> Vec<(u32, String)> {
        topology.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect()
    }

    #[test]
    fn nodes_beside_the_tree_of_cores_are_found() {
        let two = synthetic("Package:2 [NUMANode] Core:2 PU:2");
        assert_eq!(nodes(&two), [(0, "0-3".to_owned()), (1, "4-7".to_owned())]);
        assert_eq!(two.cpus.to_string(), "0-7");
    }

    #[test]
    fn lent_cpus_are_not_a_nodes_own() {
        // Each package has a second node, of memory alone, as with memory on the package in flat mode.
        let flat = synthetic("Package:2 [NUMANode] [NUMANode] Core:2 PU:1");
        let owned = [(0, "0-1"), (1, ""), (2, "2-3"), (3, "")].map(|(id, cpus)| (id, cpus.to_owned()));
        assert_eq!(nodes(&flat), owned);
    }
}
