/* Checks. One that fails says where, what, and what the library last told this thread, and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fullbore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noreturn)) static inline void check_failed(const char *file, int line, const char *what) {
    fflush(stdout);
    fprintf(stderr, "%s:%d: failed: %s\n    last error: %s\n", file, line, what, fullbore_last_error()->message);
    fflush(stderr);
    _exit(1); /* other threads may run on, and hold what exit handlers want */
}

static inline void check_is(const char *file, int line, const char *what, long long is, long long want) {
    if (is == want)
        return;
    char text[400];
    snprintf(text, sizeof text, "%s is %lld, not %lld", what, is, want);
    check_failed(file, line, text);
}

/* An error that says something: a domain, a kind, one line of text. */
static inline void check_error(const char *file, int line, const char *what, const fullbore_error *error, uint32_t kind) {
    check_is(file, line, what, error->kind, kind);
    if (error->domain == FULLBORE_DOMAIN_NONE || error->code == 0)
        check_failed(file, line, "an error has a domain and a code");
    if (error->message == NULL || strlen(error->message) < 8 || strchr(error->message, '\n') != NULL)
        check_failed(file, line, "a message is one line that says something");
    if (error->reserved[0] != 0 || error->reserved[1] != 0)
        check_failed(file, line, "reserved fields are 0");
}

/* Puts another failure where the last error is, so that one that is checked next is not an old one. */
static inline void spoil(void) { (void)fullbore_feature(987654321); }

static inline void check_refused(const char *file, int line, const char *what, long long answer, int error, uint32_t kind) {
    check_is(file, line, what, answer, -(long long)error);
    check_error(file, line, what, fullbore_last_error(), kind);
    if (strstr(fullbore_last_error()->message, "987654321") != NULL)
        check_failed(file, line, "a refusal notes its own error");
}

static inline void check_completion(const char *file, int line, const char *what, fullbore_completion done, int error,
                                    uint32_t kind) {
    check_is(file, line, what, done.result, -error);
    check_error(file, line, what, &done.error, kind);
}

#define CHECK(yes) ((yes) ? (void)0 : check_failed(__FILE__, __LINE__, #yes))
#define CHECK_IS(value, want) check_is(__FILE__, __LINE__, #value, (long long)(value), (long long)(want))
#define CHECK_OK(call) CHECK_IS(call, 0)
/* The call answers -ERROR, and the thread's last error is of that kind, and new. */
#define REFUSED(call, error, kind) (spoil(), check_refused(__FILE__, __LINE__, #call, (long long)(call), error, kind))
#define INVALID(call) REFUSED(call, EINVAL, FULLBORE_KIND_INVALID_INPUT)
/* A completion that failed in this way. */
#define FAILED(done, error, kind) check_completion(__FILE__, __LINE__, #done, done, error, kind)

#define COUNT(array) (sizeof(array) / sizeof *(array))

#endif
