//! cuFile, over the stand-in: used where it is direct, never by itself where it is not, and every fault ends in one
//! completion.

use super::rig::{KIB, MIB, Rig, gpu};
use crate::support::cuda::Fake;
use fullbore::{CuFileUse, Engine, EngineBuilder, ErrorKind, OpenOptions, Path, Transfer};
use std::ffi::{CStr, CString, c_char, c_void};
use std::time::Duration;

/// The stand-in libcufile of this process.
#[derive(Clone, Copy)]
struct FakeFile(*mut c_void);

impl FakeFile {
    fn load() -> FakeFile {
        // SAFETY: a library of ours.
        let library = unsafe { libc::dlopen(c"libcufile.so.0".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "no stand-in for libcufile");
        FakeFile(library)
    }

    fn symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: a loaded library and a name that ends with a 0.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    fn order(self, fault: &str, after: u64, times: u64) {
        let fault = CString::new(fault).expect("a name");
        // SAFETY: the function's type, as tests/fake_cuda/cufile.c has it.
        unsafe {
            let order: unsafe extern "C" fn(*const c_char, u64, u64) =
                std::mem::transmute(self.symbol(c"fake_cufile_order"));
            order(fault.as_ptr(), after, times);
        }
    }

    fn count(self, name: &str) -> u64 {
        let name = CString::new(name).expect("a name");
        // SAFETY: as above.
        unsafe {
            let count: unsafe extern "C" fn(*const c_char) -> u64 =
                std::mem::transmute(self.symbol(c"fake_cufile_count"));
            count(name.as_ptr())
        }
    }

    fn release(self) {
        // SAFETY: as above.
        unsafe {
            let release: unsafe extern "C" fn() = std::mem::transmute(self.symbol(c"fake_cufile_release"));
            release();
        }
    }

    fn violations(self) -> String {
        // SAFETY: as above; the string stays until the next call.
        unsafe {
            let ask: unsafe extern "C" fn() -> *const c_char =
                std::mem::transmute(self.symbol(c"fake_cufile_violations"));
            CStr::from_ptr(ask()).to_string_lossy().into_owned()
        }
    }
}

fn asked() -> EngineBuilder {
    Engine::builder().cufile(CuFileUse::Asked)
}

#[track_caller]
fn with(test: &str, mode: &str, body: impl FnOnce(Fake, FakeFile)) {
    gpu(test, &[("FAKE_CUFILE_MODE", mode)], |fake| {
        let file = FakeFile::load();
        body(fake, file);
        assert_eq!(file.violations(), "");
    });
}

#[test]
fn direct_is_chosen_by_itself_and_its_reason_is_told() {
    with("gpu::cufile::direct_is_chosen_by_itself_and_its_reason_is_told", "p2pdma", |fake, file| {
        let rig = Rig::new(fake, asked(), 64 * MIB);
        let (path, target) = rig.file(40 * MIB, OpenOptions::write());
        let report = rig.engine.path(&target, &rig.region);
        assert_eq!(report.path, Path::CuFile, "{}", report.reason);
        assert!(report.reason.contains("P2PDMA"), "{}", report.reason);
        let done = rig.read(&target, 4096, 8192, 33 * MIB);
        done.result.expect("it lands");
        assert_eq!(done.paths.to_string(), "cufile");
        rig.check(4096, 8192, 33 * MIB);
        drop(done.transfer);
        assert_eq!(fake.count("bytes_h2d"), 0, "no bounce");
        // What P2PDMA does not take goes by bounce, and says so.
        let done = rig.read(&target, 5, 8192, 9 * MIB);
        done.result.expect("it lands");
        assert!(done.paths.contains(Path::PinnedBounce), "{}", done.paths);
        rig.check(5, 8192, 9 * MIB);
        drop(done.transfer);
        // And back, durable.
        let mut bytes = vec![0; 16 << 20];
        crate::support::fill(&mut bytes, 99, 5);
        fake.poke(rig.memory, &bytes);
        let range = rig.region.range(0..16 << 20).expect("a range");
        let done = rig.run(Transfer::write(&target).extent(8 * MIB, range).durable());
        done.result.expect("it is written");
        assert_eq!(done.paths.to_string(), "cufile");
        assert!(std::fs::read(path).expect("the file")[8 << 20..24 << 20] == bytes[..]);
        assert!(file.count("cuFileWrite") > 0);
        drop(done.transfer);
        rig.region.release(Duration::from_secs(5)).expect("nothing is in flight");
    });
}

/// Batches are not relied on: those of the library have been seen not to return.
#[test]
fn a_batch_that_never_returns_holds_up_nobody() {
    with("gpu::cufile::a_batch_that_never_returns_holds_up_nobody", "nvfs", |fake, file| {
        file.order("batch_hang", 0, u64::MAX);
        let rig = Rig::new(fake, asked(), 64 * MIB);
        let (_, target) = rig.file(40 * MIB, OpenOptions::read());
        let done = rig.read(&target, 0, 0, 40 * MIB);
        done.result.expect("it lands");
        assert_eq!(done.paths.to_string(), "cufile");
        rig.check(0, 0, 40 * MIB);
        assert_eq!(file.count("cuFileBatchIOSubmit"), 0);
    });
}

#[test]
fn compatibility_runs_only_where_it_is_demanded() {
    with("gpu::cufile::compatibility_runs_only_where_it_is_demanded", "compat", |fake, file| {
        let rig = Rig::new(fake, asked(), 64 * MIB);
        let (_, target) = rig.file(20 * MIB, OpenOptions::read());
        let report = rig.engine.path(&target, &rig.region);
        assert_eq!(report.path, Path::PinnedBounce);
        assert!(report.reason.contains("compatibility mode"), "{}", report.reason);
        rig.read(&target, 0, 0, 20 * MIB).result.expect("it lands");
        assert_eq!(file.count("cuFileRead"), 0, "never by itself");
        let range = rig.region.range(0..20 << 20).expect("a range");
        let done = rig.run(Transfer::read(&target).extent(0, range).require(Path::CuFileCompat));
        done.result.expect("it lands");
        assert_eq!(done.paths.to_string(), "cufile compat");
        rig.check(0, 0, 20 * MIB);
        let range = rig.region.range(20 << 20..40 << 20).expect("a range");
        let refused = rig.client.submit(Transfer::read(&target).extent(0, range).require(Path::CuFile));
        let refused = refused.map(drop).unwrap_err().error;
        assert_eq!(refused.kind(), ErrorKind::PathUnavailable);
        assert!(refused.message().contains("compatibility mode"), "{refused}");
        for (path, remedy) in [(Path::DaxToGpu, "OpenOptions::mapped"), (Path::Fixed, "PinnedBounce")] {
            let range = rig.region.range(20 << 20..40 << 20).expect("a range");
            let refused = rig.client.submit(Transfer::read(&target).extent(0, range).require(path));
            let refused = refused.map(drop).unwrap_err().error;
            assert!(refused.message().contains(remedy), "{refused}");
        }
    });
}

#[test]
fn faults_of_the_library_end_in_one_completion() {
    with("gpu::cufile::faults_of_the_library_end_in_one_completion", "nvfs", |fake, file| {
        let rig = Rig::new(fake, asked().grace(Duration::from_millis(300)), 64 * MIB);
        let (_, target) = rig.file(40 * MIB, OpenOptions::read());
        for (fault, kind, code) in [
            ("read=5030", ErrorKind::Io, Some(5030)),
            ("read=5011", ErrorKind::Io, Some(5011)),
            ("errno=5", ErrorKind::Io, None),
        ] {
            file.order(fault, 2, 1);
            let done = rig.read(&target, 0, 0, 40 * MIB);
            let error = done.result.expect_err(fault);
            assert_eq!((error.kind(), error.cufile_code()), (kind, code), "{fault}: {error}");
            assert_eq!(done.bytes, 32 * MIB, "the other units landed");
        }
        // What the library says to try again is tried again; a short answer is continued.
        for fault in ["read=5039", "short"] {
            file.order(fault, 1, 2);
            rig.poison(0, 40 * MIB);
            rig.read(&target, 0, 0, 40 * MIB).result.expect(fault);
            rig.check(0, 0, 40 * MIB);
        }
        file.order("hang", 1, 1);
        let done = rig.run(rig.to_read(&target, 0, 0, 40 * MIB).deadline(Duration::from_millis(700)));
        assert_eq!(done.result.expect_err("it hangs").kind(), ErrorKind::Abandoned);
        rig.read(&target, 0, 41 * MIB, 8 * KIB).result.expect("others go on");
        file.release();
        assert!(crate::support::eventually(Duration::from_secs(10), || {
            rig.engine.stats().quarantined_bytes == 0
        }));
    });
}

/// A file or memory that cuFile refuses goes by bounce, and the path says why.
#[test]
fn what_is_refused_goes_by_bounce() {
    with("gpu::cufile::what_is_refused_goes_by_bounce", "nvfs", |fake, file| {
        file.order("handle=5027", 0, 1);
        let rig = Rig::new(fake, asked(), 64 * MIB);
        let (_, target) = rig.file(8 * MIB, OpenOptions::read());
        let report = rig.engine.path(&target, &rig.region);
        assert_eq!(report.path, Path::PinnedBounce);
        assert!(report.reason.contains("5027"), "{}", report.reason);
        rig.read(&target, 0, 0, 8 * MIB).result.expect("it lands");
        rig.check(0, 0, 8 * MIB);
        file.order("buffer=5036", 0, 1);
        let other = rig.engine.alloc_gpu(0, 8 << 20).expect("memory");
        let (_, second) = rig.file(8 * MIB, OpenOptions::read());
        let report = rig.engine.path(&second, &other);
        assert_eq!(report.path, Path::PinnedBounce);
        assert!(report.reason.contains("5036"), "{}", report.reason);
        assert_eq!(rig.engine.path(&second, &rig.region).path, Path::CuFile);
    });
}

/// By default the library is not even opened on a machine that shows no direct path.
#[test]
fn it_is_left_alone_where_nothing_is_direct() {
    with("gpu::cufile::it_is_left_alone_where_nothing_is_direct", "nvfs", |fake, file| {
        if std::path::Path::new("/proc/driver/nvidia-fs").exists() {
            eprintln!("skipped: this machine has nvidia-fs");
            return;
        }
        let rig = Rig::new(fake, Engine::builder(), 8 * MIB);
        let (_, target) = rig.file(8 * MIB, OpenOptions::read());
        let report = rig.engine.path(&target, &rig.region);
        assert!(report.reason.contains("nvidia-fs absent"), "{}", report.reason);
        assert_eq!(file.count("cuFileDriverOpen"), 0);
    });
}

/// A lane has more units in cuFile's hands than it has bounce buffers; each look at how many there are is counted.
#[test]
fn units_beyond_the_bounce_buffers_are_counted() {
    with("gpu::cufile::units_beyond_the_bounce_buffers_are_counted", "nvfs", |fake, _| {
        let rig = Rig::new(fake, asked().bounce(MIB, 2), 64 * MIB);
        let (_, target) = rig.file(64 * MIB, OpenOptions::read());
        rig.read(&target, 0, 0, 64 * MIB).result.expect("it lands");
        let lanes = rig.engine.stats().lanes;
        let lane = lanes.iter().find(|lane| lane.drive.as_deref() == Some("gpu 0")).expect("its lane");
        assert!(lane.max_in_flight > lane.depth.into(), "{} of {}", lane.max_in_flight, lane.depth);
        let most = lane.occupancy.iter().rposition(|looks| *looks > 0);
        assert_eq!(most, Some(lane.max_in_flight as usize), "{:?}", lane.occupancy);
    });
}
