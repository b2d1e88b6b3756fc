/*
 * fullbore: moves large objects between storage and host or GPU memory at the rate of the device.
 *
 * Calls answer 0, or a count, or a negative errno; fullbore_last_error() has the details of the calling thread's last call
 * that failed. Sizes and offsets are in bytes, times in ns. Handles are opaque; what a create or open call gives is the
 * caller's to destroy, in any order. Any call may answer -EINVAL (an argument that is NULL, unknown or out of its range),
 * -ECHILD (in a forked child: the library's threads are the parent's), -EBADF (its engine was destroyed) and
 * -ENOTRECOVERABLE (a defect; please report it); what is listed beside a call is what else it answers, or what it means by
 * these. New values of enums come with new versions: expect some that have no name here. Structs that begin with `size` are
 * zeroed and given their size first:
 *
 *     fullbore_open_options options = { .size = sizeof options, .flags = FULLBORE_OPEN_WRITE };
 *
 * so that programs and libraries of different age go together. Fields named `reserved` and `padding` are 0. Made by
 * native/header.sh; do not edit.
 */

#ifndef FULLBORE_H
#define FULLBORE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Version of the structs and calls of this header, for `fullbore_engine_options.version`. It changes only when
 * programs that were built against an older header could misbehave; new calls and flags do not change it.
 */
#define FULLBORE_ABI 1

/**
 * No end of time, where a time in ns is asked for.
 */
#define FULLBORE_FOREVER UINT64_MAX

/**
 * `fullbore_error.extent` of an error that concerns no single extent.
 */
#define FULLBORE_NO_EXTENT UINT32_MAX

/**
 * Where an error comes from, and with that what `fullbore_error.code` means.
 */
typedef enum fullbore_domain {
  /**
   * No error.
   */
  FULLBORE_DOMAIN_NONE = 0,
  /**
   * `code` is an errno (positive) that the kernel answered.
   */
  FULLBORE_DOMAIN_ERRNO = 1,
  /**
   * `code` is the status a NVMe drive answered: status code in bits 0-7, status code type in bits 8-10, 0x4000: do
   * not retry.
   */
  FULLBORE_DOMAIN_NVME = 2,
  /**
   * `code` is a CUresult of the CUDA driver.
   */
  FULLBORE_DOMAIN_CUDA = 3,
  /**
   * `code` is a CUfileOpError (5001 and up).
   */
  FULLBORE_DOMAIN_CUFILE = 4,
  /**
   * The engine itself refused or gave up; `code` is the `kind`.
   */
  FULLBORE_DOMAIN_ENGINE = 5,
} fullbore_domain;

/**
 * What went wrong, coarse enough to act on. The errno beside each is what calls return, negative, unless the kernel
 * gave one of its own.
 */
typedef enum fullbore_kind {
  /**
   * Nothing.
   */
  FULLBORE_KIND_NONE = 0,
  /**
   * An argument makes no sense (EINVAL).
   */
  FULLBORE_KIND_INVALID_INPUT = 1,
  /**
   * A range lies outside its target or region (ERANGE).
   */
  FULLBORE_KIND_OUT_OF_BOUNDS = 2,
  /**
   * Offset, length or address break an alignment that the target needs (EINVAL).
   */
  FULLBORE_KIND_MISALIGNED = 3,
  /**
   * A write to a target that was opened for reading (EROFS).
   */
  FULLBORE_KIND_READ_ONLY = 4,
  /**
   * The target or the engine is closed (EBADF).
   */
  FULLBORE_KIND_CLOSED = 5,
  /**
   * Target, region or client belong to another engine (EINVAL).
   */
  FULLBORE_KIND_WRONG_ENGINE = 6,
  /**
   * The memory is in use by another transfer or call (EBUSY).
   */
  FULLBORE_KIND_OVERLAP = 7,
  /**
   * All of the engine's transfer entries are taken; try again after a completion (EAGAIN).
   */
  FULLBORE_KIND_BUSY = 8,
  /**
   * There is no such file or device (ENOENT).
   */
  FULLBORE_KIND_NOT_FOUND = 9,
  /**
   * The machine or the file system does not offer what is needed (EOPNOTSUPP).
   */
  FULLBORE_KIND_UNSUPPORTED = 10,
  /**
   * The caller may not do this (EACCES).
   */
  FULLBORE_KIND_PERMISSION = 11,
  /**
   * A limit of the process or the machine was hit (ENOMEM).
   */
  FULLBORE_KIND_RESOURCE = 12,
  /**
   * The path that was demanded is not the one that would run (EOPNOTSUPP).
   */
  FULLBORE_KIND_PATH_UNAVAILABLE = 13,
  /**
   * What is to be changed or freed is in use (EBUSY).
   */
  FULLBORE_KIND_IN_USE = 14,
  /**
   * The process forked; the engine lives in the parent (ECHILD).
   */
  FULLBORE_KIND_FORKED = 15,
  /**
   * The device or the kernel failed a command (EIO).
   */
  FULLBORE_KIND_IO = 16,
  /**
   * The target ended before the range did (ENODATA).
   */
  FULLBORE_KIND_UNEXPECTED_EOF = 17,
  /**
   * The time is over (ETIMEDOUT).
   */
  FULLBORE_KIND_TIMED_OUT = 18,
  /**
   * Deadline and grace passed with commands in flight: the memory is quarantined (EOWNERDEAD).
   */
  FULLBORE_KIND_ABANDONED = 19,
  /**
   * The transfer was cancelled, or marks ended with it (ECANCELED).
   */
  FULLBORE_KIND_CANCELLED = 20,
  /**
   * The engine was destroyed (ESHUTDOWN).
   */
  FULLBORE_KIND_SHUTDOWN = 21,
  /**
   * A lane died; the transfer could not be carried on (EIO).
   */
  FULLBORE_KIND_LANE_FAILED = 22,
  /**
   * The memory cannot be freed yet: late results may still land in it (EINPROGRESS).
   */
  FULLBORE_KIND_QUARANTINED = 23,
  /**
   * A defect of the library: a panic that was stopped at its border (ENOTRECOVERABLE). Please report the message.
   */
  FULLBORE_KIND_DEFECT = 24,
} fullbore_kind;

/**
 * The routes between a target and memory. Each is a bit: `fullbore_completion.paths` has those that were taken.
 */
typedef enum fullbore_path {
  /**
   * Any: no path is demanded.
   */
  FULLBORE_PATH_ANY = 0,
  /**
   * io_uring, registered buffer, O_DIRECT.
   */
  FULLBORE_PATH_FIXED = 1,
  /**
   * io_uring, memory not registered, O_DIRECT.
   */
  FULLBORE_PATH_PLAIN = 2,
  /**
   * io_uring, O_DIRECT, through lane scratch and a copy: the range or the memory is not aligned.
   */
  FULLBORE_PATH_SCRATCH = 4,
  /**
   * io_uring, registered buffer, through the page cache.
   */
  FULLBORE_PATH_FIXED_BUFFERED = 8,
  /**
   * io_uring, memory not registered, through the page cache.
   */
  FULLBORE_PATH_BUFFERED = 16,
  /**
   * Nothing moved: the null queue.
   */
  FULLBORE_PATH_NULL = 32,
  /**
   * NVMe passthrough over io_uring, registered buffer.
   */
  FULLBORE_PATH_URING_CMD_FIXED = 64,
  /**
   * NVMe passthrough over io_uring, memory not registered.
   */
  FULLBORE_PATH_URING_CMD = 128,
  /**
   * NVMe passthrough over io_uring, through lane scratch and a copy.
   */
  FULLBORE_PATH_URING_CMD_SCRATCH = 256,
  /**
   * Copied by the CPU from or to mapped memory.
   */
  FULLBORE_PATH_COPY = 512,
  /**
   * Between a target and GPU memory through pinned host memory; the path between that and the target is beside it.
   */
  FULLBORE_PATH_PINNED_BOUNCE = 1024,
  /**
   * Copied by the GPU out of mapped memory that is registered with its driver.
   */
  FULLBORE_PATH_DAX_TO_GPU = 2048,
  /**
   * Between storage and GPU memory by cuFile.
   */
  FULLBORE_PATH_CUFILE = 4096,
  /**
   * By cuFile's compatibility mode.
   */
  FULLBORE_PATH_CUFILE_COMPAT = 8192,
} fullbore_path;

/**
 * What a transfer does.
 */
typedef enum fullbore_op {
  /**
   * From the target into memory.
   */
  FULLBORE_OP_READ = 1,
  /**
   * From memory to the target.
   */
  FULLBORE_OP_WRITE = 2,
} fullbore_op;

/**
 * Four classes of transfers. A lower one gets at least one command in sixteen while higher ones have work.
 */
typedef enum fullbore_priority {
  /**
   * The default.
   */
  FULLBORE_PRIORITY_NORMAL = 0,
  /**
   * Before all others.
   */
  FULLBORE_PRIORITY_URGENT = 1,
  /**
   * Before normal ones.
   */
  FULLBORE_PRIORITY_HIGH = 2,
  /**
   * When nobody else wants to.
   */
  FULLBORE_PRIORITY_LOW = 3,
} fullbore_priority;

/**
 * Bits of `fullbore_transfer.flags`.
 */
typedef enum fullbore_transfer_flag {
  /**
   * A write is completed only after the target was flushed behind it.
   */
  FULLBORE_TRANSFER_DURABLE = 1,
} fullbore_transfer_flag;

/**
 * Bits of `fullbore_engine_options.flags`.
 */
typedef enum fullbore_engine_flag {
  /**
   * Over the null queue: commands complete at once, nothing moves. It measures the engine's own cost.
   */
  FULLBORE_ENGINE_NULL = 1,
  /**
   * Lanes do not clone registered buffers, also where the kernel can.
   */
  FULLBORE_ENGINE_NO_CLONE = 2,
  /**
   * A GPU's lane asks for the ends of copies again and again instead of sleeping: a whole CPU while there are some.
   */
  FULLBORE_ENGINE_GPU_POLLING = 4,
} fullbore_engine_flag;

/**
 * Values of `fullbore_engine_options.lanes` beside a number (1 to 64).
 */
typedef enum fullbore_lanes {
  /**
   * For files as many as there are CPUs at hand, for a drive as many as it has hardware queues, at most 8 each.
   */
  FULLBORE_LANES_AUTO = 0,
  /**
   * One for each hardware queue of a drive.
   */
  FULLBORE_LANES_PER_QUEUE = 65537,
  /**
   * One for each NUMA node.
   */
  FULLBORE_LANES_PER_NUMA = 65538,
} fullbore_lanes;

/**
 * Values of `fullbore_engine_options.cufile`.
 */
typedef enum fullbore_cufile {
  /**
   * Used where it is a direct path: the default.
   */
  FULLBORE_CUFILE_WHERE_DIRECT = 0,
  /**
   * Never.
   */
  FULLBORE_CUFILE_NEVER = 1,
  /**
   * Also in its compatibility mode, of transfers that demand it.
   */
  FULLBORE_CUFILE_ASKED = 2,
} fullbore_cufile;

/**
 * Bits of `fullbore_open_options.flags`.
 */
typedef enum fullbore_open_flag {
  /**
   * For reading and writing; without, for reading.
   */
  FULLBORE_OPEN_WRITE = 1,
  /**
   * Makes the file if it is not there, with at least `create_bytes` bytes, preallocated. Implies WRITE.
   */
  FULLBORE_OPEN_CREATE = 2,
  /**
   * Through the page cache instead of O_DIRECT.
   */
  FULLBORE_OPEN_BUFFERED = 4,
  /**
   * Maps a file and has the CPU (or a GPU) copy from it. It must not be cut short while it is open: see GUARD_SIGBUS.
   */
  FULLBORE_OPEN_MAPPED = 8,
  /**
   * The drive's lanes poll for completions (NVMe character devices, driver loaded with nvme.poll_queues).
   */
  FULLBORE_OPEN_POLLED = 16,
  /**
   * A SIGBUS in the engine's own copies out of a mapping becomes an error of the transfer. Installs a handler for the
   * whole process, for ever, which passes every other SIGBUS on.
   */
  FULLBORE_OPEN_GUARD_SIGBUS = 32,
  /**
   * Writes to a drive although it is mounted, held or has partitions.
   */
  FULLBORE_OPEN_FORCE = 64,
} fullbore_open_flag;

/**
 * Bits of `fullbore_alloc_options.flags`.
 */
typedef enum fullbore_alloc_flag {
  /**
   * No huge pages.
   */
  FULLBORE_ALLOC_NO_HUGE = 1,
  /**
   * On the NUMA node `node`.
   */
  FULLBORE_ALLOC_ON_NODE = 2,
} fullbore_alloc_flag;

/**
 * Bits of `fullbore_target_info.flags`.
 */
typedef enum fullbore_target_flag {
  /**
   * Opened with O_DIRECT, or reached by NVMe passthrough.
   */
  FULLBORE_TARGET_DIRECT = 1,
  /**
   * Mapped memory: a DAX device, or a file opened with MAPPED.
   */
  FULLBORE_TARGET_MAPPED = 2,
  /**
   * A NVMe drive by its character device: the fields from `name_space` on are of it.
   */
  FULLBORE_TARGET_DRIVE = 4,
  /**
   * The drive has a write cache: what is written is durable only after a flush.
   */
  FULLBORE_TARGET_WRITE_CACHE = 8,
} fullbore_target_flag;

/**
 * Bits of `fullbore_region_info.flags`.
 */
typedef enum fullbore_region_flag {
  /**
   * Commands over it use registered buffers of the rings; `note` says why not where it is not set.
   */
  FULLBORE_REGION_REGISTERED = 1,
  /**
   * Its memory is on GPU `gpu`: `ptr` is a device pointer.
   */
  FULLBORE_REGION_GPU = 2,
} fullbore_region_flag;

/**
 * How loud the log is.
 */
typedef enum fullbore_log_level {
  /**
   * Something is lost or broken.
   */
  FULLBORE_LOG_ERROR = 1,
  /**
   * Something is worse than it could be.
   */
  FULLBORE_LOG_WARN = 2,
  /**
   * What was found and chosen.
   */
  FULLBORE_LOG_INFO = 3,
  /**
   * What a developer wants to know.
   */
  FULLBORE_LOG_DEBUG = 4,
} fullbore_log_level;

/**
 * What `fullbore_feature` is asked for.
 */
typedef enum fullbore_feature_name {
  /**
   * The kernel gives this process an io_uring; without, no engine but one over the null queue can be made.
   */
  FULLBORE_FEATURE_IO_URING = 1,
  /**
   * A CUDA driver with at least one GPU was found.
   */
  FULLBORE_FEATURE_CUDA = 2,
  /**
   * The library was built with hwloc.
   */
  FULLBORE_FEATURE_HWLOC = 3,
} fullbore_feature_name;

/**
 * A caller's handle: submit on it, receive completions on it. One per thread: a call while another thread is in one is
 * refused with -EBUSY. (`fullbore_cancel` may be called by any thread.)
 */
typedef struct fullbore_client fullbore_client;

/**
 * Owns lanes, targets and regions. Any number of threads may use it at once.
 */
typedef struct fullbore_engine fullbore_engine;

/**
 * Points in a transfer, each behind an extent, that its submitter hears of before the transfer ends: one has landed when
 * the bytes of every extent up to and with it are where they belong. They belong to one transfer under way at a time, and may
 * then be given to the next. Any number of threads may use them at once.
 */
typedef struct fullbore_marks fullbore_marks;

/**
 * Memory that the engine may move to and from. Any number of threads may use it at once, but for `fullbore_region_free`.
 */
typedef struct fullbore_region fullbore_region;

/**
 * Where bytes live. Any number of threads may use it at once.
 */
typedef struct fullbore_target fullbore_target;

/**
 * Details of a failure.
 */
typedef struct fullbore_error {
  /**
   * A `fullbore_domain`: what `code` is.
   */
  uint32_t domain;
  /**
   * Errno (positive), NVMe status, CUresult, CUfileOpError or kind, by `domain`.
   */
  int32_t code;
  /**
   * A `fullbore_kind`.
   */
  uint32_t kind;
  /**
   * The extent concerned, counted from 0, or FULLBORE_NO_EXTENT. Of `fullbore_submit` it is an extent of the first
   * transfer that was not taken.
   */
  uint32_t extent;
  /**
   * First byte of the range concerned, in bytes; 0 if none is.
   */
  uint64_t offset;
  /**
   * Length of the range concerned, in bytes; 0 if none is.
   */
  uint64_t length;
  /**
   * One line, UTF-8: what was attempted, the likely cause, the remedy. Never NULL. Who owns it: see where the struct
   * came from.
   */
  const char *message;
  /**
   * 0.
   */
  uint64_t reserved[2];
} fullbore_error;

/**
 * How to make an engine. All zero but `size` and `version`: the defaults.
 */
typedef struct fullbore_engine_options {
  /**
   * sizeof(struct fullbore_engine_options).
   */
  uint32_t size;
  /**
   * FULLBORE_ABI.
   */
  uint32_t version;
  /**
   * Bits of `fullbore_engine_flag`.
   */
  uint32_t flags;
  /**
   * Most bytes of a command; 0: 128 KiB, and 512 KiB to a file that threads of the kernel serve (tmpfs). Whole pages of
   * 4096, 4 KiB to 16 MiB.
   */
  uint32_t command_size;
  /**
   * Most commands of a lane in flight; 0: 32. 1 to 4096.
   */
  uint32_t lane_depth;
  /**
   * How many lanes: 1 to 64, or one of `fullbore_lanes` (0: FULLBORE_LANES_AUTO).
   */
  uint32_t lanes;
  /**
   * How many processes use the same drives in this way; 0: 1. Up to 1024.
   */
  uint32_t processes;
  /**
   * Most transfers under way or not yet fetched; 0: 1024. Up to 65 536.
   */
  uint32_t max_transfers;
  /**
   * Bytes that a lane claims at once; 0: 1 MiB, or the command size if that is larger. Whole pages of 4096, from the
   * command size to 1 GiB.
   */
  uint64_t unit_size;
  /**
   * ns that a transfer may take unless it says otherwise; 0: 30 s. FULLBORE_FOREVER: none.
   */
  uint64_t deadline_ns;
  /**
   * ns after its deadline that a transfer may drain before it is abandoned; 0: 5 s. At most an hour.
   */
  uint64_t grace_ns;
  /**
   * Bytes of a pinned bounce buffer; 0: 8 MiB. Whole pages of 4096, 1 MiB to 256 MiB.
   */
  uint64_t bounce_bytes;
  /**
   * Bounce buffers of a GPU; 0: 8. 2 to 32.
   */
  uint32_t bounce_buffers;
  /**
   * A `fullbore_cufile`.
   */
  uint32_t cufile;
  /**
   * Most bytes that wait in a GPU's copy engine, each way; 0: 32 MiB. At least 1 MiB.
   */
  uint64_t gpu_outstanding;
  /**
   * 0.
   */
  uint64_t reserved[6];
} fullbore_engine_options;

/**
 * How to open a target. All zero but `size`: for reading, O_DIRECT.
 */
typedef struct fullbore_open_options {
  /**
   * sizeof(struct fullbore_open_options).
   */
  uint32_t size;
  /**
   * Bits of `fullbore_open_flag`.
   */
  uint32_t flags;
  /**
   * With FULLBORE_OPEN_CREATE: bytes that the file has at least.
   */
  uint64_t create_bytes;
  /**
   * 0.
   */
  uint64_t reserved[4];
} fullbore_open_options;

/**
 * What a target is. Set `size` before the call.
 */
typedef struct fullbore_target_info {
  /**
   * In: sizeof(struct fullbore_target_info). Out: how many bytes of it the library knows.
   */
  uint32_t size;
  /**
   * Bits of `fullbore_target_flag`.
   */
  uint32_t flags;
  /**
   * Its size, in bytes.
   */
  uint64_t bytes;
  /**
   * Writes must be whole blocks of this many bytes; reads that are go straight.
   */
  uint32_t block_size;
  /**
   * Memory at multiples of this many bytes is reached without a copy.
   */
  uint32_t memory_alignment;
  /**
   * Most bytes of a command.
   */
  uint32_t max_bytes;
  /**
   * Most segments of a command.
   */
  uint32_t max_segments;
  /**
   * Most blocks of a command.
   */
  uint32_t max_blocks;
  /**
   * Lanes that serve it.
   */
  uint32_t lanes;
  /**
   * The namespace's number on its drive.
   */
  uint32_t name_space;
  /**
   * The drive's NUMA node; -1: none, or one alone.
   */
  int32_t node;
  /**
   * The drive's model. This and the others end in a NUL, and are cut if too long.
   */
  char model[48];
  /**
   * The drive's serial number.
   */
  char serial[32];
  /**
   * The PCI address of its first controller, for `fullbore_region_map_peer`.
   */
  char address[32];
  /**
   * Its block device, such as nvme0n1.
   */
  char block_name[48];
  /**
   * 0.
   */
  uint64_t reserved[4];
} fullbore_target_info;

/**
 * The path that aligned transfers between a target and a region take, and why. Set `size` before the call.
 */
typedef struct fullbore_path_info {
  /**
   * In: sizeof(struct fullbore_path_info). Out: how many bytes of it the library knows.
   */
  uint32_t size;
  /**
   * A `fullbore_path`.
   */
  uint32_t path;
  /**
   * Why this one, and no better; ends in a NUL, and is cut if too long.
   */
  char reason[448];
  /**
   * 0.
   */
  uint64_t reserved[4];
} fullbore_path_info;

/**
 * How to allocate host memory. All zero but `size`: huge pages where they can be had, on any node.
 */
typedef struct fullbore_alloc_options {
  /**
   * sizeof(struct fullbore_alloc_options).
   */
  uint32_t size;
  /**
   * Bits of `fullbore_alloc_flag`.
   */
  uint32_t flags;
  /**
   * With FULLBORE_ALLOC_ON_NODE: the NUMA node.
   */
  uint32_t node;
  /**
   * 0.
   */
  uint32_t padding;
  /**
   * 0.
   */
  uint64_t reserved[3];
} fullbore_alloc_options;

/**
 * What a region is. Set `size` before the call.
 */
typedef struct fullbore_region_info {
  /**
   * In: sizeof(struct fullbore_region_info). Out: how many bytes of it the library knows.
   */
  uint32_t size;
  /**
   * Bits of `fullbore_region_flag`.
   */
  uint32_t flags;
  /**
   * Its first byte.
   */
  void *ptr;
  /**
   * Its length, in bytes.
   */
  uint64_t len;
  /**
   * The GPU that it is on, as CUDA counts; -1: host or peer memory.
   */
  int32_t gpu;
  /**
   * 0.
   */
  uint32_t padding;
  /**
   * Why it is not registered, and the remedy; ends in a NUL, and is cut if too long.
   */
  char note[256];
  /**
   * 0.
   */
  uint64_t reserved[4];
} fullbore_region_info;

/**
 * What came of one extent. Written by the library before the completion is there; of an abandoned transfer (-EOWNERDEAD)
 * it says nothing.
 */
typedef struct fullbore_outcome {
  /**
   * Bytes that were moved: the sum of the commands that succeeded, not a prefix. All of them, if `error` is 0.
   */
  uint64_t bytes;
  /**
   * 0, or the errno (positive) of the first failure in this extent; ECANCELED of what was not moved because the transfer
   * was cancelled, or the engine destroyed.
   */
  int32_t error;
  /**
   * The library's while the transfer is under way.
   */
  uint32_t reserved;
} fullbore_outcome;

/**
 * A byte range of the target and as much memory.
 */
typedef struct fullbore_extent {
  /**
   * First byte on the target.
   */
  uint64_t offset;
  /**
   * Memory to move to or from: a host pointer, or a device pointer inside a region over GPU memory. Inside a region
   * it goes by the region's registration; outside of all, unregistered, as the completion's paths say. It must be
   * mapped, for writing where it is read into: the CPU copies some paths' bytes (FULLBORE_PATH_SCRATCH), and faults. All
   * extents of a transfer are in memory of one GPU, or of the host. GPU memory must lie in a region: what lies in none is
   * refused by an engine that has regions of GPU memory, and taken for the host's, and followed there, by one that has none.
   */
  void *ptr;
  /**
   * Bytes, at least 1.
   */
  uint64_t len;
  /**
   * What came of it.
   */
  struct fullbore_outcome outcome;
} fullbore_extent;

/**
 * A read or a write of any number of extents of one target.
 */
typedef struct fullbore_transfer {
  /**
   * sizeof(struct fullbore_transfer); of every element of an array.
   */
  uint32_t size;
  /**
   * A `fullbore_op`.
   */
  uint32_t op;
  /**
   * The target, of the client's engine.
   */
  const struct fullbore_target *target;
  /**
   * The extents, an array of `count`, aligned to 8. The array and the memory it names belong to the library until the
   * completion.
   */
  struct fullbore_extent *extents;
  /**
   * Extents: 1 to 16 777 216.
   */
  uint64_t count;
  /**
   * Comes back in the completion.
   */
  uint64_t tag;
  /**
   * A number that tracers see in the high half of each command's user_data.
   */
  uint32_t trace_id;
  /**
   * A `fullbore_priority`.
   */
  uint32_t priority;
  /**
   * Bits of `fullbore_transfer_flag`.
   */
  uint32_t flags;
  /**
   * A `fullbore_path` that is demanded: where another would run, submission is an error that says why.
   */
  uint32_t require;
  /**
   * ns from submission that it may take; 0: the engine's. FULLBORE_FOREVER: none.
   */
  uint64_t deadline_ns;
  /**
   * Marks that land while it is under way, or NULL.
   */
  const struct fullbore_marks *marks;
  /**
   * Out: names it, for `fullbore_cancel`; never 0. The number is the engine's: any client of the engine can cancel it.
   */
  uint64_t id;
  /**
   * 0.
   */
  uint64_t reserved[4];
} fullbore_transfer;

/**
 * What came of a transfer or a flush.
 */
typedef struct fullbore_completion {
  /**
   * The transfer's.
   */
  uint64_t tag;
  /**
   * Bytes moved, over all extents.
   */
  uint64_t bytes;
  /**
   * ns from submission to the first command.
   */
  uint64_t queued_ns;
  /**
   * ns from submission to the last result.
   */
  uint64_t total_ns;
  /**
   * 0: all of it was moved. Else a negative errno; `error` has the first failure.
   */
  int32_t result;
  /**
   * Bits of `fullbore_path`: the paths that were taken.
   */
  uint32_t paths;
  /**
   * Details where `result` is not 0. The message is the client's, until its next poll, wait or destroy.
   */
  struct fullbore_error error;
  /**
   * ns in which nothing of it was under way: `queued_ns`, and of GPU memory what it waited later for a bounce buffer, or for
   * room in the copy engine.
   */
  uint64_t waited_ns;
  /**
   * Of GPU memory: ns in which copies to or from the GPU were under way, and nothing of it was with the target. What
   * `waited_ns` and `copied_ns` leave of `total_ns` is the target's.
   */
  uint64_t copied_ns;
  /**
   * 0.
   */
  uint64_t reserved[2];
} fullbore_completion;

/**
 * What an engine counted since it was made, over all lanes. Set `size` before the call. (Each lane by itself:
 * `fullbore_stats_json`.)
 */
typedef struct fullbore_stats {
  /**
   * In: sizeof(struct fullbore_stats). Out: how many bytes of it the library knows.
   */
  uint32_t size;
  /**
   * Lanes.
   */
  uint32_t lanes;
  /**
   * Of those, how many stand still: no step for two periods of the watchdog while they had work.
   */
  uint32_t lanes_stalled;
  /**
   * Of those, how many died.
   */
  uint32_t lanes_dead;
  /**
   * Threads of the kernel that work for its rings (iou-wrk).
   */
  uint32_t kernel_workers;
  /**
   * Whether lanes clone the registrations (kernel 6.13): 1, or 0.
   */
  uint32_t clone_buffers;
  /**
   * Transfers under way, or completed and not yet fetched.
   */
  uint64_t active;
  /**
   * Bytes under abandoned transfers: late results may still land in them.
   */
  uint64_t quarantined_bytes;
  /**
   * Bytes that registrations charge to RLIMIT_MEMLOCK.
   */
  uint64_t memlock_bytes;
  /**
   * Commands that ended.
   */
  uint64_t commands;
  /**
   * Bytes moved by those that succeeded.
   */
  uint64_t bytes;
  /**
   * Calls of io_uring_enter.
   */
  uint64_t enters;
  /**
   * Of those, how many could wait.
   */
  uint64_t waits;
  /**
   * Commands asked again, and enters refused, because the kernel was busy.
   */
  uint64_t retries;
  /**
   * Short results that were continued.
   */
  uint64_t shorts;
  /**
   * Answers to no command of ours (a defect, if it is not 0).
   */
  uint64_t stale;
  /**
   * Commands in flight now.
   */
  uint64_t in_flight;
  /**
   * Most commands in flight, of each lane, added up.
   */
  uint64_t max_in_flight;
  /**
   * 0.
   */
  uint64_t reserved[8];
} fullbore_stats;

/**
 * Called for each line of the log, by any thread, several at once: those of the library, and those that are in a call of
 * it. It must not block, must not call the library, and must return (no longjmp, no C++ exception out of it). `source` is
 * the part of the library, `message` one line; both are UTF-8 and valid during the call.
 */
typedef void (*fullbore_log_fn)(uint32_t level, const char *source, const char *message, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Version of the library that runs: major << 16 | minor << 8 | patch. Any thread, any time.
 */
uint32_t fullbore_version(void);

/**
 * The same as text, such as "0.1.0"; a constant. Any thread, any time.
 */
const char *fullbore_version_string(void);

/**
 * Whether this library, on this machine, has a `fullbore_feature_name`: 1, or 0 and `fullbore_last_error` says why not;
 * -EINVAL: no such feature. Any thread, any time.
 */
int fullbore_feature(uint32_t feature);

/**
 * Details of the calling thread's last call that failed. Never NULL; before the first failure its domain is
 * FULLBORE_DOMAIN_NONE. It and its message are the thread's, until its next call that fails.
 */
const struct fullbore_error *fullbore_last_error(void);

/**
 * The name of a `fullbore_kind`, such as "out of bounds"; a constant, "unknown" for a number that is none. Any thread,
 * any time.
 */
const char *fullbore_kind_name(uint32_t kind);

/**
 * The name of a `fullbore_path`, such as "uring-cmd fixed"; a constant, "unknown" for what is none, or several. Any
 * thread, any time.
 */
const char *fullbore_path_name(uint32_t path);

/**
 * Makes an engine and starts its lanes. `options`: NULL for the defaults. The engine is the caller's, to destroy.
 *
 * 0, or: -EINVAL (options), -EOPNOTSUPP, -EACCES (the kernel gives no io_uring: the message says what forbids it),
 * -ENOMEM, -EMFILE (limits). `*out` is NULL then. Any thread.
 */
int fullbore_engine_create(const struct fullbore_engine_options *options, struct fullbore_engine **out);

/**
 * Stops all transfers, drains them within the grace and ends the lanes; every transfer still gets its completion. NULL is
 * nothing. Targets, regions, clients and marks of it live on, to be destroyed before or after; calls over them answer
 * -EBADF then. No other thread may be in a call with this engine. In a forked child it only frees the child's copy.
 */
int fullbore_engine_destroy(struct fullbore_engine *engine);

/**
 * How many GPUs this process sees (CUDA_VISIBLE_DEVICES); -EOPNOTSUPP where there is no driver or no GPU. Any thread.
 */
int64_t fullbore_gpus(const struct fullbore_engine *engine);

/**
 * Opens a file, a block device, a NVMe namespace by its character device (/dev/ng0n1) or a DAX device (/dev/dax0.0).
 * `path`: ends in a NUL; `options`: NULL for reading. The target is the caller's, to destroy. The first block of a NVMe
 * namespace is read, which takes up to 40 s of a drive that hangs.
 *
 * 0, or what the kernel answered (-ENOENT, -EACCES, ...), -EINVAL, -EBUSY (writing to what is mounted or held),
 * -EINVAL with kind FULLBORE_KIND_UNSUPPORTED (no O_DIRECT there). Any thread.
 */
int fullbore_target_open(const struct fullbore_engine *engine,
                         const char *path,
                         const struct fullbore_open_options *options,
                         struct fullbore_target **out);

/**
 * Opens `count` paths, alike, as one target: `chunk` bytes (whole blocks, at most 1 GiB) go to each in turn. All must be of
 * one kind and geometry, and on at most eight drives. The target is the caller's, to destroy.
 *
 * As `fullbore_target_open`; -EINVAL: members of different kinds or geometries, one twice, or more than 64. Any thread.
 */
int fullbore_target_open_stripe(const struct fullbore_engine *engine,
                                const char *const *paths,
                                size_t count,
                                uint64_t chunk,
                                const struct fullbore_open_options *options,
                                struct fullbore_target **out);

/**
 * A target of `bytes` bytes for an engine over the null queue (FULLBORE_ENGINE_NULL). It is the caller's, to destroy.
 *
 * 0, -EINVAL, -EOPNOTSUPP: the engine is not over the null queue, -EBADF: it was destroyed. Any thread.
 */
int fullbore_target_open_null(const struct fullbore_engine *engine, uint64_t bytes, struct fullbore_target **out);

/**
 * What a target is. `info->size` is set before. 0 or -EINVAL. Any thread.
 */
int fullbore_target_get_info(const struct fullbore_target *target, struct fullbore_target_info *info);

/**
 * Makes a file `bytes` bytes long; new blocks are preallocated. 0, -EINVAL: not a file, -EROFS: opened for reading, or what
 * the kernel answered (-ENOSPC, ...). Any thread.
 */
int fullbore_target_set_size(const struct fullbore_target *target,
                             uint64_t bytes);

/**
 * Refuses transfers from now on (-EBADF); those under way go on. 0 or -EINVAL. Any thread.
 */
int fullbore_target_close(const struct fullbore_target *target);

/**
 * Frees the handle; transfers under way go on, and what was opened is closed behind the last one. NULL is nothing. No other
 * thread may be in a call with it.
 */
int fullbore_target_destroy(struct fullbore_target *target);

/**
 * The path that aligned transfers between a target and a region take, and why. `region`: NULL for memory of no region;
 * `info->size` is set before. Of GPU memory it is the path of reads that are not of small pieces. Any thread.
 *
 * 0; -EINVAL: of two engines.
 */
int fullbore_path_query(const struct fullbore_engine *engine,
                        const struct fullbore_target *target,
                        const struct fullbore_region *region,
                        struct fullbore_path_info *info);

/**
 * Allocates `bytes` bytes of page-aligned host memory, registered with the rings. `options`: NULL for huge pages where they
 * can be had. The region is the caller's, to free; so is the memory, with it.
 *
 * 0, -EINVAL, -ENOMEM. Any thread.
 */
int fullbore_region_alloc(const struct fullbore_engine *engine,
                          uint64_t bytes,
                          const struct fullbore_alloc_options *options,
                          struct fullbore_region **out);

/**
 * Registers `len` bytes of the caller's memory at `ptr`. Until `fullbore_region_free` has answered 0 it must stay mapped,
 * and not be remapped or freed; of regions that overlap, until all are gone. While a transfer over it is under way nobody else
 * may access its bytes.
 *
 * 0 (also where the kernel refuses to register it, see `fullbore_region_info.note`: commands go unregistered then),
 * -EINVAL. Any thread.
 */
int fullbore_region_register_host(const struct fullbore_engine *engine,
                                  void *ptr,
                                  uint64_t len,
                                  struct fullbore_region **out);

/**
 * Registers `len` bytes of the caller's GPU memory at the device pointer `ptr` (cudaMalloc, a tensor's data_ptr()). Its GPU
 * is found from the pointer, and all of it must lie in one allocation. The first one of a GPU makes its lane and its bounce
 * buffers, which takes some 10 ms. Until `fullbore_region_free` has answered 0 it must not
 * be freed, nor its context destroyed. While a transfer over it is under way nobody else, kernels included, may access it;
 * kernels that used it before must have ended.
 *
 * 0; -EOPNOTSUPP: no CUDA driver or GPU; -EINVAL, -ERANGE: not GPU memory, or not all of it; -EIO with domain CUDA. Any
 * thread.
 */
int fullbore_region_register_cuda(const struct fullbore_engine *engine,
                                  uint64_t ptr,
                                  uint64_t len,
                                  struct fullbore_region **out);

/**
 * Allocates `bytes` bytes on GPU `gpu`, as CUDA counts (within CUDA_VISIBLE_DEVICES). What is in it is not defined. It is
 * freed with the region.
 *
 * 0; -ENOENT: no such GPU; -ENOMEM; else as `fullbore_region_register_cuda`. Any thread.
 */
int fullbore_region_alloc_gpu(const struct fullbore_engine *engine,
                              uint32_t gpu,
                              uint64_t bytes,
                              struct fullbore_region **out);

/**
 * Maps `bytes` bytes of PCI peer memory: memory that the device at `address` ("0000:01:00.0") publishes, such as a NVMe
 * drive's controller memory buffer (kernel 6.2; root). It is never registered with the rings. Where one device does not
 * reach another, transfers fail, and say so.
 *
 * 0, -EINVAL, -EOPNOTSUPP: the device publishes none, -ENOMEM. Any thread.
 */
int fullbore_region_map_peer(const struct fullbore_engine *engine,
                             const char *address,
                             uint64_t bytes,
                             struct fullbore_region **out);

/**
 * What a region is. `info->size` is set before. 0 or -EINVAL. Any thread.
 */
int fullbore_region_get_info(const struct fullbore_region *region, struct fullbore_region_info *info);

/**
 * Its first byte (of GPU memory a device pointer, which the CPU must not follow); NULL if `region` is. Any thread.
 */
void *fullbore_region_ptr(const struct fullbore_region *region);

/**
 * Copies `len` bytes at byte `from` of a region of GPU memory to host memory `to`, and waits for that: for checks, not for
 * speed. Any thread.
 *
 * 0, -EINVAL, -ERANGE, -EBUSY: another such call has the bytes; what the driver answers.
 */
int fullbore_region_copy_out(const struct fullbore_region *region,
                             uint64_t from,
                             void *to,
                             uint64_t len);

/**
 * Copies `len` bytes at `from`, host memory, to byte `to` of a region of GPU memory, and waits for that; see
 * `fullbore_region_copy_out`.
 */
int fullbore_region_copy_in(const struct fullbore_region *region, uint64_t to, const void *from, uint64_t len);

/**
 * Exports GPU memory as a dma-buf: a descriptor that is the caller's, to close. Its address and length must be whole pages
 * (4096). Any thread.
 *
 * The descriptor, or -EINVAL, or -EOPNOTSUPP: not GPU memory, or the driver exports none.
 */
int fullbore_region_export_dma_buf(const struct fullbore_region *region);

/**
 * Frees a region: takes it out of every ring, and gives back memory that was allocated. NULL is nothing. What is in flight
 * over it makes this fail, unless it ends within `drain_ns` ns (0: it is not waited for; FULLBORE_FOREVER: behind an abandoned
 * transfer that may be for ever); submit nothing over it meanwhile. Lanes that do not answer are waited for 5 s more. No
 * other thread may be in a call with this region.
 *
 * 0: it is gone, and memory that was registered may be freed. Else the region stays as it is, its memory must stay too, and
 * this is to be called again: -EBUSY: transfers are in flight; -EINPROGRESS: late results of an abandoned one may still land
 * in it, or a lane does not answer; -ECHILD: this process forked from the one that has it.
 */
int fullbore_region_free(struct fullbore_region *region,
                         uint64_t drain_ns);

/**
 * Makes a client. It is the caller's, to destroy. 0, -EBADF: the engine was destroyed, -ECHILD. Any thread.
 */
int fullbore_client_create(const struct fullbore_engine *engine, struct fullbore_client **out);

/**
 * Frees a client. Transfers under way go on, and their memory belongs to the library until they end: see
 * `fullbore_region_free`, which waits for them; their completions are lost. NULL is nothing. -EBUSY: another thread is in
 * a call with it.
 */
int fullbore_client_destroy(struct fullbore_client *client);

/**
 * Submits `n` transfers, in order. Never blocks. Everything about a transfer is checked before any of it is issued; its
 * completion comes through `fullbore_poll` or `fullbore_wait`, exactly once, and each extent's outcome is written before.
 * Until then its extents, and the memory they name, belong to the library. (An abandoned one's, -EOWNERDEAD, until
 * `fullbore_region_free` of their regions answers 0; memory in no region for ever.) The transfers themselves may go when this
 * returns.
 *
 * How many were taken, the first ones: less than `n` when the next was refused, and then `fullbore_last_error` says why. If
 * the first was, a negative errno: -EINVAL, -ERANGE, -EROFS, -EBADF, -EOPNOTSUPP (demanded path), -EAGAIN: the engine's
 * `max_transfers` are under way, fetch a completion first. -EBUSY: another thread is in a call with the client, or the
 * marks belong to a transfer under way. One thread at a time.
 */
int64_t fullbore_submit(struct fullbore_client *client,
                        struct fullbore_transfer *transfers,
                        size_t n);

/**
 * Makes everything durable that was written to `target` and completed before. Its completion comes as a transfer's does,
 * with `tag`, whose low half is its trace id. Its deadline is the engine's. `id`: out, for `fullbore_cancel`, or NULL.
 *
 * 0, or as `fullbore_submit`. One thread at a time.
 */
int fullbore_flush(struct fullbore_client *client,
                   const struct fullbore_target *target,
                   uint64_t tag,
                   uint64_t *id);

/**
 * Fetches at most `most` completions that are there. No system call, but for the descriptor's (`fullbore_client_fd`).
 *
 * How many were written to `out`; -EINVAL, -EBUSY, -ECHILD. One thread at a time.
 */
int64_t fullbore_poll(struct fullbore_client *client, struct fullbore_completion *out, size_t most);

/**
 * Waits until at least `least` completions are there, or `timeout_ns` ns are over (FULLBORE_FOREVER: the transfers' own
 * deadlines end the wait; then it waits for no more than are under way on this client, and with none it is -EINVAL), and
 * fetches at most `most` of them. `least` is at most `most`.
 *
 * How many were written to `out`: less than `least` when the time was over. -EINVAL, -EBUSY, -ECHILD. One
 * thread at a time.
 */
int64_t fullbore_wait(struct fullbore_client *client,
                      size_t least,
                      size_t most,
                      uint64_t timeout_ns,
                      struct fullbore_completion *out);

/**
 * Stops issuing the transfer `id` and drains it; its one completion still comes. Any thread, also while another is in a call
 * with the client, but not once `fullbore_client_destroy` was called.
 *
 * 1; 0: it is over already, or there is none of that number; -EINVAL, -ECHILD.
 */
int fullbore_cancel(const struct fullbore_client *client,
                    uint64_t id);

/**
 * A descriptor that is readable (poll, epoll: level-triggered) while completions are there to be fetched. It goes down when
 * `fullbore_poll` or `fullbore_wait` has found nothing more: fetch until they give less than `most`; now and then it is up
 * once for nothing. It is the client's: wait for it, but neither read nor close it.
 *
 * The descriptor, or -EMFILE, -EBUSY, -ECHILD. One thread at a time.
 */
int fullbore_client_fd(struct fullbore_client *client);

/**
 * Makes `count` marks: `after` has the numbers of the extents they lie behind, counted from 0, ascending, none twice. The
 * marks are the caller's, to destroy. 0, -EINVAL. Any thread.
 */
int fullbore_marks_create(const uint32_t *after,
                          size_t count,
                          struct fullbore_marks **out);

/**
 * Frees marks; a transfer that has them goes on. 0; NULL is nothing. No other thread may be in a call with them.
 */
int fullbore_marks_destroy(struct fullbore_marks *marks);

/**
 * How many have landed, in order, of the transfer under way or of the last one. Their descriptor goes down: ask
 * `fullbore_marks_ended` behind this call, not before it, or an end between the two goes unheard. -EINVAL, -ECHILD. Any
 * thread.
 */
int64_t fullbore_marks_landed(const struct fullbore_marks *marks);

/**
 * Whether the transfer that they were given to last is over, 1, or not, 0: what has not landed then does not.
 * -EINVAL, -ECHILD. Any thread.
 */
int fullbore_marks_ended(const struct fullbore_marks *marks);

/**
 * Waits at most `timeout_ns` ns until mark number `mark`, counted from 0, has landed. Submit first. Any thread.
 *
 * 0; -ETIMEDOUT; -ECANCELED: the transfer ended without it, and its completion says why; -EINVAL: no such mark;
 * -ECHILD.
 */
int fullbore_marks_wait(const struct fullbore_marks *marks, size_t mark, uint64_t timeout_ns);

/**
 * A descriptor that is readable (poll, epoll: level-triggered) from when a mark lands, or the transfer ends, until
 * `fullbore_marks_landed`. It is the marks': wait for it, but neither read nor close it. Any thread.
 *
 * The descriptor, or -EMFILE, -EINVAL, -ECHILD.
 */
int fullbore_marks_fd(const struct fullbore_marks *marks);

/**
 * Has what is queued on a CUDA stream from now on wait until mark number `mark` of the transfer under way has landed,
 * without the CPU. Call it after the transfer was submitted. `region`: memory of the GPU that the stream is on; `stream`: a
 * CUstream or cudaStream_t of its primary context. When the transfer ends without the mark the stream goes on all the same:
 * look at the completion before its results are used. Any thread.
 *
 * 0; -EINVAL: no such mark, or no GPU's memory; -EOPNOTSUPP: the driver has no such waits; -ENOMEM: 1024 sets of marks have
 * streams waiting.
 */
int fullbore_marks_stream_wait(const struct fullbore_marks *marks,
                               size_t mark,
                               const struct fullbore_region *region,
                               void *stream);

/**
 * What an engine counted since it was made. `stats->size` is set before. Any thread.
 *
 * 0, -EINVAL, -ECHILD.
 */
int fullbore_stats_get(const struct fullbore_engine *engine, struct fullbore_stats *stats);

/**
 * The same as JSON, of each lane by itself: an object in UTF-8 that ends in a NUL. As much of it as `room` bytes hold is
 * written to `text` (NULL: nothing). Any thread.
 *
 * "active", "quarantined_bytes", "clone_buffers" and "memlock_bytes" are as in `fullbore_stats`, and "lanes" has an object
 * for each lane: what it "serves" (null: files), its "queue", "depth", "cpus", "ring_flags", "alive", "stalled", the counts
 * of `fullbore_stats`, "bytes_by_path", "occupancy" (how many enters left 0, 1, ... commands in flight) and "command_ns"
 * ("count", "p50", "p99", "max"). Keys may come, and none goes while FULLBORE_ABI is 1.
 *
 * Bytes that all of it takes, without the NUL: it was cut if that is not less than `room`. -EINVAL, -ECHILD.
 */
int64_t fullbore_stats_json(const struct fullbore_engine *engine,
                            char *text,
                            size_t room);

/**
 * Has `log` called with each line of the log up to `level` (a `fullbore_log_level`), with `user`; NULL: nobody any more.
 * It is the whole process's, for every engine. When this returns the one before is called no more: it waits for calls that
 * are being made, so hold no lock here that the function takes. Any thread, but not from within the function itself.
 *
 * 0; -EINVAL: no such level; -EBUSY: the process has a subscriber of Rust's crate tracing already; -EDEADLK: called by
 * the function itself.
 */
int fullbore_log_set(fullbore_log_fn log,
                     uint32_t level,
                     void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FULLBORE_H */
