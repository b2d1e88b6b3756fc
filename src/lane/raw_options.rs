//! How a list of raw extents is moved: what a transfer says in its own fields.

use super::marks::Marks;
use super::path::Path;
use super::transfer::{Deadline, Priority};
use std::time::Duration;

/// How a list of raw extents is moved, and what names it. A bare tag is one too: its low half is the trace id then.
#[derive(Clone, Debug)]
pub struct RawOptions {
    pub(crate) tag: u64,
    pub(crate) trace_id: u32,
    pub(crate) priority: Priority,
    pub(crate) deadline: Deadline,
    pub(crate) durable: bool,
    pub(crate) require: Option<Path>,
    pub(crate) marks: Option<Marks>,
}

impl From<u64> for RawOptions {
    fn from(tag: u64) -> RawOptions {
        RawOptions {
            tag,
            trace_id: tag as u32,
            priority: Priority::Normal,
            deadline: Deadline::Engine,
            durable: false,
            require: None,
            marks: None,
        }
    }
}

impl RawOptions {
    /// The number that comes back in the completion.
    pub fn tag(tag: u64) -> RawOptions {
        tag.into()
    }

    /// A number that tracers see in the high half of each command's user_data (default: the tag's low half).
    pub fn trace_id(mut self, trace_id: u32) -> RawOptions {
        self.trace_id = trace_id;
        self
    }

    /// Its class (default: normal).
    pub fn priority(mut self, priority: Priority) -> RawOptions {
        self.priority = priority;
        self
    }

    /// How long it may take from submission on (default: the engine's, 30 s).
    pub fn deadline(mut self, after: Duration) -> RawOptions {
        self.deadline = Deadline::After(after);
        self
    }

    /// Lets it take for ever.
    pub fn no_deadline(mut self) -> RawOptions {
        self.deadline = Deadline::None;
        self
    }

    /// A write is completed only after the target was flushed behind it.
    pub fn durable(mut self) -> RawOptions {
        self.durable = true;
        self
    }

    /// Demands a path, as [`Transfer::require`](crate::Transfer::require) does.
    pub fn require(mut self, path: Path) -> RawOptions {
        self.require = Some(path);
        self
    }

    /// Has marks land while it is under way, as [`Transfer::marks`](crate::Transfer::marks) does.
    pub fn marks(mut self, marks: &Marks) -> RawOptions {
        self.marks = Some(marks.clone());
        self
    }
}
