//! Block devices that are mounted or held are not written to.

use super::refused;
use crate::support::{self, Folder, Loop, folders};
use fullbore::{Engine, ErrorKind as K, OpenOptions, Transfer};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

const WORDS: [&str; 4] = ["mounted, or held", "lsblk", "unmount it", "force"];

fn device() -> Option<(Loop, Folder)> {
    let folder = support::uring().then(folders)?.into_iter().next()?;
    match Loop::over(&folder.file("below", 16 << 20, 1), 512) {
        Ok(device) => Some((device, folder)),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

#[test]
fn a_held_device_is_not_written_to() {
    let Some((device, _folder)) = device() else { return };
    let engine = Engine::builder().lanes(1).build().unwrap();
    let free = engine.open(&device.path, OpenOptions::write()).expect("nobody holds it");
    refused(&engine, K::Unsupported, &["only a file"], || free.set_size(1 << 20));
    drop(free);
    // What a file system, LVM or RAID does to claim a device.
    let holder = File::options().read(true).custom_flags(libc::O_EXCL).open(&device.path).unwrap();
    let error = refused(&engine, K::InUse, &WORDS, || engine.open(&device.path, OpenOptions::write()));
    assert_eq!((error.errno(), error.target()), (Some(libc::EBUSY), device.path.to_str()));
    engine.open(&device.path, OpenOptions::read()).expect("reading a held device harms nobody");
    engine.open(&device.path, OpenOptions::write().force()).expect("forced");
    drop(holder);
    engine.open(&device.path, OpenOptions::write()).expect("free again");
    // Two engines on one drive are usual: opening it does not hold it.
    let (first, second) =
        (engine.open(&device.path, OpenOptions::write()), Engine::builder().lanes(1).build().unwrap());
    second.open(&device.path, OpenOptions::write()).expect("beside the first");
    drop(first);
}

/// In a child with mounts of its own: whatever happens, the mount ends with it.
#[test]
fn a_mounted_device_is_not_written_to() {
    support::child("bad_input::devices::a_mounted_device_is_not_written_to", &[]).keep_capabilities().run(
        || {
            let Some((device, folder)) = device() else { return };
            let device_name = device.path.to_str().unwrap();
            if !support::does("mkfs.ext4", &["-q", "-F", device_name]) {
                return eprintln!("skipped: no mkfs.ext4");
            }
            support::private_mounts();
            let place = folder.path.join("mounted");
            std::fs::create_dir(&place).unwrap();
            assert!(support::does("mount", &[device_name, place.to_str().unwrap()]));

            let engine = Engine::builder().lanes(1).build().unwrap();
            refused(&engine, K::InUse, &WORDS, || engine.open(&device.path, OpenOptions::write()));
            let target = engine.open(&device.path, OpenOptions::read()).expect("reading it harms nobody");
            let region = engine.alloc_host(4096).unwrap();
            let read = Transfer::read(&target).extent(1024, region.lease(0..1024).unwrap());
            let done = engine.client().unwrap().submit(read).unwrap().wait().unwrap();
            done.result.unwrap();
            let lease = done.transfer.unwrap().into_extents().remove(0).into_mem().into_host().unwrap();
            assert_eq!(lease[56..58], [0x53, 0xef], "the magic number of ext4");
            assert!(support::does("umount", &[place.to_str().unwrap()]));
            engine.open(&device.path, OpenOptions::write()).expect("free again");
        },
    );
}
