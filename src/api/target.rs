//! A target as a user holds it.

use crate::error::Error;
use crate::lane::Transfer;
use crate::plan::Geometry;
use crate::target::{Kind, Op, TargetInner};
use std::sync::Arc;

/// Where bytes live. Clones name the same target; it is closed when the last one and the last transfer are gone.
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) inner: Arc<TargetInner>,
}

/// What a NVMe drive says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    /// Its model.
    pub model: String,
    /// Its serial number.
    pub serial: String,
    /// The namespace's number on it.
    pub namespace: u32,
    /// The NUMA node that it is on, where there are several.
    pub node: Option<u32>,
    /// Where it is: the PCI address of its first controller, as [`crate::Engine::map_peer`] takes it.
    pub address: Option<String>,
    /// Its block device, such as `nvme0n1`.
    pub block_name: Option<String>,
    /// What is written is durable only after a flush.
    pub write_cache: bool,
}

impl Target {
    /// The drive behind it, of a NVMe character device; `None` for others, also for stripes.
    pub fn drive(&self) -> Option<Drive> {
        let namespace = self.inner.namespace.as_ref()?;
        Some(Drive {
            model: namespace.model.clone(),
            serial: namespace.serial.clone(),
            namespace: namespace.nsid,
            node: namespace.node,
            address: namespace.controllers.first().and_then(|it| it.address.clone()),
            block_name: namespace.block_name.clone(),
            write_cache: namespace.write_cache,
        })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.inner.size()
    }

    /// Writes must be whole blocks of this many bytes; reads that are go straight.
    pub fn block_size(&self) -> u32 {
        self.inner.geometry.block
    }

    /// Memory at multiples of this many bytes is reached without a copy.
    pub fn memory_alignment(&self) -> u32 {
        self.inner.geometry.memory_align
    }

    /// All its limits.
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// The path it was opened with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether it was opened with O_DIRECT, or is reached by NVMe passthrough.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Whether it is mapped memory that the CPU copies from and to: a DAX device, or a file opened with
    /// `OpenOptions::mapped`.
    pub fn is_mapped(&self) -> bool {
        self.inner.kind == Kind::Dax
    }

    /// Makes a file `bytes` long; new blocks are preallocated.
    pub fn set_size(&self, bytes: u64) -> Result<(), Error> {
        self.inner.closer.get().map_or(Ok(()), |engine| engine.check_fork())?;
        self.inner.set_size(bytes)
    }

    /// Refuses transfers from now on. Those under way go on.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Transfer {
    /// A read from `target`.
    pub fn read(target: &Target) -> Transfer {
        Transfer::new(Op::Read, target.inner.clone())
    }

    /// A write to `target`.
    pub fn write(target: &Target) -> Transfer {
        Transfer::new(Op::Write, target.inner.clone())
    }
}
