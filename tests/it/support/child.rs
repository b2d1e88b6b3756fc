//! Tests that need a process of their own: the test program is executed again for that one test.

use super::{effective_capabilities, within};
use nix::sched::{CloneFlags, unshare};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const WHO: &str = "FULLBORE_CHILD";
const DONE: &str = "child-came-to-its-end";
/// The kernel ends a child that takes longer, in seconds.
const LIMIT: u64 = 60;

/// A test body that runs in a child; see [`child`].
#[derive(Debug)]
pub struct Child {
    test: String,
    env: Vec<(String, String)>,
    capabilities: bool,
    cpu: Option<usize>,
    limit: u64,
}

/// `child("refusals::memlock", &[]).run(|| ...)` as the body of test `refusals::memlock`: the parent executes the
/// test program again for this test alone, and there `run` calls the body. Capabilities are dropped, also root's, and
/// the child is alone in its process: it may change limits, forbid system calls, fork.
pub fn child(test: &str, env: &[(&str, &str)]) -> Child {
    let env = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    Child { test: test.into(), env, capabilities: false, cpu: None, limit: LIMIT }
}

impl Child {
    /// Leaves the child what we may.
    pub fn keep_capabilities(mut self) -> Child {
        self.capabilities = true;
        self
    }

    /// Runs the child on this CPU alone.
    pub fn on_cpu(mut self, cpu: usize) -> Child {
        self.cpu = Some(cpu);
        self
    }

    /// Gives the child so many seconds: it does much, and bounds each step of it by itself.
    pub fn limit(mut self, seconds: u64) -> Child {
        self.limit = seconds;
        self
    }

    /// See [`child`]. Fails if the child fails, or did not come to the end of the body.
    #[track_caller]
    pub fn run(self, body: impl FnOnce()) {
        if std::env::var(WHO).is_ok_and(|who| who == self.test) {
            assert!(self.capabilities || effective_capabilities() == 0, "capabilities were not dropped");
            within(Duration::from_secs(self.limit - 5), &self.test, body);
            println!("{DONE}");
            return;
        }
        let output = self.command().output().expect("the test program can be executed");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // The harness swallows the output of a test that passes; a skip must be seen with --nocapture.
        let told = |line: &&str| line.contains("skipped") || line.contains("measured");
        err.lines().filter(told).for_each(|line| eprintln!("{line}"));
        let came_to_end = out.contains(DONE);
        assert!(
            output.status.success() && came_to_end,
            "child of {}: {}{}\n{out}\n{err}",
            self.test,
            output.status,
            if came_to_end {
                ""
            } else {
                " (it did not come to the end of its body; is the test's name right?)"
            },
        );
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", &self.test, "--nocapture", "--test-threads=1"]).env(WHO, &self.test);
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        let (keep, cpu, limit) = (self.capabilities, self.cpu, self.limit as u32);
        // SAFETY: between fork and exec it makes system calls only: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                libc::alarm(limit);
                if !keep {
                    drop_capabilities();
                }
                cpu.map_or(Ok(()), run_on)
            });
        }
        command
    }
}

/// After the next exec this process has no capabilities, whoever it is.
fn drop_capabilities() {
    // The version of the call, this process; then two words each of effective, permitted, inheritable: none.
    let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: prctl takes numbers only; capset reads two arrays of the sizes of its ABI. Without CAP_SETPCAP they
    // fail, and `run` sees whether anything is left.
    unsafe {
        for capability in 0..=63 {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr());
    }
}

fn run_on(cpu: usize) -> std::io::Result<()> {
    // SAFETY: an all-zero set is a set; CPU_SET checks its bounds; the set lives across the call.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Forks; the copy runs `body` and exits: 0 if it returned true, 1 if false, 2 if it panicked. Answers its pid.
/// Call it in a [`child`] only: of the copied process's threads just this one lives.
pub fn fork(body: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the copy runs `body` on the one thread it has and leaves with _exit; callers see that no other
    // thread holds a lock that the body needs.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: arms a timer of this process: it cannot hang.
            unsafe { libc::alarm(20) };
            let code = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            };
            // SAFETY: ends the process without running the parent's destructors.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            pid
        }
    }
}

/// Waits for the end of a fork; answers its exit code, or minus the signal that ended it.
pub fn wait_for(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a process of ours; the status lives across the call.
    while unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "waitpid: {error}");
    }
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

/// Runs a program of the system; answers whether it did well.
pub fn does(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).status().is_ok_and(|s| s.success())
}

/// Gives this process (a [`child`]; root) mounts of its own: they end with it.
pub fn private_mounts() {
    unshare(CloneFlags::CLONE_NEWNS).expect("root may have mounts of its own");
    assert!(does("mount", &["--make-rprivate", "/"]));
}
