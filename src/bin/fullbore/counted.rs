//! What lanes counted between two looks at them.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore::{LaneStats, Path};

/// What came between two looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// Most commands in flight: the deepest enter of each lane, added up. A bound, as the lanes may not all have
    /// been that deep at once; of one lane it is exact.
    pub most: u64,
    /// The time of all commands together.
    pub took: Duration,
    /// Bytes by path.
    pub paths: BTreeMap<&'static str, u64>,
}

impl Counted {
    /// How many commands were in flight on average, in the span of time between the looks.
    pub fn mean(&self, span: Duration) -> f64 {
        if span.is_zero() { 0.0 } else { self.took.as_secs_f64() / span.as_secs_f64() }
    }
}

/// `before` and `after` are of the same lanes, in order; those that came later are at the end.
pub fn between(before: &[LaneStats], after: &[LaneStats]) -> Counted {
    let mut counted = Counted::default();
    for (number, lane) in after.iter().enumerate() {
        let old = before.get(number);
        let old_enters = |depth: usize| old.and_then(|old| old.occupancy.get(depth)).copied().unwrap_or(0);
        let enters: Vec<u64> =
            lane.occupancy.iter().enumerate().map(|(depth, &n)| n - old_enters(depth).min(n)).collect();
        counted.most += enters.iter().rposition(|&n| n > 0).unwrap_or(0) as u64;
        let sum = |lane: &LaneStats| lane.latency.sum();
        counted.took += Duration::from_nanos(sum(lane).saturating_sub(old.map_or(0, sum)));
        for &(path, bytes) in &lane.paths {
            let more = bytes - old.map_or(0, |old| bytes_of(old, path)).min(bytes);
            if more > 0 {
                *counted.paths.entry(path.name()).or_default() += more;
            }
        }
    }
    counted
}

fn bytes_of(lane: &LaneStats, wanted: Path) -> u64 {
    lane.paths.iter().find(|(path, _)| *path == wanted).map_or(0, |(_, bytes)| *bytes)
}

/// The lanes that serve what is measured: of drives and mappings, if there are such, or of files.
pub fn of_target(mut lanes: Vec<LaneStats>) -> Vec<LaneStats> {
    lanes.retain(|lane| !is_of_gpu(lane));
    let drives = lanes.iter().any(|lane| lane.drive.is_some());
    lanes.into_iter().filter(|lane| lane.drive.is_some() == drives).collect()
}

/// The lanes that serve GPUs.
pub fn of_gpus(lanes: Vec<LaneStats>) -> Vec<LaneStats> {
    lanes.into_iter().filter(is_of_gpu).collect()
}

fn is_of_gpu(lane: &LaneStats) -> bool {
    lane.drive.as_ref().is_some_and(|name| name.starts_with("gpu "))
}

/// What to call a lane.
pub fn name(number: usize, lane: &LaneStats) -> String {
    let of = lane.drive.as_deref().unwrap_or("files");
    let queue = lane.queue.map_or_else(String::new, |queue| format!(" queue {queue}"));
    format!("lane {number}, {of}{queue}")
}

/// Of each lane its name, and how often an enter left so many commands in flight, since the look before.
pub fn occupancy(before: &[LaneStats], after: &[LaneStats]) -> Vec<(String, Vec<u64>)> {
    let one = |(number, lane): (usize, &LaneStats)| {
        let old =
            |depth: usize| before.get(number).and_then(|old| old.occupancy.get(depth)).copied().unwrap_or(0);
        let enters = lane.occupancy.iter().enumerate().map(|(depth, n)| n.saturating_sub(old(depth)));
        (name(number, lane), enters.collect())
    };
    after.iter().enumerate().map(one).collect()
}

/// Where lanes are, a line for people: by drive, the hardware queues and how deep each goes.
pub fn describe(lanes: &[LaneStats]) -> String {
    let mut by_drive: BTreeMap<&str, Vec<&LaneStats>> = BTreeMap::new();
    for lane in lanes {
        by_drive.entry(lane.drive.as_deref().unwrap_or("")).or_default().push(lane);
    }
    let one = |(drive, lanes): (&str, Vec<&LaneStats>)| {
        let mut text = crate::units::count(lanes.len() as u64, "lane");
        if !drive.is_empty() {
            text += &format!(" on {drive}");
        }
        let queues: Vec<String> = lanes.iter().filter_map(|lane| lane.queue).map(|q| q.to_string()).collect();
        if !queues.is_empty() {
            text += &format!(" queue {}", queues.join(" "));
        }
        let (least, most) = lanes
            .iter()
            .fold((u32::MAX, 0), |(least, most), lane| (least.min(lane.depth), most.max(lane.depth)));
        let depth = if least == most { most.to_string() } else { format!("{least} to {most}") };
        format!("{text} of depth {depth}")
    };
    by_drive.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(occupancy: &[u64], paths: &[(Path, u64)]) -> LaneStats {
        let (occupancy, paths) = (occupancy.to_vec(), paths.to_vec());
        LaneStats { occupancy, paths, depth: 32, ..LaneStats::default() }
    }

    #[test]
    fn the_deepest_enter_of_each_lane_counts() {
        let before = [lane(&[5, 1, 0, 9], &[]), lane(&[0; 4], &[])];
        let after = [lane(&[6, 2, 3, 9], &[]), lane(&[1, 0, 0, 4], &[])];
        let counted = between(&before, &after);
        assert_eq!(counted.most, 2 + 3);
        assert_eq!(between(&after, &after), Counted::default());
        assert_eq!(between(&[], &[lane(&[0, 7], &[])]).most, 1);
    }

    /// Little's law.
    #[test]
    fn the_mean_is_the_time_of_commands_by_that_of_the_clock() {
        let counted = Counted { took: Duration::from_secs(12), ..Counted::default() };
        assert_eq!((counted.mean(Duration::from_secs(3)), counted.mean(Duration::ZERO)), (4.0, 0.0));
    }

    #[test]
    fn bytes_of_a_path_are_those_since_the_look_before() {
        let before = [lane(&[], &[(Path::Fixed, 100)])];
        let after = [lane(&[], &[(Path::Fixed, 100), (Path::Scratch, 7)]), lane(&[], &[(Path::Scratch, 5)])];
        assert_eq!(between(&before, &after).paths, BTreeMap::from([("uring scratch", 12)]));
    }

    #[test]
    fn lanes_of_drives_are_those_that_are_used() {
        let on = |drive: &str, queue| LaneStats { drive: Some(drive.into()), queue, ..lane(&[], &[]) };
        let gpus = || vec![lane(&[], &[]), on("gpu 1", None)];
        assert_eq!((of_target(gpus())[0].drive.clone(), of_gpus(gpus()).len()), (None, 1));
        let all = vec![lane(&[], &[]), on("nvme0", Some(0)), on("nvme0", Some(1)), on("nvme1", None)];
        let files = of_target(vec![lane(&[], &[])]);
        assert_eq!(describe(&files), "1 lane of depth 32");
        let used = of_target(all);
        assert_eq!(used.len(), 3);
        assert_eq!(describe(&used), "2 lanes on nvme0 queue 0 1 of depth 32, 1 lane on nvme1 of depth 32");
    }
}
