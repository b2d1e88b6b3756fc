//! From a position in an extent to the next command.

use super::Geometry;

/// A piece of an extent that the device takes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// First byte on the target, block-aligned.
    pub offset: u64,
    /// Bytes on the target, whole blocks.
    pub len: u32,
    /// Bytes at the front of `len` that nobody asked for (an unaligned head).
    pub skip: u32,
    /// Bytes that belong to the extent: `skip + take <= len`.
    pub take: u32,
    /// Goes through lane scratch, since memory or range are not aligned.
    pub scratch: bool,
}

/// The command at byte `pos` of an extent of `len` bytes at `offset`, whose memory begins at `addr`.
///
/// The aligned middle goes straight into memory when memory and offset are aligned alike; an unaligned head or
/// tail, and memory that the device cannot reach, goes through scratch (which is page-aligned).
pub fn next_command(geometry: &Geometry, offset: u64, len: u64, addr: u64, pos: u64) -> Command {
    let block = geometry.block as u64;
    let (at, left, memory) = (offset + pos, len - pos, addr.wrapping_add(pos));
    let skip = at & (block - 1);
    if skip == 0 && geometry.reaches(memory) {
        let whole = left.min(geometry.most_bytes(memory) as u64) & !(block - 1);
        if whole > 0 {
            return Command { offset: at, len: whole as u32, skip: 0, take: whole as u32, scratch: false };
        }
    }
    // Take just the head through scratch when the rest can go straight.
    let head_only = skip != 0 && geometry.reaches(memory.wrapping_add(block - skip));
    let room = if head_only { block } else { geometry.most_bytes(0) as u64 };
    let take = left.min(room - skip);
    let whole = (skip + take + block - 1) & !(block - 1);
    Command { offset: at - skip, len: whole as u32, skip: skip as u32, take: take as u32, scratch: true }
}

/// Whether some command of an extent goes straight, and whether some goes through scratch.
pub fn routes(geometry: &Geometry, offset: u64, len: u64, addr: u64) -> (bool, bool) {
    let (mut pos, mut straight, mut scratch) = (0, false, false);
    while pos < len && !(straight && scratch) {
        let command = next_command(geometry, offset, len, addr, pos);
        straight |= !command.scratch;
        scratch |= command.scratch;
        pos += command.take as u64;
    }
    (straight, scratch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn geometry() -> impl Strategy<Value = Geometry> {
        (0u32..=13, 0u32..=12, 0u32..=9, 1u32..300, 1u32..70_000).prop_filter_map(
            "no room for a block",
            |(block, align, size, max_segments, max_blocks)| {
                let block = 1 << block;
                let max_bytes = (block.max(4096)) << (size % 6);
                let g = Geometry {
                    block,
                    memory_align: 1 << align,
                    max_bytes,
                    max_segments,
                    max_blocks,
                    page: 4096,
                };
                g.check().is_ok().then_some(g)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn commands_cover_exactly_within_every_limit(
            g in geometry(), offset in 0u64..1 << 40, len in 1u64..4 << 20, addr in 0u64..1 << 20,
        ) {
            let (mut pos, mut commands) = (0, 0u64);
            while pos < len {
                let c = next_command(&g, offset, len, addr, pos);
                let memory = if c.scratch { 0 } else { addr + pos };
                prop_assert!(c.take > 0, "no progress at {pos}");
                prop_assert!(c.skip + c.take <= c.len);
                prop_assert!(g.aligned(c.offset, c.len as u64));
                prop_assert_eq!(c.offset + c.skip as u64, offset + pos, "gap or overlap on the target");
                prop_assert!(c.len <= g.max_bytes && c.len / g.block <= g.max_blocks);
                let pages = (memory % 4096 + c.len as u64).div_ceil(4096);
                prop_assert!(pages <= g.max_segments as u64, "{pages} segments");
                if !c.scratch {
                    prop_assert!(g.reaches(memory) && c.skip == 0 && c.take == c.len);
                }
                pos += c.take as u64;
                commands += 1;
                if commands > 4096 { return Ok(()); } // tiny blocks: enough was seen
            }
            prop_assert_eq!(pos, len);
        }

        #[test]
        fn aligned_extents_never_need_scratch(
            g in geometry(), blocks in 1u64..64, at in 0u64..1000, page in 0u64..64,
        ) {
            let (len, offset) = (blocks * g.block as u64, at * g.block as u64);
            let step = g.memory_align.max(g.block) as u64;
            let mut pos = 0;
            while pos < len {
                let c = next_command(&g, offset, len, page * step, pos);
                // A segment limit may cut at a block that is smaller than the memory alignment.
                prop_assert!(!c.scratch || g.block < g.memory_align);
                pos += c.take as u64;
            }
        }
    }

    #[test]
    fn head_and_tail_go_through_scratch_and_the_middle_straight() {
        let g = Geometry { block: 512, memory_align: 512, ..Geometry::unlimited(128 << 10) };
        // Memory is misaligned exactly as the offset is.
        let all: Vec<_> =
            std::iter::successors(Some((0, next_command(&g, 100, 2000, 100, 0))), |(pos, c)| {
                let next = pos + c.take as u64;
                (next < 2000).then(|| (next, next_command(&g, 100, 2000, 100, next)))
            })
            .map(|(_, c)| (c.offset, c.len, c.skip, c.take, c.scratch))
            .collect();
        assert_eq!(all, [(0, 512, 100, 412, true), (512, 1536, 0, 1536, false), (2048, 512, 0, 52, true)]);
        assert_eq!(routes(&g, 100, 2000, 100), (true, true));
        assert_eq!(routes(&g, 512, 2048, 1024), (true, false));
        assert_eq!(routes(&g, 512, 2048, 1025), (false, true));
    }
}
