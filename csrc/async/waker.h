/* A wake-up that an event loop or a thread can wait for: a file descriptor
 * that is readable once it was woken.
 *
 * A wake-up comes from any thread, never blocks and needs no interpreter, so
 * it is what an async stream's end calls on the thread of its peer. Counted: a
 * late wake-up finds the descriptor open.
 *
 * A child that was forked has the same descriptor as its parent, but not the
 * threads of the stream: there a waker is neither woken nor cleared.
 */
#ifndef AD_ASYNC_WAKER_H
#define AD_ASYNC_WAKER_H

#include <stdbool.h>

#include "async/async_stream.h"
#include "base/owner.h"
#include "base/status.h"

typedef struct ad_waker {
    ad_owner base;
    int fd;              /* for poll and the like */
    unsigned generation; /* of the process that made it */
} ad_waker;

/* AD_ERR_EXCHANGE, "stream", where the process may have no more files. */
AD_MUST_CHECK ad_status ad_waker_new(ad_waker **out, ad_error *err);
void ad_waker_unref(ad_waker *waker); /* NULL allowed */

/* Was it made in this process, not before that was forked off? */
bool ad_waker_is_ours(const ad_waker *waker);

/* The same, for the stream that it belongs to: else AD_ERR_EXCHANGE, "stream".
 */
AD_MUST_CHECK ad_status ad_waker_check(const ad_waker *waker, ad_error *err);

void ad_waker_wake(ad_waker *waker);

/* The waker as the wake-up of a consumer or producer, which hold it then. */
ad_async_wake ad_waker_callback(ad_waker *waker);

/* Was it woken? Clears it. Call before reading what it was woken for. */
bool ad_waker_clear(ad_waker *waker);

/* Wait until it was woken, a signal came, or the time is over (-1: no limit).
 * Does not clear it. */
void ad_waker_wait(ad_waker *waker, int timeout_ms);

#endif /* AD_ASYNC_WAKER_H */
