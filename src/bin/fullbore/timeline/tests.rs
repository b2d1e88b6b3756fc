use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::inside::{self, Inner};
use super::model::{Landing, Lost, Object, Section, Sort, Work};
use super::tape::{Aim, Tape, Track};
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
        inside: Vec::new(),
        begun,
        ended,
        queued_ns: 1500,
        took_ns: 20_000,
        path: None,
        failed: false,
    }
}

fn work(slot: usize, id: u32, (offset, bytes): (u64, u64), (begun, ended): (Instant, Instant)) -> Work {
    Work {
        sort: Sort::Command,
        lane: 0,
        slot,
        id,
        op: "read",
        path: "uring fixed",
        offset,
        bytes,
        begun,
        ended,
        failed: false,
    }
}

/// Two objects one after the other in a slot, the first with two commands side by side.
fn section(at: impl Fn(u64) -> Instant) -> Section {
    let half = 4 << 20;
    Section {
        name: "job <a>".into(),
        rows: vec!["clone 0".into()],
        objects: vec![object(0, 1, (at(1_000), at(9_001))), object(0, 2, (at(9_001), at(12_000)))],
        landings: vec![Landing { row: 0, objects: 3, begun: at(1_000), ended: at(5_000) }],
        lanes: vec!["lane 0, files".into()],
        work: vec![
            work(0, 1, (4096, half), (at(2_000), at(8_000))),
            work(1, 1, (4096 + half, half), (at(2_500), at(9_000))),
            work(0, 2, (4096, half), (at(10_000), at(11_000))),
        ],
        lost: Lost { objects: 5, work: 7, of_none: 1 },
        ..Section::default()
    }
}

/// A request of three objects of 100 bytes, the last of 50: at 300, at 0, and at 0 again.
fn request(at: impl Fn(u64) -> Instant) -> Section {
    let inside = vec![(300, 100), (0, 100), (0, 50)];
    let command = |slot, offset, bytes, begun, ended| work(slot, 1, (offset, bytes), (at(begun), at(ended)));
    Section {
        name: "requests".into(),
        requests: true,
        rows: vec!["thread 0".into()],
        objects: vec![Object { inside, ..object(0, 1, (at(0), at(900))) }],
        lanes: vec!["lane 0, files".into()],
        work: vec![
            command(0, 0, 50, 250, 400),
            command(1, 300, 50, 100, 300),
            command(2, 350, 50, 150, 250),
            command(0, 50, 50, 400, 600),
            command(1, 0, 50, 420, 500),
        ],
        ..Section::default()
    }
}

/// Fields of a message: numbers, and the bytes of those that have some.
fn fields(mut data: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let varint = |data: &mut &[u8]| {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = data[0];
            *data = &data[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    while !data.is_empty() {
        let key = varint(&mut data);
        let (number, bytes) = match key & 7 {
            0 => (varint(&mut data), Vec::new()),
            1 => {
                let (value, rest) = data.split_at(8);
                data = rest;
                (u64::from_le_bytes(value.try_into().unwrap()), Vec::new())
            }
            _ => {
                let len = varint(&mut data) as usize;
                let (bytes, rest) = data.split_at(len);
                data = rest;
                (0, bytes.to_vec())
            }
        };
        found.push((key >> 3, number, bytes));
    }
    found
}

#[derive(Debug, Default, Clone)]
struct Event {
    /// Names from the top down to its track.
    path: String,
    at: u64,
    kind: u64,
    name: String,
    value: u64,
    flows: Vec<u64>,
    notes: HashMap<String, u64>,
}

fn written(sections: &[Section], origin: Instant) -> Vec<Event> {
    let mut writer = Writer::new(Vec::new(), origin).unwrap();
    sections.iter().for_each(|section| writer.section(section).unwrap());
    let mut paths: HashMap<u64, String> = HashMap::new();
    let mut events = Vec::new();
    for (field, _, packet) in fields(&writer.end().unwrap()) {
        assert_eq!(field, 1, "a packet");
        let packet = fields(&packet);
        let of = |number: u64| packet.iter().find(|(field, ..)| *field == number);
        assert_eq!(of(10).unwrap().1, 1, "of one sequence");
        let Some((_, _, event)) = of(11) else {
            let track = fields(&of(60).unwrap().2);
            let of = |number: u64| track.iter().find(|(field, ..)| *field == number);
            let name = String::from_utf8(of(2).unwrap().2.clone()).unwrap();
            let path = of(5).map_or(name.clone(), |(_, parent, _)| format!("{}/{name}", paths[parent]));
            paths.insert(of(1).unwrap().1, path);
            continue;
        };
        let mut made = Event { at: of(8).unwrap().1, ..Event::default() };
        for (field, number, bytes) in fields(event) {
            match field {
                9 => made.kind = number,
                11 => made.path = paths[&number].clone(),
                23 => made.name = String::from_utf8(bytes).unwrap(),
                30 => made.value = number,
                47 => made.flows.push(number),
                4 => {
                    let note = fields(&bytes);
                    let name = String::from_utf8(note[0].2.clone()).unwrap();
                    made.notes.insert(name, note[1].1);
                }
                _ => {}
            }
        }
        events.push(made);
    }
    events
}

fn on<'a>(events: &'a [Event], path: &str) -> Vec<&'a Event> {
    let version = env!("CARGO_PKG_VERSION");
    events.iter().filter(|event| event.path == format!("fullbore {version}{path}")).collect()
}

#[test]
fn slices_are_where_they_were_and_within_each_other() {
    let origin = Instant::now();
    let events = written(&[section(|ns| origin + Duration::from_nanos(ns))], origin);
    let seen = |path| -> Vec<_> {
        on(&events, path).iter().map(|event| (event.at, event.kind, event.name.as_str())).collect()
    };
    let objects = [
        (1_000, 1, "read 8 MiB"),
        (1_000, 1, "objects up to 3"),
        (5_000, 2, ""),
        (9_001, 2, ""),
        (9_001, 1, "read 8 MiB"),
        (12_000, 2, ""),
    ];
    assert_eq!(seen("/job <a>/objects/clone 0"), objects);
    let name = "read uring fixed";
    let commands = [
        (2_000, 1, name),
        (8_000, 2, ""),
        (10_000, 1, name),
        (11_000, 2, ""),
        (2_500, 1, name),
        (9_000, 2, ""),
    ];
    assert_eq!(seen("/job <a>/lane 0, files/commands"), commands, "a slot after the other");
    let lost = on(&events, "");
    assert_eq!((lost.len(), lost[0].at, lost[0].kind), (1, 12_000, 3));
    assert_eq!(lost[0].name, "not in this trace: 5 objects, 7 pieces of work, 1 flush");
    assert_eq!((lost[0].notes["lost_objects"], lost[0].notes["lost_work"]), (5, 7));
}

#[test]
fn counters_are_what_is_in_flight() {
    let origin = Instant::now();
    let at = |ns| origin + Duration::from_nanos(ns);
    let events = written(&[section(at), request(at)], origin);
    let counted = |path| -> Vec<_> {
        on(&events, path).iter().map(|event| (event.at, event.value)).collect::<Vec<_>>()
    };
    // Where one ends and the next begins there is one all the time.
    assert_eq!(counted("/job <a>/objects in flight"), [(1_000, 1), (9_001, 1), (12_000, 0)]);
    let commands = [(2_000, 1), (2_500, 2), (8_000, 1), (9_000, 0), (10_000, 1), (11_000, 0)];
    assert_eq!(counted("/job <a>/commands in flight"), commands);
    assert!(counted("/job <a>/copies in flight").is_empty());
    assert_eq!(counted("/requests/requests in flight"), [(0, 1), (900, 0)]);
    let inside = [(100, 1), (250, 2), (300, 1), (420, 2), (500, 1), (600, 0)];
    assert_eq!(counted("/requests/objects in flight"), inside);
}

#[test]
fn arrows_lead_from_an_object_through_its_commands() {
    let origin = Instant::now();
    let at = |ns| origin + Duration::from_nanos(ns);
    let events = written(&[section(at), section(at), request(at)], origin);
    let mut chains: HashMap<u64, Vec<&str>> = HashMap::new();
    for event in &events {
        for flow in &event.flows {
            chains.entry(*flow).or_default().push(&event.name);
        }
    }
    let (object, command) = ("read 8 MiB", "read uring fixed");
    let mut chains: Vec<_> = chains.into_iter().collect();
    chains.sort_unstable();
    let chains: Vec<_> = chains.into_iter().map(|(_, chain)| chain).collect();
    let of_job = [vec![object, command, command], vec![object, command]];
    assert_eq!(chains[..4], [of_job.clone(), of_job].concat());
    let of_request = [
        vec![object, "object 0", command, command],
        vec![object, "object 1", command, command],
        vec![object, "object 2", command],
    ];
    assert_eq!(chains[4..], of_request);
}

#[test]
fn objects_inside_a_request_are_as_long_as_their_commands() {
    let origin = Instant::now();
    let at = |ns| origin + Duration::from_nanos(ns);
    let mut section = request(at);
    section.work[4].failed = true;
    let inner = |row, number, (offset, bytes), (begun, ended), work: &[usize]| Inner {
        of: 0,
        row,
        number,
        offset,
        bytes,
        begun: at(begun),
        ended: at(ended),
        failed: number == 2,
        work: work.into(),
    };
    let wanted = [
        inner(0, 0, (300, 100), (100, 300), &[1, 2]),
        inner(1, 1, (0, 100), (250, 600), &[0, 3]),
        // The same bytes for the second time; and the row of the first is free again.
        inner(0, 2, (0, 50), (420, 500), &[4]),
    ];
    assert_eq!(inside::objects(&section), wanted);
    let events = written(&[section], origin);
    let under = on(&events, "/requests/requests/thread 0/objects");
    let seen: Vec<_> = under.iter().map(|event| (event.at, event.kind, event.name.as_str())).collect();
    let rows = [
        (100, 1, "object 0"),
        (300, 2, ""),
        (420, 1, "object 2"),
        (500, 2, ""),
        (250, 1, "object 1"),
        (600, 2, ""),
    ];
    assert_eq!(seen, rows);
    assert_eq!((under[2].notes["failed"], under[2].notes["bytes"], under[2].notes["object"]), (1, 50, 2));
}

#[test]
fn a_unit_is_for_all_objects_that_it_moves() {
    let origin = Instant::now();
    let at = |ns| origin + Duration::from_nanos(ns);
    let mut section = request(at);
    let unit = |offset, bytes, begun, ended| Work {
        sort: Sort::Unit,
        ..work(0, 1, (offset, bytes), (at(begun), at(ended)))
    };
    // From the middle of the first object over all of the second into the third; then the rest of that.
    section.work = vec![unit(350, 170, 100, 200), unit(20, 30, 300, 400)];
    let found = inside::objects(&section);
    let found: Vec<_> = found.iter().map(|inner| (inner.number, inner.work.clone())).collect();
    assert_eq!(found[..2], [(0, vec![0]), (1, vec![0, 1])]);
    // What a unit's first byte is of is told by the target alone: of two objects of the same bytes the first is taken.
    assert_eq!(found[2], (2, vec![0]));
    section.work = vec![unit(999, 10, 100, 200)];
    assert_eq!(inside::objects(&section), [], "what lies in none is for none");
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
    assert_eq!(section.rows, ["clone 0", "clone 0", "clone 1"]);
    assert_eq!(section.lost, Lost { objects: 1, ..Lost::default() });
    let kept: Vec<_> = section.objects.iter().map(|one| (one.row, one.id, one.failed)).collect();
    assert_eq!(kept, [(1, 4, true), (2, 1, false), (2, 2, false)], "what never came back has failed");
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn what_is_forgotten_takes_no_room() {
    let tape = Tape::new("a".into(), 2, 1);
    let mut track = tape.track(0, "clone 0");
    let moved = |track: &mut Track| {
        let id = track.begin(0, Aim { op: Op::Read, target: "x".into(), offset: 0, bytes: 4096 });
        track.end_plain(0);
        id
    };
    let before = [moved(&mut track), moved(&mut track), moved(&mut track)];
    track.forget();
    let after = [moved(&mut track), moved(&mut track)];
    drop(track);
    let section = tape.objects();
    assert!(section.objects.iter().map(|one| one.id).eq(after), "{before:?} {after:?}");
    assert_eq!(section.lost, Lost::default());
}

#[test]
fn objects_inside_a_request_need_room_too() {
    let tape = Tape::new("a".into(), 4, 1);
    let mut track = tape.track(0, "thread 0");
    for inside in [vec![(0, 1), (1, 1)], vec![(2, 1)]] {
        track.begin(0, Aim { op: Op::Read, target: "x".into(), offset: 0, bytes: 2 });
        track.holds(0, inside);
        track.end_plain(0);
    }
    drop(track);
    let section = tape.objects();
    assert_eq!((section.objects.len(), section.lost.objects), (1, 1));
    assert_eq!(section.objects[0].inside, [(0, 1), (1, 1)]);
}
