/* Queued work: what is next, who does it, what becomes of it when its context ends.
 *
 * A stream is a FIFO of operations. Each device has an engine per copy direction and one for kernels; an engine takes,
 * of the operations at the heads of streams, the one that was queued first. Operations without an engine (events,
 * memory operations) happen when they come to the head. */
#include "cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct stream *g_streams;

static uint64_t next_seq = 1;
static uint64_t outstanding[MAX_DEVICES][ENGINES];
static int waiting_values; /* operations WAIT_VALUE in all queues */
static uint64_t bytes_per_second;

struct op *new_op(enum kind kind, int engine, struct stream *stream) {
    struct op *op = calloc(1, sizeof *op);
    op->kind = kind;
    op->engine = engine;
    op->stream = stream;
    return op;
}

static bool is_copy(const struct op *op) { return op->kind <= COPY_WITHIN; }

void queue_op(struct op *op) {
    struct stream *s = op->stream;
    op->seq = next_seq++;
    s->queued++;
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    if (op->kind == WAIT_VALUE)
        waiting_values++;
    if (is_copy(op)) {
        uint64_t *bytes = &outstanding[s->ctx->dev][op->engine];
        *bytes += op->len;
        if (op->engine != KERNELS) {
            count_most("most_bytes_outstanding", *bytes);
            count_most("most_copy", op->len);
            count_least("least_copy", op->len);
        }
    }
    pump();
}

/* The operation is over, done or dropped. It is out of its queue already. */
static void retire(struct op *op) {
    struct stream *s = op->stream;
    s->done++;
    if (is_copy(op))
        outstanding[s->ctx->dev][op->engine] -= op->len;
    if (op->kind == WAIT_VALUE)
        waiting_values--;
    /* A record that is dropped counts, too: who waits in another context must not wait for ever. */
    if (op->kind == RECORD && op->event->done < op->target)
        op->event->done = op->target;
    free(op);
}

static void retire_head(struct stream *s) {
    struct op *op = s->head;
    s->head = op->next;
    if (!s->head)
        s->tail = NULL;
    retire(op);
}

/* Drops all that no engine has begun; what runs is told to leave its bytes where they are. */
static void drop_queue(struct stream *s) {
    struct op *op = s->head;
    s->head = s->tail = NULL;
    if (op && op->running) {
        op->skip = true;
        s->head = s->tail = op;
        op = op->next;
        s->head->next = NULL;
    }
    while (op) {
        struct op *next = op->next;
        retire(op);
        op = next;
    }
}

static bool value_came(const struct op *op) {
    const _Atomic uint32_t *at = op->skip ? NULL : kernel_side(op->dst, 4);
    if (!at)
        return true;
    uint32_t now = atomic_load(at);
    switch (op->flags & 3) {
    case 0: return (int32_t)(now - op->value) >= 0;
    case 1: return now == op->value;
    case 2: return (now & op->value) != 0;
    default: return ~(now | op->value) != 0;
    }
}

static bool happens(struct op *op) {
    switch (op->kind) {
    case RECORD: return true;
    case WAIT_EVENT: return op->event->done >= op->target;
    case WAIT_VALUE: return value_came(op);
    case WRITE_VALUE: {
        _Atomic uint32_t *at = op->skip ? NULL : kernel_side(op->dst, 4);
        if (at)
            atomic_store(at, op->value);
        return true;
    }
    default: return false;
    }
}

void pump(void) {
    for (bool again = true; again;) {
        again = false;
        for (struct stream *s = g_streams; s; s = s->next)
            while (s->head && s->head->engine < 0 && happens(s->head)) {
                retire_head(s);
                again = true;
            }
    }
    pthread_cond_broadcast(&g_changed);
}

static struct op *pick(int dev, int engine) {
    struct op *best = NULL;
    for (struct stream *s = g_streams; s; s = s->next) {
        struct op *op = s->head;
        if (op && op->engine == engine && s->ctx->dev == dev && !op->running && (!best || op->seq < best->seq))
            best = op;
    }
    return best;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* Moves bytes without a signal where memory is gone: an unmapped buffer is to be reported, not to end the process. */
bool move_bytes(void *to, const void *from, uint64_t len) {
    while (len > 0) {
        uint64_t part = len > 1 << 30 ? 1 << 30 : len;
        struct iovec local = {to, part}, remote = {(void *)(uintptr_t)from, part};
        ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (n < 0 && (errno == EPERM || errno == ENOSYS)) { /* forbidden here: then without that comfort */
            memcpy(to, from, part);
            n = (ssize_t)part;
        }
        if (n <= 0)
            return false;
        to = (char *)to + n;
        from = (const char *)from + n;
        len -= (uint64_t)n;
    }
    return true;
}

/* Where both sides of a copy are, for the engine. The bounds were checked when it was queued, and whoever frees memory
 * marks what uses it. */
static const char *carry_out(const struct op *op, uint8_t *dst, const uint8_t *src) {
    switch (op->kind) {
    case COPY_IN:
    case COPY_OUT:
    case COPY_WITHIN: return move_bytes(dst, src, op->len) ? NULL : "host memory of a queued copy is not mapped";
    case MEMSET: memset(dst, (int)op->value, op->len); return NULL;
    case KERNEL: return run_kernel(op);
    case HOST_FUNC: op->func(op->arg); return NULL;
    default: return NULL;
    }
}

static void run(struct op *op) {
    struct ctx *ctx = op->stream->ctx;
    while (op->hang && state_of(ctx, op->stream->life) == OK)
        pthread_cond_wait(&g_changed, &g_lock);
    if (op->lost && !op->skip)
        poison_context(ctx, LAUNCH_FAILED);
    bool to_device = op->kind != COPY_OUT && op->kind != KERNEL;
    bool from_device = op->kind == COPY_OUT || op->kind == COPY_WITHIN;
    uint8_t *dst = to_device ? alias_of(op->dst) : (uint8_t *)(uintptr_t)op->dst;
    const uint8_t *src = from_device ? alias_of(op->src) : (const uint8_t *)(uintptr_t)op->src;
    bool idle = op->skip;
    pthread_mutex_unlock(&g_lock);

    uint64_t until = now_ns() + (op->slow ? 50000000u : 0);
    if (bytes_per_second && is_copy(op))
        until += (uint64_t)((double)op->len * 1e9 / (double)bytes_per_second);
    /* The bytes move at the end of that time: who gives a source away or reads a destination too soon is found out. */
    if (!idle && (op->slow || (bytes_per_second && is_copy(op))))
        sleep_until(until);
    const char *wrong = idle ? NULL : carry_out(op, dst, src);

    pthread_mutex_lock(&g_lock);
    if (wrong && !op->skip) {
        violation("%s", wrong);
        poison_context(ctx, ILLEGAL_ADDRESS);
    } else if (!op->skip && is_copy(op)) {
        count(op->kind == COPY_IN ? "bytes_h2d" : op->kind == COPY_OUT ? "bytes_d2h" : "bytes_d2d", op->len);
    }
}

static void *engine(void *arg) {
    int dev = (int)((uintptr_t)arg / ENGINES), which = (int)((uintptr_t)arg % ENGINES);
    pthread_mutex_lock(&g_lock);
    for (;;) {
        struct op *op = pick(dev, which);
        if (!op) {
            pthread_cond_wait(&g_changed, &g_lock);
            continue;
        }
        op->running = true;
        run(op);
        retire_head(op->stream);
        pump();
    }
    return NULL;
}

/* Looks after memory that streams wait for: host memory changes without telling us. */
static void *watch_values(void *arg) {
    (void)arg;
    pthread_mutex_lock(&g_lock);
    for (;;) {
        if (waiting_values == 0) {
            pthread_cond_wait(&g_changed, &g_lock);
            continue;
        }
        pump();
        pthread_mutex_unlock(&g_lock);
        sleep_until(now_ns() + 200000);
        pthread_mutex_lock(&g_lock);
    }
    return NULL;
}

static void start(void *(*body)(void *), uintptr_t arg, const char *name) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, (void *)arg) != 0)
        abort();
    pthread_setname_np(thread, name);
    pthread_detach(thread);
}

void start_engines(int dev) {
    bytes_per_second = (uint64_t)(strtod(getenv("FAKE_CUDA_GBPS") ? getenv("FAKE_CUDA_GBPS") : "0", NULL) * 1e9);
    for (uintptr_t which = 0; which < ENGINES; which++)
        start(engine, (uintptr_t)dev * ENGINES + which, "fake-gpu");
    if (dev == 0)
        start(watch_values, 0, "fake-gpu-values");
}

void release_hanging(void) {
    for (struct stream *s = g_streams; s; s = s->next)
        for (struct op *op = s->head; op; op = op->next)
            op->hang = false;
    pthread_cond_broadcast(&g_changed);
}

CUresult wait_stream(struct stream *s, uint64_t until) {
    uint32_t life = s->life;
    CUresult rc;
    while ((rc = state_of(s->ctx, life)) == OK && s->done < until)
        pthread_cond_wait(&g_changed, &g_lock);
    return rc;
}

void poison_context(struct ctx *ctx, CUresult why) {
    ctx->sticky = why;
    for (struct stream *s = g_streams; s; s = s->next)
        if (s->ctx == ctx)
            drop_queue(s);
    pump();
}

/* The context is over: its work is dropped, its memory goes. Waits for what engines have in hand. */
void end_context(struct ctx *ctx) {
    ctx->active = false;
    ctx->ending = true;
    poison_context(ctx, OK);
    for (struct stream *s = g_streams; s; s = s->next)
        while (s->ctx == ctx && s->head)
            pthread_cond_wait(&g_changed, &g_lock);
    ctx->legacy = NULL;
    free_memory_of(ctx);
    ctx->ending = false;
    pump();
}

static bool overlap(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len) { return a < b + b_len && b < a + a_len; }

static bool kernel_uses(const struct op *op, uint64_t addr, uint64_t size) {
    if (overlap(op->src, op->len * sizeof(struct piece), addr, size))
        return true;
    const struct piece *pieces = kernel_side(op->src, op->len * sizeof(struct piece));
    for (uint64_t i = 0; pieces && i < op->len; i++)
        if (overlap(pieces[i].dst, pieces[i].len, addr, size) || overlap(pieces[i].src, pieces[i].len, addr, size))
            return true;
    return false;
}

/* What queued or running work uses the range, or NULL. All that does is marked: it moves nothing any more. */
const char *uses(uint64_t addr, uint64_t size) {
    static const char *const what[] = {"copy to the device", "copy to the host", "copy within the device", "memset",
                                       "kernel",             "host function",    "event record",           "event wait",
                                       "wait for a value",   "write of a value"};
    const char *found = NULL;
    for (struct stream *s = g_streams; s; s = s->next)
        for (struct op *op = s->head; op; op = op->next) {
            uint64_t len = op->kind >= WAIT_VALUE ? 4 : op->len;
            bool ranges = op->kind <= MEMSET || op->kind >= WAIT_VALUE;
            bool used = op->kind == KERNEL ? kernel_uses(op, addr, size)
                                           : ranges && (overlap(op->dst, len, addr, size) ||
                                                        (op->kind <= COPY_WITHIN && overlap(op->src, len, addr, size)));
            if (used && !op->skip) {
                found = what[op->kind];
                op->skip = true;
            }
        }
    return found;
}
