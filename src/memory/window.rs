//! A piece of memory as lanes and queues see it.

/// A range of bytes that a command may move to or from.
///
/// It borrows nothing: whoever makes one promises that the bytes stay mapped until the transfer it was made for
/// has no command in flight (invariant I1). Lanes make them only from the extents of a transfer they hold a
/// claim on, and give the claim back only after the last command was reaped.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: a window is an address; the promise of `Window::new` covers its use from any thread.
unsafe impl Send for Window {}
// SAFETY: as above; it has no interior state.
unsafe impl Sync for Window {}

impl Window {
    /// A window of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes must stay mapped, and be accessed by nobody else in a way that races with the transfer, until
    /// the transfer that this window is used for has no command in flight.
    pub unsafe fn new(ptr: *mut u8, len: usize) -> Window {
        Window { ptr, len }
    }

    /// No bytes (a flush moves none).
    pub fn empty() -> Window {
        Window { ptr: std::ptr::null_mut(), len: 0 }
    }

    /// The bytes `from .. from + len`; cut to what is there.
    pub fn sub(self, from: usize, len: usize) -> Window {
        let from = from.min(self.len);
        Window { ptr: self.ptr.wrapping_add(from), len: len.min(self.len - from) }
    }

    /// Both as one, where `next` follows this one.
    pub fn joined(self, next: Window) -> Window {
        debug_assert_eq!(self.addr() + self.len as u64, next.addr());
        Window { ptr: self.ptr, len: self.len + next.len }
    }

    pub fn addr(self) -> u64 {
        self.ptr as u64
    }

    pub fn ptr(self) -> *mut u8 {
        self.ptr
    }

    pub fn len(self) -> usize {
        self.len
    }

    /// Copies all of this window out of `from`, which may not be shorter.
    pub fn copy_from(self, from: Window) {
        debug_assert!(self.len <= from.len);
        // SAFETY: both windows promise mapped bytes; scratch and a transfer's memory never overlap.
        unsafe { std::ptr::copy_nonoverlapping(from.ptr, self.ptr, self.len.min(from.len)) }
    }
}
