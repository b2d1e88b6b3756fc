//! What is no GPU's memory is refused before anything is issued; the caller's contexts stay as they are.

use super::rig::{KIB, MIB, Rig, WAIT, gpu};
use crate::support::cuda::Fake;
use crate::support::kernel::Pages;
use crate::support::{build, child, fork, wait_for};
use fullbore::{Engine, Error, ErrorKind, Op, OpenOptions, Region, ReleaseError, Transfer};

/// SAFETY of all calls below: the stand-in's memory, or refused.
fn register(engine: &Engine, at: u64, len: usize) -> Result<Region, Error> {
    // SAFETY: as above.
    unsafe { engine.register_cuda(at, len) }
}

#[test]
fn what_is_no_gpu_memory_is_refused() {
    gpu("gpu::pointers::what_is_no_gpu_memory_is_refused", &[("FAKE_CUDA_DEVICES", "2")], |fake| {
        let engine = Engine::builder().build().expect("an engine");
        let one = fake.alloc(0, MIB);
        let two = fake.alloc(0, MIB);
        let gone = fake.alloc(0, MIB);
        let other = fake.alloc(1, MIB);
        fake.free(0, gone);
        assert_eq!(two, one + MIB, "the stand-in puts them in a row");
        let pages = Pages::new(1 << 20);
        let pinned = fake.on(0, || fake.make("cuMemHostAlloc", &[MIB, 1]));
        let (bad, short) = (ErrorKind::InvalidInput, ErrorKind::OutOfBounds);
        for (at, len, kind, text) in [
            (pages.addr() as u64, 4096, bad, "does not know"),
            (pinned, 4096, bad, "host or managed"),
            (0, 4096, bad, "null"),
            (one, 0, bad, "empty"),
            (u64::MAX - 4095, 4096, bad, ""),
            (u64::MAX - 4095, 8192, bad, "wraps"),
            (gone, 4096, bad, "does not know"),
            (two, (MIB + 1) as usize, short, "only 1048576 of 1048577"),
            (two + 1, MIB as usize, short, "only 1048575 of 1048576"),
            (two + MIB, 1, bad, "does not know"),
            // Two allocations in a row: no copy may span them.
            (one, 2 * MIB as usize, short, "only 1048576 of 2097152"),
            (one + MIB - 1, 2, short, "only 1 of 2"),
            (other, 1 << 40, short, "only 1048576"),
        ] {
            let before = fake.count("cuDevicePrimaryCtxRetain");
            let error = register(&engine, at, len).map(drop).expect_err(text);
            assert_eq!(error.kind(), kind, "{at:#x}, {len}: {error}");
            assert!(error.to_string().contains(text) && error.to_string().contains("cudaMalloc"), "{error}");
            assert_eq!(fake.count("cuDevicePrimaryCtxRetain"), before, "nothing was made for {at:#x}");
        }
        for (count, ordinal) in [("2", 2), ("2", u32::MAX)] {
            let error = engine.alloc_gpu(ordinal, 4096).expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(count), "{error}");
        }
        assert!(engine.alloc_gpu(0, 0).is_err() && engine.alloc_gpu(0, usize::MAX).is_err());
        // Whole, from the middle, to the last byte.
        for (at, len, on) in [(one, MIB, 0), (two + 1, MIB - 1, 0), (other + MIB - 1, 1, 1)] {
            let region = register(&engine, at, len as usize).expect("a region");
            assert_eq!((region.gpu(), region.len()), (Some(on), len as usize));
            assert!(region.lease(0..1).is_err(), "a GPU's memory gives no bytes");
            assert!(region.range(0..len as usize + 1).is_err() && region.range(0..0).is_err());
            region.release(WAIT).expect("it is released");
        }
    });
}

/// A caller with a context of its own, and one without any, find what they had after every call.
#[test]
fn contexts_of_the_caller_are_not_touched() {
    gpu("gpu::pointers::contexts_of_the_caller_are_not_touched", &[("FAKE_CUDA_DEVICES", "2")], |fake| {
        all_calls(fake);
        std::thread::spawn(move || {
            fake.make("cuCtxCreate_v2", &[0, 1]);
            let mine = fake.make("cuCtxGetCurrent", &[]);
            all_calls(fake);
            fake.must("cuCtxDestroy_v2", &[mine]);
        })
        .join()
        .expect("a thread with a context of its own");
    });
}

fn all_calls(fake: Fake) {
    let folder = crate::support::folders().remove(0);
    let path = folder.file("data", 4 * MIB, super::rig::SEED);
    let memory = fake.alloc(0, MIB);
    let engine = fake.unchanged(|| Engine::builder().build().expect("an engine"));
    assert_eq!(fake.unchanged(|| engine.gpus()).expect("GPUs"), 2);
    let region = fake.unchanged(|| register(&engine, memory, 1 << 20)).expect("a region");
    let own = fake.unchanged(|| engine.alloc_gpu(1, 1 << 20)).expect("memory");
    for options in [OpenOptions::write(), OpenOptions::write().mapped()] {
        let target = fake.unchanged(|| engine.open(&path, options)).expect("a target");
        fake.unchanged(|| engine.path(&target, &region));
        let client = engine.client().expect("a client");
        for region in [&region, &own] {
            let make = |transfer: Transfer| {
                (0..32).fold(transfer, |t, i: usize| {
                    let at = i * 37 % 32 * (32 << 10);
                    t.extent(i as u64 * 16 * KIB, region.range(at..at + (16 << 10)).expect("a range"))
                })
            };
            let transfer = make(Transfer::read(&target));
            let done = fake.unchanged(|| client.submit(transfer).expect("accepted").wait().expect("an end"));
            done.result.expect("it lands");
            fake.unchanged(|| drop(done.transfer));
            let done =
                fake.unchanged(|| client.submit(make(Transfer::write(&target))).expect("accepted").wait());
            done.expect("an end").result.expect("it is written");
            let mut list = [crate::support::load::raw(0, region.as_ptr(), 1 << 20)];
            let mut out = Vec::new();
            // SAFETY: list and memory stay until the completion.
            fake.unchanged(|| unsafe { client.submit_raw(&target, Op::Read, &mut list, 1) })
                .expect("accepted");
            fake.unchanged(|| client.wait(1, &mut out, Some(WAIT))).expect("an end");
            out.remove(0).result.expect("it lands");
        }
        fake.unchanged(|| drop(target));
    }
    let mut bytes = vec![1; 100_000];
    let mut range = own.range(0..100_000).expect("a range");
    fake.unchanged(|| range.copy_in(&bytes)).expect("copied");
    bytes.fill(0);
    fake.unchanged(|| range.copy_out(&mut bytes)).expect("copied");
    assert!(bytes.iter().all(|b| *b == 1));
    fake.unchanged(|| drop(range));
    fake.unchanged(|| own.export_dma_buf()).expect("a dma-buf");
    for (fault, make) in [("alloc", true), ("pointer", false), ("retain", true)] {
        fake.order(fault, 0, 1);
        let made =
            fake.unchanged(|| if make { engine.alloc_gpu(0, 4096) } else { register(&engine, memory, 9) });
        made.map(drop).expect_err(fault);
    }
    fake.unchanged(|| region.release(WAIT)).expect("it is released");
    fake.unchanged(|| drop(own));
    fake.unchanged(|| drop(engine));
}

/// A GPU's pointer in no region would be followed by the CPU, where the target is mapped or the range unaligned.
#[test]
fn a_raw_pointer_of_a_gpu_in_no_region_is_refused() {
    gpu("gpu::pointers::a_raw_pointer_of_a_gpu_in_no_region_is_refused", &[], |fake| {
        let rig = super::rig::Rig::new(fake, Engine::builder(), MIB);
        let stray = fake.alloc(0, MIB);
        let mut host = vec![0u8; 4096];
        for options in [OpenOptions::read(), OpenOptions::read().mapped()] {
            let (_, target) = rig.file(MIB, options);
            let submit = |list: &mut [fullbore::RawExtent]| {
                // SAFETY: refused, or list and memory stay until the completion below.
                unsafe { rig.client.submit_raw(&target, Op::Read, list, 1) }
            };
            let at = |ptr: *mut u8| crate::support::load::raw(0, ptr, 4096);
            let error = submit(&mut [at(host.as_mut_ptr()), at(stray as *mut u8)]).expect_err("refused");
            assert_eq!((error.kind(), error.extent_index()), (ErrorKind::InvalidInput, Some(1)), "{error}");
            assert!(error.to_string().contains("register_cuda"), "{error}");
            let mut list = [at(host.as_mut_ptr())];
            submit(&mut list).expect("host memory in no region is taken as before");
            let mut done = Vec::new();
            rig.client.wait(1, &mut done, Some(WAIT)).expect("an end");
            done.remove(0).result.expect("it lands");
        }
        fake.free(0, stray);
    });
}

/// A fork's calls with GPU memory are refused, before the driver (which does not survive one) is asked.
#[test]
fn a_fork_is_refused() {
    gpu("gpu::pointers::a_fork_is_refused", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 4 * MIB);
        let (_, target) = rig.file(4 * MIB, OpenOptions::read());
        rig.works(&target);
        let own = rig.engine.alloc_gpu(0, 1 << 20).expect("memory");
        let range = own.range(0..4096).expect("a range");
        let (memory, mut parts) = (rig.memory, Some((range, own)));
        let pid = fork(|| {
            let (mut range, own) = parts.take().expect("the child's copy");
            let forked = |error: Option<Error>| error.is_some_and(|e| e.kind() == ErrorKind::Forked);
            let transfer_range = own.range(8192..9000).err();
            let checks = [
                forked(register(&rig.engine, memory, 4096).err()),
                forked(rig.engine.alloc_gpu(0, 4096).err()),
                forked(transfer_range),
                forked(range.copy_in(&[1]).err()),
                forked(range.copy_out(&mut [1]).err()),
                forked(own.export_dma_buf().err()),
                forked(rig.client.submit(Transfer::read(&target).extent(0, range)).err().map(|r| r.error)),
                matches!(own.release(WAIT), Err(ReleaseError::Forked(_))),
            ];
            eprintln!("child: {checks:?}");
            checks.iter().all(|ok| *ok)
        });
        assert_eq!(wait_for(pid), 0, "the child's calls are refused");
        rig.works(&target);
        drop(parts);
        assert_eq!(rig.engine.stats().active, 0);
    });
}

/// Without a driver GPU memory is refused with the remedy, and all else works.
#[test]
fn without_a_driver_the_rest_works() {
    child("gpu::pointers::without_a_driver_the_rest_works", &[]).run(|| {
        // SAFETY: loads a library if there is one; the vendor's initialisers are those that any program runs.
        if !unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) }.is_null() {
            return eprintln!("skipped: this machine has a CUDA driver");
        }
        let engine = build(Engine::builder());
        for error in [
            engine.gpus().expect_err("no driver"),
            engine.alloc_gpu(0, 4096).expect_err("no driver"),
            register(&engine, 4096, 4096).expect_err("no driver"),
        ] {
            assert_eq!((error.kind(), error.cuda_code()), (ErrorKind::Unsupported, None), "{error}");
            for word in ["no CUDA driver", "install", "LD_LIBRARY_PATH"] {
                assert!(error.to_string().contains(word), "{error}");
            }
        }
        let folder = crate::support::folders().remove(0);
        let path = folder.file("data", MIB, 3);
        let (client, region) =
            (engine.client().expect("a client"), engine.alloc_host(1 << 20).expect("memory"));
        for options in [OpenOptions::read(), OpenOptions::read().mapped()] {
            let target = engine.open(&path, options).expect("a target");
            crate::support::load::load(&client, &target, region.lease(0..1 << 20).expect("a lease"), 0, 3);
        }
    });
}
