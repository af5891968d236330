/* ad.ArrayStream: construction, and exclusive reading, for the Python layer.
 */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/array_stream.h"
#include "support/py_stream.h"
#include "support/state.h"

struct ad_stream_object;

/* The result of arrowdev.array_stream(object). New reference, or NULL.
 * (python/functions/array_stream.c) */
PyObject *ad_array_stream_object(ad_state *state, PyObject *object);

/* Makes the caller the only reader of an ArrayStream. -1 with an exception if
 * the stream is being read, was handed over, or is closed. */
int ad_stream_begin_reading(PyObject *object);
void ad_stream_end_reading(struct ad_stream_object *self);

/* Takes the stream out of the object permanently: a reference, or NULL with an
 * exception. */
ad_array_stream *ad_stream_hand_over(PyObject *object);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
