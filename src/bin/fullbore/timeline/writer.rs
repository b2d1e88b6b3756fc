//! Writes sections as a trace in Perfetto's own format: packets of track events, on tracks within tracks. Field numbers are
//! those of its `trace.proto`, `track_event.proto`, `track_descriptor.proto` and `debug_annotation.proto`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Instant;

use super::inside::{self, Inner};
use super::model::{Lost, Object, Section, Sort, Work};
use super::proto::Message;
use crate::units::{count, human};

/// Kinds of events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// A trace that is being written.
pub struct Writer<W> {
    out: W,
    origin: Instant,
    /// The last track's number.
    tracks: u64,
    /// The last flow's.
    flows: u64,
    sections: u64,
    latest: Instant,
    lost: Lost,
}

/// A slice of a track.
struct Slice<'a> {
    category: &'a str,
    name: String,
    begun: Instant,
    ended: Instant,
    /// Values that a viewer shows of it.
    notes: Vec<(&'a str, Note<'a>)>,
    /// The arrows that come to it or go from it: all slices of one number are in a chain.
    flows: Vec<u64>,
}

enum Note<'a> {
    Number(u64),
    Micros(u64),
    Text(Cow<'a, str>),
    True,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. Nothing in it is older than `origin`.
    pub fn new(out: W, origin: Instant) -> io::Result<Self> {
        let lost = Lost::default();
        let mut made = Self { out, origin, tracks: 0, flows: 0, sections: 0, latest: origin, lost };
        // The viewer orders what is at the top by name: one track there, with the sections in it.
        made.track(&format!("fullbore {}", env!("CARGO_PKG_VERSION")), (0, 0))?;
        Ok(made)
    }

    /// Writes a section: its counters, its requests or objects, and its lanes.
    pub fn section(&mut self, section: &Section) -> io::Result<()> {
        self.sections += 1;
        self.lost.objects += section.lost.objects;
        self.lost.work += section.lost.work;
        self.lost.of_none += section.lost.of_none;
        let ends = section.objects.iter().map(|object| object.ended);
        self.latest = ends.chain([self.latest]).max().unwrap_or(self.latest);
        let inner = inside::objects(section);
        let top = self.track(&section.name, (ROOT, self.sections))?;
        let what = if section.requests { "requests" } else { "objects" };
        let objects = section.objects.iter().map(|object| (object.begun, object.ended));
        self.counter((top, 0), &format!("{what} in flight"), objects.collect())?;
        let objects = inner.iter().map(|inner| (inner.begun, inner.ended));
        self.counter((top, 1), "objects in flight", objects.collect())?;
        for (rank, sort) in (2..).zip(Sort::ALL) {
            let of_sort = section.work.iter().filter(|work| work.sort == sort);
            let spans: Vec<_> = of_sort.map(|work| (work.begun, work.ended)).collect();
            self.counter((top, rank), &format!("{} in flight", sort.plural()), spans)?;
        }
        let of_work = self.objects(section, &inner, (top, 5, what))?;
        self.lanes(section, &of_work, top)
    }

    /// Ends the trace: what is not in it is said there too.
    pub fn end(mut self) -> io::Result<W> {
        let Lost { objects, work, of_none } = self.lost;
        if objects + work + of_none > 0 {
            let name = format!(
                "not in this trace: {}, {} of work, {}",
                count(objects, "object"),
                count(work, "piece"),
                if of_none == 1 { "1 flush".into() } else { format!("{of_none} flushes") }
            );
            let notes = [("lost_objects", objects), ("lost_work", work), ("work_of_no_object", of_none)];
            let event = Message::default().number(9, INSTANT).number(11, ROOT).text(23, &name);
            let event = notes
                .iter()
                .fold(event, |event, (name, value)| event.message(4, &note(name, &Note::Number(*value))));
            self.event(self.latest, &event)?;
        }
        Ok(self.out)
    }

    /// Requests or objects, and under each row of requests the objects inside. Answers the flows of each piece of work.
    fn objects(
        &mut self,
        section: &Section,
        inner: &[Inner],
        (top, rank, what): (u64, u64, &str),
    ) -> io::Result<Vec<Vec<u64>>> {
        let layer = self.track(what, (top, rank))?;
        let mut of_work = vec![Vec::new(); section.work.len()];
        let flows: Vec<u64> = (self.flows + 1..).take(inner.len()).collect();
        self.flows += inner.len() as u64;
        let mut of_object = vec![Vec::new(); section.objects.len()];
        for (inner, flow) in inner.iter().zip(&flows) {
            of_object[inner.of].push(*flow);
            inner.work.iter().for_each(|work| of_work[*work].push(*flow));
        }
        self.plain_flows(section, &mut of_object, &mut of_work);
        let category = if section.requests { "request" } else { "object" };
        for (row, name) in section.rows.iter().enumerate() {
            // What has the same name and place is shown as one track: rows of one submitter lie in it one under the other.
            let first = section.rows.iter().position(|other| other == name).unwrap_or(row);
            let track = self.track(name, (layer, first as u64))?;
            let mine = section.objects.iter().zip(&of_object).filter(|(object, _)| object.row == row);
            let mut slices: Vec<_> =
                mine.map(|(object, flows)| of_row(object, category, flows.clone())).collect();
            let parts = section.landings.iter().filter(|part| part.row == row);
            slices.extend(parts.map(|part| Slice {
                category: "landing",
                name: format!("objects up to {}", part.objects),
                begun: part.begun,
                ended: part.ended,
                notes: vec![("objects", Note::Number(part.objects))],
                flows: Vec::new(),
            }));
            self.slices(track, slices)?;
            let inside = inner.iter().zip(&flows);
            let inside: Vec<_> = inside.filter(|(inner, _)| section.objects[inner.of].row == row).collect();
            let depth = inside.iter().map(|(inner, _)| inner.row + 1).max().unwrap_or(0);
            for depth in 0..depth {
                let under = self.track("objects", (track, 0))?;
                let mine = inside.iter().filter(|(inner, _)| inner.row == depth);
                let slices = mine.map(|(inner, flow)| of_request(inner, section, **flow));
                self.slices(under, slices.collect())?;
            }
        }
        Ok(of_work)
    }

    /// A flow for each object that is no request, through its work.
    fn plain_flows(&mut self, section: &Section, of_object: &mut [Vec<u64>], of_work: &mut [Vec<u64>]) {
        let plain = section.objects.iter().enumerate().filter(|(_, object)| object.inside.is_empty());
        let by_id: HashMap<u32, u64> = plain
            .map(|(index, object)| {
                self.flows += 1;
                of_object[index].push(self.flows);
                (object.id, self.flows)
            })
            .collect();
        for (work, flows) in section.work.iter().zip(of_work) {
            flows.extend(by_id.get(&work.id));
        }
    }

    /// The work of the lanes: of each lane one under the other what was in its hands at a time.
    fn lanes(&mut self, section: &Section, flows: &[Vec<u64>], top: u64) -> io::Result<()> {
        let mut work: Vec<(&Work, &Vec<u64>)> = section.work.iter().zip(flows).collect();
        work.sort_unstable_by_key(|(work, _)| (work.lane, work.sort, work.slot));
        for of_lane in work.chunk_by(|a, b| a.0.lane == b.0.lane) {
            let number = of_lane[0].0.lane;
            let name = section.lanes.get(number).map_or("lane", |name| name);
            let lane = self.track(name, (top, 6 + number as u64))?;
            for of_slot in of_lane.chunk_by(|a, b| (a.0.sort, a.0.slot) == (b.0.sort, b.0.slot)) {
                let sort = of_slot[0].0.sort;
                let track = self.track(sort.plural(), (lane, sort as u64))?;
                self.slices(track, of_slot.iter().map(|(work, flows)| of_lane_slice(work, flows)).collect())?;
            }
        }
        Ok(())
    }

    /// The slices of a track: beside or within each other.
    fn slices(&mut self, track: u64, mut slices: Vec<Slice<'_>>) -> io::Result<()> {
        slices.sort_by_key(|slice| (slice.begun, std::cmp::Reverse(slice.ended)));
        let mut open: Vec<Instant> = Vec::new();
        for slice in slices {
            while let Some(ended) = open.pop_if(|ended| *ended <= slice.begun) {
                self.close(track, ended)?;
            }
            let event = Message::default().number(9, BEGIN).number(11, track);
            let event = event.text(22, slice.category).text(23, &slice.name);
            let event = slice.flows.iter().fold(event, |event, flow| event.fixed(47, *flow));
            let notes = slice.notes.iter();
            let event = notes.fold(event, |event, (name, value)| event.message(4, &note(name, value)));
            self.event(slice.begun, &event)?;
            open.push(slice.ended);
        }
        while let Some(ended) = open.pop() {
            self.close(track, ended)?;
        }
        Ok(())
    }

    fn close(&mut self, track: u64, ended: Instant) -> io::Result<()> {
        self.event(ended, &Message::default().number(9, END).number(11, track))
    }

    /// How many of the spans there are at a time; no track if there are none.
    fn counter(&mut self, place: (u64, u64), name: &str, spans: Vec<(Instant, Instant)>) -> io::Result<()> {
        if spans.is_empty() {
            return Ok(());
        }
        let track = self.descriptor(name, place, |track| track.message(8, &Message::default()))?;
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
            let event = Message::default().number(9, COUNTER).number(11, track).number(30, now as u64);
            self.event(at, &event)?;
        }
        Ok(())
    }

    /// A track in another, in its place among those there. Answers its number.
    fn track(&mut self, name: &str, place: (u64, u64)) -> io::Result<u64> {
        self.descriptor(name, place, |track| track)
    }

    fn descriptor(
        &mut self,
        name: &str,
        (parent, rank): (u64, u64),
        more: impl FnOnce(Message) -> Message,
    ) -> io::Result<u64> {
        /// Tracks within are in the order of their ranks.
        const EXPLICIT: u64 = 3;
        self.tracks += 1;
        let track = Message::default().number(1, self.tracks).text(2, name).number(12, rank);
        let track = if parent == 0 { track } else { track.number(5, parent) };
        self.packet(Message::default().message(60, &more(track.number(11, EXPLICIT))))?;
        Ok(self.tracks)
    }

    fn event(&mut self, at: Instant, event: &Message) -> io::Result<()> {
        let at = at.saturating_duration_since(self.origin).as_nanos() as u64;
        self.packet(Message::default().number(8, at).message(11, event))
    }

    /// All packets are of one sequence: those of one time stay in their order.
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        self.out.write_all(Message::default().message(1, &packet.number(10, 1)).as_bytes())
    }
}

/// The track that all others are in.
const ROOT: u64 = 1;

fn of_row<'a>(object: &'a Object, category: &'a str, flows: Vec<u64>) -> Slice<'a> {
    let mut notes = vec![
        ("trace_id", Note::Number(object.id.into())),
        ("file", Note::Text(Cow::Borrowed(&object.target))),
        ("offset", Note::Number(object.offset)),
        ("bytes", Note::Number(object.bytes)),
        ("queued_us", Note::Micros(object.queued_ns)),
        ("engine_us", Note::Micros(object.took_ns)),
    ];
    if !object.inside.is_empty() {
        notes.push(("objects", Note::Number(object.inside.len() as u64)));
    }
    notes.extend(object.path.map(|path| ("path", Note::Text(path.to_string().into()))));
    notes.extend(object.failed.then_some(("failed", Note::True)));
    let name = format!("{} {}", object.op, human(object.bytes));
    Slice { category, name, begun: object.begun, ended: object.ended, notes, flows }
}

fn of_request<'a>(inner: &Inner, section: &Section, flow: u64) -> Slice<'a> {
    let mut notes = vec![
        ("trace_id", Note::Number(section.objects[inner.of].id.into())),
        ("object", Note::Number(inner.number as u64)),
        ("offset", Note::Number(inner.offset)),
        ("bytes", Note::Number(inner.bytes)),
    ];
    notes.extend(inner.failed.then_some(("failed", Note::True)));
    let name = format!("object {}", inner.number);
    Slice { category: "object", name, begun: inner.begun, ended: inner.ended, notes, flows: vec![flow] }
}

fn of_lane_slice<'a>(work: &'a Work, flows: &[u64]) -> Slice<'a> {
    let mut notes = vec![
        ("trace_id", Note::Number(work.id.into())),
        ("slot", Note::Number(work.slot as u64)),
        ("offset", Note::Number(work.offset)),
        ("bytes", Note::Number(work.bytes)),
    ];
    notes.extend(work.failed.then_some(("failed", Note::True)));
    let name = format!("{} {}", work.op, work.path);
    let (category, flows) = (work.sort.name(), flows.to_vec());
    Slice { category, name, begun: work.begun, ended: work.ended, notes, flows }
}

fn note(name: &str, value: &Note<'_>) -> Message {
    let note = Message::default().text(10, name);
    match value {
        Note::Number(value) => note.number(3, *value),
        Note::Micros(ns) => note.fixed(5, (*ns as f64 / 1e3).to_bits()),
        Note::Text(value) => note.text(6, value),
        Note::True => note.number(2, 1),
    }
}
