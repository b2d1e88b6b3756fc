//! Marks: points in a transfer that its submitter hears of, in order, before the transfer ends.

use crate::error::{Error, ErrorKind};
use crate::memory::cuda::{Word, Words};
use crate::memory::{ForkGuard, lock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Points in a transfer, each behind an extent. One *has landed* when the bytes of every extent up to and with it are
/// where they belong (of GPU memory: in the GPU), so that a model can start on its first layers while the others load.
/// Of a write it means that the target took them, not that they are durable.
///
/// It belongs to one transfer under way at a time, and may then be given to the next. Clones are the same marks.
///
/// ```
/// use fullbore::{Engine, Marks, OpenOptions, Transfer};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = std::env::temp_dir().join(format!("fullbore-marks-{}", std::process::id()));
/// # std::fs::write(&file, vec![7u8; 4 << 20])?;
/// # let engine = Engine::builder().build()?;
/// # let drive = engine.open(&file, OpenOptions::read().buffered())?;
/// # let pool = engine.alloc_host(4 << 20)?; // or alloc_gpu, register_cuda
/// # let client = engine.client()?;
/// # let layer = 1 << 20;
/// let marks = Marks::after([0, 3])?; // after the first layer, and after all four
/// let mut load = Transfer::read(&drive).marks(&marks);
/// for i in 0..4 {
///     load.push((i * layer) as u64, pool.range(i * layer..(i + 1) * layer)?);
/// }
/// let ticket = client.submit(load)?;
/// marks.wait(0, Duration::from_secs(30))?; // mark 0: start on the first layer
/// marks.wait(1, Duration::from_secs(30))?; // mark 1: all of them
/// ticket.wait()?.result?;
/// # std::fs::remove_file(&file)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Marks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The last extent of each mark, ascending.
    after: Box<[u32]>,
    /// Bytes that have not landed of the extents from the mark before up to each.
    missing: Box<[AtomicU64]>,
    /// A transfer under way, or one that was abandoned, counts here.
    taken: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// What streams wait on, once one does.
    word: OnceLock<Word>,
    /// The process that made them. In a forked child a lane may hold the lock for ever.
    fork: Option<ForkGuard>,
}

#[derive(Debug, Default)]
struct State {
    /// How many have landed, in order.
    landed: usize,
    /// The transfer is over: what has not landed does not.
    ended: bool,
    /// Woken whenever one of the two changes.
    waker: Option<Waker>,
}

impl Marks {
    /// Marks behind those extents of a transfer, by number, in ascending order.
    ///
    /// # Errors
    /// `InvalidInput`: none, or not ascending.
    pub fn after(extents: impl IntoIterator<Item = u32>) -> Result<Marks, Error> {
        let after: Box<[u32]> = extents.into_iter().collect();
        if after.is_empty() || !after.is_sorted_by(|a, b| a < b) {
            let message =
                "marks are numbers of extents, at least one, in ascending order, none twice; sort them";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let missing = after.iter().map(|_| AtomicU64::new(0)).collect();
        let (taken, state) = (AtomicBool::new(false), Mutex::default());
        Ok(Marks(Arc::new(Inner {
            after,
            missing,
            taken,
            state,
            changed: Condvar::new(),
            word: OnceLock::new(),
            fork: ForkGuard::new().ok(),
        })))
    }

    /// Has `waker` woken whenever a mark lands and when the transfer ends, until another takes its place: for event loops,
    /// with a waker that writes to an eventfd, say. It is woken by a lane's thread: it must not block.
    pub fn set_waker(&self, waker: Option<Waker>) {
        if self.check_fork().is_err() {
            return;
        }
        lock(&self.0.state).waker = waker;
    }

    /// Whether the transfer that they were given to last is over: what has not landed does not.
    pub fn ended(&self) -> bool {
        self.check_fork().is_err() || lock(&self.0.state).ended
    }

    /// How many of them have landed, in order, of the transfer under way or of the last one; 0 before the first.
    pub fn landed(&self) -> usize {
        self.check_fork().map_or(0, |()| lock(&self.0.state).landed)
    }

    /// Refuses what a forked child may not do: the lanes that would tell it are the parent's.
    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        self.0.fork.map_or(Ok(()), |fork| fork.check())
    }

    /// Waits at most `within` until mark number `mark`, counted from 0, has landed. Submit first: before, it waits for
    /// nothing, or answers for the transfer that had the marks last.
    ///
    /// # Errors
    /// `TimedOut`: it has not in that time. `Cancelled`: the transfer ended without it; its completion says why.
    /// `InvalidInput`: there is no such mark. `Forked` in a forked child, where they count as ended with none landed.
    pub fn wait(&self, mark: usize, within: Duration) -> Result<(), Error> {
        self.check_fork()?;
        self.check(mark)?;
        let until = Instant::now().checked_add(within);
        let mut state = lock(&self.0.state);
        loop {
            if state.landed > mark {
                return Ok(());
            }
            if state.ended {
                let message = "the transfer ended before the mark had landed; see its completion";
                return Err(Error::new(ErrorKind::Cancelled, message));
            }
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let message =
                    "the mark has not landed in that time; wait longer, or see the transfer's completion";
                return Err(Error::new(ErrorKind::TimedOut, message));
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The word that streams of a GPU wait on for these marks, taken when the first one does.
    pub(crate) fn word(&self, words: &Arc<Words>) -> Result<&Word, Error> {
        self.check_fork()?;
        let state = lock(&self.0.state);
        if self.0.word.get().is_none() {
            let word = words.take().ok_or_else(|| {
                let message = "1024 sets of marks have streams waiting already; drop some";
                Error::new(ErrorKind::Resource, message)
            })?;
            word.reach(if state.ended { self.0.after.len() } else { state.landed });
            let _ = self.0.word.set(word);
        }
        let gone = "the marks' word is gone: a defect of this library; please report it";
        self.0.word.get().ok_or_else(|| Error::new(ErrorKind::Resource, gone))
    }

    pub(crate) fn check(&self, mark: usize) -> Result<(), Error> {
        if mark < self.0.after.len() {
            return Ok(());
        }
        let message = format!(
            "there is no mark {mark}: marks are counted from 0, up to {} here",
            self.0.after.len() - 1
        );
        Err(Error::new(ErrorKind::InvalidInput, message))
    }

    /// A transfer is about to start, whose extents have these lengths.
    pub(crate) fn begin(&self, lens: impl ExactSizeIterator<Item = u64>) -> Result<(), Error> {
        let inner = &self.0;
        if let Some(last) = inner.after.last().filter(|last| **last as usize >= lens.len()) {
            let message = format!(
                "a mark lies behind extent {last}, and the transfer has {}, counted from 0; give marks of its extents",
                lens.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        if inner.taken.swap(true, Ordering::AcqRel) {
            let message = "the marks belong to a transfer under way; make others, or wait for its completion";
            return Err(Error::new(ErrorKind::InUse, message));
        }
        inner.missing.iter().for_each(|missing| missing.store(0, Ordering::Relaxed));
        for (extent, len) in lens.enumerate() {
            if let Some(missing) = inner.missing.get(inner.mark_of(extent as u32)) {
                missing.fetch_add(len, Ordering::Relaxed);
            }
        }
        let mut state = lock(&inner.state);
        (state.landed, state.ended) = (0, false);
        inner.word.get().into_iter().for_each(Word::restart);
        Ok(())
    }

    /// Bytes of an extent have landed.
    pub(crate) fn credit(&self, extent: u32, bytes: u64) {
        let Some(missing) = self.0.missing.get(self.0.mark_of(extent)) else { return };
        if bytes > 0 && missing.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            self.0.advance();
        }
    }

    /// The transfer is over for those who wait.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.0.state);
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        self.0.word.get().into_iter().for_each(|word| word.reach(self.0.after.len()));
        self.0.tell(state);
    }

    /// Nothing of the transfer counts here any more: another one may have the marks.
    pub(crate) fn release(&self) {
        self.end();
        self.0.taken.store(false, Ordering::Release);
    }
}

impl Inner {
    /// The mark that an extent counts for; past the last, none.
    fn mark_of(&self, extent: u32) -> usize {
        self.after.partition_point(|last| *last < extent)
    }

    fn advance(&self) {
        let mut state = lock(&self.state);
        if state.ended {
            return; // late, of an abandoned transfer
        }
        let complete = |mark: &AtomicU64| mark.load(Ordering::Acquire) == 0;
        let before = state.landed;
        while self.missing.get(state.landed).is_some_and(complete) {
            state.landed += 1;
        }
        if state.landed > before {
            self.word.get().into_iter().for_each(|word| word.reach(state.landed));
            self.tell(state);
        }
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let waker = state.waker.clone();
        drop(state);
        self.changed.notify_all();
        // A waker may be anyone's code: its panic must not end a lane.
        let _ = catch_unwind(AssertUnwindSafe(|| waker.map(Waker::wake)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const NOW: Duration = Duration::ZERO;

    struct Count(Arc<AtomicUsize>);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn marks_land_in_order() {
        let marks = Marks::after([1, 2]).expect("marks");
        marks.begin([10, 10, 10, 10].into_iter()).expect("free");
        let woken = Arc::new(AtomicUsize::new(0));
        marks.set_waker(Some(Waker::from(Arc::new(Count(woken.clone())))));
        marks.credit(2, 10);
        assert_eq!(marks.landed(), 0, "the second waits for the first");
        marks.credit(0, 10);
        marks.credit(1, 4);
        assert_eq!(marks.wait(0, NOW).unwrap_err().kind(), ErrorKind::TimedOut);
        marks.credit(1, 6);
        assert_eq!(marks.landed(), 2);
        marks.wait(1, NOW).expect("landed");
        marks.credit(3, 10); // behind the last
        assert_eq!(
            (woken.load(Ordering::Relaxed), marks.ended()),
            (1, false),
            "by the two that landed at once"
        );
        marks.release();
        assert_eq!((woken.load(Ordering::Relaxed), marks.ended()), (2, true));
        assert_eq!(marks.landed(), 2, "until the next transfer");
        marks.begin([1, 1, 1].into_iter()).expect("free again");
        assert_eq!(marks.landed(), 0);
        assert_eq!(marks.begin([1, 1, 1].into_iter()).unwrap_err().kind(), ErrorKind::InUse);
        marks.end();
        marks.credit(0, 1);
        marks.credit(1, 1);
        assert_eq!(marks.landed(), 0, "late results of an abandoned transfer do not count");
        assert_eq!(marks.wait(0, NOW).unwrap_err().kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn senseless_marks_are_refused() {
        for bad in [vec![], vec![1, 1], vec![2, 1]] {
            assert_eq!(Marks::after(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let marks = Marks::after([3]).expect("marks");
        assert_eq!(marks.begin([1, 1, 1].into_iter()).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(marks.wait(1, NOW).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
