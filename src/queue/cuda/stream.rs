//! A CUDA stream of copies, and the marks behind them. No host function runs in the stream: it would hold up the copies
//! behind it.

use crate::memory::Window;
use crate::memory::cuda::{CudaError, Gpu, NOT_READY};
use crossbeam::queue::SegQueue;
use cudarc::driver::sys::{CUevent, CUstream};
use std::sync::Arc;

/// `CU_STREAM_NON_BLOCKING`: the program's legacy default stream does not wait for it, nor it for that one.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`, and no blocking synchronisation: it would bring an interrupt behind every copy.
const PLAIN_EVENT: u32 = 2;

/// The end of what was queued so far.
pub(super) struct Mark {
    stream: CUstream,
    /// `None`: no event could be recorded, and the whole stream is waited for.
    event: Option<CUevent>,
    /// Where that goes back to.
    free: Arc<SegQueue<Event>>,
}

// SAFETY: handles that the driver lets any thread use.
unsafe impl Send for Mark {}

/// A stream, and events that are free to be used again.
pub(super) struct Stream {
    gpu: Arc<Gpu>,
    stream: CUstream,
    free: Arc<SegQueue<Event>>,
}

struct Event(CUevent);
// SAFETY: a handle that the driver lets any thread use.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}
// SAFETY: as above; the stream is destroyed once, by its owner.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream of `gpu`, whose context must be current.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Stream, CudaError> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: an out parameter of ours.
        let code = unsafe { (gpu.driver.cuStreamCreateWithPriority)(&mut stream, NON_BLOCKING, 0) };
        gpu.driver.check("cuStreamCreateWithPriority", code)?;
        Ok(Stream { gpu: gpu.clone(), stream, free: Arc::default() })
    }

    pub fn raw(&self) -> CUstream {
        self.stream
    }

    /// Queues a copy to the GPU.
    pub fn put(&self, to: u64, from: Window) -> Result<(), CudaError> {
        self.gpu.check("cuMemcpyHtoDAsync")?;
        // SAFETY: both sides stay until the mark behind has ended: the lane holds a claim on their transfer (I1).
        let code = unsafe {
            (self.gpu.driver.cuMemcpyHtoDAsync_v2)(
                to,
                from.ptr().cast_const().cast(),
                from.len(),
                self.stream,
            )
        };
        self.gpu.driver.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy from the GPU.
    pub fn take(&self, to: Window, from: u64) -> Result<(), CudaError> {
        self.gpu.check("cuMemcpyDtoHAsync")?;
        // SAFETY: as in `put`.
        let code =
            unsafe { (self.gpu.driver.cuMemcpyDtoHAsync_v2)(to.ptr().cast(), from, to.len(), self.stream) };
        self.gpu.driver.check("cuMemcpyDtoHAsync", code)
    }

    /// Has what is queued here from now on wait for what `other` has so far.
    pub fn follow(&self, other: &Stream) -> Result<(), CudaError> {
        let event = other.record()?;
        // SAFETY: handles of ours; the driver keeps what it needs of the event, which may be recorded anew.
        let code = unsafe { (self.gpu.driver.cuStreamWaitEvent)(self.stream, event, 0) };
        other.free.push(Event(event));
        self.gpu.driver.check("cuStreamWaitEvent", code)
    }

    fn record(&self) -> Result<CUevent, CudaError> {
        self.gpu.check("cuEventRecord")?;
        let driver = self.gpu.driver;
        let event = match self.free.pop() {
            Some(Event(event)) => event,
            None => {
                let mut event = std::ptr::null_mut();
                // SAFETY: an out parameter of ours.
                let code = unsafe { (driver.cuEventCreate)(&mut event, PLAIN_EVENT) };
                driver.check("cuEventCreate", code)?;
                event
            }
        };
        // SAFETY: handles of ours.
        let code = unsafe { (driver.cuEventRecord)(event, self.stream) };
        if code != 0 {
            self.free.push(Event(event));
        }
        driver.check("cuEventRecord", code).map(|()| event)
    }

    /// Marks the end of what was queued so far.
    pub fn mark(&self) -> Mark {
        let event = self.record().inspect_err(|error| tracing::debug!(?error, "no event behind a copy"));
        Mark { stream: self.stream, event: event.ok(), free: self.free.clone() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return }; // they went with the context
        while let Some(Event(event)) = self.free.pop() {
            // SAFETY: made by `record`, used by nobody: nothing is in flight when the stream goes.
            let _ = unsafe { (self.gpu.driver.cuEventDestroy_v2)(event) };
        }
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { (self.gpu.driver.cuStreamDestroy_v2)(self.stream) };
    }
}

impl Mark {
    /// Whether it has come, and what came of it.
    pub fn come(&self, gpu: &Gpu) -> Option<Result<(), u32>> {
        if let Err(error) = gpu.check("cuEventQuery") {
            return Some(Err(error.code));
        }
        // SAFETY: a handle of ours, whose context is there.
        let all = || unsafe { (gpu.driver.cuStreamQuery)(self.stream) };
        let event = self.event.map_or_else(all, |event| {
            // SAFETY: as above.
            unsafe { (gpu.driver.cuEventQuery)(event) }
        });
        judge(event, all)
    }

    /// Whether `later`, once it has come, says that this one has too, which has no event of its own: as long as copies
    /// follow one another, the whole stream is never over.
    pub fn is_told_by(&self, later: &Mark) -> bool {
        self.event.is_none() && later.event.is_some() && self.stream == later.stream
    }

    /// Its event may be used again.
    pub fn over(self) {
        if let Some(event) = self.event {
            self.free.push(Event(event));
        }
    }
}

/// What is known of a mark: `None`, it has not come yet.
fn judge(event: u32, stream: impl FnOnce() -> u32) -> Option<Result<(), u32>> {
    match event {
        0 => Some(Ok(())),
        NOT_READY => None,
        error if CudaError::is_destroyed(error) => Some(Err(error)),
        // Only the event failed, if the stream it is in says that all of it has ended.
        error => match stream() {
            0 => Some(Ok(())),
            NOT_READY => None,
            _ => Some(Err(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_fails_alone_is_no_failure_of_the_copy() {
        assert_eq!(judge(0, || panic!("not asked")), Some(Ok(())));
        assert_eq!(judge(NOT_READY, || panic!("not asked")), None);
        assert_eq!(judge(999, || 0), Some(Ok(())));
        assert_eq!(judge(999, || NOT_READY), None);
        assert_eq!(judge(719, || 719), Some(Err(719)));
        assert_eq!(judge(709, || panic!("the stream is gone with the context")), Some(Err(709)));
    }
}
