// The ceiling "link", and what waking up costs: a plain loop of cuMemcpyHtoDAsync, with no engine.
//
//   cc -std=c11 -O2 -pthread copyloop.c -o copyloop -ldl
//   copyloop [--mode=loop] [--bytes=8g] [--chunk=64m] [--queued=2] [--pool=1g] [--file=F] [--gpu=0] [--repeats=200]
//
// loop    chunks from pinned memory (cuMemHostAlloc), one stream, `queued` of them under way at any time. With --file the
//         source is that file, mapped and registered (PORTABLE | DEVICEMAP) instead, and `pool` is all of it.
// single  one chunk at a time (--chunk=20m), waited for before the next: its time on the copy engine (events), and by the
//         clock when the thread spins (cuEventQuery) and when it sleeps (cuEventSynchronize, blocking). What sleeping adds
//         is the wake-up of the driver's. And the wake-up of a thread that sleeps in poll on an eventfd.
//
// Prints one JSON object. Every byte that was moved last is copied back and compared.

#include "cuda_lite.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_QUEUED = 64, MOST_REPEATS = 100000 };

typedef struct {
    char *host;
    cu_ptr device;
    size_t len;
} pool;

static pool mapped(const char *name) {
    pool p = {0};
    struct stat st;
    int fd = open(name, O_RDWR);
    if (fd < 0 || fstat(fd, &st)) {
        perror(name);
        exit(1);
    }
    p.len = (size_t)st.st_size & ~(size_t)4095;
    p.host = mmap(NULL, p.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (p.host == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    CHECK(cuMemHostRegister_v2(p.host, p.len, HOST_PORTABLE | HOST_DEVICEMAP));
    return p;
}

static pool made(size_t len) {
    pool p = {.len = len};
    void *at = NULL;
    CHECK(cuMemHostAlloc(&at, len, HOST_PORTABLE));
    p.host = at;
    uint64_t word = 88172645463325252u;
    for (size_t i = 0; i + 8 <= len; i += 8) {
        word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        memcpy(p.host + i, &word, 8);
    }
    return p;
}

// Whether the first `len` bytes of the device's memory are the host's, by way of pageable memory, a piece at a time.
static int same(const pool *p, size_t len) {
    size_t step = 16 << 20;
    char *back = malloc(step);
    int good = back != NULL;
    for (size_t at = 0; good && at < len; at += step) {
        size_t n = len - at < step ? len - at : step;
        CHECK(cuMemcpyDtoH_v2(back, p->device + at, n));
        good = !memcmp(back, p->host + at, n);
    }
    free(back);
    return good;
}

static void loop(pool *p, size_t bytes, size_t chunk, unsigned queued) {
    cu_handle stream, ended[MOST_QUEUED];
    CHECK(cuStreamCreate(&stream, 1));
    for (unsigned i = 0; i < queued; i++) {
        CHECK(cuEventCreate(&ended[i], EVENT_BLOCKING | EVENT_NO_TIMING));
    }
    size_t slots = p->len / chunk, count = bytes / chunk;
    CHECK(cuMemcpyHtoDAsync_v2(p->device, p->host, chunk, stream)); // wakes the link up
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemsetD8_v2(p->device, 0xa5, p->len));
    CHECK(cuStreamSynchronize(NULL));
    double cpu = cpu_seconds(), start = now();
    for (size_t i = 0; i < count; i++) {
        if (i >= queued) {
            CHECK(cuEventSynchronize(ended[i % queued]));
        }
        size_t at = i % slots * chunk;
        CHECK(cuMemcpyHtoDAsync_v2(p->device + at, p->host + at, chunk, stream));
        CHECK(cuEventRecord(ended[i % queued], stream));
    }
    CHECK(cuStreamSynchronize(stream));
    double seconds = now() - start, gib = (double)(count * chunk) / (1 << 30);
    cpu = cpu_seconds() - cpu;
    int good = same(p, (count < slots ? count : slots) * chunk);
    printf("{\"name\": \"plain copy loop\", \"gbps\": %.4f, \"bytes\": %zu, \"seconds\": %.6f, \"verified\": %s, "
           "\"cpu_s_per_gib\": %.5f, \"note\": \"%zu MiB chunks, %u queued\"}\n",
           (double)(count * chunk) / seconds / 1e9, count * chunk, seconds, good ? "true" : "false", cpu / gib, chunk >> 20, queued);
    exit(!good);
}

// The wake-up: `writer` notes when it wrote, the sleeper when poll returned.
typedef struct {
    int fd;
    size_t repeats;
    double *woke;
    atomic_size_t served;
} sleeper;

static void *sleeps(void *of) {
    sleeper *s = of;
    for (size_t i = 0; i < s->repeats; i++) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        while (poll(&p, 1, -1) < 1) {
        }
        s->woke[i] = now();
        uint64_t value;
        if (read(s->fd, &value, 8) != 8) {
            perror("eventfd");
        }
        atomic_store(&s->served, i + 1);
    }
    return NULL;
}

static double eventfd_wake(size_t repeats) {
    double *took = calloc(repeats, sizeof *took), *woke = calloc(repeats, sizeof *woke);
    sleeper s = {.fd = eventfd(0, EFD_CLOEXEC), .repeats = repeats, .woke = woke};
    pthread_t thread;
    if (!took || !woke || s.fd < 0 || pthread_create(&thread, NULL, sleeps, &s)) {
        perror("eventfd");
        exit(1);
    }
    for (size_t i = 0; i < repeats; i++) {
        while (atomic_load(&s.served) < i) {
        }
        usleep(500); // it sleeps again
        took[i] = now();
        if (write(s.fd, &(uint64_t){1}, 8) != 8) {
            perror("eventfd");
        }
    }
    pthread_join(thread, NULL);
    for (size_t i = 0; i < repeats; i++) {
        took[i] = woke[i] - took[i];
    }
    double middle = median(took, repeats);
    free(took), free(woke), close(s.fd);
    return middle * 1e6;
}

// One copy at a time; `spin` or sleep until it has ended. Microseconds by the clock, and by events.
static void one_by_one(pool *p, size_t chunk, size_t repeats, int spin, double *clock_us, double *copy_us) {
    cu_handle stream, begun, ended;
    CHECK(cuStreamCreate(&stream, 1));
    CHECK(cuEventCreate(&begun, 0));
    CHECK(cuEventCreate(&ended, EVENT_BLOCKING));
    double *clock = calloc(repeats, sizeof *clock), *copy = calloc(repeats, sizeof *copy);
    size_t slots = p->len / chunk;
    for (size_t i = 0; clock && copy && i < repeats; i++) {
        size_t at = i % slots * chunk;
        double start = now();
        CHECK(cuEventRecord(begun, stream));
        CHECK(cuMemcpyHtoDAsync_v2(p->device + at, p->host + at, chunk, stream));
        CHECK(cuEventRecord(ended, stream));
        if (spin) {
            cu result;
            while ((result = cuEventQuery(ended)) == CU_NOT_READY) {
            }
            CHECK(result);
        } else {
            CHECK(cuEventSynchronize(ended));
        }
        clock[i] = (now() - start) * 1e6;
        float ms = 0;
        CHECK(cuEventElapsedTime(&ms, begun, ended));
        copy[i] = (double)ms * 1e3;
    }
    *clock_us = median(clock, repeats), *copy_us = median(copy, repeats);
    free(clock), free(copy);
}

static void single(pool *p, size_t chunk, size_t repeats) {
    double spin, sleep, copy_spin, copy_sleep;
    one_by_one(p, chunk, repeats / 10 + 1, 1, &spin, &copy_spin); // warm
    CHECK(cuMemsetD8_v2(p->device, 0xa5, p->len));
    CHECK(cuStreamSynchronize(NULL));
    one_by_one(p, chunk, repeats, 1, &spin, &copy_spin);
    one_by_one(p, chunk, repeats, 0, &sleep, &copy_sleep);
    double wake = eventfd_wake(repeats);
    size_t slots = p->len / chunk;
    int good = same(p, (repeats < slots ? repeats : slots) * chunk);
    printf("{\"name\": \"one copy at a time\", \"gbps\": %.4f, \"bytes\": %zu, \"seconds\": %.6f, \"verified\": %s, "
           "\"copy_us\": %.2f, \"spin_us\": %.2f, \"sleep_us\": %.2f, \"driver_wake_us\": %.2f, \"eventfd_wake_us\": %.2f, "
           "\"note\": \"medians of %zu copies of %zu KiB; gbps is of those that spin\"}\n",
           (double)chunk / spin / 1e3, chunk * repeats, spin * 1e-6 * (double)repeats, good ? "true" : "false", copy_spin, spin,
           sleep, sleep - spin, wake, repeats, chunk >> 10);
    exit(!good);
}

int main(int argc, char **argv) {
    const char *mode = option(argc, argv, "mode", "loop"), *file = option(argc, argv, "file", NULL);
    int alone = !strcmp(mode, "single");
    size_t bytes = size(option(argc, argv, "bytes", "8g")), chunk = size(option(argc, argv, "chunk", alone ? "20m" : "64m"));
    size_t queued = size(option(argc, argv, "queued", "2")), repeats = size(option(argc, argv, "repeats", "200"));
    size_t len = size(option(argc, argv, "pool", "1g"));
    if (!alone && strcmp(mode, "loop")) {
        fprintf(stderr, "copyloop: --mode=%s: loop or single\n", mode);
        return 2;
    }
    if (!strcmp(option(argc, argv, "wake", "0"), "1")) { // needs no GPU
        printf("{\"eventfd_wake_us\": %.2f}\n", eventfd_wake(repeats));
        return 0;
    }
    if (!chunk || !queued || queued > MOST_QUEUED || !repeats || repeats > MOST_REPEATS || len < chunk || bytes < chunk) {
        fprintf(stderr, "copyloop: --chunk, --queued, --repeats, --pool or --bytes is out of range\n");
        return 2;
    }
    cuda_start(atoi(option(argc, argv, "gpu", "0")), CTX_BLOCKING);
    pool p = file ? mapped(file) : made(len);
    if (p.len < chunk) {
        fprintf(stderr, "copyloop: the file is smaller than a chunk\n");
        return 2;
    }
    CHECK(cuMemAlloc_v2(&p.device, p.len));
    if (alone) {
        single(&p, chunk, repeats);
    }
    loop(&p, bytes, chunk, (unsigned)queued);
}
