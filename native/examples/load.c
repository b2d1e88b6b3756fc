/*
 * load: ranges of a file into memory, all of them one transfer, and a checksum of each.
 *
 *     cc -std=c11 load.c $(pkg-config --cflags --libs fullbore) -o load
 *     ./load /var/cache/objects 0,20971520 41943040,20971520
 */
#include "example.h"


static const char *const USAGE =
    "load FILE OFFSET,LENGTH[=CHECKSUM]...\n"
    "Loads ranges of FILE (a file, a block device, /dev/ng0n1) into memory and prints the FNV-1a checksum of each.\n"
    "Exit status 1 if a range cannot be loaded, or has another checksum than the one given; 2 for bad arguments.\n";

int main(int argc, char **argv)
{
    usage(argc, argv, 2, 1 << 20, USAGE);
    size_t count = (size_t)argc - 2;
    struct fullbore_extent *extents = calloc(count, sizeof *extents);
    const char **wanted = calloc(count, sizeof *wanted);
    if (extents == NULL || wanted == NULL) {
        perror("load");
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        const char *comma = number(argv[i + 2], ",", &extents[i].offset);
        if (*comma != ',') {
            fputs(USAGE, stderr);
            return 2;
        }
        wanted[i] = number(comma + 1, "=", &extents[i].len);
    }

    struct fullbore_engine *engine;
    struct fullbore_target *target;
    struct fullbore_client *client;
    struct fullbore_region *region;
    check(fullbore_engine_create(NULL, &engine), "engine");
    check(fullbore_target_open(engine, argv[1], NULL, &target), "open");
    check(fullbore_client_create(engine, &client), "client");

    uint64_t size = describe(target).bytes, room = 0;
    for (size_t i = 0; i < count; i++) {
        /* Submission would refuse it, too; here it is before memory is taken for it. */
        if (extents[i].offset > size || extents[i].len > size - extents[i].offset) {
            fprintf(stderr, "load: %s has %" PRIu64 " bytes, too few for %s\n", argv[1], size, argv[i + 2]);
            return 1;
        }
        room += pages(extents[i].len);
    }

    /* Pages for each range, out of one region: what lies in a region is registered with the rings, once. */
    check(fullbore_region_alloc(engine, room, NULL, &region), "memory");
    unsigned char *memory = fullbore_region_ptr(region);
    for (size_t i = 0; i < count; i++) {
        extents[i].ptr = memory;
        memory += pages(extents[i].len);
    }

    struct fullbore_transfer transfer = {
        .size = sizeof transfer, .op = FULLBORE_OP_READ, .target = target, .extents = extents, .count = count};
    check(fullbore_submit(client, &transfer, 1), "submit");
    /* `extents` and the memory are the library's until the completion is here. */
    struct fullbore_completion done;
    check(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done), "wait");
    check_completion(&done, "load");

    int status = 0;
    for (size_t i = 0; i < count; i++) {
        char sum[17];
        snprintf(sum, sizeof sum, "%016" PRIx64, checksum(extents[i].ptr, extents[i].len));
        printf("%" PRIu64 ",%" PRIu64 "=%s\n", extents[i].offset, extents[i].len, sum);
        if (*wanted[i] == '=' && strcmp(wanted[i] + 1, sum) != 0) {
            fprintf(stderr, "load: %s is not what is there\n", argv[i + 2]);
            status = 1;
        }
    }

    /* The paths that were taken: a bit each. */
    for (uint32_t path = 1; path != 0; path <<= 1)
        if (done.paths & path)
            fprintf(stderr, "path: %s\n", fullbore_path_name(path));

    check(fullbore_region_free(region, 0), "free");
    check(fullbore_client_destroy(client), "client");
    check(fullbore_target_destroy(target), "target");
    check(fullbore_engine_destroy(engine), "engine");
    free(wanted);
    free(extents);
    return status;
}
