//! The functions of libcuda that are used, looked up one by one: a missing one is an error with its name, and an answer
//! that is newer than this program is a number, not undefined behaviour.

use crate::error::{Error, ErrorKind};
use cudarc::driver::sys;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::catch_unwind;
use std::sync::OnceLock;

/// The context is not there any more: the program called cudaDeviceReset.
const DESTROYED: u32 = 709;

/// "Not ready", an event's answer while work before it runs.
pub const NOT_READY: u32 = 600;

macro_rules! functions {
    ($($name:ident($($arg:ty),*);)*) => {
        /// The table of functions; each answers an error number, 0 for success.
        #[allow(non_snake_case)] // as the driver names them
        #[derive(Debug)]
        pub struct Driver {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> u32,)*
        }

        impl Driver {
            /// Looks all of them up. cudarc panics where there is no library: whoever calls has seen that there is.
            fn find() -> Result<Driver, String> {
                // SAFETY: the library's initialisers are the vendor's; every program that uses CUDA runs them.
                let library = unsafe { sys::culib() };
                Ok(Driver {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the driver documents the function with these parameters (they are passed as
                        // pointers and integers), and the library is never unloaded.
                        let found = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> u32>(name.as_bytes()) };
                        *found.map_err(|e| format!("the driver's library lacks {}: {e}", stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

type Out<T> = *mut T;

functions! {
    cuInit(c_uint);
    cuDeviceGetCount(Out<c_int>);
    cuDeviceGet(Out<c_int>, c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceGetAttribute(Out<c_int>, c_int, c_int);
    cuDeviceGetPCIBusId(*mut c_char, c_int, c_int);
    cuDevicePrimaryCtxRetain(Out<sys::CUcontext>, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuCtxPushCurrent_v2(sys::CUcontext);
    cuCtxPopCurrent_v2(Out<sys::CUcontext>);
    cuCtxSetCurrent(sys::CUcontext);
    cuCtxGetId(sys::CUcontext, Out<u64>);
    cuStreamCreateWithPriority(Out<sys::CUstream>, c_uint, c_int);
    cuStreamDestroy_v2(sys::CUstream);
    cuStreamSynchronize(sys::CUstream);
    cuStreamQuery(sys::CUstream);
    cuStreamWaitEvent(sys::CUstream, sys::CUevent, c_uint);
    cuStreamWaitValue32_v2(sys::CUstream, u64, u32, c_uint);
    cuEventCreate(Out<sys::CUevent>, c_uint);
    cuEventDestroy_v2(sys::CUevent);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventQuery(sys::CUevent);
    cuMemAlloc_v2(Out<u64>, usize);
    cuMemFree_v2(u64);
    cuMemHostAlloc(Out<*mut c_void>, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemHostRegister_v2(*mut c_void, usize, c_uint);
    cuMemHostUnregister(*mut c_void);
    cuMemHostGetDevicePointer_v2(Out<u64>, *mut c_void, c_uint);
    cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, sys::CUstream);
    cuPointerGetAttribute(*mut c_void, c_int, u64);
    cuMemGetHandleForAddressRange(*mut c_void, u64, usize, c_int, u64);
    cuModuleLoadData(Out<sys::CUmodule>, *const c_void);
    cuModuleUnload(sys::CUmodule);
    cuModuleGetFunction(Out<sys::CUfunction>, sys::CUmodule, *const c_char);
    cuLaunchKernel(sys::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, sys::CUstream, *mut *mut c_void, *mut *mut c_void);
    cuGetErrorName(c_uint, Out<*const c_char>);
    cuGetErrorString(c_uint, Out<*const c_char>);
}

impl Driver {
    /// The driver, loaded and initialised once a process.
    pub fn get() -> Result<&'static Driver, Error> {
        static DRIVER: OnceLock<Result<Driver, Error>> = OnceLock::new();
        DRIVER.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// Turns an answer into a result.
    pub fn check(&'static self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(CudaError { call, code }) }
    }

    fn text(
        &self,
        lookup: unsafe extern "C" fn(c_uint, Out<*const c_char>) -> u32,
        code: u32,
    ) -> &'static str {
        let mut text = std::ptr::null();
        // SAFETY: an out parameter of ours; the driver answers a string of its own that stays, or leaves null.
        let found = unsafe { lookup(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        let text = found.then(|| unsafe { CStr::from_ptr(text) });
        text.and_then(|text| text.to_str().ok()).unwrap_or("an error that the driver has no name for")
    }
}

fn load() -> Result<Driver, Error> {
    let none = |why: String| Error::new(ErrorKind::Unsupported, why);
    // SAFETY: the library's initialisers are the vendor's; every program that uses CUDA runs them.
    if !unsafe { sys::is_culib_present() } {
        return Err(none(
            "this machine has no CUDA driver (libcuda.so was not found); install NVIDIA's driver, or mount it into the \
             container (NVIDIA container toolkit), or set LD_LIBRARY_PATH to where it is"
                .into(),
        ));
    }
    let driver = catch_unwind(Driver::find)
        .unwrap_or_else(|_| Err("libcuda.so was found and cannot be loaded; see LD_DEBUG=libs".into()))
        .map_err(|e| none(format!("{e}; update the driver (525 or later)")))?;
    // SAFETY: the function's one argument is 0 by its documentation.
    let code = unsafe { (driver.cuInit)(0) };
    if code != 0 {
        let (name, text) =
            (driver.text(driver.cuGetErrorName, code), driver.text(driver.cuGetErrorString, code));
        let message = format!(
            "the CUDA driver cannot be used: cuInit answered {name} ({code}): {text}; is the kernel module loaded \
             (nvidia-smi), is a GPU visible (CUDA_VISIBLE_DEVICES)?"
        );
        return Err(none(message).with_cuda(code));
    }
    Ok(driver)
}

/// An answer of the driver that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// The function.
    pub call: &'static str,
    /// Its answer.
    pub code: u32,
}

impl CudaError {
    /// Of a call that is not made, since the context is not there any more.
    pub fn destroyed(call: &'static str) -> CudaError {
        CudaError { call, code: DESTROYED }
    }

    /// Whether the context is gone: nothing made in it may be touched.
    pub fn is_destroyed(code: u32) -> bool {
        matches!(code, 201 | DESTROYED)
    }

    /// As an error that says what was tried.
    pub fn error(self, tried: &str) -> Error {
        let (name, text) = match Driver::get() {
            Ok(driver) => (
                driver.text(driver.cuGetErrorName, self.code),
                driver.text(driver.cuGetErrorString, self.code),
            ),
            Err(_) => ("?", "?"),
        };
        let (kind, remedy) = self.remedy();
        let message = format!("{tried}: {} answered {name} ({}): {text}; {remedy}", self.call, self.code);
        Error::new(kind, message).with_cuda(self.code)
    }

    /// What kind it is, and what helps.
    fn remedy(self) -> (ErrorKind, &'static str) {
        match self.code {
            2 => (ErrorKind::Resource, "the GPU or the host is out of memory; free some, or ask for less"),
            1 => (
                ErrorKind::InvalidInput,
                "the memory is not what the driver knows; was it freed or remapped?",
            ),
            4 | 3 => {
                (ErrorKind::Closed, "the driver is shut down or not initialised; is the process ending?")
            }
            201 | 709 => (
                ErrorKind::Io,
                "the device's context was destroyed, as by cudaDeviceReset; allocate and register the memory anew",
            ),
            712 => {
                (ErrorKind::InUse, "the memory is registered with the driver already; unregister it first")
            }
            801 => (ErrorKind::Unsupported, "the driver does not offer it for this memory or machine"),
            700 | 710 | 714 | 715 | 716 | 717 | 718 | 719 => (
                ErrorKind::Io,
                "a kernel or copy of this process broke the context, and every later call fails; restart the process",
            ),
            _ => (ErrorKind::Io, "see the kernel's log (NVRM, Xid) and nvidia-smi"),
        }
    }
}
