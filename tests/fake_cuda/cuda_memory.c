/* Device memory, host memory that the driver knows, and what pointers are. */
#include "cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 512 };

struct arena g_arena[MAX_DEVICES];
struct host *g_host;

static uint64_t next_id = 1;

void make_arena(int dev) {
    struct arena *a = &g_arena[dev];
    a->size = setting("FAKE_CUDA_MIB", 4096) << 20; /* takes no memory until it is touched */
    a->fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)a->size) != 0)
        abort();
    a->device = mmap(NULL, a->size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
    a->alias = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
    if (a->device == MAP_FAILED || a->alias == MAP_FAILED)
        abort();
}

/* What is added to a host pointer to get its device pointer; 0 where a GPU can use host pointers as they are. */
static uint64_t shift(void) { return setting("FAKE_CUDA_SHIFTED", 0) ? (uint64_t)1 << 56 : 0; }

static int device_of(uint64_t addr) {
    for (int dev = 0; dev < g_devices; dev++)
        if (addr - (uintptr_t)g_arena[dev].device < g_arena[dev].size)
            return dev;
    return -1;
}

void *alias_of(uint64_t addr) {
    int dev = device_of(addr);
    return dev < 0 ? NULL : g_arena[dev].alias + (addr - (uintptr_t)g_arena[dev].device);
}

struct alloc *alloc_at(uint64_t addr, int *dev) {
    *dev = device_of(addr);
    for (struct alloc *a = *dev < 0 ? NULL : g_arena[*dev].first; a; a = a->next)
        if (addr - a->addr < a->size)
            return a;
    return NULL;
}

void *device_side(uint64_t addr, uint64_t len) {
    int dev;
    struct alloc *a = alloc_at(addr, &dev);
    return a && len <= a->size - (addr - a->addr) ? alias_of(addr) : NULL;
}

struct host *host_at(uint64_t addr) {
    for (struct host *h = g_host; h; h = h->next)
        if (addr - h->addr < h->size)
            return h;
    return NULL;
}

/* Where a kernel finds memory that it can reach: of its device, or of the host and mapped. */
void *kernel_side(uint64_t addr, uint64_t len) {
    if (device_of(addr) >= 0)
        return device_side(addr, len);
    uint64_t at = addr - shift();
    struct host *h = host_at(at);
    return h && h->mapped && len <= h->size - (at - h->addr) ? (void *)(uintptr_t)at : NULL;
}

uint64_t checksum(const void *from, uint64_t len) {
    uint64_t sum = 0xcbf29ce484222325;
    for (uint64_t i = 0; i < len; i++)
        sum = (sum ^ ((const uint8_t *)from)[i]) * 0x100000001b3;
    return sum;
}

static uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

API CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t size) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!ptr || size == 0)
        return leave(INVALID_VALUE);
    struct arena *arena = &g_arena[ctx->dev];
    uint64_t base = (uintptr_t)arena->device, at = base;
    struct alloc **place = &arena->first;
    for (; *place && (*place)->addr - at < size; place = &(*place)->next)
        at = up((*place)->addr + (*place)->size, ALIGN);
    if (fault("alloc") || at - base > arena->size || size > arena->size - (at - base))
        return leave(OUT_OF_MEMORY);
    struct alloc *made = malloc(sizeof *made);
    *made = (struct alloc){.addr = at, .size = size, .id = next_id++, .ctx = ctx, .next = *place};
    *place = made;
    *ptr = at;
    return leave(OK);
}

/* Gives whole pages back; the next allocation there finds zeroes. */
static void forget(struct arena *arena, const struct alloc *a) {
    uint64_t from = up(a->addr, 4096), to = (a->addr + a->size) & ~(uint64_t)4095, base = (uintptr_t)arena->device;
    if (from < to)
        fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(from - base), (off_t)(to - from));
}

API CUresult cuMemFree_v2(CUdeviceptr ptr) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (ptr == 0)
        return leave(OK);
    int dev = device_of(ptr);
    struct alloc **place = dev < 0 ? NULL : &g_arena[dev].first;
    while (place && *place && (*place)->addr != ptr)
        place = &(*place)->next;
    if (!place || !*place)
        return leave(INVALID_VALUE);
    struct alloc *gone = *place;
    const char *user = uses(gone->addr, gone->size);
    if (user)
        violation("device memory %#lx is freed while a queued %s uses it", (unsigned long)ptr, user);
    *place = gone->next;
    forget(&g_arena[dev], gone);
    free(gone);
    return leave(OK);
}

static bool overlaps_host(uint64_t addr, uint64_t size) {
    for (struct host *h = g_host; h; h = h->next)
        if (addr < h->addr + h->size && h->addr < addr + size)
            return true;
    return false;
}

static struct host *know(struct ctx *ctx, uint64_t addr, uint64_t size) {
    struct host *h = malloc(sizeof *h);
    *h = (struct host){.addr = addr, .size = size, .id = next_id++, .ctx = ctx, .next = g_host};
    return g_host = h;
}

static void unknow(struct host **place) {
    struct host *gone = *place;
    *place = gone->next;
    free(gone);
}

/* With unified addressing all of it is portable and mapped. */
API CUresult cuMemHostAlloc(void **ptr, size_t size, unsigned flags) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    if (!ptr || size == 0 || flags > 7)
        return leave(INVALID_VALUE);
    if (fault("host_alloc"))
        return leave(OUT_OF_MEMORY);
    uint64_t whole = up(size, 4096);
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return leave(OUT_OF_MEMORY);
    struct host *h = know(ctx, (uintptr_t)at, whole);
    h->owned = h->portable = h->mapped = true;
    *ptr = at;
    return leave(OK);
}

static struct host **base_of(const void *ptr, bool owned) {
    struct host **place = &g_host;
    while (*place && ((*place)->addr != (uintptr_t)ptr || (*place)->owned != owned))
        place = &(*place)->next;
    return *place ? place : NULL;
}

static void check_unused(const struct host *h, const char *what) {
    const char *user = uses(h->addr, h->size);
    if (!user && shift())
        user = uses(h->addr + shift(), h->size);
    if (user)
        violation("host memory %#lx is %s while a queued %s uses it", (unsigned long)h->addr, what, user);
}

API CUresult cuMemFreeHost(void *ptr) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    struct host **place = base_of(ptr, true);
    if (!place)
        return leave(INVALID_VALUE);
    check_unused(*place, "freed");
    munmap(ptr, (*place)->size);
    unknow(place);
    return leave(OK);
}

/* Whether all of the range is mapped with these rights ("r" or "rw"), as a pin of its pages would find out. */
static bool mapped(uint64_t addr, uint64_t size, const char *rights) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uint64_t next = addr;
    while (maps && next < addr + size && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char has[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, has) != 3 || to <= next)
            continue;
        if (from > next || strncmp(has, rights, strlen(rights)) != 0)
            break;
        next = to;
    }
    if (maps)
        fclose(maps);
    return next >= addr + size;
}

enum { PORTABLE = 1, DEVICEMAP = 2, IOMEMORY = 4, READ_ONLY = 8 };

API CUresult cuMemHostRegister_v2(void *ptr, size_t size, unsigned flags) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    uint64_t addr = (uintptr_t)ptr, most = setting("FAKE_CUDA_REGISTER_MAX", (uint64_t)512 << 30);
    if (!ptr || size == 0 || flags > 15 || addr + size < addr)
        return leave(INVALID_VALUE);
    if (fault("register"))
        return leave(NOT_SUPPORTED);
    if (overlaps_host(addr, size))
        return leave(ALREADY_REGISTERED);
    if ((flags & IOMEMORY) || size >= most) /* nothing here is a device's memory */
        return leave(INVALID_VALUE);
    if (!mapped(addr, size, flags & READ_ONLY ? "r" : "rw"))
        return leave(INVALID_VALUE);
    struct host *h = know(ctx, addr, size);
    h->portable = flags & PORTABLE;
    h->mapped = flags & DEVICEMAP;
    h->read_only = flags & READ_ONLY;
    return leave(OK);
}

API CUresult cuMemHostUnregister(void *ptr) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    struct host **place = base_of(ptr, false);
    if (!place) /* a range that is known, but not by this address, or not by registration */
        return leave(host_at((uintptr_t)ptr) ? INVALID_VALUE : NOT_REGISTERED);
    check_unused(*place, "unregistered");
    unknow(place);
    return leave(OK);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *ptr, unsigned flags) {
    ENTER();
    struct ctx *ctx;
    CURRENT(ctx);
    struct host *h = host_at((uintptr_t)ptr);
    if (!device || flags != 0 || !h || !h->mapped || (!h->portable && h->ctx != ctx))
        return leave(INVALID_VALUE);
    *device = (uintptr_t)ptr + shift();
    return leave(OK);
}

/* Host memory that the driver allocated goes as well, as on a real machine: who touches it gets a signal. Its addresses
 * are not used again, so that this is sure. */
void free_memory_of(struct ctx *ctx) {
    for (struct alloc **place = &g_arena[ctx->dev].first; *place;) {
        struct alloc *a = *place;
        if (a->ctx != ctx) {
            place = &a->next;
            continue;
        }
        *place = a->next;
        forget(&g_arena[ctx->dev], a);
        free(a);
    }
    for (struct host **place = &g_host; *place;)
        if ((*place)->ctx == ctx) {
            if ((*place)->owned)
                mmap((void *)(uintptr_t)(*place)->addr, (*place)->size, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            unknow(place);
        } else
            place = &(*place)->next;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
    ENTER();
    int dev;
    struct alloc *a = alloc_at(ptr, &dev);
    if (!a)
        return leave(NOT_FOUND);
    if (base)
        *base = a->addr;
    if (size)
        *size = a->size;
    return leave(OK);
}

/* Attributes by their numbers; those of a boolean are an unsigned. */
API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr) {
    ENTER();
    int dev;
    struct alloc *a = alloc_at(ptr, &dev);
    struct host *h = a ? NULL : host_at(ptr);
    if (!h && !a && shift())
        h = host_at(ptr - shift());
    if (!data || (!a && !h))
        return leave(INVALID_VALUE);
    if (fault("pointer"))
        return leave(UNKNOWN);
    struct ctx *ctx = a ? a->ctx : h->ctx;
    switch (attribute) {
    case 1: memcpy(data, &ctx, sizeof ctx); break;
    case 2: *(unsigned *)data = a ? 2 : 1; break;
    case 3: *(uint64_t *)data = a ? ptr : ptr + (h->addr <= ptr && ptr < h->addr + h->size ? shift() : 0); break;
    case 4:
        if (a)
            return leave(INVALID_VALUE);
        *(uint64_t *)data = h->addr <= ptr && ptr < h->addr + h->size ? ptr : ptr - shift();
        break;
    case 7: *(uint64_t *)data = a ? a->id : h->id; break;
    case 8: *(unsigned *)data = 0; break;
    case 9: *(int *)data = ctx->dev; break;
    case 11: *(uint64_t *)data = a ? a->addr : h->addr; break;
    case 12: *(uint64_t *)data = a ? a->size : h->size; break;
    case 13: *(unsigned *)data = 1; break;
    case 15: *(unsigned *)data = a != NULL; break;
    default: return leave(INVALID_VALUE);
    }
    return leave(OK);
}

/* The descriptor is the whole device's memory; a real one is the range's. */
API CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size, int type, uint64_t flags) {
    ENTER();
    int dev = device_of(ptr);
    if (!handle || type != 1 || size == 0 || ptr % 4096 != 0 || size % 4096 != 0 || flags > 1)
        return leave(INVALID_VALUE);
    if (!device_side(ptr, size))
        return leave(INVALID_VALUE);
    if (flags == 1 || fault("dmabuf"))
        return leave(NOT_SUPPORTED);
    *(int *)handle = fcntl(g_arena[dev].fd, F_DUPFD_CLOEXEC, 3);
    return leave(*(int *)handle < 0 ? UNKNOWN : OK);
}
