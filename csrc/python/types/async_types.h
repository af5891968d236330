/* The two ends of an async stream as types for arrowdev/aio.py, which does the
 * awaiting.
 *
 * Neither type depends on an event loop. Each has a file descriptor that
 * becomes readable when there is work to do, so that a thread of a peer never
 * needs the GIL.
 */
#ifndef AD_PYTHON_TYPES_ASYNC_TYPES_H
#define AD_PYTHON_TYPES_ASYNC_TYPES_H

#include "support/state.h"

/* _async_consumer(queue_size, outlives): (_AsyncConsumer, capsule of its
 * handler) */
PyObject *ad_function_async_consumer(PyObject *module, PyObject *args);

/* _async_producer(handler): takes the handler out of its capsule. */
PyObject *ad_function_async_producer(PyObject *module, PyObject *handler);

/* ArrayStream.__arrowdev_async_device_stream__(handler): a thread sends the
 * remaining batches of the stream to the handler. */
PyObject *ad_array_stream_push(PyObject *self, PyObject *handler);

/* Entries of the module's table of functions. */
#define AD_ASYNC_FUNCTIONS                                                    \
    {"_async_consumer", ad_function_async_consumer, METH_VARARGS, NULL},      \
    {                                                                         \
        "_async_producer", ad_function_async_producer, METH_O, NULL           \
    }

#endif /* AD_PYTHON_TYPES_ASYNC_TYPES_H */
