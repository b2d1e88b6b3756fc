//! The engine: building it, opening targets, making regions, shutting down.

use super::Target;
use super::file_slots::{FileSlots, Unregister};
use super::shared::{Settings, Shared, ring_refusal};
use super::stats::Stats;
use crate::error::{Error, ErrorKind};
use crate::lane::{
    Clock, Core, LaneOptions, LaneSpec, LaneThread, PathReport, QueueKind, Stop, Watch, Watchdog,
};
use crate::memory::{AllocOptions, ForkGuard, Region, RegionInner, Regions, TableRing};
use crate::target::{OpenOptions, TargetInner, open, open_null};
use crate::topology::{CpuSet, Topology, default_lanes, lane_cpus};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// How to build an engine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    command_size: u32,
    lane_depth: u32,
    lanes: Option<usize>,
    max_transfers: usize,
    unit_size: Option<u64>,
    deadline: Option<Duration>,
    grace: Duration,
    clone_buffers: bool,
    null: bool,
}

impl EngineBuilder {
    /// Most bytes of a command (default 128 KiB; 4 KiB to 16 MiB, whole pages). A target's limits may make it less.
    pub fn command_size(mut self, bytes: u32) -> Self {
        self.command_size = bytes;
        self
    }

    /// Most commands of a lane in flight (default 32; 1 to 4096).
    pub fn lane_depth(mut self, commands: u32) -> Self {
        self.lane_depth = commands;
        self
    }

    /// How many lanes, each a thread and a ring (1 to 64). They run on the CPUs that the calling thread may use.
    ///
    /// Default: the CPUs at hand, at most 8. Each lane adds a ring to the file's contention; on files more of them
    /// than CPUs only compete with their own kernel workers.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Most transfers under way (default 1024; 1 to 65 536). One more is refused with `Busy`.
    pub fn max_transfers(mut self, transfers: usize) -> Self {
        self.max_transfers = transfers;
        self
    }

    /// Bytes that a lane claims at once (default 1 MiB, or a larger command size; at least the command size).
    pub fn unit_size(mut self, bytes: u64) -> Self {
        self.unit_size = Some(bytes);
        self
    }

    /// How long a transfer may take unless it says otherwise (default 30 s; `None`: for ever).
    pub fn deadline(mut self, within: Option<Duration>) -> Self {
        self.deadline = within;
        self
    }

    /// How long after its deadline a transfer may drain before it is abandoned (default 5 s).
    pub fn grace(mut self, within: Duration) -> Self {
        self.grace = within;
        self
    }

    /// Whether lanes clone registered buffers where the kernel can (default yes).
    pub fn clone_buffers(mut self, clones: bool) -> Self {
        self.clone_buffers = clones;
        self
    }

    /// An engine over the null queue: commands complete at once, nothing moves. It measures the engine's own cost.
    pub fn null(mut self) -> Self {
        self.null = true;
        self
    }

    fn unit(&self) -> u64 {
        self.unit_size.unwrap_or((self.command_size as u64).max(1 << 20))
    }

    fn check(&self) -> Result<(), Error> {
        let bad = |message: &'static str| Err(Error::new(ErrorKind::InvalidInput, message));
        if !(4096..=16 << 20).contains(&self.command_size) || !self.command_size.is_multiple_of(4096) {
            return bad("command_size must be whole pages of 4096 bytes, from 4 KiB to 16 MiB");
        }
        if !(1..=4096).contains(&self.lane_depth) {
            return bad("lane_depth must be 1 to 4096 commands");
        }
        if self.lanes.is_some_and(|lanes| !(1..=64).contains(&lanes)) {
            return bad("lanes must be 1 to 64");
        }
        if !(1..=65_536).contains(&self.max_transfers) {
            return bad("max_transfers must be 1 to 65 536");
        }
        let unit_size = self.unit();
        if !(self.command_size as u64..=1 << 30).contains(&unit_size) || !unit_size.is_multiple_of(4096) {
            return bad("unit_size must be whole pages of 4096 bytes, from the command size to 1 GiB");
        }
        if self.grace > Duration::from_secs(3600) {
            return bad("grace must be at most an hour");
        }
        Ok(())
    }

    /// Builds the engine and starts its lanes.
    pub fn build(self) -> Result<Engine, Error> {
        self.check()?;
        let allowed = CpuSet::of_process().map_err(|e| Error::io("cannot tell this process's CPUs", &e))?;
        let topology = Topology::read().unwrap_or_else(|_| Topology::flat(allowed.clone()));
        let count = self.lanes.unwrap_or_else(|| default_lanes(&allowed));
        if let Some(refusal) = ring_refusal().filter(|_| !self.null) {
            return Err(refusal);
        }
        let table_ring =
            TableRing::new(self.clone_buffers && !self.null).map_err(|e| crate::lane::explain_ring(&e))?;
        let fork = ForkGuard::new().map_err(|e| Error::io("cannot map a page", &e))?;
        let core = Arc::new(Core::new(
            self.max_transfers,
            Arc::new(Regions::default()),
            Clock::Real(Instant::now()),
        ));
        let kind = if self.null { QueueKind::Null } else { QueueKind::Uring { source: table_ring.source() } };
        let options = LaneOptions {
            depth: self.lane_depth as usize,
            command_size: self.command_size,
            first_generation: 0,
        };
        let mut threads = Vec::with_capacity(count);
        for (number, cpus) in lane_cpus(&topology, &allowed, count).into_iter().enumerate() {
            let started =
                LaneThread::start(&core, LaneSpec { number, kind, options, cpus, grace: self.grace });
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop_lanes(&mut threads, self.grace);
                    return Err(error);
                }
            }
        }
        let settings = Settings {
            command_size: self.command_size,
            unit_size: self.unit(),
            deadline: self.deadline,
            grace: self.grace,
            null: self.null,
        };
        Engine::start(threads, core, table_ring, fork, settings)
    }
}

/// Asks lanes to end and waits for them. False: some did not end in time.
fn stop_lanes(threads: &mut [LaneThread], grace: Duration) -> bool {
    threads.iter().for_each(LaneThread::stop);
    let until = Instant::now() + grace + Duration::from_secs(1);
    // Each is waited for, also after one that did not end.
    let late = threads
        .iter_mut()
        .filter_map(|t| (!t.join(until.saturating_duration_since(Instant::now()))).then_some(()));
    late.count() == 0
}

/// Owns lanes, targets and regions. Dropping it stops all transfers, drains them within the grace and ends the lanes;
/// every transfer still gets its completion.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Vec<LaneThread>,
    watchdog: Option<Watchdog>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

impl Engine {
    /// An engine with the defaults, to be changed.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            command_size: 128 << 10,
            lane_depth: 32,
            lanes: None,
            max_transfers: 1024,
            unit_size: None,
            deadline: Some(Duration::from_secs(30)),
            grace: Duration::from_secs(5),
            clone_buffers: true,
            null: false,
        }
    }

    fn start(
        threads: Vec<LaneThread>,
        core: Arc<Core>,
        table_ring: TableRing,
        fork: ForkGuard,
        settings: Settings,
    ) -> Result<Engine, Error> {
        let lanes: Vec<_> = threads.iter().map(|t| t.inbox.clone()).collect();
        let watch = Watch::new(core.clone(), lanes.clone(), settings.grace);
        let shared = Arc::new(Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            core,
            lanes,
            cpus: threads.iter().map(|t| t.cpus.clone()).collect(),
            flags: threads.iter().map(|t| t.description.clone()).collect(),
            table_ring,
            files: FileSlots::new(),
            fork,
            settings,
        });
        let mut engine = Engine { shared, threads, watchdog: None };
        let watchdog = Watchdog::start(watch).map_err(|e| {
            let message = "cannot start the watchdog's thread; raise the limit (ulimit -u)";
            Error::io(message, &e).with_kind(ErrorKind::Resource)
        })?;
        engine.watchdog = Some(watchdog);
        Ok(engine)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens a file or a block device.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<Target, Error> {
        self.shared.check()?;
        if self.shared.settings.null {
            let message =
                "an engine over the null queue moves nothing; use open_null, or build without null()";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.admit(open(path.as_ref(), &options, self.shared.id, self.shared.settings.command_size)?)
    }

    /// A target of `size` bytes for an engine over the null queue.
    pub fn open_null(&self, size: u64) -> Result<Target, Error> {
        self.shared.check()?;
        if !self.shared.settings.null {
            let message = "a null target needs an engine over the null queue: Engine::builder().null()";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.admit(open_null(size, self.shared.id, self.shared.settings.command_size)?)
    }

    fn admit(&self, target: TargetInner) -> Result<Target, Error> {
        let _ = target.closer.set(Box::new(Unregister(Arc::downgrade(&self.shared))));
        self.shared.register_file(&target);
        Ok(Target { inner: Arc::new(target) })
    }

    /// Allocates `bytes` of page-aligned host memory, in huge pages where they can be had, registered with the rings.
    pub fn alloc_host(&self, bytes: usize) -> Result<Region, Error> {
        self.alloc_host_with(bytes, &AllocOptions::default())
    }

    /// The same, with a say about huge pages and the NUMA node.
    pub fn alloc_host_with(&self, bytes: usize, options: &AllocOptions) -> Result<Region, Error> {
        self.shared.check()?;
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "a region of no bytes; ask for at least one"));
        }
        Ok(self.region(self.shared.alloc(bytes, options)?))
    }

    /// Registers `len` bytes of the caller's memory at `p`.
    ///
    /// # Safety
    /// Until [`Region::release`] has answered `Ok`, the memory must stay mapped and must not be remapped (a remapped
    /// address keeps writing to the old pages) or freed. While a transfer over it is under way nobody else may access
    /// its bytes.
    pub unsafe fn register_host(&self, p: NonNull<u8>, len: usize) -> Result<Region, Error> {
        self.shared.check()?;
        if len == 0 || (p.as_ptr() as usize).checked_add(len).is_none_or(|end| end > isize::MAX as usize) {
            let message =
                "the range is empty or wraps around the address space; give pointer and length in bytes";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(0, len as u64));
        }
        // SAFETY: passed on to the caller.
        Ok(self.region(unsafe { self.shared.register(p, len)? }))
    }

    fn region(&self, inner: Arc<RegionInner>) -> Region {
        Region::new(inner, self.shared.clone())
    }

    /// The path that aligned transfers between `target` and `region` take, and why.
    pub fn path(&self, target: &Target, region: &Region) -> PathReport {
        self.shared.path(&target.inner, Some(region.inner()))
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> usize {
        self.shared.lanes.len()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.shared.fork.forked() {
            // The threads are the parent's; there is nothing here to wait for.
            std::mem::forget(std::mem::take(&mut self.threads));
            std::mem::forget(self.watchdog.take());
            return;
        }
        let core = &self.shared.core;
        core.closing.store(true, Ordering::SeqCst);
        let stop_all = |each: &dyn Fn(crate::lane::Handle)| {
            (0..core.table.len() as u32).filter_map(|i| core.table.active(i)).for_each(each);
        };
        stop_all(&|handle| core.stop(handle, Stop::Shutdown));
        if !stop_lanes(&mut self.threads, self.shared.settings.grace) {
            tracing::error!(
                "a lane did not end within the grace; it is left to itself, with its ring and memory"
            );
        }
        // What did not drain is published all the same: nobody is left waiting.
        stop_all(&|handle| {
            core.abandon(handle);
        });
        self.watchdog = None;
    }
}
