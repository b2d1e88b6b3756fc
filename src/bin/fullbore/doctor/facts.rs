//! What was found: plain data, gathered by [`super::gather`], judged by [`super::judge`], shown by [`super::text`] and
//! [`super::json`]. Sizes are in bytes.

use fullbore::machine::{self, CpuSet, CuFileState, Feature, Gpu, Node, Survey};
use fullbore::{Drive, ErrorKind, Path};

/// Something that was refused: the library's words, and what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub text: String,
    pub errno: Option<i32>,
    pub kind: Option<ErrorKind>,
}

impl From<fullbore::Error> for Refusal {
    fn from(error: fullbore::Error) -> Self {
        Self { text: error.to_string(), errno: error.errno(), kind: Some(error.kind()) }
    }
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Facts {
    pub process: Process,
    pub machine: Machine,
    pub devices: Vec<Device>,
    pub gpus: Gpus,
    pub pairs: Vec<Pair>,
    /// What is on the machine and cannot be reached from here.
    pub unseen: Vec<Unseen>,
    /// Devices were to be measured.
    pub quick_bench: bool,
}

/// A limit of the process; `None`: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// Who runs, and within what.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Process {
    /// Effective user.
    pub uid: u32,
    /// Effective group and supplementary ones.
    pub groups: Vec<u32>,
    /// Bits of CapEff.
    pub capabilities: u64,
    /// 0: none, 1: strict, 2: a filter.
    pub seccomp: Option<u32>,
    /// `kernel.io_uring_disabled`.
    pub io_uring_disabled: Option<i64>,
    /// `kernel.io_uring_group`.
    pub io_uring_group: Option<i64>,
    pub memlock: Limit,
    pub open_files: Limit,
    /// Whether 8 MiB could be registered with the rings; `None`: not tried.
    pub registered: Option<Result<(), String>>,
    pub cgroup: Cgroup,
}

pub const CAP_IPC_LOCK: u32 = 14;
pub const CAP_SYS_ADMIN: u32 = 21;

impl Process {
    pub fn can(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// What the control group leaves; `None`: no limit, or none to be seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cgroup {
    pub path: Option<String>,
    pub memory_max: Option<u64>,
    pub memory_used: Option<u64>,
    /// CPUs' worth of time.
    pub cpus: Option<f64>,
    /// CPUs of the cpuset.
    pub cpuset: Option<String>,
}

/// The kernel and its CPUs.
#[derive(Debug, Clone)]
pub struct Machine {
    pub kernel: String,
    pub online: CpuSet,
    /// Those that this process may use.
    pub allowed: CpuSet,
    pub nodes: Vec<Node>,
    pub features: Vec<Feature>,
    /// Why no engine can be built, if so.
    pub no_engine: Option<Refusal>,
}

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// An NVMe namespace's character device.
    Nvme,
    Block,
    Dax,
    File,
    /// A folder; what is said is of a file that was made in it.
    Folder,
    /// Nothing that can be a target, or nothing at all.
    Other,
}

/// Who may do what to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
    /// What this process may do, by the node alone.
    pub read: bool,
    pub write: bool,
}

/// A target, opened or not.
#[derive(Debug, Clone)]
pub struct Device {
    pub path: String,
    pub what: What,
    pub access: Option<Access>,
    pub survey: Survey,
    /// `None`: it was not tried, as there is no engine.
    pub opened: Option<Result<Opened, Refusal>>,
    /// Why the page cache lies between, if it was opened so.
    pub direct_refused: Option<String>,
    pub disk: Option<Disk>,
    pub pci: Vec<Pci>,
    /// CPUs nearest to a DAX device's memory.
    pub nearest_cpus: Option<CpuSet>,
    pub bench: Option<Result<Measured, String>>,
}

impl Device {
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()?.as_ref().ok()
    }

    /// The NUMA node that it is on.
    pub fn node(&self) -> Option<u32> {
        let dax = self.survey.dax.as_ref().and_then(|dax| dax.node);
        dax.or(self.survey.queues.as_ref().and_then(|map| map.node))
    }
}

/// What an open target is.
#[derive(Debug, Clone)]
pub struct Opened {
    pub size: u64,
    pub block: u32,
    pub memory_alignment: u32,
    pub facts: machine::Facts,
    pub drive: Option<Drive>,
}

/// What the block layer does with a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    pub scheduler: Option<String>,
    pub rotational: bool,
}

/// Where a device is on the PCI bus.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pci {
    pub address: String,
    pub link: Option<Link>,
    /// The type of its IOMMU group (`DMA`, `DMA-FQ`, `identity`); `None`: no IOMMU is between.
    pub iommu: Option<String>,
    /// It publishes peer memory.
    pub peer_memory: bool,
}

/// A PCIe link. Speeds are in GT/s a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Link {
    pub speed: f64,
    pub width: u32,
    /// The device's best.
    pub max_speed: f64,
    pub max_width: u32,
    /// The best of the port above it, where it says.
    pub port_speed: Option<f64>,
    pub port_width: Option<u32>,
}

impl Link {
    /// The best that both ends can.
    pub fn best_speed(&self) -> f64 {
        self.port_speed.map_or(self.max_speed, |port| port.min(self.max_speed))
    }

    pub fn best_width(&self) -> u32 {
        self.port_width.map_or(self.max_width, |port| port.min(self.max_width))
    }
}

/// The GPUs, or why none is used.
#[derive(Debug, Clone, Default)]
pub struct Gpus {
    /// PCI addresses of NVIDIA GPUs on the bus.
    pub on_bus: Vec<String>,
    /// Why the driver shows none.
    pub refused: Option<Refusal>,
    pub list: Vec<GpuFacts>,
}

/// A GPU.
#[derive(Debug, Clone)]
pub struct GpuFacts {
    pub ordinal: u32,
    pub gpu: Result<Gpu, Refusal>,
    pub pci: Option<Pci>,
    /// Of the link when it was first looked at: an idle GPU lowers its speed.
    pub idle_speed: Option<f64>,
    pub cufile: Option<CuFileState>,
    pub bench: Option<Result<Measured, String>>,
}

/// Memory that a target is read into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// Registered with the rings.
    Host,
    /// A caller's pointer.
    Unregistered,
    Gpu(u32),
    /// A PCI device's own memory, by its address.
    Peer(String),
}

/// A target, memory, and the path between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub device: String,
    pub memory: Memory,
    pub path: Option<Path>,
    /// Why this one; without a path, why there is none.
    pub reason: String,
}

/// What is there and cannot be used from here, and what would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    pub what: String,
    pub remedy: String,
}

/// What reading for a few seconds gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Bytes that completions reported.
    pub bytes: u64,
    /// Bytes that were asked for, and that the lanes counted: all three agree, or something is wrong.
    pub asked: u64,
    pub counted: u64,
    pub seconds: f64,
    /// Most commands in flight, over all lanes.
    pub most_in_flight: u64,
    pub paths: String,
}

impl Measured {
    pub fn agrees(&self) -> bool {
        self.bytes > 0 && self.bytes == self.asked && self.bytes == self.counted
    }

    /// 10^9 bytes a second.
    pub fn gbps(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1e9
    }
}
