//! From a list of extents to units, the pieces that lanes claim.

use super::Part;

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
    /// Number of the unit, from 0; of a stripe, in its part.
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
    /// Only units of this part of a stripe.
    part: Option<Part>,
    number: u32,
    extent: u32,
    pos: u64,
}

impl UnitCursor {
    /// A cursor before unit 0. `block` keeps cuts inside an extent on whole blocks of the target.
    pub fn new(unit_size: u64, block: u32) -> UnitCursor {
        UnitCursor { unit_size, block: block as u64, part: None, number: 0, extent: 0, pos: 0 }
    }

    /// A cursor over the units of one part of a stripe. None of them crosses into another chunk.
    pub fn over(part: Option<Part>, unit_size: u64, block: u32) -> UnitCursor {
        UnitCursor { part, ..UnitCursor::new(unit_size, block) }
    }

    /// The next unit, or `None` at the end of the list.
    pub fn step(&mut self, list: &impl Extents) -> Option<Unit> {
        if let Some(part) = self.part {
            return self.step_in(part, list);
        }
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

    /// The next unit that lies in `part`. Small extents are not packed: neighbours are rarely in one chunk.
    fn step_in(&mut self, part: Part, list: &impl Extents) -> Option<Unit> {
        while self.extent < list.count() {
            let (offset, len) = list.range(self.extent);
            let at = offset + self.pos;
            // Chunks longer than a unit are cut on a grid of their own.
            let in_chunk = part.stripe.left_in_chunk(at);
            let to_grid = self.unit_size - (at % part.stripe.size) % self.unit_size;
            let bytes = in_chunk.min(to_grid).min(len - self.pos);
            let unit = Unit { number: self.number, extent: self.extent, pos: self.pos, bytes };
            self.pos += bytes;
            if self.pos == len {
                (self.extent, self.pos) = (self.extent + 1, 0);
            }
            if part.has(at) {
                self.number += 1;
                return Some(unit);
            }
        }
        None
    }

    /// How many units are left to step over.
    pub fn count(mut self, list: &impl Extents) -> u32 {
        let before = self.number;
        while self.step(list).is_some() {}
        self.number - before
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

#[cfg(test)]
mod tests {
    use super::super::Stripe;
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
            let total = UnitCursor::new(unit_size, block).count(&list);
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn parts_of_a_stripe_cover_exactly(
            extents in prop::collection::vec((0u64..1 << 30, 1u64..3 << 20), 1..20),
            unit_shift in 12u32..21, size_shift in 12u32..22, members in 1u32..7, mask in 0u64..64,
        ) {
            let (list, unit_size, block) = (List(extents), 1u64 << unit_shift, 4096);
            let stripe = Stripe { size: 1 << size_shift, members };
            let mut seen = Vec::new();
            for members in [mask, !mask] {
                let part = Part { stripe, members };
                let mut cursor = UnitCursor::over(Some(part), unit_size, block);
                let total = cursor.count(&list);
                for number in 0..total {
                    let unit = cursor.seek(&list, number).expect("a counted unit exists");
                    let at = list.range(unit.extent).0 + unit.pos;
                    prop_assert!(unit.number == number && unit.bytes > 0 && unit.bytes <= unit_size);
                    prop_assert!(part.has(at) && stripe.left_in_chunk(at) >= unit.bytes, "one chunk each");
                    seen.extend(pieces(&list, &unit));
                }
                prop_assert!(cursor.step(&list).is_none());
            }
            seen.sort_unstable();
            let (mut extent, mut pos) = (0, 0);
            for (e, from, to) in seen {
                prop_assert_eq!((e, from), (extent, pos));
                (extent, pos) = if to < list.range(e).1 { (e, to) } else { (e + 1, 0) };
            }
            prop_assert_eq!((extent, pos), (list.count(), 0));
        }
    }

    #[test]
    fn a_20_mib_object_makes_20_units_and_small_extents_are_packed() {
        assert_eq!(UnitCursor::new(1 << 20, 4096).count(&List(vec![(0, 20 << 20)])), 20);
        assert_eq!(UnitCursor::new(1 << 20, 4096).count(&List(vec![(0, 16 << 10); 128])), 2);
    }
}
