//! cuFile against the stand-in of tests/fake_cuda/: every fault, and each job answered once or told as left behind.

mod real;
mod rig;
mod workers;

use super::*;
use rig::{Fake, LEN, Library, Memory, Rig, child, until};
use std::sync::atomic::Ordering;

#[test]
fn a_machine_without_the_library_is_told_what_to_do() {
    child("a_machine_without_the_library_is_told_what_to_do", Library::None, &[], || match CuFile::load() {
        Ok(_) => eprintln!("skipped: this machine has a libcufile of its own"),
        Err(why) => {
            assert!(why.contains("libcufile.so.0") && why.contains("libcufile.so:"), "both names: {why}");
            assert!(why.contains("LD_LIBRARY_PATH"), "{why}");
        }
    });
}

#[test]
fn a_library_that_lacks_a_function_is_refused_by_its_name() {
    child("a_library_that_lacks_a_function_is_refused_by_its_name", Library::Broken, &[], || {
        let why = CuFile::load().unwrap_err();
        assert!(why.contains("has no cuFileRead"), "{why}");
    });
}

#[test]
fn an_old_library_works_and_counts_as_compatibility_mode() {
    child("an_old_library_works_and_counts_as_compatibility_mode", Library::Old, &[], || {
        let rig = Rig::new(0);
        assert_eq!(rig.cufile.mode(), Mode::Compat);
        assert!(rig.cufile.reason().contains("cannot be asked"), "{}", rig.cufile.reason());
        rig.read(0, LEN, 1);
        assert_eq!(rig.answer(), Done { user: 1, result: Ok(LEN) });
    });
}

#[test]
fn the_mode_is_what_the_driver_says() {
    const NONE: (&str, &str) = ("UNUSED", "");
    let nvfs = ("FAKE_CUFILE_MODE", "nvfs");
    for (mode, other, expected, said) in [
        (nvfs, NONE, "Direct { by: NvidiaFs }", "cuFile is direct: nvidia-fs 2.27 (libcufile 1.15)"),
        (("FAKE_CUFILE_MODE", "p2pdma"), NONE, "Direct { by: P2pDma }", "cuFile is direct: PCI P2PDMA"),
        (
            ("FAKE_CUFILE_MODE", "compat"),
            NONE,
            "Compat",
            "compatibility mode: nvidia-fs absent, P2PDMA is off",
        ),
        (nvfs, ("FAKE_CUFILE_FORCE_COMPAT", "1"), "Compat", "properties.force_compat_mode"),
        (nvfs, ("FAKE_CUFILE_FAULTS", "properties:0:1"), "Compat", "cannot be asked"),
    ] {
        let env = [mode, other, ("EXPECTED", expected), ("SAID", said)];
        child("the_mode_is_what_the_driver_says", Library::Whole, &env, || {
            let cufile = CuFile::load().unwrap();
            let (expected, said) = (std::env::var("EXPECTED").unwrap(), std::env::var("SAID").unwrap());
            assert_eq!(format!("{:?}", cufile.mode()), expected);
            assert!(cufile.reason().contains(&said), "{}", cufile.reason());
            std::process::exit(rig::came_to_end());
        });
    }
}

#[test]
fn a_driver_that_fails_to_open_is_tried_again() {
    const FAULT: (&str, &str) = ("FAKE_CUFILE_FAULTS", "open:0:1");
    child("a_driver_that_fails_to_open_is_tried_again", Library::Whole, &[FAULT], || {
        let why = CuFile::load().unwrap_err();
        assert!(why.contains("CU_FILE_DRIVER_NOT_INITIALIZED (5001)") && why.contains("nvidia-fs"), "{why}");
        let (one, two) = (CuFile::load().unwrap(), CuFile::load().unwrap());
        assert!(Arc::ptr_eq(&one, &two), "there is one in a process");
        assert_eq!(Fake::loaded().count("cuFileDriverOpen"), 2);
    });
}

#[test]
fn a_driver_that_hangs_is_waited_for_so_long_only() {
    const FAULT: (&str, &str) = ("FAKE_CUFILE_FAULTS", "open_hang:0:1");
    child("a_driver_that_hangs_is_waited_for_so_long_only", Library::Whole, &[FAULT], || {
        for _ in 0..2 {
            let began = Instant::now();
            let why = CuFile::load_within(Duration::from_millis(200)).unwrap_err();
            assert!(why.contains("did not open") && began.elapsed() < Duration::from_secs(5), "{why}");
        }
        let fake = Fake::loaded();
        fake.release();
        CuFile::load().unwrap();
        assert_eq!(fake.count("cuFileDriverOpen"), 1, "it was waited for, not asked twice");
    });
}

#[test]
fn registrations_that_fail_say_why() {
    child("registrations_that_fail_say_why", Library::Whole, &[], || {
        let rig = Rig::new(0);
        let file = std::fs::File::open(&rig.path).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        rig.fake.order("handle", 0, 1);
        let error = rig.cufile.register_file(fd).unwrap_err();
        assert_eq!(error.code(), Some(5027));
        assert!(error.to_string().contains("docs/cufile.md"), "{error}");
        assert_eq!(rig.cufile.register_file(-1).unwrap_err().errno(), Some(libc::EBADF));
        drop(rig.cufile.register_file(fd).unwrap());
        assert_eq!(rig.fake.count("cuFileHandleDeregister"), 1);

        let again = rig.cufile.register_buffer(rig.memory.base(), LEN, Arc::new(())).unwrap_err();
        assert!(again.code() == Some(5023) && !again.retryable());
        let other = Memory::new(LEN, &rig.freed);
        rig.fake.order("buffer", 0, 1);
        let error = rig.cufile.register_buffer(other.base(), LEN, other.clone()).unwrap_err();
        assert_eq!((error.code(), error.name()), (Some(5036), "CU_FILE_GPU_MEMORY_PINNING_FAILED"));
        let buffer = rig.cufile.register_buffer(other.base(), LEN, other).unwrap();
        assert_eq!(rig.freed.load(Ordering::SeqCst), 0, "the buffer holds its owner");
        drop(buffer);
        assert_eq!((rig.freed.load(Ordering::SeqCst), rig.fake.count("cuFileBufDeregister")), (1, 1));
        assert_eq!(rig.fake.violations(), "");
    });
}

#[test]
fn a_registration_that_hangs_is_undone_when_it_comes() {
    child("a_registration_that_hangs_is_undone_when_it_comes", Library::Whole, &[], || {
        let rig = Rig::new(1);
        rig.fake.order("handle_hang", 0, 1);
        let file = std::fs::File::open(&rig.path).unwrap();
        let register = |cufile: Arc<CuFile>, fd| move || cufile.register_file(fd);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let within = Duration::from_millis(100);
        let late = rig.workers.within(within, register(rig.cufile.clone(), fd)).unwrap_err();
        assert_eq!(late.errno(), Some(libc::ETIMEDOUT));
        let behind = rig.workers.within(within, register(rig.cufile.clone(), fd)).unwrap_err();
        assert_eq!(behind.errno(), Some(libc::ETIMEDOUT), "the one thread is held");
        let before = rig.fake.count("cuFileHandleRegister");
        rig.fake.release();
        until("the deregistration", || rig.fake.count("cuFileHandleDeregister") == 1);
        let handle = rig.workers.within(Duration::from_secs(20), register(rig.cufile.clone(), fd)).unwrap();
        assert!(handle.is_ok());
        assert_eq!(rig.fake.count("cuFileHandleRegister"), before + 1, "what was given up is not begun");
        assert_eq!(rig.fake.violations(), "");
    });
}

#[test]
fn a_forked_child_is_refused_and_disturbs_nothing() {
    child("a_forked_child_is_refused_and_disturbs_nothing", Library::Whole, &[], || {
        let rig = Rig::new(1);
        rig.read(0, 4096, 1);
        rig.answer();
        let job = rig.job(crate::target::Op::Read, 0, 4096, 2);
        // SAFETY: the copy runs on the one thread it has and leaves with _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let refused = CuFile::load().is_err_and(|why| why.contains("forked"));
            let refused = refused && rig.workers.submit(job).is_err();
            let refused = refused && rig.cufile.register_buffer(4096, 4096, Arc::new(())).is_err();
            let none = rig.workers.within(Duration::from_secs(1), || ()).is_err();
            drop(rig);
            let fake = Fake::loaded();
            let calls = fake.count("cuFileBufDeregister") + fake.count("cuFileHandleDeregister");
            // SAFETY: ends the copy without the parent's destructors.
            unsafe { libc::_exit(if refused && none && calls == 0 { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for a process of ours.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "the fork was not refused, or hung");
        drop(job);
        rig.read(0, 4096, 3);
        assert_eq!(rig.answer().user, 3, "the parent goes on");
    });
}

/// A test over a stand-in that sees nothing would prove nothing.
#[test]
fn the_stand_in_is_strict() {
    child("the_stand_in_is_strict", Library::Whole, &[("FAKE_CUFILE_MODE", "p2pdma")], || {
        let rig = Rig::new(1);
        let table = rig.cufile.table;
        let (base, file) = (rig.memory.base() as *mut std::ffi::c_void, rig.handle.raw());
        let mut told = 0;
        let mut tells = |what: &str| {
            let lines = rig.fake.violations();
            assert_eq!(lines.lines().count(), told + 1, "{what}: {lines}");
            assert!(lines.lines().last().unwrap().contains(what), "{what}: {lines}");
            told += 1;
        };
        // SAFETY: the stand-in checks all of this, and touches none of it.
        unsafe {
            assert_eq!((table.read)(file, base.wrapping_byte_add(4096), 4096, 0, 0), -5024);
            tells("interior pointer");
            assert_eq!((table.read)(file, base.wrapping_byte_add(2 * LEN), 4096, 0, 0), -5024);
            tells("unregistered pointer");
            assert_eq!((table.write)(file, base, 4096, 0, LEN as i64), -5017);
            tells("past the end");
            assert_eq!((table.read)(std::ptr::null_mut(), base, 4096, 0, 0), -5027);
            tells("handle that is not registered");
            assert_eq!((table.read)(file, base, 100, 0, 0), 100);
            tells("unaligned");
            assert_eq!((table.buf_deregister)(base.wrapping_byte_add(8)).err, 5022);
            tells("buffer was deregistered that is not registered");
        }
        rig.fake.order("hang", 0, 1);
        rig.read(0, 4096, 1);
        until("the job", || rig.fake.count("in flight") == 1);
        // SAFETY: as above; in flight is what it shall see.
        unsafe { (table.handle_deregister)(file) };
        tells("handle was deregistered with I/O in flight");
        // SAFETY: as above.
        unsafe { (table.buf_deregister)(base) };
        tells("buffer was deregistered with I/O in flight");
        std::process::exit(rig::came_to_end()); // what it did to the rig's registrations is not for destructors
    });
}
