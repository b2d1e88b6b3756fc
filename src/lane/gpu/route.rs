//! Which way bytes go between a target and GPU memory, and why.

use crate::lane::job::Job;
use crate::lane::path::Path;
use crate::memory::cuda::Held;
use crate::plan::Extents;
use crate::queue::cufile::{Buffer, Handle, Mode, misaligned};
use crate::target::{Kind, Op, TargetInner};
use std::borrow::Cow;
use std::sync::Arc;

/// The target's file, as cuFile knows it.
pub fn handle(target: &TargetInner) -> Option<Arc<Handle>> {
    target.known.get()?.as_ref().ok()?.clone().downcast().ok()
}

/// The GPU's memory, as cuFile knows it.
pub fn buffer(held: &Held) -> Option<Arc<Buffer>> {
    held.known()?.ok()?.downcast().ok()
}

/// The path between a target and a GPU's memory, and why no better one. cuFile is chosen by itself only where it is
/// direct: through its compatibility mode our bounce buffers are faster, and cannot hang.
pub fn path_of(
    target: &TargetInner,
    held: &Held,
    op: Op,
    demanded: Option<Path>,
) -> (Path, Cow<'static, str>) {
    let bounce = |why: Cow<'static, str>| (Path::PinnedBounce, why);
    if target.kind == Kind::Dax {
        return match target.pinned() {
            Ok(()) if op == Op::Read => (Path::DaxToGpu, "the mapping is registered with the driver".into()),
            Ok(()) => bounce(
                "a store is copied by the CPU: the GPU's own writes may stay in the CPU's caches".into(),
            ),
            Err(why) => bounce(why.to_owned().into()),
        };
    }
    let Some(known) = target.known.get() else {
        return bounce("no direct path between storage and GPU memory was found on this machine".into());
    };
    let handle = match known.clone().map(|known| known.downcast::<Handle>()) {
        Ok(Ok(handle)) => handle,
        Ok(Err(_)) => return bounce("cuFile has no file for it".into()),
        Err(why) => return bounce(why.into()),
    };
    match held.known() {
        Some(Ok(_)) => {}
        Some(Err(why)) => return bounce(why.into()),
        None => return bounce("the memory is not registered with cuFile".into()),
    }
    match handle.mode() {
        Mode::Direct { .. } => (Path::CuFile, handle.reason().to_owned().into()),
        Mode::Compat if demanded == Some(Path::CuFileCompat) => {
            (Path::CuFileCompat, format!("{}; it was demanded", handle.reason()).into())
        }
        Mode::Compat => bounce(handle.reason().to_owned().into()),
    }
}

/// The path of a whole transfer. cuFile takes aligned ranges that are not small alone, unless its compatibility mode was
/// demanded.
pub fn path_of_job(job: &Job, held: &Held) -> (Path, Cow<'static, str>) {
    let (path, why) = path_of(job.target(), held, job.op, job.require());
    if path != Path::CuFile {
        return (path, why);
    }
    let small = job.count() > 4 && job.asked() < u64::from(job.count()) << 20;
    let odd = (0..job.count()).find_map(|index| {
        let (offset, len) = job.range(index);
        misaligned(offset, job.piece(index).window.addr(), len)
    });
    match odd {
        _ if small => (Path::PinnedBounce, "pieces of less than 1 MiB are gathered in pinned memory".into()),
        Some(why) => (Path::PinnedBounce, why.into()),
        None => (path, why),
    }
}
