#include "model/tensor.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/owner.h"
#include "device/backend.h"
#include "kernels/kernels.h"

void
ad_tensor_share(const ad_tensor *tensor, ad_tensor_value *out)
{
    out->tensor = *tensor;
    out->tensor.shape = out->dims;
    out->tensor.strides = out->dims + tensor->ndim;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        out->tensor.shape[i] = tensor->shape[i];
        out->tensor.strides[i] = tensor->strides[i];
    }
    ad_memory_ref(&tensor->memory);
}

void
ad_tensor_clear(ad_tensor *tensor)
{
    /* The tensor is emptied first, because an owner's destructor may run code
     * that reads *tensor. */
    ad_owner *owner = tensor->memory.owner;
    ad_sync *sync = tensor->memory.sync;
    tensor->memory.owner = NULL;
    tensor->memory.sync = NULL;
    ad_sync_unref(sync);
    ad_owner_unref(owner);
}

/* --- sizes -------------------------------------------------------------- */

uint32_t
ad_element_bits(ad_dl_dtype dtype, uint32_t flags)
{
    bool is_padded = (flags & AD_TENSOR_SUBBYTE_PADDED) && dtype.bits < 8;
    return (is_padded ? 8U : dtype.bits) * dtype.lanes;
}

/* Bytes of n >= 0 packed elements, rounded up; false on overflow. */
static bool
bytes_of(int64_t n, uint32_t bits, int64_t *out)
{
    /* In two parts, because the number of bits may overflow where the number
     * of bytes does not. */
    int64_t rest = bits % 8;
    int64_t whole;
    if (__builtin_mul_overflow(n, (int64_t)(bits / 8), &whole)) {
        return false;
    }
    int64_t packed = n / 8 * rest + (n % 8 * rest + 7) / 8;
    return !__builtin_add_overflow(whole, packed, out);
}

ad_status
ad_tensor_require_size(const ad_tensor *tensor, ad_error *err)
{
    if (!(tensor->flags & AD_TENSOR_SIZE_UNKNOWN)) {
        return AD_OK;
    }
    return ad_fail_on(
        err, tensor->memory.device, "device",
        "take the size from the library that made the data",
        "the size of this buffer is stored in device memory, which no "
        "loaded runtime can read");
}

int64_t
ad_tensor_size(const ad_tensor *tensor)
{
    int64_t size = 1;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) {
            return 0;
        }
        size *= tensor->shape[i];
    }
    return size;
}

int64_t
ad_tensor_nbytes(const ad_tensor *tensor)
{
    int64_t nbytes = 0;
    (void)bytes_of(ad_tensor_size(tensor),
                   ad_element_bits(tensor->dtype, tensor->flags), &nbytes);
    return nbytes;
}

/* Row-major strides of a shape. */
static void
row_major(int32_t ndim, const int64_t *shape, int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= shape[i] > 1 ? shape[i] : 1;
    }
}

/* --- addresses of the elements ------------------------------------------- */

/* Lowest and highest element that the strides reach, relative to the first
 * one; false on overflow. */
static bool
reach(int32_t ndim, const int64_t *shape, const int64_t *strides, int64_t *low,
      int64_t *high)
{
    *low = 0;
    *high = 0;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t span;
        int64_t *end = strides[i] < 0 ? low : high;
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &span) ||
            __builtin_add_overflow(*end, span, end)) {
            return false;
        }
    }
    return true;
}

/* The same in bytes: the first byte, and one past the last byte. */
static bool
byte_reach(int64_t low, int64_t high, uint32_t bits, int64_t *first,
           int64_t *past)
{
    int64_t below;
    if (low == INT64_MIN || high == INT64_MAX ||
        !bytes_of(-low, bits, &below)) {
        return false;
    }
    *first = -below;
    return bytes_of(high + 1, bits, past);
}

void
ad_tensor_extent(const ad_tensor *tensor, int64_t *low, int64_t *high)
{
    int64_t first = 0, last = 0;
    *low = 0;
    *high = 0;
    if (ad_tensor_size(tensor) == 0) {
        return;
    }
    /* ad_tensor_check has ensured that none of these overflows. */
    (void)reach(tensor->ndim, tensor->shape, tensor->strides, &first, &last);
    (void)byte_reach(first, last,
                     ad_element_bits(tensor->dtype, tensor->flags), low, high);
}

bool
ad_tensor_is_contiguous(const ad_tensor *tensor, char order)
{
    int64_t expected = 1;
    int32_t ndim = tensor->ndim;
    if (ad_tensor_size(tensor) == 0) {
        return true;
    }
    for (int32_t k = 0; k < ndim; k++) {
        int32_t i = order == 'F' ? k : ndim - 1 - k;
        if (tensor->shape[i] != 1) {
            if (tensor->strides[i] != expected) {
                return false;
            }
            expected *= tensor->shape[i];
        }
    }
    return true;
}

/* --- check of a descriptor ----------------------------------------------- */

static ad_status
check_dtype(const ad_tensor_descriptor *descriptor, const char *what,
            ad_error *err)
{
    ad_dl_dtype dtype = descriptor->dtype;
    if (dtype.bits == 0 || dtype.lanes == 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has a type of %u bits and %u lanes; both must be "
                       "at least 1",
                       what, dtype.bits, dtype.lanes);
    }
    if (dtype.code == AD_DL_BOOL && dtype.bits != 8) {
        return ad_fail(err, AD_ERR_EXCHANGE, "dtype", NULL,
                       "%s has a bool type of %u bits; bools have 8", what,
                       dtype.bits);
    }
    return AD_OK;
}

static ad_status
check_ndim(const ad_tensor_descriptor *descriptor, const char *what,
           ad_error *err)
{
    if (descriptor->ndim < 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has %" PRId32 " dimensions", what,
                       descriptor->ndim);
    }
    if (descriptor->ndim > AD_MAX_NDIM) {
        return ad_fail(err, AD_ERR_EXCHANGE, "ndim",
                       "reshape it in the producing library",
                       "%s has %" PRId32 " dimensions; at most %d are "
                       "supported",
                       what, descriptor->ndim, AD_MAX_NDIM);
    }
    if (descriptor->ndim > 0 && descriptor->shape == NULL) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has %" PRId32 " dimensions but no shape", what,
                       descriptor->ndim);
    }
    return AD_OK;
}

/* Computes the number of elements. The product of the extents other than 0
 * must not overflow either, because the strides are computed from parts of
 * it. */
static ad_status
check_shape(const ad_tensor_descriptor *descriptor, const char *what,
            int64_t *size, ad_error *err)
{
    int64_t product = 1;
    int64_t nbytes;
    bool is_empty = false;
    bool overflows = false;
    for (int32_t i = 0; i < descriptor->ndim; i++) {
        int64_t extent = descriptor->shape[i];
        if (extent < 0) {
            return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                           "%s has a negative extent, shape[%" PRId32
                           "] = %" PRId64,
                           what, i, extent);
        }
        is_empty |= extent == 0;
        overflows |=
            extent != 0 && __builtin_mul_overflow(product, extent, &product);
    }
    if (overflows ||
        !bytes_of(product,
                  ad_element_bits(descriptor->dtype, descriptor->flags),
                  &nbytes)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has a shape whose size in bytes overflows", what);
    }
    *size = is_empty ? 0 : product;
    return AD_OK;
}

/* Checks that [base + low, base + high) does not wrap around. For handles,
 * base is the byte offset only. */
static ad_status
check_addresses(const ad_tensor_descriptor *descriptor, const char *what,
                const int64_t *strides, ad_error *err)
{
    int64_t low, high, first, past;
    bool is_handle = ad_device_uses_handles(descriptor->memory.device.type);
    uint64_t start = is_handle ? 0 : (uintptr_t)descriptor->data;
    uint64_t end, limit = is_handle ? INT64_MAX : UINTPTR_MAX;
    if (!reach(descriptor->ndim, descriptor->shape, strides, &low, &high) ||
        !byte_reach(low, high,
                    ad_element_bits(descriptor->dtype, descriptor->flags),
                    &first, &past)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has strides whose extent overflows 64 bits", what);
    }
    if (__builtin_add_overflow(start, descriptor->byte_offset, &start) ||
        start < (uint64_t)-first ||
        __builtin_add_overflow(start, (uint64_t)past, &end) || end > limit) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "%s has strides or a byte offset that reach outside "
                       "the address space",
                       what);
    }
    return AD_OK;
}

/* The strides of a tensor without elements lead to no address. They are kept as
 * they are, unless views or sizes in bytes computed from them overflow. */
static void
keep_strides(const ad_tensor_descriptor *descriptor, int64_t *strides)
{
    int64_t extents[AD_MAX_NDIM];
    int64_t low, high, first, past;
    for (int32_t i = 0; i < descriptor->ndim; i++) {
        extents[i] = descriptor->shape[i] < 2 ? 2 : descriptor->shape[i];
    }
    if (descriptor->strides == NULL ||
        !reach(descriptor->ndim, extents, descriptor->strides, &low, &high) ||
        !byte_reach(low, high,
                    ad_element_bits(descriptor->dtype, descriptor->flags),
                    &first, &past)) {
        return;
    }
    for (int32_t i = 0; i < descriptor->ndim; i++) {
        strides[i] = descriptor->strides[i];
    }
}

static void
accept(const ad_tensor_descriptor *descriptor, int64_t size,
       ad_tensor_value *out)
{
    bool is_handle = ad_device_uses_handles(descriptor->memory.device.type);
    uint32_t traits = ad_device_traits(descriptor->memory.device.type);
    void *data = descriptor->data;
    if (size == 0 && (data == NULL || !(traits & AD_ALLOCATIONS))) {
        data = NULL;
    } else if (!is_handle) {
        data = (void *)((uintptr_t)data + (uintptr_t)descriptor->byte_offset);
    }
    out->tensor = (ad_tensor){
        .data = data,
        .byte_offset = is_handle && size != 0 ? descriptor->byte_offset : 0,
        .dtype = descriptor->dtype,
        .ndim = descriptor->ndim,
        .flags = descriptor->flags,
        .memory = descriptor->memory,
        .shape = out->dims,
        .strides = out->dims + descriptor->ndim,
    };
}

/* Fast check for the most common tensors: 1-D, contiguous, elements of 1 to 31
 * whole bytes, no handle. Returns false for all others, including invalid
 * ones, which the slow check decides. */
static bool
check_quickly(const ad_tensor_descriptor *descriptor, ad_tensor_value *out)
{
    ad_dl_dtype dtype = descriptor->dtype;
    if (descriptor->ndim != 1 || descriptor->shape == NULL ||
        dtype.lanes != 1 || dtype.bits == 0 || dtype.bits % 8 != 0 ||
        (dtype.code == AD_DL_BOOL && dtype.bits != 8) ||
        ad_device_uses_handles(descriptor->memory.device.type)) {
        return false;
    }
    int64_t extent = descriptor->shape[0];
    uintptr_t start;
    if (!ad_is_run(descriptor->data, descriptor->byte_offset, extent,
                   dtype.bits / 8, &start) ||
        (descriptor->strides != NULL && descriptor->strides[0] != 1 &&
         extent != 1)) {
        return false;
    }
    out->dims[0] = extent;
    out->dims[1] = 1;
    accept(descriptor, extent, out);
    return true;
}

ad_status
ad_tensor_check(const ad_tensor_descriptor *descriptor, const char *what,
                ad_tensor_value *out, ad_error *err)
{
    int64_t size = 0;
    if (check_quickly(descriptor, out)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(check_dtype(descriptor, what, err));
    AD_RETURN_IF_ERR(check_ndim(descriptor, what, err));
    AD_RETURN_IF_ERR(check_shape(descriptor, what, &size, err));
    int64_t *shape = out->dims;
    int64_t *strides = out->dims + descriptor->ndim;
    for (int32_t i = 0; i < descriptor->ndim; i++) {
        shape[i] = descriptor->shape[i];
    }
    row_major(descriptor->ndim, shape, strides);
    if (size == 0) {
        keep_strides(descriptor, strides);
    } else {
        for (int32_t i = 0;
             descriptor->strides != NULL && i < descriptor->ndim; i++) {
            strides[i] = shape[i] == 1 ? strides[i] : descriptor->strides[i];
        }
        if (descriptor->data == NULL) {
            return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                           "%s has %" PRId64 " elements but no data", what,
                           size);
        }
        AD_RETURN_IF_ERR(check_addresses(descriptor, what, strides, err));
    }
    accept(descriptor, size, out);
    return AD_OK;
}

/* --- copies in host memory ----------------------------------------------- */

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
        row_major(tensor->ndim, tensor->shape, tensor->strides);
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
