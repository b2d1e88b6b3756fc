//! A device and a machine in lines of label and value, for people. Findings are beside them.

use super::facts::{Device, Facts, GpuFacts, Pci, Process, What};
use crate::units::{count, human};
use fullbore::machine::{HardwareQueue, QueueKind};

/// Hardware queues that are listed each; of more, the first ones.
const QUEUES: usize = 8;

pub type Line = (&'static str, String);

pub fn process(facts: &Facts) -> Vec<Line> {
    let Process { uid, seccomp, io_uring_disabled, memlock, open_files, .. } = &facts.process;
    let limit = |limit: Option<u64>, show: fn(u64) -> String| limit.map_or("unlimited".into(), show);
    let seccomp = match seccomp {
        Some(0) => "no filter",
        Some(_) => "a filter is in force",
        None => "not to be seen",
    };
    let sysctl = match io_uring_disabled {
        Some(value) => format!("kernel.io_uring_disabled is {value}"),
        None => "no kernel.io_uring_disabled".into(),
    };
    let works = |feature: &&fullbore::machine::Feature| feature.errno.is_none();
    let names = facts.machine.features.iter().filter(works).map(|feature| feature.name);
    vec![
        (
            "user",
            match *uid {
                0 => "0 (root)".into(),
                u32::MAX => "not to be seen".into(), // no /proc
                uid => format!("{uid} (not root: of what it may not open, what sysfs shows)"),
            },
        ),
        ("io_uring", names.collect::<Vec<_>>().join(" ")),
        ("seccomp", format!("{seccomp}; {sysctl}")),
        (
            "limits",
            format!(
                "memlock {} (at most {}), open files {} (at most {})",
                limit(memlock.soft, human),
                limit(memlock.hard, human),
                limit(open_files.soft, |n| n.to_string()),
                limit(open_files.hard, |n| n.to_string())
            ),
        ),
        ("group", facts.process.cgroup.path.clone().unwrap_or_else(|| "no control group to be seen".into())),
    ]
}

pub fn heading(device: &Device) -> String {
    let what = match device.what {
        What::Nvme => "NVMe namespace",
        What::Block => "block device",
        What::Dax => "DAX device",
        What::File => "file",
        What::Folder => "folder",
        What::Other => "no target",
    };
    let mut text = format!("{} ({what}", device.path);
    if let Some(opened) = device.opened() {
        if let Some(drive) = &opened.drive {
            text += &format!(", {} {}", drive.model, drive.serial);
        }
        if device.what != What::Folder {
            text += &format!(", {}", human(opened.size));
        }
    }
    text + ")"
}

pub fn device(device: &Device) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(access) = &device.access {
        let may = |yes, what| if yes { what } else { "" };
        let rights = match format!("{}{}", may(access.read, "read"), may(access.write, " write")) {
            none if none.is_empty() => "nothing".into(),
            rights => rights.trim().to_owned(),
        };
        let text =
            format!("mode {:o}, user {}, group {}: may {rights}", access.mode, access.owner, access.group);
        lines.push(("rights", text));
    }
    if let Some(opened) = device.opened() {
        let format = opened.facts.lba_format.map_or(String::new(), |number| format!(", LBA format {number}"));
        lines.push((
            "blocks",
            match (opened.block, opened.memory_alignment) {
                (1, 1) => "bytes, anywhere in memory".into(),
                (block, align) => format!("{block} bytes{format}; memory at multiples of {align}"),
            },
        ));
        let limits = opened.facts.limits.iter().map(|limit| format!("{} {}", limit.name, human(limit.bytes)));
        lines.push(("limits", limits.collect::<Vec<_>>().join(" < ")));
    }
    queues(device, &mut lines);
    if let Some(disk) = &device.disk {
        let scheduler = disk.scheduler.as_deref().unwrap_or("not to be seen");
        let passed_by = if device.what == What::Nvme { " (commands pass it by)" } else { "" };
        lines.push(("disk", format!("{}, scheduler {scheduler}{passed_by}", disk.name)));
    }
    for controller in &device.survey.controllers {
        let node = controller.node.map_or("no node".into(), |node| format!("node {node}"));
        let at = controller.address.as_deref().unwrap_or("?");
        lines.push(("drive", format!("{} at {at}, {node}", controller.name)));
    }
    lines.extend(device.pci.iter().map(|pci| ("iommu", iommu(pci))));
    if let Some(dax) = &device.survey.dax {
        let node = dax.node.map_or("no node".into(), |node| format!("node {node}"));
        lines.push(("memory", format!("{} in pages of {}, {node}", human(dax.size), human(dax.align))));
    }
    if let Some(cpus) = &device.nearest_cpus {
        lines.push(("nearest", format!("CPUs {cpus}")));
    }
    lines
}

fn queues(device: &Device, lines: &mut Vec<Line>) {
    let Some(map) = &device.survey.queues else { return };
    let one = |queue: &HardwareQueue| {
        let kind = match queue.kind {
            QueueKind::Default => "",
            QueueKind::Read => " (reads)",
            QueueKind::Polled => " (polled)",
        };
        format!("queue {}{kind} on CPUs {}", queue.number, queue.cpus)
    };
    let mut text: Vec<String> = map.queues.iter().take(QUEUES).map(one).collect();
    if map.queues.len() > QUEUES {
        text.push(format!("{} more", map.queues.len() - QUEUES));
    }
    let tags = map.queues.iter().map(|queue| queue.tags).min().unwrap_or(0);
    lines.push(("queues", format!("{}; {} each", text.join("; "), count(tags.into(), "tag"))));
    let polled = map.queues.iter().filter(|queue| queue.kind == QueueKind::Polled).count();
    if device.what == What::Nvme {
        lines.push((
            "polled",
            match polled {
                0 => "no queues that are polled (nvme.poll_queues=N makes some; only --polled needs them)"
                    .into(),
                some => format!("{} for --polled", count(some as u64, "queue")),
            },
        ));
    }
}

fn iommu(pci: &Pci) -> String {
    match pci.iommu.as_deref() {
        None => "none between the drive and memory: it takes nothing off a command's size".into(),
        Some("identity") => "identity (it passes addresses on): it takes nothing off a command's size".into(),
        Some(kind) => {
            format!("{kind} (it translates): commands over 128 KiB may be cut, each costs a mapping")
        }
    }
}

pub fn gpu_heading(facts: &GpuFacts) -> String {
    match &facts.gpu {
        Ok(gpu) => format!("gpu {} ({}, {})", facts.ordinal, gpu.name, gpu.address),
        Err(_) => format!("gpu {}", facts.ordinal),
    }
}

pub fn gpu(facts: &GpuFacts) -> Vec<Line> {
    let Ok(gpu) = &facts.gpu else { return Vec::new() };
    let mut lines =
        vec![("node", gpu.node.map_or("the machine does not say".into(), |node| node.to_string()))];
    if let Some(link) = facts.pci.as_ref().and_then(|pci| pci.link) {
        lines.push((
            "link",
            format!(
                "{} GT/s x{} now, {} GT/s x{} its best, {} GT/s x{} with its slot",
                link.speed,
                link.width,
                link.max_speed,
                link.max_width,
                link.best_speed(),
                link.best_width()
            ),
        ));
    }
    if let Some(kind) = facts.pci.as_ref().and_then(|pci| pci.iommu.as_deref()) {
        lines.push(("iommu", kind.into()));
    }
    lines
}
