//! The inner half of a target: its limits, what may be asked of it, and where a command goes.

use super::dax::Dax;
use super::nvme::{self, Namespace, Status};
use super::probe;
use super::request::{Decoded, Fault, FileRef, Numbers, Op, Request};
use crate::error::{Error, ErrorKind};
use crate::memory::Window;
use crate::memory::cuda::Gpu;
use crate::plan::{Geometry, Part, Stripe};
use std::any::Any;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What kind of thing a target is; of a stripe, what its members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// A NVMe namespace's character device: commands pass the block layer by.
    Nvme,
    /// Mapped memory: a DAX device, or a file that is mapped on demand. The CPU copies.
    Dax,
    /// Nothing: commands complete at once, no bytes move.
    Null,
}

/// Is told when a target is gone. The engine does it; target/ knows nothing of lanes.
pub trait Closer: Send + Sync + std::fmt::Debug {
    /// The place `slot` of the rings' file tables is not used any more.
    fn closed(&self, slot: u32);

    /// Refuses what a forked child may not do to a file that it shares with its parent.
    fn check_fork(&self) -> Result<(), Error>;
}

/// Several targets as one.
#[derive(Debug)]
pub struct Striped {
    pub stripe: Stripe,
    pub members: Vec<Arc<TargetInner>>,
    /// Members of each part, one bit each: see [`Part`].
    pub parts: Vec<u64>,
}

/// See the module. Transfers keep it alive.
#[derive(Debug)]
pub struct TargetInner {
    pub name: Arc<str>,
    /// The engine it belongs to.
    pub engine: u64,
    pub kind: Kind,
    pub geometry: Geometry,
    /// O_DIRECT, or passthrough.
    pub direct: bool,
    pub writable: bool,
    /// Its lanes poll for completions.
    pub polled: bool,
    /// The file system cannot be asked without blocking (tmpfs): kernel workers carry out the commands.
    pub punts: bool,
    /// Why its commands use no registered buffers, if they do not.
    pub unfixed: Option<String>,
    pub namespace: Option<Box<Namespace>>,
    pub dax: Option<Dax>,
    pub striped: Option<Striped>,
    /// What cuFile knows its file by, or why it does not; set by a layer above, goes before the file.
    pub known: OnceLock<Result<Arc<dyn Any + Send + Sync>, String>>,
    pub(super) file: Option<File>,
    pub(super) size: AtomicU64,
    pub(super) closed: AtomicBool,
    /// Place in the rings' file tables; `u32::MAX` for none.
    pub slot: AtomicU32,
    /// The group of lanes that serves each part; set once, when the engine takes the target in.
    pub groups: OnceLock<Vec<usize>>,
    pub closer: OnceLock<Box<dyn Closer>>,
}

impl Drop for TargetInner {
    fn drop(&mut self) {
        let slot = *self.slot.get_mut();
        if let (Some(closer), true) = (self.closer.get(), slot != u32::MAX) {
            closer.closed(slot);
        }
    }
}

impl TargetInner {
    /// A target without a file behind it, `size` bytes long.
    pub(super) fn bare(name: &str, engine: u64, kind: Kind, geometry: Geometry, size: u64) -> TargetInner {
        TargetInner {
            name: name.into(),
            engine,
            kind,
            geometry,
            direct: true,
            writable: true,
            polled: false,
            punts: false,
            unfixed: None,
            namespace: None,
            dax: None,
            striped: None,
            known: OnceLock::new(),
            file: None,
            size: AtomicU64::new(size),
            closed: AtomicBool::new(false),
            slot: AtomicU32::new(u32::MAX),
            groups: OnceLock::new(),
            closer: OnceLock::new(),
        }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn is_closed(&self) -> bool {
        let closed = |target: &TargetInner| target.closed.load(Ordering::Acquire);
        closed(self) || self.members().any(|member| closed(member))
    }

    /// The descriptor, if there is one.
    pub fn fd(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The drive that a device is on, and the disks of `/sys/block` that have its hardware queues. `None`: a file, or
    /// a device without queues of its own.
    pub fn drive(&self) -> Option<(String, Vec<String>)> {
        match (self.kind, &self.namespace) {
            (Kind::Nvme, Some(space)) => Some(nvme::drive_of(&space.controllers)),
            (Kind::Block, _) => probe::drive(self.file.as_ref()?),
            (Kind::Dax, _) => Some((self.dax.as_ref()?.name.clone(), Vec::new())),
            _ => None,
        }
    }

    /// What tells one target from another, whatever the path it was opened by: the device's number, or the file's.
    pub fn identity(&self) -> Option<(u64, u64)> {
        let meta = self.file.as_ref()?.metadata().ok()?;
        Some(if meta.rdev() != 0 { (0, meta.rdev()) } else { (meta.dev(), meta.ino()) })
    }

    /// Of a stripe, the member that has `offset` and where, for people.
    pub fn member_at(&self, offset: u64) -> Option<String> {
        let striped = self.striped.as_ref()?;
        let (member, at) = striped.stripe.place(offset);
        Some(format!("{} at {at}", striped.members[member as usize].name))
    }

    /// Registers a mapped target's memory with the CUDA driver, so that GPUs copy straight out of it. What came of it:
    /// [`TargetInner::pinned`].
    pub fn pin(&self, gpu: &Arc<Gpu>) {
        if let Some(dax) = &self.dax {
            let pinned = dax.mapping.pin(gpu, self.writable);
            pinned.unwrap_or_else(
                |why| tracing::info!(target = %self.name, %why, "GPUs do not reach a mapping"),
            );
        }
    }

    /// Whether `gpu` copies straight out of it, and if not, why.
    pub fn pinned(&self, gpu: &Gpu) -> Result<(), Arc<str>> {
        if self.striped.is_some() {
            return self.members().try_for_each(|member| member.pinned(gpu));
        }
        match self.dax.as_ref().map(|dax| dax.mapping.pinned()) {
            // Registered by one GPU for all, and pageable once that one's context is gone. Where `gpu`'s own is gone too
            // no copy is made, and its error says so.
            Some(Some(Ok(pinned))) if !pinned.is_there() && gpu.check("cuCtxGetId").is_ok() => {
                let gone = "its registration went with the context of another GPU, as by cudaDeviceReset; register memory \
                            of that GPU anew, or open the target again";
                Err(gone.into())
            }
            Some(Some(pinned)) => pinned.map(drop),
            Some(None) => {
                Err("no GPU's memory was registered yet, or the engine does not see the mapping".into())
            }
            None => Err("the target is not mapped memory".into()),
        }
    }

    /// Visits `len` bytes at `offset` of a mapped target that GPUs reach: each window lies in one registration, and may
    /// be joined to the one before or not.
    pub fn each_mapped(&self, mut offset: u64, mut len: u64, mut visit: impl FnMut(Window, bool)) {
        while len > 0 {
            let Some((window, joins)) = self.mapped(offset, len) else { return };
            if window.len() == 0 {
                return;
            }
            (offset, len) = (offset + window.len() as u64, len - window.len() as u64);
            visit(window, joins);
        }
    }

    /// The first of them.
    fn mapped(&self, offset: u64, len: u64) -> Option<(Window, bool)> {
        if let Some(Striped { stripe, members, .. }) = &self.striped {
            let (member, at) = stripe.place(offset);
            return members[member as usize].mapped(at, len.min(stripe.left_in_chunk(offset)));
        }
        let mapping = &self.dax.as_ref()?.mapping;
        let pinned = mapping.pinned()?.ok()?;
        let window = mapping.window(offset as usize, len as usize);
        Some((window.sub(0, pinned.span(window.addr())), !pinned.begins(window.addr())))
    }

    /// The members of a stripe; of another target, none.
    pub fn members(&self) -> impl Iterator<Item = &Arc<TargetInner>> {
        self.striped.iter().flat_map(|striped| &striped.members)
    }

    /// How many parts a transfer has, each of which the lanes of one group see to.
    pub fn parts(&self) -> usize {
        self.striped.as_ref().map_or(1, |striped| striped.parts.len())
    }

    /// The part of that number, where there are several.
    pub fn part(&self, number: usize) -> Option<Part> {
        let striped = self.striped.as_ref()?;
        striped.parts.get(number).map(|members| Part { stripe: striped.stripe, members: *members })
    }

    /// How many flushes make all of it durable.
    pub fn flushes(&self) -> u32 {
        self.striped.as_ref().map_or(1, |striped| striped.members.len() as u32)
    }

    /// Where flush `number` goes, as an offset.
    pub fn flush_at(&self, number: u32) -> u64 {
        self.striped.as_ref().map_or(0, |striped| number as u64 * striped.stripe.size)
    }

    fn error(&self, kind: ErrorKind, message: &'static str, offset: u64, len: u64) -> Error {
        Error::new(kind, message).on(&self.name).at(offset, len)
    }

    /// Everything about the target that can be checked before a transfer is issued.
    pub fn check(&self, op: Op) -> Result<(), Error> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "the target is closed; open it again").on(&self.name));
        }
        if op == Op::Write && !self.writable {
            let message = "the target was opened for reading; open it with OpenOptions::write()";
            return Err(Error::new(ErrorKind::ReadOnly, message).on(&self.name));
        }
        Ok(())
    }

    /// Everything about a range that can be checked before a transfer is issued.
    pub fn check_range(&self, op: Op, offset: u64, len: u64) -> Result<(), Error> {
        if len == 0 {
            let message = "an extent of no bytes; give a length of at least one byte";
            return Err(self.error(ErrorKind::InvalidInput, message, offset, len));
        }
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        let Some(end) = end else {
            let message = "offset and length overflow a file offset; check the arithmetic that made them";
            return Err(self.error(ErrorKind::InvalidInput, message, offset, len));
        };
        if end > self.size() {
            let message = match (op, self.kind) {
                (Op::Write, Kind::File) => {
                    "the range ends past the end of the target; grow it first with Target::set_size"
                }
                _ => "the range ends past the end of the target; see Target::size",
            };
            return Err(self.error(ErrorKind::OutOfBounds, message, offset, len));
        }
        if op == Op::Write && !self.geometry.aligned(offset, len) {
            let message =
                "a direct write must be whole blocks; align offset and length to Target::block_size";
            return Err(self.error(ErrorKind::Misaligned, message, offset, len));
        }
        Ok(())
    }

    /// Encodes a command for a queue. Of a stripe, it goes to the member that has `offset`.
    pub fn encode(
        &self,
        op: Op,
        offset: u64,
        window: Window,
        buffer: Option<u16>,
        user_data: u64,
    ) -> Request {
        if let Some(striped) = &self.striped {
            let (member, at) = striped.stripe.place(offset);
            return striped.members[member as usize].encode(op, at, window, buffer, user_data);
        }
        let slot = self.slot.load(Ordering::Relaxed);
        // Mapped without a page cache between, nothing is left for the kernel to write out.
        let fd = self.fd().filter(|_| self.dax.as_ref().is_none_or(|dax| dax.cached));
        let file = FileRef { fd: fd.unwrap_or(-1), slot: (slot != u32::MAX).then_some(slot) };
        let numbers = |space: &Namespace| Numbers {
            nsid: space.nsid,
            lba_shift: space.lba_shift,
            timeout_ms: space.timeout_ms,
        };
        let namespace = self.namespace.as_deref().map(numbers);
        let mapped = |dax: &Dax| dax.mapping.window(offset as usize, window.len());
        let mapped = self.dax.as_ref().map_or(Window::empty(), mapped);
        Request { op, file, offset, window, buffer, namespace, mapped, user_data, aside: false }
    }

    /// Most commands of a lane in flight. To a file that kernel workers serve more of them only wait there, and another
    /// lane whose workers are free could have them.
    pub fn most_in_flight(&self) -> u32 {
        if self.punts { ((2 << 20) / self.geometry.max_bytes).clamp(2, 8) } else { u32::MAX }
    }

    /// Decodes a queue's result for a command of `asked` bytes: a length or a negative errno; of passthrough 0, a
    /// NVMe status or a negative errno.
    pub fn decode(&self, result: i32, asked: u32) -> Decoded {
        match (-result, self.kind) {
            (0, Kind::Nvme) => Decoded::Moved(asked),
            (..0, Kind::Nvme) => {
                let status = Status(result as u16);
                if status.is_success() {
                    return Decoded::Moved(asked); // with bits that are no error
                }
                let fault = Fault::Nvme(status);
                if status.may_retry() { Decoded::Again(fault) } else { Decoded::Failed(fault) }
            }
            (..=0, _) => Decoded::Moved(result as u32),
            (errno @ (libc::EAGAIN | libc::EINTR), _) => Decoded::Again(Fault::Errno(errno)),
            (errno, _) => Decoded::Failed(Fault::Errno(errno)),
        }
    }
}

#[cfg(all(test, not(loom)))]
impl TargetInner {
    /// A target of the simulation, which knows it by `slot`.
    pub fn simulated(slot: u32, geometry: Geometry, direct: bool, size: u64) -> TargetInner {
        let mut target = TargetInner::bare(&format!("sim{slot}"), 0, Kind::File, geometry, size);
        (target.direct, target.slot) = (direct, AtomicU32::new(slot));
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Kind) -> TargetInner {
        TargetInner::bare("x", 0, kind, Geometry::unlimited(128 << 10), 1 << 20)
    }

    /// FACTS §6.4: what a device answered was handed up as an errno, or an errno taken for a length.
    #[test]
    fn results_are_lengths_or_errnos() {
        let file = target(Kind::File);
        for bytes in [0, 1, 4096, i32::MAX] {
            assert_eq!(file.decode(bytes, 4096), Decoded::Moved(bytes as u32));
        }
        for kind in [Kind::File, Kind::Block, Kind::Nvme, Kind::Null] {
            let target = target(kind);
            for errno in [libc::EAGAIN, libc::EINTR] {
                assert_eq!(target.decode(-errno, 4096), Decoded::Again(Fault::Errno(errno)));
            }
            for errno in [libc::EPERM, libc::EIO, libc::ENOSPC, libc::EFAULT, libc::ECANCELED, 4095] {
                assert_eq!(target.decode(-errno, 4096), Decoded::Failed(Fault::Errno(errno)));
            }
        }
    }

    /// A passthrough result is never a length: 1 is Invalid Opcode, 0 is all of it.
    #[test]
    fn passthrough_results_are_statuses() {
        let drive = target(Kind::Nvme);
        assert_eq!(drive.decode(0, 4096), Decoded::Moved(4096));
        for (status, again) in [(0x281, true), (0x4281, false), (7, false), (1, false)] {
            let fault = Fault::Nvme(Status(status));
            let expected = if again { Decoded::Again(fault) } else { Decoded::Failed(fault) };
            assert_eq!(drive.decode(status as i32, 4096), expected, "{status:#x}");
        }
    }
}
