//! `fullbore doctor` where there are drives, DAX devices and two nodes.

use super::drives::{Drive, drives, in_machine};
use super::rig::{best_path, old_kernel};
use super::trace::Tracer;
use crate::doctor::{PROGRAM, Report, doctor};
use crate::support::within;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The name that the whole machine's report has it under.
fn node(drive: &Drive) -> PathBuf {
    PathBuf::from("/dev").join(drive.disk.replacen("nvme", "ng", 1))
}

fn bytes_of(target: &Value, limit: &str) -> Option<u64> {
    let limits = target["limits"].as_array().expect("limits");
    limits.iter().find(|it| it["name"] == limit)?["bytes"].as_u64()
}

#[test]
fn every_drive_of_the_machine_is_found_and_told() {
    let Some([small, plain, sector, metadata]) = drives(["small", "t0", "b512", "meta"]) else { return };
    within(LIMIT, "the whole machine", || {
        let report = doctor(&[]);
        let found = report.list("targets").iter().filter(|target| target["kind"] == "nvme").count();
        let nodes = std::fs::read_dir("/dev").unwrap().flatten();
        let there = nodes.filter(|node| node.file_name().to_string_lossy().starts_with("ng")).count();
        assert_eq!(found, there, "every namespace");

        let target = report.target(node(&plain));
        assert_eq!(report.path(node(&plain), "host"), (best_path(), "uring-cmd fixed"));
        assert_eq!(report.path(node(&plain), "host_unregistered"), ("uring-cmd", "uring-cmd"));
        assert_eq!((&target["size"], &target["serial"]), (&plain.size.into(), &"t0".into()));
        assert_eq!(
            (&target["block_size"], target["node"].as_u64()),
            (&plain.lba.into(), plain.node_number().map(u64::from))
        );
        assert_eq!(bytes_of(target, "max_hw_sectors_kb"), Some(plain.queue_limit("max_hw_sectors_kb") << 10));
        assert_eq!((&target["binding_limit"], &target["polled_queues"]), (&"command_size".into(), &0.into()));
        assert_eq!(target["pci"][0]["iommu"], Value::Null, "the machine has none");
        for (cpu, queue) in plain.queue_of_cpus() {
            let queues = target["hardware_queues"].as_array().unwrap();
            let of_it = queues.iter().find(|it| it["number"] == queue - 1).expect("the queue");
            let cpus: fullbore::machine::CpuSet = of_it["cpus"].as_str().unwrap().parse().unwrap();
            assert!(cpus.contains(cpu), "queue {queue} of CPU {cpu}: {of_it}");
        }
        // 32 KiB a command, by the drive's own word; 512 bytes a block.
        let target = report.target(node(&small));
        assert_eq!((&target["binding_limit"], bytes_of(target, "mdts")), (&"mdts".into(), Some(32 << 10)));
        assert_eq!(report.target(node(&sector))["block_size"], 512);
        // Blocks with metadata are refused.
        assert_eq!(report.target(node(&metadata))["opened"], false);
        assert!(report.remedy("broken", &["metadata"]).contains("nvme id-ns -H"));
        assert_eq!(report.status, 1);
    });
}

#[test]
fn a_drive_in_order_is_well_and_in_6_1_what_it_lacks_is_named() {
    let Some([drive]) = drives(["t1"]) else { return };
    within(LIMIT, "one drive", || {
        let report = doctor(&[&drive.node, &drive.block()]);
        assert_eq!(report.path(&drive.node, "host").0, best_path());
        assert_eq!(report.path(drive.block(), "host"), ("uring fixed", "uring fixed"));
        report.remedy("ok", &["to host memory: uring fixed", "passes the block layer by"]);
        if old_kernel() {
            let remedy = report.remedy("could_be_better", &["uring-cmd instead of uring-cmd fixed"]);
            assert!(remedy.contains("6.2 or later"), "{remedy}");
            report.remedy("could_be_better", &["no clones of registered buffers"]);
        } else {
            assert_eq!(report.status, 0, "{:#}", report.value["findings"]);
        }
    });
}

/// The driver's tracer has the last word on what reached the drive.
#[test]
fn a_quick_bench_reads_and_never_writes() {
    let Some([drive]) = drives(["t0"]) else { return };
    within(LIMIT, "a quick bench", || {
        let tracer = Tracer::start();
        let report = doctor(&[&drive.node, &"--quick-bench"]);
        let commands = tracer.stop().commands;
        let of_it = commands.iter().filter(|command| command.disk == drive.disk);
        let bytes: u64 = of_it.clone().map(|command| u64::from(command.blocks) * drive.lba).sum();
        let others: Vec<_> = of_it.filter(|command| command.opcode != "read").collect();
        assert!(others.is_empty(), "{others:?}");
        let bench = &report.target(&drive.node)["quick_bench"];
        assert_eq!(bench["counts_agree"], true, "{bench}");
        let told = bench["bytes"].as_u64().unwrap();
        // Beside it, first reads when the drive was opened.
        assert!(told > 1 << 20 && (told..told + (1 << 20)).contains(&bytes), "told {told}, traced {bytes}");
        println!("measured: {bench}");
    });
}

#[test]
fn who_may_not_open_a_drive_is_told_how_and_all_the_rest() {
    let Some([drive]) = drives(["t0"]) else { return };
    within(LIMIT, "nobody", || {
        let output =
            Command::new(PROGRAM).args(["doctor", "--json"]).arg(&drive.node).uid(65534).gid(65534).output();
        let report = Report::of(&output.expect("anybody may run it"));
        let remedy = report.remedy("broken", &["may not be opened"]);
        assert!(remedy.contains("setfacl") && remedy.contains(&drive.node.display().to_string()), "{remedy}");
        let target = report.target(&drive.node);
        assert_eq!((&target["access"]["read"], &target["opened"]), (&false.into(), &false.into()));
        assert!(!target["hardware_queues"].as_array().unwrap().is_empty(), "sysfs is for everybody");
        assert_eq!(report.path(&drive.node, "host"), ("none", "unknown"));
    });
}

/// For a boot with an IOMMU, which none of the machines has:
/// `tests/vm/run --qemu="-device intel-iommu" --cmdline "intel_iommu=on iommu=nopt" vm::doctor`.
#[test]
fn an_iommu_that_translates_is_told_with_what_it_takes_off_a_command() {
    let Some([drive]) = drives(["d0"]) else { return };
    if std::fs::read_dir("/sys/kernel/iommu_groups").map_or(0, Iterator::count) == 0 {
        return println!("skipped: this boot has no IOMMU");
    }
    within(LIMIT, "an IOMMU", || {
        let report = doctor(&[&drive.node]);
        let target = report.target(&drive.node);
        let kind = target["pci"][0]["iommu"].as_str().expect("a type");
        let (driver, most) = (bytes_of(target, "max_hw_sectors_kb"), bytes_of(target, "mdts"));
        println!("measured: {kind}, driver {driver:?}, drive {most:?}");
        if kind.starts_with("DMA") && driver < most {
            assert!(report.remedy("could_be_better", &["the IOMMU translates"]).contains("iommu=pt"));
        } else {
            assert_eq!(report.status, 0, "{:#}", report.value["findings"]);
        }
    });
}

/// The boot of few tags and a polled queue.
#[test]
fn few_tags_and_polled_queues_are_told() {
    let Some([drive]) = drives(["d0"]) else { return };
    let polled = std::fs::read_to_string("/sys/module/nvme/parameters/poll_queues").unwrap_or_default();
    if polled.trim() != "1" {
        return println!("skipped: this boot polls no queue");
    }
    within(LIMIT, "few tags", || {
        let report = doctor(&[&drive.node]);
        let target = report.target(&drive.node);
        assert_eq!(target["polled_queues"], 1);
        let queues = target["hardware_queues"].as_array().unwrap();
        assert!(queues.iter().all(|queue| queue["tags"].as_u64().unwrap() < 8), "{queues:?}");
        assert_eq!(queues.last().unwrap()["kind"], "polled");
        assert!(report.remedy("could_be_better", &["commands at a time"]).contains("io_queue_depth"));
    });
}

#[test]
fn dax_devices_have_size_alignment_node_and_cpus() {
    if !in_machine() || !PathBuf::from("/dev/dax1.0").exists() {
        return println!("skipped: this boot has no DAX devices");
    }
    within(LIMIT, "DAX devices", || {
        let report = doctor(&[]);
        for number in 0..2 {
            let path = format!("/dev/dax{number}.0");
            let target = report.target(&path);
            let sys = |name: &str| -> u64 {
                let file = format!("/sys/bus/dax/devices/dax{number}.0/{name}");
                std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
            };
            let dax = &target["dax"];
            assert_eq!((&dax["size"], &dax["alignment"]), (&sys("size").into(), &sys("align").into()));
            assert_eq!((&dax["node"], &target["node"]), (&number.into(), &number.into()));
            let cpus =
                std::fs::read_to_string(format!("/sys/devices/system/node/node{number}/cpulist")).unwrap();
            assert_eq!(target["nearest_cpus"], cpus.trim());
            assert_eq!(report.path(&path, "host"), ("cpu copy", "cpu copy"));
        }
        assert_eq!(report.list("nodes").len(), 2);
        // From the other node's CPU alone it is far away.
        let far =
            Command::new("taskset").args(["-c", "1", PROGRAM, "doctor", "--json", "/dev/dax0.0"]).output();
        let far = Report::of(&far.expect("taskset"));
        let remedy = far.remedy("could_be_better", &["on node 0 (CPUs 0)", "may use none"]);
        assert!(remedy.contains("taskset -c 0"), "{remedy}");
        // Reading all of one, by copies.
        let bench = doctor(&[&"/dev/dax1.0", &"--quick-bench"]);
        assert_eq!(bench.target("/dev/dax1.0")["quick_bench"]["counts_agree"], true);
    });
}
