/* The struct of a consumer, for async/handler.c, which the producer calls, and
 * async/consumer.c, which the user calls.
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

/* The outcome of the stream. The first of ERROR and FAULT stays; a FAULT
 * replaces an END. */
typedef enum ad_async_outcome {
    OUTCOME_OPEN,
    OUTCOME_END,
    OUTCOME_ERROR, /* on_error */
    OUTCOME_FAULT  /* the producer broke a rule */
} ad_async_outcome;

/* Detects handler calls that are not serialized. */
enum {
    CALLBACK_NONE,
    CALLBACK_RUNNING,
    CALLBACK_RELEASE_PENDING /* release was called during another call */
};

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
    int64_t n_owed;        /* popped, but not requested again yet */
    bool is_starved;       /* the producer had no request left at the take */
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t quiet;  /* n_calls decreased */
    int n_calls;           /* threads inside request() or cancel() */
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

/* Sets the four callbacks of the handler. */
void ad_async_handler_init(ad_async_consumer *consumer);

typedef enum ad_async_call {
    CALL_REQUEST,
    CALL_CANCEL
} ad_async_call;

/* Calls the producer and decrements n_calls. The caller has incremented
 * n_calls in the same critical section in which it checked that the producer
 * is alive; `release` waits for the call to return. */
void ad_async_call_producer(ad_async_consumer *consumer, ad_async_call call,
                            int64_t n);

/* Extracts a task that nobody wants. Extracts into a scratch struct, because
 * arrow-go writes to a NULL pointer. */
void ad_async_drop_task(struct ArrowAsyncTask *task);

/* Whether the wake-up is armed; disarms it. Mutex held. */
bool ad_async_take_wake(ad_async_consumer *consumer);
void ad_async_unlock_and_wake(ad_async_consumer *consumer, bool wake);

/* The stream ends with this error, unless it failed before. Mutex held. */
void ad_async_note_fault(ad_async_consumer *consumer, const ad_error *err);

#endif /* AD_ASYNC_CONSUMER_H */
