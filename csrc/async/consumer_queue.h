/* A consumer and the waker that its producer wakes: what an event loop, or a
 * thread that blocks, reads an async stream with.
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
} ad_consumer_queue;

/* `outlives`: as ad_async_consumer_options.producer_outlives_tasks. */
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

/* Batches that were taken out at one go: `n` of them, from `next` on. */
typedef struct ad_async_chunk {
    ad_async_batch *batches;
    int64_t size;
    int64_t next;
    int64_t n;
} ad_async_chunk;

AD_MUST_CHECK ad_status ad_async_chunk_init(ad_async_chunk *chunk,
                                            int64_t size, ad_error *err);
void ad_async_chunk_clear(ad_async_chunk *chunk);

/* The first one, where there is one. */
ad_async_batch ad_async_chunk_take(ad_async_chunk *chunk);

/* Pop what is there into an empty chunk. *poll, and an error, are of the first
 * pop: an end or an error behind batches stays, and the next call meets it. A
 * waker that was woken for what is taken here is cleared afterwards. Fails as
 * ad_waker_check(), too. */
AD_MUST_CHECK ad_status ad_consumer_queue_fill(ad_consumer_queue *queue,
                                               ad_async_chunk *chunk,
                                               ad_async_poll *poll,
                                               ad_error *err);

#endif /* AD_ASYNC_CONSUMER_QUEUE_H */
