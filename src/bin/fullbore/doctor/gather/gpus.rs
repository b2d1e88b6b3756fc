//! Looks at the GPUs: what the driver lets be tried, their links before and after they were woken, cuFile.

use super::pci;
use super::sys::Sys;
use crate::doctor::facts::{GpuFacts, Gpus};
use fullbore::{Engine, machine};

/// NVIDIA on the PCI bus.
const VENDOR: &str = "0x10de";

pub fn look(sys: &Sys, engine: Option<&Engine>) -> Gpus {
    // Display controllers: 0x0300 with a screen, 0x0302 without.
    let on_bus =
        pci::functions(sys, "0x03", Some(VENDOR)).into_iter().map(|function| function.address).collect();
    match machine::gpus() {
        Ok(count) => {
            Gpus { on_bus, refused: None, list: (0..count).map(|n| look_at(sys, engine, n)).collect() }
        }
        Err(error) => Gpus { on_bus, refused: Some(error.into()), list: Vec::new() },
    }
}

fn look_at(sys: &Sys, engine: Option<&Engine>, ordinal: u32) -> GpuFacts {
    let gpu = machine::gpu(ordinal);
    let link = |address: &str| pci::read(sys, address);
    let idle = gpu.as_ref().ok().and_then(|gpu| link(&gpu.address));
    // An engine over its memory wakes it: the link is looked at again.
    let cufile = engine.and_then(|engine| engine.cufile_state(ordinal).ok());
    let _awake = engine.and_then(|engine| engine.alloc_gpu(ordinal, 1 << 20).ok());
    let pci = gpu.as_ref().ok().and_then(|gpu| link(&gpu.address));
    GpuFacts {
        ordinal,
        pci,
        idle_speed: idle.and_then(|pci| Some(pci.link?.speed)),
        gpu: gpu.map_err(Into::into),
        cufile,
        bench: None,
    }
}
