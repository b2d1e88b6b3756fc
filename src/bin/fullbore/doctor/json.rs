//! The same facts for programs: stable names in snake_case, sizes in bytes. What is not known is null.

use super::facts::{Device, Facts, GpuFacts, Limit, Measured, Memory, Pair, Pci, Process, Refusal, What};
use super::judge::{About, Finding, Level, pair};
use fullbore::machine::{CuFileState, Feature, HardwareQueue, QueueKind};
use serde_json::{Value, json};

pub fn report(facts: &Facts, findings: &[Finding], status: u8) -> Value {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let machine = &facts.machine;
    json!({
        "fullbore_version": env!("CARGO_PKG_VERSION"),
        "kernel": machine.kernel,
        "cpus_online": machine.online.to_string(),
        "cpus_allowed": machine.allowed.to_string(),
        "nodes": machine.nodes.iter().map(|node| json!({
            "id": node.id, "cpus": node.cpus.to_string(), "distance": node.distance,
        })).collect::<Vec<_>>(),
        "io_uring": {
            "available": machine.features.iter().all(|it| !matches!(it.name, "rings" | "commands") || it.errno.is_none()),
            "features": machine.features.iter().map(feature).collect::<Vec<_>>(),
            "engine_refused": machine.no_engine.as_ref().map(refusal),
        },
        "process": process(&facts.process),
        "targets": facts.devices.iter().map(device).collect::<Vec<_>>(),
        "gpus": facts.gpus.list.iter().map(gpu).collect::<Vec<_>>(),
        "gpus_on_bus": facts.gpus.on_bus,
        "gpus_refused": facts.gpus.refused.as_ref().map(refusal),
        "paths": facts.pairs.iter().map(|row| path(row, facts)).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "could_be_better": count(Level::Better),
        "broken": count(Level::Broken),
        "exit_status": status,
    })
}

fn refusal(refusal: &Refusal) -> Value {
    json!({ "reason": refusal.text, "errno": refusal.errno })
}

fn feature(feature: &Feature) -> Value {
    json!({ "name": feature.name, "since": feature.since, "works": feature.errno.is_none(), "errno": feature.errno })
}

fn process(process: &Process) -> Value {
    let limit = |limit: &Limit| json!({ "soft": limit.soft, "hard": limit.hard });
    let group = &process.cgroup;
    json!({
        "uid": Some(process.uid).filter(|uid| *uid != u32::MAX), // without /proc it is not to be seen
        "capabilities": format!("{:016x}", process.capabilities),
        "seccomp": process.seccomp,
        "io_uring_disabled": process.io_uring_disabled,
        "io_uring_group": process.io_uring_group,
        "memlock": limit(&process.memlock),
        "open_files": limit(&process.open_files),
        "registers_memory": process.registered.as_ref().map(Result::is_ok),
        "registers_memory_reason": process.registered.as_ref().and_then(|it| it.as_ref().err()),
        "cgroup": {
            "path": group.path,
            "memory_max": group.memory_max,
            "memory_used": group.memory_used,
            "cpus": group.cpus,
            "cpuset": group.cpuset,
        },
    })
}

fn device(device: &Device) -> Value {
    let survey = &device.survey;
    let opened = device.opened();
    let drive = opened.and_then(|opened| opened.drive.as_ref());
    json!({
        "path": device.path,
        "kind": what(device.what),
        "opened": device.opened.as_ref().map(Result::is_ok),
        "refused": device.opened.as_ref().and_then(|it| it.as_ref().err()).map(refusal),
        "access": device.access.map(|access| json!({
            "mode": format!("{:o}", access.mode), "uid": access.owner, "gid": access.group,
            "read": access.read, "write": access.write,
        })),
        "size": opened.map(|it| it.size),
        "block_size": opened.map(|it| it.block),
        "lba_format": opened.and_then(|it| it.facts.lba_format),
        "memory_alignment": opened.map(|it| it.memory_alignment),
        "model": drive.map(|drive| &drive.model),
        "serial": drive.map(|drive| &drive.serial),
        "limits": opened.map(|it| it.facts.limits.iter().map(|limit| json!({
            "name": limit.name, "bytes": limit.bytes,
        })).collect::<Vec<_>>()),
        "binding_limit": opened.and_then(|it| it.facts.limits.first()).map(|limit| limit.name),
        "unregistered_reason": opened.and_then(|it| it.facts.unregistered.as_ref()),
        "polls": opened.map(|it| it.facts.polls),
        "kernel_workers": opened.map(|it| it.facts.kernel_workers),
        "direct_refused": device.direct_refused,
        "block_device": survey.block,
        "scheduler": device.disk.as_ref().and_then(|disk| disk.scheduler.as_ref()),
        "rotational": device.disk.as_ref().map(|disk| disk.rotational),
        "node": device.node(),
        "nearest_cpus": device.nearest_cpus.as_ref().map(ToString::to_string),
        "controllers": survey.controllers.iter().map(|it| json!({
            "name": it.name, "disk": it.block, "address": it.address, "node": it.node,
        })).collect::<Vec<_>>(),
        "hardware_queues": survey.queues.as_ref().map(|map| map.queues.iter().map(queue).collect::<Vec<_>>()),
        "polled_queues": survey.queues.as_ref().map(|map| map.polled_queues().queues.len()),
        "pci": device.pci.iter().map(pci).collect::<Vec<_>>(),
        "dax": survey.dax.as_ref().map(|dax| json!({
            "name": dax.name, "size": dax.size, "alignment": dax.align, "node": dax.node,
        })),
        "quick_bench": measured(&device.bench),
    })
}

fn what(what: What) -> &'static str {
    match what {
        What::Nvme => "nvme",
        What::Block => "block",
        What::Dax => "dax",
        What::File => "file",
        What::Folder => "folder",
        What::Other => "other",
    }
}

fn queue(queue: &HardwareQueue) -> Value {
    let kind = match queue.kind {
        QueueKind::Default => "default",
        QueueKind::Read => "read",
        QueueKind::Polled => "polled",
    };
    json!({ "number": queue.number, "cpus": queue.cpus.to_string(), "tags": queue.tags, "kind": kind })
}

fn pci(pci: &Pci) -> Value {
    json!({
        "address": pci.address,
        "iommu": pci.iommu,
        "peer_memory": pci.peer_memory,
        "link": pci.link.map(|link| json!({
            "speed_gts": link.speed, "width": link.width,
            "max_speed_gts": link.max_speed, "max_width": link.max_width,
            "best_speed_gts": link.best_speed(), "best_width": link.best_width(),
        })),
    })
}

fn gpu(facts: &GpuFacts) -> Value {
    let gpu = facts.gpu.as_ref().ok();
    json!({
        "ordinal": facts.ordinal,
        "refused": facts.gpu.as_ref().err().map(refusal),
        "name": gpu.map(|gpu| &gpu.name),
        "address": gpu.map(|gpu| &gpu.address),
        "node": gpu.and_then(|gpu| gpu.node),
        "pins_host_memory": gpu.map(|gpu| gpu.pins.is_ok()),
        "pins_host_memory_reason": gpu.and_then(|gpu| gpu.pins.as_ref().err()).map(ToString::to_string),
        "pins_read_only": gpu.map(|gpu| gpu.pins_read_only),
        "pin_piece": gpu.map(|gpu| gpu.pin_piece),
        "dma_buf": gpu.map(|gpu| gpu.dma_buf.is_ok()),
        "dma_buf_reason": gpu.and_then(|gpu| gpu.dma_buf.as_ref().err()).map(ToString::to_string),
        "pci": facts.pci.as_ref().map(pci),
        "idle_speed_gts": facts.idle_speed,
        "cufile": facts.cufile.as_ref().map(|CuFileState { direct, reason, .. }| json!({
            "direct": direct, "reason": reason,
        })),
        "quick_bench": measured(&facts.bench),
    })
}

fn measured(bench: &Option<Result<Measured, String>>) -> Value {
    match bench {
        None => Value::Null,
        Some(Err(why)) => json!({ "failed": why }),
        Some(Ok(it)) => json!({
            "bytes": it.bytes, "bytes_asked": it.asked, "bytes_counted": it.counted, "counts_agree": it.agrees(),
            "seconds": it.seconds, "gbps": it.gbps(), "most_in_flight": it.most_in_flight, "paths": it.paths,
        }),
    }
}

fn path(row: &Pair, facts: &Facts) -> Value {
    let device = facts.devices.iter().find(|device| device.path == row.device);
    // Without an open target nobody knows what the best would be.
    let best = device.filter(|it| it.opened().is_some()).map(|device| pair::best(device, &row.memory));
    json!({
        "target": row.device,
        "memory": match &row.memory {
            Memory::Host => "host".into(),
            Memory::Unregistered => "host_unregistered".into(),
            Memory::Gpu(gpu) => format!("gpu:{gpu}"),
            Memory::Peer(address) => format!("peer:{address}"),
        },
        "path": row.path.map(fullbore::Path::name),
        "best_path": best.map(fullbore::Path::name),
        "reason": row.reason,
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "about": match &finding.about {
            About::Process => "process".into(),
            About::Machine => "machine".into(),
            About::Gpus => "gpus".into(),
            About::Gpu(gpu) => format!("gpu:{gpu}"),
            About::Device(path) => path.clone(),
        },
        "level": match finding.level {
            Level::Ok => "ok",
            Level::Better => "could_be_better",
            Level::Broken => "broken",
        },
        "text": finding.text,
        "remedy": finding.remedy,
    })
}

#[cfg(test)]
mod tests {
    use super::super::judge::{judge, sample};
    use super::*;

    fn names(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                all.push(name.clone());
                names(value, all);
            }),
            Value::Array(list) => list.iter().for_each(|value| names(value, all)),
            _ => {}
        }
    }

    #[test]
    fn names_are_in_snake_case_and_findings_are_whole() {
        let facts = sample::sick();
        let findings = judge(&facts);
        let value = report(&facts, &findings, 1);
        let mut all = Vec::new();
        names(&value, &mut all);
        let odd =
            |name: &&String| !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert_eq!(all.iter().find(odd), None);
        assert_eq!(value["findings"].as_array().unwrap().len(), findings.len());
        assert!(value["broken"].as_u64().unwrap() > 0 && value["exit_status"] == 1);
    }

    #[test]
    fn devices_gpus_and_paths_are_there() {
        let facts = sample::healthy();
        let value = report(&facts, &judge(&facts), 0);
        let drive = &value["targets"][0];
        assert_eq!((&drive["kind"], &drive["binding_limit"]), (&json!("nvme"), &json!("command_size")));
        assert_eq!(drive["hardware_queues"][1]["cpus"], "4-7");
        assert_eq!(drive["polled_queues"], 0);
        assert_eq!(value["paths"][0]["path"], "uring-cmd fixed");
        assert_eq!(value["gpus"][0]["cufile"]["direct"], true);
        assert_eq!(value["gpus"][0]["pci"]["link"]["max_speed_gts"], 32.0);
    }
}
