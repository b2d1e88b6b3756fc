// Small pieces to scattered places of GPU memory: which way is the fastest, measured.
//
//   cc -std=c11 -O2 pieces.c -o pieces -ldl && ./pieces ../../native/copy_pieces.ptx [--bytes=2g] [--queued=4] [--repeats=3]
//
// Units of 8 MiB in pinned memory, each to be dealt out as pieces of 16, 32 or 64 KiB in shuffled order. Ways:
//   contiguous  one copy of the unit to one place: what the others are held against
//   kernel      one copy of the unit into staging, then fullbore_copy_pieces on a second stream
//   batch       one cuMemcpyBatchAsync a unit (driver 580 and later)
//   each        one cuMemcpyHtoDAsync a piece
// and the kernel alone, over launch geometries. One JSON line each; every byte is copied back and compared.

#include "rivals/cuda_lite.h"

enum { UNIT = 8 << 20, POOL = 256 << 20, UNITS = POOL / UNIT, MOST_PIECES = UNIT / 4096, MOST_QUEUED = 16 };

typedef struct {
    uint64_t dst, src, len;
} piece;

typedef struct {
    char *host;                // POOL bytes, pinned
    cu_ptr device;             // POOL bytes
    size_t piece, per_unit;    // bytes; pieces in a unit
    uint32_t place[POOL / 4096]; // of piece n in the device's pool, in pieces
    cu_handle copies, kernels, function;
    unsigned queued;
    struct {
        cu_ptr staging;
        piece *table; // pinned
        cu_handle copied, done;
    } slots[MOST_QUEUED];
} rig;

static rig r;

static void shuffle(size_t piece_bytes) {
    size_t count = POOL / piece_bytes;
    r.piece = piece_bytes, r.per_unit = UNIT / piece_bytes;
    uint64_t word = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        word ^= word << 13, word ^= word >> 7, word ^= word << 17;
        size_t at = word % (i + 1);
        r.place[i] = r.place[at], r.place[at] = (uint32_t)i;
    }
}

static cu_ptr to(size_t n) { return r.device + (cu_ptr)r.place[n] * r.piece; }

static void launch(unsigned slot, unsigned count, unsigned slices, unsigned threads) {
    cu_ptr table = (cu_ptr)(uintptr_t)r.slots[slot].table; // pinned memory has one address for both, with unified addressing
    void *params[] = {&table, &count};
    CHECK(cuLaunchKernel(r.function, count, slices, 1, threads, 1, 1, 0, r.kernels, params, NULL));
}

static void contiguous(size_t unit, unsigned slot) {
    CHECK(cuMemcpyHtoDAsync_v2(r.device + unit * UNIT, r.host + unit * UNIT, UNIT, r.copies));
    CHECK(cuEventRecord(r.slots[slot].done, r.copies));
}

static void kernel(size_t unit, unsigned slot) {
    for (size_t i = 0; i < r.per_unit; i++) {
        r.slots[slot].table[i] = (piece){to(unit * r.per_unit + i), r.slots[slot].staging + i * r.piece, r.piece};
    }
    CHECK(cuMemcpyHtoDAsync_v2(r.slots[slot].staging, r.host + unit * UNIT, UNIT, r.copies));
    CHECK(cuEventRecord(r.slots[slot].copied, r.copies));
    CHECK(cuStreamWaitEvent(r.kernels, r.slots[slot].copied, 0));
    launch(slot, (unsigned)r.per_unit, 1, 256);
    CHECK(cuEventRecord(r.slots[slot].done, r.kernels));
}

static void batch(size_t unit, unsigned slot) {
    static cu_ptr dst[MOST_PIECES], src[MOST_PIECES];
    static size_t len[MOST_PIECES];
    for (size_t i = 0; i < r.per_unit; i++) {
        dst[i] = to(unit * r.per_unit + i);
        src[i] = (cu_ptr)(uintptr_t)(r.host + unit * UNIT + i * r.piece);
        len[i] = r.piece;
    }
    cu_copy_attributes in_stream_order = {.src_order = 1};
    size_t first = 0;
    CHECK(cuMemcpyBatchAsync_v2(dst, src, len, r.per_unit, &in_stream_order, &first, 1, r.copies));
    CHECK(cuEventRecord(r.slots[slot].done, r.copies));
}

static void each(size_t unit, unsigned slot) {
    for (size_t i = 0; i < r.per_unit; i++) {
        CHECK(cuMemcpyHtoDAsync_v2(to(unit * r.per_unit + i), r.host + unit * UNIT + i * r.piece, r.piece, r.copies));
    }
    CHECK(cuEventRecord(r.slots[slot].done, r.copies));
}

static int same(int scattered) {
    char *back = malloc(POOL);
    if (!back) {
        return 0;
    }
    CHECK(cuMemcpyDtoH_v2(back, r.device, POOL));
    int good = 1;
    for (size_t n = 0; n < POOL / r.piece; n++) {
        size_t at = scattered ? r.place[n] : n;
        good &= !memcmp(back + at * r.piece, r.host + n * r.piece, r.piece);
    }
    free(back);
    return good;
}

// GB/s of one pass, and the CPU time of a GiB.
static double pass(void (*way)(size_t, unsigned), size_t bytes, double *cpu) {
    double start_cpu = cpu_seconds(), start = now();
    size_t count = bytes / UNIT;
    for (size_t n = 0; n < count; n++) {
        unsigned slot = (unsigned)(n % r.queued);
        if (n >= r.queued) {
            CHECK(cuEventSynchronize(r.slots[slot].done));
        }
        way(n % UNITS, slot);
    }
    CHECK(cuStreamSynchronize(r.copies));
    CHECK(cuStreamSynchronize(r.kernels));
    double seconds = now() - start;
    *cpu = (cpu_seconds() - start_cpu) / ((double)(count * UNIT) / (1 << 30));
    return (double)(count * UNIT) / seconds / 1e9;
}

static int measure(size_t bytes, size_t repeats) {
    struct {
        const char *name;
        void (*way)(size_t, unsigned);
        double gbps[64], cpu, middle;
        int good;
    } ways[] = {{.name = "contiguous", .way = contiguous}, {.name = "kernel", .way = kernel},
                {.name = "batch", .way = batch}, {.name = "each", .way = each}};
    int good = 1;
    for (size_t n = 0; n < repeats + 1; n++) { // the first warms up, and is checked
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (ways[w].way == batch && !cuMemcpyBatchAsync_v2) {
                continue;
            }
            if (n == 0) {
                CHECK(cuMemsetD8_v2(r.device, 0xa5, POOL));
                CHECK(cuStreamSynchronize(NULL));
            }
            double rate = pass(ways[w].way, bytes, &ways[w].cpu);
            if (n == 0) {
                good &= ways[w].good = same(ways[w].way != contiguous);
            } else {
                ways[w].gbps[n - 1] = rate;
            }
        }
    }
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        ways[w].middle = median(ways[w].gbps, repeats);
        printf("{\"name\": \"pieces, %s\", \"piece\": %zu, \"gbps\": %.3f, \"of_contiguous\": %.3f, \"cpu_s_per_gib\": %.5f, "
               "\"verified\": %s}\n",
               ways[w].name, r.piece, ways[w].middle, ways[w].middle / ways[0].middle, ways[w].cpu, ways[w].good ? "true" : "false");
    }
    return good;
}

// The kernel alone, over one unit that lies in staging: microseconds, by events, of 20 launches after one another.
static void geometries(void) {
    const unsigned slices[] = {1, 2, 4}, threads[] = {128, 256, 512, 1024};
    cu_handle begun, ended;
    CHECK(cuEventCreate(&begun, 0));
    CHECK(cuEventCreate(&ended, 0));
    for (size_t i = 0; i < r.per_unit; i++) {
        r.slots[0].table[i] = (piece){to(i), r.slots[0].staging + i * r.piece, r.piece};
    }
    for (size_t s = 0; s < sizeof slices / sizeof *slices; s++) {
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            launch(0, (unsigned)r.per_unit, slices[s], threads[t]);
            CHECK(cuEventRecord(begun, r.kernels));
            for (int n = 0; n < 20; n++) {
                launch(0, (unsigned)r.per_unit, slices[s], threads[t]);
            }
            CHECK(cuEventRecord(ended, r.kernels));
            CHECK(cuEventSynchronize(ended));
            float ms = 0;
            CHECK(cuEventElapsedTime(&ms, begun, ended));
            printf("{\"name\": \"kernel alone\", \"piece\": %zu, \"pieces\": %zu, \"slices\": %u, \"threads\": %u, \"us\": %.2f}\n",
                   r.piece, r.per_unit, slices[s], threads[t], (double)ms * 1e3 / 20);
        }
    }
}

static char *text(const char *path) {
    static char image[1 << 20];
    FILE *file = fopen(path, "r");
    size_t len = file ? fread(image, 1, sizeof image - 1, file) : 0;
    if (len == 0) {
        fprintf(stderr, "pieces: %s: nothing there to read: name native/copy_pieces.ptx\n", path);
        exit(2);
    }
    fclose(file);
    return image;
}

int main(int argc, char **argv) {
    size_t bytes = size(option(argc, argv, "bytes", "2g")), repeats = size(option(argc, argv, "repeats", "3"));
    r.queued = (unsigned)size(option(argc, argv, "queued", "4"));
    if (argc < 2 || argv[1][0] == '-' || bytes < POOL || bytes % POOL || !r.queued || r.queued > MOST_QUEUED || !repeats || repeats > 64) {
        fprintf(stderr, "pieces: pieces PTX [--bytes=a multiple of 256m] [--queued=1 to 16] [--repeats=1 to 64]\n");
        return 2;
    }
    char *image = text(argv[1]);
    cuda_start(0, CTX_BLOCKING);
    cu_handle module;
    void *at = NULL;
    CHECK(cuModuleLoadData(&module, image));
    CHECK(cuModuleGetFunction(&r.function, module, "fullbore_copy_pieces"));
    CHECK(cuStreamCreate(&r.copies, 1));
    CHECK(cuStreamCreate(&r.kernels, 1));
    CHECK(cuMemHostAlloc(&at, POOL, HOST_PORTABLE));
    CHECK(cuMemAlloc_v2(&r.device, POOL));
    r.host = at;
    for (size_t i = 0; i < POOL / 8; i++) {
        memcpy(r.host + i * 8, &(uint64_t){i * 0x9e3779b97f4a7c15u}, 8);
    }
    for (unsigned s = 0; s < r.queued; s++) {
        CHECK(cuMemHostAlloc(&at, MOST_PIECES * sizeof(piece), HOST_PORTABLE));
        r.slots[s].table = at;
        CHECK(cuMemAlloc_v2(&r.slots[s].staging, UNIT));
        CHECK(cuEventCreate(&r.slots[s].copied, EVENT_NO_TIMING));
        CHECK(cuEventCreate(&r.slots[s].done, EVENT_BLOCKING | EVENT_NO_TIMING));
    }
    int good = 1;
    for (size_t kib = 16; kib <= 64; kib *= 2) {
        shuffle(kib << 10);
        good &= measure(bytes, repeats);
        geometries();
    }
    return !good;
}
