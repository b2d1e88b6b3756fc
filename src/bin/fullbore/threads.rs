//! Threads that all run, or none: where one cannot be started, the others must not wait for it at a barrier.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::failure::Failure;

/// A thread that waits for its work. Dropped without any, it ends.
pub struct Seat<'scope, J, R> {
    start: Sender<J>,
    thread: ScopedJoinHandle<'scope, Option<R>>,
}

impl<'scope, J: Send + 'scope, R: Send + 'scope> Seat<'scope, J, R> {
    pub fn new<'env>(
        scope: &'scope Scope<'scope, 'env>,
        work: impl FnOnce(J) -> R + Send + 'scope,
    ) -> Result<Self, Failure> {
        let (start, job) = mpsc::channel();
        let thread = Builder::new().spawn_scoped(scope, move || job.recv().ok().map(work));
        Ok(Self { start, thread: thread.map_err(refused)? })
    }

    pub fn work(self, job: J) -> Working<'scope, R> {
        // It is there until it has got something.
        let _ = self.start.send(job);
        Working(self.thread)
    }
}

/// A thread at work.
pub struct Working<'scope, R>(ScopedJoinHandle<'scope, Option<R>>);

impl<R> Working<'_, R> {
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// What came of it. A panic there goes on here.
    pub fn join(self) -> Result<R, Failure> {
        let end = self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        end.ok_or_else(|| Failure::setup("a thread ended before it had any work: report this"))
    }
}

/// Why a thread could not be started.
pub fn refused(error: io::Error) -> Failure {
    Failure::Setup(format!(
        "a thread cannot be started: {error}: raise the limit (ulimit -u, or pids.max of the control group), or lower numjobs"
    ))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Seat;

    #[test]
    fn a_seat_works_once_and_one_without_work_ends() {
        let sum = thread::scope(|scope| {
            let seat = Seat::new(scope, |number: u32| number + 1).unwrap();
            drop(Seat::new(scope, |number: u32| number + 1).unwrap());
            seat.work(2).join().unwrap()
        });
        assert_eq!(sum, 3);
    }
}
