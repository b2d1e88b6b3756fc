//! What threads cost: CPU time, context switches and page faults.

use std::fs;
use std::ops::{Add, Sub};

use nix::sys::resource::{UsageWho, getrusage};

/// Of some threads.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Seconds.
    pub user: f64,
    pub system: f64,
    pub switches: u64,
    pub major: u64,
    pub minor: u64,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            switches: self.switches + other.switches,
            major: self.major + other.major,
            minor: self.minor + other.minor,
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    /// A thread that ended in between took its share with it: never less than nothing.
    fn sub(self, other: Self) -> Self {
        Self {
            user: (self.user - other.user).max(0.0),
            system: (self.system - other.system).max(0.0),
            switches: self.switches.saturating_sub(other.switches),
            major: self.major.saturating_sub(other.major),
            minor: self.minor.saturating_sub(other.minor),
        }
    }
}

impl Usage {
    /// The same with its time as the scheduler has it: ticks, of 10 ms, miss a thread that runs for less at a time.
    fn lasting(self, nanos: Option<u64>) -> Self {
        let Some(seconds) = nanos.map(|nanos| nanos as f64 / 1e9) else { return self };
        let ticked = self.user + self.system;
        let user = if ticked > 0.0 { seconds * self.user / ticked } else { 0.0 };
        Self { user, system: seconds - user, ..self }
    }

    /// A part of it, between 0 and 1.
    pub fn part(self, part: f64) -> Self {
        let of = |n: u64| (n as f64 * part).round() as u64;
        Self {
            user: self.user * part,
            system: self.system * part,
            switches: of(self.switches),
            major: of(self.major),
            minor: of(self.minor),
        }
    }
}

/// Of the calling thread.
pub fn of_this_thread() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Usage::default() };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let count = |n: i64| n.unsigned_abs();
    Usage {
        user: seconds(usage.user_time()),
        system: seconds(usage.system_time()),
        switches: count(usage.voluntary_context_switches()) + count(usage.involuntary_context_switches()),
        major: count(usage.major_page_faults()),
        minor: count(usage.minor_page_faults()),
    }
}

/// The threads of this process.
pub fn threads() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The kernel's workers for the rings of some threads: they are threads of the process, named after these.
pub fn workers(of: &[u32]) -> Vec<u32> {
    let serves = |thread: &u32| {
        let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
        name.trim()
            .strip_prefix("iou-wrk-")
            .and_then(|id| id.parse().ok())
            .is_some_and(|id: u32| of.contains(&id))
    };
    threads().into_iter().filter(serves).collect()
}

/// Of other threads of this process, those that still run.
pub fn of_threads(threads: &[u32]) -> Usage {
    let ticks = auxv(17).unwrap_or(100) as f64; // AT_CLKTCK
    let one = |thread: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).ok();
        let usage = parse(&read("stat")?, &read("status").unwrap_or_default(), ticks)?;
        Some(usage.lasting(nanos(&read("schedstat").unwrap_or_default())))
    };
    threads.iter().filter_map(one).fold(Usage::default(), Usage::add)
}

/// Nanoseconds on a CPU, where the kernel counts them (CONFIG_SCHED_INFO).
fn nanos(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok().filter(|&nanos| nanos > 0)
}

fn parse(stat: &str, status: &str, ticks: f64) -> Option<Usage> {
    // The name, in brackets, may hold anything.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let switches = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
    let switches = switches.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum();
    Some(Usage {
        user: field(14)? as f64 / ticks,
        system: field(15)? as f64 / ticks,
        switches,
        major: field(12)?,
        minor: field(10)?,
    })
}

/// What the kernel told the process when it started.
pub fn auxv(wanted: u64) -> Option<u64> {
    let words = fs::read("/proc/self/auxv").ok()?;
    let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    words.as_chunks::<2>().0.iter().find(|[key, _]| *key == wanted).map(|[_, value]| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 64 11 0 3 0 250 50 0 0 20 0 1 0 5";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t5\n";
        let usage = parse(stat, status, 100.0).unwrap();
        assert_eq!(usage, Usage { user: 2.5, system: 0.5, switches: 9, major: 3, minor: 11 });
        assert_eq!(usage.part(0.5), Usage { user: 1.25, system: 0.25, switches: 5, major: 2, minor: 6 });
        let lasting = usage.lasting(nanos("6000000000 12 3"));
        assert_eq!((lasting.user, lasting.system, lasting.switches), (5.0, 1.0, 9));
        let short = Usage::default().lasting(nanos("3000000 1 1"));
        assert_eq!((short.user, short.system), (0.0, 0.003));
        assert_eq!((nanos("0 0 0"), nanos(""), usage.lasting(None)), (None, None, usage));
        assert!(parse("nothing", "", 100.0).is_none());
    }

    #[test]
    fn this_process_has_threads_that_cost_something() {
        assert!(!threads().is_empty() && auxv(17).is_some_and(|ticks| ticks > 0));
        assert_eq!(auxv(6).map(|page| page % 4096), Some(0));
        let started = of_this_thread();
        let sum = (0..20_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        assert!((of_this_thread() - started).user > 0.0, "{sum}");
        assert!(of_threads(&threads()).user >= 0.0 && workers(&[u32::MAX]).is_empty());
    }
}
