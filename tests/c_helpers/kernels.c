/* The kernels on the host and the sources of the others, for ctypes. A
 * negative number of items runs that many with the C source alone. If `values`
 * is NULL, the target is used. */
#include "kernels/kernels.c"

void
helper_run(int kernel, void *source, int64_t source_offset, void *target,
           int64_t target_offset, int64_t bit_offset, int64_t length,
           int64_t n_items, const int64_t *numbers, void *values)
{
    ad_launch launch = {
        .kernel = (ad_kernel)kernel,
        .source = {.data = source, .offset = (uint64_t)source_offset},
        .values = {.data = values != NULL ? values : target,
                   .offset = (uint64_t)target_offset},
        .target = {.data = target, .offset = (uint64_t)target_offset},
        .bit_offset = bit_offset,
        .length = length,
        .n_items = n_items,
    };
    for (int i = 0; i < AD_N_NUMBERS; i++) {
        launch.numbers[i] = numbers[i];
    }
    if (n_items < 0) {
        launch.n_items = -n_items;
        run_text(&launch);
        return;
    }
    ad_kernel_run_on_host(&launch);
}

const char *
helper_text(int dialect)
{
    return dialect == 0 ? ad_kernels_opencl : ad_kernels_hip;
}

const char *
helper_ptx(int kernel)
{
    return ad_kernels_ptx[kernel];
}

const char *
helper_name(int kernel)
{
    return kernel < AD_N_KERNELS ? ad_kernel_name((ad_kernel)kernel) : NULL;
}

/* The variant for processors without a popcount instruction. */
int64_t
helper_popcount(const uint64_t *words, int64_t n)
{
    return popcount_run(words, n);
}
