#include "order/context_cache.h"

#include <stdlib.h>

#include "order/streams.h"

/* The list only grows, so readers need no lock. It has one entry for each
 * context that was ever used. */
ad_context_cache *_Atomic ad_context_caches;

static ad_context_cache *
search(ad_context_cache *cache, const ad_context_cache *end,
       ad_context context)
{
    while (cache != end && !ad_context_cache_is_of(cache, context)) {
        cache = cache->next;
    }
    return cache != end ? cache : NULL;
}

static ad_context_cache *
insert(ad_context_cache *head, ad_context context)
{
    ad_context_cache *cache = aligned_alloc(64, sizeof(*cache));
    if (cache == NULL) {
        return NULL;
    }
    cache->context = context;
    atomic_init(&cache->own, 0);
    atomic_init(&cache->turn, 0);
    for (size_t i = 0; i < AD_N_SHARED_STREAMS; i++) {
        atomic_init(&cache->shared[i], 0);
    }
    for (size_t i = 0; i < AD_N_EVENT_POOLS; i++) {
        for (size_t j = 0; j < AD_EVENTS_PER_POOL; j++) {
            atomic_init(&cache->pools[i].cells[j], NULL);
        }
    }
    cache->next = head;
    while (!atomic_compare_exchange_weak(&ad_context_caches, &cache->next,
                                         cache)) {
        /* Another thread inserted first, perhaps the same context. */
        ad_context_cache *other = search(cache->next, head, context);
        if (other != NULL) {
            free(cache);
            return other;
        }
    }
    return cache;
}

ad_context_cache *
ad_context_cache_find(ad_context context)
{
    ad_context_cache *head =
        atomic_load_explicit(&ad_context_caches, memory_order_acquire);
    ad_context_cache *found = search(head, NULL, context);
    return found != NULL ? found : insert(head, context);
}

/* --- syncs --------------------------------------------------------------- */

static unsigned
my_pool(void)
{
    return (unsigned)(ad_thread_number() % AD_N_EVENT_POOLS);
}

static ad_sync *
take_from(ad_sync_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed) != NULL
               ? atomic_exchange_explicit(cell, NULL, memory_order_acquire)
               : NULL;
}

static bool
give_to(ad_sync_cell *cell, ad_sync *sync)
{
    ad_sync *empty = NULL;
    return atomic_load_explicit(cell, memory_order_relaxed) == NULL &&
           atomic_compare_exchange_strong_explicit(
               cell, &empty, sync, memory_order_release, memory_order_relaxed);
}

ad_sync *
ad_sync_take(ad_context_cache *cache)
{
    unsigned start = my_pool();
    for (unsigned i = 0; i < AD_N_EVENT_POOLS; i++) {
        ad_event_pool *pool = &cache->pools[(start + i) % AD_N_EVENT_POOLS];
        for (size_t j = 0; j < AD_EVENTS_PER_POOL; j++) {
            ad_sync *sync = take_from(&pool->cells[j]);
            if (sync != NULL) {
                sync->cell = i == 0 ? &pool->cells[j] : NULL;
                return sync;
            }
        }
    }
    return NULL;
}

bool
ad_sync_give(ad_sync *sync)
{
    if (sync->cell != NULL && give_to(sync->cell, sync)) {
        return true;
    }
    unsigned start = my_pool();
    for (unsigned i = 0; i < AD_N_EVENT_POOLS; i++) {
        ad_event_pool *pool =
            &sync->cache->pools[(start + i) % AD_N_EVENT_POOLS];
        for (size_t j = 0; j < AD_EVENTS_PER_POOL; j++) {
            if (give_to(&pool->cells[j], sync)) {
                return true;
            }
        }
    }
    return false;
}
