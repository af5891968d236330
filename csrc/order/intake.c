#include "order/intake.h"

#include "device/backend.h"

static bool
try_take(ad_own_stream *intake)
{
    return !atomic_load_explicit(&intake->is_taken, memory_order_relaxed) &&
           !atomic_exchange_explicit(&intake->is_taken, true,
                                     memory_order_acquire);
}

static void
give(ad_own_stream *intake)
{
    atomic_store_explicit(&intake->is_taken, false, memory_order_release);
}

static void
set_last(ad_own_stream *intake, ad_sync *steal)
{
    ad_sync_unref(intake->last);
    intake->last = steal;
}

/* A stream that died with its context, or that a producer drew into its
 * capture, is replaced and not destroyed (see ad_stream_own). */
static void
abandon(ad_own_stream *intake, uintptr_t handle)
{
    (void)atomic_compare_exchange_strong(&intake->handle, &handle, 0);
    set_last(intake, NULL);
}

/* Whether nothing is pending on the stream, as far as is known. */
static bool
is_known_idle(const ad_own_stream *intake)
{
    return !intake->has_other_work && ad_sync_is_done(intake->last);
}

/* Queries the runtime whether nothing is pending on the stream. True also where
 * it is yet to be created. */
static bool
is_idle(ad_own_stream *intake, ad_context context)
{
    const uintptr_t handle = intake->handle;
    ad_status status = AD_OK;
    bool is_done = true;
    if (atomic_exchange(&intake->has_other_work, false) && handle != 0) {
        ad_sync *all;
        status = ad_sync_record(context, (ad_stream){handle}, &all, NULL);
        if (status == AD_OK) {
            set_last(intake, all);
        }
    }
    if (status == AD_OK) {
        status = ad_sync_query(intake->last, &is_done, NULL);
    }
    if (status != AD_OK) {
        abandon(intake, handle);
        return true;
    }
    return is_done;
}

/* The first idle intake. With `asks` all are queried, so that the next import
 * needs no query. */
static ad_own_stream *
find_idle(ad_context_cache *cache, ad_context context, bool asks)
{
    ad_own_stream *found = NULL;
    for (int i = AD_FIRST_INTAKE;
         i < AD_N_OWN_STREAMS && (found == NULL || asks); i++) {
        ad_own_stream *intake = &cache->own[i];
        if (!try_take(intake)) {
            continue;
        }
        if (is_known_idle(intake) || (asks && is_idle(intake, context))) {
            set_last(intake, NULL);
            if (found == NULL) {
                found = intake;
                continue;
            }
        }
        give(intake);
    }
    return found;
}

/* Any intake that no other thread has taken. */
static ad_own_stream *
find_any(ad_context_cache *cache)
{
    const unsigned int n = AD_N_OWN_STREAMS - AD_FIRST_INTAKE;
    const unsigned int turn = atomic_fetch_add(&cache->turn, 1);
    for (unsigned int i = 0; i < n; i++) {
        ad_own_stream *intake = &cache->own[AD_FIRST_INTAKE + (turn + i) % n];
        if (try_take(intake)) {
            return intake;
        }
    }
    return NULL;
}

ad_status
ad_intake_take(ad_device device, ad_intake_stream *out, ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(device.type);
    *out = (ad_intake_stream){.intake = NULL};
    AD_RETURN_IF_ERR(backend->primary_context(device, &out->context, err));
    ad_context_cache *cache = ad_context_cache_of(backend, &out->context);
    if (cache == NULL) {
        return ad_fail_memory(err, sizeof(*cache));
    }
    ad_own_stream *intake = find_idle(cache, out->context, false);
    if (intake == NULL) {
        backend->begin_calls(out->context);
        intake = find_idle(cache, out->context, true);
        backend->end_calls(out->context);
    }
    intake = intake != NULL ? intake : find_any(cache);
    if (intake == NULL) {
        return ad_stream_own(out->context, AD_USE_AFTER, &out->stream, err);
    }
    ad_status status = ad_own_stream_get(backend, out->context, intake, false,
                                         &out->stream, err);
    if (status != AD_OK) {
        give(intake);
        return status;
    }
    out->intake = intake;
    return AD_OK;
}

static bool
is_dead(const struct ad_backend *backend, ad_context context, ad_stream stream)
{
    return !ad_stream_is_usable(backend, context, stream) &&
           !ad_stream_is_captured(&context, stream);
}

bool
ad_intake_give(ad_intake_stream *self, ad_sync *sync)
{
    ad_own_stream *intake = self->intake;
    ad_sync *own = NULL;
    bool is_alive = true;
    if (intake == NULL) {
        return true;
    }
    const struct ad_backend *backend =
        ad_backend_for(self->context.device.type);
    if (sync != NULL && !ad_sync_is_captured(sync)) {
        set_last(intake, ad_sync_ref(sync));
    } else if (sync == NULL &&
               ad_stream_is_usable(backend, self->context, self->stream) &&
               ad_sync_record(self->context, self->stream, &own, NULL) ==
                   AD_OK) {
        set_last(intake, own);
    } else {
        is_alive = !is_dead(backend, self->context, self->stream);
        abandon(intake, self->stream.handle);
    }
    give(intake);
    self->intake = NULL;
    return is_alive;
}
