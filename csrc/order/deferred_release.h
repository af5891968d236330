/* Deferred release: owners that are released once a device has completed its
 * work on them.
 *
 * The list is bounded: past AD_DEFERRED_MAX entries the thread that defers a
 * release waits for the event of the oldest. One thread, started with the
 * first entry, drains the list. ad_deferred_drain() on later calls,
 * Device.synchronize() and a failed allocation drain it too. No lock is held
 * during a call of the runtime, a release function or a thread's join. An
 * entry is abandoned after repeated failures of the runtime.
 *
 * Only Device.synchronize() and a failed allocation wait for a context, which
 * invalidates the graphs that are being captured in it. They also try
 * abandoned entries again. An owner whose last use can never be proven to have
 * ended is kept for the life of the process.
 */
#ifndef AD_ORDER_DEFERRED_RELEASE_H
#define AD_ORDER_DEFERRED_RELEASE_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/sync.h"

#define AD_DEFERRED_MAX 1024

/* Unref `owner` once all of `syncs` are complete. Without syncs, once somebody
 * has waited for the whole context; on a runtime without AD_CAP_CONTEXT_IDLE
 * the owner is then kept for the life of the process. Takes over the
 * references on the owner and the syncs. Cannot fail: without memory for an
 * entry the call waits for the syncs, or where there are none for the context.
 * Where that wait fails, the owner is never released. */
void ad_defer_release(ad_owner *owner, ad_context context,
                      ad_sync *const *syncs, size_t n);

/* Unref `owner` after the work on the stream, on which no event can be
 * recorded now because it is being captured, or is a legacy stream that
 * waits for a captured one. The event is recorded once the capture is over.
 * Takes over the reference on the owner and takes one on the stream's
 * object. Without memory for an entry the owner is never released. */
void ad_defer_release_late(ad_owner *owner, const ad_stream_ref *on);

/* For the destroy function of `owner`, which has changed nothing, because the
 * runtime permits no call on this thread (n_refused in device/backend.h): have
 * the thread of the deferred releases, or a later call, destroy the owner.
 * Takes it over. Without memory for an entry it is never released. */
void ad_release_elsewhere(ad_owner *owner, ad_context context);

/* Release the ready ones among the oldest entries. Never blocks, and is cheap
 * when the list is empty. */
void ad_deferred_drain(void);

/* begin_calls() and end_calls() of the context's runtime, for code that may
 * drain the list in between. A release runs code of others, so that
 * ad_deferred_drain() does nothing then, and a wait for releases interrupts
 * the calls. They do not nest. */
void ad_deferred_begin_calls(ad_context context);
void ad_deferred_end_calls(ad_context context);

/* Wait for every release that is deferred on the device of this context, in
 * any context and for any kind of memory. This includes the entries in drain
 * passes of other threads, but not those in a pass that this thread has in
 * progress. Blocks. With `err` NULL the wait cannot be interrupted. */
AD_MUST_CHECK ad_status ad_deferred_wait(ad_context context, ad_error *err);

/* Wait for the context, as far as its runtime, which is open, can (see
 * `synchronize` in device/backend.h), and for the deferred releases on its
 * device. Blocks. */
AD_MUST_CHECK ad_status ad_context_synchronize(ad_context context,
                                               ad_error *err);

/* The number of deferred releases, without those that are abandoned, kept, or
 * wait for a context. */
size_t ad_deferred_count(void);

/* Whether there is anything that ad_deferred_wait could release. */
bool ad_deferred_is_any(void);

/* Stop the thread. Deferred releases stay deferred on purpose, because the
 * device may still use the memory. Called before the interpreter finalizes. A
 * release may be deferred afterwards, which starts no thread. */
void ad_deferred_stop(void);

#endif /* AD_ORDER_DEFERRED_RELEASE_H */
