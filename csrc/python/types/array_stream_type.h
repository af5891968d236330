/* The type ad.ArrayStream, and Python iterators as its source; and the types of
 * the two ends of an async stream, for arrowdev/aio.py, which does the awaiting.
 *
 * The two ends depend on no event loop. Each has a file descriptor that
 * becomes readable when there is work to do, so that a thread of a peer never
 * needs the GIL.
 */
#ifndef AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H
#define AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H

#include "stream/adapters.h"
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

/* object.to(target, prefetch=, stream=); `stream` may be NULL. */
#define AD_PREFETCH 1 /* the default */
PyObject *ad_array_stream_object_to(ad_state *state, PyObject *object,
                                    ad_device target, int64_t prefetch,
                                    PyObject *stream);

/* object.into(cls, stream=, copy=), with None for what is left out. */
PyObject *ad_array_stream_object_into(PyObject *object, PyObject *cls,
                                      PyObject *stream, PyObject *copy);

/* Takes the stream out of the object permanently: a reference, or NULL with an
 * exception if the stream is being read, was handed over, or is closed. */
ad_array_stream *ad_array_stream_hand_over(PyObject *object);

/* --- any object as a stream (functions/array_stream.c) -------------------- */

/* The result of arrowdev.array_stream(object). New reference, or NULL. */
PyObject *ad_array_stream_from_object(ad_state *state, PyObject *object);

/* A source reads its iterator on any thread, with or without the GIL. An
 * exception of the iterator becomes the failure of the stream, and is saved for
 * a consumer that can raise it again. */

/* The type of all elements, and the number of elements so far. */
typedef struct ad_element_rules {
    ad_schema schema; /* owned; without a node until the first element */
    bool is_given;    /* the caller gave the schema: elements are cast to it */
    bool is_mapped;   /* elements are results of a function, for messages */
    long long n_taken;
} ad_element_rules;

/* Import `element`; the first one decides the schema unless it is given. -1
 * with an exception that names the element. */
int ad_element_import(ad_state *state, ad_element_rules *rules,
                      PyObject *element, ad_array *out);

/* A stream over the elements of `iterable`, or over the results of `function`
 * (NULL: none) for them. The elements are cast to the type `wanted`
 * (borrowed); if it has no node, the first element decides the type. `given`
 * is the device type; if it is NULL, the first element decides, or
 * `device_type` for an empty iterable. The first element is taken now unless
 * both are given. NULL with an exception. */
ad_array_stream *ad_iterable_stream(ad_state *state, PyObject *iterable,
                                    PyObject *function, ad_schema wanted,
                                    const int32_t *given, int32_t device_type);

bool ad_is_iterable_source(const ad_batch_source *source);

/* A list over an iterable of objects that array_stream() accepts. NULL with an
 * exception. */
ad_array_stream_list *ad_iterable_stream_list(ad_state *state,
                                              PyObject *iterable);

/* For garbage collection; visits nothing for sources of another kind. */
int ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg);

/* --- both ends of an async stream ---------------------------------------- */

/* _async_consumer(queue_size, outlives): (_AsyncConsumer, capsule of its
 * handler) */
PyObject *ad_function_async_consumer(PyObject *module, PyObject *args);

/* _async_producer(handler): takes the handler out of its capsule. */
PyObject *ad_function_async_producer(PyObject *module, PyObject *handler);

/* ArrayStream.__arrowdev_async_device_stream__(handler): a thread sends the
 * remaining batches of the stream to the handler. */
PyObject *ad_array_stream_push(PyObject *self, PyObject *handler);

#endif /* AD_PYTHON_TYPES_ARRAY_STREAM_TYPE_H */
