//! What moves, and by which path.

use super::rig::{KIB, MIB, Rig, WAIT, gpu};
use fullbore::{Engine, Op, OpenOptions, Path, Ticket, Transfer, Work, WorkRecord};
use std::collections::VecDeque;
use std::time::Instant;

/// Odd offsets and lengths too: a bounce buffer is filled as any host memory is.
#[test]
fn reads_land_in_the_gpu_whole() {
    gpu("gpu::moves::reads_land_in_the_gpu_whole", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 40 * MIB);
        let (_, target) = rig.file(30 * MIB + 777, OpenOptions::read());
        for (offset, at, len) in [
            (0, 0, 20 * MIB),
            (1, 3, 5),
            (4096, 512, 128 * KIB),
            (777, 1000, 17 * MIB + 3),
            (30 * MIB + 776, 9, 1),
        ] {
            rig.poison(0, 24 * MIB);
            let done = rig.read(&target, offset, at, len);
            done.result.expect("it lands");
            assert_eq!(done.bytes, len);
            assert!(done.paths.contains(Path::PinnedBounce), "{}", done.paths);
            rig.check(offset, at, len);
            assert!(fake.peek(rig.memory + at + len, 64).iter().all(|b| *b == crate::support::POISON));
        }
    });
}

#[test]
fn mappings_are_copied_straight() {
    gpu("gpu::moves::mappings_are_copied_straight", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 40 * MIB);
        let (_, target) = rig.file(40 * MIB, OpenOptions::read().mapped());
        let report = rig.engine.path(&target, &rig.region);
        assert_eq!(report.path, Path::DaxToGpu, "{}", report.reason);
        let done = rig.read(&target, 5, 7, 33 * MIB + 1);
        done.result.expect("it lands");
        assert_eq!(done.paths.to_string(), "dax -> gpu direct");
        rig.check(5, 7, 33 * MIB + 1);
    });
}

#[test]
fn writes_leave_the_gpu_whole() {
    gpu("gpu::moves::writes_leave_the_gpu_whole", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 40 * MIB);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (path, target) = rig.file(30 * MIB, options);
            let mut bytes = vec![0; 20 << 20];
            crate::support::fill(&mut bytes, 12345, 77);
            fake.poke(rig.memory + 4096, &bytes);
            let range = rig.region.range(4096..4096 + (20 << 20)).expect("a range");
            let done = rig.run(Transfer::write(&target).extent(8 * MIB, range).durable());
            done.result.expect("it is written");
            assert_eq!(done.bytes, 20 * MIB);
            let file = std::fs::read(path).expect("the file");
            assert!(file[8 << 20..28 << 20] == bytes[..]);
            assert_eq!(crate::support::first_mismatch(&file[..8 << 20], 0, super::rig::SEED), None);
        }
    });
}

#[test]
fn small_pieces_are_scattered_and_gathered() {
    gpu("gpu::moves::small_pieces_are_scattered_and_gathered", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 64 * MIB);
        for mapped in [false, true] {
            let options = OpenOptions::write();
            let (path, target) = rig.file(20 * MIB, if mapped { options.mapped() } else { options });
            let place = |i: u64| (i * 7919 % 640) * 64 * KIB; // each its own, in no order
            let pieces = |mut transfer: Transfer| {
                for i in 0..640u64 {
                    let at = place(i) as usize;
                    transfer.push(i * 32 * KIB, rig.region.range(at..at + (32 << 10)).expect("a range"));
                }
                transfer
            };
            rig.poison(0, 64 * MIB);
            let launched = fake.count("cuLaunchKernel");
            let done = rig.run(pieces(Transfer::read(&target)));
            done.result.expect("it lands");
            drop(done.transfer);
            (0..640).for_each(|i| rig.check(i * 32 * KIB, place(i), 32 * KIB));
            assert!(fake.count("cuLaunchKernel") > launched, "a kernel moved them");
            // And back, to another file's place: the file's first half as it is in the GPU now.
            let copies = fake.count("cuMemcpyDtoHAsync_v2");
            let done = rig.run(pieces(Transfer::write(&target)));
            done.result.expect("it is written");
            assert!(fake.count("cuMemcpyDtoHAsync_v2") - copies <= 4, "in bulk");
            let file = std::fs::read(path).expect("the file");
            assert_eq!(crate::support::first_mismatch(&file, 0, super::rig::SEED), None);
        }
    });
}

/// A unit, its copy and the commands that filled its buffer, each under the transfer's trace id and inside of one another.
#[test]
fn what_the_gpus_lane_did_is_recorded() {
    gpu("gpu::moves::what_the_gpus_lane_did_is_recorded", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 20 * MIB);
        let (_, target) = rig.file(20 * MIB, OpenOptions::read());
        rig.engine.record_work(10_000).expect("on");
        rig.run(rig.to_read(&target, 0, 0, 20 * MIB).trace_id(5)).result.expect("it lands");
        let (records, lost) = rig.engine.take_records();
        assert!(lost == 0 && records.iter().all(|record| record.trace_id == 5 && !record.failed));
        for work in [Work::Command, Work::Unit, Work::Copy] {
            let of_sort = records.iter().filter(|r| r.work == work);
            let mut places: Vec<_> = of_sort.map(|r| (r.offset, r.bytes)).collect();
            places.sort_unstable();
            let next = |at, &(offset, bytes): &(u64, u64)| if offset == at { at + bytes } else { u64::MAX };
            assert_eq!(places.iter().fold(0, next), 20 * MIB, "{work:?} one behind the other: {places:?}");
        }
        for copy in records.iter().filter(|r| r.work == Work::Copy) {
            let around = |r: &&WorkRecord| r.begun <= copy.begun && copy.ended <= r.ended;
            let mut units = records.iter().filter(|r| r.work == Work::Unit && r.slot == copy.slot);
            assert!(units.any(|unit| around(&unit)), "a copy is part of a unit");
        }
    });
}

/// A lane reads the clock before it takes in what came: nothing begins before what it waits for was submitted, or has ended.
#[test]
fn what_the_gpus_lane_did_is_in_order() {
    const COUNT: u64 = 4000;
    gpu("gpu::moves::what_the_gpus_lane_did_is_in_order", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), MIB);
        let (_, target) = rig.file(MIB, OpenOptions::write());
        rig.engine.record_work(16 * COUNT as usize).expect("on");
        let (mut submitted, mut under_way) = (Vec::new(), VecDeque::new());
        for id in 0..COUNT {
            if under_way.len() == 4 {
                let oldest: Option<Ticket> = under_way.pop_front();
                oldest
                    .and_then(|mut ticket| ticket.wait_timeout(WAIT))
                    .expect("in time")
                    .result
                    .expect("moved");
            }
            let (make, at) = if id % 2 == 0 {
                (Transfer::read as fn(&_) -> _, 0)
            } else {
                (Transfer::write as _, MIB / 2)
            };
            let at = at + id / 2 % 8 * 64 * KIB;
            submitted.push(Instant::now());
            under_way.push_back(rig.submit(rig.add(make(&target), at, at, 64 * KIB).trace_id(id as u32)));
        }
        for mut ticket in under_way {
            ticket.wait_timeout(WAIT).expect("in time").result.expect("moved");
        }
        let (records, lost) = rig.engine.take_records();
        assert_eq!(lost, 0);
        let mut of = vec![Vec::new(); COUNT as usize];
        records.into_iter().for_each(|record| of[record.trace_id as usize].push(record));
        for (of, submitted) in of.iter().zip(&submitted) {
            let only = |work| of.iter().find(|r| r.work == work).expect("one of each");
            let (unit, copy) = (only(Work::Unit), only(Work::Copy));
            assert!(*submitted <= unit.begun && unit.begun <= copy.begun && copy.ended <= unit.ended);
            for command in of.iter().filter(|r| r.work == Work::Command) {
                let load = command.op == Op::Read;
                let (first, second) = if load { (command, copy) } else { (copy, command) };
                assert!(unit.begun <= first.begun, "{unit:?} {first:?}");
                assert!(first.ended <= second.begun, "{first:?} {second:?}");
                assert!(second.ended <= unit.ended, "{second:?} {unit:?}");
            }
        }
    });
}

/// The flush behind a durable store is a piece of work of its own: it begins when the stores have ended.
#[test]
fn the_flush_behind_a_store_is_recorded_by_itself() {
    gpu("gpu::moves::the_flush_behind_a_store_is_recorded_by_itself", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), MIB);
        let (_, target) = rig.file(MIB, OpenOptions::write());
        rig.engine.record_work(1000).expect("on");
        rig.run(rig.add(Transfer::write(&target), 0, 0, MIB).durable()).result.expect("it is durable");
        let (records, _) = rig.engine.take_records();
        let units: Vec<_> = records.iter().filter(|record| record.work == Work::Unit).collect();
        assert_eq!(units.iter().map(|unit| unit.op).collect::<Vec<_>>(), [Op::Write, Op::Flush]);
        assert!(units[0].ended <= units[1].begun, "{units:?}");
    });
}
