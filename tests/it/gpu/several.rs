//! Several GPUs at once, and transfers that would need two memories.

use super::rig::{MIB, SEED, WAIT, gpu};
use crate::support::cuda::Fake;
use crate::support::load::raw;
use crate::support::{first_mismatch, folders};
use fullbore::{Client, Engine, Error, ErrorKind, Op, OpenOptions, RawExtent, Region, Target, Transfer};

const GPUS: u32 = 4;

struct Several {
    engine: Engine,
    client: Client,
    target: Target,
    regions: Vec<Region>,
}

fn several() -> Several {
    let engine = Engine::builder().build().expect("an engine");
    assert_eq!(engine.gpus().expect("GPUs"), GPUS);
    let folder = folders().remove(0);
    let target = engine.open(folder.file("data", 64 * MIB, SEED), OpenOptions::write()).expect("a target");
    let client = engine.client().expect("a client");
    let regions = (0..GPUS).map(|gpu| engine.alloc_gpu(gpu, 64 << 20).expect("memory")).collect();
    Several { engine, client, target, regions }
}

#[test]
fn objects_land_on_the_gpu_that_they_are_for() {
    let env = [("FAKE_CUDA_DEVICES", "4")];
    gpu("gpu::several::objects_land_on_the_gpu_that_they_are_for", &env, |fake| {
        let s = several();
        let object = |i: usize| {
            let at = i / GPUS as usize * (8 << 20);
            let region = &s.regions[i % GPUS as usize];
            let range = region.range(at..at + (7 << 20) + i).expect("a range");
            (
                region.as_ptr() as u64 + at as u64,
                Transfer::read(&s.target).extent(i as u64 * 2 * MIB + i as u64, range),
            )
        };
        let objects: Vec<_> = (0..24).map(object).collect();
        let tickets: Vec<_> = objects
            .into_iter()
            .map(|(at, t)| (at, s.client.submit(t).map_err(|r| r.error).expect("accepted")))
            .collect();
        for (i, (at, ticket)) in tickets.into_iter().enumerate() {
            ticket.wait().expect("an end").result.expect("it lands");
            let bytes = fake.peek(at, (7 << 20) + i);
            assert_eq!(first_mismatch(&bytes, i as u64 * 2 * MIB + i as u64, SEED), None, "object {i}");
        }
        // Each GPU's lane moved what was its own.
        let lanes = s.engine.stats().lanes;
        for gpu in 0..GPUS as usize {
            let name = format!("gpu {gpu}");
            let lane = lanes.iter().filter(|lane| lane.drive.as_deref() == Some(&name)).collect::<Vec<_>>();
            assert_eq!(lane.len(), 1, "{name}");
            let bytes = (0..24).filter(|i| i % GPUS as usize == gpu).map(|i| 7 * MIB + i as u64).sum::<u64>();
            assert_eq!(lane[0].bytes, bytes, "{name}");
        }
        // A GPU that breaks is the others' no business.
        fake.order("copy", 0, 1);
        let [a, b] = [0, 1].map(|gpu: usize| {
            let range = s.regions[gpu].range(0..4096).expect("a range");
            s.client
                .submit(Transfer::read(&s.target).extent(0, range))
                .expect("accepted")
                .wait()
                .expect("an end")
        });
        assert!(a.result.is_err() && b.result.is_ok());
    });
}

/// A mapping is registered once, by one GPU for all: the reset of that one's context is not the others' loss.
#[test]
fn a_mapping_outlives_the_context_that_it_was_registered_in() {
    let test = "gpu::several::a_mapping_outlives_the_context_that_it_was_registered_in";
    gpu(test, &[("FAKE_CUDA_DEVICES", "4")], |fake| {
        let s = several();
        let folder = folders().remove(0);
        let path = folder.file("mapped", 64 * MIB, SEED);
        let open = || s.engine.open(&path, OpenOptions::read().mapped()).expect("a target");
        let load = |target: &Target| {
            let all = s.regions[1].range(0..64 << 20).expect("a range");
            s.client.submit(Transfer::read(target).extent(0, all)).map_err(|r| r.error).expect("accepted")
        };
        let before = open();
        // Two units of 16 MiB are in the copy engine; the other two were cut for it, and fit no bounce buffer.
        fake.order("hang", 0, 1);
        let queued = load(&before);
        let until = std::time::Instant::now() + WAIT;
        while fake.count("cuMemcpyHtoDAsync_v2") < 2 && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        fake.reset_context(0);
        fake.release();
        let done = queued.wait().expect("an end");
        assert_eq!(done.bytes, 32 * MIB);
        drop(done.transfer);
        let error = done.result.expect_err("the mapping is not registered any more");
        assert_eq!(error.kind(), ErrorKind::PathUnavailable, "{error}");
        let report = s.engine.path(&before, &s.regions[1]);
        assert_eq!(report.path.to_string(), "pinned bounce", "{}", report.reason);
        assert!(report.reason.contains("context"), "{}", report.reason);
        let behind = open();
        for target in [&before, &behind] {
            load(target).wait().expect("an end").result.expect("it lands");
            let bytes = fake.peek(s.regions[1].as_ptr() as u64, 64 << 20);
            assert_eq!(first_mismatch(&bytes, 0, SEED), None);
        }
        let anew = s.engine.alloc_gpu(0, 4096).expect("memory of the new context");
        for (target, region) in [(&before, &anew), (&behind, &anew), (&before, &s.regions[1])] {
            let report = s.engine.path(target, region);
            assert_eq!(report.path.to_string(), "dax -> gpu direct", "{}", report.reason);
        }
    });
}

#[test]
fn one_transfer_has_one_memory() {
    gpu("gpu::several::one_transfer_has_one_memory", &[("FAKE_CUDA_DEVICES", "4")], |fake| {
        let s = several();
        let host = s.engine.alloc_host(1 << 20).expect("memory");
        for order in [[0, 1], [1, 0]] {
            let parts = order.map(|gpu| s.regions[gpu].range(0..4096).expect("a range"));
            let both = parts.into_iter().fold(Transfer::read(&s.target), |t, range| t.extent(0, range));
            refused(s.client.submit(both).map(drop).map_err(|r| r.error));
        }
        for first in [true, false] {
            let (on_gpu, on_host) = (s.regions[2].range(0..4096), host.lease(0..4096).expect("a lease"));
            let on_gpu = on_gpu.expect("a range");
            let both = match first {
                true => Transfer::read(&s.target).extent(0, on_gpu).extent(4096, on_host),
                false => Transfer::read(&s.target).extent(0, on_host).extent(4096, on_gpu),
            };
            refused(s.client.submit(both).map(drop).map_err(|r| r.error));
        }
        // Raw: the same, and memory of no region beside a GPU's.
        let page = crate::support::kernel::Pages::new(4096);
        let places = [s.regions[0].as_ptr(), s.regions[1].as_ptr(), host.as_ptr(), page.ptr().as_ptr()];
        for (a, b) in [(0, 1), (1, 0), (0, 2), (2, 0), (0, 3), (3, 0)] {
            let mut list = [raw(0, places[a], 4096), raw(4096, places[b], 4096)];
            // SAFETY: refused; if not, the test fails, and memory and list outlive the engine's part of it.
            refused(unsafe { s.client.submit_raw(&s.target, Op::Read, &mut list, 1) }.map(drop));
        }
        assert_eq!(fake.count("bytes_h2d"), 0);
        pointers(&s, fake);
        for region in s.regions {
            region.release(WAIT).expect("nothing counts against it");
        }
    });
}

#[track_caller]
fn refused(answer: Result<(), Error>) {
    let error = answer.expect_err("it has two memories");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("submit a transfer for each"), "{error}");
    assert_eq!(error.extent_index(), Some(1), "{error}");
}

/// Lists of pointers into GPU memory, both ways.
fn pointers(s: &Several, fake: Fake) {
    let mut lists: Vec<Vec<RawExtent>> = (0..GPUS as usize)
        .map(|gpu| {
            let base = s.regions[gpu].as_ptr();
            (0..40)
                .map(|i: usize| raw(i as u64 * 65_536, base.wrapping_add(i * 37 % 40 * 70_001), 65_536))
                .collect()
        })
        .collect();
    for op in [Op::Read, Op::Write] {
        for (gpu, list) in lists.iter_mut().enumerate() {
            // SAFETY: list and memory stay until the completions below.
            unsafe { s.client.submit_raw(&s.target, op, list, gpu as u64) }.expect("accepted");
        }
        let mut done = Vec::new();
        s.client.wait(GPUS as usize, &mut done, Some(WAIT)).expect("their ends");
        assert_eq!(done.len(), GPUS as usize);
        for done in done {
            done.result.expect("it is moved");
            assert_eq!(done.bytes, 40 * 65_536);
        }
        for list in &lists {
            for extent in list {
                let bytes = fake.peek(extent.ptr as u64, 65_536);
                assert_eq!(first_mismatch(&bytes, extent.offset, SEED), None, "at {}", extent.offset);
            }
        }
    }
    let mut over = [raw(0, s.regions[0].as_ptr().wrapping_add(64 << 20).wrapping_sub(1), 2)];
    // SAFETY: refused.
    let error = unsafe { s.client.submit_raw(&s.target, Op::Read, &mut over, 1) }.expect_err("past the end");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}
