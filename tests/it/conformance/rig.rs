//! A target, a memory and a client; transfers over them, with everything about their completions checked.

use super::memory::{Kind, Memory};
use super::oracle::Straight;
use crate::support::{check, poison, untouched};
use fullbore::{Client, Completion, Engine, Error, Op, PathSet, RawExtent, RawOutcome, Target, Transfer};
use std::collections::BTreeSet;

/// Bytes before and after each destination that must stay as they were.
pub const GUARD: usize = 8192;

/// One extent: where on the target, where in the memory, how long.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub offset: u64,
    pub at: usize,
    pub len: usize,
}

pub struct Done {
    pub result: Result<(), Error>,
    pub bytes: u64,
    pub paths: PathSet,
    /// For each extent: bytes and errno.
    pub outcomes: Vec<(u64, Option<i32>)>,
}

pub struct Rig<'a> {
    engine: &'a Engine,
    pub client: Client,
    pub target: Target,
    pub memory: Memory,
    pub label: String,
    pub seed: u64,
    tag: u64,
}

impl<'a> Rig<'a> {
    pub fn new(engine: &'a Engine, target: Target, memory: Memory, label: String, seed: u64) -> Rig<'a> {
        Rig { engine, client: engine.client().expect("a client"), target, memory, label, seed, tag: 0 }
    }

    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    pub fn turn_to(&mut self, target: Target) {
        self.target = target;
    }

    pub fn finish(self) {
        drop(self.memory); // asserts that its region can be released
    }

    pub fn straight(&self) -> Straight {
        Straight {
            geometry: self.target.geometry(),
            direct: self.target.is_direct(),
            fixed: self.memory.is_fixed(),
            mapped: self.target.is_mapped(),
        }
    }

    /// Commands and bytes that the lanes counted.
    pub fn counted(&self) -> (u64, u64) {
        let stats = self.engine.stats();
        (stats.lanes.iter().map(|l| l.commands).sum(), stats.lanes.iter().map(|l| l.bytes).sum())
    }

    /// Submits and waits. Each kind of memory goes its own way in and out: tickets, tags, raw lists.
    pub fn go(&mut self, op: Op, pieces: &[Piece], durable: bool) -> Done {
        self.tag += 1;
        if self.memory.kind.is_raw() {
            return self.go_raw(op, pieces);
        }
        let transfer = self.transfer(op, pieces, durable);
        let done = match self.memory.kind {
            Kind::Leased => self.client.submit(transfer).expect("accepted").wait().expect("a completion"),
            _ => {
                self.client.submit_tagged(transfer, self.tag).expect("accepted");
                self.take(1).remove(0)
            }
        };
        let tag = if self.memory.kind == Kind::Leased { 0 } else { self.tag };
        assert_eq!(done.tag, tag, "{}", self.label);
        let transfer = done.transfer.expect("it was not abandoned");
        let outcomes = transfer.extents().iter().map(|e| (e.bytes(), e.error())).collect();
        Done { result: done.result, bytes: done.bytes, paths: done.paths, outcomes }
    }

    pub fn transfer(&self, op: Op, pieces: &[Piece], durable: bool) -> Transfer {
        let start = match op {
            Op::Read => Transfer::read(&self.target),
            _ => Transfer::write(&self.target),
        };
        let start = if durable { start.durable() } else { start };
        pieces.iter().fold(start, |t, p| t.extent(p.offset, self.memory.mem(p.at, p.len)))
    }

    pub fn raw(&self, pieces: &[Piece]) -> Vec<RawExtent> {
        let dirty = RawOutcome { bytes: 77, errno: 77, reserved: 77 };
        let extent = |p: &Piece| {
            assert!(p.at + p.len <= self.memory.len);
            RawExtent {
                offset: p.offset,
                ptr: self.memory.ptr().wrapping_add(p.at),
                len: p.len as u64,
                outcome: dirty,
            }
        };
        pieces.iter().map(extent).collect()
    }

    fn go_raw(&mut self, op: Op, pieces: &[Piece]) -> Done {
        let mut list = self.raw(pieces);
        // SAFETY: list and memory outlive the completion, which is waited for here; nobody else touches them.
        unsafe { self.client.submit_raw(&self.target, op, &mut list, self.tag) }.expect("accepted");
        let done = self.take(1).remove(0);
        assert_eq!(done.tag, self.tag, "{}", self.label);
        assert!(done.transfer.is_none(), "a raw list is the caller's");
        let outcome = |e: &RawExtent| (e.outcome.bytes, Some(e.outcome.errno).filter(|errno| *errno != 0));
        Done {
            result: done.result,
            bytes: done.bytes,
            paths: done.paths,
            outcomes: list.iter().map(outcome).collect(),
        }
    }

    /// Waits for `count` completions.
    pub fn take(&self, count: usize) -> Vec<Completion> {
        let mut out = Vec::new();
        while out.len() < count {
            self.client.wait(count - out.len(), &mut out, None).expect("completions");
        }
        assert_eq!(out.len(), count, "{}: one completion each", self.label);
        out
    }

    /// Everything that must hold of a transfer that succeeded.
    pub fn expect_whole(&self, done: &Done, pieces: &[Piece], what: &str) {
        let label = format!("{}: {what}", self.label);
        done.result.as_ref().unwrap_or_else(|e| panic!("{label}: {e}"));
        assert_eq!(done.bytes, pieces.iter().map(|p| p.len as u64).sum::<u64>(), "{label}: bytes");
        let whole: Vec<_> = pieces.iter().map(|p| (p.len as u64, None)).collect();
        assert!(done.outcomes == whole, "{label}: outcomes of extents");
        let (straight, base) = (self.straight(), self.memory.ptr() as u64);
        let wanted: BTreeSet<_> =
            pieces.iter().flat_map(|p| straight.paths(p.offset, p.len as u64, base + p.at as u64)).collect();
        let taken: BTreeSet<_> = done.paths.iter().map(|p| p.name()).collect();
        assert_eq!(taken, wanted, "{label}: paths");
    }

    /// Poisons, reads, checks every byte of the destinations, of the gaps between them and of the guards.
    pub fn read(&mut self, pieces: &[Piece], what: &str) {
        self.memory.bytes(|bytes| poison(&mut bytes[around(pieces)]));
        let before = self.counted();
        let done = self.go(Op::Read, pieces, false);
        self.expect_whole(&done, pieces, what);
        let after = self.counted();
        assert_eq!(after.1 - before.1, done.bytes, "{}: {what}: bytes in the statistics", self.label);
        self.verify(pieces, what);
    }

    /// Checks destinations, gaps and guards.
    pub fn verify(&mut self, pieces: &[Piece], what: &str) {
        let mut sorted = pieces.to_vec();
        sorted.sort_by_key(|p| p.at);
        let (seed, label) = (self.seed, format!("{}: {what}", self.label));
        self.memory.bytes(|bytes| {
            let all = around(pieces);
            let mut from = all.start;
            for piece in &sorted {
                let gap = &bytes[from..piece.at];
                assert!(untouched(gap), "{label}: written before {piece:?}");
                check(&bytes[piece.at..piece.at + piece.len], piece.offset, seed, &label);
                from = piece.at + piece.len;
            }
            assert!(untouched(&bytes[from..all.end]), "{label}: written behind the last destination");
        });
    }
}

/// The destinations with a guard before and after.
fn around(pieces: &[Piece]) -> std::ops::Range<usize> {
    let first = pieces.iter().map(|p| p.at).min().unwrap_or(0);
    let last = pieces.iter().map(|p| p.at + p.len).max().unwrap_or(0);
    assert!(first >= GUARD, "a test leaves room for its guard");
    first - GUARD..last + GUARD
}
