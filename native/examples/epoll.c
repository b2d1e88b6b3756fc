/*
 * epoll: a whole file by an event loop. Completions and timers wake it; several loads are always in flight.
 *
 *     cc -std=c11 epoll.c $(pkg-config --cflags --libs fullbore) -o epoll
 *     ./epoll /var/cache/objects 20971520 8
 */
#define _GNU_SOURCE
#include "example.h"
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MOST_IN_FLIGHT 64

static const char *const USAGE =
    "epoll FILE [OBJECT_BYTES [IN_FLIGHT [TIMEOUT_NS]]]\n"
    "Loads all of FILE in objects of OBJECT_BYTES (4194304), IN_FLIGHT (4, at most 64) at a time, and prints the sum of\n"
    "their FNV-1a checksums. Exit status 1 on a failure, and when it takes longer than TIMEOUT_NS; 2: bad arguments.\n";

/* A load: its memory and its one extent. Its transfer's tag is its number. */
struct load {
    struct fullbore_extent extent;
    unsigned char *memory;
    uint64_t id; /* of its transfer, for cancelling */
    int busy;
};

struct loop {
    struct fullbore_target *target;
    struct fullbore_client *client;
    struct load loads[MOST_IN_FLIGHT];
    uint64_t object, size, next, in_flight, loaded, sum;
    int stopping;
};

/* Fails as system calls do. */
static int sys(int answer, const char *what)
{
    if (answer < 0) {
        perror(what);
        exit(1);
    }
    return answer;
}

/* Has load number `n` fetch the next object, if there is one. */
static void start(struct loop *loop, uint64_t n)
{
    struct load *load = &loop->loads[n];
    if (loop->stopping || loop->next == loop->size)
        return;
    uint64_t left = loop->size - loop->next;
    load->extent = (struct fullbore_extent){
        .offset = loop->next, .ptr = load->memory, .len = left < loop->object ? left : loop->object};
    struct fullbore_transfer transfer = {.size = sizeof transfer,
                                         .op = FULLBORE_OP_READ,
                                         .target = loop->target,
                                         .extents = &load->extent,
                                         .count = 1,
                                         .tag = n};
    check(fullbore_submit(loop->client, &transfer, 1), "submit");
    load->id = transfer.id;
    load->busy = 1;
    loop->next += load->extent.len;
    loop->in_flight++;
}

/* The client's descriptor is up: takes what is there. Less than was asked for means that there is no more. */
static void completions(struct loop *loop)
{
    struct fullbore_completion done[16];
    int64_t got;
    do {
        got = check(fullbore_poll(loop->client, done, 16), "poll");
        for (int64_t i = 0; i < got; i++) {
            loop->in_flight--;
            loop->loads[done[i].tag].busy = 0;
            if (done[i].result == -ECANCELED && loop->stopping)
                continue;
            check_completion(&done[i], "load");
            struct load *load = &loop->loads[done[i].tag];
            loop->loaded += load->extent.len;
            loop->sum += checksum(load->memory, load->extent.len);
            start(loop, done[i].tag);
        }
    } while (got == 16);
}

/* The time is over: asks for an end. Each load that is in flight still gets its completion, and only then may its memory go. */
static void stop(struct loop *loop)
{
    loop->stopping = 1;
    for (int n = 0; n < MOST_IN_FLIGHT; n++)
        if (loop->loads[n].busy)
            check(fullbore_cancel(loop->client, loop->loads[n].id), "cancel");
}

static int timer(int epoll, uint64_t first_ns, uint64_t every_ns)
{
    int fd = sys(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), "timerfd");
    struct itimerspec times = {
        .it_value = {.tv_sec = (time_t)(first_ns / 1000000000), .tv_nsec = (long)(first_ns % 1000000000)},
        .it_interval = {.tv_sec = (time_t)(every_ns / 1000000000), .tv_nsec = (long)(every_ns % 1000000000)}};
    sys(timerfd_settime(fd, 0, &times, NULL), "timerfd");
    sys(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.fd = fd}), "epoll");
    return fd;
}

static void run(struct loop *loop, uint64_t timeout_ns)
{
    int epoll = sys(epoll_create1(EPOLL_CLOEXEC), "epoll");
    int client = (int)check(fullbore_client_fd(loop->client), "descriptor");
    sys(epoll_ctl(epoll, EPOLL_CTL_ADD, client, &(struct epoll_event){.events = EPOLLIN, .data.fd = client}), "epoll");
    int progress = timer(epoll, 100000000, 100000000);
    int deadline = timeout_ns > 0 ? timer(epoll, timeout_ns, 0) : -1;
    while (loop->in_flight > 0) {
        struct epoll_event events[4];
        int ready = epoll_wait(epoll, events, 4, -1);
        if (ready < 0 && errno == EINTR)
            continue;
        sys(ready, "epoll");
        for (int i = 0; i < ready; i++) {
            uint64_t times;
            if (events[i].data.fd == client)
                completions(loop);
            else if (read(events[i].data.fd, &times, sizeof times) != sizeof times)
                continue; /* it was taken back meanwhile */
            else if (events[i].data.fd == progress)
                fprintf(stderr, "%" PRIu64 " of %" PRIu64 " bytes\n", loop->loaded, loop->size);
            else
                stop(loop);
        }
    }
    if (deadline >= 0)
        close(deadline);
    close(progress);
    close(epoll);
}

int main(int argc, char **argv)
{
    usage(argc, argv, 1, 4, USAGE);
    struct loop loop = {.object = 4 << 20};
    uint64_t at_once = 4, timeout_ns = 0;
    if (argc > 2)
        number(argv[2], "", &loop.object);
    if (argc > 3)
        number(argv[3], "", &at_once);
    if (argc > 4)
        number(argv[4], "", &timeout_ns);
    if (loop.object == 0 || loop.object > UINT64_C(1) << 30 || at_once == 0 || at_once > MOST_IN_FLIGHT) {
        fputs(USAGE, stderr);
        return 2;
    }

    struct fullbore_engine *engine;
    struct fullbore_region *region;
    check(fullbore_engine_create(NULL, &engine), "engine");
    check(fullbore_target_open(engine, argv[1], NULL, &loop.target), "open");
    check(fullbore_client_create(engine, &loop.client), "client");
    uint64_t step = pages(loop.object);
    check(fullbore_region_alloc(engine, step * at_once, NULL, &region), "memory");
    loop.size = describe(loop.target).bytes;
    for (uint64_t n = 0; n < at_once; n++) {
        loop.loads[n].memory = (unsigned char *)fullbore_region_ptr(region) + n * step;
        start(&loop, n);
    }
    run(&loop, timeout_ns);

    check(fullbore_region_free(region, 0), "free");
    check(fullbore_client_destroy(loop.client), "client");
    check(fullbore_target_destroy(loop.target), "target");
    check(fullbore_engine_destroy(engine), "engine");
    if (loop.loaded != loop.size) {
        fprintf(stderr, "epoll: out of time: %" PRIu64 " of %" PRIu64 " bytes were loaded\n", loop.loaded, loop.size);
        return 1;
    }
    printf("%" PRIu64 " bytes, sum of checksums %016" PRIx64 "\n", loop.loaded, loop.sum);
    return 0;
}
