//! An engine with GPU memory, over the stand-in.

use crate::support::cuda::{Fake, with_cuda};
use crate::support::{Folder, POISON, first_mismatch, folders};
use fullbore::{Client, Completion, Engine, EngineBuilder, OpenOptions, Region, Target, Transfer};
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
        let range = self.region.range(at as usize..(at + len) as usize).expect("a range");
        self.run(Transfer::read(target).extent(offset, range))
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
