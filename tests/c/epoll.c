/* The completions' descriptor, with epoll: level-triggered, and no wake-up is lost when a publication races with the clear. */
#include "setup.h"

#include <sys/epoll.h>

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_client *client;
static uint8_t memory[4096];

/* Whether it is readable within a time. */
static bool up(int poller, int ms) {
    struct epoll_event event;
    int n;
    do
        n = epoll_wait(poller, &event, 1, ms);
    while (n < 0 && errno == EINTR);
    CHECK(n >= 0);
    CHECK(n == 0 || event.events == EPOLLIN);
    return n == 1;
}

static int poller_of(int fd) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(fd >= 0 && poller >= 0);
    CHECK_OK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event));
    return poller;
}

static void one_by_one(int poller) {
    fullbore_extent extents[3];
    fullbore_completion done[4];
    CHECK(!up(poller, 0));
    for (int i = 0; i < 3; i++) {
        extents[i] = (fullbore_extent){.ptr = memory, .len = sizeof memory};
        submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extents[i], 1));
    }
    CHECK(up(poller, 60000));
    CHECK(up(poller, 0)); /* level-triggered: it stays up */
    CHECK_IS(fullbore_wait(client, 3, 3, LONG, done), 3);
    CHECK_IS(fullbore_poll(client, done, 4), 0);
    /* Down; now and then it is up once for nothing. */
    if (up(poller, 0)) {
        CHECK_IS(fullbore_poll(client, done, 4), 0);
        CHECK(!up(poller, 0));
    }
    /* What was fetched in part keeps it up. */
    for (int i = 0; i < 3; i++)
        submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extents[i], 1));
    for (int left = 3; left > 0;) {
        CHECK(up(poller, 60000));
        int64_t got = fullbore_poll(client, done, 1);
        CHECK(got == 0 || got == 1);
        left -= (int)got;
    }
    check_quiet(engine);
}

/* Fetches all that is under way; each time the descriptor must say that there is something. */
static uint64_t fetch(int poller, int under_way, uint64_t *longest) {
    uint64_t nothing = 0;
    while (under_way > 0) {
        uint64_t before = now_ns();
        if (!up(poller, 20000)) {
            fullbore_completion late;
            fprintf(stderr, "no wake-up in 20 s; completions that are there: %d\n", (int)fullbore_poll(client, &late, 1));
            CHECK(!"a wake-up was lost");
        }
        uint64_t took = now_ns() - before;
        *longest = took > *longest ? took : *longest;
        fullbore_completion done[4];
        int64_t got = fullbore_poll(client, done, COUNT(done)); /* the last of these clears it, while others are published */
        CHECK(got >= 0 && got <= under_way);
        nothing += got == 0;
        under_way -= (int)got;
    }
    return nothing;
}

/* One to four transfers a round: publications fall where a clear is under way. A wake-up that is lost is a wait that does
 * not end. */
static void rounds(int poller) {
    uint64_t rounds = scaled(1000000), nothing = 0, longest = 0;
    fullbore_extent extents[4];
    for (uint64_t round = 0; round < rounds; round++) {
        int under_way = 1 + (int)(round % COUNT(extents));
        for (int i = 0; i < under_way; i++) {
            extents[i] = (fullbore_extent){.ptr = memory, .len = 512};
            submit_one(client, transfer_of(FULLBORE_OP_READ, target, &extents[i], 1));
        }
        nothing += fetch(poller, under_way, &longest);
    }
    CHECK_IS(fullbore_poll(client, &(fullbore_completion){0}, 1), 0);
    printf("%" PRIu64 " rounds, %" PRIu64 " times up for nothing, longest wait %" PRIu64 " us\n", rounds, nothing, longest / 1000);
}

int main(void) {
    engine = engine_with((fullbore_engine_options){.flags = FULLBORE_ENGINE_NULL, .lanes = 1});
    target = null_target(engine, MIB);
    client = client_of(engine);
    int fd = fullbore_client_fd(client);
    CHECK_IS(fullbore_client_fd(client), fd); /* one, for good */
    int poller = poller_of(fd);
    one_by_one(poller);
    rounds(poller);
    /* Asked for only when completions are there already: up at once. */
    fullbore_client *late = client_of(engine);
    fullbore_extent extent = {.ptr = memory, .len = 512};
    submit_one(late, transfer_of(FULLBORE_OP_READ, target, &extent, 1));
    for (uint64_t until = now_ns() + LONG; extent.outcome.bytes == 0 && now_ns() < until;)
        sleep_ns(MS);
    int second = poller_of(fullbore_client_fd(late));
    CHECK(up(second, 60000));
    CHECK_IS(next_of(late).result, 0);
    CHECK_OK(fullbore_client_destroy(late)); /* its descriptor goes with it */
    CHECK(!up(second, 0));
    CHECK_OK(close(second));
    CHECK_OK(close(poller));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
