//! What cannot be opened, and why.

use super::{SIZE, bench, refused};
use crate::support;
use fullbore::{ErrorKind as K, OpenOptions, Transfer};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

fn mkfifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends in NUL and lives across the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

#[test]
fn things_that_are_no_targets() {
    let Some(b) = bench() else { return };
    let (e, at) = (&b.engine, |name: &str| b.folder.path.join(name));
    let missing = refused(e, K::NotFound, &["no such file", "check the path"], || {
        e.open(at("gone"), OpenOptions::read())
    });
    assert_eq!((missing.errno(), missing.target()), (Some(libc::ENOENT), at("gone").to_str()));
    refused(e, K::NotFound, &["no such file"], || e.open(at("gone"), OpenOptions::write()));
    assert!(!at("gone").exists(), "opening for writing makes no file");
    symlink(at("gone"), at("dangling")).unwrap();
    refused(e, K::NotFound, &["no such file"], || e.open(at("dangling"), OpenOptions::read()));
    refused(e, K::NotFound, &["no such file"], || e.open("", OpenOptions::read()));
    refused(e, K::NotFound, &["no such file"], || e.open(at("no/folder"), OpenOptions::read().create(4096)));

    let remedy = "name a file, a block device or";
    for options in [OpenOptions::read(), OpenOptions::write(), OpenOptions::read().buffered()] {
        refused(e, K::InvalidInput, &["a directory", remedy], || e.open(&b.folder.path, options));
    }
    refused(e, K::InvalidInput, &["a directory"], || {
        e.open(&b.folder.path, OpenOptions::read().create(4096))
    });
    for device in ["/dev/null", "/dev/zero"] {
        refused(e, K::InvalidInput, &["no NVMe namespace", remedy], || e.open(device, OpenOptions::write()));
    }
    mkfifo(&at("fifo"));
    let socket = UnixListener::bind(at("socket")).unwrap();
    // Opening a FIFO waits for its other end: it must be refused without being opened.
    support::within(Duration::from_secs(10), "opening a FIFO", || {
        refused(e, K::InvalidInput, &["not a regular file", remedy], || {
            e.open(at("fifo"), OpenOptions::read())
        });
        refused(e, K::InvalidInput, &["not a regular file"], || e.open(at("fifo"), OpenOptions::write()));
    });
    refused(e, K::InvalidInput, &["not a regular file"], || e.open(at("socket"), OpenOptions::read()));
    drop(socket);
}

const NO_DIRECT: [&str; 2] = ["does not take O_DIRECT", "OpenOptions::buffered()"];

#[test]
fn a_file_system_without_o_direct_is_refused() {
    let Some(b) = bench() else { return };
    for path in ["/proc/version", "/sys/kernel/uevent_seqnum"] {
        if Path::new(path).exists() {
            refused(&b.engine, K::Unsupported, &NO_DIRECT, || b.engine.open(path, OpenOptions::read()));
        }
    }
}

/// Two file systems made for it: ramfs refuses the flag, ext4 that journals data takes it and then does not mean it.
#[test]
fn the_page_cache_is_used_only_when_asked_for() {
    let name = "bad_input::opening::the_page_cache_is_used_only_when_asked_for";
    support::child(name, &[]).keep_capabilities().run(|| {
        let Some(b) = bench().filter(|_| support::root()) else {
            return eprintln!("skipped: mounting needs root");
        };
        support::private_mounts();
        let on_ram = b.folder.path.join("ram");
        let on_ext4 = b.folder.path.join("ext4");
        let image = b.folder.file("image", 32 << 20, 0);
        std::fs::create_dir(&on_ram).and_then(|()| std::fs::create_dir(&on_ext4)).unwrap();
        assert!(support::does("mount", &["-t", "ramfs", "none", on_ram.to_str().unwrap()]));
        let made = support::does("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        let options = ["-o", "loop,data=journal", image.to_str().unwrap(), on_ext4.to_str().unwrap()];
        let mut places = vec![on_ram];
        if made && support::does("mount", &options) {
            places.push(on_ext4);
        } else {
            eprintln!("skipped: no ext4 that journals data");
        }
        for place in places {
            let path = place.join("file");
            let mut content = vec![0; 300_000];
            support::fill(&mut content, 0, 8);
            std::fs::write(&path, &content).unwrap();
            refused(&b.engine, K::Unsupported, &NO_DIRECT, || b.engine.open(&path, OpenOptions::read()));
            let target = b.engine.open(&path, OpenOptions::read().buffered()).expect("asked for");
            assert!(!target.is_direct());
            let read = Transfer::read(&target).extent(1001, b.region.lease(7..200_007).unwrap());
            let done = b.client.submit(read).unwrap().wait().unwrap();
            done.result.unwrap();
            assert!(done.paths.to_string().ends_with("buffered"), "{}", done.paths);
            let lease = done.transfer.unwrap().into_extents().remove(0).into_mem().into_host().unwrap();
            support::check(&lease, 1001, 8, "through the page cache");
            drop(target);
            // The descriptor goes when the last lane has let go of it; then the folder can be removed.
            let unmounted = || support::does("umount", &["-q", place.to_str().unwrap()]);
            assert!(support::eventually(Duration::from_secs(5), unmounted), "{} stays busy", place.display());
        }
    });
}

#[test]
fn what_one_may_not_open() {
    support::child("bad_input::opening::what_one_may_not_open", &[]).run(|| {
        let Some(b) = bench() else { return };
        let (e, at) = (&b.engine, |name: &str| b.folder.path.join(name));
        let mode = |name: &str, bits| {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(bits)).unwrap();
        };
        let words = ["may not be opened", "owner and mode"];
        mode("read", 0o000);
        let error = refused(e, K::Permission, &words, || e.open(at("read"), OpenOptions::read()));
        assert_eq!(error.errno(), Some(libc::EACCES));
        mode("read", 0o400);
        refused(e, K::Permission, &words, || e.open(at("read"), OpenOptions::write()));
        assert_eq!(e.open(at("read"), OpenOptions::read()).unwrap().size(), SIZE);
        std::fs::create_dir(at("closed")).unwrap();
        mode("closed", 0o500);
        refused(e, K::Permission, &words, || e.open(at("closed/new"), OpenOptions::read().create(4096)));
        mode("closed", 0o000);
        refused(e, K::Permission, &words, || e.open(at("closed/new"), OpenOptions::read()));
        mode("closed", 0o700);
    });
}
