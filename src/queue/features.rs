//! What of io_uring this process gets, each tried by itself: versions do not tell, and seccomp refuses where they would.

use super::uring::{FLAGS, Ring};
use crate::memory::{Mapping, PAGE, table};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use std::io;
use std::time::{Duration, Instant};

/// How long all trials may wait for rings before them to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something of io_uring that the engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name, in lower case: `rings`, `defer_taskrun`.
    pub name: &'static str,
    /// The kernel that first had it.
    pub since: &'static str,
    /// With which errno it was refused; `None`: it works.
    pub errno: Option<i32>,
}

type Trial = (&'static str, &'static str, fn() -> io::Result<()>);

const TRIALS: [Trial; 7] = [
    ("rings", "5.1", || IoUring::new(1).map(drop)),
    ("commands", "5.11", one_command),
    ("large_entries", "5.19", || Ring::builder().build(1).map(drop)),
    ("uring_cmd", "5.19", passthrough),
    ("file_table", "5.19", || IoUring::new(1)?.submitter().register_files_sparse(1)),
    ("registered_buffers", "5.19", registered),
    ("cloned_buffers", "6.13", table::try_clones),
];

/// Kernels that first had [`FLAGS`].
const SINCE: [&str; FLAGS.len()] = ["5.19", "6.0", "6.1", "6.6"];

/// Tries all. Where there are no rings at all the list ends after that.
pub fn try_features() -> Vec<Feature> {
    let until = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    for (name, since, trial) in TRIALS {
        all.push(Feature { name, since, errno: tried(until, trial) });
        if name == "rings" && all[0].errno.is_some() {
            return all;
        }
    }
    for (number, ((name, _), since)) in FLAGS.iter().zip(SINCE).enumerate() {
        // Each with those before it, as the engine's rings have them.
        let trial = || {
            let mut builder = Ring::builder();
            FLAGS[..=number].iter().for_each(|(_, set)| set(&mut builder));
            builder.build(1).map(drop)
        };
        all.push(Feature { name: lower(name), since, errno: tried(until, trial) });
    }
    all
}

/// With which errno it fails. The kernel lets go of a closed ring, and of what it is charged for, a little later: where
/// there is no room for the next one, it is asked again for a while.
fn tried(until: Instant, trial: impl Fn() -> io::Result<()>) -> Option<i32> {
    loop {
        let errno = trial().err()?.raw_os_error().unwrap_or(libc::EIO);
        if errno != libc::ENOMEM || Instant::now() >= until {
            return Some(errno);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Seccomp may let rings be made and forbid to enter them.
fn one_command() -> io::Result<()> {
    let mut ring = IoUring::new(1)?;
    // SAFETY: a command that names no memory.
    unsafe { ring.submission().push(&opcode::Nop::new().build()) }.map_err(io::Error::other)?;
    let time = Timespec::from(Duration::from_secs(5));
    ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time)).map(drop)
}

fn passthrough() -> io::Result<()> {
    let (ring, mut probe) = (IoUring::new(1)?, Probe::new());
    ring.submitter().register_probe(&mut probe)?;
    let known = probe.is_supported(opcode::UringCmd80::CODE);
    if known { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
}

fn registered() -> io::Result<()> {
    let page = Mapping::new(PAGE)?;
    let ring = IoUring::new(1)?;
    let iovec = libc::iovec { iov_base: page.ptr().as_ptr().cast(), iov_len: PAGE };
    // SAFETY: the ring goes before the page, and nothing is submitted.
    unsafe { ring.submitter().register_buffers(&[iovec]) }
}

fn lower(flag: &str) -> &'static str {
    match flag {
        "COOP_TASKRUN" => "coop_taskrun",
        "SINGLE_ISSUER" => "single_issuer",
        "DEFER_TASKRUN" => "defer_taskrun",
        _ => "no_sqarray",
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_tried_once_or_none_after_a_refusal() {
        let all = try_features();
        assert_eq!(all[0].name, "rings");
        let mut names: Vec<_> = all.iter().map(|feature| feature.name).collect();
        names.sort_unstable();
        names.dedup();
        let expected = if all[0].errno.is_some() { 1 } else { TRIALS.len() + FLAGS.len() };
        assert_eq!((names.len(), all.len()), (expected, expected), "{all:?}");
    }
}
