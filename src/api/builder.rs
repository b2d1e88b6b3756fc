//! How an engine is built.

use super::cufile::CuFileUse;
use super::engine::Engine;
use super::file_slots::FileSlots;
use super::groups::Groups;
use super::shared::{GpuSettings, Settings, Shared, ring_refusal};
use crate::error::{Error, ErrorKind};
use crate::lane::{Clock, Core};
use crate::memory::{ForkGuard, Regions, TableRing};
use crate::target::CommandSizes;
use crate::topology::{CpuSet, Lanes, Topology};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// How to build an engine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    command_size: Option<u32>,
    lane_depth: u32,
    lanes: Lanes,
    processes: u32,
    max_transfers: usize,
    unit_size: Option<u64>,
    deadline: Option<Duration>,
    grace: Duration,
    clone_buffers: bool,
    null: bool,
    gpu: GpuSettings,
    cufile: CuFileUse,
}

impl EngineBuilder {
    /// The defaults.
    pub(super) fn new() -> EngineBuilder {
        EngineBuilder {
            command_size: None,
            lane_depth: 32,
            lanes: Lanes::Auto,
            processes: 1,
            max_transfers: 1024,
            unit_size: None,
            deadline: Some(Duration::from_secs(30)),
            grace: Duration::from_secs(5),
            clone_buffers: true,
            null: false,
            gpu: GpuSettings { buffer: 8 << 20, buffers: 8, outstanding: 32 << 20, polled: false },
            cufile: CuFileUse::default(),
        }
    }

    /// Most bytes of a command (4 KiB to 16 MiB, whole pages; default 128 KiB, 512 KiB to a file on a file system like
    /// tmpfs, where a thread of the kernel carries each out). A target's limits may make it less.
    pub fn command_size(mut self, bytes: u32) -> Self {
        self.command_size = Some(bytes);
        self
    }

    /// Most commands of a lane in flight (default 32; 1 to 4096).
    pub fn lane_depth(mut self, commands: u32) -> Self {
        self.lane_depth = commands;
        self
    }

    /// How many lanes, each a thread and a ring: a number (1 to 64), or a rule. They run on the CPUs that the calling
    /// thread may use.
    ///
    /// Files share one group of lanes; a drive gets its own when it is first opened, on the CPUs of its hardware
    /// queues. The default, [`Lanes::Auto`]: for files as many as there are CPUs at hand, for a drive as many as it has
    /// queues, at most 8 each. More lanes on files than CPUs only compete with their own kernel workers. A rule about
    /// queues means nothing to files: [`Lanes::PerQueue`] is `Auto` there.
    pub fn lanes(mut self, lanes: impl Into<Lanes>) -> Self {
        self.lanes = lanes.into();
        self
    }

    /// How many processes use the same drives in this way (default 1; 1 to 1024): each lane keeps to this one's share
    /// of its hardware queue's tags, so that no process makes another wait in the kernel.
    pub fn processes(mut self, processes: u32) -> Self {
        self.processes = processes;
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

    /// The pinned bounce buffers of each GPU, made when its memory is first registered: bytes of one (default 8 MiB;
    /// 1 MiB to 256 MiB, whole pages) and how many (default 8; 2 to 32). A copy to the GPU has as many bytes at most;
    /// those of 4 MiB reach 96 % of a Gen5 link.
    pub fn bounce(mut self, bytes: u64, buffers: usize) -> Self {
        (self.gpu.buffer, self.gpu.buffers) = (bytes, buffers);
        self
    }

    /// Most bytes that wait in a GPU's copy engine, each way (default 32 MiB; at least 1 MiB). The engine is first in,
    /// first out: an urgent transfer waits for as many. A copy that is larger goes alone.
    pub fn gpu_outstanding(mut self, bytes: u64) -> Self {
        self.gpu.outstanding = bytes;
        self
    }

    /// Whether a GPU's lane asks for the ends of copies again and again (a CPU's whole time while there are some)
    /// instead of sleeping until they come (the default).
    pub fn gpu_polling(mut self, polls: bool) -> Self {
        self.gpu.polled = polls;
        self
    }

    /// When cuFile (GPUDirect Storage) is used (default: [`CuFileUse::WhereDirect`]). [`Engine::path`] says whether it is,
    /// and why not.
    pub fn cufile(mut self, cufile: CuFileUse) -> Self {
        self.cufile = cufile;
        self
    }

    fn sizes(&self) -> CommandSizes {
        CommandSizes::of(self.command_size)
    }

    fn unit(&self) -> u64 {
        self.unit_size.unwrap_or(u64::from(self.sizes().largest()).max(1 << 20))
    }

    fn check(&self) -> Result<(), Error> {
        let bad = |message: &'static str| Err(Error::new(ErrorKind::InvalidInput, message));
        let command_size = self.sizes().device;
        if !(4096..=16 << 20).contains(&command_size) || !command_size.is_multiple_of(4096) {
            return bad("command_size must be whole pages of 4096 bytes, from 4 KiB to 16 MiB");
        }
        if !(1..=4096).contains(&self.lane_depth) {
            return bad("lane_depth must be 1 to 4096 commands");
        }
        if matches!(self.lanes, Lanes::Count(lanes) if !(1..=64).contains(&lanes)) {
            return bad("lanes must be 1 to 64");
        }
        if !(1..=1024).contains(&self.processes) {
            return bad("processes must be 1 to 1024");
        }
        if !(1..=65_536).contains(&self.max_transfers) {
            return bad("max_transfers must be 1 to 65 536");
        }
        let unit_size = self.unit();
        if !(u64::from(command_size)..=1 << 30).contains(&unit_size) || !unit_size.is_multiple_of(4096) {
            return bad("unit_size must be whole pages of 4096 bytes, from the command size to 1 GiB");
        }
        let GpuSettings { buffer, buffers, outstanding, .. } = self.gpu;
        if !(1 << 20..=256 << 20).contains(&buffer)
            || !buffer.is_multiple_of(4096)
            || !(2..=32).contains(&buffers)
        {
            return bad(
                "bounce buffers must be whole pages of 4096 bytes, from 1 MiB to 256 MiB, and 2 to 32 of them",
            );
        }
        if outstanding < 1 << 20 {
            return bad("gpu_outstanding must be at least 1 MiB");
        }
        if self.grace > Duration::from_secs(3600) {
            return bad("grace must be at most an hour");
        }
        Ok(())
    }

    /// Builds the engine and starts its lanes.
    pub fn build(self) -> Result<Engine, Error> {
        self.check()?;
        let cpus = "cannot tell this process's CPUs; is /proc mounted?";
        let allowed = CpuSet::of_process().map_err(|e| Error::io(cpus, &e))?;
        let topology = Topology::here().unwrap_or_else(|_| Topology::flat(allowed.clone()));
        if let Some(refusal) = ring_refusal().filter(|_| !self.null) {
            return Err(refusal);
        }
        let table_ring =
            TableRing::new(self.clone_buffers && !self.null).map_err(|e| crate::lane::explain_ring(&e))?;
        let fork = ForkGuard::new().map_err(|e| Error::io("cannot map a page; free some memory", &e))?;
        let regions = Arc::new(Regions::default());
        let shared = Arc::new_cyclic(|me| Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            core: Arc::new(Core::with_kept(
                self.max_transfers,
                super::gpu::children(self.gpu.buffers),
                regions,
                Clock::Real(Instant::now()),
            )),
            groups: Groups::new(),
            gate: RwLock::new(()),
            topology,
            allowed,
            table_ring,
            files: FileSlots::new(),
            targets: Mutex::default(),
            cufile: OnceLock::new(),
            gpus: Mutex::default(),
            me: me.clone(),
            fork,
            settings: Settings {
                command_sizes: self.sizes(),
                unit_size: self.unit(),
                deadline: self.deadline,
                grace: self.grace,
                null: self.null,
                lanes: self.lanes,
                lane_depth: self.lane_depth,
                gpu: self.gpu,
                cufile: self.cufile,
                processes: self.processes,
            },
        });
        shared.grow_files()?;
        Engine::start(shared)
    }
}
