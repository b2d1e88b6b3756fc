//! Threads and processors: many clients, clients that move, engines that come and go.

use super::{LIMIT, SEED, SIZE, place};
use crate::support::load::{lease_of, load};
use crate::support::{self, check, cpus_of, descriptors, eventually, poison, threads, within};
use fullbore::{Client, Completion, Engine, ErrorKind, HostLease, Rejected, Target, Transfer};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::Barrier;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

const CLIENTS: usize = 64;
const EACH: usize = 128 << 10;
const ROUNDS: usize = 12;

/// 64 clients, each on a thread of its own, with fewer entries than clients: every load is right and none is lost.
#[test]
fn sixty_four_client_threads() {
    let Some(place) = place() else { return };
    within(LIMIT, "64 client threads", || {
        let engine = Engine::builder().lanes(2).max_transfers(40).build().unwrap();
        let (target, region) = (place.open(&engine), engine.alloc_host(CLIENTS * EACH).unwrap());
        let start = Barrier::new(CLIENTS);
        let refused = std::thread::scope(|scope| {
            let (engine, target, region, start) = (&engine, &target, &region, &start);
            let threads: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let lease = region.lease(number * EACH..(number + 1) * EACH).unwrap();
                    scope.spawn(move || {
                        let client = engine.client().unwrap();
                        start.wait();
                        one_of_many(&client, target, lease, number)
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum::<u32>()
        });
        let stats = engine.stats();
        assert_eq!(stats.active, 0);
        assert_eq!(stats.lanes.iter().map(|l| l.bytes).sum::<u64>(), (CLIENTS * ROUNDS * EACH) as u64);
        eprintln!("64 clients over 40 entries: {refused} times busy");
    });
}

/// Loads and checks, asking again while all entries are taken; answers how often that was.
fn one_of_many(client: &Client, target: &Target, lease: HostLease, number: usize) -> u32 {
    let (mut lease, mut refused) = (Some(lease), 0);
    for round in 0..ROUNDS {
        let offset = ((number * 37 + round * 101) % 1400 * 16_384) as u64;
        assert!(offset + EACH as u64 <= SIZE);
        let mut memory = lease.take().unwrap();
        poison(&mut memory);
        let mut transfer = Transfer::read(target).extent(offset, memory);
        let done = loop {
            match ask(client, transfer, round as u64) {
                Ok(done) => break done,
                Err(rejected) => {
                    assert_eq!(rejected.error.kind(), ErrorKind::Busy);
                    (transfer, refused) = (rejected.transfer, refused + 1);
                    std::thread::yield_now();
                }
            }
        };
        done.result.as_ref().unwrap();
        let memory = lease_of(done);
        check(&memory, offset, SEED, "one of 64 clients");
        lease = Some(memory);
    }
    refused
}

/// By ticket and by tag in turn.
#[allow(clippy::result_large_err)] // as the calls it makes
fn ask(client: &Client, transfer: Transfer, round: u64) -> Result<Completion, Rejected> {
    if round.is_multiple_of(2) {
        return Ok(client.submit(transfer)?.wait().unwrap());
    }
    client.submit_tagged(transfer, round)?;
    let mut out = Vec::new();
    client.wait(1, &mut out, Some(LIMIT)).unwrap();
    assert_eq!((out.len(), out[0].tag), (1, round), "mine, and one");
    Ok(out.remove(0))
}

#[test]
fn a_client_moves_between_threads() {
    let Some(place) = place() else { return };
    within(LIMIT, "a client that moves", || {
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (target, region) = (place.open(&engine), engine.alloc_host(4 << 20).unwrap());
        let mut client = engine.client().unwrap();
        for hop in 0..6u64 {
            let mut lease = region.lease(0..4 << 20).unwrap();
            poison(&mut lease);
            let transfer = Transfer::read(&target).extent(hop << 20, lease);
            // Submitted here, fetched there, by a thread that never slept on this client before.
            client.submit_tagged(transfer, hop).unwrap();
            client = std::thread::spawn(move || {
                let mut done = Vec::new();
                client.wait(1, &mut done, None).unwrap();
                assert_eq!((done.len(), done[0].tag), (1, hop));
                check(&lease_of(done.remove(0)), hop << 20, SEED, "fetched elsewhere");
                client
            })
            .join()
            .unwrap();
        }
    });
}

/// Moves every thread of this process.
fn move_all_to(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu).unwrap());
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let id = task.file_name().to_str().unwrap().parse().unwrap();
        let _ = sched_setaffinity(Pid::from_raw(id), &set); // it may have ended meanwhile
    }
}

#[test]
fn affinity_that_changes_after_the_start() {
    let name = "lifecycle::threads::affinity_that_changes_after_the_start";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        let cpus = cpus_of(0);
        let engine = Engine::builder().lanes(2).build().unwrap();
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(4 << 20).unwrap(), engine.client().unwrap());
        let mut lease = region.lease(0..4 << 20).unwrap();
        let (first, last) = ([cpus[0]], [*cpus.last().unwrap()]);
        for (number, cpus) in [&first[..], &last[..], &cpus[..], &first[..]].into_iter().enumerate() {
            move_all_to(cpus);
            // Also what is in flight while they move.
            let big = region_of(&engine);
            let ticket = client.submit(Transfer::read(&target).extent(0, big)).unwrap();
            move_all_to(cpus);
            ticket.wait().unwrap().result.unwrap();
            lease = load(&client, &target, lease, (number as u64) << 20, SEED).0;
        }
        let before: u64 = engine.stats().lanes.iter().map(|l| l.commands).sum();
        assert!(before > 0 && engine.stats().lanes.iter().all(|l| l.alive && !l.stalled));
    });
}

fn region_of(engine: &Engine) -> fullbore::HostLease {
    engine.alloc_host(8 << 20).unwrap().lease(0..8 << 20).unwrap()
}

#[test]
fn a_cpuset_of_one_cpu() {
    let name = "lifecycle::threads::a_cpuset_of_one_cpu";
    let cpu = *cpus_of(0).last().unwrap();
    support::child(name, &[]).on_cpu(cpu).run(|| {
        let Some(place) = place() else { return };
        assert_eq!(cpus_of(0).len(), 1, "the child runs on one CPU");
        let engine = Engine::builder().build().unwrap();
        assert_eq!(engine.lanes(), 1, "as many lanes as CPUs");
        assert_eq!(engine.stats().lanes[0].cpus, cpus_of(0)[0].to_string());
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(20 << 20).unwrap(), engine.client().unwrap());
        let (lease, _) = load(&client, &target, region.lease(0..20 << 20).unwrap(), 4096, SEED);
        drop((lease, engine));
        // More lanes than CPUs, because somebody asked for them.
        let engine = Engine::builder().lanes(3).build().unwrap();
        assert_eq!(engine.lanes(), 3);
        let (target, region, client) =
            (place.open(&engine), engine.alloc_host(20 << 20).unwrap(), engine.client().unwrap());
        load(&client, &target, region.lease(0..20 << 20).unwrap(), 0, SEED);
    });
}

#[test]
fn engines_that_come_and_go_leave_nothing() {
    let name = "lifecycle::threads::engines_that_come_and_go_leave_nothing";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(place) = place() else { return };
        let turn = |number: usize| {
            let builder = Engine::builder().lanes(1 + number % 3).clone_buffers(number.is_multiple_of(2));
            let engine = builder.build().unwrap();
            let (target, region, client) =
                (place.open(&engine), engine.alloc_host(256 << 10).unwrap(), engine.client().unwrap());
            load(&client, &target, region.lease(0..256 << 10).unwrap(), 4096 * number as u64, SEED);
            // A thread takes its name, and leaves, in its own time.
            let all = || threads("fullbore-").len() == engine.lanes() + 1;
            assert!(eventually(SOON, all), "lanes and the watchdog: {:?}", threads("fullbore-"));
            drop(engine);
            assert!(eventually(SOON, || threads("fullbore-").is_empty()), "{:?}", threads("fullbore-"));
        };
        (0..6).for_each(turn);
        let (files, tasks) = (descriptors(), threads(""));
        let (resident, pinned) = (support::status_kib("VmRSS"), support::status_kib("VmPin"));
        (0..200).for_each(turn);
        assert_eq!(descriptors(), files, "descriptors");
        assert_eq!(threads(""), tasks, "threads");
        assert!(eventually(SOON, || support::status_kib("VmPin") <= pinned), "pins");
        let grown = support::status_kib("VmRSS").saturating_sub(resident);
        assert!(grown < 16 << 10, "200 engines left {grown} KiB behind");
    });
}
