//! Copies between mapped device memory and host memory, by the widest streaming stores that the CPU has (native/copy.c).

use super::Window;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;

// SAFETY: as native/copy.c defines them, which build.rs compiles into this crate; tests below call all but the guard,
// `it::dax` that.
unsafe extern "C" {
    fn fullbore_copy_level() -> c_int;
    fn fullbore_copy(to: *mut c_void, from: *const c_void, len: usize, level: c_int);
    fn fullbore_guard() -> c_int;
    fn fullbore_copy_guarded(to: *mut c_void, from: *const c_void, len: usize, level: c_int) -> c_int;
}

/// Whether the handler is installed.
static GUARD: OnceLock<bool> = OnceLock::new();

/// How wide the stores are: 0 SSE2 (elsewhere plain), 1 AVX2, 2 AVX-512.
pub fn level() -> c_int {
    static LEVEL: OnceLock<c_int> = OnceLock::new();
    // SAFETY: it asks the CPU.
    *LEVEL.get_or_init(|| unsafe { fullbore_copy_level() })
}

/// Its name, for people.
pub fn kernel() -> &'static str {
    match (cfg!(target_arch = "x86_64"), level()) {
        (false, _) => "memcpy",
        (_, 2) => "AVX-512 streaming",
        (_, 1) => "AVX2 streaming",
        _ => "SSE2 streaming",
    }
}

/// Has SIGBUS in copies of ours turned into an error. For the whole process, for ever; other causes of the signal go to
/// whoever had it before.
pub fn guard() -> io::Result<()> {
    // SAFETY: it installs a handler that does nothing but leave a copy of ours, or call the one before.
    let installed = GUARD.get_or_init(|| unsafe { fullbore_guard() } == 0);
    if *installed { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What came of a copy. The failures are known only with the guard; without it they end the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    Whole,
    /// Some of the memory was not there.
    NotThere,
    /// Some of it has lost its content.
    Poisoned,
}

/// Copies all of `to` out of `from`, which may not be shorter.
pub fn stream(to: Window, from: Window) -> Copied {
    stream_at(to, from, level())
}

fn stream_at(to: Window, from: Window, level: c_int) -> Copied {
    debug_assert!(to.len() <= from.len());
    let (to, from, len) = (to.ptr().cast(), from.ptr().cast(), to.len().min(from.len()));
    // SAFETY: both windows promise mapped bytes, and a device's mapping never overlaps other memory.
    unsafe {
        match GUARD.get() {
            Some(true) => match fullbore_copy_guarded(to, from, len, level) {
                0 => Copied::Whole,
                -1 => Copied::NotThere,
                _ => Copied::Poisoned,
            },
            _ => {
                fullbore_copy(to, from, len, level);
                Copied::Whole
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn every_kernel_copies_any_length_from_and_to_any_address() {
        let (mut from, mut to) = (Mapping::new(1 << 16).unwrap(), Mapping::new(1 << 16).unwrap());
        from.bytes().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 251) as u8);
        for level in 0..=level() {
            for (at, begin, len) in [
                (0, 0, 1 << 16),
                (1, 0, 1),
                (63, 1, 2),
                (64, 64, 64),
                (5, 70, 1000),
                (3, 3, 4096),
                (17, 64, 65_000),
            ] {
                to.bytes().fill(0xee);
                // SAFETY: both lie inside their mappings, which outlive the copy.
                let (to_window, from_window) = unsafe {
                    (
                        Window::new(to.ptr().as_ptr().add(at), len),
                        Window::new(from.ptr().as_ptr().add(begin), len),
                    )
                };
                assert_eq!(stream_at(to_window, from_window, level), Copied::Whole);
                assert_eq!(
                    to.bytes()[at..at + len],
                    from.bytes()[begin..begin + len],
                    "level {level}, {len} bytes"
                );
                assert!(to.bytes()[..at].iter().all(|b| *b == 0xee), "level {level}: before");
                assert!(to.bytes()[at + len..].iter().all(|b| *b == 0xee), "level {level}: behind");
            }
        }
    }
}
