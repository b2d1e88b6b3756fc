//! What the machine offers and what a target is, as plain data: for programs that explain a machine to people, as
//! `fullbore doctor` does. Nothing here writes to a device, changes a setting or loads a module of the kernel; what can be
//! tried is tried, and the rest is what sysfs says. All sizes are in bytes.

use super::{Engine, Target};
use crate::error::{Error, ErrorKind};
use crate::lane::PathReport;
use crate::memory::Mapping;
use crate::memory::cuda::{DeviceMemory, Gpu as Device, MOST_PINNED, count};
use crate::queue::cufile::Mode;
use crate::target::{Kind, survey};
use std::path::Path;

pub use crate::queue::Feature;
pub use crate::target::{Controller, DaxDevice, Smart, Survey};
pub use crate::topology::{CpuSet, HardwareQueue, Node, QueueKind, QueueMap, Topology};

/// Tries what the engine uses of io_uring, each by itself. Where this process gets no ring the list ends after that.
pub fn io_uring() -> Vec<Feature> {
    crate::queue::try_features()
}

/// What sysfs shows of a path, which is not opened: its disk, controllers, hardware queues, limits; of a DAX device its
/// size, alignment and node.
///
/// # Errors
/// There is nothing at the path, or it may not be looked at.
pub fn look(path: impl AsRef<Path>) -> Result<Survey, Error> {
    survey(path.as_ref())
}

/// What the drive behind an NVMe namespace (`/dev/ng0n1`) says was read from it and written to it, to be held against what a
/// program says. Needs CAP_SYS_ADMIN: the log is read by an admin command.
///
/// # Errors
/// `Permission`: not root. `InvalidInput`: it is no NVMe namespace. What the drive answers, if it does not answer well.
pub fn smart(path: impl AsRef<Path>) -> Result<Smart, Error> {
    crate::target::smart(path.as_ref())
}

/// A GPU as its driver shows it.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// As CUDA counts, within CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// PCI address, lower case.
    pub address: String,
    /// The NUMA node that it is on, where the machine says.
    pub node: Option<u32>,
    /// Whether the driver registers host memory (2 MiB were tried), and if not, why.
    pub pins: Result<(), Error>,
    /// Bytes of one registration at most, as the engine makes them.
    pub pin_piece: u64,
    /// Whether memory that is mapped for reading alone can be registered.
    pub pins_read_only: bool,
    /// Whether its memory can be exported as a dma-buf (2 MiB were tried), and if not, why.
    pub dma_buf: Result<(), Error>,
}

/// How many GPUs this process sees. No driver, or no GPU, is an error (`Unsupported`) that says why.
pub fn gpus() -> Result<u32, Error> {
    count()
}

/// Tries a GPU. Its primary context is made, if the process has none, and let go again.
///
/// # Errors
/// As [`Engine::alloc_gpu`].
pub fn gpu(ordinal: u32) -> Result<Gpu, Error> {
    const LEN: usize = 2 << 20;
    let device = Device::retain(ordinal)?;
    let mapping = Mapping::new(LEN).map_err(|e| Error::io("no memory to try; free some", &e))?;
    let pins = mapping.pin(&device, true);
    let refused = |why: std::sync::Arc<str>| Error::new(ErrorKind::Unsupported, why.to_string());
    let memory = DeviceMemory::new(&device, LEN);
    let memory = memory.map_err(|e| e.error(&format!("cannot allocate {LEN} bytes on GPU {ordinal}")));
    Ok(Gpu {
        ordinal,
        name: device.name.clone(),
        address: device.address.clone(),
        node: device.node,
        pins: pins.map_err(refused),
        pin_piece: MOST_PINNED as u64,
        pins_read_only: device.pins_read_only(),
        dma_buf: memory.and_then(|memory| device.export(memory.ptr, LEN).map(drop)),
    })
}

/// What cuFile is to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuFileState {
    /// The device itself moves bytes to and from GPU memory.
    pub direct: bool,
    /// Why, and what is missing for a direct path.
    pub reason: String,
}

/// A limit on the bytes of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Whose: `command_size` (the engine's), `mdts` (the drive's), `max_hw_sectors_kb` (the driver's), `max_segments` (of
    /// memory in single pages), `max_blocks`, `max_sectors_kb` (where the kernel's block layer splits).
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// What a target is.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `file`, `block`, `nvme`, `dax` (also mapped files), `null`; of a stripe, what its members are.
    pub kind: &'static str,
    /// Limits of a command, the least first: that one binds.
    pub limits: Vec<Limit>,
    /// Of a NVMe namespace: the number of its LBA format, whose blocks have [`Target::block_size`] bytes.
    pub lba_format: Option<u8>,
    /// It can be opened with `OpenOptions::polled`.
    pub polls: bool,
    /// The file system cannot be asked without blocking: threads of the kernel carry out the commands: of reads one
    /// for each that a lane has in flight, four or five, where there are two CPUs or more a lane.
    pub kernel_workers: bool,
    /// Why registered buffers are not used, if they are not: tried when it was opened.
    pub unregistered: Option<String>,
}

impl Engine {
    /// What a target of this engine is.
    pub fn facts(&self, target: &Target) -> Facts {
        let (inner, mut limits) = (&target.inner, Vec::new());
        let mut add = |name, bytes: Option<u64>| limits.extend(bytes.map(|bytes| Limit { name, bytes }));
        let sizes = self.shared().settings.command_sizes;
        add("command_size", Some(if inner.punts { sizes.worker } else { sizes.device }.into()));
        let geometry = &inner.geometry;
        if let Some(space) = &inner.namespace {
            add("mdts", space.mdts);
            add("max_hw_sectors_kb", space.driver_bytes);
            add("max_segments", Some(u64::from(geometry.max_segments) * u64::from(geometry.page)));
            add("max_blocks", Some(u64::from(geometry.max_blocks) * u64::from(geometry.block)));
        } else if inner.kind == Kind::Block {
            add("max_sectors_kb", survey(Path::new(&*inner.name)).ok().and_then(|it| it.split_bytes));
        }
        limits.sort_by_key(|limit| limit.bytes);
        Facts {
            kind: match inner.kind {
                Kind::File => "file",
                Kind::Block => "block",
                Kind::Nvme => "nvme",
                Kind::Dax => "dax",
                Kind::Null => "null",
            },
            limits,
            lba_format: inner.namespace.as_ref().map(|space| space.format),
            polls: inner.namespace.as_ref().is_some_and(|space| space.poll),
            kernel_workers: inner.punts,
            unregistered: inner.unfixed.clone(),
        }
    }

    /// As [`Engine::path`], over memory that is not registered.
    pub fn path_unregistered(&self, target: &Target) -> PathReport {
        self.shared().path(&target.inner, None)
    }

    /// What cuFile is to this engine, over a GPU. Its library is loaded where the engine would load it: see
    /// [`CuFileUse`](crate::CuFileUse).
    ///
    /// # Errors
    /// There is no such GPU.
    pub fn cufile_state(&self, gpu: u32) -> Result<CuFileState, Error> {
        self.shared().check()?;
        let device = Device::retain(gpu)?;
        Ok(match self.shared().cufile(&device) {
            Ok(here) => CuFileState {
                direct: here.cufile.mode() != Mode::Compat,
                reason: here.cufile.reason().to_owned(),
            },
            Err(why) => CuFileState { direct: false, reason: why.to_owned() },
        })
    }
}
