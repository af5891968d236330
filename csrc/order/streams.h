/* Which stream: the caller's, the thread's, or arrowdev's own.
 */
#ifndef AD_ORDER_STREAMS_H
#define AD_ORDER_STREAMS_H

#include <stdbool.h>

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"

/* A stream that somebody named, and what keeps it. */
typedef struct ad_stream_choice {
    bool is_given;
    ad_stream stream;
    ad_owner *keep; /* the stream's object; borrowed, may be NULL */
} ad_stream_choice;

/* Is it being captured into a graph? A stream that cannot be asked, because it
 * is gone, is not. */
bool ad_stream_is_captured(ad_context context, ad_stream stream);

/* AD_ERR_EXCHANGE, "capture", if it is: before work that a graph cannot do
 * again, for `consumer`. */
AD_MUST_CHECK ad_status ad_stream_require_no_capture(ad_context context,
                                                     ad_stream stream,
                                                     const char *consumer,
                                                     ad_error *err);

/* A number that no other thread of this process has or will have. */
uint64_t ad_thread_number(void);

/* arrowdev's own stream in a context: in order, does not synchronize with
 * default streams, made on first use. It is not being captured: where it died
 * with its context, or somebody's event drew it into a graph, another one is
 * made; else it lives as long as the process. */
AD_MUST_CHECK ad_status ad_stream_own(ad_context context, ad_stream *out,
                                      ad_error *err);

/* --- use_stream ------------------------------------------------------------ */

/* What is current belongs to whoever runs: a thread, or one of the tasks that
 * take turns on it. Core knows no tasks, so whoever embeds it says what is
 * current (python/functions/use_stream.c). Set once, before any device is used; default:
 * nothing is. The function is called on any thread; it need not know that one. */
typedef bool (*ad_stream_current_fn)(ad_device device, ad_stream_choice *out);
void ad_stream_set_current(ad_stream_current_fn find);

/* The caller's current stream for `device`, if there is one. */
bool ad_stream_current(ad_device device, ad_stream_choice *out);

/* Between the two nothing is current on this thread: for work ahead, which
 * must not queue up behind the caller's own. Nests. */
void ad_stream_hide_current(void);
void ad_stream_show_current(void);

/* `wanted` if it is given, else the caller's current stream, else arrowdev's
 * own, with what keeps it (borrowed); and the context in which it runs
 * (`context` is where it is expected). */
AD_MUST_CHECK ad_status ad_stream_choose(ad_context context,
                                         const ad_stream_choice *wanted,
                                         ad_stream_choice *out,
                                         ad_context *out_context,
                                         ad_error *err);

#endif /* AD_ORDER_STREAMS_H */
