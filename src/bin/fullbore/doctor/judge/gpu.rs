//! GPUs: whether they are to be seen, their links, what their driver lets be done.

use super::{About, Finding, Notes, device};
use crate::doctor::facts::{GpuFacts, Gpus, Machine};
use crate::units::{count, human};

pub fn findings(gpus: &Gpus, machine: &Machine) -> Vec<Finding> {
    let mut notes = Notes::on(About::Gpus);
    match &gpus.refused {
        Some(refusal) if !gpus.on_bus.is_empty() => notes.broken(
            format!(
                "{} at {}: {}",
                count(gpus.on_bus.len() as u64, "GPU"),
                gpus.on_bus.join(", "),
                refusal.text
            ),
            "nvidia-smi   # the driver; docker: --gpus=all; CUDA_VISIBLE_DEVICES",
        ),
        Some(refusal) => {
            // The remedy in the words is for machines that have one.
            let why = refusal.text.split(';').next().unwrap_or_default();
            notes.ok(format!("none on the PCI bus, and {why}"));
        }
        None if gpus.list.is_empty() => notes.ok("the driver shows no GPU"),
        None => {}
    }
    let mut all = notes.list;
    all.extend(gpus.list.iter().flat_map(|gpu| of_one(gpu, machine)));
    all
}

fn of_one(facts: &GpuFacts, machine: &Machine) -> Vec<Finding> {
    let mut notes = Notes::on(About::Gpu(facts.ordinal));
    let gpu = match &facts.gpu {
        Ok(gpu) => gpu,
        Err(refusal) => {
            notes.broken(refusal.text.clone(), "nvidia-smi -q; dmesg | grep -e NVRM -e Xid");
            return notes.list;
        }
    };
    link(facts, &mut notes);
    device::near(gpu.node, machine, &mut notes);
    match &gpu.pins {
        Ok(()) => notes.ok(format!("host memory can be pinned, {} a registration", human(gpu.pin_piece))),
        Err(why) => notes.better(
            format!(
                "host memory cannot be pinned ({why}): mappings are copied through buffers of the driver's"
            ),
            "nvidia-smi conf-compute -f   # confidential computing forbids it",
        ),
    }
    notes.ok(match &gpu.dma_buf {
        Ok(()) => "its memory can be exported as a dma-buf (no kernel takes one for io_uring yet)".into(),
        Err(why) => format!("no dma-buf, which nothing here needs yet: {why}"),
    });
    if let Some(cufile) = &facts.cufile {
        notes.ok(cufile.reason.clone());
    }
    device::bench(&facts.bench, &mut notes);
    notes.list
}

/// An idle GPU lowers its link's speed: without a load that says nothing. Its width stays.
fn link(facts: &GpuFacts, notes: &mut Notes) {
    let Some((pci, mut link)) = facts.pci.as_ref().and_then(|pci| Some((pci, pci.link?))) else {
        return notes.ok("sysfs shows no PCIe link of it");
    };
    if facts.bench.is_none() && link.speed < link.best_speed() {
        notes.ok(format!(
            "PCIe link {}: {} GT/s now, {} at best; idle GPUs save power, --quick-bench looks under load",
            pci.address,
            link.speed,
            link.best_speed()
        ));
        link.speed = link.best_speed();
        if link.width >= link.best_width() {
            return;
        }
    }
    device::link(&pci.address, &link, notes);
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
