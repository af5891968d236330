/* A walk from a column down to the one buffer that holds its elements,
 * through fixed-size lists and extensions. For the files of the bridge only.
 */
#ifndef AD_CORE_BRIDGE_WALK_H
#define AD_CORE_BRIDGE_WALK_H

#include "core/array.h"
#include "core/tensor.h"

/* The rows of one node that the column consists of. */
typedef struct ad_level {
    const void *validity; /* not NULL where n_nulls is not 0 */
    int64_t offset;
    int64_t length;
    int64_t n_nulls; /* -1: not known, and at most `length` */
} ad_level;

typedef struct ad_walk {
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
} ad_walk;

/* Fails for types that tensors have no equivalent of. Looks at no data, and
 * not at nulls but to note where they are. */
AD_MUST_CHECK ad_status ad_walk_array(const ad_array *array, ad_walk *out,
                                      ad_error *err);

/* Row-major strides of `extent`. */
void ad_walk_strides(const ad_walk *walk, int64_t *strides);

/* Name the array's type in *err. */
void ad_walk_error_dtype(const ad_array *array, ad_error *err);

#endif /* AD_CORE_BRIDGE_WALK_H */
