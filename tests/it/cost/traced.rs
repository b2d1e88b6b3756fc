//! What the kernel's own tracer sees: invariant I11, and that no CQ ever overflows (FACTS §6.1).

use crate::support::{build, child, does, folders, private_mounts, root, uring};
use fullbore::{Engine, OpenOptions, Transfer};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

const MIB: usize = 1 << 20;
const DEPTH: u32 = 8;
const TRACES: [u32; 4] = [1, 0xdead_beef, 0x8000_0000, u32::MAX];

/// A tracer of this process's rings, in an instance of its own.
struct Tracer(PathBuf);

impl Tracer {
    /// `Err` says why this machine has none.
    fn start() -> Result<Tracer, String> {
        let place = mount_tracefs()?;
        let tracer = Tracer(place.join(format!("instances/fullbore-it-{}", std::process::id())));
        fs::create_dir(&tracer.0).map_err(|e| format!("no instance of the tracer: {e}"))?;
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let tasks: Vec<_> = tasks.map(|task| task.file_name().into_string().unwrap()).collect();
        tracer.write("set_event_pid", &tasks.join(" "))?;
        for event in ["io_uring_submit_req", "io_uring_cqe_overflow"] {
            tracer.write(&format!("events/io_uring/{event}/enable"), "1")?;
        }
        Ok(tracer)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        fs::write(self.0.join(file), text).map_err(|e| format!("{file}: {e}"))
    }

    fn events(&self) -> String {
        fs::read_to_string(self.0.join("trace")).expect("the trace can be read")
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Mounts tracefs where nobody else sees it; it goes with the process.
fn mount_tracefs() -> Result<PathBuf, String> {
    private_mounts();
    let place = PathBuf::from("/sys/kernel/tracing");
    let instances = || place.join("instances").exists();
    if instances() || (does("mount", &["-t", "tracefs", "none", "/sys/kernel/tracing"]) && instances()) {
        Ok(place)
    } else {
        Err("no tracefs".into())
    }
}

#[test]
fn tracers_see_the_trace_id_in_the_high_half_and_no_overflow() {
    if !root() {
        return eprintln!("skipped: the kernel's tracer needs root");
    }
    if !uring() {
        return;
    }
    let test = "cost::traced::tracers_see_the_trace_id_in_the_high_half_and_no_overflow";
    child(test, &[]).keep_capabilities().run(|| {
        let Some(folder) = folders().pop() else { return };
        let path = folder.file("data", 8 * MIB as u64, 1);
        let engine = build(Engine::builder().lanes(2).lane_depth(DEPTH));
        let target = engine.open(&path, OpenOptions::read()).unwrap();
        let (client, region) = (engine.client().unwrap(), engine.alloc_host(32 * MIB).unwrap());
        let tracer = match Tracer::start() {
            Ok(tracer) => tracer,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let submit = |(i, trace): (usize, &u32)| {
            let lease = region.lease(i * 8 * MIB..(i + 1) * 8 * MIB).unwrap();
            client.submit(Transfer::read(&target).extent(0, lease).trace_id(*trace)).unwrap()
        };
        let tickets: Vec<_> = TRACES.iter().enumerate().map(submit).collect();
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap().result.unwrap());
        let events = tracer.events();
        drop(tracer);
        let most = engine.stats().lanes.iter().map(|lane| lane.max_in_flight).max().unwrap();
        assert!(
            (2..=DEPTH as u64).contains(&most),
            "in flight at most the depth, and not one by one: {most}"
        );
        assert!(!events.contains("io_uring_cqe_overflow:"), "a CQ overflowed:\n{events}");
        assert_user_data(&events);
    });
}

/// `trace_id << 32 | generation << slot_bits | slot`, of every command that was submitted.
fn assert_user_data(events: &str) {
    let mut commands: HashMap<u32, u32> = HashMap::new();
    let mut generations: HashMap<(&str, u32), u32> = HashMap::new();
    for line in events.lines().filter(|line| line.contains("io_uring_submit_req:")) {
        let word = |key: &str| line.split_once(key)?.1.split([' ', ',']).find(|word| !word.is_empty());
        let (ring, user_data) = (word("ring ").expect("a ring"), word("user_data ").expect("its user_data"));
        let user_data = u64::from_str_radix(user_data.trim_start_matches("0x"), 16).expect("a number");
        if user_data == u64::MAX {
            continue; // the poll on a lane's bell
        }
        let (trace, low) = ((user_data >> 32) as u32, user_data as u32);
        *commands.entry(trace).or_default() += 1;
        let (slot, generation) = (low % DEPTH, low / DEPTH);
        let next = generations.entry((ring, slot)).or_default();
        assert_eq!(generation, *next, "each use of a slot is told from the one before: {line}");
        *next += 1;
    }
    // 8 MiB are 64 commands.
    assert_eq!(
        commands,
        TRACES.into_iter().map(|trace| (trace, 64)).collect(),
        "the high half is the trace id"
    );
    assert!(generations.len() > 1, "commands in several slots");
}
