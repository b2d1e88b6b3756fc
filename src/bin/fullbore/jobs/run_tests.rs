//! Jobs that run, on files of the temp folder through its page cache: what they move, check, refuse and report.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fullbore::{Engine, ErrorKind};
use serde_json::Value;

use super::report::Report;
use super::run;
use super::spec::Job;
use super::tests::script;
use crate::failure::Failure;

/// A folder of a test's own; `None`, and a line that says so, where there are no rings.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Option<Self> {
        if let Err(error) = Engine::builder().lanes(1).build()
            && matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Permission)
        {
            println!("skipped: no io_uring here: {error}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("fullbore-jobs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Some(Self(folder))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs the jobs of a command line in this folder; `--direct=0` goes before it.
    fn run(&self, line: &str) -> (Result<(), Failure>, Value) {
        let out = self.file("report");
        let head = format!(
            "--output={} --output-format=json+ --direct=0 --directory={}",
            out.display(),
            self.0.display()
        );
        let mut script = script(&format!("{head} {line}")).unwrap();
        super::sweep::expand(&mut script).unwrap();
        let jobs: Vec<Job> = script.sections.iter().map(|section| Job::of(section).unwrap()).collect();
        let mut report = Report::new(&script, &jobs).unwrap();
        let result = run::run(&jobs, &mut report);
        drop(report);
        (result, serde_json::from_slice(&fs::read(out).unwrap()).unwrap())
    }

    fn runs(&self, line: &str) -> Value {
        let (result, json) = self.run(line);
        assert_eq!(result, Ok(()), "{line}");
        json
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_job_moves_what_it_says() {
    let Some(folder) = Folder::new("moves") else { return };
    for (line, ios) in [
        ("--size=1m", 16),
        ("--size=1m --loops=3", 48),
        ("--size=1m --io_size=256k", 4),
        ("--size=1m --io_size=2m", 32),
        ("--size=1m --number_ios=5", 5),
        ("--size=1m --number_ios=5 --loops=2", 10),
        ("--size=1m --io_size=0", 16),
        ("--size=1m --io_size=65537", 2),
        ("--filesize=512k --size=1m", 8),
        ("--size=1m --offset=512k --io_size=100%", 16),
        ("--nrfiles=4 --size=1m", 16),
    ] {
        // Two names: the file of another test of the line need not be as large.
        let name = line.replace(['-', '=', ' ', '%'], "");
        let json =
            folder.runs(&format!("--name={name} --bs=64k --rw=randread --iodepth=4 --cmd_size=16k {line}"));
        let read = &json["jobs"][0]["read"];
        assert_eq!(number(&read["total_ios"]), ios, "{line}");
        assert_eq!(number(&read["io_bytes"]), ios * 65_536, "{line}");
        let bins = read["clat_ns"]["bins"].as_object().unwrap();
        assert_eq!(bins.values().map(number).sum::<u64>(), ios, "{line}");
        let ours = &json["jobs"][0]["fullbore"];
        assert_eq!(number(&ours["paths"]["uring fixed buffered"]), ios * 65_536, "{line}: {ours}");
        assert!((1..=4).contains(&number(&ours["max_objects_in_flight"])), "{line}: {ours}");
        let lanes = ours["each_lane"].as_array().unwrap();
        // Each object is four commands.
        let commands = lanes.iter().map(|lane| number(&lane["commands"])).sum::<u64>();
        assert_eq!((lanes.len() as u64, commands), (number(&ours["lanes"]), ios * 4), "{line}: {ours}");
        let enters = |lane: &Value| lane["occupancy"].as_object().unwrap().values().map(number).sum::<u64>();
        assert!(lanes.iter().map(enters).sum::<u64>() > 0, "{line}: {ours}");
    }
}

#[test]
fn clones_and_groups_are_added_up() {
    let Some(folder) = Folder::new("groups") else { return };
    let line = "--bs=64k --size=512k --rw=randrw --rwmixread=50 --group_reporting --name=a --numjobs=3 --name=b --stonewall --name=c --group_reporting=0 --numjobs=2";
    let json = folder.runs(line);
    let jobs = json["jobs"].as_array().unwrap();
    let names: Vec<_> =
        jobs.iter().map(|job| (job["jobname"].as_str().unwrap(), number(&job["groupid"]))).collect();
    assert_eq!(names, [("a", 0), ("b", 1), ("c", 1), ("c", 1)]);
    let ios: Vec<u64> = jobs
        .iter()
        .map(|job| number(&job["read"]["total_ios"]) + number(&job["write"]["total_ios"]))
        .collect();
    assert_eq!(ios, [24, 8, 8, 8]);
    // Without a file name each clone has its own.
    for name in ["a.0.0", "a.2.0", "b.0.0", "c.1.0"] {
        assert_eq!(fs::metadata(folder.file(name)).unwrap().len(), 512 << 10, "{name}");
    }
}

#[test]
fn time_ramp_and_rate_are_kept() {
    let Some(folder) = Folder::new("time") else { return };
    let json =
        folder.runs("--name=t --size=1m --bs=64k --time_based --runtime=700ms --ramp_time=2s --rate=4m");
    let job = &json["jobs"][0];
    let (bytes, ms) = (number(&job["read"]["io_bytes"]), number(&job["read"]["runtime"]));
    // What came in the ramp does not count, and the whole time after it does.
    assert!((700..2_000).contains(&ms), "{ms} ms");
    // Slower is for a loaded machine to be; faster is an error.
    assert!(bytes > 0 && bytes as f64 <= 4.3 * 1048.576 * (ms + 2_000) as f64, "{bytes} bytes in {ms} ms");
    let whole = folder.runs("--name=t --size=1m --bs=64k --rate_iops=100");
    assert_eq!(number(&whole["jobs"][0]["read"]["total_ios"]), 16);
    assert!(number(&whole["jobs"][0]["read"]["runtime"]) >= 140, "16 at 100 a second");
}

#[test]
fn a_sweep_runs_every_value_on_one_file() {
    let Some(folder) = Folder::new("sweep") else { return };
    let json = folder.runs("--sweep=bs=64k,128k,256k --name=a --size=1m --rw=read");
    let jobs = json["jobs"].as_array().unwrap();
    let of = |job: &Value| {
        (job["fullbore"]["swept"]["value"].as_str().unwrap().to_owned(), number(&job["read"]["total_ios"]))
    };
    let found: Vec<_> = jobs.iter().map(of).collect();
    assert_eq!(found, [("64k".into(), 16), ("128k".into(), 8), ("256k".into(), 4)]);
    assert!(folder.file("a.0.0").exists());
}

#[test]
fn what_is_written_is_read_back_and_a_wrong_byte_is_found() {
    let Some(folder) = Folder::new("verify") else { return };
    let json = folder.runs(
        "--name=w --filename=f --size=1m --bs=64k --rw=randwrite --iodepth=4 --verify=crc32c --end_fsync=1",
    );
    let ours = &json["jobs"][0]["fullbore"];
    assert_eq!((number(&ours["verified_bytes"]), number(&ours["mismatches"])), (1 << 20, 0));
    // What is read back is no I/O of the report.
    assert_eq!(number(&json["jobs"][0]["read"]["total_ios"]), 0);
    assert_eq!(number(&ours["paths"]["uring fixed buffered"]), 1 << 20);
    let read = "--name=r --filename=f --size=1m --bs=128k --rw=read --iodepth=2 --verify=1";
    let json = folder.runs(read);
    assert_eq!(number(&json["jobs"][0]["fullbore"]["verified_bytes"]), 1 << 20);

    let mut bytes = fs::read(folder.file("f")).unwrap();
    for at in [300_000, 900_000] {
        bytes[at] ^= 1;
    }
    fs::write(folder.file("f"), &bytes).unwrap();
    let (result, json) = folder.run(read);
    let failure = result.unwrap_err();
    assert_eq!(failure.status(), 1);
    assert!(failure.to_string().contains("offset 300000"), "{failure}");
    let job = &json["jobs"][0];
    assert_eq!((number(&job["error"]), number(&job["fullbore"]["mismatches"])), (84, 2));
    assert_eq!(number(&job["read"]["io_bytes"]), 1 << 20, "content is checked in a pass of its own");
    let (result, json) = folder.run(&format!("{read} --verify_fatal=1"));
    assert_eq!(result.unwrap_err().status(), 1);
    assert!(number(&json["jobs"][0]["fullbore"]["verified_bytes"]) < 1 << 20);

    fs::write(folder.file("f"), vec![7; 1 << 20]).unwrap();
    let foreign = folder.run(read).0.unwrap_err();
    assert!(foreign.to_string().contains("verify of a reading job needs content"), "{foreign}");

    // Two that write over each other: no storage need be broken.
    let write = "--filename=g --size=1m --bs=64k --rw=write --verify=1";
    let other = folder.run(&format!("--name=a {write} --name=b {write} --randseed=7")).0.unwrap_err();
    assert!(other.to_string().contains("another job"), "{other}");
}

#[test]
fn a_job_that_would_overwrite_is_refused_and_one_of_this_run_is_not() {
    let Some(folder) = Folder::new("refused") else { return };
    fs::write(folder.file("f"), vec![7; 1 << 20]).unwrap();
    let write = "--name=w --filename=f --size=1m --bs=64k --rw=write";
    let (result, json) = folder.run(write);
    let refused = result.unwrap_err();
    assert!(refused.status() == 2 && refused.to_string().contains("allow_destructive"), "{refused}");
    assert_eq!(json["fullbore"]["error"].as_str(), Some(refused.to_string().as_str()));
    assert!(fs::read(folder.file("f")).unwrap().iter().all(|&byte| byte == 7));
    folder.runs(&format!("--allow-destructive {write}"));
    assert!(fs::read(folder.file("f")).unwrap().iter().any(|&byte| byte != 7));
    folder.runs(
        "--filename=g --size=1m --bs=64k --unlink=1 --name=a --rw=read --name=b --rw=write --stonewall",
    );
    assert!(!folder.file("g").exists());
    for (line, part) in [
        ("--name=a --filename=f --size=2m", "lower size"),
        ("--name=a --filename=f --bs=2m", "do not hold one object"),
        ("--name=a --filename=none", "nothing says how large"),
        ("--name=a --filename=none --size=1k", "do not hold one object"),
        ("--name=a --filename=none --size=1m --allow_file_create=0", "allow_file_create"),
        ("--name=a --filename=f --ioengine=io_uring_cmd", "needs an NVMe namespace"),
        ("--name=a --filename=f --hipri", "polled"),
        ("--name=a --filename=f --cpus_allowed=4000", "cpus_allowed"),
    ] {
        let refused = folder.run(line).0.unwrap_err();
        let text = refused.to_string();
        assert!(refused.status() == 2 && text.contains(part) && !text.contains('\n'), "{line}: {text}");
    }
}

#[test]
fn a_transfer_that_fails_ends_its_job_and_the_run_says_so() {
    let Some(folder) = Folder::new("fails") else { return };
    fs::write(folder.file("f"), vec![7; 1 << 20]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(folder.file("f")).unwrap();
    let (result, json) = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            file.set_len(4096).unwrap();
        });
        folder.run("--name=a --filename=f --size=1m --bs=64k --time_based --runtime=20 --rate_iops=200")
    });
    let failure = result.unwrap_err();
    // A loaded machine may cut the file before it is opened.
    if failure.status() == 2 {
        return println!("skipped: the file was cut before the job began: {failure}");
    }
    let job = &json["jobs"][0];
    assert!(failure.status() == 1 && number(&job["error"]) > 0, "{failure}: {job}");
    assert!(number(&job["read"]["runtime"]) < 19_000);
}

#[test]
fn a_manifest_is_moved_again_in_its_order() {
    let Some(folder) = Folder::new("replay") else { return };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/replay.json");
    // The file is made as long as the manifest needs.
    let json = folder.runs(&format!("--replay={example} --filename=f --iodepth=2 --verify=1"));
    let job = &json["jobs"][0];
    assert_eq!(job["jobname"], "replay");
    let of = |way: &str| (number(&job[way]["total_ios"]), number(&job[way]["io_bytes"]));
    assert_eq!((of("read"), of("write")), ((3, (768 + 64) << 10), (2, 260 << 10)));
    // What was written was read back, and that is not counted.
    let ours = &job["fullbore"];
    assert_eq!((number(&ours["verified_bytes"]), number(&ours["mismatches"])), (260 << 10, 0));
    assert!(number(&job["read"]["runtime"]) >= 5, "the last is not before 5 ms: {job}");
    assert_eq!(fs::metadata(folder.file("f")).unwrap().len(), 1284 << 10);

    // Of one that reads alone each object is checked, after the clock.
    let reads = r#"{"version": 1, "device": {"block": 512}, "objects": [
        {"op": "read", "offset": 512, "size": 1536}, {"op": "read", "size": 131072}, {"op": "read", "offset": 0, "size": 512}]}"#;
    let manifest = folder.file("m.json");
    fs::write(&manifest, reads).unwrap();
    let line = format!("--replay={} --filename=f --iodepth=3 --loops=2 --verify=1", manifest.display());
    let json = folder.runs(&line);
    let ours = &json["jobs"][0]["fullbore"];
    assert_eq!((number(&ours["verified_bytes"]), number(&ours["mismatches"])), (133_120, 0));
    assert_eq!(number(&json["jobs"][0]["read"]["io_bytes"]), 2 * 133_120);
    let mut bytes = fs::read(folder.file("f")).unwrap();
    bytes[5000] ^= 1;
    fs::write(folder.file("f"), &bytes).unwrap();
    let wrong = folder.run(&line).0.unwrap_err();
    assert!(wrong.status() == 1 && wrong.to_string().contains("offset 5000"), "{wrong}");
}

#[test]
fn nothing_of_a_manifest_is_issued_when_one_entry_does_not_fit() {
    let Some(folder) = Folder::new("replay-fit") else { return };
    fs::write(folder.file("f"), vec![7; 64 << 10]).unwrap();
    let manifest = folder.file("m.json");
    let text = r#"{"version": 1, "device": {"block": 4096}, "objects": [
        {"op": "write", "offset": 0, "size": 4096}, {"op": "write", "offset": 65536, "size": 4096}]}"#;
    fs::write(&manifest, text).unwrap();
    let line = format!("--replay={} --filename=f", manifest.display());
    let refused = folder.run(&line).0.unwrap_err().to_string();
    assert!(refused.contains("allow_destructive"), "{refused}");
    let refused = folder.run(&format!("--allow-destructive {line}")).0.unwrap_err();
    let wanted = format!("{}: entry 2: it ends at byte 69632", manifest.display());
    assert!(refused.status() == 2 && refused.to_string().starts_with(&wanted), "{refused}");
    assert!(fs::read(folder.file("f")).unwrap().iter().all(|&byte| byte == 7), "nothing was written");
}
