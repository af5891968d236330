/* A thread that feeds an async stream's consumer from a pull stream: for
 * streams whose next batch may block, and consumers who are asked by nobody.
 */
#ifndef AD_ASYNC_PUMP_H
#define AD_ASYNC_PUMP_H

#include <time.h>

#include "stream/array_stream.h"
#include "async/waker.h"
#include "async/async_stream.h"

typedef struct ad_async_pump ad_async_pump;

/* Start the thread. `producer`, which wakes `waker` and was not started, and
 * the reference to `stream`, which nobody else reads, are taken over on
 * success. `done` (NULL allowed) is woken when the stream is over. */
AD_MUST_CHECK ad_status ad_async_pump_start(
    ad_async_producer *producer, ad_waker *waker, ad_array_stream *stream,
    ad_waker *done, ad_async_pump **out, ad_error *err);

/* End the stream with ECANCELED, as soon as the call returns that the thread
 * is in. From any thread. */
void ad_async_pump_stop(ad_async_pump *pump);

/* The handler was released, and *status and *err say how it ended. */
bool ad_async_pump_is_over(ad_async_pump *pump, ad_status *status,
                           ad_error *err);

/* The pull stream, once it is over. Borrowed. */
ad_array_stream *ad_async_pump_stream(ad_async_pump *pump);

/* The thread goes on. */
void ad_async_pump_unref(ad_async_pump *pump);

/* Stop all of them, and start no more: the interpreter is about to go. Call
 * without the GIL. */
void ad_async_pump_stop_all(void);

/* Wait until their threads are gone, or until `deadline`, of CLOCK_REALTIME.
 * Call without the GIL. */
void ad_async_pump_join_all(const struct timespec *deadline);

#endif /* AD_ASYNC_PUMP_H */
