//! The memory that the reads land in.

use std::io::Error;

/// Page-aligned memory, every page touched, aligned to 2 MiB so that huge pages fit from the first byte on.
pub struct Pool {
    map: *mut libc::c_void,
    map_len: usize,
    pub base: *mut u8,
    pub len: usize,
}

// SAFETY: `base` is plain memory owned by this value; threads only pass parts of it to the kernel.
unsafe impl Sync for Pool {}

const HUGE: usize = 2 << 20;

impl Pool {
    pub fn new(len: usize, huge: bool) -> Result<Pool, Error> {
        let len = len.next_multiple_of(HUGE);
        let map_len = len + HUGE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice aliases nothing.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                map_len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let base = map.cast::<u8>().wrapping_add(map.align_offset(HUGE));
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range lies inside the mapping made above. A refusal (no huge pages in this kernel) is fine:
        // AnonHugePages in the report says what came of it.
        unsafe { libc::madvise(base.cast(), len, advice) };
        // SAFETY: the range lies inside the mapping made above, and nothing else refers to it yet.
        unsafe { std::ptr::write_bytes(base, 0xa5, len) };
        Ok(Pool { map, map_len, base, len })
    }

    pub fn slice(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len);
        // SAFETY: inside the mapping (asserted), initialised by `new`, and only called when no read is in flight.
        unsafe { std::slice::from_raw_parts(self.base.add(at), len) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; every ring that used it is gone, as the threads are scoped within it.
        unsafe { libc::munmap(self.map, self.map_len) };
    }
}

/// Bytes of this process that lie in transparent huge pages.
pub fn huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("AnonHugePages:"));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
        << 10
}
