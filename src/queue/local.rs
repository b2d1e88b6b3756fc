//! Queues without a ring, whose commands the lane's own thread carries out: the null queue, which does nothing and
//! measures what the engine itself costs, and copies from and to mapped memory.

use super::{Answer, Queue, Wait};
use crate::memory::Slabs;
use crate::memory::copy::{Copied, stream};
use crate::target::{Op, Request};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Carries out requests.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// For people.
    pub name: &'static str,
    /// Answers a length or a negative errno.
    run: fn(&Request) -> i32,
}

/// Does nothing, and says that all is done.
pub const NOTHING: Work = Work { name: "null", run: |request| request.window.len() as i32 };

/// Copies from the target's mapping, or to it.
pub const COPY: Work = Work { name: "copy", run: copy };

/// See the module.
pub struct Local {
    depth: usize,
    work: Work,
    pushed: Vec<Request>,
    answers: Vec<Answer>,
    bell: BellWait,
}

/// Has the calling thread's sleeps end on time: by default the kernel may make them 50 us longer.
pub fn fine_timers() {
    // SAFETY: a number for the calling thread; no memory is passed.
    let rc = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000, 0, 0, 0) };
    if rc != 0 {
        tracing::debug!(error = %io::Error::last_os_error(), "timers of a lane stay coarse");
    }
}

/// How a thread without a ring waits for its bell.
pub struct BellWait(File);

impl BellWait {
    pub fn new(bell: OwnedFd) -> BellWait {
        BellWait(File::from(bell))
    }

    /// Sleeps until the bell rings, at most `most`.
    pub fn wait(&self, most: Option<Duration>) {
        let rung = ppoll(
            &mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)],
            most.map(TimeSpec::from_duration),
            None,
        );
        if rung.is_ok_and(|fds| fds > 0) {
            // The lane may have heard the bell before its write was seen here: left unread it would ring for ever.
            let _ = (&self.0).read(&mut [0; 8]);
        }
    }
}

/// A length; 0: some of it was not there.
fn copy(request: &Request) -> i32 {
    let copied = match request.op {
        Op::Read => stream(request.window, request.mapped),
        Op::Write => stream(request.mapped, request.window),
        Op::Flush => return -sync(request.file.fd),
    };
    match copied {
        // What was there of the mapping: all of it, as submission has seen to.
        Copied::Whole => request.window.len().min(request.mapped.len()) as i32,
        Copied::NotThere => 0,
        Copied::Poisoned => -libc::EIO,
    }
}

/// Has the kernel write out what was stored through a mapping of the file; answers an errno.
fn sync(fd: RawFd) -> i32 {
    if fd < 0 {
        // A device: streaming stores have left nothing to write out. Other CPUs' copies go through their caches.
        return if cfg!(target_arch = "x86_64") { 0 } else { libc::EOPNOTSUPP };
    }
    // SAFETY: no memory is passed, and the transfer keeps its target's file open.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    nix::unistd::fdatasync(file).err().map_or(0, |errno| errno as i32)
}

impl Local {
    /// A queue with room for `depth` requests, each carried out by `work`, woken by `bell`.
    pub fn new(depth: usize, work: Work, bell: OwnedFd) -> Local {
        let (pushed, answers) = (Vec::with_capacity(depth), Vec::with_capacity(depth));
        Local { depth, work, pushed, answers, bell: BellWait::new(bell) }
    }
}

impl Queue for Local {
    fn room(&self) -> usize {
        self.depth - self.pushed.len() - self.answers.len()
    }

    fn push(&mut self, request: &Request) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.pushed.push(*request);
        true
    }

    fn enter(&mut self, wait: Wait) -> Result<u32, i32> {
        let idle = self.answers.is_empty() && self.pushed.is_empty();
        if let (true, Wait::ForOne { timeout }) = (idle, wait) {
            self.bell.wait(timeout);
        }
        let accepted = self.pushed.len() as u32;
        for request in self.pushed.drain(..) {
            self.answers.push(Answer { user_data: request.user_data, result: (self.work.run)(&request) });
        }
        Ok(accepted)
    }

    fn ready(&self) -> bool {
        !self.answers.is_empty()
    }

    fn reap(&mut self, answers: &mut Vec<Answer>) {
        answers.append(&mut self.answers);
    }

    fn set_file(&mut self, _slot: u32, _fd: Option<RawFd>) -> io::Result<()> {
        Ok(())
    }

    fn add_buffers(&mut self, _slabs: &Slabs) -> io::Result<()> {
        Ok(())
    }

    fn drop_buffers(&mut self, _slabs: &Slabs) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        self.work.name.into()
    }
}
