#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/arrow_c.h"
#include "base/owner.h"
#include "device/backend.h"

/* Host memory as one device. Its operations are synchronous, so it has neither
 * streams nor events, and those slots stay NULL. */

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

static ad_status
cpu_allocate(ad_context context, ad_stream stream, size_t nbytes, void **out,
             ad_error *err)
{
    if (nbytes > INT64_MAX - AD_ALIGNMENT) {
        return ad_fail_memory(err, nbytes);
    }
    *out = aligned_alloc(AD_ALIGNMENT, (size_t)ad_padded((int64_t)nbytes));
    return *out != NULL ? AD_OK : ad_fail_memory(err, nbytes);
}

static void
cpu_deallocate(ad_context context, ad_stream stream, void *data, size_t nbytes)
{
    free(data);
}

static ad_status
cpu_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
         ad_error *err)
{
    char *target = (char *)copy->target.data + copy->target.offset;
    const char *source = (const char *)copy->source.data + copy->source.offset;
    if (copy->width == 0) {
        return AD_OK;
    }
    for (size_t row = 0; row < copy->height; row++) {
        memcpy(target, source, copy->width);
        target += copy->target_pitch;
        source += copy->source_pitch;
    }
    return AD_OK;
}

static ad_status
cpu_launch(ad_context context, ad_stream stream, const ad_launch *launch,
           ad_error *err)
{
    ad_kernel_run_on_host(launch);
    return AD_OK;
}

const struct ad_backend ad_backend_cpu = {
    .name = "cpu",
    .device_types = (const int32_t[]){ARROW_DEVICE_CPU, 0},
    .capabilities = AD_CAP_IN_ORDER | AD_CAP_ORDERED_DEALLOCATE |
                    AD_CAP_CONTEXT_IDLE | AD_CAP_SURVIVES_FORK,
    .load = cpu_load,
    .describe = cpu_describe,
    .count = cpu_count,
    .device_name = cpu_device_name,
    .primary_context = cpu_primary_context,
    .synchronize = cpu_synchronize,
    .allocate = cpu_allocate,
    .deallocate = cpu_deallocate,
    .copy = cpu_copy,
    .launch = cpu_launch,
};
