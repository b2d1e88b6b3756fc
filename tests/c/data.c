/* Bytes where they belong: written, flushed, read back, by every path of a plain file; outcomes; room for less; errors. */
#include "setup.h"

static fullbore_engine *engine;
static fullbore_client *client;
static fullbore_region *region;
static uint8_t *inside, *outside;

enum { BYTES = 4 * MIB };

static uint8_t new_content(uint64_t at) { return (uint8_t)~content(at + 7); }

static fullbore_completion run(fullbore_transfer transfer) {
    submit_one(client, transfer);
    fullbore_completion done = next_of(client);
    CHECK(done.total_ns >= done.queued_ns && done.total_ns > 0);
    CHECK_IS(done.waited_ns, done.queued_ns);
    CHECK_IS(done.copied_ns, 0);
    return done;
}

static void check_bytes(const uint8_t *bytes, uint64_t from, uint64_t len, uint8_t (*is)(uint64_t)) {
    for (uint64_t i = 0; i < len; i++)
        if (bytes[i] != is(from + i))
            CHECK_IS(bytes[i], is(from + i));
}

/* Reads of aligned and unaligned ranges, into the region and outside of it, guarded on both sides. */
static void reads(const fullbore_target *target) {
    static const struct { uint64_t offset, len, shift; } ranges[] = {
        {0, BYTES, 0}, {4096, 128 * KIB, 0}, {8192, 4096, 4096}, {1, 1, 3}, {511, 2, 1}, {4095, 70001, 13}, {BYTES - 5, 5, 0}};
    for (size_t i = 0; i < COUNT(ranges); i++)
        for (int in = 0; in < 2; in++) {
            uint8_t *base = in ? inside : outside, *to = base + 4096 + ranges[i].shift;
            memset(base, 0xEE, BYTES + 16 * KIB);
            fullbore_extent extent = {.offset = ranges[i].offset, .ptr = to, .len = ranges[i].len};
            fullbore_completion done = run(transfer_of(FULLBORE_OP_READ, target, &extent, 1));
            CHECK_IS(done.result, 0);
            CHECK_IS(done.bytes, ranges[i].len);
            CHECK_IS(extent.outcome.bytes, ranges[i].len);
            CHECK(done.paths != 0 && (done.paths & FULLBORE_PATH_NULL) == 0);
            check_bytes(to, ranges[i].offset, ranges[i].len, content);
            for (int g = 1; g <= 64; g++)
                CHECK(to[-g] == 0xEE && to[ranges[i].len + (uint64_t)g - 1] == 0xEE);
        }
}

static void writes(const fullbore_target *target, const char *name) {
    enum { PIECES = 16, PIECE = 64 * KIB };
    fullbore_extent extents[PIECES];
    for (uint64_t i = 0; i < PIECES; i++) { /* every other piece, backwards */
        uint64_t at = (PIECES - 1 - i) * 2 * PIECE;
        extents[i] = (fullbore_extent){.offset = at, .ptr = inside + i * PIECE, .len = PIECE};
        for (uint64_t j = 0; j < PIECE; j++)
            inside[i * PIECE + j] = new_content(at + j);
    }
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_WRITE, target, extents, PIECES);
    transfer.flags = FULLBORE_TRANSFER_DURABLE;
    transfer.trace_id = 0xDEADBEEF;
    transfer.priority = FULLBORE_PRIORITY_URGENT;
    fullbore_completion done = run(transfer);
    CHECK_IS(done.result, 0);
    CHECK_IS(done.bytes, PIECES * PIECE);
    uint64_t id = 0;
    CHECK_OK(fullbore_flush(client, target, 77, &id));
    CHECK(id != 0);
    done = next_of(client);
    CHECK(done.result == 0 && done.tag == 77 && done.bytes == 0);
    /* As another program sees it: the pieces are new, and nothing else is. */
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_IS(pread(fd, outside, BYTES, 0), BYTES);
    CHECK_OK(close(fd));
    for (uint64_t at = 0; at < BYTES; at += PIECE) {
        bool written = at < PIECES * 2 * PIECE && at / PIECE % 2 == 0;
        check_bytes(outside + at, at, PIECE, written ? new_content : content);
    }
}

/* A durable write has a flush behind it, which is a command more. */
static void durable_is_flushed(const fullbore_target *target) {
    fullbore_stats stats = {.size = sizeof stats};
    uint64_t commands[3];
    for (int i = 0; i < 3; i++) {
        fullbore_extent extent = {.ptr = inside, .len = 4096};
        fullbore_transfer transfer = transfer_of(FULLBORE_OP_WRITE, target, &extent, 1);
        transfer.flags = i == 1 ? FULLBORE_TRANSFER_DURABLE : 0;
        if (i > 0)
            CHECK_IS(run(transfer).result, 0);
        check_quiet(engine);
        stats.size = sizeof stats;
        CHECK_OK(fullbore_stats_get(engine, &stats));
        commands[i] = stats.commands;
    }
    CHECK_IS(commands[1] - commands[0], 2);
    CHECK_IS(commands[2] - commands[1], 1);
}

/* A path that is demanded is the one that runs, or it is refused with the reason. */
static void demanded(const fullbore_target *target) {
    fullbore_path_info info = {.size = sizeof info}, plain = info;
    CHECK_OK(fullbore_path_query(engine, target, region, &info));
    CHECK_OK(fullbore_path_query(engine, target, NULL, &plain));
    CHECK(info.path != 0 && strcmp(fullbore_path_name(info.path), "unknown") != 0);
    fullbore_extent extent = {.ptr = inside, .len = 64 * KIB};
    for (uint32_t path = FULLBORE_PATH_FIXED; path <= FULLBORE_PATH_CUFILE_COMPAT; path <<= 1)
        for (int in = 0; in < 2; in++) {
            fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
            extent.ptr = in ? inside : outside;
            transfer.require = path;
            if (path == (in ? info.path : plain.path)) {
                fullbore_completion done = run(transfer);
                CHECK_IS(done.result, 0);
                CHECK_IS(done.paths, path);
            } else {
                REFUSED(fullbore_submit(client, &transfer, 1), EOPNOTSUPP, FULLBORE_KIND_PATH_UNAVAILABLE);
                CHECK_IS(fullbore_last_error()->extent, 0);
            }
        }
}

/* The file ends before the range does: what came is said of each extent, and the error names the one that did not. */
static void cut_short(const fullbore_target *target, const char *name) {
    CHECK_OK(truncate(name, 64 * KIB));
    fullbore_extent extents[3] = {{.offset = 0, .ptr = inside, .len = 64 * KIB},
                                  {.offset = 1 * MIB, .ptr = inside + MIB, .len = 64 * KIB},
                                  {.offset = 4096, .ptr = inside + 2 * MIB, .len = 4096}};
    fullbore_completion done = run(transfer_of(FULLBORE_OP_READ, target, extents, 3));
    FAILED(done, ENODATA, FULLBORE_KIND_UNEXPECTED_EOF);
    CHECK_IS(done.error.extent, 1);
    CHECK_IS(done.error.offset, MIB);
    CHECK_IS(extents[0].outcome.error, 0);
    CHECK_IS(extents[1].outcome.error, ENODATA);
    CHECK_IS(extents[2].outcome.error, 0);
    CHECK_IS(done.bytes, extents[0].outcome.bytes + extents[2].outcome.bytes);
    CHECK_OK(truncate(name, BYTES));
}

/* More completions than there is room for: the rest stays. Messages live until the next fetch. */
static void room_for_less(const fullbore_target *target, const char *name) {
    CHECK_OK(truncate(name, 0));
    fullbore_extent extents[8];
    for (uint64_t i = 0; i < 8; i++) {
        extents[i] = (fullbore_extent){.offset = i * 4096, .ptr = inside + i * 4096, .len = 4096};
        fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extents[i], 1);
        transfer.tag = i;
        submit_one(client, transfer);
    }
    CHECK_IS(fullbore_wait(client, 0, 0, LONG, NULL), 0);
    unsigned seen = 0;
    for (int left = 8; left > 0;) {
        fullbore_completion done[4];
        memset(done, 0xA5, sizeof done);
        CHECK_IS(fullbore_wait(client, left < 3 ? (size_t)left : 3, 3, LONG, done), left < 3 ? left : 3);
        for (int i = 0; i < 3 && i < left; i++) {
            FAILED(done[i], ENODATA, FULLBORE_KIND_UNEXPECTED_EOF);
            CHECK(strlen(done[i].error.message) > 8);
            CHECK((seen >> done[i].tag & 1) == 0);
            seen |= 1u << done[i].tag;
        }
        for (size_t b = 0; b < sizeof done[3]; b++)
            CHECK_IS(((uint8_t *)&done[3])[b], 0xA5); /* not asked for, not written */
        left -= left < 3 ? left : 3;
    }
    CHECK_IS(seen, 255);
    CHECK_OK(fullbore_target_set_size(target, BYTES));
    struct stat stat;
    CHECK_OK(lstat(name, &stat));
    CHECK_IS(stat.st_size, BYTES);
}

static void refusals_of_the_kernel(void) {
    fullbore_target *out = (fullbore_target *)0x8;
    REFUSED(fullbore_target_open(engine, "not/there", NULL, &out), ENOENT, FULLBORE_KIND_NOT_FOUND);
    CHECK(out == NULL);
    CHECK_IS(fullbore_last_error()->domain, FULLBORE_DOMAIN_ERRNO);
    CHECK_IS(fullbore_last_error()->code, ENOENT);
    CHECK(strstr(fullbore_last_error()->message, "not/there") != NULL);
    fullbore_target *target = file_target(engine, "data", 0);
    fullbore_extent extent = {.ptr = inside, .len = 4096};
    fullbore_transfer write = transfer_of(FULLBORE_OP_WRITE, target, &extent, 1);
    REFUSED(fullbore_submit(client, &write, 1), EROFS, FULLBORE_KIND_READ_ONLY);
    CHECK_IS(fullbore_last_error()->domain, FULLBORE_DOMAIN_ENGINE);
    CHECK_IS(fullbore_last_error()->code, FULLBORE_KIND_READ_ONLY);
    CHECK_OK(fullbore_target_destroy(target));
}

static void stripe(void) {
    const char *names[] = {file_of("s0", MIB), file_of("s1", MIB)};
    fullbore_target *target = NULL;
    fullbore_open_options options = {.size = sizeof options, .flags = FULLBORE_OPEN_BUFFERED};
    CHECK_OK(fullbore_target_open_stripe(engine, names, 2, 64 * KIB, &options, &target));
    fullbore_target_info info = {.size = sizeof info};
    CHECK_OK(fullbore_target_get_info(target, &info));
    CHECK_IS(info.bytes, 2 * MIB);
    fullbore_extent extent = {.ptr = inside, .len = 2 * MIB};
    CHECK_IS(run(transfer_of(FULLBORE_OP_READ, target, &extent, 1)).result, 0);
    for (uint64_t at = 0; at < 2 * MIB; at += 64 * KIB) /* chunks go to each in turn */
        check_bytes(inside + at, at / (128 * KIB) * 64 * KIB, 64 * KIB, content);
    CHECK_OK(fullbore_target_destroy(target));
}

int main(void) {
    if (!rings())
        SKIP("no io_uring here, and the null queue moves nothing");
    engine = engine_with((fullbore_engine_options){0});
    client = client_of(engine);
    region = region_of(engine, BYTES + 16 * KIB);
    inside = fullbore_region_ptr(region);
    outside = aligned_alloc(4096, BYTES + 16 * KIB);
    CHECK(outside != NULL);
    for (int mapped = 0; mapped < 2; mapped++) {
        const char *name = file_of("data", BYTES);
        fullbore_target *target = file_target(engine, name, FULLBORE_OPEN_WRITE | (mapped ? FULLBORE_OPEN_MAPPED : 0));
        fullbore_target_info info = {.size = sizeof info};
        CHECK_OK(fullbore_target_get_info(target, &info));
        CHECK(info.bytes == BYTES && info.block_size > 0 && info.lanes > 0);
        CHECK_IS((info.flags & FULLBORE_TARGET_MAPPED) != 0, mapped);
        reads(target);
        demanded(target);
        writes(target, name);
        if (!mapped) { /* a mapping must not be cut short, and its flush is no command */
            durable_is_flushed(target);
            cut_short(target, name);
            room_for_less(target, name);
        }
        CHECK_OK(fullbore_target_destroy(target));
    }
    refusals_of_the_kernel();
    stripe();
    check_quiet(engine);
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_engine_destroy(engine));
    free(outside);
    return 0;
}
