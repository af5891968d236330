/* _core._AsyncProducer: the producer end of an async stream. */
#include <stdlib.h>
#include <string.h>

#include "async/pump.h"
#include "python/types/array_stream_type.h"
#include "support/args.h"
#include "support/errors.h"
#include "support/py_stream.h"
#include "python/functions/functions.h"
#include "python/streams/iterable_source.h"

typedef struct producer_object {
    PyObject_HEAD
    ad_async_producer *producer; /* NULL: the pump owns it, or it is over */
    ad_async_pump *pump;
    ad_waker *waker; /* of the producer */
    ad_waker *done;  /* of the pump */
    ad_element_rules rules;
    bool is_started;
    bool is_busy;   /* a call of the handler is running, without the GIL */
    bool has_batch; /* a batch waits for credit */
    ad_array batch;
    char *metadata; /* of that batch */
} producer_object;

/* --- construction -------------------------------------------------------- */

/* Takes the handler out of its capsule. A failure releases the handler. */
static producer_object *
producer_new(ad_state *state, PyObject *capsule)
{
    ad_error err;
    producer_object *self = PyObject_New(
        producer_object, (PyTypeObject *)state->async_producer_type);
    if (self == NULL) {
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0,
           sizeof(*self) - sizeof(PyObject));
    struct ArrowAsyncDeviceStreamHandler *handler = ad_capsule_consume(
        state, capsule, AD_CAPSULE_ASYNC_HANDLER, "an async stream");
    if (handler == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    ad_status status = ad_waker_new(&self->waker, &err);
    if (status == AD_OK) {
        const ad_async_producer_options options = {
            .device_type = ARROW_DEVICE_CPU,
            .wake = ad_waker_callback(self->waker)};
        status =
            ad_async_producer_new(handler, &options, &self->producer, &err);
    }
    if (status != AD_OK) {
        Py_BEGIN_ALLOW_THREADS
        handler->release(handler);
        Py_END_ALLOW_THREADS
        ad_raise(state, &err);
        Py_CLEAR(self);
    }
    return self;
}

PyObject *
ad_function_async_producer(PyObject *module, PyObject *handler)
{
    ad_state *state = ad_state_of_module(module);
    return ad_capsule_get(state, handler, AD_CAPSULE_ASYNC_HANDLER,
                          "produce()") != NULL
               ? (PyObject *)producer_new(state, handler)
               : NULL;
}

/* --- destruction --------------------------------------------------------- */

/* Clears the members first, since releasing the array may run any code. */
static void
drop_batch(producer_object *self)
{
    free(self->metadata);
    self->metadata = NULL;
    if (self->has_batch) {
        self->has_batch = false;
        ad_array_clear(&self->batch);
    }
}

/* Fails a stream that is not over with ECANCELED; a pump does so as soon as it
 * can. Does nothing in a forked child, where the stream is the parent's. */
static void
end_stream(producer_object *self)
{
    ad_async_producer *producer = self->producer;
    self->producer = NULL;
    drop_batch(self);
    if (producer != NULL && ad_waker_is_ours(self->waker)) {
        /* Foreign code, which may block or take the GIL. */
        PyObject *saved = ad_py_take_exception();
        Py_BEGIN_ALLOW_THREADS
        ad_async_producer_close(producer);
        Py_END_ALLOW_THREADS
        ad_py_restore_exception(saved);
    }
    if (self->pump != NULL) {
        ad_async_pump_stop(self->pump);
    }
}

static void
producer_dealloc(PyObject *object)
{
    producer_object *self = (producer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    end_stream(self);
    if (self->pump != NULL) {
        ad_async_pump_unref(self->pump);
    }
    ad_waker_unref(self->waker);
    ad_waker_unref(self->done);
    ad_schema_unref(self->rules.schema);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* --- calls of the handler ------------------------------------------------ */

/* Raises in a forked child, where the consumer is the parent's. */
static int
check_process(producer_object *self)
{
    ad_error err;
    if (ad_waker_check(self->waker, &err) == AD_OK) {
        return 0;
    }
    ad_raise(ad_state_of((PyObject *)self), &err);
    return -1;
}

/* Begins a call of the handler, which runs foreign code without the GIL. 0, or
 * -1 with an exception. */
static int
begin_call(producer_object *self)
{
    if (check_process(self) < 0) {
        return -1;
    }
    if (self->is_busy || self->producer == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        self->is_busy
                            ? "another call of this async stream's consumer "
                              "is running"
                            : "this async stream is over");
        return -1;
    }
    self->is_busy = true;
    return 0;
}

/* 0, or -1 with an exception. */
static int
end_call(producer_object *self, ad_status status, const ad_error *err)
{
    self->is_busy = false;
    if (status != AD_OK) {
        ad_raise(ad_state_of((PyObject *)self), err);
        return -1;
    }
    return 0;
}

static PyObject *
producer_declare(PyObject *object, PyObject *args)
{
    producer_object *self = (producer_object *)object;
    ad_state *state = ad_state_of(object);
    PyObject *schema, *metadata;
    ad_schema wanted = {0};
    char *blob = NULL;
    ad_error err;
    if (!PyArg_ParseTuple(args, "OO", &schema, &metadata) ||
        (!ad_is_none(schema) && ad_parse_schema(state, schema, &wanted) < 0)) {
        return NULL;
    }
    ad_status status = AD_OK;
    int result = ad_metadata_from_mapping(state, metadata, &blob);
    if (result == 0 && begin_call(self) == 0) {
        status = ad_async_producer_set_metadata(self->producer, blob, &err);
        result = end_call(self, status, &err);
    }
    free(blob);
    if (result < 0 || PyErr_Occurred()) {
        ad_schema_unref(wanted);
        return NULL;
    }
    self->rules.schema = wanted;
    self->rules.is_given = wanted.node != NULL;
    Py_RETURN_NONE;
}

static ad_status
start(producer_object *self, int32_t device_type, ad_error *err)
{
    ad_async_poll poll;
    if (self->is_started) {
        return AD_OK;
    }
    self->is_started = true;
    ad_async_producer_set_device_type(self->producer, device_type);
    return ad_async_producer_start(self->producer, self->rules.schema, &poll,
                                   err);
}

static PyObject *
producer_put(PyObject *object, PyObject *args)
{
    producer_object *self = (producer_object *)object;
    ad_state *state = ad_state_of(object);
    PyObject *element, *metadata;
    char *blob;
    ad_array batch;
    if (!PyArg_ParseTuple(args, "OO", &element, &metadata) ||
        ad_metadata_from_mapping(state, metadata, &blob) < 0) {
        return NULL;
    }
    if (begin_call(self) < 0) {
        free(blob);
        return NULL;
    }
    int result = ad_element_import(state, &self->rules, element, &batch);
    if (result == 0) {
        drop_batch(self);
        self->batch = batch;
        self->metadata = blob;
        self->has_batch = true;
    } else {
        free(blob);
    }
    self->is_busy = false;
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

/* As ad_async_producer_send. Clears the waker, so that a request that is used
 * here does not wake the event loop again. */
static ad_status
send(producer_object *self, ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(start(self, self->batch.device.type, err));
    do {
        AD_RETURN_IF_ERR(ad_async_producer_send(self->producer, &self->batch,
                                                self->metadata, poll, err));
    } while (*poll == AD_ASYNC_PENDING && ad_waker_clear(self->waker));
    return AD_OK;
}

static PyObject *
producer_flush(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    ad_async_poll poll = AD_ASYNC_READY;
    ad_status status;
    ad_error err;
    if (!self->has_batch) {
        Py_RETURN_TRUE;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = send(self, &poll, &err);
    Py_END_ALLOW_THREADS
    if (end_call(self, status, &err) < 0) {
        return NULL;
    }
    if (poll == AD_ASYNC_PENDING) {
        Py_RETURN_FALSE;
    }
    drop_batch(self);
    return poll == AD_ASYNC_READY ? Py_NewRef(Py_True) : Py_NewRef(Py_None);
}

static PyObject *
producer_finish(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    ad_status status;
    ad_error err;
    if (self->rules.schema.node == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "the source has no batches to take the schema from; "
                        "name it with schema=");
        return NULL;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = start(self, ARROW_DEVICE_CPU, &err);
    if (status == AD_OK) {
        status = ad_async_producer_finish(self->producer, &err);
    }
    Py_END_ALLOW_THREADS
    return end_call(self, status, &err) == 0 ? Py_NewRef(Py_None) : NULL;
}

/* The metadata of an ExchangeError, to pass on to the consumer. Anything else,
 * and invalid metadata, is ignored: an error must not fail to be reported. */
static char *
metadata_of(ad_state *state, PyObject *exception)
{
    char *blob = NULL;
    PyObject *metadata =
        PyErr_GivenExceptionMatches(exception, state->exchange_error)
            ? PyObject_GetAttrString(exception, "metadata")
            : NULL;
    if (metadata != NULL) {
        (void)ad_metadata_from_mapping(state, metadata, &blob);
        Py_DECREF(metadata);
    }
    PyErr_Clear();
    return blob;
}

static PyObject *
producer_fail(PyObject *object, PyObject *exception)
{
    producer_object *self = (producer_object *)object;
    ad_saved_exception saved_exception = {0};
    ad_error err;
    ad_status status;
    if (self->producer == NULL) {
        Py_RETURN_NONE;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    char *metadata = metadata_of(ad_state_of(object), exception);
    ad_py_restore_exception(Py_NewRef(exception));
    status = ad_save_exception(ad_state_of(object), &saved_exception,
                               "the source", &err);
    Py_BEGIN_ALLOW_THREADS
    status = ad_async_producer_fail(
        self->producer, saved_exception.code,
        saved_exception.text != NULL ? saved_exception.text : err.message,
        metadata, &err);
    Py_END_ALLOW_THREADS
    ad_saved_exception_clear(&saved_exception);
    free(metadata);
    return end_call(self, status, &err) == 0 ? Py_NewRef(Py_None) : NULL;
}

/* --- the pump ------------------------------------------------------------ */

/* Starts a thread that sends the batches of `steal`. 0, or -1 with an
 * exception. */
static int
start_pump(producer_object *self, ad_array_stream *steal)
{
    ad_error err;
    if (ad_async_pump_start(self->producer, self->waker, steal, self->done,
                            &self->pump, &err) != AD_OK) {
        ad_array_stream_unref(steal);
        ad_raise(ad_state_of((PyObject *)self), &err);
        return -1;
    }
    self->producer = NULL;
    return 0;
}

static PyObject *
producer_pump(PyObject *object, PyObject *stream)
{
    producer_object *self = (producer_object *)object;
    ad_state *state = ad_state_of(object);
    ad_error err;
    if (!ad_is_array_stream(state, stream)) {
        PyErr_Format(PyExc_TypeError, "expected an ArrayStream, not %.200s",
                     Py_TYPE(stream)->tp_name);
        return NULL;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    self->is_busy = false;
    if (self->done == NULL && ad_waker_new(&self->done, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    ad_array_stream *source = ad_array_stream_hand_over(stream);
    return source != NULL && start_pump(self, source) == 0 ? Py_NewRef(Py_None)
                                                           : NULL;
}

PyObject *
ad_array_stream_push(PyObject *object, PyObject *handler)
{
    ad_state *state = ad_state_of(object);
    PyObject *result = NULL;
    if (ad_capsule_get(state, handler, AD_CAPSULE_ASYNC_HANDLER,
                       "__arrowdev_async_device_stream__()") == NULL) {
        return NULL;
    }
    ad_array_stream *stream = ad_array_stream_hand_over(object);
    if (stream == NULL) {
        return NULL;
    }
    producer_object *self = producer_new(state, handler);
    if (self == NULL) {
        ad_array_stream_unref(stream);
    } else if (start_pump(self, stream) == 0) {
        /* The thread goes on without the object. */
        ad_async_pump_unref(self->pump);
        self->pump = NULL;
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF((PyObject *)self);
    return result;
}

static PyObject *
producer_is_over(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    ad_status status = AD_OK;
    ad_error err;
    if (self->pump == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no thread was started for this async stream; call "
                        "pump() first");
        return NULL;
    }
    if (check_process(self) < 0) {
        return NULL;
    }
    (void)ad_waker_clear(self->done);
    if (!ad_async_pump_is_over(self->pump, &status, &err)) {
        Py_RETURN_FALSE;
    }
    if (status != AD_OK) {
        return ad_array_stream_raise(ad_state_of(object),
                                     ad_async_pump_stream(self->pump), &err);
    }
    Py_RETURN_TRUE;
}

/* --- the type ------------------------------------------------------------ */

static PyObject *
producer_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    if (self->is_busy) {
        begin_call(self);
        return NULL;
    }
    end_stream(self);
    Py_RETURN_NONE;
}

/* The descriptor of the pump's waker if there is a pump, else of the
 * producer's. It works in a forked child too, where an event loop needs it to
 * remove its reader. */
static PyObject *
producer_fileno(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const producer_object *self = (const producer_object *)object;
    return PyLong_FromLong(self->pump != NULL ? self->done->fd
                                              : self->waker->fd);
}

/* True in a forked child, without a call: another thread may have held the
 * producer's mutex at the fork. */
static PyObject *
get_is_ended(PyObject *object, void *Py_UNUSED(closure))
{
    const producer_object *self = (const producer_object *)object;
    return PyBool_FromLong(
        self->producer == NULL || !ad_waker_is_ours(self->waker) ||
        ad_async_producer_poll(self->producer) == AD_ASYNC_END);
}

/* False in a forked child, which must not clear the waker of its parent. */
static PyObject *
producer_clear_waker(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(ad_waker_clear(((producer_object *)object)->waker));
}

static PyMethodDef producer_methods[] = {
    {"declare", producer_declare, METH_VARARGS,
     "declare($self, schema, metadata, /)\n--\n\n"
     "Set the schema and the metadata of the stream before the first batch.\n"
     "None: the schema of the first batch, and no metadata."},
    {"put", producer_put, METH_VARARGS,
     "put($self, element, metadata, /)\n--\n\n"
     "Set the next batch, which flush() sends. Raises ExchangeError for an\n"
     "element that is no batch of the stream."},
    {"flush", producer_flush, METH_NOARGS,
     "flush($self)\n--\n\n"
     "Send the batch. The first batch starts the stream. True: no batch is\n"
     "left to send. False: the consumer has requested no more batches yet.\n"
     "None: it will request no more, and the caller must call finish()."},
    {"finish", producer_finish, METH_NOARGS,
     "finish($self)\n--\n\n"
     "End the stream. Raises ExchangeError if the consumer broke a rule or\n"
     "refused a call, and ValueError if the stream has no schema."},
    {"fail", producer_fail, METH_O,
     "fail($self, exception, /)\n--\n\n"
     "End the stream with the errno, the text and the metadata of an\n"
     "exception. Does nothing if the stream is over."},
    {"pump", producer_pump, METH_O,
     "pump($self, stream, /)\n--\n\n"
     "Start a thread that sends the batches of an ArrayStream and then ends\n"
     "the stream."},
    {"is_over", producer_is_over, METH_NOARGS,
     "is_over($self)\n--\n\n"
     "Whether the thread that pump() started has ended. Raises its error."},
    {"close", producer_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "End the stream with the error ECANCELED, unless it is over."},
    {"fileno", producer_fileno, METH_NOARGS,
     "fileno($self)\n--\n\n"
     "A file descriptor that is readable when there may be work to do."},
    {"clear_waker", producer_clear_waker, METH_NOARGS,
     "clear_waker($self)\n--\n\n"
     "Make that descriptor unreadable until the next wake-up."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef producer_getset[] = {
    {"is_ended", get_is_ended, NULL,
     "Whether the consumer wants no more batches.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot producer_slots[] = {
    {Py_tp_dealloc, producer_dealloc},
    {Py_tp_methods, producer_methods},
    {Py_tp_getset, producer_getset},
    {Py_tp_doc, "The producer end behind arrowdev.aio.produce()."},
    {0, NULL},
};

PyType_Spec ad_async_producer_type_spec = {
    .name = "arrowdev._core._AsyncProducer",
    .basicsize = sizeof(producer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = producer_slots,
};
