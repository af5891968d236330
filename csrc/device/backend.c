#include "device/backend.h"

#include <stddef.h>

/* --- device types without a backend ------------------------------------- */

static ad_status
absent_refuse(ad_device device, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_EXCHANGE, "device",
            "copy it to the host in the producing library, or hand it to a "
            "consumer that takes memory of this device",
            "memory on %s is carried as data; no runtime for it in this "
            "version",
            ad_device_format(device, name));
    ad_error_device(err, device);
    return AD_ERR_EXCHANGE;
}

static ad_status
absent_count(ad_device device, int64_t *out, ad_error *err)
{
    (void)out;
    return absent_refuse(device, err);
}

static ad_status
absent_name(ad_device device, const char **out, ad_error *err)
{
    (void)out;
    return absent_refuse(device, err);
}

static const struct ad_backend absent = {
    .device_type = 0,
    .host_accessible = false,
    .require_host = absent_refuse,
    .count = absent_count,
    .name = absent_name,
};

/* --- the table ---------------------------------------------------------- */

#define AD_BACKEND(variable) extern const struct ad_backend variable;
#include "device/backends.def"
#undef AD_BACKEND

static const struct ad_backend *const backends[] = {
#define AD_BACKEND(variable) &variable,
#include "device/backends.def"
#undef AD_BACKEND
};

const struct ad_backend *
ad_backend_for(int32_t device_type)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (backends[i]->device_type == device_type) {
            return backends[i];
        }
    }
    return &absent;
}
