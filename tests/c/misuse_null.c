/* NULL where something is needed, and other arguments that are none: each call refuses with a message, and harms nothing. */
#include "setup.h"

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_region *region;
static fullbore_client *client;
static fullbore_marks *marks;

/* Where a handle goes: what is there before is taken away, so that nobody destroys it after a failure. */
#define MAKES_NONE(type, call) \
    do { \
        type *out = (type *)0x8; \
        INVALID(call); \
        CHECK(out == NULL); \
    } while (0)

static void engines(void) {
    INVALID(fullbore_engine_create(NULL, NULL));
    CHECK_OK(fullbore_engine_destroy(NULL));
    INVALID(fullbore_gpus(NULL));
    MAKES_NONE(fullbore_client, fullbore_client_create(NULL, &out));
    INVALID(fullbore_client_create(engine, NULL));
    CHECK_OK(fullbore_client_destroy(NULL));
}

static void targets(void) {
    const char *paths[] = {"/dev/null", NULL};
    fullbore_target_info info = {.size = sizeof info};
    MAKES_NONE(fullbore_target, fullbore_target_open(NULL, "/dev/null", NULL, &out));
    MAKES_NONE(fullbore_target, fullbore_target_open(engine, NULL, NULL, &out));
    INVALID(fullbore_target_open(engine, "/dev/null", NULL, NULL));
    MAKES_NONE(fullbore_target, fullbore_target_open_stripe(NULL, paths, 1, MIB, NULL, &out));
    MAKES_NONE(fullbore_target, fullbore_target_open_stripe(engine, NULL, 1, MIB, NULL, &out));
    MAKES_NONE(fullbore_target, fullbore_target_open_stripe(engine, paths + 1, 1, MIB, NULL, &out));
    MAKES_NONE(fullbore_target, fullbore_target_open_stripe(engine, paths, 0, MIB, NULL, &out));
    INVALID(fullbore_target_open_stripe(engine, paths, 1, MIB, NULL, NULL));
    MAKES_NONE(fullbore_target, fullbore_target_open_null(NULL, MIB, &out));
    INVALID(fullbore_target_open_null(engine, MIB, NULL));
    INVALID(fullbore_target_get_info(NULL, &info));
    INVALID(fullbore_target_get_info(target, NULL));
    INVALID(fullbore_target_set_size(NULL, MIB));
    INVALID(fullbore_target_close(NULL));
    CHECK_OK(fullbore_target_destroy(NULL));
}

static void paths(void) {
    fullbore_path_info info = {.size = sizeof info};
    INVALID(fullbore_path_query(NULL, target, region, &info));
    INVALID(fullbore_path_query(engine, NULL, region, &info));
    INVALID(fullbore_path_query(engine, target, region, NULL));
    CHECK_OK(fullbore_path_query(engine, target, NULL, &info)); /* memory of no region */
    CHECK_IS(info.path, FULLBORE_PATH_NULL);
    CHECK(info.reason[0] != 0);
}

static void regions(void) {
    static uint8_t memory[8192];
    fullbore_region_info info = {.size = sizeof info};
    MAKES_NONE(fullbore_region, fullbore_region_alloc(NULL, MIB, NULL, &out));
    MAKES_NONE(fullbore_region, fullbore_region_alloc(engine, 0, NULL, &out));
    MAKES_NONE(fullbore_region, fullbore_region_register_host(NULL, memory, sizeof memory, &out));
    MAKES_NONE(fullbore_region, fullbore_region_register_host(engine, NULL, sizeof memory, &out));
    MAKES_NONE(fullbore_region, fullbore_region_register_host(engine, memory, 0, &out));
    MAKES_NONE(fullbore_region, fullbore_region_register_host(engine, memory, UINT64_MAX, &out));
    MAKES_NONE(fullbore_region, fullbore_region_register_cuda(NULL, 4096, 4096, &out));
    MAKES_NONE(fullbore_region, fullbore_region_alloc_gpu(NULL, 0, 4096, &out));
    MAKES_NONE(fullbore_region, fullbore_region_map_peer(NULL, "0000:00:00.0", 4096, &out));
    MAKES_NONE(fullbore_region, fullbore_region_map_peer(engine, NULL, 4096, &out));
    INVALID(fullbore_region_alloc(engine, MIB, NULL, NULL));
    INVALID(fullbore_region_register_host(engine, memory, sizeof memory, NULL));
    INVALID(fullbore_region_register_cuda(engine, 4096, 4096, NULL));
    INVALID(fullbore_region_alloc_gpu(engine, 0, 4096, NULL));
    INVALID(fullbore_region_map_peer(engine, "0000:00:00.0", 4096, NULL));
    INVALID(fullbore_region_get_info(NULL, &info));
    INVALID(fullbore_region_get_info(region, NULL));
    spoil();
    CHECK(fullbore_region_ptr(NULL) == NULL);
    CHECK(strstr(fullbore_last_error()->message, "987654321") == NULL);
    INVALID(fullbore_region_export_dma_buf(NULL));
    REFUSED(fullbore_region_export_dma_buf(region), EOPNOTSUPP, FULLBORE_KIND_UNSUPPORTED);
    CHECK_OK(fullbore_region_free(NULL, 0));
    CHECK_OK(fullbore_region_free(NULL, FULLBORE_FOREVER));
}

static void copies(void) {
    static uint8_t memory[4096];
    INVALID(fullbore_region_copy_out(NULL, 0, memory, 1));
    INVALID(fullbore_region_copy_out(region, 0, NULL, 1));
    INVALID(fullbore_region_copy_in(NULL, 0, memory, 1));
    INVALID(fullbore_region_copy_in(region, 0, NULL, 1));
    INVALID(fullbore_region_copy_out(region, 0, memory, 1)); /* host memory: its owner reads it */
    INVALID(fullbore_region_copy_in(region, 0, memory, 1));
    REFUSED(fullbore_region_copy_out(region, MIB, memory, 1), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);
    REFUSED(fullbore_region_copy_out(region, UINT64_MAX, memory, 2), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);
    REFUSED(fullbore_region_copy_in(region, 1, memory, UINT64_MAX), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);
    CHECK_IS(fullbore_last_error()->offset, 1);
    CHECK_IS(fullbore_last_error()->length, UINT64_MAX);
}

static void submission(void) {
    fullbore_extent extents[2] = {{.ptr = fullbore_region_ptr(region), .len = 4096}};
    fullbore_transfer good = transfer_of(FULLBORE_OP_READ, target, extents, 1), bad = good;
    uint64_t id = 5;
    INVALID(fullbore_submit(NULL, &good, 1));
    INVALID(fullbore_submit(client, NULL, 1));
    CHECK_IS(fullbore_submit(client, &good, 0), 0);
    bad.target = NULL;
    INVALID(fullbore_submit(client, &bad, 1));
    bad = good, bad.extents = NULL;
    INVALID(fullbore_submit(client, &bad, 1));
    bad = good, bad.extents = (fullbore_extent *)(void *)((char *)extents + 4); /* not aligned; nobody follows it */
    INVALID(fullbore_submit(client, &bad, 1));
    bad = good, bad.count = 0;
    INVALID(fullbore_submit(client, &bad, 1));
    bad = good, bad.count = UINT64_C(1) << 32 | 1;
    INVALID(fullbore_submit(client, &bad, 1));
    bad = good, bad.count = UINT64_MAX;
    INVALID(fullbore_submit(client, &bad, 1));
    extents[0].ptr = NULL;
    INVALID(fullbore_submit(client, &good, 1));
    CHECK_IS(fullbore_last_error()->extent, 0);
    extents[0].ptr = (void *)~(uintptr_t)4095; /* wraps around */
    INVALID(fullbore_submit(client, &good, 1));
    INVALID(fullbore_flush(NULL, target, 0, &id));
    INVALID(fullbore_flush(client, NULL, 0, &id));
    CHECK_IS(id, 5);
}

static void completions(void) {
    fullbore_completion done;
    INVALID(fullbore_poll(NULL, &done, 1));
    INVALID(fullbore_poll(client, NULL, 1));
    CHECK_IS(fullbore_poll(client, NULL, 0), 0);
    INVALID(fullbore_wait(NULL, 0, 1, 0, &done));
    INVALID(fullbore_wait(client, 2, 1, 0, &done));
    INVALID(fullbore_wait(client, 0, 1, 0, NULL));
    INVALID(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done)); /* nothing is under way */
    CHECK_IS(fullbore_wait(client, 0, 0, 0, NULL), 0);
    CHECK_IS(fullbore_wait(client, 0, 1, FULLBORE_FOREVER, &done), 0);
    INVALID(fullbore_cancel(NULL, 0));
    INVALID(fullbore_client_fd(NULL));
    /* Ids of nothing. */
    CHECK_IS(fullbore_cancel(client, 0), 0);
    CHECK_IS(fullbore_cancel(client, 77), 0);
    CHECK_IS(fullbore_cancel(client, UINT64_MAX), 0);
}

static void mark_sets(void) {
    uint32_t after[] = {0, 1, 1}, down[] = {3, 2};
    MAKES_NONE(fullbore_marks, fullbore_marks_create(NULL, 1, &out));
    MAKES_NONE(fullbore_marks, fullbore_marks_create(after, 0, &out));
    MAKES_NONE(fullbore_marks, fullbore_marks_create(after, 3, &out));
    MAKES_NONE(fullbore_marks, fullbore_marks_create(down, 2, &out));
    INVALID(fullbore_marks_create(after, 2, NULL));
    CHECK_OK(fullbore_marks_destroy(NULL));
    INVALID(fullbore_marks_landed(NULL));
    INVALID(fullbore_marks_ended(NULL));
    INVALID(fullbore_marks_wait(NULL, 0, 0));
    INVALID(fullbore_marks_wait(marks, 2, 0)); /* there are marks 0 and 1 */
    INVALID(fullbore_marks_wait(marks, SIZE_MAX, 0));
    INVALID(fullbore_marks_fd(NULL));
    INVALID(fullbore_marks_stream_wait(NULL, 0, region, NULL));
    INVALID(fullbore_marks_stream_wait(marks, 0, NULL, NULL));
    INVALID(fullbore_marks_stream_wait(marks, 0, region, NULL)); /* host memory */
    CHECK_IS(fullbore_marks_landed(marks), 0);
}

static void stats_and_log(void) {
    fullbore_stats stats = {.size = sizeof stats};
    char text[8] = "before";
    INVALID(fullbore_stats_get(NULL, &stats));
    INVALID(fullbore_stats_get(engine, NULL));
    INVALID(fullbore_stats_json(NULL, text, sizeof text));
    CHECK(strcmp(text, "before") == 0);
    CHECK(fullbore_stats_json(engine, NULL, 1000) > 100);
    CHECK(fullbore_stats_json(engine, text, 0) > 100);
    CHECK(strcmp(text, "before") == 0);
    CHECK_OK(fullbore_log_set(NULL, 0, NULL));
}

int main(void) {
    uint32_t after[] = {0, 1};
    engine = null_engine();
    target = null_target(engine, MIB);
    region = region_of(engine, MIB);
    client = client_of(engine);
    CHECK_OK(fullbore_marks_create(after, 2, &marks));
    engines();
    targets();
    paths();
    regions();
    copies();
    submission();
    completions();
    mark_sets();
    stats_and_log();
    /* And all of it works as before. */
    fullbore_extent extents[2] = {{.ptr = fullbore_region_ptr(region), .len = 4096},
                                  {.ptr = fullbore_region_ptr(region), .len = 4096}};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, 2);
    transfer.marks = marks;
    submit_one(client, transfer);
    CHECK_IS(next_of(client).bytes, 8192);
    CHECK_OK(fullbore_marks_wait(marks, 1, 0));
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
