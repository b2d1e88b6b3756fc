//! Options out of range, and calls on the wrong kind of engine.

use super::{is, refused};
use crate::support;
use fullbore::{Engine, EngineBuilder, ErrorKind as K, OpenOptions, Transfer};

#[test]
fn options_out_of_range() {
    let bad = |name: &str, builder: EngineBuilder| match builder.null().build() {
        Ok(_) => panic!("{name} out of range was taken"),
        Err(error) => is(&error, K::InvalidInput, &[name]),
    };
    let b = Engine::builder;
    for size in [0, 1, 4095, 4097, 5000, (16 << 20) + 4096, u32::MAX] {
        bad("command_size", b().command_size(size).unit_size(1 << 30));
    }
    for depth in [0, 4097, u32::MAX] {
        bad("lane_depth", b().lane_depth(depth));
    }
    for lanes in [0, 65, usize::MAX] {
        bad("lanes", b().lanes(lanes));
    }
    for transfers in [0, 65_537, usize::MAX] {
        bad("max_transfers", b().max_transfers(transfers));
    }
    for unit in [0, 4096, (128 << 10) - 4096, (1 << 20) + 512, (1 << 30) + 4096, u64::MAX] {
        bad("unit_size", b().unit_size(unit));
    }
    bad("unit_size", b().command_size(2 << 20).unit_size(1 << 20));
}

/// What lies just inside works, and a transfer runs.
#[test]
fn options_at_their_ends() {
    let b = || Engine::builder().lanes(1);
    let ends = [
        b().command_size(4096).unit_size(4096).lane_depth(1).max_transfers(1),
        b().command_size(16 << 20).unit_size(1 << 30).lane_depth(4096),
        b().lanes(64).lane_depth(2).max_transfers(65_536),
    ];
    for builder in ends {
        let engine = builder.null().build().expect("inside the limits");
        let (target, region) = (engine.open_null(1 << 40).unwrap(), engine.alloc_host(1 << 20).unwrap());
        let client = engine.client().unwrap();
        let read = Transfer::read(&target).extent((1 << 40) - (1 << 20), region.lease(0..1 << 20).unwrap());
        let done = client.submit(read).unwrap().wait().unwrap();
        assert_eq!((done.result.is_ok(), done.bytes), (true, 1 << 20));
    }
}

/// The same on rings, with real bytes.
#[test]
fn options_at_their_ends_on_rings() {
    let Some(bench) = super::bench() else { return };
    let b = || Engine::builder().lanes(1);
    let ends = [
        b().command_size(4096).unit_size(4096).lane_depth(1).max_transfers(1),
        b().command_size(16 << 20).unit_size(1 << 30),
        b().lane_depth(4096),
        b().lanes(16).lane_depth(1),
    ];
    for builder in ends {
        let engine = builder.build().expect("inside the limits");
        let target = engine.open(bench.read.name(), OpenOptions::read()).unwrap();
        let (region, client) = (engine.alloc_host(1 << 20).unwrap(), engine.client().unwrap());
        let lease = region.lease(0..1 << 20).unwrap();
        support::load::load(&client, &target, lease, 0, super::SEED);
    }
}

#[test]
fn the_wrong_kind_of_engine() {
    let null = Engine::builder().null().lanes(1).build().unwrap();
    refused(&null, K::Unsupported, &["null queue", "open_null"], || {
        null.open("/proc/version", OpenOptions::read())
    });
    refused(&null, K::Unsupported, &["null queue", "open_null"], || {
        null.open("/nowhere", OpenOptions::read())
    });
    let target = null.open_null(1 << 20).unwrap();
    refused(&null, K::Unsupported, &["only a file"], || target.set_size(2 << 20));
    if support::uring() {
        let real = Engine::builder().lanes(1).build().unwrap();
        refused(&real, K::Unsupported, &["null target", "Engine::builder().null()"], || real.open_null(4096));
    }
}
