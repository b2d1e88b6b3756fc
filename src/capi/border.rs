//! The border: what every export does first and last.

use super::error::{Failure, note};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(test)]
thread_local! {
    /// The next export panics instead of doing its work.
    pub static PANIC: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs an export. A panic ends here, as an error; what it left behind is whole (each lock of the library is taken over,
/// each critical section changes one thing).
fn run<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, i32> {
    let work = || {
        #[cfg(test)]
        assert!(!PANIC.replace(false), "a test's panic");
        work()
    };
    let answer = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        // Whatever the panic carries is leaked: its drop may panic too.
        std::mem::forget(panic);
        Err(Failure::Defect(text.unwrap_or_else(|| "no message".into())))
    });
    answer.map_err(|failure| note(&failure))
}

/// An export that answers 0 or a negative errno.
pub fn call(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    run(work).err().unwrap_or(0)
}

/// An export that answers a small number or a negative errno.
pub fn small(work: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    run(work).unwrap_or_else(|errno| errno)
}

/// An export that answers a count or a negative errno.
pub fn count(work: impl FnOnce() -> Result<usize, Failure>) -> i64 {
    run(work).map_or_else(i64::from, |count| i64::try_from(count).unwrap_or(i64::MAX))
}

/// An export that answers a value, or `otherwise` when it cannot.
pub fn value<T>(otherwise: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    run(work).unwrap_or(otherwise)
}

/// A reference out of a handle or an array's element.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that lives through `'a`.
pub unsafe fn get<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: passed on to the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// NULL where something is needed.
pub fn null(what: &'static str) -> Failure {
    Failure::invalid(format!("`{what}` is NULL; give one"))
}

/// A value for the caller's place.
///
/// # Safety
/// `place` is NULL, or may be written.
pub unsafe fn put<T>(
    place: *mut T,
    what: &'static str,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null(what));
    }
    let made = make()?;
    // SAFETY: passed on to the caller.
    unsafe { place.write_unaligned(made) };
    Ok(())
}

/// A new handle for the caller's place; NULL is written there first, so that a failed create leaves nothing to destroy.
///
/// # Safety
/// `place` is NULL, or may be written.
pub unsafe fn hand_out<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null("out"));
    }
    // SAFETY: passed on to the caller.
    unsafe { place.write_unaligned(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: as above.
    unsafe { place.write_unaligned(made) };
    Ok(())
}

/// The bits of `flags` are among `known`.
pub fn known_flags(flags: u32, known: u32, what: &'static str) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        bits => Err(Failure::invalid(format!(
            "{what}: unknown flags {bits:#x}; this library knows {known:#x}: was the program built against a newer header?"
        ))),
    }
}
