/* Several transfers at once: the third is bad, the engine is full, the array comes from a newer header. Nothing is lost. */
#include "setup.h"

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_client *client;
static fullbore_region *region;

enum { FIVE = 5, BYTES = 64 * KIB };

static fullbore_extent extents[FIVE][3];

static void five(fullbore_transfer *transfers) {
    for (int i = 0; i < FIVE; i++) {
        for (int j = 0; j < 3; j++)
            extents[i][j] = (fullbore_extent){.offset = (uint64_t)j * BYTES,
                                              .ptr = (char *)fullbore_region_ptr(region) + (i * 3 + j) * BYTES,
                                              .len = BYTES};
        transfers[i] = transfer_of(FULLBORE_OP_READ, target, extents[i], 3);
        transfers[i].tag = 100 + (uint64_t)i;
    }
}

/* The completions of exactly those transfers, in any order, all well. */
static void come(unsigned tags) {
    while (tags != 0) {
        fullbore_completion done = next_of(client);
        CHECK(done.tag >= 100 && done.tag < 100 + FIVE && (tags >> (done.tag - 100) & 1));
        CHECK_IS(done.result, 0);
        CHECK_IS(done.bytes, 3 * BYTES);
        for (int j = 0; j < 3; j++)
            CHECK(extents[done.tag - 100][j].outcome.error == 0 && extents[done.tag - 100][j].outcome.bytes == BYTES);
        tags &= ~(1u << (done.tag - 100));
    }
    fullbore_completion none;
    CHECK_IS(fullbore_wait(client, 1, 1, MS, &none), 0);
}

enum fault { OUTSIDE, NO_TARGET, CLOSED, ANOTHERS, NO_SIZE, OTHER_SIZE, BAD_FLAG, BAD_OP, STRADDLES, FAULTS };

static void the_third_is_bad(enum fault fault) {
    fullbore_engine *other = null_engine();
    fullbore_target *closed = null_target(engine, MIB), *anothers = null_target(other, MIB);
    CHECK_OK(fullbore_target_close(closed));
    fullbore_transfer transfers[FIVE];
    five(transfers);
    fullbore_transfer *third = &transfers[2], good = *third;
    int error = EINVAL;
    uint32_t kind = FULLBORE_KIND_INVALID_INPUT, extent = FULLBORE_NO_EXTENT;
    switch (fault) {
    case OUTSIDE:
        extents[2][1].offset = UINT64_C(1) << 40;
        error = ERANGE, kind = FULLBORE_KIND_OUT_OF_BOUNDS, extent = 1;
        break;
    case NO_TARGET:
        third->target = NULL;
        break;
    case CLOSED:
        third->target = closed;
        error = EBADF, kind = FULLBORE_KIND_CLOSED;
        break;
    case ANOTHERS:
        third->target = anothers;
        kind = FULLBORE_KIND_WRONG_ENGINE;
        break;
    case NO_SIZE:
        third->size = 0;
        break;
    case OTHER_SIZE:
        third->size += 8; /* the tail is the fourth's first bytes, or they differ: an error either way */
        break;
    case BAD_FLAG:
        third->flags = 0x80;
        break;
    case BAD_OP:
        third->op = 9;
        break;
    case STRADDLES: /* memory that begins in the region and ends outside */
        extents[2][2].ptr = (char *)fullbore_region_ptr(region) + MIB - 4096;
        extent = 2;
        break;
    default:
        CHECK(false);
    }
    spoil();
    CHECK_IS(fullbore_submit(client, transfers, FIVE), 2);
    const fullbore_error *last = fullbore_last_error();
    CHECK(strstr(last->message, "987654321") == NULL);
    check_error(__FILE__, __LINE__, "the third's kind", last, kind);
    CHECK_IS(last->extent, extent);
    if (fault == OUTSIDE) {
        CHECK_IS(last->offset, UINT64_C(1) << 40);
        CHECK_IS(last->length, BYTES);
    }
    CHECK(transfers[0].id != 0 && transfers[1].id != 0 && transfers[0].id != transfers[1].id);
    CHECK(transfers[2].id == 0 && transfers[3].id == 0 && transfers[4].id == 0);
    /* Asked for by itself it is refused in the same way, with the errno. */
    if (fault != OTHER_SIZE)
        REFUSED(fullbore_submit(client, third, 1), error, kind);
    come(1 << 0 | 1 << 1);
    /* Mended, the rest goes. */
    *third = good;
    extents[2][1].offset = BYTES;
    extents[2][2].ptr = (char *)fullbore_region_ptr(region) + 8 * BYTES;
    CHECK_IS(fullbore_submit(client, third, 3), 3);
    come(1 << 2 | 1 << 3 | 1 << 4);
    CHECK_OK(fullbore_target_destroy(closed));
    CHECK_OK(fullbore_target_destroy(anothers));
    CHECK_OK(fullbore_engine_destroy(other));
}

/* Elements longer than ours, as a newer header has them: their size is the step. */
static void an_array_of_a_newer_header(uint32_t more) {
    struct longer {
        fullbore_transfer transfer;
        uint64_t news[8];
    };
    struct longer *array = calloc(FIVE, sizeof *array);
    CHECK(array != NULL && more % 8 == 0 && more <= sizeof array->news);
    uint8_t *bytes = malloc((sizeof(fullbore_transfer) + more) * FIVE); /* no longer than it is said to be */
    CHECK(bytes != NULL);
    size_t step = sizeof(fullbore_transfer) + more;
    for (int bad = -1; bad < FIVE; bad++) {
        fullbore_transfer transfers[FIVE];
        five(transfers);
        for (int i = 0; i < FIVE; i++) {
            transfers[i].size = (uint32_t)step;
            array[i].transfer = transfers[i];
            memset(array[i].news, 0, sizeof array[i].news);
            memcpy(bytes + step * (size_t)i, &array[i], step);
        }
        if (bad >= 0)
            bytes[step * (size_t)bad + step - 1] = 1; /* what this library does not know is asked for */
        int64_t taken = fullbore_submit(client, (fullbore_transfer *)(void *)bytes, FIVE);
        if (bad == 0)
            CHECK_IS(taken, -EINVAL);
        else
            CHECK_IS(taken, bad < 0 ? FIVE : bad);
        if (bad >= 0)
            CHECK(strstr(fullbore_last_error()->message, "newer header") != NULL);
        for (int i = 0; i < taken; i++) {
            fullbore_transfer with_id;
            memcpy(&with_id, bytes + step * (size_t)i, sizeof with_id);
            CHECK(with_id.id != 0);
            CHECK(fullbore_cancel(client, with_id.id) >= 0);
        }
        for (int64_t i = 0; i < taken; i++)
            CHECK(next_of(client).tag >= 100);
        fullbore_completion none;
        CHECK_IS(fullbore_poll(client, &none, 1), 0);
    }
    free(bytes);
    free(array);
}

/* At max_transfers: what was taken is, what was not is not, and a completion makes room for one. */
static void full(void) {
    fullbore_engine *small = engine_with((fullbore_engine_options){.flags = FULLBORE_ENGINE_NULL, .max_transfers = 4});
    fullbore_target *there = null_target(small, MIB);
    fullbore_client *theirs = client_of(small), *another = client_of(small);
    static uint8_t memory[4096];
    fullbore_extent ten[10];
    fullbore_transfer transfers[10];
    for (int i = 0; i < 10; i++) {
        ten[i] = (fullbore_extent){.ptr = memory, .len = sizeof memory};
        transfers[i] = transfer_of(FULLBORE_OP_READ, there, &ten[i], 1);
        transfers[i].tag = (uint64_t)i;
    }
    fullbore_completion done[10];
    for (int round = 0; round < 50; round++) {
        spoil();
        CHECK_IS(fullbore_submit(theirs, transfers, 10), 4);
        check_error(__FILE__, __LINE__, "the fifth's kind", fullbore_last_error(), FULLBORE_KIND_BUSY);
        REFUSED(fullbore_submit(theirs, transfers + 4, 6), EAGAIN, FULLBORE_KIND_BUSY);
        REFUSED(fullbore_flush(theirs, there, 0, NULL), EAGAIN, FULLBORE_KIND_BUSY);
        REFUSED(fullbore_submit(another, transfers + 4, 1), EAGAIN, FULLBORE_KIND_BUSY); /* they are the engine's */
        CHECK_IS(fullbore_wait(theirs, 1, 1, LONG, done), 1);
        CHECK_IS(fullbore_submit(theirs, transfers + 4, 6), 1);
        CHECK_IS(fullbore_wait(theirs, 4, 10, LONG, done + 1), 4);
        unsigned seen = 0;
        for (int i = 0; i < 5; i++)
            seen |= 1u << done[i].tag;
        CHECK_IS(seen, 31);
    }
    CHECK_OK(fullbore_client_destroy(theirs));
    CHECK_OK(fullbore_client_destroy(another));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(small));
}

int main(void) {
    engine = null_engine();
    target = null_target(engine, MIB);
    region = region_of(engine, MIB);
    client = client_of(engine);
    for (enum fault fault = 0; fault < FAULTS; fault++)
        the_third_is_bad(fault);
    an_array_of_a_newer_header(8);
    an_array_of_a_newer_header(64);
    full();
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
