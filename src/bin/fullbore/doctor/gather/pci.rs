//! Where a device is on the PCI bus: its link, and the IOMMU between it and memory.

use super::sys::Sys;
use crate::doctor::facts::{Link, Pci};

const DEVICES: &str = "/sys/bus/pci/devices";

/// What sysfs says of a PCI device; `None`: there is none of this address.
pub fn read(sys: &Sys, address: &str) -> Option<Pci> {
    let real = sys.path(format!("{DEVICES}/{address}")).canonicalize().ok()?;
    let group = sys.link_name(format!("{DEVICES}/{address}/iommu_group"));
    Some(Pci {
        address: address.to_owned(),
        link: link(sys, &real),
        iommu: group.map(|group| {
            let kind = sys.text(format!("/sys/kernel/iommu_groups/{group}/type"));
            kind.unwrap_or_else(|| "unknown".into())
        }),
        peer_memory: real.join("p2pmem/allocate").exists(),
    })
}

/// Its link; `None` where it has none (in a machine's own chips) or does not say.
fn link(sys: &Sys, device: &std::path::Path) -> Option<Link> {
    let speed = |folder: &std::path::Path, name: &str| gigatransfers(&sys.text_at(&folder.join(name))?);
    let width = |folder: &std::path::Path, name: &str| -> Option<u32> {
        sys.text_at(&folder.join(name))?.parse().ok().filter(|&width| width > 0 && width < 255)
    };
    let port = device.parent()?;
    Some(Link {
        speed: speed(device, "current_link_speed")?,
        width: width(device, "current_link_width")?,
        max_speed: speed(device, "max_link_speed")?,
        max_width: width(device, "max_link_width")?,
        port_speed: speed(port, "max_link_speed"),
        port_width: width(port, "max_link_width"),
    })
}

/// `32.0 GT/s PCIe`, as sysfs writes a speed; older kernels write `8 GT/s`. `Unknown` is none.
fn gigatransfers(text: &str) -> Option<f64> {
    text.split_once(' ').filter(|(_, unit)| unit.starts_with("GT/s"))?.0.parse().ok()
}

/// A function on the bus that may be of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub address: String,
    pub driver: Option<String>,
}

/// Functions of a class (`0x0108`: NVMe and its like), of this vendor where one is given.
pub fn functions(sys: &Sys, class: &str, vendor: Option<&str>) -> Vec<Function> {
    let of =
        |address: &String, name: &str| sys.text(format!("{DEVICES}/{address}/{name}")).unwrap_or_default();
    let is_it = |address: &String| {
        of(address, "class").starts_with(class) && vendor.is_none_or(|wanted| of(address, "vendor") == wanted)
    };
    let driver = |address: &str| sys.link_name(format!("{DEVICES}/{address}/driver"));
    let all = sys.entries(DEVICES).into_iter().filter(is_it);
    all.map(|address| Function { driver: driver(&address), address }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sys::tests::Tree;
    use super::*;

    fn tree(name: &str) -> Tree {
        let tree = Tree::new(
            name,
            &[
                ("sys/devices/pci0000:00/0000:00:01.0/max_link_speed", "16.0 GT/s PCIe\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "16\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/current_link_speed", "2.5 GT/s PCIe\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/current_link_width", "8\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_speed", "32.0 GT/s PCIe\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_width", "16\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class", "0x010802\n"),
                ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/vendor", "0x144d\n"),
                ("sys/kernel/iommu_groups/7/type", "DMA-FQ\n"),
            ],
        );
        let device = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        tree.link("sys/bus/pci/devices/0000:01:00.0", &tree.0.path(device).display().to_string());
        tree.link(&format!("{device}/iommu_group"), "/sys/kernel/iommu_groups/7");
        tree.link(&format!("{device}/driver"), "/sys/bus/pci/drivers/vfio-pci");
        tree
    }

    #[test]
    fn a_link_is_judged_by_both_its_ends() {
        let tree = tree("link");
        let pci = read(&tree.0, "0000:01:00.0").unwrap();
        let link = pci.link.unwrap();
        assert_eq!((link.speed, link.width, link.max_speed, link.max_width), (2.5, 8, 32.0, 16));
        assert_eq!(
            (link.best_speed(), link.best_width()),
            (16.0, 16),
            "the port's speed, the device's width"
        );
        assert_eq!((pci.iommu.as_deref(), pci.peer_memory), (Some("DMA-FQ"), false));
        assert!(read(&tree.0, "0000:02:00.0").is_none());
    }

    #[test]
    fn what_says_nothing_has_no_link() {
        let tree = tree("nothing");
        tree.file("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/current_link_speed", "Unknown\n");
        assert_eq!(read(&tree.0, "0000:01:00.0").unwrap().link, None);
        assert_eq!((gigatransfers("8 GT/s"), gigatransfers("fast")), (Some(8.0), None));
    }

    #[test]
    fn functions_are_found_by_class_and_vendor() {
        let tree = tree("class");
        let it = Function { address: "0000:01:00.0".into(), driver: Some("vfio-pci".into()) };
        assert_eq!(functions(&tree.0, "0x0108", None), [it]);
        assert!(functions(&tree.0, "0x0108", Some("0x10de")).is_empty());
        assert!(functions(&tree.0, "0x03", None).is_empty());
    }
}
