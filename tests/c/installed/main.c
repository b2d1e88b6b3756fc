/*
 * installed FILE VERSION: a program built against the installed library with what pkg-config says and nothing else. It
 * loads FILE, compares every byte with what stdio reads, and the library's version with the one pkg-config gave.
 */
#include <fullbore.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

static void check(int64_t answer, const char *what) {
    if (answer < 0) {
        fprintf(stderr, "%s: %" PRId64 ": %s\n", what, answer, fullbore_last_error()->message);
        exit(1);
    }
}

static unsigned char *by_stdio(const char *path, uint64_t len) {
    unsigned char *bytes = malloc(len);
    FILE *file = fopen(path, "rb");
    if (!bytes || !file || fread(bytes, 1, len, file) != len) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return bytes;
}

/* The whole file in two extents, the second one first. */
static void load(fullbore_client *client, const fullbore_target *target, unsigned char *to, uint64_t len) {
    uint64_t half = len / 2;
    fullbore_extent extents[] = {{.offset = half, .ptr = to + half, .len = len - half}, {.ptr = to, .len = half}};
    fullbore_transfer transfer = {
        .size = sizeof transfer, .op = FULLBORE_OP_READ, .target = target, .extents = extents, .count = 2, .tag = 7};
    fullbore_completion done;
    check(fullbore_submit(client, &transfer, 1), "submit");
    int64_t completions = fullbore_wait(client, 1, 1, 60 * SECOND, &done);
    check(completions, "wait");
    if (completions != 1 || done.result || done.tag != 7 || done.bytes != len || extents[0].outcome.bytes != len - half) {
        fprintf(stderr, "load: %" PRId64 " completions, %s\n", completions,
                completions && done.result ? done.error.message : "too little");
        exit(1);
    }
    printf("%" PRIu64 " bytes by \"%s\"\n", done.bytes, fullbore_path_name(done.paths));
}

int main(int argc, char **argv) {
    fullbore_engine_options engine_options = {.size = sizeof engine_options, .version = FULLBORE_ABI, .lanes = 1};
    fullbore_open_options open_options = {.size = sizeof open_options, .flags = FULLBORE_OPEN_BUFFERED};
    fullbore_target_info info = {.size = sizeof info};
    fullbore_engine *engine;
    fullbore_target *target;
    fullbore_region *region;
    fullbore_client *client;

    if (argc != 3 || strcmp(fullbore_version_string(), argv[2]) != 0) {
        fprintf(stderr, "installed FILE VERSION; the library is %s\n", fullbore_version_string());
        return 1;
    }
    if (fullbore_feature(FULLBORE_FEATURE_IO_URING) != 1) {
        printf("skipped: %s\n", fullbore_last_error()->message);
        return 0;
    }
    check(fullbore_engine_create(&engine_options, &engine), "engine");
    check(fullbore_target_open(engine, argv[1], &open_options, &target), argv[1]);
    check(fullbore_target_get_info(target, &info), "info");
    check(fullbore_region_alloc(engine, info.bytes, NULL, &region), "region");
    check(fullbore_client_create(engine, &client), "client");
    load(client, target, fullbore_region_ptr(region), info.bytes);

    unsigned char *expected = by_stdio(argv[1], info.bytes);
    if (memcmp(fullbore_region_ptr(region), expected, info.bytes) != 0) {
        fprintf(stderr, "what was loaded is not what %s holds\n", argv[1]);
        return 1;
    }
    free(expected);
    check(fullbore_client_destroy(client), "client");
    check(fullbore_region_free(region, 10 * SECOND), "region");
    check(fullbore_target_destroy(target), "target");
    check(fullbore_engine_destroy(engine), "engine");
    return 0;
}
