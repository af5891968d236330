#include "order/streams.h"

#include <stdatomic.h>

#include "order/context_cache.h"

uint64_t
ad_thread_number(void)
{
    static atomic_uint_fast64_t n_threads;
    static _Thread_local uint64_t mine;
    if (mine == 0) {
        mine = 1 + atomic_fetch_add(&n_threads, 1);
    }
    return mine;
}

/* --- arrowdev's own --------------------------------------------------------- */

ad_status
ad_place_complete(const struct ad_backend *backend, ad_place place,
                  ad_place *out, ad_error *err)
{
    if (place.context == NULL) {
        return backend->primary_context(place.device, out, err);
    }
    *out = place;
    return AD_OK;
}

bool
ad_stream_is_captured(ad_place place, ad_stream stream)
{
    bool is_captured = false;
    const struct ad_backend *backend = ad_backend_for(place.device.type);
    return (backend->capabilities & AD_CAP_CAPTURE) != 0 &&
           backend->stream_is_capturing(place, stream, &is_captured, NULL) ==
               AD_OK &&
           is_captured;
}

ad_status
ad_stream_require_no_capture(ad_place place, ad_stream stream,
                             const char *consumer, ad_error *err)
{
    if (!ad_stream_is_captured(place, stream)) {
        return AD_OK;
    }
    ad_fail(err, AD_ERR_EXCHANGE, "capture",
            "do it before the capture begins, or on a stream that is not "
            "captured (stream=...)",
            "the stream is being captured into a graph, and %s allocates, "
            "waits or records an event, which a graph cannot do again",
            consumer);
    ad_error_device(err, place.device);
    return AD_ERR_EXCHANGE;
}

/* Of runtimes without graphs, which have no resets either, nobody asks. */
static bool
is_usable(const struct ad_backend *backend, ad_place place, uintptr_t handle)
{
    bool is_captured = false;
    return (backend->capabilities & AD_CAP_CAPTURE) == 0 ||
           (backend->stream_is_capturing(place, (ad_stream){handle},
                                         &is_captured, NULL) == AD_OK &&
            !is_captured);
}

/* Two threads may both make one: the second to come throws its own away. One
 * that is of no use any more is replaced and not destroyed: it is gone, or in
 * a graph that somebody will end. */
static ad_status
make_once(const struct ad_backend *backend, ad_place place,
          atomic_uintptr_t *cell, ad_stream *out, ad_error *err)
{
    uintptr_t known = atomic_load_explicit(cell, memory_order_acquire);
    if (known == 0 || !is_usable(backend, place, known)) {
        ad_stream made;
        AD_RETURN_IF_ERR(backend->stream_create(place, &made, err));
        if (atomic_compare_exchange_strong(cell, &known, made.handle)) {
            known = made.handle;
        } else {
            backend->stream_destroy(place, made);
        }
    }
    out->handle = known;
    return AD_OK;
}

static ad_status
find_cache(const struct ad_backend *backend, ad_place place,
           ad_place *out_place, ad_context_cache **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_place_complete(backend, place, out_place, err));
    *out = ad_context_cache_of(backend, *out_place);
    return *out != NULL ? AD_OK : ad_fail_memory(err, sizeof(**out));
}

static ad_status
own_stream(ad_place place, ad_stream *out, ad_place *out_place, ad_error *err)
{
    const struct ad_backend *backend;
    ad_context_cache *cache;
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    AD_RETURN_IF_ERR(find_cache(backend, place, out_place, &cache, err));
    return make_once(backend, *out_place, &cache->own, out, err);
}

ad_status
ad_stream_own(ad_place place, ad_stream *out, ad_error *err)
{
    ad_place primary;
    return own_stream(place, out, &primary, err);
}

ad_status
ad_stream_shared(ad_place place, ad_stream *out, ad_place *out_place,
                 ad_error *err)
{
    const struct ad_backend *backend;
    ad_context_cache *cache;
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    AD_RETURN_IF_ERR(find_cache(backend, place, out_place, &cache, err));
    unsigned turn = atomic_fetch_add(&cache->turn, 1) % AD_N_SHARED_STREAMS;
    return make_once(backend, *out_place, &cache->shared[turn], out, err);
}

/* --- use_stream -------------------------------------------------------------- */

static ad_stream_current_fn find_current;
static _Thread_local unsigned int n_hidden;

void
ad_stream_set_current(ad_stream_current_fn find)
{
    find_current = find;
}

bool
ad_stream_current(ad_device device, ad_stream_choice *out)
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
ad_stream_choose(ad_place place, const ad_stream_choice *wanted,
                 ad_stream_choice *out, ad_place *out_place, ad_error *err)
{
    const struct ad_backend *backend;
    if (wanted != NULL && wanted->is_given) {
        *out = *wanted;
    } else if (!ad_stream_current(place.device, out)) {
        *out = (ad_stream_choice){.is_given = true};
        return own_stream(place, &out->stream, out_place, err);
    }
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    return backend->stream_place(out->stream, place, out_place, err);
}
