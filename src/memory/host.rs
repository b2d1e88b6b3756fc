//! Host memory of the engine's own.

use super::Mapping;
use crate::error::Error;

/// How to allocate a host region.
#[derive(Clone, Debug)]
pub struct AllocOptions {
    /// Ask for huge pages (the default).
    pub huge: bool,
    /// The NUMA node to prefer.
    pub node: Option<u32>,
}

impl Default for AllocOptions {
    fn default() -> Self {
        AllocOptions { huge: true, node: None }
    }
}

/// Maps `bytes` of page-aligned memory.
pub fn alloc(bytes: usize, options: &AllocOptions) -> Result<Mapping, Error> {
    let mapping = Mapping::new(bytes).map_err(|e| {
        Error::io(format!("cannot map {bytes} bytes of host memory; ask for less, or free some"), &e)
    })?;
    if options.huge && !mapping.advise_huge() {
        tracing::debug!(bytes, "no huge pages for this region: it is small, or the kernel has none");
    }
    if let Some(node) = options.node {
        mapping.prefer_node(node).map_err(|e| {
            Error::io(
                format!("cannot place memory on NUMA node {node}; see /sys/devices/system/node/online"),
                &e,
            )
        })?;
    }
    Ok(mapping)
}
