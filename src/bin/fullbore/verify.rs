//! The pass that checks every byte where it landed: destinations are poisoned, objects loaded over the
//! whole file, its odd end included, and each byte is held against what belongs there.

use std::collections::VecDeque;
use std::time::Duration;

use fullbore::{Client, Completion, Mem, Priority};

use crate::args::{ALIGN, Plan};
use crate::arm::transfer;
use crate::content::{self, Wrong};
use crate::direct::{Op, PageBuf, Plain, serial_object};
use crate::failure::Failure;
use crate::options::Requests;
use crate::place::{Place, Truth};
use crate::pool::{Part, put, see};
use crate::progress::Progress;
use crate::rig::{Rig, URGENT};
use crate::serial;
use crate::stop;
use crate::units::human;
use crate::work::Order;

/// Bytes of a file that the pass covers for each arm; from a larger file objects are taken evenly.
pub const COVER: u64 = 1 << 30;

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub bytes: u64,
    pub mismatches: u64,
    /// The first mismatch, in words.
    pub first: Option<String>,
}

/// The pieces that are checked: offsets and lengths.
fn pieces(size: u64, bs: u64, cover: u64) -> Vec<(u64, usize)> {
    let count = size / bs;
    let taken = count.min((cover / bs).max(2));
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
    fn new(rig: &Rig, plan: &Plan, place: &Place, pass: usize) -> Result<Self, Failure> {
        let plain = place.plain(plan, &rig.engine, false)?;
        let poison = 0xa5u8.rotate_left(pass as u32 % 8) ^ (pass as u8 / 8);
        let other = if place.truth == Truth::Pread { plan.bs.max(URGENT).next_multiple_of(ALIGN) } else { 0 };
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
pub fn serial(rig: &Rig, plan: &Plan, place: &Place, cover: u64) -> Result<Verified, Failure> {
    let mut checker = Checker::new(rig, plan, place, 0)?;
    let plain = place.plain(plan, &rig.engine, plan.rw.writes())?;
    // In one piece: plain reads know of no others, and the odd end needs room for whole pages.
    let mut buf = PageBuf::new(plan.bs.next_multiple_of(ALIGN) as usize);
    let rounds = rounds(plan, place, cover);
    let total: u64 = rounds.iter().map(|(_, pieces)| total(pieces)).sum();
    let progress = Progress::new("checking serial", Some(total));
    for (op, pieces) in rounds {
        for (offset, len) in pieces {
            stop::check()?;
            checker.prepare(op, &mut buf[..len], offset);
            serial::piece(&plain, op, plan, &mut buf, offset, len)?;
            if op == Op::Read {
                checker.finish(&buf[..len], offset)?;
            }
            progress.add(len as u64);
        }
    }
    Ok(checker.found)
}

/// The pass with the engine and `depth` objects or requests in flight. `pass` counts from 1.
pub fn engine(
    rig: &Rig,
    plan: &Plan,
    place: &Place,
    depth: usize,
    (pass, cover): (usize, u64),
) -> Result<Verified, Failure> {
    let rounds: Vec<_> = match &plan.requests {
        None => rounds(plan, place, cover)
            .into_iter()
            .map(|(op, pieces)| {
                (op, pieces.into_iter().map(|piece| Load::object(rig, plan, piece)).collect())
            })
            .collect(),
        Some(requests) => ops(plan)
            .iter()
            .map(|&op| {
                (op, Load::requests(rig, plan, place, requests, if op == Op::Write { cover } else { COVER }))
            })
            .collect(),
    };
    let total: u64 =
        rounds.iter().map(|(_, loads): &(Op, Vec<Load>)| loads.iter().map(Load::bytes).sum::<u64>()).sum();
    let mut pass = Pass {
        checker: Checker::new(rig, plan, place, pass)?,
        client: rig.engine.client().map_err(Failure::setup)?,
        rig,
        plan,
        idle: rig.items(rig.pool.slots())?.into(),
        guard: None,
        by: PageBuf::new(plan.bs.max(URGENT) as usize),
        progress: Progress::new(&format!("checking {depth} in flight"), Some(total)),
    };
    for (op, loads) in &rounds {
        pass.round(*op, loads, depth)?;
    }
    Ok(pass.checker.found)
}

/// A write is checked by reading back.
fn ops(plan: &Plan) -> &'static [Op] {
    if plan.rw.writes() { &[Op::Write, Op::Read] } else { &[Op::Read] }
}

/// What is moved and, after writes, read back: as much as `cover` says is written, and no more than the pass covers
/// is read.
fn rounds(plan: &Plan, place: &Place, cover: u64) -> Vec<(Op, Vec<(u64, usize)>)> {
    // A piece of a GPU's memory is copied back by itself, which takes its time.
    let read = if plan.memory.on_gpu() && plan.memory.scatter.is_some() { COVER / 4 } else { COVER };
    // What is read was written: all of it, or the same pieces.
    let of = |op| pieces(place.size, plan.bs, if op == Op::Write && cover > COVER { cover } else { read });
    ops(plan).iter().map(|&op| (op, of(op))).collect()
}

fn total(pieces: &[(u64, usize)]) -> u64 {
    pieces.iter().map(|&(_, len)| len as u64).sum()
}

/// What a transfer of the pass loads or stores.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Load {
    kind: Kind,
    /// Offset and length of each extent.
    extents: Vec<(u64, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An object or a request, in a place of the pool.
    Item,
    /// The odd end of the file.
    Odd,
    Urgent,
}

impl Load {
    fn object(rig: &Rig, plan: &Plan, (offset, len): (u64, usize)) -> Self {
        if len as u64 != plan.bs {
            return Self { kind: Kind::Odd, extents: vec![(offset, len)] };
        }
        let extents = rig.parts.iter().map(|part| (offset + part.within, part.len)).collect();
        Self { kind: Kind::Item, extents }
    }

    /// Two requests at least, and an urgent load behind them if there are such.
    fn requests(rig: &Rig, plan: &Plan, place: &Place, requests: &Requests, cover: u64) -> Vec<Self> {
        let order = Order::new(place.size, plan.bs, false);
        let objects = plan.objects_an_item();
        let count = (cover.min(place.size) / requests.size).max(2).min(requests.count);
        let extents = |item: u64| {
            let offset = |part: &Part| order.offset(item * objects + part.object) + part.within;
            rig.parts.iter().map(|part| (offset(part), part.len)).collect()
        };
        let mut loads: Vec<_> =
            (0..count).map(|item| Self { kind: Kind::Item, extents: extents(item) }).collect();
        if requests.probe {
            let len = URGENT.min(place.size / ALIGN * ALIGN) as usize;
            loads.push(Self { kind: Kind::Urgent, extents: vec![(0, len)] });
        }
        loads
    }

    fn bytes(&self) -> u64 {
        total(&self.extents)
    }
}

struct Pass<'a> {
    checker: Checker,
    client: Client,
    rig: &'a Rig,
    plan: &'a Plan,
    idle: VecDeque<Vec<Mem>>,
    guard: Option<Mem>,
    /// What bytes of a GPU's memory go by.
    by: PageBuf,
    progress: Progress,
}

impl Pass<'_> {
    /// Moves every load once, and checks what was read.
    fn round(&mut self, op: Op, loads: &[Load], depth: usize) -> Result<(), Failure> {
        let mut done: Vec<Completion> = Vec::with_capacity(depth);
        let mut waiting = loads.iter().enumerate();
        let mut flying = 0;
        loop {
            while flying < depth && !stop::requested() {
                let Some((index, load)) = waiting.next() else { break };
                self.submit(op, index, load)?;
                flying += 1;
            }
            if flying == 0 {
                return stop::check();
            }
            self.client.wait(1, &mut done, Some(Duration::from_millis(100))).map_err(Failure::data)?;
            for completion in done.drain(..) {
                flying -= 1;
                self.absorb(op, loads, completion)?;
            }
        }
    }

    fn memory(&mut self, load: &Load) -> Result<Vec<Mem>, Failure> {
        let lost = || Failure::data("a lease did not come back");
        match load.kind {
            Kind::Item => self.idle.pop_front().ok_or_else(lost),
            Kind::Odd => {
                let (mem, guard) = self.rig.pool.odd_end(load.extents[0].1, self.plan.bs)?;
                self.guard = guard;
                Ok(vec![mem])
            }
            Kind::Urgent => Ok(vec![self.rig.urgent()?.ok_or_else(lost)?]),
        }
    }

    fn submit(&mut self, op: Op, index: usize, load: &Load) -> Result<(), Failure> {
        let mems = self.memory(load)?;
        let (checker, by) = (&self.checker, &mut self.by);
        let op = if load.kind == Kind::Urgent { Op::Read } else { op };
        let mut transfer = transfer(op, &self.rig.target);
        for (mut mem, &(offset, _)) in mems.into_iter().zip(&load.extents) {
            put(&mut mem, by, |bytes| checker.prepare(op, bytes, offset))?;
            transfer = transfer.extent(offset, mem);
        }
        if let Some(guard) = &mut self.guard {
            put(guard, by, |bytes| bytes.fill(checker.poison))?;
        }
        if load.kind == Kind::Urgent {
            transfer = transfer.priority(Priority::Urgent);
        }
        self.client
            .submit_tagged(transfer, index as u64)
            .map_err(|rejected| Failure::data(rejected.error))?;
        Ok(())
    }

    fn absorb(&mut self, op: Op, loads: &[Load], completion: Completion) -> Result<(), Failure> {
        completion.result.map_err(Failure::data)?;
        let load = &loads[completion.tag as usize];
        let extents = completion.transfer.into_iter().flat_map(|transfer| transfer.into_extents());
        let mems: Vec<Mem> = extents.map(|extent| extent.into_mem()).collect();
        // What was urgent among writes may have come before them or after.
        if op == Op::Read {
            for (mem, &(offset, _)) in mems.iter().zip(&load.extents) {
                see(mem, &mut self.by, |bytes| self.checker.finish(bytes, offset))??;
            }
        }
        self.progress.add(load.bytes());
        match load.kind {
            Kind::Item => self.idle.push_back(mems),
            Kind::Odd => {
                if let Some(guard) = self.guard.take() {
                    see(&guard, &mut self.by, |bytes| self.checker.finish_guard(bytes))?;
                }
            }
            Kind::Urgent => {}
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
        let all = pieces(1 << 30, 20 << 20, COVER);
        assert_eq!((all.len(), total(&all)), (52, 1 << 30));
        assert_eq!(all.last(), Some(&(51 * (20 << 20), 4 << 20)));
        assert_eq!(pieces(8192, 4096, COVER), [(0, 4096), (4096, 4096)]);
        assert_eq!(pieces(4097, 4096, COVER), [(0, 4096), (4096, 1)]);
    }

    #[test]
    fn a_large_file_is_checked_from_end_to_end() {
        let all = pieces((100 << 30) + 5, 20 << 20, COVER);
        let (last, odd) = (all[all.len() - 2], all[all.len() - 1]);
        assert!(total(&all) <= COVER && total(&all) > COVER * 9 / 10);
        assert_eq!((all[0].0, last.0), (0, 5119 * (20 << 20)));
        assert_eq!(odd, (5120 * (20 << 20), 5));
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(pieces(8 << 40, 1 << 40, COVER).len(), 2);
    }

    #[test]
    fn a_line_says_what_was_found() {
        let good = Verified { bytes: 1 << 30, mismatches: 0, first: None };
        assert_eq!(good.line("serial"), "serial: 1 GiB checked, every byte is right");
        let bad = Verified { bytes: 4096, mismatches: 5, first: Some("x".into()) };
        assert!(bad.line("engine").contains("5 bytes of 4 KiB are WRONG: x"));
    }
}
