/* async/: both ends of an async device stream.
 *
 * The folder owns the two state machines, producer and consumer, the queue
 * between them, the waker that an event loop polls, and the pump, a thread
 * that sends the batches of a pull stream. Peers may call on any thread and
 * may break the rules; the error names the rule. Locks: one per end and one
 * for the list of pumps. No lock is held while foreign code runs.
 */

/* The two ends of an async device stream, without Python.
 *
 * The specification does not define which thread makes which call when, and
 * Arrow C++, the only other implementation, deviates from it. Each end is
 * therefore a small state machine that follows the rules, tolerates a peer
 * that breaks them, and reports an error that names the call and the rule.
 * docs/internals/async_streams.md has the diagrams.
 *
 * Neither end has a thread, and neither calls foreign code with a lock held. A
 * wake-up callback reports that there is work to do. The result
 * AD_ASYNC_PENDING arms it for one call.
 */
#ifndef AD_ASYNC_ASYNC_STREAM_H
#define AD_ASYNC_ASYNC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/arrow_c.h"
#include "model/array.h"
#include "base/os.h"
#include "base/owner.h"
#include "model/schema.h"
#include "base/status.h"

#define AD_ASYNC_MAX_QUEUE (1 << 20)

typedef enum ad_async_poll {
    AD_ASYNC_READY,   /* there is a result, or the batch was sent */
    AD_ASYNC_PENDING, /* not yet; the wake-up callback will be called */
    AD_ASYNC_END      /* the stream is over */
} ad_async_poll;

/* The wake-up callback. `call` runs on any thread, including the peer's, at
 * most once per AD_ASYNC_PENDING; a producer makes one more call when the
 * consumer ends the stream. It must be short and must not call back into this
 * end. The end holds a reference on `owner` until after the last call. All
 * members may be NULL. */
typedef struct ad_async_wake {
    void (*call)(void *context);
    void *context;
    ad_owner *owner;
} ad_async_wake;

/* The arguments of on_error. */
typedef struct ad_async_error {
    int code;
    const char *message;  /* never NULL */
    const char *metadata; /* a blob as of ArrowSchema.metadata, or NULL */
    bool is_outcome;      /* the user's calls fail with this error */
} ad_async_error;

/* --- consumer ------------------------------------------------------------ */

typedef struct ad_async_consumer ad_async_consumer;

typedef struct ad_async_consumer_options {
    /* Upper limit of batches that are requested and not popped; at least 1. */
    int64_t queue_size;
    /* The producer keeps its struct until `release`, as the specification
     * demands, so cancel may be called at any time. Otherwise the struct is
     * used only while it must be alive: in on_schema and on_next_task, and
     * while the consumer holds one of its tasks. Producers of this library are
     * recognised. */
    bool producer_outlives_tasks;
    ad_async_wake wake;
} ad_async_consumer_options;

AD_MUST_CHECK ad_status
ad_async_consumer_new(const ad_async_consumer_options *options,
                      ad_async_consumer **out, ad_error *err);

/* The handler, for one producer. It is part of the consumer, which lives until
 * it was closed and the handler was released. The caller must release a
 * handler that no producer took. */
struct ArrowAsyncDeviceStreamHandler *
ad_async_consumer_handler(ad_async_consumer *consumer);

/* The schema (a new reference), once it has arrived. None will arrive after an
 * error, or after AD_ASYNC_END, which means that the stream ended without one.
 * Only one thread at a time may call this and ad_async_consumer_pop(). */
AD_MUST_CHECK ad_status ad_async_consumer_schema(ad_async_consumer *consumer,
                                                 ad_schema *out,
                                                 ad_async_poll *poll,
                                                 ad_error *err);

/* Device type and additional_metadata; for the caller that has got the schema.
 * The metadata may be NULL and lives as long as the consumer. */
int32_t ad_async_consumer_device_type(const ad_async_consumer *consumer);
const char *ad_async_consumer_metadata(const ad_async_consumer *consumer);

typedef struct ad_async_batch {
    ad_array array;
    char *metadata; /* the batch's blob, malloc'ed; or NULL */
} ad_async_batch;

void ad_async_batch_clear(ad_async_batch *batch);

/* The next batch, in order. Requests more batches, then extracts and imports
 * this one on the calling thread; foreign code may block. Batches that arrived
 * before an error are returned first. Every later call reports the error. */
AD_MUST_CHECK ad_status ad_async_consumer_pop(ad_async_consumer *consumer,
                                              ad_async_batch *out,
                                              ad_async_poll *poll,
                                              ad_error *err);

/* Asks the producer to stop. From any thread, any number of times. Batches
 * that are queued or still arrive can be popped. A later on_error counts as
 * the normal end, since Arrow C++ answers cancel with on_error. */
void ad_async_consumer_cancel(ad_async_consumer *consumer);

/* The arguments of on_error, not truncated; false if it was not called. They
 * live as long as the consumer. */
bool ad_async_consumer_error(ad_async_consumer *consumer, ad_async_error *out);

/* If the handler is that of an ad_async_consumer: the user of the consumer gets
 * the class, the hint and the other fields of `cause` for the on_error that
 * the producer calls next; the message is that of on_error. */
void ad_async_tell_own_consumer(struct ArrowAsyncDeviceStreamHandler *handler,
                                const ad_error *cause);

/* Cancels, drops the batches that were not popped, and drops the caller's
 * reference. No other call of the caller may be in progress. */
void ad_async_consumer_close(ad_async_consumer *consumer);

/* --- producer ------------------------------------------------------------ */

typedef struct ad_async_producer ad_async_producer;

typedef struct ad_async_producer_options {
    int32_t device_type;
    const char *metadata; /* additional_metadata: a blob (copied), or NULL */
    ad_async_wake wake;
} ad_async_producer_options;

/* Takes ownership of a consumer's handler: from now on only this producer
 * calls and releases it. On failure the caller keeps it. */
AD_MUST_CHECK ad_status
ad_async_producer_new(struct ArrowAsyncDeviceStreamHandler *handler,
                      const ad_async_producer_options *options,
                      ad_async_producer **out, ad_error *err);

/* Options that were not known at construction. Before the start only. */
void ad_async_producer_set_device_type(ad_async_producer *producer,
                                       int32_t type);
AD_MUST_CHECK ad_status ad_async_producer_set_metadata(
    ad_async_producer *producer, const char *metadata, ad_error *err);

/* start, send, finish and fail call the handler. They may be called on any
 * thread, but only one at a time and never from inside the wake-up callback:
 * AD_ERR_VALUE otherwise. */

/* Calls on_schema. AD_ASYNC_END: the consumer refused it. */
AD_MUST_CHECK ad_status ad_async_producer_start(ad_async_producer *producer,
                                                ad_schema schema,
                                                ad_async_poll *poll,
                                                ad_error *err);

/* Calls on_next_task if the consumer has requested a batch.
 * AD_ASYNC_PENDING: it has not. AD_ASYNC_END: it cancelled, refused the batch,
 * or broke a rule; the caller must finish. The array is shared. The call first
 * waits for the event of host memory, since Arrow C++ drops the event of a CPU
 * array. */
AD_MUST_CHECK ad_status ad_async_producer_send(ad_async_producer *producer,
                                               const ad_array *array,
                                               const char *metadata,
                                               ad_async_poll *poll,
                                               ad_error *err);

/* Whether a batch may be sent now, with the results of send. From any thread.
 */
ad_async_poll ad_async_producer_poll(ad_async_producer *producer);

/* Ends the stream with a NULL task and release. After a request that was not
 * positive it calls on_error instead of the NULL task, after a refusal it only
 * calls release. A second call does nothing. AD_ERR_EXCHANGE reports the
 * consumer's mistake or refusal; the stream is over in any case. */
AD_MUST_CHECK ad_status ad_async_producer_finish(ad_async_producer *producer,
                                                 ad_error *err);

/* Calls on_error and release, in any state, after a cancel too: the source's
 * own error is no result of the cancel. After a refusal it only calls release;
 * after the end it does nothing. A `code` that is no errno becomes EIO.
 * `metadata` is a blob or NULL. `cause` (NULL allowed) has the fields of the
 * error for a consumer of this library. */
AD_MUST_CHECK ad_status ad_async_producer_fail(ad_async_producer *producer,
                                               int code, const char *message,
                                               const char *metadata,
                                               const ad_error *cause,
                                               ad_error *err);

/* Drops the caller's reference. A stream that is not over ends if the consumer
 * cancelled it; otherwise it fails with ECANCELED. The consumer's
 * ArrowAsyncProducer lives until the last task was extracted. */
void ad_async_producer_close(ad_async_producer *producer);

/* Whether the struct belongs to an ad_async_producer. */
bool ad_async_is_own_producer(const struct ArrowAsyncProducer *producer);

/* --- what both ends share: the states of a stream ------------------------ */

/* The states of an async stream, and the calls that are valid in each.
 *
 * Both ends and arrowdev.testing share one table. The consumer checks incoming
 * calls with it (async/consumer.c), the producer outgoing calls
 * (async/producer.c), and scripted ends the calls of foreign ends.
 */

typedef enum ad_async_state {
    AD_ASYNC_NEW,
    AD_ASYNC_OPEN,           /* the schema has arrived: batches may follow */
    AD_ASYNC_ENDED,          /* by a NULL task */
    AD_ASYNC_FAILED,         /* by on_error */
    AD_ASYNC_REFUSED,        /* a callback returned an error */
    AD_ASYNC_REFUSED_FAILED, /* REFUSED, and on_error was called */
    AD_ASYNC_RELEASED
} ad_async_state;

#define AD_ASYNC_N_STATES (AD_ASYNC_RELEASED + 1)

/* Calls of the handler; REFUSAL: a call of the handler returned an error. */
typedef enum ad_async_event {
    AD_ASYNC_ON_SCHEMA,
    AD_ASYNC_ON_TASK,
    AD_ASYNC_ON_END, /* on_next_task with NULL */
    AD_ASYNC_ON_ERROR,
    AD_ASYNC_RELEASE,
    AD_ASYNC_REFUSAL
} ad_async_event;

#define AD_ASYNC_N_EVENTS (AD_ASYNC_REFUSAL + 1)

typedef struct ad_async_step {
    ad_async_state next;
    /* The rule that the call breaks, worded to follow "<call> was called ";
     * NULL: none. The end that detects it keeps its state, or makes the step
     * of AD_ASYNC_REFUSAL. */
    const char *rule;
    const char *rule_id; /* of arrowdev.testing */
    bool is_tolerated;   /* Arrow C++ makes this call: the consumer accepts it
                            and goes to `next` */
} ad_async_step;

const ad_async_step *ad_async_step_of(ad_async_state state,
                                      ad_async_event event);

const char *ad_async_state_name(ad_async_state state);
const char *ad_async_event_name(ad_async_event event);

/* --- the waker ----------------------------------------------------------- */

/* The waker: a file descriptor that becomes readable on a wake-up. An event
 * loop or a thread waits for it.
 *
 * A wake-up may come from any thread, never blocks and needs no interpreter,
 * so that an end of an async stream can call it on the thread of its peer.
 * Wakers are reference-counted, so that a late wake-up finds the descriptor
 * open.
 *
 * A forked child shares the descriptor with its parent but lacks the threads
 * of the stream: there a waker is neither woken nor cleared.
 */

typedef struct ad_waker {
    ad_owner base;
    ad_flag flag;
    unsigned generation; /* of the process that created it */
} ad_waker;

/* AD_ERR_EXCHANGE, "stream", if the process has no free file descriptor. */
AD_MUST_CHECK ad_status ad_waker_new(ad_waker **out, ad_error *err);
void ad_waker_unref(ad_waker *waker); /* NULL allowed */

/* Whether this process created the waker; false in a forked child. */
bool ad_waker_is_ours(const ad_waker *waker);

/* AD_ERR_EXCHANGE, "stream", unless ad_waker_is_ours(). */
AD_MUST_CHECK ad_status ad_waker_check(const ad_waker *waker, ad_error *err);

void ad_waker_wake(ad_waker *waker);

/* The wake-up callback for a consumer or producer, which takes a reference on
 * the waker. */
ad_async_wake ad_waker_callback(ad_waker *waker);

/* Clears the waker and returns whether it was woken. Call it before reading
 * what the wake-up announced, so that no later wake-up is lost. */
bool ad_waker_clear(ad_waker *waker);

/* Waits until the waker is woken, a signal arrives, or the timeout expires
 * (-1: none). Does not clear the waker. */
void ad_waker_wait(ad_waker *waker, int timeout_ms);

#endif /* AD_ASYNC_ASYNC_STREAM_H */
