/* Regions that are busy when they are to be freed: refused, or waited for. */
#include "setup.h"

#include <pthread.h>

struct later {
    fullbore_client *client;
    uint64_t id;
};

static void *cancel_later(void *arg) {
    struct later *later = arg;
    sleep_ns(30 * MS);
    CHECK_IS(fullbore_cancel(later->client, later->id), 1);
    return NULL;
}

int main(void) {
    fullbore_engine *engine = slow_engine();
    fullbore_target *target = null_target(engine, (uint64_t)SLOW_EXTENTS << 20);
    fullbore_region *idle = region_of(engine, MIB), *busy = region_of(engine, MIB);
    fullbore_client *client = client_of(engine);
    fullbore_extent *extents = slow_extents(fullbore_region_ptr(busy), MIB);
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, SLOW_EXTENTS);
    uint64_t id = submit_one(client, transfer);

    /* In flight: it stays as it is, and works. */
    for (int i = 0; i < 3; i++) {
        REFUSED(fullbore_region_free(busy, 0), EBUSY, FULLBORE_KIND_IN_USE);
        uint64_t before = now_ns();
        REFUSED(fullbore_region_free(busy, 5 * MS), EBUSY, FULLBORE_KIND_IN_USE);
        CHECK(now_ns() - before >= 5 * MS);
    }
    fullbore_region_info info = {.size = sizeof info};
    CHECK_OK(fullbore_region_get_info(busy, &info));
    CHECK_IS(info.len, MIB);
    memset(info.ptr, 7, MIB);
    CHECK_OK(fullbore_region_free(idle, 0)); /* another one is none of this */

    /* It ends while it is waited for. */
    struct later later = {client, id};
    pthread_t thread;
    CHECK_OK(pthread_create(&thread, NULL, cancel_later, &later));
    CHECK_OK(fullbore_region_free(busy, FULLBORE_FOREVER));
    CHECK_OK(pthread_join(thread, NULL));
    fullbore_completion done = next_of(client);
    FAILED(done, ECANCELED, FULLBORE_KIND_CANCELLED);
    free(extents);

    /* A client that is gone loses its completion; the region knows all the same when its memory is free. */
    busy = region_of(engine, MIB);
    extents = slow_extents(fullbore_region_ptr(busy), MIB);
    transfer.extents = extents;
    transfer.deadline_ns = 50 * MS;
    submit_one(client, transfer);
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_region_free(busy, LONG));
    free(extents);

    /* The engine goes first: what was under way is drained, and the region is free at once. */
    client = client_of(engine);
    busy = region_of(engine, MIB);
    extents = slow_extents(fullbore_region_ptr(busy), MIB);
    transfer.extents = extents;
    transfer.deadline_ns = FULLBORE_FOREVER;
    submit_one(client, transfer);
    CHECK_OK(fullbore_engine_destroy(engine));
    CHECK_OK(fullbore_region_free(busy, 0));
    done = next_of(client);
    FAILED(done, ESHUTDOWN, FULLBORE_KIND_SHUTDOWN);
    free(extents);
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_target_destroy(target));
    return 0;
}
