//! What crosses the C interface: constants and structs, with the layout that `abi.rs` pins.

use super::marks::fullbore_marks;
use super::target::fullbore_target;
use std::ffi::{c_char, c_void};

/// Version of the structs and calls of this header, for `fullbore_engine_options.version`. It changes only when
/// programs that were built against an older header could misbehave; new calls and flags do not change it.
pub const FULLBORE_ABI: u32 = 1;
/// No end of time, where a time in ns is asked for.
pub const FULLBORE_FOREVER: u64 = u64::MAX;
/// `fullbore_error.extent` of an error that concerns no single extent.
pub const FULLBORE_NO_EXTENT: u32 = u32::MAX;

/// What `fullbore_feature` is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_feature_name {
    /// The kernel gives this process an io_uring; without, no engine but one over the null queue can be made.
    FULLBORE_FEATURE_IO_URING = 1,
    /// A CUDA driver with at least one GPU was found.
    FULLBORE_FEATURE_CUDA = 2,
    /// The library was built with hwloc.
    FULLBORE_FEATURE_HWLOC = 3,
}

/// Where an error comes from, and with that what `fullbore_error.code` means.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_domain {
    /// No error.
    FULLBORE_DOMAIN_NONE = 0,
    /// `code` is an errno (positive) that the kernel answered.
    FULLBORE_DOMAIN_ERRNO = 1,
    /// `code` is the status a NVMe drive answered: status code in bits 0-7, status code type in bits 8-10, 0x4000: do
    /// not retry.
    FULLBORE_DOMAIN_NVME = 2,
    /// `code` is a CUresult of the CUDA driver.
    FULLBORE_DOMAIN_CUDA = 3,
    /// `code` is a CUfileOpError (5001 and up).
    FULLBORE_DOMAIN_CUFILE = 4,
    /// The engine itself refused or gave up; `code` is the `kind`.
    FULLBORE_DOMAIN_ENGINE = 5,
}

/// What went wrong, coarse enough to act on. The errno beside each is what calls return, negative, unless the kernel
/// gave one of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_kind {
    /// Nothing.
    FULLBORE_KIND_NONE = 0,
    /// An argument makes no sense (EINVAL).
    FULLBORE_KIND_INVALID_INPUT = 1,
    /// A range lies outside its target or region (ERANGE).
    FULLBORE_KIND_OUT_OF_BOUNDS = 2,
    /// Offset, length or address break an alignment that the target needs (EINVAL).
    FULLBORE_KIND_MISALIGNED = 3,
    /// A write to a target that was opened for reading (EROFS).
    FULLBORE_KIND_READ_ONLY = 4,
    /// The target or the engine is closed (EBADF).
    FULLBORE_KIND_CLOSED = 5,
    /// Target, region or client belong to another engine (EINVAL).
    FULLBORE_KIND_WRONG_ENGINE = 6,
    /// The memory is in use by another transfer or call (EBUSY).
    FULLBORE_KIND_OVERLAP = 7,
    /// All of the engine's transfer entries are taken; try again after a completion (EAGAIN).
    FULLBORE_KIND_BUSY = 8,
    /// There is no such file or device (ENOENT).
    FULLBORE_KIND_NOT_FOUND = 9,
    /// The machine or the file system does not offer what is needed (EOPNOTSUPP).
    FULLBORE_KIND_UNSUPPORTED = 10,
    /// The caller may not do this (EACCES).
    FULLBORE_KIND_PERMISSION = 11,
    /// A limit of the process or the machine was hit (ENOMEM).
    FULLBORE_KIND_RESOURCE = 12,
    /// The path that was demanded is not the one that would run (EOPNOTSUPP).
    FULLBORE_KIND_PATH_UNAVAILABLE = 13,
    /// What is to be changed or freed is in use (EBUSY).
    FULLBORE_KIND_IN_USE = 14,
    /// The process forked; the engine lives in the parent (ECHILD).
    FULLBORE_KIND_FORKED = 15,
    /// The device or the kernel failed a command (EIO).
    FULLBORE_KIND_IO = 16,
    /// The target ended before the range did (ENODATA).
    FULLBORE_KIND_UNEXPECTED_EOF = 17,
    /// The time is over (ETIMEDOUT).
    FULLBORE_KIND_TIMED_OUT = 18,
    /// Deadline and grace passed with commands in flight: the memory is quarantined (EOWNERDEAD).
    FULLBORE_KIND_ABANDONED = 19,
    /// The transfer was cancelled, or marks ended with it (ECANCELED).
    FULLBORE_KIND_CANCELLED = 20,
    /// The engine was destroyed (ESHUTDOWN).
    FULLBORE_KIND_SHUTDOWN = 21,
    /// A lane died; the transfer could not be carried on (EIO).
    FULLBORE_KIND_LANE_FAILED = 22,
    /// The memory cannot be freed yet: late results may still land in it (EINPROGRESS).
    FULLBORE_KIND_QUARANTINED = 23,
    /// A defect of the library: a panic that was stopped at its border (ENOTRECOVERABLE). Please report the message.
    FULLBORE_KIND_DEFECT = 24,
}

/// The routes between a target and memory. Each is a bit: `fullbore_completion.paths` has those that were taken.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_path {
    /// Any: no path is demanded.
    FULLBORE_PATH_ANY = 0,
    /// io_uring, registered buffer, O_DIRECT.
    FULLBORE_PATH_FIXED = 1,
    /// io_uring, memory not registered, O_DIRECT.
    FULLBORE_PATH_PLAIN = 2,
    /// io_uring, O_DIRECT, through lane scratch and a copy: the range or the memory is not aligned.
    FULLBORE_PATH_SCRATCH = 4,
    /// io_uring, registered buffer, through the page cache.
    FULLBORE_PATH_FIXED_BUFFERED = 8,
    /// io_uring, memory not registered, through the page cache.
    FULLBORE_PATH_BUFFERED = 16,
    /// Nothing moved: the null queue.
    FULLBORE_PATH_NULL = 32,
    /// NVMe passthrough over io_uring, registered buffer.
    FULLBORE_PATH_URING_CMD_FIXED = 64,
    /// NVMe passthrough over io_uring, memory not registered.
    FULLBORE_PATH_URING_CMD = 128,
    /// NVMe passthrough over io_uring, through lane scratch and a copy.
    FULLBORE_PATH_URING_CMD_SCRATCH = 256,
    /// Copied by the CPU from or to mapped memory.
    FULLBORE_PATH_COPY = 512,
    /// Between a target and GPU memory through pinned host memory; the path between that and the target is beside it.
    FULLBORE_PATH_PINNED_BOUNCE = 1024,
    /// Copied by the GPU out of mapped memory that is registered with its driver.
    FULLBORE_PATH_DAX_TO_GPU = 2048,
    /// Between storage and GPU memory by cuFile.
    FULLBORE_PATH_CUFILE = 4096,
    /// By cuFile's compatibility mode.
    FULLBORE_PATH_CUFILE_COMPAT = 8192,
}

/// What a transfer does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_op {
    /// From the target into memory.
    FULLBORE_OP_READ = 1,
    /// From memory to the target.
    FULLBORE_OP_WRITE = 2,
}

/// Four classes of transfers. A lower one gets at least one command in sixteen while higher ones have work.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_priority {
    /// The default.
    FULLBORE_PRIORITY_NORMAL = 0,
    /// Before all others.
    FULLBORE_PRIORITY_URGENT = 1,
    /// Before normal ones.
    FULLBORE_PRIORITY_HIGH = 2,
    /// When nobody else wants to.
    FULLBORE_PRIORITY_LOW = 3,
}

/// Bits of `fullbore_transfer.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_transfer_flag {
    /// A write is completed only after the target was flushed behind it.
    FULLBORE_TRANSFER_DURABLE = 1,
}

/// Bits of `fullbore_engine_options.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_engine_flag {
    /// Over the null queue: commands complete at once, nothing moves. It measures the engine's own cost.
    FULLBORE_ENGINE_NULL = 1,
    /// Lanes do not clone registered buffers, also where the kernel can.
    FULLBORE_ENGINE_NO_CLONE = 2,
    /// A GPU's lane asks for the ends of copies again and again instead of sleeping: a whole CPU while there are some.
    FULLBORE_ENGINE_GPU_POLLING = 4,
}

/// Values of `fullbore_engine_options.lanes` beside a number (1 to 64).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_lanes {
    /// For files as many as there are CPUs at hand, for a drive as many as it has hardware queues, at most 8 each.
    FULLBORE_LANES_AUTO = 0,
    /// One for each hardware queue of a drive.
    FULLBORE_LANES_PER_QUEUE = 65537,
    /// One for each NUMA node.
    FULLBORE_LANES_PER_NUMA = 65538,
}

/// Values of `fullbore_engine_options.cufile`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_cufile {
    /// Used where it is a direct path: the default.
    FULLBORE_CUFILE_WHERE_DIRECT = 0,
    /// Never.
    FULLBORE_CUFILE_NEVER = 1,
    /// Also in its compatibility mode, of transfers that demand it.
    FULLBORE_CUFILE_ASKED = 2,
}

/// Bits of `fullbore_open_options.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_open_flag {
    /// For reading and writing; without, for reading.
    FULLBORE_OPEN_WRITE = 1,
    /// Makes the file if it is not there, with at least `create_bytes` bytes, preallocated. Implies WRITE.
    FULLBORE_OPEN_CREATE = 2,
    /// Through the page cache instead of O_DIRECT.
    FULLBORE_OPEN_BUFFERED = 4,
    /// Maps a file and has the CPU (or a GPU) copy from it. It must not be cut short while it is open: see GUARD_SIGBUS.
    FULLBORE_OPEN_MAPPED = 8,
    /// The drive's lanes poll for completions (NVMe character devices, driver loaded with nvme.poll_queues).
    FULLBORE_OPEN_POLLED = 16,
    /// A SIGBUS in the engine's own copies out of a mapping becomes an error of the transfer. Installs a handler for the
    /// whole process, for ever, which passes every other SIGBUS on.
    FULLBORE_OPEN_GUARD_SIGBUS = 32,
    /// Writes to a drive although it is mounted, held or has partitions.
    FULLBORE_OPEN_FORCE = 64,
}

/// Bits of `fullbore_alloc_options.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_alloc_flag {
    /// No huge pages.
    FULLBORE_ALLOC_NO_HUGE = 1,
    /// On the NUMA node `node`.
    FULLBORE_ALLOC_ON_NODE = 2,
}

/// Bits of `fullbore_target_info.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_target_flag {
    /// Opened with O_DIRECT, or reached by NVMe passthrough.
    FULLBORE_TARGET_DIRECT = 1,
    /// Mapped memory: a DAX device, or a file opened with MAPPED.
    FULLBORE_TARGET_MAPPED = 2,
    /// A NVMe drive by its character device: the fields from `name_space` on are of it.
    FULLBORE_TARGET_DRIVE = 4,
    /// The drive has a write cache: what is written is durable only after a flush.
    FULLBORE_TARGET_WRITE_CACHE = 8,
}

/// Bits of `fullbore_region_info.flags`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_region_flag {
    /// Commands over it use registered buffers of the rings; `note` says why not where it is not set.
    FULLBORE_REGION_REGISTERED = 1,
    /// Its memory is on GPU `gpu`: `ptr` is a device pointer.
    FULLBORE_REGION_GPU = 2,
}

/// How loud the log is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum fullbore_log_level {
    /// Something is lost or broken.
    FULLBORE_LOG_ERROR = 1,
    /// Something is worse than it could be.
    FULLBORE_LOG_WARN = 2,
    /// What was found and chosen.
    FULLBORE_LOG_INFO = 3,
    /// What a developer wants to know.
    FULLBORE_LOG_DEBUG = 4,
}

/// Details of a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_error {
    /// A `fullbore_domain`: what `code` is.
    pub domain: u32,
    /// Errno (positive), NVMe status, CUresult, CUfileOpError or kind, by `domain`.
    pub code: i32,
    /// A `fullbore_kind`.
    pub kind: u32,
    /// The extent concerned, counted from 0, or FULLBORE_NO_EXTENT. Of `fullbore_submit` it is an extent of the first
    /// transfer that was not taken.
    pub extent: u32,
    /// First byte of the range concerned, in bytes; 0 if none is.
    pub offset: u64,
    /// Length of the range concerned, in bytes; 0 if none is.
    pub length: u64,
    /// One line, UTF-8: what was attempted, the likely cause, the remedy. Never NULL. Who owns it: see where the struct
    /// came from.
    pub message: *const c_char,
    /// 0.
    pub reserved: [u64; 2],
}

/// How to make an engine. All zero but `size` and `version`: the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_engine_options {
    /// sizeof(struct fullbore_engine_options).
    pub size: u32,
    /// FULLBORE_ABI.
    pub version: u32,
    /// Bits of `fullbore_engine_flag`.
    pub flags: u32,
    /// Most bytes of a command; 0: 128 KiB, and 512 KiB to a file that threads of the kernel serve (tmpfs). Whole pages of
    /// 4096, 4 KiB to 16 MiB.
    pub command_size: u32,
    /// Most commands of a lane in flight; 0: 32. 1 to 4096.
    pub lane_depth: u32,
    /// How many lanes: 1 to 64, or one of `fullbore_lanes` (0: FULLBORE_LANES_AUTO).
    pub lanes: u32,
    /// How many processes use the same drives in this way; 0: 1. Up to 1024.
    pub processes: u32,
    /// Most transfers under way or not yet fetched; 0: 1024. Up to 65 536.
    pub max_transfers: u32,
    /// Bytes that a lane claims at once; 0: 1 MiB, or the command size if that is larger. Whole pages of 4096, from the
    /// command size to 1 GiB.
    pub unit_size: u64,
    /// ns that a transfer may take unless it says otherwise; 0: 30 s. FULLBORE_FOREVER: none.
    pub deadline_ns: u64,
    /// ns after its deadline that a transfer may drain before it is abandoned; 0: 5 s. At most an hour.
    pub grace_ns: u64,
    /// Bytes of a pinned bounce buffer; 0: 8 MiB. Whole pages of 4096, 1 MiB to 256 MiB.
    pub bounce_bytes: u64,
    /// Bounce buffers of a GPU; 0: 8. 2 to 32.
    pub bounce_buffers: u32,
    /// A `fullbore_cufile`.
    pub cufile: u32,
    /// Most bytes that wait in a GPU's copy engine, each way; 0: 32 MiB. At least 1 MiB.
    pub gpu_outstanding: u64,
    /// 0.
    pub reserved: [u64; 6],
}

/// How to open a target. All zero but `size`: for reading, O_DIRECT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_open_options {
    /// sizeof(struct fullbore_open_options).
    pub size: u32,
    /// Bits of `fullbore_open_flag`.
    pub flags: u32,
    /// With FULLBORE_OPEN_CREATE: bytes that the file has at least.
    pub create_bytes: u64,
    /// 0.
    pub reserved: [u64; 4],
}

/// How to allocate host memory. All zero but `size`: huge pages where they can be had, on any node.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_alloc_options {
    /// sizeof(struct fullbore_alloc_options).
    pub size: u32,
    /// Bits of `fullbore_alloc_flag`.
    pub flags: u32,
    /// With FULLBORE_ALLOC_ON_NODE: the NUMA node.
    pub node: u32,
    /// 0.
    pub padding: u32,
    /// 0.
    pub reserved: [u64; 3],
}

/// What came of one extent. Written by the library before the completion is there; of an abandoned transfer (-EOWNERDEAD)
/// it says nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_outcome {
    /// Bytes that were moved: the sum of the commands that succeeded, not a prefix. All of them, if `error` is 0.
    pub bytes: u64,
    /// 0, or the errno (positive) of the first failure in this extent; ECANCELED of what was not moved because the transfer
    /// was cancelled, or the engine destroyed.
    pub error: i32,
    /// The library's while the transfer is under way.
    pub reserved: u32,
}

/// A byte range of the target and as much memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_extent {
    /// First byte on the target.
    pub offset: u64,
    /// Memory to move to or from: a host pointer, or a device pointer inside a region over GPU memory. Inside a region
    /// it goes by the region's registration; outside of all, unregistered, as the completion's paths say. It must be
    /// mapped, for writing where it is read into: the CPU copies some paths' bytes (FULLBORE_PATH_SCRATCH), and faults. All
    /// extents of a transfer are in memory of one GPU, or of the host. GPU memory must lie in a region: what lies in none is
    /// refused by an engine that has regions of GPU memory, and taken for the host's, and followed there, by one that has none.
    pub ptr: *mut c_void,
    /// Bytes, at least 1.
    pub len: u64,
    /// What came of it.
    pub outcome: fullbore_outcome,
}

/// A read or a write of any number of extents of one target.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_transfer {
    /// sizeof(struct fullbore_transfer); of every element of an array.
    pub size: u32,
    /// A `fullbore_op`.
    pub op: u32,
    /// The target, of the client's engine.
    pub target: *const fullbore_target,
    /// The extents, an array of `count`, aligned to 8. The array and the memory it names belong to the library until the
    /// completion.
    pub extents: *mut fullbore_extent,
    /// Extents: 1 to 16 777 216.
    pub count: u64,
    /// Comes back in the completion.
    pub tag: u64,
    /// A number that tracers see in the high half of each command's user_data.
    pub trace_id: u32,
    /// A `fullbore_priority`.
    pub priority: u32,
    /// Bits of `fullbore_transfer_flag`.
    pub flags: u32,
    /// A `fullbore_path` that is demanded: where another would run, submission is an error that says why.
    pub require: u32,
    /// ns from submission that it may take; 0: the engine's. FULLBORE_FOREVER: none.
    pub deadline_ns: u64,
    /// Marks that land while it is under way, or NULL.
    pub marks: *const fullbore_marks,
    /// Out: names it, for `fullbore_cancel`; never 0. The number is the engine's: any client of the engine can cancel it.
    pub id: u64,
    /// 0.
    pub reserved: [u64; 4],
}

/// What came of a transfer or a flush.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_completion {
    /// The transfer's.
    pub tag: u64,
    /// Bytes moved, over all extents.
    pub bytes: u64,
    /// ns from submission to the first command.
    pub queued_ns: u64,
    /// ns from submission to the last result.
    pub total_ns: u64,
    /// 0: all of it was moved. Else a negative errno; `error` has the first failure.
    pub result: i32,
    /// Bits of `fullbore_path`: the paths that were taken.
    pub paths: u32,
    /// Details where `result` is not 0. The message is the client's, until its next poll, wait or destroy.
    pub error: fullbore_error,
    /// ns in which nothing of it was under way: `queued_ns`, and of GPU memory what it waited later for a bounce buffer, or for
    /// room in the copy engine.
    pub waited_ns: u64,
    /// Of GPU memory: ns in which copies to or from the GPU were under way, and nothing of it was with the target. What
    /// `waited_ns` and `copied_ns` leave of `total_ns` is the target's.
    pub copied_ns: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// What a target is. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_target_info {
    /// In: sizeof(struct fullbore_target_info). Out: how many bytes of it the library knows.
    pub size: u32,
    /// Bits of `fullbore_target_flag`.
    pub flags: u32,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Writes must be whole blocks of this many bytes; reads that are go straight.
    pub block_size: u32,
    /// Memory at multiples of this many bytes is reached without a copy.
    pub memory_alignment: u32,
    /// Most bytes of a command.
    pub max_bytes: u32,
    /// Most segments of a command.
    pub max_segments: u32,
    /// Most blocks of a command.
    pub max_blocks: u32,
    /// Lanes that serve it.
    pub lanes: u32,
    /// The namespace's number on its drive.
    pub name_space: u32,
    /// The drive's NUMA node; -1: none, or one alone.
    pub node: i32,
    /// The drive's model. This and the others end in a NUL, and are cut if too long.
    pub model: [c_char; 48],
    /// The drive's serial number.
    pub serial: [c_char; 32],
    /// The PCI address of its first controller, for `fullbore_region_map_peer`.
    pub address: [c_char; 32],
    /// Its block device, such as nvme0n1.
    pub block_name: [c_char; 48],
    /// 0.
    pub reserved: [u64; 4],
}

/// What a region is. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_region_info {
    /// In: sizeof(struct fullbore_region_info). Out: how many bytes of it the library knows.
    pub size: u32,
    /// Bits of `fullbore_region_flag`.
    pub flags: u32,
    /// Its first byte.
    pub ptr: *mut c_void,
    /// Its length, in bytes.
    pub len: u64,
    /// The GPU that it is on, as CUDA counts; -1: host or peer memory.
    pub gpu: i32,
    /// 0.
    pub padding: u32,
    /// Why it is not registered, and the remedy; ends in a NUL, and is cut if too long.
    pub note: [c_char; 256],
    /// 0.
    pub reserved: [u64; 4],
}

/// The path that aligned transfers between a target and a region take, and why. Set `size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_path_info {
    /// In: sizeof(struct fullbore_path_info). Out: how many bytes of it the library knows.
    pub size: u32,
    /// A `fullbore_path`.
    pub path: u32,
    /// Why this one, and no better; ends in a NUL, and is cut if too long.
    pub reason: [c_char; 448],
    /// 0.
    pub reserved: [u64; 4],
}

/// What an engine counted since it was made, over all lanes. Set `size` before the call. (Each lane by itself:
/// `fullbore_stats_json`.)
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fullbore_stats {
    /// In: sizeof(struct fullbore_stats). Out: how many bytes of it the library knows.
    pub size: u32,
    /// Lanes.
    pub lanes: u32,
    /// Of those, how many stand still: no step for two periods of the watchdog while they had work.
    pub lanes_stalled: u32,
    /// Of those, how many died.
    pub lanes_dead: u32,
    /// Threads of the kernel that work for its rings (iou-wrk).
    pub kernel_workers: u32,
    /// Whether lanes clone the registrations (kernel 6.13): 1, or 0.
    pub clone_buffers: u32,
    /// Transfers under way, or completed and not yet fetched.
    pub active: u64,
    /// Bytes under abandoned transfers: late results may still land in them.
    pub quarantined_bytes: u64,
    /// Bytes that registrations charge to RLIMIT_MEMLOCK.
    pub memlock_bytes: u64,
    /// Commands that ended.
    pub commands: u64,
    /// Bytes moved by those that succeeded.
    pub bytes: u64,
    /// Calls of io_uring_enter.
    pub enters: u64,
    /// Of those, how many could wait.
    pub waits: u64,
    /// Commands asked again, and enters refused, because the kernel was busy.
    pub retries: u64,
    /// Short results that were continued.
    pub shorts: u64,
    /// Answers to no command of ours (a defect, if it is not 0).
    pub stale: u64,
    /// Commands in flight now.
    pub in_flight: u64,
    /// Most commands in flight, of each lane, added up.
    pub max_in_flight: u64,
    /// 0.
    pub reserved: [u64; 8],
}

/// Called for each line of the log, by any thread, several at once: those of the library, and those that are in a call of
/// it. It must not block, must not call the library, and must return (no longjmp, no C++ exception out of it). `source` is
/// the part of the library, `message` one line; both are UTF-8 and valid during the call.
pub type fullbore_log_fn = Option<
    unsafe extern "C" fn(level: u32, source: *const c_char, message: *const c_char, user: *mut c_void),
>;
