/* An array as a tensor: a batch is a matrix, anything else is a column. */
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/flatten.h"
#include "copy/copy.h"

static bool
is_batch(const ad_array *array)
{
    return strcmp(array->schema.node->format, "+s") == 0;
}

/* copy=True for pinned or managed memory: the tensor is made as if it was CPU
 * memory, and the copy goes to the device of the array. */
static ad_status
copy_back(const ad_array *array, const ad_bridge_options *options,
          ad_tensor_value *out, ad_error *err)
{
    char order = is_batch(array) && options->order == 0 ? 'F' : options->order;
    ad_bridge_options if_needed = *options;
    ad_array on_host = ad_array_borrow(array);
    ad_tensor_value seen;
    if_needed.copy = AD_COPY_IF_NEEDED;
    on_host.memory.device = AD_CPU;
    on_host.memory.sync = NULL;
    AD_RETURN_IF_ERR(
        ad_sync_wait(array->memory.sync, "a copy on the host", err));
    ad_status status = ad_tensor_from_array(&on_host, &if_needed, &seen, err);
    if (status != AD_OK) {
        ad_error_device(err, array->memory.device);
        return status;
    }
    if ((seen.tensor.flags & AD_TENSOR_COPIED) == 0) { /* shared memory */
        seen.tensor.memory.device = array->memory.device;
    }
    status = ad_tensor_copy_to(&seen.tensor, array->memory.device, NULL, order,
                               "copy=True was passed", out, err);
    ad_tensor_clear(&seen.tensor);
    return status;
}

ad_status
ad_tensor_from_array(const ad_array *array, const ad_bridge_options *options,
                     ad_tensor_value *out, ad_error *err)
{
    if (options->copy == AD_COPY_ALWAYS &&
        ad_host_accessible(array->memory.device) &&
        !ad_device_equal(array->memory.device, AD_CPU)) {
        return copy_back(array, options, out, err);
    }
    return is_batch(array) ? ad_batch_to_tensor(array, options, out, err)
                           : ad_column_to_tensor(array, options, out, err);
}

/* The rows alone, without what they consist of. */
static void
flatten_rows(const ad_array *array, ad_flattened *out)
{
    const void *validity = ad_array_validity(array);
    out->n_levels = ad_array_has_no_nulls(array) ? 0 : 1;
    out->levels[0] = (ad_level){
        .validity = validity,
        .offset = array->offset,
        .length = array->length,
        .n_nulls =
            validity != NULL ? ad_array_null_count(array) : array->length,
    };
}

ad_status
ad_array_require_no_nulls(const ad_array *array, ad_error *err)
{
    const ad_bridge_options options = {.nulls = AD_NULLS_RAISE};
    ad_flattened flat;
    bool has_nulls;
    if (is_batch(array)) {
        flatten_rows(array, &flat);
    } else {
        ad_status status = ad_flatten_array(array, true, &flat, err);
        if (status == AD_ERR_EXCHANGE && !ad_error_has_reason(err, "nulls")) {
            flatten_rows(array, &flat); /* no tensor */
        } else if (status != AD_OK) {
            return status;
        }
    }
    AD_RETURN_IF_ERR(
        ad_flatten_resolve_nulls(array, &options, &flat, &has_nulls, err));
    for (int64_t i = 0; is_batch(array) && i < array->node->n_children; i++) {
        const ad_array column =
            ad_array_borrow_below(array, i, array->offset, array->length);
        AD_RETURN_IF_ERR(ad_array_require_no_nulls(&column, err));
    }
    return AD_OK;
}

bool
ad_array_tensor_dtype(const ad_array *array, ad_dl_dtype *out)
{
    ad_flattened flat;
    ad_array column;
    if (is_batch(array) && array->node->n_children > 0) {
        column = ad_array_borrow_below(array, 0, array->offset, array->length);
        array = &column;
    }
    if (ad_flatten_array(array, false, &flat, NULL) != AD_OK) {
        return false;
    }
    *out = flat.dtype;
    return true;
}

void
ad_array_tensor_shape(const ad_array *array, int32_t *ndim, int64_t *shape)
{
    ad_flattened flat;
    shape[0] = array->length;
    if (is_batch(array)) {
        *ndim = 2;
        shape[1] = array->node->n_children;
        return;
    }
    if (ad_flatten_array(array, false, &flat, NULL) != AD_OK) {
        *ndim = 1;
        return;
    }
    bool is_known = !ad_array_reads_offsets(array);
    *ndim = flat.ndim;
    for (int32_t i = 0; i < flat.ndim; i++) {
        shape[i] = is_known ? flat.extent[flat.position[i]] : -1;
    }
}
