//! Reads [`Topology`] from sysfs.

use std::fs;
use std::io;
use std::path::Path;

use super::{CpuSet, Node, Topology};

const SYSTEM: &str = "/sys/devices/system";

impl Topology {
    /// This machine. Where sysfs is not to be seen, as in some containers: one node with the CPUs on which the
    /// calling thread may run.
    pub fn read() -> io::Result<Topology> {
        let root = Path::new(SYSTEM);
        if root.join("cpu/online").exists() {
            Topology::read_from(root)
        } else {
            CpuSet::of_process().map(Topology::flat)
        }
    }

    /// The machine that `root`, in the place of `/sys/devices/system`, describes: `cpu/online` and
    /// `node/node*/{cpulist,distance}`. Without a folder `node` (a kernel without NUMA), or with no node in it, the machine
    /// is one node.
    pub fn read_from(root: &Path) -> io::Result<Topology> {
        let cpus = read_list(&root.join("cpu/online"))?;
        let nodes = read_nodes(&root.join("node"), &cpus)?;
        if nodes.is_empty() { Ok(Topology::flat(cpus)) } else { Ok(Topology { nodes, cpus }) }
    }
}

fn read_nodes(folder: &Path, online: &CpuSet) -> io::Result<Vec<Node>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| naming(folder, error))?,
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| naming(folder, error))?;
        // Beside the nodes lie files such as `online` and `has_cpu`.
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|id| id.parse().ok());
        if let Some(id) = id {
            let cpus = read_list(&entry.path().join("cpulist"))?;
            let distance = read_distance(&entry.path().join("distance"))?;
            nodes.push(Node { id, cpus: cpus.intersection(online), distance });
        }
    }
    nodes.sort_unstable_by_key(|node| node.id);
    Ok(nodes)
}

/// The kernel writes one number for each online node, by ascending id, which are the nodes that have a folder.
fn read_distance(path: &Path) -> io::Result<Vec<u32>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(naming(path, error)),
        Ok(row) => row.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|_| {
            let message = format!("{:?} is not a row of distances", row.trim_ascii());
            naming(path, io::Error::new(io::ErrorKind::InvalidData, message))
        }),
    }
}

fn read_list(path: &Path) -> io::Result<CpuSet> {
    fs::read_to_string(path).and_then(|list| list.parse()).map_err(|error| naming(path, error))
}

pub(super) fn naming(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::fake::Fake;

    fn read(fake: &Fake) -> io::Result<Topology> {
        Topology::read_from(fake.root())
    }

    fn nodes(topology: &Topology) -> Vec<(u32, String)> {
        topology.nodes.iter().map(|node| (node.id, node.cpus.to_string())).collect()
    }

    #[test]
    fn two_nodes_with_interleaved_cpus() {
        let fake = Fake::new(
            "two",
            &[
                ("cpu/online", "0-7\n"),
                ("node/online", "0-1\n"),
                ("node/has_cpu", "0-1\n"),
                ("node/node1/cpulist", "1,3,5,7\n"),
                ("node/node0/cpulist", "0,2,4,6\n"),
            ],
        );
        let topology = read(&fake).unwrap();
        assert_eq!(topology.cpus.to_string(), "0-7");
        assert_eq!(nodes(&topology), [(0, "0,2,4,6".to_owned()), (1, "1,3,5,7".to_owned())]);
    }

    #[test]
    fn a_node_of_memory_alone_is_kept() {
        let fake = Fake::new(
            "memory",
            &[("cpu/online", "0-3\n"), ("node/node0/cpulist", "0-3\n"), ("node/node1/cpulist", "\n")],
        );
        assert_eq!(nodes(&read(&fake).unwrap()), [(0, "0-3".to_owned()), (1, String::new())]);
    }

    #[test]
    fn distances_lead_from_memory_alone_to_the_nearest_cpus() {
        let fake = Fake::new(
            "distance",
            &[
                ("cpu/online", "0-7\n"),
                ("node/node0/cpulist", "0-3\n"),
                ("node/node0/distance", "10 20 17\n"),
                ("node/node1/cpulist", "4-7\n"),
                ("node/node1/distance", "20 10 14\n"),
                ("node/node12/cpulist", "\n"),
                ("node/node12/distance", "17 14 10\n"),
            ],
        );
        let topology = read(&fake).unwrap();
        assert_eq!(topology.nodes[2].distance, [17, 14, 10], "node 12 after nodes 0 and 1");
        assert_eq!(topology.nearest_cpus(12, &topology.cpus).to_string(), "4-7");
        assert_eq!(topology.nearest_cpus(12, &"0-4".parse().unwrap()).to_string(), "4");
        assert_eq!(topology.nearest_cpus(12, &"0-2".parse().unwrap()).to_string(), "0-2");
    }

    #[test]
    fn a_machine_without_node_folder_is_one_node() {
        let fake = Fake::new("flat", &[("cpu/online", "0-1\n")]);
        assert_eq!(read(&fake).unwrap(), Topology::flat("0-1".parse().unwrap()));
        let fake = Fake::new("no-nodes", &[("cpu/online", "0-1\n"), ("node/possible", "0\n")]);
        assert_eq!(nodes(&read(&fake).unwrap()), [(0, "0-1".to_owned())]);
    }

    #[test]
    fn sparse_numbers_and_offline_cpus() {
        let fake = Fake::new(
            "sparse",
            &[
                ("cpu/online", "0,2-3,64,1500\n"),
                ("node/node0/cpulist", "0-3\n"),
                ("node/node10/cpulist", "1500\n"),
                ("node/node8/cpulist", "64-65\n"),
            ],
        );
        let expected = [(0, "0,2-3".to_owned()), (8, "64".to_owned()), (10, "1500".to_owned())];
        assert_eq!(nodes(&read(&fake).unwrap()), expected, "by number, not as text");
    }

    #[test]
    fn malformed_and_missing_files_are_errors_that_name_them() {
        for (name, files, at_fault, kind) in [
            ("online", vec![("cpu/online", "0-x\n")], "cpu/online", io::ErrorKind::InvalidData),
            ("none", vec![("node/node0/cpulist", "0\n")], "cpu/online", io::ErrorKind::NotFound),
            (
                "list",
                vec![("cpu/online", "0\n"), ("node/node0/cpulist", "3-1\n")],
                "node0/cpulist",
                io::ErrorKind::InvalidData,
            ),
            (
                "distance-x",
                vec![("cpu/online", "0\n"), ("node/node0/cpulist", "0\n"), ("node/node0/distance", "10 x\n")],
                "node0/distance",
                io::ErrorKind::InvalidData,
            ),
            (
                "no-list",
                vec![("cpu/online", "0\n"), ("node/node0/distance", "10\n")],
                "node0/cpulist",
                io::ErrorKind::NotFound,
            ),
        ] {
            let error = read(&Fake::new(name, &files)).unwrap_err();
            assert_eq!(error.kind(), kind, "{name}");
            assert!(error.to_string().contains(at_fault), "{error} does not name {at_fault}");
        }
    }

    #[test]
    fn this_machine_can_be_read_and_covers_the_process() {
        let topology = Topology::read().unwrap();
        let allowed = CpuSet::of_process().unwrap();
        assert!(!topology.nodes.is_empty());
        assert_eq!(topology.cpus.intersection(&allowed), allowed);
    }
}
