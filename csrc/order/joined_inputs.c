#include "order/joined_inputs.h"

#include <stdlib.h>

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
ad_joined_inputs_add(ad_joined_inputs *joined, ad_device device, ad_sync *sync,
                     bool readonly, ad_error *err)
{
    if (joined->has_device && !ad_device_equal(joined->device, device)) {
        char first[AD_DEVICE_NAME_SIZE];
        char second[AD_DEVICE_NAME_SIZE];
        ad_fail(err, AD_ERR_EXCHANGE, "device",
                "bring them to one device first, with .to(device)",
                "the parts of an array are on different devices: %s and %s",
                ad_device_format(joined->device, first),
                ad_device_format(device, second));
        ad_error_device(err, device);
        return AD_ERR_EXCHANGE;
    }
    joined->has_device = true;
    joined->device = device;
    joined->readonly |= readonly;
    return sync != NULL ? add_sync(joined, sync, err) : AD_OK;
}

ad_status
ad_joined_inputs_join(const ad_joined_inputs *joined, ad_sync **out,
                      ad_error *err)
{
    return ad_sync_join(joined->syncs.items, joined->syncs.n, out, err);
}

void
ad_joined_inputs_clear(ad_joined_inputs *joined)
{
    free(joined->syncs.items);
    *joined = AD_JOINED_INPUTS_INIT;
}
