/* A consumer, the waker that its producer wakes, and the batches that were
 * taken out of the consumer at one go: what an event loop, or a thread that
 * blocks, reads an async stream with.
 */
#ifndef AD_ASYNC_CONSUMER_QUEUE_H
#define AD_ASYNC_CONSUMER_QUEUE_H

#include <stdatomic.h>

#include "async/waker.h"
#include "async/async_stream.h"

/* Counted, since a stream may be read by one and cancelled by another. The
 * last reference closes the consumer, which calls foreign code; but not in a
 * child that was forked, where the producer's threads are not. */
typedef struct ad_consumer_queue {
    ad_owner base;
    ad_async_consumer *consumer;
    ad_waker *waker;
    atomic_bool is_closing; /* who waits for the schema is to stop */
    /* Of the reader: `n_ready` batches, from `next` on. */
    int64_t chunk_size;
    int64_t next;
    int64_t n_ready;
    ad_async_batch ready[];
} ad_consumer_queue;

/* At most `queue_size` batches are requested and not popped. `outlives`: as
 * ad_async_consumer_options.producer_outlives_tasks. */
AD_MUST_CHECK ad_status ad_consumer_queue_new(int64_t queue_size,
                                              bool outlives,
                                              ad_consumer_queue **out,
                                              ad_error *err);
void ad_consumer_queue_unref(ad_consumer_queue *queue); /* NULL allowed */

/* Cancel the consumer; not in such a child. */
void ad_consumer_queue_cancel(ad_consumer_queue *queue);

/* As ad_async_consumer_schema; fails as ad_waker_check(). */
AD_MUST_CHECK ad_status ad_consumer_queue_schema(ad_consumer_queue *queue,
                                                 ad_schema *out,
                                                 ad_async_poll *poll,
                                                 ad_error *err);

/* As ad_async_consumer_pop, from the chunk that was taken out of the consumer.
 * An empty one is filled first, with what is there: that calls foreign code.
 * An end or an error behind batches stays, and the next call meets it. A waker
 * that was woken for what is taken here is cleared afterwards. Fails as
 * ad_waker_check(), too. */
AD_MUST_CHECK ad_status ad_consumer_queue_pop(ad_consumer_queue *queue,
                                              ad_async_batch *out,
                                              ad_async_poll *poll,
                                              ad_error *err);

/* Does that give a batch, and call nothing? */
static inline bool
ad_consumer_queue_is_ready(const ad_consumer_queue *queue)
{
    return queue->n_ready > 0;
}

#endif /* AD_ASYNC_CONSUMER_QUEUE_H */
