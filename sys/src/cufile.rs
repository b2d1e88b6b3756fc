//! cuFile (GPUDirect Storage) as a table of functions that is loaded at run time: no CUDA is needed to build.
//!
//! Types, numbers and signatures are those of the C interface of libcufile 1.14 to 1.20, checked against its headers
//! (packages `nvidia-cufile-cu12` and `nvidia-cufile`). Functions that older libraries lack are `Option`s.

#![allow(non_camel_case_types)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

/// What most functions answer, by value: 0, or an error of cuFile's (5001 and up) and beside it the CUDA driver's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUfileError_t {
    /// 0, or cuFile's number.
    pub err: c_int,
    /// The CUDA driver's result, where `err` is 5011.
    pub cu_err: c_int,
}

/// A registered file.
pub type CUfileHandle_t = *mut c_void;

/// A batch.
pub type CUfileBatchHandle_t = *mut c_void;

/// A file descriptor of Linux.
pub const CU_FILE_HANDLE_TYPE_OPAQUE_FD: c_int = 1;

/// A union in C, of a descriptor and a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUfileDescrHandle {
    /// Linux.
    pub fd: c_int,
    /// Others.
    pub handle: *mut c_void,
}

/// What a file is registered by.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUfileDescr_t {
    /// [`CU_FILE_HANDLE_TYPE_OPAQUE_FD`].
    pub kind: c_int,
    /// The descriptor.
    pub handle: CUfileDescrHandle,
    /// Functions of a file system in user space; null for the kernel's.
    pub fs_ops: *const c_void,
}

/// The part of the driver's properties that is about nvidia-fs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUfileNvfsProps {
    /// Version of nvidia-fs, or 0.
    pub major_version: c_uint,
    /// Version of nvidia-fs, or 0.
    pub minor_version: c_uint,
    /// KiB.
    pub poll_thresh_size: usize,
    /// KiB.
    pub max_direct_io_size: usize,
    /// One bit for each kind of storage that has a direct path, by the numbers `CU_FILE_*_SUPPORTED`.
    pub dstatusflags: c_uint,
    /// Bits `CU_FILE_USE_POLL_MODE` and so on.
    pub dcontrolflags: c_uint,
}

/// The driver's properties. The reserve at the end is ours: the structure may grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUfileDrvProps_t {
    /// nvidia-fs.
    pub nvfs: CUfileNvfsProps,
    /// Features, by the numbers `CU_FILE_*_SUPPORTED` of features.
    pub fflags: c_uint,
    /// KiB.
    pub max_device_cache_size: c_uint,
    /// KiB.
    pub per_buffer_cache_size: c_uint,
    /// KiB.
    pub max_device_pinned_mem_size: c_uint,
    /// Requests.
    pub max_batch_io_size: c_uint,
    /// Milliseconds.
    pub max_batch_io_timeout_msecs: c_uint,
    reserve: [u64; 16],
}

/// Status bit: local NVMe.
pub const CU_FILE_NVME_SUPPORTED: c_uint = 4;
/// Status bit: NVMe through PCI P2PDMA; up to libcufile 1.15, deprecated after.
pub const CU_FILE_NVME_P2P_SUPPORTED: c_uint = 11;
/// Control bit: plain POSIX calls (newer libraries).
pub const CU_FILE_POSIX_IO_MODE: c_uint = 2;
/// Feature bit: PCI P2PDMA (newer libraries).
pub const CU_FILE_P2P_SUPPORTED: c_uint = 4;
/// Bit of `cuFileDriverGetP2PFlags`: PCI P2PDMA.
pub const CUFILE_P2PDMA: c_uint = 0;
/// Parameter (bool): all I/O in compatibility mode.
pub const CUFILE_PARAM_FORCE_COMPAT_MODE: c_int = 2;
/// Parameter (bool): PCI P2PDMA may be used.
pub const CUFILE_PARAM_USE_PCIP2PDMA: c_int = 7;

/// One request of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOParams_t {
    /// 1.
    pub mode: c_int,
    /// Registered base.
    pub dev_ptr_base: *mut c_void,
    /// Bytes.
    pub file_offset: i64,
    /// Bytes from the base.
    pub dev_ptr_offset: i64,
    /// Bytes.
    pub size: usize,
    /// The file.
    pub fh: CUfileHandle_t,
    /// 0 read, 1 write.
    pub opcode: c_int,
    /// The caller's.
    pub cookie: *mut c_void,
}

/// What came of one request of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUfileIOEvents_t {
    /// The caller's.
    pub cookie: *mut c_void,
    /// 1 waiting, 2 pending, 4 invalid, 8 cancelled, 16 complete, 32 timed out, 64 failed.
    pub status: c_int,
    /// Bytes, or a negated error.
    pub ret: usize,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<CUfileError_t>() == 8 && size_of::<CUfileDescr_t>() == 24);
    assert!(std::mem::offset_of!(CUfileDescr_t, handle) == 8);
    assert!(std::mem::offset_of!(CUfileDrvProps_t, nvfs.dstatusflags) == 24);
    assert!(std::mem::offset_of!(CUfileDrvProps_t, fflags) == 32);
    assert!(std::mem::offset_of!(CUfileDrvProps_t, reserve) == 56);
    assert!(size_of::<CUfileIOParams_t>() == 64 && size_of::<CUfileIOEvents_t>() == 24);
};

/// The names the library is looked for by, in this order.
pub const NAMES: [&CStr; 2] = [c"libcufile.so.0", c"libcufile.so"];

/// A function that answers `CUfileError_t`.
type Call<A> = unsafe extern "C" fn(A) -> CUfileError_t;

macro_rules! table {
    (
        must { $($(#[$doc:meta])* $field:ident: $type:ty = $name:literal;)* }
        may { $($(#[$odoc:meta])* $ofield:ident: $otype:ty = $($oname:literal)+;)* }
    ) => {
        /// The functions of one loaded library. It is never unloaded: threads of its own may run in it.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub struct Table {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$odoc])* pub $ofield: Option<$otype>,)*
        }

        impl Table {
            fn of(library: *mut c_void) -> Result<Table, &'static str> {
                $(let $field = symbol(library, $name).ok_or($name.to_str().unwrap_or_default())?;)*
                $(let $ofield = None$(.or_else(|| symbol(library, $oname)))+;)*
                // SAFETY: a symbol of this name has this signature in every version of the library; the types are
                // pointers to functions, and `symbol` gives no null.
                unsafe {
                    Ok(Table {
                        $($field: std::mem::transmute::<*mut c_void, $type>($field),)*
                        $($ofield: $ofield.map(|at| std::mem::transmute::<*mut c_void, $otype>(at)),)*
                    })
                }
            }
        }
    };
}

table! {
    must {
        driver_open: unsafe extern "C" fn() -> CUfileError_t = c"cuFileDriverOpen";
        handle_register: unsafe extern "C" fn(*mut CUfileHandle_t, *mut CUfileDescr_t) -> CUfileError_t
            = c"cuFileHandleRegister";
        handle_deregister: unsafe extern "C" fn(CUfileHandle_t) = c"cuFileHandleDeregister";
        buf_register: unsafe extern "C" fn(*const c_void, usize, c_int) -> CUfileError_t = c"cuFileBufRegister";
        buf_deregister: Call<*const c_void> = c"cuFileBufDeregister";
        /// Handle, registered base, bytes, offset in the file, offset from the base.
        read: unsafe extern "C" fn(CUfileHandle_t, *mut c_void, usize, i64, i64) -> isize = c"cuFileRead";
        /// As `read`.
        write: unsafe extern "C" fn(CUfileHandle_t, *const c_void, usize, i64, i64) -> isize = c"cuFileWrite";
    }
    may {
        driver_close: unsafe extern "C" fn() -> CUfileError_t = c"cuFileDriverClose_v2" c"cuFileDriverClose";
        driver_get_properties: Call<*mut CUfileDrvProps_t> = c"cuFileDriverGetProperties";
        /// Kind of storage (a status bit's number), flags.
        driver_get_p2p_flags: unsafe extern "C" fn(c_uint, *mut c_uint) -> CUfileError_t
            = c"cuFileDriverGetP2PFlags";
        use_count: unsafe extern "C" fn() -> c_long = c"cuFileUseCount";
        get_version: Call<*mut c_int> = c"cuFileGetVersion";
        get_parameter_size_t: unsafe extern "C" fn(c_int, *mut usize) -> CUfileError_t
            = c"cuFileGetParameterSizeT";
        get_parameter_bool: unsafe extern "C" fn(c_int, *mut bool) -> CUfileError_t = c"cuFileGetParameterBool";
        get_parameter_string: unsafe extern "C" fn(c_int, *mut c_char, c_int) -> CUfileError_t
            = c"cuFileGetParameterString";
        set_parameter_size_t: unsafe extern "C" fn(c_int, usize) -> CUfileError_t = c"cuFileSetParameterSizeT";
        set_parameter_bool: unsafe extern "C" fn(c_int, bool) -> CUfileError_t = c"cuFileSetParameterBool";
        set_parameter_string: unsafe extern "C" fn(c_int, *const c_char) -> CUfileError_t
            = c"cuFileSetParameterString";
        batch_io_set_up: unsafe extern "C" fn(*mut CUfileBatchHandle_t, c_uint) -> CUfileError_t
            = c"cuFileBatchIOSetUp";
        batch_io_submit: unsafe extern "C" fn(CUfileBatchHandle_t, c_uint, *mut CUfileIOParams_t, c_uint) -> CUfileError_t
            = c"cuFileBatchIOSubmit";
        /// Batch, least number, room and then number of events, events, timeout.
        batch_io_get_status: unsafe extern "C" fn(
            CUfileBatchHandle_t, c_uint, *mut c_uint, *mut CUfileIOEvents_t, *mut libc::timespec,
        ) -> CUfileError_t = c"cuFileBatchIOGetStatus";
        batch_io_cancel: Call<CUfileBatchHandle_t> = c"cuFileBatchIOCancel";
        batch_io_destroy: unsafe extern "C" fn(CUfileBatchHandle_t) = c"cuFileBatchIODestroy";
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a library that `load` opened and never closes, and a string with its end.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

impl Table {
    /// Loads the library. The error is the loader's text for each name, or the name of a function that is missing.
    pub fn load() -> Result<Table, String> {
        let mut why = Vec::new();
        for name in NAMES {
            // SAFETY: a string with its end; the library's constructors run, as they would in any program that links it.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if library.is_null() {
                why.push(loader_says());
                continue;
            }
            match Table::of(library) {
                Ok(table) => return Ok(table),
                Err(missing) => why.push(format!("{}: has no {missing}", name.to_string_lossy())),
            }
        }
        Err(why.join("; "))
    }
}

fn loader_says() -> String {
    // SAFETY: the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader says nothing".to_owned();
    }
    // SAFETY: not null, and a string with its end.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
