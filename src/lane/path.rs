//! Which way bytes went.

use std::fmt;

/// The route between a target and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Path {
    /// io_uring, registered buffer, O_DIRECT.
    Fixed = 1,
    /// io_uring, memory not registered, O_DIRECT.
    Plain = 2,
    /// io_uring, O_DIRECT, through lane scratch and a copy: the range or the memory is not aligned.
    Scratch = 4,
    /// io_uring, registered buffer, through the page cache.
    FixedBuffered = 8,
    /// io_uring, memory not registered, through the page cache.
    Buffered = 16,
    /// Nothing moved: the null queue.
    Null = 32,
}

const ALL: [Path; 6] =
    [Path::Fixed, Path::Plain, Path::Scratch, Path::FixedBuffered, Path::Buffered, Path::Null];

impl Path {
    /// Its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Path::Fixed => "uring fixed",
            Path::Plain => "uring",
            Path::Scratch => "uring scratch",
            Path::FixedBuffered => "uring fixed buffered",
            Path::Buffered => "uring buffered",
            Path::Null => "null",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The paths that the commands of a transfer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathSet(pub(crate) u32);

impl PathSet {
    /// Whether some command took `path`.
    pub fn contains(self, path: Path) -> bool {
        self.0 & path as u32 != 0
    }

    /// The paths taken.
    pub fn iter(self) -> impl Iterator<Item = Path> {
        ALL.into_iter().filter(move |p| self.contains(*p))
    }

    /// Both together.
    pub fn union(self, other: PathSet) -> PathSet {
        PathSet(self.0 | other.0)
    }
}

impl fmt::Display for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Path::name).collect();
        f.pad(if names.is_empty() { "none".into() } else { names.join(" + ") }.as_str())
    }
}

/// The path a transfer between a target and a region would take, and why no better one.
#[derive(Clone, Debug)]
pub struct PathReport {
    /// The path of its aligned part.
    pub path: Path,
    /// Why this one.
    pub reason: String,
}
