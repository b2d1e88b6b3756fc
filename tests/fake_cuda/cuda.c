/* Initialisation and contexts. */
#include "cuda.h"

#include <stdlib.h>

enum { CTX = 0xC0C0C0C0, DEEPEST = 64 };

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t g_changed = PTHREAD_COND_INITIALIZER;
int g_devices;
struct ctx g_primary[MAX_DEVICES];

static uint64_t next_id = 1;
static bool initialised;
static atomic_bool forked; /* CUDA does not survive a fork */
static pthread_key_t thread_end;

/* The calling thread's stack of contexts. `pushes` are those that cuCtxPushCurrent put there and no one took. */
static _Thread_local struct {
    struct ctx *stack[DEEPEST];
    int depth, pushes;
} mine;

CUresult enter(const char *name) {
    if (atomic_load(&forked))
        return NOT_INITIALIZED;
    pthread_mutex_lock(&g_lock);
    count(name, 1);
    return initialised ? OK : leave(NOT_INITIALIZED);
}

CUresult leave(CUresult rc) {
    pthread_mutex_unlock(&g_lock);
    return rc;
}

static void at_thread_end(void *unused) {
    (void)unused;
    if (mine.pushes == 0)
        return;
    pthread_mutex_lock(&g_lock);
    violation("a thread ended with %d contexts pushed and not popped", mine.pushes);
    pthread_mutex_unlock(&g_lock);
}

static void at_fork(void) { atomic_store(&forked, true); }

API CUresult cuInit(unsigned flags) {
    CUresult rc = enter(__func__);
    if (rc == OK)
        return leave(OK);
    if (atomic_load(&forked))
        return rc;
    if (flags != 0)
        return INVALID_VALUE;
    pthread_mutex_lock(&g_lock);
    if (initialised)
        return leave(OK);
    read_orders();
    uint64_t devices = setting("FAKE_CUDA_DEVICES", 1);
    if (devices == 0)
        return leave(NO_DEVICE);
    g_devices = devices > MAX_DEVICES ? MAX_DEVICES : (int)devices;
    pthread_key_create(&thread_end, at_thread_end);
    pthread_atfork(NULL, NULL, at_fork);
    for (int dev = 0; dev < g_devices; dev++) {
        g_primary[dev] = (struct ctx){.magic = CTX, .dev = dev, .primary = true};
        make_arena(dev);
        start_engines(dev);
    }
    initialised = true;
    return leave(OK);
}

bool context_is(const struct ctx *ctx) { return ctx && ctx->magic == CTX; }

CUresult state_of(const struct ctx *ctx, uint32_t life) {
    if (!ctx->active || ctx->life != life)
        return CONTEXT_IS_DESTROYED;
    return ctx->sticky;
}

CUresult current(struct ctx **ctx) {
    *ctx = mine.depth ? mine.stack[mine.depth - 1] : NULL;
    if (!*ctx)
        return INVALID_CONTEXT;
    if ((*ctx)->destroyed)
        violation("use of a context that was destroyed or released");
    return state_of(*ctx, (*ctx)->life);
}

API CUresult cuDevicePrimaryCtxRetain(struct ctx **ctx, CUdevice dev) {
    ENTER();
    if (!ctx)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    if (fault("retain"))
        return leave(OUT_OF_MEMORY);
    struct ctx *primary = &g_primary[dev];
    while (primary->ending)
        pthread_cond_wait(&g_changed, &g_lock);
    if (!primary->active) {
        primary->life++;
        primary->id = next_id++;
        primary->active = true;
        primary->destroyed = false;
        primary->sticky = OK;
    }
    primary->retains++;
    *ctx = primary;
    return leave(OK);
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    ENTER();
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    struct ctx *primary = &g_primary[dev];
    if (primary->retains == 0) {
        violation("primary context of device %d released more often than retained", dev);
        return leave(INVALID_CONTEXT);
    }
    if (--primary->retains == 0 && primary->active) {
        for (struct stream *s = g_streams; s; s = s->next)
            if (s->ctx == primary && s->head)
                violation("primary context of device %d released while work is queued in it", dev);
        primary->destroyed = true;
        end_context(primary);
    }
    return leave(OK);
}

/* As cudaDeviceReset does: it takes no retain back. */
API CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    ENTER();
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    if (g_primary[dev].active)
        end_context(&g_primary[dev]);
    return leave(OK);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active) {
    ENTER();
    if (!flags || !active)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    *flags = 0;
    *active = g_primary[dev].active;
    return leave(OK);
}

static CUresult put(struct ctx *ctx) {
    if (mine.depth == DEEPEST)
        return OUT_OF_MEMORY;
    mine.stack[mine.depth++] = ctx;
    pthread_setspecific(thread_end, &mine);
    return OK;
}

API CUresult cuCtxCreate_v2(struct ctx **ctx, unsigned flags, CUdevice dev) {
    ENTER();
    if (!ctx || flags > 0xff)
        return leave(INVALID_VALUE);
    if (!device_is(dev))
        return leave(INVALID_DEVICE);
    struct ctx *made = calloc(1, sizeof *made); /* never freed: a stale handle must be known as such */
    *made = (struct ctx){.magic = CTX, .dev = dev, .active = true, .life = 1, .id = next_id++};
    *ctx = made;
    return leave(put(made));
}

API CUresult cuCtxDestroy_v2(struct ctx *ctx) {
    ENTER();
    if (!context_is(ctx) || ctx->primary)
        return leave(INVALID_CONTEXT);
    if (ctx->destroyed) {
        violation("a context is destroyed twice");
        return leave(CONTEXT_IS_DESTROYED);
    }
    if (mine.depth && mine.stack[mine.depth - 1] == ctx)
        mine.depth--;
    ctx->destroyed = true;
    end_context(ctx);
    return leave(OK);
}

/* Whether a context may become current. One that the host program reset may (seen on a real driver); what is done in it
 * then is 709. */
static CUresult usable(const struct ctx *ctx) {
    if (!ctx)
        return INVALID_VALUE;
    if (!context_is(ctx))
        return INVALID_CONTEXT;
    if (ctx->destroyed)
        violation("a context that was destroyed or released is made current");
    return ctx->destroyed ? INVALID_CONTEXT : OK;
}

API CUresult cuCtxSetCurrent(struct ctx *ctx) {
    ENTER();
    CUresult rc = ctx ? usable(ctx) : OK;
    if (rc != OK)
        return leave(rc);
    if (mine.depth)
        mine.depth--;
    return leave(ctx ? put(ctx) : OK);
}

API CUresult cuCtxGetCurrent(struct ctx **ctx) {
    ENTER();
    if (!ctx)
        return leave(INVALID_VALUE);
    *ctx = mine.depth ? mine.stack[mine.depth - 1] : NULL;
    return leave(OK);
}

API CUresult cuCtxPushCurrent_v2(struct ctx *ctx) {
    ENTER();
    CUresult rc = usable(ctx);
    if (rc == OK && (rc = put(ctx)) == OK)
        mine.pushes++;
    return leave(rc);
}

API CUresult cuCtxPopCurrent_v2(struct ctx **ctx) {
    ENTER();
    if (mine.depth == 0)
        return leave(INVALID_CONTEXT);
    struct ctx *top = mine.stack[--mine.depth];
    if (mine.pushes)
        mine.pushes--;
    if (ctx)
        *ctx = top;
    return leave(OK);
}

/* Answers for a context that was reset, too. */
API CUresult cuCtxGetDevice(CUdevice *dev) {
    ENTER();
    if (!dev)
        return leave(INVALID_VALUE);
    if (mine.depth == 0)
        return leave(INVALID_CONTEXT);
    *dev = mine.stack[mine.depth - 1]->dev;
    return leave(OK);
}

/* Another number after each reset: tells whether what was made in a context is still there. */
API CUresult cuCtxGetId(struct ctx *ctx, uint64_t *id) {
    ENTER();
    if (!ctx)
        ctx = mine.depth ? mine.stack[mine.depth - 1] : NULL;
    if (!context_is(ctx))
        return leave(INVALID_CONTEXT);
    if (!id)
        return leave(INVALID_VALUE);
    if (!ctx->active)
        return leave(CONTEXT_IS_DESTROYED);
    *id = ctx->id;
    return leave(OK);
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return leave(OK);
}

/* Contexts on the calling thread's stack: a test compares before and after. */
API uint64_t fake_cuda_depth(void) { return (uint64_t)mine.depth; }
