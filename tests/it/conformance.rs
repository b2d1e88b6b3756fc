//! One suite of cases over every (target, memory) pair that this machine offers.
//!
//! Each pair runs on four engines: with and without cloned buffers, with one lane and with several. Destinations are
//! poisoned before each load, guards surround them, and the destination itself is compared with content that carries
//! its own offset. The path of each completion is compared with one computed here from alignments alone.

mod memory;
mod oracle;
mod places;
mod reads;
mod rig;
mod seam;
mod writes;

use crate::support;
use fullbore::{Engine, OpenOptions};
use memory::{KINDS, Memory};
use places::Place;
use rig::Rig;
use std::collections::BTreeSet;
use std::time::Duration;

/// Clone buffers, lanes.
const ENGINES: [(bool, usize); 4] = [(true, 1), (true, 2), (false, 1), (false, 3)];
/// Bytes of a memory: the largest object, with room for guards.
const ROOM: usize = 24 << 20;

#[test]
fn every_case_holds_for_every_target_and_memory() {
    if !support::uring() {
        return;
    }
    let limit = Duration::from_secs(240);
    let ran = support::within(limit, "the conformance suite", || {
        let places = places::all();
        std::thread::scope(|scope| {
            let threads: Vec<_> = places.iter().map(|place| scope.spawn(|| run(place))).collect();
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<BTreeSet<_>>()
        })
    });
    let known: BTreeSet<_> =
        places::known().into_iter().flat_map(|place| KINDS.map(|kind| (place, kind.name()))).collect();
    eprintln!("conformance: {} pairs ran, {} known to this machine", ran.len(), known.len());
    let missing: Vec<_> = known.difference(&ran).collect();
    assert!(missing.is_empty(), "this machine can run pairs that did not run: {missing:?}");
}

/// Runs every case on one target with every memory; answers the pairs that ran on all engines.
fn run(place: &Place) -> Vec<(&'static str, &'static str)> {
    for (clones, lanes) in ENGINES {
        let engine = Engine::builder().clone_buffers(clones).lanes(lanes).build().expect("an engine");
        assert_eq!(engine.lanes(), lanes, "those of files; a device brings its own");
        for kind in KINDS {
            let label = format!("{} / {}, clones {clones}, {lanes} lanes", place.name, kind.name());
            let target =
                engine.open(&place.read, place.options(OpenOptions::read())).expect("opens for reading");
            assert_eq!(target.size(), place.size, "{label}");
            let memory = Memory::new(&engine, kind, ROOM);
            let mut rig = Rig::new(&engine, target, memory, label, place.seed);
            reads::run(&mut rig);
            let target =
                engine.open(&place.write, place.options(OpenOptions::write())).expect("opens for writing");
            rig.turn_to(target);
            writes::run(&mut rig, place);
            rig.finish();
        }
        // A lane counts what is left in flight after it has published what is not.
        let quiet = || engine.stats().lanes.iter().all(|lane| lane.in_flight == 0);
        assert!(support::eventually(Duration::from_secs(5), quiet), "{}: something is in flight", place.name);
        let stats = engine.stats();
        assert_eq!(stats.active, 0, "{}: entries are all free again", place.name);
        let drives = stats.lanes.iter().filter(|lane| lane.drive.is_some()).count();
        for (number, lane) in stats.lanes.iter().enumerate() {
            assert_eq!(
                lane.commands > 0,
                drives == 0 || lane.drive.is_some(),
                "{}: lane {number} of {lanes} did {} commands",
                place.name,
                lane.commands
            );
            assert_eq!((lane.stale, lane.alive), (0, true), "{}: lane {number}", place.name);
        }
    }
    KINDS.map(|kind| (place.name, kind.name())).to_vec()
}
