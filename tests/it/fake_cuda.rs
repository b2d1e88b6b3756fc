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
