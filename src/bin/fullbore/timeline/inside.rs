//! The objects inside requests: a request is one transfer, and which of its objects a command was for is told by where on
//! the target it was.

use std::collections::HashMap;
use std::time::Instant;

use super::model::{Object, Section, Work};

/// An object of a request: from the begin of the first work for it to the end of the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// The request, by its place in [`Section::objects`].
    pub of: usize,
    /// Of one row of requests no two in the same row overlap in time.
    pub row: usize,
    /// Which object of the request, from 0.
    pub number: usize,
    pub offset: u64,
    pub bytes: u64,
    pub begun: Instant,
    pub ended: Instant,
    pub failed: bool,
    /// By its place in [`Section::work`], in the order in which it began.
    pub work: Vec<usize>,
}

/// The objects of a section's requests that lanes worked for, in the order in which they began.
pub fn objects(section: &Section) -> Vec<Inner> {
    let mut of: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, work) in section.work.iter().enumerate() {
        of.entry(work.id).or_default().push(index);
    }
    let mut found = Vec::new();
    for (index, request) in section.objects.iter().enumerate() {
        if let Some(mut mine) = of.remove(&request.id).filter(|_| !request.inside.is_empty()) {
            mine.sort_by_key(|work| section.work[*work].begun);
            found.extend(of_request((index, request), &mine, &section.work));
        }
    }
    found.sort_by_key(|inner| (inner.begun, inner.of, inner.number));
    let mut rows: HashMap<usize, Vec<Instant>> = HashMap::new();
    for inner in &mut found {
        let ends = rows.entry(section.objects[inner.of].row).or_default();
        inner.row = ends.iter().position(|end| *end <= inner.begun).unwrap_or(ends.len());
        ends.resize(ends.len().max(inner.row + 1), inner.ended);
        ends[inner.row] = inner.ended;
    }
    found
}

fn of_request((of, request): (usize, &Object), mine: &[usize], all: &[Work]) -> Vec<Inner> {
    let places = Places::new(&request.inside);
    let mut found: Vec<Option<Inner>> = vec![None; request.inside.len()];
    let mut times: HashMap<_, usize> = HashMap::new();
    for &index in mine {
        let work = &all[index];
        // The same bytes for the second time are for the second object that has them.
        let turn = times.entry((work.sort, work.offset)).or_default();
        let numbers = places.of(work, *turn);
        *turn += 1;
        for number in numbers {
            let (offset, bytes) = request.inside[number];
            let inner = found[number].get_or_insert_with(|| Inner {
                of,
                row: 0,
                number,
                offset,
                bytes,
                begun: work.begun,
                ended: work.ended,
                failed: false,
                work: Vec::new(),
            });
            inner.ended = inner.ended.max(work.ended);
            inner.failed |= work.failed;
            inner.work.push(index);
        }
    }
    found.into_iter().flatten().collect()
}

/// Where the objects of a request are, on the target and in the request.
struct Places {
    /// Of each object its first byte on the target and its number, in the order of the target.
    begins: Vec<(u64, usize)>,
    /// Of each object the end of it in the request.
    ends: Vec<u64>,
}

impl Places {
    fn new(inside: &[(u64, u64)]) -> Self {
        let mut begins: Vec<_> =
            inside.iter().enumerate().map(|(number, (offset, _))| (*offset, number)).collect();
        begins.sort_unstable();
        let ends = inside.iter().scan(0, |end, (_, bytes)| {
            *end += bytes;
            Some(*end)
        });
        Self { begins, ends: ends.collect() }
    }

    /// Where an object begins in the request.
    fn before(&self, number: usize) -> u64 {
        number.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// The objects that work is for: commands are for one; a unit goes on in the order of the request.
    fn of(&self, work: &Work, turn: usize) -> std::ops::Range<usize> {
        let behind = self.begins.partition_point(|(begin, _)| *begin <= work.offset);
        let Some(&(begin, _)) = self.begins[..behind].last() else { return 0..0 };
        let alike = self.begins.partition_point(|(other, _)| *other < begin)..behind;
        let (_, first) = self.begins[(alike.start + turn).min(alike.end - 1)];
        let at = self.before(first) + (work.offset - begin);
        if at >= self.ends[first] {
            return 0..0;
        }
        let end = at + work.bytes.max(1);
        let last = self.ends.partition_point(|other| *other < end).min(self.ends.len() - 1);
        first..last + 1
    }
}
