//! Which way bytes went.

use crate::target::Kind;
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
    /// NVMe passthrough over io_uring, registered buffer.
    UringCmdFixed = 64,
    /// NVMe passthrough over io_uring, memory not registered.
    UringCmd = 128,
    /// NVMe passthrough over io_uring, through lane scratch and a copy: the range or the memory is not aligned.
    UringCmdScratch = 256,
    /// Copied by the CPU from or to mapped memory, past its caches.
    Copy = 512,
    /// Between a target and GPU memory through pinned host memory: the path between that and the target is beside it.
    PinnedBounce = 1024,
    /// Copied by the GPU out of mapped memory that is registered with its driver: reads alone.
    DaxToGpu = 2048,
    /// Between storage and GPU memory by cuFile, which has the device itself do it.
    CuFile = 4096,
    /// By cuFile's compatibility mode, through host memory of its own: only where it was demanded
    /// ([`Transfer::require`](crate::Transfer::require)) of an engine built with [`CuFileUse::Asked`](crate::CuFileUse).
    CuFileCompat = 8192,
}

/// All of them, in the order of their bits.
pub const PATHS: [Path; 14] = [
    Path::Fixed,
    Path::Plain,
    Path::Scratch,
    Path::FixedBuffered,
    Path::Buffered,
    Path::Null,
    Path::UringCmdFixed,
    Path::UringCmd,
    Path::UringCmdScratch,
    Path::Copy,
    Path::PinnedBounce,
    Path::DaxToGpu,
    Path::CuFile,
    Path::CuFileCompat,
];

impl Path {
    /// The path of a command to a target of that kind, opened O_DIRECT or not; through scratch or not; into a
    /// registered buffer or not.
    pub(crate) fn of(kind: Kind, direct: bool, scratch: bool, fixed: bool) -> Path {
        match (kind, scratch, direct, fixed) {
            (Kind::Null, ..) => Path::Null,
            (Kind::Dax, ..) => Path::Copy,
            (Kind::Nvme, true, ..) => Path::UringCmdScratch,
            (Kind::Nvme, false, _, true) => Path::UringCmdFixed,
            (Kind::Nvme, false, _, false) => Path::UringCmd,
            (_, true, ..) => Path::Scratch,
            (_, _, true, true) => Path::Fixed,
            (_, _, true, false) => Path::Plain,
            (_, _, false, true) => Path::FixedBuffered,
            (_, _, false, false) => Path::Buffered,
        }
    }

    /// The path whose bit it is, if it is one alone.
    #[cfg(feature = "capi")]
    pub(crate) fn from_bits(bits: u32) -> Option<Path> {
        PATHS.into_iter().find(|path| *path as u32 == bits)
    }

    /// Whether it names a registered buffer.
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Path::Fixed | Path::FixedBuffered | Path::UringCmdFixed)
    }

    /// Its place in [`PATHS`].
    pub(crate) fn index(self) -> usize {
        (self as u32).trailing_zeros() as usize
    }

    /// Its name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Path::Fixed => "uring fixed",
            Path::Plain => "uring",
            Path::Scratch => "uring scratch",
            Path::FixedBuffered => "uring fixed buffered",
            Path::Buffered => "uring buffered",
            Path::Null => "null",
            Path::UringCmdFixed => "uring-cmd fixed",
            Path::UringCmd => "uring-cmd",
            Path::UringCmdScratch => "uring-cmd scratch",
            Path::Copy => "cpu copy",
            Path::PinnedBounce => "pinned bounce",
            Path::DaxToGpu => "dax -> gpu direct",
            Path::CuFile => "cufile",
            Path::CuFileCompat => "cufile compat",
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

    /// A bit for each, as [`Path`] has them.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The paths taken.
    pub fn iter(self) -> impl Iterator<Item = Path> {
        PATHS.into_iter().filter(move |p| self.contains(*p))
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
