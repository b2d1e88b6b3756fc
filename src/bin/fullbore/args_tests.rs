//! The command line: what is understood, and what is refused.

use clap::Parser;
use fullbore::Lanes;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::{BenchArgs, Format, Limit, Plan};
use crate::failure::Failure;
use crate::options::{Memory, Requests};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

fn plan(line: &str) -> Result<Plan, Failure> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    match Line::try_parse_from(words) {
        Ok(line) => line.bench.plan(),
        Err(error) => Err(Failure::Setup(error.to_string())),
    }
}

#[test]
fn the_defaults_are_those_of_the_readme() {
    let plan = plan("").unwrap();
    assert_eq!((plan.bs, plan.cmd_size, plan.lane_depth, plan.jobs), (20 << 20, None, 32, 1));
    assert_eq!(plan.depths, [1, 2, 4, 8, 16, 32]);
    assert_eq!(plan.new_file_size(), 1 << 30);
    assert!(plan.verify && !plan.destructive && plan.format == Format::Normal && plan.compare.is_none());
    assert_eq!(plan.limit, Limit { time_based: false, runtime: None });
}

#[test]
fn fios_style_is_understood() {
    let line = "--filename=/x --bs=8m --iodepth=4 --numjobs=2 --lanes=3 --cmd_size=64k \
                --lane_depth=8 --size=2g --runtime=10 --time_based --rw=randwrite --verify=0 \
                --allow-destructive --output-format=json";
    let plan = plan(line).unwrap();
    assert_eq!((plan.bs, plan.cmd_size, plan.size), (8 << 20, Some(64 << 10), Some(2 << 30)));
    assert_eq!((plan.depths, plan.jobs, plan.lanes), (vec![4], 2, Lanes::Count(3)));
    assert_eq!(plan.limit, Limit { time_based: true, runtime: Some(Duration::from_secs(10)) });
    assert!(plan.rw.writes() && plan.rw.random() && !plan.verify && plan.destructive);
    assert_eq!(plan.format, Format::Json);
}

#[test]
fn switches_take_values_as_fios_do() {
    assert!(plan("--verify").unwrap().verify);
    assert!(plan("--verify=1").unwrap().verify);
    assert!(!plan("--time_based=0").unwrap().limit.time_based);
    assert!(plan("--verify=maybe").is_err());
}

#[test]
fn bad_combinations_are_one_line_with_a_remedy() {
    for line in [
        "--iodepth=0",
        "--iodepth=5000",
        "--numjobs=0",
        "--lanes=0",
        "--lanes=65",
        "--processes=0",
        "--processes=1025",
        "--iodepth=4096 --numjobs=17",
        "--cmd_size=32m",
        "--filename=/a:/b",
        "--filename=/a: --stripe=1m",
        "--filename=/a --stripe=1m",
        "--stripe=1m",
        "--filename=/a:/b --stripe=1000",
        "--filename=/a:/b --stripe=2g",
        "--filename=/a:/b --stripe=0",
        "--filename=/a:/b --stripe=1m --compare=fio",
        "--polled",
        "--lane_depth=0",
        "--bs=0",
        "--bs=1000",
        "--cmd_size=1000",
        "--cmd_size=1g",
        "--bs=2t",
        "--size=1m",
        "--time_based",
        "--runtime=0",
        "--compare=fio --rw=write",
        "--compare=serial --rw=randwrite",
        "--compare=serial --runtime=5",
        "--compare=serial --mem=gpu:0",
        "--compare=fio --runtime=5",
        "--allow-destructive",
        "--requests=0",
        "--mark-every=0",
        "--request_size=1m",
        "--request_size=1000k --bs=1000",
        "--request_size=20971521",
        "--inflight=0",
        "--inflight=257",
        "--requests=8 --iodepth=4",
        "--requests=8 --numjobs=2",
        "--requests=8 --compare=fio",
        "--scatter=0",
        "--scatter=1000",
        "--scatter=24k",
        "--scatter=20k --request_size=1g",
        "--scatter=32k --compare=fio",
        "--mem=gpu:0 --compare=fio",
        "--target=dax --compare=fio",
        "--filename=/dev/ng0n1 --polled --target=dax",
        "--bounce=8m,8",
        "--gpu_outstanding=32m",
        "--polling",
        "--arm=0",
        "--mem=gpu:0 --arm=serial,8",
        "--arm=5000",
        "--arm=4096 --numjobs=17",
        "--repeat=0",
        "--seconds=0",
        "--seconds=1 --compare=fio",
        "--workload=kv",
        "--workload=kv --model=gpt-9",
        "--workload=kv --model=llama-3.1-8b --bs=1m",
        "--workload=kv --model=llama-3.1-8b --request_size=1g",
        "--workload=kv --model=llama-3.1-8b --tp=3",
        "--workload=kv --model=llama-3.1-8b --layers=3",
        "--workload=kv --layers=3 --kv_heads=8",
        "--workload=kv --model=llama-3.1-8b --kv_dtype=int3",
        "--workload=kv --model=llama-3.1-8b --recompute_s=0",
        "--workload=kv --model=llama-3.1-8b --iodepth=4",
    ] {
        let Err(Failure::Setup(text)) = plan(line) else { panic!("{line} was taken") };
        assert!(!text.contains('\n') && text.contains(": "), "{line}: {text}");
    }
}

#[test]
fn unknown_words_are_refused() {
    assert!(plan("--rw=trim").is_err() && plan("--compare=dd").is_err() && plan("--bogus=1").is_err());
}

#[test]
fn colons_part_files_as_in_fio() {
    let files = |text: &str| plan(&format!("--filename={text} --stripe=1m")).unwrap().files;
    assert_eq!(files("/dev/ng0n1:/dev/ng1n1"), [PathBuf::from("/dev/ng0n1"), "/dev/ng1n1".into()]);
    assert_eq!(files(r"/a\:b:/c\\:d\e"), [PathBuf::from("/a:b"), r"/c\".into(), r"d\e".into()]);
    let one = plan(r"--filename=/a\:b").unwrap();
    assert_eq!((one.files, one.stripe), (vec![PathBuf::from("/a:b")], None));
    assert!(plan("").unwrap().files.is_empty());
}

#[test]
fn lanes_are_a_number_or_a_rule() {
    let lanes = |text: &str| plan(text).map(|plan| plan.lanes);
    assert_eq!(lanes(""), Ok(Lanes::Auto));
    assert_eq!(lanes("--lanes=auto"), Ok(Lanes::Auto));
    assert_eq!(lanes("--lanes=queue"), Ok(Lanes::PerQueue));
    assert_eq!(lanes("--lanes=numa"), Ok(Lanes::PerNuma));
    assert_eq!(lanes("--lanes=64"), Ok(Lanes::Count(64)));
    assert!(lanes("--lanes=many").is_err() && lanes("--lanes=-1").is_err());
}

#[test]
fn memory_is_of_the_host_or_of_gpus() {
    let memory = |line: &str| plan(line).map(|plan| plan.memory);
    assert_eq!(memory("").unwrap(), Memory::default());
    assert_eq!(memory("--mem=host").unwrap().name(), "host");
    let gpus = memory("--mem=gpu:1,0 --bounce=4m,16 --gpu_outstanding=16m --polling --scatter=32k").unwrap();
    assert_eq!((gpus.gpus.clone(), gpus.name()), (vec![1, 0], "gpu:1,0".into()));
    assert_eq!((gpus.bounce, gpus.outstanding), (Some((4 << 20, 16)), Some(16 << 20)));
    assert!(gpus.polling && gpus.scatter == Some(32 << 10));
    for bad in ["gpu", "gpu:", "gpu:x", "gpu:0,", "gpu:0,0", "gpu:-1", "cuda:0"] {
        assert!(memory(&format!("--mem={bad}")).is_err(), "{bad}");
    }
    for bad in ["8m", "8m,", ",8", "8m,x"] {
        assert!(memory(&format!("--mem=gpu:0 --bounce={bad}")).is_err(), "{bad}");
    }
    assert!(!plan("").unwrap().mapped && plan("--target=dax").unwrap().mapped && plan("--target=x").is_err());
}

#[test]
fn requests_are_asked_for_by_any_of_their_options() {
    assert_eq!(plan("").unwrap().requests, None);
    let loops = |line: &str| {
        let plan = plan(line).unwrap();
        (plan.depths.clone(), plan.item(), plan.objects_an_item(), plan.requests.unwrap())
    };
    let defaults =
        Requests { count: 32, size: 4 << 30, think: Duration::ZERO, mark_every: None, probe: false };
    assert_eq!(loops("--inflight=8"), (vec![8], 4 << 30, 205, defaults.clone()));
    assert_eq!(loops("--requests=3").0, [3], "no more in flight than there are");
    let marked = Requests { mark_every: Some(5), think: Duration::from_millis(7), ..defaults.clone() };
    assert_eq!(loops("--mark-every=5 --think_ms=7"), (vec![8], 4 << 30, 205, marked));
    let probe = Requests { probe: true, count: 9, size: 40 << 20, ..defaults };
    assert_eq!(loops("--priority-probe --requests=9 --request_size=40m"), (vec![9], 40 << 20, 2, probe));
    assert_eq!(loops("--requests=64 --arm=1,16").0, [1, 16]);
    assert!(plan("--inflight=8 --arm=1").is_err());
}

#[test]
fn a_models_cache_makes_objects_and_requests() {
    let cache = |line: &str| {
        let plan = plan(&format!("--workload=kv {line}")).unwrap();
        (plan.bs, plan.item(), plan.depths.clone(), plan.kv.is_some())
    };
    let llama = "--model=llama-3.1-8b --tp=4 --tokens=32k --chunk_tokens=256";
    assert_eq!(cache(&format!("{llama} --inflight=2")), (8 << 20, 1 << 30, vec![2], true));
    assert_eq!(cache("--model=llama-3.1-70b --tp=4 --tokens=1k").0, 20 << 20);
    assert_eq!(cache("--layers=32 --kv_heads=8 --head_size=128 --tokens=512").1, 64 << 20);
    assert_eq!(cache("--layers=61 --latent=576 --tp=8 --tokens=256").0, 576 * 61 * 2 * 256);
    assert_eq!(plan("").unwrap().kv, None);
    for alone in [
        "--model=llama-3.1-8b",
        "--tp=4",
        "--tokens=32k",
        "--chunk_tokens=256",
        "--kv_dtype=fp8",
        "--layers=3",
    ] {
        assert!(plan(alone).is_err(), "{alone} means nothing without --workload=kv");
    }
}

#[test]
fn arms_are_named_and_repeated() {
    let arms = |line: &str| plan(line).map(|plan| (plan.serial, plan.depths, plan.repeat));
    assert_eq!(arms("--arm=8").unwrap(), (Some(false), vec![8], 1));
    assert_eq!(arms("--arm=serial,1,8 --repeat=3").unwrap(), (Some(true), vec![1, 8], 3));
    assert_eq!(arms("--arm=serial").unwrap(), (Some(true), vec![], 1));
    assert_eq!(arms("").unwrap().0, None);
    assert!(arms("--arm=many").is_err() && arms("--arm=").is_err() && arms("--arm=8 --iodepth=8").is_err());
    let limit = Limit { time_based: true, runtime: Some(Duration::from_millis(1500)) };
    assert_eq!(plan("--seconds=1500ms").unwrap().limit, limit);
    assert!(plan("--seconds=1 --runtime=1").is_err());
}

#[test]
fn limits_are_those_of_the_engine() {
    use fullbore::Engine;
    for (lanes, cmd_size) in [(1, 4096), (64, 16 << 20)] {
        plan(&format!("--lanes={lanes} --cmd_size={cmd_size} --bs=32m")).unwrap();
    }
    // One more of each is refused here as there. (The null queue needs no ring.)
    let null = || Engine::builder().null();
    assert!(null().lanes(65).build().is_err() && plan("--lanes=65").is_err());
    assert!(null().command_size((16 << 20) + 4096).build().is_err() && plan("--cmd_size=16388k").is_err());
    assert!(null().processes(1025).build().is_err() && plan("--processes=1025").is_err());
    assert!(null().max_transfers(65_537).build().is_err() && plan("--iodepth=4096 --numjobs=17").is_err());
}

#[test]
fn a_drive_is_polled_by_either_name_and_shared() {
    let defaults = plan("").unwrap();
    assert_eq!((defaults.polled, defaults.processes), (false, 1));
    let polled = |text: &str| plan(&format!("--filename=/dev/ng0n1 {text}")).unwrap().polled;
    assert!(polled("--polled") && polled("--hipri") && polled("--hipri=1") && !polled("--polled=0"));
    assert_eq!(plan("--processes=4").unwrap().processes, 4);
}
