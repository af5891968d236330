/* What arrowdev keeps per context, for as long as the process lives: its own
 * streams, and syncs whose events wait to be used again. For order/streams.c, sync.c.
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

/* A sync with an event, that nobody owns, or NULL. */
typedef ad_sync *_Atomic ad_sync_cell;

/* A thread has a pool that it tries first, so that threads do not meet, and
 * what it took there goes back there. Each cell is taken and filled by one
 * atomic step of its own, so there is no lock, and no ABA to think of. */
typedef struct ad_event_pool {
    _Alignas(64) ad_sync_cell cells[AD_EVENTS_PER_POOL];
} ad_event_pool;

typedef struct ad_context_cache {
    ad_context context;
    struct ad_context_cache *next;
    atomic_uintptr_t own;                         /* 0: not made yet */
    atomic_uintptr_t shared[AD_N_SHARED_STREAMS]; /* 0: not made yet */
    atomic_uint turn;
    ad_event_pool pools[AD_N_EVENT_POOLS];
} ad_context_cache;

/* The type under which all memory of one runtime is known: "cuda" for pinned
 * and managed memory, too. */
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

/* The youngest first; for what follows. */
extern ad_context_cache *_Atomic ad_context_caches;
ad_context_cache *ad_context_cache_find(ad_context context);

/* The cache of a context of this backend, made on first need. NULL: no memory
 * for one. The device is taken as ad_device_of_runtime() has it. */
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

/* A sync of the pool with its event, or NULL. */
ad_sync *ad_sync_take(ad_context_cache *cache);

/* To its pool. False: that is full, and the sync still the caller's. */
bool ad_sync_give(ad_sync *sync);

/* One of the few streams of the context that are lent to consumers, in
 * turn. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_context context, ad_stream *out,
                                         ad_context *out_context,
                                         ad_error *err);

/* `context`, with the handle that the runtime has for it where none is known.
 * `backend` is open. */
AD_MUST_CHECK ad_status ad_context_complete(const struct ad_backend *backend,
                                            ad_context context,
                                            ad_context *out, ad_error *err);

#endif /* AD_ORDER_CONTEXT_CACHE_H */
