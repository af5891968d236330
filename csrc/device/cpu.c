#include <stdio.h>

#include "abi/arrow_c.h"
#include "device/backend.h"

/* Host memory as one device. The host itself allocates, copies and computes
 * there (copy/session.c), so the slots of memory, streams and events stay
 * NULL. */

static ad_status
cpu_load(ad_error *err)
{
    return AD_OK;
}

static ad_status
cpu_describe(char *buffer, size_t size, ad_error *err)
{
    snprintf(buffer, size, "the host");
    return AD_OK;
}

static ad_status
cpu_count(int64_t *out, ad_error *err)
{
    *out = 1;
    return AD_OK;
}

static ad_status
cpu_device_name(int64_t id, char *buffer, size_t size, ad_error *err)
{
    snprintf(buffer, size, "cpu");
    return AD_OK;
}

static ad_status
cpu_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    if (device.id > 0 || device.id < -1) {
        return ad_fail_on(
            err, device, "device", "ask for \"cpu\"",
            "there is one cpu, whose id is -1 or 0, and not %lld",
            (long long)device.id);
    }
    *out = (ad_context){.device = AD_CPU};
    return AD_OK;
}

static ad_status
cpu_synchronize(ad_context context, ad_error *err)
{
    return AD_OK;
}

const struct ad_backend ad_backend_cpu = {
    .name = "cpu",
    .device_types = (const int32_t[]){ARROW_DEVICE_CPU, 0},
    .capabilities = AD_CAP_CONTEXT_IDLE | AD_CAP_SURVIVES_FORK,
    .load = cpu_load,
    .describe = cpu_describe,
    .count = cpu_count,
    .device_name = cpu_device_name,
    .primary_context = cpu_primary_context,
    .synchronize = cpu_synchronize,
};
