/* Sizes of an array's buffers.
 */
#ifndef AD_MODEL_ARRAY_BUFFERS_H
#define AD_MODEL_ARRAY_BUFFERS_H

#include "model/array.h"

/* The size is only known from memory that the host cannot read. */
#define AD_SIZE_UNKNOWN (-1)

/* Bytes that buffer `i` of the array's own node must have for rows
 * [0, offset + length) of the view; 0 for an absent buffer. Variable-size
 * data need a look at the offsets (or at a view's size buffer): on host
 * memory that look is taken, elsewhere the answer is AD_SIZE_UNKNOWN. Never
 * more than the node as a whole says there is, whatever rows the view has.
 * AD_ERR_ARROW when the offsets make no sense. */
AD_MUST_CHECK ad_status ad_array_buffer_size(const ad_array *array, int64_t i,
                                             int64_t *out, ad_error *err);

/* Bytes of all buffers of the tree, as above; unknown if one is. */
AD_MUST_CHECK ad_status ad_array_nbytes(const ad_array *array, int64_t *out,
                                        ad_error *err);

#endif /* AD_MODEL_ARRAY_BUFFERS_H */
