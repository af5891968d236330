/* The type ad.ArrayStream. */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/array_stream.h"
#include "support/py_stream.h"
#include "support/state.h"

typedef struct ad_stream_object {
    PyObject_HEAD
    ad_array_stream *stream; /* NULL: closed, or handed over */
    ad_state *state;         /* stored here because every next() uses it */
    ad_schema schema;
    int32_t device_type;
    bool is_python;  /* a read calls Python first: the GIL is kept */
    bool is_busy;    /* a read is running, perhaps without the GIL */
    bool is_closing; /* end_reading() must close the stream */
    bool is_closed;
    bool is_interrupted; /* a signal ended the last call of next() */
    PyObject *weakrefs;
} ad_stream_object;

static inline bool
ad_is_array_stream(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->array_stream_type;
}

/* Takes ownership of the stream, also on failure. */
PyObject *ad_stream_object_new(ad_state *state, ad_array_stream *steal);

/* The result of arrowdev.array_stream(object). New reference, or NULL.
 * (python/functions/array_stream.c) */
PyObject *ad_array_stream_object(ad_state *state, PyObject *object);

/* Takes the stream out of the object permanently: a reference, or NULL with an
 * exception if the stream is being read, was handed over, or is closed. */
ad_array_stream *ad_stream_hand_over(PyObject *object);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
