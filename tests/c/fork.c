/* A forked child has copies of handles whose engine lives in the parent: each call says so, and harms the parent nothing. */
#include "setup.h"

#include <sys/wait.h>

#define FORKED(call) REFUSED(call, ECHILD, FULLBORE_KIND_FORKED)

static fullbore_engine *engine;
static fullbore_target *target;
static fullbore_region *region;
static fullbore_client *client;
static fullbore_marks *marks;
static fullbore_extent extent;
static fullbore_transfer transfer;
static uint64_t id;
static bool real;

static void child(void) {
    static uint8_t memory[4096];
    const char *path = "data";
    fullbore_completion done;
    fullbore_target *no_target;
    fullbore_region *no_region;
    fullbore_client *no_client;
    fullbore_stats stats = {.size = sizeof stats};
    FORKED(fullbore_submit(client, &transfer, 1));
    FORKED(fullbore_flush(client, target, 1, NULL));
    FORKED(fullbore_poll(client, &done, 1));
    FORKED(fullbore_wait(client, 1, 1, MS, &done));
    FORKED(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done));
    FORKED(fullbore_cancel(client, id));
    FORKED(fullbore_client_fd(client));
    FORKED(fullbore_client_create(engine, &no_client));
    FORKED(fullbore_region_alloc(engine, 4096, NULL, &no_region));
    FORKED(fullbore_region_register_host(engine, memory, sizeof memory, &no_region));
    FORKED(fullbore_region_free(region, 0));
    FORKED(fullbore_region_free(region, FULLBORE_FOREVER)); /* and does not wait */
    FORKED(fullbore_marks_landed(marks));
    FORKED(fullbore_marks_ended(marks));
    FORKED(fullbore_marks_wait(marks, 0, FULLBORE_FOREVER));
    FORKED(fullbore_marks_fd(marks));
    FORKED(fullbore_stats_get(engine, &stats));
    FORKED(fullbore_stats_json(engine, NULL, 0));
    if (real) {
        FORKED(fullbore_target_open(engine, path, NULL, &no_target));
        FORKED(fullbore_target_open_stripe(engine, &path, 1, MIB, NULL, &no_target));
    } else {
        FORKED(fullbore_target_open_null(engine, MIB, &no_target));
    }
    /* What needs no engine works, and everything can be given up, but for the region: its memory is the parent's. */
    CHECK(fullbore_version() != 0);
    CHECK_OK(fullbore_marks_destroy(marks));
    CHECK_OK(fullbore_target_destroy(target));
    CHECK_OK(fullbore_client_destroy(client));
    CHECK_OK(fullbore_engine_destroy(engine));
    /* One of its own it may have. */
    fullbore_engine *own = real ? engine_with((fullbore_engine_options){0}) : null_engine();
    fullbore_client *its = client_of(own);
    fullbore_target *there = real ? file_target(own, path, 0) : null_target(own, MIB);
    fullbore_extent bytes = {.ptr = memory, .len = sizeof memory};
    submit_one(its, transfer_of(FULLBORE_OP_READ, there, &bytes, 1));
    CHECK_IS(next_of(its).result, 0);
    CHECK_OK(fullbore_client_destroy(its));
    CHECK_OK(fullbore_target_destroy(there));
    CHECK_OK(fullbore_engine_destroy(own));
}

int main(void) {
    const uint32_t after = 0;
    real = rings();
    file_of("data", MIB);
    for (int round = 0; round < 3; round++) {
        engine = real ? engine_with((fullbore_engine_options){0}) : null_engine();
        target = real ? file_target(engine, "data", FULLBORE_OPEN_WRITE) : null_target(engine, MIB);
        region = region_of(engine, MIB);
        client = client_of(engine);
        CHECK_OK(fullbore_marks_create(&after, 1, &marks));
        CHECK(fullbore_client_fd(client) >= 0);
        extent = (fullbore_extent){.ptr = fullbore_region_ptr(region), .len = MIB};
        transfer = transfer_of(FULLBORE_OP_READ, target, &extent, 1);
        id = submit_one(client, transfer);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child();
            _exit(0); /* its copy of the region is not freed */
        }
        fullbore_completion done = next_of(client);
        CHECK_IS(done.result, 0);
        int status = -1;
        CHECK_IS(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status));
        CHECK_IS(WEXITSTATUS(status), 0);
        /* The parent goes on. */
        transfer.marks = marks;
        submit_one(client, transfer);
        CHECK_IS(next_of(client).result, 0);
        CHECK_OK(fullbore_marks_wait(marks, 0, 0));
        CHECK_OK(fullbore_marks_destroy(marks));
        CHECK_OK(fullbore_client_destroy(client));
        CHECK_OK(fullbore_target_destroy(target));
        CHECK_OK(fullbore_region_free(region, 0));
        CHECK_OK(fullbore_engine_destroy(engine));
    }
    return 0;
}
