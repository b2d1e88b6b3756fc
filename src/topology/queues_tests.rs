use super::QueueKind::{Default, Polled, Read};
use super::*;
use crate::topology::fake::Fake;

/// A hardware queue as sysfs shows it: what is in `cpu_list`, the folders `cpuM`, `nr_tags`.
type Row = (u32, &'static str, &'static [u32], &'static str);

/// The disk's folder lies below its device and is reached through links, as in sysfs; `nodes` are files `numa_node`.
fn tree(name: &str, disk: &str, rows: &[Row], files: &[(&str, &str)]) -> Fake {
    let pci = "devices/pci0000:40/0000:40:00.0/0000:41:00.0";
    let fake = Fake::new(name, &[]);
    let home = format!("{pci}/nvme/nvme0/{disk}");
    fake.link(&format!("block/{disk}"), &format!("../{home}"));
    for (number, cpu_list, cpus, tags) in rows {
        let queue = format!("{home}/mq/{number}");
        fake.file(&format!("{queue}/cpu_list"), &format!("{cpu_list}\n"));
        cpus.iter().for_each(|cpu| fake.folder(&format!("{queue}/cpu{cpu}")));
        if !tags.is_empty() {
            fake.file(&format!("{queue}/nr_tags"), &format!("{tags}\n"));
        }
    }
    fake.link(&format!("{home}/device"), "../../nvme0");
    for (path, content) in files {
        let path = match path.strip_prefix("PCI/") {
            Some(path) => format!("{pci}/{path}"),
            None => format!("{home}/{path}"),
        };
        fake.file(&path, content);
    }
    fake
}

fn read(fake: &Fake, disk: &str) -> QueueMap {
    QueueMap::read_from(fake.root(), disk).unwrap()
}

fn shown(map: &QueueMap) -> Vec<(u32, String, u32, QueueKind)> {
    map.queues.iter().map(|q| (q.number, q.cpus.to_string(), q.tags, q.kind)).collect()
}

fn numbers(map: &QueueMap) -> Vec<u32> {
    map.queues.iter().map(|queue| queue.number).collect()
}

/// Seen in the virtual machine, alike on 7.3.4 and 6.1: 2 CPUs, `nvme.poll_queues=1`, a path of a multipath head.
#[test]
fn a_drive_with_a_polled_queue() {
    let rows: &[Row] = &[(0, "0", &[0], "1023"), (1, "1", &[1], "1023"), (2, "0, 1", &[0, 1], "1023")];
    let files = [
        ("queue/io_poll", "1\n"),
        ("queue/nr_requests", "1023\n"),
        ("mq/0/nr_reserved_tags", "0\n"),
        ("PCI/nvme/nvme0/numa_node", "0\n"),
        ("PCI/numa_node", "0\n"),
    ];
    let fake = tree("polled", "nvme0c0n1", rows, &files);
    let map = read(&fake, "nvme0c0n1");
    let (zero, one, both) = ("0".to_owned(), "1".to_owned(), "0-1".to_owned());
    assert_eq!(shown(&map), [(0, zero, 1023, Default), (1, one, 1023, Default), (2, both, 1023, Polled)]);
    assert_eq!(map.node, Some(0));
    assert_eq!(numbers(&map.interrupt_queues()), [0, 1]);
    assert_eq!(numbers(&map.polled_queues()), [2]);
    assert_eq!(numbers(&map.read_queues()), [0, 1], "no queues for reads alone");
    assert_eq!(map.polled_queues().node, Some(0));
}

/// Seen on 7.3.4: 4 CPUs, `nvme.poll_queues=1 nvme.write_queues=2 nvme.io_queue_depth=8 isolcpus=3`. CPU 3 is in
/// no `cpu_list`, and queue 2, which it alone submits to, has an empty one.
const THREE_KINDS: &[Row] = &[
    (0, "0, 1", &[0, 1], "7"),
    (1, "2", &[2, 3], "7"),
    (2, "", &[3], "7"),
    (3, "2", &[2], "7"),
    (4, "1", &[1], "7"),
    (5, "0", &[0], "7"),
    (6, "0, 1, 2", &[0, 1, 2, 3], "7"),
];

#[test]
fn three_kinds_and_an_isolated_cpu() {
    let fake =
        tree("kinds", "nvme0n1", THREE_KINDS, &[("queue/io_poll", "1\n"), ("queue/nr_requests", "7\n")]);
    let map = read(&fake, "nvme0n1");
    let of = |map: QueueMap| shown(&map).into_iter().map(|(n, cpus, ..)| (n, cpus)).collect::<Vec<_>>();
    let own = |rows: &[(u32, &str)]| rows.iter().map(|&(n, cpus)| (n, cpus.to_owned())).collect::<Vec<_>>();
    assert_eq!(of(map.interrupt_queues()), own(&[(0, "0-1"), (1, "2-3")]));
    assert_eq!(of(map.read_queues()), own(&[(2, "3"), (3, "2"), (4, "1"), (5, "0")]));
    assert_eq!(of(map.polled_queues()), own(&[(6, "0-3")]));
    assert!(map.queues.iter().all(|queue| queue.tags == 7));
}

#[test]
fn a_second_kind_is_of_reads_where_nothing_polls() {
    let fake = tree("reads", "nvme0n1", &THREE_KINDS[..6], &[("queue/io_poll", "0\n")]);
    let map = read(&fake, "nvme0n1");
    assert_eq!(
        shown(&map).iter().map(|row| row.3).collect::<Vec<_>>(),
        [Default, Default, Read, Read, Read, Read]
    );
    assert!(map.polled_queues().queues.is_empty());
}

/// Few queues, each of them shared by many CPUs, and numbers as numbers, not as text.
#[test]
fn a_hundred_and_twenty_eight_queues() {
    let fake = tree("many", "nvme0n1", &[], &[("queue/nr_requests", "1023\n")]);
    for n in 0..128u32 {
        fake.file(&format!("block/nvme0n1/mq/{n}/cpu_list"), &format!("{n}, {}\n", n + 128));
        fake.file(&format!("block/nvme0n1/mq/{n}/nr_tags"), "1023\n");
    }
    let map = read(&fake, "nvme0n1");
    assert_eq!(numbers(&map), (0..128).collect::<Vec<_>>());
    assert!(map.queues.iter().all(|queue| queue.kind == Default));
    assert_eq!(map.queues[100].cpus.to_string(), "100,228", "without folders the list has to do");
}

#[test]
fn one_queue_of_all_cpus_with_offline_ones_and_a_gap_in_the_numbers() {
    let fake = tree("one", "vda", &[(0, "0, 1, 2, 3, 64", &[], "256")], &[]);
    assert_eq!(shown(&read(&fake, "vda")), [(0, "0-3,64".to_owned(), 256, Default)]);
    let fake = tree("gap", "nvme0n1", &[(0, "0", &[], "31"), (3, "1", &[], "31")], &[]);
    assert_eq!(numbers(&read(&fake, "nvme0n1")), [0, 3], "a queue without CPUs has no folder");
}

#[test]
fn tags_are_what_commands_of_ours_can_take() {
    for (allotted, reserved, requests, tags, why) in [
        ("1023", "0\n", "1023\n", 1023, "as most drives have it"),
        ("32", "2\n", "32\n", 30, "some are the driver's own"),
        ("1023", "0\n", "4\n", 4, "an administrator set it lower: nr_tags does not show it"),
        ("31", "0\n", "256\n", 31, "a scheduler's requests do not make tags"),
        ("", "0\n", "64\n", 64, "no nr_tags"),
        ("1", "1\n", "1\n", 1, "never none"),
    ] {
        let files = [("mq/0/nr_reserved_tags", reserved), ("queue/nr_requests", requests)];
        let mut rows = [(0, "0", &[0][..], "")];
        rows[0].3 = allotted;
        let fake = tree(&format!("tags-{allotted}-{tags}"), "nvme0n1", &rows, &files);
        assert_eq!(read(&fake, "nvme0n1").queues[0].tags, tags, "{why}");
    }
}

#[test]
fn the_node_is_the_controllers_or_its_pci_devices() {
    let rows: &[Row] = &[(0, "0", &[0], "31")];
    for (name, files, node) in [
        ("ctrl", vec![("PCI/nvme/nvme0/numa_node", "1\n")], Some(1)),
        ("pci", vec![("PCI/numa_node", "1\n")], Some(1)),
        ("bridge", vec![("PCI/numa_node", "-1\n"), ("PCI/../numa_node", "2\n")], Some(2)),
        ("minus", vec![("PCI/nvme/nvme0/numa_node", "-1\n"), ("PCI/numa_node", "-1\n")], None),
        ("none", vec![], None),
    ] {
        assert_eq!(read(&tree(name, "nvme0n1", rows, &files), "nvme0n1").node, node, "{name}");
    }
    // A loop device has no device at all.
    let loops =
        Fake::new("loop", &[("block/loop0/mq/0/cpu_list", "0, 1\n"), ("block/loop0/mq/0/nr_tags", "128\n")]);
    assert_eq!(read(&loops, "loop0").node, None);
}

#[test]
fn what_cannot_be_read_is_named() {
    let bare = tree("bare", "nvme0n1", &[], &[("queue/nr_requests", "128\n")]);
    let x: &[Row] = &[(0, "0, x", &[], "31")];
    let t: &[Row] = &[(0, "0", &[], "many")];
    let d: &[Row] = &[(0, "0", &[], "")];
    let four: &[Row] = &[(0, "0", &[], "1"), (1, "0", &[], "1"), (2, "0", &[], "1"), (3, "0", &[], "1")];
    for (fake, at_fault, kind) in [
        (bare, "multipath head", io::ErrorKind::NotFound),
        (Fake::new("nothing", &[]), "nvme0n1/mq", io::ErrorKind::NotFound),
        (tree("bad-list", "nvme0n1", x, &[]), "mq/0/cpu_list", io::ErrorKind::InvalidData),
        (tree("bad-tags", "nvme0n1", t, &[]), "mq/0/nr_tags", io::ErrorKind::InvalidData),
        (tree("no-depth", "nvme0n1", d, &[]), "nr_requests", io::ErrorKind::NotFound),
        (tree("four", "nvme0n1", four, &[]), "three kinds", io::ErrorKind::InvalidData),
    ] {
        let error = QueueMap::read_from(fake.root(), "nvme0n1").unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(at_fault), "{error} does not name {at_fault}");
    }
}

/// Whatever this machine has: each kind maps each CPU once.
#[test]
fn the_disks_of_this_machine_can_be_read() {
    let Ok(disks) = fs::read_dir("/sys/block") else {
        return println!("skipped: no /sys/block here");
    };
    let mut some = 0;
    for disk in disks.flatten() {
        let name = disk.file_name().into_string().unwrap();
        if !disk.path().join("mq/0").exists() {
            continue;
        }
        let map = QueueMap::read(&name).unwrap();
        println!("{name}: node {:?}, {:?}", map.node, shown(&map));
        let mut seen = std::collections::HashSet::new();
        for queue in &map.queues {
            assert!(queue.cpus.iter().all(|cpu| seen.insert((queue.kind, cpu))), "{name}: {queue:?}");
        }
        some += 1;
    }
    println!("{some} disks with hardware queues");
}
