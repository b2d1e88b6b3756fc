//! Who runs: capabilities, seccomp, the kernel's switches for io_uring, limits.

use super::{cgroup, sys::Sys};
use crate::doctor::facts::{Limit, Process};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

pub fn read(sys: &Sys) -> Process {
    let status = sys.text("/proc/self/status").unwrap_or_default();
    Process {
        io_uring_disabled: sys.number("/proc/sys/kernel/io_uring_disabled"),
        io_uring_group: sys.number("/proc/sys/kernel/io_uring_group"),
        memlock: limit(Resource::RLIMIT_MEMLOCK),
        open_files: limit(Resource::RLIMIT_NOFILE),
        cgroup: cgroup::read(sys),
        ..of_status(&status)
    }
}

/// What `/proc/self/status` says.
fn of_status(status: &str) -> Process {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let numbers =
        |name| field(name).unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok());
    // Real, effective, saved, of the file system.
    let effective = |name| numbers(name).nth(1);
    Process {
        uid: effective("Uid").unwrap_or(u32::MAX),
        groups: effective("Gid").into_iter().chain(numbers("Groups")).collect(),
        capabilities: field("CapEff").and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0),
        seccomp: numbers("Seccomp").next(),
        ..Process::default()
    }
}

fn limit(resource: Resource) -> Limit {
    let finite = |value| (value != RLIM_INFINITY).then_some(value);
    getrlimit(resource)
        .map_or(Limit::default(), |(soft, hard)| Limit { soft: finite(soft), hard: finite(hard) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{CAP_IPC_LOCK, CAP_SYS_ADMIN};

    #[test]
    fn a_status_says_who_runs() {
        let text = "Name:\tx\nUid:\t0\t1000\t0\t0\nGid:\t5\t6\t5\t5\nGroups:\t4 24 \nCapEff:\t0000000000004000\n\
                    Seccomp:\t2\nSeccomp_filters:\t1\n";
        let process = of_status(text);
        assert_eq!((process.uid, &process.groups[..], process.seccomp), (1000, &[6, 4, 24][..], Some(2)));
        assert!(process.can(CAP_IPC_LOCK) && !process.can(CAP_SYS_ADMIN));
        let nobody = of_status("");
        assert_eq!((nobody.capabilities, nobody.seccomp), (0, None));
    }

    #[test]
    fn this_process_can_be_read() {
        let process = read(&Sys::here());
        assert!(
            process.seccomp.is_some() && process.open_files.soft.is_none_or(|files| files > 2),
            "{process:?}"
        );
    }
}
