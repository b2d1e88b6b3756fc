//! `--sweep` of jobs, of the table of arms and of loops over requests, run as a program: every form of its report is parsed.

use super::bench::{bench, bench_ok, check_ceilings, check_compared, direct_folder};
use super::doctor::PROGRAM;
use super::support::cuda::with_cuda;
use super::support::uring;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// Its report as text, in another form than JSON.
#[track_caller]
fn text(words: &[&str]) -> String {
    let out = Command::new(PROGRAM).arg("bench").args(words).output().expect("it runs");
    let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && err.is_empty(), "{words:?}: {err}\n{text}");
    text.into_owned()
}

fn filename(file: &Path) -> String {
    format!("--filename={}", file.display())
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The sweep in a report, of jobs or of arms: the same in both. `of` is what a line is of, with the lines.
#[track_caller]
fn check_sweep(json: &Value, key: &str, values: &[&str], (of, lines): (&str, &[&str])) {
    let sweep = &json["fullbore"]["sweep"];
    assert_eq!((&sweep["key"], &sweep["values"]), (&key.into(), &values.into()), "{sweep:#}");
    let rows = sweep["rows"].as_array().unwrap();
    let mut wanted = values.iter().flat_map(|value| lines.iter().map(move |line| (*line, *value)));
    for row in rows {
        let found = (row[of].as_str().unwrap(), row["value"].as_str().unwrap());
        assert_eq!(Some(found), wanted.next(), "{sweep:#}");
        let [gbps, ceiling] = ["gbps", "ceiling_gbps"].map(|name| number(&row[name]));
        assert!(gbps > 0.0 && ceiling > 0.0 && number(&row["per_second"]) > 0.0, "{row:#}");
        assert!((number(&row["of_ceiling"]) - gbps / ceiling).abs() < 1e-6, "{row:#}");
        let [p50, p99] = ["p50", "p99"].map(|name| number(&row["lat_ns"][name]));
        assert!(0.0 < p50 && p50 <= p99 && row["cpu_s_per_gib"].is_number(), "{row:#}");
    }
    assert_eq!(wanted.next(), None, "{sweep:#}");
    let [ceilings] = &sweep["ceilings"].as_array().unwrap()[..] else { panic!("of one device: {sweep:#}") };
    check_ceilings(ceilings);
    let best = rows.iter().map(|row| number(&row["gbps"])).fold(0.0, f64::max);
    assert!((number(&ceilings["best_gbps"]) - best).abs() < 1e-9, "{sweep:#}");
    assert_eq!((&ceilings["values"], &ceilings["lines"]), (&values.into(), &lines.into()), "{sweep:#}");
}

/// The table that people read: the words of each row, and where the ceiling stands in its curve.
#[track_caller]
fn rows(text: &str, key: &str) -> Vec<(Vec<String>, usize)> {
    let head = format!("Sweep of {key}:");
    let mut lines = text.lines().skip_while(|line| *line != head).skip(1);
    let titles: Vec<&str> =
        lines.next().unwrap_or_else(|| panic!("no table: {text}")).split_whitespace().collect();
    assert!(titles.contains(&key) && titles.contains(&"GB/s") && titles.contains(&"ceiling"), "{titles:?}");
    let mut rows = Vec::new();
    for line in lines {
        if line.starts_with("ceilings, measured: device ") {
            assert!(line.contains("; the device binds, and the best reached "), "{line}");
            return rows;
        }
        let at = line.find('|').unwrap_or_else(|| panic!("no ceiling in the curve: {line}"));
        let words = line.split_whitespace().map(str::to_owned).take_while(|word| !word.starts_with('#'));
        rows.push((words.collect(), at));
    }
    panic!("no ceilings below the table: {text}");
}

#[test]
fn jobs_and_arms_are_swept_by_one_mechanism() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.file("data", 8 * MIB, 7));
    let arms = [&name, "--bs=512k", "--sweep=iodepth=1,4"];
    let jobs = [&name, "--bs=512k", "--sweep=iodepth=1,4", "--name=a", "--numjobs=2", "--loops=4"];
    let json = bench_ok(&arms);
    check_sweep(&json, "iodepth", &["1", "4"], ("arm", &["engine"]));
    let runs = json["fullbore"]["runs"].as_array().unwrap();
    for (run, value) in runs.iter().zip(["1", "4"]) {
        assert_eq!(run["swept"], serde_json::json!({ "key": "iodepth", "value": value }));
        let [arm] = &run["arms"].as_array().unwrap()[..] else { panic!("no arm but the swept: {run:#}") };
        assert_eq!((arm["iodepth"].to_string(), &arm["mismatches"]), (value.into(), &0.into()));
        check_ceilings(&run["ceilings"]);
        // However many are in flight, as many bytes are landed in.
        assert_eq!(run["pool_bytes"], runs[0]["pool_bytes"]);
    }
    let json = bench_ok(&jobs);
    check_sweep(&json, "iodepth", &["1", "4"], ("job", &["a"]));
    for job in json["jobs"].as_array().unwrap() {
        check_ceilings(&job["fullbore"]["ceilings"]);
    }

    for (line, words) in [("engine", &arms[..]), ("a", &jobs[..])] {
        let found = rows(&text(words), "iodepth");
        assert!(found.len() == 2 && found[0].1 == found[1].1, "the ceiling is one: {found:?}");
        for ((words, _), value) in found.iter().zip(["1", "4"]) {
            assert_eq!((words[0].as_str(), words[1].as_str()), (line, value), "{words:?}");
            assert!(words[2].parse::<f64>().unwrap() > 0.0 && words[3].ends_with('%'), "{words:?}");
        }
        let csv = text(&[words, &["--output-format=csv"]].concat());
        let table: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        let column = table[0].iter().position(|title| *title == "swept").unwrap();
        let mut swept: Vec<&str> = table[1..].iter().map(|row| row[column]).collect();
        swept.dedup();
        assert_eq!(swept, ["iodepth=1", "iodepth=4"], "{csv}");
        let page = text(&[words, &["--output-format=html"]].concat());
        let section =
            page.split("<section id=\"sweep\">").nth(1).and_then(|rest| rest.split("</section>").next());
        let section = section.unwrap_or_else(|| panic!("no curve: {page}"));
        let count = |part: &str| section.matches(part).count();
        assert_eq!((count("class=\"rule\""), count("GB/s, which binds")), (1, 1), "{section}");
    }
}

/// The last value is larger than the file: nothing is measured, and the words say of which value they are.
#[test]
fn a_value_that_cannot_run_is_said_before_another_is_measured() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.file("data", 8 * MIB, 7));
    for (words, which) in [
        (&[&name, "--sweep=bs=512k,16m"][..], "with bs=16m: "),
        (&[&name, "--sweep=bs=512k,16m", "--name=a"], "job a: "),
        (&[&name, "--bs=512k", "--name=a", "--name=b", "--stonewall", "--size=16m"], "job b: "),
        (&[&name, "--bs=512k", "--name=a", "--name=b", "--stonewall", "--rw=write"], "allow_destructive"),
    ] {
        let out = Command::new(PROGRAM).arg("bench").args(words).output().expect("it runs");
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.code() == Some(2) && !text.contains("GB/s"), "{words:?}: {err}\n{text}");
        assert!(err.contains(which) && err.lines().count() == 1, "{words:?}: {err}");
    }
}

#[test]
fn caches_of_models_and_requests_are_swept() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.file("data", 8 * MIB, 7));
    let cache =
        "--workload=kv --layers=4 --kv_heads=4 --head_size=64 --tokens=1k --requests=4 --recompute_s=1";
    let run = |sweep: &str| {
        let mut words: Vec<&str> = cache.split(' ').collect();
        words.extend([name.as_str(), sweep]);
        (bench_ok(&words), text(&words))
    };
    let (json, text) = run("--sweep=inflight=1,2");
    check_sweep(&json, "inflight", &["1", "2"], ("arm", &["engine"]));
    assert_eq!(
        (rows(&text, "inflight").len(), &json["fullbore"]["sweep"]["counted"]),
        (2, &"requests/s".into())
    );
    for arm in json["fullbore"]["runs"].as_array().unwrap().iter().map(|run| &run["arms"][0]) {
        assert_eq!(arm["kv"]["first"]["loads"], arm["iodepth"], "{arm:#}");
    }
    let (json, _) = run("--sweep=tp=1,2");
    let objects = |run: &Value| number(&run["arms"][0]["kv"]["object_bytes"]);
    let runs = json["fullbore"]["runs"].as_array().unwrap();
    assert_eq!(objects(&runs[0]), 2.0 * objects(&runs[1]));
    let json = bench_ok(&[&name, "--requests=3", "--request_size=2m", "--sweep=bs=512k,1m"]);
    check_sweep(&json, "bs", &["512k", "1m"], ("arm", &["engine"]));
}

#[test]
fn what_writes_has_no_ceiling_and_says_so() {
    let Some(folder) = direct_folder() else { return };
    let made = filename(&folder.path.join("new"));
    let arms = [&made, "--size=4m", "--bs=512k", "--rw=write", "--iodepth=2", "--sweep=lanes=1,2"];
    let jobs = [&arms[..], &["--name=w", "--allow-destructive"]].concat();
    for words in [&arms[..], &jobs] {
        let json = bench_ok(words);
        let ceilings = &json["fullbore"]["sweep"]["ceilings"][0];
        assert!(ceilings["not_measured"].as_str().unwrap().contains("deep reads"), "{ceilings:#}");
        assert_eq!(json["fullbore"]["sweep"]["rows"][1]["ceiling_gbps"], Value::Null);
        assert!(text(words).contains("\nceilings: not measured: "), "{words:?}");
        let page = text(&[words, &["--output-format=html"]].concat());
        assert!(page.contains("No ceiling was measured: ") && !page.contains("class=\"rule\""), "{page}");
    }
}

#[test]
fn a_made_file_is_that_of_all_values_and_is_removed() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.path);
    let json = bench_ok(&[&name, "--size=4m", "--iodepth=2", "--sweep=bs=256k,1m"]);
    let runs = json["fullbore"]["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!(
            (&run["made"], &run["content"], &run["file"]),
            (&true.into(), &"own".into(), &runs[0]["file"])
        );
        assert!(number(&run["arms"][0]["verified_bytes"]) > 0.0, "{run:#}");
    }
    assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 0, "it goes at the end");
}

#[test]
fn what_ran_is_reported_also_where_ctrl_c_ends_a_later_value() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.file("data", 8 * MIB, 7));
    let words = ["bench", &name, "--bs=512k", "--sweep=iodepth=1,2", "--time_based", "--runtime=4"];
    let mut child = Command::new(PROGRAM).args(words).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(said.any(|line| line == "iodepth=2:"), "the second value begins");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it is there");
    let rest: Vec<String> = said.collect();
    assert_eq!(child.wait().expect("an end").code(), Some(130), "{rest:?}");
    let table: Vec<&String> = rest.iter().skip_while(|line| *line != "Sweep of iodepth:").collect();
    assert!(table.len() >= 3 && table[2].trim_start().starts_with("engine"), "{rest:?}");
}

#[test]
fn a_rival_takes_turns_at_every_value() {
    let Some(folder) = direct_folder() else { return };
    let name = filename(&folder.file("data", 8 * MIB, 7));
    let arms = [&name, "--bs=512k", "--sweep=iodepth=1,2", "--compare=serial"];
    for run in bench_ok(&arms)["fullbore"]["runs"].as_array().unwrap() {
        check_compared(&run["compare"], "serial");
    }
    let jobs = [&arms[..], &["--name=a"]].concat();
    for (beyond, value) in bench_ok(&jobs)["fullbore"]["beyond"].as_array().unwrap().iter().zip(["1", "2"]) {
        check_compared(&beyond["compare"], "serial");
        assert_eq!(beyond["swept"]["value"], value);
    }
    // The line that people read: `ratio R (pairs LEAST to MOST)`.
    for words in [&arms[..], &jobs] {
        let text = text(words);
        let ratios: Vec<[f64; 3]> =
            text.lines().filter(|line| line.contains("GB/s: ratio ")).map(ratio).collect();
        assert_eq!(ratios.len(), 2, "{text}");
        assert!(ratios.iter().all(|[ratio, least, most]| *ratio > 0.0 && least <= most), "{ratios:?}");
    }
}

fn ratio(line: &str) -> [f64; 3] {
    let words: Vec<&str> = line.split("ratio ").nth(1).unwrap().split_whitespace().collect();
    [words[0], words[2], words[4].trim_end_matches(')')].map(|word| word.parse().unwrap())
}

#[test]
fn both_ceilings_are_in_the_curve_of_a_gpu() {
    if !uring() {
        return;
    }
    with_cuda("sweep::both_ceilings_are_in_the_curve_of_a_gpu", &[("FAKE_CUDA_DEVICES", "1")]).run(|| {
        let Some(folder) = direct_folder() else { return };
        let name = filename(&folder.file("data", 8 * MIB, 7));
        let words = [&name, "--bs=1m", "--mem=gpu:0", "--sweep=iodepth=1,2"];
        for words in [&words[..], &[&words[..], &["--name=a"]].concat()] {
            let json = bench_ok(words);
            let ceilings = &json["fullbore"]["sweep"]["ceilings"][0];
            let lower = number(&ceilings["device_gbps"]).min(number(&ceilings["link_gbps"]));
            assert_eq!(number(&ceilings["binding_gbps"]), lower, "{ceilings:#}");
            let page = text(&[words, &["--output-format=html"]].concat());
            let count = |part: &str| page.matches(part).count();
            assert_eq!((count("class=\"rule\""), count("GB/s, which binds")), (2, 1), "{page}");
        }
    });
}

#[test]
fn what_cannot_be_swept_is_refused_before_anything_runs() {
    let Some(folder) = direct_folder() else { return };
    let kept = folder.path.join("kept");
    for (words, part) in [
        ("--sweep=iodeth=1,2", "did you mean iodepth?"),
        ("--sweep=iodepth=1,2 --sweep=bs=1m", "one key is swept at a time"),
        ("--sweep=iodepth=1,0", "--iodepth=0 is out of range"),
        ("--sweep=lanes=1,many", "--lanes"),
        ("--sweep=iodepth=1,1", "there twice"),
        ("--sweep=output=a,b", "of the whole run"),
        ("--sweep=rwmixread=1,2", "is of jobs"),
        ("--workload=kv --model=llama-3.1-8b --sweep=tp=1,3", "--tp=3"),
        ("--name=a --sweep=iodeth=1,2", "did you mean iodepth?"),
        ("--name=a --sweep=tp=1,2", "of the table of arms"),
        ("--name=a --sweep=bs=1m,x", "--bs=x"),
        ("--name=a --sweep=name=b", "of the whole run"),
        ("--name=a --workload=kv", "of the table of arms, which runs where no job is named"),
    ] {
        let size = [filename(&kept), "--size=64m".into()];
        let words: Vec<&str> = words.split(' ').chain(size.iter().map(String::as_str)).collect();
        let (json, status, err) = bench(&words);
        assert!(status == 2 && err.contains(part) && err.lines().count() == 1, "{words:?}: {status} {err}");
        assert!(json.is_null() && !kept.exists(), "{words:?}: something ran");
    }
}
