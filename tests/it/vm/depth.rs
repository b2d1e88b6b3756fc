//! The device is kept full: seen by the driver's tracer, not by our own counters alone.

use super::drives::{Drive, drives};
use super::rig::{KIB, MIB, Object, Rig, on, row, seen_once};
use super::seen::{by_queue, extents, most_objects, most_outstanding, share_at};
use super::trace::Tracer;
use crate::support::within;
use fullbore::Engine;
use std::process::Command;
use std::time::Duration;

const DEPTH: u32 = 16;
const LANES: usize = 2;
/// "At least 90 % of the depth", in commands.
const NINETY_PERCENT: u64 = (LANES as u64 * DEPTH as u64 * 9).div_ceil(10);

fn builder() -> fullbore::EngineBuilder {
    Engine::builder().lanes(LANES).lane_depth(DEPTH)
}

/// t0 is slow (`throttle=`): the drive is the limit, not the emulated processor that feeds it.
#[test]
fn one_object_fills_the_device_from_first_fill_to_tail() {
    let Some([drive]) = drives(["t0"]) else { return };
    within(Duration::from_secs(60), "one object", || {
        let rig = Rig::new(drive.filled(20 * MIB), builder(), 20 * MIB);
        let mut commands = Vec::new();
        seen_once(|| {
            let (loaded, traced) = rig.traced(&[Object { trace: 7, offset: 0, len: 20 * MIB }]);
            println!("measured: 20 MiB at full depth in {:?}", loaded[0].took);
            assert_eq!(traced.len() as u64, 20 * MIB / (128 * KIB));
            if by_queue(&traced).len() < LANES {
                return Err("a lane took no part".into());
            }
            let share = share_at(&traced, NINETY_PERCENT);
            let all = LANES as u32 * DEPTH;
            println!("measured: >= {NINETY_PERCENT} of {all} outstanding {:.1} % of the time", share * 100.0);
            commands = traced;
            if share >= 0.9 { Ok(()) } else { Err(format!("{share}")) }
        });
        let (ours, traced) = (rig.most_in_flight(), most_outstanding(&commands));
        println!("measured: most in flight: ours {ours}, the trace's {traced}");
        assert!(ours.abs_diff(traced) * 20 <= traced, "ours {ours}, the trace's {traced}");
        assert!(traced <= u64::from(DEPTH) * LANES as u64, "never more than asked for");
    });
}

/// The first object keeps the drive busy (what an idle one takes at once, and half a second more) while the eight behind
/// it come in: there is room for all of them, and on a drive that idles the first would be done before the last was issued.
#[test]
fn eight_objects_are_outstanding_at_once() {
    let Some([drive]) = drives(["t0"]) else { return };
    within(Duration::from_secs(60), "eight objects", || {
        let rig = Rig::new(drive.filled(32 * MIB), builder().lane_depth(128), 32 * MIB);
        let first = Object { trace: 100, offset: 8 * MIB, len: 20 * MIB };
        let eight = row(1, 8, MIB);
        seen_once(|| {
            let (_, commands) = rig.traced(&[&[first][..], &eight].concat());
            for object in &eight {
                let blocks = object.offset / drive.lba..(object.offset + object.len) / drive.lba;
                assert_eq!(extents(&commands, object.trace), [blocks], "user_data names the object");
            }
            // The first and the eight, unless the engine was held up until the first was done.
            let most = most_objects(&commands);
            if most == 9 { Ok(()) } else { Err(format!("{most} objects at once")) }
        });
    });
}

/// Small commands go to the driver in batches, which 6.1 turns round: that the tracer's commands are joined to the right
/// user_data is seen here, as each object must have its own blocks and no other's.
#[test]
fn the_high_half_of_user_data_is_the_trace_id() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(Duration::from_secs(60), "trace ids", || {
        let rig = Rig::new(drive.filled(4 * MIB), builder().command_size(4096), MIB);
        let objects: Vec<_> = [1, 0xdead_beef, 0x8000_0000, u32::MAX, 0]
            .iter()
            .zip(0u64..)
            .map(|(trace, i)| Object { trace: *trace, offset: i * 7 * 4096, len: 5 * 4096 })
            .collect();
        let (_, commands) = rig.traced(&objects);
        assert_eq!(commands.len(), 25);
        for object in objects {
            let blocks = object.offset / drive.lba..(object.offset + object.len) / drive.lba;
            assert_eq!(extents(&commands, object.trace), [blocks], "{object:?}");
        }
    });
}

/// `slow` answers each command after the same time, any number at once: as a drive does, and as the emulated processor
/// does not let the others be.
#[test]
fn the_engine_is_five_times_as_fast_as_one_command_at_a_time() {
    let Some([drive]) = drives(["slow"]) else { return };
    let ratio = serial_to_engine(&drive);
    assert!(ratio >= 5.0, "{ratio}");
}

/// The emulation itself costs a core here: measured, with a bar that says only that depth helps.
#[test]
fn on_the_plain_drive_depth_helps() {
    let Some([drive]) = drives(["d0"]) else { return };
    let ratio = serial_to_engine(&drive);
    assert!(ratio >= 2.0, "{ratio}");
}

/// How many times as long one command at a time takes: the median of five pairs, side by side.
fn serial_to_engine(drive: &Drive) -> f64 {
    within(Duration::from_secs(120), "serial against engine", || {
        let serial = Rig::new(drive.filled(20 * MIB), Engine::builder().lanes(1).lane_depth(1), 20 * MIB);
        let engine = Rig::new(drive, Engine::builder().lanes(LANES).lane_depth(32), 20 * MIB);
        let took = |rig: &Rig| rig.load(&row(1, 1, 20 * MIB))[0].took.as_secs_f64();
        let mut ratios: Vec<_> = (0..5).map(|_| took(&serial) / took(&engine)).collect();
        ratios.sort_by(f64::total_cmp);
        println!("measured: {}: serial takes {ratios:.1?} times as long", drive.name);
        ratios[2]
    })
}

/// The tracer's commands and io_uring's are joined rightly: shown on another program's passthrough, whose first batch
/// has buffers in a row. Small commands go to the driver in batches, which 6.1 turns round.
#[test]
fn the_trace_of_a_rival_joins() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(Duration::from_secs(60), "fio", || {
        let tracer = Tracer::start();
        let file = format!("--filename={}", drive.node.display());
        // On one CPU, whose queue it has.
        let batch = [
            "--cpus_allowed=0",
            "--iodepth=16",
            "--iodepth_batch_submit=16",
            "--iodepth_batch_complete_min=8",
        ];
        let job =
            ["--name=x", "--ioengine=io_uring_cmd", "--cmd_type=nvme", "--rw=read", "--bs=32k", "--size=2m"];
        let ran = Command::new("fio").args(job).args(batch).arg(file).output().expect("fio");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let commands = on(tracer.stop().commands, &drive);
        assert_eq!((commands.len(), by_queue(&commands).len()), (64, 1));
        let mut first: Vec<_> = commands[..16].iter().map(|c| (c.slba, c.user_data)).collect();
        first.sort_unstable();
        assert_eq!(first.iter().map(|c| c.0).collect::<Vec<_>>(), (0..16).map(|i| i * 8).collect::<Vec<_>>());
        assert!(
            first.is_sorted_by_key(|c| std::cmp::Reverse(c.1)),
            "fio uses its last buffer first: {first:x?}"
        );
        assert!(most_outstanding(&commands) > 8, "they were outstanding together");
    });
}
