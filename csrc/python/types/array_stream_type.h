/* The type ad.ArrayStream; and the types of the two ends of an async stream,
 * for arrowdev/aio.py, which does the awaiting.
 *
 * The two ends depend on no event loop. Each has a file descriptor that
 * becomes readable when there is work to do, so that a thread of a peer never
 * needs the GIL.
 */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/array_stream.h"
#include "support/py_stream.h"
#include "support/state.h"

typedef struct ad_array_stream_object {
    PyObject_HEAD
    ad_array_stream *stream; /* NULL: closed, or handed over */
    ad_state *state;         /* stored here because every next() uses it */
    ad_schema schema;
    int32_t device_type;
    bool is_python; /* a read calls Python first: the GIL is kept */
    /* With the lock of the object, as `stream`, except in a read. */
    bool is_busy;    /* a read is running, perhaps without the GIL */
    bool is_closing; /* end_reading() must close the stream */
    bool is_closed;
    bool is_interrupted; /* atomic: a signal ended the last call of next() */
    PyObject *weakrefs;
} ad_array_stream_object;

static inline bool
ad_is_array_stream(ad_state *state, PyObject *object)
{
    return Py_TYPE(object) == (PyTypeObject *)state->array_stream_type;
}

/* Takes ownership of the stream, also on failure. */
PyObject *ad_array_stream_object_new(ad_state *state, ad_array_stream *steal);

/* The result of arrowdev.array_stream(object). New reference, or NULL.
 * (python/functions/array_stream.c) */
PyObject *ad_array_stream_from_object(ad_state *state, PyObject *object);

/* object.to(target, prefetch=, stream=); `stream` may be NULL. */
#define AD_PREFETCH 1 /* the default */
PyObject *ad_array_stream_object_to(ad_state *state, PyObject *object,
                                    ad_device target, int64_t prefetch,
                                    PyObject *stream);

/* Takes the stream out of the object permanently: a reference, or NULL with an
 * exception if the stream is being read, was handed over, or is closed. */
ad_array_stream *ad_array_stream_hand_over(PyObject *object);

/* _async_consumer(queue_size, outlives): (_AsyncConsumer, capsule of its
 * handler) */
PyObject *ad_function_async_consumer(PyObject *module, PyObject *args);

/* _async_producer(handler): takes the handler out of its capsule. */
PyObject *ad_function_async_producer(PyObject *module, PyObject *handler);

/* ArrayStream.__arrowdev_async_device_stream__(handler): a thread sends the
 * remaining batches of the stream to the handler. */
PyObject *ad_array_stream_push(PyObject *self, PyObject *handler);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
