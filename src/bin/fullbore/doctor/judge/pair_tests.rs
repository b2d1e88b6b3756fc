use super::super::Level;
use super::super::sample::{dax, device, file, namespace, pair};
use super::*;

#[track_caller]
fn is(device: &Device, memory: Memory, path: Path, level: Level, remedy: &str) {
    let all = findings(&pair(&device.path, memory, path), device);
    let [only] = &all[..] else { panic!("one finding a pair: {all:?}") };
    assert_eq!(only.level, level, "{only:?}");
    assert!(only.remedy.as_deref().unwrap_or_default().contains(remedy), "{remedy:?} is not in {only:?}");
    assert!(only.text.contains(path.name()) && only.text.contains("so"), "path and reason: {only:?}");
}

#[test]
fn the_best_path_of_every_pair_is_well() {
    let gpu = Memory::Gpu(0);
    let peer = Memory::Peer("0000:01:00.0".into());
    is(&namespace(), Memory::Host, Path::UringCmdFixed, Level::Ok, "");
    is(&namespace(), Memory::Unregistered, Path::UringCmd, Level::Ok, "");
    is(&namespace(), peer, Path::UringCmd, Level::Ok, "");
    is(&namespace(), gpu.clone(), Path::CuFile, Level::Ok, "");
    is(&dax(), Memory::Host, Path::Copy, Level::Ok, "");
    is(&dax(), gpu.clone(), Path::DaxToGpu, Level::Ok, "");
    is(&file(), Memory::Host, Path::Fixed, Level::Ok, "");
    is(&file(), Memory::Unregistered, Path::Plain, Level::Ok, "");
    // On tmpfs there is no device that could reach a GPU, and a SATA disk cannot, whatever module is loaded.
    is(&device("/dev/shm/x", What::File, "file"), gpu.clone(), Path::PinnedBounce, Level::Ok, "");
    is(&file(), gpu.clone(), Path::PinnedBounce, Level::Ok, "");
    is(&file(), gpu, Path::CuFile, Level::Ok, "");
}

#[test]
fn a_worse_path_has_the_command_that_opens_the_better_one() {
    let gpu = Memory::Gpu(0);
    is(&namespace(), Memory::Host, Path::UringCmd, Level::Better, "--memlock=unlimited");
    is(&file(), Memory::Host, Path::Plain, Level::Better, "--memlock=unlimited");
    is(&file(), Memory::Host, Path::FixedBuffered, Level::Better, "df -T /data/kv");
    is(&dax(), gpu.clone(), Path::PinnedBounce, Level::Better, "NVRM");
    is(&namespace(), gpu, Path::PinnedBounce, Level::Better, "gdscheck");
    let mut old = namespace();
    old.opened.as_mut().unwrap().as_mut().unwrap().facts.unregistered = Some("EINVAL".into());
    is(&old, Memory::Host, Path::UringCmd, Level::Better, "6.2 or later");
}

#[test]
fn cufile_that_is_absent_has_its_module_named() {
    let reason = "cuFile has no direct path here: nvidia-fs absent".to_owned();
    let row = Pair { reason, ..pair("/dev/ng0n1", Memory::Gpu(0), Path::PinnedBounce) };
    let all = findings(&row, &namespace());
    assert!(all[0].remedy.as_ref().unwrap().contains("modprobe nvidia-fs"), "{all:?}");
}

#[test]
fn a_pair_without_a_path_is_broken_unless_the_target_is() {
    let none = |memory| Pair { path: None, ..pair("/dev/ng0n1", memory, Path::Fixed) };
    assert_eq!(findings(&none(Memory::Gpu(0)), &namespace())[0].level, Level::Broken);
    assert_eq!(findings(&none(Memory::Host), &namespace())[0].level, Level::Broken);
    assert_eq!(findings(&none(Memory::Peer("x".into())), &namespace())[0].level, Level::Ok);
    let closed = Device { opened: None, ..namespace() };
    assert_eq!(findings(&none(Memory::Host), &closed), []);
}

#[test]
fn of_a_drives_block_device_the_namespace_is_named() {
    let block = Device { what: What::Block, ..namespace() };
    let mut block = Device { path: "/dev/nvme0n1".into(), ..block };
    block.opened.as_mut().unwrap().as_mut().unwrap().facts.kind = "block";
    let all = findings(&pair("/dev/nvme0n1", Memory::Host, Path::Fixed), &block);
    assert!(
        all[0].level == Level::Ok && all[0].text.contains("/dev/ng0n1, passes the block layer by"),
        "{all:?}"
    );
}
