//! Records of what lanes did, for timelines.

use super::Engine;
use crate::error::Error;
use crate::lane::{Clock, Path, Work};
use crate::target::Op;
use std::time::{Duration, Instant};

/// A piece of work, as its lane saw it.
#[derive(Clone, Copy, Debug)]
pub struct WorkRecord {
    /// What it is of.
    pub work: Work,
    /// The lane, by its place in [`Stats::lanes`](crate::Stats::lanes).
    pub lane: usize,
    /// The lane's place for it: no two records of one lane and sort that overlap in time have the same.
    pub slot: usize,
    /// The transfer's trace id.
    pub trace_id: u32,
    /// What it does.
    pub op: Op,
    /// The path it took.
    pub path: Path,
    /// Where on the target it began: the first byte that was asked for. A unit goes on in the order of the transfer's extents.
    pub offset: u64,
    /// Bytes it was to move.
    pub bytes: u64,
    /// When it began: a command's push into its queue.
    pub begun: Instant,
    /// When it ended: a command's reap.
    pub ended: Instant,
    /// It failed.
    pub failed: bool,
}

impl Engine {
    /// Records every command from now on, for [`Engine::take_records`]: at most `most` (1 to 64 Mi, 72 bytes each) that
    /// nobody took; more are counted alone. It stays on as long as the engine, and costs some 10 ns a command. A second call
    /// changes nothing.
    pub fn record_work(&self, most: usize) -> Result<(), Error> {
        self.shared().check()?;
        self.shared().core.records.begin(most.min(64 << 20));
        Ok(())
    }

    /// Takes the records that are there, those of one lane in the order they ended, and how many found no room since the last
    /// call.
    pub fn take_records(&self) -> (Vec<WorkRecord>, u64) {
        let core = &self.shared().core;
        let Clock::Real(start) = core.clock else { return Default::default() };
        let (records, lost) = core.records.take();
        let at = |ns| start + Duration::from_nanos(ns);
        let made = records.into_iter().map(|record| WorkRecord {
            work: record.work,
            lane: record.lane as usize,
            slot: usize::from(record.slot),
            trace_id: record.trace_id,
            op: record.op,
            path: record.path,
            offset: record.offset,
            bytes: record.bytes,
            begun: at(record.begun),
            ended: at(record.ended),
            failed: record.failed,
        });
        (made.collect(), lost)
    }
}
