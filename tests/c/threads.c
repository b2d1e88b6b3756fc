/* Sixteen threads, each with a client of its own, over targets and a region that they share; and a client that is shared. */
#include "setup.h"

#include <pthread.h>

enum { THREADS = 16, PARTS = 4, PART = 16 * KIB, OWN = PARTS * PART };

static fullbore_engine *engine;
static fullbore_target *targets[2];
static fullbore_region *region;
static bool real;

/* A thread's own bytes of the file, written anew each round, read back, compared. */
static void *own_client(void *arg) {
    uint64_t me = (uint64_t)(uintptr_t)arg, at = me * OWN;
    fullbore_client *client = client_of(engine);
    uint8_t *source = (uint8_t *)fullbore_region_ptr(region) + me * 2 * OWN, *sink = source + OWN;
    uint64_t rounds = scaled(real ? 60 : 600);
    for (uint64_t round = 0; round < rounds; round++) {
        const fullbore_target *target = targets[round % 2];
        fullbore_extent extents[2][PARTS];
        for (int i = 0; i < OWN; i++)
            source[i] = content(at + (uint64_t)i + round * 131);
        memset(sink, 0xEE, OWN);
        for (int i = 0; i < PARTS; i++) {
            extents[0][i] = (fullbore_extent){.offset = at + (uint64_t)i * PART, .ptr = source + i * PART, .len = PART};
            extents[1][i] = (fullbore_extent){.offset = at + (uint64_t)i * PART, .ptr = sink + i * PART, .len = PART};
        }
        fullbore_transfer write = transfer_of(FULLBORE_OP_WRITE, target, extents[0], PARTS);
        write.tag = me << 32 | round;
        submit_one(client, write);
        fullbore_completion done = next_of(client);
        CHECK_IS(done.result, 0);
        CHECK_IS(done.tag, write.tag);
        /* Each part by itself: their completions may come in any order, but come to this thread alone. */
        fullbore_transfer reads[PARTS];
        for (int i = 0; i < PARTS; i++) {
            reads[i] = transfer_of(FULLBORE_OP_READ, target, &extents[1][i], 1);
            reads[i].tag = me << 32 | (uint64_t)i;
        }
        CHECK_IS(fullbore_submit(client, reads, PARTS), PARTS);
        unsigned seen = 0;
        for (int i = 0; i < PARTS; i++) {
            done = next_of(client);
            CHECK_IS(done.result, 0);
            CHECK_IS(done.tag >> 32, me);
            seen |= 1u << (done.tag & 31);
        }
        CHECK_IS(seen, (1u << PARTS) - 1);
        CHECK(!real || memcmp(source, sink, OWN) == 0);
        /* A failure of this thread is this thread's. */
        reads[0].tag = me;
        extents[1][0].offset = (UINT64_C(1) << 50) + me;
        REFUSED(fullbore_submit(client, reads, 1), ERANGE, FULLBORE_KIND_OUT_OF_BOUNDS);
        CHECK_IS(fullbore_last_error()->offset, (UINT64_C(1) << 50) + me);
    }
    CHECK_OK(fullbore_client_destroy(client));
    return NULL;
}

static void sixteen(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_OK(pthread_create(&threads[i], NULL, own_client, (void *)i));
    /* Meanwhile regions and targets come and go. */
    for (uint64_t i = 0; i < scaled(100); i++) {
        fullbore_region *other = region_of(engine, 64 * KIB);
        fullbore_stats stats = {.size = sizeof stats};
        CHECK_OK(fullbore_stats_get(engine, &stats));
        CHECK_OK(fullbore_region_free(other, 0));
    }
    for (size_t i = 0; i < THREADS; i++)
        CHECK_OK(pthread_join(threads[i], NULL));
}

struct shared {
    fullbore_client *client;
    uint64_t _Atomic taken, fetched, busy;
    uint64_t total;
};

/* Submits one, if it is this thread's turn to get in; an extent of its own, which the completion's tag names. */
static void try_submit(struct shared *shared) {
    static uint8_t memory[4096];
    fullbore_extent *extent = malloc(sizeof *extent);
    CHECK(extent != NULL);
    *extent = (fullbore_extent){.ptr = memory, .len = sizeof memory};
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, targets[0], extent, 1);
    transfer.tag = (uint64_t)(uintptr_t)extent;
    int64_t answer = fullbore_submit(shared->client, &transfer, 1);
    if (answer == 1) {
        shared->taken++;
        return;
    }
    CHECK(answer == -EBUSY || answer == -EAGAIN);
    CHECK_IS(fullbore_last_error()->kind, answer == -EBUSY ? FULLBORE_KIND_IN_USE : FULLBORE_KIND_BUSY);
    shared->busy += answer == -EBUSY;
    free(extent);
}

/* Calls at once on one client: all but one of them are refused, and nothing is lost or comes twice. */
static void *one_of_several(void *arg) {
    struct shared *shared = arg;
    for (uint64_t round = 0; shared->taken < shared->total || shared->fetched < shared->taken; round++) {
        if (shared->taken < shared->total)
            try_submit(shared);
        fullbore_completion done[8];
        int64_t got = round % 2 ? fullbore_poll(shared->client, done, COUNT(done))
                                : fullbore_wait(shared->client, 1, COUNT(done), MS / 10, done);
        CHECK(got >= 0 || got == -EBUSY);
        shared->busy += got == -EBUSY;
        for (int64_t i = 0; i < got; i++) {
            CHECK_IS(done[i].result, 0);
            fullbore_extent *extent = (fullbore_extent *)(uintptr_t)done[i].tag;
            CHECK_IS(extent->outcome.bytes, 4096);
            free(extent); /* twice, if it came twice: the sanitizers and the heap see it */
            shared->fetched++;
        }
    }
    return NULL;
}

static void *waits_long(void *arg) {
    fullbore_completion done;
    CHECK_IS(fullbore_wait(arg, 1, 1, LONG, &done), 1);
    FAILED(done, ECANCELED, FULLBORE_KIND_CANCELLED);
    return NULL;
}

/* While a thread waits in a client, the others' calls on it are refused, but for a cancel. */
static void one_is_in_it(void) {
    fullbore_engine *slow = slow_engine();
    fullbore_target *target = null_target(slow, (uint64_t)SLOW_EXTENTS << 20);
    fullbore_client *client = client_of(slow);
    static uint8_t memory[MIB];
    fullbore_extent *extents = slow_extents(memory, MIB);
    fullbore_transfer transfer = transfer_of(FULLBORE_OP_READ, target, extents, SLOW_EXTENTS);
    uint64_t id = submit_one(client, transfer);
    pthread_t thread;
    fullbore_completion done;
    CHECK_OK(pthread_create(&thread, NULL, waits_long, client));
    for (uint64_t until = now_ns() + LONG; fullbore_poll(client, &done, 1) != -EBUSY; sleep_ns(MS))
        CHECK(now_ns() < until);
    REFUSED(fullbore_poll(client, &done, 1), EBUSY, FULLBORE_KIND_IN_USE);
    REFUSED(fullbore_wait(client, 1, 1, MS, &done), EBUSY, FULLBORE_KIND_IN_USE);
    REFUSED(fullbore_submit(client, &transfer, 1), EBUSY, FULLBORE_KIND_IN_USE);
    REFUSED(fullbore_flush(client, target, 0, NULL), EBUSY, FULLBORE_KIND_IN_USE);
    REFUSED(fullbore_client_fd(client), EBUSY, FULLBORE_KIND_IN_USE);
    REFUSED(fullbore_client_destroy(client), EBUSY, FULLBORE_KIND_IN_USE);
    CHECK_IS(fullbore_cancel(client, id), 1);
    CHECK_OK(pthread_join(thread, NULL));
    CHECK_IS(fullbore_poll(client, &done, 1), 0); /* it may be used again, by any thread */
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_engine_destroy(slow));
    free(extents);
}

int main(void) {
    real = rings();
    engine = real ? engine_with((fullbore_engine_options){0}) : null_engine();
    for (size_t i = 0; i < COUNT(targets); i++) {
        char name[] = {'d', (char)('0' + i), 0};
        targets[i] = real ? file_target(engine, file_of(name, THREADS * OWN), FULLBORE_OPEN_WRITE)
                          : null_target(engine, THREADS * OWN);
    }
    region = region_of(engine, 2 * THREADS * OWN);
    sixteen();
    one_is_in_it();

    struct shared shared = {.client = client_of(engine), .total = scaled(20000)};
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_create(&threads[i], NULL, one_of_several, &shared));
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_join(threads[i], NULL));
    CHECK(shared.taken >= shared.total); /* one more for each that was on its way */
    CHECK_IS(shared.fetched, shared.taken);
    printf("one client, four threads: %" PRIu64 " transfers, %" PRIu64 " calls refused\n", shared.taken, shared.busy);
    CHECK_OK(fullbore_client_destroy(shared.client));
    CHECK_OK(fullbore_region_free(region, 0));
    for (size_t i = 0; i < COUNT(targets); i++)
        CHECK_OK(fullbore_target_destroy(targets[i]));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
