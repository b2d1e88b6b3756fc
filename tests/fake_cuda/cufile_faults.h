/* Faults to order, counters and violations of the stand-in libcufile. Included by cufile.c alone. */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct { char name[32]; int code; uint64_t after, times; } fault_t;
typedef struct { char name[48]; uint64_t calls; } counter_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static uint64_t releases;
static fault_t faults[64];
static counter_t counters[64];
static char violations[8192];

/* Called with the lock held. */

__attribute__((format(printf, 1, 2))) static void violation(const char *format, ...)
{
    size_t used = strlen(violations);
    va_list list;
    va_start(list, format);
    vsnprintf(violations + used, sizeof violations - used, format, list);
    va_end(list);
    used = strlen(violations);
    snprintf(violations + used, sizeof violations - used, "\n");
}

static void count(const char *name)
{
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        if (!counters[i].name[0])
            snprintf(counters[i].name, sizeof counters[i].name, "%s", name);
        if (!strcmp(counters[i].name, name)) {
            counters[i].calls++;
            return;
        }
    }
}

static void order(const char *what, uint64_t after, uint64_t times)
{
    const char *is = strchr(what, '=');
    size_t len = is ? (size_t)(is - what) : strlen(what);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (faults[i].times)
            continue;
        snprintf(faults[i].name, sizeof faults[i].name, "%.*s", (int)len, what);
        faults[i].code = is ? atoi(is + 1) : 0;
        faults[i].after = after;
        faults[i].times = times;
        return;
    }
}

__attribute__((constructor)) static void orders_of_environment(void)
{
    const char *list = getenv("FAKE_CUFILE_FAULTS");
    char name[64];
    unsigned long long after, times;
    int used;
    while (list && sscanf(list, "%63[^:]:%llu:%llu%n", name, &after, &times, &used) == 3) {
        order(name, after, times);
        list += used;
        list += *list == ',';
    }
}

/* The fault's code where it strikes now, `otherwise` where it has none; 0: it does not strike. */
static int strikes(const char *name, int otherwise)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (!faults[i].times || strcmp(faults[i].name, name))
            continue;
        if (faults[i].after) {
            faults[i].after--;
            continue;
        }
        faults[i].times--;
        return faults[i].code ? faults[i].code : otherwise;
    }
    return 0;
}

static void wait_for_release(void)
{
    uint64_t now = releases;
    while (releases == now)
        pthread_cond_wait(&released, &lock);
}

EXPORT void fake_cufile_order(const char *fault, uint64_t after, uint64_t times);
EXPORT void fake_cufile_order(const char *fault, uint64_t after, uint64_t times)
{
    pthread_mutex_lock(&lock);
    order(fault, after, times);
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_cufile_release(void);
/* Lets go of every call that hangs now. */
EXPORT void fake_cufile_release(void)
{
    pthread_mutex_lock(&lock);
    releases++;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

EXPORT const char *fake_cufile_violations(void);
/* One line each; "" if there are none. */
EXPORT const char *fake_cufile_violations(void) { return violations; }
