use proptest::prelude::*;

use super::*;
use crate::topology::Node;

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn machine(nodes: &[&str]) -> Topology {
    let node = |(id, cpus): (usize, &&str)| Node { id: id as u32, cpus: set(cpus), distance: Vec::new() };
    let nodes: Vec<Node> = nodes.iter().enumerate().map(node).collect();
    let cpus = nodes.iter().flat_map(|node| node.cpus.iter()).collect();
    Topology { nodes, cpus }
}

fn map(node: Option<u32>, tags: u32, queues: &[&str]) -> QueueMap {
    let queue = |(number, cpus): (usize, &&str)| HardwareQueue {
        number: number as u32,
        cpus: set(cpus),
        tags,
        kind: QueueKind::Default,
    };
    QueueMap { queues: queues.iter().enumerate().map(queue).collect(), node }
}

/// As `cpus@queue/node:depth`.
fn shown(places: &[Place]) -> Vec<String> {
    let or_none = |number: Option<u32>| number.map_or("-".to_owned(), |number| number.to_string());
    let show = |p: &Place| format!("{}@{}/{}:{}", p.cpus, or_none(p.queue), or_none(p.node), p.depth);
    places.iter().map(show).collect()
}

#[test]
fn per_queue_each_with_an_allowed_cpu_gets_a_lane_on_those() {
    let (two, drive) = (machine(&["0-3", "4-7"]), map(Some(0), 31, &["0-1", "2-3", "4-5", "6-7,64"]));
    let places = place_lanes(&drive, &two, &set("1-3,6-7"), Lanes::PerQueue, 32, 1);
    assert_eq!(shown(&places), ["1@0/0:31", "2-3@1/0:31", "6-7@3/1:31"]);
    assert_eq!(
        shown(&place_lanes(&drive, &two, &set("0-7,64"), Lanes::Auto, 16, 2)),
        ["0-1@0/0:15", "2-3@1/0:15", "4-5@2/1:15", "6-7@3/1:15"]
    );
}

#[test]
fn per_numa_a_lane_counts_wholly_against_each_queue_it_can_reach() {
    let two = machine(&["0-3", "4-7", ""]);
    let places = place_lanes(&map(None, 31, &["0-3", "4-7"]), &two, &set("2-7"), Lanes::PerNuma, 32, 1);
    assert_eq!(shown(&places), ["2-3@0/0:31", "4-7@1/1:31"]);
    let places = place_lanes(&map(None, 31, &["0-5", "6-7"]), &two, &set("0-7"), Lanes::PerNuma, 32, 1);
    assert_eq!(shown(&places), ["0-3@0/0:15", "4-7@-/1:15"], "both can fill queue 0");
    let one = place_lanes(&map(None, 31, &["0-7"]), &two, &set("4-5"), Lanes::PerNuma, 8, 1);
    assert_eq!(shown(&one), ["4-5@0/1:8"]);
}

#[test]
fn a_count_is_spread_or_shared() {
    let (one, drive) = (machine(&["0-7"]), map(None, 7, &["0-1", "2-3", "4-5", "6-7"]));
    let lanes = |count: usize| shown(&place_lanes(&drive, &one, &set("0-7"), count.into(), 32, 1));
    assert_eq!(lanes(0), ["0-1@0/0:7"]);
    assert_eq!(lanes(2), ["0-1@0/0:7", "4-5@2/0:7"]);
    assert_eq!(lanes(3), ["0-1@0/0:7", "2-3@1/0:7", "4-5@2/0:7"]);
    assert_eq!(lanes(6), ["0-1@0/0:3", "0-1@0/0:3", "2-3@1/0:7", "4-5@2/0:3", "4-5@2/0:3", "6-7@3/0:7"]);
    assert_eq!(lanes(1000).len(), 28, "a lane more would have no tag");
    assert!(lanes(1000).iter().all(|lane| lane.ends_with(":1")));
}

#[test]
fn auto_is_eight_at_most_and_prefers_the_drives_node() {
    let cpus: Vec<String> = (0..32).map(|cpu| cpu.to_string()).collect();
    let queues: Vec<&str> = cpus.iter().map(String::as_str).collect();
    let two = machine(&["0-15", "16-31"]);
    let chosen = |node, allowed: &str| {
        let places = place_lanes(&map(node, 1023, &queues), &two, &set(allowed), Lanes::Auto, 32, 1);
        places.iter().map(|place| place.queue.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(None, "0-31"), [0, 4, 8, 12, 16, 20, 24, 28]);
    assert_eq!(chosen(Some(1), "0-31"), [16, 18, 20, 22, 24, 26, 28, 30]);
    assert_eq!(chosen(Some(1), "0-15"), [0, 2, 4, 6, 8, 10, 12, 14], "the process may not run there");
    assert_eq!(chosen(Some(1), "0-15,20-22"), [0, 3, 6, 9, 12, 20, 21, 22], "too few there: all, and others");
    assert_eq!(chosen(Some(1), "0-2,20-22"), [0, 1, 2, 20, 21, 22], "few enough: each has one");
}

#[test]
fn a_drive_on_a_node_of_memory_alone_is_near_to_the_nearest_cpus() {
    let mut far = machine(&["0-9", "10-19", ""]);
    far.nodes[2].distance = vec![24, 14, 10];
    let cpus: Vec<String> = (0..20).map(|cpu| cpu.to_string()).collect();
    let queues: Vec<&str> = cpus.iter().map(String::as_str).collect();
    let places = place_lanes(&map(Some(2), 1023, &queues), &far, &set("0-19"), Lanes::Auto, 32, 1);
    assert!(places.iter().all(|place| place.node == Some(1)), "{:?}", shown(&places));
}

#[test]
fn where_no_queue_has_a_cpu_of_ours_there_is_one_lane_nearby() {
    let two = machine(&["0-3", "4-7"]);
    let odd = map(Some(1), 9, &["8-9", "10"]);
    for lanes in [Lanes::Auto, Lanes::PerQueue, Lanes::Count(3)] {
        assert_eq!(shown(&place_lanes(&odd, &two, &set("2-5"), lanes, 32, 1)), ["4-5@-/1:9"], "{lanes:?}");
    }
    let none = QueueMap { queues: Vec::new(), node: None };
    assert_eq!(shown(&place_lanes(&none, &two, &set("2-5"), Lanes::Auto, 32, 1)), ["2-5@-/-:32"]);
    assert_eq!(shown(&place_lanes(&none, &two, &set("64"), Lanes::PerNuma, 0, 0)), ["64@-/-:1"]);
}

#[test]
fn queues_of_another_kind_have_no_lanes() {
    let one = machine(&["0-1"]);
    let mut drive = map(None, 7, &["0", "1", "0-1"]);
    drive.queues[2].kind = QueueKind::Polled;
    let place = |map: &QueueMap| shown(&place_lanes(map, &one, &set("0-1"), Lanes::PerQueue, 4, 1));
    assert_eq!(place(&drive), ["0@0/0:4", "1@1/0:4"]);
    assert_eq!(place(&drive.interrupt_queues()), place(&drive));
    assert_eq!(place(&drive.polled_queues()), ["0-1@2/0:4"]);
}

/// CPUs are dealt to queues and to nodes at random; some of either are left without.
fn any_case() -> impl Strategy<Value = (QueueMap, Topology, CpuSet, Lanes, u32, u32)> {
    let queues = prop::collection::vec(1..40u32, 0..20);
    let home = prop::collection::vec((0..24usize, 0..4usize, any::<bool>()), 1..40);
    let lanes = prop_oneof![
        Just(Lanes::Auto),
        Just(Lanes::PerQueue),
        Just(Lanes::PerNuma),
        (0..60usize).prop_map(Lanes::Count)
    ];
    let distance = prop::collection::vec(10..40u32, 4);
    (queues, home, lanes, distance, prop::option::of(0..5u32), 0..64u32, 0..6u32).prop_map(
        |(tags, home, lanes, distance, node, depth, processes)| {
            let of = |keep: &dyn Fn(&(usize, usize, bool)) -> bool| -> CpuSet {
                (0u32..).zip(&home).filter(|(_, home)| keep(home)).map(|(cpu, _)| cpu).collect()
            };
            let queue = |(number, &tags): (usize, &u32)| HardwareQueue {
                number: number as u32,
                cpus: of(&|home| home.0 == number),
                tags,
                kind: QueueKind::Default,
            };
            let map = QueueMap { queues: tags.iter().enumerate().map(queue).collect(), node };
            let id =
                |id: usize| Node { id: id as u32, cpus: of(&|at| at.1 == id), distance: distance.clone() };
            let topology = Topology { nodes: (0..4).map(id).collect(), cpus: of(&|_| true) };
            let mut allowed = of(&|home| home.2);
            if allowed.is_empty() {
                allowed = set("0");
            }
            (map, topology, allowed, lanes, depth, processes)
        },
    )
}

proptest! {
    #[test]
    fn whatever_the_machine((map, topology, allowed, lanes, depth, processes) in any_case()) {
        let places = place_lanes(&map, &topology, &allowed, lanes, depth, processes);
        prop_assert!(!places.is_empty());
        for place in &places {
            prop_assert!(!place.cpus.is_empty() && place.cpus.is_within(&allowed), "{:?}", shown(&places));
            prop_assert!((1..=depth.max(1)).contains(&place.depth));
            let lands_on: Vec<u32> =
                map.queues.iter().filter(|q| place.cpus.meets(&q.cpus)).map(|q| q.number).collect();
            if let Some(queue) = place.queue {
                prop_assert_eq!(lands_on, [queue]);
            }
            if let Some(node) = place.node {
                prop_assert!(place.cpus.is_within(&topology.nodes[node as usize].cpus));
            }
        }
        for queue in &map.queues {
            let reach: Vec<&Place> = places.iter().filter(|place| place.cpus.meets(&queue.cpus)).collect();
            let in_flight: u32 = reach.iter().map(|place| place.depth).sum();
            let share = (queue.tags / processes.max(1)).max(1);
            let most = if lanes == Lanes::PerNuma { share.max(reach.len() as u32) } else { share };
            prop_assert!(in_flight <= most, "queue {}: {} in flight of {}", queue.number, in_flight, most);
            if lanes == Lanes::PerQueue && queue.cpus.meets(&allowed) {
                let own = queue.cpus.intersection(&allowed);
                prop_assert_eq!(reach.iter().map(|place| &place.cpus).collect::<Vec<_>>(), [&own]);
            }
        }
        match lanes {
            Lanes::Auto => prop_assert!(places.len() <= MAX_DEFAULT_LANES),
            Lanes::Count(count) => prop_assert!(places.len() <= count.max(1)),
            _ => {}
        }
    }

    /// Used as evenly as can be: no queue has two lanes more than another.
    #[test]
    fn a_count_is_even((map, topology, allowed, _, depth, _) in any_case(), count in 1..60usize) {
        let places = place_lanes(&map, &topology, &allowed, Lanes::Count(count), depth, 1);
        let ours = map.queues.iter().filter(|queue| queue.cpus.meets(&allowed));
        let lanes = ours.map(|queue| places.iter().filter(|place| place.queue == Some(queue.number)).count());
        let (least, most) = lanes.fold((usize::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
        prop_assert!(most <= least.saturating_add(1));
    }
}
