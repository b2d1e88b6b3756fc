//! Reads: sizes, alignments, ends of files, many extents, many transfers at once.

use super::rig::{GUARD, Piece, Rig};
use crate::support::poison;
use fullbore::{ErrorKind, Op, Transfer};

const BASE: usize = 2 * GUARD;

pub fn run(rig: &mut Rig) {
    sizes(rig);
    alignments(rig);
    end_of_file(rig);
    many_extents(rig);
    many_at_once(rig);
}

/// Aligned reads from 1 byte to 20 MiB and odd.
fn sizes(rig: &mut Rig) {
    let sizes =
        [1, 7, 511, 512, 513, 4095, 4096, 4097, 65_537, 128 << 10, (128 << 10) + 512, 1 << 20, (1 << 20) + 1];
    for (n, len) in sizes.into_iter().chain([(3 << 20) + 123, (20 << 20) + 7]).enumerate() {
        let offset = n as u64 * 20_480;
        rig.read(&[Piece { offset, at: BASE, len }], &format!("{len} bytes, aligned"));
    }
}

/// Every combination of odd offsets, addresses and lengths; heads, middles and tails.
fn alignments(rig: &mut Rig) {
    for offset in [1, 511, 512, 4095, 4196, (1 << 20) - 1] {
        for shift in [0, 1, 100, 512] {
            for len in [1, 100, 512, 5000, (128 << 10) + 1] {
                let piece = Piece { offset, at: BASE + shift, len };
                rig.read(&[piece], &format!("{piece:?}, unaligned"));
            }
        }
    }
    // Longer than a unit, so that units begin inside what is misaligned.
    for (offset, shift) in [(0, 512), (0, 1), (100, 100), (100, 0), (513, 1)] {
        let piece = Piece { offset, at: BASE + shift, len: (2 << 20) + 3 };
        rig.read(&[piece], &format!("{piece:?}, over several units"));
    }
}

/// Reads up to the last byte are whole; across it they are refused before anything is issued.
fn end_of_file(rig: &mut Rig) {
    let size = rig.target.size();
    for back in [1, 2, 511, 513, 5000, (1 << 20) + 1] {
        let piece = Piece { offset: size - back, at: BASE, len: back as usize };
        rig.read(&[piece], &format!("the last {back} bytes"));
    }
    let aligned = (size - 300_000) & !4095;
    let piece = Piece { offset: aligned, at: BASE, len: (size - aligned) as usize };
    rig.read(&[piece], "from a block to the end");

    let before = rig.counted();
    for (offset, len) in [(size, 1), (size - 1, 2), (size - 4096, 8192), (size + 4096, 512)] {
        let pieces = [Piece { offset, at: BASE, len }];
        let error = if rig.memory.kind.is_raw() {
            let mut list = rig.raw(&pieces);
            // SAFETY: refused, or waited for by the assertion's failure: the memory stays mapped in any case.
            let refused = unsafe { rig.client.submit_raw(&rig.target, Op::Read, &mut list, 1) };
            refused.expect_err("past the end")
        } else {
            let read = Transfer::read(&rig.target).extent(offset, rig.memory.mem(BASE, len));
            rig.client.submit(read).expect_err("past the end").error
        };
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{}: {error}", rig.label);
        assert_eq!(
            (error.offset(), error.length()),
            (Some(offset), Some(len as u64)),
            "{}: {error}",
            rig.label
        );
    }
    assert_eq!(rig.counted(), before, "{}: nothing was issued", rig.label);
}

/// 16 and 4096 extents in one transfer, in an order that is neither the file's nor the memory's.
fn many_extents(rig: &mut Rig) {
    let sixteen: Vec<_> = (0..16usize)
        .map(|i| Piece {
            offset: ((i * 7) % 16 * 70_001) as u64,
            at: BASE + i * 100_000,
            len: 60_000 + i * 333,
        })
        .collect();
    rig.read(&sixteen, "16 odd extents with gaps");
    let packed: Vec<_> = (0..4096usize)
        .map(|i| {
            // 1021 is odd, so this visits each block once; destinations touch one another.
            let block = (i * 1021) % 4096;
            let (at, len) = if i % 2 == 0 { (i / 2 * 4608, 4096) } else { (i / 2 * 4608 + 4096, 512) };
            Piece { offset: block as u64 * 4096, at: BASE + at, len }
        })
        .collect();
    rig.read(&packed, "4096 extents side by side");
}

/// 16 transfers in flight at once over one region, their destinations side by side.
fn many_at_once(rig: &mut Rig) {
    const EACH: usize = (768 << 10) + 512;
    let pieces: Vec<_> = (0..16)
        .map(|i| Piece { offset: ((i * 5) % 16) as u64 * (1 << 20), at: BASE + i * EACH, len: EACH })
        .collect();
    rig.memory.bytes(|bytes| poison(&mut bytes[..BASE + 16 * EACH + GUARD]));
    let mut lists: Vec<_> = pieces.iter().map(|p| rig.raw(std::slice::from_ref(p))).collect();
    for (tag, (piece, list)) in pieces.iter().zip(&mut lists).enumerate() {
        if rig.memory.kind.is_raw() {
            // SAFETY: lists and memory outlive the completions, which are waited for below.
            unsafe { rig.client.submit_raw(&rig.target, Op::Read, list, tag as u64) }.expect("accepted");
        } else {
            let transfer = rig.transfer(Op::Read, std::slice::from_ref(piece), false);
            rig.client.submit_tagged(transfer, tag as u64).expect("accepted");
        }
    }
    let mut done = rig.take(16);
    done.sort_by_key(|d| d.tag);
    for (tag, done) in done.into_iter().enumerate() {
        assert_eq!((done.tag, done.bytes), (tag as u64, EACH as u64), "{}: each tag once", rig.label);
        done.result.expect("read");
    }
    rig.verify(&pieces, "16 transfers at once");
}
