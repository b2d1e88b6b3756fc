/*
 * A stand-in for libcufile.so.0: reads and writes files through the stand-in libcuda's memory (plain host memory where
 * that library is not loaded). It is strict: what the real library forgives or crashes on is recorded as a violation.
 *
 *   cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -pthread -o libcufile.so.0 cufile.c -ldl
 *
 * -DFAKE_CUFILE_OLD leaves the optional functions out, -DFAKE_CUFILE_BROKEN a mandatory one.
 *
 * Environment: FAKE_CUFILE_MODE=nvfs|p2pdma|compat (default compat), FAKE_CUFILE_FORCE_COMPAT=1,
 * FAKE_CUFILE_FAULTS="name:after:times,...", as fake_cufile_order takes them.
 *
 * Faults: open[=CODE] open_hang handle[=CODE] handle_hang buffer[=CODE] buffer_hang properties[=CODE] read=CODE
 * deregister_hang (of a handle) write=CODE short errno[=ERRNO] toomuch hang batch_hang
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "cufile_faults.h"

#define ROOM 4096

typedef struct { int err, cu_err; } answer_t;

typedef struct {
    int kind;
    union { int fd; void *handle; } handle;
    const void *fs_ops;
} descriptor_t;

typedef struct {
    struct {
        unsigned major, minor;
        size_t poll_threshold, max_direct;
        unsigned status, control;
    } nvfs;
    unsigned features, cache, per_buffer, pinned, batch_size, batch_timeout;
} properties_t;

typedef struct { bool used; int fd; unsigned busy; } file_t;
typedef struct { bool used; uintptr_t base; size_t len; unsigned busy; } buffer_t;
static bool driver_open;
static file_t files[ROOM];
static buffer_t buffers[ROOM];

/* All that follows up to the exports is called with the lock held, but for hang and move. */

/* The host address of a GPU's; NULL where there is none, or no longer. */
static void *alias(uintptr_t at)
{
    void *(*ask)(uint64_t);
    *(void **)&ask = dlsym(RTLD_DEFAULT, "fake_cuda_alias");
    if (!ask) {
        void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW);
        if (library)
            *(void **)&ask = dlsym(library, "fake_cuda_alias");
    }
    return ask ? ask(at) : (void *)at;
}

static buffer_t *buffer_at(uintptr_t base)
{
    for (size_t i = 0; i < ROOM; i++)
        if (buffers[i].used && buffers[i].base == base)
            return &buffers[i];
    return NULL;
}

static bool inside_a_buffer(uintptr_t at)
{
    for (size_t i = 0; i < ROOM; i++)
        if (buffers[i].used && at > buffers[i].base && at - buffers[i].base < buffers[i].len)
            return true;
    return false;
}

static bool known(const file_t *file)
{
    return file >= files && file < files + ROOM && file->used;
}

static answer_t answer(int err) { return (answer_t){err, err == 5011 ? 999 : 0}; }

static const char *mode(void)
{
    const char *said = getenv("FAKE_CUFILE_MODE");
    return said ? said : "compat";
}

static bool p2pdma(void) { return !strcmp(mode(), "p2pdma"); }

/* Without the lock: the device is slow, and others call meanwhile. */
static ssize_t move(bool write, int fd, uintptr_t at, size_t len, off_t offset)
{
    char *bounce = malloc(len);
    void *memory = alias(at);
    ssize_t done = -1;
    if (bounce && memory) {
        if (write)
            memcpy(bounce, memory, len);
        done = write ? pwrite(fd, bounce, len, offset) : pread(fd, bounce, len, offset);
        int error = errno;
        memory = alias(at);
        if (!write && done > 0 && memory)
            memcpy(memory, bounce, (size_t)done);
        errno = error;
    }
    free(bounce);
    if (!memory) {
        pthread_mutex_lock(&lock);
        violation("I/O on memory %#lx that is not there or was freed", (unsigned long)at);
        pthread_mutex_unlock(&lock);
        return -5012;
    }
    return done;
}

/* What is wrong with a request; 0: nothing. */
static int refuse(file_t *file, uintptr_t base, size_t size, off_t file_offset, off_t offset)
{
    buffer_t *buffer = buffer_at(base);
    if (!driver_open)
        return 5001;
    if (!known(file)) {
        violation("I/O on a handle that is not registered");
        return 5027;
    }
    if (!buffer) {
        violation("I/O by %s %#lx", inside_a_buffer(base) ? "interior pointer" : "unregistered pointer",
                  (unsigned long)base);
        return 5024;
    }
    if (offset < 0 || file_offset < 0 || (size_t)offset > buffer->len || size > buffer->len - (size_t)offset) {
        violation("I/O past the end of its buffer");
        return 5017;
    }
    if (p2pdma() && ((size | (size_t)offset | (size_t)file_offset) & 4095))
        violation("unaligned I/O by P2PDMA: %zu bytes at %lld, memory offset %lld", size, (long long)file_offset,
                  (long long)offset);
    return 0;
}

static ssize_t io(bool write, file_t *file, uintptr_t base, size_t size, off_t file_offset, off_t offset)
{
    pthread_mutex_lock(&lock);
    count(write ? "cuFileWrite" : "cuFileRead");
    int code = refuse(file, base, size, file_offset, offset);
    if (!code)
        code = strikes(write ? "write" : "read", 5030);
    if (code) {
        pthread_mutex_unlock(&lock);
        return -code;
    }
    buffer_t *buffer = buffer_at(base);
    buffer->busy++;
    file->busy++;
    int error = strikes("errno", EIO), too_much = strikes("toomuch", 1);
    size_t part = strikes("short", 1) ? size / 2 : size;
    if (strikes("hang", 1))
        wait_for_release();
    pthread_mutex_unlock(&lock);
    ssize_t done = error ? -1 : move(write, file->fd, base + (uintptr_t)offset, part, file_offset);
    int error_of_move = error ? error : errno;
    pthread_mutex_lock(&lock);
    buffer->busy--;
    file->busy--;
    pthread_mutex_unlock(&lock);
    errno = error_of_move;
    return too_much ? (ssize_t)size + 1 : done;
}

EXPORT ssize_t cuFileWrite(file_t *file, const void *base, size_t size, off_t file_offset, off_t offset)
{
    return io(true, file, (uintptr_t)base, size, file_offset, offset);
}

#ifndef FAKE_CUFILE_BROKEN
EXPORT ssize_t cuFileRead(file_t *file, void *base, size_t size, off_t file_offset, off_t offset)
{
    return io(false, file, (uintptr_t)base, size, file_offset, offset);
}
#endif

EXPORT answer_t cuFileDriverOpen(void)
{
    pthread_mutex_lock(&lock);
    count("cuFileDriverOpen");
    if (strikes("open_hang", 1))
        wait_for_release();
    int code = strikes("open", 5001);
    driver_open |= !code;
    pthread_mutex_unlock(&lock);
    return answer(code);
}

EXPORT answer_t cuFileHandleRegister(file_t **handle, descriptor_t *descriptor)
{
    pthread_mutex_lock(&lock);
    count("cuFileHandleRegister");
    if (strikes("handle_hang", 1))
        wait_for_release();
    int code = !driver_open ? 5001 : descriptor->kind != 1 || descriptor->fs_ops ? 5022 : strikes("handle", 5027);
    file_t *file = files;
    while (!code && file < files + ROOM && file->used)
        file++;
    if (!code) {
        /* A description of its own, without O_DIRECT: unaligned requests work here as in the real one. */
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor->handle.fd);
        int flags = fcntl(descriptor->handle.fd, F_GETFL);
        int fd = flags < 0 || file == files + ROOM ? -1 : open(path, (flags & O_ACCMODE) | O_CLOEXEC);
        code = fd < 0 ? 5018 : 0;
        if (!code)
            *file = (file_t){true, fd, 0};
        *handle = code ? NULL : file;
    }
    pthread_mutex_unlock(&lock);
    return answer(code);
}

EXPORT void cuFileHandleDeregister(file_t *file)
{
    pthread_mutex_lock(&lock);
    count("cuFileHandleDeregister");
    if (strikes("deregister_hang", 1))
        wait_for_release();
    if (!known(file)) {
        violation("a handle was deregistered that is not registered");
    } else {
        if (file->busy)
            violation("a handle was deregistered with I/O in flight");
        else
            close(file->fd);
        file->used = false;
    }
    pthread_mutex_unlock(&lock);
}

EXPORT answer_t cuFileBufRegister(const void *base, size_t len, int flags)
{
    pthread_mutex_lock(&lock);
    count("cuFileBufRegister");
    if (strikes("buffer_hang", 1))
        wait_for_release();
    uintptr_t at = (uintptr_t)base;
    int code = !driver_open ? 5001 : !len || flags ? 5022 : !alias(at) || !alias(at + len - 1) ? 5012 : 0;
    if (!code)
        code = buffer_at(at) ? 5023 : strikes("buffer", 5036);
    for (size_t i = 0; !code; i++) {
        if (i == ROOM)
            code = 5036;
        else if (!buffers[i].used) {
            buffers[i] = (buffer_t){true, at, len, 0};
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return answer(code);
}

EXPORT answer_t cuFileBufDeregister(const void *base)
{
    pthread_mutex_lock(&lock);
    count("cuFileBufDeregister");
    buffer_t *buffer = buffer_at((uintptr_t)base);
    if (!buffer) {
        violation("a buffer was deregistered that is not registered");
    } else {
        if (buffer->busy)
            violation("a buffer was deregistered with I/O in flight");
        if (!alias(buffer->base))
            violation("a buffer was deregistered after its memory was freed");
        buffer->used = false;
    }
    pthread_mutex_unlock(&lock);
    return answer(buffer ? 0 : 5022);
}

#ifndef FAKE_CUFILE_OLD
EXPORT answer_t cuFileDriverClose_v2(void)
{
    pthread_mutex_lock(&lock);
    count("cuFileDriverClose");
    for (size_t i = 0; i < ROOM; i++)
        if ((files[i].used && files[i].busy) || (buffers[i].used && buffers[i].busy))
            violation("the driver was closed with I/O in flight");
    driver_open = false;
    pthread_mutex_unlock(&lock);
    return answer(0);
}

EXPORT answer_t cuFileDriverGetProperties(properties_t *out)
{
    pthread_mutex_lock(&lock);
    count("cuFileDriverGetProperties");
    int code = strikes("properties", 5002);
    pthread_mutex_unlock(&lock);
    bool nvfs = !strcmp(mode(), "nvfs");
    *out = (properties_t){.nvfs = {nvfs ? 2 : 0, nvfs ? 27 : 0, 4, 16384, 0, 2}, .cache = 131072, .per_buffer = 1024,
                          .pinned = 33554432, .batch_size = 128, .batch_timeout = 5};
    out->nvfs.status = nvfs ? 1u << 4 : p2pdma() ? 1u << 4 | 1u << 11 : 0;
    out->features = p2pdma() ? 1u << 4 : 0;
    return answer(code);
}

EXPORT answer_t cuFileGetVersion(int *version)
{
    *version = 1150;
    return answer(0);
}

EXPORT long cuFileUseCount(void) { return driver_open; }

EXPORT answer_t cuFileGetParameterBool(int parameter, bool *value)
{
    const char *forced = getenv("FAKE_CUFILE_FORCE_COMPAT");
    *value = parameter == 1 || (parameter == 2 && forced) || (parameter == 7 && p2pdma());
    return answer(parameter < 0 || parameter > 11 ? 5022 : 0);
}

#include "cufile_batch.h"
#endif

EXPORT uint64_t fake_cufile_count(const char *function);
/* How often a function was called; "in flight": how many requests are being served now. */
EXPORT uint64_t fake_cufile_count(const char *function)
{
    uint64_t calls = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        if (!strcmp(counters[i].name, function))
            calls = counters[i].calls;
    for (size_t i = 0; i < ROOM && !strcmp(function, "in flight"); i++)
        calls += buffers[i].used ? buffers[i].busy : 0;
    pthread_mutex_unlock(&lock);
    return calls;
}
