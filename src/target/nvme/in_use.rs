//! Refuses to write, unless forced, to a namespace that something else uses.
//!
//! Passthrough goes past the block layer, and with it past all that keeps a mounted disk from being overwritten.

use super::sysfs;
use crate::error::{Error, ErrorKind};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Where to look: `/sys`, `/dev` and the text of `/proc/self/mountinfo`.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    pub sys: &'a Path,
    pub dev: &'a Path,
    pub mountinfo: &'a str,
}

/// InUse if the namespace that `block` shows, or a partition of it, is mounted or held, or if it has partitions.
pub fn refuse(block: &str, places: Places) -> Result<(), Error> {
    let disks = sysfs::disks(places.sys, block)
        .map_err(|e| Error::io("cannot tell whether it is in use; is /sys mounted? Else force", &e))?;
    for (name, number) in &disks {
        if let Some(point) = mounted(number, name, places.mountinfo) {
            return Err(in_use(&format!("{name} is mounted on {point}"), "unmount it"));
        }
    }
    for (name, _) in &disks {
        let folder = places.sys.join("block").join(block);
        let folder = if name == block { folder } else { folder.join(name) };
        let holders = sysfs::entries(&folder.join("holders"))
            .map_err(|e| Error::io("cannot tell whether it is in use; is /sys mounted? Else force", &e))?;
        if !holders.is_empty() {
            let by = format!("{name} is held by {} (LVM, RAID or the like)", holders.join(", "));
            return Err(in_use(&by, "take it out of there"));
        }
    }
    if let Some((name, _)) = disks.get(1) {
        return Err(in_use(&format!("it has partitions, {name} among them"), "remove them (wipefs -a)"));
    }
    let (_, number) = &disks[0];
    if claimed(&places.dev.join(block), number) {
        let by = format!(
            "{block} is claimed by something in the kernel (another mount namespace, swap, LVM, RAID)"
        );
        return Err(in_use(&by, "see lsblk, and release it"));
    }
    Ok(())
}

/// InUse if blocks 0 and 1 of a medium show a partition table: also one that the kernel has not read.
pub fn refuse_table(first: &[u8], second: &[u8]) -> Result<(), Error> {
    match partition_table(first, second) {
        Some(table) => Err(in_use(&format!("it has a partition table ({table})"), "remove it (wipefs -a)")),
        None => Ok(()),
    }
}

fn in_use(by: &str, remedy: &str) -> Error {
    let message =
        format!("{by}; writing would destroy that: {remedy}, or ask for it with OpenOptions::force");
    Error::new(ErrorKind::InUse, message)
}

/// Where a block device is mounted: by its number, or by its name (btrfs numbers its mounts itself).
fn mounted<'a>(number: &str, name: &str, mountinfo: &'a str) -> Option<&'a str> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (device, point) = (fields.nth(2)?, fields.nth(1)?);
        // Optional fields end with a dash; the type and the source follow.
        let source = fields.skip_while(|field| *field != "-").nth(2);
        let by_name = source.and_then(|source| source.strip_prefix("/dev/")) == Some(name);
        (device == number || by_name).then_some(point)
    })
}

/// Whether the kernel keeps refusing to open the block node exclusively: another process may be looking just as we
/// do, for a moment. A node that is not there, is another's or may not be opened tells nothing.
fn claimed(node: &Path, number: &str) -> bool {
    let same = |meta: fs::Metadata| {
        let rdev = meta.rdev();
        format!("{}:{}", nix::sys::stat::major(rdev), nix::sys::stat::minor(rdev)) == number
    };
    if !fs::metadata(node).is_ok_and(same) {
        return false;
    }
    held(node)
}

/// Whether a block device is mounted, or held by another driver: then the kernel gives it to nobody exclusively. Tried,
/// and given back: several processes on one drive are usual. Another engine that asks the same holds it for a moment.
pub fn held(node: &Path) -> bool {
    let flags = libc::O_EXCL | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let busy = || {
        let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(node);
        opened.is_err_and(|error: io::Error| error.raw_os_error() == Some(libc::EBUSY))
    };
    (0..5).all(|attempt| {
        std::thread::sleep(Duration::from_millis(10 * attempt));
        busy()
    })
}

/// What kind of partition table blocks 0 and 1 show. A table made for 512-byte blocks is found on larger ones too.
fn partition_table(first: &[u8], second: &[u8]) -> Option<&'static str> {
    const GPT: &[u8] = b"EFI PART";
    if second.starts_with(GPT) || first.get(512..).is_some_and(|rest| rest.starts_with(GPT)) {
        return Some("GPT");
    }
    let master = first.get(..512).filter(|sector| sector[510..] == [0x55, 0xaa])?;
    let (entries, _) = master[446..510].as_chunks::<16>();
    // A boot sector of a file system has the signature too, and code in place of the table: its flags give it away.
    let flags = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    let used = entries.iter().any(|entry| entry[4] != 0 && entry[12..] != [0; 4]);
    (flags && used).then_some("MBR")
}

#[cfg(test)]
mod tests {
    use super::super::fake::Tree;
    use super::*;

    fn refused(tree: &Tree, mountinfo: &str) -> Option<String> {
        let dev = tree.root().join("nodes");
        let places = Places { sys: tree.root(), dev: &dev, mountinfo };
        let error = refuse("nvme0n1", places).err()?;
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.message().contains("OpenOptions::force"), "{error}");
        Some(error.message().to_owned())
    }

    fn with_partition(name: &str) -> Tree {
        let tree = Tree::plain(name);
        tree.file("block/nvme0n1/nvme0n1p1/partition", "1\n");
        tree.file("block/nvme0n1/nvme0n1p1/dev", "259:7\n");
        tree
    }

    #[test]
    fn a_namespace_of_nobody_may_be_written() {
        let tree = Tree::plain("free");
        let others = "21 1 259:10 / / rw - ext4 /dev/nvme0n10 rw\n22 1 0:5 / /x rw shared:1 - btrfs /dev/nvme0n1p1 rw\n";
        assert_eq!(refused(&tree, others), None);
    }

    #[test]
    fn mounts_are_found_by_number_and_by_name() {
        let tree = Tree::plain("mounted");
        let message =
            refused(&tree, "21 1 259:1 / /data rw,relatime shared:1 - ext4 /dev/nvme0n1 rw\n").unwrap();
        assert!(message.contains("nvme0n1 is mounted on /data"), "{message}");
        // Btrfs, and no optional field.
        let message = refused(&tree, "21 1 0:44 / /btr rw - btrfs /dev/nvme0n1 rw\n").unwrap();
        assert!(message.contains("mounted on /btr"), "{message}");
        let tree = with_partition("part-mounted");
        let message = refused(&tree, "21 1 259:7 / /home rw - ext4 /dev/root rw\n").unwrap();
        assert!(message.contains("nvme0n1p1 is mounted on /home"), "{message}");
    }

    #[test]
    fn holders_and_partitions() {
        let tree = Tree::plain("held");
        tree.file("block/nvme0n1/holders/dm-3", "");
        assert!(refused(&tree, "").unwrap().contains("nvme0n1 is held by dm-3"));
        let tree = with_partition("partition");
        assert!(refused(&tree, "").unwrap().contains("it has partitions, nvme0n1p1 among them"));
        tree.file("block/nvme0n1/nvme0n1p1/holders/md0", "");
        assert!(refused(&tree, "").unwrap().contains("nvme0n1p1 is held by md0"));
    }

    #[test]
    fn tables_on_the_medium() {
        let zeros = [0; 4096];
        assert_eq!(partition_table(&zeros, &zeros), None);
        assert_eq!(partition_table(&[], &[]), None);
        assert_eq!(partition_table(&[0xff; 512], &[0xff; 512]), None);

        let (mut small, mut large) = ([0; 512], [0; 4096]);
        small[..8].copy_from_slice(b"EFI PART");
        assert_eq!(partition_table(&[0; 512], &small), Some("GPT"));
        large[..8].copy_from_slice(b"EFI PART");
        assert_eq!(partition_table(&zeros, &large), Some("GPT"));
        assert_eq!(partition_table(&large, &zeros), None, "not in block 0");
        let mut foreign = zeros;
        foreign[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(partition_table(&foreign, &zeros), Some("GPT"), "made for blocks of 512 bytes");

        let mut master = zeros;
        master[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(partition_table(&master, &zeros), None, "a signature and no entry");
        (master[446 + 16], master[446 + 16 + 4], master[446 + 16 + 12]) = (0x80, 0x83, 1);
        assert_eq!(partition_table(&master, &zeros), Some("MBR"));
        assert!(refuse_table(&master, &zeros).unwrap_err().message().contains("(MBR)"));
        master[446] = b'R';
        assert_eq!(partition_table(&master, &zeros), None, "code of a boot sector");
    }
}
