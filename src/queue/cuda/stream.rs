//! A CUDA stream of copies, and how their end is waited for: by an event behind them that a thread of ours sleeps on
//! inside the driver, or that is asked again and again. No host function runs in the stream: it would hold up the
//! copies behind it.

use crate::memory::Window;
use crate::memory::cuda::{CudaError, Gpu, NOT_READY};
use crate::topology::block_signals;
use crossbeam::queue::SegQueue;
use cudarc::driver::sys::{CUevent, CUstream};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// `CU_STREAM_NON_BLOCKING`: the program's legacy default stream does not wait for it, nor it for that one.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING`: a waiter sleeps.
const SLEEPING_EVENT: u32 = 1 | 2;

/// What came of what was queued under a token.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub token: u32,
    pub result: Result<(), CudaError>,
    /// The driver does not say whether the copies have ended: the memory must not be used again.
    pub unknown: bool,
}

/// The end of what was queued so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    stream: CUstream,
    /// `None`: no event could be recorded, and the whole stream is waited for.
    event: Option<CUevent>,
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
                let code = unsafe { (driver.cuEventCreate)(&mut event, SLEEPING_EVENT) };
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
        Mark { stream: self.stream, event: event.ok() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.gpu.check("cuStreamDestroy").is_err() {
            return; // they went with the context
        }
        let entered = self.gpu.enter();
        while let Some(Event(event)) = self.free.pop() {
            // SAFETY: made by `record`, used by nobody: nothing is in flight when the stream goes.
            let _ = unsafe { (self.gpu.driver.cuEventDestroy_v2)(event) };
        }
        // SAFETY: made by `new`, destroyed once.
        let _ = unsafe { (self.gpu.driver.cuStreamDestroy_v2)(self.stream) };
        drop(entered);
    }
}

impl Mark {
    /// Whether it has come, or, asleep until then, what came of it.
    fn come(self, gpu: &Gpu, sleep: bool) -> Option<Result<(), u32>> {
        if let Err(error) = gpu.check("cuEventQuery") {
            return Some(Err(error.code));
        }
        let driver = gpu.driver;
        let (of_event, of_stream) = match sleep {
            true => (driver.cuEventSynchronize, driver.cuStreamSynchronize),
            false => (driver.cuEventQuery, driver.cuStreamQuery),
        };
        // SAFETY: a handle of ours, whose context is there.
        let all = || unsafe { of_stream(self.stream) };
        let event = self.event.map_or_else(all, |event| {
            // SAFETY: as above.
            unsafe { of_event(event) }
        });
        judge(event, all)
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

/// Waits for marks of one direction, in the order in which they were queued.
pub(super) struct Waits {
    gpu: Arc<Gpu>,
    /// `None`: they are asked for.
    thread: Option<(Sender<Job>, std::thread::JoinHandle<()>)>,
    asked: VecDeque<Job>,
    ended: Arc<SegQueue<Ended>>,
}

struct Job {
    token: u32,
    mark: Mark,
    /// Where its event goes back to.
    free: Arc<SegQueue<Event>>,
    /// What came of queueing: a failure stands, however the rest ends.
    queued: Result<(), CudaError>,
}

impl Waits {
    /// Waits that are asked for.
    pub fn polled(gpu: &Arc<Gpu>, ended: Arc<SegQueue<Ended>>) -> Waits {
        Waits { gpu: gpu.clone(), thread: None, asked: VecDeque::with_capacity(16), ended }
    }

    /// Waits that a thread sleeps for; `wake` is called behind each.
    pub fn asleep(
        gpu: &Arc<Gpu>,
        name: &str,
        ended: Arc<SegQueue<Ended>>,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Waits> {
        let (jobs, theirs) = channel();
        let (gpu_there, ended_there) = (gpu.clone(), ended.clone());
        let body = move || {
            block_signals();
            sleep_for(&gpu_there, &theirs, &ended_there, &*wake);
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(body)?;
        let mut waits = Waits::polled(gpu, ended);
        waits.thread = Some((jobs, thread));
        Ok(waits)
    }

    /// Has `token` end when what `stream` has so far does; `queued`: what came of queueing it.
    pub fn push(&mut self, token: u32, stream: &Stream, queued: Result<(), CudaError>) {
        let job = Job { token, mark: stream.mark(), free: stream.free.clone(), queued };
        match &self.thread {
            None => self.asked.push_back(job),
            Some((jobs, _)) => {
                if let Err(error) = jobs.send(job) {
                    // Its thread is gone, which only a panic explains: what is in flight stays unknown.
                    let died = CudaError { call: "cuEventSynchronize", code: 999 };
                    self.ended.push(Ended { token: error.0.token, result: Err(died), unknown: true });
                }
            }
        }
    }

    /// Whether there is something to be asked for.
    pub fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Asks for the marks that have come.
    pub fn ask(&mut self) {
        while let Some(job) = self.asked.front() {
            let Some(known) = job.mark.come(&self.gpu, false) else { return };
            let Some(job) = self.asked.pop_front() else { return };
            self.ended.push(job.end("cuEventQuery", known));
        }
    }
}

impl Job {
    /// Its event may be used again, whatever came of it.
    fn end(self, call: &'static str, known: Result<(), u32>) -> Ended {
        if let Some(event) = self.mark.event {
            self.free.push(Event(event));
        }
        let result = known.map_err(|code| CudaError { call, code }).and(self.queued);
        Ended { token: self.token, result, unknown: known.is_err() }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            let _ = thread.join(); // nothing is in flight: whoever has something there leaves all of it behind
        }
    }
}

fn sleep_for(gpu: &Gpu, jobs: &Receiver<Job>, ended: &SegQueue<Ended>, wake: &(dyn Fn() + Send + Sync)) {
    if let Err(error) = gpu.adopt() {
        tracing::warn!(?error, "a thread that waits for a GPU has no context: its waits will fail");
    }
    while let Ok(job) = jobs.recv() {
        let known = job.mark.come(gpu, true).unwrap_or(Err(NOT_READY));
        ended.push(job.end("cuEventSynchronize", known));
        wake();
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
