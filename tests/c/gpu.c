/* GPU memory, over the stand-in for libcuda (tests/fake_cuda/), which is found as the real one is. */
#include "setup.h"

#include <dlfcn.h>
#include <pthread.h>

static void *library;
static fullbore_engine *engine;
static fullbore_client *client;
static fullbore_target *target;

enum { BYTES = 4 * MIB };

/* The driver's calls by name; all that are used here take words. */
static uint64_t call(const char *name, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t (*function)(uint64_t, uint64_t, uint64_t);
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    memcpy(&function, &symbol, sizeof function);
    return function(a, b, c);
}

static void cuda(const char *name, uint64_t a, uint64_t b, uint64_t c) { CHECK_IS((uint32_t)call(name, a, b, c), 0); }
static uint64_t word(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }
static void order(const char *fault, uint64_t after, uint64_t times) { call("fake_cuda_order", word(fault), after, times); }
static const uint8_t *alias(const void *pointer) { return (uint8_t *)(uintptr_t)call("fake_cuda_alias", word(pointer), 0, 0); }

static void no_violations(void) {
    const char *text = (const char *)(uintptr_t)call("fake_cuda_violations", 0, 0, 0);
    if (*text)
        fprintf(stderr, "%s", text);
    CHECK(*text == 0);
}

static void current_context(int device) {
    uint64_t context = 0;
    cuda("cuDevicePrimaryCtxRetain", word(&context), (uint64_t)device, 0);
    cuda("cuCtxSetCurrent", context, 0, 0);
}

static fullbore_completion load(void *to, uint64_t offset, uint64_t len) {
    static fullbore_extent extent;
    extent = (fullbore_extent){.offset = offset, .ptr = to, .len = len};
    submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extent, 1));
    return next_of(client);
}

static void check_there(const uint8_t *bytes, uint64_t from, uint64_t len) {
    for (uint64_t i = 0; i < len; i++)
        if (bytes[i] != content(from + i))
            CHECK_IS(bytes[i], content(from + i));
}

/* Allocated here, on each GPU: loaded, looked at behind the driver's back, copied out and in, stored, loaded again. */
static void allocated(uint32_t gpu) {
    fullbore_region *region = NULL;
    CHECK_OK(fullbore_region_alloc_gpu(engine, gpu, BYTES, &region));
    fullbore_region_info info = {.size = sizeof info};
    CHECK_OK(fullbore_region_get_info(region, &info));
    CHECK(info.flags & FULLBORE_REGION_GPU);
    CHECK_IS(info.gpu, gpu);
    CHECK_IS(info.len, BYTES);
    CHECK(info.ptr == fullbore_region_ptr(region) && info.ptr != NULL);
    fullbore_path_info path = {.size = sizeof path};
    CHECK_OK(fullbore_path_query(engine, target, region, &path));
    CHECK_IS(path.path, FULLBORE_PATH_PINNED_BOUNCE);
    order("slow", 0, 1); /* 50 ms */
    fullbore_completion done = load((char *)info.ptr + 8192, 4096, BYTES / 2);
    CHECK_IS(done.result, 0);
    CHECK(done.copied_ns >= 50 * SECOND / 1000 && done.waited_ns + done.copied_ns <= done.total_ns);
    CHECK(done.paths & FULLBORE_PATH_PINNED_BOUNCE);
    check_there(alias(info.ptr) + 8192, 4096, BYTES / 2);

    uint8_t *host = malloc(BYTES);
    CHECK(host != NULL);
    CHECK_OK(fullbore_region_copy_out(region, 8192, host, BYTES / 2));
    check_there(host, 4096, BYTES / 2);
    for (uint64_t i = 0; i < BYTES; i++)
        host[i] = (uint8_t)~content(i);
    CHECK_OK(fullbore_region_copy_in(region, 0, host, BYTES));
    CHECK(memcmp(alias(info.ptr), host, BYTES) == 0);
    REFUSED(fullbore_region_copy_out(region, BYTES - 1, host, 2), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);
    REFUSED(fullbore_region_copy_in(region, BYTES + 1, host, 1), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);

    fullbore_extent extent = {.offset = 0, .ptr = info.ptr, .len = BYTES};
    fullbore_transfer store = transfer_of(FULLBORE_OP_WRITE, target, &extent, 1);
    store.flags = FULLBORE_TRANSFER_DURABLE;
    submit_one(client, store);
    CHECK_IS(next_of(client).result, 0);
    int fd = open("data", O_RDONLY | O_CLOEXEC);
    uint8_t *file = malloc(BYTES);
    CHECK(fd >= 0 && file != NULL);
    CHECK_IS(pread(fd, file, BYTES, 0), BYTES);
    CHECK(memcmp(file, host, BYTES) == 0);
    CHECK_OK(close(fd));
    file_of("data", BYTES); /* as it was */
    free(file);
    free(host);

    int exported = fullbore_region_export_dma_buf(region);
    CHECK(exported >= 0);
    CHECK_OK(close(exported)); /* it is ours */
    order("dmabuf", 0, 1);
    REFUSED(fullbore_region_export_dma_buf(region), EOPNOTSUPP, FULLBORE_KIND_UNSUPPORTED);
    CHECK_IS(fullbore_last_error()->domain, FULLBORE_DOMAIN_CUDA);
    CHECK_IS(fullbore_last_error()->code, 801);
    /* Of no GPU's memory: a pointer behind it. */
    extent.ptr = (char *)info.ptr + BYTES - 4096;
    extent.len = 8192;
    INVALID(fullbore_submit(client, &store, 1));
    CHECK_OK(fullbore_region_free(region, LONG));
}

/* The caller's own memory: of its whole allocation, of a part; not of the host, nor beyond the end. */
static void registered(void) {
    uint64_t pointer = 0;
    static uint8_t host[8192];
    fullbore_region *region = NULL;
    current_context(0);
    cuda("cuMemAlloc_v2", word(&pointer), BYTES, 0);
    CHECK_OK(fullbore_region_register_cuda(engine, pointer + 4096, BYTES - 4096, &region));
    CHECK(fullbore_region_ptr(region) == (void *)(uintptr_t)(pointer + 4096));
    fullbore_completion done = load((void *)(uintptr_t)(pointer + 4096), 0, MIB);
    CHECK_IS(done.result, 0);
    check_there(alias((void *)(uintptr_t)pointer) + 4096, 0, MIB);
    CHECK_OK(fullbore_region_free(region, LONG));
    CHECK(fullbore_region_register_cuda(engine, pointer, BYTES + 1, &region) < 0);
    check_error(__FILE__, __LINE__, "beyond the end", fullbore_last_error(), fullbore_last_error()->kind);
    CHECK(region == NULL);
    INVALID(fullbore_region_register_cuda(engine, word(host), sizeof host, &region));
    INVALID(fullbore_region_register_cuda(engine, 0, 4096, &region));
    INVALID(fullbore_region_register_cuda(engine, pointer, 0, &region));
    REFUSED(fullbore_region_alloc_gpu(engine, 2, 4096, &region), ENOENT, FULLBORE_KIND_NOT_FOUND);
    cuda("cuMemFree_v2", pointer, 0, 0);
}

/* What the driver says comes with its number. */
static void the_drivers_errors(void) {
    fullbore_region *region = NULL;
    order("alloc", 0, 1);
    int answer = fullbore_region_alloc_gpu(engine, 0, MIB, &region);
    CHECK(answer == -ENOMEM && region == NULL);
    CHECK_IS(fullbore_last_error()->domain, FULLBORE_DOMAIN_CUDA);
    CHECK_IS(fullbore_last_error()->code, 2);
    CHECK_OK(fullbore_region_alloc_gpu(engine, 0, MIB, &region));
    order("copy", 0, UINT64_MAX);
    fullbore_completion done = load(fullbore_region_ptr(region), 0, MIB);
    order("copy", 0, 0);
    CHECK(done.result < 0);
    CHECK_IS(done.error.domain, FULLBORE_DOMAIN_CUDA);
    CHECK_IS(done.error.code, 999);
    CHECK_IS(load(fullbore_region_ptr(region), 0, MIB).result, 0);
    CHECK_OK(fullbore_region_free(region, LONG));
}

static bool built_by_clang(void) {
#ifdef __clang__
    return true;
#else
    return false;
#endif
}

/* A stream waits for marks: what is queued behind the wait runs when the bytes are there. */
static void streams(void) {
    enum { LAYERS = 4, LAYER = BYTES / LAYERS };
    const uint32_t after[LAYERS] = {0, 1, 2, 3};
    uint8_t *there = malloc(BYTES);
    fullbore_extent extents[LAYERS];
    fullbore_marks *marks = NULL;
    fullbore_region *region = NULL;
    uint64_t stream = 0;
    CHECK(there != NULL);
    current_context(1);
    cuda("cuStreamCreate", word(&stream), 1, 0);
    CHECK_OK(fullbore_region_alloc_gpu(engine, 1, BYTES, &region));
    char *base = fullbore_region_ptr(region);
    CHECK_OK(fullbore_marks_create(after, LAYERS, &marks));
    for (uint64_t i = 0; i < LAYERS; i++)
        extents[i] = (fullbore_extent){.offset = i * LAYER, .ptr = base + i * LAYER, .len = LAYER};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, LAYERS);
    transfer.marks = marks;
    submit_one(client, transfer);
    INVALID(fullbore_marks_stream_wait(marks, LAYERS, region, (void *)(uintptr_t)stream));
    for (uint64_t i = 0; i < LAYERS; i++) {
        CHECK_OK(fullbore_marks_stream_wait(marks, i, region, (void *)(uintptr_t)stream));
        uint64_t (*copy)(void *, uint64_t, size_t, uint64_t);
        void *symbol = dlsym(library, "cuMemcpyDtoHAsync_v2");
        memcpy(&copy, &symbol, sizeof copy);
        CHECK_IS((uint32_t)copy(there + i * LAYER, word(base) + i * LAYER, LAYER, stream), 0);
    }
    cuda("cuStreamSynchronize", stream, 0, 0);
    check_there(there, 0, BYTES);
    CHECK_IS(next_of(client).result, 0);
    cuda("cuStreamDestroy_v2", stream, 0, 0);
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_region_free(region, LONG));
    free(there);
}

/* A copy that does not end: the transfer is abandoned, its memory is kept until the copy is over. */
static void abandoned(void) {
    fullbore_engine *short_lived = engine_with((fullbore_engine_options){.grace_ns = 100 * MS});
    fullbore_client *theirs = client_of(short_lived);
    fullbore_target *there = file_target(short_lived, "data", 0);
    fullbore_region *region = NULL;
    CHECK_OK(fullbore_region_alloc_gpu(short_lived, 0, MIB, &region));
    fullbore_extent *extent = calloc(1, sizeof *extent);
    CHECK(extent != NULL);
    *extent = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = MIB};
    fullbore_transfer hangs = transfer_of(FULLBORE_OP_READ, there, extent, 1);
    fullbore_completion done;
    hangs.deadline_ns = 50 * MS;
    do { /* on a busy machine the time may be over before the copy is begun */
        hangs.deadline_ns *= 2;
        CHECK(hangs.deadline_ns < LONG);
        order("hang", 0, 1);
        submit_one(theirs, hangs);
        done = next_of(theirs);
    } while (done.result == -ETIMEDOUT);
    FAILED(done, EOWNERDEAD, FULLBORE_KIND_ABANDONED);
    fullbore_stats stats = {.size = sizeof stats};
    CHECK_OK(fullbore_stats_get(short_lived, &stats));
    CHECK_IS(stats.quarantined_bytes, MIB);
    REFUSED(fullbore_region_free(region, 0), EINPROGRESS, FULLBORE_KIND_QUARANTINED);
    REFUSED(fullbore_region_free(region, 20 * MS), EINPROGRESS, FULLBORE_KIND_QUARANTINED);
    call("fake_cuda_release", 0, 0, 0);
    CHECK_OK(fullbore_region_free(region, LONG));
    free(extent);
    CHECK_OK(fullbore_client_destroy(theirs));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(short_lived));
}

int main(void) {
    if (!rings())
        SKIP("no io_uring here, and the null queue has no GPUs");
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL || dlsym(library, "fake_cuda_alias") == NULL) /* never over a real one */
        SKIP("no stand-in for libcuda is to be found");
    cuda("cuInit", 0, 0, 0);
    CHECK_IS(fullbore_feature(FULLBORE_FEATURE_CUDA), 1);
    engine = engine_with((fullbore_engine_options){.cufile = FULLBORE_CUFILE_NEVER});
    CHECK_IS(fullbore_gpus(engine), 2);
    client = client_of(engine);
    target = file_target(engine, file_of("data", BYTES), FULLBORE_OPEN_WRITE);
    allocated(0);
    allocated(1);
    registered();
    the_drivers_errors();
    if (!(mode_is("sanitized") && built_by_clang())) /* see leaks.supp */
        streams();
    no_violations();
    abandoned();
    check_quiet(engine);
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
