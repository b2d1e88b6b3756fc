//! NVMe commands as the driver's tracer saw them, each with the user_data that io_uring was given for it. Pure: text in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

/// One NVMe command on a namespace's queue. Times are of one clock for all CPUs and no two are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What io_uring was given; `None` if no submission of that thread was waiting for its command.
    pub user_data: Option<u64>,
    /// The namespace, as its block node is named ("nvme0n1"), whichever path it was reached by.
    pub disk: String,
    pub nsid: u32,
    /// Of the driver: 1 for the first queue that carries data.
    pub qid: u32,
    /// The CPU it was set up on.
    pub cpu: u32,
    /// "read", "write", "flush", ...
    pub opcode: String,
    pub slba: u64,
    pub blocks: u32,
    pub setup_ns: u64,
    /// `None`: it was under way when the trace ended.
    pub complete_ns: Option<u64>,
    /// NVMe status, 0 for success.
    pub status: Option<u16>,
}

impl Seen {
    /// The transfer's trace id, by invariant I11.
    pub fn trace_id(&self) -> Option<u32> {
        self.user_data.map(|user_data| (user_data >> 32) as u32)
    }
}

/// A line of a trace: `  comm-PID [CPU] flags SECONDS: event: rest`.
struct Line<'a> {
    task: u32,
    cpu: u32,
    ns: u64,
    event: &'a str,
    rest: &'a str,
}

impl Line<'_> {
    fn of(text: &str) -> Option<Line<'_>> {
        // A thread's name may contain anything, so the first " [" that a number and "]" follow is looked for.
        let (open, cpu) = text.match_indices(" [").find_map(|(at, _)| {
            let inside = &text[at + 2..];
            let cpu = inside.split_once(']')?.0;
            cpu.parse::<u32>().ok().map(|number| (at, (number, at + 2 + cpu.len() + 1)))
        })?;
        let task = text[..open].trim().rsplit_once('-')?.1.parse().ok()?;
        let mut words = text[cpu.1..].splitn(2, ": ");
        let when = words.next()?.split_whitespace().last()?;
        let (event, rest) = words.next()?.split_once(": ")?;
        let (seconds, micros) = when.split_once('.')?;
        assert_eq!(micros.len(), 6, "a trace prints microseconds: {text}");
        let ns = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000;
        Some(Line { task, cpu: cpu.0, ns, event, rest })
    }

    /// The value behind `key`, to the next comma, space or bracket.
    fn field(&self, key: &str) -> &str {
        let at = self.rest.find(key).unwrap_or_else(|| panic!("{} has no {key}: {}", self.event, self.rest));
        let value = &self.rest[at + key.len()..];
        value.split([',', ' ', ')']).next().unwrap_or_default()
    }

    fn number(&self, key: &str) -> u64 {
        let text = self.field(key);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        }
        .unwrap_or_else(|e| panic!("{} {key}{text}: {e}", self.event))
    }

    /// `None` for commands on no namespace (the admin queue).
    fn disk(&self) -> Option<String> {
        self.rest.contains("disk=").then(|| head(self.field("disk=")))
    }
}

/// "nvme0c1n2" is a path to what is "nvme0n2".
pub fn head(disk: &str) -> String {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Some(number) = disk.strip_prefix("nvme") else { return disk.into() };
    let first = digits(number);
    match number[first..].strip_prefix('c') {
        Some(path) => format!("nvme{}{}", &number[..first], &path[digits(path)..]),
        None => disk.into(),
    }
}

/// Submissions of one thread whose commands were not set up yet.
#[derive(Default)]
struct Waiting {
    user_data: VecDeque<u64>,
    /// Commands set up since the last submission: the block layer holds a batch back and sends it as a whole.
    run: Vec<usize>,
}

/// Every NVMe command of a trace, in the order they were set up.
pub fn parse(text: &str) -> Vec<Seen> {
    let mut join = Join::default();
    for line in text.lines().filter(|line| !line.starts_with('#')).filter_map(Line::of) {
        join.line(&line);
    }
    join.end()
}

#[derive(Default)]
struct Join {
    seen: Vec<Seen>,
    threads: HashMap<u32, Waiting>,
    /// Under way, by namespace, queue and command number.
    open: HashMap<(String, u64, u64), usize>,
    /// Kernel 6.1 sends a batch last one first. (Seen; `user_data` against block numbers is a test of its own.)
    reversed: bool,
    last_ns: u64,
}

impl Join {
    fn line(&mut self, line: &Line<'_>) {
        // Microseconds are coarse: the order of the lines is the finer one.
        self.last_ns = line.ns.max(self.last_ns + 1);
        match line.event {
            "io_uring_submit_req" | "io_uring_submit_sqe" if moves_data(line.rest) => {
                self.reversed = line.event == "io_uring_submit_sqe";
                self.settle(line.task);
                let waiting = self.threads.entry(line.task).or_default();
                waiting.user_data.push_back(line.number("user_data "));
            }
            // A kernel worker will issue it; which of its commands it is cannot be told.
            "io_uring_queue_async_work" => {
                let gone = line.number("user_data ");
                if let Some(waiting) = self.threads.get_mut(&line.task) {
                    waiting.user_data.retain(|user_data| *user_data != gone);
                }
            }
            // A batch begins: what was set up until here is an older one, whose order has nothing to do with this one's.
            "block_plug" => self.settle(line.task),
            "nvme_setup_cmd" => self.set_up(line),
            "nvme_complete_rq" => self.complete(line),
            _ => {}
        }
    }

    fn set_up(&mut self, line: &Line<'_>) {
        let Some(disk) = line.disk() else { return };
        let command = line.rest.split_once("cmd=(").map_or("", |parts| parts.1);
        let opcode = command.split([' ', ')']).next().unwrap_or_default().trim_start_matches("nvme_cmd_");
        let data = matches!(opcode, "read" | "write");
        let index = self.seen.len();
        let key = (disk.clone(), line.number("qid="), line.number("cmdid="));
        self.seen.push(Seen {
            user_data: None,
            disk,
            nsid: line.number("nsid=") as u32,
            qid: key.1 as u32,
            cpu: line.cpu,
            opcode: opcode.into(),
            slba: if data { line.number("slba=") } else { 0 },
            blocks: if data { line.number("len=") as u32 + 1 } else { 0 },
            setup_ns: self.last_ns,
            complete_ns: None,
            status: None,
        });
        self.open.insert(key, index);
        if let Some(waiting) = self.threads.get_mut(&line.task) {
            waiting.run.push(index);
        }
    }

    fn complete(&mut self, line: &Line<'_>) {
        let Some(disk) = line.disk() else { return };
        // What was set up before the trace began is nobody's.
        let Some(index) = self.open.remove(&(disk, line.number("qid="), line.number("cmdid="))) else {
            return;
        };
        self.seen[index].complete_ns = Some(self.last_ns);
        self.seen[index].status = Some(line.number("status=") as u16);
    }

    /// A run of commands is what the thread's oldest submissions became.
    fn settle(&mut self, task: u32) {
        let Some(waiting) = self.threads.get_mut(&task) else { return };
        let mut run = std::mem::take(&mut waiting.run);
        let count = run.len().min(waiting.user_data.len());
        if self.reversed {
            run.reverse();
        }
        for (index, user_data) in run.into_iter().zip(waiting.user_data.drain(..count)) {
            self.seen[index].user_data = Some(user_data);
        }
    }

    fn end(mut self) -> Vec<Seen> {
        let tasks: Vec<_> = self.threads.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.settle(task));
        self.seen
    }
}

/// Passthrough, and the reads and writes of block devices and files.
fn moves_data(submission: &str) -> bool {
    let opcode = submission.split_once("opcode ").map_or("", |parts| parts.1);
    ["URING_CMD", "READ", "WRITE"].iter().any(|name| opcode.starts_with(name))
}

/// How many commands are outstanding from each of these times on.
pub fn outstanding<'a>(commands: impl IntoIterator<Item = &'a Seen>) -> Vec<(u64, u64)> {
    let mut steps = BTreeMap::<u64, i64>::new();
    for command in commands {
        *steps.entry(command.setup_ns).or_default() += 1;
        if let Some(end) = command.complete_ns {
            *steps.entry(end).or_default() -= 1;
        }
    }
    let mut now = 0;
    let add = |(ns, step): (u64, i64)| {
        now += step;
        (ns, u64::try_from(now).expect("no command ends before it begins"))
    };
    steps.into_iter().map(add).collect()
}

/// Most commands outstanding at once.
pub fn most_outstanding<'a>(commands: impl IntoIterator<Item = &'a Seen>) -> u64 {
    outstanding(commands).into_iter().map(|step| step.1).max().unwrap_or(0)
}

/// The share of time, 0 to 1, in which at least `level` commands were outstanding: from when there first were as many
/// to the tail. The tail begins when some queue that took part was given its last command: from there on work ends.
/// 0 if there never were as many, or no time was between.
pub fn share_at(commands: &[Seen], level: u64) -> f64 {
    let last = commands.iter().map(|c| (c.qid, c.setup_ns)).collect::<BTreeMap<_, _>>();
    let tail = last.into_values().min().unwrap_or(0);
    let steps = outstanding(commands);
    let Some(filled) = steps.iter().find(|step| step.1 >= level).map(|step| step.0) else { return 0.0 };
    let (mut high, mut all) = (0, 0);
    for pair in steps.windows(2) {
        let (from, to) = (pair[0].0.max(filled), pair[1].0.min(tail));
        let lasted = to.saturating_sub(from);
        all += lasted;
        high += if pair[0].1 >= level { lasted } else { 0 };
    }
    if all == 0 { 0.0 } else { high as f64 / all as f64 }
}

/// Most objects (trace ids) that had commands outstanding at once.
pub fn most_objects(commands: &[Seen]) -> usize {
    let mut changes = Vec::new();
    for (trace, command) in commands.iter().filter_map(|c| Some((c.trace_id()?, c))) {
        changes.push((command.setup_ns, trace, 1));
        changes.extend(command.complete_ns.map(|end| (end, trace, -1)));
    }
    changes.sort_unstable();
    let mut now = HashMap::<u32, i32>::new();
    let mut most = 0;
    for (_, trace, change) in changes {
        let count = now.entry(trace).or_default();
        *count += change;
        if *count == 0 {
            now.remove(&trace);
        }
        most = most.max(now.len());
    }
    most
}

/// How many commands each queue had.
pub fn by_queue<'a>(commands: impl IntoIterator<Item = &'a Seen>) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    commands.into_iter().for_each(|command| *counts.entry(command.qid).or_default() += 1);
    counts
}

/// The blocks that the commands of one object covered, joined where they touch. An overlap is a failure.
pub fn extents(commands: &[Seen], trace_id: u32) -> Vec<Range<u64>> {
    let of_it = commands.iter().filter(|command| command.trace_id() == Some(trace_id));
    let mut sorted: Vec<_> = of_it.map(|c| (c.slba, u64::from(c.blocks))).collect();
    sorted.sort_unstable();
    let mut joined: Vec<Range<u64>> = Vec::new();
    for (slba, blocks) in sorted {
        match joined.last_mut() {
            Some(last) if last.end > slba => panic!("blocks {slba}.. were asked for twice"),
            Some(last) if last.end == slba => last.end += blocks,
            _ => joined.push(slba..slba + blocks),
        }
    }
    joined
}
