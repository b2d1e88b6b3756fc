//! Which paths a piece must take, told from alignments alone, not from the planner.

use fullbore::{Geometry, Path};
use std::collections::BTreeSet;

/// What straight commands of a rig take.
#[derive(Clone, Copy, Debug)]
pub struct Straight {
    pub geometry: Geometry,
    pub direct: bool,
    pub fixed: bool,
    pub mapped: bool,
}

impl Straight {
    pub fn path(self) -> Path {
        match (self.direct, self.fixed) {
            _ if self.mapped => Path::Copy,
            (true, true) => Path::Fixed,
            (true, false) => Path::Plain,
            (false, true) => Path::FixedBuffered,
            (false, false) => Path::Buffered,
        }
    }

    /// The names of the paths of `len` bytes at `offset` and memory address `addr`.
    pub fn paths(self, offset: u64, len: u64, addr: u64) -> BTreeSet<&'static str> {
        let (block, align) = (self.geometry.block as u64, self.geometry.memory_align as u64);
        assert!(
            block.is_multiple_of(align),
            "this oracle knows no target whose memory alignment exceeds its block"
        );
        let to_block = (block - offset % block) % block;
        // The part between the first and the last block boundary goes straight if its memory is aligned there.
        let middle = len.saturating_sub(to_block) / block * block;
        let straight = middle > 0 && (addr + to_block).is_multiple_of(align);
        let moved_straight = if straight { middle } else { 0 };
        let mut paths = BTreeSet::new();
        if moved_straight > 0 {
            paths.insert(self.path().name());
        }
        if moved_straight < len {
            paths.insert(Path::Scratch.name());
        }
        paths
    }
}

#[test]
fn the_oracle_knows_head_middle_and_tail() {
    let geometry = Geometry { block: 4096, memory_align: 512, ..any() };
    let rig = Straight { geometry, direct: true, fixed: true, mapped: false };
    let names = |offset, len, addr| rig.paths(offset, len, addr).into_iter().collect::<Vec<_>>();
    assert_eq!(names(4096, 8192, 512), ["uring fixed"]);
    assert_eq!(names(4096, 8193, 512), ["uring fixed", "uring scratch"]);
    assert_eq!(names(4096, 8192, 1), ["uring scratch"]);
    assert_eq!(names(100, 8192, 100), ["uring fixed", "uring scratch"]);
    assert_eq!(names(100, 8192, 0), ["uring scratch"]);
    assert_eq!(names(100, 4000, 100), ["uring scratch"]);
}

fn any() -> Geometry {
    Geometry {
        block: 1,
        memory_align: 1,
        max_bytes: 1 << 17,
        max_segments: 33,
        max_blocks: 1 << 16,
        page: 4096,
    }
}
