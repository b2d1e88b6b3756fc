//! Lane scratch: page-aligned memory for what cannot go straight (unaligned heads and tails, misaligned memory).

use super::{Mapping, Window};
use std::io;

/// One buffer for each command slot of a lane. Pages come into being when they are first used.
#[derive(Debug)]
pub struct Scratch {
    mapping: Mapping,
    each: usize,
}

impl Scratch {
    /// `slots` buffers of `each` bytes (a multiple of the page).
    pub fn new(slots: usize, each: usize) -> io::Result<Scratch> {
        Ok(Scratch { mapping: Mapping::new(slots * each)?, each })
    }

    /// The buffer of command slot `slot`.
    pub fn window(&self, slot: usize) -> Window {
        let from = slot * self.each;
        assert!(from + self.each <= self.mapping.len(), "scratch has one buffer for each slot");
        // SAFETY: inside the mapping (checked above), which the lane drops only when nothing is in flight; a slot
        // has one command at a time.
        unsafe { Window::new(self.mapping.ptr().as_ptr().add(from), self.each) }
    }
}
