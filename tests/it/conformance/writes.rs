//! Writes, read back by a plain pread; flush; files that are made and grow.

use super::places::{OLD, Place, WRITE_SIZE};
use super::rig::{GUARD, Piece, Rig};
use crate::support::{check, fill};
use fullbore::{ErrorKind, Op, OpenOptions};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const BASE: usize = 2 * GUARD;

pub fn run(rig: &mut Rig, place: &Place) {
    restore(&place.witness);
    aligned(rig, &place.witness);
    misaligned_memory(rig, &place.witness);
    odd_ranges(rig, &place.witness);
    durable_and_flush(rig, &place.witness);
    create_and_grow(rig, place);
}

/// The file as it was before the first write.
fn restore(witness: &Path) {
    let file = File::options().write(true).open(witness).expect("opens");
    let mut old = vec![0; WRITE_SIZE as usize];
    fill(&mut old, 0, OLD);
    file.write_all_at(&old, 0).expect("writes");
}

/// What pread finds at `offset`.
fn pread(witness: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(witness).and_then(|f| f.read_exact_at(&mut bytes, offset)).expect("reads back");
    bytes
}

/// Writes content of `seed` and checks what pread finds there, and that a block before and after is as it was.
fn write(rig: &mut Rig, witness: &Path, pieces: &[Piece], seed: u64, durable: bool, what: &str) {
    rig.memory
        .bytes(|bytes| pieces.iter().for_each(|p| fill(&mut bytes[p.at..p.at + p.len], p.offset, seed)));
    let done = rig.go(Op::Write, pieces, durable);
    rig.expect_whole(&done, pieces, what);
    for piece in pieces {
        check(
            &pread(witness, piece.offset, piece.len),
            piece.offset,
            seed,
            &format!("{}: {what}", rig.label),
        );
    }
}

fn neighbours_are_old(witness: &Path, piece: Piece, label: &str) {
    let end = piece.offset + piece.len as u64;
    if piece.offset >= 4096 {
        check(&pread(witness, piece.offset - 4096, 4096), piece.offset - 4096, OLD, label);
    }
    if end + 4096 <= WRITE_SIZE {
        check(&pread(witness, end, 4096), end, OLD, label);
    }
}

fn aligned(rig: &mut Rig, witness: &Path) {
    let mut offset = 8192;
    for (seed, len) in (100..).zip([4096, 8192, 128 << 10, (128 << 10) + 4096, (2 << 20) + 4096]) {
        let piece = Piece { offset, at: BASE, len };
        write(rig, witness, &[piece], seed, false, &format!("a write of {len} bytes"));
        neighbours_are_old(witness, piece, &rig.label);
        offset += len as u64 + 8192;
    }
    let many: Vec<_> = (0..64usize)
        .map(|i| Piece { offset: (6 << 20) + ((i * 13) % 64 * 8192) as u64, at: BASE + i * 5120, len: 4096 })
        .collect();
    write(rig, witness, &many, 200, false, "64 extents written");
    // The block between two that were written.
    check(&pread(witness, (6 << 20) + 4096, 4096), (6 << 20) + 4096, OLD, &rig.label);
}

/// Memory that a device cannot reach is copied through scratch; the bytes are right and the path says it.
fn misaligned_memory(rig: &mut Rig, witness: &Path) {
    for (seed, shift) in (300..).zip([1, 100, 511, 512]) {
        let piece = Piece { offset: 7 << 20, at: BASE + shift, len: (1 << 20) + 8192 };
        write(rig, witness, &[piece], seed, false, &format!("written from memory at + {shift}"));
        neighbours_are_old(witness, piece, &rig.label);
    }
}

/// The page cache takes any byte range; a device's blocks do not (bad_input has the refusal).
fn odd_ranges(rig: &mut Rig, witness: &Path) {
    if rig.target.block_size() > 1 {
        return;
    }
    for (seed, len) in (350..).zip([1, 513, (1 << 20) + 7]) {
        let piece = Piece { offset: (10 << 20) + 101, at: BASE + 3, len };
        write(rig, witness, &[piece], seed, false, &format!("{len} bytes at an odd place"));
    }
    check(&pread(witness, 10 << 20, 101), 10 << 20, OLD, &rig.label);
}

/// A durable write is followed by one flush, a flush is one command.
fn durable_and_flush(rig: &mut Rig, witness: &Path) {
    let piece = Piece { offset: 9 << 20, at: BASE, len: 256 << 10 };
    let before = rig.counted();
    write(rig, witness, &[piece], 400, false, "not durable");
    let plain = rig.counted().0 - before.0;
    if !rig.memory.kind.is_raw() {
        let before = rig.counted();
        write(rig, witness, &[piece], 401, true, "durable");
        assert_eq!(rig.counted().0 - before.0, plain + 1, "{}: one flush behind a durable write", rig.label);
    }
    let before = rig.counted();
    let done = rig.client.flush(&rig.target).expect("accepted").wait().expect("a completion");
    done.result.expect("flushes");
    assert_eq!((done.bytes, done.transfer.is_none()), (0, true), "{}: a flush moves nothing", rig.label);
    assert_eq!(rig.counted().0 - before.0, 1, "{}: a flush is one command", rig.label);
}

/// A file is made with its blocks there, grows and shrinks, and takes writes as far as it goes.
fn create_and_grow(rig: &mut Rig, place: &Place) {
    let Some(folder) = &place.folder else { return };
    let path = folder.join("made");
    let engine = rig.engine();
    let target = engine.open(&path, place.options(OpenOptions::read().create(1 << 20))).expect("is made");
    assert_eq!((target.size(), length(&path)), (1 << 20, 1 << 20), "{}", rig.label);
    assert!(allocated(&path) >= 1 << 20, "{}: blocks are preallocated", rig.label);
    let old = std::mem::replace(&mut rig.target, target);
    write(rig, &path, &[Piece { offset: 0, at: BASE, len: 1 << 20 }], 500, false, "a whole new file");

    rig.target.set_size(3 << 20).expect("grows");
    assert_eq!((rig.target.size(), length(&path)), (3 << 20, 3 << 20), "{}", rig.label);
    assert!(allocated(&path) >= 3 << 20, "{}: new blocks are preallocated", rig.label);
    write(rig, &path, &[Piece { offset: 2 << 20, at: BASE, len: 1 << 20 }], 501, false, "what has grown");
    check(&pread(&path, 0, 1 << 20), 0, 500, &rig.label);
    assert!(pread(&path, 1 << 20, 1 << 20).iter().all(|b| *b == 0), "{}: the gap reads as zeros", rig.label);

    rig.target.set_size(4096).expect("shrinks");
    assert_eq!((rig.target.size(), length(&path)), (4096, 4096), "{}", rig.label);
    // Opening an existing file with `create` keeps what is in it.
    let again = engine.open(&path, place.options(OpenOptions::write().create(4096))).expect("opens again");
    assert_eq!(again.size(), 4096);
    check(&pread(&path, 0, 4096), 0, 500, &rig.label);
    rig.target = old;
    std::fs::remove_file(&path).expect("removes");
    cut_short(rig, place);
}

/// A file that was cut short behind our back: what is there is read, the rest is an error with its offset.
fn cut_short(rig: &mut Rig, place: &Place) {
    let Some(folder) = &place.folder else { return };
    let path = folder.join("cut");
    let mut content = vec![0; 3 << 20];
    fill(&mut content, 0, 600);
    std::fs::write(&path, &content).expect("writes");
    let target = rig.engine().open(&path, place.options(OpenOptions::read())).expect("opens");
    let left = (1 << 20) + 5000;
    File::options().write(true).open(&path).and_then(|f| f.set_len(left)).expect("cuts");
    let old = std::mem::replace(&mut rig.target, target);
    let pieces =
        [Piece { offset: 0, at: BASE, len: 512 << 10 }, Piece { offset: 1 << 20, at: 4 << 20, len: 2 << 20 }];
    let done = rig.go(Op::Read, &pieces, false);
    rig.target = old;
    let error = done.result.expect_err("the file ended");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{}: {error}", rig.label);
    assert_eq!(error.extent_index(), Some(1), "{}: {error}", rig.label);
    let (offset, block) = (error.offset().expect("an offset"), 4096);
    assert!((left - block..=left).contains(&offset), "{}: {offset} for a file of {left}", rig.label);
    assert_eq!(done.outcomes[0], (512 << 10, None), "{}: the first extent is whole", rig.label);
    assert_eq!(done.outcomes[1].1, Some(libc::ENODATA), "{}", rig.label);
    assert!(done.outcomes[1].0 <= 5000, "{}: no more than was there", rig.label);
    assert_eq!(done.bytes, done.outcomes[0].0 + done.outcomes[1].0, "{}", rig.label);
    rig.memory.bytes(|bytes| check(&bytes[BASE..BASE + (512 << 10)], 0, 600, "what was there"));
    std::fs::remove_file(&path).expect("removes");
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).expect("is there").len()
}

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).expect("is there").blocks() * 512
}
