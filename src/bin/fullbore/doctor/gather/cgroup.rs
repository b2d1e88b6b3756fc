//! What the process's control group leaves it: version 2, or the controllers of version 1. A limit of any group above
//! binds too.

use super::sys::Sys;
use crate::doctor::facts::Cgroup;
use std::path::{Path, PathBuf};

/// A limit at or above this is none (version 1 writes the largest number there is).
const ENDLESS: u64 = 1 << 60;

/// A hierarchy: where it is mounted, and the process's folder in it.
struct Hierarchy {
    mount: PathBuf,
    group: PathBuf,
    v2: bool,
}

impl Hierarchy {
    /// The process's folder and those above it.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        self.group.ancestors().take_while(|folder| folder.starts_with(&self.mount))
    }
}

pub fn read(sys: &Sys) -> Cgroup {
    let groups = sys.text("/proc/self/cgroup").unwrap_or_default();
    let mounts = sys.text("/proc/self/mountinfo").unwrap_or_default();
    let find = |controller: &str| hierarchy(sys, &groups, &mounts, controller);
    let (memory, cpu, cpuset) = (find("memory"), find("cpu"), find("cpuset"));
    let (memory_max, memory_used) = memory.as_ref().map_or((None, None), |it| memory_of(sys, it));
    Cgroup {
        path: memory.as_ref().or(cpu.as_ref()).map(|it| it.group.display().to_string()),
        memory_max,
        memory_used,
        cpus: cpu.as_ref().and_then(|it| cpus_of(sys, it)),
        cpuset: cpuset.and_then(|it| {
            let names: &[_] =
                if it.v2 { &["cpuset.cpus.effective"] } else { &["cpuset.effective_cpus", "cpuset.cpus"] };
            names.iter().find_map(|name| sys.text_at(&it.group.join(name)))
        }),
    }
}

/// The hierarchy that has a controller. One that version 1 has is not in version 2.
fn hierarchy(sys: &Sys, groups: &str, mounts: &str, controller: &str) -> Option<Hierarchy> {
    let mut lines = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let lists = |names: &str| names.split(',').any(|name| name == controller);
    let (names, path) =
        lines.clone().find(|(names, _)| lists(names)).or(lines.find(|(names, _)| names.is_empty()))?;
    let v2 = names.is_empty();
    let mount = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, point) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let kind = back.next()?;
        let options = back.nth(1).unwrap_or_default();
        let right = if v2 { kind == "cgroup2" } else { kind == "cgroup" && lists(options) };
        right.then_some((root, point))
    });
    let (root, point) = mount?;
    let mount = sys.path(point);
    if !mount.is_dir() {
        return None; // hidden, as by a sandbox: whether there is a limit is not known
    }
    // Of a mount that shows a part of the tree alone, as in a container.
    let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new("")).to_owned();
    let group = mount.join(inside);
    let group = if group.is_dir() { group } else { mount.clone() };
    Some(Hierarchy { mount, group, v2 })
}

/// The least limit on memory, and how much that group uses.
fn memory_of(sys: &Sys, it: &Hierarchy) -> (Option<u64>, Option<u64>) {
    let (max, used) = if it.v2 {
        ("memory.max", "memory.current")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
    };
    let number = |folder: &Path, name: &str| sys.text_at(&folder.join(name))?.parse::<u64>().ok();
    let limits = it.folders().filter_map(|folder| Some((number(folder, max)?, folder)));
    let least = limits.filter(|(limit, _)| *limit < ENDLESS).min_by_key(|(limit, _)| *limit);
    least.map_or((None, None), |(limit, folder)| (Some(limit), number(folder, used)))
}

/// The least share of CPU time, in CPUs.
fn cpus_of(sys: &Sys, it: &Hierarchy) -> Option<f64> {
    let text = |folder: &Path, name: &str| sys.text_at(&folder.join(name));
    let quota = |folder: &Path| -> Option<f64> {
        let (quota, period) = if it.v2 {
            let line = text(folder, "cpu.max")?;
            let (quota, period) = line.split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
        } else {
            let number = |name| text(folder, name)?.parse::<f64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        };
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    };
    it.folders().filter_map(quota).min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::super::sys::tests::Tree;
    use super::*;

    #[test]
    fn version_2_takes_the_least_of_all_groups_above() {
        let tree = Tree::new(
            "cgroup2",
            &[
                ("proc/self/cgroup", "0::/a.slice/b.scope\n"),
                (
                    "proc/self/mountinfo",
                    "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
                ),
                ("sys/fs/cgroup/a.slice/memory.max", "1073741824\n"),
                ("sys/fs/cgroup/a.slice/memory.current", "4096\n"),
                ("sys/fs/cgroup/a.slice/b.scope/memory.max", "2147483648\n"),
                ("sys/fs/cgroup/memory.max", "max\n"),
                ("sys/fs/cgroup/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a.slice/cpu.max", "400000 100000\n"),
                ("sys/fs/cgroup/a.slice/b.scope/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/a.slice/b.scope/cpuset.cpus.effective", "0-1\n"),
            ],
        );
        let found = read(&tree.0);
        assert_eq!((found.memory_max, found.memory_used), (Some(1 << 30), Some(4096)));
        assert_eq!((found.cpus, found.cpuset.as_deref()), (Some(1.5), Some("0-1")));
        assert!(found.path.unwrap().ends_with("/a.slice/b.scope"));
    }

    #[test]
    fn version_1_has_a_tree_for_each_controller() {
        let tree = Tree::new(
            "cgroup1",
            &[
                ("proc/self/cgroup", "4:memory:/docker/x\n1:cpu,cpuacct:/\n0::/\n"),
                (
                    "proc/self/mountinfo",
                    "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
                ),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        let found = read(&tree.0);
        assert_eq!((found.memory_max, found.cpus, found.cpuset), (None, Some(0.5), None));
        tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "65536\n");
        assert_eq!(read(&tree.0).memory_max, Some(65536));
        tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        assert_eq!(read(&tree.0).cpus, None);
    }

    #[test]
    fn without_any_there_is_no_limit() {
        assert_eq!(read(&Tree::new("cgroup0", &[("proc/self/cgroup", "")]).0), Cgroup::default());
        let hidden = [
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ];
        assert_eq!(read(&Tree::new("cgroup-hidden", &hidden).0), Cgroup::default(), "none is to be seen");
    }
}
