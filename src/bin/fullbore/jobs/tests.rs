//! Job files and command lines, and what is made of them. The files are in tests/jobs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore::Lanes;

use super::line;
use super::script::Script;
use super::spec::Job;
use super::value::Amount;
use crate::failure::Failure;

mod refusals;

fn env(name: &str) -> Option<String> {
    let value = match name {
        "FILE" => "/data/x",
        "SIZE" => "2g",
        _ => return None,
    };
    Some(value.into())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

pub fn script(line: &str) -> Result<Script, Failure> {
    line::read(&words(line), &env)
}

pub fn jobs(line: &str) -> Result<Vec<Job>, Failure> {
    script(line)?.sections.iter().map(Job::of).collect()
}

/// One job, called `a`, by its keys.
pub fn job(line: &str) -> Job {
    jobs(&format!("--name=a {line}")).unwrap().remove(0)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs")
}

/// The jobs of a file of tests/jobs.
fn file(name: &str) -> Vec<Job> {
    jobs(&folder().join(name).with_extension("fio").display().to_string()).unwrap()
}

/// A file of a test's own.
fn written(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fullbore-{name}-{}.fio", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

fn summary(job: &Job) -> String {
    format!("{} {} bs={} depth={} jobs={}", job.name, job.rw.name(), job.bs, job.iodepth, job.numjobs)
}

#[test]
fn every_job_file_says_what_it_says() {
    let expected: &[(&str, &[&str])] = &[
        ("buffered", &["through-the-cache read bs=1048576 depth=1 jobs=1"]),
        (
            "cpus-and-nodes",
            &["by-cpu read bs=4194304 depth=1 jobs=2", "by-node read bs=4194304 depth=1 jobs=1"],
        ),
        ("dax", &["mapped randread bs=8388608 depth=2 jobs=1"]),
        ("environment", &["from-outside read bs=8388608 depth=2 jobs=N"]),
        ("files", &["spread write bs=262144 depth=1 jobs=2", "pair randread bs=4096 depth=1 jobs=1"]),
        ("gpu", &["to-two-gpus read bs=20971520 depth=8 jobs=1"]),
        (
            "loops-and-delays",
            &["thrice read bs=524288 depth=1 jobs=1", "later randread bs=524288 depth=1 jobs=1"],
        ),
        (
            "many-globals",
            &[
                "first read bs=65536 depth=1 jobs=1",
                "second read bs=131072 depth=2 jobs=1",
                "third read bs=131072 depth=4 jobs=1",
            ],
        ),
        ("mixed", &["mix randrw bs=65536 depth=16 jobs=1"]),
        ("outer", &["includes read bs=32768 depth=3 jobs=1"]),
        ("parts-of-a-device", &["quarter read bs=2097152 depth=4 jobs=4"]),
        ("passthrough", &["deep read bs=131072 depth=64 jobs=1", "two-lanes read bs=131072 depth=64 jobs=1"]),
        ("percentiles", &["latency randread bs=16384 depth=1 jobs=1"]),
        ("random-4k", &["pages randread bs=4096 depth=32 jobs=4"]),
        ("rates", &["bytes read bs=1048576 depth=1 jobs=1", "ios rw bs=1048576 depth=1 jobs=1"]),
        ("read-objects", &["load read bs=20971520 depth=8 jobs=1"]),
        ("stripe", &["striped read bs=20971520 depth=4 jobs=1"]),
        (
            "write-then-read",
            &["store write bs=1048576 depth=4 jobs=1", "load randread bs=1048576 depth=4 jobs=1"],
        ),
    ];
    let mut names: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "fio"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, expected.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
    let cpus = format!("jobs={}", std::thread::available_parallelism().unwrap());
    for (name, summaries) in expected {
        let found: Vec<String> = file(name).iter().map(summary).collect();
        let wanted: Vec<String> = summaries.iter().map(|line| line.replace("jobs=N", &cpus)).collect();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_job_file_is_the_command_line_that_it_prints() {
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "fio") {
            continue;
        }
        let from_file = script(&path.display().to_string()).unwrap();
        let printed = from_file.command_line();
        let rest = printed.strip_prefix("fullbore bench ").unwrap();
        // None of the files has a blank in a value, so that quotes are for backslashes alone.
        let again = script(&rest.replace('\'', "")).unwrap();
        assert_eq!(again.sections, from_file.sections, "{}: {printed}", path.display());
    }
    let line = "--bs=1m --name=a --rw=read --time_based --name=global --iodepth=2 --name=b --description=x";
    assert_eq!(script(line).unwrap().command_line(), format!("fullbore bench {line}"));
    let quoted = script("--name=it's").unwrap().command_line();
    assert_eq!(quoted, r"fullbore bench '--name=it'\''s'");
}

#[test]
fn keys_of_job_files_reach_the_job() {
    let [deep, lanes] = &file("passthrough")[..] else { panic!() };
    assert!(deep.polled && !lanes.polled && lanes.stonewall && !deep.stonewall);
    assert_eq!((deep.lanes, lanes.lanes), (Lanes::Auto, Lanes::Count(2)));
    assert_eq!(deep.files, [PathBuf::from("/dev/ng0n1")]);
    assert!(deep.notes[0].contains("ioengine=io_uring_cmd"), "{:?}", deep.notes);
    let mix = &file("mixed")[0];
    assert_eq!(
        (mix.rwmixread, mix.runtime, mix.ramp_time),
        (70, Some(Duration::from_secs(30)), Duration::from_secs(2))
    );
    assert!(mix.time_based && mix.rw.is_mixed() && mix.rw.random);
    let [store, load] = &file("write-then-read")[..] else { panic!() };
    assert!(store.verify && store.do_verify && store.verify_fatal && store.destructive);
    assert!(load.verify && load.stonewall && !load.destructive);
    let quarter = &file("parts-of-a-device")[0];
    assert_eq!((quarter.size, quarter.offset_increment), (Some(Amount::Percent(25)), Amount::Percent(25)));
    let [bytes, ios] = &file("rates")[..] else { panic!() };
    assert_eq!((bytes.rate, ios.rate_iops), ([Some(100 << 20); 2], [Some(50), Some(10)]));
    assert!(ios.new_group && ios.destructive && ios.rwmixread == 75);
    let outside = &file("environment")[0];
    assert_eq!((&outside.files[0], outside.size), (&PathBuf::from("/data/x"), Some(Amount::Bytes(2 << 30))));
    let [cpu, node] = &file("cpus-and-nodes")[..] else { panic!() };
    assert_eq!((cpu.cpus.clone(), cpu.split_cpus), (vec![0, 1, 2, 3, 8], true));
    assert_eq!((node.nodes.clone(), node.memory.node), (vec![0], Some(0)));
    let [spread, pair] = &file("files")[..] else { panic!() };
    assert_eq!((spread.directories.len(), spread.nrfiles, spread.filesize), (2, 4, Some(16 << 20)));
    assert!(spread.unlink && spread.end_fsync && pair.norandommap && pair.number_ios == Some(1000));
    assert_eq!(pair.files, [PathBuf::from("/data/left"), "/data/ri:ght".into()]);
    let latency = &file("percentiles")[0];
    assert_eq!(latency.percentiles, [50.0, 90.0, 99.0, 99.9]);
    assert!(!latency.clat_percentiles && latency.lat_percentiles && !latency.randrepeat);
    let [thrice, later] = &file("loops-and-delays")[..] else { panic!() };
    assert_eq!((thrice.loops, later.startdelay, later.randseed), (3, Duration::from_millis(500), 0x1234));
    assert_eq!((later.io_size, later.offset), (Some(Amount::Bytes(4 << 20)), Amount::Bytes(2 << 20)));
    assert_eq!((file("gpu")[0].memory.gpus.clone(), file("gpu")[0].cmd_size), (vec![0, 1], Some(256 << 10)));
    assert_eq!((file("stripe")[0].stripe, file("stripe")[0].files.len()), (Some(1 << 20), 2));
    let buffered = &file("buffered")[0];
    assert!(!buffered.direct && buffered.notes.len() == 2, "{:?}", buffered.notes);
    assert!(file("dax")[0].mapped);
}

#[test]
fn the_command_line_is_fios() {
    let all = jobs(
        "--bs 1m --rw read --name=a --iodepth=4 --time_based --runtime 5 -name=b --direct 0 --numjobs=2",
    )
    .unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(summary(&all[0]), "a read bs=1048576 depth=4 jobs=1");
    assert_eq!(summary(&all[1]), "b read bs=1048576 depth=1 jobs=2");
    assert!(all[0].time_based && !all[1].time_based && all[0].direct && !all[1].direct);
    // What stands before the first name is the files' too; jobs of the line come first.
    let file = folder().join("many-globals.fio");
    let all = jobs(&format!("--lanes=3 --name=x --bs=8k {}", file.display())).unwrap();
    assert_eq!(
        all.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(),
        ["x", "first", "second", "third"]
    );
    assert!(all.iter().all(|job| job.lanes == Lanes::Count(3)) && all[1].bs == 65_536);
    let one = jobs(&format!("--section=third {}", file.display())).unwrap();
    assert_eq!((one.len(), one[0].iodepth), (1, 4));
    let none = jobs(&format!("--section=tenth {}", file.display())).unwrap_err().to_string();
    assert!(none.contains("tenth") && none.contains("--section"), "{none}");
}

#[test]
fn jobs_are_told_from_the_table_of_arms() {
    for (line, jobs) in [
        ("", false),
        ("--filename=/x --bs=8m", false),
        ("--filename /x --bs 8m --verify", false),
        ("--output-format=json --output /tmp/x", false),
        ("--name=x", true),
        ("--bs=8m --name x", true),
        ("a.fio", true),
        ("--bs=8m a.fio", true),
        ("--showcmd a.fio", true),
        ("--eta=never", false),
        ("--showcmd --arm=1", false),
        ("--sweep=iodepth=1,2 --bs=8m", false),
        ("--sweep=iodepth=1,2 a.fio", true),
    ] {
        assert_eq!(line::asks_for_jobs(&words(line)), jobs, "{line}");
    }
    assert!(line::check_arms(&words("--filename /x --bs 8m --hipri --mark-every=3 --polling")).is_ok());
    for (line, part) in [
        ("--bogus=1", "--bogus: there is no such key"),
        (
            "--arm=1 --status-interval=1",
            "--status-interval: it is of jobs, not of the table of arms: name one",
        ),
        ("--iodeth=3", "did you mean iodepth?"),
        ("--rwmixread=3", "--rwmixread: it is of jobs"),
        ("--zonemode=none", "fio has this key"),
    ] {
        let text = line::check_arms(&words(line)).unwrap_err().to_string();
        assert!(text.contains(part) && !text.contains('\n'), "{line}: {text}");
    }
}

/// A key that only one of the two knows would be refused by the other.
#[test]
fn the_table_of_arms_has_the_same_keys_by_all_their_names() {
    use super::keys;
    use clap::Args;
    let command = crate::args::BenchArgs::augment_args(clap::Command::new("bench"));
    let mut longs: Vec<String> = Vec::new();
    for arg in command.get_arguments() {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        longs.extend(arg.get_long().into_iter().chain(aliases).map(|name| name.replace('-', "_")));
    }
    for name in &longs {
        assert!(keys::find(name).is_ok_and(keys::Key::is_of_arms), "{name} is not in the table");
    }
    for key in keys::all().filter(|key| key.is_of_arms()) {
        for name in key.aliases.iter().chain([&key.name]) {
            assert!(longs.contains(&name.replace('-', "_")), "--{name} is not in the arguments");
        }
    }
}

#[test]
fn every_key_of_either_can_be_swept() {
    use super::keys;
    use clap::Args;
    use clap::error::ErrorKind::{ArgumentConflict, InvalidValue, MissingRequiredArgument, ValueValidation};
    let of_the_run = |key: &&keys::Key| key.is_of_the_run() || key.name == "name";
    for key in keys::all().filter(|key| !of_the_run(key)) {
        // Switches have these values; of others they may be refused, by the key's own reading of them.
        let text = format!("--sweep={}=0,1", key.name);
        let words = ["fullbore", "bench", &text].map(std::ffi::OsString::from);
        for (words, swept) in crate::sweep::lines(words.into()).into_iter().flatten() {
            assert!(key.is_of_arms() && swept.is_some_and(|(name, _)| name == key.name), "{text}");
            let command = crate::args::BenchArgs::augment_args(clap::Command::new("bench"));
            let Err(error) = command.try_get_matches_from(words.iter().skip(1)) else { continue };
            let of_values = [InvalidValue, ValueValidation, MissingRequiredArgument, ArgumentConflict];
            assert!(!key.kind.may_be_bare() && of_values.contains(&error.kind()), "{text}: {error}");
        }
        let jobs =
            script(&format!("{text} --name=a")).and_then(|mut script| super::sweep::expand(&mut script));
        assert_eq!(jobs.is_ok(), key.is_of_jobs(), "{text}: {jobs:?}");
        assert!(key.is_of_jobs() || crate::sweep::lines(vec![text.clone().into()]).is_ok(), "{text}");
    }
}

/// As fio's own examples have them.
#[test]
fn a_name_in_global_names_nothing_and_a_device_names_itself() {
    let path =
        written("names", "[global]\nname=seq\nsize=1m\n[/dev/sdb]\n[b]\nfilename=/c\n[c]\nverify=md5\n");
    let all = jobs(&path.display().to_string()).unwrap();
    fs::remove_file(&path).unwrap();
    let found: Vec<_> = all.iter().map(|job| (&*job.name, job.files.clone(), job.verify)).collect();
    let file = |name: &str| vec![name.into()];
    let wanted = [("/dev/sdb", file("/dev/sdb"), false), ("b", file("/c"), false), ("c", Vec::new(), true)];
    assert_eq!(found, wanted);
    assert!(line::asks_for_jobs(&words("-")), "the standard input is a job file");
}

#[test]
fn every_key_of_jobs_is_read_by_jobs() {
    use super::keys::{self, Kind};
    for key in keys::all().filter(|key| key.is_of_jobs() && key.name != "name") {
        // A value may be refused; that nothing reads the key is another refusal.
        let value = match key.kind {
            Kind::Text | Kind::Word | Kind::List => "0",
            _ => "1",
        };
        if let Err(why) = jobs(&format!("--name=a --{}={value}", key.name)) {
            assert!(!why.to_string().contains("of no use"), "{}: {why}", key.name);
        }
    }
}
