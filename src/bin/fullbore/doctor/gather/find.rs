//! What there is to look at when nobody named anything, and what is there and cannot be reached.

use super::pci::{self, Function};
use super::sys::Sys;
use crate::doctor::facts::Unseen;
use std::path::PathBuf;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// NVMe namespaces, DAX devices, the temp folder.
    pub paths: Vec<PathBuf>,
    pub unseen: Vec<Unseen>,
}

/// Looks at the whole machine.
pub fn everything(sys: &Sys, temp: PathBuf) -> Found {
    let mut found = Found::default();
    namespaces(sys, &mut found);
    dax(sys, &mut found);
    let nvme = pci::functions(sys, "0x0108", None);
    found.unseen.extend(nvme.iter().filter_map(without_driver));
    found.paths.push(temp);
    found
}

fn namespaces(sys: &Sys, found: &mut Found) {
    let nodes: Vec<String> =
        sys.entries("/dev").into_iter().filter(|name| is_namespace(name, "ng")).collect();
    // A multipath kernel lists the head alone here; its node is what is opened.
    let known = sys.entries("/sys/class/nvme-generic").into_iter().filter(|name| is_namespace(name, "ng"));
    for name in known.filter(|name| !nodes.contains(name)) {
        found.unseen.push(Unseen {
            remedy: format!("docker run --device=/dev/{name} ...   # outside a container: udevadm trigger"),
            what: format!("the namespace {name} is on this machine, and its node /dev/{name} is not here"),
        });
    }
    found.paths.extend(nodes.iter().map(|name| PathBuf::from("/dev").join(name)));
    if !nodes.is_empty() {
        return;
    }
    // A kernel before 5.13 has no generic nodes; a container may have been given block devices alone.
    let blocks = sys.entries("/dev").into_iter().filter(|name| is_namespace(name, "nvme"));
    found.paths.extend(blocks.map(|name| PathBuf::from("/dev").join(name)));
}

/// `ng0n1`, `nvme0n1`: a namespace, not its controller, partition or path.
fn is_namespace(name: &str, prefix: &str) -> bool {
    let numbers = name.strip_prefix(prefix).and_then(|rest| rest.split_once('n'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(instance, space)| digits(instance) && digits(space))
}

fn dax(sys: &Sys, found: &mut Found) {
    for name in sys.entries("/sys/bus/dax/devices") {
        let node = PathBuf::from("/dev").join(&name);
        if sys.path(&node).exists() {
            found.paths.push(node);
            continue;
        }
        let driver = sys.link_name(format!("/sys/bus/dax/devices/{name}/driver"));
        found.unseen.push(match driver.as_deref() {
            Some("kmem") => Unseen {
                what: format!("the DAX device {name} is used as system memory"),
                remedy: format!("daxctl reconfigure-device --mode=devdax {name}"),
            },
            Some(_) => Unseen {
                what: format!("the DAX device {name} is on this machine, and its node is not here"),
                remedy: format!(
                    "docker run --device=/dev/{name} ...   # outside a container: udevadm trigger"
                ),
            },
            None => Unseen {
                what: format!("the DAX device {name} has no driver"),
                remedy: "modprobe device_dax".into(),
            },
        });
    }
}

/// A drive that the kernel's driver does not have.
fn without_driver(function: &Function) -> Option<Unseen> {
    let address = &function.address;
    let what = match function.driver.as_deref() {
        Some("nvme") => return None,
        Some(other) => format!("the drive at {address} belongs to the driver {other}, not to nvme"),
        None => format!("the drive at {address} has no driver"),
    };
    Some(Unseen { what, remedy: format!("driverctl unset-override {address}; modprobe nvme") })
}

#[cfg(test)]
mod tests {
    use super::super::sys::tests::Tree;
    use super::*;

    fn names(found: &Found) -> Vec<String> {
        found.paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn namespaces_and_dax_devices_are_found_and_what_is_not_here_is_named() {
        let tree = Tree::new(
            "find",
            &[
                ("dev/ng0n1", ""),
                ("dev/ng10n1", ""),
                ("dev/nvme0n1", ""),
                ("dev/nvme0", ""),
                ("dev/dax0.0", ""),
                ("sys/class/nvme-generic/ng0n1/dev", ""),
                ("sys/class/nvme-generic/ng2n1/dev", ""),
                ("sys/bus/dax/devices/dax0.0/size", ""),
                ("sys/bus/dax/devices/dax1.0/size", ""),
                ("sys/bus/dax/devices/dax2.0/size", ""),
                ("sys/bus/pci/devices/0000:01:00.0/class", "0x010802"),
                ("sys/bus/pci/devices/0000:02:00.0/class", "0x010802"),
            ],
        );
        tree.link("sys/bus/dax/devices/dax1.0/driver", "/sys/bus/dax/drivers/kmem");
        tree.link("sys/bus/pci/devices/0000:01:00.0/driver", "/sys/bus/pci/drivers/nvme");
        tree.link("sys/bus/pci/devices/0000:02:00.0/driver", "/sys/bus/pci/drivers/vfio-pci");
        let found = everything(&tree.0, "/t".into());
        assert_eq!(names(&found), ["/dev/ng0n1", "/dev/ng10n1", "/dev/dax0.0", "/t"]);
        let unseen: Vec<_> = found.unseen.iter().map(|it| &*it.what).collect();
        let words = ["ng2n1", "dax1.0 is used as system memory", "dax2.0 has no driver", "vfio-pci"];
        assert_eq!(unseen.len(), words.len(), "{unseen:?}");
        for (what, word) in unseen.iter().zip(words) {
            assert!(what.contains(word), "{word} is not in: {what}");
        }
        assert!(found.unseen.iter().all(|it| !it.remedy.is_empty()));
    }

    #[test]
    fn without_generic_nodes_block_devices_are_looked_at() {
        let tree = Tree::new("blocks", &[("dev/nvme0n1", ""), ("dev/nvme0n1p1", ""), ("dev/nvme0c0n1", "")]);
        assert_eq!(names(&everything(&tree.0, "/t".into())), ["/dev/nvme0n1", "/t"]);
    }
}
