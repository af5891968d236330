/* The consumer queue: a consumer, its waker, and a chunk of batches that were
 * popped together. An event loop or a blocking thread reads an async stream
 * with it.
 */
#ifndef AD_ASYNC_CONSUMER_QUEUE_H
#define AD_ASYNC_CONSUMER_QUEUE_H

#include <stdatomic.h>

#include "async/waker.h"
#include "async/async_stream.h"

/* Reference-counted, since one thread may read the stream while another
 * cancels it. Dropping the last reference closes the consumer, which calls
 * foreign code; but not in a forked child, which lacks the producer's threads.
 */
typedef struct ad_consumer_queue {
    ad_owner base;
    ad_async_consumer *consumer;
    ad_waker *waker;
    atomic_bool is_closing; /* a wait for the schema must stop */
    /* Used by the reader only: `n_ready` batches, from `next` on. */
    int64_t chunk_size;
    int64_t next;
    int64_t n_ready;
    ad_async_batch ready[];
} ad_consumer_queue;

/* At most `queue_size` batches are requested and not popped. `outlives` is
 * ad_async_consumer_options.producer_outlives_tasks. */
AD_MUST_CHECK ad_status ad_consumer_queue_new(int64_t queue_size,
                                              bool outlives,
                                              ad_consumer_queue **out,
                                              ad_error *err);
void ad_consumer_queue_unref(ad_consumer_queue *queue); /* NULL allowed */

/* Cancels the consumer; does nothing in a forked child. */
void ad_consumer_queue_cancel(ad_consumer_queue *queue);

/* The schema (a new reference) if it has arrived. AD_ERR_EXCHANGE, "stream",
 * if the stream ended without one; also fails as ad_waker_check(). */
AD_MUST_CHECK ad_status ad_consumer_queue_schema(ad_consumer_queue *queue,
                                                 ad_schema *out,
                                                 bool *has_arrived,
                                                 ad_error *err);

/* As ad_async_consumer_pop, from the chunk. An empty chunk is first filled
 * with the batches that have arrived, which calls foreign code. An end or an
 * error after batches is reported by a later call. Wake-ups for the batches
 * that were taken are cleared. Also fails as ad_waker_check(). */
AD_MUST_CHECK ad_status ad_consumer_queue_pop(ad_consumer_queue *queue,
                                              ad_async_batch *out,
                                              ad_async_poll *poll,
                                              ad_error *err);

/* Whether ad_consumer_queue_pop() returns a batch without a foreign call. */
static inline bool
ad_consumer_queue_is_ready(const ad_consumer_queue *queue)
{
    return queue->n_ready > 0;
}

#endif /* AD_ASYNC_CONSUMER_QUEUE_H */
