/* Streams and events, as callers hold them. */
#include "cuda.h"

#include <stdlib.h>

enum { STREAM = 0x57BEA777, EVENT = 0xE7E27E27 };

/* Blocking sync and disabled timing; anything else of an event is of no use here. */
enum { BLOCKING_SYNC = 1, DISABLE_TIMING = 2, INTERPROCESS = 4 };

struct stream *new_stream(struct ctx *ctx, unsigned flags, int priority) {
    struct stream *s = calloc(1, sizeof *s); /* never freed: a stale handle must be known as such */
    s->magic = STREAM;
    s->ctx = ctx;
    s->life = ctx->life;
    s->flags = flags;
    s->priority = priority;
    s->next = g_streams;
    g_streams = s;
    return s;
}

/* 0, 1 and 2 name the default streams; `ctx` is whose they are. They do not wait for other streams here.
 * Where a real driver looks at a stream before it looks whether the context is still there, it crashes if not (seen in
 * cuStreamQuery, cuStreamDestroy and cuEventRecord; in all functions once the context was retained anew). */
CUresult stream_of(void *handle, struct ctx *ctx, struct stream **stream) {
    if ((uintptr_t)handle <= 2) {
        if (!ctx->legacy)
            ctx->legacy = new_stream(ctx, 0, 0);
        *stream = ctx->legacy;
        return OK;
    }
    struct stream *s = handle;
    if (s->magic != STREAM)
        return INVALID_HANDLE;
    if (s->destroyed) {
        violation("use of a stream that was destroyed");
        return INVALID_HANDLE;
    }
    *stream = s;
    CUresult rc = state_of(s->ctx, s->life);
    if (rc == CONTEXT_IS_DESTROYED)
        violation("use of a stream whose context was reset: a real driver crashes");
    return rc;
}

#define STREAM_OF(handle, ctx, stream)                                                                                 \
    do {                                                                                                               \
        CUresult rc_ = stream_of(handle, ctx, &stream);                                                                \
        if (rc_ != OK)                                                                                                 \
            return leave(rc_);                                                                                         \
    } while (0)

/* For functions that look at the stream first. */
#define USABLE(handle)                                                                                                 \
    do {                                                                                                               \
        struct stream *used_;                                                                                          \
        CUresult rc_ = (uintptr_t)(handle) <= 2 ? OK : stream_of(handle, NULL, &used_);                                \
        if (rc_ != OK)                                                                                                 \
            return leave(rc_);                                                                                         \
    } while (0)

CUresult event_of(struct event *event) {
    if (!event || event->magic != EVENT)
        return INVALID_HANDLE;
    if (event->destroyed) {
        violation("use of an event that was destroyed");
        return INVALID_HANDLE;
    }
    if (event->ctx->active && event->ctx->life != event->life)
        violation("use of an event of a context that was reset and retained anew: a real driver crashes");
    return state_of(event->ctx, event->life);
}

#define EVENT_OF(event)                                                                                                \
    do {                                                                                                               \
        CUresult rc_ = event_of(event);                                                                                \
        if (rc_ != OK)                                                                                                 \
            return leave(rc_);                                                                                         \
    } while (0)

static CUresult create(struct stream **stream, unsigned flags, int priority) {
    struct ctx *ctx;
    CURRENT(ctx);
    if (!stream || flags > 1)
        return leave(INVALID_VALUE);
    if (fault("stream_create"))
        return leave(OUT_OF_MEMORY);
    if (flags == 0) /* waits for the host program's default stream, and makes it wait */
        count("blocking_streams", 1);
    *stream = new_stream(ctx, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
    return leave(OK);
}

API CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
    ENTER();
    return create(stream, flags, 0);
}

API CUresult cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority) {
    ENTER();
    return create(stream, flags, priority);
}

/* Work in it goes on. */
API CUresult cuStreamDestroy_v2(struct stream *stream) {
    ENTER();
    struct ctx *ctx;
    USABLE(stream);
    CURRENT(ctx);
    if ((uintptr_t)stream <= 2)
        return leave(INVALID_HANDLE);
    STREAM_OF(stream, ctx, stream);
    stream->destroyed = true;
    return leave(OK);
}

API CUresult cuStreamQuery(struct stream *stream) {
    ENTER();
    struct ctx *ctx;
    USABLE(stream);
    CURRENT(ctx);
    STREAM_OF(stream, ctx, stream);
    return leave(stream->done == stream->queued ? OK : NOT_READY);
}

API CUresult cuStreamSynchronize(struct stream *stream) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    STREAM_OF(stream, ctx, stream);
    return leave(wait_stream(stream, stream->queued));
}

API CUresult cuCtxSynchronize(void) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    CUresult rc = OK;
    for (struct stream *s = g_streams; s && rc == OK; s = s->next)
        if (s->ctx == ctx && s->life == ctx->life)
            rc = wait_stream(s, s->queued);
    return leave(rc);
}

API CUresult cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (flags != 0)
        return leave(INVALID_VALUE);
    EVENT_OF(event);
    STREAM_OF(stream, ctx, stream);
    struct op *op = new_op(WAIT_EVENT, -1, stream);
    op->event = event;
    op->target = event->recorded; /* the latest record there is now; none: nothing to wait for */
    queue_op(op);
    return leave(OK);
}

static CUresult memory_op(enum kind kind, struct stream *stream, CUdeviceptr addr, uint32_t value, unsigned flags) {
    struct ctx *ctx;
    CURRENT(ctx);
    STREAM_OF(stream, ctx, stream);
    if (addr % 4 != 0 || !kernel_side(addr, 4))
        return leave(INVALID_VALUE);
    struct op *op = new_op(kind, -1, stream);
    op->dst = addr;
    op->value = value;
    op->flags = flags;
    queue_op(op);
    return leave(OK);
}

API CUresult cuStreamWaitValue32_v2(struct stream *stream, CUdeviceptr addr, uint32_t value, unsigned flags) {
    ENTER();
    if (flags > 3) /* flushing of remote writes (1 << 30) is for devices that can */
        return leave(flags & 1u << 30 ? NOT_SUPPORTED : INVALID_VALUE);
    return memory_op(WAIT_VALUE, stream, addr, value, flags);
}

API CUresult cuStreamWriteValue32_v2(struct stream *stream, CUdeviceptr addr, uint32_t value, unsigned flags) {
    ENTER();
    if (flags > 1)
        return leave(INVALID_VALUE);
    return memory_op(WRITE_VALUE, stream, addr, value, flags);
}

API CUresult cuLaunchHostFunc(struct stream *stream, void (*func)(void *), void *arg) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!func)
        return leave(INVALID_VALUE);
    STREAM_OF(stream, ctx, stream);
    count("host_funcs", 1);
    struct op *op = new_op(HOST_FUNC, KERNELS, stream);
    op->func = func;
    op->arg = arg;
    queue_op(op);
    return leave(OK);
}

API CUresult cuEventCreate(struct event **event, unsigned flags) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!event || flags > 7 || ((flags & INTERPROCESS) && !(flags & DISABLE_TIMING)))
        return leave(INVALID_VALUE);
    if (fault("event_create"))
        return leave(OUT_OF_MEMORY);
    struct event *made = calloc(1, sizeof *made); /* never freed, like streams */
    *made = (struct event){.magic = EVENT, .ctx = ctx, .life = ctx->life, .flags = flags};
    *event = made;
    return leave(OK);
}

/* An event that is still to come may be destroyed: its operation goes on. */
API CUresult cuEventDestroy_v2(struct event *event) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    EVENT_OF(event);
    event->destroyed = true;
    return leave(OK);
}

API CUresult cuEventRecord(struct event *event, struct stream *stream) {
    ENTER();
    struct ctx *ctx;
    USABLE(stream);
    CURRENT(ctx);
    EVENT_OF(event);
    STREAM_OF(stream, ctx, stream);
    if (event->ctx != stream->ctx)
        return leave(INVALID_HANDLE);
    if (fault("event_record"))
        return leave(UNKNOWN);
    struct op *op = new_op(RECORD, -1, stream);
    op->event = event;
    op->target = ++event->recorded;
    queue_op(op);
    return leave(OK);
}

API CUresult cuEventQuery(struct event *event) {
    ENTER();
    EVENT_OF(event);
    if (fault("event_sync"))
        return leave(UNKNOWN);
    return leave(event->done == event->recorded ? OK : NOT_READY);
}

API CUresult cuEventSynchronize(struct event *event) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    EVENT_OF(event);
    if (fault("event_sync"))
        return leave(UNKNOWN);
    if (!(event->flags & BLOCKING_SYNC)) /* burns a CPU on a real machine */
        count("spins", 1);
    uint64_t until = event->recorded;
    uint32_t life = event->life;
    CUresult rc;
    while ((rc = state_of(event->ctx, life)) == OK && event->done < until)
        pthread_cond_wait(&g_changed, &g_lock);
    if (event->destroyed)
        violation("an event was destroyed while a thread waited for it");
    return leave(rc);
}
