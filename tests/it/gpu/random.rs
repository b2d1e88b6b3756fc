//! Any extents, any places: against an oracle.

use super::rig::{KIB, MIB, Rig, SEED, WAIT, gpu, ok};
use crate::support::load::raw;
use crate::support::{POISON, eventually, first_mismatch};
use fullbore::{Engine, EngineBuilder, Op, OpenOptions, Target, Transfer};

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % below
    }
}

/// Extents of odd sizes and offsets, in memory one behind the other with gaps, in an order of their own. Some follow
/// one another in the file, or name the same bytes of it.
fn extents(dice: &mut Dice, size: u64, room: u64, write: bool) -> Vec<(u64, u64, u64)> {
    let scale = [2, 100, 5000, 70_000, 3 << 20][dice.roll(5) as usize];
    let (mut out, mut at, mut offset) = (Vec::new(), dice.roll(5000), 0);
    for _ in 0..1 + dice.roll(400) {
        let len = 1 + dice.roll(scale).min(if dice.roll(3) == 0 { 10 } else { u64::MAX });
        offset = match dice.roll(4) {
            0 => offset, // right behind the last one
            1 if write => offset + dice.roll(600),
            _ if write => offset,
            _ => dice.roll(size - len),
        };
        if at + len > room || offset + len > size {
            break;
        }
        out.push((offset, at, len));
        (at, offset) = (at + len + dice.roll(3) * dice.roll(700), offset + len);
    }
    for i in (1..out.len()).rev() {
        if dice.roll(3) > 0 {
            out.swap(i, dice.roll(i as u64 + 1) as usize);
        }
    }
    if out.is_empty() { vec![(0, 0, 1)] } else { out }
}

fn read_and_check(rig: &Rig, target: &Target, list: &[(u64, u64, u64)], room: u64, what: &str) {
    rig.poison(0, room);
    let transfer =
        list.iter().fold(Transfer::read(target), |t, (offset, at, len)| rig.add(t, *offset, *at, *len));
    let done = rig.run(transfer);
    done.result.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(done.bytes, list.iter().map(|(_, _, len)| len).sum::<u64>(), "{what}");
    let memory = rig.fake.peek(rig.memory, room as usize);
    let mut expected = vec![POISON; room as usize];
    for (offset, at, len) in list {
        crate::support::fill(&mut expected[*at as usize..(at + len) as usize], *offset, SEED);
    }
    let wrong = (0..room as usize).find(|i| memory[*i] != expected[*i]);
    assert_eq!(wrong, None, "{what}: {list:?}");
    assert!(
        done.transfer.is_some_and(|t| t.extents().iter().all(|e| e.succeeded() && e.bytes() == e.len())),
        "{what}"
    );
}

fn write_and_check(rig: &Rig, path: &std::path::Path, target: &Target, list: &[(u64, u64, u64)], what: &str) {
    let mut file = std::fs::read(path).expect("the file");
    let block = target.block_size() as u64; // a direct store has whole blocks
    let list: Vec<_> = list.iter().map(|(o, at, len)| (o * block, *at * block, len * block)).collect();
    let mut transfer = Transfer::write(target);
    for (number, (offset, at, len)) in list.iter().enumerate() {
        let part = &mut file[*offset as usize..(offset + len) as usize];
        crate::support::fill(part, number as u64 * 1000, 5);
        rig.fake.poke(rig.memory + at, part);
        transfer = rig.add(transfer, *offset, *at, *len);
    }
    rig.run(transfer).result.unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = std::fs::read(path).expect("the file");
    let wrong = (0..file.len()).find(|i| file[*i] != found[*i]);
    assert_eq!(wrong, None, "{what}: {list:?}");
}

fn builders() -> [EngineBuilder; 3] {
    let e = Engine::builder;
    [
        e(),
        e().bounce(1 << 20, 2).gpu_outstanding(1 << 20),
        e().bounce((3 << 20) + 4096, 3).unit_size(300 << 10),
    ]
}

#[test]
fn any_extents_land_where_they_belong() {
    gpu("gpu::random::any_extents_land_where_they_belong", &[], |fake| {
        let (size, room) = (12 * MIB + 333, 14 * MIB);
        for (number, builder) in builders().into_iter().enumerate() {
            let rig = Rig::new(fake, builder, room);
            let (_, bounce) = rig.file(size, OpenOptions::read());
            let (_, mapped) = rig.file(size, OpenOptions::read().mapped());
            for seed in 0..24 {
                let list = extents(&mut Dice(seed * 3 + number as u64), size, room, false);
                let (target, name) = if seed % 2 == 0 { (&bounce, "bounce") } else { (&mapped, "mapped") };
                read_and_check(&rig, target, &list, room, &format!("builder {number}, seed {seed}, {name}"));
            }
        }
    });
}

#[test]
fn any_extents_are_stored_where_they_belong() {
    gpu("gpu::random::any_extents_are_stored_where_they_belong", &[], |fake| {
        let (size, room) = (12 * MIB + 333, 14 * MIB);
        for (number, builder) in builders().into_iter().enumerate() {
            let rig = Rig::new(fake, builder, room);
            let (path, bounce) = rig.file(size, OpenOptions::write());
            let mapped = rig.engine.open(&path, OpenOptions::write().mapped()).expect("a target");
            for seed in 100..112 {
                let (target, name) = if seed % 2 == 0 { (&bounce, "bounce") } else { (&mapped, "mapped") };
                let block = target.block_size() as u64;
                let list = extents(&mut Dice(seed * 3 + number as u64), size / block, room / block, true);
                write_and_check(
                    &rig,
                    &path,
                    target,
                    &list,
                    &format!("builder {number}, seed {seed}, {name}"),
                );
            }
        }
    });
}

/// One unit of more pieces than the kernel's table has lines, and more than it has of one byte each.
#[test]
fn more_pieces_than_a_table_has_lines() {
    gpu("gpu::random::more_pieces_than_a_table_has_lines", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 8 * MIB);
        for options in [OpenOptions::read(), OpenOptions::read().mapped()] {
            let (_, target) = rig.file(MIB, options);
            for count in [32 * KIB, 33 * KIB] {
                // In the file one behind the other: where they are not, a mapping's are copied one by one anyway.
                let list: Vec<_> = (0..count).map(|i| (i * 2 + 1, i * 37 % count * 5, 2)).collect();
                let copies = fake.count("cuMemcpyHtoDAsync_v2");
                read_and_check(&rig, &target, &list, MIB, &format!("{count} pieces"));
                let copies = fake.count("cuMemcpyHtoDAsync_v2") - copies;
                assert_eq!(copies >= count, count > 32 * KIB, "{copies} copies for {count} pieces");
            }
        }
    });
}

/// Extents larger than a unit, at odd offsets.
#[test]
fn large_extents_at_odd_offsets() {
    gpu("gpu::random::large_extents_at_odd_offsets", &[], |fake| {
        let room = 72 * MIB;
        let rig = Rig::new(fake, Engine::builder(), room);
        for options in [OpenOptions::read(), OpenOptions::read().mapped()] {
            let (_, target) = rig.file(40 * MIB, options);
            let list = [
                (511, 17, 33 * MIB + 5),
                (3 * MIB + 1, 34 * MIB + 3, 9 * MIB),
                (13, 44 * MIB, 16 * MIB + 4095),
            ];
            read_and_check(&rig, &target, &list, room, "large");
        }
    });
}

/// Stripes of files and of mappings, of chunks that are smaller and larger than a unit.
#[test]
fn stripes() {
    gpu("gpu::random::stripes", &[], |fake| {
        let room = 40 * MIB;
        let rig = Rig::new(fake, Engine::builder().bounce(2 << 20, 4), room);
        for (mapped, chunk) in [(false, 64 * KIB), (false, 8 * MIB), (true, 64 * KIB), (true, 8 * MIB)] {
            let mut whole = vec![0; 36 << 20];
            crate::support::fill(&mut whole, 0, SEED);
            let members: Vec<_> = (0..3u64)
                .map(|member| {
                    let path = rig.folder.path.join(format!("data{member}"));
                    let chunks = whole.chunks(chunk as usize).skip(member as usize).step_by(3);
                    let mut bytes = chunks.collect::<Vec<_>>().concat();
                    bytes.resize((12 << 20) + chunk as usize, 0);
                    std::fs::write(&path, bytes).expect("room");
                    let options = OpenOptions::write();
                    rig.engine.open(path, if mapped { options.mapped() } else { options }).expect("a target")
                })
                .collect();
            let target = rig.engine.stripe(&members, chunk).expect("a stripe");
            let end = if chunk > MIB { 24 * MIB } else { 36 * MIB }; // where all chunks are whole
            for seed in 200..206 {
                let list = extents(&mut Dice(seed), end, room, false);
                read_and_check(
                    &rig,
                    &target,
                    &list,
                    room,
                    &format!("mapped {mapped}, chunk {chunk}, seed {seed}"),
                );
            }
            read_and_check(&rig, &target, &[(5, 3, end - 7)], room, "all of it");
            let pieces: Vec<_> = (0..300).map(|i| (i * 37 % 300 * 70_001, i * 110_000, 61_111)).collect();
            read_and_check(&rig, &target, &pieces, room, "pieces");
            // And back as it is.
            ok(rig.read(&target, 0, 0, end));
            let store = rig.add(Transfer::write(&target), 0, 0, end).durable();
            rig.run(store).result.expect("it is written");
            read_and_check(&rig, &target, &[(5, 3, end - 7)], room, "after a store");
        }
    });
}

/// Several mappings at once, beside files.
#[test]
fn several_targets_at_once() {
    let env = [("FAKE_CUDA_GBPS", "8")];
    gpu("gpu::random::several_targets_at_once", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder(), 96 * MIB);
        let targets: Vec<_> = (0..4)
            .map(|i| {
                let path = rig.folder.file(&format!("data{i}"), 12 * MIB, SEED + i);
                let options = OpenOptions::read();
                rig.engine.open(path, if i < 3 { options.mapped() } else { options }).expect("a target")
            })
            .collect();
        for round in 0..3 {
            let tickets: Vec<_> = (0..8)
                .map(|i: u64| {
                    rig.submit(rig.to_read(&targets[i as usize % 4], round * 13 + i, i * 12 * MIB, 11 * MIB))
                })
                .collect();
            for (i, mut ticket) in tickets.into_iter().enumerate() {
                ticket.wait_timeout(WAIT).expect("an end").result.expect("it lands");
                let bytes = fake.peek(rig.memory + i as u64 * 12 * MIB, 11 << 20);
                assert_eq!(first_mismatch(&bytes, round * 13 + i as u64, SEED + i as u64 % 4), None, "{i}");
            }
        }
    });
}

/// 10 000 small transfers, by all ways to submit: no entry, lease or slot is left over.
#[test]
fn many_small_transfers_leave_nothing_behind() {
    gpu("gpu::random::many_small_transfers_leave_nothing_behind", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder().max_transfers(64), 8 * MIB);
        let (_, file) = rig.file(4 * MIB, OpenOptions::read());
        let (_, mapped) = rig.file(4 * MIB, OpenOptions::read().mapped());
        let mut done = Vec::new();
        for round in 0..625u64 {
            let place =
                |i: u64| ((round * 16 + i) * 997 % (3 * MIB), i * 4099, 1 + (round * 31 + i * 7) % 4097);
            let target = if round % 3 == 0 { &file } else { &mapped };
            let mut lists: Vec<_> = (8..16)
                .map(|i| {
                    let (offset, at, len) = place(i);
                    [raw(offset, (rig.memory + at) as *mut u8, len as usize)]
                })
                .collect();
            for i in 0..8 {
                let (offset, at, len) = place(i);
                let transfer = rig.to_read(target, offset, at, len);
                rig.client.submit_tagged(transfer, i).map_err(|r| r.error).expect("accepted");
            }
            for list in &mut lists {
                // SAFETY: list and memory stay until the completions below.
                unsafe { rig.client.submit_raw(target, Op::Read, list, 9) }.expect("accepted");
            }
            rig.client.wait(16, &mut done, Some(WAIT)).expect("their ends");
            assert_eq!(done.len(), 16, "in round {round}");
            done.drain(..).for_each(|done| done.result.expect("it lands"));
            if round % 25 == 0 {
                (0..16).map(place).for_each(|(offset, at, len)| rig.check(offset, at, len));
            }
        }
        let stats = rig.engine.stats();
        assert_eq!(stats.active, 0);
        assert!(stats.lanes.iter().all(|lane| lane.stale == 0));
        let idle = || rig.engine.stats().lanes.iter().all(|lane| lane.in_flight == 0);
        assert!(eventually(WAIT, idle), "no unit is left over");
        drop(rig.region.range(0..8 << 20).expect("no lease is out"));
        rig.region.release(WAIT).expect("nothing counts against it");
    });
}
