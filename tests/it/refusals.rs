//! What the machine refuses, really refused: each test asserts that the refusal happened, then that the engine said
//! so, with the remedy, and that what can go on goes on.

use super::support::kernel::{Pages, become_nobody, forbid, limit};
use super::support::load::{Background, load, load_raw, raw};
use super::support::{Folder, build, check, child, descriptors, folders, root, threads, uring};
use fullbore::{Engine, Error, ErrorKind, OpenOptions, Path, Transfer};
use io_uring::IoUring;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const SEED: u64 = 0x5eed;
/// Longer than any lane needs to end.
const SOON: Duration = Duration::from_secs(5);

/// Registers `pages` with a ring of the test's own: what the engine is going to be told.
fn register_by_hand(pages: &Pages) -> std::io::Result<()> {
    let ring = IoUring::new(1)?;
    let iovec = libc::iovec { iov_base: pages.ptr().as_ptr().cast(), iov_len: pages.len() };
    // SAFETY: the pages outlive the ring.
    unsafe { ring.submitter().register_buffers(&[iovec]) }
}

/// FACTS §6.9 and §6.15: start-up failed, or the failed pin was ignored and a slower path ran unseen.
#[test]
fn memlock_of_64_kib_leaves_regions_unregistered_and_says_so() {
    if !uring() {
        return;
    }
    child("refusals::memlock_of_64_kib_leaves_regions_unregistered_and_says_so", &[])
        .keep_capabilities()
        .run(|| {
            let files: Vec<_> =
                folders().into_iter().map(|f| (f.file("data", 8 * MIB as u64, SEED), f)).collect();
            let alone = become_nobody(files.iter().map(|(_, folder)| folder));
            limit(Resource::RLIMIT_MEMLOCK, 64 << 10);
            let refused = register_by_hand(&Pages::new(8 * MIB)).map_err(|e| e.raw_os_error());
            assert_eq!(refused, Err(Some(libc::ENOMEM)), "the limit holds in this process");

            for clones in [true, false] {
                // The engine before may still be charged: the kernel lets go of a closed ring a little later.
                let mut built = Engine::builder().lanes(2).clone_buffers(clones).build();
                crate::support::eventually(Duration::from_secs(5), || {
                    let short = matches!(&built, Err(error) if error.errno() == Some(libc::ENOMEM));
                    if short {
                        built = Engine::builder().lanes(2).clone_buffers(clones).build();
                    }
                    !short
                });
                let engine = match built {
                    Err(error) if !alone && error.errno() == Some(libc::ENOMEM) => {
                        return eprintln!("skipped: other tests of this user hold all of the 64 KiB");
                    }
                    engine => engine.expect("rings need little"),
                };
                let region = engine.alloc_host(8 * MIB).expect("a region that is not registered is a region");
                assert!(!region.is_registered());
                let note = region.registration_note().expect("it says why").to_string();
                let need = if engine.stats().clone_buffers { 8 * MIB } else { 16 * MIB };
                assert_eq!(note.contains("each lane"), !engine.stats().clone_buffers, "{note}");
                for word in
                    ["memlock", &need.to_string(), &(64 << 10).to_string(), "ulimit -l", "CAP_IPC_LOCK"]
                {
                    assert!(note.contains(word), "{word:?} is not in: {note}");
                }
                assert_eq!(engine.stats().memlock_bytes, 0, "what is not registered is not charged");
                let readable = files.iter().filter(|(path, _)| File::open(path).is_ok());
                for (path, folder) in readable {
                    assert_unregistered_works(&engine, path, folder.name, &note);
                }
            }
        });
}

/// Data is right, and report, completion and demand name the path that ran.
fn assert_unregistered_works(engine: &Engine, path: &std::path::Path, name: &str, note: &str) {
    let target = engine.open(path, OpenOptions::read()).expect("the file opens");
    let region = engine.alloc_host(8 * MIB).unwrap();
    let report = engine.path(&target, &region);
    assert_eq!(report.path, Path::Plain, "on {name}");
    assert!(report.reason.contains(note), "the report gives the reason: {}", report.reason);
    let client = engine.client().unwrap();
    let (lease, paths) = load(&client, &target, region.lease(0..8 * MIB).unwrap(), 0, SEED);
    assert_eq!(paths.to_string(), "uring", "on {name}");
    let demand = Transfer::read(&target).extent(0, lease).require(Path::Fixed);
    let rejected = client.submit(demand).expect_err("a demanded path is not quietly replaced");
    assert_eq!(rejected.error.kind(), ErrorKind::PathUnavailable);
    assert!(rejected.error.message().contains("ulimit -l"), "with the remedy: {}", rejected.error);
}

/// FACTS §6.18. The limit is raised by one descriptor at a time, so that every place where one is made is the first
/// to fail once.
#[test]
fn no_descriptor_left_is_an_error_with_a_remedy() {
    if !uring() {
        return;
    }
    child("refusals::no_descriptor_left_is_an_error_with_a_remedy", &[]).keep_capabilities().run(|| {
        let Some(folder) = folders().pop() else { return };
        let path = folder.file("data", 4 * MIB as u64, SEED);
        let engine = build(Engine::builder().lanes(2));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let going = Background::start(&engine, &target, MIB, SEED);
        // A thread has its name a moment after it was started.
        assert!(super::support::eventually(SOON, || threads("fullbore-watch").len() == 1));
        let (before, lanes) = (descriptors(), threads("fullbore-").len());
        let mut built = 0;
        for more in 0..16 {
            let (held, highest) = fill_gaps();
            let hard = getrlimit(Resource::RLIMIT_NOFILE).unwrap().1; // it stays, so that we can go back
            setrlimit(Resource::RLIMIT_NOFILE, highest + 1 + more, hard).unwrap();
            match Engine::builder().lanes(2).build() {
                Ok(second) => {
                    built += 1;
                    assert!(
                        second.stats().clone_buffers == engine.stats().clone_buffers,
                        "no quiet step down"
                    );
                }
                Err(error) => assert_no_descriptor(&error, more),
            }
            if more == 0 {
                assert_eq!(File::open(&path).unwrap_err().raw_os_error(), Some(libc::EMFILE));
                assert_no_descriptor(&engine.open(&path, OpenOptions::read()).unwrap_err(), more);
            }
            drop(held);
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            let all_given_back = || descriptors() == before && threads("fullbore-").len() == lanes;
            assert!(
                super::support::eventually(SOON, all_given_back),
                "with {more} more: {:?}",
                descriptors()
            );
        }
        assert!(
            (1..=12).contains(&built),
            "the limit ran from too low to high enough: {built} of 16 were built"
        );
        assert!(going.goes_on(2), "the engine that was there goes on");
        going.stop();
        engine.open(&path, OpenOptions::read()).expect("with descriptors, files open again");
    });
}

/// Holds every free descriptor below the highest one; answers that one's number.
fn fill_gaps() -> (Vec<File>, u64) {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let highest = numbers.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).max().unwrap_or(0);
    let mut held = Vec::new();
    loop {
        let file = File::open("/dev/null").unwrap();
        if file.as_raw_fd() as u64 > highest {
            return (held, highest);
        }
        held.push(file);
    }
}

#[track_caller]
fn assert_no_descriptor(error: &Error, more: u64) {
    assert_eq!(error.kind(), ErrorKind::Resource, "with {more} descriptors: {error}");
    assert_eq!(error.errno(), Some(libc::EMFILE), "with {more} descriptors: {error}");
    assert!(error.message().contains("ulimit -n"), "with {more} descriptors: {error}");
}

/// FACTS §4: refused by seccomp although the sysctl allows.
#[test]
fn io_uring_forbidden_by_seccomp_is_refused_with_cause_and_remedy() {
    if !uring() {
        return;
    }
    child("refusals::io_uring_forbidden_by_seccomp_is_refused_with_cause_and_remedy", &[]).run(|| {
        let engine = build(Engine::builder().lanes(1));
        forbid(libc::SYS_io_uring_setup, libc::EPERM);
        let by_hand = IoUring::new(1).map(drop).map_err(|e| e.raw_os_error());
        assert_eq!(by_hand, Err(Some(libc::EPERM)), "the filter is in force");
        let error = Engine::builder().build().expect_err("no engine without rings");
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Permission, Some(libc::EPERM)));
        for word in ["seccomp", "io_uring_setup", "sysctl", "io_uring_disabled"] {
            assert!(error.message().contains(word), "{word:?} is not in: {error}");
        }
        build(Engine::builder().null());
        assert_eq!(engine.lanes(), 1, "the engine that was there is there");
    });
}

/// Some filters answer ENOSYS, as if the kernel had no io_uring.
#[test]
fn io_uring_hidden_by_seccomp_is_refused_with_cause_and_remedy() {
    if !uring() {
        return;
    }
    child("refusals::io_uring_hidden_by_seccomp_is_refused_with_cause_and_remedy", &[]).run(|| {
        forbid(libc::SYS_io_uring_setup, libc::ENOSYS);
        assert_eq!(IoUring::new(1).map(drop).map_err(|e| e.raw_os_error()), Err(Some(libc::ENOSYS)));
        let error = Engine::builder().build().expect_err("no engine without rings");
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, Some(libc::ENOSYS)));
        assert!(error.message().contains("seccomp") && error.message().contains("5.19"), "{error}");
    });
}

/// A filter may allow to make a ring and forbid to register with it.
#[test]
fn io_uring_register_forbidden_by_seccomp_is_refused_with_cause_and_remedy() {
    if !uring() {
        return;
    }
    child("refusals::io_uring_register_forbidden_by_seccomp_is_refused_with_cause_and_remedy", &[]).run(
        || {
            forbid(libc::SYS_io_uring_register, libc::EPERM);
            let by_hand = register_by_hand(&Pages::new(4096)).map_err(|e| e.raw_os_error());
            assert_eq!(by_hand, Err(Some(libc::EPERM)), "the filter is in force");
            let error = Engine::builder().build().expect_err("no engine without registration");
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Permission, Some(libc::EPERM)));
            assert!(error.message().contains("io_uring_register"), "{error}");
        },
    );
}

/// A filter may forbid to enter a ring alone: then no lane can work, and nobody may be left waiting for one.
#[test]
fn io_uring_enter_forbidden_by_seccomp_leaves_nobody_waiting() {
    if !uring() {
        return;
    }
    child("refusals::io_uring_enter_forbidden_by_seccomp_leaves_nobody_waiting", &[]).run(|| {
        let Some(folder) = folders().pop() else { return };
        let path = folder.file("data", 4 * MIB as u64, SEED);
        forbid(libc::SYS_io_uring_enter, libc::EPERM);
        let engine = match Engine::builder().lanes(2).build() {
            Ok(engine) => engine,
            Err(error) => return assert_eq!(error.kind(), ErrorKind::Permission, "{error}"),
        };
        let target = engine.open(&path, OpenOptions::read()).expect("a file opens without a ring");
        let region = engine.alloc_host(4 * MIB).unwrap();
        let client = engine.client().unwrap();
        let begin = Instant::now();
        for i in 0..3 {
            let transfer = Transfer::read(&target).extent(0, region.lease(i * MIB..(i + 1) * MIB).unwrap());
            let done = client.submit(transfer).unwrap().wait().unwrap();
            let error = done.result.expect_err("nothing can be read");
            // Abandoned: a lane had pushed commands before it learnt that it may not enter.
            assert!(matches!(error.kind(), ErrorKind::LaneFailed | ErrorKind::Abandoned), "{error}");
        }
        assert!(
            engine.stats().lanes.iter().all(|lane| !lane.alive),
            "it can be seen that the lanes are gone"
        );
        drop(engine);
        assert!(begin.elapsed() < SOON, "nobody waited for lanes that are gone: {:?}", begin.elapsed());
    });
}

/// The limit is raised by one thread at a time, so that each thread is the first to fail once.
#[test]
fn no_thread_left_is_an_error_with_a_remedy() {
    if !root() {
        eprintln!("skipped: threads are counted by user, and only root can become a user of its own");
        return;
    }
    if !uring() {
        return;
    }
    child("refusals::no_thread_left_is_an_error_with_a_remedy", &[]).keep_capabilities().run(|| {
        let Some(folder) = folders().into_iter().find(|f| f.name == "tmpfs") else { return };
        let path = folder.file("data", 4 * MIB as u64, SEED);
        become_nobody([&folder]);
        let engine = build(Engine::builder().lanes(2));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let going = Background::start(&engine, &target, MIB, SEED);
        assert!(going.goes_on(2), "its kernel workers are there");
        let (before, open) = (threads("").len() as u64, descriptors());
        let mut refused = 0;
        for more in 0..=5 {
            let hard = getrlimit(Resource::RLIMIT_NPROC).unwrap().1;
            setrlimit(Resource::RLIMIT_NPROC, before + more, hard).unwrap();
            if more == 0 {
                let by_hand =
                    std::thread::Builder::new().spawn(|| ()).map(drop).map_err(|e| e.raw_os_error());
                assert_eq!(by_hand, Err(Some(libc::EAGAIN)), "the limit holds in this process");
            }
            if let Err(error) = Engine::builder().lanes(2).build() {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Resource, "with {more} threads: {error}");
                assert!(error.message().contains("thread"), "with {more} threads: {error}");
                assert!(error.message().contains("ulimit -u"), "with {more} threads: {error}");
            }
            setrlimit(Resource::RLIMIT_NPROC, hard, hard).unwrap();
            let all_given_back = || threads("").len() as u64 <= before && descriptors() == open;
            assert!(super::support::eventually(SOON, all_given_back), "with {more} more: {:?}", threads(""));
        }
        assert_eq!(refused, 3, "two lanes and a watchdog: three threads");
        assert!(going.goes_on(2), "the engine that was there goes on");
        going.stop();
    });
}

/// Memory that cannot be pinned is no reason to fail: it is used unregistered, visibly.
#[test]
fn memory_that_cannot_be_pinned_is_used_unregistered() {
    if !uring() {
        return;
    }
    for folder in folders() {
        cannot_be_pinned(&folder);
    }
}

fn cannot_be_pinned(folder: &Folder) {
    let path = folder.file("data", MIB as u64, SEED);
    let engine = build(Engine::builder().lanes(2));
    let target = engine.open(&path, OpenOptions::read()).unwrap();
    let client = engine.client().unwrap();
    let mut pages = Pages::new(MIB);
    pages.accessible(false);
    assert_eq!(register_by_hand(&pages).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    // SAFETY: the pages stay mapped until after the release below.
    let region = unsafe { engine.register_host(pages.ptr(), MIB) }.expect("a region, not registered");
    let note = region.registration_note().expect("it says why");
    assert!(note.contains("cannot pin") && note.contains("read-only"), "{note}");
    pages.accessible(true);
    super::support::poison(pages.bytes_mut());
    let done = load_raw(&client, &target, &mut [raw(0, pages.ptr().as_ptr(), MIB)]);
    done.result.expect("it is read all the same");
    assert_eq!(done.paths.to_string(), "uring", "on {}", folder.name);
    check(pages.bytes(), 0, SEED, folder.name);
    region.release(SOON).expect("nothing is in flight");
}

/// The kernel sends SIGXFSZ with EFBIG, which ends a process that does not expect it: it must come to an error only.
#[test]
fn a_limit_on_file_sizes_is_an_error_and_ends_no_process() {
    if !uring() {
        return;
    }
    child("refusals::a_limit_on_file_sizes_is_an_error_and_ends_no_process", &[]).run(|| {
        for folder in folders() {
            let path = folder.file("data", 4 * MIB as u64, SEED);
            let engine = build(Engine::builder());
            let target = engine.open(&path, OpenOptions::write()).unwrap();
            limit_soft(Resource::RLIMIT_FSIZE, MIB as u64);
            let refused = engine.open(folder.path.join("new"), OpenOptions::write().create(4 * MIB as u64));
            let error = refused.expect_err("longer than files may be");
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Resource, Some(libc::EFBIG)), "{error}");
            assert!(error.message().contains("ulimit -f"), "{error}");
            let region = engine.alloc_host(4 * MIB).unwrap();
            let client = engine.client().unwrap();
            let transfer = Transfer::write(&target).extent(2 * MIB as u64, region.lease(0..MIB).unwrap());
            let error = client.submit(transfer).unwrap().wait().unwrap().result.expect_err("past the limit");
            assert_eq!((error.kind(), error.errno()), (ErrorKind::Resource, Some(libc::EFBIG)), "{error}");
            limit_soft(Resource::RLIMIT_FSIZE, u64::MAX);
        }
    });
}

fn limit_soft(resource: Resource, value: u64) {
    let (_, hard) = getrlimit(resource).unwrap();
    setrlimit(resource, value.min(hard), hard).unwrap();
}
