//! A unit in the hands of a GPU's lane.

use super::layout::{Part, Run};
use crate::lane::path::Path;
use crate::lane::slots::{Claim, Handle};
use crate::lane::transfer::Transfer;
use crate::memory::Window;
use crate::queue::cuda::{Copy, Piece};

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing: the slot is free.
    Free,
    /// Its child moves between target and bounce buffer.
    Child,
    /// It waits for its turn in the copy engine.
    Ready,
    /// The copy engine has it.
    Copying,
    /// cuFile moves its parts.
    Direct,
    /// Its child makes durable what the transfer wrote.
    Flushing,
}

/// See the module. The lists keep their room from use to use.
#[derive(Debug)]
pub struct Slot {
    pub stage: Stage,
    pub claim: Option<Claim>,
    /// Its place in the order: class, then when it was claimed.
    pub order: (u8, u64),
    pub deadline: u64,
    pub path: Path,
    pub to_gpu: bool,
    /// Tells its target from others.
    pub target: usize,
    pub buffer: Option<u16>,
    pub parts: Vec<Part>,
    pub runs: Vec<Run>,
    pub copies: Vec<Copy>,
    /// Out of a mapping into staging: from where, and where it lies there.
    pub bulk: Vec<(Window, usize)>,
    pub pieces: Vec<Piece>,
    /// The child moves each part by itself: as runs, some failed.
    pub apart: bool,
    pub child: Option<Handle>,
    /// The last child's, whose list of extents is used again.
    pub transfer: Option<Transfer>,
    /// Parts in cuFile's hands, and how often some were asked for again.
    pub waiting: usize,
    pub attempts: u8,
    /// Bytes in the copy engine.
    pub copying: u64,
    /// When they were queued there.
    pub queued: u64,
    pub paths: u32,
    pub begun: u64,
}

impl Slot {
    pub fn new() -> Slot {
        Slot {
            stage: Stage::Free,
            claim: None,
            order: (0, 0),
            deadline: u64::MAX,
            path: Path::PinnedBounce,
            to_gpu: true,
            target: 0,
            buffer: None,
            parts: Vec::new(),
            runs: Vec::new(),
            copies: Vec::new(),
            bulk: Vec::new(),
            pieces: Vec::new(),
            apart: false,
            child: None,
            transfer: None,
            waiting: 0,
            attempts: 0,
            copying: 0,
            queued: 0,
            paths: 0,
            begun: 0,
        }
    }

    /// Bytes of the parts that did not fail.
    pub fn good(&self) -> u64 {
        self.parts.iter().filter(|part| !part.failed).map(|part| part.len).sum()
    }

    /// Where it begins on the target, and how long it is: for an error that says where.
    pub fn place(&self) -> (u32, u64, u64) {
        let first = self.parts.first();
        first.map_or((0, 0, 0), |part| (part.extent, part.offset, part.len))
    }
}
