/* Structs of the wrong size or version, of a newer header, with flags and numbers that mean nothing. */
#include "setup.h"

#include <stddef.h>

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_region *region;
static fullbore_client *client;
static fullbore_extent extent;

/* The calls that take each struct; what they make is destroyed again. */
static int64_t engine_call(void *options) {
    fullbore_engine *made;
    int answer = fullbore_engine_create(options, &made);
    return answer ? answer : fullbore_engine_destroy(made);
}
static int64_t open_call(void *options) {
    fullbore_target *made;
    int answer = fullbore_target_open(engine, "nowhere/at/all", options, &made); /* over the null queue no file opens, but options come first */
    return answer == -EOPNOTSUPP || answer == -EINVAL ? answer : -EIO;
}
static int64_t stripe_call(void *options) {
    const char *paths[] = {"nowhere/at/all"};
    fullbore_target *made;
    int answer = fullbore_target_open_stripe(engine, paths, 1, MIB, options, &made);
    return answer == -EOPNOTSUPP || answer == -EINVAL ? answer : -EIO;
}
static int64_t alloc_call(void *options) {
    fullbore_region *made;
    int answer = fullbore_region_alloc(engine, 4096, options, &made);
    return answer ? answer : fullbore_region_free(made, 0);
}
static int64_t submit_call(void *transfer) {
    int64_t taken = fullbore_submit(client, transfer, 1);
    if (taken == 1)
        CHECK_IS(next_of(client).result, 0);
    return taken == 1 ? 0 : taken;
}
static int64_t target_info_call(void *info) { return fullbore_target_get_info(target, info); }
static int64_t region_info_call(void *info) { return fullbore_region_get_info(region, info); }
static int64_t path_call(void *info) { return fullbore_path_query(engine, target, region, info); }
static int64_t stats_call(void *stats) { return fullbore_stats_get(engine, stats); }

/* Up to five places of reserved bytes that must be 0; `good` is what a right call answers. */
static const struct sized {
    const char *name;
    int64_t (*call)(void *bytes);
    uint32_t size, from, to, padding;
    bool out;
    int good;
} structs[] = {
#define RESERVED(type) sizeof(type), offsetof(type, reserved), sizeof(type)
    {"fullbore_engine_options", engine_call, RESERVED(fullbore_engine_options), 0, false, 0},
    {"fullbore_open_options", open_call, RESERVED(fullbore_open_options), 0, false, -EOPNOTSUPP},
    {"fullbore_open_options", stripe_call, RESERVED(fullbore_open_options), 0, false, -EOPNOTSUPP},
    {"fullbore_alloc_options", alloc_call, RESERVED(fullbore_alloc_options), offsetof(fullbore_alloc_options, padding), false, 0},
    {"fullbore_transfer", submit_call, RESERVED(fullbore_transfer), 0, false, 0},
    {"fullbore_target_info", target_info_call, RESERVED(fullbore_target_info), 0, true, 0},
    {"fullbore_region_info", region_info_call, RESERVED(fullbore_region_info), 0, true, 0},
    {"fullbore_path_info", path_call, RESERVED(fullbore_path_info), 0, true, 0},
    {"fullbore_stats", stats_call, RESERVED(fullbore_stats), 0, true, 0},
};

/* 4096 bytes and no more, at the end of the heap's block: a sanitizer sees who reads or writes past `size`. */
static uint8_t *fresh(const struct sized *one, uint32_t size, uint32_t room) {
    uint8_t *bytes = calloc(1, room);
    CHECK(bytes != NULL);
    memcpy(bytes, &size, room < sizeof size ? room : sizeof size);
    if (room >= one->size && one->call == engine_call) {
        fullbore_engine_options options = {.size = size, .version = FULLBORE_ABI, .flags = FULLBORE_ENGINE_NULL, .lanes = 1};
        memcpy(bytes, &options, sizeof options);
    } else if (room >= one->size && one->call == submit_call) {
        fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
        transfer.size = size;
        memcpy(bytes, &transfer, sizeof transfer);
    }
    return bytes;
}

static void refuses_size(const struct sized *one, uint32_t size, uint32_t room) {
    uint8_t *bytes = fresh(one, size, room);
    char right[32];
    snprintf(right, sizeof right, ", %u here", one->size);
    INVALID(one->call(bytes));
    CHECK(strstr(fullbore_last_error()->message, one->name) != NULL);
    CHECK(strstr(fullbore_last_error()->message, right) != NULL);
    free(bytes);
}

static void sizes(const struct sized *one) {
    refuses_size(one, 0, 4);
    refuses_size(one, 4, 4);
    refuses_size(one, one->size - 1, one->size);
    refuses_size(one, one->size / 2, one->size);
    refuses_size(one, 4097, 4);
    refuses_size(one, UINT32_MAX, 4);
    uint8_t *bytes = fresh(one, one->size, one->size);
    CHECK_IS(one->call(bytes), one->good);
    free(bytes);
}

/* A newer header's struct is longer: with nothing in the new part it is as good as ours. */
static void of_a_newer_header(const struct sized *one) {
    for (uint32_t size = one->size + 8; size <= 4096; size += size < one->size + 64 ? 8 : 1000) {
        uint8_t *bytes = fresh(one, size, size);
        CHECK_IS(one->call(bytes), one->good);
        if (one->out) {
            uint32_t known;
            memcpy(&known, bytes, sizeof known);
            CHECK_IS(known, one->size);
        }
        free(bytes);
        if (one->out) {
            bytes = fresh(one, size, size);
            memset(bytes + one->size, 0xA5, size - one->size);
            CHECK_IS(one->call(bytes), 0);
            for (uint32_t at = one->size; at < size; at++)
                CHECK_IS(bytes[at], 0xA5); /* what the library does not know it leaves alone */
            free(bytes);
            continue;
        }
        for (uint32_t at = one->size; at < size; at += at + 1 == size ? 1 : (size - 1 - at)) { /* the first and the last byte */
            bytes = fresh(one, size, size);
            bytes[at] = 1;
            INVALID(one->call(bytes));
            CHECK(strstr(fullbore_last_error()->message, "newer header") != NULL);
            free(bytes);
        }
    }
}

static void reserved(const struct sized *one) {
    for (uint32_t at = one->from; !one->out && at < one->to; at++) {
        uint8_t *bytes = fresh(one, one->size, one->size);
        bytes[at] = 0x80;
        INVALID(one->call(bytes));
        CHECK(strstr(fullbore_last_error()->message, one->name) != NULL);
        free(bytes);
    }
    if (one->padding) {
        uint8_t *bytes = fresh(one, one->size, one->size);
        bytes[one->padding] = 1;
        INVALID(one->call(bytes));
        free(bytes);
    }
}

static void answers_are_blank_where_nothing_is(const struct sized *one) {
    uint8_t *bytes = calloc(1, one->size);
    CHECK(bytes != NULL);
    memset(bytes, 0xA5, one->size);
    memcpy(bytes, &one->size, sizeof one->size);
    CHECK_OK(one->call(bytes));
    for (uint32_t at = one->from; at < one->to; at++)
        CHECK_IS(bytes[at], 0);
    free(bytes);
}

static void versions(void) {
    for (uint32_t version = 0; version < 5; version++) {
        fullbore_engine_options options = {.size = sizeof options, .version = version, .flags = FULLBORE_ENGINE_NULL};
        if (version == FULLBORE_ABI)
            continue;
        INVALID(engine_call(&options));
        CHECK(strstr(fullbore_last_error()->message, "FULLBORE_ABI") != NULL);
    }
}

/* Every bit that is no flag. */
static void flags(const char *name, int64_t (*call)(void *), void *bytes, uint32_t *word, uint32_t known) {
    for (uint32_t bit = 1; bit != 0; bit <<= 1) {
        if (bit & known)
            continue;
        uint32_t before = *word;
        *word |= bit;
        INVALID(call(bytes));
        CHECK(strstr(fullbore_last_error()->message, name) != NULL);
        CHECK(strstr(fullbore_last_error()->message, "unknown flag") != NULL);
        *word = before;
    }
}

/* Numbers that are none of an enum's. */
#define NO_SUCH(call, place, ...) \
    do { \
        static const uint32_t wrong[] = {__VA_ARGS__}; \
        for (size_t i = 0; i < COUNT(wrong); i++) { \
            place = wrong[i]; \
            INVALID(call); \
        } \
    } while (0)

static void flags_and_numbers(void) {
    fullbore_engine_options options = {.size = sizeof options, .version = FULLBORE_ABI, .flags = FULLBORE_ENGINE_NULL, .lanes = 1};
    fullbore_open_options open = {.size = sizeof open};
    fullbore_alloc_options alloc = {.size = sizeof alloc};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
    flags("fullbore_engine_options", engine_call, &options, &options.flags, 7);
    flags("fullbore_open_options", open_call, &open, &open.flags, 127);
    flags("fullbore_alloc_options", alloc_call, &alloc, &alloc.flags, 3);
    flags("fullbore_transfer", submit_call, &transfer, &transfer.flags, FULLBORE_TRANSFER_DURABLE);

    NO_SUCH(engine_call(&options), options.lanes, 65, 1000, 65536, 65539, UINT32_MAX);
    options.lanes = 1;
    NO_SUCH(engine_call(&options), options.cufile, 3, 4, UINT32_MAX);
    options.cufile = 0;
    NO_SUCH(engine_call(&options), options.command_size, 1, 4095, 4097, 2048, UINT32_MAX);
    options.command_size = 0;
    NO_SUCH(engine_call(&options), options.lane_depth, 4097, UINT32_MAX);
    options.lane_depth = 0;
    NO_SUCH(engine_call(&options), options.processes, 1025, UINT32_MAX);
    options.processes = 0;
    NO_SUCH(engine_call(&options), options.max_transfers, 65537, UINT32_MAX);
    options.max_transfers = 0;
    NO_SUCH(engine_call(&options), options.bounce_buffers, 1, 33, UINT32_MAX);
    options.bounce_buffers = 0;
    options.bounce_bytes = MIB - 1;
    INVALID(engine_call(&options));
    options.bounce_bytes = 0;
    options.grace_ns = 3601 * SECOND;
    INVALID(engine_call(&options));
    options.grace_ns = 0;
    CHECK_OK(engine_call(&options));

    open.create_bytes = 1; /* without CREATE */
    INVALID(open_call(&open));
    alloc.node = 1; /* without ON_NODE */
    INVALID(alloc_call(&alloc));

    NO_SUCH(submit_call(&transfer), transfer.op, 0, 3, 4, UINT32_MAX);
    transfer.op = FULLBORE_OP_READ;
    NO_SUCH(submit_call(&transfer), transfer.priority, 4, 5, UINT32_MAX);
    transfer.priority = 0;
    NO_SUCH(submit_call(&transfer), transfer.require, 3, 33, 16384, UINT32_MAX);
    transfer.require = 0;
    CHECK_OK(submit_call(&transfer));
}

static void ignore(uint32_t level, const char *source, const char *message, void *user) {
    (void)level, (void)source, (void)message, (void)user;
}

static void log_levels(void) {
    INVALID(fullbore_log_set(ignore, 0, NULL));
    INVALID(fullbore_log_set(ignore, 5, NULL));
    INVALID(fullbore_log_set(ignore, UINT32_MAX, NULL));
}

int main(void) {
    engine = null_engine();
    target = null_target(engine, MIB);
    region = region_of(engine, MIB);
    client = client_of(engine);
    extent = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = 4096};
    for (size_t i = 0; i < COUNT(structs); i++) {
        sizes(&structs[i]);
        of_a_newer_header(&structs[i]);
        reserved(&structs[i]);
        if (structs[i].out)
            answers_are_blank_where_nothing_is(&structs[i]);
    }
    versions();
    flags_and_numbers();
    log_levels();
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
