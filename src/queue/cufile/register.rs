//! Files and memory that cuFile knows, and a single request between the two.

use super::{CuFile, CuFileError};
use crate::target::Op;
use fullbore_sys::cufile::{CU_FILE_HANDLE_TYPE_OPAQUE_FD, CUfileDescr_t, CUfileDescrHandle, CUfileHandle_t};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A registered file. It is deregistered when the last one lets go, which can be no worker that is at work on it.
#[derive(Debug)]
pub struct Handle {
    cufile: Arc<CuFile>,
    raw: CUfileHandle_t,
    /// Our own descriptor of the file: the caller may close its.
    _file: OwnedFd,
}

// SAFETY: cuFile's handles may be used by any thread, by several at once; what they point to is the library's.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Registered GPU memory. It is deregistered when the last one lets go, and its owner is held until then.
pub struct Buffer {
    cufile: Arc<CuFile>,
    base: u64,
    len: usize,
    owner: ManuallyDrop<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.base, self.len)
    }
}

impl CuFile {
    /// Registers a file that was opened with O_DIRECT. 5027 is explained in docs/cufile.md. The call is the
    /// library's and may take its time: [`super::Workers::within`] bounds it.
    pub fn register_file(self: &Arc<CuFile>, fd: RawFd) -> Result<Arc<Handle>, CuFileError> {
        const CALL: &str = "cuFileHandleRegister";
        self.check_fork(CALL)?;
        // SAFETY: a new descriptor of the caller's file; a number that is none is EBADF.
        let file = match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
            -1 => return Err(CuFileError::last_os(CALL)),
            // SAFETY: it was made just now, and nobody else knows it.
            new => unsafe { OwnedFd::from_raw_fd(new) },
        };
        let mut raw: CUfileHandle_t = std::ptr::null_mut();
        let mut descriptor = CUfileDescr_t {
            kind: CU_FILE_HANDLE_TYPE_OPAQUE_FD,
            handle: CUfileDescrHandle { handle: std::ptr::null_mut() },
            fs_ops: std::ptr::null(),
        };
        descriptor.handle.fd = file.as_raw_fd();
        // SAFETY: both live across the call; the descriptor stays open as long as the handle.
        let answer = unsafe { (self.table.handle_register)(&mut raw, &mut descriptor) };
        CuFileError::check(CALL, answer)?;
        Ok(Arc::new(Handle { cufile: self.clone(), raw, _file: file }))
    }

    /// Registers GPU memory by its base: `base` is the start of an allocation, `len` in bytes. Whoever calls stands
    /// for it that the memory is there as long as `owner` lives. The GPU's context must be current. The call is the
    /// library's and may take its time (it pins): [`super::Workers::within`] bounds it.
    pub fn register_buffer(
        self: &Arc<CuFile>,
        base: u64,
        len: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Buffer>, CuFileError> {
        const CALL: &str = "cuFileBufRegister";
        self.check_fork(CALL)?;
        // SAFETY: an address and a length for the driver to judge; it reads nothing there.
        let answer = unsafe { (self.table.buf_register)(pointer(base), len, 0) };
        CuFileError::check(CALL, answer)?;
        Ok(Arc::new(Buffer { cufile: self.clone(), base, len, owner: ManuallyDrop::new(owner) }))
    }
}

impl Buffer {
    /// The device address it was registered by.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Whether bytes `offset..offset + len` lie in it.
    pub fn contains(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }
}

impl Handle {
    /// What becomes of a request on this machine.
    pub fn mode(&self) -> super::Mode {
        self.cufile.mode()
    }

    /// The mode in a sentence; see [`CuFile::reason`].
    pub fn reason(&self) -> &str {
        self.cufile.reason()
    }

    #[cfg(test)]
    pub(super) fn raw(&self) -> CUfileHandle_t {
        self.raw
    }

    /// One call of the library: answers the bytes moved, which may be fewer. It blocks.
    pub(super) fn io(
        &self,
        op: Op,
        buffer: &Buffer,
        offset_in_buffer: u64,
        file_offset: u64,
        len: usize,
    ) -> Result<usize, CuFileError> {
        let call = if op == Op::Write { "cuFileWrite" } else { "cuFileRead" };
        self.cufile.check_fork(call)?;
        let outside = || CuFileError::refused(call, "the range lies outside of its buffer or of any file");
        if !buffer.contains(offset_in_buffer, len) {
            return Err(outside());
        }
        let at = i64::try_from(offset_in_buffer).map_err(|_| outside())?;
        let file_offset = i64::try_from(file_offset).map_err(|_| outside())?;
        let (table, base) = (&self.cufile.table, pointer(buffer.base));
        // SAFETY: both are registered while we borrow them, the range lies inside the buffer, whose memory its owner
        // keeps; that nobody else uses these bytes is the claim of the transfer that asks.
        let answer = unsafe {
            match op {
                Op::Read => (table.read)(self.raw, base, len, file_offset, at),
                Op::Write => (table.write)(self.raw, base, len, file_offset, at),
                Op::Flush => {
                    return Err(CuFileError::refused(call, "cuFile flushes nothing; flush the file"));
                }
            }
        };
        CuFileError::moved(call, answer, len)
    }
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.cufile.guard.forked() {
            // SAFETY: registered, and nobody has it any more.
            unsafe { (self.cufile.table.handle_deregister)(self.raw) };
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.cufile.guard.forked() {
            return; // all of it is the parent's, the owner too
        }
        // SAFETY: registered, and nobody has it any more.
        let answer = unsafe { (self.cufile.table.buf_deregister)(pointer(self.base)) };
        match CuFileError::check("cuFileBufDeregister", answer) {
            // SAFETY: it is not used after this.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.owner) },
            // It may still be pinned: its owner is kept for ever.
            Err(error) => tracing::warn!(%error, base = self.base, "GPU memory is kept"),
        }
    }
}
