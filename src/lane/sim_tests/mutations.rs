//! Each defect that can be built in is caught, and by nothing that happens without it.

use super::plan::Plan;
use super::run::run;
use crate::lane::Mutation;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A defect that so many schedules do not show would not be caught in practice.
const SEEDS: std::ops::Range<u64> = 1..61;

fn caught(mutation: Mutation) {
    caught_in(mutation, |plan| plan);
}

/// The same, where a schedule of any kind shows the defect too seldom.
fn caught_in(mutation: Mutation, kind: fn(Plan) -> Plan) {
    let plan = |seed, mutation| kind(Plan::new(seed, mutation));
    let mut after = None;
    for seed in SEEDS {
        run(plan(seed, None));
        if after.is_none() {
            let broken = catch_unwind(AssertUnwindSafe(|| run(plan(seed, Some(mutation))))).err();
            after = broken.map(|panic| (seed, panic));
        }
        if after.is_some() {
            break;
        }
    }
    let (seed, panic) = after.unwrap_or_else(|| panic!("{mutation:?} was not caught in {SEEDS:?}"));
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
    println!("{mutation:?}: caught by seed {seed}: {text}");
}

#[test]
fn skip_the_drain() {
    caught(Mutation::SkipTheDrain);
}

#[test]
fn complete_twice() {
    caught(Mutation::CompleteTwice);
}

#[test]
fn one_credit_too_many() {
    caught(Mutation::OneCreditTooMany);
}

#[test]
fn short_is_success() {
    caught(Mutation::ShortIsSuccess);
}

#[test]
fn stale_generation() {
    caught(Mutation::StaleGeneration);
}

#[test]
fn lost_wake_up() {
    caught(Mutation::LostWakeUp);
}

#[test]
fn eof_resubmitted() {
    caught(Mutation::EofResubmitted);
}

#[test]
fn eagain_queued_twice() {
    caught(Mutation::EagainQueuedTwice);
}

#[test]
fn error_overwritten() {
    caught(Mutation::ErrorOverwritten);
}

#[test]
fn lease_returned_early() {
    caught(Mutation::LeaseReturnedEarly);
}

#[test]
fn part_forgotten_at_stop() {
    // It shows when the only lane of a part dies with units of it unclaimed.
    caught_in(Mutation::PartForgottenAtStop, |plan| Plan {
        members: 2,
        lanes: 2,
        apart: true,
        breaks: true,
        ..plan
    });
}

#[test]
fn unit_of_another_part() {
    caught(Mutation::UnitOfAnotherPart);
}

#[test]
fn member_not_flushed() {
    caught(Mutation::MemberNotFlushed);
}

#[test]
fn first_flush_counts() {
    caught(Mutation::FirstFlushCounts);
}

#[test]
fn status_is_length() {
    caught(Mutation::StatusIsLength);
}

#[test]
fn status_retried() {
    caught(Mutation::StatusRetried);
}

#[test]
fn path_not_checked_again() {
    caught(Mutation::PathNotCheckedAgain);
}
