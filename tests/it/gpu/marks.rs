//! Marks: in order, before the end, for the CPU and for streams.

use super::rig::{MIB, Rig, WAIT, gpu};
use crate::support::eventually;
use fullbore::{Engine, ErrorKind, Marks, OpenOptions, Region, Transfer};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// Layers of 8 MiB, of a mapped file, at 1 GB/s: the first mark lands long before the last.
#[test]
fn marks_land_in_order_before_the_transfer_ends() {
    let env = [("FAKE_CUDA_GBPS", "1")];
    gpu("gpu::marks::marks_land_in_order_before_the_transfer_ends", &env, |fake| {
        let rig = Rig::new(fake, Engine::builder(), 128 * MIB);
        let (_, target) = rig.file(128 * MIB, OpenOptions::read().mapped());
        let marks = Marks::after([1, 7, 15]).expect("marks");
        let mut seen = Vec::new();
        for _ in 0..4 {
            rig.poison(0, 128 * MIB);
            let mut transfer = Transfer::read(&target).marks(&marks);
            for layer in 0..16 {
                let at = (layer * 8 * MIB) as usize;
                transfer.push(at as u64, rig.region.range(at..at + (8 << 20)).expect("a range"));
            }
            let started = Instant::now();
            let mut ticket = rig.client.submit(transfer).map_err(|r| r.error).expect("accepted");
            let mut landed = Vec::new();
            for mark in 0..3 {
                marks.wait(mark, WAIT).expect("it lands");
                landed.push(started.elapsed());
                rig.check(0, 0, [16, 64, 128][mark] * MIB);
            }
            ticket.wait_timeout(WAIT).expect("a completion").result.expect("all of it");
            seen.push(landed);
        }
        // A busy machine may wake this thread late; not each time.
        assert!(seen.iter().any(|landed| landed[0] * 3 < landed[2]), "{seen:?}");
    });
}

/// A stream is held up until the mark has landed, and let go when the transfer ends without it.
#[test]
fn streams_wait_for_marks() {
    gpu("gpu::marks::streams_wait_for_marks", &[], |fake| {
        let builder = Engine::builder().grace(Duration::from_millis(200));
        let rig = Rig::new(fake, builder, 32 * MIB);
        let (_, target) = rig.file(32 * MIB, OpenOptions::read().mapped());
        let stream = fake.on(0, || fake.make("cuStreamCreate", &[1]));
        let is_idle = || fake.on(0, || fake.call("cuStreamQuery", &[stream])) == 0;
        let marks = Marks::after([0]).expect("marks");
        let hold = |mark| {
            // SAFETY: a stream of the primary context.
            unsafe { marks.stream_wait(mark, &rig.region, stream as *mut c_void) }
        };
        let submit = || {
            let range = rig.region.range(0..16 << 20).expect("a range");
            let transfer = Transfer::read(&target).extent(0, range).marks(&marks);
            rig.client.submit(transfer).map_err(|r| r.error).expect("accepted")
        };
        for _ in 0..3 {
            fake.order("hang", 0, 1);
            let mut ticket = submit();
            hold(0).expect("it waits");
            std::thread::sleep(Duration::from_millis(50));
            assert!(!is_idle(), "nothing has landed");
            fake.release();
            ticket.wait_timeout(WAIT).expect("a completion").result.expect("all of it");
            assert!(eventually(WAIT, is_idle), "the stream goes on");
            hold(0).expect("it landed already");
            assert!(eventually(WAIT, is_idle), "nothing to wait for");
        }
        fake.order("copy", 0, 1);
        let mut ticket = submit();
        hold(0).expect("it waits");
        ticket.wait_timeout(WAIT).expect("a completion").result.expect_err("the copy was refused");
        assert!(eventually(WAIT, is_idle), "the stream goes on");
        assert_eq!(marks.wait(0, WAIT).unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(hold(1).unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

/// Host memory too: they are a transfer's.
#[test]
fn host_transfers_have_marks() {
    let engine = Engine::builder().build().expect("an engine");
    let folder = crate::support::folders().into_iter().find(|f| f.direct).expect("a folder");
    let target = engine.open(folder.file("x", 8 * MIB, 3), OpenOptions::read()).expect("a target");
    let (pool, client) = (engine.alloc_host(8 << 20).expect("memory"), engine.client().expect("a client"));
    let marks = Marks::after([0, 1]).expect("marks");
    let transfer = Transfer::read(&target)
        .extent(0, pool.lease(0..5 << 20).expect("a lease"))
        .extent(5 * MIB, pool.lease(5 << 20..8 << 20).expect("a lease"))
        .marks(&marks);
    let ticket = client.submit(transfer).map_err(|r| r.error).expect("accepted");
    marks.wait(1, WAIT).expect("both");
    ticket.wait().expect("a completion").result.expect("all of it");
    assert_eq!(marks.landed(), 2);
}

/// Marks that no transfer takes to its end, as it was refused or never submitted: when they go, streams go on.
#[test]
fn streams_go_on_when_marks_go() {
    gpu("gpu::marks::streams_go_on_when_marks_go", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 8 * MIB);
        let (_, target) = rig.file(8 * MIB, OpenOptions::read().mapped());
        let stream = fake.on(0, || fake.make("cuStreamCreate", &[1]));
        let is_idle = || fake.on(0, || fake.call("cuStreamQuery", &[stream])) == 0;
        for refused in [false, true, false] {
            let marks = Marks::after([0, 1]).expect("marks");
            // SAFETY: a stream of the primary context.
            unsafe { marks.stream_wait(1, &rig.region, stream as *mut c_void) }.expect("it waits");
            if refused {
                let transfer = rig.to_read(&target, 0, 0, MIB).marks(&marks);
                let error = rig.client.submit(transfer).expect_err("there is no extent 1").error;
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
            std::thread::sleep(Duration::from_millis(20));
            assert!(!is_idle(), "nothing has landed");
            drop(marks);
            assert!(eventually(WAIT, is_idle), "the stream stands for ever");
        }
    });
}

/// A stream waited for these marks in a context that is gone: a stream of the next is not made to wait at an address that
/// is not mapped there. Other marks work.
#[test]
fn marks_of_a_context_that_was_reset_are_refused() {
    gpu("gpu::marks::marks_of_a_context_that_was_reset_are_refused", &[], |fake| {
        let rig = Rig::new(fake, Engine::builder(), 8 * MIB);
        let (_, target) = rig.file(8 * MIB, OpenOptions::read().mapped());
        let wait = |marks: &Marks, region: &Region| {
            let stream = fake.on(0, || fake.make("cuStreamCreate", &[1]));
            // SAFETY: a stream of the primary context.
            unsafe { marks.stream_wait(0, region, stream as *mut c_void) }
        };
        let marks = Marks::after([0]).expect("marks");
        wait(&marks, &rig.region).expect("it waits");
        rig.run(rig.to_read(&target, 0, 0, MIB).marks(&marks)).result.expect("it lands");
        fake.reset_context(0);
        let anew = rig.engine.alloc_gpu(0, 1 << 20).expect("memory of the new context");
        let error = wait(&marks, &anew).expect_err("its word is of the old one");
        assert!(error.to_string().contains("make others"), "{error}");
        let others = Marks::after([0]).expect("marks");
        wait(&others, &anew).expect("it waits");
        let load = Transfer::read(&target).extent(0, anew.range(0..1 << 20).expect("a range"));
        rig.run(load.marks(&others)).result.expect("it lands");
    });
}
