//! The pass that checks every byte where it landed: destinations are poisoned, objects loaded over the
//! whole file, its odd end included, and each byte is held against what belongs there.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore::{Client, Completion, HostLease, Mem};

use crate::args::{ALIGN, Plan};
use crate::arm::transfer;
use crate::content::{self, Wrong};
use crate::direct::{Op, PageBuf, Plain, serial_object};
use crate::failure::Failure;
use crate::place::{Place, Truth};
use crate::progress::Progress;
use crate::rig::Rig;
use crate::stop;
use crate::units::human;

/// Bytes of a file that the pass covers for each arm; from a larger file objects are taken evenly.
const COVER: u64 = 1 << 30;

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub bytes: u64,
    pub mismatches: u64,
    /// The first mismatch, in words.
    pub first: Option<String>,
}

/// The pieces that are checked: offsets and lengths.
fn pieces(size: u64, bs: u64) -> Vec<(u64, usize)> {
    let count = size / bs;
    let taken = count.min((COVER / bs).max(2));
    let object = |n: u64| n * (count - 1) / (taken - 1).max(1);
    let mut pieces: Vec<_> = (0..taken).map(|n| (object(n) * bs, bs as usize)).collect();
    if !size.is_multiple_of(bs) {
        pieces.push((count * bs, (size % bs) as usize));
    }
    pieces
}

/// Holds destinations against the truth.
struct Checker {
    truth: Truth,
    poison: u8,
    found: Verified,
    /// For a foreign file: another way to read it, and where to.
    plain: Plain,
    other: PageBuf,
}

impl Checker {
    /// `pass` varies the poison: a file that happens to hold one pattern is caught by the next.
    fn new(plan: &Plan, place: &Place, pass: usize) -> Result<Self, Failure> {
        let plain = place.plain(false)?;
        let poison = 0xa5u8.rotate_left(pass as u32 % 8) ^ (pass as u8 / 8);
        let other = if place.truth == Truth::Pread { plan.bs.next_multiple_of(ALIGN) } else { 0 };
        Ok(Self {
            truth: place.truth,
            poison,
            found: Verified::default(),
            plain,
            other: PageBuf::new(other as usize),
        })
    }

    /// Makes a buffer ready: poison before a read, what belongs there before a write.
    fn prepare(&self, op: Op, bytes: &mut [u8], offset: u64) {
        match (op, self.truth) {
            (Op::Write, Truth::Content(seed)) => content::fill(bytes, offset, seed),
            _ => bytes.fill(self.poison),
        }
    }

    /// Checks a buffer that was read.
    fn finish(&mut self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        let (wrong, seed) = match self.truth {
            Truth::Content(seed) => (content::check(bytes, offset, seed), seed),
            Truth::Pread => {
                serial_object(&self.plain, Op::Read, 4 << 20, &mut self.other, offset, bytes.len())
                    .map_err(|error| Failure::Data(format!("pread at offset {offset}: {error}")))?;
                (content::compare(bytes, &self.other[..bytes.len()], offset), 0)
            }
        };
        self.found.bytes += bytes.len() as u64;
        let poison = self.poison;
        self.add(wrong, || content::describe(bytes, offset, &wrong, seed, poison));
        Ok(())
    }

    /// Checks that the bytes behind the odd end were left alone.
    fn finish_guard(&mut self, guard: &[u8]) {
        let bytes = guard.iter().filter(|&&byte| byte != self.poison).count() as u64;
        let wrong = Wrong { bytes, first: (bytes > 0).then_some(0) };
        self.add(wrong, || {
            format!("{bytes} bytes behind the destination of the file's odd end were written")
        });
    }

    fn add(&mut self, wrong: Wrong, describe: impl FnOnce() -> String) {
        self.found.mismatches += wrong.bytes;
        if wrong.bytes > 0 && self.found.first.is_none() {
            self.found.first = Some(describe());
        }
    }
}

/// The pass with the serial loop.
pub fn serial(rig: &Rig, plan: &Plan, place: &Place) -> Result<Verified, Failure> {
    let mut checker = Checker::new(plan, place, 0)?;
    let plain = place.plain(plan.rw.writes())?;
    let mut pool = rig.leases(rig.slots())?;
    let pieces = pieces(place.size, plan.bs);
    let progress = Progress::new("checking serial", Some(total(&pieces) * rounds(plan).len() as u64));
    for &op in rounds(plan) {
        for (index, &(offset, len)) in pieces.iter().enumerate() {
            stop::check()?;
            let slots = pool.len();
            let buf = &mut pool[index % slots];
            checker.prepare(op, &mut buf[..len], offset);
            serial_object(&plain, op, plan.cmd_size as usize, buf, offset, len)
                .map_err(|error| Failure::Data(format!("serial, {len} bytes at offset {offset}: {error}")))?;
            if op == Op::Read {
                checker.finish(&buf[..len], offset)?;
            }
            progress.add(len as u64);
        }
    }
    Ok(checker.found)
}

/// The pass with the engine and `depth` objects in flight. `pass` counts from 1.
pub fn engine(rig: &Rig, plan: &Plan, place: &Place, depth: usize, pass: usize) -> Result<Verified, Failure> {
    let pieces = pieces(place.size, plan.bs);
    let phase = format!("checking {depth} in flight");
    let mut pass = Pass {
        checker: Checker::new(plan, place, pass)?,
        client: rig.engine.client().map_err(Failure::setup)?,
        rig,
        idle: rig.leases(rig.slots())?.into(),
        guard: None,
        progress: Progress::new(&phase, Some(total(&pieces) * rounds(plan).len() as u64)),
        bs: plan.bs as usize,
    };
    for &op in rounds(plan) {
        pass.round(op, &pieces, depth)?;
    }
    Ok(pass.checker.found)
}

/// A write is checked by reading back.
fn rounds(plan: &Plan) -> &'static [Op] {
    if plan.rw.writes() { &[Op::Write, Op::Read] } else { &[Op::Read] }
}

fn total(pieces: &[(u64, usize)]) -> u64 {
    pieces.iter().map(|&(_, len)| len as u64).sum()
}

struct Pass<'a> {
    checker: Checker,
    client: Client,
    rig: &'a Rig,
    idle: VecDeque<HostLease>,
    guard: Option<HostLease>,
    progress: Progress,
    bs: usize,
}

impl Pass<'_> {
    /// Moves every piece once, and checks what was read.
    fn round(&mut self, op: Op, pieces: &[(u64, usize)], depth: usize) -> Result<(), Failure> {
        let mut done: Vec<Completion> = Vec::with_capacity(depth);
        let mut waiting = pieces.iter();
        let mut flying = 0;
        loop {
            while flying < depth && !stop::requested() {
                let Some(&(offset, len)) = waiting.next() else { break };
                self.submit(op, offset, len)?;
                flying += 1;
            }
            if flying == 0 {
                return stop::check();
            }
            self.client.wait(1, &mut done, Some(Duration::from_millis(100))).map_err(Failure::data)?;
            for completion in done.drain(..) {
                flying -= 1;
                self.absorb(op, completion)?;
            }
        }
    }

    fn submit(&mut self, op: Op, offset: u64, len: usize) -> Result<(), Failure> {
        let mut lease = if len == self.bs {
            self.idle.pop_front().ok_or_else(|| Failure::data("a lease did not come back"))?
        } else {
            let (lease, guard) = self.rig.odd_end(len)?;
            self.guard = guard;
            lease
        };
        self.checker.prepare(op, &mut lease, offset);
        if let Some(guard) = &mut self.guard {
            guard.fill(self.checker.poison);
        }
        let transfer = transfer(op, &self.rig.target).extent(offset, lease);
        self.client.submit_tagged(transfer, offset).map_err(|rejected| Failure::data(rejected.error))?;
        Ok(())
    }

    fn absorb(&mut self, op: Op, completion: Completion) -> Result<(), Failure> {
        completion.result.map_err(Failure::data)?;
        let offset = completion.tag;
        for extent in completion.transfer.into_iter().flat_map(|transfer| transfer.into_extents()) {
            let Mem::Host(lease) = extent.into_mem() else { continue };
            if op == Op::Read {
                self.checker.finish(&lease, offset)?;
            }
            self.progress.add(lease.len() as u64);
            if lease.len() == self.bs {
                self.idle.push_back(lease);
            } else if let Some(guard) = self.guard.take() {
                self.checker.finish_guard(&guard);
            }
        }
        Ok(())
    }
}

impl Verified {
    /// One line for people.
    pub fn line(&self, arm: &str) -> String {
        match &self.first {
            None => format!("{arm}: {} checked, every byte is right", human(self.bytes)),
            Some(first) => {
                format!("{arm}: {} bytes of {} are WRONG: {first}", self.mismatches, human(self.bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_small_file_and_its_odd_end_is_checked() {
        let all = pieces(1 << 30, 20 << 20);
        assert_eq!((all.len(), total(&all)), (52, 1 << 30));
        assert_eq!(all.last(), Some(&(51 * (20 << 20), 4 << 20)));
        assert_eq!(pieces(8192, 4096), [(0, 4096), (4096, 4096)]);
        assert_eq!(pieces(4097, 4096), [(0, 4096), (4096, 1)]);
    }

    #[test]
    fn a_large_file_is_checked_from_end_to_end() {
        let all = pieces((100 << 30) + 5, 20 << 20);
        let (last, odd) = (all[all.len() - 2], all[all.len() - 1]);
        assert!(total(&all) <= COVER && total(&all) > COVER * 9 / 10);
        assert_eq!((all[0].0, last.0), (0, 5119 * (20 << 20)));
        assert_eq!(odd, (5120 * (20 << 20), 5));
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(pieces(8 << 40, 1 << 40).len(), 2);
    }

    #[test]
    fn a_line_says_what_was_found() {
        let good = Verified { bytes: 1 << 30, mismatches: 0, first: None };
        assert_eq!(good.line("serial"), "serial: 1 GiB checked, every byte is right");
        let bad = Verified { bytes: 4096, mismatches: 5, first: Some("x".into()) };
        assert!(bad.line("engine").contains("5 bytes of 4 KiB are WRONG: x"));
    }
}
