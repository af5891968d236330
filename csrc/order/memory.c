#include "order/memory.h"

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
