//! A `/sys` and a `/dev` of a test's own making.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Removed when dropped.
pub struct Tree(PathBuf);

/// What a disk with queues says of them.
const QUEUE: &[(&str, &str)] = &[
    ("max_hw_sectors_kb", "512\n"),
    ("max_segments", "129\n"),
    ("dma_alignment", "3\n"),
    ("io_poll", "0\n"),
    ("io_timeout", "30000\n"),
];

impl Tree {
    pub fn new(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("fullbore-nvme-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Tree(root)
    }

    /// As Linux 6.1 with nvme_core.multipath=N shows a drive: /dev/ng0n1 is 234:0, /dev/nvme0n1 259:1.
    pub fn plain(name: &str) -> Tree {
        let tree = Tree::new(name);
        let controller = "devices/pci0000:40/0000:41:00.0/nvme/nvme0";
        tree.controller(controller, "0000:41:00.0\n", "1\n");
        tree.disk(&format!("{controller}/nvme0n1"), "259:1\n", controller);
        tree.queues(&format!("{controller}/nvme0n1"));
        tree.generic(&format!("{controller}/ng0n1"));
        tree.file("module/nvme_core/parameters/io_timeout", "30\n");
        tree
    }

    /// As Linux 7.3 shows a drive of two controllers; besides, disks of other namespaces with names much like its.
    pub fn multipath(name: &str) -> Tree {
        let tree = Tree::new(name);
        let head = "devices/virtual/nvme-subsystem/nvme-subsys0";
        tree.disk(&format!("{head}/nvme0n1"), "259:1\n", head);
        tree.file(&format!("{head}/nvme0n1/queue/max_hw_sectors_kb"), "2147483644\n");
        tree.generic(&format!("{head}/ng0n1"));
        for (number, node) in [(10, "1\n"), (3, "0\n")] {
            let controller = format!("devices/pci0000:40/0000:4{number}:00.0/nvme/nvme{number}");
            tree.controller(&controller, &format!("0000:4{number}:00.0\n"), node);
            for disk in
                [format!("nvme0c{number}n1"), format!("nvme0c{number}n11"), format!("nvme00c{number}n1")]
            {
                tree.disk(&format!("{controller}/{disk}"), "0:0\n", &controller);
                tree.queues(&format!("{controller}/{disk}"));
            }
        }
        tree.file("module/nvme_core/parameters/io_timeout", "30\n");
        tree
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, path: &str, content: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.0.join(path)).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.0.join(to), path).unwrap();
    }

    fn generic(&self, folder: &str) {
        self.file(&format!("{folder}/dev"), "234:0\n");
        self.link("dev/char/234:0", folder);
    }

    fn controller(&self, folder: &str, address: &str, node: &str) {
        self.file(&format!("{folder}/address"), address);
        self.file(&format!("{folder}/numa_node"), node);
    }

    fn disk(&self, folder: &str, dev: &str, device: &str) {
        self.file(&format!("{folder}/dev"), dev);
        self.link(&format!("{folder}/device"), device);
        let (_, name) = folder.rsplit_once('/').unwrap();
        self.link(&format!("block/{name}"), folder);
    }

    fn queues(&self, disk: &str) {
        self.file(&format!("{disk}/mq/0/cpu_list"), "0\n");
        for (name, value) in QUEUE {
            self.file(&format!("{disk}/queue/{name}"), value);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
