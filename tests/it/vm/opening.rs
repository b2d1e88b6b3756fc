//! What is refused at open, and that the refusal says why and what to do.

use super::drives::{Drive, drives, in_machine};
use super::rig::old_kernel;
use crate::bench::bench;
use crate::support::{build, child, does, eventually, within};
use fullbore::{Engine, Error, ErrorKind, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[track_caller]
fn refused(path: impl AsRef<Path>, options: OpenOptions) -> Error {
    let path = path.as_ref();
    let engine = build(Engine::builder().lanes(1));
    engine.open(path, options).map(|target| target.name().to_string()).expect_err(&path.display().to_string())
}

/// Fails unless the error's text has all of these words.
#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    println!("measured: {text}");
    for word in words {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "{word:?} is not in: {text}");
    }
}

#[test]
fn the_controllers_node_is_not_a_drive() {
    if !in_machine() {
        return;
    }
    within(LIMIT, "open", || {
        let error = refused("/dev/nvme0", OpenOptions::read());
        says(&error, &["controller", "/dev/ng"]);
    });
}

#[test]
fn a_namespace_with_metadata_is_refused() {
    let Some([drive]) = drives(["meta"]) else { return };
    within(LIMIT, "open", || says(&refused(&drive.node, OpenOptions::read()), &["metadata"]));
}

/// Root without capabilities opens the node; whether passthrough is allowed, the kernel decides: 6.1 wants CAP_SYS_ADMIN.
#[test]
fn passthrough_that_the_kernel_forbids_is_refused_at_open() {
    let Some([drive]) = drives(["d0"]) else { return };
    let old = old_kernel();
    child("vm::opening::passthrough_that_the_kernel_forbids_is_refused_at_open", &[]).run(|| {
        let engine = build(Engine::builder().lanes(1));
        match engine.open(&drive.node, OpenOptions::read()) {
            Ok(_) => assert!(!old, "6.1 would refuse its commands: that must be seen at open"),
            Err(e) => {
                assert!(old && e.kind() == ErrorKind::Permission, "{e}");
                says(&e, &["CAP_SYS_ADMIN"]);
            }
        }
    });
}

#[test]
fn nobody_cannot_open_a_drive_and_reads_the_remedy() {
    let Some([drive]) = drives(["d0"]) else { return };
    let node = std::fs::canonicalize(&drive.node).expect("the character device");
    child("vm::opening::nobody_cannot_open_a_drive_and_reads_the_remedy", &[]).keep_capabilities().run(
        || {
            assert!(crate::support::kernel::become_nobody([]), "root may");
            let error = refused(&node, OpenOptions::read());
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Permission, Some(libc::EACCES)));
            says(&error, &["permission", node.to_str().expect("a path")]);
        },
    );
}

/// Runs a program that must do well.
#[track_caller]
fn run(program: &str, args: &[&str]) {
    assert!(does(program, args), "{program} {args:?}");
}

/// A drive whose first blocks are wiped when this goes, so that other tests find it empty.
struct Marked<'a>(&'a Drive);

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        let block = self.0.block();
        let _ = Command::new("umount").arg(&block).output();
        let _ = Command::new("wipefs").args(["--all", "--quiet"]).arg(&block).status();
        let _ = Command::new("blockdev").arg("--rereadpt").arg(&block).output();
    }
}

/// Gives a drive a table with one Linux partition, by hand, and makes the kernel read it.
fn partition(drive: &Drive) {
    let mut table = vec![0; 4096];
    // Not bootable, no cylinders, type 0x83; first block 256, 1024 blocks.
    table[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0]);
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    let block = drive.block();
    let file = std::fs::OpenOptions::new().write(true).open(&block).expect("the block device");
    file.write_all_at(&table, 0).and_then(|()| file.sync_all()).expect("room for a table");
    drop(file);
    // udev reads the table by itself, and is in the way meanwhile: until it has come to rest the partition may go again.
    let part = Path::new("/sys/block").join(&drive.disk).join(format!("{}p1", drive.disk));
    let there = eventually(Duration::from_secs(30), || {
        let _ = Command::new("blockdev").arg("--rereadpt").arg(&block).output();
        does("udevadm", &["settle", "--timeout=30"]) && part.exists()
    });
    assert!(there, "{} does not come", part.display());
}

/// The program has no option that writes to it.
#[track_caller]
fn bench_never_does(drive: &Drive, why: &str) {
    let name = format!("--filename={}", drive.node.display());
    let line = [&name[..], "--rw=write", "--bs=1m", "--size=1m", "--allow-destructive"];
    for words in [line.to_vec(), [&line[..], &["--name=w"]].concat()] {
        let (_, status, err) = bench(&words);
        assert!(status == 2 && err.contains(why) && !err.contains("orce"), "{words:?}: {status} {err}");
    }
}

#[test]
fn writing_what_is_mounted_or_partitioned_needs_force() {
    let Some([drive]) = drives(["used"]) else { return };
    let block = drive.block();
    let block = block.to_str().expect("a path");
    within(LIMIT, "a drive in use", || {
        let engine = build(Engine::builder().lanes(1));
        assert!(engine.open(&drive.node, OpenOptions::write()).is_ok(), "an empty drive is free");
        let marked = Marked(&drive);
        run("mkfs.ext4", &["-q", "-F", block]);
        let place = std::env::temp_dir().join("fullbore-mounted");
        std::fs::create_dir_all(&place).expect("a folder");
        run("mount", &[block, place.to_str().expect("a path")]);
        says(&refused(&drive.node, OpenOptions::write()), &["mounted", "force"]);
        bench_never_does(&drive, "mounted");
        assert!(engine.open(&drive.node, OpenOptions::read()).is_ok(), "reading is no harm");
        assert!(engine.open(&drive.node, OpenOptions::write().force()).is_ok(), "who insists may");
        run("umount", &[block]);
        drop(marked);
        let marked = Marked(&drive);
        partition(&drive);
        says(&refused(&drive.node, OpenOptions::write()), &["partition", "force"]);
        bench_never_does(&drive, "partition");
        assert!(engine.open(&drive.node, OpenOptions::write().force()).is_ok(), "who insists may");
        drop(marked);
    });
}

#[test]
fn polled_lanes_without_poll_queues_are_refused_with_the_remedy() {
    let Some([drive]) = drives(["d0"]) else { return };
    let polls = std::fs::read_to_string("/sys/module/nvme/parameters/poll_queues").unwrap_or_default();
    if polls.trim() != "0" {
        return println!("skipped: this boot has poll queues");
    }
    let options = OpenOptions::read().polled();
    within(LIMIT, "open", || says(&refused(&drive.node, options), &["poll", "nvme.poll_queues"]));
}
