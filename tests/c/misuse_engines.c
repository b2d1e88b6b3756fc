/* Handles of another engine, targets that were closed, engines that are gone. */
#include "setup.h"

static fullbore_extent extent;

static void another_engines(void) {
    fullbore_engine *one = null_engine(), *two = null_engine();
    fullbore_target *mine = null_target(one, MIB), *theirs = null_target(two, MIB);
    fullbore_region *region = region_of(one, MIB), *their_region = region_of(two, MIB);
    fullbore_client *client = client_of(one);
    fullbore_path_info info = {.size = sizeof info};
    extent = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = 4096};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, theirs, &extent, 1);
    REFUSED(fullbore_submit(client, &transfer, 1), EINVAL, FULLBORE_KIND_WRONG_ENGINE);
    REFUSED(fullbore_flush(client, theirs, 1, NULL), EINVAL, FULLBORE_KIND_WRONG_ENGINE);
    REFUSED(fullbore_path_query(one, theirs, region, &info), EINVAL, FULLBORE_KIND_WRONG_ENGINE);
    REFUSED(fullbore_path_query(one, mine, their_region, &info), EINVAL, FULLBORE_KIND_WRONG_ENGINE);
    REFUSED(fullbore_path_query(two, mine, their_region, &info), EINVAL, FULLBORE_KIND_WRONG_ENGINE);
    CHECK_IS(fullbore_poll(client, NULL, 0), 0);
    /* Memory of the other's region is no registered memory here: it goes as any host memory. */
    extent.ptr = fullbore_region_ptr(their_region);
    transfer.target = mine;
    submit_one(client, transfer);
    CHECK_IS(next_of(client).result, 0);
    /* Both go on; one at a time they go. */
    CHECK_OK(fullbore_engine_destroy(two));
    submit_one(client, transfer);
    CHECK_IS(next_of(client).result, 0);
    CHECK_OK(fullbore_region_free(their_region, 0));
    CHECK_OK(fullbore_target_destroy(theirs));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_target_destroy(mine));
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_engine_destroy(one));
}

static void a_closed_target(void) {
    fullbore_engine *engine = null_engine();
    fullbore_target *target = null_target(engine, MIB), *open = null_target(engine, MIB);
    fullbore_client *client = client_of(engine);
    static uint8_t memory[4096];
    extent = (fullbore_extent){.ptr = memory, .len = sizeof memory};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
    CHECK_OK(fullbore_target_close(target));
    CHECK_OK(fullbore_target_close(target));
    REFUSED(fullbore_submit(client, &transfer, 1), EBADF, FULLBORE_KIND_CLOSED);
    REFUSED(fullbore_flush(client, target, 1, NULL), EBADF, FULLBORE_KIND_CLOSED);
    transfer.target = open;
    submit_one(client, transfer);
    CHECK_IS(next_of(client).result, 0);
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_target_destroy(open));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
}

/* What outlives its engine is refused, not followed into the void, and can be destroyed. */
static void an_engine_that_is_gone(void) {
    fullbore_engine *engine = null_engine();
    fullbore_target *target = null_target(engine, MIB);
    fullbore_region *region = region_of(engine, MIB);
    fullbore_client *client = client_of(engine);
    uint32_t after = 0;
    fullbore_marks *marks = NULL;
    CHECK_OK(fullbore_marks_create(&after, 1, &marks));
    extent = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = 4096};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
    transfer.marks = marks;
    transfer.tag = 41;
    uint64_t id = submit_one(client, transfer);
    CHECK_OK(fullbore_engine_destroy(engine));

    fullbore_completion done = next_of(client); /* its completion came all the same */
    CHECK_IS(done.tag, 41);
    CHECK(done.result == 0 || done.result == -ESHUTDOWN);
    CHECK_IS(fullbore_marks_ended(marks), 1);
    REFUSED(fullbore_submit(client, &transfer, 1), EBADF, FULLBORE_KIND_CLOSED);
    REFUSED(fullbore_flush(client, target, 1, NULL), EBADF, FULLBORE_KIND_CLOSED);
    CHECK_IS(fullbore_cancel(client, id), 0);
    CHECK_IS(fullbore_poll(client, &done, 1), 0);
    CHECK_IS(fullbore_wait(client, 1, 1, MS, &done), 0);
    INVALID(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done));
    fullbore_target_info target_info = {.size = sizeof target_info};
    fullbore_region_info region_info = {.size = sizeof region_info};
    CHECK_OK(fullbore_target_get_info(target, &target_info));
    CHECK_OK(fullbore_region_get_info(region, &region_info));
    CHECK_IS(region_info.len, MIB);
    memset(fullbore_region_ptr(region), 1, MIB); /* still there */
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_marks_destroy(marks));
}

/* Calls of a real engine's target that its kind does not have. */
static void the_wrong_kind(void) {
    fullbore_engine *engine = null_engine();
    fullbore_target *out = (fullbore_target *)0x8;
    REFUSED(fullbore_target_open(engine, "/dev/null", NULL, &out), EOPNOTSUPP, FULLBORE_KIND_UNSUPPORTED);
    CHECK(out == NULL);
    CHECK_OK(fullbore_engine_destroy(engine));
    if (!rings())
        return;
    engine = engine_with((fullbore_engine_options){0});
    out = (fullbore_target *)0x8;
    int answer = fullbore_target_open_null(engine, MIB, &out);
    CHECK(answer == -EINVAL || answer == -EOPNOTSUPP);
    CHECK(out == NULL);
    CHECK(fullbore_target_open(engine, "/dev/null", NULL, &out) < 0);
    CHECK(fullbore_target_open(engine, "/", NULL, &out) < 0);
    CHECK(fullbore_target_open(engine, "", NULL, &out) < 0);
    CHECK_OK(fullbore_engine_destroy(engine));
}

int main(void) {
    another_engines();
    a_closed_target();
    an_engine_that_is_gone();
    the_wrong_kind();
    return 0;
}
