/* Times that are over: of transfers (deadlines), of waits, of waits for marks. */
#include "setup.h"

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_client *client;
static fullbore_region *region;
static fullbore_extent *extents;

static fullbore_transfer slow(void) {
    free(extents);
    extents = slow_extents(fullbore_region_ptr(region), MIB);
    return transfer_of(FULLBORE_OP_READ, target, extents, SLOW_EXTENTS);
}

static void check_timed_out(fullbore_completion done) {
    FAILED(done, ETIMEDOUT, FULLBORE_KIND_TIMED_OUT);
    CHECK_IS(done.error.domain, FULLBORE_DOMAIN_ENGINE);
    uint64_t bytes = 0;
    bool cut = false;
    for (int i = 0; i < SLOW_EXTENTS; i++) {
        bytes += extents[i].outcome.bytes;
        CHECK(extents[i].outcome.error == 0 || extents[i].outcome.error == ETIMEDOUT);
        CHECK(extents[i].outcome.error != 0 || extents[i].outcome.bytes == MIB);
        cut |= extents[i].outcome.error != 0;
    }
    CHECK(cut);
    CHECK_IS(done.bytes, bytes);
}

/* The shortest deadline there is, and others: nobody waits longer than that, though there is work for long. */
static void deadlines(void) {
    static const uint64_t deadlines[] = {1, 1000, MS, 40 * MS};
    for (size_t i = 0; i < COUNT(deadlines); i++) {
        fullbore_transfer transfer = slow();
        transfer.deadline_ns = deadlines[i];
        uint64_t before = now_ns();
        submit_one(client, transfer);
        fullbore_completion done;
        CHECK_IS(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done), 1); /* the deadline ends the wait */
        CHECK(now_ns() - before >= deadlines[i]);
        CHECK(done.total_ns <= now_ns() - before);
        check_timed_out(done);
    }
}

/* What waits behind another has its own time. */
static void queued_up(void) {
    fullbore_transfer first = slow();
    uint64_t id = submit_one(client, first);
    fullbore_extent small = {.ptr = fullbore_region_ptr(region), .len = 4096};
    fullbore_transfer second = transfer_of(FULLBORE_OP_READ, target, &small, 1);
    second.tag = 2;
    second.priority = FULLBORE_PRIORITY_LOW;
    second.deadline_ns = 1;
    submit_one(client, second);
    fullbore_completion done = next_of(client);
    CHECK_IS(done.tag, 2);
    FAILED(done, ETIMEDOUT, FULLBORE_KIND_TIMED_OUT);
    CHECK_IS(small.outcome.error, ETIMEDOUT);
    CHECK_IS(small.outcome.bytes, 0);
    CHECK_IS(fullbore_cancel(client, id), 1);
    FAILED(next_of(client), ECANCELED, FULLBORE_KIND_CANCELLED);
}

/* A wait that is over takes nothing away, and gives what is there. */
static void waits(void) {
    fullbore_completion done[4];
    CHECK_IS(fullbore_wait(client, 1, 4, 0, done), 0);
    uint64_t before = now_ns();
    CHECK_IS(fullbore_wait(client, 1, 4, 20 * MS, done), 0); /* nothing is under way: that is no error with a time */
    CHECK(now_ns() - before >= 20 * MS);

    fullbore_extent small = {.ptr = fullbore_region_ptr(region), .len = 4096};
    fullbore_transfer one = transfer_of(FULLBORE_OP_READ, target, &small, 1), other = slow();
    one.tag = 1, other.tag = 2;
    submit_one(client, one);
    CHECK_IS(fullbore_wait(client, 1, 0 + 1, LONG, done), 1);
    submit_one(client, one);
    uint64_t id = submit_one(client, other);
    before = now_ns();
    int64_t got = fullbore_wait(client, 2, 4, 30 * MS, done); /* the other takes longer */
    CHECK(now_ns() - before >= 30 * MS);
    CHECK(got == 1 || got == 0);
    if (got == 0)
        done[0] = next_of(client);
    CHECK_IS(done[0].tag, 1);
    CHECK_IS(fullbore_wait(client, 1, 4, MS, done), 0);
    CHECK_IS(fullbore_cancel(client, id), 1);
    CHECK_IS(fullbore_wait(client, 1, 4, LONG, done), 1);
    FAILED(done[0], ECANCELED, FULLBORE_KIND_CANCELLED);
    /* Asked for more than are under way: with no end of time it waits for those that are. */
    submit_one(client, one);
    submit_one(client, one);
    CHECK_IS(fullbore_wait(client, 4, 4, FULLBORE_FOREVER, done), 2);
}

static void marks(void) {
    const uint32_t after[] = {0, SLOW_EXTENTS - 1};
    fullbore_marks *marks = NULL;
    CHECK_OK(fullbore_marks_create(after, 2, &marks));
    REFUSED(fullbore_marks_wait(marks, 0, 0), ETIMEDOUT, FULLBORE_KIND_TIMED_OUT); /* of no transfer yet */
    fullbore_transfer transfer = slow();
    transfer.marks = marks;
    uint64_t id = submit_one(client, transfer), before = now_ns();
    CHECK_OK(fullbore_marks_wait(marks, 0, LONG));
    before = now_ns();
    REFUSED(fullbore_marks_wait(marks, 1, 20 * MS), ETIMEDOUT, FULLBORE_KIND_TIMED_OUT);
    CHECK(now_ns() - before >= 20 * MS);
    CHECK_IS(fullbore_marks_ended(marks), 0);
    CHECK_IS(fullbore_cancel(client, id), 1);
    REFUSED(fullbore_marks_wait(marks, 1, FULLBORE_FOREVER), ECANCELED, FULLBORE_KIND_CANCELLED);
    CHECK_OK(fullbore_marks_wait(marks, 0, 0)); /* it did land */
    CHECK_IS(fullbore_marks_ended(marks), 1);
    CHECK_IS(fullbore_marks_landed(marks), 1);
    FAILED(next_of(client), ECANCELED, FULLBORE_KIND_CANCELLED);
    /* The next transfer's, whose time is over. */
    transfer = slow();
    transfer.marks = marks;
    transfer.deadline_ns = 20 * MS;
    submit_one(client, transfer);
    REFUSED(fullbore_marks_wait(marks, 1, FULLBORE_FOREVER), ECANCELED, FULLBORE_KIND_CANCELLED);
    check_timed_out(next_of(client));
    CHECK_OK(fullbore_marks_destroy(marks));
}

/* The engine's own deadline holds where a transfer gives none, and FOREVER has none. */
static void the_engines_deadline(void) {
    fullbore_engine *other = engine_with((fullbore_engine_options){.flags = FULLBORE_ENGINE_NULL,
                                                                   .command_size = 4096,
                                                                   .lanes = 1,
                                                                   .lane_depth = 1,
                                                                   .unit_size = 4096,
                                                                   .deadline_ns = 10 * MS});
    fullbore_target *there = null_target(other, (uint64_t)SLOW_EXTENTS << 20);
    fullbore_client *theirs = client_of(other);
    fullbore_transfer transfer = slow();
    transfer.target = there;
    submit_one(theirs, transfer);
    fullbore_completion done;
    CHECK_IS(fullbore_wait(theirs, 1, 1, FULLBORE_FOREVER, &done), 1);
    check_timed_out(done);
    transfer = slow();
    transfer.target = there;
    transfer.deadline_ns = FULLBORE_FOREVER;
    uint64_t id = submit_one(theirs, transfer);
    CHECK_IS(fullbore_wait(theirs, 1, 1, 60 * MS, &done), 0);
    CHECK_IS(fullbore_cancel(theirs, id), 1);
    FAILED(next_of(theirs), ECANCELED, FULLBORE_KIND_CANCELLED);
    CHECK_OK(fullbore_client_destroy(theirs));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(other));
}

int main(void) {
    engine = slow_engine();
    target = null_target(engine, (uint64_t)SLOW_EXTENTS << 20);
    region = region_of(engine, MIB);
    client = client_of(engine);
    deadlines();
    queued_up();
    waits();
    marks();
    the_engines_deadline();
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    free(extents);
    return 0;
}
