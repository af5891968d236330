/* What streams.py measures in C: a producer that costs next to nothing, a
 * consumer that takes batch after batch and lets it go, and a thread that is
 * only woken and wakes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "quick_producer.h"

/* One at a time: the next call changes the batches of all. */
void
open_producer(struct ArrowDeviceArrayStream *out, int n_columns)
{
    *out = quick_producer(n_columns);
}

/* Seconds that `n` batches take; -1 when there are fewer. */
double
drain(struct ArrowDeviceArrayStream *stream, long n)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < n; i++) {
        struct ArrowDeviceArray batch;
        if (stream->get_next(stream, &batch) != 0 ||
            batch.array.release == NULL) {
            return -1;
        }
        batch.array.release(&batch.array);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) +
           (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
}

typedef struct echo {
    int asked; /* eventfds */
    int answered;
    long left;
} echo;

static void *
run_echo(void *context)
{
    echo *self = context;
    uint64_t count = 1;
    while (self->left-- > 0 &&
           read(self->asked, &count, sizeof(count)) == sizeof(count) &&
           write(self->answered, &count, sizeof(count)) == sizeof(count)) {
    }
    free(self);
    return NULL;
}

/* Starts a thread that answers `n` times. Returns 0 or an errno. */
int
start_echo(int asked, int answered, long n)
{
    pthread_t thread;
    echo *self = malloc(sizeof(*self));
    *self = (echo){asked, answered, n};
    int code = pthread_create(&thread, NULL, run_echo, self);
    return code != 0 ? code : pthread_detach(thread);
}
