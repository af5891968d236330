#include "model/tensor.h"

#include <string.h>

#include "base/owner.h"
#include "device/backend.h"
#include "kernels/kernels.h"

static void
add_loop(ad_loops *self, int64_t extent, int64_t stride)
{
    ad_loop *last = &self->at[self->n - 1];
    if (extent == 1) {
        return;
    }
    if (last->stride == stride * extent) {
        last->extent *= extent;
        last->stride = stride;
        return;
    }
    self->at[self->n++] = (ad_loop){.extent = extent, .stride = stride};
}

static ad_status
element_size(const ad_tensor *tensor, size_t *out, ad_error *err)
{
    char name[AD_DTYPE_NAME_SIZE];
    uint32_t bits = ad_element_bits(tensor->dtype, tensor->flags);
    *out = bits / 8;
    if (bits % 8 == 0) {
        return AD_OK;
    }
    ad_dtype_format(tensor->dtype, name);
    ad_fail(err, AD_ERR_EXCHANGE, "dtype",
            "make it contiguous in the producing library",
            "elements of %s are packed within bytes, and such a tensor can "
            "only be copied in its own layout",
            name);
    ad_error_dtype(err, name);
    return AD_ERR_EXCHANGE;
}

ad_status
ad_loops_plan(const ad_tensor *tensor, char order, ad_loops *out,
              ad_error *err)
{
    int32_t ndim = tensor->ndim;
    AD_RETURN_IF_ERR(element_size(tensor, &out->size, err));
    int64_t size = (int64_t)out->size;
    /* Two loops with one iteration, so that there are always at least two. The
     * second one never merges: no other stride spans half of the address
     * space. */
    out->at[0] = out->at[1] = (ad_loop){.extent = 1, .stride = INT64_MAX};
    out->n = 2;
    for (int32_t k = 0; k < ndim; k++) {
        int32_t i = order == 'F' ? ndim - 1 - k : k;
        add_loop(out, tensor->shape[i], tensor->strides[i] * size);
    }
    int64_t pitch = size;
    for (int32_t k = out->n - 1; k >= 0; k--) {
        out->at[k].pitch = pitch;
        pitch *= out->at[k].extent;
    }
    return AD_OK;
}

static int64_t
magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* The innermost loop writes the target sequentially. If its source stride is
 * not the smallest one, the loop with the smallest stride is moved next to it,
 * so that both run in tiles. */
static void
pair_loops(ad_loops *self)
{
    int32_t inner = self->n - 1;
    int32_t best = inner;
    for (int32_t k = 0; k < inner; k++) {
        if (magnitude(self->at[k].stride) < magnitude(self->at[best].stride) &&
            self->at[k].extent > 1) {
            best = k;
        }
    }
    if (best != inner) {
        ad_loop partner = self->at[best];
        memmove(&self->at[best], &self->at[best + 1],
                (size_t)(inner - 1 - best) * sizeof(ad_loop));
        self->at[inner - 1] = partner;
    }
}

/* Number of innermost iterations per tile: their cache lines are still cached
 * when the loop around them reaches the neighbouring elements. */
#define TILE 64

static void
copy_tile(const ad_loop *outer, const ad_loop *inner, size_t size, int64_t n,
          char *target, const char *source)
{
    const char *columns[TILE];
    if (outer->stride == (int64_t)size && outer->extent >= TILE && n <= TILE) {
        for (int64_t i = 0; i < n; i++) {
            columns[i] = source + i * inner->stride;
        }
        ad_interleave(columns, n, outer->extent, outer->stride, target,
                      outer->pitch);
        return;
    }
    for (int64_t i = 0; i < outer->extent; i++) {
        ad_move_elements(target + i * outer->pitch, inner->pitch,
                         source + i * outer->stride, inner->stride, n, size);
    }
}

static void
copy_plane(const ad_loops *self, char *target, const char *source)
{
    const ad_loop *outer = &self->at[self->n - 2];
    const ad_loop *inner = &self->at[self->n - 1];
    bool is_tiled = magnitude(outer->stride) < magnitude(inner->stride);
    int64_t tile = is_tiled ? TILE : inner->extent;
    for (int64_t k = 0; k < inner->extent; k += tile) {
        int64_t rest = inner->extent - k;
        copy_tile(outer, inner, self->size, rest < tile ? rest : tile,
                  target + k * inner->pitch, source + k * inner->stride);
    }
}

static void
run_loops(const ad_loops *self, char *target, const char *source)
{
    int64_t index[AD_MAX_NDIM + 2] = {0};
    for (;;) {
        copy_plane(self, target, source);
        int32_t k = self->n - 3;
        for (; k >= 0 && ++index[k] == self->at[k].extent; k--) {
            source -= self->at[k].stride * (self->at[k].extent - 1);
            target -= self->at[k].pitch * (self->at[k].extent - 1);
            index[k] = 0;
        }
        if (k < 0) {
            return;
        }
        source += self->at[k].stride;
        target += self->at[k].pitch;
    }
}

ad_status
ad_tensor_copy_contiguous(const ad_tensor *tensor, char order, void *target,
                          ad_error *err)
{
    ad_loops plan;
    AD_RETURN_IF_ERR(ad_require_host(tensor->memory.device, err));
    AD_RETURN_IF_ERR(
        ad_sync_wait(tensor->memory.sync, "a copy on the host", err));
    if (ad_tensor_size(tensor) == 0) {
        return AD_OK;
    }
    if (ad_tensor_is_contiguous(tensor, order)) {
        memcpy(target, ad_tensor_address(tensor),
               (size_t)ad_tensor_nbytes(tensor));
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_loops_plan(tensor, order, &plan, err));
    pair_loops(&plan);
    run_loops(&plan, target, ad_tensor_address(tensor));
    return AD_OK;
}

static void
contiguous_strides(ad_tensor *tensor, char order)
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

void
ad_tensor_set_copy(const ad_tensor *tensor, char order, void *data,
                   ad_memory memory, ad_tensor_value *out)
{
    out->tensor = (ad_tensor){
        .data = data,
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .flags = AD_TENSOR_COPIED | (tensor->flags & AD_TENSOR_SUBBYTE_PADDED),
        .shape = out->dims,
        .strides = out->dims + tensor->ndim,
        .memory = memory,
    };
    for (int32_t i = 0; i < tensor->ndim; i++) {
        out->dims[i] = tensor->shape[i];
    }
    contiguous_strides(&out->tensor, order);
}

/* --- byte order ---------------------------------------------------------- */

#define SWAP_ALL(TYPE, SWAP)                                                  \
    for (int64_t i = 0; i < nbytes; i += (int64_t)sizeof(TYPE)) {             \
        TYPE value;                                                           \
        memcpy(&value, source + i, sizeof(value));                            \
        value = SWAP(value);                                                  \
        memcpy(target + i, &value, sizeof(value));                            \
    }                                                                         \
    break

/* Swaps in place if both are the same memory. */
static void
swap_bytes(char *target, const char *source, int64_t nbytes, uint32_t width)
{
    switch (width) {
        case 2:
            SWAP_ALL(uint16_t, __builtin_bswap16);
        case 4:
            SWAP_ALL(uint32_t, __builtin_bswap32);
        case 8:
            SWAP_ALL(uint64_t, __builtin_bswap64);
        default: /* single bytes have no byte order */
            if (target != source) {
                memcpy(target, source, (size_t)nbytes);
            }
    }
}

/* One pass if the elements are already in the target's order. */
static ad_status
copy_swapped(const ad_tensor *tensor, char order, uint32_t width, char *target,
             ad_error *err)
{
    int64_t nbytes = ad_tensor_nbytes(tensor);
    if (ad_tensor_is_contiguous(tensor, order)) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(tensor->memory.sync, "a copy on the host", err));
        swap_bytes(target, ad_tensor_address(tensor), nbytes, width);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_tensor_copy_contiguous(tensor, order, target, err));
    swap_bytes(target, target, nbytes, width);
    return AD_OK;
}

/* Copies to new memory. `width`: of the numbers whose bytes are swapped; 1:
 * none are. */
static ad_status
copy_to_new_memory(const ad_tensor *tensor, char order, uint32_t width,
                   ad_tensor_value *out, ad_error *err)
{
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_require_host(tensor->memory.device, err));
    AD_RETURN_IF_ERR(
        ad_host_block_new(ad_tensor_nbytes(tensor), &memory, err));
    ad_status status =
        width > 1
            ? copy_swapped(tensor, order, width, memory->data, err)
            : ad_tensor_copy_contiguous(tensor, order, memory->data, err);
    if (status != AD_OK) {
        ad_owner_unref(&memory->base);
        return status;
    }
    ad_tensor_set_copy(tensor, order, memory->data,
                       (ad_memory){.owner = &memory->base, .device = AD_CPU},
                       out);
    return AD_OK;
}

ad_status
ad_tensor_copy(const ad_tensor *tensor, char order, ad_tensor_value *out,
               ad_error *err)
{
    return copy_to_new_memory(tensor, order, 1, out, err);
}

ad_status
ad_tensor_copy_swapped(const ad_tensor *tensor, char order,
                       ad_tensor_value *out, ad_error *err)
{
    /* The halves of a complex number are swapped separately. */
    uint32_t parts = tensor->dtype.code == AD_DL_COMPLEX ? 2 : 1;
    return copy_to_new_memory(
        tensor, order, ad_dtype_bits(tensor->dtype) / 8 / parts, out, err);
}
