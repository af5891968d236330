/* The choice of a stream: the caller's, the current one, or arrowdev's own.
 */
#ifndef AD_ORDER_STREAMS_H
#define AD_ORDER_STREAMS_H

#include <stdbool.h>

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"

/* A stream and the owner that keeps it alive. */
typedef struct ad_stream_choice {
    bool is_given;
    ad_stream stream;
    ad_owner *keep; /* the stream's object; borrowed, may be NULL */
} ad_stream_choice;

/* Whether the stream is being captured into a graph. False for a stream whose
 * query fails, because it was destroyed. */
bool ad_stream_is_captured(ad_context context, ad_stream stream);

/* AD_ERR_EXCHANGE, "capture", if the stream is being captured. Called before
 * work for `consumer` that a graph cannot repeat. */
AD_MUST_CHECK ad_status ad_stream_require_no_capture(ad_context context,
                                                     ad_stream stream,
                                                     const char *consumer,
                                                     ad_error *err);

/* The number of this thread, which is unique in the process and never
 * reused. */
uint64_t ad_thread_number(void);

/* arrowdev's own stream in a context. It is in order, does not synchronize
 * with default streams and is created on first use. It lives as long as the
 * process, unless it died with its context or an event drew it into a capture.
 * A new stream then replaces it, so the result is never being captured. */
AD_MUST_CHECK ad_status ad_stream_own(ad_context context, ad_stream *out,
                                      ad_error *err);

/* --- use_stream ---------------------------------------------------------- */

/* The current stream belongs to a thread, or to one of the tasks that take
 * turns on it. The core does not know tasks, so the Python layer sets a
 * function that finds the current stream (python/functions/use_stream.c). It
 * is set once, before any device is used. By default no stream is current. The
 * function is called on any thread, even one that it does not know. */
typedef bool (*ad_stream_current_fn)(ad_device device, ad_stream_choice *out);
void ad_stream_set_current(ad_stream_current_fn find);

/* The caller's current stream for `device`, if there is one. */
bool ad_stream_current(ad_device device, ad_stream_choice *out);

/* Between these two calls no stream is current on this thread. For
 * non-blocking work, which must not queue behind the caller's own. The calls
 * nest. */
void ad_stream_hide_current(void);
void ad_stream_show_current(void);

/* `wanted` if it is given, else the caller's current stream, else arrowdev's
 * own. *out has the borrowed owner of the stream. *out_context is the context
 * in which the stream runs; `context` is the expected one. */
AD_MUST_CHECK ad_status ad_stream_choose(ad_context context,
                                         const ad_stream_choice *wanted,
                                         ad_stream_choice *out,
                                         ad_context *out_context,
                                         ad_error *err);

#endif /* AD_ORDER_STREAMS_H */
