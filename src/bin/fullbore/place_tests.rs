//! Places: made, found, refused.

use std::path::PathBuf;
use std::{env, fs, process};

use fullbore::{Engine, Lanes};

use crate::args::{Format, Limit, Plan, Rw};
use crate::content;
use crate::member::Member;
use crate::options::Memory;
use crate::place::{Place, Truth};

/// An engine that opens nothing, for what needs none: files are opened later.
fn engine() -> Engine {
    Engine::builder().null().lanes(1).build().unwrap()
}

/// A place that nothing is done to.
pub fn nowhere() -> (Plan, Place) {
    let (path, kind) = (PathBuf::from("/nowhere"), "none".into());
    let place = Place {
        members: vec![Member::file(path.clone())],
        stripe: None,
        size: 8192,
        file_bytes: 8192,
        kind,
        truth: Truth::Pread,
        made: None,
    };
    (plan(path, 8192), place)
}

fn plan(filename: PathBuf, size: u64) -> Plan {
    Plan {
        files: vec![filename],
        stripe: None,
        bs: 4096,
        depths: vec![1],
        jobs: 1,
        lanes: Lanes::Count(1),
        polled: false,
        processes: 1,
        cmd_size: Some(4096),
        lane_depth: 1,
        size: Some(size),
        limit: Limit { time_based: false, runtime: None },
        rw: Rw::Read,
        verify: true,
        destructive: false,
        format: Format::Normal,
        output: None,
        timeline: None,
        compare: None,
        ceilings: false,
        memory: Memory::default(),
        mapped: false,
        requests: None,
        kv: None,
        serial: None,
        repeat: 1,
        swept: None,
        footprint: 0,
    }
}

/// A plan with objects that are scattered over pieces.
pub fn scattered(bs: u64, piece: u64) -> Plan {
    let memory = Memory { scatter: Some(piece), ..Memory::default() };
    Plan { bs, memory, ..plan("/nowhere".into(), bs) }
}

/// A folder of a test's own; `None`, and a line that says so, where the temp folder takes no direct I/O.
fn folder(name: &str) -> Option<PathBuf> {
    let folder = env::temp_dir().join(format!("fullbore-place-{name}-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let probe = plan(folder.clone(), 8192);
    match Place::of(&probe, &engine()) {
        Ok(_) => Some(folder),
        Err(cause) => {
            println!("skipped: {cause}");
            None
        }
    }
}

#[test]
fn a_made_file_is_filled_recognised_and_removed() {
    let Some(folder) = folder("made") else { return };
    let path = folder.join("file");
    let wanted = plan(path.clone(), (5 << 20) + 4096);
    let place = Place::of(&wanted, &engine()).unwrap();
    place.lay_out().unwrap();
    let again = Place::of(&wanted, &engine()).unwrap();
    assert!(place.was_made() && !again.was_made());
    assert_eq!((place.truth, place.size), (again.truth, again.size));
    let bytes = fs::read(&path).unwrap();
    let Truth::Content(seed) = place.truth else { panic!("no content") };
    assert_eq!((bytes.len() as u64, content::check(&bytes, 0, seed).bytes), (place.size, 0));
    drop(again);
    assert!(path.exists());
    drop(place);
    assert!(!path.exists());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn foreign_files_are_pread_and_never_overwritten_unasked() {
    let Some(folder) = folder("foreign") else { return };
    let path = folder.join("file");
    fs::write(&path, vec![7; 10_001]).unwrap();
    let mut wanted = plan(path.clone(), 10_001);
    let place = Place::of(&wanted, &engine()).unwrap();
    assert_eq!((place.truth, place.size), (Truth::Pread, 10_001));
    wanted.rw = Rw::Write;
    let refused = Place::of(&wanted, &engine()).unwrap_err().to_string();
    assert!(refused.contains("--allow-destructive"), "{refused}");
    wanted.destructive = true;
    assert_eq!(Place::of(&wanted, &engine()).unwrap().size, 8192);
    assert_eq!(fs::read(&path).unwrap(), vec![7; 10_001]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_is_one_line_with_a_remedy() {
    let Some(folder) = folder("refused") else { return };
    fs::write(folder.join("small"), "x").unwrap();
    for (name, size) in [("small", 8192), ("none/file", 8192), ("huge", 1 << 60), ("odd", 10_001)] {
        let refused = Place::of(&plan(folder.join(name), size), &engine()).unwrap_err().to_string();
        assert!(refused.contains("--") && !refused.contains('\n'), "{refused}");
        assert!(name == "small" || !folder.join(name).exists());
    }
    let device = Place::of(&plan("/dev/ng99n99".into(), 8192), &engine()).unwrap_err().to_string();
    assert!(device.contains("no such device") && !PathBuf::from("/dev/ng99n99").exists(), "{device}");
    assert!(Place::of(&plan("/dev/null".into(), 8192), &engine()).is_err());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_stripe_has_whole_chunks_of_its_smallest_member_and_is_recognised() {
    let Some(folder) = folder("stripe") else { return };
    let [a, b] = ["a", "b"].map(|name| folder.join(name));
    let (mut bytes, seed) = (vec![0; 5 * 4096], 77);
    content::fill(&mut bytes, 0, seed);
    let chunk = |n: usize| &bytes[n * 4096..][..4096];
    fs::write(&a, [chunk(0), chunk(2), chunk(4)].concat()).unwrap();
    fs::write(&b, [chunk(1), chunk(3)].concat()).unwrap();
    let mut wanted = plan(a.clone(), 4 * 4096);
    (wanted.files, wanted.stripe, wanted.size) = (vec![a.clone(), b.clone()], Some(4096), None);
    let place = Place::of(&wanted, &engine()).unwrap();
    assert_eq!((place.size, place.file_bytes, place.truth), (4 * 4096, 4 * 4096, Truth::Content(seed)));
    assert_eq!(place.name(), format!("{}:{}", a.display(), b.display()));
    // The other way round it is no content of ours.
    wanted.files = vec![b.clone(), a];
    assert_eq!(Place::of(&wanted, &engine()).unwrap().truth, Truth::Pread);
    // Nothing is made for a stripe, and nothing overwritten unasked.
    wanted.files = vec![b.clone(), folder.join("none")];
    let missing = Place::of(&wanted, &engine()).unwrap_err().to_string();
    assert!(missing.contains("none: ") && missing.contains("--filename"), "{missing}");
    (wanted.files, wanted.rw) = (vec![b.clone(), b], Rw::Write);
    assert!(Place::of(&wanted, &engine()).unwrap_err().to_string().contains("--allow-destructive"));
    fs::remove_dir_all(folder).unwrap();
}
