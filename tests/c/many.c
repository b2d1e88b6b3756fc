/* A hundred thousand transfers, and what goes with them, leave nothing behind. */
#include "setup.h"

#include <malloc.h>

enum { BATCH = 64, EXTENTS = 4, PART = 4 * KIB };

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_region *region;
static uint8_t *outside;
static bool real;

/* Transfers of every kind: inside the region and outside of all, with marks, durable, cancelled, failed, refused. */
static uint64_t some(fullbore_client *client, fullbore_marks *marks, uint64_t round) {
    static fullbore_extent extents[BATCH][EXTENTS];
    fullbore_transfer transfers[BATCH];
    for (int i = 0; i < BATCH; i++) {
        uint8_t *memory = i % 8 == 7 ? outside : fullbore_region_ptr(region);
        for (int j = 0; j < EXTENTS; j++) {
            uint64_t at = (uint64_t)(i * EXTENTS + j) * PART;
            extents[i][j] = (fullbore_extent){.offset = at, .ptr = memory + at, .len = PART};
        }
        transfers[i] = transfer_of(i % 16 == 3 ? FULLBORE_OP_WRITE : FULLBORE_OP_READ, target, extents[i], EXTENTS);
        transfers[i].tag = (uint64_t)i;
        transfers[i].priority = (uint32_t)i % 4;
        transfers[i].deadline_ns = i % 32 == 5 ? 1 : FULLBORE_FOREVER;
    }
    transfers[0].marks = marks;
    transfers[3].flags = round % 16 == 0 ? FULLBORE_TRANSFER_DURABLE : 0;
    CHECK_IS(fullbore_submit(client, transfers, BATCH), BATCH);
    CHECK(fullbore_cancel(client, transfers[BATCH - 1].id) >= 0);
    transfers[1].size = 7;
    CHECK_IS(fullbore_submit(client, transfers + 1, 1), -EINVAL);
    fullbore_completion done[BATCH];
    for (int64_t left = BATCH; left > 0;) {
        int64_t got = fullbore_wait(client, 1, BATCH, LONG, done);
        CHECK(got > 0 && got <= left);
        left -= got;
        for (int64_t i = 0; i < got; i++)
            CHECK(done[i].result == 0 || done[i].result == -ETIMEDOUT || done[i].result == -ECANCELED);
    }
    return BATCH;
}

/* Bytes that the heap has given out. */
static size_t in_use(void) { return mallinfo2().uordblks; }

int main(void) {
    const size_t bytes = (size_t)BATCH * EXTENTS * PART;
    real = rings();
    engine = real ? engine_with((fullbore_engine_options){0}) : null_engine();
    target = real ? file_target(engine, file_of("data", bytes), FULLBORE_OPEN_WRITE) : null_target(engine, bytes);
    region = region_of(engine, bytes);
    outside = aligned_alloc(4096, bytes);
    CHECK(outside != NULL);
    memset(outside, 1, bytes);
    const uint32_t after[] = {0, EXTENTS - 1};
    fullbore_client *client = client_of(engine);
    fullbore_marks *marks = NULL;
    CHECK_OK(fullbore_marks_create(after, 2, &marks));
    CHECK(fullbore_client_fd(client) >= 0 && fullbore_marks_fd(marks) >= 0);

    uint64_t transfers = scaled(100000), done = 0, memory = 0;
    size_t heap = 0;
    int files = 0;
    for (uint64_t round = 0; done < transfers; round++) {
        done += some(client, marks, round);
        if (memory == 0 && done * 5 >= transfers) { /* warm: from now on nothing is to grow */
            memory = resident();
            heap = in_use();
            files = open_files();
        }
    }
    uint64_t grown = resident() > memory ? resident() - memory : 0;
    size_t more = in_use() > heap ? in_use() - heap : 0;
    printf("%" PRIu64 " transfers; resident memory grew by %" PRIu64 " KiB, the heap by %zu bytes\n", done, grown / KIB, more);
    CHECK_IS(open_files(), files);
    if (mode_is("plain")) { /* elsewhere freed memory is kept for a while on purpose; leaks are found in another way */
        CHECK(more < 64 * KIB); /* less than a byte a transfer */
        CHECK(grown < 4 * MIB);
    }
    check_quiet(engine);
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(engine));
    free(outside);
    return 0;
}
