// The few functions of the CUDA driver that the programs here need, found at run time, so that they build on a machine
// without CUDA (and say so there, with exit code 3). Sizes are parsed as fio does: 64m is 64 MiB.
#pragma once

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int cu;
typedef uint64_t cu_ptr;
typedef void *cu_handle;

enum { CU_NOT_READY = 600, HOST_PORTABLE = 1, HOST_DEVICEMAP = 2, CTX_SPIN = 1, CTX_BLOCKING = 4, EVENT_BLOCKING = 1, EVENT_NO_TIMING = 2 };

typedef struct {
    int type, id;
} cu_location;
typedef struct { // CUmemcpyAttributes
    int src_order;
    cu_location src, dst;
    unsigned flags;
} cu_copy_attributes;

#define CUDA_FUNCTIONS(X)                                                                                                      \
    X(cuInit, (unsigned flags))                                                                                                \
    X(cuDriverGetVersion, (int *version))                                                                                      \
    X(cuDeviceGet, (int *device, int ordinal))                                                                                 \
    X(cuDevicePrimaryCtxSetFlags_v2, (int device, unsigned flags))                                                             \
    X(cuDevicePrimaryCtxRetain, (cu_handle * context, int device))                                                             \
    X(cuCtxSetCurrent, (cu_handle context))                                                                                    \
    X(cuMemAlloc_v2, (cu_ptr * at, size_t len))                                                                                \
    X(cuMemHostAlloc, (void **at, size_t len, unsigned flags))                                                                 \
    X(cuMemHostRegister_v2, (void *at, size_t len, unsigned flags))                                                            \
    X(cuMemHostUnregister, (void *at))                                                                                         \
    X(cuMemsetD8_v2, (cu_ptr at, unsigned char value, size_t len))                                                             \
    X(cuMemcpyHtoDAsync_v2, (cu_ptr to, const void *from, size_t len, cu_handle stream))                                       \
    X(cuMemcpyDtoH_v2, (void *to, cu_ptr from, size_t len))                                                                    \
    X(cuStreamCreate, (cu_handle * stream, unsigned flags))                                                                    \
    X(cuStreamSynchronize, (cu_handle stream))                                                                                 \
    X(cuStreamWaitEvent, (cu_handle stream, cu_handle event, unsigned flags))                                                  \
    X(cuEventCreate, (cu_handle * event, unsigned flags))                                                                      \
    X(cuEventRecord, (cu_handle event, cu_handle stream))                                                                      \
    X(cuEventSynchronize, (cu_handle event))                                                                                   \
    X(cuEventQuery, (cu_handle event))                                                                                         \
    X(cuEventElapsedTime, (float *ms, cu_handle start, cu_handle end))                                                         \
    X(cuModuleLoadData, (cu_handle * module, const void *image))                                                               \
    X(cuModuleGetFunction, (cu_handle * function, cu_handle module, const char *name))                                         \
    X(cuLaunchKernel, (cu_handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,       \
                       unsigned shared, cu_handle stream, void **params, void **extra))                                        \
    X(cuGetErrorName, (cu error, const char **name))

#define CUDA_DECLARE(name, args) static cu(*name) args;
CUDA_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE
// 13.0's form (of driver 580 and later); null where the driver has none.
static cu (*cuMemcpyBatchAsync_v2)(cu_ptr *to, cu_ptr *from, size_t *len, size_t count, cu_copy_attributes *attributes,
                                   size_t *first, size_t attribute_count, cu_handle stream);

#define CHECK(call) cuda_check((call), #call, __LINE__)

__attribute__((unused)) static void cuda_check(cu result, const char *what, int line) {
    const char *name = "?";
    if (result) {
        cuGetErrorName(result, &name);
        fprintf(stderr, "line %d: %s: %s (%d)\n", line, what, name, result);
        exit(1);
    }
}

// dlsym answers void *, which ISO C does not turn into a function pointer; POSIX does, by way of memory.
static void cuda_find(void *library, const char *name, void *into, int needed) {
    void *found = dlsym(library, name);
    if (!found && needed) {
        fprintf(stderr, "libcuda.so.1 has no %s: its driver is too old\n", name);
        exit(3);
    }
    memcpy(into, &found, sizeof found);
}

// Loads the driver and makes the primary context of that GPU current. `flags`: how its synchronising calls wait.
static void cuda_start(int gpu, unsigned flags) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "skipped: no CUDA driver here: %s\n", dlerror());
        exit(3);
    }
#define CUDA_FIND(name, args) cuda_find(library, #name, &name, 1);
    CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
    cuda_find(library, "cuMemcpyBatchAsync_v2", &cuMemcpyBatchAsync_v2, 0);
    int device;
    cu_handle context;
    if (cuInit(0) || cuDeviceGet(&device, gpu)) {
        fprintf(stderr, "skipped: no GPU %d here\n", gpu);
        exit(3);
    }
    cuDevicePrimaryCtxSetFlags_v2(device, flags);
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Sorts; the middle one.
static inline double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

// `--name=value` of the arguments, or `otherwise`.
static inline const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    size_t len = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, name, len) && argv[i][2 + len] == '=') {
            return argv[i] + 3 + len;
        }
    }
    return otherwise;
}

static inline size_t size(const char *text) {
    char *end;
    size_t value = strtoull(text, &end, 10);
    switch (*end | 32) {
    case 'g': return value << 30;
    case 'm': return value << 20;
    case 'k': return value << 10;
    default: return value;
    }
}
