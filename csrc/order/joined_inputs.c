#include "order/joined_inputs.h"

#include <stdlib.h>

static ad_status
add_sync(ad_parts *parts, ad_sync *sync, ad_error *err)
{
    for (size_t i = 0; i < parts->syncs.n; i++) {
        if (ad_sync_same(parts->syncs.items[i], sync)) {
            return AD_OK;
        }
    }
    AD_RETURN_IF_ERR(ad_list_reserve(&parts->syncs, 1, err));
    parts->syncs.items[parts->syncs.n++] = sync;
    return AD_OK;
}

ad_status
ad_parts_add(ad_parts *parts, ad_device device, ad_sync *sync, bool readonly,
             ad_error *err)
{
    if (parts->has_device && !ad_device_equal(parts->device, device)) {
        char first[AD_DEVICE_NAME_SIZE];
        char second[AD_DEVICE_NAME_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "device",
                "bring them to one device first, with .to(device)",
                "the parts of an array are on different devices: %s and %s",
                ad_device_format(parts->device, first),
                ad_device_format(device, second));
        ad_error_device(err, device);
        return AD_ERR_EXCHANGE;
    }
    parts->has_device = true;
    parts->device = device;
    parts->readonly |= readonly;
    return sync != NULL ? add_sync(parts, sync, err) : AD_OK;
}

ad_status
ad_parts_join(const ad_parts *parts, ad_sync **out, ad_error *err)
{
    return ad_sync_join(parts->syncs.items, parts->syncs.n, out, err);
}

void
ad_parts_clear(ad_parts *parts)
{
    free(parts->syncs.items);
    *parts = AD_PARTS_INIT;
}
