/* Batches of the stand-in libcufile. Included by cufile.c alone. */
#include <time.h>

/* Done at once in submit, kept for the question after it. */
typedef struct {
    int mode;
    void *base;
    off_t file_offset, offset;
    size_t size;
    file_t *file;
    int opcode;
    void *cookie;
} request_t;

typedef struct { void *cookie; int status; size_t ret; } event_t;
typedef struct { unsigned room, made, told; event_t events[]; } batch_t;

EXPORT answer_t cuFileBatchIOSetUp(batch_t **batch, unsigned room)
{
    *batch = calloc(1, sizeof **batch + room * sizeof(event_t));
    if (*batch)
        (*batch)->room = room;
    return answer(*batch ? 0 : 5043);
}

EXPORT answer_t cuFileBatchIOSubmit(batch_t *batch, unsigned n, request_t *requests, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    count("cuFileBatchIOSubmit");
    while (strikes("batch_hang", 1))
        for (;;)
            pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
    if (n > batch->room - batch->made)
        return answer(5037);
    for (unsigned i = 0; i < n; i++) {
        request_t *r = &requests[i];
        ssize_t ret = io(r->opcode == 1, r->file, (uintptr_t)r->base, r->size, r->file_offset, r->offset);
        batch->events[batch->made++] = (event_t){r->cookie, ret < 0 ? 0x40 : 0x10, (size_t)ret};
    }
    return answer(0);
}

EXPORT answer_t cuFileBatchIOGetStatus(batch_t *batch, unsigned least, unsigned *n, event_t *out, struct timespec *wait)
{
    (void)least;
    (void)wait;
    unsigned told = 0;
    while (told < *n && batch->told < batch->made)
        out[told++] = batch->events[batch->told++];
    *n = told;
    return answer(0);
}

EXPORT answer_t cuFileBatchIOCancel(batch_t *batch)
{
    (void)batch;
    return answer(0);
}

EXPORT void cuFileBatchIODestroy(batch_t *batch) { free(batch); }
