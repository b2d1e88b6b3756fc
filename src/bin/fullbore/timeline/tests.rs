use std::time::{Duration, Instant};

use serde_json::Value;

use super::model::{Landing, Lost, Object, Section, Sort, Work};
use super::tape::{Aim, Tape};
use super::writer::Writer;
use crate::direct::Op;

fn object(row: usize, id: u32, (begun, ended): (Instant, Instant)) -> Object {
    Object {
        row,
        id,
        op: "read",
        target: "a \"file\"\n".into(),
        offset: 4096,
        bytes: 8 << 20,
        begun,
        ended,
        queued_ns: 1500,
        took_ns: 20_000,
        path: None,
        failed: false,
    }
}

fn work(slot: usize, id: u32, (begun, ended): (Instant, Instant)) -> Work {
    Work {
        sort: Sort::Command,
        lane: 0,
        slot,
        id,
        op: "read",
        path: "uring fixed",
        bytes: 4 << 20,
        begun,
        ended,
        failed: false,
    }
}

/// Two objects one after the other in a slot, the first with two commands side by side.
fn section(at: impl Fn(u64) -> Instant) -> Section {
    Section {
        name: "job <a>".into(),
        rows: vec!["slot 0".into()],
        objects: vec![object(0, 1, (at(1_000), at(9_001))), object(0, 2, (at(9_001), at(12_000)))],
        landings: vec![Landing { row: 0, objects: 3, begun: at(1_000), ended: at(5_000) }],
        lanes: vec!["lane 0, files".into()],
        work: vec![
            work(0, 1, (at(2_000), at(8_000))),
            work(1, 1, (at(2_500), at(9_000))),
            work(0, 2, (at(10_000), at(11_000))),
        ],
        lost: Lost { objects: 5, work: 7, of_none: 1 },
        ..Section::default()
    }
}

fn written(sections: &[Section], origin: Instant) -> (String, Value) {
    let mut writer = Writer::new(Vec::new(), origin).unwrap();
    sections.iter().for_each(|section| writer.section(section).unwrap());
    let text = String::from_utf8(writer.end().unwrap()).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

fn events(trace: &Value, phase: &str) -> Vec<Value> {
    let all = trace["traceEvents"].as_array().unwrap();
    all.iter().filter(|event| event["ph"] == phase).cloned().collect()
}

#[test]
fn slices_are_where_they_were_in_microseconds() {
    let origin = Instant::now();
    let (text, trace) = written(&[section(|ns| origin + Duration::from_nanos(ns))], origin);
    let slices = events(&trace, "X");
    assert_eq!(slices.len(), 2 + 1 + 3);
    assert_eq!(slices[0]["name"], "read 8 MiB");
    assert_eq!(slices[0]["args"]["file"], "a \"file\"\n");
    assert_eq!(slices[2]["name"], "objects up to 3");
    assert!(text.contains("\"ts\":1.000,\"dur\":8.001,"), "{text}");
    let tracks = |cat: &str| -> Vec<u64> {
        let of = slices.iter().filter(|slice| slice["cat"] == cat);
        of.map(|slice| slice["tid"].as_u64().unwrap()).collect()
    };
    let (objects, commands) = (tracks("object"), tracks("command"));
    assert!(
        objects[0] == objects[1] && commands[0] == commands[1] && commands[1] != commands[2],
        "{commands:?}"
    );
    assert!(!commands.contains(&objects[0]), "numbers of tracks are of the whole trace");
    assert_eq!(trace["otherData"]["lost_objects"], 5);
    assert_eq!(trace["otherData"]["lost_work"], 7);
}

#[test]
fn counters_are_what_is_in_flight() {
    let origin = Instant::now();
    let (_, trace) = written(&[section(|ns| origin + Duration::from_nanos(ns))], origin);
    let counted = |name: &str| -> Vec<(f64, u64)> {
        let of = events(&trace, "C").into_iter().filter(|event| event["name"] == name);
        of.map(|event| (event["ts"].as_f64().unwrap(), event["args"]["in flight"].as_u64().unwrap()))
            .collect()
    };
    // Where one ends and the next begins there is one all the time.
    assert_eq!(counted("objects in flight"), [(1.0, 1), (9.001, 1), (12.0, 0)]);
    let commands = [(2.0, 1), (2.5, 2), (8.0, 1), (9.0, 0), (10.0, 1), (11.0, 0)];
    assert_eq!(counted("commands in flight"), commands);
    assert!(counted("copies in flight").is_empty());
}

#[test]
fn arrows_lead_from_an_object_through_its_commands() {
    let origin = Instant::now();
    let at = |ns| origin + Duration::from_nanos(ns);
    let (_, trace) = written(&[section(at), section(at)], origin);
    let chain: Vec<_> = ["s", "t", "f"]
        .iter()
        .flat_map(|phase| events(&trace, phase))
        .map(|event| event["id"].as_u64())
        .collect();
    let count = |id: u64| chain.iter().filter(|found| **found == Some(id)).count();
    assert_eq!([1 << 32 | 1, 1 << 32 | 2, 2 << 32 | 1, 2 << 32 | 2].map(count), [3, 2, 3, 2]);
    let labels = events(&trace, "M").into_iter().filter(|event| event["name"] == "process_labels");
    let sections: Vec<u64> = labels.map(|event| event["args"]["section"].as_u64().unwrap()).collect();
    assert_eq!(sections, [1, 1, 2, 2]);
}

#[test]
fn tracks_keep_what_there_is_room_for_and_count_the_rest() {
    let tape = Tape::new("a".into(), 4, 2);
    let aim = || Aim { op: Op::Read, target: "x".into(), offset: 0, bytes: 4096 };
    let (mut late, mut early) = (tape.track(1, "clone 1"), tape.track(0, "clone 0"));
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(late.begin(0, aim()));
        late.end_plain(0);
    }
    ids.push(early.begin(1, aim()));
    drop((late, early));
    let section = tape.objects();
    assert_eq!(section.rows, ["clone 0 slot 0", "clone 0 slot 1", "clone 1 slot 0"]);
    assert_eq!(section.lost, Lost { objects: 1, ..Lost::default() });
    let kept: Vec<_> = section.objects.iter().map(|one| (one.row, one.id, one.failed)).collect();
    assert_eq!(kept, [(1, 4, true), (2, 1, false), (2, 2, false)], "what never came back has failed");
    assert_eq!(ids, [1, 2, 3, 4]);
}
