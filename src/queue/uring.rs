//! io_uring: one ring, made and used by one lane's thread.
//!
//! All rings have the large entries (SQE128, CQE32; kernel 5.19) that NVMe passthrough needs: 64 bytes more for a
//! command of 128 KiB are nothing, and one form of ring serves every target.

use super::{Answer, Queue, Wait};
use crate::memory::{Slabs, table};
use crate::target::{FileRef, Op, Request, nvme_command};
use fullbore_sys::nvme_uring_cmd;
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// user_data of the poll on the bell. No command has it: lanes leave the highest generation out.
const BELL: u64 = u64::MAX;
/// CQ entries beyond the depth: the bell's poll and its re-arming.
const SLACK: u32 = 16;
/// Files in a ring's table.
pub const FILES: u32 = 256;

/// How to make a ring.
#[derive(Clone, Copy, Debug)]
pub struct UringOptions {
    /// Most commands in flight.
    pub depth: u32,
    /// The table ring to clone registered buffers from; `None` where each lane registers for itself.
    pub source: Option<RawFd>,
}

/// The ring as all lanes have it.
pub type Ring = IoUring<squeue::Entry128, cqueue::Entry32>;

/// A device that answers within this is polled without a pause; longer, and the lane naps between polls.
const PATIENCE: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(100);
/// The longer it hangs, the longer the naps.
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// What a polled ring keeps: it cannot wait for a bell, nor in the kernel for a deadline.
struct Polling {
    /// Accepted and not reaped.
    in_flight: u32,
    /// When something was last reaped or submitted.
    moved: Instant,
}

/// See the module.
pub struct Uring {
    ring: Ring,
    polling: Option<Polling>,
    source: Option<RawFd>,
    /// `None`: the lane polls.
    bell: Option<OwnedFd>,
    armed: bool,
    /// How many requests lie before the bell's poll in the submission queue; it is not one of the lane's.
    poll_at: Option<usize>,
    /// Places of the file table that hold a file; of a ring without a table, none.
    files: Vec<bool>,
    flags: Vec<&'static str>,
}

pub(super) type Builder = io_uring::Builder<squeue::Entry128, cqueue::Entry32>;
pub(super) type Flag = (&'static str, fn(&mut Builder));

/// Setup flags, best last: on EINVAL the newest is left off and the rest tried again. DEFER_TASKRUN needs
/// SINGLE_ISSUER, so it goes first.
pub(super) const FLAGS: [Flag; 4] = [
    ("COOP_TASKRUN", |b| {
        b.setup_coop_taskrun();
    }),
    ("SINGLE_ISSUER", |b| {
        b.setup_single_issuer();
    }),
    ("DEFER_TASKRUN", |b| {
        b.setup_defer_taskrun();
    }),
    ("NO_SQARRAY", |b| {
        b.setup_no_sqarray();
    }),
];

/// Makes a ring with as many of [`FLAGS`] as the kernel takes.
fn build(depth: u32, polled: bool) -> io::Result<(Ring, Vec<&'static str>)> {
    let mut with = FLAGS.len();
    loop {
        let mut builder = Ring::builder();
        if polled {
            builder.setup_iopoll();
        }
        builder.setup_cqsize((depth + SLACK).next_power_of_two());
        let flags = &FLAGS[..with];
        flags.iter().for_each(|(_, set)| set(&mut builder));
        match builder.build(depth.next_power_of_two()) {
            Ok(ring) => {
                let fixed = ["SQE128", "CQE32", "CQSIZE"].into_iter();
                let names = fixed.chain(polled.then_some("IOPOLL"));
                return Ok((ring, names.chain(flags.iter().map(|(name, _)| *name)).collect()));
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && with > 0 => with -= 1,
            Err(e) => return Err(e),
        }
    }
}

/// Why this process gets no ring, if so: tried, since seccomp refuses where the sysctl allows.
pub fn plain_ring_refusal() -> Option<io::Error> {
    Ring::builder().build(1).err()
}

/// The SQE of a request; the crate's two ways to name a file have no common public trait.
macro_rules! sqe {
    ($file:expr, $request:expr) => {{
        let (file, request) = ($file, $request);
        let (ptr, len, at) = (request.window.ptr(), request.window.len() as u32, request.offset);
        let small = match (request.op, request.buffer) {
            (Op::Read, Some(buffer)) => opcode::ReadFixed::new(file, ptr, len, buffer).offset(at).build(),
            (Op::Read, None) => opcode::Read::new(file, ptr, len).offset(at).build(),
            (Op::Write, Some(buffer)) => opcode::WriteFixed::new(file, ptr, len, buffer).offset(at).build(),
            (Op::Write, None) => opcode::Write::new(file, ptr, len).offset(at).build(),
            (Op::Flush, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        };
        match request.namespace {
            Some(numbers) => opcode::UringCmd80::new(file, fullbore_sys::NVME_URING_CMD_IO)
                .cmd(bytes_of(&nvme_command(request.op, numbers, request.offset, request.window)))
                .buf_index(request.buffer)
                .build(),
            None => small.into(),
        }
    }};
}

/// A command as it lies in the entry.
fn bytes_of(command: &nvme_uring_cmd) -> [u8; 80] {
    let mut bytes = [0; 80];
    const LEN: usize = size_of::<nvme_uring_cmd>();
    // SAFETY: plain integers without padding (their sizes add up to the struct's: fullbore-sys asserts it).
    bytes[..LEN].copy_from_slice(unsafe { &*std::ptr::from_ref(command).cast::<[u8; LEN]>() });
    bytes
}

/// The entry of a request, for a ring with these places of its file table in use.
pub(super) fn entry(request: &Request, files: &[bool]) -> squeue::Entry128 {
    let entry = match request.file {
        FileRef { slot: Some(slot), .. } if files.get(slot as usize) == Some(&true) => {
            sqe!(Fixed(slot), request)
        }
        FileRef { fd, .. } => sqe!(Fd(fd), request),
    };
    let flags = if request.aside { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
    entry.user_data(request.user_data).flags(flags)
}

impl Uring {
    /// Makes the ring. Call it on the lane's thread: the ring takes requests from no other.
    ///
    /// Without a bell it polls for completions (IOPOLL; only for NVMe passthrough over queues that the driver polls),
    /// and whoever brings work unparks the thread.
    pub fn new(options: UringOptions, bell: Option<OwnedFd>) -> io::Result<Uring> {
        let (ring, flags) = build(options.depth, bell.is_none())?;
        if options.source.is_none() {
            table::prepare(&ring)?;
        }
        let table = ring.submitter().register_files_sparse(FILES).is_ok();
        let files = vec![false; if table { FILES as usize } else { 0 }];
        let polling = bell.is_none().then(|| Polling { in_flight: 0, moved: Instant::now() });
        let source = options.source;
        let mut uring = Uring { ring, polling, source, bell, armed: false, poll_at: None, files, flags };
        uring.arm();
        Ok(uring)
    }

    /// Polls the bell, so that a wait in `enter` ends when it rings. Where lanes poll, the bell wakes their thread.
    fn arm(&mut self) {
        let Some(bell) = &self.bell else { return };
        let poll = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        let before = self.ring.submission().len();
        // SAFETY: a poll names no memory; its descriptor is open as long as the ring.
        self.armed = unsafe { self.ring.submission().push(&poll.user_data(BELL).into()) }.is_ok();
        if self.armed {
            self.poll_at = Some(before);
        }
    }

    /// Waits a moment for results without submitting. An enter that could not submit does no more than that: it takes
    /// no deferred results in, which would free what it lacked.
    fn breathe(&self) {
        if self.polling.is_some() {
            return std::thread::sleep(NAP); // a polled ring waits for nothing; the next poll reaps
        }
        let time = Timespec::from(Duration::from_millis(1));
        let args = SubmitArgs::new().timespec(&time);
        let flags = (EnterFlags::GETEVENTS | EnterFlags::EXT_ARG).bits();
        // SAFETY: the arguments live across the call, and nothing is submitted.
        let _ = unsafe { self.ring.submitter().enter(0, 1, flags, Some(&args)) };
    }

    /// Submits and looks once for completions; with nothing to look for, sleeps until the bell wakes the thread.
    fn poll_once(&mut self, wait: Wait) -> io::Result<usize> {
        let queued = self.ring.submission().len();
        let Some(polling) = &mut self.polling else { return Ok(0) };
        if let Wait::ForOne { timeout } = wait {
            let idle = polling.in_flight == 0 && queued == 0;
            match (idle, timeout) {
                (true, Some(timeout)) => std::thread::park_timeout(timeout),
                (true, None) => std::thread::park(),
                // A device that hangs is no reason to burn a CPU.
                (false, _) if queued == 0 && polling.moved.elapsed() > PATIENCE => {
                    std::thread::park_timeout((polling.moved.elapsed() / 100).clamp(NAP, LONGEST_NAP))
                }
                _ => {}
            }
            if idle {
                return Ok(0);
            }
        }
        if queued > 0 {
            polling.moved = Instant::now();
        }
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed; entries were pushed whole.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued as u32, 0, flags, None) }
    }

    /// Of `taken` entries that the kernel took, how many were the lane's.
    fn without_poll(&mut self, taken: usize) -> u32 {
        let polls = match self.poll_at {
            Some(before) if before < taken => {
                self.poll_at = None;
                1
            }
            Some(before) => {
                self.poll_at = Some(before - taken);
                0
            }
            None => 0,
        };
        (taken - polls) as u32
    }
}

impl Drop for Uring {
    /// A ring that is closed lets go of its buffers on a worker of the kernel, some time later. They are dropped here,
    /// so that pages are unpinned, and memlock is uncharged, when the engine is gone. Nothing is in flight: a lane
    /// that did not drain is leaked with its ring.
    fn drop(&mut self) {
        let _ = self.ring.submitter().unregister_buffers(); // ENXIO: there were none
    }
}

impl Queue for Uring {
    fn room(&self) -> usize {
        // SAFETY: only this thread, which is here, uses the submission queue.
        let sq = unsafe { self.ring.submission_shared() };
        sq.capacity() - sq.len()
    }

    fn push(&mut self, request: &Request) -> bool {
        let entry = entry(request, &self.files);
        // SAFETY: the window promises that its memory stays until the answer is reaped; the file is kept open by
        // the transfer that holds its target.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn enter(&mut self, wait: Wait) -> Result<u32, i32> {
        let before = self.ring.submission().len();
        let done = match wait {
            Wait::No if before == 0 => return Ok(0),
            _ if self.polling.is_some() => self.poll_once(wait),
            Wait::No => self.ring.submit(),
            Wait::ForOne { timeout: None } => self.ring.submit_and_wait(1),
            Wait::ForOne { timeout: Some(timeout) } => {
                let time = Timespec::from(timeout);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        let taken = before - self.ring.submission().len();
        let accepted = self.without_poll(taken);
        if let Some(polling) = &mut self.polling {
            polling.in_flight += accepted;
        }
        match done.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO)) {
            Err(errno @ (libc::EAGAIN | libc::EBUSY)) if taken == 0 => {
                self.breathe();
                Err(errno)
            }
            Err(errno) if taken == 0 && !matches!(errno, libc::ETIME | libc::EINTR) => Err(errno),
            _ => Ok(accepted),
        }
    }

    fn ready(&self) -> bool {
        // SAFETY: only this thread, which is here, uses the completion queue.
        !unsafe { self.ring.completion_shared() }.is_empty()
    }

    fn reap(&mut self, answers: &mut Vec<Answer>) {
        let before = answers.len();
        for cqe in self.ring.completion() {
            match cqe.user_data() {
                BELL => self.armed = cqueue::more(cqe.flags()),
                user_data => answers.push(Answer { user_data, result: cqe.result() }),
            }
        }
        if let Some(polling) = self.polling.as_mut().filter(|_| answers.len() > before) {
            polling.in_flight -= (answers.len() - before).min(polling.in_flight as usize) as u32;
            polling.moved = Instant::now();
        }
        if !self.armed {
            self.arm();
        }
    }

    fn set_file(&mut self, slot: u32, fd: Option<RawFd>) -> io::Result<()> {
        let Some(known) = self.files.get_mut(slot as usize) else {
            return Ok(()); // requests name the descriptor instead
        };
        *known = false;
        self.ring.submitter().register_files_update(slot, &[fd.unwrap_or(-1)])?;
        *known = fd.is_some();
        Ok(())
    }

    fn add_buffers(&mut self, slabs: &Slabs) -> io::Result<()> {
        table::adopt(&self.ring, slabs, self.source)
    }

    fn drop_buffers(&mut self, slabs: &Slabs) -> io::Result<()> {
        table::abandon(&self.ring, slabs, self.source)
    }

    fn describe(&self) -> String {
        self.flags.join(" | ")
    }
}
