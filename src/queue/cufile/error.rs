//! What cuFile answers, by name, and what helps.

use fullbore_sys::cufile::CUfileError_t;
use std::fmt;
use std::io;

/// A call of cuFile that failed, or that we did not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuFileError {
    call: &'static str,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// cuFile's number (5001 and up), and the CUDA driver's result (0: none).
    Library { code: i32, cuda: i32 },
    /// An errno.
    Os(i32),
    /// Not asked of the library at all: why, with what helps.
    Refused(&'static str),
}

impl CuFileError {
    pub(super) fn refused(call: &'static str, why: &'static str) -> CuFileError {
        CuFileError { call, cause: Cause::Refused(why) }
    }

    pub(super) fn os(call: &'static str, errno: i32) -> CuFileError {
        CuFileError { call, cause: Cause::Os(errno) }
    }

    /// The thread's errno, directly after a call.
    pub(super) fn last_os(call: &'static str) -> CuFileError {
        CuFileError::os(call, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    pub(super) fn library(call: &'static str, code: i32) -> CuFileError {
        CuFileError { call, cause: Cause::Library { code, cuda: 0 } }
    }

    /// What a function that answers by value said.
    pub(super) fn check(call: &'static str, answer: CUfileError_t) -> Result<(), CuFileError> {
        match answer.err {
            0 => Ok(()),
            code => Err(CuFileError { call, cause: Cause::Library { code, cuda: answer.cu_err } }),
        }
    }

    /// What a read or write of `asked` bytes answered: a length, -1 for an errno (read here, so directly after the
    /// call), a negated number of cuFile's.
    pub(super) fn moved(call: &'static str, answer: isize, asked: usize) -> Result<usize, CuFileError> {
        match usize::try_from(answer) {
            Ok(len) if len <= asked => Ok(len),
            Ok(_) => Err(CuFileError::refused(
                call,
                "it claims to have moved more than was asked; please report it",
            )),
            Err(_) if answer == -1 => Err(CuFileError::last_os(call)),
            Err(_) => Err(CuFileError::library(call, i32::try_from(-answer).unwrap_or(i32::MAX))),
        }
    }

    /// cuFile's number, where it gave one.
    pub fn code(&self) -> Option<i32> {
        match self.cause {
            Cause::Library { code, .. } => Some(code),
            _ => None,
        }
    }

    /// The CUDA driver's result, where cuFile handed one on.
    pub fn cuda(&self) -> Option<i32> {
        match self.cause {
            Cause::Library { cuda, .. } if cuda != 0 => Some(cuda),
            _ => None,
        }
    }

    /// The errno, where the file system failed the call.
    pub fn errno(&self) -> Option<i32> {
        match self.cause {
            Cause::Os(errno) => Some(errno),
            _ => None,
        }
    }

    /// The name that cuFile has for its number.
    pub fn name(&self) -> &'static str {
        match self.cause {
            Cause::Library { code, .. } => explain(code).0,
            Cause::Os(_) => "the file system failed it",
            Cause::Refused(_) => "refused",
        }
    }

    /// The likely cause, and what helps.
    pub fn remedy(&self) -> &'static str {
        match self.cause {
            Cause::Library { code, .. } => explain(code).1,
            Cause::Os(_) => "see the kernel's log and the file system",
            Cause::Refused(why) => why,
        }
    }

    /// Whether the same call may do better a little later.
    pub fn retryable(&self) -> bool {
        match self.cause {
            Cause::Library { code, .. } => matches!(code, 5037 | 5039..=5043),
            Cause::Os(errno) => matches!(errno, libc::EAGAIN | libc::EINTR),
            Cause::Refused(_) => false,
        }
    }
}

impl fmt::Display for CuFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Library { code, cuda: 0 } => {
                write!(f, "{}: {} ({code}): {}", self.call, self.name(), self.remedy())
            }
            Cause::Library { code, cuda } => {
                write!(f, "{}: {} ({code}, CUDA {cuda}): {}", self.call, self.name(), self.remedy())
            }
            Cause::Os(errno) => {
                write!(f, "{}: {}; {}", self.call, io::Error::from_raw_os_error(errno), self.remedy())
            }
            Cause::Refused(why) => write!(f, "{}: {why}", self.call),
        }
    }
}

impl std::error::Error for CuFileError {}

/// Name and remedy.
fn explain(code: i32) -> (&'static str, &'static str) {
    let known = CODES.iter().find(|(number, ..)| *number == code);
    known
        .map_or(("an unknown error", "see cufile.log, and the notes of this version of libcufile"), |entry| {
            (entry.1, entry.2)
        })
}

/// Load nvidia-fs, or let compatibility mode be.
const DRIVER: &str = "load the kernel module nvidia-fs (modprobe nvidia-fs), use P2PDMA, or demand compatibility mode \
                      and set properties.allow_compat_mode in cufile.json";
const VERSIONS: &str = "install nvidia-fs and libcufile of one CUDA release";
const CONFIGURATION: &str = "correct the values in cufile.json (CUFILE_ENV_PATH_JSON names it)";
const PLATFORM: &str = "let the engine take pinned bounce buffers; gdscheck -p says what this machine lacks";
const POINTER: &str = "register memory of cuMemAlloc that is still allocated, and stay inside it";
const BAR: &str = "register less memory at once, or raise properties.max_device_pinned_mem_size_kb; a GPU with a \
                   small BAR1 can pin no more than that";
const RETRY: &str = "the library is short of something for now: try again a little later";
const REPORT: &str = "see cufile.log (logging.level TRACE in cufile.json says more)";
const UDEV: &str = "udev does not know the file system of this device (usual in containers): see docs/cufile.md for \
                    the record to write; or the handle was deregistered";

/// All numbers of libcufile 1.20 and those that older ones had.
#[rustfmt::skip]
const CODES: &[(i32, &str, &str)] = &[
    (5001, "CU_FILE_DRIVER_NOT_INITIALIZED", DRIVER),
    (5002, "CU_FILE_DRIVER_INVALID_PROPS", CONFIGURATION),
    (5003, "CU_FILE_DRIVER_UNSUPPORTED_LIMIT", CONFIGURATION),
    (5004, "CU_FILE_DRIVER_VERSION_MISMATCH", VERSIONS),
    (5005, "CU_FILE_DRIVER_VERSION_READ_ERROR", VERSIONS),
    (5006, "CU_FILE_DRIVER_CLOSING", "something in this process closes cuFile's driver; keep it open while the engine lives"),
    (5007, "CU_FILE_PLATFORM_NOT_SUPPORTED", PLATFORM),
    (5008, "CU_FILE_IO_NOT_SUPPORTED", "no direct path to this file: use ext4 or xfs on NVMe without multipath or RAID, or pinned bounce buffers"),
    (5009, "CU_FILE_DEVICE_NOT_SUPPORTED", PLATFORM),
    (5010, "CU_FILE_NVFS_DRIVER_ERROR", "see the kernel's log for nvidia-fs; reload it if it is of another version"),
    (5011, "CU_FILE_CUDA_DRIVER_ERROR", "the CUDA driver failed a call: see its result; make the GPU's context current, and see whether it has failed"),
    (5012, "CU_FILE_CUDA_POINTER_INVALID", POINTER),
    (5013, "CU_FILE_CUDA_MEMORY_TYPE_INVALID", POINTER),
    (5014, "CU_FILE_CUDA_POINTER_RANGE_ERROR", POINTER),
    (5015, "CU_FILE_CUDA_CONTEXT_MISMATCH", "the memory belongs to another context than the current one; make its GPU's context current"),
    (5016, "CU_FILE_INVALID_MAPPING_SIZE", BAR),
    (5017, "CU_FILE_INVALID_MAPPING_RANGE", "the range lies outside of what was registered"),
    (5018, "CU_FILE_INVALID_FILE_TYPE", "use a regular file or a block device"),
    (5019, "CU_FILE_INVALID_FILE_OPEN_FLAG", "open the file with O_DIRECT and without O_APPEND"),
    (5020, "CU_FILE_DIO_NOT_SET", "open the file with O_DIRECT"),
    (5021, "CU_FILE_EXPECTED_FILE_MODE", "open the file for what is asked of it"),
    (5022, "CU_FILE_INVALID_VALUE", "an argument makes no sense to this version of libcufile; please report it"),
    (5023, "CU_FILE_MEMORY_ALREADY_REGISTERED", "this base is registered already, by us or by another user of cuFile in this process"),
    (5024, "CU_FILE_MEMORY_NOT_REGISTERED", "the buffer was deregistered, or an address inside of one was given for its base"),
    (5025, "CU_FILE_PERMISSION_DENIED", "let the user open /dev/nvidia-fs* and the file"),
    (5026, "CU_FILE_DRIVER_ALREADY_OPEN", "nothing is to be done"),
    (5027, "CU_FILE_HANDLE_NOT_REGISTERED", UDEV),
    (5028, "CU_FILE_HANDLE_ALREADY_REGISTERED", "this descriptor is registered already, by us or by another user of cuFile in this process"),
    (5029, "CU_FILE_DEVICE_NOT_FOUND", "no GPU is seen: check CUDA_VISIBLE_DEVICES and nvidia-smi"),
    (5030, "CU_FILE_INTERNAL_ERROR", REPORT),
    (5031, "CU_FILE_GETNEWFD_FAILED", "raise the limit of open files (ulimit -n)"),
    (5033, "CU_FILE_NVFS_SETUP_ERROR", "see the kernel's log for nvidia-fs, and whether /dev/nvidia-fs* exist here"),
    (5034, "CU_FILE_IO_DISABLED", "cufile.json forbids the direct path for this file (see fs and denylist there)"),
    (5035, "CU_FILE_BATCH_SUBMIT_FAILED", REPORT),
    (5036, "CU_FILE_GPU_MEMORY_PINNING_FAILED", BAR),
    (5037, "CU_FILE_BATCH_FULL", RETRY),
    (5038, "CU_FILE_ASYNC_NOT_SUPPORTED", "update libcufile and the driver; streams are not used by the engine"),
    (5039, "CU_FILE_INTERNAL_BATCH_SETUP_ERROR", RETRY),
    (5040, "CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR", RETRY),
    (5041, "CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR", RETRY),
    (5042, "CU_FILE_INTERNAL_BATCH_CANCEL_ERROR", RETRY),
    (5043, "CU_FILE_NOMEM_ERROR", RETRY),
    (5044, "CU_FILE_IO_ERROR", "the device or the file system failed it: see the kernel's log"),
    (5045, "CU_FILE_INTERNAL_BUF_REGISTER_ERROR", BAR),
    (5046, "CU_FILE_HASH_OPR_ERROR", REPORT),
    (5047, "CU_FILE_INVALID_CONTEXT_ERROR", "the GPU's context was destroyed or is not current"),
    (5048, "CU_FILE_NVFS_INTERNAL_DRIVER_ERROR", "see the kernel's log for nvidia-fs"),
    (5049, "CU_FILE_BATCH_NOCOMPAT_ERROR", "batches have no compatibility mode here"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_name_and_a_remedy() {
        assert!(CODES.is_sorted_by_key(|entry| entry.0));
        assert!(CODES.iter().all(|(_, name, remedy)| name.starts_with("CU_FILE_") && remedy.len() > 10));
        let error = CuFileError::library("cuFileHandleRegister", 5027);
        assert_eq!(error.name(), "CU_FILE_HANDLE_NOT_REGISTERED");
        assert!(
            error.to_string().starts_with("cuFileHandleRegister: CU_FILE_HANDLE_NOT_REGISTERED (5027): udev")
        );
        // 5039 was the end of the list once: "retry later" it means since.
        let later: Vec<i32> = (5000..5060).filter(|n| CuFileError::library("", *n).retryable()).collect();
        assert_eq!(later, [5037, 5039, 5040, 5041, 5042, 5043]);
        assert_eq!(CuFileError::library("", 5032).name(), "an unknown error");
    }

    #[test]
    fn lengths_errnos_and_numbers_are_told_apart() {
        let moved = |answer| CuFileError::moved("cuFileRead", answer, 10);
        assert_eq!((moved(0), moved(10)), (Ok(0), Ok(10)));
        assert!(moved(11).is_err_and(|e| e.code().is_none() && e.errno().is_none()));
        assert_eq!(moved(-5030).unwrap_err().code(), Some(5030));
        let cuda = CuFileError::check("x", CUfileError_t { err: 5011, cu_err: 700 }).unwrap_err();
        assert_eq!((cuda.code(), cuda.cuda(), cuda.errno()), (Some(5011), Some(700), None));
        assert!(cuda.to_string().contains("(5011, CUDA 700)"));
        assert_eq!(CuFileError::os("x", libc::EIO).errno(), Some(libc::EIO));
    }
}
