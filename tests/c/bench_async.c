#define _GNU_SOURCE /* pthread_cond_clockwait */

/* Batches per second through both ends of an async stream, between two
 * threads, and the memory that it takes.
 *   CFLAGS=-O2 make -C tests/c SANITIZE= BUILD=build-bench bench-async
 */
#include <malloc.h>

#include "async_ends.h"
#include "async_pair.h"

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void
measure(int64_t queue_size, long n)
{
    ad_array batch = array_of(3);
    pair pair = {.consumer_waker = WAKER,
                 .producer_waker = WAKER,
                 .batch = &batch,
                 .n_batches = n};
    ad_async_poll poll;
    ad_status status;
    double begin = now();
    pair_start(&pair, queue_size);
    CHECK_INT(pair_pop(&pair, n / 2, &poll, &status), n / 2);
    size_t half = mallinfo2().uordblks;
    CHECK_INT(pair_pop(&pair, -1, &poll, &status), n - n / 2);
    double seconds = now() - begin;
    pair_join(&pair);
    printf("queue %5lld: %6.2f M batches/s, %ld wake-ups, %zu bytes at half, "
           "%zu at the end\n",
           (long long)queue_size, (double)n / seconds * 1e-6,
           pair.consumer_waker.n_wakes + pair.producer_waker.n_wakes, half,
           mallinfo2().uordblks);
    ad_async_consumer_close(pair.consumer);
    ad_array_clear(&batch);
    check_nothing_lives();
}

int
main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 1000000;
    measure(1, n / 10);
    measure(5, n);
    measure(64, n);
    measure(1024, n);
    return 0;
}
