/* A column as a tensor. */
#include <inttypes.h>

#include "compute/bits.h"
#include "bridge/bridge.h"
#include "bridge/flatten.h"
#include "compute/fill.h"
#include "copy/copy.h"
#include "device/backend.h"

/* A row of a level holds several elements (a list) or a part of one (half of
 * a complex number). */
static ad_status
fill_levels(const ad_array *array, const ad_flattened *flat, const void *value,
            ad_tensor *tensor, ad_error *err)
{
    ad_fill fills[AD_MAX_DEPTH + 1];
    size_t n = 0;
    int64_t n_elements = ad_tensor_size(tensor);
    for (int32_t i = 0; i < flat->n_levels; i++) {
        const ad_level *level = &flat->levels[i];
        if (level->n_nulls != 0) {
            fills[n++] = (ad_fill){level->validity, level->offset,
                                   level->length, n_elements};
        }
    }
    return ad_nulls_fill(array, fills, n, value,
                         (size_t)(ad_tensor_nbytes(tensor) / n_elements),
                         tensor, err);
}

/* --- copies ------------------------------------------------------------- */

static ad_status
check_copy(const ad_array *array, const ad_bridge_options *options,
           const ad_flattened *flat, ad_error *err)
{
    if (options->copy == AD_COPY_NEVER) {
        ad_fail(err, AD_ERR_EXCHANGE, "copy", "allow a copy (copy=None)",
                "%s needs a copy, which was ruled out",
                flat->is_bits ? "making bytes of the bits of a bool array"
                              : "filling nulls");
        ad_error_device(err, array->device);
        ad_type_error_dtype(array->schema.node, err);
        return AD_ERR_EXCHANGE;
    }
    if (options->nulls == AD_NULLS_FILL && options->fill == NULL) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "nulls are to be filled, but no fill value was given");
    }
    return AD_OK;
}

static void
take_allocation(ad_tensor *tensor, const ad_allocation *made, ad_device device)
{
    tensor->data = made->data;
    tensor->owner = made->owner;
    tensor->sync = made->sync;
    tensor->byte_offset = 0;
    tensor->device = device;
}

/* Unpacks the bits to bytes, on the same device. */
static ad_status
unpack_values(const ad_array *array, const ad_flattened *flat,
              ad_tensor *tensor, ad_error *err)
{
    bool is_host = ad_host_accessible(array->device);
    ad_device device = is_host ? AD_CPU : array->device;
    if (is_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(array->sync, "a copy on the host", err));
    }
    const ad_bits bits = {
        .device = device,
        .data = flat->data,
        .offset = flat->offset,
        .length = ad_tensor_size(tensor),
        .owner = array->owner,
        .sync = is_host ? NULL : array->sync,
    };
    ad_allocation bytes;
    AD_RETURN_IF_ERR(ad_unpack_bits(&bits, NULL, &bytes, err));
    take_allocation(tensor, &bytes, device);
    return AD_OK;
}

/* Copies the values as one dimension, so that their order in memory stays. */
static ad_status
duplicate_values(const ad_array *array, ad_tensor *tensor, ad_error *err)
{
    ad_tensor_value copy;
    int64_t n = ad_tensor_size(tensor), stride = 1;
    bool is_host = ad_host_accessible(array->device);
    ad_tensor run = *tensor;
    run.ndim = 1;
    run.shape = &n;
    run.strides = &stride;
    run.owner = array->owner;
    run.sync = array->sync;
    AD_RETURN_IF_ERR(ad_tensor_copy_to(&run, is_host ? AD_CPU : array->device,
                                       NULL, 'C', &copy, err));
    tensor->data = copy.tensor.data;
    tensor->byte_offset = copy.tensor.byte_offset;
    tensor->device = copy.tensor.device;
    tensor->owner = copy.tensor.owner;
    tensor->sync = copy.tensor.sync;
    return AD_OK;
}

/* The nulls of a plain column are those of its only level. */
static bool
is_plain_fill(const ad_flattened *flat, const ad_tensor *tensor)
{
    return flat->n_levels == 1 && !flat->is_bits &&
           flat->levels[0].length == ad_tensor_size(tensor);
}

static ad_status
copy_filled(const ad_array *array, const ad_flattened *flat, const void *value,
            ad_tensor *tensor, ad_error *err)
{
    const ad_level *level = &flat->levels[0];
    const ad_fill fill = {level->validity, level->offset, level->length,
                          level->length};
    bool is_host = ad_host_accessible(array->device);
    ad_allocation filled;
    AD_RETURN_IF_ERR(ad_nulls_copy_filled(
        array, &fill, value,
        (size_t)(ad_tensor_nbytes(tensor) / level->length), tensor, &filled,
        err));
    take_allocation(tensor, &filled, is_host ? AD_CPU : array->device);
    tensor->flags = AD_TENSOR_COPIED;
    return AD_OK;
}

/* Replaces the memory of *tensor by a copy in the same order. */
static ad_status
copy_values(const ad_array *array, const ad_bridge_options *options,
            const ad_flattened *flat, bool has_nulls, ad_tensor *tensor,
            ad_error *err)
{
    AD_RETURN_IF_ERR(check_copy(array, options, flat, err));
    if (has_nulls && is_plain_fill(flat, tensor)) {
        return copy_filled(array, flat, options->fill, tensor, err);
    }
    AD_RETURN_IF_ERR(flat->is_bits ? unpack_values(array, flat, tensor, err)
                                   : duplicate_values(array, tensor, err));
    tensor->flags = AD_TENSOR_COPIED;
    if (!has_nulls || ad_tensor_size(tensor) == 0) {
        return AD_OK;
    }
    ad_status status = fill_levels(array, flat, options->fill, tensor, err);
    if (status != AD_OK) {
        ad_tensor_clear(tensor);
    }
    return status;
}

/* --- entry -------------------------------------------------------------- */

static uint32_t
flags_of(const ad_array *array)
{
    return AD_TENSOR_IMMUTABLE | (array->readonly ? AD_TENSOR_READONLY : 0);
}

static void
share_memory(const ad_array *array, ad_tensor *tensor)
{
    tensor->owner = ad_owner_ref(array->owner);
    tensor->sync = ad_sync_ref(array->sync);
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

/* Bytes before the first element. The product may overflow: validation cannot
 * check the length of the memory. */
static ad_status
byte_offset_of(int64_t offset, int64_t nbytes, uint64_t *out, ad_error *err)
{
    int64_t product;
    if (__builtin_mul_overflow(offset, nbytes, &product)) {
        return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                       "offset %" PRId64 " of %" PRId64
                       "-byte values overflows",
                       offset, nbytes);
    }
    *out = (uint64_t)product;
    return AD_OK;
}

static ad_status
check_plain(const ad_array *array, ad_dl_dtype dtype, ad_tensor_value *out,
            ad_error *err)
{
    ad_tensor_descriptor descriptor = {
        .data = (void *)array->node->buffers[1],
        .dtype = dtype,
        .ndim = 1,
        .flags = flags_of(array),
        .device = array->device,
        .shape = &array->length,
    };
    AD_RETURN_IF_ERR(byte_offset_of(array->offset, dtype.bits / 8,
                                    &descriptor.byte_offset, err));
    return ad_tensor_check(&descriptor, "the array", out, err);
}

/* Dimensions in logical order, with the strides of the order in memory. */
static ad_status
check_flattened(const ad_array *array, const ad_flattened *flat,
                ad_tensor_value *out, ad_error *err)
{
    int64_t memory_strides[AD_MAX_NDIM];
    int64_t shape[AD_MAX_NDIM];
    int64_t strides[AD_MAX_NDIM];
    ad_flatten_strides(flat, memory_strides);
    for (int32_t i = 0; i < flat->ndim; i++) {
        shape[i] = flat->extent[flat->position[i]];
        strides[i] = memory_strides[flat->position[i]];
    }
    ad_tensor_descriptor descriptor = {
        .data = (void *)flat->data,
        .dtype = flat->dtype,
        .ndim = flat->ndim,
        .flags = flags_of(array),
        .device = array->device,
        .shape = shape,
        .strides = strides,
    };
    AD_RETURN_IF_ERR(byte_offset_of(flat->offset, flat->leaf_nbytes,
                                    &descriptor.byte_offset, err));
    return ad_tensor_check(&descriptor, "the array", out, err);
}

bool
ad_bridge_copies_back(const ad_array *array, const ad_bridge_options *options)
{
    return options->copy == AD_COPY_ALWAYS &&
           ad_host_accessible(array->device) &&
           !ad_device_equal(array->device, AD_CPU);
}

ad_status
ad_bridge_copy_back(const ad_array *array, const ad_bridge_options *options,
                    ad_bridge_fn convert, char order, ad_tensor_value *out,
                    ad_error *err)
{
    ad_bridge_options lying = *options;
    ad_array on_host = *array;
    ad_tensor_value seen;
    lying.copy = AD_COPY_IF_NEEDED;
    on_host.device = AD_CPU;
    on_host.sync = NULL;
    AD_RETURN_IF_ERR(ad_sync_wait(array->sync, "a copy on the host", err));
    ad_status status = convert(&on_host, &lying, &seen, err);
    if (status != AD_OK) {
        ad_error_device(err, array->device);
        return status;
    }
    if ((seen.tensor.flags & AD_TENSOR_COPIED) == 0) { /* shared memory */
        seen.tensor.device = array->device;
    }
    status = ad_tensor_copy_to(&seen.tensor, array->device, NULL,
                               options->order != 0 ? options->order : order,
                               out, err);
    ad_tensor_clear(&seen.tensor);
    return status;
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
    if (ad_bridge_copies_back(array, options)) {
        return ad_bridge_copy_back(array, options, ad_column_to_tensor, 0, out,
                                   err);
    }
    ad_flattened flat;
    bool has_nulls;
    AD_RETURN_IF_ERR(ad_flatten_array(array, true, &flat, err));
    AD_RETURN_IF_ERR(ad_flatten_resolve_nulls(array, options->nulls, &flat,
                                              &has_nulls, err));
    AD_RETURN_IF_ERR(check_flattened(array, &flat, out, err));
    if (options->copy == AD_COPY_ALWAYS || flat.is_bits || has_nulls) {
        return copy_values(array, options, &flat, has_nulls, &out->tensor,
                           err);
    }
    share_memory(array, &out->tensor);
    return AD_OK;
}
