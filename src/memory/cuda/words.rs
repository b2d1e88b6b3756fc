//! Words in pinned memory that CUDA streams wait on.

use super::driver::CudaError;
use super::gpu::Gpu;
use super::pinned::HostMemory;
use crate::error::Error;
use crate::memory::lock;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Words of a GPU: one page.
const WORDS: usize = 1024;
/// `CU_STREAM_WAIT_VALUE_GEQ`: cyclic, so that a word may count on for ever.
const AT_LEAST: u32 = 0;

/// The words of a GPU. Once a stream was told to wait on one the page is never freed: it may come to its wait long after
/// the word was let go of.
#[derive(Debug)]
pub struct Words {
    memory: ManuallyDrop<HostMemory>,
    waited: AtomicBool,
    there: u64,
    free: Mutex<Vec<u16>>,
}

impl Words {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Arc<Words>, CudaError> {
        let memory = ManuallyDrop::new(HostMemory::new(gpu, WORDS * size_of::<u32>())?);
        let there = memory.on_device()?;
        Ok(Arc::new(Words {
            memory,
            there,
            free: Mutex::new((0..WORDS as u16).collect()),
            waited: AtomicBool::new(false),
        }))
    }

    /// A word that nobody else has; `None`: all are taken.
    pub fn take(self: &Arc<Words>) -> Option<Word> {
        let index = lock(&self.free).pop()?;
        let word = Word { words: self.clone(), index, base: AtomicU32::new(0), held: AtomicU32::new(0) };
        word.restart();
        Some(word)
    }
}

/// A word that only grows, also from owner to owner: whoever waits for a value of before is never held up.
#[derive(Debug)]
pub struct Word {
    words: Arc<Words>,
    index: u16,
    /// What it was when the present use began.
    base: AtomicU32,
    /// The highest count that a stream waits for.
    held: AtomicU32,
}

impl Word {
    fn value(&self) -> &AtomicU32 {
        static GONE: AtomicU32 = AtomicU32::new(0);
        if !self.words.memory.is_there() {
            return &GONE; // with the context, and all streams that waited
        }
        // SAFETY: inside the page, aligned, never freed, and written as an atomic alone.
        unsafe { &*self.words.memory.ptr().cast::<AtomicU32>().add(self.index as usize) }
    }

    /// Counts from 0 again. What waits for counts of before goes on: `reach` was called for all of them.
    pub fn restart(&self) {
        self.base.store(self.value().load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Lets go on what waits for `count` or less.
    pub fn reach(&self, count: usize) {
        self.value().store(self.base.load(Ordering::Relaxed).wrapping_add(count as u32), Ordering::Release);
    }

    /// Has a stream of `gpu`'s primary context wait for `count`.
    ///
    /// # Safety
    /// The stream lives.
    pub unsafe fn hold(&self, gpu: &Gpu, stream: *mut c_void, count: usize) -> Result<(), Error> {
        let tried = "the stream cannot be made to wait";
        let gone = "the stream cannot be made to wait for these marks, which waited in a context of before: make others";
        self.words.memory.check("cuStreamWaitValue32").map_err(|e| e.error(gone))?;
        let _entered = gpu.enter().map_err(|e| e.error(tried))?;
        self.words.waited.store(true, Ordering::Relaxed);
        self.held.fetch_max(count as u32, Ordering::Relaxed);
        let value = self.base.load(Ordering::Relaxed).wrapping_add(count as u32);
        let at = self.words.there + self.index as u64 * size_of::<u32>() as u64;
        // SAFETY: the caller's stream; the word is the device's view of a page that is never freed.
        let code = unsafe { (gpu.driver.cuStreamWaitValue32_v2)(stream.cast(), at, value, AT_LEAST) };
        gpu.driver.check("cuStreamWaitValue32", code).map_err(|e| e.error(tried))
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if !*self.waited.get_mut() {
            // SAFETY: dropped here alone, and used by nobody: no stream waits on it, and words keep it alive.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // Marks that no transfer took to its end: nobody else would let those streams go on.
        let (count, base) = (self.held.load(Ordering::Relaxed), self.base.load(Ordering::Relaxed));
        if (self.value().load(Ordering::Relaxed).wrapping_sub(base) as i32) < count as i32 {
            self.reach(count as usize);
        }
        lock(&self.words.free).push(self.index);
    }
}
