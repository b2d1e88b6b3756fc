//! Command slots: what is known of each command in flight.

use super::path::Path;
use crate::memory::Window;
use crate::plan;

/// A command in its slot, from the moment it is cut until its last result.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub generation: u32,
    pub busy: bool,
    /// The run it belongs to.
    pub run: u16,
    /// Extent of the transfer.
    pub extent: u32,
    /// On the target, and through scratch or not.
    pub command: plan::Command,
    /// The extent's memory that `command.take` bytes belong to.
    pub memory: Window,
    /// Region of `memory`; `u32::MAX` for none.
    pub region: u32,
    /// The path of its last push.
    pub path: Path,
    /// Bytes of `command.len` that were moved so far.
    pub done: u32,
    /// How often it was asked again with nothing gained.
    pub attempts: u8,
    /// Clock before which it is not asked again.
    pub not_before: u64,
    /// Clock when it was pushed.
    pub issued: u64,
    pub flush: bool,
    /// It counts against the depth of files that kernel workers serve.
    pub shallow: bool,
}

/// The slots of a lane.
#[derive(Debug)]
pub struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    bits: u32,
    shallow: usize,
}

impl Slots {
    pub fn new(depth: usize, first_generation: u32) -> Slots {
        let bits = usize::BITS - (depth.max(2) - 1).leading_zeros();
        let none = plan::Command { offset: 0, len: 0, skip: 0, take: 0, scratch: false };
        let slot = Slot {
            generation: first_generation % (u32::MAX >> bits),
            busy: false,
            run: 0,
            extent: 0,
            command: none,
            memory: Window::empty(),
            region: u32::MAX,
            path: Path::Null,
            done: 0,
            attempts: 0,
            not_before: 0,
            issued: 0,
            flush: false,
            shallow: false,
        };
        Slots { slots: vec![slot; depth], free: (0..depth as u16).rev().collect(), bits, shallow: 0 }
    }

    /// Takes a free slot.
    pub fn take(&mut self, shallow: bool) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        (slot.busy, slot.shallow) = (true, shallow);
        self.shallow += shallow as usize;
        Some(index)
    }

    /// Frees a slot; answers to this use of it are stale from now on.
    pub fn free(&mut self, index: u16) {
        let mask = u32::MAX >> self.bits;
        let slot = &mut self.slots[index as usize];
        slot.busy = false;
        self.shallow -= std::mem::take(&mut slot.shallow) as usize;
        // The highest generation is left out: no user_data is all ones, which queues keep for themselves.
        slot.generation = (slot.generation + 1) % mask;
        self.free.push(index);
    }

    pub fn get(&self, index: u16) -> &Slot {
        &self.slots[index as usize]
    }

    pub fn get_mut(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// `trace_id << 32 | generation << slot_bits | slot` (invariant I11).
    pub fn user_data(&self, index: u16, trace_id: u32) -> u64 {
        let generation = self.slots[index as usize].generation;
        (trace_id as u64) << 32 | (generation << self.bits | index as u32) as u64
    }

    /// The slot that an answer belongs to, and whether it is this use of it.
    pub fn find(&self, user_data: u64) -> Option<(u16, bool)> {
        let low = user_data as u32;
        let index = low & !(u32::MAX << self.bits);
        let slot = self.slots.get(index as usize)?;
        Some((index as u16, slot.busy && slot.generation == low >> self.bits))
    }

    /// Slots in use for files that kernel workers serve.
    pub fn shallow(&self) -> usize {
        self.shallow
    }

    /// Slots in use.
    pub fn busy(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Invariant I11: tracers join commands to objects by the high half, the lane finds its slot by the low half.
    #[test]
    fn user_data_is_trace_id_generation_and_slot() {
        for depth in [1usize, 2, 8, 9, 4096] {
            let bits = depth.max(2).next_power_of_two().trailing_zeros();
            let highest = u32::MAX >> bits; // left out: it would make a poll's user_data of some command's
            let mut slots = Slots::new(depth, highest - 2);
            let mut generations = vec![highest - 2; depth];
            for round in 0..5 * depth {
                let index = slots.take(false).expect("there is a free slot");
                let (generation, trace) = (generations[index as usize], u32::MAX - round as u32);
                let user_data = slots.user_data(index, trace);
                assert_eq!((user_data >> 32) as u32, trace);
                assert_eq!(
                    user_data as u32,
                    generation << bits | index as u32,
                    "depth {depth}, round {round}"
                );
                assert_ne!(user_data, u64::MAX, "queues keep it for themselves");
                assert_eq!(slots.find(user_data), Some((index, true)));
                assert_eq!(
                    slots.find(user_data & u32::MAX as u64),
                    Some((index, true)),
                    "the low half is enough"
                );
                slots.free(index);
                assert_eq!(
                    slots.find(user_data),
                    Some((index, false)),
                    "an answer to an earlier use is stale"
                );
                generations[index as usize] = (generation + 1) % highest;
            }
        }
    }
}
