//! An engine with GPU memory, over the stand-in.

use crate::support::cuda::{Fake, with_cuda};
use crate::support::{Folder, POISON, first_mismatch, folders};
use fullbore::{
    Client, Completion, Engine, EngineBuilder, Error, OpenOptions, Region, Target, Ticket, Transfer,
};
use std::path::PathBuf;
use std::time::Duration;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
/// Longer than any deadline here.
pub const WAIT: Duration = Duration::from_secs(40);
pub const SEED: u64 = 11;

/// Runs `body` in a child that finds the stand-in.
#[track_caller]
pub fn gpu(test: &str, env: &[(&str, &str)], body: impl FnOnce(Fake)) {
    with_cuda(test, env).run(|| {
        let fake = Fake::load();
        body(fake);
        assert_eq!(fake.violations(), "");
        assert_eq!(fake.count("pageable"), 0, "nothing pageable is handed to the driver");
        assert_eq!(fake.count("host_funcs"), 0, "no host function in a stream");
    });
}

pub struct Rig {
    pub fake: Fake,
    pub engine: Engine,
    pub client: Client,
    pub folder: Folder,
    /// Memory of the caller's on GPU 0, registered.
    pub memory: u64,
    pub region: Region,
}

/// The first folder whose files take O_DIRECT.
fn folder() -> Folder {
    let mut all = folders();
    let first = all.iter().position(|folder| folder.direct).unwrap_or(0);
    all.swap_remove(first)
}

impl Rig {
    pub fn new(fake: Fake, builder: EngineBuilder, bytes: u64) -> Rig {
        let engine = builder.build().expect("an engine");
        let memory = fake.alloc(0, bytes);
        // SAFETY: the stand-in's memory, which outlives the engine.
        let region = unsafe { engine.register_cuda(memory, bytes as usize) }.expect("a region");
        let client = engine.client().expect("a client");
        Rig { fake, engine, client, folder: folder(), memory, region }
    }

    /// A file of `size` bytes with content, opened.
    pub fn file(&self, size: u64, options: OpenOptions) -> (PathBuf, Target) {
        let path = self.folder.file("data", size, SEED);
        let target = self.engine.open(&path, options).expect("a target");
        (path, target)
    }

    pub fn run(&self, transfer: Transfer) -> Completion {
        let mut ticket = self.client.submit(transfer).map_err(|r| r.error).expect("accepted");
        ticket.wait_timeout(WAIT).expect("a completion in time")
    }

    /// Reads `len` bytes at `offset` to byte `at` of the region.
    pub fn read(&self, target: &Target, offset: u64, at: u64, len: u64) -> Completion {
        self.run(self.to_read(target, offset, at, len))
    }

    /// The transfer that [`Rig::read`] runs.
    pub fn to_read(&self, target: &Target, offset: u64, at: u64, len: u64) -> Transfer {
        self.add(Transfer::read(target), offset, at, len)
    }

    /// Adds an extent over byte `at` of the region.
    pub fn add(&self, transfer: Transfer, offset: u64, at: u64, len: u64) -> Transfer {
        let range = self.region.range(at as usize..(at + len) as usize).expect("a range");
        transfer.extent(offset, range)
    }

    pub fn submit(&self, transfer: Transfer) -> Ticket {
        self.client.submit(transfer).map_err(|r| r.error).expect("accepted")
    }

    /// A load that works, and is checked: the engine is as good as new. An engine's deadline is for what hangs there.
    #[track_caller]
    pub fn works(&self, target: &Target) {
        self.poison(0, MIB);
        self.run(self.to_read(target, 4096, 3, MIB - 3).deadline(WAIT / 2)).result.expect("it lands");
        self.check(4096, 3, MIB - 3);
        assert_eq!(self.engine.stats().active, 0, "no entry is left over");
    }

    /// What lies at byte `at` of the region is what belongs at `offset` of the file.
    #[track_caller]
    pub fn check(&self, offset: u64, at: u64, len: u64) {
        let bytes = self.fake.peek(self.memory + at, len as usize);
        let wrong = first_mismatch(&bytes, offset, SEED);
        assert_eq!(wrong, None, "byte {wrong:?} of {len} at {at} is not the file's at {offset}");
    }

    pub fn poison(&self, at: u64, len: u64) {
        self.fake.poke(self.memory + at, &vec![POISON; len as usize]);
    }
}

/// A transfer that went well; its memory is free again.
#[track_caller]
pub fn ok(done: Completion) {
    done.result.as_ref().expect("it is moved");
    let asked = done.transfer.as_ref().map(|t| t.extents().iter().map(|e| e.len()).sum());
    assert_eq!(asked, Some(done.bytes));
}

/// What the driver failed: the error says what it answered, of which target, where; the transfer comes back, and its
/// bytes are those of its extents.
#[track_caller]
pub fn failed(done: Completion, code: u32) -> Error {
    let error = done.result.expect_err("the driver failed it");
    assert_eq!(error.cuda_code(), Some(code), "{error}");
    assert!(error.target().is_some_and(|name| name.ends_with("data")), "{error}");
    assert!(error.offset().is_some() && error.length().is_some_and(|len| len > 0), "{error}");
    let text = error.to_string();
    assert!(text.contains("cu") && text.contains("answered CUDA_ERROR_"), "{text}");
    let transfer = done.transfer.expect("nothing is in flight: the transfer comes back");
    assert_eq!(transfer.extents().iter().map(|e| e.bytes()).sum::<u64>(), done.bytes);
    let bad = transfer.extents().iter().filter(|e| !e.succeeded()).collect::<Vec<_>>();
    assert!(!bad.is_empty() && bad.iter().all(|e| e.error().is_some()), "extents say that they failed");
    error
}

/// What the driver gave out, of each kind, less what it got back; calls that failed count as given out.
pub fn given_out(fake: Fake) -> Vec<(&'static str, i64)> {
    let pairs = [
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"),
        ("cuMemHostRegister_v2", "cuMemHostUnregister"),
        ("cuMemHostAlloc", "cuMemFreeHost"),
        ("cuMemAlloc_v2", "cuMemFree_v2"),
        ("cuStreamCreateWithPriority", "cuStreamDestroy_v2"),
        ("cuEventCreate", "cuEventDestroy_v2"),
        ("cuModuleLoadData", "cuModuleUnload"),
    ];
    pairs.map(|(take, give)| (take, fake.count(take) as i64 - fake.count(give) as i64)).to_vec()
}
