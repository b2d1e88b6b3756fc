/* What the examples share: how they end on an error, read numbers, and sum up bytes. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <errno.h>
#include <fullbore.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Passes on what a call of the library answered; a failure ends the program with what the library says of it. */
static inline int64_t check(int64_t answer, const char *what)
{
    if (answer < 0) {
        fprintf(stderr, "%s: %s\n", what, fullbore_last_error()->message);
        exit(1);
    }
    return answer;
}

/* The same of a completion. Its message lives until the client's next call that fetches. */
static inline void check_completion(const struct fullbore_completion *done, const char *what)
{
    if (done->result != 0) {
        fprintf(stderr, "%s: %s\n", what, done->error.message);
        exit(1);
    }
}

/* With --help, or too few or too many arguments: prints how the program is used, and ends it. */
static inline void usage(int argc, char **argv, int least, int most, const char *text)
{
    int help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (help || argc - 1 < least || argc - 1 > most) {
        fputs(text, help ? stdout : stderr);
        exit(help ? 0 : 2);
    }
}

/* Reads a number that ends at one of `ends` (the end of the text is always one), and answers where. */
static inline const char *number(const char *text, const char *ends, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *text == '-' || (*end != '\0' && strchr(ends, *end) == NULL)) {
        fprintf(stderr, "bad number in: %s\n", text);
        exit(2);
    }
    return end;
}

/* FNV-1a, 64 bits. */
static inline uint64_t checksum(const unsigned char *bytes, uint64_t len)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < len; i++)
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* Bytes of the whole pages that `bytes` bytes take. */
static inline uint64_t pages(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

static inline struct fullbore_target_info describe(const struct fullbore_target *target)
{
    struct fullbore_target_info info = {.size = sizeof info};
    check(fullbore_target_get_info(target, &info), "target info");
    return info;
}

#endif
