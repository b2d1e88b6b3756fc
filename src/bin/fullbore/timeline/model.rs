//! What a timeline is of.

use std::time::Instant;

/// What an engine, or an arm, did.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Of the job, or of the arm.
    pub name: String,
    /// What `objects` are of: each is a request of many.
    pub requests: bool,
    /// For each place of an object the name of who submits it: of one place no two overlap in time.
    pub rows: Vec<String>,
    /// Objects, or requests.
    pub objects: Vec<Object>,
    pub landings: Vec<Landing>,
    /// A name for each lane.
    pub lanes: Vec<String>,
    pub work: Vec<Work>,
    pub lost: Lost,
}

/// What is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// There was no room for them.
    pub objects: u64,
    pub work: u64,
    /// Work that was for no object: flushes.
    pub of_none: u64,
}

/// An object, or a request, from before its submission until its completion was at hand.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its place in [`Section::rows`].
    pub row: usize,
    pub id: u32,
    pub op: &'static str,
    /// Name of its file.
    pub target: std::sync::Arc<str>,
    pub offset: u64,
    pub bytes: u64,
    /// The objects of a request in their order: where on the target, and bytes.
    pub inside: Vec<(u64, u64)>,
    pub begun: Instant,
    pub ended: Instant,
    /// As the engine took them: from its submission to the push of its first command, and to its end.
    pub queued_ns: u64,
    pub took_ns: u64,
    pub path: Option<fullbore::PathSet>,
    pub failed: bool,
}

/// A part of a request, until its mark was seen.
#[derive(Debug, Clone)]
pub struct Landing {
    pub row: usize,
    /// Objects of the request that had landed then.
    pub objects: u64,
    pub begun: Instant,
    pub ended: Instant,
}

/// What a lane did for an object: a command, a unit of a GPU's lane, or a copy of the GPU.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub sort: Sort,
    pub lane: usize,
    /// Of one lane and sort no two overlap in one slot.
    pub slot: usize,
    /// Of its object.
    pub id: u32,
    pub op: &'static str,
    pub path: &'static str,
    /// Its first byte on the target.
    pub offset: u64,
    pub bytes: u64,
    pub begun: Instant,
    pub ended: Instant,
    pub failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    Command,
    Unit,
    Copy,
}

impl Sort {
    pub const ALL: [Self; 3] = [Self::Command, Self::Unit, Self::Copy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Unit => "unit",
            Self::Copy => "copy",
        }
    }

    pub fn plural(self) -> &'static str {
        match self {
            Self::Command => "commands",
            Self::Unit => "units",
            Self::Copy => "copies",
        }
    }
}
