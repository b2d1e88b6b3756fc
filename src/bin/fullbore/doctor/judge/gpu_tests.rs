use super::super::sample::{cpus, gpu, link as best_link, machine, refusal, some_error};
use super::super::{Level, worst};
use super::*;
use crate::doctor::facts::{Link, Measured};
use fullbore::ErrorKind;

#[track_caller]
fn one(gpu: GpuFacts, level: Level, text: &str, remedy: &str) {
    let all = findings(&Gpus { list: vec![gpu], ..Gpus::default() }, &machine());
    let hit = |it: &&Finding| {
        it.level == level
            && it.text.contains(text)
            && it.remedy.as_deref().unwrap_or_default().contains(remedy)
    };
    assert!(all.iter().any(|it| hit(&it)), "no {level:?} with {text:?} and {remedy:?} in {all:#?}");
}

fn with_link(link: Link) -> GpuFacts {
    let mut facts = gpu();
    facts.pci.as_mut().unwrap().link = Some(link);
    facts
}

#[test]
fn a_gpu_without_its_driver_is_broken_and_a_machine_without_gpu_is_not() {
    let refused = Some(refusal(0, ErrorKind::Unsupported));
    let none = findings(&Gpus { refused: refused.clone(), ..Gpus::default() }, &machine());
    assert_eq!(worst(&none), Level::Ok);
    let there = findings(&Gpus { refused, on_bus: vec!["0000:10:00.0".into()], list: vec![] }, &machine());
    assert_eq!((worst(&there), there.len()), (Level::Broken, 1));
    assert!(
        there[0].text.contains("0000:10:00.0") && there[0].remedy.as_ref().unwrap().contains("nvidia-smi")
    );
    one(GpuFacts { gpu: Err(refusal(0, ErrorKind::Io)), ..gpu() }, Level::Broken, "refused", "nvidia-smi");
}

#[test]
fn an_idle_links_speed_is_no_fault_and_its_width_is() {
    one(gpu(), Level::Ok, "32 GT/s x16, its best", "");
    let idle = Link { speed: 2.5, ..best_link() };
    one(with_link(idle), Level::Ok, "2.5 GT/s now, 32 at best", "");
    one(with_link(Link { width: 8, ..idle }), Level::Better, "x8", "lspci");
    // Under load it says what it is.
    let bench = Some(Ok(Measured { bytes: 1, asked: 1, counted: 1, ..Measured::default() }));
    one(GpuFacts { bench, ..with_link(idle) }, Level::Better, "2.5 GT/s x16, where 32 GT/s x16", "lspci");
    one(GpuFacts { pci: None, ..gpu() }, Level::Ok, "no PCIe link", "");
}

#[test]
fn what_the_driver_refuses_is_told() {
    let mut facts = gpu();
    facts.gpu.as_mut().unwrap().pins = Err(some_error());
    one(facts, Level::Better, "cannot be pinned", "conf-compute");
    let mut facts = gpu();
    facts.gpu.as_mut().unwrap().dma_buf = Err(some_error());
    one(facts, Level::Ok, "no dma-buf", "");
    one(gpu(), Level::Ok, "can be pinned, 64 GiB a registration", "");
    one(gpu(), Level::Ok, "cuFile is direct: ", "");
}

#[test]
fn a_gpu_is_near_to_its_own_nodes_cpus() {
    let far = Machine { allowed: cpus("4-7"), ..machine() };
    let all = findings(&Gpus { list: vec![gpu()], ..Gpus::default() }, &far);
    assert_eq!(worst(&all), Level::Better);
    assert!(
        all.iter().any(|it| it.remedy.as_deref().is_some_and(|remedy| remedy.contains("taskset -c 0-3")))
    );
}
