//! The engine: opening targets, making regions, shutting down.

use super::Target;
use super::builder::EngineBuilder;
use super::file_slots::Unregister;
use super::shared::Shared;
use super::stats::Stats;
use crate::error::{Error, ErrorKind};
use crate::lane::{PathReport, Stop, Watch, Watchdog};
use crate::memory::{AllocOptions, Region, RegionInner};
use crate::queue::try_passthrough;
use crate::target::{Kind, OpenOptions, TargetInner, open, open_null, stripe};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Owns lanes, targets and regions. Dropping it stops all transfers, drains them within the grace and ends the lanes;
/// every transfer still gets its completion.
pub struct Engine {
    shared: Arc<Shared>,
    watchdog: Option<Watchdog>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shared.fmt(f)
    }
}

impl Engine {
    /// An engine with the defaults, to be changed.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    pub(super) fn start(shared: Arc<Shared>) -> Result<Engine, Error> {
        let watch = Watch::new(shared.core.clone(), shared.settings.grace);
        let mut engine = Engine { shared, watchdog: None };
        let watchdog = Watchdog::start(watch).map_err(|e| {
            let message = "cannot start the watchdog's thread; raise the limit (ulimit -u)";
            Error::io(message, &e).with_kind(ErrorKind::Resource)
        })?;
        engine.watchdog = Some(watchdog);
        Ok(engine)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Opens a file, a block device, or a NVMe namespace by its character device (`/dev/ng0n1`): then commands pass the
    /// kernel's block layer by. A DAX device (`/dev/dax0.0`) is mapped.
    ///
    /// A NVMe device's first block is read before it is a target; from a drive that hangs that takes up to 40 s.
    pub fn open(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<Target, Error> {
        self.shared.check()?;
        if self.shared.settings.null {
            let message =
                "an engine over the null queue moves nothing; use open_null, or build without null()";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut target = open(path.as_ref(), &options, self.shared.id, self.shared.settings.command_sizes)?;
        if target.kind == Kind::Nvme {
            target.unfixed = try_passthrough(&target).map_err(|e| e.on(&target.name))?;
        }
        self.admit(target)
    }

    /// Makes one target of several: `chunk` bytes (whole blocks, at most 1 GiB) go to each in turn. All are of one
    /// kind and geometry, opened alike, none is named twice, and they are on at most eight drives. Transfers use the lanes
    /// of every member at once.
    pub fn stripe(&self, members: &[Target], chunk: u64) -> Result<Target, Error> {
        self.shared.check()?;
        if let Some(other) = members.iter().find(|member| member.inner.engine != self.shared.id) {
            let message = "a member of the stripe belongs to another engine; open it on this one";
            return Err(Error::new(ErrorKind::WrongEngine, message).on(&other.inner.name));
        }
        let members = members.iter().map(|member| member.inner.clone()).collect();
        Ok(Target { inner: Arc::new(stripe(members, chunk, self.shared.id)?) })
    }

    /// A target of `size` bytes for an engine over the null queue.
    pub fn open_null(&self, size: u64) -> Result<Target, Error> {
        self.shared.check()?;
        if !self.shared.settings.null {
            let message = "a null target needs an engine over the null queue: Engine::builder().null()";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.admit(open_null(size, self.shared.id, self.shared.settings.command_sizes.device)?)
    }

    fn admit(&self, target: TargetInner) -> Result<Target, Error> {
        let group = self.shared.group_for(&target).map_err(|e| e.on(&target.name))?;
        let _ = target.groups.set(vec![group]);
        let _ = target.closer.set(Box::new(Unregister(Arc::downgrade(&self.shared))));
        let target = Arc::new(target);
        // What is mapped is served by no ring.
        if target.kind != Kind::Dax {
            self.shared.register_file(&target);
        }
        self.shared.show_to_gpus(&target);
        Ok(Target { inner: target })
    }

    /// Allocates `bytes` of page-aligned host memory, in huge pages where they can be had, registered with the rings.
    pub fn alloc_host(&self, bytes: usize) -> Result<Region, Error> {
        self.alloc_host_with(bytes, &AllocOptions::default())
    }

    /// The same, with a say about huge pages and the NUMA node.
    pub fn alloc_host_with(&self, bytes: usize, options: &AllocOptions) -> Result<Region, Error> {
        self.shared.check()?;
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "a region of no bytes; ask for at least one"));
        }
        Ok(self.region(self.shared.alloc(bytes, options)?))
    }

    /// Registers `len` bytes of the caller's memory at `p`.
    ///
    /// # Safety
    /// Until [`Region::release`] has answered `Ok`, the memory must stay mapped and must not be remapped (a remapped
    /// address keeps writing to the old pages) or freed. While a transfer over it is under way nobody else may access
    /// its bytes.
    pub unsafe fn register_host(&self, p: NonNull<u8>, len: usize) -> Result<Region, Error> {
        self.shared.check()?;
        if len == 0 || (p.as_ptr() as usize).checked_add(len).is_none_or(|end| end > isize::MAX as usize) {
            let message =
                "the range is empty or wraps around the address space; give pointer and length in bytes";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(0, len as u64));
        }
        // SAFETY: passed on to the caller.
        Ok(self.region(unsafe { self.shared.register(p, len)? }))
    }

    /// Maps `bytes` of PCI peer memory: memory that the device at `address` (`0000:01:00.0`) publishes, such as a NVMe
    /// drive's controller memory buffer (kernel 6.2, built with PCI_P2PDMA; root). Targets whose device can reach it
    /// move to and from it without host memory between: take parts of it with [`Region::range`].
    ///
    /// It is never registered with the rings (the kernel pins no such pages for long). Whether one device reaches
    /// another is the machine's affair: bridges and switches may not forward; then transfers fail, and say so.
    pub fn map_peer(&self, address: &str, bytes: usize) -> Result<Region, Error> {
        self.shared.check()?;
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "no such length; ask for at least one byte, and less",
            ));
        }
        Ok(self.region(self.shared.map_peer(address, bytes)?))
    }

    /// Registers `len` bytes of the caller's GPU memory at device pointer `ptr` (cudaMalloc, torch's `data_ptr()`). Its
    /// GPU is found from the pointer, and all of the range must lie in one allocation. Take parts of it with
    /// [`Region::range`]; a transfer has memory of one GPU, or of the host.
    ///
    /// The first one of a GPU makes its lane and its pinned bounce buffers, which takes some 10 ms, and has the mapped
    /// targets of the engine registered with the driver (0.04 s/GB).
    ///
    /// # Safety
    /// Until [`Region::release`] has answered `Ok` the memory must not be freed, nor its context destroyed. While a
    /// transfer over it is under way nobody else, kernels included, may access its bytes; kernels that used them before
    /// must have ended.
    ///
    /// # Errors
    /// `Unsupported` on a machine without a CUDA driver or GPU; `InvalidInput` and `OutOfBounds` when the range is not
    /// in GPU memory; what the driver fails, with [`Error::cuda_code`].
    pub unsafe fn register_cuda(&self, ptr: u64, len: usize) -> Result<Region, Error> {
        self.shared.check()?;
        // SAFETY: passed on to the caller.
        Ok(self.region(unsafe { self.shared.register_cuda(ptr, len)? }))
    }

    /// Allocates `bytes` of memory on GPU `gpu`, as CUDA counts (within CUDA_VISIBLE_DEVICES); see
    /// [`Engine::register_cuda`]. What is in it is not defined. It is freed when the region and the last lease are gone.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use fullbore::{Engine, Mem, OpenOptions, Transfer};
    ///
    /// let engine = Engine::builder().build()?;
    /// let drive = engine.open("/data/kv.bin", OpenOptions::read())?;
    /// let kv = engine.alloc_gpu(0, 1 << 30)?;
    /// println!("{}", engine.path(&drive, &kv).reason);
    /// let done = engine.client()?.submit(Transfer::read(&drive).extent(0, kv.range(0..20 << 20)?))?.wait()?;
    /// done.result?; // the bytes are in the GPU, at kv.as_ptr()
    ///
    /// // The range comes back with the transfer. A look at its bytes, for a check:
    /// let extents = done.transfer.ok_or("abandoned")?.into_extents();
    /// if let Some(Mem::Range(range)) = extents.into_iter().next().map(|extent| extent.into_mem()) {
    ///     let mut bytes = vec![0; range.len()];
    ///     range.copy_out(&mut bytes)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`: no such GPU; `Resource`: it has not so much memory left; else as `register_cuda`.
    pub fn alloc_gpu(&self, gpu: u32, bytes: usize) -> Result<Region, Error> {
        self.shared.check()?;
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "a region of no bytes; ask for at least one"));
        }
        Ok(self.region(self.shared.alloc_gpu(gpu, bytes)?))
    }

    /// How many GPUs this process sees (CUDA_VISIBLE_DEVICES); `alloc_gpu` counts them from 0. Where there is no driver or
    /// no GPU it is an error (`Unsupported`) that says why.
    pub fn gpus(&self) -> Result<u32, Error> {
        self.shared.check()?;
        crate::memory::cuda::count()
    }

    fn region(&self, inner: Arc<RegionInner>) -> Region {
        Region::new(inner, self.shared.clone())
    }

    /// The path that aligned transfers between `target` and `region` take, and why. Of GPU memory it is the path of reads
    /// that are not of small pieces; stores to mapped memory always take `PinnedBounce`.
    pub fn path(&self, target: &Target, region: &Region) -> PathReport {
        self.shared.path(&target.inner, Some(region.inner()))
    }

    /// The same, of memory of no region too, and checked.
    #[cfg(feature = "capi")]
    pub(crate) fn path_of(&self, target: &Target, region: Option<&Region>) -> Result<PathReport, Error> {
        self.shared.check()?;
        let others = region.is_some_and(|region| region.inner().engine != self.shared.id);
        if others || target.inner.engine != self.shared.id {
            let message = "target or region belong to another engine; open and allocate them on this one";
            return Err(Error::new(ErrorKind::WrongEngine, message).on(&target.inner.name));
        }
        Ok(self.shared.path(&target.inner, region.map(|region| region.inner().as_ref())))
    }

    /// Refuses what a forked child may not do.
    #[cfg(feature = "capi")]
    pub(crate) fn check_fork(&self) -> Result<(), Error> {
        self.shared.check_fork()
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How many lanes serve a target: of a stripe, its members'.
    pub fn lanes_of(&self, target: &Target) -> usize {
        let mut groups = target.inner.groups.get().cloned().unwrap_or_default();
        groups.sort_unstable();
        groups.dedup();
        groups
            .into_iter()
            .filter_map(|group| self.shared.groups.get(group))
            .map(|group| group.lanes.len())
            .sum()
    }

    /// How many lanes it has, over all groups.
    pub fn lanes(&self) -> usize {
        self.shared.core.see_lanes(<[_]>::len)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.shared.fork.forked() {
            // The threads are the parent's; there is nothing here to wait for.
            self.shared.groups.forget();
            std::mem::forget(self.watchdog.take());
            return;
        }
        let core = &self.shared.core;
        core.closing.store(true, Ordering::SeqCst);
        let stop_all = |each: &dyn Fn(crate::lane::Handle)| {
            (0..core.table.len() as u32).filter_map(|i| core.table.active(i)).for_each(each);
        };
        stop_all(&|handle| core.stop(handle, Stop::Shutdown));
        if !self.shared.groups.stop(self.shared.settings.grace) {
            tracing::error!(
                "a lane did not end within the grace; it is left to itself, with its ring and memory"
            );
        }
        // What did not drain is published all the same: nobody is left waiting.
        stop_all(&|handle| {
            core.abandon(handle);
        });
        self.watchdog = None;
    }
}
