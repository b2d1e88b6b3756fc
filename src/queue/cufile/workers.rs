//! A few threads over cuFile's synchronous calls. Whoever submits never waits; a call that hangs holds its thread alone.

use super::mode::DIRECT_ALIGN;
use super::{Buffer, CuFile, CuFileError, Handle};
use crate::memory::lock;
use crate::target::Op;
use crate::topology::block_signals;
use crossbeam::queue::SegQueue;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One request: bytes between a file and a buffer.
#[derive(Clone, Debug)]
pub struct Job {
    /// Read or write.
    pub op: Op,
    pub handle: Arc<Handle>,
    pub buffer: Arc<Buffer>,
    /// Bytes from the buffer's base.
    pub offset_in_buffer: u64,
    pub file_offset: u64,
    pub len: usize,
    /// The submitter's; comes back in [`Done`].
    pub user: u64,
}

/// What came of a job: the bytes moved (fewer than asked: the file's end, or a place from which no aligned request goes
/// on), or what failed; then it is not known how much moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub user: u64,
    pub result: Result<usize, CuFileError>,
}

/// What a shutdown left behind. The memory of these jobs stays the device's: it is never deregistered, and may not be
/// freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// `user` of each job that is still in the library; no [`Done`] will come of it.
    pub jobs: Vec<u64>,
    /// Threads that did not end, those of the jobs among them.
    pub threads: usize,
}

/// The threads. They are made as jobs need them.
pub struct Workers {
    shared: Arc<Shared>,
}

type Callback = Box<dyn Fn() + Send + Sync>;

struct Shared {
    cufile: Arc<CuFile>,
    most: usize,
    state: Mutex<State>,
    /// There is something to do, or nothing ever again.
    more: Condvar,
    ended: Condvar,
    done: Arc<SegQueue<Done>>,
    wake: Callback,
    prepare: Callback,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    /// What each thread is at.
    threads: Vec<Doing>,
    stopping: bool,
}

enum Task {
    Io(Job),
    Call(Box<dyn FnOnce() + Send>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Idle,
    Job(u64),
    Call,
    Ended,
    LeftBehind,
}

/// How many requests are in the library at once when the caller does not say.
pub const DEFAULT_WORKERS: usize = 4;
/// How long a drop waits.
const GRACE: Duration = Duration::from_secs(5);
const STOPPED: &str = "the workers were shut down before it began";

impl Workers {
    /// At most `threads` threads (0: [`DEFAULT_WORKERS`]). Each calls `prepare` when it starts (it makes the GPU's
    /// context current), puts what came of a job into `done`, and then calls `wake`.
    pub fn new(
        cufile: &Arc<CuFile>,
        threads: usize,
        done: Arc<SegQueue<Done>>,
        wake: Callback,
        prepare: Callback,
    ) -> Workers {
        let most = if threads == 0 { DEFAULT_WORKERS } else { threads };
        let (state, more, ended) = (Mutex::default(), Condvar::new(), Condvar::new());
        let shared = Shared { cufile: cufile.clone(), most, state, more, ended, done, wake, prepare };
        Workers { shared: Arc::new(shared) }
    }

    /// Takes a job; it never waits for the library. Every job taken is answered by one [`Done`], or named by the
    /// shutdown as left behind, or handed back by [`Workers::revoke`].
    pub fn submit(&self, job: Job) -> Result<(), CuFileError> {
        const CALL: &str = "a job for cuFile";
        self.shared.cufile.check_fork(CALL)?;
        let in_file = job.file_offset.checked_add(job.len as u64).is_some_and(|end| end <= i64::MAX as u64);
        if job.op == Op::Flush || !in_file || !job.buffer.contains(job.offset_in_buffer, job.len) {
            return Err(CuFileError::refused(
                CALL,
                "it is no read or write of a range inside its buffer and the file",
            ));
        }
        self.shared.take(Task::Io(job)).map_err(|(_, error)| error)
    }

    /// Takes back the jobs that no thread has begun and that `which` says by their `user`.
    pub fn revoke(&self, mut which: impl FnMut(u64) -> bool) -> Vec<Job> {
        let mut taken = Vec::new();
        if self.shared.cufile.guard.forked() {
            return taken;
        }
        let mut state = lock(&self.shared.state);
        for task in std::mem::take(&mut state.waiting) {
            match task {
                Task::Io(job) if which(job.user) => taken.push(job),
                other => state.waiting.push_back(other),
            }
        }
        taken
    }

    /// Carries `call` out on a prepared thread and waits for it at most so long. One that comes late is dropped there:
    /// what it registered is deregistered.
    pub fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CuFileError> {
        const CALL: &str = "a call of cuFile";
        self.shared.cufile.check_fork(CALL)?;
        let (answer, answered) = sync_channel(1);
        let given_up = Arc::new(AtomicBool::new(false));
        let stale = given_up.clone();
        let begin = move || {
            if !stale.load(Ordering::Relaxed) {
                let _ = answer.send(call());
            }
        };
        self.shared.take(Task::Call(Box::new(begin))).map_err(|(_, error)| error)?;
        answered.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                given_up.store(true, Ordering::Relaxed);
                CuFileError::os(CALL, libc::ETIMEDOUT)
            }
            RecvTimeoutError::Disconnected => CuFileError::refused(CALL, STOPPED),
        })
    }

    /// Ends the threads: jobs that no thread has begun are answered with an error, the others are waited for at most
    /// so long. Threads that hang are left to themselves, with what they hold.
    #[cfg(test)]
    pub fn shutdown(self, within: Duration) -> Left {
        self.shared.stop(within)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let left = self.shared.stop(GRACE);
        if left != Left::default() {
            tracing::error!(?left, "threads of cuFile hang; their memory is kept");
        }
    }
}

impl Shared {
    fn take(self: &Arc<Shared>, task: Task) -> Result<(), (Task, CuFileError)> {
        let mut state = lock(&self.state);
        if state.stopping {
            return Err((task, CuFileError::refused("cuFile", STOPPED)));
        }
        let idle = state.threads.iter().filter(|doing| **doing == Doing::Idle).count();
        if state.waiting.len() >= idle && state.threads.len() < self.most {
            let (number, shared) = (state.threads.len(), self.clone());
            let thread = std::thread::Builder::new().name(format!("fullbore-gds-{number}"));
            match thread.spawn(move || work(&shared, number)) {
                Ok(_) => state.threads.push(Doing::Idle),
                Err(e) if state.threads.is_empty() => {
                    let errno = e.raw_os_error().unwrap_or(libc::EAGAIN);
                    return Err((task, CuFileError::os("a thread for cuFile (see ulimit -u)", errno)));
                }
                Err(_) => {} // those there are do it
            }
        }
        state.waiting.push_back(task);
        self.more.notify_one();
        Ok(())
    }

    /// What thread `number` shall do next; None: end.
    fn next(&self, number: usize) -> Option<Task> {
        let mut state = lock(&self.state);
        loop {
            if state.stopping {
                state.threads[number] = Doing::Ended;
                self.ended.notify_all();
                return None;
            }
            if let Some(task) = state.waiting.pop_front() {
                state.threads[number] = match &task {
                    Task::Io(job) => Doing::Job(job.user),
                    Task::Call(_) => Doing::Call,
                };
                return Some(task);
            }
            state.threads[number] = Doing::Idle;
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers a job, unless the shutdown has already told that it was left behind.
    fn answer(&self, number: usize, job: Job, result: Result<usize, CuFileError>) {
        if lock(&self.state).threads[number] == Doing::LeftBehind {
            return std::mem::forget(job);
        }
        // First, so that whoever has the answer has the last of both. Not under the lock: it may deregister.
        let user = job.user;
        drop(job);
        let state = lock(&self.state);
        if state.threads[number] != Doing::LeftBehind {
            self.done.push(Done { user, result });
            drop(state);
            calmly(&self.wake);
        }
    }

    fn stop(&self, within: Duration) -> Left {
        if self.cufile.guard.forked() {
            return Left::default(); // the threads are the parent's
        }
        let mut state = lock(&self.state);
        state.stopping = true;
        let waiting = std::mem::take(&mut state.waiting);
        self.more.notify_all();
        drop(state);
        self.turn_away(waiting);
        let until = Instant::now() + within;
        let mut state = lock(&self.state);
        let mut left = Left::default();
        loop {
            let working = |doing: &&Doing| !matches!(doing, Doing::Ended | Doing::LeftBehind);
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || !state.threads.iter().any(|doing| working(&doing)) {
                break;
            }
            state = self.ended.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        for doing in &mut state.threads {
            if let Doing::Job(user) = *doing {
                left.jobs.push(user);
            }
            if !matches!(*doing, Doing::Ended | Doing::LeftBehind) {
                left.threads += 1;
                *doing = Doing::LeftBehind;
            }
        }
        left
    }

    fn turn_away(&self, waiting: VecDeque<Task>) {
        let mut any = false;
        for task in waiting {
            // A call's waiter learns it by the end of its channel.
            let Task::Io(job) = task else { continue };
            let user = job.user;
            drop(job);
            self.done.push(Done { user, result: Err(CuFileError::refused("cuFile", STOPPED)) });
            any = true;
        }
        if any {
            calmly(&self.wake);
        }
    }
}

fn work(shared: &Shared, number: usize) {
    block_signals();
    let prepared = calmly(&shared.prepare).is_some();
    while let Some(task) = shared.next(number) {
        match task {
            Task::Call(call) => drop(calmly(call)),
            Task::Io(job) => {
                let why = if prepared { "it panicked" } else { "its thread's preparation panicked" };
                let result = if prepared { calmly(|| job.run()) } else { None };
                let failed = CuFileError::refused("cuFile", why);
                shared.answer(number, job, result.unwrap_or(Err(failed)));
            }
        }
    }
}

/// None: it panicked. Others' code must not end a thread that holds a job.
fn calmly<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

impl Job {
    /// Goes on after a short result as long as it leads to an aligned place.
    fn run(&self) -> Result<usize, CuFileError> {
        let mut moved = 0;
        while moved < self.len {
            let done = moved as u64;
            let (at, file_offset) = (self.offset_in_buffer + done, self.file_offset + done);
            let now = self.handle.io(self.op, &self.buffer, at, file_offset, self.len - moved)?;
            moved += now;
            if now == 0 || !(now as u64).is_multiple_of(DIRECT_ALIGN) {
                break;
            }
        }
        Ok(moved)
    }
}
