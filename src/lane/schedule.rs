//! What a lane works on next: four classes, each first come, first served.

use super::slots::Handle;
use crate::plan::UnitCursor;
use std::collections::VecDeque;

/// Classes of priority.
pub const CLASSES: usize = 4;
/// A class with work gets at least one command in this many.
const FAIR: u32 = 16;

/// A lane's part in a transfer: the right to claim units of it until there are none.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub handle: Handle,
    pub class: u8,
    /// The part of the transfer whose units it may claim.
    pub part: u8,
    pub deadline: u64,
    pub cursor: UnitCursor,
    /// Most units of it that the lane may have in hand, and how many it has: what other lanes can begin at once is left
    /// to them.
    pub most: u32,
    pub in_hand: u32,
    /// Tells its target from others, to a lane that looks at that.
    pub target: usize,
    /// It is begun only while the lane has fewer commands in hand than this for files that kernel workers serve;
    /// `u32::MAX`: it is none of them.
    pub depth: u32,
}

impl Share {
    /// Whether a lane with so many such commands in hand may begin a unit of it.
    pub fn is_free(&self, busy: usize) -> bool {
        self.in_hand < self.most && busy < self.depth as usize
    }
}

/// The shares of a lane, by class.
#[derive(Debug)]
pub struct Schedule {
    classes: [VecDeque<Share>; CLASSES],
    /// Commands that went to others since the class had one itself.
    waited: [u32; CLASSES],
}

impl Schedule {
    /// With room for `room` shares in each class, and one: as many as there are entries, so that a push never
    /// allocates.
    pub fn new(room: usize) -> Schedule {
        Schedule { classes: std::array::from_fn(|_| VecDeque::with_capacity(room + 1)), waited: [0; CLASSES] }
    }

    /// Adds a share. A full class first drops those that are not `claimable` any more: others took their units. Not
    /// the first, of which the lane may be cutting the last unit: its deadline counts.
    pub fn push(&mut self, share: Share, claimable: impl Fn(&Share) -> bool) {
        let class = &mut self.classes[share.class as usize % CLASSES];
        if class.len() == class.capacity() {
            let mut first = true;
            class.retain(|share| std::mem::take(&mut first) || claimable(share));
        }
        class.push_back(share);
    }

    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(VecDeque::is_empty)
    }

    /// The class that the next command goes to, among those for which `has_work` or that have a share which is `free` to
    /// be begun.
    pub fn pick(&mut self, has_work: impl Fn(usize) -> bool, free: impl Fn(&Share) -> bool) -> Option<usize> {
        let ready = |class: &usize| has_work(*class) || self.classes[*class].iter().any(&free);
        let starving = (0..CLASSES).filter(ready).find(|class| self.waited[*class] >= FAIR - 1);
        let class = starving.or_else(|| (0..CLASSES).find(ready))?;
        for other in (0..CLASSES).filter(|other| *other != class) {
            // Also what may not be begun just now waits: else a class whose turns others use up would never come due.
            let waits = ready(&other) || !self.classes[other].is_empty();
            self.waited[other] = if waits { self.waited[other].saturating_add(1) } else { 0 };
        }
        self.waited[class] = 0;
        Some(class)
    }

    /// The first share of a class that is `free` to be begun.
    pub fn front(&mut self, class: usize, free: impl Fn(&Share) -> bool) -> Option<&mut Share> {
        self.classes[class].iter_mut().find(|share| free(share))
    }

    /// Drops that share: it has no units left.
    pub fn drop_front(&mut self, class: usize, free: impl Fn(&Share) -> bool) {
        if let Some(first) = self.classes[class].iter().position(free) {
            self.classes[class].remove(first);
        }
    }

    /// A unit of a transfer is not in the lane's hands any more.
    pub fn gave_back(&mut self, (class, part): (u8, u8), handle: Handle) {
        let mine = |share: &&mut Share| share.handle == handle && share.part == part;
        if let Some(share) = self.classes[class as usize % CLASSES].iter_mut().find(mine) {
            share.in_hand = share.in_hand.saturating_sub(1);
        }
    }

    /// All shares.
    pub fn iter(&self) -> impl Iterator<Item = &Share> {
        self.classes.iter().flatten()
    }

    /// Takes all shares out.
    pub fn drain(&mut self) -> impl Iterator<Item = Share> + '_ {
        self.classes.iter_mut().flat_map(|class| class.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_with_work_gets_one_command_in_sixteen() {
        let mut schedule = Schedule::new(1);
        let picks: Vec<usize> = (0..1600).filter_map(|_| schedule.pick(|_| true, |_| true)).collect();
        for class in 0..CLASSES {
            let gaps: Vec<usize> =
                picks.iter().enumerate().filter(|(_, c)| **c == class).map(|(i, _)| i).collect();
            let widest = gaps.windows(2).map(|w| w[1] - w[0]).max().unwrap();
            // Three starving classes may come due at the same command: they take turns right after.
            assert!(widest <= FAIR as usize + CLASSES - 2, "class {class} waited {widest}");
        }
        let urgent = picks.iter().filter(|c| **c == 0).count();
        assert!(urgent >= 1600 * 12 / 16, "the best class got only {urgent} of 1600");
    }

    #[test]
    fn one_class_alone_gets_everything() {
        let mut schedule = Schedule::new(1);
        assert!((0..100).all(|_| schedule.pick(|c| c == 2, |_| true) == Some(2)));
        assert_eq!(schedule.pick(|_| false, |share| share.is_free(0)), None);
    }

    /// What a lane has its part of in hand is left to others; the next share is begun meanwhile.
    #[test]
    fn a_share_is_begun_no_further_than_its_part() {
        let share = |index| Share {
            handle: Handle { index, generation: 0 },
            class: 1,
            part: 0,
            deadline: u64::MAX,
            cursor: UnitCursor::new(4096, 1),
            most: 2,
            in_hand: 0,
            target: 0,
            depth: 8,
        };
        let mut schedule = Schedule::new(3);
        (0..2).for_each(|index| schedule.push(share(index), |_| true));
        let mut begun = Vec::new();
        while schedule.pick(|_| false, |share| share.is_free(0)) == Some(1) {
            let share = schedule.front(1, |share| share.is_free(0)).expect("it was picked");
            share.in_hand += 1;
            begun.push(share.handle.index);
        }
        assert_eq!(begun, [0, 0, 1, 1]);
        assert!(schedule.front(1, |share| share.is_free(0)).is_none() && !schedule.is_empty());
        schedule.gave_back((1, 0), Handle { index: 1, generation: 0 });
        assert_eq!(schedule.front(1, |share| share.is_free(0)).map(|share| share.handle.index), Some(1));
        assert!(
            schedule.front(1, |share| share.is_free(7)).is_some()
                && schedule.front(1, |share| share.is_free(8)).is_none(),
            "not past its depth"
        );
        schedule.drop_front(1, |share| share.is_free(0));
        assert_eq!(schedule.drain().map(|share| share.handle.index).collect::<Vec<_>>(), [0]);
    }

    /// Two classes over files that kernel workers serve: a unit of eight commands leaves the other nothing to begin
    /// until most of them have ended, and yet its turn comes.
    #[test]
    fn a_class_that_is_held_up_by_depth_gets_its_turn() {
        let mut schedule = Schedule::new(2);
        for class in [1, 3] {
            let (handle, cursor) = (Handle { index: class as u32, generation: 0 }, UnitCursor::new(4096, 1));
            let (part, deadline, most, in_hand, target, depth) = (0, u64::MAX, 99, 0, 0, 8);
            let share = Share { handle, class, part, deadline, cursor, most, in_hand, target, depth };
            schedule.push(share, |_| true);
        }
        let (mut left, mut turns, mut busy) = ([0; CLASSES], [0; CLASSES], 0);
        for _ in 0..1000 {
            let Some(class) = schedule.pick(|class| left[class] > 0, |share| share.is_free(busy)) else {
                busy -= 1; // one ends
                continue;
            };
            left[class] = if left[class] > 0 { left[class] } else { 8 } - 1;
            (turns[class], busy) = (turns[class] + 1, busy + 1);
        }
        assert!(turns[3] >= (turns[1] + turns[3]) / (FAIR as usize + 1), "{turns:?}");
    }

    #[test]
    fn a_full_class_drops_what_is_stale_and_keeps_the_share_that_is_being_cut() {
        let share = |index| Share {
            handle: Handle { index, generation: 0 },
            class: 1,
            part: 0,
            deadline: u64::MAX,
            cursor: UnitCursor::new(4096, 1),
            most: 1,
            in_hand: 0,
            target: 0,
            depth: 8,
        };
        let mut schedule = Schedule::new(3);
        let room = schedule.classes[1].capacity() as u32;
        (0..room).for_each(|index| schedule.push(share(index), |_| panic!("there is room")));
        schedule.push(share(room), |share| share.handle.index == 2);
        let left: Vec<u32> = schedule.drain().map(|share| share.handle.index).collect();
        assert_eq!(left, [0, 2, room]);
    }
}
