/* Flattens a column through lists and extensions down to the buffer of its
 * elements. For the files of the bridge only.
 */
#ifndef AD_BRIDGE_FLATTEN_H
#define AD_BRIDGE_FLATTEN_H

#include "model/array.h"
#include "bridge/bridge.h"
#include "model/tensor.h"
#include "device/backend.h"

/* The device of a copy of data on `device`: the same one for copy=True. A copy
 * that only the conversion needs is made in host memory if the host can access
 * the data, since that needs no runtime. */
static inline ad_device
ad_bridge_target(ad_device device, ad_copy copy)
{
    return copy != AD_COPY_ALWAYS && ad_host_accessible(device) ? AD_CPU
                                                                : device;
}

/* The rows of one node that belong to the column. */
typedef struct ad_level {
    const void *validity; /* not NULL if n_nulls is not 0 */
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
    bool is_bits;        /* bools of one bit; dtype is that of a copy */
    const void *data;    /* of the leaf */
    int64_t offset;      /* of the first element, in values of the leaf */
    int64_t leaf_nbytes; /* of one value of the leaf; 0 for bits */
} ad_flattened;

/* Fails for types without an equivalent among tensors. Reads no data but
 * offsets, and only records where nulls are. Lists of variable size must have
 * equal lengths to be a dimension: their offsets are read, which waits on a
 * device. Without `reads` they are not read: then only the number of
 * dimensions and the type are valid, not extents, offset and data. */
AD_MUST_CHECK ad_status ad_flatten_array(const ad_array *array, bool reads,
                                         ad_flattened *out, ad_error *err);

/* Drops the bitmaps of levels without nulls; nulls of an unknown number are
 * counted. Nulls are refused, or set *has_nulls for the caller to fill
 * them. */
AD_MUST_CHECK ad_status ad_flatten_resolve_nulls(
    const ad_array *array, const ad_bridge_options *options,
    ad_flattened *flat, bool *has_nulls, ad_error *err);

#endif /* AD_BRIDGE_FLATTEN_H */
