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
#include "order/stream_ref.h"
#include "order/sync.h"
#include "device/backend.h"

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
                                      ad_stream_ref *out, ad_error *err);

/* The same for AD_USE_CONSUMER. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_context context,
                                         ad_stream_ref *out, ad_error *err);

/* Memory is freed in the order of the stream. */
void ad_stream_note_free(const ad_stream_ref *on);

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
typedef bool (*ad_stream_current_fn)(ad_device device, ad_stream_ref *out);
void ad_stream_set_current(ad_stream_current_fn find);

/* The scopes that exist, in all threads and tasks: one that was left is still
 * current in a task that began inside it. The Python layer counts them: mostly
 * 0, and then no stream is current. */
extern atomic_long ad_n_stream_scopes;
bool ad_stream_find_current(ad_device device, ad_stream_ref *out);

static inline bool
ad_stream_has_scopes(void)
{
    return atomic_load_explicit(&ad_n_stream_scopes, memory_order_relaxed) !=
           0;
}

/* The caller's current stream for `device`, if there is one. */
static inline bool
ad_stream_current(ad_device device, ad_stream_ref *out)
{
    return ad_stream_has_scopes() && ad_stream_find_current(device, out);
}

/* Between these two calls no stream is current on this thread. For
 * non-blocking work, which must not queue behind the caller's own. The calls
 * nest. */
void ad_stream_hide_current(void);
void ad_stream_show_current(void);

/* `wanted` if it is given, else the caller's current stream, else arrowdev's
 * own for this use, with the context in which it runs. out->keep is borrowed.
 * `context` is the expected one. */
AD_MUST_CHECK ad_status ad_stream_choose(ad_context context,
                                         const ad_stream_ref *wanted,
                                         ad_stream_use use, ad_stream_ref *out,
                                         ad_error *err);

/* --- the context cache --------------------------------------------------- */

/* The cache of each context, which lives as long as the process: arrowdev's
 * own streams, and a pool of syncs with reusable events. Only for order/. */
#define AD_N_EVENT_POOLS 8
#define AD_EVENTS_PER_POOL 64
#define AD_EVENTS_PER_THREAD 16

/* An unowned sync with an event, or NULL. */
typedef ad_sync *_Atomic ad_sync_cell;

/* Threads begin at different pools, which avoids contention. The thread
 * that has a pool keeps some syncs there that no other thread touches,
 * without an atomic read and write. All threads use the cells. A cell is
 * emptied or filled by one atomic operation, so there is no lock and no ABA
 * problem. */
typedef struct ad_event_pool {
    _Alignas(64) atomic_uintptr_t thread; /* ad_thread_self(); 0: nobody's */
    atomic_size_t n_kept;                 /* at most n_room */
    atomic_size_t n_room;                 /* at most AD_EVENTS_PER_THREAD */
    ad_sync_cell kept[AD_EVENTS_PER_THREAD];
    _Alignas(64) ad_sync_cell cells[AD_EVENTS_PER_POOL];
} ad_event_pool;

/* The own streams of a context. A GPU has a few hardware queues for all
 * streams of a process (CUDA: 8 by default), and a wait at the head of one
 * delays all streams that share it. So there are few streams, and waits for
 * others are on two of them only. */
typedef enum ad_own_stream_number {
    AD_OWN_READ,   /* READ, WORK */
    AD_OWN_UPLOAD, /* UPLOAD */
    AD_OWN_LENT,   /* CONSUMER, imports */
    AD_OWN_AFTER,  /* AFTER, FREE, and imports where the one above is busy */
    AD_N_OWN_STREAMS,
    AD_FIRST_IMPORT = AD_OWN_LENT
} ad_own_stream_number;

typedef struct ad_own_stream {
    atomic_uintptr_t handle; /* 0: not created yet */
    atomic_bool has_frees;   /* not waited for yet */
    /* Only for import streams, see ad_import_stream_take(). Whoever has set
     * `is_taken` owns `last`. */
    atomic_bool is_taken;
    atomic_bool has_other_work; /* `last` does not cover it */
    ad_sync *last;              /* after the work of the last import */
} ad_own_stream;

typedef struct ad_context_cache {
    ad_context context;
    struct ad_context_cache *next;
    ad_own_stream own[AD_N_OWN_STREAMS];
    atomic_uint turn; /* of imports, where all import streams are busy */
    ad_event_pool pools[AD_N_EVENT_POOLS];
} ad_context_cache;

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

/* Take a sync with its event out of the pool, or return NULL. */
ad_sync *ad_sync_take(ad_context_cache *cache);

/* Return a sync to its pool. False where the pool is full; the sync then still
 * belongs to the caller. */
bool ad_sync_give(ad_sync *sync);

/* --- import streams ------------------------------------------------------ */

/* Another library orders its pending work on one of them when
 * it hands over data without a stream of the caller's.
 *
 * They are the own streams from AD_FIRST_IMPORT on. Each import takes one that
 * has no pending work, so that the work of one producer delays no data of
 * another. Where all have pending work, the import takes any. Where other
 * threads have taken all, it gets the stream for work after pending data.
 */

typedef struct ad_import_stream {
    ad_stream_ref on;
    ad_own_stream *taken; /* NULL: there is nothing to give back */
} ad_import_stream;

/* Take an import stream of the device's primary context, whose runtime is
 * open. */
AD_MUST_CHECK ad_status ad_import_stream_take(ad_device device,
                                              ad_import_stream *out,
                                              ad_error *err);

/* Give the stream back. `sync` was recorded on it after the producer's work.
 * It is NULL where the producer failed or nothing was recorded. Empties *self,
 * and does nothing where *self is empty. False where the stream had died with
 * its context, which is not known before it is used. The next import gets one
 * that lives. */
bool ad_import_stream_give(ad_import_stream *self, ad_sync *sync);

#endif /* AD_ORDER_STREAMS_H */
