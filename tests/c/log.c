/* The log's function: set, replaced, removed; by several threads at once; not from within itself. */
#include "setup.h"

#include <pthread.h>

struct heard {
    uint64_t _Atomic lines, within;
    int _Atomic answer;
    uint32_t most;
};

/* A line comes of each region over the null queue: that it is not registered (debug). */
static void say(fullbore_engine *engine) { CHECK_OK(fullbore_region_free(region_of(engine, 4096), 0)); }

static void hear(uint32_t level, const char *source, const char *message, void *user) {
    struct heard *heard = user;
    CHECK(level >= FULLBORE_LOG_ERROR && level <= heard->most);
    CHECK(source != NULL && strncmp(source, "fullbore", 8) == 0);
    CHECK(message != NULL && message[0] != 0 && strchr(message, '\n') == NULL);
    heard->within++;
    heard->lines++;
    heard->within--;
}

static void calls_back(uint32_t level, const char *source, const char *message, void *user) {
    struct heard *heard = user;
    (void)level, (void)source, (void)message;
    heard->lines++;
    heard->answer = fullbore_log_set(NULL, 0, NULL);
    CHECK_IS(fullbore_last_error()->code, EDEADLK);
    CHECK_IS(fullbore_last_error()->domain, FULLBORE_DOMAIN_ERRNO);
}

static fullbore_engine *engine;
static int _Atomic stop;

static void *says(void *arg) {
    (void)arg;
    while (!stop)
        say(engine);
    return NULL;
}

int main(void) {
    static struct heard first = {.most = FULLBORE_LOG_DEBUG}, second = {.most = FULLBORE_LOG_DEBUG},
                        errors = {.most = FULLBORE_LOG_ERROR}, inner;
    engine = null_engine();
    CHECK_OK(fullbore_log_set(NULL, 0, NULL));
    say(engine);
    CHECK_OK(fullbore_log_set(hear, FULLBORE_LOG_DEBUG, &first));
    say(engine);
    CHECK(first.lines > 0);
    /* What is below the level is not told. */
    CHECK_OK(fullbore_log_set(hear, FULLBORE_LOG_ERROR, &errors));
    uint64_t before = first.lines;
    say(engine);
    CHECK_IS(errors.lines, 0);
    CHECK_IS(first.lines, before);
    INVALID(fullbore_log_set(hear, 9, &second)); /* refused: the one before stays */
    CHECK_OK(fullbore_log_set(calls_back, FULLBORE_LOG_DEBUG, &inner));
    say(engine);
    CHECK(inner.lines > 0);
    CHECK_IS(inner.answer, -EDEADLK);
    before = inner.lines;
    say(engine);
    CHECK(inner.lines > before); /* it was not taken away by its own call */

    /* Four threads speak while the function changes: who was replaced is not called any more. */
    pthread_t threads[4];
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_create(&threads[i], NULL, says, NULL));
    for (uint64_t round = 0; round < scaled(300); round++) {
        struct heard *now = round % 2 ? &second : &first, *old = round % 2 ? &first : &second;
        CHECK_OK(fullbore_log_set(hear, FULLBORE_LOG_DEBUG, now));
        CHECK_IS(old->within, 0);
        before = old->lines;
        for (uint64_t lines = now->lines, until = now_ns() + LONG; now->lines < lines + 3;)
            CHECK(now_ns() < until);
        CHECK_IS(old->lines, before);
    }
    CHECK_OK(fullbore_log_set(NULL, 0, NULL));
    uint64_t lines[2] = {first.lines, second.lines};
    sleep_ns(5 * MS);
    CHECK(first.lines == lines[0] && second.lines == lines[1]);
    stop = 1;
    for (size_t i = 0; i < COUNT(threads); i++)
        CHECK_OK(pthread_join(threads[i], NULL));
    CHECK_OK(fullbore_engine_destroy(engine));
    return 0;
}
