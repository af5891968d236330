/* Sizes of an array's buffers.
 */
#ifndef AD_MODEL_ARRAY_BUFFERS_H
#define AD_MODEL_ARRAY_BUFFERS_H

#include "model/array.h"

/* The size can only be read from memory that the host cannot access. */
#define AD_SIZE_UNKNOWN (-1)

/* Size in bytes that buffer `i` of the array's own node must have for rows [0,
 * offset + length) of the view; 0 for an absent buffer. For variable-size data
 * the size is read from the offsets (or from a view's size buffer) in host
 * memory; on other devices it is AD_SIZE_UNKNOWN. Never larger than the size
 * for the whole node. Fails with AD_ERR_ARROW on invalid offsets. */
AD_MUST_CHECK ad_status ad_array_buffer_size(const ad_array *array, int64_t i,
                                             int64_t *out, ad_error *err);

/* Total size of all buffers of the tree; AD_SIZE_UNKNOWN if one is unknown. */
AD_MUST_CHECK ad_status ad_array_nbytes(const ad_array *array, int64_t *out,
                                        ad_error *err);

#endif /* AD_MODEL_ARRAY_BUFFERS_H */
