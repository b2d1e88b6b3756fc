//! What this library is.

use super::border::{small, value};
use super::error::{Failure, kind_name, last};
use super::types::{fullbore_error, fullbore_feature_name, fullbore_path};
use crate::error::{Error, ErrorKind};
use std::ffi::{CStr, c_char, c_int};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

const fn number(text: &str) -> u32 {
    let (bytes, mut at, mut number) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}

/// Version of the library that runs: major << 16 | minor << 8 | patch. Any thread, any time.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_version() -> u32 {
    value(0, || {
        Ok(number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
            | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
            | number(env!("CARGO_PKG_VERSION_PATCH")))
    })
}

/// The same as text, such as "0.1.0"; a constant. Any thread, any time.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_version_string() -> *const c_char {
    value(c"".as_ptr(), || Ok(VERSION.as_ptr().cast()))
}

/// Whether this library, on this machine, has a `fullbore_feature_name`: 1, or 0 and `fullbore_last_error` says why not;
/// -EINVAL: no such feature. Any thread, any time.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_feature(feature: u32) -> c_int {
    let lacks = |error: Option<Error>| {
        error.map_or(1, |error| {
            super::error::note(&error.into());
            0
        })
    };
    small(|| match feature {
        f if f == fullbore_feature_name::FULLBORE_FEATURE_IO_URING as u32 => {
            Ok(lacks(crate::api::ring_refusal()))
        }
        f if f == fullbore_feature_name::FULLBORE_FEATURE_CUDA as u32 => Ok(lacks(gpu_refusal())),
        f if f == fullbore_feature_name::FULLBORE_FEATURE_HWLOC as u32 => {
            let message = "the library was built without hwloc; build it with `--features hwloc`";
            let without = || Error::new(ErrorKind::Unsupported, message);
            Ok(lacks((!cfg!(feature = "hwloc")).then(without)))
        }
        other => Err(Failure::invalid(format!("there is no feature {other}; see fullbore_feature_name"))),
    })
}

fn gpu_refusal() -> Option<Error> {
    match crate::memory::cuda::count() {
        Ok(0) => Some(Error::new(
            ErrorKind::NotFound,
            "the CUDA driver sees no GPU; see CUDA_VISIBLE_DEVICES and nvidia-smi",
        )),
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

/// Details of the calling thread's last call that failed. Never NULL; before the first failure its domain is
/// FULLBORE_DOMAIN_NONE. It and its message are the thread's, until its next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_last_error() -> *const fullbore_error {
    last()
}

/// The name of a `fullbore_kind`, such as "out of bounds"; a constant, "unknown" for a number that is none. Any thread,
/// any time.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_kind_name(kind: u32) -> *const c_char {
    value(c"unknown".as_ptr(), || Ok(kind_name(kind).unwrap_or(c"unknown").as_ptr()))
}

/// The name of a `fullbore_path`, such as "uring-cmd fixed"; a constant, "unknown" for what is none, or several. Any
/// thread, any time.
#[unsafe(no_mangle)]
pub extern "C" fn fullbore_path_name(path: u32) -> *const c_char {
    value(c"unknown".as_ptr(), || Ok(path_name(path).as_ptr()))
}

fn path_name(path: u32) -> &'static CStr {
    const NAMES: [(fullbore_path, &CStr); 15] = [
        (fullbore_path::FULLBORE_PATH_ANY, c"any"),
        (fullbore_path::FULLBORE_PATH_FIXED, c"uring fixed"),
        (fullbore_path::FULLBORE_PATH_PLAIN, c"uring"),
        (fullbore_path::FULLBORE_PATH_SCRATCH, c"uring scratch"),
        (fullbore_path::FULLBORE_PATH_FIXED_BUFFERED, c"uring fixed buffered"),
        (fullbore_path::FULLBORE_PATH_BUFFERED, c"uring buffered"),
        (fullbore_path::FULLBORE_PATH_NULL, c"null"),
        (fullbore_path::FULLBORE_PATH_URING_CMD_FIXED, c"uring-cmd fixed"),
        (fullbore_path::FULLBORE_PATH_URING_CMD, c"uring-cmd"),
        (fullbore_path::FULLBORE_PATH_URING_CMD_SCRATCH, c"uring-cmd scratch"),
        (fullbore_path::FULLBORE_PATH_COPY, c"cpu copy"),
        (fullbore_path::FULLBORE_PATH_PINNED_BOUNCE, c"pinned bounce"),
        (fullbore_path::FULLBORE_PATH_DAX_TO_GPU, c"dax -> gpu direct"),
        (fullbore_path::FULLBORE_PATH_CUFILE, c"cufile"),
        (fullbore_path::FULLBORE_PATH_CUFILE_COMPAT, c"cufile compat"),
    ];
    NAMES.iter().find(|(known, _)| *known as u32 == path).map_or(c"unknown", |(_, name)| name)
}
