//! cuFile for an engine: whether it is used, and what it is told of files and memory.

use super::shared::Shared;
use crate::lane;
use crate::memory::cuda::{Gpu, Held};
use crate::memory::{RegionInner, lock};
use crate::queue::cufile::{CuFile, Mode, Workers};
use crate::target::{Kind, TargetInner};
use std::any::Any;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// When cuFile (GPUDirect Storage) is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CuFileUse {
    /// Never; its library is not even loaded.
    Never,
    /// Where this machine shows signs of a direct path (the module nvidia-fs, or a GPU that publishes peer memory), and
    /// cuFile then says that it has one: the default.
    #[default]
    WhereDirect,
    /// As before, but its library is asked whatever the machine shows; and its compatibility mode may be demanded
    /// (`Transfer::require(Path::CuFileCompat)`).
    Asked,
}

/// How long the library may take to learn of a file or of memory.
const WITHIN: Duration = Duration::from_secs(10);

/// cuFile, as an engine has it.
pub struct Here {
    pub cufile: Arc<CuFile>,
    /// For calls that the caller waits for.
    calls: Workers,
}

/// Something of cuFile's, or why there is none.
type Known = Result<Arc<dyn Any + Send + Sync>, String>;

/// Whether it is worth the while to load the library.
fn shows_signs(gpu: &Gpu) -> bool {
    let published = format!("/sys/bus/pci/devices/{}/p2pmem", gpu.address);
    Path::new("/proc/driver/nvidia-fs").exists() || Path::new(&published).exists()
}

impl Shared {
    /// cuFile, loaded when the first GPU comes; the error says why it is not used.
    pub(super) fn cufile(&self, gpu: &Arc<Gpu>) -> Result<&Here, &str> {
        let load = || {
            match self.settings.cufile {
                CuFileUse::Never => return Err("the engine was built without cuFile".into()),
                CuFileUse::WhereDirect if !shows_signs(gpu) => {
                    return Err("cuFile has no direct path here: nvidia-fs absent, and the GPU publishes no peer memory".into());
                }
                _ => {}
            }
            let cufile = CuFile::load()?;
            if cufile.mode() == Mode::Compat && self.settings.cufile != CuFileUse::Asked {
                return Err(cufile.reason().to_owned());
            }
            let context = gpu.clone();
            let prepare = Box::new(move || {
                let _ = context.adopt(); // a call that needs it says so
            });
            let calls = Workers::new(&cufile, 2, Arc::default(), Box::new(|| {}), prepare);
            Ok(Here { cufile, calls })
        };
        self.cufile.get_or_init(load).as_ref().map_err(String::as_str)
    }

    /// Tells cuFile of a target, once a GPU is there.
    pub(super) fn tell_cufile(&self, target: &Arc<TargetInner>, gpu: &Arc<Gpu>) {
        if target.kind != Kind::Dax {
            let known = self.cufile(gpu).map_err(str::to_owned).and_then(|here| here.file(target));
            if let Err(why) = &known {
                tracing::debug!(target = %target.name, why, "GPUs are served by pinned bounce");
            }
            let _ = target.known.set(known);
        }
    }

    /// Why a path that was demanded over GPU memory does not run, and what helps; `None`: for the reason that the path
    /// which runs has.
    pub(super) fn why_not(
        &self,
        wanted: lane::Path,
        found: lane::Path,
        target: &TargetInner,
    ) -> Option<&'static str> {
        use lane::Path::{CuFile, CuFileCompat, DaxToGpu, PinnedBounce};
        let mapped = target.kind == Kind::Dax;
        match wanted {
            DaxToGpu if !mapped => Some("the target is not mapped; open it with OpenOptions::mapped"),
            CuFile | CuFileCompat if mapped => Some("cuFile serves no mapped target; open the file unmapped"),
            CuFileCompat if found == PinnedBounce && self.settings.cufile != CuFileUse::Asked => {
                Some("the engine does not ask cuFile for it; build it with cufile(CuFileUse::Asked)")
            }
            PinnedBounce if mapped => Some("the GPU copies out of the mapping; open the file unmapped"),
            PinnedBounce => Some("cuFile is direct here; build the engine with cufile(CuFileUse::Never)"),
            DaxToGpu | CuFile | CuFileCompat => None,
            _ => Some("it is a path to host memory; demand one to a GPU, such as PinnedBounce"),
        }
    }

    /// Tells cuFile of a GPU's memory.
    pub(super) fn tell_cufile_of(&self, region: &RegionInner) {
        let Some(held) = region.device() else { return };
        let known = match self.cufile(&held.gpu) {
            Ok(here) => here.memory(region, held),
            Err(why) => Err(why.to_owned()),
        };
        *lock(&held.known) = Some(known);
    }
}

impl Here {
    fn file(&self, target: &TargetInner) -> Known {
        if !target.direct {
            return Err("the page cache was asked for, which cuFile passes by".into());
        }
        // Of a namespace, the block device: cuFile knows no passthrough.
        let block = target.namespace.as_ref().and_then(|space| space.block_name.clone());
        let opened = block.map(|name| open_block(&name, target.writable)).transpose()?;
        let fd = opened
            .as_ref()
            .map(AsRawFd::as_raw_fd)
            .or(target.fd())
            .ok_or("a stripe has no file of its own")?;
        let cufile = self.cufile.clone();
        let told = self.calls.within(WITHIN, move || cufile.register_file(fd));
        drop(opened); // cuFile has a descriptor of its own
        match told.and_then(|told| told) {
            Ok(handle) => Ok(handle),
            Err(error) => Err(format!("cuFile does not take the file: {error}")),
        }
    }

    fn memory(&self, region: &RegionInner, held: &Held) -> Known {
        let (base, len) = (region.base(), region.len());
        // What is ours is kept until cuFile has let go of it; a caller's stays until release, which comes after.
        let owner: Arc<dyn Any + Send + Sync> = match &held.memory {
            Some(memory) => memory.clone(),
            None => Arc::new(()),
        };
        let (cufile, gpu) = (self.cufile.clone(), held.gpu.clone());
        let told = self.calls.within(WITHIN, move || {
            let _entered = gpu.enter();
            cufile.register_buffer(base, len, owner)
        });
        match told.and_then(|told| told) {
            Ok(buffer) => Ok(buffer),
            Err(error) => Err(format!("cuFile does not take the memory: {error}")),
        }
    }
}

fn open_block(name: &str, write: bool) -> Result<File, String> {
    let node = format!("/dev/{name}");
    let opened = OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(&node);
    opened.map_err(|e| format!("cuFile needs the namespace's block device, and {node} cannot be opened: {e}"))
}
