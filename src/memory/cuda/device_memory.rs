//! Memory on a GPU: ours, or a caller's of which we know where it is.

use super::driver::{CudaError, Driver};
use super::gpu::Gpu;
use super::pinned::HostMemory;
use super::words::Words;
use crate::error::{Error, ErrorKind};
use crate::memory::lock;
use cudarc::driver::sys::CUpointer_attribute_enum as Attribute;
use std::any::Any;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// `CU_MEMORYTYPE_DEVICE`
const ON_DEVICE: u32 = 2;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`
const DMA_BUF: i32 = 1;

/// Memory that we allocated, until this is dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    pub gpu: Arc<Gpu>,
    pub ptr: u64,
}

impl DeviceMemory {
    /// Allocates `len` bytes, aligned to 256.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<DeviceMemory, CudaError> {
        let _entered = gpu.enter()?;
        let mut ptr = 0;
        // SAFETY: an out parameter of ours.
        let code = unsafe { (gpu.driver.cuMemAlloc_v2)(&mut ptr, len) };
        gpu.driver.check("cuMemAlloc", code)?;
        Ok(DeviceMemory { gpu: gpu.clone(), ptr })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return }; // it went with the context
        // SAFETY: allocated by `new`; copies over it have ended (I1).
        let _ = unsafe { (self.gpu.driver.cuMemFree_v2)(self.ptr) };
    }
}

/// What a region over GPU memory keeps: the GPU, and the memory if it is ours.
#[derive(Debug)]
pub struct Held {
    /// What a layer above knows it by, or why it does not; goes before the memory.
    pub known: Mutex<Option<Known>>,
    pub gpu: Arc<Gpu>,
    /// Freed with the region.
    pub memory: Option<Arc<DeviceMemory>>,
    /// The engine's number for the lane that serves the GPU.
    pub group: usize,
    /// What streams of the GPU wait on.
    pub words: Arc<Words>,
}

/// A thing of a layer above.
type Known = Result<Arc<dyn Any + Send + Sync>, String>;

impl Held {
    /// What a layer above knows it by, or why it does not.
    pub fn known(&self) -> Option<Known> {
        lock(&self.known).clone()
    }

    /// What a layer above knows it by, if it does.
    pub fn known_as(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.known).as_ref()?.as_ref().ok().cloned()
    }
}

fn ask<T: Default>(driver: &'static Driver, attribute: Attribute, at: u64) -> Result<T, CudaError> {
    let mut value = T::default();
    // SAFETY: an out parameter of the attribute's type: each caller names both.
    let code = unsafe { (driver.cuPointerGetAttribute)((&raw mut value).cast(), attribute as i32, at) };
    driver.check("cuPointerGetAttribute", code).map(|()| value)
}

/// Whether `ptr` is a GPU's memory, which the CPU must not follow. Managed memory is not: both may.
pub fn is_device(ptr: u64) -> bool {
    let Ok(driver) = Driver::get() else { return false };
    let kind = ask::<u32>(driver, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
    kind == Ok(ON_DEVICE) && ask::<u32>(driver, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr) != Ok(1)
}

impl Gpu {
    /// The ordinal of the GPU on which `len` bytes at `ptr` lie: all of them, as the driver knows.
    pub fn locate(ptr: u64, len: usize) -> Result<u32, Error> {
        let driver = Driver::get()?;
        let bad = |what: &str| {
            let message = format!(
                "{what}; give a device pointer of this process (cudaMalloc, torch's data_ptr()) and a length inside its \
                 allocation"
            );
            Error::new(ErrorKind::InvalidInput, message).at(0, len as u64)
        };
        let end = ptr.checked_add(len as u64).filter(|_| ptr != 0 && len > 0).ok_or_else(|| {
            bad("the pointer is null, the range is empty or wraps around the address space")
        })?;
        let unknown = |e: CudaError| match e.code {
            1 | 500 => bad("the driver does not know this pointer"),
            _ => e.error("cannot ask what the pointer is"),
        };
        let ordinal =
            ask::<i32>(driver, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr).map_err(unknown)?;
        let kind = ask::<u32>(driver, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr).map_err(unknown)?;
        let managed = ask::<u32>(driver, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr).map_err(unknown)?;
        if kind != ON_DEVICE || managed & 1 != 0 {
            return Err(bad("it is host or managed memory, not a GPU's"));
        }
        // An allocation may consist of several ranges (virtual memory management); they follow one another. Those of
        // cuMemAlloc may be neighbours by chance, and no copy spans them: each can be exported by itself.
        let legacy = Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
        let mut at = ptr;
        while at < end {
            if at > ptr && ask::<u32>(driver, legacy, at).unwrap_or(1) & 1 != 0 {
                let short = format!("only {} of {len} bytes lie in the GPU's allocation", at - ptr);
                return Err(bad(&short).with_kind(ErrorKind::OutOfBounds));
            }
            let start = ask::<u64>(driver, Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at);
            let size = ask::<usize>(driver, Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
            let on = ask::<i32>(driver, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
            at = match (start, size, on) {
                (Ok(start), Ok(size), Ok(on)) if on == ordinal && start + size as u64 > at => {
                    start + size as u64
                }
                _ => {
                    let short = format!("only {} of {len} bytes lie in the GPU's allocation", at - ptr);
                    return Err(bad(&short).with_kind(ErrorKind::OutOfBounds));
                }
            };
        }
        Ok(ordinal as u32)
    }

    /// Exports `len` bytes at `ptr` (both whole pages of the host) as a dma-buf.
    pub fn export(&self, ptr: u64, len: usize) -> Result<OwnedFd, Error> {
        let tried = "the GPU's memory cannot be exported as a dma-buf";
        let page = super::super::PAGE as u64;
        if !ptr.is_multiple_of(page) || !(len as u64).is_multiple_of(page) {
            let message = format!("{tried}: address and length must be whole pages of {page} bytes");
            return Err(Error::new(ErrorKind::Misaligned, message));
        }
        let _entered = self.enter().map_err(|e| e.error(tried))?;
        let mut fd: i32 = -1;
        // SAFETY: for this kind of handle the out parameter is a descriptor.
        let code = unsafe {
            (self.driver.cuMemGetHandleForAddressRange)((&raw mut fd).cast(), ptr, len, DMA_BUF, 0)
        };
        self.driver.check("cuMemGetHandleForAddressRange", code).map_err(|e| e.error(tried))?;
        // SAFETY: a new descriptor that is ours to close.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Most bytes that go at once through pinned memory below.
const AT_ONCE: usize = 4 << 20;

/// Copies GPU memory to the host, and waits for it. Through pinned memory: the driver is handed nothing pageable.
///
/// # Safety
/// `from` names as many bytes of the GPU, which nobody writes meanwhile.
pub unsafe fn copy_out(gpu: &Arc<Gpu>, from: u64, to: &mut [u8]) -> Result<(), CudaError> {
    let pinned = HostMemory::new(gpu, AT_ONCE.min(to.len().max(1)))?;
    for (i, part) in to.chunks_mut(pinned.len()).enumerate() {
        let at = from + (i * pinned.len()) as u64;
        synchronously(gpu, |stream| {
            // SAFETY: pinned memory as long as the part at least; the caller's promise for the other side.
            unsafe { (gpu.driver.cuMemcpyDtoHAsync_v2)(pinned.ptr().cast(), at, part.len(), stream) }
        })?;
        // SAFETY: as many bytes of ours, all written, by nobody else any more.
        part.copy_from_slice(unsafe { std::slice::from_raw_parts(pinned.ptr(), part.len()) });
    }
    Ok(())
}

/// Copies host memory to a GPU, and waits for it.
///
/// # Safety
/// `to` names as many bytes of the GPU, which nobody else accesses meanwhile.
pub unsafe fn copy_in(gpu: &Arc<Gpu>, to: u64, from: &[u8]) -> Result<(), CudaError> {
    let pinned = HostMemory::new(gpu, AT_ONCE.min(from.len().max(1)))?;
    for (i, part) in from.chunks(pinned.len()).enumerate() {
        let at = to + (i * pinned.len()) as u64;
        // SAFETY: pinned memory of ours, as long as the part at least; the copy before has ended.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), pinned.ptr(), part.len()) };
        synchronously(gpu, |stream| {
            // SAFETY: as in `copy_out`.
            unsafe { (gpu.driver.cuMemcpyHtoDAsync_v2)(at, pinned.ptr().cast(), part.len(), stream) }
        })?;
    }
    Ok(())
}

/// Runs a copy on a stream of its own (no other stream waits for it, nor it for others) and waits for it.
fn synchronously(
    gpu: &Arc<Gpu>,
    copy: impl FnOnce(cudarc::driver::sys::CUstream) -> u32,
) -> Result<(), CudaError> {
    let (_entered, driver) = (gpu.enter()?, gpu.driver);
    let mut stream = std::ptr::null_mut();
    // SAFETY: an out parameter of ours; 1 is CU_STREAM_NON_BLOCKING.
    driver.check("cuStreamCreate", unsafe { (driver.cuStreamCreateWithPriority)(&mut stream, 1, 0) })?;
    let queued = driver.check("cuMemcpyAsync", copy(stream));
    // SAFETY: the stream made above, destroyed once.
    let waited = driver.check("cuStreamSynchronize", unsafe { (driver.cuStreamSynchronize)(stream) });
    // SAFETY: as above.
    let _ = unsafe { (driver.cuStreamDestroy_v2)(stream) };
    queued.and(waited)
}
