/*
 * store_load: writes objects durably, loads them again into other memory, and looks at every byte.
 *
 *     cc -std=c11 store_load.c $(pkg-config --cflags --libs fullbore) -o store_load
 *     ./store_load /var/cache/objects 8 20971520
 */
#include "example.h"

static const char *const USAGE =
    "store_load [--verify] FILE [OBJECTS [BYTES]]\n"
    "Writes OBJECTS (8) of BYTES (4194304, whole blocks) to FILE, which is made if it is not there, loads them again and\n"
    "compares every byte. --verify: only loads and compares what a run before has written.\n"
    "Exit status 1 on a failure, or if a byte is not what was written; 2 for bad arguments.\n";

/* What belongs at byte `offset` of the file, eight bytes at a time: no two places have the same. */
static uint64_t word_at(uint64_t offset)
{
    return (offset + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Moves all objects, a transfer each, and waits for all of them. */
static void move(struct fullbore_client *client, struct fullbore_transfer *transfers, size_t count, const char *what)
{
    size_t taken = 0, ended = 0;
    while (ended < count) {
        int64_t more = fullbore_submit(client, transfers + taken, count - taken);
        if (more == -EAGAIN)
            more = 0; /* as many as the engine takes are under way: a completion makes room */
        taken += (size_t)check(more, what);
        struct fullbore_completion done[16];
        int64_t got = check(fullbore_wait(client, 1, 16, FULLBORE_FOREVER, done), what);
        for (int64_t i = 0; i < got; i++)
            check_completion(&done[i], what);
        ended += (size_t)got;
    }
}

int main(int argc, char **argv)
{
    int verify = argc > 1 && strcmp(argv[1], "--verify") == 0;
    if (verify) {
        argv++;
        argc--;
    }
    usage(argc, argv, 1, 3, USAGE);
    uint64_t objects = 8, bytes = 4 << 20;
    if (argc > 2)
        number(argv[2], "", &objects);
    if (argc > 3)
        number(argv[3], "", &bytes);
    if (objects == 0 || bytes == 0 || bytes % 8 != 0 || objects > SIZE_MAX / 2 / bytes) {
        fputs(USAGE, stderr);
        return 2;
    }
    uint64_t total = objects * bytes;

    struct fullbore_engine *engine;
    struct fullbore_target *target;
    struct fullbore_client *client;
    struct fullbore_region *region;
    struct fullbore_open_options create = {
        .size = sizeof create, .flags = FULLBORE_OPEN_CREATE, .create_bytes = total};
    check(fullbore_engine_create(NULL, &engine), "engine");
    check(fullbore_target_open(engine, argv[1], verify ? NULL : &create, &target), "open");
    check(fullbore_client_create(engine, &client), "client");
    check(fullbore_region_alloc(engine, total, NULL, &region), "memory");

    struct fullbore_transfer *transfers = calloc(objects, sizeof *transfers);
    struct fullbore_extent *extents = calloc(objects, sizeof *extents);
    if (transfers == NULL || extents == NULL) {
        perror("store_load");
        return 1;
    }
    uint64_t *words = fullbore_region_ptr(region);
    for (uint64_t i = 0; i < objects; i++) {
        extents[i] = (struct fullbore_extent){.offset = i * bytes, .ptr = (char *)words + i * bytes, .len = bytes};
        transfers[i] = (struct fullbore_transfer){.size = sizeof *transfers,
                                                  .op = FULLBORE_OP_WRITE,
                                                  .target = target,
                                                  .extents = &extents[i],
                                                  .count = 1,
                                                  .tag = i,
                                                  .flags = FULLBORE_TRANSFER_DURABLE};
    }
    if (!verify) {
        for (uint64_t at = 0; at < total; at += 8)
            words[at / 8] = word_at(at);
        /* Durable: a write's completion comes after the flush behind it. (Many small writes: none of them durable, and
         * one fullbore_flush behind all of them.) */
        move(client, transfers, objects, "store");
    }

    memset(words, 0xa5, total);
    for (uint64_t i = 0; i < objects; i++) {
        transfers[i].op = FULLBORE_OP_READ;
        transfers[i].flags = 0;
    }
    move(client, transfers, objects, "load");
    for (uint64_t at = 0; at < total; at += 8) {
        if (words[at / 8] != word_at(at)) {
            fprintf(stderr, "store_load: %s has something else at byte %" PRIu64 "\n", argv[1], at);
            return 1;
        }
    }
    printf("%" PRIu64 " objects of %" PRIu64 " bytes %s\n", objects, bytes, verify ? "verified" : "stored and verified");

    check(fullbore_region_free(region, 0), "free");
    check(fullbore_client_destroy(client), "client");
    check(fullbore_target_destroy(target), "target");
    check(fullbore_engine_destroy(engine), "engine");
    free(extents);
    free(transfers);
    return 0;
}
