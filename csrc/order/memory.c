#include "order/memory.h"

#include <stdlib.h>

#include "base/log.h"
#include "device/backend.h"
#include "order/device_owner.h"
#include "order/streams.h"

/* --- use ----------------------------------------------------------------- */

/* The runtime is not asked again for the context of a stream on which one of
 * our events was recorded. */
static ad_status
resolve(ad_stream_ref *on, const struct ad_backend *backend,
        ad_context expected, const ad_sync *sync, ad_error *err)
{
    on->context = expected;
    if (sync != NULL && sync->is_own && on->kind != AD_REF_DEFAULT &&
        on->kind != AD_REF_PER_THREAD && ad_stream_equal(&sync->on, on)) {
        on->context = sync->on.context;
        on->has_context = true;
        return AD_OK;
    }
    return ad_stream_resolve(on, backend, expected, err);
}

/* Resolved now and on this thread: another thread may have another default
 * stream, and a stream of another device would order nothing. The calls are
 * not grouped while messages are on, because a message may run any code. */
static ad_status
order(ad_stream_ref *on, const struct ad_backend *backend, ad_device device,
      ad_sync *sync, const char *what, ad_error *err)
{
    ad_context expected = {device, NULL};
    bool is_grouped =
        (on->kind == AD_REF_DEFAULT || on->kind == AD_REF_PER_THREAD) &&
        !ad_sync_is_done(sync) && !ad_log_is_on();
    if (is_grouped) {
        backend->begin_calls(expected);
    }
    ad_status status = resolve(on, backend, expected, sync, err);
    if (status == AD_OK) {
        status = ad_sync_require_outside_done(sync, on, what, err);
    }
    if (status == AD_OK) {
        status = ad_sync_order(sync, on, what, err);
    }
    if (is_grouped) {
        backend->end_calls(expected);
    }
    return status;
}

ad_status
ad_use(const ad_memory *memory, const ad_stream_ref *consumer,
       const char *what, ad_error *err)
{
    ad_sync *sync = memory->sync;
    const struct ad_backend *backend = ad_backend_in_use(memory->device.type);
    if (backend == NULL) {
        return ad_sync_order(sync, consumer, what, err);
    }
    ad_stream_ref on = *consumer;
    AD_RETURN_IF_ERR(order(&on, backend, memory->device, sync, what, err));
    /* A stream that could wait for an event from outside of a capture. */
    bool is_outside =
        !ad_sync_is_done(sync) && sync->is_own && !ad_sync_is_captured(sync);
    return (is_outside ? ad_owner_record_stream
                       : ad_owner_record_consumer)(memory->owner, &on, err);
}

ad_status
ad_use_on_thread(const ad_memory *memory, const char *what, ad_error *err)
{
    const ad_device device = memory->device;
    ad_stream_ref consumer;
    bool has_stream = !(ad_device_traits(device.type) & AD_NO_STREAMS) &&
                      (ad_stream_current(device, &consumer) ||
                       ad_default_stream(device, &consumer));
    return has_stream ? ad_use(memory, &consumer, what, err)
                      : ad_sync_wait(memory->sync, what, err);
}

/* --- joined inputs ------------------------------------------------------- */

static ad_status
add_sync(ad_joined_inputs *joined, ad_sync *sync, ad_error *err)
{
    for (size_t i = 0; i < joined->syncs.n; i++) {
        if (ad_sync_same(joined->syncs.items[i], sync)) {
            return AD_OK;
        }
    }
    AD_RETURN_IF_ERR(ad_list_reserve(&joined->syncs, 1, err));
    joined->syncs.items[joined->syncs.n++] = sync;
    return AD_OK;
}

ad_status
ad_joined_inputs_add(ad_joined_inputs *joined, const ad_memory *memory,
                     ad_error *err)
{
    ad_device device = memory->device;
    if (joined->has_device && !ad_device_equal(joined->device, device)) {
        char first[AD_DEVICE_NAME_SIZE];
        char second[AD_DEVICE_NAME_SIZE];
        return ad_fail_on(
            err, device, "device",
            "bring them to one device first, with .to(device)",
            "the parts of an array are on different devices: %s and %s",
            ad_device_format(joined->device, first),
            ad_device_format(device, second));
    }
    joined->has_device = true;
    joined->device = device;
    return memory->sync != NULL ? add_sync(joined, memory->sync, err) : AD_OK;
}

void
ad_joined_inputs_clear(ad_joined_inputs *joined)
{
    free(joined->syncs.items);
    *joined = (ad_joined_inputs){.has_device = false};
}
