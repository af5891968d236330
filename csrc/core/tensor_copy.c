#include <string.h>

#include "core/memory.h"
#include "core/tensor.h"
#include "device/backend.h"

/* A copy as nested loops: the source's strides in bytes, outermost first, the
 * target being filled from start to end. Dimensions that the source runs
 * through at one pitch are one loop. */
typedef struct loops {
    int32_t n;
    int64_t extent[AD_MAX_NDIM];
    int64_t stride[AD_MAX_NDIM];
    size_t size; /* bytes per element */
} loops;

static void
add_loop(loops *self, int64_t extent, int64_t stride)
{
    if (extent == 1) {
        return;
    }
    if (self->n > 0 && self->stride[self->n - 1] == stride * extent) {
        self->extent[self->n - 1] *= extent;
        self->stride[self->n - 1] = stride;
        return;
    }
    self->extent[self->n] = extent;
    self->stride[self->n] = stride;
    self->n++;
}

static void
plan_loops(loops *self, const ad_tensor *tensor, char order)
{
    int32_t ndim = tensor->ndim;
    self->n = 0;
    for (int32_t k = 0; k < ndim; k++) {
        int32_t i = order == 'F' ? ndim - 1 - k : k;
        add_loop(self, tensor->shape[i],
                 tensor->strides[i] * (int64_t)self->size);
    }
    if (self->n == 0) {
        self->extent[0] = 1;
        self->stride[0] = (int64_t)self->size;
        self->n = 1;
    }
}

#define COPY_LINE(NBYTES)                                                     \
    for (int64_t i = 0; i < n; i++) {                                         \
        memcpy(target + i * (NBYTES), source + i * stride, NBYTES);           \
    }                                                                         \
    break

/* With the size as a constant memcpy is a load and a store. */
static void
copy_line(char *target, const char *source, int64_t n, int64_t stride,
          size_t size)
{
    if (stride == (int64_t)size) {
        memcpy(target, source, (size_t)n * size);
        return;
    }
    switch (size) {
        case 1:
            COPY_LINE(1);
        case 2:
            COPY_LINE(2);
        case 4:
            COPY_LINE(4);
        case 8:
            COPY_LINE(8);
        case 16:
            COPY_LINE(16);
        default:
            COPY_LINE((int64_t)size);
    }
}

static void
run_loops(const loops *self, char *target, const char *source)
{
    int64_t index[AD_MAX_NDIM] = {0};
    int32_t inner = self->n - 1;
    int64_t line = self->extent[inner] * (int64_t)self->size;
    for (;;) {
        copy_line(target, source, self->extent[inner], self->stride[inner],
                  self->size);
        target += line;
        int32_t k = inner - 1;
        for (; k >= 0 && ++index[k] == self->extent[k]; k--) {
            source -= self->stride[k] * (self->extent[k] - 1);
            index[k] = 0;
        }
        if (k < 0) {
            return;
        }
        source += self->stride[k];
    }
}

ad_status
ad_tensor_copy_compact(const ad_tensor *tensor, char order, void *target,
                       ad_error *err)
{
    loops plan;
    uint32_t bits = ad_dtype_bits(tensor->dtype);
    AD_RETURN_IF_ERR(ad_require_host(tensor->device, err));
    AD_RETURN_IF_ERR(
        ad_sync_require_ready(tensor->sync, "a copy on the host", err));
    if (ad_tensor_size(tensor) == 0) {
        return AD_OK;
    }
    if (ad_tensor_is_compact(tensor, order)) {
        memcpy(target, ad_tensor_address(tensor),
               (size_t)ad_tensor_nbytes(tensor));
        return AD_OK;
    }
    if (tensor->flags & AD_TENSOR_SUBBYTE_PADDED) {
        bits = (tensor->dtype.bits + 7U) / 8 * 8 * tensor->dtype.lanes;
    }
    if (bits % 8 != 0) {
        char name[AD_DTYPE_NAME_SIZE];
        ad_dtype_format(tensor->dtype, name);
        ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                "make it contiguous in the producing library",
                "elements of %s lie packed within bytes, and such a tensor "
                "can only be copied as it lies",
                name);
        ad_error_dtype(err, name);
        return AD_ERR_EXCHANGE;
    }
    plan.size = bits / 8;
    plan_loops(&plan, tensor, order);
    run_loops(&plan, target, ad_tensor_address(tensor));
    return AD_OK;
}

static void
compact_strides(ad_tensor *tensor, char order)
{
    int64_t stride = 1;
    if (order != 'F') {
        ad_tensor_row_major(tensor->ndim, tensor->shape, tensor->strides);
        return;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        tensor->strides[i] = stride;
        stride *= tensor->shape[i] > 1 ? tensor->shape[i] : 1;
    }
}

ad_status
ad_tensor_copy(const ad_tensor *tensor, char order, ad_tensor_value *out,
               ad_error *err)
{
    ad_memory *memory = NULL;
    AD_RETURN_IF_ERR(ad_require_host(tensor->device, err));
    AD_RETURN_IF_ERR(ad_memory_new(ad_tensor_nbytes(tensor), &memory, err));
    ad_status status =
        ad_tensor_copy_compact(tensor, order, memory->data, err);
    if (status != AD_OK) {
        ad_owner_unref(&memory->base);
        return status;
    }
    out->tensor = (ad_tensor){
        .data = memory->data,
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .flags = AD_TENSOR_COPIED | (tensor->flags & AD_TENSOR_SUBBYTE_PADDED),
        .device = AD_CPU,
        .shape = out->dims,
        .strides = out->dims + tensor->ndim,
        .owner = &memory->base,
    };
    for (int32_t i = 0; i < tensor->ndim; i++) {
        out->dims[i] = tensor->shape[i];
    }
    compact_strides(&out->tensor, order);
    return AD_OK;
}
