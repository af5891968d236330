/* The choice of a stream: the caller's, the current one, or arrowdev's own,
 * and the cache of each context.
 */
#ifndef AD_ORDER_STREAMS_H
#define AD_ORDER_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/handles.h"
#include "base/owner.h"
#include "base/status.h"
#include "order/sync.h"
#include "device/backend.h"

/* A stream and the owner that keeps it alive. */
typedef struct ad_stream_choice {
    bool is_given;
    ad_stream stream;
    ad_owner *keep; /* the stream's object; borrowed, may be NULL */
} ad_stream_choice;

/* Whether the stream is being captured into a graph. False for a stream whose
 * query fails, because it was destroyed. The legacy default stream cannot be
 * captured, and is not queried. */
static inline bool
ad_stream_is_captured(const ad_context *context, ad_stream stream)
{
    const struct ad_backend *backend = ad_backend_in_use(context->device.type);
    bool is_captured = false;
    return backend != NULL && (backend->capabilities & AD_CAP_CAPTURE) != 0 &&
           (!ad_stream_is_default(context->device, stream) ||
            ad_stream_is_per_thread(context->device, stream)) &&
           backend->stream_is_capturing(*context, stream, &is_captured,
                                        NULL) == AD_OK &&
           is_captured;
}

/* AD_ERR_EXCHANGE, "capture", if the stream is being captured. Called before
 * an `operation` that a graph cannot repeat. */
AD_MUST_CHECK ad_status ad_stream_require_no_capture(ad_context context,
                                                     ad_stream stream,
                                                     const char *operation,
                                                     ad_error *err);

/* The number of this thread, which is unique in the process and never
 * reused. */
uint64_t ad_thread_number(void);

/* Keep track of this thread, until it ends, for ad_thread_is_there(). False
 * without memory. */
bool ad_thread_watch(void);

/* Whether a watched thread has not ended yet. */
bool ad_thread_is_there(uint64_t number);

/* What arrowdev's own streams are used for. Ready data wait for no pending
 * work of others: only the last three ever wait for events that others
 * recorded, and they share no stream with the first three. */
typedef enum ad_stream_use {
    AD_USE_READ,     /* copies to the host */
    AD_USE_UPLOAD,   /* copies from the host */
    AD_USE_WORK,     /* the rest */
    AD_USE_AFTER,    /* any work after pending data */
    AD_USE_FREE,     /* memory is freed after its consumers */
    AD_USE_CONSUMER, /* shown to consumers that name no stream */
    AD_N_STREAM_USES
} ad_stream_use;

/* arrowdev's own stream in a context, which may serve several uses (see
 * ad_own_stream). It is in order, does not synchronize with default streams
 * and is created on first use. It lives as long as the process, unless it died
 * with its context or an event drew it into a capture. A new stream then
 * replaces it, so the result is never being captured. */
AD_MUST_CHECK ad_status ad_stream_own(ad_context context, ad_stream_use use,
                                      ad_stream *out, ad_error *err);

/* The same for AD_USE_CONSUMER, with the context in which it runs. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_context context, ad_stream *out,
                                         ad_context *out_context,
                                         ad_error *err);

/* Whether the runtime knows a stream of arrowdev's own still, and it is not
 * being captured. */
bool ad_stream_is_usable(const struct ad_backend *backend, ad_context context,
                         ad_stream stream);

/* Whether the stream is one of arrowdev's own in this context. */
bool ad_stream_is_own(const struct ad_backend *backend, ad_context context,
                      ad_stream stream);

/* Tells a stream from a later one with the same handle. A runtime may reuse
 * the handle of a destroyed stream while its work is pending. */
typedef struct ad_stream_identity {
    bool is_known;
    uint64_t id;
} ad_stream_identity;

/* The identity is not known where the runtime has none (see stream_id in
 * device/backend.h), and not needed for a default stream, for one of
 * arrowdev's own, or for one that `keep` keeps alive. */
ad_stream_identity ad_stream_identify(ad_context context, ad_stream stream,
                                      const ad_owner *keep);

/* The same for a stream that exists now, without a runtime call where its
 * handle was seen before. It may be that of an earlier stream with this handle:
 * ad_stream_is_same() is then false for this stream, but never true for a later
 * one. */
ad_stream_identity ad_stream_recall(const ad_context *context,
                                    ad_stream stream);

/* Whether the handle still names this stream. True for an identity that is not
 * known. */
bool ad_stream_is_same(ad_context context, ad_stream stream,
                       ad_stream_identity identity);

/* Memory of the context is freed in the order of `stream`. */
void ad_stream_note_free(ad_context context, ad_stream stream);

/* Wait on the host for the frees noted since the last call, on streams of
 * arrowdev's own. False where there are none, or a wait fails. */
bool ad_stream_wait_for_frees(ad_context context);

/* `context`, with the handle of the primary context where none is known.
 * `backend` must be open. */
AD_MUST_CHECK ad_status ad_context_complete(const struct ad_backend *backend,
                                            ad_context context,
                                            ad_context *out, ad_error *err);

/* --- use_stream ---------------------------------------------------------- */

/* The current stream belongs to a thread, or to one of the tasks that take
 * turns on it. The core does not know tasks, so the Python layer sets a
 * function that finds the current stream (python/functions/use_stream.c). It
 * is set once, before any device is used, and it is called on any thread, even
 * one that it does not know. */
typedef bool (*ad_stream_current_fn)(ad_device device, ad_stream_choice *out);
void ad_stream_set_current(ad_stream_current_fn find);

/* The scopes that exist, in all threads and tasks: one that was left is still
 * current in a task that began inside it. The Python layer counts them: mostly
 * 0, and then no stream is current. */
extern atomic_long ad_n_stream_scopes;
bool ad_stream_find_current(ad_device device, ad_stream_choice *out);

static inline bool
ad_stream_has_scopes(void)
{
    return atomic_load_explicit(&ad_n_stream_scopes, memory_order_relaxed) !=
           0;
}

/* The caller's current stream for `device`, if there is one. */
static inline bool
ad_stream_current(ad_device device, ad_stream_choice *out)
{
    return ad_stream_has_scopes() && ad_stream_find_current(device, out);
}

/* Between these two calls no stream is current on this thread. For
 * non-blocking work, which must not queue behind the caller's own. The calls
 * nest. */
void ad_stream_hide_current(void);
void ad_stream_show_current(void);

/* `wanted` if it is given, else the caller's current stream, else arrowdev's
 * own for this use. *out has the borrowed owner of the stream. *out_context is
 * the context in which the stream runs; `context` is the expected one. */
AD_MUST_CHECK ad_status ad_stream_choose(
    ad_context context, const ad_stream_choice *wanted, ad_stream_use use,
    ad_stream_choice *out, ad_context *out_context, ad_error *err);

/* --- the context cache --------------------------------------------------- */

/* The cache of each context, which lives as long as the process: arrowdev's
 * own streams, and a pool of syncs with reusable events. Only for order/. */
#define AD_N_EVENT_POOLS 8
#define AD_EVENTS_PER_POOL 64
#define AD_EVENTS_PER_THREAD 16

/* An unowned sync with an event, or NULL. */
typedef ad_sync *_Atomic ad_sync_cell;

/* Threads begin at different pools, which avoids contention. The thread that
 * has a pool keeps some syncs there that no other thread touches, without an
 * atomic read and write. All threads use the cells. A cell is emptied or filled
 * by one atomic operation, so there is no lock and no ABA problem. */
typedef struct ad_event_pool {
    _Alignas(64) atomic_uintptr_t thread; /* pthread_self(); 0: nobody's */
    atomic_size_t n_kept;                 /* at most n_room */
    atomic_size_t n_room;                 /* at most AD_EVENTS_PER_THREAD */
    ad_sync_cell kept[AD_EVENTS_PER_THREAD];
    _Alignas(64) ad_sync_cell cells[AD_EVENTS_PER_POOL];
} ad_event_pool;

/* The own streams of a context. A GPU has a few hardware queues for all streams
 * of a process (CUDA: 8 by default), and a wait at the head of one delays all
 * streams that share it. So there are few streams, and waits for others are on
 * two of them only. */
typedef enum ad_own_stream_number {
    AD_OWN_READ,   /* READ, WORK */
    AD_OWN_UPLOAD, /* UPLOAD */
    AD_OWN_LENT,   /* CONSUMER, imports */
    AD_OWN_AFTER,  /* AFTER, FREE, and imports where the one above is busy */
    AD_N_OWN_STREAMS,
    AD_FIRST_INTAKE = AD_OWN_LENT
} ad_own_stream_number;

typedef struct ad_own_stream {
    atomic_uintptr_t handle; /* 0: not created yet */
    atomic_bool has_frees;   /* not waited for yet */
    /* Only for intake streams, see order/intake.h. Whoever has set `is_taken`
     * owns `last`. */
    atomic_bool is_taken;
    atomic_bool has_other_work; /* `last` does not cover it */
    ad_sync *last;              /* after the work of the last import */
} ad_own_stream;

typedef struct ad_context_cache {
    ad_context context;
    struct ad_context_cache *next;
    ad_own_stream own[AD_N_OWN_STREAMS];
    atomic_uint turn; /* of imports, where all intake streams are busy */
    ad_event_pool pools[AD_N_EVENT_POOLS];
} ad_context_cache;

/* The device with the main type of its runtime: "cuda" for pinned and managed
 * memory, too. */
static inline ad_device
ad_device_of_runtime(ad_device device)
{
    const int32_t main_type = ad_backend_for(device.type)->device_types[0];
    return (ad_device){main_type != 0 ? main_type : device.type, device.id};
}

static inline bool
ad_context_cache_is_of(const ad_context_cache *cache,
                       const struct ad_backend *backend,
                       const ad_context *context)
{
    return cache->context.handle == context->handle &&
           cache->context.device.id == context->device.id &&
           cache->context.device.type == backend->device_types[0];
}

/* The newest cache is first. For ad_context_cache_of. */
extern ad_context_cache *_Atomic ad_context_caches;
ad_context_cache *ad_context_cache_find(const struct ad_backend *backend,
                                        const ad_context *context);

/* The cache of a context of this backend, created on first use. NULL where
 * memory is not available. The device is that of ad_device_of_runtime(). */
static inline ad_context_cache *
ad_context_cache_of(const struct ad_backend *backend,
                    const ad_context *context)
{
    ad_context_cache *youngest =
        atomic_load_explicit(&ad_context_caches, memory_order_acquire);
    return youngest != NULL &&
                   ad_context_cache_is_of(youngest, backend, context)
               ? youngest
               : ad_context_cache_find(backend, context);
}

/* The stream, created where there is none. With `asks` the runtime is asked
 * whether it is usable, and a new one replaces one that is not. */
AD_MUST_CHECK ad_status ad_own_stream_get(const struct ad_backend *backend,
                                          ad_context context,
                                          ad_own_stream *own, bool asks,
                                          ad_stream *out, ad_error *err);

/* Take a sync with its event out of the pool, or return NULL. */
ad_sync *ad_sync_take(ad_context_cache *cache);

/* Return a sync to its pool. False where the pool is full; the sync then still
 * belongs to the caller. */
bool ad_sync_give(ad_sync *sync);

#endif /* AD_ORDER_STREAMS_H */
