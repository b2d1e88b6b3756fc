//! Collects what a section of the timeline is made of: objects by those who submit them, work by the engine.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fullbore::{Completion, Engine, Transfer, WorkRecord};

use super::model::{Landing, Lost, Object, Section, Sort, Work};
use crate::counted;
use crate::direct::Op;

/// What goes on one section.
pub struct Tape {
    shared: Arc<Shared>,
    /// Objects at most, and of a track.
    most: usize,
    room: usize,
    name: String,
    requests: bool,
}

struct Shared {
    /// The next trace id. 0 is that of work for no object.
    next: AtomicU32,
    /// Of each track: its number, and what it has.
    kept: Mutex<Vec<(usize, Section)>>,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Vec<(usize, Section)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tape {
    /// For so many objects at most, of so many tracks.
    pub fn new(name: String, most: usize, tracks: usize) -> Self {
        let shared = Arc::new(Shared { next: AtomicU32::new(1), kept: Mutex::default() });
        Self { shared, most, room: (most / tracks.max(1)).max(1), name, requests: false }
    }

    /// The same of requests.
    pub fn of_requests(self) -> Self {
        Self { requests: true, ..self }
    }

    /// For one who submits. Its places have its name, and come behind those of tracks with lower numbers.
    pub fn track(&self, number: usize, name: impl Into<String>) -> Track {
        Track {
            shared: self.shared.clone(),
            number,
            name: name.into(),
            room: self.room,
            used: 0,
            places: Vec::new(),
            objects: Vec::new(),
            landings: Vec::new(),
            lost: 0,
        }
    }

    /// Pieces of work that it has room for.
    pub fn room_for_work(&self) -> usize {
        self.most
    }

    /// Forgets what the engine did so far: it was before what the timeline is of.
    pub fn forget(&self, engine: &Engine) {
        drop(engine.take_records());
    }

    /// All of it, once every track was dropped and the engine is at rest.
    pub fn section(self, engine: &Engine) -> Section {
        let (records, lost) = engine.take_records();
        let lanes = engine
            .stats()
            .lanes
            .iter()
            .enumerate()
            .map(|(number, lane)| counted::name(number, lane))
            .collect();
        let mut section = self.objects();
        section.lanes = lanes;
        let there: HashSet<u32> = section.objects.iter().map(|object| object.id).collect();
        section.lost.work += lost;
        for record in records {
            if there.contains(&record.trace_id) {
                section.work.push(work(&record));
            } else if record.trace_id == 0 {
                section.lost.of_none += 1;
            } else {
                section.lost.work += 1;
            }
        }
        section
    }

    /// What was submitted, without what the engine did.
    pub fn objects(self) -> Section {
        let mut kept = std::mem::take(&mut *self.shared.kept());
        kept.sort_by_key(|(number, _)| *number);
        let mut all = Section { name: self.name, requests: self.requests, ..Section::default() };
        for (_, track) in kept {
            let first = all.rows.len();
            all.rows.extend(track.rows);
            all.objects.extend(track.objects.into_iter().map(|one| Object { row: first + one.row, ..one }));
            all.landings
                .extend(track.landings.into_iter().map(|one| Landing { row: first + one.row, ..one }));
            all.lost.objects += track.lost.objects;
        }
        all
    }
}

fn work(record: &WorkRecord) -> Work {
    Work {
        sort: match record.work {
            fullbore::Work::Unit => Sort::Unit,
            fullbore::Work::Copy => Sort::Copy,
            _ => Sort::Command,
        },
        lane: record.lane,
        slot: record.slot,
        id: record.trace_id,
        op: match record.op {
            fullbore::Op::Read => "read",
            fullbore::Op::Write => "write",
            _ => "flush",
        },
        path: record.path.name(),
        offset: record.offset,
        bytes: record.bytes,
        begun: record.begun,
        ended: record.ended,
        failed: record.failed,
    }
}

/// Where an object is, and what is done with it.
#[derive(Debug, Clone)]
pub struct Aim {
    pub op: Op,
    pub target: Arc<str>,
    pub offset: u64,
    pub bytes: u64,
}

/// The objects of one who submits. They go to the tape when it is dropped.
pub struct Track {
    shared: Arc<Shared>,
    number: usize,
    name: String,
    room: usize,
    used: usize,
    /// What is in flight.
    places: Vec<Option<Object>>,
    objects: Vec<Object>,
    landings: Vec<Landing>,
    lost: u64,
}

impl Track {
    /// Notes an object that is about to be submitted, in a place that is free, and answers its trace id.
    pub fn begin(&mut self, place: usize, aim: Aim) -> u32 {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let now = Instant::now();
        self.places[place] = Some(Object {
            row: place,
            id,
            op: aim.op.name(),
            target: aim.target,
            offset: aim.offset,
            bytes: aim.bytes,
            inside: Vec::new(),
            begun: now,
            ended: now,
            queued_ns: 0,
            took_ns: 0,
            path: None,
            failed: true,
        });
        id
    }

    /// The same, in the lowest place that is free: answers the transfer with its id, and the tag to submit it with.
    pub fn put(&mut self, transfer: Transfer, aim: Aim) -> (Transfer, u64) {
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let id = self.begin(place, aim);
        (transfer.trace_id(id), place as u64)
    }

    /// Notes what objects there are inside the one in a place: of each where it is on the target, and its bytes.
    pub fn holds(&mut self, place: usize, inside: Vec<(u64, u64)>) {
        if let Some(Some(request)) = self.places.get_mut(place) {
            request.inside = inside;
        }
    }

    /// Notes those that are complete. Their tags are their places.
    pub fn end(&mut self, done: &[Completion]) {
        let now = Instant::now();
        for completion in done {
            let Some(object) = self.places.get_mut(completion.tag as usize).and_then(Option::take) else {
                continue;
            };
            self.keep(Object {
                ended: now,
                queued_ns: completion.times.queued.as_nanos() as u64,
                took_ns: completion.times.total.as_nanos() as u64,
                path: Some(completion.paths),
                failed: completion.result.is_err(),
                ..object
            });
        }
    }

    /// Notes one that was moved by other means than the engine's.
    pub fn end_plain(&mut self, place: usize) {
        if let Some(object) = self.places.get_mut(place).and_then(Option::take) {
            let now = Instant::now();
            let took_ns = (now - object.begun).as_nanos() as u64;
            self.keep(Object { ended: now, took_ns, failed: false, ..object });
        }
    }

    /// Notes that of the request in a place so many objects have landed.
    pub fn landed(&mut self, place: usize, objects: u64) {
        let now = Instant::now();
        let Some(Some(request)) = self.places.get_mut(place) else { return };
        // So far the end is that of the part before.
        let begun = std::mem::replace(&mut request.ended, now);
        if self.landings.len() < self.room {
            self.landings.push(Landing { row: place, objects, begun, ended: now });
        }
    }

    /// Forgets what ended so far, as [`Tape::forget`] does for the engine.
    pub fn forget(&mut self) {
        self.objects.clear();
        self.landings.clear();
        (self.used, self.lost) = (0, 0);
    }

    fn keep(&mut self, object: Object) {
        // Those inside need room as well.
        let needs = 1 + object.inside.len();
        if self.used + needs <= self.room {
            self.used += needs;
            self.objects.push(object);
        } else {
            self.lost += 1;
        }
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        let now = Instant::now();
        for place in 0..self.places.len() {
            // What never came back ends with the track, as a failure.
            if let Some(object) = self.places[place].take() {
                self.keep(Object { ended: now, ..object });
            }
        }
        let kept = Section {
            rows: vec![self.name.clone(); self.places.len()],
            objects: std::mem::take(&mut self.objects),
            landings: std::mem::take(&mut self.landings),
            lost: Lost { objects: self.lost, ..Lost::default() },
            ..Section::default()
        };
        self.shared.kept().push((self.number, kept));
    }
}
