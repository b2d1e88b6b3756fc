// Copies between mapped device memory and host memory, past the caches: what is moved is read once, by somebody else.
//
// On x86-64 stores are non-temporal and fenced at the end, so that what was written to persistent memory has left the CPU
// when the copy returns. Elsewhere they are the C library's, and nothing is promised.

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

// Bytes up to the next multiple of `align`, at most `len`.
static size_t head(const void *at, size_t align, size_t len) {
    size_t odd = (size_t)(-(uintptr_t)at) & (align - 1);
    return odd < len ? odd : len;
}

__attribute__((target("avx512f"))) static size_t stream512(char *to, const char *from, size_t len) {
    size_t done = 0;
    for (; len - done >= 256; done += 256) {
        __m512i a = _mm512_loadu_si512(from + done), b = _mm512_loadu_si512(from + done + 64);
        __m512i c = _mm512_loadu_si512(from + done + 128), d = _mm512_loadu_si512(from + done + 192);
        _mm512_stream_si512((void *)(to + done), a);
        _mm512_stream_si512((void *)(to + done + 64), b);
        _mm512_stream_si512((void *)(to + done + 128), c);
        _mm512_stream_si512((void *)(to + done + 192), d);
    }
    return done;
}

__attribute__((target("avx2"))) static size_t stream256(char *to, const char *from, size_t len) {
    size_t done = 0;
    for (; len - done >= 128; done += 128) {
        __m256i a = _mm256_loadu_si256((const void *)(from + done));
        __m256i b = _mm256_loadu_si256((const void *)(from + done + 32));
        __m256i c = _mm256_loadu_si256((const void *)(from + done + 64));
        __m256i d = _mm256_loadu_si256((const void *)(from + done + 96));
        _mm256_stream_si256((void *)(to + done), a);
        _mm256_stream_si256((void *)(to + done + 32), b);
        _mm256_stream_si256((void *)(to + done + 64), c);
        _mm256_stream_si256((void *)(to + done + 96), d);
    }
    return done;
}

static size_t stream128(char *to, const char *from, size_t len) {
    size_t done = 0;
    for (; len - done >= 64; done += 64) {
        for (size_t i = 0; i < 64; i += 16) {
            _mm_stream_si128((void *)(to + done + i), _mm_loadu_si128((const void *)(from + done + i)));
        }
    }
    return done;
}

// The rest, too small or too odd for the wide stores. Through the cache, and then out of it: flushed line by line.
static void small(char *to, const char *from, size_t len) {
    if (len == 0) {
        return;
    }
    memcpy(to, from, len);
    for (uintptr_t line = (uintptr_t)to & ~(uintptr_t)63; line < (uintptr_t)to + len; line += 64) {
        _mm_clflush((const void *)line);
    }
}

typedef size_t stream(char *, const char *, size_t);

// 0: SSE2, which every x86-64 has; 1: AVX2; 2: AVX-512.
int fullbore_copy_level(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") ? 2 : __builtin_cpu_supports("avx2") ? 1 : 0;
}

static void copy(char *to, const char *from, size_t len, int level) {
    stream *const kernels[] = {stream128, stream256, stream512};
    size_t before = head(to, 64, len);
    small(to, from, before);
    size_t done = before + kernels[level](to + before, from + before, len - before);
    small(to + done, from + done, len - done);
    _mm_sfence();
}
#else
int fullbore_copy_level(void) { return 0; }

static void copy(char *to, const char *from, size_t len, int level) {
    (void)level;
    memcpy(to, from, len);
    __sync_synchronize();
}
#endif

// Copies `len` bytes that do not overlap, by the kernel of that level (of `fullbore_copy_level` at most).
void fullbore_copy(void *to, const void *from, size_t len, int level) { copy(to, from, len, level); }

// The guard: a mapped file that was cut short answers an access with SIGBUS.
static __thread sigjmp_buf way_back;
static __thread volatile sig_atomic_t armed;
static struct sigaction before;

enum { COPIED = 0, NOT_THERE = -1, POISONED = -2 };

static void on_bus_error(int number, siginfo_t *info, void *context) {
    // One that somebody sent (si_code 0 or less) is not of a copy.
    if (armed && info->si_code > 0) {
        armed = 0;
        siglongjmp(way_back, info->si_code == BUS_ADRERR || info->si_code == BUS_ADRALN ? NOT_THERE : POISONED);
    }
    // Not of our copies: whoever had the signal before has it still.
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL) {
        signal(number, SIG_DFL); // it ends the process, as it would have
        raise(number);
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

// Installs the handler, for the whole process. 0, or -1. Call it once.
int fullbore_guard(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &before) != 0) {
        return -1;
    }
    return sigaction(SIGBUS, &action, NULL);
}

// As fullbore_copy, under the guard: 0; -1 when some of the memory was not there; -2 when it is there and its content
// is lost (a memory error).
int fullbore_copy_guarded(void *to, const void *from, size_t len, int level) {
    int came_back = sigsetjmp(way_back, 0);
    if (came_back != 0) {
        __sync_synchronize(); // what was stored is out before the memory is given back
        return came_back;
    }
    armed = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); // no access of the copy before or behind
    copy(to, from, len, level);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    armed = 0;
    return COPIED;
}
