/* Marks: in order, with a descriptor, one transfer's at a time. (Those of streams: gpu.c. Times: timeouts.c.) */
#include "setup.h"

#include <poll.h>

enum { LAYERS = 8, EACH = 16, EXTENTS = LAYERS * EACH };

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_client *client;
static fullbore_region *region;
static fullbore_extent extents[EXTENTS];
static uint64_t part;

static fullbore_marks *marks_of_layers(void) {
    uint32_t after[LAYERS];
    fullbore_marks *marks = NULL;
    for (uint32_t i = 0; i < LAYERS; i++)
        after[i] = (i + 1) * EACH - 1;
    CHECK_OK(fullbore_marks_create(after, LAYERS, &marks));
    return marks;
}

static fullbore_transfer load(fullbore_marks *marks) {
    for (uint64_t i = 0; i < EXTENTS; i++)
        extents[i] = (fullbore_extent){.offset = i * part, .ptr = (char *)fullbore_region_ptr(region) + i * part, .len = part};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, EXTENTS);
    transfer.marks = marks;
    return transfer;
}

/* What a mark says is there is there. */
static void check_layers(int64_t landed) {
    const uint8_t *bytes = fullbore_region_ptr(region);
    for (uint64_t i = 0; rings() && i < (uint64_t)landed * EACH * part; i += 61)
        if (bytes[i] != content(i))
            CHECK_IS(bytes[i], content(i));
}

static void in_order(void) {
    fullbore_marks *marks = marks_of_layers();
    CHECK_IS(fullbore_marks_landed(marks), 0);
    CHECK_IS(fullbore_marks_ended(marks), 0);
    for (int round = 0; round < 5; round++) {
        memset(fullbore_region_ptr(region), 0xEE, EXTENTS * part);
        submit_one(client, load(marks));
        for (size_t mark = 0; mark < LAYERS; mark++) {
            CHECK_OK(fullbore_marks_wait(marks, mark, LONG));
            int64_t landed = fullbore_marks_landed(marks);
            CHECK(landed > (int64_t)mark && landed <= LAYERS);
            check_layers(landed);
        }
        fullbore_completion done = next_of(client);
        CHECK_IS(done.result, 0);
        CHECK_IS(fullbore_marks_ended(marks), 1);
        CHECK_IS(fullbore_marks_landed(marks), LAYERS);
    }
    CHECK_OK(fullbore_marks_destroy(marks));
}

static bool up(int fd, int ms) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int n = poll(&one, 1, ms);
    CHECK(n >= 0);
    return n == 1;
}

/* The descriptor alone is followed, from before the submission on. */
static void by_descriptor(void) {
    fullbore_marks *marks = marks_of_layers();
    int fd = fullbore_marks_fd(marks);
    CHECK(fd >= 0);
    CHECK_IS(fullbore_marks_fd(marks), fd);
    CHECK(!up(fd, 0));
    for (uint64_t round = 0; round < scaled(500); round++) {
        submit_one(client, load(marks));
        int64_t landed = 0;
        while (landed < LAYERS) {
            CHECK(up(fd, 60000));
            int64_t now = fullbore_marks_landed(marks);
            CHECK(now >= landed && now <= LAYERS); /* the same once, if it was up for nothing */
            landed = now;
        }
        CHECK_IS(next_of(client).result, 0);
        CHECK_IS(fullbore_marks_landed(marks), LAYERS);
    }
    /* It is up when the transfer ends, too: who follows it sees the end of one whose marks did not all land. */
    while (up(fd, 0))
        CHECK_IS(fullbore_marks_landed(marks), LAYERS);
    fullbore_transfer transfer = load(marks);
    transfer.deadline_ns = 1;
    uint64_t id = submit_one(client, transfer);
    CHECK(fullbore_cancel(client, id) >= 0);
    for (uint64_t until = now_ns() + LONG; !fullbore_marks_ended(marks); fullbore_marks_landed(marks)) {
        CHECK(up(fd, 60000));
        CHECK(now_ns() < until);
    }
    fullbore_completion done = next_of(client);
    CHECK(done.result == 0 || done.result == -ETIMEDOUT || done.result == -ECANCELED);
    /* Made late: it is up at once. */
    fullbore_marks *late = marks_of_layers();
    submit_one(client, load(late));
    CHECK_IS(next_of(client).result, 0);
    CHECK(up(fullbore_marks_fd(late), 60000));
    CHECK_IS(fullbore_marks_landed(late), LAYERS);
    CHECK(!up(fullbore_marks_fd(late), 0) || fullbore_marks_landed(late) == LAYERS);
    CHECK_OK(fullbore_marks_destroy(late));
    CHECK_OK(fullbore_marks_destroy(marks));
}

/* Landings race with the descriptor's clear, again and again: a wake-up that is lost is a wait that does not end. */
static void races(void) {
    const uint32_t after[] = {0, 1};
    fullbore_engine *null = engine_with((fullbore_engine_options){.flags = FULLBORE_ENGINE_NULL, .lanes = 1});
    fullbore_target *there = null_target(null, MIB);
    fullbore_client *theirs = client_of(null);
    static uint8_t memory[4096];
    fullbore_marks *marks = NULL;
    CHECK_OK(fullbore_marks_create(after, COUNT(after), &marks));
    int fd = fullbore_marks_fd(marks);
    for (uint64_t round = 0; round < scaled(50000); round++) {
        fullbore_extent two[] = {{.ptr = memory, .len = 512}, {.ptr = memory, .len = 512}};
        fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, there, two, COUNT(two));
        transfer.marks = marks;
        submit_one(theirs, transfer);
        while (fullbore_marks_landed(marks) < 2)
            CHECK(up(fd, 20000));
        CHECK_IS(next_of(theirs).result, 0);
    }
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_client_destroy(theirs));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(null));
}

static void of_one_transfer_at_a_time(void) {
    fullbore_engine *slow = slow_engine();
    fullbore_target *there = null_target(slow, (uint64_t)SLOW_EXTENTS << 20);
    fullbore_client *theirs = client_of(slow);
    static uint8_t memory[MIB];
    const uint32_t beyond = SLOW_EXTENTS, last = SLOW_EXTENTS - 1;
    fullbore_marks *marks = NULL, *too_far = NULL;
    CHECK_OK(fullbore_marks_create(&last, 1, &marks));
    CHECK_OK(fullbore_marks_create(&beyond, 1, &too_far));
    fullbore_extent *many = slow_extents(memory, MIB), *others = slow_extents(memory, 4096);
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, there, many, SLOW_EXTENTS), other = transfer;
    transfer.marks = too_far;
    INVALID(fullbore_submit(theirs, &transfer, 1));
    transfer.marks = marks;
    uint64_t id = submit_one(theirs, transfer);
    other.marks = marks;
    other.extents = others;
    REFUSED(fullbore_submit(theirs, &other, 1), EBUSY, FULLBORE_KIND_IN_USE);
    CHECK_IS(fullbore_marks_ended(marks), 0);
    CHECK_IS(fullbore_cancel(theirs, id), 1);
    FAILED(next_of(theirs), ECANCELED, FULLBORE_KIND_CANCELLED);
    submit_one(theirs, other); /* free again; and destroyed while the transfer goes on */
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_marks_destroy(too_far));
    CHECK_IS(next_of(theirs).result, 0);
    CHECK_OK(fullbore_client_destroy(theirs));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(slow));
    free(many);
    free(others);
}

int main(void) {
    bool real = rings();
    part = 16 * KIB;
    engine = real ? engine_with((fullbore_engine_options){0}) : null_engine();
    target = real ? file_target(engine, file_of("data", EXTENTS * part), 0) : null_target(engine, EXTENTS * part);
    region = region_of(engine, EXTENTS * part);
    client = client_of(engine);
    in_order();
    by_descriptor();
    races();
    of_one_transfer_at_a_time();
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
