//! Several drives as one.

use super::drives::{Drive, drives};
use super::rig::{KIB, MIB, seen_once};
use super::seen::{Seen, outstanding};
use super::trace::Tracer;
use crate::support::kernel::Pages;
use crate::support::load::{lease_of, load_raw, raw};
use crate::support::{build, fill, first_mismatch, poison, within};
use fullbore::{Engine, ErrorKind, OpenOptions, Target, Transfer};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const STRIPE: u64 = MIB;

fn open(engine: &Engine, drives: &[&Drive], options: &OpenOptions) -> Vec<Target> {
    drives.iter().map(|drive| engine.open(&drive.node, options.clone()).expect("a drive")).collect()
}

/// Where a byte of the stripe is: which member, at which offset.
fn place(offset: u64, members: u64) -> (usize, u64) {
    let (unit, inside) = (offset / STRIPE, offset % STRIPE);
    ((unit % members) as usize, unit / members * STRIPE + inside)
}

#[test]
fn a_stripe_reads_and_writes_its_members_in_turn() {
    let Some([one, two]) = drives(["d0", "d1"]) else { return };
    within(LIMIT, "a stripe", || {
        let engine = build(Engine::builder().lanes(2));
        let members = open(&engine, &[&one, &two], &OpenOptions::write());
        let stripe = engine.stripe(&members, STRIPE);
        let stripe = stripe.expect("drives of one geometry");
        assert_eq!(stripe.size(), 2 * one.size);
        let client = engine.client().unwrap();
        let region = engine.alloc_host(16 << 20).unwrap();
        // From the middle of a stripe unit to the middle of another.
        let (offset, len, seed) = (200 * MIB + 300 * KIB, 7 * MIB + 8 * KIB, 77);
        let mut lease = region.lease(0..len as usize).unwrap();
        fill(&mut lease, offset, seed);
        let written = client.submit(Transfer::write(&stripe).extent(offset, lease)).unwrap().wait().unwrap();
        written.result.as_ref().expect("written");
        for at in (offset..offset + len).step_by(4096) {
            let (member, inside) = place(at, 2);
            let mut expected = vec![0; 4096];
            fill(&mut expected, at, seed);
            if at % (64 * 4096) == 0 || at / STRIPE != (at - 4096) / STRIPE {
                let found = [&one, &two][member].bytes(inside, 4096);
                assert!(found == expected, "byte {at} of the stripe is byte {inside} of member {member}");
            }
        }
        let mut lease = lease_of(written);
        poison(&mut lease);
        let read = client.submit(Transfer::read(&stripe).extent(offset, lease)).unwrap().wait().unwrap();
        read.result.as_ref().expect("read");
        assert_eq!(first_mismatch(&lease_of(read), offset, seed), None);
    });
}

/// The share of time in which both drives had commands, of that in which one had.
fn together(commands: &[Seen], drives: [&Drive; 2]) -> f64 {
    let [a, b] = drives.map(|drive| outstanding(commands.iter().filter(|c| c.disk == drive.disk)));
    let mut times: Vec<_> = a.iter().chain(&b).map(|step| step.0).collect();
    times.sort_unstable();
    let at = |steps: &[(u64, u64)], ns| {
        let after = steps.partition_point(|step| step.0 <= ns);
        after > 0 && steps[after - 1].1 > 0
    };
    let (mut both, mut some) = (0, 0);
    for pair in times.windows(2) {
        let (of_a, of_b) = (at(&a, pair[0]), at(&b, pair[0]));
        both += if of_a && of_b { pair[1] - pair[0] } else { 0 };
        some += if of_a || of_b { pair[1] - pair[0] } else { 0 };
    }
    both as f64 / some.max(1) as f64
}

/// Loads for at least `at_least`; answers bytes a second.
fn rate(engine: &Engine, target: &Target, at_least: Duration) -> f64 {
    let (client, len) = (engine.client().unwrap(), 8 * MIB);
    let region = engine.alloc_host(2 * len as usize).unwrap();
    let submit = |i: u64| {
        let half = (i % 2 * len) as usize;
        let lease = region.lease(half..half + len as usize).expect("the one before the last ended");
        client.submit(Transfer::read(target).extent(i % 8 * len, lease).trace_id(i as u32)).unwrap()
    };
    let begin = Instant::now();
    let (mut under_way, mut bytes) = (submit(0), 0);
    for i in 1.. {
        // Two at once: the drive is never without work.
        let next = submit(i);
        let done = under_way.wait().expect("a completion");
        done.result.as_ref().expect("read");
        bytes += done.bytes;
        under_way = next;
        if begin.elapsed() >= at_least {
            break;
        }
    }
    let took = begin.elapsed();
    under_way.wait().expect("a completion").result.expect("read");
    bytes as f64 / took.as_secs_f64()
}

/// Both are throttled: the drives are the limit.
#[test]
fn two_drives_give_one_and_a_half_times_one() {
    let Some([one, two]) = drives(["t0", "t1"]) else { return };
    within(LIMIT, "two drives against one", || {
        let engine = build(Engine::builder().lanes(2).lane_depth(16));
        let members = open(&engine, &[&one, &two], &OpenOptions::read());
        let stripe = engine.stripe(&members, STRIPE);
        let stripe = stripe.expect("drives of one geometry");
        seen_once(|| {
            let single = rate(&engine, &members[0], Duration::from_secs(5));
            let tracer = Tracer::start();
            let both = rate(&engine, &stripe, Duration::from_secs(5));
            let commands = tracer.stop().commands;
            let together = together(&commands, [&one, &two]);
            let measured = format!(
                "one {:.1} MB/s, two {:.1} ({:.2} times), both at work {:.0} % of the time",
                single / 1e6,
                both / 1e6,
                both / single,
                together * 100.0
            );
            println!("measured: {measured}");
            if both / single >= 1.5 && together >= 0.9 { Ok(()) } else { Err(measured) }
        });
    });
}

#[test]
fn drives_of_other_geometry_do_not_stripe() {
    let Some([wide, narrow]) = drives(["d0", "b512"]) else { return };
    within(LIMIT, "geometries", || {
        let engine = build(Engine::builder().lanes(1));
        let members = open(&engine, &[&wide, &narrow], &OpenOptions::read());
        let refused = engine.stripe(&members, STRIPE);
        let error = refused.map(|target| target.size()).expect_err("4096 and 512");
        println!("measured: {error}");
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported), "{error}");
        assert!(error.to_string().contains("block"), "{error}");
        for stripe in [0, 1000, 4095] {
            let refused = engine.stripe(&members[..1], stripe);
            assert_eq!(refused.expect_err("no stripe size").kind(), ErrorKind::InvalidInput, "{stripe}");
        }
    });
}

/// Unregistered memory over a stripe: the path is its members'.
#[test]
fn a_stripe_says_its_members_path() {
    let Some([one, two]) = drives(["d0", "d1"]) else { return };
    within(LIMIT, "paths", || {
        let engine = build(Engine::builder().lanes(2));
        let members = open(&engine, &[one.filled(2 * MIB), two.filled(2 * MIB)], &OpenOptions::read());
        let stripe = engine.stripe(&members, STRIPE);
        let stripe = stripe.expect("drives of one geometry");
        let (client, pages) = (engine.client().unwrap(), Pages::new(4 << 20));
        let done = load_raw(&client, &stripe, &mut [raw(0, pages.addr() as *mut u8, pages.len())]);
        assert_eq!(done.paths.to_string(), "uring-cmd");
    });
}
