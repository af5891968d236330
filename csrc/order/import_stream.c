#include "order/import_stream.h"

#include "device/backend.h"

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

/* Queries the runtime whether nothing is pending on the stream. True also where
 * it is yet to be created. */
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
        ad_own_stream_get(backend, context, own, false, &out->on, err);
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
    return !ad_stream_is_usable(backend, on->context, on->stream) &&
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
               ad_stream_is_usable(backend, self->on.context,
                                   self->on.stream) &&
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
