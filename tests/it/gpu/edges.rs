//! Where things meet: two mappings side by side, host memory that the GPU sees elsewhere, what a warm transfer costs.

use super::rig::{KIB, MIB, Rig, SEED, WAIT, gpu, ok};
use crate::support::eventually;
use fullbore::{Engine, OpenOptions, Priority, Transfer};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Two registrations whose memory is side by side: no copy may span both, whatever follows on one another in it.
#[test]
fn a_copy_ends_where_a_registration_does() {
    gpu("gpu::edges::a_copy_ends_where_a_registration_does", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 8 * MIB);
        let (member, chunk) = (MIB, 256 * KIB);
        let mut whole = vec![0; 2 << 20];
        crate::support::fill(&mut whole, 0, SEED);
        // The first makes threads, whose stacks come between; of the others two will be neighbours.
        let path = |i: usize| rig.folder.path.join(format!("data{i}"));
        let open = |i: usize| {
            let chunks = whole.chunks(chunk as usize).skip(i % 2).step_by(2);
            std::fs::write(path(i), chunks.collect::<Vec<_>>().concat()).expect("room");
            rig.engine.open(path(i), OpenOptions::read().mapped()).expect("a target")
        };
        let all: Vec<_> = (0..10).map(open).collect();
        let side_by_side = |i: &usize| mapping(&path(*i)).abs_diff(mapping(&path(i + 1))) == member;
        let Some(even) = (0..9).step_by(2).find(side_by_side) else {
            return eprintln!("skipped: the kernel puts no mapping beside another");
        };
        let below = (mapping(&path(even)) > mapping(&path(even + 1))) as u64; // whose memory comes first
        let target = rig.engine.stripe(&all[even..even + 2], chunk).expect("a stripe");
        // The end of the lower one, then the beginning of the other.
        let (end, begin) = ((6 + below) * chunk, (1 - below) * chunk);
        for len in [16 * KIB, 256 * KIB] {
            rig.poison(0, 8 * MIB);
            let count = chunk / len;
            let list: Vec<_> =
                [end, begin].iter().flat_map(|from| (0..count).map(move |i| from + i * len)).collect();
            let place = |i: usize| (i as u64 * 7 % (2 * count)) * (len + if len == chunk { 0 } else { 4096 });
            let transfer = list
                .iter()
                .enumerate()
                .fold(Transfer::read(&target), |t, (i, offset)| rig.add(t, *offset, place(i), len));
            ok(rig.run(transfer));
            list.iter().enumerate().for_each(|(i, offset)| rig.check(*offset, place(i), len));
        }
    });
}

/// A mapping of more than one registration takes: it is registered in pieces of 64 GiB, and no copy may span two of them.
#[test]
fn a_copy_ends_where_a_piece_of_a_registration_does() {
    gpu("gpu::edges::a_copy_ends_where_a_piece_of_a_registration_does", &[], |fake| {
        const PIECE: u64 = 64 << 30;
        let rig = Rig::new(fake, Engine::builder(), 40 * MIB);
        // Nearly all of it is a hole.
        let path = std::path::Path::new("/dev/shm").join(format!("fullbore-pieces-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path);
        let Ok(file) = file else { return eprintln!("skipped: no file in /dev/shm") };
        std::fs::remove_file(&path).expect("it goes with the test");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        if let Err(why) = file.set_len(2 * PIECE + MIB) {
            return eprintln!("skipped: /dev/shm takes no file of 128 GiB: {why}");
        }
        let before = fake.count("cuMemHostRegister_v2");
        let target = rig.engine.open(&path, OpenOptions::read().mapped()).expect("a target");
        assert_eq!(fake.count("cuMemHostRegister_v2") - before, 3);
        for border in [PIECE, 2 * PIECE] {
            let from = border - 6 * MIB + 777;
            let len = (12 * MIB).min(target.size() - from);
            let mut content = vec![0; len as usize];
            crate::support::fill(&mut content, from, SEED);
            file.write_all_at(&content, from).expect("room");
            // One copy as long as may be; then pieces, of which one lies on the border.
            rig.poison(0, len);
            let done = rig.read(&target, from, 0, len);
            assert_eq!(done.paths.to_string(), "dax -> gpu direct");
            ok(done);
            rig.check(from, 0, len);
            rig.poison(0, len);
            let first = border - 10 * 48 * KIB - 12_345;
            let list = (0..20).map(|i| (first + i * 48 * KIB, i * 7 % 20 * 49 * KIB));
            ok(rig.run(
                list.clone()
                    .fold(Transfer::read(&target), |t, (offset, at)| rig.add(t, offset, at, 48 * KIB)),
            ));
            list.for_each(|(offset, at)| rig.check(offset, at, 48 * KIB));
        }
    });
}

/// Where this process has the file mapped.
fn mapping(path: &std::path::Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps.lines().find(|l| l.ends_with(&path.display().to_string())).expect("it is mapped");
    u64::from_str_radix(line.split('-').next().expect("a range"), 16).expect("an address")
}

/// A machine on which a GPU sees host memory at other addresses than the CPU.
#[test]
fn the_gpu_may_see_host_memory_elsewhere() {
    gpu("gpu::edges::the_gpu_may_see_host_memory_elsewhere", &[("FAKE_CUDA_SHIFTED", "1")], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 16 * MIB);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (path, target) = rig.file(9 * MIB, options);
            let pieces = |transfer| {
                (0..200).fold(transfer, |t, i| rig.add(t, i * 16 * KIB, i * 37 % 200 * 40 * KIB, 16 * KIB))
            };
            let launched = fake.count("cuLaunchKernel");
            ok(rig.run(pieces(Transfer::read(&target))));
            (0..200).for_each(|i| rig.check(i * 16 * KIB, i * 37 % 200 * 40 * KIB, 16 * KIB));
            ok(rig.run(pieces(Transfer::write(&target))));
            assert!(fake.count("cuLaunchKernel") >= launched + 2, "by the kernel");
            ok(rig.read(&target, 1, 1, 9 * MIB - 1));
            rig.check(1, 1, 9 * MIB - 1);
            let file = std::fs::read(path).expect("the file");
            assert_eq!(crate::support::first_mismatch(&file, 0, SEED), None);
        }
    });
}

/// A transfer that is stopped in its turn counts no byte that did not land.
#[test]
fn what_waits_and_is_cancelled_has_moved_nothing() {
    gpu("gpu::edges::what_waits_and_is_cancelled_has_moved_nothing", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder().gpu_outstanding(1 << 20), 64 * MIB);
        for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
            let (_, target) = rig.file(8 * MIB, options);
            fake.order("hang", 0, 1);
            let before = fake.count("cuMemcpyHtoDAsync_v2");
            let mut first = rig.submit(rig.to_read(&target, 0, 0, 8 * MIB));
            assert!(eventually(WAIT, || fake.count("cuMemcpyHtoDAsync_v2") > before));
            rig.poison(16 * MIB, 8 * MIB);
            let mut second = rig.submit(rig.to_read(&target, 0, 16 * MIB, 8 * MIB));
            std::thread::sleep(Duration::from_millis(50)); // its bounce buffer is full by now
            second.cancel();
            fake.release();
            let done = second.wait_timeout(WAIT).expect("an end");
            assert_eq!((done.bytes, done.result.is_err()), (0, true));
            assert!(fake.peek(rig.memory + 16 * MIB, 8 << 20).iter().all(|b| *b == crate::support::POISON));
            ok(first.wait_timeout(WAIT).expect("an end"));
        }
    });
}

/// Invariant I7, so far as it goes: a few allocations a unit (its lease of a bounce buffer; queues that have no bound),
/// and none a piece. What the stand-in allocates is C's and does not count.
#[test]
fn a_warm_transfer_allocates_nothing_for_pieces() {
    gpu("gpu::edges::a_warm_transfer_allocates_nothing_for_pieces", &[], |fake| {
        for polling in [false, true] {
            let rig = Rig::new(fake, Engine::builder().gpu_polling(polling), 32 * MIB);
            for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
                let (_, target) = rig.file(16 * MIB, options);
                for (count, write) in [(1, false), (1, true), (64, false), (64, true)] {
                    let len = 16 * MIB / count / 2;
                    let make = if write { Transfer::write(&target) } else { Transfer::read(&target) };
                    let transfer =
                        (0..count).fold(make, |t, i| rig.add(t, i * len, i * 5 % count * 2 * len, len));
                    let mut idle = Some(transfer.priority(Priority::High));
                    let mut run = |times: usize| {
                        for _ in 0..times {
                            let done = rig.client.submit(idle.take().unwrap()).unwrap().wait().unwrap();
                            done.result.unwrap();
                            idle = done.transfer;
                        }
                    };
                    run(8);
                    let allocated = crate::cost::allocations(|| run(31));
                    eprintln!(
                        "measured: {allocated} allocations in 31 transfers of {count}, write {write}, polling {polling}"
                    );
                    let what = format!("31 transfers of {count}, write {write}, polling {polling}");
                    assert!(allocated <= 31 * 6, "{allocated} in {what}");
                }
            }
        }
    });
}
