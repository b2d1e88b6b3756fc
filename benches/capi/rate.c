/*
 * The same loop as rate.rs, in C: loads objects of a file (or of the null queue) one behind another, some in flight, for a
 * while; then loads each place's last object again into poisoned memory and checks every word.
 *
 *     rate FILE|null OBJECT_BYTES IN_FLIGHT SECONDS
 */
#define _GNU_SOURCE
#include <fullbore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64 };

static void must(int64_t answer, const char *what) {
    if (answer < 0) {
        fprintf(stderr, "%s: %s\n", what, fullbore_last_error()->message);
        exit(1);
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What rate.py wrote: each word of 8 bytes is its number times an odd constant. */
static void check(const uint64_t *words, uint64_t offset, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / 8; i++) {
        if (words[i] != (offset / 8 + i) * UINT64_C(0x9E3779B97F4A7C15)) {
            fprintf(stderr, "wrong word at byte %llu\n", (unsigned long long)(offset + i * 8));
            exit(1);
        }
    }
}

static fullbore_client *client;
static fullbore_extent extents[MOST];
static fullbore_transfer transfers[MOST];
static fullbore_completion done[MOST];

static void submit(size_t count) {
    int64_t taken = fullbore_submit(client, transfers, count);
    must(taken, "submit");
    if ((size_t)taken < count) {
        must(-1, "submit");
    }
}

/* Waits for completions and sees that each moved all of its bytes. */
static size_t fetch(size_t least, uint64_t bytes) {
    int64_t got = fullbore_wait(client, least, MOST, FULLBORE_FOREVER, done);
    must(got, "wait");
    for (int64_t i = 0; i < got; i++) {
        if (done[i].result != 0 || done[i].bytes != bytes) {
            fprintf(stderr, "a load failed: %s\n", done[i].error.message);
            exit(1);
        }
    }
    return (size_t)got;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: rate FILE|null OBJECT_BYTES IN_FLIGHT SECONDS\n");
        return 2;
    }
    int null = strcmp(argv[1], "null") == 0;
    uint64_t bytes = strtoull(argv[2], NULL, 10);
    size_t depth = strtoull(argv[3], NULL, 10);
    double seconds = strtod(argv[4], NULL);
    if (bytes == 0 || bytes % 4096 != 0 || depth == 0 || depth > MOST) {
        fprintf(stderr, "rate: give whole pages, and 1 to %d in flight\n", MOST);
        return 2;
    }

    fullbore_engine_options options = { .size = sizeof options, .version = FULLBORE_ABI,
                                        .flags = null ? FULLBORE_ENGINE_NULL : 0 };
    fullbore_engine *engine;
    fullbore_target *target;
    fullbore_region *region;
    must(fullbore_engine_create(&options, &engine), "engine");
    must(null ? fullbore_target_open_null(engine, UINT64_C(1) << 40, &target)
              : fullbore_target_open(engine, argv[1], NULL, &target), argv[1]);
    must(fullbore_region_alloc(engine, depth * bytes, NULL, &region), "memory");
    must(fullbore_client_create(engine, &client), "client");
    fullbore_target_info info = { .size = sizeof info };
    must(fullbore_target_get_info(target, &info), "target");
    char *memory = fullbore_region_ptr(region);
    memset(memory, 1, depth * bytes);
    uint64_t objects = info.bytes / bytes, next = 0, loaded = 0;

    for (size_t i = 0; i < depth; i++) {
        extents[i] = (fullbore_extent){ .offset = next++ % objects * bytes, .ptr = memory + i * bytes, .len = bytes };
        transfers[i] = (fullbore_transfer){ .size = sizeof *transfers, .op = FULLBORE_OP_READ, .target = target,
                                            .extents = &extents[i], .count = 1, .tag = i };
    }
    double begun = now(), until = begun + seconds;
    submit(depth);
    size_t out = depth;
    while (out > 0) {
        size_t got = fetch(1, bytes), again = now() < until ? got : 0;
        loaded += got;
        for (size_t i = 0; i < again; i++) {
            uint64_t place = done[i].tag;
            extents[place].offset = next++ % objects * bytes;
            transfers[i].extents = &extents[place];
            transfers[i].tag = place;
        }
        submit(again);
        out = out - got + again;
    }
    double took = now() - begun;

    if (!null) {
        memset(memory, 0xa5, depth * bytes);
        for (size_t i = 0; i < depth; i++) {
            transfers[i].extents = &extents[i];
            transfers[i].tag = i;
        }
        submit(depth);
        for (size_t got = 0; got < depth; got += fetch(1, bytes)) {
        }
        for (size_t i = 0; i < depth; i++) {
            check((const uint64_t *)(memory + i * bytes), extents[i].offset, bytes);
        }
    }
    printf("{\"loads\": %llu, \"seconds\": %.6f}\n", (unsigned long long)loaded, took);
    must(fullbore_client_destroy(client), "client");
    must(fullbore_region_free(region, 0), "memory");
    must(fullbore_target_destroy(target), "target");
    must(fullbore_engine_destroy(engine), "engine");
    return 0;
}
