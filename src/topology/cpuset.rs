//! A set of CPU numbers, in the kernel's own notation, and the calling thread's affinity.

use std::fmt;
use std::io;
use std::str::FromStr;

use nix::errno::Errno;
use nix::sched::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// No CPU has this number or a higher one: eight times what the kernel can be built for. A malformed range
/// such as `0-4294967295` is thereby an error, and not gigabytes of numbers.
const CPU_LIMIT: u32 = 1 << 16;

/// A sorted set of CPU numbers.
///
/// Read and shown in the notation of the kernel's lists: `0-3,8`; the empty set is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Ascending, each number once.
    cpus: Vec<u32>,
}

impl CpuSet {
    /// The CPUs on which the calling thread may run: its affinity mask, which the kernel keeps within the
    /// cpuset of the process. It is the whole process's set unless the thread was pinned on its own.
    ///
    /// The C library's mask ends at CPU 1023, and on a kernel set up for more the call fails. Then the set is
    /// read from `/proc/thread-self/status`, which has no such end but may also name CPUs that are offline.
    pub fn of_process() -> io::Result<CpuSet> {
        match sched_getaffinity(Pid::from_raw(0)) {
            Ok(mask) => Ok(from_mask(&mask)),
            Err(Errno::EINVAL) => allowed_in_status(&std::fs::read_to_string("/proc/thread-self/status")?),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The CPUs that are in both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    /// Whether some CPU is in both sets.
    pub fn meets(&self, other: &CpuSet) -> bool {
        self.iter().any(|cpu| other.contains(cpu))
    }

    /// Whether each of this set's CPUs is in the other.
    pub fn is_within(&self, other: &CpuSet) -> bool {
        self.iter().all(|cpu| other.contains(cpu))
    }

    /// Whether the set has this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.cpus.binary_search(&cpu).is_ok()
    }

    /// How many CPUs the set has.
    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// The CPU numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.cpus.iter().copied()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuSet { cpus }
    }
}

impl FromStr for CpuSet {
    type Err = io::Error;

    fn from_str(list: &str) -> io::Result<CpuSet> {
        let list = list.trim_ascii();
        if list.is_empty() {
            return Ok(CpuSet::default());
        }
        let mut cpus = Vec::new();
        for part in list.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (cpu_number(first), cpu_number(last)) {
                (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(invalid(format!("{list:?} is not a list of CPUs: {part:?}"))),
            }
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.cpus.chunk_by(|a, b| a + 1 == *b);
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Keeps the calling thread on these CPUs.
///
/// Fails, and leaves the thread where it was, when the set is empty or wholly outside the cpuset of the process,
/// and when it has a CPU above 1023, the last that the C library's mask can say: a lane that cannot be pinned
/// still runs within the process's cpuset, only not near its node.
pub fn pin_current_thread(cpus: &CpuSet) -> io::Result<()> {
    if cpus.is_empty() {
        return Err(invalid("a thread cannot be pinned to no CPU at all".to_owned()));
    }
    let mut mask = Mask::new();
    for cpu in cpus.iter() {
        let unsayable = |_| io::Error::new(io::ErrorKind::Unsupported, format!("cannot pin to CPU {cpu}"));
        mask.set(cpu as usize).map_err(unsayable)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &mask)?)
}

/// Strict: no sign, no blank, and below the limit.
fn cpu_number(digits: &str) -> Option<u32> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|&cpu| all_digits && cpu < CPU_LIMIT)
}

fn from_mask(mask: &Mask) -> CpuSet {
    let allowed = |cpu: &u32| mask.is_set(*cpu as usize).unwrap_or(false);
    (0..Mask::count() as u32).filter(allowed).collect()
}

fn allowed_in_status(status: &str) -> io::Result<CpuSet> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.ok_or_else(|| invalid("the thread's status has no Cpus_allowed_list".to_owned()))?.parse()
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_shown_as_the_kernel_writes_them() {
        for (list, cpus) in [
            ("", vec![]),
            ("0", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("1,3,5-6", vec![1, 3, 5, 6]),
            ("1023-1025,65535", vec![1023, 1024, 1025, 65535]),
        ] {
            let parsed = set(&format!("{list}\n"));
            assert_eq!(parsed.iter().collect::<Vec<_>>(), cpus);
            assert_eq!(parsed.to_string(), list);
            assert_eq!((parsed.len(), parsed.is_empty()), (cpus.len(), cpus.is_empty()));
        }
        assert_eq!(set("8,0-1,1-3").to_string(), "0-3,8", "any order, each CPU once");
    }

    #[test]
    fn malformed_lists_are_errors() {
        for list in [
            "x",
            "0-",
            "-3",
            "3-1",
            "0,,1",
            "0-3,",
            "0 1",
            "+1",
            "0x3",
            "0-1-2",
            "65536",
            "0-4294967295",
            "99999999999",
        ] {
            let error = list.parse::<CpuSet>().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{list:?}");
            assert!(error.to_string().contains(list), "{error} does not name {list:?}");
        }
    }

    #[test]
    fn intersection_and_contains() {
        let both = set("0-7,64").intersection(&set("3-9,64-70"));
        assert_eq!(both.to_string(), "3-7,64");
        assert!(both.contains(64) && !both.contains(63));
        assert!(set("0-1").intersection(&set("2")).is_empty());
        assert!(set("0-3").meets(&set("3-4")) && !set("0-3").meets(&set("4")));
        assert!(set("3").is_within(&set("0-3")) && !set("3-4").is_within(&set("0-3")));
    }

    #[test]
    fn pinning_is_seen_in_the_affinity_of_that_thread_only() {
        let before = CpuSet::of_process().unwrap();
        let one: CpuSet = before.iter().last().into_iter().collect();
        let pinned = std::thread::spawn({
            let one = one.clone();
            move || pin_current_thread(&one).and_then(|()| CpuSet::of_process())
        });
        assert_eq!(pinned.join().unwrap().unwrap(), one);
        assert_eq!(CpuSet::of_process().unwrap(), before);
    }

    #[test]
    fn pinning_to_what_cannot_be_is_an_error_and_changes_nothing() {
        let before = CpuSet::of_process().unwrap();
        assert_eq!(pin_current_thread(&set("")).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(pin_current_thread(&set("0,1024")).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(CpuSet::of_process().unwrap(), before);
    }

    #[test]
    fn status_stands_in_where_the_mask_is_too_short() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7,1500\nMems_allowed:\t1\n";
        assert_eq!(allowed_in_status(status).unwrap().to_string(), "0-7,1500");
        assert!(allowed_in_status("Name:\tx\n").is_err());
        let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let allowed = CpuSet::of_process().unwrap();
        assert_eq!(allowed_in_status(&own).unwrap().intersection(&allowed), allowed);
    }
}
