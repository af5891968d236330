/* What has to happen around a call that may block the host, and waits that can
 * be ended before their time.
 *
 * Core knows no interpreter, so whoever embeds it says what to do: the Python
 * layer gives the GIL up and takes it back, and runs the handlers of signals
 * (support/waiting.c). Every blocking slot of a backend is called between
 * begin() and end(), and no lock of ours is held there.
 */
#ifndef AD_BASE_WAIT_H
#define AD_BASE_WAIT_H

#include <stdbool.h>

#include "base/owner.h"
#include "base/status.h"

typedef struct ad_wait_hooks {
    void *(*begin)(void);     /* NULL: there is nothing to take back */
    void (*end)(void *saved); /* called with what begin() returned */
    /* Asked before begin(): is this a thread whose waits can be ended? */
    bool (*can_be_interrupted)(void);
    /* Asked now and then between begin() and end(), on such a thread: has
     * something come that ends the wait? May run anything, a fork too. */
    bool (*is_interrupted)(void *saved);
    /* See ad_wait_pass_on(). */
    void (*pass_on)(void);
} ad_wait_hooks;

/* Set once, before any device is used. Default: do nothing. */
void ad_wait_set_hooks(ad_wait_hooks hooks);

void *ad_wait_begin(void);
void ad_wait_end(void *saved);

/* --- waits that can be ended ---------------------------------------------- */

typedef struct ad_wait {
    /* Blocks. Where the wait is ended it goes on, on a thread of its own,
     * which keeps `subject` until it has returned. */
    ad_status (*wait)(ad_owner *subject, ad_error *err);
    /* A look that does not block: is there nothing to wait for any more, or
     * will wait() say at once what is wrong? NULL: none. */
    bool (*is_over)(ad_owner *subject);
    ad_owner *subject;
    bool on_host; /* what is waited for needs the host's processors */
} ad_wait;

/* Wait; AD_ERR_INTERRUPTED when that was ended, which stops no work: whoever
 * waited has to treat its memory as in use. AD_ERR_EXCHANGE, "runtime", in a
 * child that was forked meanwhile. With err NULL nobody could be told, and the
 * wait is not ended. */
AD_MUST_CHECK ad_status ad_wait_interruptible(const ad_wait *wait,
                                              ad_error *err);

/* Is it over now, or as soon as is worth looking for? Needs is_over. */
bool ad_wait_is_over_soon(const ad_wait *wait);

/* AD_ERR_INTERRUPTED leaves by an interface that has only an errno for it: what
 * ended the wait is to happen somewhere else. On any thread. */
void ad_wait_pass_on(void);

#endif /* AD_BASE_WAIT_H */
