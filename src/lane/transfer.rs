//! What a caller submits.

use crate::error::Error;
use crate::lane::{Marks, Path};
use crate::memory::{HostLease, Mem, Window};
use crate::target::{Op, TargetInner};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// Four classes. A lower one gets at least one command in sixteen while higher ones have work; of GPU memory, one piece of
/// at most a bounce buffer's bytes (or twice as many, out of a mapping).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Before all others.
    Urgent = 0,
    /// Before normal ones.
    High = 1,
    /// The default.
    #[default]
    Normal = 2,
    /// When nobody else wants to.
    Low = 3,
}

/// A byte range of the target and as much memory.
#[derive(Debug)]
pub struct Extent {
    offset: u64,
    mem: Mem,
    bytes: AtomicU64,
    errno: AtomicI32,
}

impl Extent {
    /// First byte on the target.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Aims the extent at another place of the target, to submit it again without an allocation.
    pub fn set_offset(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // an extent is never empty
    pub fn len(&self) -> u64 {
        self.mem.len() as u64
    }

    /// Bytes that were moved: the sum of the commands that succeeded, not a prefix.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether all of it was moved.
    pub fn succeeded(&self) -> bool {
        self.bytes() == self.len()
    }

    /// The positive errno of the first failure in it.
    pub fn error(&self) -> Option<i32> {
        Some(self.errno.load(Ordering::Relaxed)).filter(|errno| *errno != 0)
    }

    /// Its memory.
    pub fn mem(&self) -> &Mem {
        &self.mem
    }

    /// Its memory, to read or fill.
    pub fn mem_mut(&mut self) -> &mut Mem {
        &mut self.mem
    }

    /// Its memory, taken out.
    pub fn into_mem(self) -> Mem {
        self.mem
    }

    pub(crate) fn window(&self) -> Window {
        self.mem.range().window()
    }

    pub(crate) fn outcome(&self) -> (&AtomicU64, &AtomicI32) {
        (&self.bytes, &self.errno)
    }
}

/// A read or a write of any number of extents of one target.
#[derive(Debug)]
pub struct Transfer {
    pub(crate) op: Op,
    pub(crate) target: Arc<TargetInner>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) trace_id: u32,
    pub(crate) priority: Priority,
    pub(crate) deadline: Deadline,
    pub(crate) durable: bool,
    pub(crate) require: Option<Path>,
    pub(crate) marks: Option<Marks>,
}

/// How long a transfer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// As the engine was built.
    Engine,
    /// From submission.
    After(Duration),
    /// For ever.
    None,
}

impl Transfer {
    pub(crate) fn new(op: Op, target: Arc<TargetInner>) -> Transfer {
        Transfer {
            op,
            target,
            extents: Vec::new(),
            trace_id: 0,
            priority: Priority::Normal,
            deadline: Deadline::Engine,
            durable: false,
            require: None,
            marks: None,
        }
    }

    /// Adds an extent: as many bytes at `offset` of the target as `mem` has.
    pub fn extent(mut self, offset: u64, mem: impl Into<Mem>) -> Transfer {
        self.push(offset, mem);
        self
    }

    /// Adds an extent in place.
    pub fn push(&mut self, offset: u64, mem: impl Into<Mem>) {
        let (bytes, errno) = (AtomicU64::new(0), AtomicI32::new(0));
        self.extents.push(Extent { offset, mem: mem.into(), bytes, errno });
    }

    /// A number that tracers see in the high half of each command's user_data.
    pub fn trace_id(mut self, trace_id: u32) -> Transfer {
        self.trace_id = trace_id;
        self
    }

    /// Its class (default: normal).
    pub fn priority(mut self, priority: Priority) -> Transfer {
        self.priority = priority;
        self
    }

    /// How long it may take from submission on (default: the engine's, 30 s).
    pub fn deadline(mut self, after: Duration) -> Transfer {
        self.deadline = Deadline::After(after);
        self
    }

    /// Lets it take for ever.
    pub fn no_deadline(mut self) -> Transfer {
        self.deadline = Deadline::None;
        self
    }

    /// A write is completed only after the target was flushed behind it.
    pub fn durable(mut self) -> Transfer {
        self.durable = true;
        self
    }

    /// Demands a path: if another would run, submission is an error (`PathUnavailable`), which says why, and the transfer
    /// comes back. Of GPU memory it is the path between target and GPU: `PinnedBounce`, `DaxToGpu`, `CuFile`, or
    /// `CuFileCompat`, which also needs an engine built with [`crate::CuFileUse::Asked`].
    pub fn require(mut self, path: Path) -> Transfer {
        self.require = Some(path);
        self
    }

    /// Has marks land while it is under way, one behind each of some extents. One that it has no extent for is refused at
    /// submission (`InvalidInput`), and so are marks of another transfer under way (`InUse`).
    pub fn marks(mut self, marks: &Marks) -> Transfer {
        self.marks = Some(marks.clone());
        self
    }

    /// Its extents, with what came of each.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Its extents, to be aimed anew or filled.
    pub fn extents_mut(&mut self) -> &mut [Extent] {
        &mut self.extents
    }

    /// Its extents, taken out.
    pub fn into_extents(self) -> Vec<Extent> {
        self.extents
    }

    /// Its leases, taken out, in the order of the extents. Extents over a [`crate::RegionRange`] give none; see
    /// [`Transfer::into_extents`].
    pub fn into_leases(self) -> Vec<HostLease> {
        self.extents.into_iter().filter_map(|extent| extent.into_mem().into_host()).collect()
    }

    pub(crate) fn clear_outcomes(&mut self) {
        for extent in &mut self.extents {
            (*extent.bytes.get_mut(), *extent.errno.get_mut()) = (0, 0);
        }
    }
}

/// What came of a transfer.
#[derive(Debug)]
pub struct Completion {
    /// Whether all of it was moved; else the first failed range and why.
    pub result: Result<(), Error>,
    /// Bytes moved, over all extents.
    pub bytes: u64,
    /// When what happened.
    pub times: Times,
    /// The paths its commands took.
    pub paths: crate::lane::PathSet,
    /// The transfer with its leases. `None` if it was abandoned (late results may still land in its memory), for raw
    /// transfers and flushes, which have none, and in a forked child.
    pub transfer: Option<Transfer>,
    /// The caller's number.
    pub tag: u64,
}

impl Completion {
    /// What one wants after a load: the leases, and in them the bytes, in the order of the extents. Extents over a
    /// [`crate::RegionRange`], such as all of GPU memory, give none: look at `result`, and take the `transfer` apart.
    ///
    /// # Errors
    /// The transfer's, when not all of it was moved; the leases then go back to their region. To keep them, look at
    /// `result` and take the `transfer`.
    pub fn into_leases(self) -> Result<Vec<HostLease>, Error> {
        self.result?;
        Ok(self.transfer.map_or_else(Vec::new, Transfer::into_leases))
    }

    /// Of a transfer that nothing more will be heard of here.
    pub(crate) fn unheard(error: Error) -> Completion {
        let (times, paths) = (Times::default(), crate::lane::PathSet::default());
        Completion { result: Err(error), bytes: 0, times, paths, transfer: None, tag: 0 }
    }
}

/// When what happened to a transfer. Measured where the lane issued and reaped, not where calls were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From submission to the first command.
    pub queued: Duration,
    /// How long nothing of it was under way: `queued`, and of GPU memory what it waited later for a bounce buffer, or for
    /// room in the copy engine.
    pub waited: Duration,
    /// Of GPU memory: how long copies to or from the GPU were under way, and nothing of it was with the target. Copies that run
    /// while the target moves another part of it cost no time of their own, and count for nothing here; those that cuFile makes
    /// cannot be told from its I/O.
    pub copied: Duration,
    /// From submission to the last result.
    pub total: Duration,
}

impl Times {
    /// How long some of it was with the target: what `waited` and `copied` leave of `total`.
    pub fn on_target(&self) -> Duration {
        self.total.saturating_sub(self.waited + self.copied)
    }
}
