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
    // Its pages will be pinned, and cannot be swapped out: the kernel would end programs, this one perhaps, to find them.
    if let Some(all) = machine_bytes().filter(|all| bytes as u64 > *all) {
        let message = format!("cannot map {bytes} bytes of host memory: the machine has {all}; ask for less");
        return Err(Error::os(message, libc::ENOMEM));
    }
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

/// Bytes of memory that the machine has.
fn machine_bytes() -> Option<u64> {
    // SAFETY: an out parameter of plain numbers.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let known = unsafe { libc::sysinfo(&mut info) } == 0;
    known.then(|| info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let Some(all) = machine_bytes().filter(|_| !cfg!(miri)) else { return };
        assert!(all > 1 << 26, "{all}");
        let error = alloc(all as usize + 1, &AllocOptions::default()).expect_err("refused");
        assert_eq!(error.errno(), Some(libc::ENOMEM), "{error}");
        assert!(error.to_string().contains(&all.to_string()), "{error}");
    }
}
