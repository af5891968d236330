#include "abi/arrow_c.h"
#include "device/backend.h"

static ad_status
cpu_require_host(ad_device device, ad_error *err)
{
    (void)device;
    (void)err;
    return AD_OK;
}

static ad_status
cpu_count(ad_device device, int64_t *out, ad_error *err)
{
    (void)device;
    (void)err;
    *out = 1;
    return AD_OK;
}

static ad_status
cpu_name(ad_device device, const char **out, ad_error *err)
{
    (void)device;
    (void)err;
    *out = "cpu";
    return AD_OK;
}

extern const struct ad_backend ad_backend_cpu;

const struct ad_backend ad_backend_cpu = {
    .device_type = ARROW_DEVICE_CPU,
    .host_accessible = true,
    .require_host = cpu_require_host,
    .count = cpu_count,
    .name = cpu_name,
};
