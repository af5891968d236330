/* The instance of ad.ArrayStream.
 */
#ifndef AD_PYTHON_TYPES_STREAM_OBJECT_H
#define AD_PYTHON_TYPES_STREAM_OBJECT_H

#include "stream/array_stream.h"
#include "protocol/protocol.h"

typedef struct ad_stream_object {
    PyObject_HEAD
    ad_array_stream *stream; /* NULL: closed, or handed over */
    ad_state *state; /* looked up once: a loop needs it for each batch */
    ad_schema schema;
    int32_t device_type;
    bool is_python;  /* as ad_stream_is_python() */
    bool is_busy;    /* somebody reads it, perhaps without the GIL */
    bool is_closing; /* ... and is to close it afterwards */
    bool is_closed;
    bool is_interrupted; /* the last call of next() was */
    PyObject *weakrefs;
} ad_stream_object;

static inline bool
ad_is_array_stream(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->array_stream_type;
}

/* Takes the stream over, on failure too. */
PyObject *ad_stream_object_new(ad_state *state, ad_array_stream *steal);

#endif /* AD_PYTHON_TYPES_STREAM_OBJECT_H */
