/* Transfers that are cancelled: by their own thread, by another, before and after their end. One completion each. */
#include "setup.h"

#include <pthread.h>

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_client *client;
static fullbore_region *region;

static uint64_t moved(const fullbore_extent *extents, uint64_t count) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        bytes += extents[i].outcome.bytes;
    return bytes;
}

static void *cancel_it(void *arg) {
    sleep_ns(20 * MS); /* most likely the other thread waits by now */
    CHECK_IS(fullbore_cancel(client, *(uint64_t *)arg), 1);
    return NULL;
}

static void while_another_thread_waits(void) {
    fullbore_extent *extents = slow_extents(fullbore_region_ptr(region), MIB);
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, SLOW_EXTENTS);
    transfer.tag = 7;
    uint64_t id = submit_one(client, transfer);
    pthread_t thread;
    CHECK_OK(pthread_create(&thread, NULL, cancel_it, &id));
    fullbore_completion done;
    CHECK_IS(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done), 1);
    CHECK_OK(pthread_join(thread, NULL));
    CHECK_IS(done.tag, 7);
    FAILED(done, ECANCELED, FULLBORE_KIND_CANCELLED);
    CHECK_IS(done.error.domain, FULLBORE_DOMAIN_ENGINE);
    CHECK_IS(done.error.code, FULLBORE_KIND_CANCELLED);
    CHECK(done.bytes < (uint64_t)SLOW_EXTENTS * MIB);
    CHECK_IS(done.bytes, moved(extents, SLOW_EXTENTS));
    CHECK_IS(extents[SLOW_EXTENTS - 1].outcome.error, ECANCELED);
    /* Once. */
    CHECK_IS(fullbore_cancel(client, id), 0);
    CHECK_IS(fullbore_poll(client, &done, 1), 0);
    free(extents);
}

/* Many wait behind one; each says so once. Some get a turn now and then, and may have ended; the others come behind it. */
static void what_was_never_begun(void) {
    enum { MANY = 64 };
    fullbore_extent *slow = slow_extents(fullbore_region_ptr(region), MIB);
    fullbore_extent extents[MANY];
    uint64_t first = submit_one(client, transfer_of(FULLBORE_OP_READ, target, slow, SLOW_EXTENTS)), ids[MANY];
    for (int i = 0; i < MANY; i++) {
        extents[i] = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = 4096};
        fullbore_transfer transfer = transfer_of(FULLBORE_OP_WRITE, target, &extents[i], 1);
        transfer.tag = 1 + (uint64_t)i;
        transfer.priority = i % 2 ? FULLBORE_PRIORITY_LOW : FULLBORE_PRIORITY_NORMAL;
        ids[i] = submit_one(client, transfer);
    }
    int cancelled = 0, seen[MANY + 1] = {0};
    for (int i = MANY - 1; i >= 0; i--) {
        int answer = fullbore_cancel(client, ids[i]);
        CHECK(answer == 0 || answer == 1);
        cancelled += answer;
    }
    CHECK(cancelled >= MANY / 2);
    CHECK_IS(fullbore_cancel(client, first), 1);
    int failed = 0;
    for (int i = 0; i < MANY + 1; i++) {
        fullbore_completion done = next_of(client);
        CHECK(done.tag <= MANY && seen[done.tag]++ == 0);
        if (done.result != 0)
            FAILED(done, ECANCELED, FULLBORE_KIND_CANCELLED);
        failed += done.tag != 0 && done.result != 0;
    }
    CHECK(failed <= cancelled); /* one may have ended well while it was cancelled */
    for (int i = 0; i < MANY; i++)
        CHECK_IS(fullbore_cancel(client, ids[i]), 0);
    fullbore_completion none;
    CHECK_IS(fullbore_poll(client, &none, 1), 0);
    free(slow);
}

/* Ids of entries that were used anew name nothing of today. */
static void an_old_id_harms_nobody(void) {
    fullbore_extent extent = {.ptr = fullbore_region_ptr(region), .len = 4096};
    uint64_t ids[200];
    for (size_t i = 0; i < COUNT(ids); i++) {
        ids[i] = submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extent, 1));
        CHECK(ids[i] != 0);
        for (size_t old = 0; old < i; old++) {
            CHECK(ids[old] != ids[i]);
            CHECK_IS(fullbore_cancel(client, ids[old]), 0);
        }
        CHECK_IS(fullbore_cancel(client, ids[i] + (UINT64_C(1) << 32)), 0); /* of the next one */
        CHECK_IS(next_of(client).result, 0);
    }
}

struct storm {
    uint64_t _Atomic ids[64];
    int _Atomic stop;
};

static void *storm(void *arg) {
    struct storm *all = arg;
    while (!all->stop)
        for (size_t i = 0; i < COUNT(all->ids); i++)
            CHECK(fullbore_cancel(client, all->ids[i]) >= 0);
    return NULL;
}

/* Cancels that race with ends: still one completion each, and what it says adds up. */
static void races(void) {
    struct storm all = {0};
    fullbore_extent extents[64][4];
    pthread_t threads[2];
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_create(&threads[i], NULL, storm, &all));
    uint64_t rounds = scaled(300), ended[2] = {0};
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < COUNT(extents); i++) {
            for (int j = 0; j < 4; j++)
                extents[i][j] = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = (uint64_t)(4 + j) * 4096};
            fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents[i], 4);
            transfer.tag = i;
            all.ids[i] = submit_one(client, transfer);
        }
        uint64_t seen = 0;
        for (size_t i = 0; i < COUNT(extents); i++) {
            fullbore_completion done = next_of(client);
            CHECK(done.tag < 64 && (seen >> done.tag & 1) == 0);
            seen |= UINT64_C(1) << done.tag;
            CHECK(done.result == 0 || done.result == -ECANCELED);
            CHECK_IS(done.bytes, moved(extents[done.tag], 4));
            CHECK(done.result != 0 || done.bytes == 22 * 4096);
            ended[done.result == 0]++;
        }
        CHECK_IS(seen, -1);
    }
    all.stop = 1;
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_join(threads[i], NULL));
    printf("%" PRIu64 " cancelled, %" PRIu64 " not\n", ended[0], ended[1]);
}

int main(void) {
    engine = slow_engine();
    target = null_target(engine, (uint64_t)SLOW_EXTENTS << 20);
    region = region_of(engine, MIB);
    client = client_of(engine);
    an_old_id_harms_nobody();
    while_another_thread_waits();
    what_was_never_begun();
    races();
    CHECK_OK(fullbore_region_free(region, 0));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
