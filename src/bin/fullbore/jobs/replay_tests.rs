use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Entry, Replay};
use crate::jobs::tests::{job, jobs};

fn parse(value: &Value) -> Result<Replay, String> {
    Replay::parse(Path::new("m.json"), value)
}

fn with(objects: Value) -> Value {
    json!({ "version": 1, "device": { "block": 512 }, "objects": objects })
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs/replay.json")
}

#[test]
fn the_example_is_what_the_page_says() {
    let replay = Replay::read(&example()).unwrap();
    let at = |us| Some(Duration::from_micros(us));
    let entry = |read, offset, size, at| Entry { read, offset, size, at };
    let wanted = [
        entry(true, 0, 256 << 10, None),
        entry(true, 256 << 10, 512 << 10, None),
        entry(false, 1 << 20, 256 << 10, None),
        entry(false, 1280 << 10, 4096, at(2000)),
        entry(true, 4096, 64 << 10, at(5000)),
    ];
    assert_eq!(replay.entries, wanted);
    let job = job(&format!("--replay={}", example().display()));
    assert_eq!((job.bs, job.rw.name(), job.cmd_size), (512 << 10, "rw", Some(128 << 10)));
    let job =
        jobs(&format!("--cmd_size=64k --replay={} --iodepth=4", example().display())).unwrap().remove(0);
    assert_eq!((job.name.as_str(), job.cmd_size, job.iodepth), ("replay", Some(64 << 10), 4));
}

#[test]
fn what_is_wrong_with_a_manifest_is_told_with_its_entry() {
    let good = json!({ "op": "read", "offset": 0, "size": 512 });
    let device = json!({ "block": 512 });
    for (value, part) in [
        (json!([]), "a JSON object of version"),
        (json!({ "device": device, "objects": [good] }), "add \"version\": 1"),
        (json!({ "version": 2, "device": device, "objects": [good] }), "version 2"),
        (json!({ "version": "1", "device": device, "objects": [good] }), "whole number"),
        (json!({ "version": 1, "objects": [good] }), "no device"),
        (json!({ "version": 1, "device": { "block": 100 }, "objects": [good] }), "write 512"),
        (json!({ "version": 1, "device": { "block": 512, "command": 512 }, "objects": [good] }), "whole 4k"),
        (json!({ "version": 1, "device": { "block": 512, "size": 1 }, "objects": [good] }), "`size`"),
        (json!({ "version": 1, "device": device, "objects": [good], "recorder": "x" }), "`recorder`"),
        (with(json!([])), "list of objects"),
        (with(json!([good, { "op": "trim", "size": 512 }])), "entry 2: op"),
        (with(json!([good, { "op": "read" }])), "entry 2: size"),
        (with(json!([good, { "op": "read", "size": 0 }])), "entry 2: size"),
        (with(json!([good, { "op": "read", "size": 512, "lba": 3 }])), "entry 2: an object: `lba`"),
        (with(json!([{ "op": "read", "offset": 100, "size": 512 }])), "entry 1: offset 100"),
        (with(json!([{ "op": "read", "offset": 512, "size": 5 }])), "entry 1: offset 512 and size 5"),
        (with(json!([{ "op": "read", "offset": u64::MAX - 511, "size": 512 }])), "entry 1: offset and size"),
        (with(json!([{ "op": "read", "offset": -512, "size": 512 }])), "entry 1: offset is to be"),
        (
            with(
                json!([{ "op": "read", "size": 512, "at_us": 5 }, { "op": "read", "size": 512, "at_us": 4 }]),
            ),
            "entry 2: at_us",
        ),
    ] {
        let why = parse(&value).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{value}: {why}");
    }
    assert!(parse(&with(json!([good]))).is_ok());
    assert!(Replay::read(Path::new("/nonexistent/m.json")).unwrap_err().contains("m.json: "));
}

#[test]
fn bounds_and_blocks_of_the_target_are_held_against_every_entry() {
    let one = |offset, size| json!({ "op": "read", "offset": offset, "size": size });
    let replay = parse(&with(json!([one(0, 4096), one(4096, 512)]))).unwrap();
    assert_eq!(replay.fits_in("d", 4608, 512), Ok(()));
    let small = replay.fits_in("d", 4600, 512).unwrap_err();
    assert!(small.starts_with("m.json: entry 2: it ends at byte 4608, and d has 4600"), "{small}");
    let coarse = replay.fits_in("d", 1 << 20, 4096).unwrap_err();
    assert!(coarse.starts_with("m.json: entry 2: ") && coarse.contains("blocks of 4096"), "{coarse}");
}

#[test]
fn keys_that_the_manifest_has_are_refused_beside_it() {
    for (line, part) in [
        ("--bs=4k", "the manifest of replay says that"),
        ("--rw=read", "the manifest of replay says that"),
        ("--size=1m", "the manifest of replay says that"),
        ("--numjobs=2", "leave out numjobs"),
        ("--filename=a:b", "name one file"),
        ("--loops=2", "at_us"),
        ("--time_based --runtime=1", "at_us"),
    ] {
        let line = format!("--name=a {line} --replay={}", example().display());
        let why = jobs(&line).unwrap_err().to_string();
        assert!(why.contains(part) && !why.contains('\n'), "{line}: {why}");
    }
}
