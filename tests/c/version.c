/* What the library says of itself, and a thread's last error. */
#include "setup.h"

#include <pthread.h>

/* A thread that has had no failure has none, whatever others had. */
static void *fresh(void *arg) {
    (void)arg;
    const fullbore_error *error = fullbore_last_error();
    CHECK(error != NULL && error->message != NULL);
    CHECK_IS(error->domain, FULLBORE_DOMAIN_NONE);
    CHECK_IS(error->kind, FULLBORE_KIND_NONE);
    CHECK_IS(error->code, 0);
    CHECK_IS(error->extent, FULLBORE_NO_EXTENT);
    CHECK_IS(strlen(error->message), 0);
    INVALID(fullbore_feature(0));
    return NULL;
}

static void a_failure_is_the_threads_own(void) {
    fresh(NULL);
    char before[200];
    snprintf(before, sizeof before, "%s", fullbore_last_error()->message);
    pthread_t thread;
    CHECK_OK(pthread_create(&thread, NULL, fresh, NULL));
    CHECK_OK(pthread_join(thread, NULL));
    CHECK(strcmp(before, fullbore_last_error()->message) == 0);
    /* What succeeds leaves it alone. */
    fullbore_engine *engine = null_engine();
    CHECK_OK(fullbore_engine_destroy(engine));
    CHECK(strcmp(before, fullbore_last_error()->message) == 0);
}

static void version_and_text_agree(void) {
    uint32_t version = fullbore_version();
    char text[64];
    snprintf(text, sizeof text, "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    CHECK(version != 0 && strncmp(text, fullbore_version_string(), strlen(text)) == 0);
}

static void features_are_yes_or_no_with_a_reason(void) {
    for (uint32_t feature = FULLBORE_FEATURE_IO_URING; feature <= FULLBORE_FEATURE_HWLOC; feature++) {
        spoil();
        int has = fullbore_feature(feature);
        CHECK(has == 0 || has == 1);
        CHECK((strstr(fullbore_last_error()->message, "987654321") != NULL) == (has == 1));
    }
    INVALID(fullbore_feature(FULLBORE_FEATURE_HWLOC + 1));
    INVALID(fullbore_feature(UINT32_MAX));
}

static void everything_has_a_name_of_its_own(void) {
    for (uint32_t kind = 0; kind <= FULLBORE_KIND_DEFECT; kind++) {
        CHECK(strcmp(fullbore_kind_name(kind), "unknown") != 0);
        for (uint32_t other = 0; other < kind; other++)
            CHECK(strcmp(fullbore_kind_name(kind), fullbore_kind_name(other)) != 0);
    }
    CHECK(strcmp(fullbore_kind_name(FULLBORE_KIND_DEFECT + 1), "unknown") == 0);
    CHECK(strcmp(fullbore_kind_name(UINT32_MAX), "unknown") == 0);
    for (uint32_t path = FULLBORE_PATH_FIXED; path <= FULLBORE_PATH_CUFILE_COMPAT; path <<= 1) {
        CHECK(strcmp(fullbore_path_name(path), "unknown") != 0);
        CHECK(strcmp(fullbore_path_name(path), fullbore_path_name(path << 1)) != 0);
    }
    CHECK(strcmp(fullbore_path_name(FULLBORE_PATH_ANY), "any") == 0);
    CHECK(strcmp(fullbore_path_name(FULLBORE_PATH_FIXED | FULLBORE_PATH_PLAIN), "unknown") == 0);
    CHECK(strcmp(fullbore_path_name(FULLBORE_PATH_CUFILE_COMPAT << 1), "unknown") == 0);
}

int main(void) {
    a_failure_is_the_threads_own();
    version_and_text_agree();
    features_are_yes_or_no_with_a_reason();
    everything_has_a_name_of_its_own();
    return 0;
}
