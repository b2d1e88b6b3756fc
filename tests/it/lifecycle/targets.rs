//! Targets that come and go while transfers over them run: their places in the rings' file tables are used again.

use super::{LIMIT, place};
use crate::support::load::lease_of;
use crate::support::{check, folders, poison, within};
use fullbore::{Client, Engine, OpenOptions, Region, Target, Ticket, Transfer};
use std::collections::VecDeque;
use std::path::PathBuf;

const EACH: usize = 96 << 10;
const FILES: u64 = 5;
/// Transfers in flight.
const WINDOW: usize = 8;

fn read(client: &Client, target: &Target, region: &Region, slot: usize) -> Ticket {
    let mut lease = region.lease(slot * EACH..(slot + 1) * EACH).unwrap();
    poison(&mut lease);
    client.submit(Transfer::read(target).extent(4096, lease)).unwrap()
}

fn verify(ticket: Ticket, seed: u64) {
    let done = ticket.wait().unwrap();
    done.result.as_ref().unwrap();
    check(&lease_of(done), 4096, seed, "the file that was asked for");
}

/// More targets than there are places, each dropped right after its transfer was submitted.
#[test]
fn targets_that_come_and_go_are_not_mixed_up() {
    if place().is_none() {
        return;
    }
    let Some(folder) = folders().pop() else { return };
    let files: Vec<(PathBuf, u64)> =
        (0..FILES).map(|seed| (folder.file(&format!("file {seed}"), 256 << 10, seed), seed)).collect();
    within(LIMIT, "targets that come and go", || {
        let engine = Engine::builder().lanes(2).lane_depth(1).command_size(16 << 10).build().unwrap();
        let (region, client) = (engine.alloc_host(WINDOW * EACH).unwrap(), engine.client().unwrap());
        let mut flying: VecDeque<(Ticket, u64)> = VecDeque::new();
        for number in 0..600 {
            if flying.len() == WINDOW {
                let (ticket, seed) = flying.pop_front().unwrap();
                verify(ticket, seed);
            }
            let (path, seed) = &files[number % files.len()];
            let target = engine.open(path, OpenOptions::read()).unwrap();
            flying.push_back((read(&client, &target, &region, number % WINDOW), *seed));
        }
        flying.into_iter().for_each(|(ticket, seed)| verify(ticket, seed));
        assert!(engine.stats().lanes.iter().all(|l| l.alive && l.stale == 0));
    });
}

/// The tables have 256 places: what finds none is named by its descriptor, and works.
#[test]
fn more_targets_at_once_than_places() {
    if place().is_none() {
        return;
    }
    let Some(folder) = folders().pop() else { return };
    let files: Vec<_> =
        (0..FILES).map(|seed| folder.file(&format!("file {seed}"), 256 << 10, seed)).collect();
    within(LIMIT, "300 targets", || {
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (region, client) = (engine.alloc_host(EACH).unwrap(), engine.client().unwrap());
        let open = |i: usize| engine.open(&files[i % files.len()], OpenOptions::read()).unwrap();
        let targets: Vec<_> = (0..300).map(open).collect();
        for (number, target) in targets.iter().enumerate() {
            verify(read(&client, target, &region, 0), number as u64 % FILES);
        }
    });
}

/// Closing refuses what comes, not what is under way.
#[test]
fn closing_leaves_what_is_under_way() {
    let Some(place) = place() else { return };
    within(LIMIT, "close with a transfer in flight", || {
        let engine = super::slow().build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(16 << 20).unwrap(), engine.client().unwrap());
        let lease = region.lease(0..16 << 20).unwrap();
        let mut ticket = client.submit(Transfer::read(&target).extent(0, lease)).unwrap();
        target.close();
        assert!(ticket.poll().is_none(), "still under way");
        let done = ticket.wait().unwrap();
        done.result.as_ref().unwrap();
        check(&lease_of(done), 0, super::SEED, "closed meanwhile");
    });
}
