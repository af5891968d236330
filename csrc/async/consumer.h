/* What the two halves of the consumer share: async/handler.c, which the
 * producer calls, and async/consumer.c, which the user calls.
 */
#ifndef AD_ASYNC_CONSUMER_H
#define AD_ASYNC_CONSUMER_H

#include <pthread.h>
#include <stdatomic.h>

#include "async/async_stream.h"
#include "async/states.h"

typedef struct ad_async_slot {
    struct ArrowAsyncTask task;
    char *metadata; /* owned, or NULL */
} ad_async_slot;

/* How the stream ended, as far as it is known. The first of ERROR and FAULT
 * stays; a FAULT takes the place of an END. */
typedef enum ad_async_outcome {
    OUTCOME_OPEN,
    OUTCOME_END,
    OUTCOME_ERROR, /* on_error */
    OUTCOME_FAULT  /* the producer broke a rule */
} ad_async_outcome;

/* Handler calls must be serialized; a producer that does not is found out. */
enum {
    CALLBACK_NONE,
    CALLBACK_RUNNING,
    CALLBACK_RELEASE_PENDING /* and release came meanwhile */
};

struct ad_async_consumer {
    ad_owner base; /* one reference of the user, one of the handler */
    struct ArrowAsyncDeviceStreamHandler handler;
    ad_async_consumer_options options;
    atomic_int callback;
    atomic_bool wants_cancel; /* written under the mutex */
    /* Of the user's thread: tasks taken out of the queue at one go, so that
     * the two sides seldom meet at the mutex. */
    int64_t head;
    int64_t n_taken;
    int64_t n_popped;
    int64_t n_owed;        /* popped, and not requested anew */
    pthread_mutex_t mutex; /* guards all that follows */
    pthread_cond_t quiet;  /* n_calls went down */
    int n_calls;           /* threads inside request() or cancel() ... */
    int n_cancelling;      /* ... of these, who rely on a queued task */
    ad_async_state state;
    bool has_error;    /* on_error was called */
    bool is_cancelled; /* by the user */
    bool is_closed;    /* by the user */
    bool is_broken;    /* a batch could not be taken: drop the others */
    bool is_waiting;   /* the wake-up is armed */
    bool is_cancel_sent;
    bool producer_outlives_tasks;
    ad_async_outcome outcome;
    int64_t n_requested;
    int64_t n_received;
    int failed_code;      /* extract_data returned this ... */
    int64_t failed_batch; /* ... for this one */
    int32_t device_type;
    ad_schema schema; /* node NULL until it came */
    char *metadata;
    int error_code;
    char *error_message; /* owned, or NULL: error_text holds what fits */
    char *error_metadata;
    char error_text[256];
    ad_error fault;
    int64_t count; /* queued; those taken out not counted */
    ad_async_slot slots[];
};

/* The four callbacks. */
void ad_async_handler_init(ad_async_consumer *consumer);

typedef enum ad_async_call {
    CALL_REQUEST,
    CALL_CANCEL
} ad_async_call;

/* Call the producer. n_calls was raised under the mutex, together with the
 * check that the producer may be touched: `release` waits until it is back. */
void ad_async_call_producer(ad_async_consumer *consumer, ad_async_call call,
                            int64_t n);

/* With the mutex held: is the outside to be woken? Disarms. */
bool ad_async_take_wake(ad_async_consumer *consumer);
void ad_async_unlock_and_wake(ad_async_consumer *consumer, bool wake);

/* The stream ends with this error, unless it failed before. Mutex held. */
void ad_async_note_fault(ad_async_consumer *consumer, const ad_error *err);

#endif /* AD_ASYNC_CONSUMER_H */
