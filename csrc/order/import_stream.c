#include "order/import_stream.h"

#include "device/backend.h"

static bool
try_take(ad_import_slot *slot)
{
    return !atomic_load_explicit(&slot->is_taken, memory_order_relaxed) &&
           !atomic_exchange_explicit(&slot->is_taken, true,
                                     memory_order_acquire);
}

static void
give(ad_import_slot *slot)
{
    atomic_store_explicit(&slot->is_taken, false, memory_order_release);
}

static void
set_last(ad_import_slot *slot, ad_sync *steal)
{
    ad_sync_unref(slot->last);
    slot->last = steal;
}

/* A stream that died with its context, or that a producer drew into its
 * capture, is replaced and not destroyed (see ad_stream_own). */
static void
abandon(ad_import_slot *slot)
{
    slot->stream.handle = 0;
    set_last(slot, NULL);
}

/* Whether nothing is pending on the stream, or it is yet to be created.
 * `asks`: the runtime is queried. */
static bool
is_idle(ad_import_slot *slot, bool asks)
{
    bool is_done = ad_sync_is_done(slot->last);
    if (!is_done && asks &&
        ad_sync_query(slot->last, &is_done, NULL) != AD_OK) {
        abandon(slot);
        return true;
    }
    if (is_done) {
        set_last(slot, NULL);
    }
    return is_done;
}

/* The first idle slot. With `asks` all are queried, so that the next imports
 * need no query. */
static ad_import_slot *
find_idle(ad_context_cache *cache, bool asks)
{
    ad_import_slot *found = NULL;
    for (int i = 0; i < AD_N_IMPORT_STREAMS && (found == NULL || asks); i++) {
        ad_import_slot *slot = &cache->import_slots[i];
        if (!try_take(slot)) {
            continue;
        }
        if (is_idle(slot, asks) && found == NULL) {
            found = slot;
        } else {
            give(slot);
        }
    }
    return found;
}

/* Any slot that no other thread has taken. */
static ad_import_slot *
find_any(ad_context_cache *cache)
{
    const unsigned int turn = atomic_fetch_add(&cache->turn, 1);
    for (unsigned int i = 0; i < AD_N_IMPORT_STREAMS; i++) {
        ad_import_slot *slot =
            &cache->import_slots[(turn + i) % AD_N_IMPORT_STREAMS];
        if (try_take(slot)) {
            return slot;
        }
    }
    return NULL;
}

ad_status
ad_import_stream_take(ad_device device, ad_import_stream *out, ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(device.type);
    ad_context context;
    *out = (ad_import_stream){.slot = NULL};
    AD_RETURN_IF_ERR(backend->primary_context(device, &context, err));
    ad_context_cache *cache = ad_context_cache_of(backend, &context);
    if (cache == NULL) {
        return ad_fail_memory(err, sizeof(*cache));
    }
    ad_import_slot *slot = find_idle(cache, false);
    if (slot == NULL) {
        backend->begin_calls(context);
        slot = find_idle(cache, true);
        backend->end_calls(context);
    }
    slot = slot != NULL ? slot : find_any(cache);
    if (slot == NULL) {
        return ad_stream_own(context, AD_USE_AFTER, &out->on, err);
    }
    if (slot->stream.handle == 0) {
        ad_status status = backend->stream_create(context, &slot->stream, err);
        if (status != AD_OK) {
            abandon(slot);
            give(slot);
            return status;
        }
    }
    out->slot = slot;
    out->on = (ad_stream_ref){.context = context,
                              .stream = slot->stream,
                              .has_context = true,
                              .kind = AD_REF_OWN};
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
    ad_import_slot *slot = self->slot;
    ad_sync *own = NULL;
    bool is_alive = true;
    if (slot == NULL) {
        return true;
    }
    const struct ad_backend *backend =
        ad_backend_for(self->on.context.device.type);
    if (sync != NULL && !ad_sync_is_captured(sync)) {
        set_last(slot, ad_sync_ref(sync));
    } else if (sync == NULL &&
               ad_stream_is_usable(backend, self->on.context,
                                   self->on.stream) &&
               ad_sync_record(&self->on, &own, NULL) == AD_OK) {
        set_last(slot, own);
    } else {
        is_alive = !is_dead(backend, &self->on);
        abandon(slot);
    }
    give(slot);
    self->slot = NULL;
    return is_alive;
}
