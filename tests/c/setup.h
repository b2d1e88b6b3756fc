/* What the programs stand on: engines, files with known content, transfers, clocks. */
#ifndef SETUP_H
#define SETUP_H

#include "check.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };
#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
/* Long enough for anything that is to happen, on a machine that is busy and under valgrind. */
#define LONG (120 * SECOND)

/* What the runner says: FULLBORE_C_MODE is plain, sanitized or valgrind. */
static inline bool mode_is(const char *mode) {
    const char *is = getenv("FULLBORE_C_MODE");
    return strcmp(is ? is : "plain", mode) == 0;
}

/* So many rounds, times FULLBORE_C_SCALE. */
static inline uint64_t scaled(uint64_t rounds) {
    const char *scale = getenv("FULLBORE_C_SCALE");
    double n = (double)rounds * (scale ? strtod(scale, NULL) : 1.0);
    return n < 1 ? 1 : (uint64_t)n;
}

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static inline void sleep_ns(uint64_t ns) {
    struct timespec pause = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    nanosleep(&pause, NULL);
}

/* Whether rings are to be had: not under a valgrind that does not know them, nor where the kernel forbids them. */
static inline bool rings(void) {
    static int known = -1; /* the question makes a ring, each time */
    const char *queue = getenv("FULLBORE_C_QUEUE");
    if (known < 0)
        known = !(queue && strcmp(queue, "null") == 0) && fullbore_feature(FULLBORE_FEATURE_IO_URING) == 1;
    return known;
}

static inline fullbore_engine *engine_with(fullbore_engine_options options) {
    fullbore_engine *engine = NULL;
    options.size = sizeof options;
    options.version = FULLBORE_ABI;
    if (options.lanes == 0)
        options.lanes = 2;
    CHECK_OK(fullbore_engine_create(&options, &engine));
    CHECK(engine != NULL);
    return engine;
}

static inline fullbore_engine *null_engine(void) {
    return engine_with((fullbore_engine_options){.flags = FULLBORE_ENGINE_NULL});
}

/* An engine whose commands of 4 KiB make what is large slow: over the null queue about a second a GiB. */
static inline fullbore_engine *slow_engine(void) {
    return engine_with((fullbore_engine_options){
        .flags = FULLBORE_ENGINE_NULL, .command_size = 4096, .lanes = 1, .lane_depth = 1, .unit_size = 4096});
}

static inline fullbore_client *client_of(const fullbore_engine *engine) {
    fullbore_client *client = NULL;
    CHECK_OK(fullbore_client_create(engine, &client));
    CHECK(client != NULL);
    return client;
}

static inline fullbore_region *region_of(const fullbore_engine *engine, uint64_t bytes) {
    fullbore_region *region = NULL;
    fullbore_alloc_options options = {.size = sizeof options, .flags = FULLBORE_ALLOC_NO_HUGE};
    CHECK_OK(fullbore_region_alloc(engine, bytes, &options, &region));
    CHECK(fullbore_region_ptr(region) != NULL);
    return region;
}

static inline fullbore_target *null_target(const fullbore_engine *engine, uint64_t bytes) {
    fullbore_target *target = NULL;
    CHECK_OK(fullbore_target_open_null(engine, bytes, &target));
    return target;
}

/* A file's byte at an offset: neither rows nor pages are alike. */
static inline uint8_t content(uint64_t at) { return (uint8_t)((at * UINT64_C(0x9E3779B97F4A7C15)) >> 56); }

/* Makes a file of known content here (the runner gives each program a folder of its own). */
static inline const char *file_of(const char *name, size_t bytes) {
    uint8_t *all = malloc(bytes);
    CHECK(all != NULL);
    for (size_t i = 0; i < bytes; i++)
        all[i] = content(i);
    int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, all + done, bytes - done);
        CHECK(n > 0);
        done += (size_t)n;
    }
    CHECK_OK(close(fd));
    free(all);
    return name;
}

/* Opens a file with O_DIRECT, or where the file system has none through the page cache. */
static inline fullbore_target *file_target(const fullbore_engine *engine, const char *name, uint32_t flags) {
    fullbore_target *target = NULL;
    fullbore_open_options options = {.size = sizeof options, .flags = flags};
    int answer = fullbore_target_open(engine, name, &options, &target);
    if (answer == -EOPNOTSUPP || answer == -EINVAL) {
        options.flags |= FULLBORE_OPEN_BUFFERED;
        answer = fullbore_target_open(engine, name, &options, &target);
    }
    CHECK_OK(answer);
    return target;
}

static inline fullbore_transfer transfer_of(uint32_t op, const fullbore_target *target, fullbore_extent *extents, uint64_t count) {
    return (fullbore_transfer){
        .size = sizeof(fullbore_transfer), .op = op, .target = target, .extents = extents, .count = count};
}

static inline uint64_t submit_one(fullbore_client *client, fullbore_transfer transfer) {
    CHECK_IS(fullbore_submit(client, &transfer, 1), 1);
    return transfer.id;
}

/* The one completion that is due. */
static inline fullbore_completion next_of(fullbore_client *client) {
    fullbore_completion done;
    memset(&done, 0xA5, sizeof done);
    CHECK_IS(fullbore_wait(client, 1, 1, LONG, &done), 1);
    for (size_t i = 0; i < COUNT(done.reserved); i++)
        CHECK_IS(done.reserved[i], 0);
    CHECK((done.result == 0) == (done.error.domain == FULLBORE_DOMAIN_NONE));
    CHECK(done.error.message != NULL);
    return done;
}

/* Extents that take a slow engine many seconds, if nobody stops it: as memory, a region's again and again (nothing moves). */
enum { SLOW_EXTENTS = 4096 };
static inline fullbore_extent *slow_extents(void *memory, uint64_t len) {
    fullbore_extent *extents = calloc(SLOW_EXTENTS, sizeof *extents);
    CHECK(extents != NULL);
    for (uint64_t i = 0; i < SLOW_EXTENTS; i++)
        extents[i] = (fullbore_extent){.offset = i * len, .ptr = memory, .len = len};
    return extents;
}

/* Nothing is under way, nothing went wrong. A lane counts a moment after it published. */
static inline void check_quiet(const fullbore_engine *engine) {
    fullbore_stats stats = {.size = sizeof stats};
    for (uint64_t until = now_ns() + LONG;; sleep_ns(MS)) {
        CHECK_OK(fullbore_stats_get(engine, &stats));
        if ((stats.active == 0 && stats.in_flight == 0) || now_ns() > until)
            break;
    }
    CHECK_IS(stats.active, 0);
    CHECK_IS(stats.in_flight, 0);
    CHECK_IS(stats.stale, 0);
    CHECK_IS(stats.quarantined_bytes, 0);
    CHECK_IS(stats.lanes_dead, 0);
}

/* Bytes of this process that are in memory. */
static inline uint64_t resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL);
    unsigned long all = 0, pages = 0;
    CHECK_IS(fscanf(file, "%lu %lu", &all, &pages), 2);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static inline int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A lane may be the last to hold a descriptor that was given up, for a moment. */
static inline void files_become(int want) {
    for (uint64_t until = now_ns() + 20 * SECOND; open_files() != want; sleep_ns(MS))
        if (now_ns() > until)
            CHECK_IS(open_files(), want);
}

/* So that tests which cannot run here say so. */
#define SKIP(...) (printf("skipped: " __VA_ARGS__), printf("\n"), exit(0))

#endif
