/* A wake-up that an event loop or a thread can wait for: a file descriptor
 * that is readable once it was rung.
 *
 * Ringing comes from any thread, never blocks and needs no interpreter, so it
 * is what an async stream's end calls on the thread of its peer. Counted: a
 * late ring finds the descriptor open.
 *
 * A child that was forked has the same descriptor as its parent, but not the
 * threads of the stream: there a bell is neither rung nor silenced.
 */
#ifndef AD_ASYNC_WAKER_H
#define AD_ASYNC_WAKER_H

#include <stdbool.h>

#include "async/async_stream.h"
#include "base/owner.h"
#include "base/status.h"

typedef struct ad_bell {
    ad_owner base;
    int fd;              /* for poll and the like */
    unsigned generation; /* of the process that made it */
} ad_bell;

/* AD_ERR_EXCHANGE, "stream", where the process may have no more files. */
AD_MUST_CHECK ad_status ad_bell_new(ad_bell **out, ad_error *err);
void ad_bell_unref(ad_bell *bell); /* NULL allowed */

/* Was it made in this process, not before that was forked off? */
bool ad_bell_is_ours(const ad_bell *bell);

/* The same, for the stream that it belongs to: else AD_ERR_EXCHANGE, "stream".
 */
AD_MUST_CHECK ad_status ad_bell_check(const ad_bell *bell, ad_error *err);

void ad_bell_ring(ad_bell *bell);

/* The bell as the wake-up of a consumer or producer, which hold it then. */
ad_async_wake ad_bell_wake(ad_bell *bell);

/* Was it rung? Silences it. Ask before looking at what it is rung for. */
bool ad_bell_take(ad_bell *bell);

/* Wait until it was rung, a signal came, or the time is over (-1: no limit).
 * Does not silence it. */
void ad_bell_wait(ad_bell *bell, int timeout_ms);

#endif /* AD_ASYNC_WAKER_H */
