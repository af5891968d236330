/* The kernels on CUDA and HIP: they are loaded once into each context, and
 * launched from there.
 */
#include <stdlib.h>

#include "device/gpu/gpu.h"

/* --- loading ------------------------------------------------------------- */

static const ad_gpu_module *
find(const struct ad_gpu *gpu, uint64_t key)
{
    const ad_gpu_module *entry =
        atomic_load_explicit(gpu->modules, memory_order_acquire);
    while (entry != NULL && entry->key != key) {
        entry = entry->next;
    }
    return entry;
}

static ad_status
fail_kernel(const struct ad_gpu *gpu, ad_context context, ad_gpu_result result,
            ad_error *err)
{
    ad_status status = ad_gpu_fail(gpu, context.device, result, err);
    if (status != AD_ERR_DEVICE) {
        return status; /* a capture error */
    }
    if (err != NULL) {
        err->status = AD_ERR_EXCHANGE;
        err->reason = "kernel";
        ad_error_hint(err, "arrowdev's kernels cannot be loaded on this "
                           "device; copy the data to the host first with "
                           ".to(\"cpu\")");
    }
    return AD_ERR_EXCHANGE;
}

static ad_status
load(const struct ad_gpu *gpu, ad_context context, ad_gpu_module *entry,
     ad_error *err)
{
    const void *image = NULL;
    void *release = NULL;
    AD_RETURN_IF_ERR(gpu->module_image(&image, &release, err));
    ad_gpu_result result = {gpu->calls->module_load(&entry->module, image),
                            gpu->names.module_load};
    free(release);
    for (int i = 0; i < AD_N_KERNELS && result.code == AD_GPU_SUCCESS; i++) {
        result.call = gpu->names.module_function;
        result.code = gpu->calls->module_function(
            &entry->functions[i], entry->module, ad_kernel_name(i));
    }
    return result.code == AD_GPU_SUCCESS
               ? AD_OK
               : fail_kernel(gpu, context, result, err);
}

static void
drop(const struct ad_gpu *gpu, ad_gpu_module *entry)
{
    if (entry->module != NULL &&
        gpu->calls->module_unload(entry->module) != AD_GPU_SUCCESS) {
        gpu->forget_error();
    }
    free(entry);
}

/* Two threads may both load the kernels. The second one unloads its own
 * copy. */
static const ad_gpu_module *
publish(const struct ad_gpu *gpu, ad_gpu_module *entry)
{
    ad_gpu_module *head = atomic_load(gpu->modules);
    do {
        const ad_gpu_module *known = find(gpu, entry->key);
        if (known != NULL) {
            drop(gpu, entry);
            return known;
        }
        entry->next = head;
    } while (!atomic_compare_exchange_weak(gpu->modules, &head, entry));
    return entry;
}

static ad_status
kernels_of(const struct ad_gpu *gpu, ad_context context,
           const ad_gpu_module **out, ad_error *err)
{
    uint64_t key;
    AD_RETURN_IF_ERR(gpu->module_key(context, &key, err));
    *out = find(gpu, key);
    if (*out != NULL) {
        return AD_OK;
    }
    ad_gpu_module *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return ad_fail_memory(err, sizeof(*entry));
    }
    entry->key = key;
    ad_gpu_scope scope = {.is_moved = false};
    ad_gpu_relax(gpu, &scope);
    ad_status status = load(gpu, context, entry, err);
    if (status == AD_OK) {
        *out = publish(gpu, entry);
    } else {
        drop(gpu, entry);
    }
    ad_gpu_leave(gpu, &scope);
    return status;
}

/* --- launching ----------------------------------------------------------- */

static ad_status
launch_inside(const struct ad_gpu *gpu, ad_context context, ad_stream stream,
              const ad_launch *launch, ad_error *err)
{
    const ad_gpu_module *kernels;
    AD_RETURN_IF_ERR(kernels_of(gpu, context, &kernels, err));
    ad_launch copy = *launch;
    void *parameters[] = {
        &copy.source.data,   &copy.source.offset, &copy.values.data,
        &copy.values.offset, &copy.target.data,   &copy.target.offset,
        &copy.bit_offset,    &copy.length,        &copy.numbers[0],
        &copy.numbers[1],    &copy.numbers[2],    &copy.numbers[3],
    };
    /* n_items is at most AD_KERNEL_GROUP, or a multiple of it. */
    int64_t block =
        copy.n_items < AD_KERNEL_GROUP ? copy.n_items : AD_KERNEL_GROUP;
    ad_gpu_result result = {
        gpu->calls->launch(kernels->functions[copy.kernel],
                           (unsigned int)(copy.n_items / block), 1, 1,
                           (unsigned int)block, 1, 1, 0, (void *)stream.handle,
                           parameters, NULL),
        gpu->names.launch};
    return ad_gpu_check(gpu, context.device, result, err);
}

ad_status
ad_gpu_launch(ad_context context, ad_stream stream, const ad_launch *launch,
              ad_error *err)
{
    const struct ad_gpu *gpu = ad_gpu_of(context.device);
    ad_gpu_scope scope;
    AD_RETURN_IF_ERR(ad_gpu_enter(gpu, context, &scope, err));
    ad_status status = launch_inside(gpu, context, stream, launch, err);
    ad_gpu_leave(gpu, &scope);
    return status;
}
