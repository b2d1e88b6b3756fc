//! Submission: everything that can be checked is checked, then the transfer is dealt to lanes.

use super::groups::Group;
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::lane::{
    Admission, Deadline, Extent, Handle, Job, Mailbox, Marks, Path, PathReport, Priority, Share, Source,
    Stop, Transfer, units_of,
};
use crate::lane::{path_of, path_of_job};
use crate::memory::RegionInner;
use crate::memory::copy;
use crate::plan::{PARTS, UnitCursor, routes};
use crate::target::{Kind, Op, TargetInner};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A transfer that was not accepted, whole, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// The transfer, to be submitted again or taken apart.
    pub transfer: Transfer,
    /// Why.
    pub error: Error,
}

/// Most extents of a transfer: an extent's number fits 32 bits with room for units.
pub(super) const MOST_EXTENTS: usize = 1 << 24;

thread_local! {
    /// Which lane of the near ones takes the next small transfer.
    static TURN: Cell<usize> = const { Cell::new(0) };
}

impl Shared {
    /// Checks a transfer of extents.
    pub fn check_transfer(&self, transfer: &Transfer) -> Result<(), Error> {
        self.check()?;
        let target = &transfer.target;
        if target.engine != self.id {
            return Err(wrong_engine("the target").on(&target.name));
        }
        target.check(transfer.op)?;
        if transfer.extents.is_empty() || transfer.extents.len() > MOST_EXTENTS {
            let message = "a transfer has at least one extent and at most 16 777 216; split it";
            return Err(Error::new(ErrorKind::InvalidInput, message).on(&target.name));
        }
        let first = transfer.extents[0].mem().range().region();
        for (index, extent) in transfer.extents.iter().enumerate() {
            let check = || -> Result<(), Error> {
                let region = extent.mem().range().region();
                if region.engine != self.id {
                    return Err(wrong_engine("the region"));
                }
                target.check_range(transfer.op, extent.offset(), extent.len())?;
                check_pair(target, transfer.op, region)?;
                if gpu_of(region) != gpu_of(first) {
                    return Err(Error::new(ErrorKind::InvalidInput, ONE_MEMORY).on(&target.name));
                }
                match transfer.require {
                    Some(_) if region.device().is_some() => Ok(()), // of the whole, below
                    Some(path) => {
                        let place = (extent.offset(), extent.len(), extent.window().addr());
                        self.check_path(path, target, Some(region), place)
                    }
                    None => Ok(()),
                }
            };
            check().map_err(|e| e.extent(index as u32))?;
        }
        Ok(())
    }

    /// The path that was demanded of a transfer over GPU memory runs, or it is refused.
    pub(super) fn check_gpu_path(&self, job: &Job) -> Result<(), Error> {
        let (Some(wanted), Some(region)) = (job.require(), job.region_of(0, &self.core.regions)) else {
            return Ok(());
        };
        let Some(held) = region.device() else { return Ok(()) };
        let (found, why) = path_of_job(job, held);
        if found == wanted {
            return Ok(());
        }
        let why = self.why_not(wanted, found, job.target()).map_or_else(|| why.to_string(), str::to_owned);
        let message = format!("path \"{wanted}\" was demanded, but \"{found}\" would run: {why}");
        Err(Error::new(ErrorKind::PathUnavailable, message).on(&job.target().name))
    }

    /// The path of commands between a target and a region (`None`: memory of no region).
    pub fn path(&self, target: &TargetInner, region: Option<&RegionInner>) -> PathReport {
        if let Some(held) = region.and_then(RegionInner::device) {
            let (path, why) = path_of(target, held, Op::Read, None);
            return PathReport { path, reason: why.to_string() };
        }
        let (fixed, why) = match region.map(|r| r.registration.get()) {
            _ if target.kind == Kind::Null => (false, "the null target moves nothing".into()),
            _ if target.kind == Kind::Dax => (false, format!("{} stores", copy::kernel())),
            Some(Some(Ok(_))) if region.is_some_and(|r| r.pinned().is_none()) => {
                (false, "the region was dropped, and the rings let go of it".into())
            }
            Some(Some(Ok(_))) => match &target.unfixed {
                Some(note) => (false, note.clone()),
                None => (true, "the region is registered with every ring".into()),
            },
            Some(Some(Err(note))) => (false, note.clone()),
            Some(None) | None => (false, "the memory is not registered; see Engine::register_host".into()),
        };
        let path = Path::of(target.kind, target.direct, false, fixed);
        let direct = match (target.kind, target.direct) {
            (Kind::Nvme, _) => "NVMe passthrough",
            (Kind::Dax, _) => "mapped, and copied by the CPU",
            (_, true) => "O_DIRECT",
            (_, false) => "the page cache was asked for",
        };
        PathReport { path, reason: format!("{direct}; {why}") }
    }

    /// The path that was demanded runs for all of the extent, or the transfer is refused.
    pub(super) fn check_path(
        &self,
        wanted: Path,
        target: &TargetInner,
        region: Option<&RegionInner>,
        (offset, len, addr): (u64, u64, u64),
    ) -> Result<(), Error> {
        let (found, geometry) = (self.path(target, region), &target.geometry);
        let (straight, scratch) = match found.path {
            Path::Null => (true, false),
            _ => routes(geometry, offset, len, addr),
        };
        let by_scratch = Path::of(target.kind, target.direct, true, false);
        if found.path == wanted && !scratch || wanted == by_scratch && scratch && !straight {
            return Ok(());
        }
        let reason = if straight && found.path != wanted {
            format!("\"{}\" would run, since: {}", found.path, found.reason)
        } else {
            let (block, align) = (geometry.block, geometry.memory_align);
            format!(
                "some of it would go through scratch: align offset and length to {block} and the memory to \
                 {align} bytes"
            )
        };
        Err(Error::new(ErrorKind::PathUnavailable, format!("path \"{wanted}\" was demanded, but {reason}"))
            .on(&target.name))
    }

    /// Accepts a transfer that was checked, or hands it back.
    #[allow(clippy::result_large_err)] // the transfer comes back by value, on purpose
    pub fn accept(
        &self,
        mut transfer: Transfer,
        mailbox: Option<Arc<Mailbox>>,
        tag: u64,
    ) -> Result<Handle, Rejected> {
        if let Err(error) = self.check_transfer(&transfer) {
            return Err(Rejected { transfer, error });
        }
        let lens = transfer.extents.iter().map(Extent::len);
        if let Some(Err(error)) = transfer.marks.as_ref().map(|marks| marks.begin(lens)) {
            let error = error.on(&transfer.target.name);
            return Err(Rejected { transfer, error });
        }
        transfer.clear_outcomes();
        let (trace_id, durable) = (transfer.trace_id, transfer.durable && transfer.op == Op::Write);
        let (class, deadline, op) = (transfer.priority as u8, transfer.deadline, transfer.op);
        let job = Job { op, source: Source::Owned(transfer), trace_id, durable, mailbox };
        let back = |job: Job, error| match job.source {
            Source::Owned(transfer) => {
                transfer.marks.iter().for_each(Marks::release);
                Rejected { transfer, error }
            }
            _ => unreachable!("the job comes back as it was made"),
        };
        if let Err(error) = self.check_gpu_path(&job) {
            return Err(back(job, error));
        }
        self.start(job, class, deadline, tag).map_err(|job| back(job, busy()))
    }

    /// Accepts a flush.
    pub fn accept_flush(
        &self,
        target: &Arc<TargetInner>,
        mailbox: Option<Arc<Mailbox>>,
        tag: u64,
    ) -> Result<Handle, Error> {
        self.check()?;
        if target.engine != self.id {
            return Err(wrong_engine("the target").on(&target.name));
        }
        target.check(Op::Flush)?;
        let job = Job {
            op: Op::Flush,
            source: Source::Flush(target.clone()),
            trace_id: tag as u32,
            durable: false,
            mailbox,
        };
        self.start(job, Priority::Normal as u8, Deadline::Engine, tag).map_err(|_| busy())
    }

    /// Takes an entry and deals the job to lanes.
    #[allow(clippy::result_large_err)] // the job comes back by value, on purpose
    pub(super) fn start(&self, job: Job, class: u8, deadline: Deadline, tag: u64) -> Result<Handle, Job> {
        let submitted = self.core.clock.now();
        let within = match deadline {
            Deadline::Engine => self.settings.deadline,
            Deadline::After(within) => Some(within),
            Deadline::None => None,
        };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let deadline = within.map_or(u64::MAX, |d| submitted.saturating_add(nanos(d)));
        let target = job.target().clone();
        let block = target.geometry.block;
        // Units are cut on whole blocks, however large those are.
        let unit_size = self.settings.unit_size.next_multiple_of(block as u64);
        if let Some(group) = self.gpu_group_of(&job) {
            return self.start_on_gpu(job, group, (class, deadline), tag);
        }
        let units = units_of(&job, unit_size);
        let handle = self.core.table.activate(job, Admission { units, deadline, submitted, tag })?;
        self.deal(handle, &target, (class, deadline, unit_size), &units);
        if self.core.closing.load(Ordering::SeqCst) {
            self.core.stop(handle, Stop::Shutdown); // the engine's own sweep may have passed already
        }
        Ok(handle)
    }

    /// Deals each part's share to its lanes.
    pub(super) fn deal(
        &self,
        handle: Handle,
        target: &TargetInner,
        (class, deadline, unit_size): (u8, u64, u64),
        units: &[u32; PARTS],
    ) {
        let turn = TURN.get();
        TURN.set(turn.wrapping_add(1));
        for part in (0..target.parts()).filter(|part| units[*part] > 0) {
            let cursor = UnitCursor::over(target.part(part), unit_size, target.geometry.block);
            let group = target.groups.get().and_then(|groups| groups.get(part)).copied().unwrap_or(0);
            let lanes = self.groups.get(group).map_or(1, |group| group.lanes.len() as u32);
            let most = units[part].div_ceil(lanes.max(1));
            let depth = target.most_in_flight();
            let share = Share {
                handle,
                class,
                part: part as u8,
                deadline,
                cursor,
                most,
                in_hand: 0,
                target: 0,
                depth,
            };
            if self.deal_part(share, group, units[part] as usize, turn) == 0 {
                self.core.stop(handle, Stop::LaneFailed);
            }
        }
    }

    /// Deals a share to as many lanes as there are units; a single unit goes to one near the caller. Answers how many
    /// lanes have it.
    pub(super) fn deal_part(&self, share: Share, group: usize, units: usize, turn: usize) -> usize {
        let Some(group) = self.groups.get(group) else { return 0 };
        let lanes = group.lanes.len();
        let near = if units < lanes { group.near(turn) } else { 0 };
        let (mut dealt, mut dead) = (0, false);
        for step in 0..lanes {
            let lane = &group.lanes[(near + step) % lanes].inbox;
            let taken = lane.deal(share, |share| self.core.claimable(share));
            dealt += taken as usize;
            dead |= !taken;
            if dealt == units {
                break;
            }
        }
        if dead {
            self.bury_dead();
        }
        dealt
    }

    /// Shares that reached an inbox while its lane died. Lanes that were dead before got none, so nobody else need
    /// have these: their transfers fail, as the dying lane would have said.
    fn bury_dead(&self) {
        let lanes = self.core.lanes();
        let dead = lanes.iter().filter(|lane| !lane.alive.load(Ordering::SeqCst));
        dead.flat_map(|lane| lane.bury()).for_each(|handle| self.core.stop(handle, Stop::LaneFailed));
    }
}

impl Group {
    /// A lane that runs where the caller does, in turn.
    fn near(&self, turn: usize) -> usize {
        let cpu = nix::sched::sched_getcpu().unwrap_or(0) as u32;
        let lanes = self.lanes.len();
        (0..lanes)
            .map(|i| (turn + i) % lanes)
            .find(|lane| self.lanes[*lane].place.cpus.contains(cpu) && self.lanes[*lane].inbox.moves())
            .unwrap_or(turn % lanes)
    }
}

/// The GPU that a region is on.
pub(super) fn gpu_of(region: &RegionInner) -> Option<u32> {
    region.device().map(|held| held.gpu.ordinal)
}

pub(super) const ONE_MEMORY: &str =
    "the extents lie on several GPUs, or on a GPU and in host memory; submit a transfer for each";

/// What no path joins.
pub(super) fn check_pair(target: &TargetInner, op: Op, region: &RegionInner) -> Result<(), Error> {
    if op == Op::Read && region.is_read_only() {
        let message = "the memory is mapped for reading alone, and nothing can be read into it; map it for writing \
                       (PROT_WRITE) before it is registered";
        return Err(Error::new(ErrorKind::InvalidInput, message).on(&target.name));
    }
    if target.kind != Kind::Dax || !region.peer {
        return Ok(());
    }
    let message = "the CPU does not copy between mapped memory and PCI peer memory; use host memory between";
    Err(Error::new(ErrorKind::Unsupported, message).on(&target.name))
}

pub(super) fn busy() -> Error {
    Error::new(
        ErrorKind::Busy,
        "all of the engine's transfer entries are taken; wait for a completion, or raise max_transfers",
    )
}

pub(super) fn wrong_engine(what: &str) -> Error {
    Error::new(
        ErrorKind::WrongEngine,
        format!("{what} belongs to another engine; open or allocate it on this one"),
    )
}
