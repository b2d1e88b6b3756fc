//! What the simulated device keeps, and the one place where it touches memory.

use super::rng::content;
use crate::memory::Window;

/// A byte that nothing was written to.
pub const BLANK: u8 = 0xee;

/// A simulated target.
#[derive(Debug)]
pub struct Disk {
    /// Which content it holds when it is only read.
    pub salt: u32,
    /// Answers as a drive behind passthrough does.
    pub passthrough: bool,
    pub block: u64,
    /// Where it really ends, whatever the engine believes.
    pub end: u64,
    /// What was written; empty for a disk that is only read and holds `content(salt, ..)`.
    pub data: Vec<u8>,
    /// Writes that were answered with success so far.
    pub writes: u64,
    /// So many of them were answered before a flush was accepted that succeeded.
    pub durable: u64,
}

impl Disk {
    /// A disk to be read, with content.
    pub fn full(salt: u32, block: u64, end: u64) -> Disk {
        Disk { salt, passthrough: false, block, end, data: Vec::new(), writes: 0, durable: 0 }
    }

    /// A disk to be written.
    pub fn blank(block: u64, end: u64) -> Disk {
        Disk { data: vec![BLANK; end as usize], ..Disk::full(0, block, end) }
    }

    /// The device moves `len` bytes from `offset` into memory.
    pub fn read(&self, offset: u64, len: u64, window: Window) {
        let into = bytes_mut(window.sub(0, len as usize));
        if self.data.is_empty() {
            into.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = content(self.salt, at));
        } else {
            into.copy_from_slice(&self.data[offset as usize..][..len as usize]);
        }
    }

    /// The device moves `len` bytes from memory to `offset`.
    pub fn write(&mut self, offset: u64, len: u64, window: Window) {
        let from = bytes(window.sub(0, len as usize));
        self.data[offset as usize..][..len as usize].copy_from_slice(from);
        self.writes += 1;
    }
}

/// The bytes of a window, for as long as a test looks at them.
pub fn bytes<'a>(window: Window) -> &'a [u8] {
    // SAFETY: the schedules run on one thread and keep all memory mapped until their end; no reference is held
    // across a step.
    unsafe { std::slice::from_raw_parts(window.ptr(), window.len()) }
}

/// The same, to write as a device does.
pub fn bytes_mut<'a>(window: Window) -> &'a mut [u8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(window.ptr(), window.len()) }
}
