/* Owners that wait for a device before they may be released.
 *
 * The list is bounded: past AD_DEFERRED_MAX entries the thread that defers a
 * release waits for the oldest. One thread, started with the first entry,
 * drains it; so do ad_deferred_drain() on later calls, Device.synchronize()
 * and a failed allocation. No lock is held while the runtime, a release
 * function or a thread's join is called. What the runtime failed to tell about
 * again and again is left alone, until one of the last two tries it once more;
 * what nothing can be proven about stays for good.
 */
#ifndef AD_ORDER_DEFERRED_RELEASE_H
#define AD_ORDER_DEFERRED_RELEASE_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/sync.h"

struct ad_backend;

#define AD_DEFERRED_MAX 1024

/* Unref `owner` once all of `syncs` (references that are taken over) are
 * complete; with `idle` once the whole context has been idle, which covers
 * them. Where the runtime cannot tell that (no AD_CAP_CONTEXT_IDLE) and `idle`
 * is wanted, the owner is kept for good. Cannot fail: without memory for an
 * entry it waits here and now. */
void ad_defer_release(ad_owner *owner, ad_context context,
                      ad_sync *const *syncs, size_t n, bool idle);

/* Release what is ready; never waits. Cheap when the list is empty. */
void ad_deferred_drain(void);

/* Wait for every release that is deferred on the device of this context,
 * whatever its context and kind of memory; also what other threads look at just
 * now, but for what this thread looks at further down its stack. Blocks; with
 * err NULL it cannot be interrupted. */
AD_MUST_CHECK ad_status ad_deferred_wait(ad_context context, ad_error *err);

/* Wait for the context, as far as the runtime can (see `synchronize` in
 * device/backend.h), and for what is deferred on its device. Blocks. */
AD_MUST_CHECK ad_status ad_context_synchronize(
    const struct ad_backend *backend, ad_context context, ad_error *err);

/* Those that are looked after. */
size_t ad_deferred_count(void);

/* Is there anything that ad_deferred_wait could release? */
bool ad_deferred_is_any(void);

/* Stop the thread; releases that are still deferred stay so (on purpose: its
 * memory may be read). Called when the interpreter is about to go; deferring a
 * release afterwards is allowed and starts no thread. */
void ad_deferred_stop(void);

#endif /* AD_ORDER_DEFERRED_RELEASE_H */
