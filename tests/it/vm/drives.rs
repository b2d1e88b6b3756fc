//! The machine's drives: found by name, filled with known content past the engine, counted by themselves.

use super::seen::head;
use crate::support::kernel::Pages;
use crate::support::{check, fill};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const MIB: u64 = 1 << 20;
/// Bytes of a unit in a drive's SMART log.
pub const SMART_UNIT: u64 = 512_000;

/// A namespace of a drive of the machine.
#[derive(Clone, Debug)]
pub struct Drive {
    /// "d0-1": serial number and namespace.
    pub name: String,
    /// /dev/drive/d0-1, a link to the character device.
    pub node: PathBuf,
    /// "nvme0n1", as traces name it ([`super::seen::Seen::disk`]) and as its block device is called.
    pub disk: String,
    /// Bytes.
    pub lba: u64,
    /// Bytes.
    pub size: u64,
}

/// Whether this runs in the machine. If not, says so.
pub fn in_machine() -> bool {
    let inside = Path::new("/dev/drive").is_dir() && std::env::var_os("FULLBORE_VM").is_some();
    if !inside {
        println!("skipped: not in the machine of tests/vm");
    }
    inside
}

/// The first namespaces of these drives; `None`, having said why, if this is no machine that has them.
pub fn drives<const N: usize>(names: [&str; N]) -> Option<[Drive; N]> {
    if !in_machine() {
        return None;
    }
    let missing: Vec<_> = names.iter().filter(|name| !there(name)).collect();
    if !missing.is_empty() {
        println!("skipped: this boot has no drive {missing:?}");
        return None;
    }
    Some(names.map(|name| Drive::of(&format!("{name}-1"))))
}

fn there(name: &str) -> bool {
    Path::new(&format!("/dev/drive/{name}-1")).exists()
}

fn number(path: impl AsRef<Path>) -> u64 {
    let path = path.as_ref();
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.trim().parse().unwrap_or_else(|e| panic!("{}: {text}: {e}", path.display()))
}

impl Drive {
    /// `name` as in "d0-1".
    pub fn of(name: &str) -> Drive {
        let node = PathBuf::from("/dev/drive").join(name);
        let target = fs::read_link(&node).expect("a link to the character device");
        let generic = target.file_name().and_then(|n| n.to_str()).expect("a name").to_string();
        let disk = generic.replacen("ng", "nvme", 1);
        let block = Path::new("/sys/block").join(&disk);
        let (lba, size) = (number(block.join("queue/logical_block_size")), 512 * number(block.join("size")));
        Drive { name: name.into(), node, disk, lba, size }
    }

    /// The block device.
    pub fn block(&self) -> PathBuf {
        Path::new("/dev").join(&self.disk)
    }

    /// It holds zeros whatever is written: QEMU's null device, which answers after a set time.
    pub fn is_null(&self) -> bool {
        self.name.starts_with("slow")
    }

    /// What its content is made of.
    pub fn seed(&self) -> u64 {
        self.name.bytes().fold(0, |seed, byte| seed << 8 | u64::from(byte))
    }

    /// The first path's entry in sysfs: with multipath it is hidden, and the head's has no hardware queues.
    pub fn path_entry(&self) -> PathBuf {
        let entries = fs::read_dir("/sys/block").expect("sysfs").flatten().map(|e| e.path());
        let of_it =
            |path: &PathBuf| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| head(n) == self.disk);
        let mut with_queues: Vec<_> = entries.filter(of_it).filter(|path| path.join("mq").exists()).collect();
        with_queues.sort();
        with_queues.into_iter().next().expect("a path with hardware queues")
    }

    /// The driver's queue that each CPU's commands go to, by default: those of the tracer, which begin at 1.
    pub fn queue_of_cpus(&self) -> BTreeMap<u32, u32> {
        let mut queues = BTreeMap::new();
        for entry in fs::read_dir(self.path_entry().join("mq")).expect("hardware queues").flatten() {
            let queue: u32 = entry.file_name().to_str().and_then(|n| n.parse().ok()).expect("a number");
            let cpus = fs::read_to_string(entry.path().join("cpu_list")).expect("its CPUs");
            let cpus = cpus.trim().split(", ").filter_map(|cpu| cpu.parse::<u32>().ok());
            // Polled queues come last and list the CPUs once more.
            cpus.for_each(|cpu| {
                let first = queues.entry(cpu).or_insert(queue + 1);
                *first = (queue + 1).min(*first);
            });
        }
        queues
    }

    /// A number of its queue folder, of the path.
    pub fn queue_limit(&self, name: &str) -> u64 {
        number(self.path_entry().join("queue").join(name))
    }

    /// NUMA node of the PCI device; `None` if it has none.
    pub fn node_number(&self) -> Option<u32> {
        let text = fs::read_to_string(self.path_entry().join("device/numa_node")).ok()?;
        text.trim().parse().ok()
    }

    /// Domain, bus, device and function of its controller.
    pub fn pci_address(&self) -> String {
        let device =
            fs::canonicalize(self.path_entry().join("device/device")).expect("its controller's device");
        device.file_name().and_then(|name| name.to_str()).expect("an address").into()
    }

    fn open(&self, write: bool) -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(write).custom_flags(libc::O_DIRECT);
        options.open(self.block()).expect("the block device, by root")
    }

    /// Puts its own content on the first `bytes`, once a process: what it holds is then checked by offset and seed.
    pub fn filled(&self, bytes: u64) -> &Drive {
        static FILLED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);
        let mut filled = FILLED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let so_far = filled.get_or_insert_default().entry(self.name.clone()).or_default();
        if *so_far < bytes && !self.is_null() {
            self.put(*so_far, bytes - *so_far);
            *so_far = bytes;
        }
        self
    }

    /// Puts its own content on a range, by O_DIRECT. When a device that was open for writing is closed, udev reads it to
    /// see what is on it now: those commands are waited for, lest a tracer takes them for the engine's.
    pub fn put(&self, offset: u64, len: u64) {
        let (file, mut pages) = (self.open(true), Pages::new(MIB.min(len.next_multiple_of(4096)) as usize));
        let mut at = offset;
        while at < offset + len {
            let piece = &mut pages.bytes_mut()[..MIB.min(offset + len - at) as usize];
            fill(piece, at, self.seed());
            file.write_all_at(piece, at).expect("the block device takes it");
            at += piece.len() as u64;
        }
        drop(file);
        let settled = Command::new("udevadm").args(["settle", "--timeout=30"]).status();
        assert!(settled.is_ok_and(|status| status.success()), "udev comes to rest");
    }

    /// Fails unless a range holds the content of `seed`, by O_DIRECT.
    #[track_caller]
    pub fn holds(&self, offset: u64, len: usize, seed: u64, what: &str) {
        check(&self.bytes(offset, len), offset, seed, what);
    }

    /// A range's bytes, by O_DIRECT.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut pages = Pages::new(len.next_multiple_of(4096));
        self.open(false)
            .read_exact_at(&mut pages.bytes_mut()[..len], offset)
            .expect("the block device gives it");
        pages.bytes()[..len].to_vec()
    }

    /// Bytes that the drive itself says were read from it, to a unit of [`SMART_UNIT`].
    pub fn smart_bytes_read(&self) -> u64 {
        let output = Command::new("nvme").args(["smart-log", "-o", "json"]).arg(&self.node).output();
        let output = output.expect("nvme-cli");
        assert!(output.status.success(), "nvme smart-log: {}", String::from_utf8_lossy(&output.stderr));
        let log: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        // A string, as it may have 128 bits; a number in other versions.
        let units = &log["data_units_read"];
        let units = units.as_str().map_or_else(|| units.as_u64(), |text| text.replace(',', "").parse().ok());
        units.expect("data_units_read") * SMART_UNIT
    }
}
