//! A GPU, and its primary context.

use super::driver::{CudaError, Driver};
use crate::error::{Error, ErrorKind};
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// How many GPUs this process sees.
pub fn count() -> Result<u32, Error> {
    let driver = Driver::get()?;
    let mut count = 0;
    // SAFETY: an out parameter of ours.
    let code = unsafe { (driver.cuDeviceGetCount)(&mut count) };
    driver.check("cuDeviceGetCount", code).map_err(|e| e.error("cannot count the GPUs"))?;
    Ok(count.max(0) as u32)
}

/// A GPU whose primary context is retained until this is dropped.
#[derive(Debug)]
pub struct Gpu {
    /// As CUDA counts, within CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    pub name: String,
    /// The NUMA node that it is on, where there are several.
    pub node: Option<u32>,
    /// PCI address, lower case.
    pub address: String,
    device: c_int,
    context: sys::CUcontext,
    /// Tells this context from another at the same address.
    id: u64,
    pub driver: &'static Driver,
}

// SAFETY: a context is a handle that the driver lets any thread use.
unsafe impl Send for Gpu {}
// SAFETY: as above; the rest is plain data.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Retains the primary context of device `ordinal`.
    pub fn retain(ordinal: u32) -> Result<Arc<Gpu>, Error> {
        let driver = Driver::get()?;
        let all = count()?;
        if ordinal >= all {
            let message = format!(
                "there is no GPU {ordinal}: this process sees {all}, counted from 0; see nvidia-smi -L and \
                 CUDA_VISIBLE_DEVICES"
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let failed = |e: CudaError| e.error(&format!("cannot use GPU {ordinal}"));
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: out parameters of ours.
        let code = unsafe { (driver.cuDeviceGet)(&mut device, ordinal as c_int) };
        driver.check("cuDeviceGet", code).map_err(failed)?;
        let address = text(driver.cuDeviceGetPCIBusId, device).to_lowercase();
        // SAFETY: as above. Released in `drop`.
        let code = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", code).map_err(failed)?;
        let mut gpu = Gpu {
            ordinal,
            name: text(driver.cuDeviceGetName, device),
            node: node_of(&address),
            address,
            device,
            context,
            id: 0,
            driver,
        };
        gpu.id = gpu.present_id().map_err(failed)?;
        Ok(Arc::new(gpu))
    }

    fn present_id(&self) -> Result<u64, CudaError> {
        let mut id = 0;
        // SAFETY: an out parameter of ours; the driver judges the context.
        let code = unsafe { (self.driver.cuCtxGetId)(self.context, &mut id) };
        self.driver.check("cuCtxGetId", code).map(|()| id)
    }

    /// Refuses once the program has destroyed the context (cudaDeviceReset). With what was made in it, a stream or an
    /// event, not even a query may be made: the driver (580) crashes on it.
    pub fn check(&self, call: &'static str) -> Result<(), CudaError> {
        let same = self.present_id().is_ok_and(|id| id == self.id);
        if same { Ok(()) } else { Err(CudaError::destroyed(call)) }
    }

    /// Makes the context current until the guard is dropped; then the caller's is again. Refuses as [`Gpu::check`] does:
    /// a context that came after ours, at the same address perhaps, is not ours.
    pub fn enter(&self) -> Result<Entered<'_>, CudaError> {
        self.check("cuCtxPushCurrent")?;
        // SAFETY: a context that we retain.
        let code = unsafe { (self.driver.cuCtxPushCurrent_v2)(self.context) };
        self.driver.check("cuCtxPushCurrent", code)?;
        Ok(Entered(self))
    }

    /// Makes the context current for a thread of ours, for good.
    pub fn adopt(&self) -> Result<(), CudaError> {
        // SAFETY: a context that we retain.
        let code = unsafe { (self.driver.cuCtxSetCurrent)(self.context) };
        self.driver.check("cuCtxSetCurrent", code)
    }

    /// An attribute of the device, by the driver's number; 0 where it has none such.
    pub fn attribute(&self, attribute: sys::CUdevice_attribute) -> i32 {
        let mut value = 0;
        // SAFETY: an out parameter of ours.
        let code = unsafe { (self.driver.cuDeviceGetAttribute)(&mut value, attribute as c_int, self.device) };
        if code == 0 { value } else { 0 }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.check("cuDevicePrimaryCtxRelease").is_err() {
            return; // a context that others retained since is not ours to release
        }
        // SAFETY: retained once, released once. At the process's end the driver may be gone before us, and says so.
        let _ = unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// The context is current on this thread.
#[derive(Debug)]
pub struct Entered<'a>(&'a Gpu);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: an out parameter of ours; what `enter` pushed is on top.
        let _ = unsafe { (self.0.driver.cuCtxPopCurrent_v2)(&mut context) };
    }
}

fn text(ask: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32, device: c_int) -> String {
    let mut bytes = [0 as c_char; 256];
    // SAFETY: a buffer of ours and its length, less the last byte, which stays 0.
    let code = unsafe { ask(bytes.as_mut_ptr(), bytes.len() as c_int - 1, device) };
    if code != 0 {
        return "?".into();
    }
    // SAFETY: ends with a 0 inside the buffer.
    unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
}

/// The NUMA node of a PCI device; `None`: the machine has one node alone, or does not say.
fn node_of(address: &str) -> Option<u32> {
    let file = format!("/sys/bus/pci/devices/{address}/numa_node");
    std::fs::read_to_string(file).ok()?.trim().parse::<i32>().ok()?.try_into().ok()
}
