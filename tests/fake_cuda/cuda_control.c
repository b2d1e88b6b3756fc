/* What tests see and order: counts, violations, faults. */
#include "cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNTS = 160, MAX_FAULTS = 32, MAX_TEXT = 16384 };

static struct {
    char name[48];
    uint64_t n;
} counts[MAX_COUNTS];
static int counted;

static struct {
    char name[24];
    uint64_t after, times;
} faults[MAX_FAULTS];
static int ordered;

static char text[MAX_TEXT];
static size_t written;

static uint64_t *counter(const char *name) {
    for (int i = 0; i < counted; i++)
        if (strcmp(counts[i].name, name) == 0)
            return &counts[i].n;
    if (counted == MAX_COUNTS)
        abort(); /* the table is too small: a fault of the stand-in */
    snprintf(counts[counted].name, sizeof counts[0].name, "%s", name);
    return &counts[counted++].n;
}

void count(const char *name, uint64_t n) { *counter(name) += n; }

void count_most(const char *name, uint64_t n) {
    uint64_t *most = counter(name);
    if (n > *most)
        *most = n;
}

void count_least(const char *name, uint64_t n) {
    uint64_t *least = counter(name);
    if (*least == 0 || n < *least)
        *least = n;
}

void violation(const char *form, ...) {
    va_list args;
    va_start(args, form);
    int n = vsnprintf(text + written, MAX_TEXT - written, form, args);
    va_end(args);
    /* What does not fit is left out: the first ones tell. */
    if (n < 0 || written + (size_t)n + 2 > MAX_TEXT) {
        text[written] = 0;
        return;
    }
    written += (size_t)n;
    text[written++] = '\n';
    text[written] = 0;
}

static void order(const char *name, uint64_t after, uint64_t times) {
    int i = 0;
    while (i < ordered && strcmp(faults[i].name, name) != 0)
        i++;
    if (i == MAX_FAULTS)
        abort();
    if (i == ordered)
        ordered++;
    snprintf(faults[i].name, sizeof faults[0].name, "%s", name);
    faults[i].after = after;
    faults[i].times = times;
}

/* A call that matches: whether it is to fail. */
bool fault(const char *name) {
    for (int i = 0; i < ordered; i++) {
        if (strcmp(faults[i].name, name) != 0)
            continue;
        if (faults[i].after > 0) {
            faults[i].after--;
            return false;
        }
        if (faults[i].times == 0)
            return false;
        if (faults[i].times != UINT64_MAX)
            faults[i].times--;
        return true;
    }
    return false;
}

/* FAKE_CUDA_FAULTS="name:after:times,..."; times may be left out (once) or be "ever". */
void read_orders(void) {
    const char *from = getenv("FAKE_CUDA_FAULTS");
    char *copy = from ? strdup(from) : NULL;
    char *rest = copy;
    for (char *one; rest && (one = strsep(&rest, ","));) {
        char *name = strsep(&one, ":");
        char *after = one ? strsep(&one, ":") : NULL;
        uint64_t times = !one ? 1 : strcmp(one, "ever") == 0 ? UINT64_MAX : strtoull(one, NULL, 0);
        if (*name)
            order(name, after ? strtoull(after, NULL, 0) : 0, times);
    }
    free(copy);
}

uint64_t setting(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

/* Each of these may be called at any time, also before cuInit. */

API void fake_cuda_order(const char *name, uint64_t after, uint64_t times) {
    pthread_mutex_lock(&g_lock);
    order(name, after, times);
    pthread_mutex_unlock(&g_lock);
}

API void fake_cuda_release(void) {
    pthread_mutex_lock(&g_lock);
    release_hanging();
    pthread_mutex_unlock(&g_lock);
}

API uint64_t fake_cuda_count(const char *name) {
    pthread_mutex_lock(&g_lock);
    uint64_t n = *counter(name);
    pthread_mutex_unlock(&g_lock);
    return n;
}

API void fake_cuda_clear_most(void) {
    pthread_mutex_lock(&g_lock);
    *counter("most_bytes_outstanding") = *counter("most_copy") = *counter("least_copy") = 0;
    pthread_mutex_unlock(&g_lock);
}

/* One violation a line. Valid until the calling thread asks again. */
API const char *fake_cuda_violations(void) {
    static _Thread_local char copy[MAX_TEXT];
    pthread_mutex_lock(&g_lock);
    memcpy(copy, text, written + 1);
    pthread_mutex_unlock(&g_lock);
    return copy;
}

API void fake_cuda_clear_violations(void) {
    pthread_mutex_lock(&g_lock);
    written = 0;
    text[0] = 0;
    pthread_mutex_unlock(&g_lock);
}

API void fake_cuda_reset_context(int dev) {
    pthread_mutex_lock(&g_lock);
    if (dev >= 0 && dev < g_devices && g_primary[dev].active)
        end_context(&g_primary[dev]);
    pthread_mutex_unlock(&g_lock);
}

/* Where the bytes of a device pointer can be read and written; NULL if it is none. */
API void *fake_cuda_alias(uint64_t device_ptr) {
    pthread_mutex_lock(&g_lock);
    void *alias = alias_of(device_ptr);
    pthread_mutex_unlock(&g_lock);
    return alias;
}
