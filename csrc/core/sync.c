#include "core/sync.h"

#include <stdlib.h>

static void
sync_destroy(ad_owner *base)
{
    ad_sync *sync = (ad_sync *)base;
    ad_owner_unref(sync->keep);
    free(sync);
}

ad_status
ad_sync_new(ad_sync_kind kind, ad_device device, void *handle, ad_owner *keep,
            ad_sync **out, ad_error *err)
{
    ad_sync *sync = malloc(sizeof(*sync));
    if (sync == NULL) {
        return ad_fail_memory(err, sizeof(*sync));
    }
    ad_owner_init(&sync->base, sync_destroy);
    sync->kind = kind;
    sync->device = device;
    sync->handle = handle;
    sync->keep = ad_owner_ref(keep);
    *out = sync;
    return AD_OK;
}

ad_status
ad_sync_event(const ad_sync *sync, void **out, ad_error *err)
{
    *out = NULL;
    if (sync == NULL) {
        return AD_OK;
    }
    if (sync->kind == AD_SYNC_EVENT) {
        *out = sync->handle;
        return AD_OK;
    }
    ad_fail(err, AD_ERR_EXCHANGE, "event",
            "synchronize in the producing library and import with stream=-1, "
            "or use the interface the data came by",
            "work may be pending on the producer's %s, and no runtime is "
            "loaded that could record an event on it",
            sync->kind == AD_SYNC_STREAM ? "stream" : "queue");
    ad_error_device(err, sync->device);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_sync_require_ready(const ad_sync *sync, const char *consumer, ad_error *err)
{
    if (sync == NULL) {
        return AD_OK;
    }
    ad_fail(err, AD_ERR_EXCHANGE, "event",
            "synchronize in the producing library and import with stream=-1, "
            "or hand the data over by __arrow_c_device_array__, which carries "
            "the event",
            "the data are ready only after an event, and no runtime is loaded "
            "with which %s could wait for it",
            consumer);
    ad_error_device(err, sync->device);
    return AD_ERR_EXCHANGE;
}
