//! The queue that does nothing: every command completes at once with its full length. It measures what the engine
//! itself costs, through the same encode, slot and reap code.

use super::{Answer, Queue, Wait};
use crate::memory::Slabs;
use crate::target::Request;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// See the module.
pub struct Null {
    depth: usize,
    pushed: u32,
    answers: Vec<Answer>,
    bell: File,
}

impl Null {
    /// A queue with room for `depth` requests, woken by `bell`.
    pub fn new(depth: usize, bell: OwnedFd) -> Null {
        Null { depth, pushed: 0, answers: Vec::with_capacity(depth), bell: File::from(bell) }
    }
}

impl Queue for Null {
    fn room(&self) -> usize {
        self.depth - self.answers.len()
    }

    fn push(&mut self, request: &Request) -> bool {
        if self.answers.len() == self.depth {
            return false;
        }
        self.answers.push(Answer { user_data: request.user_data, result: request.window.len() as i32 });
        self.pushed += 1;
        true
    }

    fn enter(&mut self, wait: Wait) -> Result<u32, i32> {
        if let (true, Wait::ForOne { timeout }) = (self.answers.is_empty(), wait) {
            let timeout = timeout.map_or(PollTimeout::NONE, |t| {
                PollTimeout::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX)
            });
            let rung = poll(&mut [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)], timeout);
            if rung.is_ok_and(|fds| fds > 0) {
                // The lane may have heard the bell before its write was seen here: left unread it would ring for ever.
                let _ = (&self.bell).read(&mut [0; 8]);
            }
        }
        Ok(std::mem::take(&mut self.pushed))
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
        "null".into()
    }
}
