//! Which I/O comes next, and when it may: order, mix and rate of a clone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::stats::{READ, WRITE};
use crate::jobs::replay::Replay;
use crate::jobs::spec::Job;
use crate::jobs::words::Pattern;
use crate::work::permuted;

/// A part of a file that a clone works on, in whole objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Which of the clone's targets.
    pub target: usize,
    pub start: u64,
    /// Objects.
    pub count: u64,
}

/// An I/O to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    pub way: usize,
    pub span: usize,
    /// Which object of the span.
    pub object: u64,
    /// On the target.
    pub offset: u64,
    pub len: u64,
    /// It reads back what the job moved, to check it: no I/O that counts.
    pub back: bool,
}

/// The order of a clone's I/O.
pub struct Course {
    spans: Vec<Span>,
    bs: u64,
    replay: Option<Arc<Replay>>,
    pattern: Pattern,
    percent_read: u64,
    repeats: bool,
    seed: u64,
    /// I/Os dealt, of each way.
    dealt: [u64; 2],
    /// How many there are.
    total: u64,
    next: Option<Io>,
}

/// Bits that look random, of a counter.
fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Course {
    /// `total`: I/Os; the clones of a job differ by `seed`.
    pub fn new(job: &Job, spans: Vec<Span>, total: u64, seed: u64) -> Self {
        Self {
            spans,
            bs: job.bs,
            replay: job.replay.clone(),
            pattern: job.rw,
            percent_read: job.rwmixread,
            repeats: job.norandommap,
            seed: mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)),
            dealt: [0; 2],
            total,
            next: None,
        }
    }

    /// The next I/O, which stays the next until it is taken.
    pub fn peek(&mut self) -> Option<Io> {
        if self.next.is_none() {
            self.next = self.is_more().then(|| self.deal());
        }
        self.next
    }

    fn is_more(&self) -> bool {
        self.dealt[READ] + self.dealt[WRITE] < self.total
    }

    pub fn take(&mut self) {
        self.next = None;
    }

    /// The I/O of an object.
    pub fn io(&self, way: usize, span: usize, object: u64) -> Io {
        let (offset, len) = match &self.replay {
            Some(replay) => {
                let entry = &replay.entries[object as usize];
                (entry.offset, entry.size)
            }
            None => (self.spans[span].start + object * self.bs, self.bs),
        };
        Io { way, span, object, offset, len, back: false }
    }

    /// When an I/O may be submitted, after the start, if a manifest says so.
    pub fn at(&self, io: Io) -> Option<Duration> {
        self.replay.as_ref()?.entries[io.object as usize].at
    }

    /// The next of a manifest, over and over.
    fn replayed(&mut self, replay: &Replay) -> Io {
        let entries = replay.entries.len() as u64;
        let object = (self.dealt[READ] + self.dealt[WRITE]) % entries;
        let way = if replay.entries[object as usize].read { READ } else { WRITE };
        self.dealt[way] += 1;
        self.io(way, 0, object)
    }

    fn way(&self) -> usize {
        match (self.pattern.reads, self.pattern.writes) {
            (true, false) => READ,
            (false, _) => WRITE,
            (true, true) => {
                let draw = mix(self.seed ^ (self.dealt[READ] + self.dealt[WRITE]) << 1) % 100;
                if draw < self.percent_read { READ } else { WRITE }
            }
        }
    }

    fn deal(&mut self) -> Io {
        match self.replay.clone() {
            Some(replay) => self.replayed(&replay),
            None => self.deal_to(self.way()),
        }
    }

    /// The next I/O; of a mix the other way's, where that may go sooner: rates win over the mix, as in fio.
    pub fn peek_by(&mut self, pace: &Pace, now: Instant) -> Option<Io> {
        let io = self.peek()?;
        let mixed = self.pattern.is_mixed() && (1..100).contains(&self.percent_read) && self.replay.is_none();
        if mixed && pace.is_ahead(io.way, now) {
            self.dealt[io.way] -= 1;
            self.next = Some(self.deal_to(1 - io.way));
        }
        self.next
    }

    fn deal_to(&mut self, way: usize) -> Io {
        // In order, reads and writes each go over the files by themselves; at random each object is hit once by either.
        let turn = if self.pattern.random { self.dealt[READ] + self.dealt[WRITE] } else { self.dealt[way] };
        self.dealt[way] += 1;
        let files = self.spans.len() as u64;
        let (span, turn) = ((turn % files) as usize, turn / files);
        let at = self.spans[span];
        let object = match (self.pattern.random, self.repeats) {
            (false, _) => turn % at.count,
            (true, true) => mix(self.seed ^ mix(turn * files + span as u64)) % at.count,
            (true, false) => {
                let round = turn / at.count;
                permuted(turn % at.count, at.count, (self.seed ^ round) & 0xffff_ffff)
            }
        };
        self.io(way, span, object)
    }
}

/// I/Os of a clone: as many as its files hold, or as io_size says, over and over as loops say.
pub fn total(job: &Job, spans: &[Span]) -> u64 {
    if job.time_based {
        return u64::MAX;
    }
    let all: u64 = spans.iter().map(|span| span.count).sum();
    let once = job.io_size.map_or(all, |size| size.of(all * job.bs).div_ceil(job.bs).max(1));
    job.number_ios.map_or(once, |most| most.min(once)).saturating_mul(job.loops)
}

/// Bytes of so many I/Os, for the live line.
pub fn bytes_of(job: &Job, ios: u64) -> u64 {
    match &job.replay {
        Some(replay) => replay.bytes().saturating_mul(ios / replay.entries.len() as u64),
        None => ios.saturating_mul(job.bs),
    }
}

/// Holds I/O to a rate.
pub struct Pace {
    bytes: [Option<u64>; 2],
    ios: [Option<u64>; 2],
    /// Bytes and I/Os so far, of each way.
    done: [(u64, u64); 2],
    start: Instant,
}

impl Pace {
    pub fn new(job: &Job, start: Instant) -> Self {
        Self { bytes: job.rate, ios: job.rate_iops, done: [(0, 0); 2], start }
    }

    /// When the next I/O of that way may be submitted; none: at once.
    pub fn due(&self, way: usize) -> Option<Instant> {
        let after = |amount: u64, rate: u64| Duration::from_secs_f64(amount as f64 / rate as f64);
        let bytes = self.bytes[way].map(|rate| after(self.done[way].0, rate));
        let ios = self.ios[way].map(|rate| after(self.done[way].1, rate));
        Some(self.start + bytes.max(ios)?)
    }

    /// Whether that way has to wait, and the other one less.
    fn is_ahead(&self, way: usize, now: Instant) -> bool {
        let [this, other] = [way, 1 - way].map(|way| self.due(way).unwrap_or(self.start));
        this > now && other < this
    }

    /// The same of an I/O that is not to be submitted until so long after the start.
    pub fn due_at(&self, way: usize, at: Option<Duration>) -> Option<Instant> {
        self.due(way).max(at.map(|at| self.start + at))
    }

    pub fn submitted(&mut self, way: usize, bytes: u64) {
        let (done, ios) = self.done[way];
        self.done[way] = (done + bytes, ios + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::tests::job;

    fn all(line: &str, spans: &[Span], total: u64) -> Vec<Io> {
        let mut course = Course::new(&job(line), spans.to_vec(), total, 7);
        let mut ios = Vec::new();
        while let Some(io) = course.peek() {
            assert_eq!(course.peek(), Some(io));
            course.take();
            ios.push(io);
        }
        ios
    }

    const TWO: [Span; 2] =
        [Span { target: 0, start: 4096, count: 3 }, Span { target: 1, start: 0, count: 3 }];

    #[test]
    fn in_order_files_take_turns() {
        let at: Vec<_> = all("--rw=read --bs=4k", &TWO, 8).iter().map(|io| (io.span, io.offset)).collect();
        assert_eq!(at, [(0, 4096), (1, 0), (0, 8192), (1, 4096), (0, 12288), (1, 8192), (0, 4096), (1, 0)]);
    }

    #[test]
    fn at_random_every_object_is_hit_once_a_round() {
        let span = [Span { target: 0, start: 0, count: 100 }];
        for line in ["--rw=randread", "--rw=randrw", "--rw=randwrite"] {
            let ios = all(line, &span, 200);
            for round in ios.chunks(100) {
                let mut objects: Vec<u64> = round.iter().map(|io| io.object).collect();
                objects.sort_unstable();
                assert!(objects.iter().copied().eq(0..100), "{line}");
            }
            assert_ne!(ios[..100], ios[100..], "{line}");
        }
        let repeats = all("--rw=randread --norandommap", &span, 100);
        let mut objects: Vec<u64> = repeats.iter().map(|io| io.object).collect();
        objects.sort_unstable();
        objects.dedup();
        assert!((50..80).contains(&objects.len()), "{}", objects.len());
    }

    #[test]
    fn a_mix_has_its_share_of_reads() {
        let span = [Span { target: 0, start: 0, count: 1000 }];
        for (percent, least, most) in [(70, 6_700, 7_300), (0, 0, 0), (100, 10_000, 10_000)] {
            let ios = all(&format!("--rw=rw --rwmixread={percent}"), &span, 10_000);
            let reads = ios.iter().filter(|io| io.way == READ).count();
            assert!((least..=most).contains(&reads), "{percent}: {reads}");
            // Both go over the file in order.
            let writes: Vec<u64> = ios.iter().filter(|io| io.way == WRITE).map(|io| io.object).collect();
            assert!(writes.windows(2).all(|two| two[1] == (two[0] + 1) % 1000));
        }
    }

    #[test]
    fn a_manifest_goes_in_its_order_again_and_again() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jobs/replay.json");
        let span = [Span { target: 0, start: 0, count: 5 }];
        let ios = all(&format!("--replay={example}"), &span, 7);
        let at: Vec<_> = ios.iter().map(|io| (io.way, io.offset >> 10, io.len >> 10)).collect();
        let once = [(0, 0, 256), (0, 256, 512), (1, 1024, 256), (1, 1280, 4), (0, 4, 64)];
        assert_eq!((&at[..5], &at[5..]), (&once[..], &once[..2]));
        let job = job(&format!("--replay={example}"));
        let (course, start) = (Course::new(&job, span.to_vec(), 5, 7), Instant::now());
        let due = |n: usize| Pace::new(&job, start).due_at(ios[n].way, course.at(ios[n]));
        assert_eq!((due(0), due(3)), (None, Some(start + Duration::from_millis(2))));
    }

    #[test]
    fn rates_win_over_the_mix() {
        let span = [Span { target: 0, start: 0, count: 1000 }];
        let of = |line: &str| {
            let job = job(&format!("{line} --rw=randrw --bs=64k"));
            let (mut course, start) = (Course::new(&job, span.to_vec(), u64::MAX, 7), Instant::now());
            let (mut pace, mut now, mut ios) = (Pace::new(&job, start), start, Vec::new());
            while now < start + Duration::from_secs(2) && ios.len() < 500 {
                let io = course.peek_by(&pace, now).unwrap();
                now = now.max(pace.due(io.way).unwrap_or(now));
                course.take();
                pace.submitted(io.way, io.len);
                ios.push(io);
            }
            let reads = ios.iter().filter(|io| io.way == READ).count();
            let mut objects: Vec<u64> = ios.iter().map(|io| io.object).collect();
            objects.sort_unstable();
            objects.dedup();
            assert_eq!(objects.len(), ios.len(), "{line}: each object once");
            (reads, ios.len() - reads)
        };
        let near = |n: usize, wanted: usize| n.abs_diff(wanted) <= 2;
        let (reads, writes) = of("--rate=8m,2m");
        assert!(near(reads, 256) && near(writes, 64), "{reads} {writes}");
        let (reads, writes) = of("--rate=,2m");
        assert!(reads > 400 && writes < 100, "what has no rate goes on: {reads} {writes}");
        let (reads, writes) = of("--rate=8m,2m --rwmixread=100");
        assert!(near(reads, 256) && writes == 0, "{reads} {writes}");
    }

    #[test]
    fn a_pace_holds_each_way_to_its_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(&job("--rate=1m, --rate_iops=0,10 --bs=256k --rw=rw"), start);
        assert_eq!((pace.due(READ), pace.due(WRITE)), (Some(start), Some(start)));
        for _ in 0..4 {
            pace.submitted(READ, 256 << 10);
            pace.submitted(WRITE, 256 << 10);
        }
        assert_eq!(pace.due(READ), Some(start + Duration::from_secs(1)));
        assert_eq!(pace.due(WRITE), Some(start + Duration::from_millis(400)));
        assert_eq!(Pace::new(&job("--bs=4k"), start).due(READ), None);
    }
}
