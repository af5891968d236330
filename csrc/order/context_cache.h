/* The cache of each context, which lives as long as the process: arrowdev's
 * own streams, and a pool of syncs with reusable events. For order/streams.c
 * and order/sync.c.
 */
#ifndef AD_ORDER_CONTEXT_CACHE_H
#define AD_ORDER_CONTEXT_CACHE_H

#include <stdatomic.h>

#include "base/handles.h"
#include "base/status.h"
#include "order/sync.h"
#include "device/backend.h"

#define AD_N_SHARED_STREAMS 4
#define AD_N_EVENT_POOLS 8
#define AD_EVENTS_PER_POOL 64

/* An unowned sync with an event, or NULL. */
typedef ad_sync *_Atomic ad_sync_cell;

/* Each thread tries its own pool first, which avoids contention. A sync taken
 * there returns to its cell. A cell is emptied or filled by one atomic
 * operation, so there is no lock and no ABA problem. */
typedef struct ad_event_pool {
    _Alignas(64) ad_sync_cell cells[AD_EVENTS_PER_POOL];
} ad_event_pool;

typedef struct ad_context_cache {
    ad_context context;
    struct ad_context_cache *next;
    atomic_uintptr_t own;                         /* 0: not created yet */
    atomic_uintptr_t shared[AD_N_SHARED_STREAMS]; /* 0: not created yet */
    atomic_uint turn;
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
ad_context_cache_is_of(const ad_context_cache *cache, ad_context context)
{
    return cache->context.handle == context.handle &&
           cache->context.device.id == context.device.id &&
           cache->context.device.type == context.device.type;
}

/* The newest cache is first. For ad_context_cache_of. */
extern ad_context_cache *_Atomic ad_context_caches;
ad_context_cache *ad_context_cache_find(ad_context context);

/* The cache of a context of this backend, created on first use. NULL where
 * memory is not available. The device is that of ad_device_of_runtime(). */
static inline ad_context_cache *
ad_context_cache_of(const struct ad_backend *backend, ad_context context)
{
    context.device.type = backend->device_types[0];
    ad_context_cache *youngest =
        atomic_load_explicit(&ad_context_caches, memory_order_acquire);
    return youngest != NULL && ad_context_cache_is_of(youngest, context)
               ? youngest
               : ad_context_cache_find(context);
}

/* Take a sync with its event out of the pool, or return NULL. */
ad_sync *ad_sync_take(ad_context_cache *cache);

/* Return a sync to its pool. False where the pool is full; the sync then still
 * belongs to the caller. */
bool ad_sync_give(ad_sync *sync);

/* One of the few streams of the context that consumers share, in rotation. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_context context, ad_stream *out,
                                         ad_context *out_context,
                                         ad_error *err);

/* `context`, with the handle of the primary context where none is known.
 * `backend` must be open. */
AD_MUST_CHECK ad_status ad_context_complete(const struct ad_backend *backend,
                                            ad_context context,
                                            ad_context *out, ad_error *err);

#endif /* AD_ORDER_CONTEXT_CACHE_H */
