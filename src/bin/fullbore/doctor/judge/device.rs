//! What a target is and what holds it back, whatever the memory.

use super::{About, Finding, Notes};
use crate::doctor::facts::{Device, Disk, Link, Machine, Measured, Opened, Refusal, What};
use crate::units::{count, human, quoted};
use fullbore::ErrorKind;
use fullbore::machine::{CpuSet, QueueKind};

/// Commands of a lane by default: queues of fewer tags hold them back.
const DEPTH: u32 = 32;

pub fn findings(device: &Device, machine: &Machine) -> Vec<Finding> {
    let mut notes = Notes::on(About::Device(device.path.clone()));
    match &device.opened {
        Some(Err(refusal)) => {
            let (text, remedy) = (refusal.text.clone(), mend(device, refusal));
            notes.broken(text, remedy);
        }
        Some(Ok(opened)) => {
            limits(device, opened, &mut notes);
            file(device, opened, &mut notes);
        }
        None => {}
    }
    queues(device, machine, &mut notes);
    if matches!(device.what, What::Block | What::File | What::Folder) {
        device.disk.iter().for_each(|disk| scheduler(disk, &mut notes));
    }
    for pci in &device.pci {
        if let Some(link) = &pci.link {
            self::link(&pci.address, link, &mut notes);
        }
    }
    bench(&device.bench, &mut notes);
    notes.list
}

/// What helps against a refusal to open it.
fn mend(device: &Device, refusal: &Refusal) -> String {
    let path = quoted(&device.path);
    let readable = device.access.is_some_and(|access| access.read);
    match (refusal.kind, refusal.errno) {
        (_, Some(libc::EACCES | libc::EPERM)) if device.what == What::Folder => format!("ls -ld {path}; id"),
        (_, Some(libc::EACCES | libc::EPERM)) if !readable => {
            format!("sudo setfacl -m u:$(id -un):r {path}   # :rw to write; or a udev rule, or run as root")
        }
        // Its mode lets the process in and the kernel does not: a container's own list of devices.
        (_, Some(libc::EACCES | libc::EPERM)) if device.what == What::Block => {
            format!("docker run --device={path} ...   # in no container: sudo fullbore doctor {path}")
        }
        (_, Some(libc::EACCES | libc::EPERM)) => {
            format!("sudo fullbore doctor {path}   # or Linux 6.2 and later; docker: --device={path}")
        }
        (Some(ErrorKind::NotFound), _) | (_, Some(libc::ENOENT)) => {
            format!("ls -l {path} /dev/ng*n* /dev/dax*   # modprobe nvme, if there is a drive and no node")
        }
        (Some(ErrorKind::Unsupported), Some(_)) if device.what == What::Nvme => {
            "ls /dev/nvme*n*   # name the block device, or run Linux 5.19 or later".into()
        }
        (Some(ErrorKind::Unsupported), None) if device.what == What::Nvme => {
            format!("nvme id-ns -H {path}   # lists its formats; nvme format sets one and destroys all data")
        }
        (Some(ErrorKind::InvalidInput), _) => "ls /dev/ng*n* /dev/dax*   # or name a file or a folder".into(),
        (Some(ErrorKind::Resource), _) => "ulimit -n 65536; ulimit -l unlimited".into(),
        _ => "dmesg | tail".into(),
    }
}

/// The limits of a command, and the one that binds.
fn limits(device: &Device, opened: &Opened, notes: &mut Notes) {
    let limits = &opened.facts.limits;
    let of = |name: &str| limits.iter().find(|limit| limit.name == name).map(|limit| limit.bytes);
    let iommu = device.pci.iter().filter_map(|pci| pci.iommu.as_deref()).find(|kind| kind.starts_with("DMA"));
    if let (Some(kind), Some(drive), Some(driver)) = (iommu, of("mdts"), of("max_hw_sectors_kb"))
        && driver < drive
    {
        notes.better(
            format!(
                "the IOMMU translates ({kind}): commands end at {} where the drive takes {}",
                human(driver),
                human(drive)
            ),
            "sudo grubby --update-kernel=ALL --args=iommu=pt && sudo reboot   # Debian: GRUB_CMDLINE_LINUX, update-grub",
        );
    }
    let (Some(least), Some(asked)) = (limits.first(), of("command_size")) else { return };
    let size = human(least.bytes);
    notes.ok(match least.name {
        "command_size" => format!("commands of {size}, as the engine asks by default: no limit is less"),
        "mdts" => {
            format!("commands of {size} instead of {}: the drive's own limit (MDTS) binds", human(asked))
        }
        "max_segments" => {
            format!("commands of {size} instead of {}: the drive's segments bind", human(asked))
        }
        "max_sectors_kb" => format!("the kernel splits commands at {size} (max_sectors_kb)"),
        other => format!("commands of {size} instead of {}: {other} binds", human(asked)),
    });
}

/// Of files: what the file system does not do.
fn file(device: &Device, opened: &Opened, notes: &mut Notes) {
    let path = quoted(&device.path);
    if let Some(why) = &device.direct_refused {
        notes.better(
            format!("every byte goes through the page cache: {why}"),
            format!("df -T {path}   # move the file to ext4, xfs or a block device"),
        );
    }
    if opened.facts.kernel_workers {
        notes.better(
            "the file system cannot be asked without blocking (as tmpfs): threads of the kernel copy, and hand each command back",
            format!("fullbore bench --filename={path} --target=dax   # OpenOptions::mapped(): lanes copy themselves"),
        );
    }
}

fn queues(device: &Device, machine: &Machine, notes: &mut Notes) {
    let Some(map) = &device.survey.queues else {
        if device.what == What::Nvme && device.opened().is_some() {
            notes.better(
                "sysfs does not show its hardware queues: few commands are kept in flight",
                "mount -t sysfs sysfs /sys   # docker: -v /sys:/sys:ro",
            );
        }
        return near(device.node(), machine, notes);
    };
    let all = map.queues.iter().filter(|queue| queue.kind != QueueKind::Polled);
    let reached = all.clone().filter(|queue| queue.cpus.meets(&machine.allowed)).count();
    let (queues, least) = (all.clone().count(), all.map(|queue| queue.tags).min().unwrap_or(0));
    let ours = matches!(device.what, What::Nvme | What::Block);
    if ours && least < DEPTH {
        notes.better(
            format!(
                "a hardware queue takes {} at a time, a lane would keep {DEPTH} in flight",
                count(least.into(), "command")
            ),
            match device.survey.controllers.is_empty() {
                false => "echo options nvme io_queue_depth=1024 | sudo tee -a /etc/modprobe.d/nvme.conf; \
                          sudo update-initramfs -u; sudo reboot   # elsewhere: dracut -f"
                    .into(),
                true => format!(
                    "cat /sys/block/{}/queue/nr_requests",
                    device.survey.block.as_deref().unwrap_or("*")
                ),
            },
        );
    }
    if ours {
        let which = if reached == queues { "all".into() } else { reached.to_string() };
        notes.ok(format!(
            "{}, {which} reached from this process's CPUs",
            count(queues as u64, "hardware queue")
        ));
    }
    near(device.node(), machine, notes);
}

/// Whether the process has a CPU of the node.
pub fn near(node: Option<u32>, machine: &Machine, notes: &mut Notes) {
    let Some(home) = node.and_then(|node| machine.nodes.iter().find(|it| it.id == node)) else { return };
    if machine.nodes.len() < 2 {
        return;
    }
    let id = home.id;
    if home.cpus.is_empty() {
        return notes.ok(format!("node {id} has memory alone: the nearest CPUs serve it"));
    }
    let own: CpuSet = home.cpus.intersection(&machine.allowed);
    if own.is_empty() {
        notes.better(
            format!("it is on node {id} (CPUs {}), and this process may use none of those", home.cpus),
            format!("taskset -c {} COMMAND   # docker: --cpuset-cpus={}", home.cpus, home.cpus),
        );
    } else {
        notes.ok(format!("on node {id}, of which this process has CPUs {own}"));
    }
}

fn scheduler(disk: &Disk, notes: &mut Notes) {
    let name = &disk.name;
    match disk.scheduler.as_deref() {
        None => {}
        Some("none") => notes.ok(format!("{name}: no scheduler between")),
        Some(other) if disk.rotational => {
            notes.ok(format!("{name}: scheduler {other}, as is right for a rotating disk"))
        }
        Some(other) => notes.better(
            format!("{name}: the scheduler {other} holds commands back"),
            format!("echo none | sudo tee /sys/block/{name}/queue/scheduler"),
        ),
    }
}

/// A link that runs below what both its ends can.
pub fn link(address: &str, link: &Link, notes: &mut Notes) {
    let best = (link.best_speed(), link.best_width());
    let now = format!("PCIe link {address}: {} GT/s x{}", link.speed, link.width);
    if link.speed < best.0 || link.width < best.1 {
        notes.better(
            format!("{now}, where {} GT/s x{} are possible", best.0, best.1),
            format!("sudo lspci -vv -s {address} | grep Lnk   # reseat it, or move it to a better slot"),
        );
    } else if link.max_speed > best.0 || link.max_width > best.1 {
        notes.ok(format!(
            "{now}, the slot's best; in a better slot it could {} GT/s x{}",
            link.max_speed, link.max_width
        ));
    } else {
        notes.ok(format!("{now}, its best"));
    }
}

pub fn bench(bench: &Option<Result<Measured, String>>, notes: &mut Notes) {
    match bench {
        None => {}
        Some(Err(why)) => notes.broken(format!("reading it failed: {why}"), "dmesg | tail"),
        Some(Ok(it)) if it.agrees() => notes.ok(format!(
            "{:.2} GB/s: {} in {:.1} s by {}, up to {}; all counts of the bytes agree",
            it.gbps(),
            human(it.bytes),
            it.seconds,
            it.paths,
            count(it.most_in_flight, "command")
        )),
        Some(Ok(it)) => notes.broken(
            format!(
                "counts of bytes disagree: asked for {}, completed {}, counted by lanes {}",
                it.asked, it.bytes, it.counted
            ),
            "fullbore doctor --quick-bench --json   # a defect of this program: please report it",
        ),
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
