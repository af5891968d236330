/* The consumer of an async stream, and the consumer queue: a consumer, its
 * waker, and a chunk of batches that were popped together. An event loop or a
 * blocking thread reads an async stream with it.
 */
#ifndef AD_ASYNC_CONSUMER_H
#define AD_ASYNC_CONSUMER_H

#include <stdatomic.h>

#include "async/async_stream.h"

/* --- the consumer -------------------------------------------------------- */

typedef struct ad_async_slot {
    struct ArrowAsyncTask task;
    char *metadata; /* owned, or NULL */
} ad_async_slot;

/* The outcome of the stream. The first of ERROR and FAULT stays; a FAULT
 * replaces an END. */
typedef enum ad_async_outcome {
    OUTCOME_OPEN,
    OUTCOME_END,
    OUTCOME_ERROR, /* on_error */
    OUTCOME_FAULT  /* the producer broke a rule */
} ad_async_outcome;

struct ad_async_consumer {
    ad_owner base; /* one reference of the user, one of the handler */
    struct ArrowAsyncDeviceStreamHandler handler;
    /* Of the handler that on_schema was called with. The producer may have
     * moved the struct, as any other Arrow struct. */
    struct ArrowAsyncProducer *producer;
    ad_async_consumer_options options;
    atomic_int callback;
    atomic_bool wants_cancel; /* written under the mutex */
    /* Used by the user's thread only. Tasks are taken out of the queue in
     * groups, which keeps contention for the mutex low. */
    int64_t head;
    int64_t n_taken;
    int64_t n_popped;
    int64_t n_owed;   /* popped, but not requested again yet */
    bool is_starved;  /* the producer had no request left at the take */
    ad_mutex mutex;   /* guards the members below */
    ad_cond quiet;    /* n_calls decreased */
    int n_calls;      /* threads inside request() or cancel() */
    int n_cancelling; /* threads inside cancel() that need a queued task */
    ad_async_state state;
    bool has_error;    /* on_error was called */
    bool is_cancelled; /* by the user */
    bool is_closed;    /* by the user */
    bool is_broken;    /* a batch could not be imported: drop the others */
    bool is_waiting;   /* the wake-up is armed */
    bool is_cancel_sent;
    bool producer_outlives_tasks;
    ad_async_outcome outcome;
    int64_t n_requested;
    int64_t n_received;
    int failed_code;      /* of extract_data; 0: it did not fail */
    int64_t failed_batch; /* the number of that batch */
    int32_t device_type;
    ad_schema schema; /* node NULL until it has arrived */
    char *metadata;
    int error_code;
    char *error_message; /* owned; NULL: use error_text, which may be cut */
    char *error_metadata;
    char error_text[256];
    ad_error reported; /* on_error, as the user gets it */
    ad_error fault;
    int64_t count; /* queued tasks, without those that were taken out */
    ad_async_slot slots[];
};

/* --- the queue ----------------------------------------------------------- */

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

#endif /* AD_ASYNC_CONSUMER_H */
