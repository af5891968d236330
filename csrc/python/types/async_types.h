/* The two ends of an async stream for arrowdev/aio.py: what touches the state
 * machines is here, what awaits is there.
 *
 * Neither knows an event loop. Each has a file descriptor that becomes readable
 * when there is something to do, so that no peer's thread ever needs the GIL.
 */
#ifndef AD_PYTHON_TYPES_ASYNC_TYPES_H
#define AD_PYTHON_TYPES_ASYNC_TYPES_H

#include "support/state.h"

int ad_async_consumer_type_init(ad_state *state, PyObject *module);
int ad_async_producer_type_init(ad_state *state, PyObject *module);

/* _async_consumer(queue_size, outlives): (_AsyncConsumer, capsule of its
 * handler) */
PyObject *ad_function_async_consumer(PyObject *module, PyObject *args);

/* _async_producer(handler): takes the handler out of its capsule, for good. */
PyObject *ad_function_async_producer(PyObject *module, PyObject *handler);

/* ArrayStream.__arrowdev_async_device_stream__(handler): a thread pushes what
 * is left of the stream to the handler. */
PyObject *ad_array_stream_push(PyObject *self, PyObject *handler);

/* Entries of the module's table of functions. */
#define AD_ASYNC_FUNCTIONS                                                    \
    {"_async_consumer", ad_function_async_consumer, METH_VARARGS, NULL},      \
    {                                                                         \
        "_async_producer", ad_function_async_producer, METH_O, NULL           \
    }

#endif /* AD_PYTHON_TYPES_ASYNC_TYPES_H */
