/* Memory on the device that a caller names.
 */
#ifndef AD_PYTHON_FUNCTIONS_TO_DEVICE_H
#define AD_PYTHON_FUNCTIONS_TO_DEVICE_H

#include "protocol/protocol.h"

/* Bring `array`, or `value` where that is NULL, to `target`, in place: nothing
 * to do, another name for the same memory (pinned and managed memory as the
 * device's or the host's), or a copy on `stream`, which copy=False refuses.
 * `copy` of AD_COPY_ALWAYS copies in any case, unless the tensor was copied
 * before. -1 with an exception, and nothing is held any more. */
int ad_move_to(ad_state *state, ad_array *array, ad_tensor_value *value,
               ad_device target, const ad_stream_argument *stream,
               ad_copy copy);

#endif /* AD_PYTHON_FUNCTIONS_TO_DEVICE_H */
