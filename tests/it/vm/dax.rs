//! DAX devices: two, one on each node.

use super::drives::in_machine;
use crate::support::{build, check, fill, poison, within};
use fullbore::{Engine, ErrorKind, OpenOptions, Path, Target, Transfer};
use std::collections::BTreeSet;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
const DEVICES: [&str; 2] = ["/dev/dax0.0", "/dev/dax1.0"];

pub fn there() -> bool {
    if !in_machine() {
        return false;
    }
    let all = DEVICES.iter().all(|device| std::path::Path::new(device).exists());
    if !all {
        println!("skipped: this boot has no DAX devices");
    }
    all
}

/// Writes content of `seed` at `offset`, reads it back through other memory, and checks it.
fn round_trip(engine: &Engine, target: &Target, offset: u64, len: usize, seed: u64) {
    let region = engine.alloc_host(2 * len).unwrap();
    let client = engine.client().unwrap();
    let mut lease = region.lease(0..len).unwrap();
    fill(&mut lease, offset, seed);
    let written =
        client.submit(Transfer::write(target).extent(offset, lease).durable()).unwrap().wait().unwrap();
    assert_eq!(written.paths.to_string(), "cpu copy");
    written.result.expect("it is written");
    let mut lease = region.lease(len..2 * len).unwrap();
    poison(&mut lease);
    let read = client.submit(Transfer::read(target).extent(offset, lease).require(Path::Copy)).unwrap();
    check(&read.wait().unwrap().into_leases().expect("it is read")[0], offset, seed, target.name());
}

pub fn open(engine: &Engine) -> Vec<Target> {
    DEVICES.iter().map(|device| engine.open(device, OpenOptions::write()).expect("a DAX device")).collect()
}

#[test]
fn devices_are_copied_from_and_to_by_lanes_on_their_nodes() {
    if !there() {
        return;
    }
    within(LIMIT, "DAX devices", || {
        let engine = build(Engine::builder());
        let devices = open(&engine);
        for (seed, device) in (1..).zip(&devices) {
            let sys = format!("/sys/bus/dax/devices/{}/size", device.name().trim_start_matches("/dev/"));
            let size: u64 = std::fs::read_to_string(sys).unwrap().trim().parse().unwrap();
            assert_eq!(device.size(), size, "{}", device.name());
            round_trip(&engine, device, 12_345, 20 * MIB, seed);
            round_trip(&engine, device, device.size() - MIB as u64, MIB, seed);
            let past = engine.alloc_host(8192).unwrap();
            let transfer = Transfer::read(device).extent(device.size() - 4096, past.lease(0..8192).unwrap());
            let refused = engine.client().unwrap().submit(transfer).unwrap_err().error;
            assert_eq!(refused.kind(), ErrorKind::OutOfBounds, "{refused}");
        }
        let stats = engine.stats();
        let cpus = |name: &str| -> BTreeSet<&str> {
            let lanes =
                stats.lanes.iter().filter(|lane| lane.drive.as_deref() == Some(name) && lane.commands > 0);
            lanes.map(|lane| lane.cpus.as_str()).collect()
        };
        for (node, name) in ["dax0.0", "dax1.0"].iter().enumerate() {
            let of_node =
                std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap();
            assert_eq!(cpus(name), BTreeSet::from([of_node.trim()]), "{name} is on node {node}");
        }
    });
}

#[test]
fn two_devices_stripe_and_work_at_once() {
    if !there() {
        return;
    }
    within(LIMIT, "a stripe of DAX devices", || {
        let engine = build(Engine::builder());
        let stripe = engine.stripe(&open(&engine), 2 << 20).expect("alike");
        assert_eq!(stripe.size(), 2 * open(&engine)[0].size());
        round_trip(&engine, &stripe, 777, 40 * MIB, 9);
        let busy = engine
            .stats()
            .lanes
            .iter()
            .filter(|lane| lane.commands > 0)
            .filter_map(|l| l.drive.clone())
            .collect::<BTreeSet<_>>();
        assert_eq!(busy.len(), 2, "{busy:?}");
    });
}
