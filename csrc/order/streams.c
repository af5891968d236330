#include "order/streams.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/thread_local.h"
#include "device/backend.h"

/* --- the context cache --------------------------------------------------- */

/* The list only grows, so readers need no lock. It has one entry for each
 * context that was ever used. */
ad_context_cache *_Atomic ad_context_caches;

static ad_context_cache *
search(ad_context_cache *cache, const ad_context_cache *end,
       const struct ad_backend *backend, const ad_context *context)
{
    while (cache != end && !ad_context_cache_is_of(cache, backend, context)) {
        cache = cache->next;
    }
    return cache != end ? cache : NULL;
}

static ad_context_cache *
insert(ad_context_cache *head, const struct ad_backend *backend,
       const ad_context *context)
{
    ad_context_cache *cache = ad_aligned_alloc(64, sizeof(*cache));
    if (cache == NULL) {
        return NULL;
    }
    *cache = (ad_context_cache){.context = *context, .next = head};
    cache->context.device.type = backend->device_types[0];
    while (!atomic_compare_exchange_weak(&ad_context_caches, &cache->next,
                                         cache)) {
        /* Another thread inserted first, perhaps the same context. */
        ad_context_cache *other = search(cache->next, head, backend, context);
        if (other != NULL) {
            ad_aligned_free(cache);
            return other;
        }
    }
    return cache;
}

ad_context_cache *
ad_context_cache_find(const struct ad_backend *backend,
                      const ad_context *context)
{
    ad_context_cache *head =
        atomic_load_explicit(&ad_context_caches, memory_order_acquire);
    ad_context_cache *found = search(head, NULL, backend, context);
    return found != NULL ? found : insert(head, backend, context);
}

/* --- pooled syncs -------------------------------------------------------- */

/* The number of the pool that the thread tries first. */
static inline size_t
first_pool(uintptr_t thread)
{
    return (size_t)((uint64_t)thread * UINT64_C(0x9E3779B97F4A7C15) >> 32) %
           AD_N_EVENT_POOLS;
}

/* Whether only this thread uses `kept` of the pool. When that thread has
 * ended, the next one with its ad_thread_self() has it. */
static inline bool
is_pool_of(ad_event_pool *pool, uintptr_t thread)
{
    return atomic_load_explicit(&pool->thread, memory_order_relaxed) == thread;
}

/* The first thread that has to take an event from elsewhere gets `kept`. Each
 * such event is one that it needs besides those that come back to it, so it
 * has room for one more. A thread that gives back more than it takes, as the
 * ones that complete releases do, has no room for the others' events, which
 * nobody could take from there. */
static void
make_room(ad_event_pool *pool, uintptr_t thread)
{
    uintptr_t owner = 0;
    bool is_mine =
        is_pool_of(pool, thread) ||
        atomic_compare_exchange_strong(&pool->thread, &owner, thread);
    size_t n = atomic_load_explicit(&pool->n_room, memory_order_relaxed);
    if (is_mine && n < AD_EVENTS_PER_THREAD) {
        atomic_store_explicit(&pool->n_room, n + 1, memory_order_relaxed);
    }
}

/* Cell `i` of all pools, beginning with pool `first`. */
static inline ad_sync_cell *
cell_at(ad_context_cache *cache, size_t first, size_t i)
{
    size_t pool = first + i / AD_EVENTS_PER_POOL;
    return &cache->pools[pool % AD_N_EVENT_POOLS]
                .cells[i % AD_EVENTS_PER_POOL];
}

static ad_sync *
take_from_cells(ad_context_cache *cache, size_t first)
{
    ad_sync *sync = NULL;
    for (size_t i = 0;
         i < AD_N_EVENT_POOLS * AD_EVENTS_PER_POOL && sync == NULL; i++) {
        ad_sync_cell *cell = cell_at(cache, first, i);
        if (atomic_load_explicit(cell, memory_order_relaxed) != NULL) {
            sync = atomic_exchange_explicit(cell, NULL, memory_order_acquire);
        }
    }
    return sync;
}

static bool
give_to_cells(ad_sync *sync, size_t first)
{
    for (size_t i = 0; i < AD_N_EVENT_POOLS * AD_EVENTS_PER_POOL; i++) {
        ad_sync_cell *cell = cell_at(sync->cache, first, i);
        ad_sync *empty = NULL;
        if (atomic_load_explicit(cell, memory_order_relaxed) == NULL &&
            atomic_compare_exchange_strong_explicit(cell, &empty, sync,
                                                    memory_order_release,
                                                    memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

ad_sync *
ad_sync_take(ad_context_cache *cache)
{
    const uintptr_t thread = ad_thread_self();
    const size_t first = first_pool(thread);
    ad_event_pool *pool = &cache->pools[first];
    size_t n = atomic_load_explicit(&pool->n_kept, memory_order_relaxed);
    if (n == 0 || !is_pool_of(pool, thread)) {
        make_room(pool, thread);
        return take_from_cells(cache, first);
    }
    atomic_store_explicit(&pool->n_kept, n - 1, memory_order_relaxed);
    return atomic_load_explicit(&pool->kept[n - 1], memory_order_relaxed);
}

bool
ad_sync_give(ad_sync *sync)
{
    const uintptr_t thread = ad_thread_self();
    const size_t first = first_pool(thread);
    ad_event_pool *pool = &sync->cache->pools[first];
    size_t n = atomic_load_explicit(&pool->n_kept, memory_order_relaxed);
    if (n == atomic_load_explicit(&pool->n_room, memory_order_relaxed) ||
        !is_pool_of(pool, thread)) {
        return give_to_cells(sync, first);
    }
    atomic_store_explicit(&pool->kept[n], sync, memory_order_relaxed);
    atomic_store_explicit(&pool->n_kept, n + 1, memory_order_relaxed);
    return true;
}

/* --- arrowdev's own streams ---------------------------------------------- */

ad_status
ad_context_complete(const struct ad_backend *backend, ad_context context,
                    ad_context *out, ad_error *err)
{
    if (context.handle == NULL) {
        return backend->primary_context(context.device, out, err);
    }
    *out = context;
    return AD_OK;
}

/* Whether the runtime knows a stream of arrowdev's own still, and it is not
 * being captured. A runtime without graphs has no device resets either, and
 * needs no query. */
static bool
is_usable(const struct ad_backend *backend, ad_context context,
          ad_stream stream)
{
    bool is_captured = false;
    return (backend->capabilities & AD_CAP_CAPTURE) == 0 ||
           (backend->stream_is_capturing(context, stream, &is_captured,
                                         NULL) == AD_OK &&
            !is_captured);
}

/* The stream, created where there is none. With `asks` the runtime is asked
 * whether it is usable, and a new one replaces one that is not. Two threads
 * may both create a stream; the second destroys its own. An unusable stream
 * is replaced and not destroyed, because it is gone already or belongs to a
 * capture that is still to end. */
static ad_status
get_own_stream(const struct ad_backend *backend, ad_context context,
               ad_own_stream *own, bool asks, ad_stream_ref *out,
               ad_error *err)
{
    uintptr_t known = atomic_load_explicit(&own->handle, memory_order_acquire);
    if (known == 0 ||
        (asks && !is_usable(backend, context, (ad_stream){known}))) {
        ad_stream made;
        AD_RETURN_IF_ERR(backend->stream_create(context, &made, err));
        if (atomic_compare_exchange_strong(&own->handle, &known,
                                           made.handle)) {
            known = made.handle;
        } else {
            backend->stream_destroy(context, made);
        }
    }
    *out = (ad_stream_ref){.context = context,
                           .stream = {known},
                           .has_context = true,
                           .kind = AD_REF_OWN};
    return AD_OK;
}

static ad_status
open_cache(ad_context context, const struct ad_backend **backend,
           ad_context *out_context, ad_context_cache **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, backend, err));
    AD_RETURN_IF_ERR(ad_context_complete(*backend, context, out_context, err));
    *out = ad_context_cache_of(*backend, out_context);
    return *out != NULL ? AD_OK : ad_fail_memory(err, sizeof(**out));
}

/* Reads and other work share a stream, rather than uploads and other work:
 * uploads queue up, whereas the host waits for most reads, so that other work
 * finds an idle stream. */
static const ad_own_stream_number stream_for[AD_N_STREAM_USES] = {
    [AD_USE_READ] = AD_OWN_READ,     [AD_USE_WORK] = AD_OWN_READ,
    [AD_USE_UPLOAD] = AD_OWN_UPLOAD, [AD_USE_AFTER] = AD_OWN_AFTER,
    [AD_USE_FREE] = AD_OWN_AFTER,    [AD_USE_CONSUMER] = AD_OWN_LENT,
};

ad_status
ad_stream_own(ad_context context, ad_stream_use use, ad_stream_ref *out,
              ad_error *err)
{
    const struct ad_backend *backend;
    ad_context_cache *cache;
    AD_RETURN_IF_ERR(open_cache(context, &backend, &context, &cache, err));
    ad_own_stream *own = &cache->own[stream_for[use]];
    if (stream_for[use] >= AD_FIRST_IMPORT) {
        atomic_store(&own->has_other_work, true);
    }
    return get_own_stream(backend, context, own, true, out, err);
}

ad_status
ad_stream_shared(ad_context context, ad_stream_ref *out, ad_error *err)
{
    return ad_stream_own(context, AD_USE_CONSUMER, out, err);
}

void
ad_stream_note_free(const ad_stream_ref *on)
{
    ad_context_cache *cache = ad_context_cache_of(
        ad_backend_for(on->context.device.type), &on->context);
    for (int i = 0; i < AD_N_OWN_STREAMS && cache != NULL; i++) {
        if (cache->own[i].handle == on->stream.handle) {
            atomic_store(&cache->own[i].has_frees, true);
        }
    }
}

static ad_status
wait_for_own(ad_context context, ad_own_stream *own, ad_error *err)
{
    const struct ad_backend *backend;
    ad_stream_ref on;
    ad_sync *sync;
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    AD_RETURN_IF_ERR(ad_context_complete(backend, context, &context, err));
    AD_RETURN_IF_ERR(get_own_stream(backend, context, own, true, &on, err));
    AD_RETURN_IF_ERR(ad_sync_record(&on, &sync, err));
    ad_status status = ad_sync_wait(sync, "an allocation", err);
    ad_sync_unref(sync);
    return status;
}

bool
ad_stream_wait_for_frees(ad_context context)
{
    ad_context_cache *cache =
        ad_context_cache_of(ad_backend_for(context.device.type), &context);
    bool is_any = false;
    for (int i = 0; i < AD_N_OWN_STREAMS && cache != NULL; i++) {
        ad_error ignored;
        if (atomic_exchange(&cache->own[i].has_frees, false)) {
            is_any |= wait_for_own(context, &cache->own[i], &ignored) == AD_OK;
        }
    }
    return is_any;
}

/* --- use_stream ---------------------------------------------------------- */

static ad_stream_current_fn find_current;
atomic_long ad_n_stream_scopes;
static AD_THREAD_LOCAL unsigned int n_hidden;

void
ad_stream_set_current(ad_stream_current_fn find)
{
    find_current = find;
}

bool
ad_stream_find_current(ad_device device, ad_stream_ref *out)
{
    return find_current != NULL && n_hidden == 0 && find_current(device, out);
}

void
ad_stream_hide_current(void)
{
    n_hidden++;
}

void
ad_stream_show_current(void)
{
    n_hidden--;
}

ad_status
ad_stream_choose(ad_context context, const ad_stream_ref *wanted,
                 ad_stream_use use, ad_stream_ref *out, ad_error *err)
{
    const struct ad_backend *backend;
    if (ad_stream_is_given(wanted)) {
        *out = *wanted;
    } else if (!ad_stream_current(context.device, out)) {
        return ad_stream_own(context, use, out, err);
    }
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    return ad_stream_resolve(out, backend, context, err);
}

/* --- import streams ------------------------------------------------------ */

static bool
try_take(ad_own_stream *own)
{
    return !atomic_load_explicit(&own->is_taken, memory_order_relaxed) &&
           !atomic_exchange_explicit(&own->is_taken, true,
                                     memory_order_acquire);
}

static void
give(ad_own_stream *own)
{
    atomic_store_explicit(&own->is_taken, false, memory_order_release);
}

static void
set_last(ad_own_stream *own, ad_sync *steal)
{
    ad_sync_unref(own->last);
    own->last = steal;
}

/* A stream that died with its context, or that a producer drew into its
 * capture, is replaced and not destroyed (see ad_stream_own). */
static void
abandon(ad_own_stream *own, uintptr_t handle)
{
    (void)atomic_compare_exchange_strong(&own->handle, &handle, 0);
    set_last(own, NULL);
}

/* Whether nothing is pending on the stream, as far as is known. */
static bool
is_known_idle(const ad_own_stream *own)
{
    return !own->has_other_work && ad_sync_is_done(own->last);
}

/* Queries the runtime whether nothing is pending on the stream. True also
 * where it is yet to be created. */
static bool
is_idle(ad_own_stream *own, ad_context context)
{
    const uintptr_t handle = own->handle;
    ad_status status = AD_OK;
    bool is_done = true;
    if (atomic_exchange(&own->has_other_work, false) && handle != 0) {
        ad_sync *all;
        const ad_stream_ref on = {.context = context,
                                  .stream = {handle},
                                  .has_context = true,
                                  .kind = AD_REF_OWN};
        status = ad_sync_record(&on, &all, NULL);
        if (status == AD_OK) {
            set_last(own, all);
        }
    }
    if (status == AD_OK) {
        status = ad_sync_query(own->last, &is_done, NULL);
    }
    if (status != AD_OK) {
        abandon(own, handle);
        return true;
    }
    return is_done;
}

/* The first idle own. With `asks` all are queried, so that the next import
 * needs no query. */
static ad_own_stream *
find_idle(ad_context_cache *cache, ad_context context, bool asks)
{
    ad_own_stream *found = NULL;
    for (int i = AD_FIRST_IMPORT;
         i < AD_N_OWN_STREAMS && (found == NULL || asks); i++) {
        ad_own_stream *own = &cache->own[i];
        if (!try_take(own)) {
            continue;
        }
        if (is_known_idle(own) || (asks && is_idle(own, context))) {
            set_last(own, NULL);
            if (found == NULL) {
                found = own;
                continue;
            }
        }
        give(own);
    }
    return found;
}

/* Any own that no other thread has taken. */
static ad_own_stream *
find_any(ad_context_cache *cache)
{
    const unsigned int n = AD_N_OWN_STREAMS - AD_FIRST_IMPORT;
    const unsigned int turn = atomic_fetch_add(&cache->turn, 1);
    for (unsigned int i = 0; i < n; i++) {
        ad_own_stream *own = &cache->own[AD_FIRST_IMPORT + (turn + i) % n];
        if (try_take(own)) {
            return own;
        }
    }
    return NULL;
}

ad_status
ad_import_stream_take(ad_device device, ad_import_stream *out, ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(device.type);
    ad_context context;
    *out = (ad_import_stream){.taken = NULL};
    AD_RETURN_IF_ERR(backend->primary_context(device, &context, err));
    ad_context_cache *cache = ad_context_cache_of(backend, &context);
    if (cache == NULL) {
        return ad_fail_memory(err, sizeof(*cache));
    }
    ad_own_stream *own = find_idle(cache, context, false);
    if (own == NULL) {
        backend->begin_calls(context);
        own = find_idle(cache, context, true);
        backend->end_calls(context);
    }
    own = own != NULL ? own : find_any(cache);
    if (own == NULL) {
        return ad_stream_own(context, AD_USE_AFTER, &out->on, err);
    }
    ad_status status =
        get_own_stream(backend, context, own, false, &out->on, err);
    if (status != AD_OK) {
        give(own);
        return status;
    }
    out->taken = own;
    return AD_OK;
}

static bool
is_dead(const struct ad_backend *backend, const ad_stream_ref *on)
{
    return !is_usable(backend, on->context, on->stream) &&
           !ad_stream_is_captured(on);
}

bool
ad_import_stream_give(ad_import_stream *self, ad_sync *sync)
{
    ad_own_stream *own = self->taken;
    ad_sync *last = NULL;
    bool is_alive = true;
    if (own == NULL) {
        return true;
    }
    const struct ad_backend *backend =
        ad_backend_for(self->on.context.device.type);
    if (sync != NULL && !ad_sync_is_captured(sync)) {
        set_last(own, ad_sync_ref(sync));
    } else if (sync == NULL &&
               is_usable(backend, self->on.context, self->on.stream) &&
               ad_sync_record(&self->on, &last, NULL) == AD_OK) {
        set_last(own, last);
    } else {
        is_alive = !is_dead(backend, &self->on);
        abandon(own, self->on.stream.handle);
    }
    give(own);
    self->taken = NULL;
    return is_alive;
}
