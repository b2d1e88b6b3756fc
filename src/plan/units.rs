//! From a list of extents to units, the pieces that lanes claim.

/// A list of extents, as the planner sees it.
pub trait Extents {
    /// How many extents there are.
    fn count(&self) -> u32;
    /// Offset on the target and length of extent `index`, in bytes.
    fn range(&self, index: u32) -> (u64, u64);
}

/// A contiguous run of a list of extents: it begins at byte `pos` of extent `extent` and may span several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Number of the unit, from 0.
    pub number: u32,
    /// The extent it begins in.
    pub extent: u32,
    /// Where in that extent.
    pub pos: u64,
    /// How many bytes, over all its extents.
    pub bytes: u64,
}

/// Walks a list forward, unit by unit. A lane keeps one per transfer: the numbers it claims only grow.
#[derive(Clone, Copy, Debug)]
pub struct UnitCursor {
    unit_size: u64,
    block: u64,
    number: u32,
    extent: u32,
    pos: u64,
}

impl UnitCursor {
    /// A cursor before unit 0. `block` keeps cuts inside an extent on whole blocks of the target.
    pub fn new(unit_size: u64, block: u32) -> UnitCursor {
        UnitCursor { unit_size, block: block as u64, number: 0, extent: 0, pos: 0 }
    }

    /// The next unit, or `None` at the end of the list.
    pub fn step(&mut self, list: &impl Extents) -> Option<Unit> {
        if self.extent >= list.count() {
            return None;
        }
        let mut unit = Unit { number: self.number, extent: self.extent, pos: self.pos, bytes: 0 };
        let (offset, len) = list.range(self.extent);
        if len > self.unit_size {
            // A large extent is cut on a grid of its own that begins at its first block.
            let head = offset & (self.block - 1);
            let end = ((self.pos + head) / self.unit_size + 1) * self.unit_size - head;
            let end = end.min(len);
            unit.bytes = end - self.pos;
            self.pos = end;
            if end == len {
                (self.extent, self.pos) = (self.extent + 1, 0);
            }
        } else {
            // Small ones are packed until the next would not fit.
            while self.extent < list.count() {
                let len = list.range(self.extent).1;
                if unit.bytes + len > self.unit_size {
                    break;
                }
                unit.bytes += len;
                self.extent += 1;
            }
        }
        self.number += 1;
        Some(unit)
    }

    /// Unit `number`, which must not lie behind the cursor.
    pub fn seek(&mut self, list: &impl Extents, number: u32) -> Option<Unit> {
        loop {
            let unit = self.step(list)?;
            if unit.number >= number {
                return Some(unit);
            }
        }
    }
}

/// How many units a list makes.
pub fn count_units(list: &impl Extents, unit_size: u64, block: u32) -> u32 {
    let mut cursor = UnitCursor::new(unit_size, block);
    while cursor.step(list).is_some() {}
    cursor.number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct List(Vec<(u64, u64)>);
    impl Extents for List {
        fn count(&self) -> u32 {
            self.0.len() as u32
        }
        fn range(&self, index: u32) -> (u64, u64) {
            self.0[index as usize]
        }
    }

    /// The bytes of a unit as (extent, from, to).
    fn pieces(list: &List, unit: &Unit) -> Vec<(u32, u64, u64)> {
        let (mut extent, mut pos, mut left, mut out) = (unit.extent, unit.pos, unit.bytes, Vec::new());
        while left > 0 {
            let take = left.min(list.range(extent).1 - pos);
            out.push((extent, pos, pos + take));
            (extent, pos, left) = (extent + 1, 0, left - take);
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        #[test]
        fn units_over_lanes_cover_exactly(
            extents in prop::collection::vec((0u64..1 << 40, 1u64..5 << 20), 1..40),
            unit_shift in 12u32..21, block_shift in 0u32..13,
            claims in prop::collection::vec(0usize..4, 1..64),
        ) {
            let list = List(extents);
            let (unit_size, block) = (1u64 << unit_shift, 1u32 << block_shift);
            let total = count_units(&list, unit_size, block);
            // Four lanes claim numbers in any interleaving, each with a cursor of its own.
            let mut cursors = [UnitCursor::new(unit_size, block); 4];
            let mut seen = Vec::new();
            for number in 0..total {
                let lane = claims[number as usize % claims.len()];
                let unit = cursors[lane].seek(&list, number).expect("a claimed unit exists");
                prop_assert_eq!(unit.number, number);
                prop_assert!(unit.bytes > 0 && unit.bytes <= unit_size);
                seen.extend(pieces(&list, &unit));
            }
            // Exact cover: in order, each extent from 0 to its end with no gap.
            let (mut extent, mut pos) = (0, 0);
            for (e, from, to) in seen {
                prop_assert_eq!((e, from), (extent, pos));
                if to < list.range(e).1 {
                    let cut = list.range(e).0 + to;
                    prop_assert_eq!(cut % block as u64, 0, "a cut inside an extent lies on a block");
                    (extent, pos) = (e, to);
                } else {
                    (extent, pos) = (e + 1, 0);
                }
            }
            prop_assert_eq!((extent, pos), (list.count(), 0));
        }
    }

    #[test]
    fn a_20_mib_object_makes_20_units_and_small_extents_are_packed() {
        assert_eq!(count_units(&List(vec![(0, 20 << 20)]), 1 << 20, 4096), 20);
        assert_eq!(count_units(&List(vec![(0, 16 << 10); 128]), 1 << 20, 4096), 2);
    }
}
