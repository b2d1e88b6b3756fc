//! Where the pieces of a unit lie: on the target, in the bounce buffer or the mapping, on the GPU.

use crate::memory::Window;
use crate::queue::cuda::{Copy, Piece as Small};

/// Bytes that a bounce buffer has beyond the largest unit, so that what is not aligned on the target can be put where it
/// is aligned alike.
pub const SLACK: usize = 64 << 10;
/// Alignment that every target's memory is content with.
const ALIGN: u64 = 4096;
/// Pieces smaller than this on average are moved by a kernel, if there are more than a few.
const SMALL: usize = 1 << 20;
const FEW: usize = 4;

/// A part of an extent that lies in the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub extent: u32,
    /// On the target.
    pub offset: u64,
    pub len: u64,
    /// On the GPU.
    pub device: u64,
    /// Where in the bounce buffer (or, out of a mapping, in staging), and of which run it is.
    pub at: usize,
    pub run: usize,
    /// It could not be read or written.
    pub failed: bool,
}

/// Parts that follow one another on the target: an extent of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub offset: u64,
    pub len: u64,
    pub at: usize,
}

/// Gives each part its place in a buffer of `room` bytes; what follows one another on the target does so in the buffer.
pub fn place(parts: &mut [Part], room: usize, runs: &mut Vec<Run>) {
    runs.clear();
    let (mut end, mut left) = (0, parts.iter().map(|part| part.len as usize).sum::<usize>());
    for part in parts {
        match runs.last_mut() {
            Some(run) if run.offset + run.len == part.offset => run.len += part.len,
            _ => {
                let alike = end + ((part.offset + ALIGN - end as u64 % ALIGN) % ALIGN) as usize;
                // Where there is no room for that, what is not aligned goes through the lane's scratch.
                let at = if alike + left <= room { alike } else { end };
                (end, _) = (at, runs.push(Run { offset: part.offset, len: part.len, at }));
            }
        }
        (part.at, part.run) = (end, runs.len() - 1);
        (end, left) = (end + part.len as usize, left - part.len as usize);
    }
}

/// Adds a copy, or makes the last one longer where this follows it on both sides and `joins` allows.
pub fn push_copy(copies: &mut Vec<Copy>, host: Window, device: u64, joins: impl Fn(&Copy) -> bool) {
    if let Some(last) = copies.last_mut() {
        let follows = last.host.addr() + last.host.len() as u64 == host.addr()
            && last.device + last.host.len() as u64 == device;
        if follows && joins(last) {
            last.host = last.host.joined(host);
            return;
        }
    }
    copies.push(Copy { host, device });
}

/// Whether so many copies of so many bytes are better made by a kernel.
pub fn is_scattered(copies: usize, bytes: u64) -> bool {
    copies > FEW && (bytes as usize) < copies * SMALL
}

/// The parts as the kernel's pieces, which are in staging as they are in the buffer.
pub fn pieces<'a>(parts: impl Iterator<Item = &'a Part>, pieces: &mut Vec<Small>) {
    pieces.clear();
    for part in parts {
        match pieces.last_mut() {
            Some(last) if last.device + last.len as u64 == part.device && last.at + last.len == part.at => {
                last.len += part.len as usize;
            }
            _ => pieces.push(Small { device: part.device, at: part.at, len: part.len as usize }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(offset: u64, len: u64, device: u64) -> Part {
        Part { extent: 0, offset, len, device, at: 0, run: 0, failed: false }
    }

    proptest! {
        /// Parts lie in the buffer whole, none over another, in runs as on the target; where there is room they are
        /// aligned as they are on the target.
        #[test]
        fn parts_have_places(lens in proptest::collection::vec((1u64..9000, 0u64..3), 1..40), slack in 0usize..300_000) {
            let mut offset = 777;
            let mut parts: Vec<Part> = lens.iter().map(|(len, gap)| {
                offset += gap * 1000;
                let part = part(offset, *len, 0);
                offset += len;
                part
            }).collect();
            let all: usize = parts.iter().map(|p| p.len as usize).sum();
            let (room, mut runs) = (all + slack, Vec::new());
            place(&mut parts, room, &mut runs);
            let mut end = 0;
            for part in &parts {
                prop_assert!(part.at >= end);
                end = part.at + part.len as usize;
                let run = runs[part.run];
                prop_assert_eq!(part.offset - run.offset, (part.at - run.at) as u64);
                prop_assert!(part.offset + part.len <= run.offset + run.len);
                let roomy = slack >= 4096 * lens.len();
                prop_assert!(!roomy || part.at as u64 % 4096 == part.offset % 4096);
            }
            prop_assert!(end <= room);
            prop_assert_eq!(runs.iter().map(|r| r.len).sum::<u64>() as usize, all);
            prop_assert!(runs.windows(2).all(|w| w[0].offset + w[0].len != w[1].offset));
        }
    }

    #[test]
    fn pieces_that_follow_one_another_are_one() {
        let mut parts = [part(0, 10, 100), part(10, 10, 110), part(20, 10, 500)];
        place(&mut parts, 30, &mut Vec::new());
        let mut out = Vec::new();
        pieces(parts.iter(), &mut out);
        assert_eq!(out, [Small { device: 100, at: 0, len: 20 }, Small { device: 500, at: 20, len: 10 }]);
    }
}
