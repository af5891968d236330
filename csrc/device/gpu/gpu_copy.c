#include "device/gpu/gpu.h"

#include <limits.h>

/* Copies row by row where one call cannot: copies between two devices with
 * pitches, and pitches of 2 GiB and more. */
static ad_gpu_result
copy_each_row(ad_gpu_result (*copy_row)(const ad_block_copy *, void *),
              const ad_block_copy *copy, void *stream)
{
    ad_gpu_result result = {AD_GPU_SUCCESS, NULL};
    ad_block_copy row = *copy;
    row.height = 1;
    for (size_t i = 0; i < copy->height && result.code == AD_GPU_SUCCESS;
         i++) {
        result = copy_row(&row, stream);
        row.target.offset += copy->target_pitch;
        row.source.offset += copy->source_pitch;
    }
    return result;
}

/* Are both sides device memory, of different contexts or devices? */
static bool
are_peers(const struct ad_gpu *gpu, const ad_context *a, const ad_context *b)
{
    return a->device.type == gpu->device_type &&
           b->device.type == gpu->device_type &&
           (a->device.id != b->device.id ||
            (a->handle != NULL && b->handle != NULL &&
             a->handle != b->handle));
}

ad_status
ad_gpu_copy(ad_context context, ad_stream stream, const ad_block_copy *copy,
            ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    ad_gpu_result result;
    if (copy->width == 0 || copy->height == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_gpu_relax(gpu, &scope);
    if (are_peers(gpu, &copy->target.context, &copy->source.context)) {
        result = copy_each_row(gpu->copy_peer, copy, ad_gpu_handle(stream));
    } else if (copy->height > 1 && (copy->target_pitch > INT_MAX ||
                                    copy->source_pitch > INT_MAX)) {
        result = copy_each_row(gpu->copy, copy, ad_gpu_handle(stream));
    } else {
        result = gpu->copy(copy, ad_gpu_handle(stream));
    }
    ad_gpu_leave(gpu, &scope);
    return ad_gpu_check(gpu, context.device, result, err);
}
