//! What a target can take in one command.

use crate::error::{Error, ErrorKind};

/// The limits of a target, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Offsets and lengths on the target are multiples of this (a power of two; 1 for buffered files).
    pub block: u32,
    /// Memory addresses are multiples of this (a power of two; 1 where any address will do).
    pub memory_align: u32,
    /// Most bytes in one command.
    pub max_bytes: u32,
    /// Most memory segments (pages) in one command.
    pub max_segments: u32,
    /// Most blocks in one command.
    pub max_blocks: u32,
    /// Page size of the memory: a segment is at worst one page.
    pub page: u32,
}

impl Geometry {
    /// A geometry that limits nothing but the command size.
    pub fn unlimited(max_bytes: u32) -> Geometry {
        Geometry {
            block: 1,
            memory_align: 1,
            max_bytes,
            max_segments: u32::MAX,
            max_blocks: u32::MAX,
            page: 4096,
        }
    }

    /// Checks that the limits leave room for at least one block at any allowed address.
    pub fn check(&self) -> Result<(), Error> {
        let powers = self.block.is_power_of_two()
            && self.memory_align.is_power_of_two()
            && self.page.is_power_of_two();
        if powers && self.most_bytes(self.page as u64 - 1) >= self.block && self.max_bytes >= self.block {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("the target's limits leave no room for one block: {self:?}; raise the command size"),
        ))
    }

    /// The most bytes, a multiple of the block, that one command at this address may carry.
    ///
    /// A buffer that does not begin on a page spans one page more than its length says.
    pub fn most_bytes(&self, addr: u64) -> u32 {
        let in_page = addr & (self.page as u64 - 1);
        let by_segments = (self.max_segments as u64 * self.page as u64).saturating_sub(in_page);
        let by_blocks = self.max_blocks as u64 * self.block as u64;
        let most = by_segments.min(by_blocks).min(self.max_bytes as u64);
        (most & !(self.block as u64 - 1)) as u32
    }

    /// Whether offset and length are whole blocks.
    pub fn aligned(&self, offset: u64, len: u64) -> bool {
        (offset | len) & (self.block as u64 - 1) == 0
    }

    /// Whether the device can reach this address without scratch.
    pub fn reaches(&self, addr: u64) -> bool {
        addr & (self.memory_align as u64 - 1) == 0
    }
}
