#include "core/stream.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/place_record.h"

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
        return backend->home(place.device, out, err);
    }
    *out = place;
    return AD_OK;
}

/* Two threads may both make one: the second to come throws its own away. */
static ad_status
make_once(const struct ad_backend *backend, ad_place place,
          atomic_uintptr_t *cell, ad_stream *out, ad_error *err)
{
    uintptr_t known = atomic_load_explicit(cell, memory_order_acquire);
    if (known == 0) {
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
find_record(const struct ad_backend *backend, ad_place place,
            ad_place *out_place, ad_place_record **out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_place_complete(backend, place, out_place, err));
    *out = ad_place_record_of(*out_place);
    return *out != NULL ? AD_OK : ad_fail_memory(err, sizeof(**out));
}

static ad_status
own_stream(ad_place place, ad_stream *out, ad_place *out_place, ad_error *err)
{
    const struct ad_backend *backend;
    ad_place_record *record;
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    AD_RETURN_IF_ERR(find_record(backend, place, out_place, &record, err));
    return make_once(backend, *out_place, &record->own, out, err);
}

ad_status
ad_stream_own(ad_place place, ad_stream *out, ad_error *err)
{
    ad_place home;
    return own_stream(place, out, &home, err);
}

ad_status
ad_stream_shared(ad_place place, ad_stream *out, ad_place *out_place,
                 ad_error *err)
{
    const struct ad_backend *backend;
    ad_place_record *record;
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    AD_RETURN_IF_ERR(find_record(backend, place, out_place, &record, err));
    unsigned turn = atomic_fetch_add(&record->turn, 1) % AD_N_SHARED_STREAMS;
    return make_once(backend, *out_place, &record->shared[turn], out, err);
}

/* --- use_stream -------------------------------------------------------------- */

typedef struct pushed {
    struct pushed *below;
    ad_device device; /* as ad_device_of_runtime() has it */
    ad_stream stream;
    ad_owner *keep;
} pushed;

/* A thread that ends inside a with block leaks its entries, and nothing more:
 * that is a thread that was killed. */
static _Thread_local pushed *top;

ad_status
ad_stream_push(ad_device device, ad_stream stream, ad_owner *keep,
               ad_error *err)
{
    pushed *entry = malloc(sizeof(*entry));
    if (entry == NULL) {
        return ad_fail_memory(err, sizeof(*entry));
    }
    entry->below = top;
    entry->device = ad_device_of_runtime(device);
    entry->stream = stream;
    entry->keep = ad_owner_ref(keep);
    top = entry;
    return AD_OK;
}

/* Blocks of two devices may end in the order in which they began (exit
 * stacks, generators), so the entry need not be on top. */
void
ad_stream_pop(ad_device device)
{
    device = ad_device_of_runtime(device);
    for (pushed **link = &top; *link != NULL; link = &(*link)->below) {
        pushed *entry = *link;
        if (ad_device_equal(entry->device, device)) {
            *link = entry->below;
            ad_owner_unref(entry->keep);
            free(entry);
            return;
        }
    }
}

bool
ad_stream_current(ad_device device, ad_stream_choice *out)
{
    if (top == NULL) {
        return false;
    }
    device = ad_device_of_runtime(device);
    for (pushed *entry = top; entry != NULL; entry = entry->below) {
        if (ad_device_equal(entry->device, device)) {
            *out = (ad_stream_choice){true, entry->stream, entry->keep};
            return true;
        }
    }
    return false;
}

ad_status
ad_stream_choose(ad_place place, const ad_stream_choice *wanted,
                 ad_stream *out, ad_place *out_place, ad_error *err)
{
    const struct ad_backend *backend;
    ad_stream_choice current;
    bool is_given = wanted != NULL && wanted->is_given;
    if (is_given) {
        current = *wanted;
    } else if (!ad_stream_current(place.device, &current)) {
        return own_stream(place, out, out_place, err);
    }
    AD_RETURN_IF_ERR(ad_backend_open(place.device.type, &backend, err));
    AD_RETURN_IF_ERR(
        backend->stream_place(current.stream, place, out_place, err));
    *out = current.stream;
    return AD_OK;
}
