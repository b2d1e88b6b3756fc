//! Marks that CUDA streams wait for.

use crate::error::{Error, ErrorKind};
use crate::lane::Marks;
use crate::memory::Region;
use std::ffi::c_void;

impl Marks {
    /// Has what is queued on a CUDA stream from now on wait until mark number `mark` of the transfer under way has
    /// landed, without the CPU: the stream waits for a value in memory (cuStreamWaitValue32). Call it after the transfer
    /// was submitted. `region`: memory of the GPU that the stream is on; `stream`: a `CUstream` or `cudaStream_t` of it.
    ///
    /// When the transfer ends without the mark (failed, cancelled, abandoned) the stream goes on all the same, lest it
    /// stand for ever: look at the completion before its results are used.
    ///
    /// # Safety
    /// `stream` is a live stream of the primary context of the region's GPU.
    ///
    /// # Errors
    /// `InvalidInput`: no such mark, or no GPU's memory; `Unsupported` where the driver has no such waits; `Resource`: 1024
    /// sets of marks have streams waiting.
    pub unsafe fn stream_wait(&self, mark: usize, region: &Region, stream: *mut c_void) -> Result<(), Error> {
        self.check(mark)?;
        let Some(held) = region.inner().device() else {
            let message =
                "streams wait for loads of a GPU's memory; give the region that the transfer loads into";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        let word = self.word(&held.words)?;
        // SAFETY: passed on to the caller.
        unsafe { word.hold(&held.gpu, stream, mark + 1) }
    }
}
