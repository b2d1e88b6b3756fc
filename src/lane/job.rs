//! A transfer as lanes see it: the body of an entry.

use super::mailbox::Mailbox;
use super::marks::Marks;
use super::path::Path;
use super::raw_options::RawOptions;
use super::slots::Stop;
use super::transfer::Transfer;
use crate::memory::{RawList, RegionInner, Regions, Window};
use crate::plan::Extents;
use crate::target::{Op, TargetInner};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Where the extents come from.
#[derive(Debug)]
pub enum Source {
    Owned(Transfer),
    Raw {
        list: RawList,
        target: Arc<TargetInner>,
        options: RawOptions,
    },
    /// A flush alone.
    Flush(Arc<TargetInner>),
}

/// The body of an entry.
#[derive(Debug)]
pub struct Job {
    pub op: Op,
    pub source: Source,
    pub trace_id: u32,
    pub durable: bool,
    /// Where the handle goes when it is published; `None` when a ticket asks.
    pub mailbox: Option<Arc<Mailbox>>,
}

/// An extent as a lane works on it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub offset: u64,
    pub len: u64,
    pub window: Window,
    /// Number of its region; `u32::MAX` for unregistered memory.
    pub region: u32,
}

impl Job {
    pub fn target(&self) -> &Arc<TargetInner> {
        match &self.source {
            Source::Owned(transfer) => &transfer.target,
            Source::Raw { target, .. } | Source::Flush(target) => target,
        }
    }

    /// Whether a flush has to run before it is complete.
    pub fn wants_flush(&self) -> bool {
        self.op == Op::Flush || self.durable
    }

    /// The path that was demanded.
    pub fn require(&self) -> Option<Path> {
        match &self.source {
            Source::Owned(transfer) => transfer.require,
            Source::Raw { options, .. } => options.require,
            Source::Flush(_) => None,
        }
    }

    pub fn piece(&self, index: u32) -> Piece {
        match &self.source {
            Source::Owned(transfer) => {
                let extent = &transfer.extents[index as usize];
                let region = extent.mem().range().region().id;
                Piece { offset: extent.offset(), len: extent.len(), window: extent.window(), region }
            }
            Source::Raw { list, .. } => {
                let (offset, len) = list.range(index);
                Piece { offset, len, window: list.window(index), region: list.region(index) }
            }
            Source::Flush(_) => Piece { offset: 0, len: 0, window: Window::empty(), region: u32::MAX },
        }
    }

    /// The region of extent `index`, if it lies in one.
    pub fn region_of(&self, index: u32, regions: &Regions) -> Option<Arc<RegionInner>> {
        match &self.source {
            Source::Owned(transfer) => {
                transfer.extents.get(index as usize).map(|e| e.mem().range().region().clone())
            }
            Source::Raw { list, .. } => regions.get(list.region(index)),
            Source::Flush(_) => None,
        }
    }

    fn outcome(&self, index: u32) -> Option<(&AtomicU64, &AtomicI32)> {
        match &self.source {
            Source::Owned(transfer) => transfer.extents.get(index as usize).map(|e| e.outcome()),
            Source::Raw { list, .. } => Some(list.outcome(index)),
            Source::Flush(_) => None,
        }
    }

    /// Adds to what extent `index` moved.
    pub fn credit(&self, index: u32, bytes: u64) {
        if let Some((moved, _)) = self.outcome(index) {
            moved.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(marks) = self.marks() {
            marks.credit(index, bytes);
        }
    }

    /// What is told of its extents before it ends.
    pub fn marks(&self) -> Option<&Marks> {
        match &self.source {
            Source::Owned(transfer) => transfer.marks.as_ref(),
            Source::Raw { options, .. } => options.marks.as_ref(),
            Source::Flush(_) => None,
        }
    }

    /// Notes the first errno of extent `index`.
    pub fn fail(&self, index: u32, errno: i32) {
        if let Some((_, slot)) = self.outcome(index) {
            let _ = slot.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Gives each extent that a stop left unfinished the errno of that stop.
    pub fn mark_stopped(&self, stop: Stop) {
        let errno = match stop {
            Stop::Cancelled | Stop::Shutdown => libc::ECANCELED,
            Stop::TimedOut => libc::ETIMEDOUT,
            Stop::LaneFailed => libc::EIO,
        };
        for index in 0..self.count() {
            let len = self.range(index).1;
            if self.outcome(index).is_some_and(|(moved, _)| moved.load(Ordering::Relaxed) < len) {
                self.fail(index, errno);
            }
        }
    }

    /// Bytes that were asked for.
    pub fn asked(&self) -> u64 {
        (0..self.count()).map(|i| self.range(i).1).sum()
    }

    /// Calls `visit` with the region of each extent that has one.
    pub fn each_region(&self, regions: &Regions, mut visit: impl FnMut(&RegionInner)) {
        match &self.source {
            Source::Owned(transfer) => transfer.extents.iter().for_each(|e| visit(e.mem().range().region())),
            Source::Raw { list, .. } => (0..list.count())
                .filter_map(|i| regions.get(list.region(i)))
                .for_each(|region| visit(&region)),
            Source::Flush(_) => {}
        }
    }

    /// The late results of an abandoned transfer are in: it holds its regions no more.
    pub fn let_go(&self, regions: &Regions) {
        let Source::Raw { list, .. } = &self.source else {
            return self.each_region(regions, |region| {
                region.quarantined.fetch_sub(1, Ordering::SeqCst);
            });
        };
        for id in held(list) {
            // In this order: the raw count keeps a region's number from being used again.
            if let Some(region) = regions.get(id) {
                region.quarantined.fetch_sub(1, Ordering::SeqCst);
            }
            if let Some(count) = regions.raw_counts().get(id as usize) {
                count.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Raw extents stop counting against their regions.
    pub fn release_raw(&self, regions: &Regions) {
        let Source::Raw { list, .. } = &self.source else { return };
        for id in held(list) {
            if let Some(count) = regions.raw_counts().get(id as usize) {
                count.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

/// The regions of a raw list's extents, one behind the other. Whoever sees nothing of it count against a region any more may
/// free the list: past the last extent that holds one it is not read.
fn held(list: &RawList) -> impl Iterator<Item = u32> + '_ {
    let last = (0..list.count()).rev().find(|index| list.region(*index) != u32::MAX);
    (0..last.map_or(0, |last| last + 1)).map(|index| list.region(index))
}

impl Extents for Job {
    fn count(&self) -> u32 {
        match &self.source {
            Source::Owned(transfer) => transfer.extents.len() as u32,
            Source::Raw { list, .. } => list.count(),
            Source::Flush(_) => 0,
        }
    }

    fn range(&self, index: u32) -> (u64, u64) {
        match &self.source {
            Source::Owned(transfer) => {
                let extent = &transfer.extents[index as usize];
                (extent.offset(), extent.len())
            }
            Source::Raw { list, .. } => list.range(index),
            Source::Flush(_) => (0, 0),
        }
    }
}
