#include "order/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "base/thread_local.h"

uint64_t
ad_thread_number(void)
{
    static atomic_uint_fast64_t n_threads;
    static AD_THREAD_LOCAL uint64_t mine;
    if (mine == 0) {
        mine = 1 + atomic_fetch_add(&n_threads, 1);
    }
    return mine;
}

/* One for each watched thread. The list only grows, and entries of threads
 * that ended (number 0) are used again, so there is no lock. */
typedef struct watched_thread {
    struct watched_thread *next;
    atomic_uint_fast64_t number;
} watched_thread;

static watched_thread *_Atomic watched_threads;
static pthread_key_t watch_key;
static bool has_watch_key;
static pthread_once_t watch_once = PTHREAD_ONCE_INIT;

static void
end_watch(void *watch)
{
    atomic_store(&((watched_thread *)watch)->number, 0);
}

static void
make_watch_key(void)
{
    has_watch_key = pthread_key_create(&watch_key, end_watch) == 0;
}

static watched_thread *
find_watch(uint64_t number)
{
    watched_thread *watch = atomic_load(&watched_threads);
    while (watch != NULL && atomic_load(&watch->number) != number) {
        watch = watch->next;
    }
    return watch;
}

static watched_thread *
take_watch(uint64_t number)
{
    uint64_t none = 0;
    watched_thread *watch = find_watch(0);
    if (watch == NULL ||
        !atomic_compare_exchange_strong(&watch->number, &none, number)) {
        watch = malloc(sizeof(*watch));
        if (watch == NULL) {
            return NULL;
        }
        atomic_init(&watch->number, number);
        watch->next = atomic_load(&watched_threads);
        while (!atomic_compare_exchange_weak(&watched_threads, &watch->next,
                                             watch)) {
        }
    }
    return watch;
}

bool
ad_thread_watch(void)
{
    static AD_THREAD_LOCAL bool is_watched;
    (void)pthread_once(&watch_once, make_watch_key);
    if (!is_watched && has_watch_key) {
        watched_thread *watch = take_watch(ad_thread_number());
        is_watched =
            watch != NULL && pthread_setspecific(watch_key, watch) == 0;
        if (watch != NULL && !is_watched) {
            end_watch(watch);
        }
    }
    return is_watched;
}

bool
ad_thread_is_there(uint64_t number)
{
    return find_watch(number) != NULL;
}

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
    ad_context_cache *cache = aligned_alloc(64, sizeof(*cache));
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
            free(cache);
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

/* Whether only this thread uses `kept` of the pool. When that thread has ended,
 * the next one with its pthread_self() has it. */
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
    const uintptr_t thread = (uintptr_t)pthread_self();
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
    const uintptr_t thread = (uintptr_t)pthread_self();
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

ad_status
ad_stream_require_no_capture(ad_context context, ad_stream stream,
                             const char *operation, ad_error *err)
{
    if (!ad_stream_is_captured(&context, stream)) {
        return AD_OK;
    }
    return ad_fail_on(
        err, context.device, "capture",
        "do it before the capture begins, or on a stream that is not "
        "captured (stream=...)",
        "the stream is being captured into a graph, and %s allocates, "
        "waits or records an event, which a graph cannot do again",
        operation);
}

/* A runtime without graphs has no device resets either, and needs no query. */
bool
ad_stream_is_usable(const struct ad_backend *backend, ad_context context,
                    ad_stream stream)
{
    bool is_captured = false;
    return (backend->capabilities & AD_CAP_CAPTURE) == 0 ||
           (backend->stream_is_capturing(context, stream, &is_captured,
                                         NULL) == AD_OK &&
            !is_captured);
}

/* Two threads may both create a stream; the second destroys its own. An
 * unusable stream is replaced and not destroyed, because it is gone already or
 * belongs to a capture that is still to end. */
ad_status
ad_own_stream_get(const struct ad_backend *backend, ad_context context,
                  ad_own_stream *own, bool asks, ad_stream *out, ad_error *err)
{
    uintptr_t known = atomic_load_explicit(&own->handle, memory_order_acquire);
    if (known == 0 ||
        (asks && !ad_stream_is_usable(backend, context, (ad_stream){known}))) {
        ad_stream made;
        AD_RETURN_IF_ERR(backend->stream_create(context, &made, err));
        if (atomic_compare_exchange_strong(&own->handle, &known,
                                           made.handle)) {
            known = made.handle;
        } else {
            backend->stream_destroy(context, made);
        }
    }
    out->handle = known;
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

static ad_status
find_own(ad_context context, ad_stream_use use, ad_stream *out,
         ad_context *out_context, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context_cache *cache;
    AD_RETURN_IF_ERR(open_cache(context, &backend, out_context, &cache, err));
    ad_own_stream *own = &cache->own[stream_for[use]];
    if (stream_for[use] >= AD_FIRST_INTAKE) {
        atomic_store(&own->has_other_work, true);
    }
    return ad_own_stream_get(backend, *out_context, own, true, out, err);
}

ad_status
ad_stream_own(ad_context context, ad_stream_use use, ad_stream *out,
              ad_error *err)
{
    ad_context context_of_stream;
    return find_own(context, use, out, &context_of_stream, err);
}

ad_status
ad_stream_shared(ad_context context, ad_stream *out, ad_context *out_context,
                 ad_error *err)
{
    return find_own(context, AD_USE_CONSUMER, out, out_context, err);
}

bool
ad_stream_is_own(const struct ad_backend *backend, ad_context context,
                 ad_stream stream)
{
    const ad_context_cache *cache = ad_context_cache_of(backend, &context);
    bool is_own = false;
    for (int i = 0; i < AD_N_OWN_STREAMS && cache != NULL; i++) {
        is_own |= cache->own[i].handle == stream.handle;
    }
    return is_own;
}

void
ad_stream_note_free(ad_context context, ad_stream stream)
{
    ad_context_cache *cache =
        ad_context_cache_of(ad_backend_for(context.device.type), &context);
    for (int i = 0; i < AD_N_OWN_STREAMS && cache != NULL; i++) {
        if (cache->own[i].handle == stream.handle) {
            atomic_store(&cache->own[i].has_frees, true);
        }
    }
}

static ad_status
wait_for_own(ad_context context, ad_own_stream *own, ad_error *err)
{
    const struct ad_backend *backend;
    ad_stream stream;
    ad_sync *sync;
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    AD_RETURN_IF_ERR(ad_context_complete(backend, context, &context, err));
    AD_RETURN_IF_ERR(
        ad_own_stream_get(backend, context, own, true, &stream, err));
    AD_RETURN_IF_ERR(ad_sync_record(context, stream, &sync, err));
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

ad_stream_identity
ad_stream_identify(ad_context context, ad_stream stream, const ad_owner *keep)
{
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    ad_stream_identity identity = {.is_known = false};
    identity.is_known = keep == NULL &&
                        !ad_stream_is_default(context.device, stream) &&
                        !ad_stream_is_own(backend, context, stream) &&
                        backend->stream_id(context, stream, &identity.id);
    return identity;
}

/* The number that was seen last under a handle. Where two stores mix, the
 * number is that of a stream with another handle, which is the same as
 * none. */
#define SEEN_BITS 6
typedef struct seen_stream {
    atomic_uintptr_t handle;
    _Atomic(uint64_t) id;
} seen_stream;
static seen_stream seen[1 << SEEN_BITS];

static seen_stream *
seen_at(ad_stream stream)
{
    uint64_t hash = (uint64_t)stream.handle * UINT64_C(0x9E3779B97F4A7C15);
    return &seen[hash >> (64 - SEEN_BITS)];
}

static void
see(ad_stream stream, uint64_t id)
{
    seen_stream *at = seen_at(stream);
    atomic_store(&at->handle, stream.handle);
    atomic_store(&at->id, id);
}

ad_stream_identity
ad_stream_recall(const ad_context *context, ad_stream stream)
{
    const seen_stream *at = seen_at(stream);
    if (!ad_stream_is_default(context->device, stream) &&
        atomic_load(&at->handle) == stream.handle) {
        return (ad_stream_identity){true, atomic_load(&at->id)};
    }
    ad_stream_identity identity = ad_stream_identify(*context, stream, NULL);
    if (identity.is_known) {
        see(stream, identity.id);
    }
    return identity;
}

bool
ad_stream_is_same(ad_context context, ad_stream stream,
                  ad_stream_identity identity)
{
    uint64_t id;
    if (!identity.is_known) {
        return true;
    }
    if (!ad_backend_for(context.device.type)
             ->stream_id(context, stream, &id)) {
        return false;
    }
    if (id != identity.id) {
        see(stream, id);
    }
    return id == identity.id;
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
ad_stream_find_current(ad_device device, ad_stream_choice *out)
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
ad_stream_choose(ad_context context, const ad_stream_choice *wanted,
                 ad_stream_use use, ad_stream_choice *out,
                 ad_context *out_context, ad_error *err)
{
    const struct ad_backend *backend;
    if (wanted != NULL && wanted->is_given) {
        *out = *wanted;
    } else if (!ad_stream_current(context.device, out)) {
        *out = (ad_stream_choice){.is_given = true};
        return find_own(context, use, &out->stream, out_context, err);
    }
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    return backend->stream_context(out->stream, context, out_context, err);
}
