//! The thread of a lane: it makes its queue, runs the loop, and leaves nobody waiting when it ends.

use super::bell::Bell;
use super::core::Core;
use super::gpu::{GpuLane, GpuSpec};
use super::inbox::{Control, Inbox};
use super::lane_loop::{Lane, LaneOptions};
use super::slots::Stop;
use crate::error::{Error, ErrorKind};
use crate::queue::cuda::Mover;
use crate::queue::{Local, Queue, Uring, UringOptions, Work};
use crate::topology::{CpuSet, block_signals, pin_current_thread};
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a lane drives.
pub enum QueueKind {
    /// io_uring; registered buffers are cloned from this ring, if there is one.
    Uring { source: Option<RawFd>, polled: bool },
    /// The lane's own thread, which carries commands out by this.
    Local { work: Work },
    /// A GPU's copy engines.
    Gpu(Box<(GpuSpec, Mover)>),
}

/// A loop that a lane's thread runs.
pub trait Turns {
    fn shared(&self) -> (Arc<Core>, Arc<Inbox>);

    /// One turn. False: it was told to stop and nothing is left to do; `Err(errno)`: what it drives is broken.
    fn step(&mut self) -> Result<bool, i32>;

    /// Fails everything that is left and waits at most `grace` for what is in flight. True: all of it drained.
    fn drain(&mut self, grace: Duration, reason: Stop) -> bool;

    /// Leaves behind for ever what did not drain, and tells those who wait.
    fn leak(self);
}

/// A running lane, as its engine holds it.
pub struct LaneThread {
    pub inbox: Arc<Inbox>,
    /// The ring's flags, or what kept the thread off its CPUs.
    pub description: String,
    /// Behind a mutex only to be `Sync`: threads share an engine.
    ended: Mutex<Receiver<()>>,
    handle: Option<std::thread::JoinHandle<()>>,
}

/// What a lane thread is started with.
pub struct LaneSpec {
    pub number: usize,
    pub kind: QueueKind,
    pub options: LaneOptions,
    pub cpus: CpuSet,
    pub grace: Duration,
}

impl LaneThread {
    /// Starts a lane and waits until its queue is made.
    pub fn start(core: &Arc<Core>, spec: LaneSpec) -> Result<LaneThread, Error> {
        let polled = matches!(spec.kind, QueueKind::Uring { polled: true, .. });
        let bell = if polled { Ok(Bell::of_thread()) } else { Bell::new() };
        let bell =
            bell.map_err(|e| Error::io("cannot make an eventfd; raise the open files (ulimit -n)", &e))?;
        // A GPU's lane has more in hand than its bounce buffers: all of it is counted.
        let depth = match &spec.kind {
            QueueKind::Gpu(gpu) => gpu.0.slots(),
            _ => spec.options.depth,
        };
        let mut inbox = Inbox::new(core.table.len(), depth, bell);
        inbox.number = spec.number as u32;
        inbox.has_ring = matches!(spec.kind, QueueKind::Uring { .. });
        let inbox = Arc::new(inbox);
        let (ready, started) = channel();
        let (ending, ended) = channel();
        let (core, shared) = (core.clone(), inbox.clone());
        let handle = std::thread::Builder::new()
            .name(format!("fullbore-{}", spec.number))
            .spawn(move || body(core, shared, spec, ready, ending))
            .map_err(|e| {
                let message = "cannot start a lane thread; raise the limit (ulimit -u)";
                Error::io(message, &e).with_kind(ErrorKind::Resource)
            })?;
        match started.recv() {
            Ok(Ok(description)) => {
                let (ended, handle) = (Mutex::new(ended), Some(handle));
                Ok(LaneThread { inbox, description, ended, handle })
            }
            Ok(Err(error)) => Err(explain_ring(&error)),
            Err(_) => Err(Error::os(
                "a lane thread died while it was made; see the log, and please report it",
                libc::EOWNERDEAD,
            )),
        }
    }

    /// Asks the lane to drain and end.
    pub fn stop(&self) {
        self.inbox.send(Control::Stop);
    }

    /// Waits for its end. False: it did not end in time, and is left to itself.
    pub fn join(&mut self, within: Duration) -> bool {
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(within) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        if self.inbox.leaked.load(Ordering::SeqCst) {
            return false; // its thread may wait in the kernel for what did not drain
        }
        self.handle.take().is_none_or(|handle| handle.join().is_ok())
    }
}

/// Why a ring was refused, and what helps.
pub fn explain_ring(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::io(
            "io_uring is refused: by seccomp (a container's default profile does; allow io_uring_setup, \
             io_uring_enter and io_uring_register) or by sysctl kernel.io_uring_disabled (set it to 0)",
            error,
        ),
        Some(libc::EINVAL) => Error::io(
            "the kernel has no ring of this form (SQE128, CQE32; Linux 5.19 has); run a newer kernel",
            error,
        )
        .with_kind(ErrorKind::Unsupported),
        Some(libc::ENOSYS) => Error::io(
            "this kernel has no io_uring, or seccomp hides it; run 5.19 or later, or allow io_uring_setup",
            error,
        ),
        Some(libc::ENOMEM) => Error::io(
            "no memory for a ring: the memlock limit is too low (ulimit -l; 64 MiB is plenty for rings)",
            error,
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            Error::io("no descriptor left for a ring; raise the limit (ulimit -n)", error)
        }
        _ => Error::io("cannot make a ring; see the kernel's log and the limits (ulimit -l, -n)", error),
    }
}

type Ready = Sender<io::Result<String>>;

fn body(core: Arc<Core>, inbox: Arc<Inbox>, spec: LaneSpec, ready: Ready, ending: Sender<()>) {
    block_signals();
    let pinned = pin_current_thread(&spec.cpus);
    inbox.tid.store(nix::unistd::gettid().as_raw() as u32, Ordering::Relaxed);
    inbox.bell.is_mine();
    let bell = match inbox.bell.fd().map(|fd| fd.try_clone_to_owned()) {
        Some(Ok(bell)) => Some(bell),
        Some(Err(error)) => return drop(ready.send(Err(error))),
        None => None,
    };
    let note = pinned.err().map_or(String::new(), |e| format!("; not on its CPUs: {e}"));
    let (options, number, grace) = (spec.options, spec.number, spec.grace);
    match (spec.kind, bell) {
        (QueueKind::Local { work }, Some(bell)) => {
            let lane = over(core, inbox, options, Ok(Local::new(options.depth, work, bell)));
            run(lane, note, (number, grace), ready);
        }
        (QueueKind::Gpu(gpu), Some(bell)) => {
            let (spec, mover) = *gpu;
            let name = format!("copy engines of {}", spec.gpu.name);
            let lane = GpuLane::new(core, inbox, spec, mover, bell).map(|lane| (lane, name));
            run(lane, note, (number, grace), ready);
        }
        // A lane whose bell has no descriptor polls.
        (QueueKind::Uring { source, .. }, bell) => {
            let ring = Uring::new(UringOptions { depth: options.depth as u32, source }, bell);
            run(over(core, inbox, options, ring), note, (number, grace), ready);
        }
        (_, None) => drop(ready.send(Err(io::ErrorKind::InvalidInput.into()))),
    }
    drop(ending);
}

/// A lane over a queue, and what people read of it.
fn over<Q: Queue>(
    core: Arc<Core>,
    inbox: Arc<Inbox>,
    options: LaneOptions,
    queue: io::Result<Q>,
) -> io::Result<(Lane<Q>, String)> {
    let queue = queue?;
    let description = queue.describe();
    Ok((Lane::new(core, inbox, queue, options)?, description))
}

/// Runs a lane to its end, once it is made.
fn run<L: Turns>(
    made: io::Result<(L, String)>,
    note: String,
    (number, grace): (usize, Duration),
    ready: Ready,
) {
    let (mut lane, description) = match made {
        Ok(made) => made,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(description + &note));
    let reason = match catch_unwind(AssertUnwindSafe(|| turn(&mut lane))) {
        Ok(Ok(())) => Stop::Shutdown,
        Ok(Err(errno)) => {
            tracing::error!(errno, lane = number, "what it drives is broken; the lane ends");
            Stop::LaneFailed
        }
        Err(_) => {
            tracing::error!(lane = number, "the lane panicked; it drains and ends");
            Stop::LaneFailed
        }
    };
    let drained = catch_unwind(AssertUnwindSafe(|| lane.drain(grace, reason))).unwrap_or(false);
    part(lane, drained, reason);
}

/// Drops a lane that drained, leaves another behind, and leaves nobody waiting for it. The simulation ends its lanes
/// by this too.
pub(super) fn part<L: Turns>(lane: L, drained: bool, reason: Stop) {
    let (core, inbox) = lane.shared();
    if drained {
        drop(lane);
    } else {
        inbox.leaked.store(true, Ordering::SeqCst);
        lane.leak();
    }
    inbox.died.store(core.clock.now(), Ordering::SeqCst);
    for handle in inbox.die() {
        core.stop(handle, reason);
    }
}

fn turn<L: Turns>(lane: &mut L) -> Result<(), i32> {
    while lane.step()? {}
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[path = "thread_tests.rs"]
mod tests;
