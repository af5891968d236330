/* What streams.py measures in C: a producer that costs next to nothing, and a
 * consumer that takes batch after batch and lets it go. */
#include <time.h>

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
