//! Submission of raw lists: (offset, pointer, length) as a connector has them.

use super::shared::Shared;
use super::submit::{MOST_EXTENTS, ONE_MEMORY, busy, check_pair, gpu_of, wrong_engine};
use crate::error::{Error, ErrorKind};
use crate::lane::{Handle, Job, Mailbox, Marks, RawOptions, Source};
use crate::memory::cuda::is_device;
use crate::memory::{RawExtent, RawList, RegionInner, Snapshot};
use crate::target::{Op, TargetInner};
use std::sync::Arc;

impl Shared {
    /// Accepts a list of raw extents.
    ///
    /// # Safety
    /// See [`crate::Client::submit_raw`].
    pub unsafe fn accept_raw(
        &self,
        target: &Arc<TargetInner>,
        op: Op,
        extents: &mut [RawExtent],
        snapshot: &Snapshot,
        (mailbox, options): (Arc<Mailbox>, RawOptions),
    ) -> Result<Handle, Error> {
        self.check_list(target, op, extents, snapshot, &options)?;
        let lens = extents.iter().map(|extent| extent.len);
        options.marks.as_ref().map_or(Ok(()), |marks| marks.begin(lens)).map_err(|e| e.on(&target.name))?;
        // SAFETY: passed on to the caller.
        let mut list = unsafe { RawList::new(extents) };
        for index in 0..list.count() {
            let (window, len) = (list.window(index), list.range(index).1);
            // `check_raw` has seen that the extent lies in one region whole, or in none.
            let region = snapshot.find(window.addr(), len).and_then(|region| region.hold_raw());
            list.prepare(index, region.unwrap_or(u32::MAX));
        }
        let (class, deadline, tag) = (options.priority as u8, options.deadline, options.tag);
        let (trace_id, durable) = (options.trace_id, options.durable && op == Op::Write);
        let source = Source::Raw { list, target: target.clone(), options };
        let job = Job { op, source, trace_id, durable, mailbox: Some(mailbox) };
        let back = |job: Job, error| {
            job.release_raw(&self.core.regions);
            job.marks().into_iter().for_each(Marks::release);
            error
        };
        if let Err(error) = self.check_gpu_path(&job) {
            return Err(back(job, error));
        }
        self.start(job, class, deadline, tag).map_err(|job| back(job, busy()))
    }

    /// Everything that can be checked before the list is taken over.
    fn check_list(
        &self,
        target: &TargetInner,
        op: Op,
        extents: &[RawExtent],
        snapshot: &Snapshot,
        options: &RawOptions,
    ) -> Result<(), Error> {
        self.check()?;
        if target.engine != self.id {
            return Err(wrong_engine("the target").on(&target.name));
        }
        target.check(op)?;
        if op == Op::Flush || extents.is_empty() || extents.len() > MOST_EXTENTS {
            let message =
                "a raw transfer reads or writes, with at least one extent and at most 16 777 216; split it";
            return Err(Error::new(ErrorKind::InvalidInput, message).on(&target.name));
        }
        let mut first = None;
        for (index, extent) in extents.iter().enumerate() {
            let region = snapshot.find(extent.ptr as u64, extent.len);
            let gpu = region.as_deref().and_then(gpu_of);
            let mut check = || {
                self.check_raw(target, op, extent, region.as_deref(), snapshot)?;
                if gpu != *first.get_or_insert(gpu) {
                    return Err(Error::new(ErrorKind::InvalidInput, ONE_MEMORY).on(&target.name));
                }
                match options.require {
                    Some(path) if gpu.is_none() => {
                        let place = (extent.offset, extent.len, extent.ptr as u64);
                        self.check_path(path, target, region.as_deref(), place)
                    }
                    _ => Ok(()), // of GPU memory the path is the whole list's
                }
            };
            check().map_err(|e| e.extent(index as u32))?;
        }
        Ok(())
    }

    /// Everything about a raw extent that can be checked.
    fn check_raw(
        &self,
        target: &TargetInner,
        op: Op,
        extent: &RawExtent,
        region: Option<&RegionInner>,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        target.check_range(op, extent.offset, extent.len)?;
        if let Some(region) = region {
            return check_pair(target, op, region);
        }
        let bad = |message: &'static str| {
            let error = Error::new(ErrorKind::InvalidInput, message).on(&target.name);
            Err(error.at(extent.offset, extent.len))
        };
        let (ptr, end) = (extent.ptr as u64, (extent.ptr as u64).checked_add(extent.len));
        if ptr == 0 || end.is_none_or(|end| end > isize::MAX as u64) {
            return bad(
                "the extent's pointer is null, or wraps around the address space; check the address and the length",
            );
        }
        if snapshot.touches(ptr, extent.len) {
            return bad(
                "the memory lies partly in a region and partly outside; split the extent at the region's edge",
            );
        }
        // The driver is asked only by those who have GPU memory registered: the others may have no driver at all.
        if self.core.regions.has_devices() && is_device(ptr) {
            return bad(
                "the pointer is a GPU's and lies in no region; register its memory first (Engine::register_cuda)",
            );
        }
        Ok(())
    }
}
