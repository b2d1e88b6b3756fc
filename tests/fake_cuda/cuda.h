/* A stand-in for libcuda.so.1: what its files share.
 *
 * Device memory is a memfd, mapped twice: the address that callers see may not be touched (as on a real machine), the
 * alias is for the engines in here. One lock guards everything; engines let it go while they move bytes.
 * Numbers are those of the CUDA 12/13 driver API. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    CONTEXT_IS_DESTROYED = 709,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    UNKNOWN = 999,
};

enum { MAX_DEVICES = 16 };

/* The engines of a device. */
enum { TO_DEVICE, TO_HOST, KERNELS, ENGINES };

struct ctx {
    uint32_t magic;
    int dev;
    bool primary, active;
    bool ending;      /* waits for engines; it cannot be retained before that is over */
    bool destroyed;   /* by cuCtxDestroy or the last release: whoever uses it now is at fault */
    uint32_t retains; /* of a primary context */
    uint64_t id;      /* of this life, among all contexts */
    uint32_t life;    /* counts resets: what was made in an earlier life is gone */
    CUresult sticky;
    struct stream *legacy;
};

struct stream {
    uint32_t magic;
    struct ctx *ctx;
    uint32_t life;
    unsigned flags;
    int priority;
    bool destroyed;
    uint64_t queued, done; /* operations; in order, so the n-th is over when done >= n */
    struct op *head, *tail;
    struct stream *next;
};

struct event {
    uint32_t magic;
    struct ctx *ctx;
    uint32_t life;
    unsigned flags;
    bool destroyed;
    uint64_t recorded, done; /* records; complete when equal */
};

enum kind { COPY_IN, COPY_OUT, COPY_WITHIN, MEMSET, KERNEL, HOST_FUNC, RECORD, WAIT_EVENT, WAIT_VALUE, WRITE_VALUE };

struct op {
    enum kind kind;
    int engine; /* or -1: happens when its turn comes */
    struct stream *stream;
    uint64_t seq;
    uint64_t dst, src; /* as the caller named them; a kernel's table is src; memory operations use dst */
    uint64_t len;      /* bytes; pieces of a kernel */
    uint32_t value;    /* of memory operations, and the byte of a memset */
    unsigned flags;
    struct event *event;
    uint64_t target; /* the record this makes or waits for; the checksum of a kernel's table */
    void (*func)(void *);
    void *arg;
    bool running, skip;      /* skip: its memory or context is gone */
    bool hang, slow, lost;   /* ordered faults */
    struct op *next;
};

struct alloc {
    uint64_t addr, size, id;
    struct ctx *ctx;
    struct alloc *next; /* by address */
};

struct arena {
    int fd;
    uint64_t size;
    uint8_t *device, *alias;
    struct alloc *first;
};

/* Host memory the driver knows: allocated by it or registered. */
struct host {
    uint64_t addr, size, id;
    bool owned, portable, mapped, read_only;
    struct ctx *ctx;
    struct host *next;
};

struct piece {
    uint64_t dst, src, len;
};

extern pthread_mutex_t g_lock;
extern pthread_cond_t g_changed; /* anything that someone may wait for */
extern int g_devices;
extern struct ctx g_primary[MAX_DEVICES];
extern struct arena g_arena[MAX_DEVICES];
extern struct host *g_host;
extern struct stream *g_streams;

/* Control: all with the lock held. */
void count(const char *name, uint64_t n);
void count_most(const char *name, uint64_t n);
void count_least(const char *name, uint64_t n);
bool fault(const char *name);
void read_orders(void);
void violation(const char *form, ...) __attribute__((format(printf, 1, 2)));
uint64_t setting(const char *name, uint64_t otherwise);

/* Entry points begin with ENTER and leave by `return leave(rc)`. ENTER counts the call, takes the lock, and answers
 * what stands in the way of any call. */
CUresult enter(const char *name);
CUresult leave(CUresult rc);
#define ENTER()                                                                                                        \
    do {                                                                                                               \
        CUresult rc_ = enter(__func__);                                                                                \
        if (rc_ != OK)                                                                                                 \
            return rc_;                                                                                                \
    } while (0)

/* The calling thread's context, and what is wrong with it. */
CUresult current(struct ctx **ctx);
CUresult state_of(const struct ctx *ctx, uint32_t life);
bool context_is(const struct ctx *ctx);
bool device_is(CUdevice dev);
#define CURRENT(ctx)                                                                                                   \
    do {                                                                                                               \
        CUresult rc_ = current(&ctx);                                                                                  \
        if (rc_ != OK)                                                                                                 \
            return leave(rc_);                                                                                         \
    } while (0)

/* Streams and engines. */
void start_engines(int dev);
CUresult stream_of(void *handle, struct ctx *ctx, struct stream **stream);
CUresult event_of(struct event *event);
struct stream *new_stream(struct ctx *ctx, unsigned flags, int priority);
struct op *new_op(enum kind kind, int engine, struct stream *stream);
void queue_op(struct op *op);
void pump(void);
CUresult wait_stream(struct stream *stream, uint64_t until);
void end_context(struct ctx *ctx);
void poison_context(struct ctx *ctx, CUresult why);
const char *uses(uint64_t addr, uint64_t size);
void release_hanging(void);

/* Memory. */
void make_arena(int dev);
struct alloc *alloc_at(uint64_t addr, int *dev);
struct host *host_at(uint64_t addr);
void *alias_of(uint64_t addr);
void *device_side(uint64_t addr, uint64_t len);
void *kernel_side(uint64_t addr, uint64_t len);
void free_memory_of(struct ctx *ctx);
uint64_t checksum(const void *from, uint64_t len);

/* Engines' work; called without the lock. Answer whether all bytes could be moved. */
bool move_bytes(void *to, const void *from, uint64_t len);
const char *run_kernel(const struct op *op);

#endif
