/* order/: the readiness of data and the release of device memory.
 *
 * Syncs and waits, arrowdev's own streams, the context cache, device memory,
 * device owners with their recorded streams, and the deferred release. Any
 * backend call may fail. Any thread may call this layer, with or without the
 * GIL. There is one lock, for the list of deferred releases. It is not held
 * while a runtime, a release function or Python is called.
 */

/* ad_sync: the readiness of data. Everything that is made from one import
 * (slices, children, tensors, re-exports) shares it, and it is never dropped.
 *
 * A NULL ad_sync promises that the data are ready. The waits are in one table:
 * docs/internals/synchronization.md.
 *
 *   AD_SYNC_EVENT   An event of the runtime. It came with an Arrow device
 *                   array, or arrowdev recorded it.
 *   AD_SYNC_STREAM  Work may be pending on the stream with this number. No
 *                   runtime is available that could record an event on it, so
 *                   the number is carried as it came.
 *   AD_SYNC_QUEUE   The same for a queue object.
 *   AD_SYNC_UNKNOWN Work may be pending on an unknown stream. `handle` is the
 *                   object that came with the data.
 *
 * In a forked child of the process that loaded the runtime, events are the
 * parent's: the last reference drops one without a call, queries and waits
 * fail (AD_ERR_EXCHANGE, "runtime"), and what was proven done stays done.
 */
#ifndef AD_ORDER_SYNC_H
#define AD_ORDER_SYNC_H

#include <stdatomic.h>

#include "base/owner.h"
#include "base/handles.h"
#include "base/list.h"
#include "base/status.h"
#include "order/stream_ref.h"

typedef enum ad_sync_kind {
    AD_SYNC_EVENT,
    AD_SYNC_STREAM,
    AD_SYNC_QUEUE,
    AD_SYNC_UNKNOWN
} ad_sync_kind;

typedef struct ad_sync {
    ad_owner base;
    ad_sync_kind kind;
    bool is_own;         /* EVENT: recorded by us, goes back to the pool */
    bool is_captured;    /* own events: the stream was being captured */
    atomic_bool is_done; /* a query or a wait has proven it */
    ad_stream_ref on;    /* own events: what it was recorded on; STREAM, QUEUE;
                         else none is named, and only the device is known. The
                         sync owns `keep`, which keeps `handle` valid, too */
    void *handle;   /* EVENT: what `sync_event` carries; else the object */
    ad_event event; /* own events */
    struct ad_context_cache *cache; /* own events: cache of the pool or NULL */
} ad_sync;

/* --- construction -------------------------------------------------------- */

/* A sync for the `sync_event` of an Arrow device array, or for a stream or
 * queue. `handle` is valid while `keep` lives. Takes a new reference on
 * `keep`. Makes no runtime call. */
AD_MUST_CHECK ad_status ad_sync_new(ad_sync_kind kind, ad_device device,
                                    void *handle, ad_owner *keep,
                                    ad_sync **out, ad_error *err);

/* A sync for work that may be pending on the stream, whose context need not be
 * known. Records an event now, on this thread. Without a runtime for the
 * device the sync carries the stream itself. Takes a reference on its object.
 * On a stream that is being captured the event becomes a part of the graph.
 * Only streams of the same capture can be ordered after it (see
 * ad_sync_is_captured). */
AD_MUST_CHECK ad_status ad_sync_pending(const ad_stream_ref *on, ad_sync **out,
                                        ad_error *err);

/* Record an event on the stream, without a reference on its object. Requires a
 * runtime for the device. */
AD_MUST_CHECK ad_status ad_sync_record(const ad_stream_ref *on, ad_sync **out,
                                       ad_error *err);

/* A sync for the event that the runtime returned for the last work on the
 * stream (AD_CAP_WORK_HAS_EVENT). The event is taken over, even on failure. */
AD_MUST_CHECK ad_status ad_sync_adopt(const ad_stream_ref *on, ad_event event,
                                      ad_sync **out, ad_error *err);

/* One sync for all of `syncs` (NULL entries are done). *out is NULL, one of
 * them, or an event on arrowdev's own stream, which waits for all of them.
 * Events of different devices are AD_ERR_EXCHANGE. */
AD_MUST_CHECK ad_status ad_sync_join(ad_sync *const *syncs, size_t n,
                                     ad_sync **out, ad_error *err);

static inline ad_sync *
ad_sync_ref(ad_sync *sync)
{
    if (sync != NULL) {
        ad_owner_ref(&sync->base);
    }
    return sync;
}

/* The last reference gives an event of arrowdev's own back to the pool of its
 * context, or destroys it where the pool has no room (sync_destroy in sync.c).
 * A foreign event is its producer's, who frees it once `keep` is released. */
static inline void
ad_sync_unref(ad_sync *sync)
{
    if (sync != NULL) {
        ad_owner_unref(&sync->base);
    }
}

/* --- queries and waits --------------------------------------------------- */

/* Whether the sync is known to be complete without a query: it is NULL, or an
 * earlier query or wait has proven it. */
static inline bool
ad_sync_is_done(const ad_sync *sync)
{
    return sync == NULL ||
           atomic_load_explicit(&sync->is_done, memory_order_acquire);
}

/* Whether both syncs stand for the same wait. */
static inline bool
ad_sync_same(const ad_sync *a, const ad_sync *b)
{
    return a == b || (a != NULL && b != NULL && a->kind == b->kind &&
                      a->kind != AD_SYNC_EVENT && a->handle == b->handle &&
                      ad_stream_equal(&a->on, &b->on));
}

/* The `sync_event` of a device array for a `sync` that is not done. Fails for
 * a stream or queue without a runtime. Makes no runtime call. */
AD_MUST_CHECK ad_status ad_sync_event(const ad_sync *sync, void **out,
                                      ad_error *err);

/* Query whether the sync is complete now. Never waits. */
AD_MUST_CHECK ad_status ad_sync_query(ad_sync *sync, bool *out, ad_error *err);

/* Query whether the sync is complete now or after a short spin. The spin runs
 * between ad_wait_begin and ad_wait_end. */
AD_MUST_CHECK ad_status ad_sync_query_soon(ad_sync *sync, bool *out,
                                           ad_error *err);

/* Whether the host could wait for the sync: there is a runtime, or nothing to
 * wait for. Cheap and never waits, for attribute look-ups. */
bool ad_sync_can_wait(const ad_sync *sync);

/* Whether the stream of the event was being captured into a graph when the
 * event was recorded. A stream that waits for such an event joins the capture.
 * arrowdev's own streams must not do so. False for foreign events, where it is
 * not known. Makes no runtime call: the stream may be destroyed by now. */
static inline bool
ad_sync_is_captured(const ad_sync *sync)
{
    return sync != NULL && sync->is_captured;
}

/* AD_ERR_EXCHANGE, "capture", if ad_sync_is_captured. Called before a stream
 * outside the capture waits. */
AD_MUST_CHECK ad_status ad_sync_require_no_capture(const ad_sync *sync,
                                                   const char *operation,
                                                   ad_error *err);

/* Called before a stream that may be captured waits for the sync. A
 * captured stream that waits for an event from outside of the capture
 * invalidates the graph. So a complete one is found out by a query, and a
 * pending one is AD_ERR_EXCHANGE, "capture". Not for foreign events, which
 * may be of the same capture. */
AD_MUST_CHECK ad_status ad_sync_require_outside_done(ad_sync *sync,
                                                     const ad_stream_ref *on,
                                                     const char *operation,
                                                     ad_error *err);

/* Wait on the host. `operation` (a protocol, a method) is named in the message
 * of a missing runtime. Blocks between ad_wait_begin and ad_wait_end. */
AD_MUST_CHECK ad_status ad_sync_wait(ad_sync *sync, const char *operation,
                                     ad_error *err);

/* Wait on the host for work that is known to complete soon. The wait cannot be
 * interrupted and needs no helper thread. */
AD_MUST_CHECK ad_status ad_sync_wait_briefly(ad_sync *sync, ad_error *err);

/* Make later work on the stream wait, without blocking the host. Its context
 * may differ from that of the data; where it is not known, it is that of the
 * data. Makes no runtime call where the sync is done, or where its own event
 * was recorded on the same in-order default stream. Without a runtime only the
 * same stream is accepted. */
AD_MUST_CHECK ad_status ad_sync_order(ad_sync *sync, const ad_stream_ref *on,
                                      const char *operation, ad_error *err);

/* A stream to export to a consumer that names none and waits on the
 * exported one (CUDA Array Interface). It is one of arrowdev's own
 * (AD_USE_CONSUMER) and waits for the event. It is never a per-thread
 * stream, and it lives as long as the process. */
AD_MUST_CHECK ad_status ad_sync_stream(ad_sync *sync, ad_stream_ref *out,
                                       ad_error *err);

#endif /* AD_ORDER_SYNC_H */
