//! Clients: submission and completions.

use super::border::{call, count, get, hand_out, known_flags, null, put, small};
use super::engine::fullbore_engine;
use super::error::{Failure, NONE, details};
use super::sized;
use super::target::fullbore_target;
use super::types::*;
use crate::api::{Client, TransferId};
use crate::error::{Error, ErrorKind};
use crate::lane::{Completion, Path, Priority, RawOptions};
use crate::memory::RawExtent;
use crate::target::Op;
use std::cell::UnsafeCell;
use std::ffi::{CString, c_int};
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A caller's handle: submit on it, receive completions on it. One per thread: a call while another thread is in one is
/// refused with -EBUSY. (`fullbore_cancel` may be called by any thread.)
pub struct fullbore_client {
    client: Client,
    /// A thread is in a call.
    entered: AtomicBool,
    /// What the errors of the completions that were fetched last point to.
    messages: UnsafeCell<Vec<CString>>,
}

/// The right to use a client, until it is dropped.
struct Entered<'a>(&'a fullbore_client);

impl Deref for Entered<'_> {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.0.client
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.entered.store(false, Ordering::Release);
    }
}

/// Takes a client for the calling thread.
///
/// # Safety
/// `client` is NULL or alive.
unsafe fn enter<'a>(client: *const fullbore_client) -> Result<Entered<'a>, Failure> {
    // SAFETY: passed on to the caller.
    let client = unsafe { get(client, "client")? };
    if client.entered.swap(true, Ordering::Acquire) {
        let message =
            "the client is in use by another thread; make one for each thread (fullbore_client_create)";
        return Err(Error::new(ErrorKind::InUse, message).into());
    }
    Ok(Entered(client))
}

/// Makes a client. It is the caller's, to destroy. 0, -EBADF: the engine was destroyed, -ECHILD. Any thread.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_client_create(
    engine: *const fullbore_engine,
    out: *mut *mut fullbore_client,
) -> c_int {
    call(|| {
        let make = || {
            // SAFETY: NULL, or a live engine.
            let client = unsafe { get(engine, "engine")? }.engine.client()?;
            Ok(fullbore_client { client, entered: AtomicBool::new(false), messages: UnsafeCell::default() })
        };
        // SAFETY: NULL, or the caller's.
        unsafe { hand_out(out, make) }
    })
}

/// Frees a client. Transfers under way go on, and their memory belongs to the library until they end: see
/// `fullbore_region_free`, which waits for them; their completions are lost. NULL is nothing. -EBUSY: another thread is in
/// a call with it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_client_destroy(client: *mut fullbore_client) -> c_int {
    call(|| {
        if !client.is_null() {
            // SAFETY: alive. It stays taken: there is no one to give it back to.
            std::mem::forget(unsafe { enter(client)? });
            // SAFETY: of `fullbore_client_create`, the caller's no more, and no other thread is in it.
            drop(unsafe { Box::from_raw(client) });
        }
        Ok(())
    })
}

/// Submits `n` transfers, in order. Never blocks. Everything about a transfer is checked before any of it is issued; its
/// completion comes through `fullbore_poll` or `fullbore_wait`, exactly once, and each extent's outcome is written before.
/// Until then its extents, and the memory they name, belong to the library. (An abandoned one's, -EOWNERDEAD, until
/// `fullbore_region_free` of their regions answers 0; memory in no region for ever.) The transfers themselves may go when this
/// returns.
///
/// How many were taken, the first ones: less than `n` when the next was refused, and then `fullbore_last_error` says why. If
/// the first was, a negative errno: -EINVAL, -ERANGE, -EROFS, -EBADF, -EOPNOTSUPP (demanded path), -EAGAIN: the engine's
/// `max_transfers` are under way, fetch a completion first. -EBUSY: another thread is in a call with the client, or the
/// marks belong to a transfer under way. One thread at a time.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_submit(
    client: *mut fullbore_client,
    transfers: *mut fullbore_transfer,
    n: usize,
) -> i64 {
    count(|| {
        // SAFETY: NULL, or alive.
        let client = unsafe { enter(client)? };
        if transfers.is_null() && n > 0 {
            return Err(null("transfers"));
        }
        let mut step = 0;
        for taken in 0..n {
            // SAFETY: one of `n` elements, each as long as the first one's size says.
            let one = unsafe { transfers.cast::<u8>().add(taken * step).cast::<fullbore_transfer>() };
            // SAFETY: as above.
            let submitted = unsafe { element(one, step) }.and_then(|transfer| {
                step = transfer.size as usize;
                // SAFETY: as the header says.
                unsafe { submit(&client, &transfer) }
            });
            match submitted {
                // SAFETY: inside the element.
                Ok(id) => unsafe {
                    one.cast::<u8>().add(offset_of!(fullbore_transfer, id)).cast::<u64>().write_unaligned(id);
                },
                Err(failure) if taken == 0 => return Err(failure),
                Err(failure) => {
                    super::error::note(&failure);
                    return Ok(taken);
                }
            }
        }
        Ok(n)
    })
}

/// Reads an element of an array whose elements have `size` bytes; 0: it is the first.
///
/// # Safety
/// `one` points to `size` bytes; the first, to as many as its own size says.
unsafe fn element(one: *const fullbore_transfer, size: usize) -> Result<fullbore_transfer, Failure> {
    // Looked at before the rest is read: a larger one would reach past the end of the array.
    // SAFETY: inside the element.
    let given = unsafe { one.cast::<u32>().read_unaligned() } as usize;
    if size != 0 && size != given {
        return Err(Failure::invalid("the transfers of an array differ in size; set each to the same"));
    }
    // SAFETY: passed on to the caller.
    unsafe { sized::read(one) }
}

/// # Safety
/// The target is NULL or alive, and the extents are as the header says.
unsafe fn submit(client: &Client, transfer: &fullbore_transfer) -> Result<u64, Failure> {
    let durable = fullbore_transfer_flag::FULLBORE_TRANSFER_DURABLE as u32;
    known_flags(transfer.flags, durable, "fullbore_transfer")?;
    let op = match transfer.op {
        op if op == fullbore_op::FULLBORE_OP_READ as u32 => Op::Read,
        op if op == fullbore_op::FULLBORE_OP_WRITE as u32 => Op::Write,
        op => return Err(Failure::invalid(format!("fullbore_transfer.op is {op}; give one of fullbore_op"))),
    };
    let mut options =
        RawOptions::tag(transfer.tag).trace_id(transfer.trace_id).priority(priority(transfer.priority)?);
    options = match transfer.deadline_ns {
        0 => options,
        FULLBORE_FOREVER => options.no_deadline(),
        ns => options.deadline(Duration::from_nanos(ns)),
    };
    if transfer.flags & durable != 0 {
        options = options.durable();
    }
    if let Some(path) = path(transfer.require)? {
        options = options.require(path);
    }
    // SAFETY: NULL, or alive.
    if let Some(marks) = unsafe { transfer.marks.as_ref() } {
        options = options.marks(&marks.marks);
    }
    // SAFETY: NULL, or alive.
    let target = unsafe { get(transfer.target, "fullbore_transfer.target")? };
    let extents = transfer.extents.cast::<RawExtent>();
    if extents.is_null() || !extents.is_aligned() {
        return Err(Failure::invalid(
            "`fullbore_transfer.extents` is NULL or not aligned to 8; give an array",
        ));
    }
    if transfer.count > u64::from(u32::MAX) {
        return Err(Failure::invalid(
            "fullbore_transfer.count is too large; give at most 16 777 216, and split it",
        ));
    }
    // SAFETY: `count` elements, the library's from now on: the caller's word.
    let extents = unsafe { std::slice::from_raw_parts_mut(extents, transfer.count as usize) };
    // SAFETY: as the header says.
    Ok(unsafe { client.submit_raw(&target.target, op, extents, options)? }.to_u64())
}

fn priority(priority: u32) -> Result<Priority, Failure> {
    match priority {
        n if n == fullbore_priority::FULLBORE_PRIORITY_NORMAL as u32 => Ok(Priority::Normal),
        n if n == fullbore_priority::FULLBORE_PRIORITY_URGENT as u32 => Ok(Priority::Urgent),
        n if n == fullbore_priority::FULLBORE_PRIORITY_HIGH as u32 => Ok(Priority::High),
        n if n == fullbore_priority::FULLBORE_PRIORITY_LOW as u32 => Ok(Priority::Low),
        n => {
            Err(Failure::invalid(format!("fullbore_transfer.priority is {n}; give one of fullbore_priority")))
        }
    }
}

fn path(bits: u32) -> Result<Option<Path>, Failure> {
    match (bits, Path::from_bits(bits)) {
        (0, _) => Ok(None),
        (_, Some(path)) => Ok(Some(path)),
        _ => Err(Failure::invalid(format!(
            "fullbore_transfer.require is {bits:#x}; give one of fullbore_path, and one alone"
        ))),
    }
}

/// Makes everything durable that was written to `target` and completed before. Its completion comes as a transfer's does,
/// with `tag`, whose low half is its trace id. Its deadline is the engine's. `id`: out, for `fullbore_cancel`, or NULL.
///
/// 0, or as `fullbore_submit`. One thread at a time.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_flush(
    client: *mut fullbore_client,
    target: *const fullbore_target,
    tag: u64,
    id: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: NULL, or alive, both.
        let (client, target) = unsafe { (enter(client)?, get(target, "target")?) };
        let flush = client.flush_tagged(&target.target, tag)?.to_u64();
        // SAFETY: NULL, or the caller's.
        if id.is_null() { Ok(()) } else { unsafe { put(id, "id", || Ok(flush)) } }
    })
}

/// Fetches at most `most` completions that are there. No system call, but for the descriptor's (`fullbore_client_fd`).
///
/// How many were written to `out`; -EINVAL, -EBUSY, -ECHILD. One thread at a time.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_poll(
    client: *mut fullbore_client,
    out: *mut fullbore_completion,
    most: usize,
) -> i64 {
    count(|| {
        // SAFETY: NULL, or alive.
        let client = unsafe { enter(client)? };
        client.check_fork()?;
        // SAFETY: `most` elements.
        unsafe { fetch(&client, out, most) }
    })
}

/// Waits until at least `least` completions are there, or `timeout_ns` ns are over (FULLBORE_FOREVER: the transfers' own
/// deadlines end the wait; then it waits for no more than are under way on this client, and with none it is -EINVAL), and
/// fetches at most `most` of them. `least` is at most `most`.
///
/// How many were written to `out`: less than `least` when the time was over. -EINVAL, -EBUSY, -ECHILD. One
/// thread at a time.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_wait(
    client: *mut fullbore_client,
    least: usize,
    most: usize,
    timeout_ns: u64,
    out: *mut fullbore_completion,
) -> i64 {
    count(|| {
        // SAFETY: NULL, or alive.
        let client = unsafe { enter(client)? };
        if least > most {
            return Err(Failure::invalid(
                "`least` is more than `most`; wait for as many as there is room for",
            ));
        }
        let timeout = (timeout_ns != FULLBORE_FOREVER).then_some(Duration::from_nanos(timeout_ns));
        client.await_ready(least, timeout)?;
        // SAFETY: `most` elements.
        unsafe { fetch(&client, out, most) }
    })
}

/// # Safety
/// `out` is NULL or has room for `most`.
unsafe fn fetch(client: &Entered<'_>, out: *mut fullbore_completion, most: usize) -> Result<usize, Failure> {
    if out.is_null() && most > 0 {
        return Err(null("out"));
    }
    // SAFETY: this thread has the client, and no other reference into it.
    let messages = unsafe { &mut *client.0.messages.get() };
    messages.clear();
    let completions = std::iter::from_fn(|| client.poll_one()).take(most);
    let mut got = 0;
    for completion in completions {
        let made = completed(completion, messages);
        // SAFETY: one of `most`.
        unsafe { out.add(got).write_unaligned(made) };
        got += 1;
    }
    Ok(got)
}

fn completed(completion: Completion, messages: &mut Vec<CString>) -> fullbore_completion {
    let (result, error) = match completion.result {
        Ok(()) => (0, NONE),
        Err(error) => {
            let (errno, details, text) = details(&Failure::Error(error));
            messages.push(text);
            (errno, details)
        }
    };
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    fullbore_completion {
        tag: completion.tag,
        bytes: completion.bytes,
        queued_ns: ns(completion.times.queued),
        total_ns: ns(completion.times.total),
        result,
        paths: completion.paths.bits(),
        error,
        waited_ns: ns(completion.times.waited),
        copied_ns: ns(completion.times.copied),
        reserved: [0; 2],
    }
}

/// Stops issuing the transfer `id` and drains it; its one completion still comes. Any thread, also while another is in a call
/// with the client, but not once `fullbore_client_destroy` was called.
///
/// 1; 0: it is over already, or there is none of that number; -EINVAL, -ECHILD.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_cancel(client: *const fullbore_client, id: u64) -> c_int {
    small(|| {
        // SAFETY: NULL, or alive. It is not taken: a cancel reads nothing of the client but what never changes.
        let client = unsafe { get(client, "client")? };
        client.client.check_fork()?;
        Ok(c_int::from(client.client.cancel(TransferId::from_u64(id))))
    })
}

/// A descriptor that is readable (poll, epoll: level-triggered) while completions are there to be fetched. It goes down when
/// `fullbore_poll` or `fullbore_wait` has found nothing more: fetch until they give less than `most`; now and then it is up
/// once for nothing. It is the client's: wait for it, but neither read nor close it.
///
/// The descriptor, or -EMFILE, -EBUSY, -ECHILD. One thread at a time.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fullbore_client_fd(client: *mut fullbore_client) -> c_int {
    // SAFETY: NULL, or alive.
    small(|| Ok(unsafe { enter(client)? }.completion_fd()?.as_raw_fd()))
}
