//! What the process may and has: io_uring, limits, its control group.

use super::{About, Finding, Notes};
use crate::doctor::facts::{CAP_IPC_LOCK, CAP_SYS_ADMIN, Limit, Machine, Process};
use crate::units::human;
use fullbore::machine::Feature;
use nix::errno::Errno;

/// A pool that is worth the while; limits below it are named.
const POOL: u64 = 1 << 30;
/// Descriptors: rings, bells and targets need some dozens, the program that embeds the engine more.
const FILES: u64 = 1024;
/// CPUs' worth of time below which lanes wait for their turn rather than for the device.
const CPUS: f64 = 2.0;

const SECCOMP: &str = "docker run --security-opt seccomp=PROFILE.json ...   # a profile that allows io_uring_setup, \
                       io_uring_enter and io_uring_register; =unconfined to try";
const NEWER: &str = "uname -r   # run a newer kernel: ";

pub fn findings(process: &Process, machine: &Machine) -> Vec<Finding> {
    let mut notes = Notes::on(About::Process);
    if rings(process, machine, &mut notes) {
        features(process, &machine.features, &mut notes);
    }
    memlock(process, &mut notes);
    open_files(process.open_files, &mut notes);
    cgroup(process, machine, &mut notes);
    notes.list
}

/// Whether there are rings.
fn rings(process: &Process, machine: &Machine, notes: &mut Notes) -> bool {
    let refused = |name: &str| machine.features.iter().find(|it| it.name == name).and_then(|it| it.errno);
    if let Some(errno) = refused("rings").or_else(|| refused("commands")) {
        let (why, remedy) = why_refused(errno, process);
        notes.broken(format!("io_uring is refused ({}): {why}", name(errno)), remedy);
        return false;
    }
    if let Some(errno) = refused("large_entries") {
        let why =
            format!("rings have no large entries (SQE128, CQE32; {}), which the engine needs", name(errno));
        notes.broken(why, format!("{NEWER}5.19 or later"));
        return false;
    }
    if let Some(refusal) = &machine.no_engine {
        let remedy = match refusal.errno {
            Some(libc::ENOMEM) => raise(process.memlock, "memlock", "ulimit -l unlimited"),
            Some(libc::EMFILE | libc::ENFILE) => raise(process.open_files, "nofile", "ulimit -n 65536"),
            Some(libc::EAGAIN) => "ulimit -u unlimited   # threads".into(),
            Some(errno) if filtered(errno, process) => SECCOMP.into(),
            _ => "dmesg | tail".into(),
        };
        notes.broken(format!("no engine can be built: {}", refusal.text), remedy);
    }
    true
}

/// Why rings are refused, as far as it can be told, and what helps.
fn why_refused(errno: i32, process: &Process) -> (String, String) {
    let sysctl = "sysctl -w kernel.io_uring_disabled=0";
    match (errno, process.io_uring_disabled) {
        (libc::EPERM, Some(2)) => ("sysctl kernel.io_uring_disabled is 2, off for everybody".into(), sysctl.into()),
        (libc::EPERM, Some(1)) if !process.can(CAP_SYS_ADMIN) && !in_group(process) => (
            "sysctl kernel.io_uring_disabled is 1: only for the group of kernel.io_uring_group and CAP_SYS_ADMIN".into(),
            format!("{sysctl}   # or: sysctl -w kernel.io_uring_group=$(id -g)"),
        ),
        _ if filtered(errno, process) => {
            ("a seccomp filter is in force, as container runtimes set one".into(), SECCOMP.into())
        }
        (libc::ENOSYS, _) => ("this kernel has none".into(), format!("{NEWER}5.19 or later, with CONFIG_IO_URING")),
        (libc::EPERM | libc::EACCES, _) => {
            ("no seccomp filter and no sysctl: a security module may forbid it".into(), "dmesg | grep -i denied".into())
        }
        (libc::ENOMEM, _) => {
            ("the memlock limit is too low for a ring".into(), raise(process.memlock, "memlock", "ulimit -l unlimited"))
        }
        (libc::EMFILE | libc::ENFILE, _) => {
            ("no descriptor is left".into(), raise(process.open_files, "nofile", "ulimit -n 65536"))
        }
        _ => ("for a cause that is not known here".into(), "dmesg | tail".into()),
    }
}

/// Whether a seccomp filter may have said so.
fn filtered(errno: i32, process: &Process) -> bool {
    process.seccomp == Some(2) && matches!(errno, libc::EPERM | libc::ENOSYS | libc::EACCES)
}

fn in_group(process: &Process) -> bool {
    process.groups.iter().any(|&group| process.io_uring_group == Some(group.into()))
}

/// What the engine does without where it must.
fn features(process: &Process, all: &[Feature], notes: &mut Notes) {
    let missing: Vec<_> = all.iter().filter_map(|it| Some((it, it.errno?))).collect();
    if missing.is_empty() {
        return notes
            .ok(format!("io_uring: all {} features that the engine uses were tried and work", all.len()));
    }
    for (feature, errno) in missing {
        let (what, errno_name) = (feature.name, name(errno));
        let newer = match filtered(errno, process) {
            true => SECCOMP.into(),
            false => format!("{NEWER}{} or later", feature.since),
        };
        match (what, errno) {
            // The limit on locked memory is spoken of apart.
            ("registered_buffers" | "cloned_buffers", libc::ENOMEM) => {}
            (_, libc::ENOMEM) => notes.better(
                format!("io_uring: {what} could not be tried: no memory for another ring"),
                raise(process.memlock, "memlock", "ulimit -l unlimited"),
            ),
            ("cloned_buffers", _) => notes.better(
                format!("io_uring: no clones of registered buffers ({errno_name}): each lane pins all memory for itself"),
                newer,
            ),
            ("uring_cmd", _) => {
                notes.better(format!("io_uring: no NVMe passthrough ({errno_name}): namespaces go by their block device"), newer);
            }
            _ => notes.better(format!("io_uring: {what} is refused ({errno_name}); the engine does without"), newer),
        }
    }
}

fn memlock(process: &Process, notes: &mut Notes) {
    let remedy = raise(process.memlock, "memlock", "ulimit -l unlimited")
        + "   # systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1";
    match (&process.registered, process.memlock.soft) {
        (_, Some(soft)) if process.can(CAP_IPC_LOCK) => {
            notes.ok(format!("memlock: {} and no limit here: CAP_IPC_LOCK", human(soft)));
        }
        (Some(Err(_)), Some(soft)) => notes.better(
            format!("memlock: {} is too little to register 8 MiB: commands run unregistered", human(soft)),
            remedy,
        ),
        (Some(Err(why)), None) => notes.better(format!("memory cannot be registered: {why}"), "dmesg | tail"),
        (_, Some(soft)) if soft < POOL => {
            notes.better(format!("memlock: {}: a larger pool runs unregistered", human(soft)), remedy);
        }
        (_, Some(soft)) => notes.ok(format!("memlock: {}", human(soft))),
        (_, None) => notes.ok("memlock: unlimited"),
    }
}

/// A command that raises a limit: by the shell where the hard limit allows, else by root.
fn raise(limit: Limit, name: &str, shell: &str) -> String {
    if limit.hard.is_none() {
        shell.into()
    } else {
        // The kernel refuses an endless number of open files, to root as well.
        let most = if name == "nofile" { "65536:65536" } else { "unlimited:unlimited" };
        format!("sudo prlimit --pid $$ --{name}={most}")
    }
}

fn open_files(limit: Limit, notes: &mut Notes) {
    match limit.soft {
        Some(soft) if soft < FILES => {
            let remedy = if limit.hard.is_none_or(|hard| hard >= FILES) {
                format!("ulimit -n {}", limit.hard.unwrap_or(65_536).min(65_536))
            } else {
                "sudo prlimit --pid $$ --nofile=65536:65536".into()
            };
            notes.better(
                format!("open files: {soft}: rings and targets need some dozens, your program the rest"),
                remedy,
            );
        }
        Some(soft) => notes.ok(format!("open files: {soft}")),
        None => notes.ok("open files: unlimited"),
    }
}

fn cgroup(process: &Process, machine: &Machine, notes: &mut Notes) {
    let group = &process.cgroup;
    let hidden = group.path.is_none();
    match group.memory_max {
        Some(max) if max < POOL => notes.better(
            format!("control group: {} of memory: pools and pinned memory count against it", human(max)),
            "systemctl set-property UNIT MemoryMax=8G   # docker: --memory=8g",
        ),
        Some(max) => notes.ok(format!("control group: {} of memory", human(max))),
        None if hidden => notes.ok("control group: none is to be seen, and no limit of one is known"),
        None => notes.ok("control group: no limit on memory"),
    }
    let may = machine.allowed.len();
    match group.cpus {
        Some(cpus) if cpus < CPUS && cpus < may as f64 => notes.better(
            format!("control group: {cpus:.2} CPUs of time on {may}: lanes are stopped when it is used up"),
            "systemctl set-property UNIT CPUQuota=400%   # docker: --cpus=4",
        ),
        Some(cpus) => notes.ok(format!("control group: {cpus:.2} CPUs of time")),
        None if hidden => {}
        None => notes.ok("control group: no limit on CPU time"),
    }
    let all = machine.online.len();
    notes.ok(if may < all {
        format!("CPUs: {} of {all} may be used ({})", may, machine.allowed)
    } else {
        format!("CPUs: all {all} may be used ({})", machine.allowed)
    });
}

fn name(errno: i32) -> String {
    format!("{:?}", Errno::from_raw(errno))
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
