//! `--timeline=FILE`: a trace in Perfetto's own format, which its viewer opens, of requests, the objects inside, the commands
//! of each lane, the units and copies of GPUs, and how many of them are in flight.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore::Engine;

use crate::failure::Failure;
use crate::sink;
use crate::units::count;

mod inside;
mod model;
mod proto;
mod tape;
#[cfg(test)]
mod tests;
mod writer;

pub use model::{Section, Sort, Work};
pub use tape::{Aim, Tape, Track};
use writer::Writer;

/// Pieces of work, and as many objects, that a trace has at most: 60 MB while it is collected, some 160 MB while it is
/// written, and a file of as much. Those that come later are counted alone.
const MOST: usize = 1 << 19;

/// The trace of a run, written as the run goes.
pub struct Timeline {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    /// What each of its sections may have.
    each: usize,
    objects: usize,
    work: usize,
    lost: u64,
}

impl Timeline {
    /// Makes the file, before anything is measured, if it is none of those that are `taken`. The trace will have so many
    /// sections.
    pub fn new<'a>(
        path: &Path,
        sections: usize,
        taken: impl IntoIterator<Item = &'a PathBuf>,
    ) -> Result<Self, Failure> {
        let file = sink::create(path, taken);
        let file = file.map_err(|why| Failure::Setup(format!("--timeline={}: {why}", path.display())))?;
        let writer = Writer::new(BufWriter::new(file), Instant::now());
        let writer = writer.map_err(|error| refused(path, SPACE, error))?;
        let each = (MOST / sections.max(1)).max(1);
        Ok(Self { path: path.into(), writer, each, objects: 0, work: 0, lost: 0 })
    }

    /// What a section is collected on, of so many tracks: the engine's work from now on.
    pub fn tape(&self, engine: &Engine, name: String, tracks: usize) -> Result<Tape, Failure> {
        engine.record_work(self.each).map_err(Failure::setup)?;
        let tape = Tape::new(name, self.each, tracks);
        tape.forget(engine);
        Ok(tape)
    }

    pub fn add(&mut self, section: &Section) -> Result<(), Failure> {
        self.objects += section.objects.len();
        self.work += section.work.len();
        self.lost += section.lost.objects + section.lost.work;
        self.writer.section(section).map_err(|error| refused(&self.path, SPACE, error))
    }

    /// Writes the end. Answers a line for the report.
    pub fn end(self) -> Result<String, Failure> {
        self.writer
            .end()
            .and_then(|mut out| out.flush())
            .map_err(|error| refused(&self.path, SPACE, error))?;
        let (objects, work) = (count(self.objects as u64, "object"), count(self.work as u64, "piece"));
        let lost = match self.lost {
            0 => String::new(),
            lost => format!("; {lost} more found no room: measure for a shorter time"),
        };
        Ok(format!("timeline: {}: {objects}, {work} of work{lost}", self.path.display()))
    }
}

const SPACE: &str = "free space, or name another file";

fn refused(path: &Path, remedy: &str, error: io::Error) -> Failure {
    Failure::Setup(format!("--timeline={}: {error}: {remedy}", path.display()))
}
