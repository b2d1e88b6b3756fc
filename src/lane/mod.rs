//! Lanes: a submitter thread each, with the queue it drives.
//!
//! One [`Lane`] is one loop: hear messages and shares, cut commands while there are credits, submit the batch and
//! wait, take the answers. The same code runs over io_uring, the null queue and the simulation.

mod bell;
mod command;
mod core;
mod failure;
mod gpu;
mod inbox;
mod issue;
mod job;
mod lane_loop;
mod mailbox;
mod marks;
mod path;
mod phase;
mod raw_options;
mod reap;
mod records;
mod schedule;
mod signal;
mod slots;
mod stats;
mod sync;
mod thread;
mod transfer;
mod watchdog;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod sim_tests;

pub use self::core::{Clock, Core, units_of};
pub use gpu::{Feeder, GpuSpec, SLACK, path_of, path_of_job};
pub use inbox::{Acks, Control, Inbox};
pub use job::{Job, Source};
pub use lane_loop::LaneOptions;
pub use mailbox::Mailbox;
pub use marks::Marks;
pub use path::{Path, PathReport, PathSet};
pub use raw_options::RawOptions;
pub use records::Work;
pub use schedule::Share;
pub use signal::Signal;
pub use slots::{Admission, Handle, Stop};
pub use stats::LatencyHistogram;
pub use thread::{LaneSpec, LaneThread, QueueKind, explain_ring};
pub(crate) use transfer::Deadline;
pub use transfer::{Completion, Extent, Priority, Times, Transfer};
pub use watchdog::{Watch, Watchdog};

/// Defects that the simulation builds in, one at a time, to see that it catches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum Mutation {
    /// A stopped unit is given back although commands of it are in flight.
    SkipTheDrain,
    /// A completion is put into the mailbox twice.
    CompleteTwice,
    /// One command more than the credits allow.
    OneCreditTooMany,
    /// A short result counts as success.
    ShortIsSuccess,
    /// Answers to an earlier use of a slot are taken for this one's.
    StaleGeneration,
    /// A lane does not look at its inbox again before it sleeps.
    LostWakeUp,
    /// A read of 0 bytes is asked again for ever.
    EofResubmitted,
    /// After EAGAIN from enter the batch is pushed again.
    EagainQueuedTwice,
    /// A later failure replaces the first.
    ErrorOverwritten,
    /// A unit is given back when its last command was issued, not when it ended.
    LeaseReturnedEarly,
    /// A stop leaves the units of all parts but the first to be claimed.
    PartForgottenAtStop,
    /// A unit is claimed of the first part, whichever the share is of.
    UnitOfAnotherPart,
    /// One member of a stripe is not flushed.
    MemberNotFlushed,
    /// The first flush that succeeds counts for all members.
    FirstFlushCounts,
    /// A status of passthrough is taken for a length.
    StatusIsLength,
    /// A command is asked again whatever the status says.
    StatusRetried,
    /// A demanded path is not looked at again when a command is pushed.
    PathNotCheckedAgain,
}
