//! The schedules of a normal test run.

use super::plan::Plan;
use super::run::{Seen, run};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Schedules of a normal run, over all tests here.
const SCHEDULES: u64 = 2_400;
const PARTS: u64 = 4;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    }
}

/// Runs one of the parts that the seeds are cut into; the parts run at the same time.
fn part(part: u64) {
    let (first, count) = (number("FULLBORE_SEED", 1), number("FULLBORE_SCHEDULES", SCHEDULES));
    let seeds = first + count * part / PARTS..first + count * (part + 1) / PARTS;
    let mut all = Seen::default();
    for seed in seeds.clone() {
        match catch_unwind(AssertUnwindSafe(|| run(Plan::new(seed, None)))) {
            Ok(seen) => all.add(&seen),
            Err(panic) => {
                eprintln!("schedule {seed} failed: {:?}", Plan::new(seed, None));
                eprintln!(
                    "again: FULLBORE_SEED={seed} FULLBORE_SCHEDULES=1 cargo test --lib sim_tests::schedules"
                );
                resume_unwind(panic);
            }
        }
    }
    println!("seeds {seeds:?}: {all}");
    assert!(count < SCHEDULES || all.is_rich(), "the schedules of seeds {seeds:?} see too little: {all}");
}

#[test]
fn first_part() {
    part(0);
}

#[test]
fn second_part() {
    part(1);
}

#[test]
fn third_part() {
    part(2);
}

#[test]
fn fourth_part() {
    part(3);
}
