//! Files on a file system that cannot be asked without blocking (tmpfs): threads of the kernel carry out the commands.

use crate::support::load::load;
use crate::support::{build, child, cpus_of, folders, uring, within};
use fullbore::{Engine, OpenOptions, Transfer};
use std::time::Duration;

const SIZE: u64 = 32 << 20;
const OBJECT: usize = 4 << 20;

/// Loads the file by one lane and checks it. Answers commands, most in flight and kernel workers of that lane, and the
/// most bytes that a command may have there.
fn loaded(command_size: Option<u32>) -> Option<(u64, u64, usize, u32)> {
    let folder = folders().into_iter().find(|folder| folder.name == "tmpfs")?;
    let path = folder.file("object", SIZE, 7);
    let builder = Engine::builder().lanes(1);
    let engine = build(match command_size {
        Some(bytes) => builder.command_size(bytes),
        None => builder,
    });
    let target = engine.open(&path, OpenOptions::read()).expect("a file of ours");
    if !engine.facts(&target).kernel_workers {
        return None; // a kernel whose tmpfs answers at once
    }
    let (client, region) = (engine.client().expect("a client"), engine.alloc_host(OBJECT).expect("memory"));
    let mut lease = region.lease(0..OBJECT).expect("all of it");
    for offset in (0..SIZE).step_by(OBJECT) {
        lease = load(&client, &target, lease, offset, 7).0;
    }
    let lane = &engine.stats().lanes[0];
    assert_eq!((lane.bytes, lane.retries, lane.shorts), (SIZE, 0, 0));
    Some((lane.commands, lane.max_in_flight, lane.kernel_workers, target.geometry().max_bytes))
}

/// A hand-over takes about as long as the copy of 128 KiB: commands are larger there, and several workers copy at once.
#[test]
fn several_workers_have_large_commands() {
    if !uring() {
        return;
    }
    within(Duration::from_secs(120), "loads from tmpfs", || {
        let Some((commands, in_flight, workers, most)) = loaded(None) else {
            return eprintln!("skipped: no tmpfs here that kernel workers serve");
        };
        assert_eq!((most, commands), (512 << 10, SIZE / (512 << 10)));
        // A unit of two is begun while fewer than four are in hand.
        assert!((2..=5).contains(&in_flight), "{in_flight} in flight");
        let least = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(2));
        assert!((least..=5).contains(&workers), "{workers} workers for at most 5 commands");
    });
}

/// Where workers would only take turns on one CPU, a lane has one.
#[test]
fn a_lane_that_has_one_cpu_has_one_worker() {
    if !uring() {
        return;
    }
    let cpu = cpus_of(0)[0];
    child("workers::a_lane_that_has_one_cpu_has_one_worker", &[]).keep_capabilities().on_cpu(cpu).run(|| {
        let Some((_, in_flight, workers, most)) = loaded(None) else {
            return eprintln!("skipped: no tmpfs here that kernel workers serve");
        };
        assert_eq!((most, workers), (512 << 10, 1));
        assert!((2..=5).contains(&in_flight), "{in_flight} in flight");
    });
}

/// What the caller says is the size of a command everywhere.
#[test]
fn a_command_size_that_was_asked_for_is_kept() {
    if !uring() {
        return;
    }
    within(Duration::from_secs(120), "loads from tmpfs", || {
        let Some((commands, in_flight, _, most)) = loaded(Some(128 << 10)) else {
            return eprintln!("skipped: no tmpfs here that kernel workers serve");
        };
        assert_eq!((most, commands), (128 << 10, SIZE / (128 << 10)));
        // A unit of eight is begun while fewer than eight are in hand.
        assert!(in_flight <= 15, "{in_flight} in flight");
    });
}

/// A stripe of such files is served as they are: it holds as few commands in flight, each with a worker at once.
#[test]
fn a_stripe_is_served_as_its_members_are() {
    if !uring() {
        return;
    }
    within(Duration::from_secs(120), "loads from a stripe over tmpfs", || {
        let Some(folder) = folders().into_iter().find(|folder| folder.name == "tmpfs") else { return };
        let paths = ["left", "right"].map(|name| folder.file(name, SIZE, 7));
        let engine = build(Engine::builder().lanes(1));
        let members = paths.map(|path| engine.open(&path, OpenOptions::read()).expect("a file of ours"));
        let stripe = engine.stripe(&members, 1 << 20).expect("two files");
        let workers = engine.facts(&members[0]).kernel_workers;
        assert_eq!(engine.facts(&stripe).kernel_workers, workers);
        let (client, region) =
            (engine.client().expect("a client"), engine.alloc_host(OBJECT).expect("memory"));
        let lease = region.lease(0..OBJECT).expect("all of it");
        let ticket = client.submit(Transfer::read(&stripe).extent(0, lease)).expect("room for a transfer");
        ticket.wait().expect("a completion").result.expect("the load succeeds");
        // A unit of two is begun while fewer than four are in hand.
        assert!(!workers || engine.stats().lanes[0].max_in_flight <= 5, "{:?}", engine.stats().lanes[0]);
    });
}
