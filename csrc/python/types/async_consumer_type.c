/* _core._AsyncConsumer: the consumer end of an async stream. */
#include <stdlib.h>
#include <string.h>

#include "async/consumer.h"
#include "python/types/array_stream_type.h"
#include "python/streams/async_source.h"
#include "support/args.h"
#include "support/errors.h"
#include "python/functions/functions.h"
#include "support/objects.h"

/* All members change with the lock of the object only. */
typedef struct consumer_object {
    PyObject_HEAD
    ad_consumer_queue *queue; /* NULL: closed; stays while is_busy */
    bool is_busy;    /* a read, or a wait for the waker, is in progress */
    bool is_closing; /* end_reading() must close the consumer */
    bool is_waiting; /* between begin_wait() and end_wait() */
    bool is_handed_over;
} consumer_object;

/* --- construction and destruction ---------------------------------------- */

/* Cancels, which calls foreign code that may block or take the GIL. */
static void
drop_queue(ad_consumer_queue *queue)
{
    PyObject *saved = ad_py_take_exception();
    Py_BEGIN_ALLOW_THREADS
    ad_consumer_queue_unref(queue);
    Py_END_ALLOW_THREADS
    ad_py_restore_exception(saved);
}

/* With the lock of the object. The result is to be dropped without it. The
 * wake-up ends the event loop's watch over the waker (arrowdev/aio.py). */
static ad_consumer_queue *
take_queue(consumer_object *self)
{
    ad_consumer_queue *queue = self->queue;
    self->queue = NULL;
    if (queue != NULL) {
        ad_waker_wake(queue->waker);
    }
    return queue;
}

/* A new reference, or NULL. */
static ad_consumer_queue *
ref_queue(PyObject *object)
{
    ad_consumer_queue *queue;
    Py_BEGIN_CRITICAL_SECTION(object);
    queue = ((consumer_object *)object)->queue;
    if (queue != NULL) {
        ad_owner_ref(&queue->base);
    }
    Py_END_CRITICAL_SECTION();
    return queue;
}

static void
consumer_dealloc(PyObject *object)
{
    consumer_object *self = (consumer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    drop_queue(take_queue(self));
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *
ad_function_async_consumer(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *number;
    int64_t queue_size;
    int outlives;
    ad_error err;
    if (!PyArg_ParseTuple(args, "Op", &number, &outlives) ||
        ad_parse_count(number, "queue_size", &queue_size) < 0) {
        return NULL;
    }
    consumer_object *self = PyObject_New(
        consumer_object, (PyTypeObject *)state->async_consumer_type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0,
           sizeof(*self) - sizeof(PyObject));
    if (ad_consumer_queue_new(queue_size, outlives, &self->queue, &err) !=
        AD_OK) {
        Py_DECREF(self);
        return ad_raise(state, &err);
    }
    PyObject *capsule =
        ad_capsule_new(AD_CAPSULE_ASYNC_HANDLER,
                       ad_async_consumer_handler(self->queue->consumer));
    if (capsule == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return Py_BuildValue("(NN)", self, capsule);
}

/* --- one reader at a time ------------------------------------------------ */

static void
fail_gone(bool is_handed_over, ad_state *state)
{
    ad_raise_exchange(state, "consumed", "make another one",
                      is_handed_over
                          ? "this AsyncArrayStream was handed over to the "
                            "ArrayStream that reads it"
                          : "this AsyncArrayStream is closed; a cancelled "
                            "read closes it, too");
}

static int
begin_reading(PyObject *object)
{
    consumer_object *self = (consumer_object *)object;
    bool was_busy, is_handed_over, is_open;
    Py_BEGIN_CRITICAL_SECTION(object);
    was_busy = self->is_busy;
    is_handed_over = self->is_handed_over;
    is_open = self->queue != NULL && !is_handed_over;
    self->is_busy = was_busy || is_open;
    Py_END_CRITICAL_SECTION();
    if (was_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this AsyncArrayStream is being read already; a "
                        "stream has one reader at a time");
        return -1;
    }
    if (!is_open) {
        fail_gone(is_handed_over, ad_state_of(object));
        return -1;
    }
    return 0;
}

static void
end_reading(consumer_object *self)
{
    ad_consumer_queue *closed = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    self->is_busy = false;
    if (self->is_closing) {
        closed = take_queue(self);
    }
    Py_END_CRITICAL_SECTION();
    if (closed != NULL) {
        drop_queue(closed);
    }
}

/* --- reading ------------------------------------------------------------- */

/* Array, or (Array, dict or None). */
static PyObject *
result_of_pop(ad_state *state, ad_async_batch batch, bool with_metadata)
{
    PyObject *array = ad_array_object_in_order(state, &batch.array);
    PyObject *result = array;
    if (array != NULL && with_metadata) {
        PyObject *metadata = ad_metadata_as_dict(state, batch.metadata);
        result = metadata != NULL ? PyTuple_Pack(2, array, metadata) : NULL;
        Py_XDECREF(metadata);
        Py_DECREF(array);
    }
    free(batch.metadata);
    return result;
}

static PyObject *
consumer_pop(PyObject *object, PyObject *with_metadata)
{
    consumer_object *self = (consumer_object *)object;
    ad_async_batch batch;
    ad_async_poll poll;
    ad_status status;
    PyObject *result = NULL;
    ad_error err;
    if (begin_reading(object) < 0) {
        return NULL;
    }
    if (ad_consumer_queue_is_ready(self->queue)) {
        status = ad_consumer_queue_pop(self->queue, &batch, &poll, &err);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = ad_consumer_queue_pop(self->queue, &batch, &poll, &err);
        Py_END_ALLOW_THREADS
    }
    if (status != AD_OK) {
        ad_async_raise(ad_state_of(object), self->queue, &err);
    } else if (poll == AD_ASYNC_READY) {
        result = result_of_pop(ad_state_of(object), batch,
                               with_metadata == Py_True);
    } else if (poll == AD_ASYNC_END) {
        PyErr_SetNone(PyExc_StopAsyncIteration);
    } else {
        result = Py_NewRef(Py_None);
    }
    end_reading(self);
    return result;
}

/* (Schema, DeviceType, metadata), or None if the schema has not arrived. */
static PyObject *
poll_schema(ad_state *state, ad_consumer_queue *queue)
{
    ad_async_consumer *consumer = queue->consumer;
    bool has_arrived;
    ad_schema found;
    ad_error err;
    if (ad_consumer_queue_schema(queue, &found, &has_arrived, &err) != AD_OK) {
        return ad_async_raise(state, queue, &err);
    }
    if (!has_arrived) {
        Py_RETURN_NONE;
    }
    PyObject *schema = ad_schema_object_new(state, found);
    PyObject *metadata =
        schema != NULL
            ? ad_metadata_as_dict(state, ad_async_consumer_metadata(consumer))
            : NULL;
    PyObject *type = metadata != NULL
                         ? ad_device_type_member(
                               state, ad_async_consumer_device_type(consumer))
                         : NULL;
    PyObject *result =
        type != NULL ? PyTuple_Pack(3, schema, type, metadata) : NULL;
    Py_XDECREF(schema);
    Py_XDECREF(metadata);
    Py_XDECREF(type);
    return result;
}

/* This is no read, so a finalizer that the garbage collector runs may close
 * the stream meanwhile: hence the reference on the queue. */
static PyObject *
consumer_poll_schema(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_consumer_queue *queue = ref_queue(object);
    if (queue == NULL) {
        consumer_object *self = (consumer_object *)object;
        fail_gone(AD_PY_LOCKED(object, self->is_handed_over),
                  ad_state_of(object));
        return NULL;
    }
    PyObject *result = poll_schema(ad_state_of(object), queue);
    drop_queue(queue);
    return result;
}

/* --- waiting ------------------------------------------------------------- */

/* The wait counts as a read. */
static PyObject *
consumer_begin_wait(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    consumer_object *self = (consumer_object *)object;
    ad_error err;
    if (begin_reading(object) < 0) {
        return NULL;
    }
    if (ad_waker_check(self->queue->waker, &err) != AD_OK) {
        end_reading(self);
        return ad_raise(ad_state_of(object), &err);
    }
    int fd = self->queue->waker->fd;
    Py_BEGIN_CRITICAL_SECTION(object);
    self->is_waiting = true;
    Py_END_CRITICAL_SECTION();
    return PyLong_FromLong(fd);
}

static PyObject *
consumer_end_wait(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    consumer_object *self = (consumer_object *)object;
    bool was_waiting;
    Py_BEGIN_CRITICAL_SECTION(object);
    was_waiting = self->is_waiting;
    self->is_waiting = false;
    Py_END_CRITICAL_SECTION();
    if (!was_waiting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no wait for this async stream was begun; call "
                        "begin_wait() first");
        return NULL;
    }
    (void)ad_waker_clear(self->queue->waker);
    end_reading(self);
    Py_RETURN_NONE;
}

/* --- ending -------------------------------------------------------------- */

static PyObject *
consumer_cancel(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_consumer_queue *queue = ref_queue(object);
    if (queue != NULL) {
        Py_BEGIN_ALLOW_THREADS
        ad_consumer_queue_cancel(queue);
        ad_consumer_queue_unref(queue);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

/* During a read or a wait, end_reading() closes the consumer afterwards. */
static PyObject *
consumer_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    consumer_object *self = (consumer_object *)object;
    ad_consumer_queue *closed = NULL;
    Py_BEGIN_CRITICAL_SECTION(object);
    if (!self->is_busy) {
        closed = take_queue(self);
    } else if (!self->is_closing) {
        self->is_closing = true;
        atomic_store(&self->queue->is_closing, true);
        ad_waker_wake(self->queue->waker);
    }
    Py_END_CRITICAL_SECTION();
    drop_queue(closed);
    Py_RETURN_NONE;
}

static PyObject *
consumer_stream(PyObject *object, PyObject *drop_metadata)
{
    consumer_object *self = (consumer_object *)object;
    ad_state *state = ad_state_of(object);
    ad_array_stream *stream;
    PyObject *result = NULL;
    ad_error err;
    bool drops = false;
    if (ad_parse_bool(drop_metadata, "drop_metadata", &drops) < 0 ||
        begin_reading(object) < 0) {
        return NULL;
    }
    if (ad_async_source_stream(state, self->queue, drops, &stream, &err) ==
        AD_OK) {
        Py_BEGIN_CRITICAL_SECTION(object);
        self->is_handed_over = true;
        Py_END_CRITICAL_SECTION();
        result = ad_array_stream_object_new(state, stream);
    } else {
        ad_async_raise(state, self->queue, &err);
    }
    end_reading(self);
    return result;
}

/* --- the type ------------------------------------------------------------ */

static PyObject *
get_condition(PyObject *object, void *Py_UNUSED(closure))
{
    const consumer_object *self = (consumer_object *)object;
    return PyUnicode_FromString(
        AD_PY_LOCKED(object, self->queue == NULL    ? "closed"
                             : self->is_handed_over ? "handed over"
                                                    : "open"));
}

static PyMethodDef consumer_methods[] = {
    {"pop", consumer_pop, METH_O,
     "pop($self, with_metadata, /)\n--\n\n"
     "The next Array, or with metadata a tuple (Array, dict or None). None if\n"
     "no batch has arrived. Raises StopAsyncIteration at the end of the\n"
     "stream, and ExchangeError if the stream failed."},
    {"poll_schema", consumer_poll_schema, METH_NOARGS,
     "poll_schema($self)\n--\n\n"
     "Schema, DeviceType and metadata of the stream as a tuple; None if the\n"
     "schema has not arrived. ExchangeError if none will arrive."},
    {"begin_wait", consumer_begin_wait, METH_NOARGS,
     "begin_wait($self)\n--\n\n"
     "Begin to wait after a result of None. Returns a file descriptor that\n"
     "becomes readable when the result may change. The descriptor stays open\n"
     "and the caller is the only reader until end_wait()."},
    {"end_wait", consumer_end_wait, METH_NOARGS,
     "end_wait($self)\n--\n\n"
     "End the wait that begin_wait() began."},
    {"cancel", consumer_cancel, METH_NOARGS,
     "cancel($self)\n--\n\n"
     "Ask the producer to stop. From any thread, any number of times."},
    {"close", consumer_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "Cancel the stream and drop the queued batches. A wait ends."},
    {"stream", consumer_stream, METH_O,
     "stream($self, drops_metadata, /)\n--\n\n"
     "An ArrayStream of the remaining batches. Blocks until the schema\n"
     "arrives. A batch with metadata is an error unless it is dropped."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef consumer_getset[] = {
    {"condition", get_condition, NULL,
     "\"open\", \"closed\" or \"handed over\".", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot consumer_slots[] = {
    {Py_tp_dealloc, consumer_dealloc},
    {Py_tp_methods, consumer_methods},
    {Py_tp_getset, consumer_getset},
    {Py_tp_doc, "The consumer end behind arrowdev.AsyncArrayStream."},
    {0, NULL},
};

PyType_Spec ad_async_consumer_type_spec = {
    .name = "arrowdev._core._AsyncConsumer",
    .basicsize = sizeof(consumer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = consumer_slots,
};
