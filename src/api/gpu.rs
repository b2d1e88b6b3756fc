//! GPUs: their lanes, their bounce buffers, and the transfers that these submit themselves.

use super::groups::Group;
use super::shared::Shared;
use crate::error::{Error, ErrorKind};
use crate::lane::{
    Admission, Feeder, GpuSpec, Handle, Job, Path, QueueKind, SLACK, Share, Source, Stop, path_of_job,
    units_of,
};
use crate::memory::cuda::{CudaError, DeviceMemory, Gpu, Held, HostMemory, Words};
use crate::memory::{AllocOptions, RegionInner, alloc, lock};
use crate::plan::{Extents, PARTS, UnitCursor};
use crate::queue::cuda::Mover;
use crate::target::TargetInner;
use crate::topology::{Place, QueueMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

/// GPUs of an engine for whose lanes' transfers there are entries at any time.
const GPUS: usize = 16;
/// Flushes of one, which have no buffer any more.
const FLUSHES: usize = 8;
/// A copy straight out of a mapping has as many bounce buffers' bytes at most: it waits for nothing to be filled.
const STRAIGHT: u64 = 2;

/// Entries that are kept for transfers that fill or empty bounce buffers.
pub fn children(buffers: usize) -> usize {
    GPUS * (buffers + FLUSHES)
}

/// A GPU that has a lane.
pub struct Served {
    gpu: Arc<Gpu>,
    group: usize,
    words: Arc<Words>,
}

fn held(gpu: Arc<Gpu>, group: usize, words: Arc<Words>) -> Held {
    Held { known: Mutex::default(), gpu, memory: None, group, words }
}

/// Takes children in for a GPU's lane.
struct Feed(Weak<Shared>);

impl Feeder for Feed {
    fn feed(&self, child: Job, class: u8, deadline: u64, tag: u64) -> Result<Handle, Error> {
        let closed = || Error::new(ErrorKind::Shutdown, "the engine was shut down; build a new one");
        let shared = self.0.upgrade().ok_or_else(closed)?;
        shared.start_child(child, class, deadline, tag)
    }

    fn appetite(&self, target: &TargetInner) -> u64 {
        self.0.upgrade().map_or(0, |shared| shared.appetite(target))
    }
}

impl Shared {
    /// Makes a region over the caller's GPU memory.
    ///
    /// # Safety
    /// See [`crate::Engine::register_cuda`].
    pub unsafe fn register_cuda(&self, ptr: u64, len: usize) -> Result<Arc<RegionInner>, Error> {
        let ordinal = Gpu::locate(ptr, len)?;
        let held = self.gpu(ordinal)?;
        self.admit_gpu(|id| RegionInner::of_gpu(id, self.id, self.core.regions.raw_counts(), held, ptr, len))
    }

    /// Makes a region over GPU memory of our own.
    pub fn alloc_gpu(&self, ordinal: u32, bytes: usize) -> Result<Arc<RegionInner>, Error> {
        let mut held = self.gpu(ordinal)?;
        let memory = DeviceMemory::new(&held.gpu, bytes)
            .map_err(|e| e.error(&format!("cannot allocate {bytes} bytes on GPU {ordinal}")))?;
        let at = memory.ptr;
        held.memory = Some(Arc::new(memory));
        self.admit_gpu(|id| RegionInner::of_gpu(id, self.id, self.core.regions.raw_counts(), held, at, bytes))
    }

    fn admit_gpu(&self, make: impl FnOnce(u32) -> RegionInner) -> Result<Arc<RegionInner>, Error> {
        let region = self.admit(make)?;
        self.tell_cufile_of(&region);
        Ok(region)
    }

    /// The GPU of that ordinal and its lane's group, made if there is none.
    fn gpu(&self, ordinal: u32) -> Result<Held, Error> {
        if self.settings.null {
            let message = "an engine over the null queue moves nothing; build without null()";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let gpu = Gpu::retain(ordinal)?;
        let _growing = lock(&self.groups.growing);
        // A lane over a context that was destroyed may live: it has had nothing to do since.
        let serves = |served: &&Served| {
            let there = served.gpu.ordinal == ordinal && served.gpu.check("cuCtxGetId").is_ok();
            there && self.groups.get(served.group).is_some_and(Group::is_alive)
        };
        if let Some(served) = lock(&self.gpus).iter().find(serves) {
            return Ok(held(gpu, served.group, served.words.clone()));
        }
        let failed = |e: CudaError| e.error(&format!("cannot use GPU {ordinal}"));
        // Before anything else is made: a driver that refuses leaves nothing behind.
        let settings = self.settings.gpu;
        let staging = (settings.buffer as usize + SLACK).max((settings.buffer * STRAIGHT) as usize);
        let (mover, words) = (Mover::new(&gpu, staging).map_err(failed)?, Words::new(&gpu).map_err(failed)?);
        let spec = GpuSpec {
            bounce: self.bounce(&gpu)?,
            buffers: settings.buffers,
            buffer: settings.buffer as usize,
            outstanding: settings.outstanding,
            polled: settings.polled,
            gpu: gpu.clone(),
            cufile: self.cufile(&gpu).ok().map(|here| here.cufile.clone()),
            feeder: Arc::new(Feed(self.me.clone())),
        };
        let (node, allowed) = (gpu.node, &self.allowed);
        let cpus = node.map_or_else(|| allowed.clone(), |node| self.topology.nearest_cpus(node, allowed));
        let place = Place {
            node: node.or(self.topology.node_of(&cpus)),
            cpus,
            queue: None,
            depth: settings.buffers as u32,
        };
        let map = QueueMap { queues: Vec::new(), node };
        let group = self.grow(
            Some((format!("gpu {ordinal}"), map)),
            vec![(place, QueueKind::Gpu(Box::new((spec, mover))))],
        )?;
        // Known first: a target that is opened meanwhile is shown to it by whoever opens it.
        let mut gpus = lock(&self.gpus);
        gpus.retain(|served| served.gpu.check("cuCtxGetId").is_ok()); // less those whose context was destroyed
        gpus.push(Served { gpu: gpu.clone(), group, words: words.clone() });
        drop(gpus);
        let targets: Vec<_> = lock(&self.targets).iter().filter_map(Weak::upgrade).collect();
        targets.iter().for_each(|target| self.show_to(&gpu, target));
        Ok(held(gpu, group, words))
    }

    /// The bounce buffers of a GPU, pinned and on its node.
    fn bounce(&self, gpu: &Arc<Gpu>) -> Result<Arc<RegionInner>, Error> {
        let settings = self.settings.gpu;
        let bytes = settings.buffers * (settings.buffer as usize + SLACK);
        let mapping = alloc(bytes, &AllocOptions { huge: true, node: gpu.node })?;
        mapping.populate();
        let (id, raw) = (self.id, self.core.regions.raw_counts());
        // Nothing pageable is handed to the driver: what it does not register, it must allocate itself. So it is under
        // confidential computing (FACTS §5).
        match mapping.pin(gpu, true) {
            Ok(()) => self.admit(|number| RegionInner::owned(number, id, raw, mapping, bytes)),
            Err(why) => {
                tracing::info!(%why, "the driver allocates the bounce buffers, on whichever node it likes");
                let memory = HostMemory::of_driver(gpu, bytes)
                    .map_err(|e| e.error(&format!("no pinned memory for bounce buffers ({why})")))?;
                self.admit(|number| RegionInner::of_driver(number, id, raw, memory))
            }
        }
    }

    /// Notes a target, and has it reached by GPUs directly where that can be.
    pub fn show_to_gpus(&self, target: &Arc<TargetInner>) {
        let mut targets = lock(&self.targets);
        targets.retain(|known| known.strong_count() > 0);
        targets.push(Arc::downgrade(target));
        drop(targets);
        // What is registered for one counts for all. Not in a context that was destroyed: it would be refused for good.
        let there = |served: &&Served| served.gpu.check("cuCtxGetId").is_ok();
        let first = lock(&self.gpus).iter().find(there).map(|served| served.gpu.clone());
        if let Some(gpu) = first {
            self.show_to(&gpu, target);
        }
    }

    fn show_to(&self, gpu: &Arc<Gpu>, target: &Arc<TargetInner>) {
        target.pin(gpu);
        self.tell_cufile(target, gpu);
    }

    /// The group of the lane of the GPU that a job's memory is on.
    pub(super) fn gpu_group_of(&self, job: &Job) -> Option<usize> {
        match &job.source {
            Source::Owned(transfer) => {
                transfer.extents.first()?.mem().range().region().device().map(|held| held.group)
            }
            Source::Raw { list, .. } => {
                // Without a GPU, no lock is taken for what cannot be.
                let region = self.core.regions.has_devices().then(|| list.region(0))?;
                self.core.regions.get(region)?.device().map(|held| held.group)
            }
            Source::Flush(_) => None,
        }
    }

    /// Takes an entry for a job over GPU memory and deals it to the GPU's lane.
    #[allow(clippy::result_large_err)] // the job comes back by value, on purpose
    pub(super) fn start_on_gpu(
        &self,
        job: Job,
        group: usize,
        (class, deadline): (u8, u64),
        tag: u64,
    ) -> Result<Handle, Job> {
        let (block, buffer) = (job.target().geometry.block, self.settings.gpu.buffer);
        let region = job.region_of(0, &self.core.regions);
        let path = region.as_ref().and_then(|region| Some(path_of_job(&job, region.device()?).0));
        // Straight copies of one length: a short one at the end of each extent would cost as much as a long one.
        let unit = if path == Some(Path::DaxToGpu) {
            let most = buffer * STRAIGHT;
            let longest = (0..job.count()).map(|index| job.range(index).1).max().unwrap_or(most).max(1);
            if longest <= most {
                most
            } else {
                longest.div_ceil(longest.div_ceil(most)).next_multiple_of(64 << 10).min(most)
            }
        } else {
            buffer
        };
        let unit = unit.next_multiple_of(block as u64);
        let cursor = UnitCursor::new(unit, block);
        let mut units = [0; PARTS];
        units[0] = cursor.count(&job);
        let (submitted, target) = (self.core.clock.now(), Arc::as_ptr(job.target()) as usize);
        let handle = self.core.table.activate(job, Admission { units, deadline, submitted, tag })?;
        let share = Share {
            handle,
            class,
            part: 0,
            deadline,
            cursor,
            most: u32::MAX,
            in_hand: 0,
            target,
            depth: u32::MAX,
        };
        if self.deal_part(share, group, 1, 0) == 0 {
            self.core.stop(handle, Stop::LaneFailed);
        }
        if self.core.closing.load(Ordering::SeqCst) {
            self.core.stop(handle, Stop::Shutdown);
        }
        Ok(handle)
    }

    fn appetite(&self, target: &TargetInner) -> u64 {
        let parts = 0..target.parts();
        let groups = parts.map(|part| target.groups.get().and_then(|groups| groups.get(part)).copied());
        let lanes =
            groups.filter_map(|group| self.groups.get(group.unwrap_or(0))).flat_map(|group| &group.lanes);
        let (most, command) = (target.most_in_flight(), u64::from(target.geometry.max_bytes));
        lanes.map(|lane| u64::from(lane.place.depth.min(most)) * command).sum()
    }

    /// Starts a transfer that a GPU's lane submits.
    fn start_child(&self, child: Job, class: u8, deadline: u64, tag: u64) -> Result<Handle, Error> {
        let target = child.target().clone();
        // Where each lane copies at its own pace a buffer is full when the last of them is done: smaller pieces let them end
        // together.
        let whole = self.settings.unit_size;
        let half = (whole / 2).max(u64::from(target.geometry.max_bytes));
        let unit_size = if target.punts { half } else { whole };
        let unit_size = unit_size.next_multiple_of(target.geometry.block as u64);
        let units = units_of(&child, unit_size);
        let submitted = self.core.clock.now();
        let admission = Admission { units, deadline, submitted, tag };
        let handle = self.core.table.activate_kept(child, admission).map_err(|_| {
            let message =
                "no entry is left for a transfer of a GPU's lane: many GPUs are at work, or flushes hang; build a second engine";
            Error::new(ErrorKind::Busy, message)
        })?;
        self.deal(handle, &target, (class, deadline, unit_size), &units);
        if self.core.closing.load(Ordering::SeqCst) {
            self.core.stop(handle, Stop::Shutdown);
        }
        Ok(handle)
    }
}
