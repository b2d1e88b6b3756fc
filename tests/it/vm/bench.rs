//! `fullbore bench` on a drive: the serial rival, the ceilings, and the drive's own count of bytes.

use super::drives::{SMART_UNIT, drives};
use super::rig::MIB;
use crate::bench::{bench, bench_ok, check_ceilings, check_compared};
use crate::support::within;
use serde_json::Value;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(200);

/// What the drive counted and what we say agree, but for units begun.
#[track_caller]
fn check_smart(smart: &Value) {
    let number = |name: &str| smart[name].as_u64().unwrap_or_else(|| panic!("{name}: {smart:#}"));
    let (theirs, ours) = (number("read_bytes"), number("our_read_bytes"));
    println!("measured: SMART says {theirs} bytes, we {ours}");
    // udev and the look at the first blocks read a little, too.
    assert!(ours > 0 && theirs.abs_diff(ours) <= 4 * SMART_UNIT + MIB, "{smart:#}");
}

#[test]
fn the_table_and_a_job_are_held_against_serial_ceilings_and_the_drives_own_count() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "bench on a drive", || {
        drive.filled(16 * MIB);
        let name = format!("--filename={}", drive.node.display());
        let json = bench_ok(&[&name, "--bs=256k", "--size=8m", "--iodepth=4", "--compare=serial"]);
        let ours = &json["fullbore"];
        check_compared(&ours["compare"], "serial");
        check_ceilings(&ours["ceilings"]);
        check_smart(&ours["smart"]);
        let job =
            ["--name=a", &name, "--bs=1m", "--size=16m", "--iodepth=4", "--rw=read", "--compare=serial"];
        let json = bench_ok(&job);
        let ours = &json["fullbore"];
        check_compared(&ours["beyond"][0]["compare"], "serial");
        check_ceilings(&ours["beyond"][0]["ceilings"]);
        check_smart(&ours["smart"]);
        // A drive is not written to unasked.
        let (_, status, err) = bench(&["--name=w", &name, "--bs=1m", "--size=1m", "--rw=write"]);
        assert!(status == 2 && err.contains("allow_destructive"), "{err}");
    });
}
