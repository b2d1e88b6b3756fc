//! The stand-in for libcuda keeps its word: what is tested over it is worth no more than this.

use crate::support::cuda::{EVER, Fake, with_cuda};
use crate::support::{eventually, fork, wait_for};
use std::time::Duration;

const MIB: usize = 1 << 20;
const NOT_READY: u32 = 600;

/// Pinned host memory, device memory and a stream of device 0, whose primary context is current.
struct Bench {
    fake: Fake,
    context: u64,
    stream: u64,
    host: u64,
    device: u64,
}

fn bench(bytes: usize) -> Bench {
    let fake = Fake::load();
    let context = fake.retain(0);
    fake.must("cuCtxSetCurrent", &[context]);
    Bench {
        fake,
        context,
        stream: fake.make("cuStreamCreate", &[1]),
        host: fake.make("cuMemHostAlloc", &[bytes as u64, 1]),
        device: fake.make("cuMemAlloc_v2", &[bytes as u64]),
    }
}

impl Bench {
    fn copy_in(&self, at: usize, len: usize) -> u32 {
        let (dst, src) = (self.device + at as u64, self.host + at as u64);
        self.fake.call("cuMemcpyHtoDAsync_v2", &[dst, src, len as u64, self.stream])
    }

    fn event(&self) -> u64 {
        self.fake.make("cuEventCreate", &[3])
    }

    fn fill(&self, at: usize, len: usize, byte: u8) {
        // SAFETY: inside the host memory that `bench` made.
        unsafe { std::slice::from_raw_parts_mut((self.host as *mut u8).add(at), len) }.fill(byte);
    }
}

#[test]
fn copies_land_in_stream_order_and_events_tell() {
    let env = [("FAKE_CUDA_GBPS", "1")];
    with_cuda("fake_cuda::copies_land_in_stream_order_and_events_tell", &env).run(|| {
        let b = bench(16 * MIB);
        let (fake, event) = (b.fake, b.event());
        b.fill(0, 16 * MIB, 7);
        assert_eq!(fake.call("cuEventQuery", &[event]), 0, "never recorded: nothing to wait for");
        assert_eq!(b.copy_in(0, 16 * MIB), 0);
        fake.must("cuEventRecord", &[event, b.stream]);
        let other = fake.make("cuStreamCreate", &[1]);
        fake.must("cuStreamWaitEvent", &[other, event, 0]);
        fake.must("cuMemsetD8Async", &[b.device, 9, 4, other]);
        assert_eq!(fake.call("cuEventQuery", &[event]), NOT_READY, "16 MiB take 16 ms");
        fake.must("cuEventSynchronize", &[event]);
        fake.must("cuStreamSynchronize", &[other]);
        assert_eq!(fake.peek(b.device, 6), [9, 9, 9, 9, 7, 7], "the memset waited for the copy");
        assert_eq!(fake.count("most_bytes_outstanding"), 16 << 20);
        assert_eq!((fake.count("pageable"), fake.count("spins")), (0, 0));
        assert_eq!(fake.violations(), "");
    });
}

#[test]
fn device_memory_cannot_be_touched() {
    with_cuda("fake_cuda::device_memory_cannot_be_touched", &[]).run(|| {
        let b = bench(MIB);
        b.fake.poke(b.device, b"there");
        let touched = fork(|| {
            // SAFETY: none: that this ends the process is what is tested.
            unsafe { (b.device as *const u8).read_volatile() == b't' }
        });
        assert_eq!(wait_for(touched), -libc::SIGSEGV);
        assert_eq!(b.fake.peek(b.device, 5), b"there");
    });
}

#[test]
fn pageable_copies_and_copies_across_registrations_are_told() {
    with_cuda("fake_cuda::pageable_copies_and_copies_across_registrations_are_told", &[]).run(|| {
        let b = bench(MIB);
        let (fake, len) = (b.fake, 65536);
        let ours = vec![3u8; MIB];
        let base = (ours.as_ptr() as u64).next_multiple_of(4096);
        fake.must("cuMemcpyHtoDAsync_v2", &[b.device, base, len, b.stream]);
        assert_eq!((fake.count("pageable"), fake.peek(b.device, 1)[0]), (1, 3), "done when the call returns");

        fake.must("cuMemHostRegister_v2", &[base, len, 3]);
        fake.must("cuMemHostRegister_v2", &[base + len, len, 3]);
        assert_eq!(fake.call("cuMemHostRegister_v2", &[base + 4096, len, 3]), 712, "registered already");
        let across = [b.device, base + len / 2, len, b.stream];
        assert_eq!(fake.call("cuMemcpyHtoDAsync_v2", &across), 1, "across two registrations");
        assert_eq!(fake.call("cuMemHostUnregister", &[base + 4096]), 1, "not where it begins");
        assert_eq!(fake.call("cuMemHostUnregister", &[base + 4 * len]), 713, "not registered");
        assert_eq!(fake.call("cuMemHostRegister_v2", &[4096, len, 3]), 1, "not mapped");
        assert_eq!((fake.count("pageable"), fake.violations()), (1, String::new()));

        let beyond = [b.device + MIB as u64 - 8, base, 16, b.stream];
        assert_eq!(fake.call("cuMemcpyHtoDAsync_v2", &beyond), 1);
        assert!(fake.violations().contains("within one allocation"), "{}", fake.violations());
    });
}

#[test]
fn what_hangs_holds_up_the_engine_until_it_is_released() {
    let env = [("FAKE_CUDA_FAULTS", "hang:1:1")];
    with_cuda("fake_cuda::what_hangs_holds_up_the_engine_until_it_is_released", &env).run(|| {
        let b = bench(4 * MIB);
        let (fake, events) = (b.fake, [b.event(), b.event()]);
        b.fill(0, 4 * MIB, 5);
        assert_eq!(b.copy_in(0, MIB), 0);
        fake.must("cuEventRecord", &[events[0], b.stream]);
        assert_eq!(b.copy_in(MIB, MIB), 0);
        // Another stream, the same engine: it waits, too.
        let other = fake.make("cuStreamCreate", &[1]);
        fake.must("cuMemcpyHtoDAsync_v2", &[b.device, b.host, 1, other]);
        fake.must("cuEventRecord", &[events[1], other]);
        fake.must("cuEventSynchronize", &[events[0]]);
        // The other direction goes on.
        let out = fake.make("cuStreamCreate", &[1]);
        fake.must("cuMemcpyDtoHAsync_v2", &[b.host + 3 * MIB as u64, b.device, MIB as u64, out]);
        fake.must("cuStreamSynchronize", &[out]);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(fake.call("cuEventQuery", &[events[1]]), NOT_READY);
        assert_eq!(fake.peek(b.device + MIB as u64, 1), [0]);
        fake.must("cuMemFree_v2", &[b.device]);
        assert!(fake.violations().contains("freed while a queued copy"), "{}", fake.violations());
        fake.release();
        fake.must("cuEventSynchronize", &[events[1]]);
    });
}

#[test]
fn a_lost_copy_is_the_end_of_its_context() {
    with_cuda("fake_cuda::a_lost_copy_is_the_end_of_its_context", &[("FAKE_CUDA_DEVICES", "2")]).run(|| {
        let b = bench(MIB);
        let (fake, event) = (b.fake, b.event());
        let elsewhere = fake.alloc(1, 4096);
        fake.order("slow", 0, 1);
        fake.order("copy_lost", 1, 1);
        assert_eq!(b.copy_in(0, 4096), 0, "takes 50 ms");
        assert_eq!(b.copy_in(0, 4096), 0, "fails when its turn comes");
        fake.must("cuEventRecord", &[event, b.stream]);
        assert_eq!(fake.call("cuEventSynchronize", &[event]), 719);
        assert_eq!(fake.call("cuEventQuery", &[event]), 719);
        let mut answer = 0u64;
        assert_eq!(fake.call("cuMemAlloc_v2", &[&raw mut answer as u64, 4096]), 719);
        assert_eq!(b.copy_in(0, 4096), 719);
        fake.free(1, elsewhere); // another device is well
        assert_eq!(fake.violations(), "");
    });
}

#[test]
fn a_reset_takes_all_and_a_new_retain_begins_anew() {
    let env = [("FAKE_CUDA_FAULTS", "hang:0:ever")];
    with_cuda("fake_cuda::a_reset_takes_all_and_a_new_retain_begins_anew", &env).run(|| {
        let b = bench(MIB);
        let (fake, event) = (b.fake, b.event());
        assert_eq!(b.copy_in(0, 4096), 0);
        fake.must("cuEventRecord", &[event, b.stream]);
        let waiter = std::thread::spawn(move || {
            fake.must("cuCtxSetCurrent", &[fake.retain(0)]);
            fake.call("cuEventSynchronize", &[event])
        });
        assert!(eventually(Duration::from_secs(5), || fake.count("cuEventSynchronize") == 1));
        fake.reset_context(0);
        assert_eq!(waiter.join().expect("it waited"), 709);
        assert_eq!(b.copy_in(0, 4096), 709);
        assert_eq!(fake.call("cuEventQuery", &[event]), 709);
        assert_eq!(fake.call("cuCtxSetCurrent", &[b.context]), 0, "as on a real machine");
        assert_eq!(fake.call("cuMemHostUnregister", &[b.host]), 709);
        assert_eq!(fake.violations(), "");
        assert_eq!(fake.call("cuStreamQuery", &[b.stream]), 709);
        assert!(
            fake.violations().contains("use of a stream whose context was reset"),
            "{}",
            fake.violations()
        );
        fake.clear_violations();
        assert_eq!(fake.retain(0), b.context);
        let again = fake.make("cuMemAlloc_v2", &[4096]);
        assert_eq!(again, b.device, "its memory was freed");
        assert_eq!(fake.violations(), "");
        assert_eq!(fake.call("cuEventQuery", &[event]), 709, "of an earlier life");
        assert!(fake.violations().contains("retained anew"), "{}", fake.violations());
    });
}

#[test]
fn contexts_are_per_thread_and_forgotten_pops_are_told() {
    with_cuda("fake_cuda::contexts_are_per_thread_and_forgotten_pops_are_told", &[]).run(|| {
        let fake = Fake::load();
        let primary = fake.retain(0);
        let own = fake.make("cuCtxCreate_v2", &[0, 0]);
        fake.unchanged(|| fake.on(0, || assert_eq!(fake.make("cuCtxGetCurrent", &[]), primary)));
        assert_eq!(fake.make("cuCtxGetCurrent", &[]), own);
        let mut answer = 0u64;
        let bare = std::thread::spawn(move || fake.call("cuMemAlloc_v2", &[&raw mut answer as u64, 4096]));
        assert_eq!(bare.join().expect("it ran"), 201, "no context is current there");
        assert_eq!(fake.violations(), "");
        let push = std::thread::spawn(move || fake.must("cuCtxPushCurrent_v2", &[primary]));
        push.join().expect("it ran");
        let told = || fake.violations().contains("pushed and not popped");
        assert!(eventually(Duration::from_secs(5), told), "{}", fake.violations());
        fake.must("cuDevicePrimaryCtxRelease_v2", &[0]);
        fake.must("cuDevicePrimaryCtxRelease_v2", &[0]);
        assert_eq!(fake.call("cuDevicePrimaryCtxRelease_v2", &[0]), 201, "retained twice");
    });
}

#[test]
fn a_stream_waits_for_a_value_alone() {
    with_cuda("fake_cuda::a_stream_waits_for_a_value_alone", &[]).run(|| {
        let b = bench(MIB);
        let (fake, other) = (b.fake, b.fake.make("cuStreamCreate", &[1]));
        b.fill(0, 8, 0);
        b.fill(8, 8, 6);
        fake.must("cuStreamWaitValue32_v2", &[b.stream, b.host, 5, 0]);
        assert_eq!(b.copy_in(8, 8), 0);
        fake.must("cuMemcpyHtoDAsync_v2", &[b.device + 64, b.host + 8, 8, other]);
        fake.must("cuStreamSynchronize", &[other]);
        assert_eq!(fake.call("cuStreamQuery", &[b.stream]), NOT_READY);
        // SAFETY: four bytes of host memory that `bench` made; streams read them atomically.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(b.host as *mut u32) }
            .store(5, std::sync::atomic::Ordering::SeqCst);
        fake.must("cuStreamSynchronize", &[b.stream]);
        assert_eq!((fake.peek(b.device + 8, 1), fake.peek(b.device + 64, 1)), (vec![6], vec![6]));
    });
}

#[test]
fn the_kernel_copies_pieces() {
    with_cuda("fake_cuda::the_kernel_copies_pieces", &[]).run(|| {
        let b = bench(MIB);
        let fake = b.fake;
        let ptx = c".visible .entry fullbore_copy_pieces(.param .u64 t, .param .u32 n) {}";
        let module = fake.make("cuModuleLoadData", &[ptx.as_ptr() as u64]);
        let kernel = fake.make("cuModuleGetFunction", &[module, c"fullbore_copy_pieces".as_ptr() as u64]);
        let pieces = [[b.device + 512, b.device, 3], [b.device + 1024, b.device + 3, 4]];
        // SAFETY: inside the host memory that `bench` made, which is aligned to pages.
        unsafe { (b.host as *mut [[u64; 3]; 2]).write(pieces) };
        fake.poke(b.device, b"abcdefg");
        let (table, count) = (b.host, 2u32);
        let params = [&raw const table as u64, &raw const count as u64];
        let launch = [kernel, 2, 1, 1, 256, 1, 1, 0, b.stream, params.as_ptr() as u64, 0];
        fake.must("cuLaunchKernel", &launch);
        fake.must("cuStreamSynchronize", &[b.stream]);
        assert_eq!(
            (fake.peek(b.device + 512, 4), fake.peek(b.device + 1024, 4)),
            (b"abc\0".into(), b"defg".into())
        );
        // SAFETY: as above; nothing is queued.
        unsafe { (b.host as *mut [[u64; 3]; 2]).write([pieces[0], [b.host, b.device, 4]]) };
        fake.must("cuLaunchKernel", &launch);
        assert_eq!(fake.call("cuStreamSynchronize", &[b.stream]), 700, "not device memory");
        assert!(fake.violations().contains("piece is not within"), "{}", fake.violations());
    });
}

#[test]
fn faults_come_when_they_are_ordered_and_no_sooner() {
    let env = [("FAKE_CUDA_FAULTS", "retain:1:1,register:0:ever")];
    with_cuda("fake_cuda::faults_come_when_they_are_ordered_and_no_sooner", &env).run(|| {
        let b = bench(MIB); // the first retain does well
        let (fake, mut answer) = (b.fake, 0u64);
        let at = &raw mut answer as u64;
        assert_eq!(fake.call("cuDevicePrimaryCtxRetain", &[at, 0]), 2);
        assert_eq!(fake.call("cuDevicePrimaryCtxRetain", &[at, 0]), 0);
        let ours = vec![0u8; MIB];
        let register = [ours.as_ptr() as u64, MIB as u64, 3];
        assert_eq!([(); 3].map(|()| fake.call("cuMemHostRegister_v2", &register)), [801; 3]);
        fake.order("register", 0, 0);
        assert_eq!(fake.call("cuMemHostRegister_v2", &register), 0);

        fake.order("copy", 0, EVER);
        assert_eq!([b.copy_in(0, 8), b.copy_in(0, 8)], [999; 2]);
        fake.order("copy", 0, 0);
        fake.order("event_record", 0, 1);
        let event = b.event();
        assert_eq!(b.copy_in(0, 8), 0);
        assert_eq!(fake.call("cuEventRecord", &[event, b.stream]), 999);
        fake.must("cuEventRecord", &[event, b.stream]);
        fake.order("event_sync", 0, 1);
        assert_eq!(fake.call("cuEventSynchronize", &[event]), 999);
        fake.must("cuEventSynchronize", &[event]);
        assert_eq!((fake.count("bytes_h2d"), fake.count("cuEventRecord")), (8, 2));

        let from = std::time::Instant::now();
        fake.order("slow", 0, 1);
        assert_eq!(b.copy_in(0, 8), 0);
        fake.must("cuStreamSynchronize", &[b.stream]);
        assert!(from.elapsed() >= Duration::from_millis(50));
        assert_eq!(fake.violations(), "");
    });
}
