/* Move an array or a tensor to a device. */
#ifndef AD_PYTHON_FUNCTIONS_TO_DEVICE_H
#define AD_PYTHON_FUNCTIONS_TO_DEVICE_H

#include "protocol/protocol.h"

/* Move `array`, or `value` if `array` is NULL, to `target` in place. The
 * memory stays as it is, or becomes known as memory of `target` (pinned and
 * managed memory), or is copied on `stream`. AD_COPY_NEVER refuses a copy.
 * AD_COPY_ALWAYS copies, unless the tensor is on `target` and its producer has
 * copied it. On failure returns -1 with an exception and clears the value. */
int ad_move_to(ad_state *state, ad_array *array, ad_tensor_value *value,
               ad_device target, const ad_stream_argument *stream,
               ad_copy copy);

#endif /* AD_PYTHON_FUNCTIONS_TO_DEVICE_H */
