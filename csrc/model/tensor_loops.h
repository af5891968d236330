/* The nested loops of a copy of a strided tensor. Only for the files that copy
 * tensors.
 */
#ifndef AD_MODEL_TENSOR_LOOPS_H
#define AD_MODEL_TENSOR_LOOPS_H

#include "model/tensor.h"

/* One loop. Each iteration advances the source by `stride` bytes and the
 * contiguous target by `pitch`. */
typedef struct ad_loop {
    int64_t extent;
    int64_t stride;
    int64_t pitch;
} ad_loop;

/* Outermost loop first. Dimensions that the source traverses at one stride are
 * merged into one loop. There are always at least two loops, if necessary with
 * extent 1. */
typedef struct ad_loops {
    int32_t n;
    ad_loop at[AD_MAX_NDIM + 2];
    size_t size; /* bytes per element */
} ad_loops;

/* Plans the loops for a tensor with elements and a target in `order`, 'C' or
 * 'F'. Fails with AD_ERR_EXCHANGE for elements that share bytes. */
AD_MUST_CHECK ad_status ad_loops_plan(const ad_tensor *tensor, char order,
                                      ad_loops *out, ad_error *err);

/* Sets the strides of a contiguous tensor of this shape. */
void ad_tensor_contiguous_strides(ad_tensor *tensor, char order);

#endif /* AD_MODEL_TENSOR_LOOPS_H */
