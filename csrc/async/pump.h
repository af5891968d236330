/* The pump: a thread that sends the batches of a pull stream to the consumer
 * of an async stream. It serves pull streams that may block, and consumers in
 * producers without an event loop.
 */
#ifndef AD_ASYNC_PUMP_H
#define AD_ASYNC_PUMP_H

#include <stdint.h>

#include "stream/array_stream.h"
#include "async/async_stream.h"

typedef struct ad_async_pump ad_async_pump;

/* The pumps that end together: those of one interpreter. A static or
 * process-long variable of zeros. */
typedef struct ad_async_pump_group {
    size_t n_threads;
    unsigned generation; /* of the process: a forked child has no threads */
    bool has_ended;
} ad_async_pump_group;

/* Starts the thread. `producer` wakes `waker` and was not started; nothing
 * else reads `stream`. On success the pump owns the producer and the reference
 * to the stream. `done` (NULL allowed) is woken when the stream is over. */
AD_MUST_CHECK ad_status
ad_async_pump_start(ad_async_pump_group *group, ad_async_producer *producer,
                    ad_waker *waker, ad_array_stream *stream, ad_waker *done,
                    ad_async_pump **out, ad_error *err);

/* Ends the stream with ECANCELED as soon as the thread's current call returns.
 * From any thread. */
void ad_async_pump_stop(ad_async_pump *pump);

/* Whether the handler was released; *status and *err then hold the outcome. */
bool ad_async_pump_is_over(ad_async_pump *pump, ad_status *status,
                           ad_error *err);

/* The pull stream; valid once the pump is over. Borrowed. */
ad_array_stream *ad_async_pump_stream(ad_async_pump *pump);

/* Drops the caller's reference; the thread continues. */
void ad_async_pump_unref(ad_async_pump *pump);

/* Stops all pumps of a group and prevents new ones, before its interpreter is
 * finalized. Call without the GIL. */
void ad_async_pump_stop_all(ad_async_pump_group *group);

/* Waits until their threads have ended, or until `deadline` of ad_now(). Call
 * without the GIL. */
void ad_async_pump_join_all(ad_async_pump_group *group, int64_t deadline);

#endif /* AD_ASYNC_PUMP_H */
