/* What the Python layer shares about streams: ad.ArrayStream, and array() of a
 * stream.
 */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/array_stream.h"
#include "support/py_stream.h"
#include "support/state.h"

struct ad_stream_object;

/* The ArrayStream that arrowdev.array_stream(object) gives. New reference, or
 * NULL. (python/functions/array_stream.c) */
PyObject *ad_array_stream_object(ad_state *state, PyObject *object);

/* Be the one reader of an ArrayStream whose stream is there; 0, or -1 with the
 * exception that says why that cannot be. */
int ad_stream_begin_reading(PyObject *object);
void ad_stream_end_reading(struct ad_stream_object *self);

/* Take the stream out, for good: a reference, or NULL with an exception. */
ad_array_stream *ad_stream_hand_over(PyObject *object);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
