//! Marks.

use super::border::{call, count, get, hand_out, small};
use super::error::Failure;
use super::region::fullbore_region;
use crate::error::Error;
use crate::lane::{Marks, Signal};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Points in a transfer, each behind an extent, that its submitter hears of before the transfer ends: one has landed when
/// the bytes of every extent up to and with it are where they belong. They belong to one transfer under way at a time, and may
/// then be given to the next. Any number of threads may use them at once.
pub struct fullbore_marks {
    pub(super) marks: Marks,
    signal: OnceLock<Arc<Raise>>,
}

struct Raise(Signal);

impl Wake for Raise {
    fn wake(self: Arc<Self>) {
        self.0.raise();
    }
}

/// Makes `count` marks: `after` has the numbers of the extents they lie behind, counted from 0, ascending, none twice. The
/// marks are the caller's, to destroy. 0, -EINVAL. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_create(
    after: *const u32,
    count: usize,
    out: *mut *mut fullbore_marks,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or `count` numbers.
            unsafe { get(after, "after")? };
            // SAFETY: as above.
            let numbers = (0..count).map(|at| unsafe { after.add(at).read_unaligned() });
            Ok(fullbore_marks { marks: Marks::after(numbers)?, signal: OnceLock::new() })
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// Frees marks; a transfer that has them goes on. 0; NULL is nothing. No other thread may be in a call with them.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_destroy(marks: *mut fullbore_marks) -> c_int {
    call(|| {
        if !marks.is_null() {
            // SAFETY: of `fullbore_marks_create`, and the caller's no more.
            let marks = unsafe { Box::from_raw(marks) };
            marks.marks.set_waker(None); // a transfer that still has them would keep the descriptor open
        }
        Ok(())
    })
}

/// How many have landed, in order, of the transfer under way or of the last one. Their descriptor goes down: ask
/// `fullbore_marks_ended` behind this call, not before it, or an end between the two goes unheard. -EINVAL, -ECHILD. Any
/// thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_landed(marks: *const fullbore_marks) -> i64 {
    count(|| {
        // SAFETY: NULL, or alive.
        let marks = unsafe { get(marks, "marks")? };
        marks.marks.check_fork()?;
        // Before the look: what lands behind it raises it again.
        marks.signal.get().into_iter().for_each(|raise| raise.0.lower(|| false));
        Ok(marks.marks.landed())
    })
}

/// Whether the transfer that they were given to last is over, 1, or not, 0: what has not landed then does not.
/// -EINVAL, -ECHILD. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_ended(marks: *const fullbore_marks) -> c_int {
    small(|| {
        // SAFETY: NULL, or alive.
        let marks = unsafe { get(marks, "marks")? };
        marks.marks.check_fork()?;
        Ok(c_int::from(marks.marks.ended()))
    })
}

/// Waits at most `timeout_ns` ns until mark number `mark`, counted from 0, has landed. Submit first. Any thread.
///
/// 0; -ETIMEDOUT; -ECANCELED: the transfer ended without it, and its completion says why; -EINVAL: no such mark;
/// -ECHILD.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_wait(
    marks: *const fullbore_marks,
    mark: usize,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: NULL, or alive.
    call(|| Ok(unsafe { get(marks, "marks")? }.marks.wait(mark, Duration::from_nanos(timeout_ns))?))
}

/// A descriptor that is readable (poll, epoll: level-triggered) from when a mark lands, or the transfer ends, until
/// `fullbore_marks_landed`. It is the marks': wait for it, but neither read nor close it. Any thread.
///
/// The descriptor, or -EMFILE, -EINVAL, -ECHILD.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_fd(marks: *const fullbore_marks) -> c_int {
    small(|| {
        // SAFETY: NULL, or alive.
        let marks = unsafe { get(marks, "marks")? };
        marks.marks.check_fork()?;
        if marks.signal.get().is_none() {
            let message = "cannot make an eventfd; raise the limit of open files (ulimit -n)";
            let _ = marks.signal.set(Arc::new(Raise(Signal::new().map_err(|e| Error::io(message, &e))?)));
        }
        let gone =
            || Failure::invalid("the marks' descriptor is gone: a defect of this library; please report it");
        let raise = marks.signal.get().ok_or_else(gone)?;
        marks.marks.set_waker(Some(Waker::from(raise.clone())));
        if marks.marks.landed() > 0 || marks.marks.ended() {
            raise.0.raise();
        }
        Ok(raise.0.fd().as_raw_fd())
    })
}

/// Has what is queued on a CUDA stream from now on wait until mark number `mark` of the transfer under way has landed,
/// without the CPU. Call it after the transfer was submitted. `region`: memory of the GPU that the stream is on; `stream`: a
/// CUstream or cudaStream_t of its primary context. When the transfer ends without the mark the stream goes on all the same:
/// look at the completion before its results are used. Any thread.
///
/// 0; -EINVAL: no such mark, or no GPU's memory; -EOPNOTSUPP: the driver has no such waits; -ENOMEM: 1024 sets of marks have
/// streams waiting.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_marks_stream_wait(
    marks: *const fullbore_marks,
    mark: usize,
    region: *const fullbore_region,
    stream: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: NULL, or alive, both.
        let (marks, region) = unsafe { (get(marks, "marks")?, get(region, "region")?.get()?) };
        // SAFETY: as the header says.
        unsafe { marks.marks.stream_wait(mark, region, stream)? };
        Ok(())
    })
}
