//! The check of content: what a writing job writes, and what is held against it.

use fullbore::{Mem, Transfer};

use super::course::{Course, Io, Span};
use super::section::Part;
use super::stats::{READ, WRITE};
use crate::content;
use crate::direct::PageBuf;
use crate::failure::Failure;
use crate::jobs::spec::Job;
use crate::pool::{put, see};

/// What a destination holds before it is read into.
const POISON: u8 = 0xa5;

/// Of a clone.
pub struct Check {
    on: bool,
    reads_alone: bool,
    /// Of each target; of a reading job those that its files claim.
    seeds: Vec<u64>,
    /// Of each span a bit for each object that was moved, and is to be checked.
    moved: Vec<Vec<u64>>,
    /// What bytes of a GPU's memory go by.
    by: PageBuf,
}

impl Check {
    pub fn new(job: &Job, part: &Part) -> Self {
        let on = job.verify;
        // What was moved is read once more at the end, and checked then: no check is in the time that is measured.
        let reads_back = on && (!job.rw.writes || job.do_verify);
        let bits = |span: &Span| vec![0; if reads_back { span.count.div_ceil(64) as usize } else { 0 }];
        let on_gpu = !job.memory.gpus.is_empty();
        Self {
            on,
            reads_alone: !job.rw.writes,
            seeds: part.seeds.clone(),
            moved: part.spans.iter().map(bits).collect(),
            by: PageBuf::new(if on_gpu { job.bs as usize } else { 0 }),
        }
    }

    /// Whether the files have to be asked whose content they hold.
    pub fn needs_seeds(&self) -> bool {
        self.on && self.reads_alone
    }

    /// Fills a buffer with what neither compresses nor passes for content of ours.
    pub fn stain(&mut self, mem: &mut Mem) -> Result<(), Failure> {
        put(mem, &mut self.by, |bytes| content::fill(bytes, 256, 0))
    }

    /// Takes the seed that the first object of a file claims.
    pub fn learn(&mut self, (back, _): &(Transfer, usize), target: usize, name: &str) -> Result<(), Failure> {
        let (mem, offset) = (back.extents()[0].mem(), back.extents()[0].offset());
        let claim = see(mem, &mut self.by, |bytes| bytes.first_chunk().and_then(content::claim))?;
        match claim {
            Some((there, seed)) if there == offset => self.seeds[target] = seed,
            _ => {
                return Err(Failure::Setup(format!(
                    "{name}: verify of a reading job needs content that a writing one left there: run rw=write with \
                     verify=1 first, or leave out verify"
                )));
            }
        }
        Ok(())
    }

    /// Before an I/O is submitted: content for what is written, poison for what is read.
    pub fn prepare(
        &mut self,
        transfer: &mut Transfer,
        io: Io,
        target: usize,
        read: bool,
    ) -> Result<(), Failure> {
        if !self.on || (read && !io.back) {
            return Ok(());
        }
        let seed = self.seeds[target];
        for extent in transfer.extents_mut() {
            put(extent.mem_mut(), &mut self.by, |bytes| match read {
                true => bytes.fill(POISON),
                false => content::fill(bytes, io.offset, seed),
            })?;
        }
        Ok(())
    }

    /// After it ended well: how many bytes were checked, and what is wrong with them. Only what is read back is checked; of a
    /// mix that is what was written.
    #[allow(clippy::type_complexity)] // bytes, and if some are wrong how many and how
    pub fn landed(
        &mut self,
        transfer: &Transfer,
        io: Io,
        target: usize,
        read: bool,
    ) -> Result<Option<(u64, Option<(u64, String)>)>, Failure> {
        if !io.back {
            if (!read || self.reads_alone)
                && let Some(bits) = self.moved[io.span].get_mut(io.object as usize / 64)
            {
                *bits |= 1 << (io.object % 64);
            }
            return Ok(None);
        }
        let seed = self.seeds[target];
        let mem = transfer.extents()[0].mem();
        see(mem, &mut self.by, |bytes| {
            let wrong = content::check(bytes, io.offset, seed);
            let words = (wrong.bytes > 0)
                .then(|| (wrong.bytes, content::describe(bytes, io.offset, &wrong, seed, POISON)));
            Some((bytes.len() as u64, words))
        })
    }

    /// What is to be read back: each object that was moved, once.
    pub fn after(&self, course: &Course) -> Vec<Io> {
        let way = if self.reads_alone { READ } else { WRITE };
        let mut ios = Vec::new();
        for (span, bits) in self.moved.iter().enumerate() {
            let set = (0..bits.len() as u64 * 64)
                .filter(|object| bits[*object as usize / 64] >> (object % 64) & 1 == 1);
            ios.extend(set.map(|object| Io { back: true, ..course.io(way, span, object) }));
        }
        ios
    }
}
