/* order/: when data are ready, and when memory may go back.
 *
 * Events and who waits for them, arrowdev's own streams and its cache per
 * context, device memory, device owners that know the streams on which memory
 * is used, and the deferred release. Assumes that a backend may fail at any
 * call. Any thread, with or without the GIL. Locks: one per device owner, one
 * for the queue of deferred releases; none is held while a runtime, a release
 * function or Python is called.
 */

/* ad_sync: "the data are ready when ...", shared by everything that was made
 * from one import (slices, children, tensors, re-exports) and never dropped.
 *
 * A NULL ad_sync is the promise that nothing has to be waited for. Who waits
 * for what is one table: docs/internals/synchronization.md.
 *
 *   AD_SYNC_EVENT   an event of the runtime: one that came with an Arrow
 *                   device array, or one that arrowdev recorded
 *   AD_SYNC_STREAM  work may be pending on the stream with this number, and
 *                   there is no runtime here that could record an event on it:
 *                   the statement is carried as it came
 *   AD_SYNC_QUEUE   the same for a queue object
 *   AD_SYNC_UNKNOWN work may be pending, and what came with the data (`handle`
 *                   is that object) does not say where
 */
#ifndef AD_ORDER_SYNC_H
#define AD_ORDER_SYNC_H

#include <stdatomic.h>

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"

typedef enum ad_sync_kind {
    AD_SYNC_EVENT,
    AD_SYNC_STREAM,
    AD_SYNC_QUEUE,
    AD_SYNC_UNKNOWN
} ad_sync_kind;

typedef struct ad_sync {
    ad_owner base;
    ad_sync_kind kind;
    ad_context context;  /* handle NULL: not known (foreign events) */
    bool is_own;         /* EVENT: recorded by us, goes back to the pool */
    atomic_bool is_done; /* a query or a wait has proven it */
    ad_stream stream;    /* own events: what it was recorded on; STREAM */
    uint64_t thread;     /* ... by which thread (ad_thread_number), where that
                            is a per-thread default stream; else 0 */
    void *handle;   /* EVENT: what `sync_event` carries; else the object */
    ad_event event; /* own events */
    struct ad_context_cache *cache; /* ... where it goes back to, or NULL */
    struct ad_sync *_Atomic *cell;  /* ... its place there, or NULL */
    ad_owner *keep; /* keeps `handle` valid, and the queue object */
} ad_sync;

/* --- making one ---------------------------------------------------------- */

/* An event that came with an Arrow device array: `sync_event`, valid while
 * `keep` lives. Takes a reference of its own on `keep`. No runtime call. */
AD_MUST_CHECK ad_status ad_sync_new(ad_sync_kind kind, ad_device device,
                                    void *handle, ad_owner *keep,
                                    ad_sync **out, ad_error *err);

/* Work may be pending on `stream` of `device` (in `context`, or NULL): record
 * an event there, now, on this thread. Where there is no runtime for the
 * device, the statement itself is kept. `queue` is the owner of the stream's
 * object where it has one, else NULL; it is kept. On a stream that is being
 * captured into a graph the event becomes a part of the graph: streams of the
 * same capture can be ordered after it, and nobody else, see
 * ad_sync_is_captured. */
AD_MUST_CHECK ad_status ad_sync_pending(ad_context context, ad_stream stream,
                                        ad_owner *queue, ad_sync **out,
                                        ad_error *err);

/* The same where the runtime is there for certain. */
AD_MUST_CHECK ad_status ad_sync_record(ad_context context, ad_stream stream,
                                       ad_sync **out, ad_error *err);

/* The same with an event that the runtime gave for the last work on the stream
 * (AD_CAP_WORK_HAS_EVENT). It is taken over, on failure too. */
AD_MUST_CHECK ad_status ad_sync_adopt(ad_context context, ad_stream stream,
                                      ad_event event, ad_sync **out,
                                      ad_error *err);

/* One sync that stands for all of `syncs` (NULL entries are done): NULL, one
 * of them, or an event recorded on our own stream after it waited for all.
 * Events of different devices: AD_ERR_EXCHANGE. */
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

static inline void
ad_sync_unref(ad_sync *sync)
{
    if (sync != NULL) {
        ad_owner_unref(&sync->base);
    }
}

/* --- asking and waiting ---------------------------------------------------- */

/* Known to be complete without asking: no sync, or proven before. */
static inline bool
ad_sync_is_done(const ad_sync *sync)
{
    return sync == NULL ||
           atomic_load_explicit(&sync->is_done, memory_order_acquire);
}

/* One and the same thing to wait for (NULL is none). */
static inline bool
ad_sync_same(const ad_sync *a, const ad_sync *b)
{
    return a == b ||
           (a != NULL && b != NULL && a->kind == b->kind &&
            a->kind != AD_SYNC_EVENT && a->handle == b->handle &&
            a->stream.handle == b->stream.handle && a->thread == b->thread &&
            ad_device_equal(a->context.device, b->context.device));
}

/* The address that a device array carries for a `sync` that is not done. Fails
 * for a stream or queue without a runtime. No runtime call. */
AD_MUST_CHECK ad_status ad_sync_event(const ad_sync *sync, void **out,
                                      ad_error *err);

/* Is it complete now? Asks the runtime, never waits. */
AD_MUST_CHECK ad_status ad_sync_query(ad_sync *sync, bool *out, ad_error *err);

/* The same, asked for as long as work lasts that is not worth a wait. Between
 * ad_wait_begin and _end. */
AD_MUST_CHECK ad_status ad_sync_query_soon(ad_sync *sync, bool *out,
                                           ad_error *err);

/* Could the host wait for it (there is a runtime, or nothing to wait for)?
 * For attribute look-ups: cheap, never waits. */
bool ad_sync_can_wait(const ad_sync *sync);

/* Is the stream that it was recorded on being captured into a graph? Then a
 * stream that waits for it joins the capture, which none of arrowdev's own
 * may. Not known of foreign events: false. */
bool ad_sync_is_captured(const ad_sync *sync);

/* AD_ERR_EXCHANGE, "capture", if it is: before a stream outside the capture
 * is made to wait. */
AD_MUST_CHECK ad_status ad_sync_require_no_capture(const ad_sync *sync,
                                                   const char *consumer,
                                                   ad_error *err);

/* The host waits. `consumer` (a protocol, a method) is for the message where
 * there is no runtime. Blocks, between ad_wait_begin and _end. */
AD_MUST_CHECK ad_status ad_sync_wait(ad_sync *sync, const char *consumer,
                                     ad_error *err);

/* The same for work that nothing holds up: the wait is not ended before its
 * time, and costs no thread. */
AD_MUST_CHECK ad_status ad_sync_wait_briefly(ad_sync *sync, ad_error *err);

/* Later work on `stream`, which runs on `device`, waits; the host does not. No
 * runtime call where the stream is the one that an own event was recorded on
 * and runs in order, or where it is done. A statement without a runtime is
 * satisfied by the very same stream only. */
AD_MUST_CHECK ad_status ad_sync_order(ad_sync *sync, ad_stream stream,
                                      const char *consumer, ad_error *err);

/* The same where the stream runs in `context`, which need not be the context
 * of the data: a default stream is meant there. */
AD_MUST_CHECK ad_status ad_sync_order_in(ad_sync *sync, ad_context context,
                                         ad_stream stream,
                                         const char *consumer, ad_error *err);

/* A stream for a consumer that names none and would wait on one that is shown
 * to it (CUDA Array Interface): one of a few per context that waits for the
 * event, never a per-thread one. Lives as long as the process. */
AD_MUST_CHECK ad_status ad_sync_stream(ad_sync *sync, ad_stream *out,
                                       ad_error *err);

#endif /* AD_ORDER_SYNC_H */
