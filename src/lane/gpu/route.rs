//! Which way bytes go between a target and GPU memory, and why.

use crate::lane::job::Job;
use crate::lane::path::Path;
use crate::memory::cuda::Held;
use crate::plan::Extents;
use crate::queue::cufile::{Buffer, Handle, Mode, misaligned};
use crate::target::{Kind, Op, TargetInner};
use std::fmt;
use std::sync::Arc;

/// Why a path was taken: text that is made when somebody reads it.
#[derive(Debug)]
pub enum Why<'a> {
    Text(&'a str),
    /// What the driver said of the mapping.
    Mapping(Arc<str>),
    /// What cuFile said of the memory.
    Memory(&'a Held),
    /// What it says of itself.
    Mode(Arc<Handle>),
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Text(text) => f.write_str(text),
            Why::Mapping(why) => f.write_str(why),
            Why::Memory(held) => match held.known() {
                Some(Err(why)) => f.write_str(&why),
                _ => f.write_str("the memory is not registered with cuFile"),
            },
            Why::Mode(handle) => f.write_str(handle.reason()),
        }
    }
}

/// The target's file, as cuFile knows it.
pub fn handle(target: &TargetInner) -> Option<Arc<Handle>> {
    target.known.get()?.as_ref().ok()?.clone().downcast().ok()
}

/// The GPU's memory, as cuFile knows it.
pub fn buffer(held: &Held) -> Option<Arc<Buffer>> {
    held.known_as()?.downcast().ok()
}

/// The path between a target and a GPU's memory, and why no better one. cuFile is chosen by itself only where it is
/// direct: through its compatibility mode our bounce buffers are faster, and cannot hang.
pub fn path_of<'a>(
    target: &'a TargetInner,
    held: &'a Held,
    op: Op,
    demanded: Option<Path>,
) -> (Path, Why<'a>) {
    if target.kind == Kind::Dax {
        return match target.pinned(&held.gpu) {
            Ok(()) if op == Op::Read => {
                (Path::DaxToGpu, Why::Text("the mapping is registered with the driver"))
            }
            Ok(()) => (
                Path::PinnedBounce,
                Why::Text("a store is copied by the CPU: the GPU's own writes may stay in the CPU's caches"),
            ),
            Err(why) => (Path::PinnedBounce, Why::Mapping(why)),
        };
    }
    let Some(handle) = handle(target) else {
        let known = target.known.get().and_then(|known| known.as_ref().err());
        let none = if target.striped.is_some() {
            "stripes over files and drives are loaded through pinned memory"
        } else {
            "no direct path between storage and GPU memory was found on this machine"
        };
        return (Path::PinnedBounce, Why::Text(known.map_or(none, String::as_str)));
    };
    if held.known_as().is_none() {
        return (Path::PinnedBounce, Why::Memory(held));
    }
    let path = match handle.mode() {
        Mode::Direct { .. } => Path::CuFile,
        Mode::Compat if demanded == Some(Path::CuFileCompat) => Path::CuFileCompat,
        Mode::Compat => Path::PinnedBounce,
    };
    (path, Why::Mode(handle))
}

/// The path of a whole transfer. cuFile takes aligned ranges that are not small alone, unless its compatibility mode was
/// demanded.
pub fn path_of_job<'a>(job: &'a Job, held: &'a Held) -> (Path, Why<'a>) {
    let (path, why) = path_of(job.target(), held, job.op, job.require());
    if path != Path::CuFile {
        return (path, why);
    }
    if job.count() > 4 && job.asked() < u64::from(job.count()) << 20 {
        let why = "pieces of less than 1 MiB are gathered in pinned memory";
        return (Path::PinnedBounce, Why::Text(why));
    }
    let odd = (0..job.count()).find_map(|index| {
        let (offset, len) = job.range(index);
        misaligned(offset, job.piece(index).window.addr(), len)
    });
    odd.map_or((path, why), |odd| (Path::PinnedBounce, Why::Text(odd)))
}
