/*
 * gpu_load: a range of a file into the memory of a GPU. Needs no CUDA toolkit: the driver is found at run time.
 *
 *     cc -std=c11 gpu_load.c $(pkg-config --cflags --libs fullbore) -o gpu_load
 *     ./gpu_load /var/cache/objects 0 20971520
 */
#define _XOPEN_SOURCE 700
#include "example.h"
#include <fcntl.h>
#include <unistd.h>

static const char *const USAGE =
    "gpu_load FILE OFFSET LENGTH [GPU]\n"
    "Loads a range of FILE into memory of GPU number GPU (0), copies it back and compares it with what the file has.\n"
    "Exit status 1 on a failure, or if they differ; 2 for bad arguments.\n";

/* What the page cache has of the range; memory that the caller frees. */
static unsigned char *read_file(const char *path, uint64_t offset, uint64_t len)
{
    unsigned char *bytes = malloc(len);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (bytes == NULL || fd < 0) {
        perror(path);
        exit(1);
    }
    for (uint64_t at = 0; at < len;) {
        ssize_t got = pread(fd, bytes + at, len - at, (off_t)(offset + at));
        if (got <= 0) {
            fprintf(stderr, "%s: cannot be read at byte %" PRIu64 "\n", path, offset + at);
            exit(1);
        }
        at += (uint64_t)got;
    }
    close(fd);
    return bytes;
}

int main(int argc, char **argv)
{
    usage(argc, argv, 3, 4, USAGE);
    uint64_t offset, len, gpu = 0;
    number(argv[2], "", &offset);
    number(argv[3], "", &len);
    if (argc > 4)
        number(argv[4], "", &gpu);
    if (len == 0 || len > SIZE_MAX / 2 || gpu > 1023) {
        fputs(USAGE, stderr);
        return 2;
    }

    struct fullbore_engine *engine;
    struct fullbore_target *target;
    struct fullbore_client *client;
    struct fullbore_region *region;
    check(fullbore_engine_create(NULL, &engine), "engine");
    check(fullbore_target_open(engine, argv[1], NULL, &target), "open");
    check(fullbore_client_create(engine, &client), "client");
    /* Memory of the library's own. What cudaMalloc or a tensor has: fullbore_region_register_cuda. */
    check(fullbore_region_alloc_gpu(engine, (uint32_t)gpu, len, &region), "GPU memory");

    struct fullbore_path_info path = {.size = sizeof path};
    check(fullbore_path_query(engine, target, region, &path), "path");
    printf("path: %s (%s)\n", fullbore_path_name(path.path), path.reason);

    /* The pointer is the device's: it is passed on, and not followed. */
    struct fullbore_extent extent = {.offset = offset, .ptr = fullbore_region_ptr(region), .len = len};
    struct fullbore_transfer transfer = {
        .size = sizeof transfer, .op = FULLBORE_OP_READ, .target = target, .extents = &extent, .count = 1};
    check(fullbore_submit(client, &transfer, 1), "submit");
    struct fullbore_completion done;
    check(fullbore_wait(client, 1, 1, FULLBORE_FOREVER, &done), "wait");
    check_completion(&done, "load");

    unsigned char *wanted = read_file(argv[1], offset, len), *landed = malloc(len);
    if (landed == NULL) {
        perror("gpu_load");
        return 1;
    }
    check(fullbore_region_copy_out(region, 0, landed, len), "copy out");
    for (uint64_t at = 0; at < len; at++) {
        if (landed[at] != wanted[at]) {
            fprintf(stderr, "gpu_load: byte %" PRIu64 " of the file is another on the GPU\n", offset + at);
            return 1;
        }
    }
    printf("%" PRIu64 " bytes on GPU %" PRIu64 ", checksum %016" PRIx64 ", %" PRIu64 " us\n", len, gpu,
           checksum(landed, len), done.total_ns / 1000);

    free(landed);
    free(wanted);
    check(fullbore_region_free(region, 0), "free");
    check(fullbore_client_destroy(client), "client");
    check(fullbore_target_destroy(target), "target");
    check(fullbore_engine_destroy(engine), "engine");
    return 0;
}
