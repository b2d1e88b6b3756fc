//! Facts of two machines of a test's own: one where all is well, one where little is.

use crate::doctor::facts::*;
use fullbore::machine::{
    self, Controller, CpuSet, DaxDevice, Feature, Gpu, HardwareQueue, Node, QueueKind, QueueMap, Survey,
};
use fullbore::{Drive, Engine, ErrorKind, Path};

pub fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Some error of the library's.
pub fn some_error() -> fullbore::Error {
    Engine::builder().lane_depth(0).build().unwrap_err()
}

pub fn refusal(errno: i32, kind: ErrorKind) -> Refusal {
    Refusal { text: "refused".into(), errno: Some(errno), kind: Some(kind) }
}

pub fn limit(name: &'static str, bytes: u64) -> machine::Limit {
    machine::Limit { name, bytes }
}

pub fn process() -> Process {
    let unlimited = Limit::default();
    let registered = Some(Ok(()));
    Process {
        uid: 0,
        capabilities: !0,
        seccomp: Some(0),
        memlock: unlimited,
        registered,
        ..Process::default()
    }
}

/// Two nodes of four CPUs.
pub fn machine() -> Machine {
    let node = |id, list| Node { id, cpus: cpus(list), distance: vec![10, 20] };
    let feature = |name| Feature { name, since: "6.1", errno: None };
    Machine {
        kernel: "7.3.4".into(),
        online: cpus("0-7"),
        allowed: cpus("0-7"),
        nodes: vec![node(0, "0-3"), node(1, "4-7")],
        features: ["rings", "commands", "large_entries", "uring_cmd", "cloned_buffers"].map(feature).to_vec(),
        no_engine: None,
    }
}

fn queues() -> QueueMap {
    let queue =
        |number, list| HardwareQueue { number, cpus: cpus(list), tags: 1023, kind: QueueKind::Default };
    QueueMap { queues: vec![queue(0, "0-3"), queue(1, "4-7")], node: Some(0) }
}

pub fn link() -> Link {
    let (best, most) = (Some(32.0), Some(16));
    Link { speed: 32.0, width: 16, max_speed: 32.0, max_width: 16, port_speed: best, port_width: most }
}

fn opened(kind: &'static str, limits: Vec<machine::Limit>) -> Opened {
    Opened {
        size: 1 << 30,
        block: 4096,
        memory_alignment: 4,
        facts: machine::Facts {
            kind,
            limits,
            lba_format: None,
            polls: false,
            kernel_workers: false,
            unregistered: None,
        },
        drive: None,
    }
}

pub fn device(path: &str, what: What, kind: &'static str) -> Device {
    Device {
        path: path.into(),
        what,
        access: Some(Access { mode: 0o600, owner: 0, group: 0, read: true, write: true }),
        survey: Survey::default(),
        opened: Some(Ok(opened(kind, vec![limit("command_size", 128 << 10)]))),
        direct_refused: None,
        disk: None,
        pci: Vec::new(),
        nearest_cpus: None,
        bench: None,
    }
}

pub fn namespace() -> Device {
    let mut it = device("/dev/ng0n1", What::Nvme, "nvme");
    let address = "0000:01:00.0".to_owned();
    let controller = Controller {
        name: "nvme0".into(),
        block: "nvme0n1".into(),
        address: Some(address.clone()),
        node: Some(0),
    };
    it.survey = Survey {
        block: Some("nvme0n1".into()),
        controllers: vec![controller],
        queues: Some(queues()),
        driver_bytes: Some(512 << 10),
        ..Survey::default()
    };
    it.pci = vec![Pci { address: address.clone(), link: Some(link()), iommu: None, peer_memory: false }];
    it.disk = Some(Disk { name: "nvme0n1".into(), scheduler: Some("none".into()), rotational: false });
    let limits = vec![
        limit("command_size", 128 << 10),
        limit("mdts", 512 << 10),
        limit("max_hw_sectors_kb", 512 << 10),
    ];
    it.opened = Some(Ok(Opened {
        drive: Some(Drive {
            model: "QEMU".into(),
            serial: "d0".into(),
            namespace: 1,
            node: Some(0),
            address: Some(address),
            block_name: Some("nvme0n1".into()),
            write_cache: false,
        }),
        ..opened("nvme", limits)
    }));
    it
}

pub fn dax() -> Device {
    let mut it = device("/dev/dax1.0", What::Dax, "dax");
    it.survey.dax = Some(DaxDevice { name: "dax1.0".into(), size: 1 << 30, align: 2 << 20, node: Some(1) });
    it.nearest_cpus = Some(cpus("4-7"));
    it
}

/// A file on a SATA disk.
pub fn file() -> Device {
    let mut it = device("/data/kv", What::File, "file");
    it.survey.block = Some("sda".into());
    it.disk = Some(Disk { name: "sda".into(), scheduler: Some("none".into()), rotational: false });
    it
}

pub fn gpu() -> GpuFacts {
    GpuFacts {
        ordinal: 0,
        gpu: Ok(Gpu {
            ordinal: 0,
            name: "H200".into(),
            address: "0000:10:00.0".into(),
            node: Some(0),
            pins: Ok(()),
            pin_piece: 64 << 30,
            pins_read_only: true,
            dma_buf: Ok(()),
        }),
        pci: Some(Pci {
            address: "0000:10:00.0".into(),
            link: Some(link()),
            iommu: None,
            peer_memory: false,
        }),
        idle_speed: Some(2.5),
        cufile: Some(machine::CuFileState {
            direct: true,
            reason: "cuFile is direct: nvidia-fs 2.27".into(),
        }),
        bench: None,
    }
}

pub fn pair(device: &str, memory: Memory, path: Path) -> Pair {
    Pair { device: device.into(), memory, path: Some(path), reason: "so".into() }
}

pub fn healthy() -> Facts {
    Facts {
        process: process(),
        machine: machine(),
        devices: vec![namespace(), dax(), file()],
        gpus: Gpus { on_bus: vec!["0000:10:00.0".into()], refused: None, list: vec![gpu()] },
        pairs: vec![
            pair("/dev/ng0n1", Memory::Host, Path::UringCmdFixed),
            pair("/dev/ng0n1", Memory::Unregistered, Path::UringCmd),
            pair("/dev/ng0n1", Memory::Gpu(0), Path::CuFile),
            pair("/dev/dax1.0", Memory::Host, Path::Copy),
            pair("/dev/dax1.0", Memory::Gpu(0), Path::DaxToGpu),
            pair("/data/kv", Memory::Host, Path::Fixed),
        ],
        unseen: Vec::new(),
        quick_bench: false,
    }
}

pub fn sick() -> Facts {
    let mut facts = healthy();
    facts.process.capabilities = 0;
    facts.process.memlock = Limit { soft: Some(64 << 10), hard: Some(64 << 10) };
    facts.process.open_files = Limit { soft: Some(64), hard: Some(64) };
    facts.process.registered = Some(Err("memlock".into()));
    facts.process.cgroup = Cgroup { memory_max: Some(1 << 20), cpus: Some(0.5), ..Cgroup::default() };
    facts.machine.features.iter_mut().skip(3).for_each(|feature| feature.errno = Some(libc::EINVAL));
    facts.machine.allowed = cpus("4");
    let drive = &mut facts.devices[0];
    drive.pci[0] = Pci { iommu: Some("DMA-FQ".into()), ..drive.pci[0].clone() };
    drive.pci[0].link = Some(Link { width: 4, ..link() });
    if let Some(Ok(opened)) = &mut drive.opened {
        opened.facts.limits = vec![
            limit("max_hw_sectors_kb", 64 << 10),
            limit("command_size", 128 << 10),
            limit("mdts", 512 << 10),
        ];
    }
    if let Some(map) = &mut drive.survey.queues {
        map.queues[0].tags = 7;
    }
    drive.bench = Some(Ok(Measured { bytes: 1, asked: 2, counted: 3, ..Measured::default() }));
    facts.devices[1].opened = Some(Err(refusal(libc::EACCES, ErrorKind::Permission)));
    facts.devices[2].disk.as_mut().unwrap().scheduler = Some("mq-deadline".into());
    facts.devices[2].direct_refused = Some("no O_DIRECT".into());
    let gpu = &mut facts.gpus.list[0];
    gpu.gpu.as_mut().unwrap().pins = Err(some_error());
    gpu.gpu.as_mut().unwrap().dma_buf = Err(some_error());
    gpu.pci.as_mut().unwrap().link = Some(Link { width: 8, ..link() });
    facts.pairs = vec![
        pair("/dev/ng0n1", Memory::Host, Path::UringCmd),
        pair("/dev/ng0n1", Memory::Gpu(0), Path::PinnedBounce),
        Pair { path: None, ..pair("/dev/dax1.0", Memory::Host, Path::Copy) },
        pair("/data/kv", Memory::Host, Path::FixedBuffered),
        Pair { path: None, ..pair("/data/kv", Memory::Gpu(0), Path::PinnedBounce) },
    ];
    facts.unseen =
        vec![Unseen { what: "ng9n1 is not here".into(), remedy: "docker run --device=/dev/ng9n1".into() }];
    facts
}
