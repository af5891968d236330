/* A column as a tensor. */
#include <inttypes.h>

#include "base/log.h"
#include "compute/bits.h"
#include "bridge/bridge.h"
#include "bridge/flatten.h"
#include "compute/fill.h"
#include "copy/copy.h"
#include "device/backend.h"

/* --- copies ------------------------------------------------------------- */

static ad_status
fail_copy(const ad_array *array, bool is_bits, ad_error *err)
{
    ad_fail(err, AD_ERR_EXCHANGE, "copy", "allow a copy (copy=None)",
            "%s needs a copy, which was ruled out",
            is_bits ? "making bytes of the bits of a bool array"
                    : "filling nulls");
    ad_error_device(err, array->memory.device);
    ad_type_error_dtype(array->schema.node, err);
    return AD_ERR_EXCHANGE;
}

/* Unpacks the bits to bytes. */
static ad_status
unpack_values(const ad_array *array, const ad_flattened *flat, int64_t n,
              ad_device device, ad_allocation *out, ad_error *err)
{
    bool is_host = ad_host_accessible(device);
    if (is_host) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(array->memory.sync, "a copy on the host", err));
    }
    const ad_bits bits = {
        .device = device,
        .data = flat->data,
        .offset = flat->offset,
        .length = n,
        .owner = array->memory.owner,
        .sync = is_host ? NULL : array->memory.sync,
    };
    return ad_unpack_bits(&bits, NULL, out, err);
}

/* Copies the values as one dimension, so that their order in memory stays. */
static ad_status
duplicate_values(const ad_array *array, const ad_tensor *tensor, int64_t n,
                 ad_device device, ad_allocation *out, ad_error *err)
{
    ad_tensor_value copy;
    int64_t stride = 1;
    ad_tensor run = *tensor;
    run.ndim = 1;
    run.shape = &n;
    run.strides = &stride;
    run.memory.owner = array->memory.owner;
    run.memory.sync = array->memory.sync;
    AD_RETURN_IF_ERR(
        ad_tensor_copy_to(&run, device, NULL, 'C', NULL, &copy, err));
    *out = (ad_allocation){copy.tensor.data, copy.tensor.memory.owner,
                           copy.tensor.memory.sync};
    return AD_OK;
}

/* Replaces the memory of *tensor by a copy in the same order. The nulls of a
 * plain column are those of its only level, and filled by the copy. A row of
 * other levels holds several elements (a list) or a part of one (half of a
 * complex number). */
static ad_status
copy_values(const ad_array *array, const ad_flattened *flat, bool has_nulls,
            const void *value, ad_tensor *tensor, ad_error *err)
{
    ad_device device =
        ad_bridge_target(array->memory.device, AD_COPY_IF_NEEDED);
    ad_fill fills[AD_MAX_DEPTH + 1];
    ad_allocation made;
    size_t n_fills = 0;
    int64_t n = ad_tensor_size(tensor);
    uint32_t bits = ad_dtype_bits(tensor->dtype);
    size_t size = bits % 8 == 0 ? bits / 8 : 0;
    bool is_plain = has_nulls && flat->n_levels == 1 && !flat->is_bits &&
                    flat->levels[0].length == n;
    for (int32_t i = 0; has_nulls && n > 0 && i < flat->n_levels; i++) {
        const ad_level *level = &flat->levels[i];
        if (level->n_nulls != 0) {
            fills[n_fills++] =
                (ad_fill){level->validity, level->offset, level->length, n};
        }
    }
    AD_LOG_COPY(size > 0 ? n * (int64_t)size : n * bits / 8,
                array->memory.device, device,
                flat->is_bits ? "a tensor has a byte per bool, not a bit"
                : has_nulls   ? "nulls are filled"
                              : "copy=True was passed");
    AD_RETURN_IF_ERR(
        is_plain ? ad_nulls_copy_filled(array, fills, value, size, tensor,
                                        &made, err)
        : flat->is_bits
            ? unpack_values(array, flat, n, device, &made, err)
            : duplicate_values(array, tensor, n, device, &made, err));
    tensor->data = made.data;
    tensor->byte_offset = 0;
    tensor->memory =
        (ad_memory){.owner = made.owner, .sync = made.sync, .device = device};
    tensor->flags = AD_TENSOR_COPIED;
    if (is_plain || n_fills == 0) {
        return AD_OK;
    }
    ad_status status =
        ad_nulls_fill(array, fills, n_fills, value, size, tensor, err);
    if (status != AD_OK) {
        ad_tensor_clear(tensor);
    }
    return status;
}

/* --- entry -------------------------------------------------------------- */

static void
share_memory(const ad_array *array, ad_tensor *tensor)
{
    tensor->memory.owner = ad_owner_ref(array->memory.owner);
    tensor->memory.sync = ad_sync_ref(array->memory.sync);
}

/* The fast path for plain numbers without nulls, the most frequent column. */
static const ad_dtype_info *
plain_column(const ad_array *array)
{
    const struct ArrowSchema *schema = array->schema.node;
    if (schema->metadata != NULL || schema->dictionary != NULL ||
        !ad_array_has_no_nulls(array)) {
        return NULL;
    }
    return ad_dtype_by_format(schema->format);
}

/* Makes a tensor of the values from value `offset` of `nbytes` bytes on. The
 * product may overflow: validation cannot check the length of the memory. */
static ad_status
check(const ad_array *array, ad_tensor_descriptor *descriptor, int64_t offset,
      int64_t nbytes, ad_tensor_value *out, ad_error *err)
{
    int64_t product;
    if (__builtin_mul_overflow(offset, nbytes, &product)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %" PRId64 " of %" PRId64
                       "-byte values overflows",
                       offset, nbytes);
    }
    descriptor->byte_offset = (uint64_t)product;
    descriptor->memory = (ad_memory){.device = array->memory.device,
                                     .readonly = array->memory.readonly};
    descriptor->flags = AD_TENSOR_IMMUTABLE;
    return ad_tensor_check(descriptor, "the array", out, err);
}

static ad_status
check_plain(const ad_array *array, ad_dl_dtype dtype, ad_tensor_value *out,
            ad_error *err)
{
    ad_tensor_descriptor descriptor = {
        .data = (void *)array->node->buffers[1],
        .dtype = dtype,
        .ndim = 1,
        .shape = &array->length,
    };
    return check(array, &descriptor, array->offset, dtype.bits / 8, out, err);
}

/* Dimensions in logical order, with the strides of the order in memory. */
static ad_status
check_flattened(const ad_array *array, const ad_flattened *flat,
                ad_tensor_value *out, ad_error *err)
{
    int64_t memory_strides[AD_MAX_NDIM];
    int64_t shape[AD_MAX_NDIM];
    int64_t strides[AD_MAX_NDIM];
    /* Wraps instead of overflowing: ad_tensor_check refuses such shapes. */
    uint64_t stride = 1;
    for (int32_t i = flat->ndim - 1; i >= 0; i--) {
        memory_strides[i] = (int64_t)stride;
        stride *= flat->extent[i] > 1 ? (uint64_t)flat->extent[i] : 1;
    }
    for (int32_t i = 0; i < flat->ndim; i++) {
        shape[i] = flat->extent[flat->position[i]];
        strides[i] = memory_strides[flat->position[i]];
    }
    ad_tensor_descriptor descriptor = {
        .data = (void *)flat->data,
        .dtype = flat->dtype,
        .ndim = flat->ndim,
        .shape = shape,
        .strides = strides,
    };
    return check(array, &descriptor, flat->offset, flat->leaf_nbytes, out,
                 err);
}

ad_status
ad_column_to_tensor(const ad_array *array, const ad_bridge_options *options,
                    ad_tensor_value *out, ad_error *err)
{
    const ad_dtype_info *plain =
        options->copy != AD_COPY_ALWAYS ? plain_column(array) : NULL;
    if (plain != NULL) {
        AD_RETURN_IF_ERR(check_plain(array, plain->dtype, out, err));
        share_memory(array, &out->tensor);
        return AD_OK;
    }
    ad_flattened flat;
    bool has_nulls;
    AD_RETURN_IF_ERR(ad_flatten_array(array, true, &flat, err));
    AD_RETURN_IF_ERR(
        ad_flatten_resolve_nulls(array, options, &flat, &has_nulls, err));
    AD_RETURN_IF_ERR(check_flattened(array, &flat, out, err));
    if (options->copy != AD_COPY_ALWAYS && !flat.is_bits && !has_nulls) {
        share_memory(array, &out->tensor);
        return AD_OK;
    }
    return options->copy == AD_COPY_NEVER
               ? fail_copy(array, flat.is_bits, err)
               : copy_values(array, &flat, has_nulls, options->fill,
                             &out->tensor, err);
}
