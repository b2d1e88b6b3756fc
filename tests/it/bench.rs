//! `fullbore bench`, run as a program: what it holds its rates against, and when it fails.

use super::doctor::PROGRAM;
use super::support::cuda::with_cuda;
use super::support::{Folder, Loop, folders, uring};
use serde_json::Value;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Output};

pub mod apart;

const MIB: u64 = 1 << 20;

/// Runs it, with its report as JSON; answers the exit status too.
#[track_caller]
pub fn bench(words: &[&str]) -> (Value, i32, String) {
    let out: Output =
        Command::new(PROGRAM).arg("bench").args(words).arg("--output-format=json").output().expect("it runs");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    let json = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    (json, out.status.code().expect("an exit status"), err)
}

#[track_caller]
pub fn bench_ok(words: &[&str]) -> Value {
    let (json, status, err) = bench(words);
    assert_eq!((status, err.as_str()), (0, ""), "{words:?}: {json:#}");
    json
}

/// Whoever asks for requests thinks between one and the next.
#[test]
fn requests_come_after_the_time_to_think() {
    let Some(folder) = direct_folder() else { return };
    let name = format!("--filename={}", folder.file("data", 8 * MIB, 7).display());
    let line = [&name, "--requests=4", "--inflight=1", "--request_size=1m", "--bs=512k", "--think_ms=150"];
    let json = bench_ok(&line);
    let ended = json["fullbore"]["arms"][0]["completed_s"].as_array().expect("a time for each").clone();
    let ended: Vec<f64> = ended.iter().map(|at| at.as_f64().expect("seconds")).collect();
    assert!(ended.len() == 4 && ended.windows(2).all(|pair| pair[1] - pair[0] >= 0.15), "{ended:?}");
}

/// `2>&1 | head -0`: the exit status is that of the failure, not that of a panic over a line nobody reads.
#[test]
fn a_failure_that_nobody_reads_has_its_exit_status() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = Command::new(PROGRAM).args(["bench", "--no_such_key=1"]).stderr(writer).status();
    assert_eq!(status.expect("it runs").code(), Some(2));
}

/// A comparison as it must be: pairs, a ratio of medians between the ratios of pairs, a first run apart.
#[track_caller]
pub fn check_compared(compared: &Value, rival: &str) {
    let number = |name: &str| compared[name].as_f64().unwrap_or_else(|| panic!("{name}: {compared:#}"));
    assert!(compared["rival"].as_str().unwrap().starts_with(rival), "{compared:#}");
    let pairs = compared["pairs"].as_array().unwrap();
    let median = |name: &str| {
        let mut all: Vec<f64> = pairs.iter().map(|pair| pair[name].as_f64().unwrap()).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    assert_eq!(pairs.len(), 5);
    for side in ["ours_gbps", "theirs_gbps"] {
        assert!((median(side) - number(side)).abs() < 1e-9, "the first pair is in no median: {compared:#}");
    }
    assert!((number("ratio") - median("ours_gbps") / median("theirs_gbps")).abs() < 1e-9, "{compared:#}");
    assert!(number("ratio_min") > 0.0 && number("ratio_min") <= number("ratio_max"), "{compared:#}");
    assert!(compared["first"]["ours_gbps"].as_f64().unwrap() > 0.0, "the first run is apart: {compared:#}");
}

/// Ceilings as they must be in host memory.
#[track_caller]
pub fn check_ceilings(ceilings: &Value) {
    assert_eq!(
        (&ceilings["binds"], &ceilings["link_gbps"]),
        (&"device".into(), &Value::Null),
        "{ceilings:#}"
    );
    let number = |name: &str| ceilings[name].as_f64().unwrap_or_else(|| panic!("{name}: {ceilings:#}"));
    let share = number("best_gbps") / number("device_gbps");
    assert!(number("device_gbps") > 0.0 && (number("best_of_ceiling") - share).abs() < 1e-6, "{ceilings:#}");
}

pub fn direct_folder() -> Option<Folder> {
    if !uring() {
        return None;
    }
    let found = folders().into_iter().find(|folder| folder.direct && folder.name == "disk");
    if found.is_none() {
        println!("skipped: no folder takes O_DIRECT");
    }
    found
}

#[test]
fn the_table_is_held_against_the_serial_loop_and_the_ceilings() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 8 * MIB, 7);
    let name = format!("--filename={}", file.display());
    let json = bench_ok(&[&name, "--bs=512k", "--iodepth=4", "--compare=serial"]);
    let ours = &json["fullbore"];
    check_compared(&ours["compare"], "serial");
    check_ceilings(&ours["ceilings"]);
    assert_eq!(ours["compare"]["footprint_bytes"].as_u64(), Some(4 * MIB / 2));
    assert!(ours["first_run"]["bytes"].as_u64().unwrap() > 0, "{ours:#}");
    assert_eq!(ours["smart"], Value::Null, "a file has no drive that could be asked");
    // Nobody asked for the page cache, and what each arm loaded was checked in a pass of its own.
    for arm in ours["arms"].as_array().unwrap() {
        let path = arm["path"].as_str().unwrap();
        assert!(!path.contains("buffered") && arm["mismatches"] == 0, "{arm:#}");
        assert!(arm["verified_bytes"].as_u64().unwrap() > 0, "{arm:#}");
    }
}

/// What a request of a KV cache takes today, and at full depth: every byte of each arm is checked.
#[test]
fn a_kv_cache_is_held_against_the_serial_loop() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 8 * MIB, 7);
    let (name, cache) =
        (format!("--filename={}", file.display()), "--workload=kv --model=llama-3.1-8b --tp=8");
    let line = [&name, "--tokens=64", "--chunk_tokens=16", "--requests=4"];
    let line: Vec<&str> =
        cache.split(' ').chain(line).chain(["--arm=serial,2", "--compare=serial"]).collect();
    let json = bench_ok(&line);
    let ours = &json["fullbore"];
    check_compared(&ours["compare"], "serial");
    // 16 tokens of 16 KiB on each of 8 ranks: four objects of 256 KiB a request, two requests in memory.
    assert_eq!(ours["compare"]["footprint_bytes"].as_u64(), Some(2 * MIB));
    for arm in ours["arms"].as_array().unwrap() {
        assert_eq!((arm["bytes"].as_u64(), &arm["mismatches"]), (Some(4 * MIB), &Value::from(0)), "{arm:#}");
        assert!(arm["verified_bytes"].as_u64().unwrap() > 0, "{arm:#}");
    }
}

#[test]
fn a_job_is_held_against_the_serial_loop_and_fio() {
    let Some(folder) = direct_folder() else { return };
    let file = folder.file("data", 8 * MIB, 7);
    let name = format!("--filename={}", file.display());
    let line = ["--name=a", &name, "--bs=1m", "--iodepth=4", "--rw=read"];
    let json = bench_ok(&[&line[..], &["--compare=serial", "--numjobs=2"]].concat());
    let beyond = &json["fullbore"]["beyond"][0];
    check_compared(&beyond["compare"], "serial");
    check_ceilings(&beyond["ceilings"]);
    assert_eq!(json["jobs"].as_array().unwrap().len(), 2, "the runs in turn are no jobs of the report");
    assert_eq!(json["jobs"][0]["read"]["io_bytes"].as_u64(), Some(8 * MIB));
    let manifest = folder.path.join("m.json");
    let text = r#"{"version": 1, "device": {"block": 4096}, "objects": [
        {"op": "read", "offset": 0, "size": 1048576}, {"op": "read", "size": 65536}]}"#;
    std::fs::write(&manifest, text).unwrap();
    let replay = format!("--replay={}", manifest.display());
    let json = bench_ok(&[&replay, &name, "--iodepth=2", "--compare=serial"]);
    check_compared(&json["fullbore"]["beyond"][0]["compare"], "serial");
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("skipped: no fio on the PATH");
    }
    // The same at random, of a part of the file: commands alone, and whole objects.
    for bs in ["--bs=4k", "--bs=1m"] {
        let part = ["--name=a", &name, bs, "--iodepth=4", "--rw=randread", "--offset=1m", "--size=4m"];
        let json = bench_ok(&[&part[..], &["--cmd_size=128k", "--compare=fio"]].concat());
        check_compared(&json["fullbore"]["beyond"][0]["compare"], "fio");
    }
    let json = bench_ok(&[&line[..], &["--compare=fio"]].concat());
    assert_eq!(json["fullbore"]["beyond"][0]["compare"]["rival_footprint_bytes"].as_u64(), Some(4 * MIB));
    check_compared(&json["fullbore"]["beyond"][0]["compare"], "fio");
    assert!(json["fullbore"]["beyond"][0]["compare"]["footprint_bytes"].as_u64() == Some(4 * MIB));
}

#[test]
fn what_rivals_cannot_do_is_refused() {
    for (words, part) in [
        ("--name=a --filename=/x --rw=write --compare=serial", "only read"),
        ("--name=a --filename=/x --mem=gpu:0 --compare=serial", "host memory"),
        ("--name=a --filename=/x --runtime=1 --compare=serial", "runtime"),
        ("--name=a --filename=/x:/y --compare=fio", "one part of one file"),
        ("--name=a --filename=/x --direct=0 --compare=fio", "O_DIRECT"),
        ("--name=a --filename=/x --compare=dd", "none of fio, serial"),
        ("--name=a --filename=/x --unlink=1 --ceilings", "unlink"),
        ("--compare=serial --rw=write", "--rw=read"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let (_, status, err) = bench(&words);
        assert!(status == 2 && err.contains(part) && err.lines().count() == 1, "{words:?}: {status} {err}");
    }
}

#[test]
fn the_link_of_a_gpu_is_a_ceiling() {
    if !uring() {
        return;
    }
    with_cuda("bench::the_link_of_a_gpu_is_a_ceiling", &[("FAKE_CUDA_DEVICES", "1")]).run(|| {
        let Some(folder) = direct_folder() else { return };
        let file = folder.file("data", 8 * MIB, 7);
        let name = format!("--filename={}", file.display());
        let json = bench_ok(&[&name, "--bs=1m", "--iodepth=4", "--mem=gpu:0", "--ceilings"]);
        let ceilings = &json["fullbore"]["ceilings"];
        let number = |name: &str| ceilings[name].as_f64().unwrap_or_else(|| panic!("{name}: {ceilings:#}"));
        assert_eq!(ceilings["links"].as_array().map(Vec::len), Some(1), "{ceilings:#}");
        let link_is_lower = number("link_gbps") < number("device_gbps");
        assert_eq!(ceilings["binds"], if link_is_lower { "link" } else { "device" }, "{ceilings:#}");
        assert!((number("binding_gbps") - number("link_gbps").min(number("device_gbps"))).abs() < 1e-9);
    });
}

#[test]
fn a_device_that_is_held_is_not_written_to_even_where_destruction_is_allowed() {
    let Some(folder) = direct_folder() else { return };
    let below = folder.file("below", 16 * MIB, 1);
    let device = match Loop::over(&below, 512) {
        Ok(device) => device,
        Err(why) => return println!("skipped: {why}"),
    };
    // What a mount does to claim a device.
    let options = std::fs::File::options().read(true).custom_flags(libc::O_EXCL).clone();
    let _holder = options.open(&device.path).expect("nobody holds it");
    let name = format!("--filename={}", device.path.display());
    let manifest = folder.path.join("m.json");
    let text = r#"{"version": 1, "device": {"block": 512}, "objects": [{"op": "write", "size": 4096}]}"#;
    std::fs::write(&manifest, text).unwrap();
    let replay = format!("--replay={}", manifest.display());
    for words in [&["--name=w", "--bs=1m", "--rw=write"][..], &["--bs=1m", "--rw=write"], &[&replay]] {
        let words = [words, &[&name]].concat();
        let (_, status, err) = bench(&words);
        assert!(status == 2 && err.contains("destructive"), "{words:?}: {status} {err}");
        let (_, status, err) = bench(&[&words[..], &["--allow-destructive"]].concat());
        assert!(status == 2 && err.contains("mounted, or held"), "{words:?}: {status} {err}");
        assert!(!err.contains("force") && err.contains("unmount it"), "no option of bench does: {err}");
    }
}
