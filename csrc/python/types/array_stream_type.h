/* What the Python layer shares about streams: ad.ArrayStream, and array() of a
 * stream.
 */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/array_stream.h"
#include "support/capsule.h"
#include "support/state.h"

struct ad_stream_object;

/* Take over the struct in a stream capsule (`pointer`, of `kind`), which is
 * released in the capsule afterwards, on failure too. Call without the GIL:
 * foreign code is run that may block. */
AD_MUST_CHECK ad_status ad_stream_take(void *pointer, ad_capsule_kind kind,
                                       ad_array_stream **out, ad_error *err);

/* Read to the end, as one array; AD_ERR_EXCHANGE, "chunks", where that takes a
 * copy and none is allowed. Call without the GIL. (arrow_stream.c) */
AD_MUST_CHECK ad_status ad_stream_join(ad_array_stream *stream, bool may_copy,
                                       ad_array *out, ad_error *err);

/* The ArrayStream that arrowdev.array_stream(object) gives. New reference, or
 * NULL. (python/functions/array_stream.c) */
PyObject *ad_array_stream_object(ad_state *state, PyObject *object);

/* Be the one reader of an ArrayStream whose stream is there; 0, or -1 with the
 * exception that says why that cannot be. */
int ad_stream_begin_reading(PyObject *object);
void ad_stream_end_reading(struct ad_stream_object *self);

/* Take the stream out, for good: a reference, or NULL with an exception. */
ad_array_stream *ad_stream_hand_over(PyObject *object);

/* Raise what a call on `stream` (NULL: it could not be made) failed with: the
 * producer's text in full, its errno as `code`, and what its Python code raised
 * as the cause. Returns NULL. */
PyObject *ad_stream_raise(ad_state *state, ad_array_stream *stream,
                          const ad_error *err);

/* Drop a reference while an exception may be set. NULL allowed. */
void ad_stream_drop(ad_array_stream *stream);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
