//! Host memory that a GPU's copy engine reaches.

use super::driver::CudaError;
use super::gpu::Gpu;
use crate::memory::Mapping;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;
use std::ffi::c_void;
use std::sync::Arc;

const PORTABLE: u32 = 1;
const DEVICEMAP: u32 = 2;
const READ_ONLY: u32 = 8;
/// Bytes of one registration at most: 512 GiB and more at once fail (FACTS §5). No copy may span two registrations.
pub const MOST: usize = 64 << 30;

/// Memory of others that is registered with the driver, for every GPU, until this is dropped.
#[derive(Debug)]
pub struct Pinned {
    gpu: Arc<Gpu>,
    base: u64,
    /// How much of it is registered, in pieces of `MOST`.
    len: usize,
}

impl Pinned {
    /// Registers `len` bytes at `base`, mapped for writing or not.
    ///
    /// # Safety
    /// The memory must stay mapped until this is dropped.
    pub unsafe fn new(gpu: &Arc<Gpu>, base: u64, len: usize, write: bool) -> Result<Pinned, CudaError> {
        let _entered = gpu.enter()?;
        // Not IOMEMORY, which is for registers of devices: DAX memory has pages (FACTS §5).
        let mut flags = PORTABLE | DEVICEMAP;
        if !write && gpu.pins_read_only() {
            flags |= READ_ONLY;
        }
        // What is registered so far goes with it, should a later piece be refused.
        let mut pinned = Pinned { gpu: gpu.clone(), base, len: 0 };
        while pinned.len < len {
            let (at, piece) = (base + pinned.len as u64, MOST.min(len - pinned.len));
            // SAFETY: mapped until drop, as the caller promises.
            let code = unsafe { (gpu.driver.cuMemHostRegister_v2)(at as *mut c_void, piece, flags) };
            gpu.driver.check("cuMemHostRegister", code)?;
            pinned.len += piece;
        }
        Ok(pinned)
    }

    /// Whether the driver still knows of it: it goes with its context.
    pub fn is_there(&self) -> bool {
        self.gpu.check("cuMemHostRegister").is_ok()
    }

    /// Whether `addr` begins a registration: a copy that ends there does not go on.
    pub fn begins(&self, addr: u64) -> bool {
        ((addr - self.base) as usize).is_multiple_of(MOST)
    }

    /// How many bytes at `addr`, which lies in it, a copy may have: it spans no two registrations.
    pub fn span(&self, addr: u64) -> usize {
        let at = (addr - self.base) as usize;
        (MOST - at % MOST).min(self.len.saturating_sub(at))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter() else { return }; // the registration went with the context
        for at in (0..self.len).step_by(MOST) {
            // SAFETY: registered by `new` at this address; copies over it have ended (I1).
            let code =
                unsafe { (self.gpu.driver.cuMemHostUnregister)((self.base + at as u64) as *mut c_void) };
            if code != 0 {
                tracing::debug!(code, "the driver does not unregister host memory");
            }
        }
    }
}

impl Gpu {
    /// Whether memory that is mapped for reading alone can be registered.
    pub fn pins_read_only(&self) -> bool {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0
    }
}

/// Host memory that every GPU reaches: a mapping of ours that is registered, or the driver's own where it registers
/// none (under confidential computing: FACTS §5). Nothing pageable is handed to the driver.
///
/// A mapping is there also after the program has destroyed the context; the driver's own goes with it.
#[derive(Debug)]
pub struct HostMemory {
    gpu: Arc<Gpu>,
    ptr: *mut u8,
    len: usize,
    mapping: Option<Mapping>,
}

// SAFETY: an address; who touches which bytes when is the business of leases, or of the one owner.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `len` zero bytes.
    pub fn new(gpu: &Arc<Gpu>, len: usize) -> Result<HostMemory, CudaError> {
        match Mapping::new(len) {
            Ok(mapping) if mapping.pin(gpu, true).is_ok() => {
                let ptr = mapping.ptr().as_ptr();
                Ok(HostMemory { gpu: gpu.clone(), ptr, len, mapping: Some(mapping) })
            }
            _ => HostMemory::of_driver(gpu, len),
        }
    }

    /// The same, of the driver's own.
    pub fn of_driver(gpu: &Arc<Gpu>, len: usize) -> Result<HostMemory, CudaError> {
        let _entered = gpu.enter()?;
        let mut ptr = std::ptr::null_mut();
        // SAFETY: an out parameter of ours.
        let code = unsafe { (gpu.driver.cuMemHostAlloc)(&mut ptr, len, PORTABLE | DEVICEMAP) };
        gpu.driver.check("cuMemHostAlloc", code)?;
        // SAFETY: `len` bytes that were just allocated.
        unsafe { std::ptr::write_bytes(ptr.cast::<u8>(), 0, len) };
        Ok(HostMemory { gpu: gpu.clone(), ptr: ptr.cast(), len, mapping: None })
    }

    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the CPU may still touch it.
    pub fn is_there(&self) -> bool {
        self.mapping.is_some() || self.gpu.check("cuMemHostAlloc").is_ok()
    }

    /// Whether GPUs may: the context that it was registered in is there.
    pub fn check(&self, call: &'static str) -> Result<(), CudaError> {
        self.gpu.check(call)
    }

    /// Where the GPU sees it.
    pub fn on_device(&self) -> Result<u64, CudaError> {
        let _entered = self.gpu.enter()?;
        let mut address = 0;
        // SAFETY: an out parameter of ours; the pointer is of memory that the driver knows.
        let code =
            unsafe { (self.gpu.driver.cuMemHostGetDevicePointer_v2)(&mut address, self.ptr.cast(), 0) };
        self.gpu.driver.check("cuMemHostGetDevicePointer", code)?;
        Ok(address)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if self.mapping.is_some() {
            return; // it sees to itself
        }
        let Ok(_entered) = self.gpu.enter() else { return }; // it went with the context
        // SAFETY: allocated by `of_driver`; copies over it have ended (I1).
        let _ = unsafe { (self.gpu.driver.cuMemFreeHost)(self.ptr.cast()) };
    }
}
