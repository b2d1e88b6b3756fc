//! What reports set apart: where an object's time went, what may have been cold, what is done otherwise than in fio.

use super::{MIB, PROGRAM, bench, bench_ok, check_compared, direct_folder};
use crate::support::cuda::with_cuda;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The report for people.
#[track_caller]
fn normal(words: &[&str]) -> String {
    let out = Command::new(PROGRAM).arg("bench").args(words).output().expect("it runs");
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Waiting, device and copy, in ns; of the table's engine arm, and of a job that does the same.
fn splits(file: &Path, more: &[&str]) -> [(Value, [f64; 3]); 2] {
    let name = format!("--filename={}", file.display());
    let line = [&[&name[..], "--mem=gpu:0", "--size=2m"], more].concat();
    let of = |whole: &Value| {
        let split = &whole["split_mean_ns"];
        ["waiting", "device", "copy"].map(|part| number(&split[part]))
    };
    let table = bench_ok(&[&line[..], &["--bs=256k", "--arm=1", "--verify=0"]].concat());
    let arm = &table["fullbore"]["arms"][0];
    let job = bench_ok(&[&line[..], &["--bs=1m", "--name=a"]].concat());
    let ours = &job["jobs"][0];
    [(arm.clone(), of(arm)), (ours.clone(), of(&ours["fullbore"]))]
}

/// The parts are those of a whole.
#[track_caller]
fn check_sum(job: &Value, split: [f64; 3]) {
    let (sum, mean) = (split.iter().sum::<f64>(), number(&job["read"]["lat_ns"]["mean"]));
    assert!((sum - mean).abs() < 0.01 * mean, "{split:?} are not {mean}");
}

#[test]
fn a_slow_copy_is_copy() {
    // 256 KiB take 52 ms and more, 1 MiB 209: more than twice what a device takes on a busy machine.
    let slow = [("FAKE_CUDA_GBPS", "0.005")];
    with_cuda("bench::apart::a_slow_copy_is_copy", &slow).run(|| {
        let Some(folder) = direct_folder() else { return };
        let file = folder.file("data", 4 * MIB, 7);
        let [(arm, table), (job, jobs)] = splits(&file, &[]);
        for (what, [waiting, device, copy], least) in [(arm, table, 52e6), (job.clone(), jobs, 209e6)] {
            assert!(copy >= least, "{copy}: {what:#}");
            assert!(device < copy / 2.0 && waiting < copy / 2.0, "{waiting} {device} {copy}: {what:#}");
        }
        check_sum(&job, jobs);
    });
}

#[test]
fn a_slow_device_is_device() {
    with_cuda("bench::apart::a_slow_device_is_device", &[]).run(|| {
        let Some(folder) = direct_folder() else { return };
        let file = folder.file("data", 4 * MIB, 7);
        // A command of 4 KiB, wait, the next: far from what the copies do.
        let slow = ["--cmd_size=4k", "--lanes=1", "--lane_depth=1"];
        let [(arm, table), (job, jobs)] = splits(&file, &slow);
        for (what, [waiting, device, copy]) in [(arm, table), (job.clone(), jobs)] {
            assert!(device > 2.0 * copy && device > waiting, "{waiting} {device} {copy}: {what:#}");
            assert!(copy > 0.0, "there is a copy after the last byte: {what:#}");
        }
        check_sum(&job, jobs);
        let text = normal(&["--name=a", &format!("--filename={}", file.display()), "--bs=1m", "--mem=gpu:0"]);
        let line = text.lines().find(|line| line.contains("split     : waiting for room ")).expect("a line");
        assert!(line.contains(", device ") && line.contains(", copy "), "{line}");
    });
}

#[test]
fn objects_in_host_memory_have_no_copy() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 4 * MIB, 7);
    let name = format!("--filename={}", file.display());
    let json = bench_ok(&[&name, "--bs=256k", "--iodepth=4"]);
    for arm in json["fullbore"]["arms"].as_array().unwrap() {
        let split = &arm["split_mean_ns"];
        assert!(number(&split["device"]) > 0.0 && number(&split["copy"]) == 0.0, "{arm:#}");
    }
    let json = bench_ok(&["--name=a", &name, "--bs=256k", "--iodepth=4"]);
    let (read, split) = (&json["jobs"][0]["read"], &json["jobs"][0]["fullbore"]["split_mean_ns"]);
    // fio's own two: to the first command, and from there.
    let parts = [(&split["waiting"], &read["slat_ns"]), (&split["device"], &read["clat_ns"])];
    for (ours, theirs) in parts {
        assert!(
            (number(ours) - number(&theirs["mean"])).abs() < 0.01 * number(&theirs["mean"]) + 10.0,
            "{json:#}"
        );
    }
    assert_eq!(number(&split["copy"]), 0.0);
}

#[test]
fn the_first_run_of_a_job_is_apart() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 8 * MIB, 7);
    let name = format!("--filename={}", file.display());
    let line = ["--name=a", &name, "--bs=1m", "--iodepth=4", "--rw=read"];
    let json = bench_ok(&line);
    let job = &json["jobs"][0];
    let first = &job["fullbore"]["first_run"];
    // An object into each place, and none of them is counted with the others: no I/O, and no command of a lane.
    assert_eq!(first["bytes"].as_u64(), Some(4 * MIB), "{job:#}");
    assert!(number(&first["gbps"]) > 0.0, "{job:#}");
    let lanes = job["fullbore"]["each_lane"].as_array().unwrap();
    let commands: f64 = lanes.iter().map(|lane| number(&lane["commands"])).sum();
    assert_eq!((job["read"]["io_bytes"].as_u64(), commands), (Some(8 * MIB), 64.0), "{job:#}");
    assert_eq!(job["read"]["lat_ns"]["N"].as_u64(), Some(8));
    // Clones are added up; a pace holds it to one each; never more than the job itself.
    for (more, bytes) in [
        (&["--numjobs=2", "--group_reporting"][..], 8 * MIB),
        (&["--rate_iops=100"], MIB),
        (&["--number_ios=2"], 2 * MIB),
        (&["--rw=randrw", "--allow-destructive"], 4 * MIB),
    ] {
        let json = bench_ok(&[&line[..], more].concat());
        assert_eq!(json["jobs"][0]["fullbore"]["first_run"]["bytes"].as_u64(), Some(bytes), "{more:?}");
    }
    for none in ["--first_run=0", "--ramp_time=10ms", "--direct=0"] {
        let more = [none, "--loops=2"];
        let json = bench_ok(&[&line[..], &more].concat());
        assert!(json["jobs"][0]["fullbore"]["first_run"].is_null(), "{none}");
    }
    let text = normal(&line);
    assert!(text.contains("     first run : ") && text.contains("over 4 MiB, apart"), "{text}");
    let text = normal(&[&line[..], &["--first_run=0"]].concat());
    assert!(!text.contains("first run"), "{text}");
}

#[test]
fn what_a_first_run_writes_is_read_back_too() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.path.join("written");
    let name = format!("--filename={}", file.display());
    let json = bench_ok(&[
        "--name=w",
        &name,
        "--bs=256k",
        "--size=2m",
        "--rw=randwrite",
        "--iodepth=3",
        "--verify=1",
    ]);
    let ours = &json["jobs"][0]["fullbore"];
    assert_eq!(ours["first_run"]["bytes"].as_u64(), Some(3 * MIB / 4), "{ours:#}");
    assert_eq!((ours["verified_bytes"].as_u64(), ours["mismatches"].as_u64()), (Some(2 * MIB), Some(0)));
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_first_pair_beside_fio_is_apart_and_both_land_in_as_much_memory() {
    let Some(folder) = direct_folder() else { return };
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("skipped: no fio on the PATH");
    }
    let file = folder.file("data", 8 * MIB, 7);
    let name = format!("--filename={}", file.display());
    let line = [&name[..], "--bs=256k", "--iodepth=4", "--lanes=1", "--verify=0"];
    let json = bench_ok(&[&line[..], &["--rw=randread", "--compare=fio"]].concat());
    check_compared(&json["fullbore"]["compare"], "fio");
    let json = bench_ok(&[&line[..], &["--compare=fio"]].concat());
    let compared = &json["fullbore"]["compare"];
    check_compared(compared, "fio");
    assert_eq!(compared["footprint_bytes"], compared["rival_footprint_bytes"], "{compared:#}");
    assert!(compared["whole_objects"].is_null(), "a file's rival has as many buffers: {compared:#}");
}

#[test]
fn ioengines_of_fios_are_mapped_with_a_note() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 2 * MIB, 7);
    let name = format!("--filename={}", file.display());
    for (engine, depth, note) in [
        ("libaio", 8, "ioengine=libaio: fullbore's engine does the I/O"),
        ("io_uring", 8, "ioengine=io_uring: fullbore's engine does the I/O"),
        ("psync", 1, "ioengine=psync: fullbore's engine does the I/O, with one I/O in flight as there"),
        ("pvsync2", 1, "ioengine=pvsync2: fullbore's engine does the I/O, with one I/O in flight as there"),
    ] {
        let engine = format!("--ioengine={engine}");
        let line = ["--name=a", &name, "--bs=64k", "--iodepth=8", &engine];
        let json = bench_ok(&line);
        let job = &json["jobs"][0];
        assert_eq!(job["fullbore"]["notes"], serde_json::json!([note]), "{job:#}");
        let most = number(&job["fullbore"]["max_objects_in_flight"]);
        assert!(most <= depth as f64 && job["latency_depth"] == depth, "{engine}: {most}");
        assert!(normal(&line).contains(&format!("a: note: {note}\n")), "{engine}");
    }
    let (_, status, err) = bench(&["--name=a", &name, "--ioengine=rados"]);
    assert!(status == 2 && err.contains("no counterpart") && err.lines().count() == 1, "{err}");
}

#[test]
fn nothing_forces_a_device() {
    for words in
        [&["--force"][..], &["--name=a", "--filename=/x", "--rw=write", "--allow-destructive", "--force"]]
    {
        let (_, status, err) = bench(words);
        assert!(
            status == 2 && err.contains("force") && err.lines().count() == 1,
            "{words:?}: {status} {err}"
        );
    }
}
