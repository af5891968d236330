/* What a stream that is only passed on adds to a batch: one of a foreign
 * producer, read through arrowdev's export of it, beside the producer alone.
 *
 *   CFLAGS=-O2 make -C tests/c SANITIZE= BUILD=build-bench bench-stream
 *
 * The producer does next to nothing: it copies the struct, whose release only
 * marks it as released. The columns are checked anew in each batch. */
#include <time.h>

#include "stream/array_stream.h"

#include "check.h"
#include "quick_producer.h"

#define N_BATCHES 20000
#define N_ROUNDS 60

/* The least of some rounds, in ns per batch: what disturbs them only adds. */
static double
time_stream(struct ArrowDeviceArrayStream *stream)
{
    double best = 1e9;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int i = 0; i < N_BATCHES; i++) {
            struct ArrowDeviceArray out;
            CHECK_INT(stream->get_next(stream, &out), 0);
            out.array.release(&out.array);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns = (double)(end.tv_sec - start.tv_sec) * 1e9 +
                    (double)(end.tv_nsec - start.tv_nsec);
        best = ns / N_BATCHES < best ? ns / N_BATCHES : best;
    }
    return best;
}

static double
added_by_us(int n, double *alone)
{
    ad_array_stream *stream;
    struct ArrowDeviceArrayStream *holder;
    struct ArrowDeviceArrayStream producer = quick_producer(n);
    struct ArrowDeviceArrayStream foreign = producer;
    *alone = time_stream(&producer);
    CHECK_INT(ad_array_stream_from_device(&foreign, false, &stream, NULL),
              AD_OK);
    CHECK_INT(ad_array_stream_export_device(stream, &holder, NULL), AD_OK);
    double through = time_stream(holder);
    ad_device_stream_holder_free(holder);
    ad_array_stream_unref(stream);
    return through - *alone;
}

int
main(void)
{
    static const int sizes[] = {1, 2, 4, 8, 16, 32};
    double alone;
    double first = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double added = added_by_us(sizes[i], &alone);
        first = i == 0 ? added : first;
        printf("%2d columns: producer alone %5.1f ns, through a stream +%5.1f "
               "ns",
               sizes[i], alone, added);
        if (i > 0) {
            printf(", %4.2f ns per further column",
                   (added - first) / (sizes[i] - 1));
        }
        printf("\n");
    }
    return 0;
}
