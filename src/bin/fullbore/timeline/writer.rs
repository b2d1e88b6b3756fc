//! Writes sections as trace events in JSON: times in microseconds, with the nanoseconds behind the point.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use serde_json::{Value, json};

use super::model::{Lost, Object, Section, Sort, Work};
use crate::units::human;

/// A trace that is being written.
pub struct Writer<W> {
    out: W,
    origin: Instant,
    processes: u64,
    sections: u64,
    lost: Lost,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. Nothing in it is older than `origin`.
    pub fn new(mut out: W, origin: Instant) -> io::Result<Self> {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        write!(
            out,
            "{{\"ph\":\"M\",\"name\":\"trace_made_by\",\"pid\":0,\"args\":{{\"name\":\"fullbore {version}\"}}}}"
        )?;
        Ok(Self { out, origin, processes: 0, sections: 0, lost: Lost::default() })
    }

    /// Writes a section: a process for its objects and their counters, and one for each lane.
    pub fn section(&mut self, section: &Section) -> io::Result<()> {
        self.sections += 1;
        self.lost.objects += section.lost.objects;
        self.lost.work += section.lost.work;
        self.lost.of_none += section.lost.of_none;
        let what = if section.requests { "requests" } else { "objects" };
        let pid = self.process(section, what)?;
        for (tid, row) in section.rows.iter().enumerate() {
            self.meta(pid, tid, "thread_name", &json!({ "name": row }))?;
            self.meta(pid, tid, "thread_sort_index", &json!({ "sort_index": tid }))?;
        }
        for object in &section.objects {
            self.object(pid, object)?;
        }
        for part in &section.landings {
            let args = json!({ "objects": part.objects });
            let name = format!("objects up to {}", part.objects);
            self.slice((pid, part.row), ("landing", &name), (part.begun, part.ended), &args)?;
        }
        self.lanes(section, pid)?;
        let spans = section.objects.iter().map(|object| (object.begun, object.ended));
        self.counter(pid, &format!("{what} in flight"), spans.collect())?;
        for sort in Sort::ALL {
            let of_sort = section.work.iter().filter(|work| work.sort == sort);
            let spans: Vec<_> = of_sort.map(|work| (work.begun, work.ended)).collect();
            self.counter(pid, &format!("{} in flight", sort.plural()), spans)?;
        }
        Ok(())
    }

    /// Ends the trace: what is not in it is said there too.
    pub fn end(mut self) -> io::Result<W> {
        let lost = json!({
            "lost_objects": self.lost.objects,
            "lost_work": self.lost.work,
            "work_of_no_object": self.lost.of_none,
        });
        writeln!(self.out, "\n],\"otherData\":{lost}}}")?;
        Ok(self.out)
    }

    /// A process for a layer of a section.
    fn process(&mut self, section: &Section, layer: &str) -> io::Result<u64> {
        self.processes += 1;
        let pid = self.processes;
        self.meta(pid, 0, "process_name", &json!({ "name": format!("{}: {layer}", section.name) }))?;
        self.meta(pid, 0, "process_labels", &json!({ "labels": section.name, "section": self.sections }))?;
        self.meta(pid, 0, "process_sort_index", &json!({ "sort_index": pid }))?;
        Ok(pid)
    }

    fn object(&mut self, pid: u64, object: &Object) -> io::Result<()> {
        let args = json!({
            "trace_id": object.id,
            "file": &*object.target,
            "offset": object.offset,
            "bytes": object.bytes,
            "path": object.path.map(|path| path.to_string()),
            "queued_us": object.queued_ns as f64 / 1e3,
            "engine_us": object.took_ns as f64 / 1e3,
            "failed": object.failed,
        });
        let name = format!("{} {}", object.op, human(object.bytes));
        self.slice((pid, object.row), ("object", &name), (object.begun, object.ended), &args)
    }

    /// The work of the lanes, each with an arrow from what came before it for the same object.
    fn lanes(&mut self, section: &Section, objects: u64) -> io::Result<()> {
        let mut work: Vec<&Work> = section.work.iter().collect();
        work.sort_unstable_by_key(|work| (work.lane, work.sort, work.slot));
        let mut tracks: Vec<(Work, u64, usize)> = Vec::with_capacity(work.len());
        let (mut pid, mut tid, mut last) = (0, 0, None);
        for one in work {
            if last.is_none_or(|(lane, _, _)| lane != one.lane) {
                pid = self.process(section, section.lanes.get(one.lane).map_or("lane", |name| name))?;
                tid = 0;
            }
            if last != Some((one.lane, one.sort, one.slot)) {
                tid += 1;
                let name = format!("{} {}", one.sort.name(), one.slot);
                self.meta(pid, tid, "thread_name", &json!({ "name": name }))?;
                self.meta(pid, tid, "thread_sort_index", &json!({ "sort_index": tid }))?;
            }
            last = Some((one.lane, one.sort, one.slot));
            tracks.push((*one, pid, tid));
        }
        for (work, pid, tid) in &tracks {
            let args = json!({ "trace_id": work.id, "bytes": work.bytes, "failed": work.failed });
            let name = format!("{} {}", work.op, work.path);
            self.slice((*pid, *tid), (work.sort.name(), &name), (work.begun, work.ended), &args)?;
        }
        self.arrows(section, objects, tracks)
    }

    /// A chain of arrows from each object through its commands, or what else there is, in the order in which they began.
    fn arrows(
        &mut self,
        section: &Section,
        objects: u64,
        mut tracks: Vec<(Work, u64, usize)>,
    ) -> io::Result<()> {
        let by_id: HashMap<u32, &Object> = section.objects.iter().map(|object| (object.id, object)).collect();
        tracks.sort_unstable_by_key(|(work, ..)| (work.id, work.begun, work.sort));
        for chain in tracks.chunk_by(|a, b| a.0.id == b.0.id) {
            let Some(object) = by_id.get(&chain[0].0.id) else { continue };
            let id = self.sections << 32 | u64::from(object.id);
            self.arrow("s", id, (objects, object.row), object.begun)?;
            for (number, (work, pid, tid)) in chain.iter().enumerate() {
                let phase = if number + 1 == chain.len() { "f" } else { "t" };
                self.arrow(phase, id, (*pid, *tid), work.begun)?;
            }
        }
        Ok(())
    }

    fn arrow(&mut self, phase: &str, id: u64, (pid, tid): (u64, usize), at: Instant) -> io::Result<()> {
        let (at, tid) = (self.time(at), track(pid, tid));
        write!(
            self.out,
            ",\n{{\"ph\":\"{phase}\",\"bp\":\"e\",\"cat\":\"flow\",\"name\":\"object\",\"id\":{id},\"pid\":{pid},\"tid\":{tid},\"ts\":{at}}}"
        )
    }

    fn slice(
        &mut self,
        (pid, tid): (u64, usize),
        (category, name): (&str, &str),
        (begun, ended): (Instant, Instant),
        args: &Value,
    ) -> io::Result<()> {
        let (name, tid) = (Value::from(name), track(pid, tid));
        let (at, long) = (self.time(begun), decimal(ended.saturating_duration_since(begun).as_nanos()));
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{pid},\"tid\":{tid},\"ts\":{at},\"dur\":{long},\"args\":{args}}}"
        )
    }

    /// How many of the spans there are at a time.
    fn counter(&mut self, pid: u64, name: &str, spans: Vec<(Instant, Instant)>) -> io::Result<()> {
        let mut steps: Vec<(Instant, i64)> = Vec::with_capacity(2 * spans.len());
        for (begun, ended) in spans {
            steps.extend([(begun, 1), (ended, -1)]);
        }
        // At one time what ends goes first: a place that is used again is not in use twice.
        steps.sort_unstable();
        let mut now = 0;
        let mut steps = steps.into_iter().peekable();
        while let Some((at, step)) = steps.next() {
            now += step;
            // One event for all that happens at a time.
            if steps.peek().is_some_and(|(next, _)| *next == at) {
                continue;
            }
            let at = self.time(at);
            write!(
                self.out,
                ",\n{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{pid},\"ts\":{at},\"args\":{{\"in flight\":{now}}}}}"
            )?;
        }
        Ok(())
    }

    fn meta(&mut self, pid: u64, tid: usize, name: &str, args: &Value) -> io::Result<()> {
        let tid = track(pid, tid);
        write!(
            self.out,
            ",\n{{\"ph\":\"M\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"args\":{args}}}"
        )
    }

    fn time(&self, at: Instant) -> String {
        decimal(at.saturating_duration_since(self.origin).as_nanos())
    }
}

/// Of the whole trace: some readers know a thread by its number alone, and take that of its process for the main one.
fn track(pid: u64, tid: usize) -> u64 {
    pid * 100_000 + tid as u64 + 1
}

/// Microseconds, with nanoseconds behind the point.
fn decimal(ns: u128) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}
