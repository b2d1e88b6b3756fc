//! Looks at a target: what sysfs shows without opening it, then what the engine says of it, opened for reading.

use super::{pci, sys::Sys};
use crate::doctor::facts::{Access, Device, Disk, Opened, Refusal, What};
use crate::stop::MadeFile;
use fullbore::machine::{self, CpuSet, Survey, Topology};
use fullbore::{Engine, ErrorKind, OpenOptions, Target};
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use std::fs::{self, Metadata};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a file that is made in a folder.
const SAMPLE: usize = 1 << 20;

/// A target, and what stays open of it while paths are asked for.
pub struct Seen {
    pub device: Device,
    pub target: Option<Target>,
    /// The file that stands for a folder: goes when all is over.
    pub made: Option<MadeFile>,
}

/// Where and with what to look.
pub struct Eyes<'a> {
    pub sys: &'a Sys,
    pub engine: Option<&'a Engine>,
    pub topology: &'a Topology,
    pub allowed: &'a CpuSet,
}

impl Eyes<'_> {
    pub fn look(&self, path: &Path) -> Seen {
        let meta = fs::metadata(path);
        let (survey, refused) = match machine::look(path) {
            Ok(survey) => (survey, None),
            Err(error) => (Survey::default(), Some(Refusal::from(error))),
        };
        let what = meta.as_ref().map_or(What::Other, |meta| what(meta, &survey));
        let nearest = survey.dax.as_ref().and_then(|dax| dax.node);
        let mut seen = Seen {
            device: Device {
                path: path.display().to_string(),
                what,
                access: meta.as_ref().ok().map(|meta| access(path, meta)),
                opened: None,
                direct_refused: None,
                disk: disk(self.sys, &survey),
                pci: self.pci(&survey),
                nearest_cpus: nearest.map(|node| self.topology.nearest_cpus(node, self.allowed)),
                bench: None,
                survey,
            },
            target: None,
            made: None,
        };
        match (what, refused, self.engine) {
            // Nothing is there: that is all there is to say.
            (What::Other, Some(refused), _) => seen.device.opened = Some(Err(refused)),
            (What::Folder, _, Some(engine)) => open_folder(engine, path, &mut seen),
            (_, _, Some(engine)) => open(engine, path, &mut seen),
            (_, _, None) => {}
        }
        seen
    }

    fn pci(&self, survey: &Survey) -> Vec<crate::doctor::facts::Pci> {
        let addresses = survey.controllers.iter().filter_map(|controller| controller.address.as_deref());
        addresses.filter_map(|address| pci::read(self.sys, address)).collect()
    }
}

fn what(meta: &Metadata, survey: &Survey) -> What {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => What::Folder,
        () if kind.is_file() => What::File,
        () if kind.is_block_device() => What::Block,
        () if survey.dax.is_some() => What::Dax,
        () if kind.is_char_device() && survey.block.is_some() => What::Nvme,
        () => What::Other,
    }
}

fn access(path: &Path, meta: &Metadata) -> Access {
    let may = |how| faccessat(AT_FDCWD, path, how, AtFlags::AT_EACCESS).is_ok();
    let (read, write) = (may(AccessFlags::R_OK), may(AccessFlags::W_OK));
    Access { mode: meta.mode() & 0o7777, owner: meta.uid(), group: meta.gid(), read, write }
}

fn disk(sys: &Sys, survey: &Survey) -> Option<Disk> {
    let name = survey.block.clone()?;
    // A multipath head has no scheduler: its paths have.
    let below = survey.controllers.first().map_or(&name, |controller| &controller.block);
    let schedulers = sys.text(format!("/sys/block/{below}/queue/scheduler"));
    let rotational = sys.number(format!("/sys/block/{name}/queue/rotational")) == Some(1);
    Some(Disk { scheduler: schedulers.as_deref().and_then(chosen), rotational, name })
}

/// `none [mq-deadline] kyber`: the one in brackets. A single name is written without.
fn chosen(schedulers: &str) -> Option<String> {
    let mut words = schedulers.split_whitespace();
    let bracketed = words.clone().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    bracketed.or(words.next()).map(str::to_owned)
}

fn open(engine: &Engine, path: &Path, seen: &mut Seen) {
    let mut opened = engine.open(path, OpenOptions::read());
    // A file system without O_DIRECT: what is left is the page cache.
    if seen.device.what != What::Nvme
        && let Err(error) = &opened
        && error.kind() == ErrorKind::Unsupported
        && let Ok(buffered) = engine.open(path, OpenOptions::read().buffered())
    {
        seen.device.direct_refused = Some(error.message().to_owned());
        opened = Ok(buffered);
    }
    seen.device.opened = Some(match opened {
        Ok(target) => {
            let facts = engine.facts(&target);
            let (size, block, memory_alignment) =
                (target.size(), target.block_size(), target.memory_alignment());
            let drive = target.drive();
            if facts.kind == "nvme" {
                seen.device.what = What::Nvme; // also where sysfs does not show it
            }
            seen.target = Some(target);
            Ok(Opened { size, block, memory_alignment, facts, drive })
        }
        Err(error) => Err(error.into()),
    });
}

/// Makes a file in a folder and opens that.
fn open_folder(engine: &Engine, folder: &Path, seen: &mut Seen) {
    match sample(folder) {
        Ok(made) => {
            let path = made.path().to_owned();
            seen.made = Some(made);
            open(engine, &path, seen);
        }
        Err(error) => {
            let text = format!("no file can be made in the folder to look at: {error}");
            seen.device.opened = Some(Err(Refusal { text, errno: error.raw_os_error(), kind: None }));
        }
    }
}

fn sample(folder: &Path) -> std::io::Result<MadeFile> {
    let path: PathBuf = folder.join(format!("fullbore-doctor-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let made = MadeFile::new(path);
    file.write_all(&vec![0; SAMPLE])?;
    file.sync_all()?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_in_brackets_is_the_one() {
        assert_eq!(chosen("none [mq-deadline] kyber").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("[none] mq-deadline").as_deref(), Some("none"));
        assert_eq!((chosen("none").as_deref(), chosen("")), (Some("none"), None));
    }
}
