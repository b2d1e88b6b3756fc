//! Structs that begin with their size: a program may have been built against an older or a newer header.

use super::border::null;
use super::error::Failure;
use std::ffi::c_char;

/// A struct of the interface whose first field is its size.
///
/// # Safety
/// The type is `repr(C)`, begins with a `u32` that is its size, and every pattern of bytes is one of it.
pub unsafe trait Sized32: Copy {
    /// What it is called in messages.
    const NAME: &'static str;
    /// Its size in the first version of the header.
    const FIRST: usize;
    /// Whether what has no meaning yet is 0.
    fn blank(&self) -> bool;
    /// Notes the size.
    fn set_size(&mut self, size: u32);
}

/// The `size` that the caller gave, if it is one.
///
/// # Safety
/// At least 4 bytes at `from` may be read.
unsafe fn size_of_given<T: Sized32>(from: *const T) -> Result<usize, Failure> {
    // SAFETY: passed on to the caller.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if (T::FIRST..=4096).contains(&size) {
        return Ok(size);
    }
    let (name, ours) = (T::NAME, size_of::<T>());
    Err(Failure::invalid(format!("{name}.size is {size}; set it to sizeof(struct {name}), {ours} here")))
}

/// Reads options. What is past the end of the caller's is 0; what is past the end of ours must be.
///
/// # Safety
/// `from` is NULL, or as many bytes as its `size` says may be read.
pub unsafe fn read<T: Sized32>(from: *const T) -> Result<T, Failure> {
    if from.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: passed on to the caller.
    let size = unsafe { size_of_given(from)? };
    let (bytes, ours) = (from.cast::<u8>(), size_of::<T>());
    // SAFETY: by the trait, zeroes are a `T`.
    let mut read: T = unsafe { std::mem::zeroed() };
    // SAFETY: inside both.
    unsafe { std::ptr::copy_nonoverlapping(bytes, (&raw mut read).cast(), size.min(ours)) };
    // SAFETY: inside the caller's.
    let past_ours = (ours..size).map(|at| unsafe { bytes.add(at).read() });
    if !read.blank() || past_ours.into_iter().any(|byte| byte != 0) {
        let name = T::NAME;
        return Err(Failure::invalid(format!(
            "{name}: a reserved field is not 0; zero the struct first, or the program was built against a newer header"
        )));
    }
    Ok(read)
}

/// Reads options where NULL means the defaults: `None`.
///
/// # Safety
/// As [`read`].
pub unsafe fn read_or_default<T: Sized32>(from: *const T) -> Result<Option<T>, Failure> {
    // SAFETY: passed on to the caller.
    if from.is_null() { Ok(None) } else { unsafe { read(from).map(Some) } }
}

/// Writes an answer, as much of it as the caller has room for.
///
/// # Safety
/// `to` is NULL, or as many bytes as its `size` says may be read and written.
pub unsafe fn write<T: Sized32>(
    to: *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if to.is_null() {
        return Err(null(T::NAME));
    }
    // SAFETY: passed on to the caller.
    let room = unsafe { size_of_given(to.cast_const())? }.min(size_of::<T>());
    let mut made = make()?;
    made.set_size(room as u32);
    // SAFETY: inside both.
    unsafe { std::ptr::copy_nonoverlapping((&raw const made).cast::<u8>(), to.cast(), room) };
    Ok(())
}

/// Text as an array that ends in a NUL; cut, at a character, if it is too long.
pub fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    chars.iter_mut().zip(&text.as_bytes()[..end]).for_each(|(char, byte)| *char = *byte as c_char);
    chars
}

fn is_zero<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

macro_rules! sized {
    ($($name:ident, $first:literal, $($reserved:ident),+;)*) => {$(
        // SAFETY: repr(C), `size: u32` first, and integers and raw pointers alone.
        unsafe impl Sized32 for super::types::$name {
            const NAME: &'static str = stringify!($name);
            const FIRST: usize = $first;
            fn blank(&self) -> bool {
                $(is_zero(&self.$reserved))&&+
            }
            fn set_size(&mut self, size: u32) {
                self.size = size;
            }
        }
    )*};
}

sized! {
    fullbore_engine_options, 128, reserved;
    fullbore_open_options, 48, reserved;
    fullbore_alloc_options, 40, padding, reserved;
    fullbore_transfer, 112, reserved;
    fullbore_target_info, 240, reserved;
    fullbore_region_info, 320, padding, reserved;
    fullbore_path_info, 488, reserved;
    fullbore_stats, 184, reserved;
}
