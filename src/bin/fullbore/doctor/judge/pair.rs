//! The path between a target and memory: whether it is the best there is, and what stands in a better one's way.

use super::{About, Finding, Notes};
use crate::doctor::facts::{Device, Memory, Pair, What};
use crate::units::quoted;
use fullbore::Path;

pub fn findings(pair: &Pair, device: &Device) -> Vec<Finding> {
    let mut notes = Notes::on(About::Device(device.path.clone()));
    let to = name(&pair.memory);
    let Some(path) = pair.path else {
        // Why a target is not open was said before, and what helps.
        if device.opened().is_some() {
            no_path(pair, &to, &mut notes);
        }
        return notes.list;
    };
    let reason = &pair.reason;
    let best = best(device, &pair.memory);
    // cuFile is direct on some that are no NVMe drives, too (RAID over such): what is open cannot be better.
    if path == best || path == Path::CuFile {
        notes.ok(format!("to {to}: {path} ({reason}){}", hint(device, &pair.memory)));
    } else {
        notes.better(format!("to {to}: {path} instead of {best}: {reason}"), mend(device, pair, path));
    }
    notes.list
}

/// Memory as people call it.
pub fn name(memory: &Memory) -> String {
    match memory {
        Memory::Host => "host memory".into(),
        Memory::Unregistered => "unregistered host memory".into(),
        Memory::Gpu(gpu) => format!("gpu {gpu}"),
        Memory::Peer(address) => format!("peer memory of {address}"),
    }
}

fn no_path(pair: &Pair, to: &str, notes: &mut Notes) {
    let reason = &pair.reason;
    match &pair.memory {
        // Not a fault: nobody asked for it, and there is other memory.
        Memory::Peer(_) => notes.ok(format!("to {to}: none ({reason})")),
        Memory::Gpu(_) => {
            notes.broken(format!("to {to}: none: {reason}"), "nvidia-smi -q; dmesg | grep -e NVRM -e Xid")
        }
        _ => notes.broken(format!("to {to}: none: {reason}"), "free -m; ulimit -l"),
    }
}

/// The best path that there can be between the two.
pub fn best(device: &Device, memory: &Memory) -> Path {
    let kind = device.opened().map_or("file", |opened| opened.facts.kind);
    match (kind, memory) {
        ("dax", Memory::Gpu(_)) => Path::DaxToGpu,
        ("dax", _) => Path::Copy,
        // Only an NVMe drive reaches a GPU by itself: no module makes a SATA or a virtual disk do so, and tmpfs has none.
        (_, Memory::Gpu(_)) if device.survey.controllers.is_empty() => Path::PinnedBounce,
        (_, Memory::Gpu(_)) => Path::CuFile,
        ("nvme", Memory::Host) => Path::UringCmdFixed,
        ("nvme", _) => Path::UringCmd,
        (_, Memory::Host) => Path::Fixed,
        (_, _) => Path::Plain,
    }
}

/// A word about a better target, where there is one.
fn hint(device: &Device, memory: &Memory) -> String {
    let of_drive = device.what == What::Block && !device.survey.controllers.is_empty();
    match &device.survey.block {
        Some(block) if of_drive && *memory == Memory::Host => {
            format!(
                "; the namespace itself, /dev/{}, passes the block layer by",
                block.replacen("nvme", "ng", 1)
            )
        }
        _ => String::new(),
    }
}

/// What stands in the way, and the command against it.
fn mend(device: &Device, pair: &Pair, path: Path) -> String {
    let unfixed = device.opened().is_some_and(|opened| opened.facts.unregistered.is_some());
    match path {
        Path::FixedBuffered | Path::Buffered => format!("df -T {}   # ext4, xfs: they take O_DIRECT", quoted(&device.path)),
        Path::UringCmd if unfixed => "uname -r   # run a newer kernel: 6.2 or later".into(),
        Path::Plain | Path::UringCmd => {
            "sudo prlimit --pid $$ --memlock=unlimited:unlimited   # systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1".into()
        }
        Path::PinnedBounce if device.opened().is_some_and(|opened| opened.facts.kind == "dax") => {
            "nvidia-smi conf-compute -f; dmesg | grep -e NVRM -e Xid   # why the driver registers no host memory".into()
        }
        Path::PinnedBounce if pair.reason.contains("nvidia-fs absent") => {
            "modprobe nvidia-fs   # package nvidia-gds; or the open driver 565 and Linux 6.2 with P2PDMA".into()
        }
        Path::PinnedBounce => "/usr/local/cuda/gds/tools/gdscheck -p   # what cuFile lacks here".into(),
        _ => "fullbore doctor --json   # please report this path".into(),
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
