/* Streams and devices that a caller names, as core takes them.
 */
#ifndef AD_PYTHON_MOVING_H
#define AD_PYTHON_MOVING_H

#include "protocol/protocol.h"

/* Read a stream= argument (NULL or None: not given) for work on `device`. -1
 * with an exception. *out holds a reference on what keeps the stream; drop it
 * with ad_choice_clear. The int -1 is refused: work has to run somewhere. */
int ad_read_choice(ad_state *state, PyObject *stream, ad_device device,
                   ad_stream_choice *out);
void ad_choice_clear(ad_stream_choice *choice);

/* Bring the memory to `target`, in place: nothing to do, another name for the
 * same memory (pinned and managed memory as the device's or the host's), or a
 * copy on `stream`, which copy=False refuses. `copy` of AD_COPY_ALWAYS copies
 * in any case, unless the tensor was copied before. -1 with an exception, and
 * nothing is held any more. */
int ad_move_array(ad_state *state, ad_array *array, ad_device target,
                  PyObject *stream, ad_copy copy);
int ad_move_tensor(ad_state *state, ad_tensor_value *value, ad_device target,
                   PyObject *stream, ad_copy copy);

#endif /* AD_PYTHON_MOVING_H */
