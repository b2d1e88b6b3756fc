//! Lanes, hardware queues and nodes: which lane's commands land where.

use super::drives::drives;
use super::rig::{MIB, Object, Rig, seen_once};
use super::seen::by_queue;
use crate::support::within;
use fullbore::{AllocOptions, Engine, Lanes, OpenOptions};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn lane_i_lands_on_hardware_queue_i() {
    let Some([drive]) = drives(["d0"]) else { return };
    let builder = Engine::builder().lane_depth(16).lanes(Lanes::PerQueue);
    within(LIMIT, "a lane a queue", || {
        seen_once(|| {
            let queues = drive.queue_of_cpus();
            let rig = Rig::new(drive.filled(20 * MIB), builder.clone(), 20 * MIB);
            let (_, commands) = rig.traced(&[Object { trace: 1, offset: 0, len: 20 * MIB }]);
            let stats = rig.engine.stats();
            let of_drive: Vec<_> = stats.lanes.iter().filter(|lane| lane.commands > 0).collect();
            let numbers: std::collections::BTreeSet<_> = queues.values().copied().collect();
            let counts = by_queue(&commands);
            for lane in &of_drive {
                let queue = lane.queue.expect("a lane of a drive knows its queue");
                // Linux counts hardware queues from 0, the driver's trace from 1.
                let traced = counts.get(&(queue + 1)).map(|count| *count as u64);
                assert_eq!(traced, Some(lane.commands), "{lane:?}");
                let cpus: Vec<u32> = lane.cpus.split(',').filter_map(|cpu| cpu.parse().ok()).collect();
                assert!(
                    !cpus.is_empty() && cpus.iter().all(|cpu| queues[cpu] == queue + 1),
                    "{lane:?}: {queues:?}"
                );
            }
            // One that is held up may come when the others have taken all of it.
            if of_drive.len() == numbers.len() { Ok(()) } else { Err(format!("{of_drive:?}")) }
        });
    });
}

/// Each page's NUMA node, by move_pages; a page that is not there is an error, minus an errno.
fn nodes_of(ptr: *mut u8, len: usize) -> Vec<i32> {
    let pages: Vec<_> = (0..len).step_by(4096).map(|at| ptr.wrapping_add(at)).collect();
    let mut nodes = vec![0i32; pages.len()];
    // SAFETY: asks only (no target nodes); both lists are as long as said and live across the call.
    let rc = unsafe {
        let none = std::ptr::null::<i32>();
        libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), none, nodes.as_mut_ptr(), 0)
    };
    assert_eq!(rc, 0, "move_pages: {}", std::io::Error::last_os_error());
    nodes
}

#[test]
fn memory_is_on_the_node_that_was_asked_for() {
    let Some(_) = drives(["d0"]) else { return };
    within(LIMIT, "memory on a node", || {
        let engine = Engine::builder().lanes(1).build().expect("an engine");
        for node in [0, 1] {
            let options = AllocOptions { node: Some(node), ..AllocOptions::default() };
            let region = engine.alloc_host_with(8 << 20, &options).expect("memory");
            let nodes = nodes_of(region.as_ptr(), region.len());
            assert!(nodes.iter().all(|found| *found == node as i32), "asked for {node}: {nodes:?}");
        }
    });
}

/// d0 is on node 0, d1 on node 1, and each node has one CPU.
#[test]
fn lanes_of_a_drive_are_on_its_node() {
    let Some(both) = drives(["d0", "d1"]) else { return };
    within(LIMIT, "lanes on a node", || {
        for drive in both {
            let Some(node) = drive.node_number() else { panic!("{} is on a node", drive.name) };
            let rig = Rig::new(drive.filled(MIB), Engine::builder().lanes(1), MIB);
            let (_, commands) = rig.traced(&[Object { trace: 1, offset: 0, len: MIB }]);
            let list =
                std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).unwrap();
            let near: Vec<u32> = list.trim().split([',', '-']).map(|cpu| cpu.parse().unwrap()).collect();
            let cpus: Vec<_> = commands.iter().map(|c| c.cpu).collect();
            let inside = |cpu: &u32| (near[0]..=near[near.len() - 1]).contains(cpu);
            assert!(
                cpus.iter().all(inside),
                "{} is on node {node} ({near:?}), its lane on {cpus:?}",
                drive.name
            );
        }
    });
}

#[test]
fn the_other_drives_commands_do_not_show() {
    let Some([one, other]) = drives(["d0", "d1"]) else { return };
    within(LIMIT, "two drives", || {
        let rig = Rig::new(one.filled(MIB), Engine::builder().lanes(2), 2 * MIB);
        other.filled(MIB);
        let second = rig.engine.open(&other.node, OpenOptions::read()).expect("a second drive in one engine");
        let tracer = super::trace::Tracer::start();
        rig.load(&[Object { trace: 1, offset: 0, len: MIB }]);
        let lease = rig.region.lease(0..MIB as usize).unwrap();
        let transfer = fullbore::Transfer::read(&second).extent(0, lease).trace_id(2);
        rig.client.submit(transfer).unwrap().wait().unwrap().result.expect("read");
        let commands = tracer.stop().commands;
        let of = |drive: &super::drives::Drive| commands.iter().filter(|c| c.disk == drive.disk).count();
        assert_eq!((of(&one), of(&other)), (8, 8), "each drive has its own object's");
    });
}
