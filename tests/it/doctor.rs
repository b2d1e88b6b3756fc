//! `fullbore doctor`, run as a program: in this process's machine, in sandboxes, over the stand-in for CUDA.

use super::support::cuda::with_cuda;
use super::support::kernel::{become_nobody, forbid, limit};
use super::support::{Folder, child, folders, uring};
use nix::sys::resource::Resource;
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_fullbore");
const MIB: u64 = 1 << 20;
const SEED: u64 = 77;

/// A report, and the exit status beside it.
pub struct Report {
    pub value: Value,
    pub status: i32,
}

impl Report {
    #[track_caller]
    pub fn of(output: &Output) -> Report {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let status = output.status.code().unwrap_or_else(|| panic!("{}: {err}", output.status));
        assert_eq!(err, "", "nothing goes wrong, and nothing is printed beside the report");
        let value: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
        assert_eq!(value["exit_status"], status);
        let well = value["broken"] == 0 && value["could_be_better"] == 0;
        assert_eq!(status, i32::from(!well), "0 if all is well, 1 if something can be mended: {value:#}");
        Report { value, status }
    }

    pub fn list(&self, name: &str) -> &Vec<Value> {
        self.value[name].as_array().unwrap_or_else(|| panic!("{name} is no list: {:#}", self.value))
    }

    #[track_caller]
    pub fn target(&self, path: impl AsRef<Path>) -> &Value {
        let path = path.as_ref().display().to_string();
        let found = self.list("targets").iter().find(|target| target["path"] == path);
        found.unwrap_or_else(|| panic!("no {path} in {:#}", self.value["targets"]))
    }

    /// The path between a target and memory, and the best there could be.
    #[track_caller]
    pub fn path(&self, target: impl AsRef<Path>, memory: &str) -> (&str, &str) {
        let target = target.as_ref().display().to_string();
        let of = |row: &&Value| row["target"] == target && row["memory"] == memory;
        let row = self
            .list("paths")
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("{target} to {memory}: {:#}", self.value));
        (row["path"].as_str().unwrap_or("none"), row["best_path"].as_str().unwrap_or("unknown"))
    }

    /// The remedy of a finding of that level whose text has these words.
    #[track_caller]
    pub fn remedy(&self, level: &str, words: &[&str]) -> &str {
        let has = |finding: &&Value| {
            let text = finding["text"].as_str().expect("a text");
            finding["level"] == level && words.iter().all(|word| text.contains(word))
        };
        let found = self.list("findings").iter().find(has);
        found.unwrap_or_else(|| panic!("no {level} with {words:?} in {:#}", self.value["findings"]))["remedy"]
            .as_str()
            .unwrap_or("")
    }
}

/// Runs it with `--json`.
#[track_caller]
pub fn doctor(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Report {
    run(Command::new(PROGRAM), args)
}

#[track_caller]
fn run(mut program: Command, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Report {
    program.args(["doctor", "--json"]).args(args.iter().map(AsRef::as_ref));
    Report::of(&program.output().expect("the program runs"))
}

/// The first folder whose files take O_DIRECT.
fn direct_folder() -> Option<Folder> {
    folders().into_iter().find(|folder| folder.direct && folder.name == "disk")
}

#[test]
fn a_file_has_its_path_its_reason_and_stays_as_it_was() {
    if !uring() {
        return;
    }
    let Some(folder) = direct_folder() else { return println!("skipped: no folder takes O_DIRECT") };
    let file = folder.file("data", 8 * MIB, SEED);
    let before = std::fs::metadata(&file).unwrap().modified().unwrap();
    let report = doctor(&[&file, &"--quick-bench"]);
    assert_eq!(report.path(&file, "host_unregistered"), ("uring", "uring"));
    let (path, best) = report.path(&file, "host");
    assert_eq!(best, "uring fixed");
    assert!(path == best || report.status == 1, "{path}");
    let target = report.target(&file);
    assert_eq!((&target["kind"], &target["size"]), (&"file".into(), &(8 * MIB).into()));
    assert_eq!((&target["access"]["read"], &target["binding_limit"]), (&true.into(), &"command_size".into()));
    let bench = &target["quick_bench"];
    assert_eq!(bench["counts_agree"], true, "{bench}");
    assert!(
        bench["seconds"].as_f64().unwrap() >= 3.0 && bench["bytes"].as_u64().unwrap() >= 64 * MIB,
        "{bench}"
    );
    let features = report.value["io_uring"]["features"].as_array().unwrap();
    assert!(features.len() > 8 && features[0]["name"] == "rings" && features[0]["works"] == true);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), before, "it was read, not written");
}

#[test]
fn a_folder_is_looked_at_through_a_file_that_goes_again() {
    if !uring() {
        return;
    }
    for folder in folders() {
        let report = doctor(&[&folder.path]);
        let (_, best) = report.path(&folder.path, "host");
        assert_eq!((best, &report.target(&folder.path)["kind"]), ("uring fixed", &"folder".into()));
        if folder.name == "tmpfs" {
            assert!(report.remedy("could_be_better", &["tmpfs"]).contains("--target=dax"));
        }
        assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 0, "nothing is left behind");
    }
}

#[test]
fn what_is_not_there_is_broken_and_what_cannot_run_is_two() {
    let report = doctor(&[&"/dev/ng77n7"]);
    assert_eq!(report.status, 1);
    assert_eq!(report.target("/dev/ng77n7")["kind"], "other");
    assert!(report.remedy("broken", &["/dev/ng77n7"]).contains("modprobe nvme") || !uring());
    let status = |args: &[&str]| Command::new(PROGRAM).args(args).output().unwrap().status.code();
    assert_eq!(status(&["doctor", "--no-such"]), Some(2));
    // A report that cannot be written.
    if let Ok(full) = File::options().write(true).open("/dev/full") {
        let output = Command::new(PROGRAM).args(["doctor", "/dev/null"]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_text_has_no_colours_in_a_pipe_and_a_command_under_what_is_broken() {
    let output = Command::new(PROGRAM).args(["doctor", "/dev/null", "/dev/ng77n7"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let broken = lines.iter().position(|line| line.trim_start().starts_with("broken"));
    let broken = broken.unwrap_or_else(|| panic!("nothing is broken in:\n{text}"));
    assert!(lines[broken + 1].trim_start().starts_with("$ "), "{text}");
    assert!(lines.last().unwrap().contains("broken"), "the verdict comes last:\n{text}");
}

/// What a container's seccomp profile does. The rest of the machine is told all the same.
#[test]
fn io_uring_forbidden_by_seccomp_is_named_and_the_rest_is_told() {
    if !uring() {
        return;
    }
    child("doctor::io_uring_forbidden_by_seccomp_is_named_and_the_rest_is_told", &[]).run(|| {
        forbid(libc::SYS_io_uring_setup, libc::EPERM);
        let program = std::env::current_exe().unwrap();
        let report = doctor(&[&program]);
        assert_eq!(report.status, 1);
        let remedy = report.remedy("broken", &["io_uring is refused (EPERM)", "seccomp"]);
        for word in ["--security-opt seccomp=", "io_uring_setup", "io_uring_enter", "io_uring_register"] {
            assert!(remedy.contains(word), "{word} is not in {remedy}");
        }
        let ring = &report.value["io_uring"];
        assert_eq!((&ring["available"], &ring["features"][0]["errno"]), (&false.into(), &libc::EPERM.into()));
        assert_eq!(report.value["process"]["seccomp"], 2);
        assert_eq!(report.path(&program, "host"), ("none", "unknown"));
        let target = report.target(&program);
        assert_eq!((&target["kind"], &target["opened"]), (&"file".into(), &Value::Null));
        assert_eq!(target["access"]["read"], true);
    });
}

#[test]
fn io_uring_hidden_or_not_to_be_entered_is_refused_too() {
    if !uring() {
        return;
    }
    child("doctor::io_uring_hidden_or_not_to_be_entered_is_refused_too", &[]).run(|| {
        forbid(libc::SYS_io_uring_enter, libc::EPERM);
        let remedy = doctor(&[&"/dev/null"]).remedy("broken", &["io_uring is refused (EPERM)"]).to_owned();
        assert!(remedy.contains("io_uring_enter"), "{remedy}");
        forbid(libc::SYS_io_uring_setup, libc::ENOSYS);
        let remedy =
            doctor(&[&"/dev/null"]).remedy("broken", &["io_uring is refused (ENOSYS)", "seccomp"]).to_owned();
        assert!(remedy.contains("--security-opt"), "{remedy}");
    });
}

#[test]
fn memlock_of_64_kib_is_named_with_the_command_that_raises_it() {
    if !uring() {
        return;
    }
    let Some(folder) = direct_folder() else { return println!("skipped: no folder takes O_DIRECT") };
    child("doctor::memlock_of_64_kib_is_named_with_the_command_that_raises_it", &[]).keep_capabilities().run(
        || {
            let file = folder.file("data", MIB, SEED);
            // Opened while we may: nobody may not enter every folder on the way.
            let program = File::open(PROGRAM).unwrap();
            become_nobody([&folder]);
            limit(Resource::RLIMIT_MEMLOCK, 64 << 10);
            let open = format!("/proc/self/fd/{}", program.as_raw_fd());
            let report = run(Command::new(open), &[&file]);
            assert_eq!(report.status, 1);
            assert_eq!(report.value["process"]["memlock"]["soft"], 64 << 10);
            let refused = !report.value["io_uring"]["engine_refused"].is_null();
            if refused {
                // Many CPUs, many rings; or another process of this user holds what there is.
                let text = report.value["findings"].to_string();
                assert!(text.contains("memlock"), "{text}");
                return eprintln!("skipped: 64 KiB are not enough for the rings here");
            }
            let remedy = report.remedy("could_be_better", &["memlock: 64 KiB is too little", "unregistered"]);
            for word in ["prlimit", "--memlock=unlimited", "LimitMEMLOCK=infinity", "--ulimit memlock=-1"] {
                assert!(remedy.contains(word), "{word} is not in {remedy}");
            }
            assert_eq!(report.path(&file, "host"), ("uring", "uring fixed"));
            assert_eq!(report.value["process"]["registers_memory"], false);
            let remedy = report.remedy("could_be_better", &["to host memory: uring instead of uring fixed"]);
            assert!(remedy.contains("--memlock=unlimited"), "{remedy}");
        },
    );
}

#[test]
fn a_gpu_is_tried_and_its_link_measured() {
    if !uring() {
        return;
    }
    with_cuda("doctor::a_gpu_is_tried_and_its_link_measured", &[("FAKE_CUDA_DEVICES", "2")]).run(|| {
        let Some(folder) = folders().pop() else { return };
        let file = folder.file("data", 8 * MIB, SEED);
        let report = doctor(&[&file, &"--quick-bench"]);
        assert_eq!(report.list("gpus").len(), 2);
        for (number, gpu) in report.list("gpus").iter().enumerate() {
            assert_eq!((&gpu["pins_host_memory"], &gpu["dma_buf"]), (&true.into(), &true.into()), "{gpu:#}");
            assert!(gpu["address"].as_str().unwrap().starts_with("0000:1"), "{gpu:#}");
            assert_eq!(gpu["pin_piece"], 64u64 << 30);
            assert_eq!(gpu["cufile"]["direct"], false);
            let reason = gpu["cufile"]["reason"].as_str().unwrap();
            assert!(reason.contains("nvidia-fs absent"), "{reason}");
            assert_eq!(report.path(&file, &format!("gpu:{number}")).0, "pinned bounce");
            let bench = &gpu["quick_bench"];
            assert_eq!(
                (&bench["counts_agree"], &bench["paths"]),
                (&true.into(), &"dax -> gpu direct".into()),
                "{bench}"
            );
        }
    });
}

#[test]
fn what_a_gpus_driver_refuses_is_told() {
    if !uring() {
        return;
    }
    let faults = [("FAKE_CUDA_FAULTS", "register:0:ever,dmabuf:0:ever")];
    with_cuda("doctor::what_a_gpus_driver_refuses_is_told", &faults).run(|| {
        let report = doctor(&[&"/dev/null"]);
        let gpu = &report.list("gpus")[0];
        assert_eq!((&gpu["pins_host_memory"], &gpu["dma_buf"]), (&false.into(), &false.into()), "{gpu:#}");
        assert!(report.remedy("could_be_better", &["cannot be pinned", "801"]).contains("conf-compute"));
        report.remedy("ok", &["no dma-buf", "801"]);
    });
}

#[test]
fn cufile_that_is_asked_says_that_it_is_direct() {
    if !uring() {
        return;
    }
    let mode = [("FAKE_CUFILE_MODE", "p2pdma")];
    with_cuda("doctor::cufile_that_is_asked_says_that_it_is_direct", &mode).run(|| {
        let Some(folder) = direct_folder() else { return eprintln!("skipped: no folder takes O_DIRECT") };
        let file = folder.file("data", MIB, SEED);
        let report = doctor(&[&file, &"--ask-cufile"]);
        let cufile = &report.list("gpus")[0]["cufile"];
        assert_eq!(cufile["direct"], true, "{cufile}");
        assert!(cufile["reason"].as_str().unwrap().contains("P2PDMA"), "{cufile}");
        assert_eq!(report.path(&file, "gpu:0").0, "cufile");
    });
}
