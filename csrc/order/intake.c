#include "order/intake.h"

#include "device/backend.h"

static bool
try_take(ad_intake *intake)
{
    return !atomic_load_explicit(&intake->is_taken, memory_order_relaxed) &&
           !atomic_exchange_explicit(&intake->is_taken, true,
                                     memory_order_acquire);
}

static void
give(ad_intake *intake)
{
    atomic_store_explicit(&intake->is_taken, false, memory_order_release);
}

static void
set_last(ad_intake *intake, ad_sync *steal)
{
    ad_sync_unref(intake->last);
    intake->last = steal;
}

/* A stream that died with its context, or that a producer drew into its
 * capture, is replaced and not destroyed (see ad_stream_own). */
static void
abandon(ad_intake *intake)
{
    intake->stream.handle = 0;
    set_last(intake, NULL);
}

/* Whether nothing is pending on the stream, or it is yet to be created.
 * `asks`: the runtime is queried. */
static bool
is_idle(ad_intake *intake, bool asks)
{
    bool is_done = ad_sync_is_done(intake->last);
    if (!is_done && asks &&
        ad_sync_query(intake->last, &is_done, NULL) != AD_OK) {
        abandon(intake);
        return true;
    }
    if (is_done) {
        set_last(intake, NULL);
    }
    return is_done;
}

/* The first idle intake. With `asks` all are queried, so that the next imports
 * need no query. */
static ad_intake *
find_idle(ad_context_cache *cache, bool asks)
{
    ad_intake *found = NULL;
    for (int i = 0; i < AD_N_INTAKES && (found == NULL || asks); i++) {
        ad_intake *intake = &cache->intakes[i];
        if (!try_take(intake)) {
            continue;
        }
        if (is_idle(intake, asks) && found == NULL) {
            found = intake;
        } else {
            give(intake);
        }
    }
    return found;
}

/* Any intake that no other thread has taken. */
static ad_intake *
find_any(ad_context_cache *cache)
{
    const unsigned int turn = atomic_fetch_add(&cache->turn, 1);
    for (unsigned int i = 0; i < AD_N_INTAKES; i++) {
        ad_intake *intake = &cache->intakes[(turn + i) % AD_N_INTAKES];
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
    ad_intake *intake = find_idle(cache, false);
    if (intake == NULL) {
        backend->begin_calls(out->context);
        intake = find_idle(cache, true);
        backend->end_calls(out->context);
    }
    intake = intake != NULL ? intake : find_any(cache);
    if (intake == NULL) {
        return ad_stream_own(out->context, AD_USE_AFTER, &out->stream, err);
    }
    if (intake->stream.handle == 0) {
        ad_status status =
            backend->stream_create(out->context, &intake->stream, err);
        if (status != AD_OK) {
            abandon(intake);
            give(intake);
            return status;
        }
    }
    out->intake = intake;
    out->stream = intake->stream;
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
    ad_intake *intake = self->intake;
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
        abandon(intake);
    }
    give(intake);
    self->intake = NULL;
    return is_alive;
}
