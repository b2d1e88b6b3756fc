//! Errors as C sees them: a negative errno, and details.

use super::types::{FULLBORE_NO_EXTENT, fullbore_domain, fullbore_error, fullbore_kind};
use crate::error::{Error, ErrorKind};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};

/// What an export fails with.
#[derive(Debug)]
pub enum Failure {
    /// As the library says it.
    Error(Error),
    /// A panic that was stopped; what it said.
    Defect(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

impl Failure {
    /// An argument that makes no sense.
    pub fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
        Error::new(ErrorKind::InvalidInput, message).into()
    }
}

/// The kind as C counts, and the errno where the kernel gave none.
fn kind_of(kind: ErrorKind) -> (fullbore_kind, i32) {
    use fullbore_kind::*;
    match kind {
        ErrorKind::InvalidInput => (FULLBORE_KIND_INVALID_INPUT, libc::EINVAL),
        ErrorKind::OutOfBounds => (FULLBORE_KIND_OUT_OF_BOUNDS, libc::ERANGE),
        ErrorKind::Misaligned => (FULLBORE_KIND_MISALIGNED, libc::EINVAL),
        ErrorKind::ReadOnly => (FULLBORE_KIND_READ_ONLY, libc::EROFS),
        ErrorKind::Closed => (FULLBORE_KIND_CLOSED, libc::EBADF),
        ErrorKind::WrongEngine => (FULLBORE_KIND_WRONG_ENGINE, libc::EINVAL),
        ErrorKind::Overlap => (FULLBORE_KIND_OVERLAP, libc::EBUSY),
        ErrorKind::Busy => (FULLBORE_KIND_BUSY, libc::EAGAIN),
        ErrorKind::NotFound => (FULLBORE_KIND_NOT_FOUND, libc::ENOENT),
        ErrorKind::Unsupported => (FULLBORE_KIND_UNSUPPORTED, libc::EOPNOTSUPP),
        ErrorKind::Permission => (FULLBORE_KIND_PERMISSION, libc::EACCES),
        ErrorKind::Resource => (FULLBORE_KIND_RESOURCE, libc::ENOMEM),
        ErrorKind::PathUnavailable => (FULLBORE_KIND_PATH_UNAVAILABLE, libc::EOPNOTSUPP),
        ErrorKind::InUse => (FULLBORE_KIND_IN_USE, libc::EBUSY),
        ErrorKind::Forked => (FULLBORE_KIND_FORKED, libc::ECHILD),
        ErrorKind::Io => (FULLBORE_KIND_IO, libc::EIO),
        ErrorKind::UnexpectedEof => (FULLBORE_KIND_UNEXPECTED_EOF, libc::ENODATA),
        ErrorKind::TimedOut => (FULLBORE_KIND_TIMED_OUT, libc::ETIMEDOUT),
        ErrorKind::Abandoned => (FULLBORE_KIND_ABANDONED, libc::EOWNERDEAD),
        ErrorKind::Cancelled => (FULLBORE_KIND_CANCELLED, libc::ECANCELED),
        ErrorKind::Shutdown => (FULLBORE_KIND_SHUTDOWN, libc::ESHUTDOWN),
        ErrorKind::LaneFailed => (FULLBORE_KIND_LANE_FAILED, libc::EIO),
        ErrorKind::Quarantined => (FULLBORE_KIND_QUARANTINED, libc::EINPROGRESS),
    }
}

/// No error at all.
pub const NONE: fullbore_error = fullbore_error {
    domain: fullbore_domain::FULLBORE_DOMAIN_NONE as u32,
    code: 0,
    kind: fullbore_kind::FULLBORE_KIND_NONE as u32,
    extent: FULLBORE_NO_EXTENT,
    offset: 0,
    length: 0,
    message: c"".as_ptr(),
    reserved: [0; 2],
};

/// The errno of an error, negative, its details, and the text that these point to.
pub fn details(failure: &Failure) -> (i32, fullbore_error, CString) {
    let (errno, error, text) = match failure {
        Failure::Error(error) => {
            let (kind, errno) = kind_of(error.kind());
            let (domain, code) = source_of(error, kind);
            let details = fullbore_error {
                domain: domain as u32,
                code,
                kind: kind as u32,
                extent: error.extent_index().unwrap_or(FULLBORE_NO_EXTENT),
                offset: error.offset().unwrap_or(0),
                length: error.length().unwrap_or(0),
                ..NONE
            };
            (error.errno().unwrap_or(errno), details, in_c(&error.to_string()))
        }
        Failure::Defect(what) => {
            let kind = fullbore_kind::FULLBORE_KIND_DEFECT as u32;
            let domain = fullbore_domain::FULLBORE_DOMAIN_ENGINE as u32;
            let text = format!("a defect of this library, please report it; it panicked: {what}");
            (libc::ENOTRECOVERABLE, fullbore_error { domain, code: kind as i32, kind, ..NONE }, text)
        }
    };
    // One line: a path may have anything in it.
    let text = one_line(&text);
    (-errno, fullbore_error { message: text.as_ptr(), ..error }, text)
}

/// What remedies are called in Rust, and in C. No name is the beginning of one behind it.
pub const NAMES: [(&str, &str); 13] = [
    ("Engine::builder", "fullbore_engine_create"),
    ("Engine::register_cuda", "fullbore_region_register_cuda"),
    ("Engine::register_host", "fullbore_region_register_host"),
    ("OpenOptions::create", "FULLBORE_OPEN_CREATE"),
    ("OpenOptions::force", "FULLBORE_OPEN_FORCE"),
    ("OpenOptions::mapped", "FULLBORE_OPEN_MAPPED"),
    ("OpenOptions::write", "FULLBORE_OPEN_WRITE"),
    ("Region::len", "fullbore_region_info.len"),
    ("Target::block_size", "fullbore_target_info.block_size"),
    ("Target::geometry", "fullbore_target_info"),
    ("Target::set_size", "fullbore_target_set_size"),
    ("Target::size", "fullbore_target_info.bytes"),
    ("Transfer::deadline", "fullbore_transfer.deadline_ns"),
];

/// A message whose remedy is a call of Rust's, for C programs.
pub fn in_c(text: &str) -> String {
    NAMES
        .iter()
        .fold(text.to_owned(), |text, (rust, c)| text.replace(&format!("{rust}()"), c).replace(rust, c))
}

/// Text for C: one line, whatever the names in it hold.
pub fn one_line(text: &str) -> CString {
    CString::new(text.replace(char::is_control, "?")).unwrap_or_default()
}

/// Who said it, and what. The deepest one that did: cuFile's errors stand for the driver's, and so on.
fn source_of(error: &Error, kind: fullbore_kind) -> (fullbore_domain, i32) {
    use fullbore_domain::*;
    let cufile = error.cufile_code().map(|code| (FULLBORE_DOMAIN_CUFILE, code));
    let cuda = error.cuda_code().map(|code| (FULLBORE_DOMAIN_CUDA, code as i32));
    let nvme = error.nvme_status().map(|status| (FULLBORE_DOMAIN_NVME, i32::from(status)));
    let errno = error.errno().map(|errno| (FULLBORE_DOMAIN_ERRNO, errno));
    cufile.or(cuda).or(nvme).or(errno).unwrap_or((FULLBORE_DOMAIN_ENGINE, kind as i32))
}

/// The last error of a thread, and its text.
struct Last(UnsafeCell<(fullbore_error, Option<CString>)>);

thread_local! {
    static LAST: Last = const { Last(UnsafeCell::new((NONE, None))) };
}

/// Notes an error for the calling thread; answers its errno, negative.
pub fn note(failure: &Failure) -> i32 {
    let (errno, details, text) = details(failure);
    // A thread that is ending has no place for it any more: the errno alone is left.
    let _ = LAST.try_with(|last| {
        // SAFETY: this thread's own, and nothing else refers to it while this runs: `last` hands out an address alone.
        unsafe { *last.0.get() = (details, Some(text)) };
    });
    errno
}

/// Where the calling thread's last error is.
pub fn last() -> *const fullbore_error {
    // SAFETY: an address inside the thread's own cell; nothing is read or written through it here.
    LAST.try_with(|last| unsafe { &raw const (*last.0.get()).0 }).unwrap_or(&raw const UNKNOWN.0)
}

/// What a thread that is ending is told.
static UNKNOWN: Static = Static(NONE);
struct Static(fullbore_error);
// SAFETY: constant, and its message is a constant of the program.
unsafe impl Sync for Static {}

/// A kind's name, as `fullbore_kind_name` gives it.
pub fn kind_name(kind: u32) -> Option<&'static CStr> {
    const NAMES: [&CStr; 25] = [
        c"none",
        c"invalid input",
        c"out of bounds",
        c"misaligned",
        c"read only",
        c"closed",
        c"wrong engine",
        c"overlap",
        c"busy",
        c"not found",
        c"unsupported",
        c"permission",
        c"resource",
        c"path unavailable",
        c"in use",
        c"forked",
        c"io",
        c"unexpected end",
        c"timed out",
        c"abandoned",
        c"cancelled",
        c"shut down",
        c"lane failed",
        c"quarantined",
        c"defect",
    ];
    NAMES.get(kind as usize).copied()
}
