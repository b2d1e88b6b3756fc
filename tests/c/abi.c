/*
 * The binary interface of libfullbore as programs were compiled against it: every value, struct, field and call of
 * fullbore.h. Compiling it is the test (`.ci/header`: as C11 and as C++17). The numbers are written down here by hand, and
 * once more in src/capi/abi.rs: a change on either side is a change of the interface. What may change, and what is done
 * then, is in ARCHITECTURE.md, "The C interface".
 */
#include <fullbore.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <type_traits>
#define PINNED static_assert
#define IS(record, type, name) (std::is_same<decltype(record::name), type>::value)
#define IS_ARRAY(record, type, count, name) (std::is_same<decltype(record::name), type[count]>::value)
#else
#define PINNED _Static_assert
#define IS(record, type, name) _Generic(&((record *)NULL)->name, type *: 1, default: 0)
#define IS_ARRAY(record, type, count, name) _Generic(&((record *)NULL)->name, type(*)[count]: 1, default: 0)
#endif

#define VALUE(name, value) PINNED((name) == (value), #name " has changed")
#define STRUCT(record, bytes)                                             \
    PINNED(sizeof(record) == (bytes), "sizeof(" #record ") has changed"); \
    PINNED(sizeof(struct record) == sizeof(record), #record " is two types")
#define AT(record, at, name) PINNED(offsetof(record, name) == (at), #record "." #name " has moved")
#define FIELD(record, at, type, name) \
    AT(record, at, name);             \
    PINNED(IS(record, type, name), #record "." #name " is no " #type)
#define ARRAY(record, at, type, count, name) \
    AT(record, at, name);                    \
    PINNED(IS_ARRAY(record, type, count, name), #record "." #name " is no " #type "[" #count "]")

VALUE(FULLBORE_ABI, 1);
VALUE(FULLBORE_FOREVER, 0xffffffffffffffff);
VALUE(FULLBORE_NO_EXTENT, 0xffffffff);

VALUE(FULLBORE_DOMAIN_NONE, 0);
VALUE(FULLBORE_DOMAIN_ERRNO, 1);
VALUE(FULLBORE_DOMAIN_NVME, 2);
VALUE(FULLBORE_DOMAIN_CUDA, 3);
VALUE(FULLBORE_DOMAIN_CUFILE, 4);
VALUE(FULLBORE_DOMAIN_ENGINE, 5);

VALUE(FULLBORE_KIND_NONE, 0);
VALUE(FULLBORE_KIND_INVALID_INPUT, 1);
VALUE(FULLBORE_KIND_OUT_OF_BOUNDS, 2);
VALUE(FULLBORE_KIND_MISALIGNED, 3);
VALUE(FULLBORE_KIND_READ_ONLY, 4);
VALUE(FULLBORE_KIND_CLOSED, 5);
VALUE(FULLBORE_KIND_WRONG_ENGINE, 6);
VALUE(FULLBORE_KIND_OVERLAP, 7);
VALUE(FULLBORE_KIND_BUSY, 8);
VALUE(FULLBORE_KIND_NOT_FOUND, 9);
VALUE(FULLBORE_KIND_UNSUPPORTED, 10);
VALUE(FULLBORE_KIND_PERMISSION, 11);
VALUE(FULLBORE_KIND_RESOURCE, 12);
VALUE(FULLBORE_KIND_PATH_UNAVAILABLE, 13);
VALUE(FULLBORE_KIND_IN_USE, 14);
VALUE(FULLBORE_KIND_FORKED, 15);
VALUE(FULLBORE_KIND_IO, 16);
VALUE(FULLBORE_KIND_UNEXPECTED_EOF, 17);
VALUE(FULLBORE_KIND_TIMED_OUT, 18);
VALUE(FULLBORE_KIND_ABANDONED, 19);
VALUE(FULLBORE_KIND_CANCELLED, 20);
VALUE(FULLBORE_KIND_SHUTDOWN, 21);
VALUE(FULLBORE_KIND_LANE_FAILED, 22);
VALUE(FULLBORE_KIND_QUARANTINED, 23);
VALUE(FULLBORE_KIND_DEFECT, 24);

VALUE(FULLBORE_PATH_ANY, 0);
VALUE(FULLBORE_PATH_FIXED, 0x1);
VALUE(FULLBORE_PATH_PLAIN, 0x2);
VALUE(FULLBORE_PATH_SCRATCH, 0x4);
VALUE(FULLBORE_PATH_FIXED_BUFFERED, 0x8);
VALUE(FULLBORE_PATH_BUFFERED, 0x10);
VALUE(FULLBORE_PATH_NULL, 0x20);
VALUE(FULLBORE_PATH_URING_CMD_FIXED, 0x40);
VALUE(FULLBORE_PATH_URING_CMD, 0x80);
VALUE(FULLBORE_PATH_URING_CMD_SCRATCH, 0x100);
VALUE(FULLBORE_PATH_COPY, 0x200);
VALUE(FULLBORE_PATH_PINNED_BOUNCE, 0x400);
VALUE(FULLBORE_PATH_DAX_TO_GPU, 0x800);
VALUE(FULLBORE_PATH_CUFILE, 0x1000);
VALUE(FULLBORE_PATH_CUFILE_COMPAT, 0x2000);

VALUE(FULLBORE_OP_READ, 1);
VALUE(FULLBORE_OP_WRITE, 2);

VALUE(FULLBORE_PRIORITY_NORMAL, 0);
VALUE(FULLBORE_PRIORITY_URGENT, 1);
VALUE(FULLBORE_PRIORITY_HIGH, 2);
VALUE(FULLBORE_PRIORITY_LOW, 3);

VALUE(FULLBORE_TRANSFER_DURABLE, 0x1);

VALUE(FULLBORE_ENGINE_NULL, 0x1);
VALUE(FULLBORE_ENGINE_NO_CLONE, 0x2);
VALUE(FULLBORE_ENGINE_GPU_POLLING, 0x4);

VALUE(FULLBORE_LANES_AUTO, 0);
VALUE(FULLBORE_LANES_PER_QUEUE, 0x10001);
VALUE(FULLBORE_LANES_PER_NUMA, 0x10002);

VALUE(FULLBORE_CUFILE_WHERE_DIRECT, 0);
VALUE(FULLBORE_CUFILE_NEVER, 1);
VALUE(FULLBORE_CUFILE_ASKED, 2);

VALUE(FULLBORE_OPEN_WRITE, 0x1);
VALUE(FULLBORE_OPEN_CREATE, 0x2);
VALUE(FULLBORE_OPEN_BUFFERED, 0x4);
VALUE(FULLBORE_OPEN_MAPPED, 0x8);
VALUE(FULLBORE_OPEN_POLLED, 0x10);
VALUE(FULLBORE_OPEN_GUARD_SIGBUS, 0x20);
VALUE(FULLBORE_OPEN_FORCE, 0x40);

VALUE(FULLBORE_ALLOC_NO_HUGE, 0x1);
VALUE(FULLBORE_ALLOC_ON_NODE, 0x2);

VALUE(FULLBORE_TARGET_DIRECT, 0x1);
VALUE(FULLBORE_TARGET_MAPPED, 0x2);
VALUE(FULLBORE_TARGET_DRIVE, 0x4);
VALUE(FULLBORE_TARGET_WRITE_CACHE, 0x8);

VALUE(FULLBORE_REGION_REGISTERED, 0x1);
VALUE(FULLBORE_REGION_GPU, 0x2);

VALUE(FULLBORE_LOG_ERROR, 1);
VALUE(FULLBORE_LOG_WARN, 2);
VALUE(FULLBORE_LOG_INFO, 3);
VALUE(FULLBORE_LOG_DEBUG, 4);

VALUE(FULLBORE_FEATURE_IO_URING, 1);
VALUE(FULLBORE_FEATURE_CUDA, 2);
VALUE(FULLBORE_FEATURE_HWLOC, 3);

STRUCT(fullbore_error, 56);
FIELD(fullbore_error, 0, uint32_t, domain);
FIELD(fullbore_error, 4, int32_t, code);
FIELD(fullbore_error, 8, uint32_t, kind);
FIELD(fullbore_error, 12, uint32_t, extent);
FIELD(fullbore_error, 16, uint64_t, offset);
FIELD(fullbore_error, 24, uint64_t, length);
FIELD(fullbore_error, 32, const char *, message);
ARRAY(fullbore_error, 40, uint64_t, 2, reserved);

STRUCT(fullbore_engine_options, 128);
FIELD(fullbore_engine_options, 0, uint32_t, size);
FIELD(fullbore_engine_options, 4, uint32_t, version);
FIELD(fullbore_engine_options, 8, uint32_t, flags);
FIELD(fullbore_engine_options, 12, uint32_t, command_size);
FIELD(fullbore_engine_options, 16, uint32_t, lane_depth);
FIELD(fullbore_engine_options, 20, uint32_t, lanes);
FIELD(fullbore_engine_options, 24, uint32_t, processes);
FIELD(fullbore_engine_options, 28, uint32_t, max_transfers);
FIELD(fullbore_engine_options, 32, uint64_t, unit_size);
FIELD(fullbore_engine_options, 40, uint64_t, deadline_ns);
FIELD(fullbore_engine_options, 48, uint64_t, grace_ns);
FIELD(fullbore_engine_options, 56, uint64_t, bounce_bytes);
FIELD(fullbore_engine_options, 64, uint32_t, bounce_buffers);
FIELD(fullbore_engine_options, 68, uint32_t, cufile);
FIELD(fullbore_engine_options, 72, uint64_t, gpu_outstanding);
ARRAY(fullbore_engine_options, 80, uint64_t, 6, reserved);

STRUCT(fullbore_open_options, 48);
FIELD(fullbore_open_options, 0, uint32_t, size);
FIELD(fullbore_open_options, 4, uint32_t, flags);
FIELD(fullbore_open_options, 8, uint64_t, create_bytes);
ARRAY(fullbore_open_options, 16, uint64_t, 4, reserved);

STRUCT(fullbore_target_info, 240);
FIELD(fullbore_target_info, 0, uint32_t, size);
FIELD(fullbore_target_info, 4, uint32_t, flags);
FIELD(fullbore_target_info, 8, uint64_t, bytes);
FIELD(fullbore_target_info, 16, uint32_t, block_size);
FIELD(fullbore_target_info, 20, uint32_t, memory_alignment);
FIELD(fullbore_target_info, 24, uint32_t, max_bytes);
FIELD(fullbore_target_info, 28, uint32_t, max_segments);
FIELD(fullbore_target_info, 32, uint32_t, max_blocks);
FIELD(fullbore_target_info, 36, uint32_t, lanes);
FIELD(fullbore_target_info, 40, uint32_t, name_space);
FIELD(fullbore_target_info, 44, int32_t, node);
ARRAY(fullbore_target_info, 48, char, 48, model);
ARRAY(fullbore_target_info, 96, char, 32, serial);
ARRAY(fullbore_target_info, 128, char, 32, address);
ARRAY(fullbore_target_info, 160, char, 48, block_name);
ARRAY(fullbore_target_info, 208, uint64_t, 4, reserved);

STRUCT(fullbore_path_info, 488);
FIELD(fullbore_path_info, 0, uint32_t, size);
FIELD(fullbore_path_info, 4, uint32_t, path);
ARRAY(fullbore_path_info, 8, char, 448, reason);
ARRAY(fullbore_path_info, 456, uint64_t, 4, reserved);

STRUCT(fullbore_alloc_options, 40);
FIELD(fullbore_alloc_options, 0, uint32_t, size);
FIELD(fullbore_alloc_options, 4, uint32_t, flags);
FIELD(fullbore_alloc_options, 8, uint32_t, node);
FIELD(fullbore_alloc_options, 12, uint32_t, padding);
ARRAY(fullbore_alloc_options, 16, uint64_t, 3, reserved);

STRUCT(fullbore_region_info, 320);
FIELD(fullbore_region_info, 0, uint32_t, size);
FIELD(fullbore_region_info, 4, uint32_t, flags);
FIELD(fullbore_region_info, 8, void *, ptr);
FIELD(fullbore_region_info, 16, uint64_t, len);
FIELD(fullbore_region_info, 24, int32_t, gpu);
FIELD(fullbore_region_info, 28, uint32_t, padding);
ARRAY(fullbore_region_info, 32, char, 256, note);
ARRAY(fullbore_region_info, 288, uint64_t, 4, reserved);

STRUCT(fullbore_outcome, 16);
FIELD(fullbore_outcome, 0, uint64_t, bytes);
FIELD(fullbore_outcome, 8, int32_t, error);
FIELD(fullbore_outcome, 12, uint32_t, reserved);

STRUCT(fullbore_extent, 40);
FIELD(fullbore_extent, 0, uint64_t, offset);
FIELD(fullbore_extent, 8, void *, ptr);
FIELD(fullbore_extent, 16, uint64_t, len);
FIELD(fullbore_extent, 24, struct fullbore_outcome, outcome);

STRUCT(fullbore_transfer, 112);
FIELD(fullbore_transfer, 0, uint32_t, size);
FIELD(fullbore_transfer, 4, uint32_t, op);
FIELD(fullbore_transfer, 8, const struct fullbore_target *, target);
FIELD(fullbore_transfer, 16, struct fullbore_extent *, extents);
FIELD(fullbore_transfer, 24, uint64_t, count);
FIELD(fullbore_transfer, 32, uint64_t, tag);
FIELD(fullbore_transfer, 40, uint32_t, trace_id);
FIELD(fullbore_transfer, 44, uint32_t, priority);
FIELD(fullbore_transfer, 48, uint32_t, flags);
FIELD(fullbore_transfer, 52, uint32_t, require);
FIELD(fullbore_transfer, 56, uint64_t, deadline_ns);
FIELD(fullbore_transfer, 64, const struct fullbore_marks *, marks);
FIELD(fullbore_transfer, 72, uint64_t, id);
ARRAY(fullbore_transfer, 80, uint64_t, 4, reserved);

STRUCT(fullbore_completion, 128);
FIELD(fullbore_completion, 0, uint64_t, tag);
FIELD(fullbore_completion, 8, uint64_t, bytes);
FIELD(fullbore_completion, 16, uint64_t, queued_ns);
FIELD(fullbore_completion, 24, uint64_t, total_ns);
FIELD(fullbore_completion, 32, int32_t, result);
FIELD(fullbore_completion, 36, uint32_t, paths);
FIELD(fullbore_completion, 40, struct fullbore_error, error);
FIELD(fullbore_completion, 96, uint64_t, waited_ns);
FIELD(fullbore_completion, 104, uint64_t, copied_ns);
ARRAY(fullbore_completion, 112, uint64_t, 2, reserved);

STRUCT(fullbore_stats, 184);
FIELD(fullbore_stats, 0, uint32_t, size);
FIELD(fullbore_stats, 4, uint32_t, lanes);
FIELD(fullbore_stats, 8, uint32_t, lanes_stalled);
FIELD(fullbore_stats, 12, uint32_t, lanes_dead);
FIELD(fullbore_stats, 16, uint32_t, kernel_workers);
FIELD(fullbore_stats, 20, uint32_t, clone_buffers);
FIELD(fullbore_stats, 24, uint64_t, active);
FIELD(fullbore_stats, 32, uint64_t, quarantined_bytes);
FIELD(fullbore_stats, 40, uint64_t, memlock_bytes);
FIELD(fullbore_stats, 48, uint64_t, commands);
FIELD(fullbore_stats, 56, uint64_t, bytes);
FIELD(fullbore_stats, 64, uint64_t, enters);
FIELD(fullbore_stats, 72, uint64_t, waits);
FIELD(fullbore_stats, 80, uint64_t, retries);
FIELD(fullbore_stats, 88, uint64_t, shorts);
FIELD(fullbore_stats, 96, uint64_t, stale);
FIELD(fullbore_stats, 104, uint64_t, in_flight);
FIELD(fullbore_stats, 112, uint64_t, max_in_flight);
ARRAY(fullbore_stats, 120, uint64_t, 8, reserved);

/* Declared once more: other than in the header, and it is an error. */
#ifdef __cplusplus
extern "C" {
#endif
typedef void (*fullbore_log_fn)(uint32_t, const char *, const char *, void *);

uint32_t fullbore_version(void);
const char *fullbore_version_string(void);
int fullbore_feature(uint32_t);
const struct fullbore_error *fullbore_last_error(void);
const char *fullbore_kind_name(uint32_t);
const char *fullbore_path_name(uint32_t);

int fullbore_engine_create(const struct fullbore_engine_options *, struct fullbore_engine **);
int fullbore_engine_destroy(struct fullbore_engine *);
int64_t fullbore_gpus(const struct fullbore_engine *);

int fullbore_target_open(const struct fullbore_engine *, const char *, const struct fullbore_open_options *,
                         struct fullbore_target **);
int fullbore_target_open_stripe(const struct fullbore_engine *, const char *const *, size_t, uint64_t,
                                const struct fullbore_open_options *, struct fullbore_target **);
int fullbore_target_open_null(const struct fullbore_engine *, uint64_t, struct fullbore_target **);
int fullbore_target_get_info(const struct fullbore_target *, struct fullbore_target_info *);
int fullbore_target_set_size(const struct fullbore_target *, uint64_t);
int fullbore_target_close(const struct fullbore_target *);
int fullbore_target_destroy(struct fullbore_target *);
int fullbore_path_query(const struct fullbore_engine *, const struct fullbore_target *, const struct fullbore_region *,
                        struct fullbore_path_info *);

int fullbore_region_alloc(const struct fullbore_engine *, uint64_t, const struct fullbore_alloc_options *,
                          struct fullbore_region **);
int fullbore_region_register_host(const struct fullbore_engine *, void *, uint64_t, struct fullbore_region **);
int fullbore_region_register_cuda(const struct fullbore_engine *, uint64_t, uint64_t, struct fullbore_region **);
int fullbore_region_alloc_gpu(const struct fullbore_engine *, uint32_t, uint64_t, struct fullbore_region **);
int fullbore_region_map_peer(const struct fullbore_engine *, const char *, uint64_t, struct fullbore_region **);
int fullbore_region_get_info(const struct fullbore_region *, struct fullbore_region_info *);
void *fullbore_region_ptr(const struct fullbore_region *);
int fullbore_region_copy_out(const struct fullbore_region *, uint64_t, void *, uint64_t);
int fullbore_region_copy_in(const struct fullbore_region *, uint64_t, const void *, uint64_t);
int fullbore_region_export_dma_buf(const struct fullbore_region *);
int fullbore_region_free(struct fullbore_region *, uint64_t);

int fullbore_client_create(const struct fullbore_engine *, struct fullbore_client **);
int fullbore_client_destroy(struct fullbore_client *);
int64_t fullbore_submit(struct fullbore_client *, struct fullbore_transfer *, size_t);
int fullbore_flush(struct fullbore_client *, const struct fullbore_target *, uint64_t, uint64_t *);
int64_t fullbore_poll(struct fullbore_client *, struct fullbore_completion *, size_t);
int64_t fullbore_wait(struct fullbore_client *, size_t, size_t, uint64_t, struct fullbore_completion *);
int fullbore_cancel(const struct fullbore_client *, uint64_t);
int fullbore_client_fd(struct fullbore_client *);

int fullbore_marks_create(const uint32_t *, size_t, struct fullbore_marks **);
int fullbore_marks_destroy(struct fullbore_marks *);
int64_t fullbore_marks_landed(const struct fullbore_marks *);
int fullbore_marks_ended(const struct fullbore_marks *);
int fullbore_marks_wait(const struct fullbore_marks *, size_t, uint64_t);
int fullbore_marks_fd(const struct fullbore_marks *);
int fullbore_marks_stream_wait(const struct fullbore_marks *, size_t, const struct fullbore_region *, void *);

int fullbore_stats_get(const struct fullbore_engine *, struct fullbore_stats *);
int64_t fullbore_stats_json(const struct fullbore_engine *, char *, size_t);
int fullbore_log_set(fullbore_log_fn, uint32_t, void *);
#ifdef __cplusplus
}
#endif

/* It is among the tests in C, which are programs: being one, it has passed. */
int main(void) { return 0; }
