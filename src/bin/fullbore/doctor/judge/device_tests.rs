use super::super::sample::{
    cpus, dax, device as some, file, limit, link as best_link, machine, namespace, refusal,
};
use super::super::{Level, worst};
use super::*;
use crate::doctor::facts::Access;
use fullbore::machine::Limit;

#[track_caller]
fn one(device: &Device, level: Level, text: &str, remedy: &str) {
    let all = findings(device, &machine());
    let hit = |it: &&Finding| {
        it.level == level
            && it.text.contains(text)
            && it.remedy.as_deref().unwrap_or_default().contains(remedy)
    };
    assert!(all.iter().any(|it| hit(&it)), "no {level:?} with {text:?} and {remedy:?} in {all:#?}");
}

fn opened(device: &mut Device) -> &mut Opened {
    device.opened.as_mut().unwrap().as_mut().unwrap()
}

#[test]
fn what_cannot_be_opened_is_broken_with_the_command_that_opens_it() {
    let refused = |what, errno, kind, read| {
        let mut device = some("/dev/x", what, "nvme");
        device.access = Some(Access { mode: 0o600, owner: 0, group: 0, read, write: false });
        device.opened = Some(Err(refusal(errno, kind)));
        device
    };
    let (eacces, permission) = (libc::EACCES, ErrorKind::Permission);
    one(
        &refused(What::Nvme, eacces, permission, false),
        Level::Broken,
        "refused",
        "setfacl -m u:$(id -un):r /dev/x",
    );
    one(&refused(What::Nvme, eacces, permission, true), Level::Broken, "refused", "6.2");
    one(&refused(What::Block, libc::EPERM, permission, true), Level::Broken, "refused", "--device=/dev/x");
    let mut blank = refused(What::Folder, eacces, permission, false);
    blank.path = "/data/k v".into();
    one(&blank, Level::Broken, "refused", "ls -ld '/data/k v'; id");
    one(&refused(What::Folder, eacces, permission, false), Level::Broken, "refused", "ls -ld /dev/x");
    one(
        &refused(What::Other, libc::ENOENT, ErrorKind::NotFound, false),
        Level::Broken,
        "refused",
        "modprobe nvme",
    );
    one(
        &refused(What::Nvme, libc::EOPNOTSUPP, ErrorKind::Unsupported, true),
        Level::Broken,
        "refused",
        "5.19",
    );
    one(&refused(What::File, libc::EMFILE, ErrorKind::Resource, true), Level::Broken, "refused", "ulimit -n");
    one(&refused(What::File, libc::EIO, ErrorKind::Io, true), Level::Broken, "refused", "dmesg");
    let mut metadata = refused(What::Nvme, 0, ErrorKind::Unsupported, true);
    metadata.opened = Some(Err(Refusal { errno: None, ..refusal(0, ErrorKind::Unsupported) }));
    one(&metadata, Level::Broken, "refused", "nvme id-ns -H /dev/x");
}

#[test]
fn the_limit_that_binds_is_named() {
    let asked = limit("command_size", 128 << 10);
    for (least, text) in [
        (limit("mdts", 32 << 10), "32 KiB instead of 128 KiB: the drive's own limit (MDTS)"),
        (limit("max_segments", 64 << 10), "the drive's segments bind"),
        (limit("max_hw_sectors_kb", 64 << 10), "max_hw_sectors_kb binds"),
        (limit("max_sectors_kb", 64 << 10), "the kernel splits commands at 64 KiB"),
    ] {
        let mut drive = namespace();
        opened(&mut drive).facts.limits = vec![least, asked];
        one(&drive, Level::Ok, text, "");
    }
    one(&namespace(), Level::Ok, "commands of 128 KiB, as the engine asks", "");
}

#[test]
fn an_iommu_that_cuts_commands_can_be_mended() {
    let with = |kind: &str, limits: Vec<Limit>| {
        let mut drive = namespace();
        drive.pci[0].iommu = Some(kind.into());
        opened(&mut drive).facts.limits = limits;
        drive
    };
    let cut = vec![
        limit("command_size", 128 << 10),
        limit("max_hw_sectors_kb", 128 << 10),
        limit("mdts", 512 << 10),
    ];
    let text = "translates (DMA-FQ): commands end at 128 KiB where the drive takes 512 KiB";
    one(&with("DMA-FQ", cut.clone()), Level::Better, text, "iommu=pt");
    for (kind, limits) in [("identity", cut), ("DMA", namespace().opened().unwrap().facts.limits.clone())] {
        let all = findings(&with(kind, limits), &machine());
        assert_eq!(worst(&all), Level::Ok, "{all:#?}");
    }
}

#[test]
fn queues_are_judged_by_their_tags_and_the_cpus_that_reach_them() {
    one(&namespace(), Level::Ok, "2 hardware queues, all reached", "");
    let mut few = namespace();
    few.survey.queues.as_mut().unwrap().queues[1].tags = 7;
    one(&few, Level::Better, "7 commands at a time", "io_queue_depth");
    few.survey.controllers.clear();
    one(&few, Level::Better, "7 commands at a time", "nr_requests");
    // Polled queues take none of the engine's commands unless asked for.
    let mut polled = namespace();
    let queue = &mut polled.survey.queues.as_mut().unwrap().queues[1];
    (queue.kind, queue.tags) = (QueueKind::Polled, 7);
    one(&polled, Level::Ok, "1 hardware queue, all reached", "");
    let mut hidden = namespace();
    hidden.survey.queues = None;
    one(&hidden, Level::Better, "does not show its hardware queues", "sysfs");
}

#[test]
fn a_process_without_a_cpu_of_the_node_is_far_from_it() {
    let far = Machine { allowed: cpus("4-5"), ..machine() };
    let all = findings(&namespace(), &far);
    let note = all.iter().find(|it| it.level == Level::Better).expect("a finding");
    assert!(note.text.contains("on node 0 (CPUs 0-3)"), "{note:?}");
    assert!(note.remedy.as_ref().unwrap().contains("taskset -c 0-3"), "{note:?}");
    assert!(all.iter().any(|it| it.text.contains("2 hardware queues, 1 reached")), "{all:#?}");
    one(&dax(), Level::Ok, "on node 1, of which this process has CPUs 4-7", "");
    // Memory alone has no CPUs to be near to, and a machine of one node has no far side.
    let mut memory = machine();
    memory.nodes[1].cpus = cpus("");
    assert_eq!(worst(&findings(&dax(), &memory)), Level::Ok);
    memory.nodes.truncate(1);
    memory.allowed = cpus("7");
    assert_eq!(worst(&findings(&namespace(), &memory)), Level::Ok);
}

#[test]
fn schedulers_hold_back_what_does_not_rotate() {
    let with = |scheduler: &str, rotational| {
        let mut device = file();
        let disk = device.disk.as_mut().unwrap();
        (disk.scheduler, disk.rotational) = (Some(scheduler.into()), rotational);
        device
    };
    one(&with("mq-deadline", false), Level::Better, "mq-deadline", "/sys/block/sda/queue/scheduler");
    one(&with("mq-deadline", true), Level::Ok, "rotating", "");
    one(&with("none", false), Level::Ok, "no scheduler", "");
    // Passthrough goes past it.
    let mut drive = namespace();
    drive.disk.as_mut().unwrap().scheduler = Some("bfq".into());
    assert_eq!(worst(&findings(&drive, &machine())), Level::Ok);
}

#[test]
fn file_systems_that_stand_between_are_named() {
    let mut cached = file();
    cached.direct_refused = Some("no O_DIRECT here".into());
    one(&cached, Level::Better, "page cache: no O_DIRECT here", "df -T /data/kv");
    let mut tmpfs = file();
    opened(&mut tmpfs).facts.kernel_workers = true;
    one(&tmpfs, Level::Better, "tmpfs", "--target=dax");
}

#[test]
fn links_below_what_both_ends_can_are_named() {
    let with = |link: Link| {
        let mut drive = namespace();
        drive.pci[0].link = Some(link);
        drive
    };
    let best = best_link();
    one(
        &with(Link { width: 8, ..best }),
        Level::Better,
        "32 GT/s x8, where 32 GT/s x16",
        "lspci -vv -s 0000:01:00.0",
    );
    one(&with(Link { speed: 16.0, ..best }), Level::Better, "16 GT/s x16", "lspci");
    let slot = Link { speed: 16.0, port_speed: Some(16.0), ..best };
    one(&with(slot), Level::Ok, "in a better slot it could 32 GT/s x16", "");
    one(&with(best), Level::Ok, "its best", "");
}

#[test]
fn counts_that_disagree_are_broken() {
    let with = |bench| Device { bench: Some(bench), ..namespace() };
    let good = Measured {
        bytes: 6_000_000_000,
        asked: 6_000_000_000,
        counted: 6_000_000_000,
        seconds: 3.0,
        ..Default::default()
    };
    one(&with(Ok(good.clone())), Level::Ok, "2.00 GB/s", "");
    one(&with(Ok(Measured { counted: 1, ..good })), Level::Broken, "counted by lanes 1", "report");
    one(&with(Err("EIO".into())), Level::Broken, "reading it failed: EIO", "dmesg");
}
