/* The kernels on CUDA and HIP: each is loaded into a context once, on first
 * need, and launched from there.
 */
#include <stdlib.h>

#include "device/gpu/gpu.h"

/* --- loading ------------------------------------------------------------- */

static const ad_gpu_module *
find(const struct ad_gpu *gpu, uint64_t key, ad_kernel kernel)
{
    const ad_gpu_module *entry =
        atomic_load_explicit(gpu->modules, memory_order_acquire);
    while (entry != NULL &&
           (entry->key != key || entry->functions[kernel] == NULL)) {
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
        ad_error_reason(err, "kernel");
        ad_error_hint(err, "arrowdev's kernels cannot be loaded on this "
                           "device; copy the data to the host first with "
                           ".to(\"cpu\")");
    }
    return AD_ERR_EXCHANGE;
}

static ad_status
load(const struct ad_gpu *gpu, ad_context context, ad_kernel kernel,
     ad_gpu_module *entry, ad_error *err)
{
    const void *image = NULL;
    void *release = NULL;
    AD_RETURN_IF_ERR(gpu->module_image(kernel, &image, &release, err));
    ad_gpu_result result = {gpu->calls->module_load(&entry->module, image),
                            gpu->names.module_load};
    free(release);
    const int first = gpu->has_module_per_kernel ? (int)kernel : 0;
    const int end = gpu->has_module_per_kernel ? first + 1 : AD_N_KERNELS;
    for (int i = first; i < end && result.code == AD_GPU_SUCCESS; i++) {
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

/* Two threads may both load the kernel. The second one unloads its own
 * copy. */
static const ad_gpu_module *
publish(const struct ad_gpu *gpu, ad_kernel kernel, ad_gpu_module *entry)
{
    ad_gpu_module *head = atomic_load(gpu->modules);
    do {
        const ad_gpu_module *known = find(gpu, entry->key, kernel);
        if (known != NULL) {
            drop(gpu, entry);
            return known;
        }
        entry->next = head;
    } while (!atomic_compare_exchange_weak(gpu->modules, &head, entry));
    return entry;
}

static ad_status
find_or_load(const struct ad_gpu *gpu, ad_context context, ad_kernel kernel,
             const ad_gpu_module **out, ad_error *err)
{
    uint64_t key;
    AD_RETURN_IF_ERR(gpu->module_key(context, &key, err));
    *out = find(gpu, key, kernel);
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
    ad_status status = load(gpu, context, kernel, entry, err);
    if (status == AD_OK) {
        *out = publish(gpu, kernel, entry);
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
    const ad_gpu_module *module;
    ad_launch copy = *launch;
    AD_RETURN_IF_ERR(find_or_load(gpu, context, copy.kernel, &module, err));
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
        gpu->calls->launch(module->functions[copy.kernel],
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
