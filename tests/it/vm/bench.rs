//! `fullbore bench` on a drive: the serial rival, the ceilings, and the drive's own count of bytes.

use super::drives::{SMART_UNIT, drives};
use super::rig::MIB;
use crate::bench::{bench, bench_ok, check_ceilings, check_compared};
use crate::doctor::PROGRAM;
use crate::support::within;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
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

#[test]
fn over_passthrough_both_land_in_as_much_memory() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "bench beside fio", || {
        drive.filled(16 * MIB);
        let name = format!("--filename={}", drive.node.display());
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{key}: {of:#}"));
        // 8 MiB in flight: more than fio has of its own but as 2 jobs of 32.
        let line = [&name[..], "--bs=256k", "--size=8m", "--iodepth=32", "--verify=0", "--compare=fio"];
        let json = bench_ok(&line);
        let compared = &json["fullbore"]["compare"];
        check_compared(compared, "fio");
        assert_eq!(number(compared, "footprint_bytes"), number(compared, "rival_footprint_bytes"));
        let ways = compared["fio"].as_array().unwrap();
        assert_eq!(ways.len(), 4, "{compared:#}");
        for way in ways {
            let fio = number(way, "jobs") * number(way, "iodepth") * number(compared, "fio_bs");
            let both = [number(way, "footprint_bytes"), number(way, "rival_footprint_bytes")];
            assert_eq!(both, [fio; 2], "{compared:#}");
        }
        assert_eq!(number(&compared["whole_objects"], "footprint_bytes"), 8 * MIB);
        let job = ["--name=a", &name, "--bs=1m", "--size=16m", "--iodepth=16", "--rw=read", "--compare=fio"];
        let json = bench_ok(&job);
        let compared = &json["fullbore"]["beyond"][0]["compare"];
        check_compared(compared, "fio");
        let both = ["footprint_bytes", "rival_footprint_bytes"].map(|key| number(compared, key));
        assert!(both[0] == both[1] && both[0] <= 8 * MIB, "{compared:#}");
        assert!(
            compared["how"].as_str().unwrap().contains("cut from 16 of 1m to fio's memory"),
            "{compared:#}"
        );
    });
}

#[test]
fn who_is_not_root_is_told_that_the_drives_count_is_roots() {
    let Some([drive]) = drives(["d0"]) else { return };
    within(LIMIT, "bench as nobody", || {
        drive.filled(MIB);
        let node = fs::canonicalize(&drive.node).expect("a node");
        let before = fs::metadata(&node).expect("a node").permissions();
        fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).expect("it is root's");
        let name = format!("--filename={}", node.display());
        let job = ["--name=a", &name, "--bs=256k", "--size=1m", "--rw=read"];
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM, "bench"];
        let run = |more: &[&str]| Command::new("setpriv").args(nobody).args(job).args(more).output();
        let (json, text) = (run(&["--output-format=json"]), run(&[]));
        fs::set_permissions(&node, before).expect("it is root's");
        let (json, text) = (json.expect("setpriv"), text.expect("setpriv"));
        let err = String::from_utf8_lossy(&json.stderr);
        if !json.status.success() && err.to_lowercase().contains("permission") {
            // Linux 6.1 has passthrough for root alone.
            return println!("skipped: nobody may read this drive: {err}");
        }
        let json: Value = serde_json::from_slice(&json.stdout).expect(&err);
        let smart = &json["fullbore"]["smart"];
        assert!(smart["error"].as_str().unwrap().contains("run as root"), "{smart:#}");
        assert!(smart["read_bytes"].is_null() && smart["our_read_bytes"].as_u64() >= Some(MIB), "{smart:#}");
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with("SMART: not read: ")).expect(&text);
        assert!(line.contains("run as root"), "{line}");
    });
}
