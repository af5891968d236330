/* async/: both ends of an async device stream.
 *
 * Two state machines, producer and consumer, with the queue between them, the
 * waker that an event loop polls, and the pump that feeds a stream from a pull
 * stream on a thread of its own. Peers may call on any thread and may break
 * the rules; a broken rule is answered by an error that names it. Locks: one
 * per end, one for the list of pumps; none is held while foreign code runs.
 */

/* The two ends of an async device stream, without Python.
 *
 * The specification leaves open which thread calls what when, and Arrow C++,
 * the one peer there is, deviates from it. So each end is a small state
 * machine that keeps the rules itself, survives a peer that does not, and
 * answers a broken rule with an error that names the call and the rule.
 * docs/internals/async_streams.md draws it.
 *
 * Neither end has a thread, and neither calls foreign code with a lock held.
 * Both tell the outside by a wake-up callback that there is something to do,
 * once per chunk: it is armed by an answer AD_ASYNC_PENDING.
 */
#ifndef AD_ASYNC_ASYNC_STREAM_H
#define AD_ASYNC_ASYNC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "model/array.h"
#include "base/owner.h"
#include "model/schema.h"
#include "base/status.h"

#define AD_ASYNC_MAX_QUEUE (1 << 20)

typedef enum ad_async_poll {
    AD_ASYNC_READY,   /* done: there is a result, or the batch went out */
    AD_ASYNC_PENDING, /* not now; the wake-up callback will be called */
    AD_ASYNC_END      /* never again */
} ad_async_poll;

/* How the outside is told. `call` comes from any thread, the peer's included,
 * at most once per AD_ASYNC_PENDING, and a producer's once more when the
 * consumer ends the stream; it must be short, and must not call back into this
 * end. `owner` gains a reference, which is dropped after the last
 * call. All may be NULL. */
typedef struct ad_async_wake {
    void (*call)(void *context);
    void *context;
    ad_owner *owner;
} ad_async_wake;

/* What a producer said in on_error. */
typedef struct ad_async_error {
    int code;
    const char *message;  /* never NULL */
    const char *metadata; /* a blob as of ArrowSchema.metadata, or NULL */
} ad_async_error;

/* --- consumer ------------------------------------------------------------ */

typedef struct ad_async_consumer ad_async_consumer;

typedef struct ad_async_consumer_options {
    /* At most so many batches are requested and not popped: 1 or more. */
    int64_t queue_size;
    /* The producer is known to keep its struct until `release`, as the
     * specification says: cancel may reach it at any time. Otherwise it is
     * touched only while it must be alive: in on_schema and on_next_task, and
     * while one of its tasks is held. (Producers made by this library are
     * recognised.) */
    bool producer_outlives_tasks;
    ad_async_wake wake;
} ad_async_consumer_options;

AD_MUST_CHECK ad_status
ad_async_consumer_new(const ad_async_consumer_options *options,
                      ad_async_consumer **out, ad_error *err);

/* What a producer is handed, once. It is part of the consumer, which lives
 * until it was closed AND the handler was released: a handler that no producer
 * ever took must be released by whoever holds it. */
struct ArrowAsyncDeviceStreamHandler *
ad_async_consumer_handler(ad_async_consumer *consumer);

/* The schema (a new reference), once it has arrived. After an error, or with
 * AD_ASYNC_END where the stream ended without one, none will come. One
 * thread at a time may ask and pop. */
AD_MUST_CHECK ad_status ad_async_consumer_schema(ad_async_consumer *consumer,
                                                 ad_schema *out,
                                                 ad_async_poll *poll,
                                                 ad_error *err);

/* Device type and additional_metadata (or NULL; lives as long as the
 * consumer), once the schema has arrived. */
int32_t ad_async_consumer_device_type(ad_async_consumer *consumer);
const char *ad_async_consumer_metadata(ad_async_consumer *consumer);

typedef struct ad_async_batch {
    ad_array array;
    char *metadata; /* the batch's blob, malloc'ed; or NULL */
} ad_async_batch;

void ad_async_batch_clear(ad_async_batch *batch);

/* The next batch, in order. Requests more, extracts (foreign code, which may
 * block) and imports on this thread. All batches that arrived before an error
 * come first; the error then stays. */
AD_MUST_CHECK ad_status ad_async_consumer_pop(ad_async_consumer *consumer,
                                              ad_async_batch *out,
                                              ad_async_poll *poll,
                                              ad_error *err);

/* Ask the producer to stop. From any thread, any number of times. What was
 * queued can still be popped, and what still arrives. A later on_error is the
 * normal end then (Arrow C++ answers so). */
void ad_async_consumer_cancel(ad_async_consumer *consumer);

/* What on_error said, whole; false when it was not called. Lives as long as
 * the consumer. */
bool ad_async_consumer_error(ad_async_consumer *consumer, ad_async_error *out);

/* The first rule that the producer broke, even after the end was popped;
 * false when there is none. */
bool ad_async_consumer_fault(ad_async_consumer *consumer, ad_error *out);

/* The handler has been released: no more calls will come. */
bool ad_async_consumer_is_released(ad_async_consumer *consumer);

/* Cancel, give up what nobody popped, and drop the caller's reference. No
 * other call of the caller may be in progress. */
void ad_async_consumer_close(ad_async_consumer *consumer);

/* --- producer ------------------------------------------------------------ */

typedef struct ad_async_producer ad_async_producer;

typedef struct ad_async_producer_options {
    int32_t device_type;
    const char *metadata; /* additional_metadata: a blob (copied), or NULL */
    ad_async_wake wake;
} ad_async_producer_options;

/* Take a consumer's handler over: from now on it is called, and released, by
 * this producer only. On failure it is still the caller's. */
AD_MUST_CHECK ad_status
ad_async_producer_new(struct ArrowAsyncDeviceStreamHandler *handler,
                      const ad_async_producer_options *options,
                      ad_async_producer **out, ad_error *err);

/* Before the start: what was not known to begin with. */
void ad_async_producer_set_device_type(ad_async_producer *producer,
                                       int32_t type);
AD_MUST_CHECK ad_status ad_async_producer_set_metadata(
    ad_async_producer *producer, const char *metadata, ad_error *err);

/* Calls that reach the handler (start, send, finish, fail) come from one
 * thread at a time, which need not be the same, and never out of the wake-up
 * callback: AD_ERR_VALUE otherwise. */

/* on_schema. AD_ASYNC_END: the consumer refused it. */
AD_MUST_CHECK ad_status ad_async_producer_start(ad_async_producer *producer,
                                                ad_schema schema,
                                                ad_async_poll *poll,
                                                ad_error *err);

/* on_next_task, where the consumer has asked for more. AD_ASYNC_PENDING: it
 * has not. AD_ASYNC_END: it cancelled, refused the batch, or broke a rule;
 * finish. The array is shared. Host memory is waited for first, which may
 * block: Arrow C++ drops the event of a CPU array. */
AD_MUST_CHECK ad_status ad_async_producer_send(ad_async_producer *producer,
                                               const ad_array *array,
                                               const char *metadata,
                                               ad_async_poll *poll,
                                               ad_error *err);

/* May one batch be sent now? The answers of send. From any thread. */
ad_async_poll ad_async_producer_poll(ad_async_producer *producer);

/* How often has the consumer refused a call, with which number; 0: never. */
int ad_async_producer_refusal(ad_async_producer *producer);

/* The consumer asked to stop. */
bool ad_async_producer_is_cancelled(ad_async_producer *producer);

/* End the stream: a NULL task and release; or what is due instead (on_error
 * for a request that was not positive, release alone after a refusal). A
 * second time: nothing. AD_ERR_EXCHANGE tells of the consumer's mistake or
 * refusal; the stream is over all the same. */
AD_MUST_CHECK ad_status ad_async_producer_finish(ad_async_producer *producer,
                                                 ad_error *err);

/* on_error and release, at any time; nothing where the stream is over, or the
 * consumer refused a call (release alone then). `metadata` is a blob or NULL.
 */
AD_MUST_CHECK ad_status ad_async_producer_fail(ad_async_producer *producer,
                                               int code, const char *message,
                                               const char *metadata,
                                               ad_error *err);

/* Drop the caller's reference. A stream that is not over fails with
 * ECANCELED. The struct that the consumer sees lives on until the last task
 * was extracted. */
void ad_async_producer_close(ad_async_producer *producer);

/* The struct is one of ours. */
bool ad_async_is_own_producer(const struct ArrowAsyncProducer *producer);

#endif /* AD_ASYNC_ASYNC_STREAM_H */
