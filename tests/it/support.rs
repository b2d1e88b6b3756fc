//! Shared by the integration tests (owner: helper CONF).
//!
//! Folders on file systems that matter, files whose content carries offset and seed, poison and guards, children
//! without capabilities, hard limits against hangs, loop devices.

#![allow(dead_code, unused_imports)] // each test module uses its part

mod child;
mod content;
pub mod cuda;
pub mod kernel;
pub mod load;
mod place;

pub use child::{Child, child, does, fork, private_mounts, wait_for};
pub use content::{POISON, check, fill, first_mismatch, poison, untouched};
pub use place::{Folder, Loop, folder_of, folders};

use fullbore::{Engine, EngineBuilder, ErrorKind};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `body`; aborts the whole test program if it takes longer than `limit`: a hang is a failure, not a wait.
pub fn within<T>(limit: Duration, what: &str, body: impl FnOnce() -> T) -> T {
    let (done, waiting) = channel::<()>();
    let what = what.to_string();
    let watch = std::thread::spawn(move || {
        if waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            eprintln!("HANG: {what} took longer than {limit:?}; aborting");
            std::process::abort();
        }
    });
    let out = body();
    drop(done);
    let _ = watch.join();
    out
}

/// Whether this process gets rings. Where it does not (seccomp, sysctl) tests have nothing to run on and say so.
pub fn uring() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| match Engine::builder().lanes(1).build() {
        Ok(_) => true,
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::Permission) => {
            eprintln!("skipped: no io_uring here: {e}");
            false
        }
        Err(e) => panic!("an engine cannot be built: {e}"),
    })
}

/// Builds an engine. Without CAP_IPC_LOCK the kernel charges rings, too, to the limit on locked memory, by user:
/// where other tests of this user hold all of it, this waits for them.
#[track_caller]
pub fn build(builder: EngineBuilder) -> Engine {
    let mut built = None;
    eventually(Duration::from_secs(20), || {
        built = Some(builder.clone().build());
        !matches!(&built, Some(Err(e)) if e.errno() == Some(libc::ENOMEM))
    });
    built.expect("it was tried").expect("an engine")
}

/// Whether this process may do what only root may.
pub fn root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    (unsafe { libc::geteuid() }) == 0 && effective_capabilities() & (1 << 21) != 0
}

/// The bits of CapEff (21 is CAP_SYS_ADMIN).
pub fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap_or("0");
    u64::from_str_radix(line.trim(), 16).unwrap_or(0)
}

/// The CPUs that a thread may use; 0 is this one.
pub fn cpus_of(thread: i32) -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(thread)).expect("a mask");
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).expect("a CPU's number")).collect()
}

/// Names of this process's threads that begin with `prefix`, as the kernel knows them.
pub fn threads(prefix: &str) -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok())
        .map(|name| name.trim().to_string())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// What the descriptors of this process name, sorted.
pub fn descriptors() -> Vec<String> {
    let Ok(fds) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let mut names: Vec<_> = fds
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .map(|p| p.display().to_string())
        .collect();
    names.sort();
    names
}

/// Waits until `ready`, at most `limit`; answers whether it came.
pub fn eventually(limit: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let until = std::time::Instant::now() + limit;
    loop {
        if ready() {
            return true;
        }
        if std::time::Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A line of /proc/self/status, in KiB (VmRSS, VmPin, ...).
pub fn status_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':')).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
