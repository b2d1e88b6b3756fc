/* Copies, memsets, and the one kernel there is. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

/* A device's side of a copy: within one allocation, and of the stream's device. */
static CUresult check_device(const struct stream *s, uint64_t addr, uint64_t len) {
    int dev;
    if (!alloc_at(addr, &dev) || !device_side(addr, len)) {
        violation("copy of %lu bytes at %#lx is not within one allocation of device memory", (unsigned long)len,
                  (unsigned long)addr);
        return INVALID_VALUE;
    }
    if (dev != s->ctx->dev) /* a real one would go the long way, silently */
        violation("copy of memory of device %d in a stream of device %d", dev, s->ctx->dev);
    return OK;
}

/* The host's side: within one range that is pinned for this stream's context, or touching none. */
static CUresult check_host(const struct stream *s, uint64_t addr, uint64_t len, bool written, bool *pinned) {
    *pinned = false;
    if (alias_of(addr)) {
        violation("a device pointer is handed to a copy as host memory");
        return INVALID_VALUE;
    }
    for (struct host *h = g_host; h; h = h->next) {
        if (addr >= h->addr + h->size || h->addr >= addr + len)
            continue;
        if (addr < h->addr || addr + len > h->addr + h->size || (written && h->read_only))
            return INVALID_VALUE;
        *pinned = h->portable || h->ctx == s->ctx;
    }
    return OK;
}

static CUresult copy(enum kind kind, uint64_t dst, uint64_t src, uint64_t len, void *handle, bool wait) {
    static const int engine[] = {TO_DEVICE, TO_HOST, KERNELS};
    struct ctx *ctx;
    CURRENT(ctx);
    struct stream *s;
    CUresult rc = stream_of(handle, ctx, &s);
    if (rc != OK || len == 0)
        return leave(rc);
    if (fault("copy"))
        return leave(UNKNOWN);
    bool pinned = true;
    if (kind != COPY_OUT)
        rc = check_device(s, dst, len);
    if (kind != COPY_IN && rc == OK)
        rc = check_device(s, src, len);
    if (kind != COPY_WITHIN && rc == OK)
        rc = check_host(s, kind == COPY_IN ? src : dst, len, kind == COPY_OUT, &pinned);
    if (rc != OK)
        return leave(rc);
    struct op *op = new_op(kind, engine[kind], s);
    op->dst = dst;
    op->src = src;
    op->len = len;
    op->lost = fault("copy_lost");
    op->slow = fault("slow");
    op->hang = fault("hang");
    if (!pinned)
        count("pageable", 1);
    queue_op(op);
    return leave(wait || !pinned ? wait_stream(s, s->queued) : OK);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, struct stream *stream) {
    ENTER();
    return copy(COPY_IN, dst, (uintptr_t)src, len, stream, false);
}

API CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, struct stream *stream) {
    ENTER();
    return copy(COPY_OUT, (uintptr_t)dst, src, len, stream, false);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t len, struct stream *stream) {
    ENTER();
    return copy(COPY_WITHIN, dst, src, len, stream, false);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t len) {
    ENTER();
    return copy(COPY_IN, dst, (uintptr_t)src, len, NULL, true);
}

API CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t len) {
    ENTER();
    return copy(COPY_OUT, (uintptr_t)dst, src, len, NULL, true);
}

API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t len, struct stream *stream) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    struct stream *s;
    CUresult rc = stream_of(stream, ctx, &s);
    if (rc == OK && len > 0)
        rc = check_device(s, dst, len);
    if (rc != OK || len == 0)
        return leave(rc);
    struct op *op = new_op(MEMSET, KERNELS, s);
    op->dst = dst;
    op->len = len;
    op->value = value;
    queue_op(op);
    return leave(OK);
}

enum { MODULE = 0x30D01E55, FUNCTION = 0xF0C71047 };

struct module {
    uint32_t magic, life;
    struct ctx *ctx;
    char *image;
    bool unloaded;
};

struct function {
    uint32_t magic;
    struct module *module;
    bool copies_pieces;
};

/* PTX, a text: what is no text would need its length from its header. */
API CUresult cuModuleLoadData(struct module **module, const void *image) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!module || !image)
        return leave(INVALID_VALUE);
    if (fault("module"))
        return leave(NO_BINARY_FOR_GPU);
    if (!memchr("/.\n\t \r", *(const char *)image, 6)) /* how PTX can begin */
        return leave(INVALID_IMAGE);
    struct module *made = calloc(1, sizeof *made); /* never freed, like streams */
    *made = (struct module){.magic = MODULE, .life = ctx->life, .ctx = ctx, .image = strdup(image)};
    *module = made;
    return leave(OK);
}

static CUresult check_module(const struct module *m) {
    if (!m || m->magic != MODULE)
        return INVALID_HANDLE;
    if (m->unloaded) {
        violation("use of a module that was unloaded");
        return INVALID_HANDLE;
    }
    return state_of(m->ctx, m->life);
}

static void check_kernels(const struct ctx *ctx) {
    for (struct stream *s = g_streams; s; s = s->next)
        for (struct op *op = s->head; op; op = op->next)
            if (s->ctx == ctx && op->kind == KERNEL)
                violation("a module is unloaded while a kernel is queued");
}

API CUresult cuModuleUnload(struct module *module) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    CUresult rc = check_module(module);
    if (rc == OK) {
        check_kernels(module->ctx);
        module->unloaded = true;
    }
    return leave(rc);
}

API CUresult cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!function || !name || !*name)
        return leave(INVALID_VALUE);
    CUresult rc = check_module(module);
    if (rc == OK && !strstr(module->image, name))
        rc = NOT_FOUND;
    if (rc != OK)
        return leave(rc);
    struct function *made = calloc(1, sizeof *made);
    *made = (struct function){FUNCTION, module, strcmp(name, "fullbore_copy_pieces") == 0};
    *function = made;
    return leave(OK);
}

/* Table entries may be written by copies before the kernel in its stream, but not by the CPU once it is launched. */
static uint64_t sum_of_table(uint64_t table, uint64_t pieces) {
    const void *at = alias_of(table) ? NULL : kernel_side(table, pieces * sizeof(struct piece));
    return at ? checksum(at, pieces * sizeof(struct piece)) : 0;
}

API CUresult cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, struct stream *stream, void **params, void **extra) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!f || f->magic != FUNCTION)
        return leave(INVALID_HANDLE);
    struct stream *s;
    CUresult rc = check_module(f->module);
    if (rc == OK)
        rc = stream_of(stream, ctx, &s);
    if (rc != OK)
        return leave(rc);
    if (s->ctx != ctx || f->module->ctx != ctx)
        return leave(INVALID_HANDLE);
    uint64_t threads = (uint64_t)bx * by * bz;
    if (threads == 0 || threads > 1024 || bz > 64 || gx == 0 || gy == 0 || gz == 0 || gx > 0x7fffffff || gy > 65535 ||
        gz > 65535 || shared > 48 << 10 || !params || extra || !params[0] || !params[1])
        return leave(INVALID_VALUE);
    if (fault("launch"))
        return leave(LAUNCH_OUT_OF_RESOURCES);
    if (!f->copies_pieces) {
        violation("a kernel is launched that the stand-in does not know");
        return leave(NOT_SUPPORTED);
    }
    struct op *op = new_op(KERNEL, KERNELS, s);
    uint32_t pieces;
    memcpy(&op->src, params[0], sizeof op->src);
    memcpy(&pieces, params[1], sizeof pieces);
    op->len = pieces;
    op->target = sum_of_table(op->src, pieces);
    op->slow = fault("slow_kernel");
    queue_op(op);
    return leave(OK);
}

/* Looks up where a piece lies; the kernel of a real GPU would read or write whatever is there. */
static bool resolve(struct piece *p, int on) {
    int to, from;
    if (p->len == 0)
        return true;
    if (!alloc_at(p->dst, &to) || !alloc_at(p->src, &from) || to != on || from != on)
        return false;
    p->dst = (uintptr_t)device_side(p->dst, p->len);
    p->src = (uintptr_t)device_side(p->src, p->len);
    return p->dst && p->src;
}

const char *run_kernel(const struct op *op) {
    uint64_t bytes = op->len * sizeof(struct piece);
    struct piece *pieces = malloc(bytes + 1);
    const char *wrong = NULL;
    pthread_mutex_lock(&g_lock);
    const void *table = op->len ? kernel_side(op->src, bytes) : pieces;
    if (!table)
        wrong = "a kernel's table is not in memory that the device can reach";
    else if (op->target && op->len && op->target != sum_of_table(op->src, op->len))
        wrong = "a kernel's table changed between its launch and its run";
    else
        memcpy(pieces, table, bytes);
    for (uint64_t i = 0; !wrong && i < op->len; i++)
        if (!resolve(&pieces[i], op->stream->ctx->dev))
            wrong = "a kernel's piece is not within one allocation of its device";
    pthread_mutex_unlock(&g_lock);
    for (uint64_t i = 0; !wrong && i < op->len; i++)
        memmove((void *)(uintptr_t)pieces[i].dst, (const void *)(uintptr_t)pieces[i].src, pieces[i].len);
    free(pieces);
    return wrong;
}
