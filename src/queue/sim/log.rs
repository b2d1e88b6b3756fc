//! What the simulated device did, command by command, for the checks to replay.

use crate::target::Op;

/// One use of one command slot: what was asked under one user_data, and every answer to it.
#[derive(Clone, Debug)]
pub struct Command {
    pub port: usize,
    /// The disk that it went to, and whether its results are statuses.
    pub disk: usize,
    pub passthrough: bool,
    pub user_data: u64,
    pub op: Op,
    /// As first asked.
    pub offset: u64,
    pub len: u64,
    /// Where its memory begins, as first asked.
    pub addr: u64,
    /// The last request named a registered buffer.
    pub fixed: bool,
    /// When it was pushed first.
    pub begun: u64,
    /// Offset asked for and result, in order.
    pub answers: Vec<(u64, i32)>,
    /// When it was answered last.
    pub answered: u64,
    /// Number of the disk's write that answered it last.
    pub write: u64,
}

impl Command {
    /// Asked again at `now`: after EAGAIN, EINTR and a status not at once.
    pub fn ask_again(&mut self, now: u64, fixed: bool) {
        let status = |result: i32| self.passthrough && result > 0;
        let busy =
            |(_, result): &(u64, i32)| status(*result) || matches!(-*result, libc::EAGAIN | libc::EINTR);
        let paused = now - self.answered >= 50_000;
        assert!(paused || !self.answers.last().is_some_and(busy), "no pause after EAGAIN: {self:?}");
        self.fixed = fixed;
    }
}

/// The ways in which the device may misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Short,
    UnalignedShort,
    EndOfFile,
    Zero,
    Failed,
    Again,
    Reordered,
    Slow,
    Never,
    Late,
    Refused,
    Fewer,
    Stale,
    Broken,
    StatusPasses,
    StatusFinal,
    BufferGone,
}

/// How often each was injected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; 17]);

impl Counts {
    pub const ALL: [Fault; 17] = [
        Fault::Short,
        Fault::UnalignedShort,
        Fault::EndOfFile,
        Fault::Zero,
        Fault::Failed,
        Fault::Again,
        Fault::Reordered,
        Fault::Slow,
        Fault::Never,
        Fault::Late,
        Fault::Refused,
        Fault::Fewer,
        Fault::Stale,
        Fault::Broken,
        Fault::StatusPasses,
        Fault::StatusFinal,
        Fault::BufferGone,
    ];

    pub fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub fn get(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Counts::ALL.iter().try_for_each(|fault| write!(f, "{fault:?} {}, ", self.get(*fault)))
    }
}

/// How often the device misbehaves, each of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub short: u64,
    pub zero: u64,
    pub fail: u64,
    pub again: u64,
    pub slow: u64,
    pub never: u64,
    /// EAGAIN or EBUSY from enter.
    pub refuse: u64,
    /// Enter accepts fewer than were pushed.
    pub fewer: u64,
    /// An answer to a user_data that was answered before.
    pub stale: u64,
}
