//! What crosses the C interface: structs, with the layout that `abi.rs` pins.

use super::marks::fullbore_marks;
pub use super::names::*;
use super::target::fullbore_target;
use std::ffi::{c_char, c_void};

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
