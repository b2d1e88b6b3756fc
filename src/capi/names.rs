//! What crosses the C interface by name: constants and enumerations, with the values that `abi.rs` pins.

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
