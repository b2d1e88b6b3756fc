//! A block that cannot be read, a drive that stalls, a drive that is pulled out.

use super::drives::{Drive, drives};
use super::qmp::{Qmp, Stalled};
use super::rig::{KIB, MIB, Object, Rig, with_lateness};
use crate::support::load::lease_of;
use crate::support::{check, eventually, within};
use fullbore::{Completion, Engine, ErrorKind, OpenOptions, ReleaseError, Ticket, Transfer};
use serde_json::json;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// Where drive `bad` has its media error (`error=10M`).
const BAD: u64 = 10 * MIB;

#[test]
fn a_media_error_fails_its_transfer_alone_and_is_named() {
    let Some([drive]) = drives(["bad"]) else { return };
    within(LIMIT, "a media error", || {
        // The bytes around are put; reading the bad ones back would fail.
        let rig = Rig::new(drive.filled(20 * MIB), Engine::builder().lanes(2).lane_depth(8), 20 * MIB);
        let objects =
            [2, 10, 18].map(|at| Object { trace: at, offset: u64::from(at) * MIB - 512 * KIB, len: MIB });
        let tickets: Vec<_> = objects.iter().map(|object| submit(&rig, object)).collect();
        for (object, ticket) in objects.iter().zip(tickets) {
            let done = ticket.wait().expect("a completion");
            if object.trace != 10 {
                done.result.as_ref().expect("the others are whole");
                check(&lease_of(done), object.offset, drive.seed(), "beside it");
                continue;
            }
            let error = done.result.clone().expect_err("a bad block");
            println!("measured: {error}");
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("Unrecovered Read Error"), "{error}");
            assert_eq!(error.errno(), None, "an NVMe status is no errno");
            assert_eq!(error.nvme_status().map(|status| status & 0x7ff), Some(0x281));
            let (from, len) = (error.offset().expect("where"), error.length().expect("how much"));
            assert!((from..from + len).contains(&BAD) && len <= 128 * KIB, "{from} {len}");
            assert_eq!(done.bytes, MIB - len, "what is not bad was read");
        }
        // Asked again it fails again, and the drive goes on.
        assert!(rig.read(BAD, 4096).result.is_err());
        rig.load(&[Object { trace: 1, offset: 0, len: MIB }]);
    });
}

fn submit(rig: &Rig, object: &Object) -> Ticket {
    let from = object.offset as usize;
    let lease = rig.region.lease(from..from + object.len as usize).expect("free");
    let transfer = Transfer::read(&rig.target).extent(object.offset, lease).trace_id(object.trace);
    rig.client.submit(transfer).expect("room for a transfer")
}

const DEADLINE: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(2);
/// The watchdog looks once a second; twice that is what it is allowed.
const WATCHDOG: Duration = Duration::from_secs(2);

#[test]
fn a_stalled_drive_is_abandoned_in_time_and_its_late_answers_absorbed() {
    let Some([drive]) = drives(["d1"]) else { return };
    within(LIMIT, "a stalled drive", || {
        drive.filled(20 * MIB);
        let builder = Engine::builder().lanes(2).lane_depth(4).deadline(Some(DEADLINE)).grace(GRACE);
        let rig = Rig::new(&drive, builder, 20 * MIB);
        rig.load(&[Object { trace: 1, offset: 0, len: MIB }]);
        let stalled = Stalled::now("d1");
        let began = Instant::now();
        let objects = [0, 4, 8].map(|at| Object { trace: at as u32 + 2, offset: at * MIB, len: 2 * MIB });
        let tickets: Vec<_> = objects.iter().map(|object| submit(&rig, object)).collect();
        let each = |ticket: Ticket| ticket.wait().expect("one completion each");
        let (done, late): (Vec<_>, _) = with_lateness(|| tickets.into_iter().map(each).collect());
        let took = began.elapsed();
        println!("measured: all answered after {took:?}; the machine stood still for {late:?} of it");
        assert!(took >= DEADLINE, "not before the deadline: {took:?}");
        assert!(took <= DEADLINE + GRACE + WATCHDOG + Duration::from_millis(500) + late, "{took:?}");
        let abandoned = done.iter().filter(|done| kind(done) == Some(ErrorKind::Abandoned)).count();
        assert!(
            abandoned > 0,
            "what the drive holds is abandoned: {:?}",
            done.iter().map(kind).collect::<Vec<_>>()
        );
        let in_time =
            |done: &Completion| matches!(kind(done), Some(ErrorKind::Abandoned | ErrorKind::TimedOut));
        assert!(done.iter().all(in_time));
        assert!(rig.engine.stats().quarantined_bytes > 0);
        drop(done); // and the leases of those that timed out with nothing on the drive
        let Rig { engine, region, client, target, .. } = rig;
        let Err(ReleaseError::Quarantined(region)) = region.release(Duration::from_millis(100)) else {
            panic!("the drive may still write into it")
        };
        // Ten seconds in all.
        std::thread::sleep(Duration::from_secs(10).saturating_sub(began.elapsed()));
        drop(stalled);
        let absorbed = eventually(Duration::from_secs(20), || engine.stats().quarantined_bytes == 0);
        assert!(absorbed, "late answers end the quarantine: {:?}", engine.stats().quarantined_bytes);
        region
            .release(Duration::from_secs(5))
            .map_err(|e| e.to_string())
            .expect("nothing is under way any more");
        let region = engine.alloc_host(MIB as usize).expect("memory");
        let rig = Rig { drive: drive.clone(), client, region, target, engine };
        rig.load(&[Object { trace: 9, offset: MIB, len: MIB }]);
    });
}

fn kind(done: &Completion) -> Option<ErrorKind> {
    done.result.as_ref().err().map(|e| e.kind())
}

/// `gone` is pulled out under load; `d0`, of the same engine, goes on.
#[test]
fn a_drive_that_is_pulled_out_fails_its_transfers_and_no_others() {
    let Some([pulled, other]) = drives(["gone", "d0"]) else { return };
    within(LIMIT, "a drive pulled out", || {
        let rig = Rig::new(pulled.filled(20 * MIB), Engine::builder().lanes(2).lane_depth(8), 20 * MIB);
        other.filled(20 * MIB);
        let second = rig.engine.open(&other.node, OpenOptions::read()).expect("another drive of this engine");
        let region = rig.engine.alloc_host(MIB as usize).expect("memory");
        let mut qmp = Qmp::open();
        qmp.throttle("gone", 4 * MIB);
        let objects: Vec<_> =
            (0..20).map(|i| Object { trace: i, offset: u64::from(i) * MIB, len: MIB }).collect();
        let mut tickets: Vec<_> = objects.iter().map(|object| submit(&rig, object)).collect();
        qmp.ask("device_del", json!({"id": "gone"}));
        let mut loads = 0;
        let still = |tickets: &mut Vec<Ticket>| {
            tickets.retain_mut(|ticket| match ticket.poll() {
                Some(done) => judge(done, &pulled),
                None => true,
            });
            !tickets.is_empty()
        };
        let began = Instant::now();
        while still(&mut tickets) {
            assert!(began.elapsed() < Duration::from_secs(60), "{} transfers without an end", tickets.len());
            let lease = region.lease(0..MIB as usize).expect("free");
            let done = rig.client.submit(Transfer::read(&second).extent(0, lease)).unwrap().wait().unwrap();
            done.result.as_ref().expect("the other drive goes on");
            check(&lease_of(done), 0, other.seed(), "the other drive");
            loads += 1;
        }
        println!(
            "measured: all ended {:?} after the pull; the other drive gave {loads} objects",
            began.elapsed()
        );
        assert!(loads >= 5, "a drive has lanes of its own: {loads}");
        qmp.wait_for("DEVICE_DELETED", "gone");
        assert!(rig.read(0, 4096).result.is_err(), "what is gone answers with an error");
        let Rig { engine, target, client, .. } = rig;
        drop(target);
        plug_in(&mut qmp, "gone");
        let back = Drive::of("gone-1");
        let target = engine.open(&back.node, OpenOptions::read()).expect("opened anew");
        let region = engine.alloc_host(MIB as usize).expect("memory");
        Rig { drive: back, client, region, target, engine }.load(&[Object { trace: 1, offset: 0, len: MIB }]);
    });
}

/// Right, or an error that says the drive is gone. Answers false: it ended.
fn judge(done: Completion, drive: &Drive) -> bool {
    let result = done.result.clone();
    let lease = lease_of(done);
    match result {
        Ok(()) => check(&lease, lease.start() as u64, drive.seed(), "before it was pulled"),
        Err(e) => {
            println!("measured: {e}");
            assert!(matches!(e.kind(), ErrorKind::Io | ErrorKind::Closed | ErrorKind::TimedOut), "{e}");
        }
    }
    false
}

/// Plugs a drive in again as boot.py made it, and gives it its name in /dev/drive.
fn plug_in(qmp: &mut Qmp, id: &str) {
    qmp.ask(
        "device_add",
        json!({"driver": "nvme", "id": id, "bus": format!("{id}-port"), "serial": id, "drive": format!("{id}-1"),
               "logical_block_size": 4096, "physical_block_size": 4096, "mdts": 7, "max_ioqpairs": 4,
               "cmb_size_mb": 64}),
    );
    let found = eventually(Duration::from_secs(30), || link(id));
    assert!(found, "the drive came back");
}

/// Links /dev/drive/ID-1 to the character device with that serial number, if it is there.
fn link(serial: &str) -> bool {
    let Ok(entries) = std::fs::read_dir("/sys/class/nvme-generic") else { return false };
    for entry in entries.flatten() {
        let found = std::fs::read_to_string(entry.path().join("device/serial")).unwrap_or_default();
        let node = std::path::Path::new("/dev").join(entry.file_name());
        let block = entry.file_name().to_string_lossy().replacen("ng", "nvme", 1);
        if found.trim() == serial && node.exists() && std::path::Path::new("/dev").join(block).exists() {
            let link = format!("/dev/drive/{serial}-1");
            let _ = std::fs::remove_file(&link);
            return std::os::unix::fs::symlink(node, link).is_ok();
        }
    }
    false
}
