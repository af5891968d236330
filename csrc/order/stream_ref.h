/* ad_stream_ref: a stream as one value, with all that tells it from others and
 * keeps it alive.
 *
 * A handle alone does not name a stream: that of a default stream names one
 * for each context, that of the per-thread default stream one for each thread
 * as well, and the handle of a destroyed stream may be used again.
 */
#ifndef AD_ORDER_STREAM_REF_H
#define AD_ORDER_STREAM_REF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/handles.h"
#include "base/owner.h"
#include "base/status.h"
#include "device/backend.h"

typedef enum ad_stream_kind {
    AD_REF_NONE,       /* no stream is named */
    AD_REF_GIVEN,      /* by its handle only; somebody else keeps it alive */
    AD_REF_OBJECT,     /* `keep`, the object of the stream or queue, does */
    AD_REF_DEFAULT,    /* a default stream, one for each context */
    AD_REF_PER_THREAD, /* that of `thread`, one for each context and thread */
    AD_REF_OWN         /* arrowdev's own, which is never destroyed */
} ad_stream_kind;

typedef struct ad_stream_ref {
    ad_context context; /* where it runs, or what is known of it */
    ad_stream stream;
    uint64_t thread; /* ad_thread_number(); 0 unless AD_REF_PER_THREAD */
    ad_owner *keep;  /* of the stream's object; may be NULL */
    uint64_t id;     /* see ad_stream_identify() */
    bool has_id;
    bool has_context; /* the context is known; not every runtime has handles */
    ad_stream_kind kind;
} ad_stream_ref;

/* The number of this thread, which is unique in the process and never
 * reused. */
uint64_t ad_thread_number(void);

/* Keep track of this thread, until it ends, for ad_thread_is_there(). False
 * without memory. */
bool ad_thread_watch(void);

/* Whether a watched thread has not ended yet. */
bool ad_thread_is_there(uint64_t number);

/* The stream that the handle names in `context` on this thread. */
static inline ad_stream_ref
ad_stream_named(ad_context context, ad_stream stream, ad_owner *keep)
{
    ad_stream_ref ref = {
        .context = context,
        .stream = stream,
        .keep = keep,
        .has_context = context.handle != NULL,
        .kind = keep != NULL ? AD_REF_OBJECT : AD_REF_GIVEN,
    };
    if (ad_stream_is_per_thread(context.device, stream)) {
        ref.kind = AD_REF_PER_THREAD;
        ref.thread = ad_thread_number();
    } else if (ad_stream_is_default(context.device, stream)) {
        ref.kind = AD_REF_DEFAULT;
    }
    return ref;
}

/* The legacy default stream of the device, in a context that is not known. */
static inline ad_stream_ref
ad_stream_legacy_ref(ad_device device)
{
    return ad_stream_named((ad_context){device, NULL},
                           ad_stream_legacy(device), NULL);
}

static inline bool
ad_stream_is_given(const ad_stream_ref *self)
{
    return self != NULL && self->kind != AD_REF_NONE;
}

/* Whether the handle of a per-thread stream names it on this thread. True for
 * all other streams. */
static inline bool
ad_stream_is_here(const ad_stream_ref *self)
{
    return self->kind != AD_REF_PER_THREAD ||
           self->thread == ad_thread_number();
}

/* Whether both are the same stream. A context that is not known matches any,
 * except for a default stream: any other handle is unique on its device while
 * the stream lives (see ad_stream_exists). */
static inline bool
ad_stream_equal(const ad_stream_ref *a, const ad_stream_ref *b)
{
    return a->stream.handle == b->stream.handle && a->thread == b->thread &&
           (a->context.handle == b->context.handle ||
            ((a->context.handle == NULL || b->context.handle == NULL) &&
             !ad_stream_is_default(a->context.device, a->stream))) &&
           (ad_device_equal(a->context.device, b->context.device) ||
            ad_device_equal(ad_device_of_runtime(a->context.device),
                            ad_device_of_runtime(b->context.device)));
}

/* Find the context in which the stream runs, and make a per-thread stream that
 * of this thread. `expected` is the likely context. A stream of another device
 * is AD_ERR_EXCHANGE, "stream". Requires that the runtime is open. */
AD_MUST_CHECK ad_status ad_stream_resolve(ad_stream_ref *self,
                                          const struct ad_backend *backend,
                                          ad_context expected, ad_error *err);

/* --- identity ------------------------------------------------------------ */

/* Ask the runtime for the id that tells the stream from a later one with the
 * same handle: a runtime may reuse the handle of a destroyed stream while its
 * work is pending. Only AD_REF_GIVEN needs one; not every runtime has them
 * (see stream_id in device/backend.h). */
void ad_stream_identify(ad_stream_ref *self);

/* The same for a stream that exists now, without a runtime call where its
 * handle was seen before. The id may be that of an earlier stream with this
 * handle: ad_stream_exists() is then false for this stream, but never true for
 * a later one. */
void ad_stream_recall(ad_stream_ref *self);

/* Whether the handle still names this stream. True without an id. */
bool ad_stream_exists(const ad_stream_ref *self);

/* --- capture ------------------------------------------------------------- */

/* Whether the stream is being captured into a graph. False for a stream whose
 * query fails, because it was destroyed. The legacy default stream cannot be
 * captured, and is not queried. */
static inline bool
ad_stream_is_captured(const ad_stream_ref *self)
{
    const struct ad_backend *backend =
        ad_backend_in_use(self->context.device.type);
    bool is_captured = false;
    return backend != NULL && (backend->capabilities & AD_CAP_CAPTURE) != 0 &&
           self->kind != AD_REF_DEFAULT &&
           backend->stream_is_capturing(self->context, self->stream,
                                        &is_captured, NULL) == AD_OK &&
           is_captured;
}

/* AD_ERR_EXCHANGE, "capture", if the stream is being captured. Called before
 * an `operation` that a graph cannot repeat. */
AD_MUST_CHECK ad_status ad_stream_require_no_capture(const ad_stream_ref *self,
                                                     const char *operation,
                                                     ad_error *err);

#endif /* AD_ORDER_STREAM_REF_H */
