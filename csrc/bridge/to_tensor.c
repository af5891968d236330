/* An array as a tensor: a batch is a matrix, anything else is a column. */
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/flatten.h"

static bool
is_batch(const ad_array *array)
{
    return strcmp(array->schema.node->format, "+s") == 0;
}

ad_status
ad_tensor_from_array(const ad_array *array, const ad_bridge_options *options,
                     ad_tensor_value *out, ad_error *err)
{
    return is_batch(array) ? ad_batch_to_tensor(array, options, out, err)
                           : ad_column_to_tensor(array, options, out, err);
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
