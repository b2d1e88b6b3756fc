/* What was made is destroyed in every order, idle, with transfers under way, and with completions that nobody fetched. */
#include "setup.h"

#include <sys/mman.h>

enum { ENGINE, TARGET, REGIONS, CLIENT, MARKS, THINGS };
enum when { IDLE, UNDER_WAY, NOT_FETCHED, WHENS };
enum { BATCH = 8, EXTENTS = 4, PART = 64 * KIB };

struct set {
    fullbore_engine *engine;
    fullbore_target *target;
    fullbore_region *region, *host;
    fullbore_client *client;
    fullbore_marks *marks;
    void *memory;
    uint64_t last;
    fullbore_extent extents[BATCH][EXTENTS];
};

static const size_t BYTES = (size_t)BATCH * EXTENTS * PART;

static void make(struct set *set, bool real) {
    const uint32_t after[] = {0, EXTENTS - 1};
    set->engine = real ? engine_with((fullbore_engine_options){0}) : null_engine();
    set->target = real ? file_target(set->engine, "data", FULLBORE_OPEN_WRITE) : null_target(set->engine, BYTES);
    set->region = region_of(set->engine, BYTES);
    CHECK_OK(posix_memalign(&set->memory, 4096, BYTES));
    CHECK_OK(fullbore_region_register_host(set->engine, set->memory, BYTES, &set->host));
    set->client = client_of(set->engine);
    CHECK_OK(fullbore_marks_create(after, COUNT(after), &set->marks));
}

static void submit(struct set *set) {
    fullbore_transfer transfers[BATCH];
    for (int i = 0; i < BATCH; i++) {
        uint8_t *memory = i % 2 ? set->memory : fullbore_region_ptr(set->region);
        for (int j = 0; j < EXTENTS; j++) {
            uint64_t at = (uint64_t)(i * EXTENTS + j) * PART;
            set->extents[i][j] = (fullbore_extent){.offset = at, .ptr = memory + at, .len = PART};
        }
        transfers[i] = transfer_of(i % 3 ? FULLBORE_OP_READ : FULLBORE_OP_WRITE, set->target, set->extents[i], EXTENTS);
    }
    transfers[1].marks = set->marks;
    CHECK_IS(fullbore_submit(set->client, transfers, BATCH), BATCH);
    CHECK_OK(fullbore_flush(set->client, set->target, 99, NULL));
    set->last = transfers[BATCH - 1].id;
}

/* Until every completion is there, and none is taken. */
static void all_there(struct set *set) {
    fullbore_stats stats = {.size = sizeof stats};
    for (uint64_t until = now_ns() + LONG; now_ns() < until; sleep_ns(MS / 10)) {
        CHECK_OK(fullbore_stats_get(set->engine, &stats));
        if (stats.in_flight == 0 && fullbore_cancel(set->client, set->last) == 0)
            return;
    }
    CHECK(false);
}

/* Frees a region that may be busy: refused, or waited for. */
static void free_region(fullbore_region *region) {
    int answer = fullbore_region_free(region, 0);
    if (answer == -EBUSY) {
        CHECK_IS(fullbore_last_error()->kind, FULLBORE_KIND_IN_USE);
        answer = fullbore_region_free(region, LONG);
    }
    CHECK_OK(answer);
}

static void destroy(struct set *set, int thing) {
    switch (thing) {
    case ENGINE:
        CHECK_OK(fullbore_engine_destroy(set->engine));
        break;
    case TARGET:
        CHECK_OK(fullbore_target_destroy(set->target));
        break;
    case REGIONS:
        free_region(set->region);
        free_region(set->host);
        memset(set->memory, 0xEE, BYTES); /* it is ours again */
        free(set->memory);
        break;
    case CLIENT:
        CHECK_OK(fullbore_client_destroy(set->client));
        break;
    case MARKS:
        CHECK_OK(fullbore_marks_destroy(set->marks));
        break;
    }
}

static void in_this_order(const int order[THINGS], enum when when, bool real) {
    struct set *set = calloc(1, sizeof *set); /* on the heap: a late write into its extents is seen */
    CHECK(set != NULL);
    make(set, real);
    if (when != IDLE)
        submit(set);
    if (when == NOT_FETCHED)
        all_there(set);
    for (int i = 0; i < THINGS; i++)
        destroy(set, order[i]);
    free(set);
}

/* Each order of the five, or one in `step` of them. */
static void orders(int order[THINGS], int placed, int *seen, int step, bool real) {
    if (placed == THINGS) {
        if ((*seen)++ % step == 0)
            for (enum when when = IDLE; when < WHENS; when++)
                in_this_order(order, when, real);
        return;
    }
    for (int i = placed; i < THINGS; i++) {
        int swap = order[placed];
        order[placed] = order[i], order[i] = swap;
        orders(order, placed + 1, seen, step, real);
        swap = order[placed];
        order[placed] = order[i], order[i] = swap;
    }
}

/* A thread's worth of handles that are made, used once and destroyed, again and again: of one engine. */
static void again_and_again(void) {
    fullbore_engine *engine = null_engine();
    static uint8_t memory[4096];
    int before = open_files();
    for (uint64_t round = 0; round < scaled(2000); round++) {
        fullbore_client *client = client_of(engine);
        fullbore_target *target = null_target(engine, MIB);
        fullbore_region *region = region_of(engine, 4096);
        fullbore_extent extents[2] = {{.ptr = memory, .len = 4096}, {.ptr = fullbore_region_ptr(region), .len = 4096}};
        CHECK(fullbore_client_fd(client) >= 0);
        submit_one(client, transfer_of(FULLBORE_OP_READ, target, extents, 2));
        CHECK_IS(next_of(client).result, 0);
        CHECK_OK(fullbore_region_free(region, LONG));
        CHECK_OK(fullbore_target_destroy(target));
        CHECK_OK(fullbore_client_destroy(client));
    }
    files_become(before);
    CHECK_OK(fullbore_engine_destroy(engine));
}

int main(void) {
    int order[THINGS] = {ENGINE, TARGET, REGIONS, CLIENT, MARKS}, seen = 0;
    int before = open_files();
    bool slow = mode_is("valgrind");
    orders(order, 0, &seen, slow ? 11 : 1, false);
    CHECK_IS(seen, 120);
    if (rings()) {
        file_of("data", BYTES);
        seen = 0;
        orders(order, 0, &seen, slow ? 31 : 7, true);
    }
    again_and_again();
    files_become(before);
    return 0;
}
