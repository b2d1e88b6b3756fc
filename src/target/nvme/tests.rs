//! Opening: on nodes that every machine has, and real namespaces where there are some.

use super::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const KIB: u32 = 1 << 10;

fn try_open(path: &str, command_size: u32) -> Result<Namespace, Error> {
    let file = File::open(path).unwrap();
    super::open(&file, &path.into(), false, false, command_size)
}

#[test]
fn major_numbers_are_looked_up_among_the_characters() {
    let devices =
        "Character devices:\n  1 mem\n234 nvme-generic\n235 nvme\n\nBlock devices:\n  7 loop\n236 nvme\n";
    for (major, node) in [
        (234, Node::Namespace),
        (235, Node::Controller),
        (1, Node::Other),
        (236, Node::Other),
        (23, Node::Other),
    ] {
        assert_eq!(kind_of_major(major, devices), node, "{major}");
    }
}

#[test]
fn other_nodes_are_refused_by_what_they_are() {
    for path in ["/dev/null", "/dev/zero", "/proc/self/exe", "/"] {
        assert_eq!(kind_of(Path::new(path)).unwrap(), Node::Other);
        let error = try_open(path, 128 * KIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains("no NVMe namespace") && error.target() == Some(path), "{error}");
    }
    assert_eq!(kind_of(Path::new("/dev/no-such")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_refusal_of_either_errno_is_a_permission_with_its_remedy() {
    for errno in [libc::EACCES, libc::EPERM] {
        let error = forbidden(&io::Error::from_raw_os_error(errno));
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Permission, Some(errno)));
        assert!(error.message().contains("CAP_SYS_ADMIN") && error.message().contains("chmod"), "{error}");
    }
}

#[test]
fn a_status_is_no_errno() {
    let error = answered("Identify", 0x4002).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, None));
    assert!(error.message().contains("Invalid Field in Command: sct 0, sc 0x02"), "{error}");
    assert_eq!(answered("Identify", 0), Ok(()));
}

fn limits(found: Option<(u64, u32)>, mdts: Option<u64>, lba_shift: u8, command_size: u32) -> (u32, u32) {
    let namespace =
        IdentifyNamespace { blocks: 8, lba_shift, format: 0, metadata: 0, write_protected: false };
    let (serial, model) = (String::new(), String::new());
    let controller = IdentifyController { serial, model, max_bytes: mdts, write_cache: false };
    let found = found.map(|(max_bytes, max_segments)| sysfs::Found {
        block: "nvme0n1".to_owned(),
        controllers: Vec::new(),
        max_bytes,
        max_segments,
        memory_align: 4,
        poll: false,
        timeout_ms: 30_000,
    });
    let geometry = geometry(&namespace, &controller, found.as_ref(), command_size);
    assert_eq!((geometry.block, geometry.memory_align, geometry.max_blocks), (1 << lba_shift, 4, 65536));
    (geometry.max_bytes, geometry.max_segments)
}

#[test]
fn the_least_limit_counts() {
    let big = u32::MAX;
    assert_eq!(limits(Some((512 << 10, 129)), None, 12, 128 * KIB), (128 * KIB, 129));
    assert_eq!(limits(Some((32 << 10, 9)), None, 12, 128 * KIB), (32 * KIB, 9));
    assert_eq!(limits(Some((512 << 10, 129)), None, 12, 10_000), (8192, 129), "whole blocks");
    assert_eq!(limits(Some((127 << 10, 129)), None, 14, 128 * KIB), (112 * KIB, 129), "whole blocks");
    assert_eq!(limits(Some((2_147_483_644 << 10, big)), None, 9, big), (big & !511, big));
    // Without sysfs: what the controller says, and what every driver takes.
    assert_eq!(limits(None, Some(32 << 10), 12, 128 * KIB), (32 * KIB, 9));
    assert_eq!(limits(None, None, 12, 128 * KIB), (128 * KIB, SURE_SEGMENTS));
    assert_eq!(limits(None, Some(1 << 63), 12, 128 * KIB), (128 * KIB, SURE_SEGMENTS));
}

/// All nodes of namespaces on this machine.
fn namespaces() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
    let mut nodes: Vec<PathBuf> =
        entries.filter(|path| kind_of(path).is_ok_and(|node| node == Node::Namespace)).collect();
    nodes.sort();
    nodes
}

fn read_number(path: PathBuf) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What we find by Identify is what the kernel's block layer says by itself.
#[test]
fn real_namespaces_are_as_the_block_layer_shows_them() {
    let nodes = namespaces();
    if nodes.is_empty() {
        println!("skipped: no /dev/ng* here");
    }
    for node in nodes {
        let name = node.to_str().unwrap();
        if let Err(error) = File::open(&node) {
            println!("skipped: {name}: {error}");
            continue;
        }
        let namespace = match try_open(name, u32::MAX) {
            Err(error) if error.kind() == ErrorKind::Permission => {
                println!("skipped: {error}");
                continue;
            }
            Err(error) if error.message().contains("metadata") => {
                println!("{error}");
                continue;
            }
            namespace => namespace.unwrap(),
        };
        println!("{name}: {namespace:?}");
        let disk = Path::new("/sys/block").join(namespace.block_name.as_ref().unwrap());
        assert_eq!(read_number(disk.join("size")), Some(namespace.size / 512));
        assert_eq!(read_number(disk.join("nsid")), Some(namespace.nsid as u64));
        let block = read_number(disk.join("queue/logical_block_size"));
        assert_eq!(block, Some(namespace.geometry.block as u64));
        for controller in &namespace.controllers {
            let queues = Path::new("/sys/block").join(&controller.block);
            assert!(queues.join("mq/0/cpu_list").exists(), "{controller:?}");
            assert!(
                namespace.geometry.max_segments as u64
                    <= read_number(queues.join("queue/max_segments")).unwrap()
            );
            let controller = format!("/dev/{}", controller.name);
            assert_eq!(kind_of(Path::new(&controller)).unwrap(), Node::Controller);
            if File::open(&controller).is_ok() {
                let error = try_open(&controller, 128 * KIB).unwrap_err();
                assert!(error.message().contains("it is an NVMe controller; name a namespace"), "{error}");
            }
        }
        let disk = format!("/dev/{}", namespace.block_name.as_ref().unwrap());
        if File::open(&disk).is_ok() {
            assert_eq!(try_open(&disk, 128 * KIB).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = std::process::Command::new(program).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

/// In the virtual machine (tests/vm), whose drives hold nothing of anybody's: everything that keeps us from writing.
#[test]
fn real_uses_of_a_namespace_keep_it_from_being_written() {
    let node = Path::new("/dev/drive/used-1");
    if std::env::var_os("FULLBORE_VM").is_none() || !node.exists() {
        println!("skipped: not in a tests/vm/run --drive name=used");
        return;
    }
    let file = File::options().read(true).write(true).open(node).unwrap();
    let open = |force| super::open(&file, &"used".into(), true, force, 128 * KIB);
    let refused = |what: &str| {
        let error = open(false).unwrap_err();
        println!("{error}");
        assert!(error.kind() == ErrorKind::InUse && error.message().contains(what), "{error} is not {what}");
        assert!(open(true).is_ok(), "forced");
    };
    let folder = std::env::temp_dir().join("used");
    let nowhere = in_use::Places { sys: &folder, dev: Path::new("/dev"), mountinfo: "" };
    let blind = |write, force| open_in(&file, write, force, 128 * KIB, nowhere);
    assert!(blind(true, false).unwrap_err().message().contains("cannot tell"));
    let (read, forced) = (blind(false, false).unwrap(), blind(true, true).unwrap());
    assert_eq!((read.geometry.max_segments, forced.controllers.len(), read.timeout_ms), (127, 0, 30_000));

    let name = open(false).unwrap().block_name.unwrap();
    let (block, part) = (format!("/dev/{name}"), format!("/dev/{name}p1"));
    let point = folder.to_str().unwrap();
    std::fs::create_dir_all(point).unwrap();

    run("mkfs.ext4", &["-q", &block]);
    assert!(open(false).is_ok(), "a file system that is not mounted");
    run("mount", &[&block, point]);
    refused(&format!("{name} is mounted on {point}"));
    run("umount", &[point]);

    run("mkswap", &[&block]);
    run("swapon", &[&block]);
    refused("claimed");
    run("swapoff", &[&block]);

    let wipe = || run("wipefs", &["-q", "-a", &block]);
    let write = |offset: u64, bytes: &[u8]| {
        let disk = File::options().write(true).open(&block).unwrap();
        disk.write_all_at(bytes, offset).unwrap();
        disk.sync_all().unwrap();
    };
    wipe();
    assert!(open(false).is_ok());
    // One partition of type 0x83, from block 256 on.
    let mut master = [0; 512];
    (master[446 + 4], master[446 + 9], master[446 + 13]) = (0x83, 1, 16);
    master[510..].copy_from_slice(&[0x55, 0xaa]);
    write(0, &master);
    refused("partition");
    // udev reads the table by itself, looks at what was written, and is in the way meanwhile.
    let settle = || run("udevadm", &["settle", "--timeout=30"]);
    let reread = |there: bool| {
        for _ in 0..100 {
            let _ = std::process::Command::new("blockdev").args(["--rereadpt", &block]).status();
            settle();
            if Path::new(&part).exists() == there {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{part} does not come or go");
    };
    reread(true);
    refused("it has partitions");
    run("mkfs.ext4", &["-q", &part]);
    run("mount", &[&part, point]);
    refused(&format!("{name}p1 is mounted on {point}"));
    run("umount", &[point]);
    settle();
    run("partx", &["-d", &block]);
    refused("partition table (MBR)");
    wipe();
    reread(false);
    assert!(open(false).is_ok());
    write(1 << open(true).unwrap().lba_shift, b"EFI PART");
    refused("partition table (GPT)");
    write(1 << open(true).unwrap().lba_shift, &[0; 8]);
    assert!(open(false).is_ok());
}

#[test]
fn a_namespace_with_metadata_is_refused() {
    let node = Path::new("/dev/drive/meta-1");
    if std::env::var_os("FULLBORE_VM").is_none() || !node.exists() {
        println!("skipped: not in a tests/vm/run --drive name=meta,ns=ms=8");
        return;
    }
    let error = try_open(node.to_str().unwrap(), 128 * KIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("8 bytes of metadata"), "{error}");
}
