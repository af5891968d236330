/* _core._AsyncConsumer: the consumer end of an async stream. */
#include <stdlib.h>
#include <string.h>

#include "async/consumer_queue.h"
#include "python/types/array_stream_type.h"
#include "python/streams/async_source.h"
#include "python/types/async_types.h"
#include "python/functions/import_result.h"
#include "python/functions/metadata_dict.h"
#include "support/objects.h"
#include "python/types/stream_object.h"

typedef struct consumer_object {
    PyObject_HEAD
    ad_consumer_queue *queue; /* NULL: closed, or handed over */
    ad_schema schema;         /* node NULL until it has arrived */
    int32_t device_type;      /* set with the schema */
    PyObject *metadata;       /* set with the schema */
    bool is_busy;    /* a read, or a wait for the waker, is in progress */
    bool is_closing; /* end_reading() must close the consumer */
    bool is_waiting; /* between begin_wait() and end_wait() */
    bool is_handed_over;
} consumer_object;

/* --- construction and destruction ---------------------------------------------- */

/* Cancels, which calls foreign code that may block or take the GIL. */
static void
drop_queue(ad_consumer_queue *queue)
{
    PyObject *saved = ad_py_save_exception();
    Py_BEGIN_ALLOW_THREADS
    ad_consumer_queue_unref(queue);
    Py_END_ALLOW_THREADS
    ad_py_reset_exception(saved);
}

static void
close_now(consumer_object *self)
{
    ad_consumer_queue *queue = self->queue;
    self->queue = NULL;
    drop_queue(queue);
}

static void
consumer_dealloc(PyObject *object)
{
    consumer_object *self = (consumer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    close_now(self);
    ad_schema_unref(self->schema);
    Py_XDECREF(self->metadata);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *
consumer_new(ad_state *state, int64_t queue_size, bool outlives)
{
    ad_error err;
    consumer_object *self = PyObject_New(
        consumer_object, (PyTypeObject *)state->async_consumer_type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0,
           sizeof(*self) - sizeof(PyObject));
    if (ad_consumer_queue_new(queue_size, outlives, &self->queue, &err) !=
        AD_OK) {
        ad_raise(state, &err);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyObject *
ad_function_async_consumer(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *number;
    int64_t queue_size;
    int outlives;
    if (!PyArg_ParseTuple(args, "Op", &number, &outlives) ||
        ad_parse_count(number, "queue_size", &queue_size) < 0) {
        return NULL;
    }
    PyObject *self = consumer_new(state, queue_size, outlives);
    if (self == NULL) {
        return NULL;
    }
    PyObject *capsule = ad_capsule_new(
        AD_CAPSULE_ASYNC_HANDLER,
        ad_async_consumer_handler(((consumer_object *)self)->queue->consumer));
    if (capsule == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return Py_BuildValue("(NN)", self, capsule);
}

/* --- one reader at a time --------------------------------------------------------- */

static int
fail_gone(const consumer_object *self, ad_state *state)
{
    ad_raise_exchange(state, "consumed", "make another one",
                      self->is_handed_over
                          ? "this AsyncArrayStream was handed over to the "
                            "ArrayStream that reads it"
                          : "this AsyncArrayStream is closed; a cancelled "
                            "read closes it, too");
    return -1;
}

static int
begin_reading(PyObject *object)
{
    consumer_object *self = (consumer_object *)object;
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this AsyncArrayStream is being read already; a "
                        "stream has one reader at a time");
        return -1;
    }
    if (self->queue == NULL || self->is_handed_over) {
        return fail_gone(self, ad_state_of(object));
    }
    self->is_busy = true;
    return 0;
}

static void
end_reading(consumer_object *self)
{
    self->is_busy = false;
    if (self->is_closing) {
        close_now(self);
    }
}

/* --- errors ------------------------------------------------------------------------- */

static PyObject *
fail(ad_state *state, ad_consumer_queue *queue, const ad_error *err)
{
    ad_async_error said;
    return ad_async_is_reported(queue, err->code, &said)
               ? ad_async_raise_reported(state, &said)
               : ad_raise(state, err);
}

/* --- reading ------------------------------------------------------------------------- */

/* Array, or (Array, dict or None). */
static PyObject *
result_of_pop(ad_state *state, ad_async_batch batch, bool with_metadata)
{
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    PyObject *array = ad_apply_array_order(state, &request, &batch.array) == 0
                          ? ad_array_object_new(state, &batch.array)
                          : NULL;
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
        fail(ad_state_of(object), self->queue, &err);
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

/* Stores the schema, metadata and device type, so that they stay available
 * after the end. Creating the dict may run any Python code, which may have
 * stored them already. */
static int
note_schema(consumer_object *self, ad_consumer_queue *queue, ad_schema steal)
{
    ad_async_consumer *consumer = queue->consumer;
    PyObject *metadata = ad_metadata_as_dict(
        ad_state_of((PyObject *)self), ad_async_consumer_metadata(consumer));
    if (metadata == NULL || self->schema.node != NULL) {
        ad_schema_unref(steal);
        Py_XDECREF(metadata);
        return metadata != NULL ? 1 : -1;
    }
    self->metadata = metadata;
    self->device_type = ad_async_consumer_device_type(consumer);
    self->schema = steal;
    return 1;
}

/* 1 if the schema has arrived, 0 if not, -1 with an exception. */
static int
poll_schema(consumer_object *self, ad_consumer_queue *queue)
{
    ad_state *state = ad_state_of((PyObject *)self);
    ad_async_poll poll;
    ad_schema schema;
    ad_error err;
    if (ad_consumer_queue_schema(queue, &schema, &poll, &err) != AD_OK) {
        fail(state, queue, &err);
        return -1;
    }
    if (poll == AD_ASYNC_END) {
        ad_raise_exchange(state, "stream", NULL,
                          "the async stream ended before its schema arrived");
        return -1;
    }
    return poll == AD_ASYNC_READY ? note_schema(self, queue, schema) : 0;
}

/* As poll_schema(), without a call once the schema is stored. It does not
 * count as a read, so the stream may be closed during it, for example by a
 * finalizer that the garbage collector runs; hence the reference on the queue.
 */
static int
ensure_schema(PyObject *object)
{
    consumer_object *self = (consumer_object *)object;
    ad_consumer_queue *queue = self->queue;
    if (self->schema.node != NULL) {
        return 1;
    }
    if (queue == NULL) {
        return fail_gone(self, ad_state_of(object));
    }
    ad_owner_ref(&queue->base);
    int known = poll_schema(self, queue);
    drop_queue(queue);
    return known;
}

/* Schema, or None if it has not arrived. */
static PyObject *
consumer_poll_schema(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    int known = ensure_schema(object);
    if (known <= 0) {
        return known == 0 ? Py_NewRef(Py_None) : NULL;
    }
    return ad_schema_object_new(
        ad_state_of(object),
        ad_schema_ref(((consumer_object *)object)->schema));
}

/* --- waiting ---------------------------------------------------------------------------- */

/* Begins a read that end_wait() ends. Returns the descriptor, which stays open
 * until then. */
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
    self->is_waiting = true;
    return PyLong_FromLong(self->queue->waker->fd);
}

static PyObject *
consumer_end_wait(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    consumer_object *self = (consumer_object *)object;
    if (!self->is_waiting) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no wait for this async stream was begun; call "
                        "begin_wait() first");
        return NULL;
    }
    self->is_waiting = false;
    (void)ad_waker_clear(self->queue->waker);
    end_reading(self);
    Py_RETURN_NONE;
}

/* --- ending ----------------------------------------------------------------------------- */

static PyObject *
consumer_cancel(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_consumer_queue *queue = ((consumer_object *)object)->queue;
    if (queue != NULL) {
        ad_owner_ref(&queue->base);
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
    if (!self->is_busy) {
        close_now(self);
    } else if (!self->is_closing) {
        self->is_closing = true;
        atomic_store(&self->queue->is_closing, true);
        ad_waker_wake(self->queue->waker);
    }
    Py_RETURN_NONE;
}

/* stream(drops_metadata): an ArrayStream of the remaining batches. Blocks
 * until the schema arrives. */
static PyObject *
consumer_stream(PyObject *object, PyObject *drops_metadata)
{
    consumer_object *self = (consumer_object *)object;
    ad_state *state = ad_state_of(object);
    ad_array_stream *stream;
    PyObject *result = NULL;
    ad_error err;
    if (begin_reading(object) < 0) {
        return NULL;
    }
    if (ad_async_source_stream(state, self->queue, drops_metadata == Py_True,
                               &stream, &err) == AD_OK) {
        self->is_handed_over = true;
        result = ad_stream_object_new(state, stream);
    } else {
        fail(state, self->queue, &err);
    }
    end_reading(self);
    return result;
}

/* --- the type --------------------------------------------------------------------------- */

static bool
has_schema(PyObject *object, const char *name)
{
    int known = ensure_schema(object);
    if (known == 0) {
        PyErr_Format(PyExc_AttributeError,
                     "%s is not known yet: the producer has not called "
                     "on_schema; await get_schema() first",
                     name);
    }
    return known == 1;
}

static PyObject *
get_schema(PyObject *object, void *Py_UNUSED(closure))
{
    return has_schema(object, "schema") ? consumer_poll_schema(object, NULL)
                                        : NULL;
}

static PyObject *
get_device_type(PyObject *object, void *Py_UNUSED(closure))
{
    return has_schema(object, "device_type")
               ? ad_device_type_member(
                     ad_state_of(object),
                     ((consumer_object *)object)->device_type)
               : NULL;
}

static PyObject *
get_metadata(PyObject *object, void *Py_UNUSED(closure))
{
    if (!has_schema(object, "metadata")) {
        return NULL;
    }
    PyObject *metadata = ((consumer_object *)object)->metadata;
    return metadata == Py_None ? Py_NewRef(Py_None) : PyDict_Copy(metadata);
}

static PyObject *
get_condition(PyObject *object, void *Py_UNUSED(closure))
{
    const consumer_object *self = (consumer_object *)object;
    return PyUnicode_FromString(self->queue == NULL    ? "closed"
                                : self->is_handed_over ? "handed over"
                                                       : "open");
}

static PyMethodDef consumer_methods[] = {
    {"pop", consumer_pop, METH_O,
     "pop($self, with_metadata, /)\n--\n\n"
     "The next Array, or (Array, dict or None); None if none has arrived.\n"
     "StopAsyncIteration at the end."},
    {"poll_schema", consumer_poll_schema, METH_NOARGS,
     "poll_schema($self)\n--\n\n"
     "The Schema, or None if it has not arrived."},
    {"begin_wait", consumer_begin_wait, METH_NOARGS,
     "begin_wait($self)\n--\n\n"
     "Begin to wait after a result of None. Returns a file descriptor that\n"
     "becomes readable when the result may change. Until end_wait() it stays\n"
     "open and the caller is the only reader."},
    {"end_wait", consumer_end_wait, METH_NOARGS, "end_wait($self)\n--\n\n"},
    {"cancel", consumer_cancel, METH_NOARGS, "cancel($self)\n--\n\n"},
    {"close", consumer_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "Cancel and drop the queued batches. Ends a wait."},
    {"stream", consumer_stream, METH_O,
     "stream($self, drops_metadata, /)\n--\n\n"
     "An ArrayStream of the remaining batches. Blocks until the schema\n"
     "arrives."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef consumer_getset[] = {
    {"schema", get_schema, NULL, NULL, NULL},
    {"device_type", get_device_type, NULL, NULL, NULL},
    {"metadata", get_metadata, NULL, NULL, NULL},
    {"condition", get_condition, NULL, "For repr().", NULL},
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
