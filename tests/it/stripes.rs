//! Stripes over files: every byte is where the layout says, whatever the range and the chunk.

use super::support::{Folder, build, check, fill, folders, poison, uring, within};
use fullbore::{Engine, ErrorKind, Mem, OpenOptions, Path, Target, Transfer};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SEED: u64 = 77;
const LIMIT: Duration = Duration::from_secs(60);

/// The member and the offset in it of byte `at` of a stripe, computed here by counting chunks.
fn place(at: u64, chunk: u64, members: u64) -> (usize, u64) {
    let row = at / (chunk * members);
    let in_row = at - row * chunk * members;
    ((in_row / chunk) as usize, row * chunk + in_row % chunk)
}

/// Files that together hold `size` bytes of content of `SEED`, chunk by chunk.
fn files(folder: &Folder, members: u64, chunk: u64, size: u64) -> Vec<PathBuf> {
    let rows = size.div_ceil(chunk * members);
    let mut bytes = vec![vec![0; (rows * chunk) as usize]; members as usize];
    let mut piece = vec![0; chunk as usize];
    for at in (0..rows * chunk * members).step_by(chunk as usize) {
        let (member, offset) = place(at, chunk, members);
        fill(&mut piece, at, SEED);
        bytes[member][offset as usize..][..chunk as usize].copy_from_slice(&piece);
    }
    let write = |(number, bytes): (usize, Vec<u8>)| {
        let path = folder.path.join(format!("m{number}-{chunk}"));
        std::fs::write(&path, bytes).expect("a file of ours");
        path
    };
    bytes.into_iter().enumerate().map(write).collect()
}

fn open(engine: &Engine, files: &[PathBuf], options: OpenOptions, chunk: u64) -> Target {
    let open = |path: &PathBuf| engine.open(path, options.clone()).expect("a member");
    engine.stripe(&files.iter().map(open).collect::<Vec<_>>(), chunk).expect("a stripe")
}

/// Loads `ranges` as one transfer and checks every byte.
fn load(engine: &Engine, stripe: &Target, ranges: &[(u64, u64)], what: &str) {
    let region = engine.alloc_host(ranges.iter().map(|(_, len)| *len as usize + 512).sum()).unwrap();
    let (mut transfer, mut at) = (Transfer::read(stripe), 0);
    for (offset, len) in ranges {
        let mut lease = region.lease(at..at + *len as usize).unwrap();
        poison(&mut lease);
        transfer.push(*offset, lease);
        at += *len as usize + 512;
    }
    let done = engine.client().unwrap().submit(transfer).unwrap().wait().unwrap();
    done.result.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(done.bytes, ranges.iter().map(|(_, len)| len).sum::<u64>(), "{what}");
    for (extent, (offset, _)) in done.transfer.unwrap().into_extents().into_iter().zip(ranges) {
        assert!(extent.succeeded());
        check(&extent.into_mem().into_host().unwrap(), *offset, SEED, what);
    }
}

#[test]
fn any_range_is_read_from_where_the_layout_has_it() {
    if !uring() {
        return;
    }
    within(LIMIT, "reads of stripes", || {
        for folder in folders() {
            for (members, chunk) in [(1, 64 * KIB), (2, 4 * KIB), (3, 64 * KIB), (3, MIB), (2, 3 * MIB)] {
                let size = 12 * MIB;
                let files = files(&folder, members, chunk, size);
                for (lanes, clones) in [(1, true), (2, true), (3, false)] {
                    let engine = build(Engine::builder().lanes(lanes).clone_buffers(clones));
                    let stripe = open(&engine, &files, OpenOptions::read(), chunk);
                    assert!(stripe.size() >= size);
                    let what = format!("{}: {members} x {chunk}, {lanes} lanes", folder.name);
                    load(&engine, &stripe, &[(0, size)], &what);
                    load(&engine, &stripe, &[(1, 5 * MIB + 77), (7 * MIB - 513, 1), (chunk - 1, 2)], &what);
                    let small: Vec<_> =
                        (0..200).map(|i| (i * 60_011 % (size - 16 * KIB), 16 * KIB)).collect();
                    load(&engine, &stripe, &small, &what);
                    load(&engine, &stripe, &[(stripe.size() - 4096, 4096)], &what);
                }
            }
        }
    });
}

#[test]
fn writes_land_where_the_layout_has_them_and_are_flushed() {
    if !uring() {
        return;
    }
    within(LIMIT, "writes of stripes", || {
        for folder in folders() {
            let (members, chunk) = (3, 64 * KIB);
            let files = files(&folder, members, chunk, 6 * MIB);
            let engine = build(Engine::builder().lanes(2));
            let stripe = open(&engine, &files, OpenOptions::write(), chunk);
            let region = engine.alloc_host(3 << 20).unwrap();
            let client = engine.client().unwrap();
            let (offset, seed) = (MIB + 4096, SEED + 1);
            let mut lease = region.lease(0..3 << 20).unwrap();
            fill(&mut lease, offset, seed);
            let transfer = Transfer::write(&stripe).extent(offset, lease).durable();
            client.submit(transfer).unwrap().wait().unwrap().result.expect("it is written and flushed");
            client.flush(&stripe).unwrap().wait().unwrap().result.expect("it is flushed");
            let opened: Vec<_> = files.iter().map(|path| File::open(path).unwrap()).collect();
            for at in (0..stripe.size()).step_by(4096) {
                let (member, from) = place(at, chunk, members);
                let mut block = [0; 4096];
                opened[member].read_exact_at(&mut block, from).unwrap();
                let written = (offset..offset + 3 * MIB).contains(&at);
                check(&block, at, if written { seed } else { SEED }, folder.name);
            }
        }
    });
}

#[test]
fn a_member_that_is_cut_short_fails_its_own_ranges() {
    if !uring() {
        return;
    }
    let Some(folder) = folders().pop() else { return };
    within(LIMIT, "a member cut short", || {
        let (members, chunk) = (2, 64 * KIB);
        let files = files(&folder, members, chunk, 8 * MIB);
        let engine = build(Engine::builder().lanes(2));
        let stripe = open(&engine, &files, OpenOptions::read(), chunk);
        File::options().write(true).open(&files[1]).unwrap().set_len(MIB).unwrap();
        let region = engine.alloc_host(8 << 20).unwrap();
        let transfer = Transfer::read(&stripe).extent(0, region.lease(0..8 << 20).unwrap());
        let done = engine.client().unwrap().submit(transfer).unwrap().wait().unwrap();
        let error = done.result.expect_err("half of the bytes are not there");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
        // The first byte that lies past 1 MiB of the second member.
        assert_eq!(error.offset(), Some(2 * MIB + chunk), "{error}");
        assert_eq!(done.bytes, 4 * MIB + MIB, "all of the first member, and what the second has");
    });
}

#[test]
fn what_makes_no_stripe_is_refused() {
    if !uring() {
        return;
    }
    let Some(folder) = folders().pop() else { return };
    let engine = build(Engine::builder());
    let other = build(Engine::builder());
    let open = |engine: &Engine, name: &str, options: OpenOptions| {
        let path = folder.path.join(name);
        if !path.exists() {
            folder.file(name, MIB, SEED);
        }
        engine.open(path, options).expect("a member")
    };
    let (a, b) = (open(&engine, "a", OpenOptions::read()), open(&engine, "b", OpenOptions::read()));
    let refused = |members: &[&Target], chunk: u64, kind: ErrorKind, word: &str| {
        let members: Vec<Target> = members.iter().map(|it| (*it).clone()).collect();
        let error = engine.stripe(&members, chunk).expect_err(word);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(word), "{word:?} is not in: {error}");
    };
    refused(&[], 4096, ErrorKind::InvalidInput, "1 to 64 members");
    for chunk in [0, 1, 4097, 2 << 30, u64::MAX] {
        refused(&[&a, &b], chunk, ErrorKind::InvalidInput, "whole blocks");
    }
    refused(&[&a, &b], 2 * MIB, ErrorKind::InvalidInput, "smaller");
    refused(&[&a, &a], 4096, ErrorKind::InvalidInput, "twice");
    refused(&[&a, &open(&engine, "b", OpenOptions::write())], 4096, ErrorKind::Unsupported, "opened alike");
    refused(
        &[&a, &open(&engine, "c", OpenOptions::read().buffered())],
        4096,
        ErrorKind::Unsupported,
        "alike",
    );
    refused(&[&a, &open(&other, "b", OpenOptions::read())], 4096, ErrorKind::WrongEngine, "another engine");
    let stripe = engine.stripe(&[a.clone(), b.clone()], 4096).expect("a stripe");
    refused(&[&stripe, &b], 4096, ErrorKind::InvalidInput, "stripe itself");
    assert_eq!(stripe.set_size(8 * MIB).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(stripe.name().ends_with("/b") && stripe.name().contains("/a:"), "{}", stripe.name());

    let region = engine.alloc_host(1 << 20).unwrap();
    let client = engine.client().unwrap();
    let past = Transfer::read(&stripe).extent(2 * MIB - 4096, region.lease(0..8192).unwrap());
    assert_eq!(client.submit(past).unwrap_err().error.kind(), ErrorKind::OutOfBounds);
    let demanded = Transfer::read(&stripe).extent(0, region.lease(0..8192).unwrap()).require(Path::Fixed);
    let done = client.submit(demanded).expect("it is registered").wait().unwrap();
    assert!(matches!(done.transfer.unwrap().into_extents().remove(0).into_mem(), Mem::Host(_)));
    b.close();
    let closed = Transfer::read(&stripe).extent(0, region.lease(0..8192).unwrap());
    assert_eq!(client.submit(closed).unwrap_err().error.kind(), ErrorKind::Closed);
}
