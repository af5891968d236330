/* Flattens a column, from the column down to the one buffer that holds its
 * elements, through lists and extensions. For the files of the bridge only.
 */
#ifndef AD_BRIDGE_FLATTEN_H
#define AD_BRIDGE_FLATTEN_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "model/tensor.h"
#include "device/backend.h"

/* Where a copy of what is on `device` is made: there, when it was asked for.
 * A copy that only the other model takes is the host's wherever the host reads,
 * which needs no runtime. */
static inline ad_device
ad_bridge_target(ad_device device, ad_copy copy)
{
    return copy != AD_COPY_ALWAYS && ad_host_accessible(device) ? AD_CPU
                                                                : device;
}

/* The rows of one node that the column consists of. */
typedef struct ad_level {
    const void *validity; /* not NULL where n_nulls is not 0 */
    int64_t offset;
    int64_t length;
    int64_t n_nulls; /* -1: not known, and at most `length` */
} ad_level;

typedef struct ad_flattened {
    int32_t n_levels;
    ad_level levels[AD_MAX_DEPTH + 1];
    int32_t ndim;
    int64_t extent[AD_MAX_NDIM];   /* in memory order, outermost first */
    int32_t position[AD_MAX_NDIM]; /* of logical dimension i in `extent` */
    ad_dl_dtype dtype;
    bool is_bits;        /* bools of one bit, the dtype is that of a copy */
    const void *data;    /* of the leaf */
    int64_t offset;      /* of the first element, in values of the leaf */
    int64_t leaf_nbytes; /* of one value of the leaf; 0 for bits */
} ad_flattened;

/* Fails for types that tensors have no equivalent of. Looks at no data but
 * offsets, and not at nulls but to note where they are. Lists of variable size
 * must be of one length, to be a dimension: their offsets are read, which
 * blocks on a device. Without `reads` they are not: then extents, offset and
 * data mean nothing, but the number of dimensions and the type do. */
AD_MUST_CHECK ad_status ad_flatten_array(const ad_array *array, bool reads,
                                         ad_flattened *out, ad_error *err);

/* Drop the bitmaps of levels that have no null after all, which takes a count
 * where their number is not known. Where there are nulls, refuse or, for
 * *has_nulls, leave them to be filled. */
AD_MUST_CHECK ad_status ad_flatten_resolve_nulls(const ad_array *array,
                                                 ad_nulls policy,
                                                 ad_flattened *flat,
                                                 bool *has_nulls,
                                                 ad_error *err);

/* The `length` lists of `node` from row `offset` on, a part of `array`, as
 * rows of *row_size values each, the first of them value *first of the child.
 * Lists of several lengths: AD_ERR_EXCHANGE; offsets that make no sense:
 * AD_ERR_ARROW (bridge/lists.c). */
AD_MUST_CHECK ad_status ad_lists_as_rows(const ad_array *array,
                                         const struct ArrowArray *node,
                                         const ad_type *type, int64_t offset,
                                         int64_t length, int64_t *first,
                                         int64_t *row_size, ad_error *err);

/* --- the two cases of ad_tensor_from_array ------------------------------- */

/* Anything but a batch (bridge/column.c). */
AD_MUST_CHECK ad_status ad_column_to_tensor(const ad_array *array,
                                            const ad_bridge_options *options,
                                            ad_tensor_value *out,
                                            ad_error *err);

/* A struct whose columns are of one element type, as a matrix of the shape
 * (rows, columns) (bridge/matrix.c). */
AD_MUST_CHECK ad_status ad_batch_to_tensor(const ad_array *batch,
                                           const ad_bridge_options *options,
                                           ad_tensor_value *out,
                                           ad_error *err);

typedef ad_status (*ad_bridge_fn)(const ad_array *array,
                                  const ad_bridge_options *options,
                                  ad_tensor_value *out, ad_error *err);

/* copy=True of pinned or managed memory: the host makes the tensor by
 * `convert`, if it has to be made, and the copy, in `order` where the options
 * name none, goes to where the array is (bridge/column.c). */
bool ad_bridge_copies_back(const ad_array *array,
                           const ad_bridge_options *options);
AD_MUST_CHECK ad_status ad_bridge_copy_back(const ad_array *array,
                                            const ad_bridge_options *options,
                                            ad_bridge_fn convert, char order,
                                            ad_tensor_value *out,
                                            ad_error *err);

/* Column `i` of a batch without references of its own, or a look at the
 * batch's nulls. */
ad_array ad_batch_column_borrow(const ad_array *batch, int64_t i);

/* Row-major strides of `extent`. */
void ad_flatten_strides(const ad_flattened *flat, int64_t *strides);

#endif /* AD_BRIDGE_FLATTEN_H */
