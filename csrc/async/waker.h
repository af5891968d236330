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
#ifndef AD_ASYNC_WAKER_H
#define AD_ASYNC_WAKER_H

#include <stdbool.h>

#include "async/async_stream.h"
#include "base/owner.h"
#include "base/status.h"

typedef struct ad_waker {
    ad_owner base;
    int fd;              /* an eventfd, for poll() */
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

#endif /* AD_ASYNC_WAKER_H */
