/* _core._AsyncProducer: the producer end of an async stream. */
#include <stdlib.h>
#include <string.h>

#include "async/pump.h"
#include "python/types/array_stream_type.h"
#include "support/args.h"
#include "support/errors.h"
#include "support/py_stream.h"
#include "python/functions/functions.h"

/* The members change with the lock of the object only. What is between
 * begin_call() and end_call() is the only user of `rules`, `is_started`,
 * `batch` and `metadata`. */
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

/* Raises unless the object is a capsule with a handler. Another thread may take
 * the handler next. */
static int
check_handler(ad_state *state, PyObject *capsule, const char *origin)
{
    const void *handler = AD_PY_LOCKED(
        capsule,
        ad_capsule_get(state, capsule, AD_CAPSULE_ASYNC_HANDLER, origin));
    return handler != NULL ? 0 : -1;
}

PyObject *
ad_function_async_producer(PyObject *module, PyObject *handler)
{
    ad_state *state = ad_state_of_module(module);
    return check_handler(state, handler, "produce()") == 0
               ? (PyObject *)producer_new(state, handler)
               : NULL;
}

/* --- destruction --------------------------------------------------------- */

/* What an object gives up: dropped without its lock, since releasing the array
 * may run any code. */
typedef struct dropped {
    ad_async_producer *producer;
    ad_async_pump *pump; /* borrowed */
    ad_array batch;
    char *metadata;
} dropped;

/* With the lock of the object. */
static void
take_batch(producer_object *self, dropped *out)
{
    out->metadata = self->metadata;
    self->metadata = NULL;
    if (self->has_batch) {
        self->has_batch = false;
        out->batch = self->batch;
    }
}

static void
drop_batch(dropped *taken)
{
    free(taken->metadata);
    ad_array_clear(&taken->batch);
}

/* With the lock of the object. */
static void
take_all(producer_object *self, dropped *out)
{
    take_batch(self, out);
    out->producer = self->producer;
    self->producer = NULL;
    out->pump = self->pump;
}

/* Fails a stream that is not over with ECANCELED; a pump does so as soon as it
 * can. Does nothing in a forked child, where the stream is the parent's. */
static void
end_stream(const producer_object *self, dropped *taken)
{
    drop_batch(taken);
    if (taken->producer != NULL && ad_waker_is_ours(self->waker)) {
        /* Foreign code, which may block or take the GIL. */
        PyObject *saved = ad_py_take_exception();
        Py_BEGIN_ALLOW_THREADS
        ad_async_producer_close(taken->producer);
        Py_END_ALLOW_THREADS
        ad_py_restore_exception(saved);
    }
    if (taken->pump != NULL) {
        ad_async_pump_stop(taken->pump);
    }
}

static void
producer_dealloc(PyObject *object)
{
    producer_object *self = (producer_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    dropped taken = {0};
    take_all(self, &taken);
    end_stream(self, &taken);
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

/* Returns NULL with an exception. */
static PyObject *
fail_busy(producer_object *self)
{
    if (check_process(self) == 0) {
        PyErr_SetString(PyExc_RuntimeError,
                        "another call of this async stream's consumer is "
                        "running");
    }
    return NULL;
}

/* Begins a call of the handler, which runs foreign code without the GIL. 0, or
 * -1 with an exception. */
static int
begin_call(producer_object *self)
{
    bool was_busy, is_over;
    if (check_process(self) < 0) {
        return -1;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    was_busy = self->is_busy;
    is_over = self->producer == NULL;
    self->is_busy = was_busy || !is_over;
    Py_END_CRITICAL_SECTION();
    if (was_busy) {
        fail_busy(self);
        return -1;
    }
    if (is_over) {
        PyErr_SetString(PyExc_RuntimeError, "this async stream is over");
        return -1;
    }
    return 0;
}

static void
leave_call(producer_object *self)
{
    Py_BEGIN_CRITICAL_SECTION(self);
    self->is_busy = false;
    Py_END_CRITICAL_SECTION();
}

/* 0, or -1 with an exception. */
static int
end_call(producer_object *self, ad_status status, const ad_error *err)
{
    leave_call(self);
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
    int result = ad_metadata_from_mapping(state, metadata, &blob);
    if (result == 0) {
        result = begin_call(self);
    }
    if (result == 0) {
        ad_status status =
            ad_async_producer_set_metadata(self->producer, blob, &err);
        if (status == AD_OK) {
            ad_schema before = self->rules.schema;
            self->rules.schema = wanted;
            self->rules.is_given = wanted.node != NULL;
            wanted = before;
        }
        result = end_call(self, status, &err);
    }
    free(blob);
    ad_schema_unref(wanted);
    return result == 0 ? Py_NewRef(Py_None) : NULL;
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
    dropped before = {0};
    if (ad_element_import(state, &self->rules, element, &batch) < 0) {
        free(blob);
        leave_call(self);
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    take_batch(self, &before);
    Py_END_CRITICAL_SECTION();
    drop_batch(&before); /* may call put(), which is still refused */
    Py_BEGIN_CRITICAL_SECTION(self);
    self->batch = batch;
    self->metadata = blob;
    self->has_batch = true;
    self->is_busy = false;
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

/* As ad_async_producer_send. Clears the waker, so that a request that is used
 * here does not wake the event loop again. */
static ad_status
send(producer_object *self, ad_async_poll *poll, ad_error *err)
{
    AD_RETURN_IF_ERR(start(self, self->batch.memory.device.type, err));
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
    dropped sent = {0};
    ad_status status;
    ad_error err;
    if (!AD_PY_LOCKED(self, self->has_batch)) {
        Py_RETURN_TRUE;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    /* Another thread may have sent it meanwhile. */
    if (!AD_PY_LOCKED(self, self->has_batch)) {
        leave_call(self);
        Py_RETURN_TRUE;
    }
    Py_BEGIN_ALLOW_THREADS
    status = send(self, &poll, &err);
    Py_END_ALLOW_THREADS
    if (status == AD_OK && poll != AD_ASYNC_PENDING) {
        Py_BEGIN_CRITICAL_SECTION(self);
        take_batch(self, &sent);
        Py_END_CRITICAL_SECTION();
    }
    if (end_call(self, status, &err) < 0) {
        return NULL;
    }
    drop_batch(&sent);
    return poll == AD_ASYNC_PENDING ? Py_NewRef(Py_False)
           : poll == AD_ASYNC_READY ? Py_NewRef(Py_True)
                                    : Py_NewRef(Py_None);
}

static PyObject *
producer_finish(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    ad_status status;
    ad_error err;
    if (begin_call(self) < 0) {
        return NULL;
    }
    if (self->rules.schema.node == NULL) {
        leave_call(self);
        PyErr_SetString(PyExc_ValueError,
                        "the source has no batches to take the schema from; "
                        "name it with schema=");
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
    ad_saved_exception saved_exception = {NULL};
    ad_error cause, err;
    ad_status status;
    if (AD_PY_LOCKED(self, self->producer) == NULL) {
        Py_RETURN_NONE;
    }
    if (begin_call(self) < 0) {
        return NULL;
    }
    char *metadata = metadata_of(ad_state_of(object), exception);
    ad_py_restore_exception(Py_NewRef(exception));
    status = ad_save_exception(ad_state_of(object), &saved_exception,
                               "the source", &cause);
    Py_BEGIN_ALLOW_THREADS
    status = ad_async_producer_fail(
        self->producer, saved_exception.code,
        saved_exception.text != NULL ? saved_exception.text : cause.message,
        metadata, &cause, &err);
    Py_END_ALLOW_THREADS
    ad_saved_exception_clear(&saved_exception);
    free(metadata);
    return end_call(self, status, &err) == 0 ? Py_NewRef(Py_None) : NULL;
}

/* --- the pump ------------------------------------------------------------ */

/* Starts a thread that sends the batches of `steal`. 0, or -1 with an
 * exception. The thread may end before this returns, so that nothing else may
 * find its producer in the object. */
static int
start_pump(producer_object *self, ad_array_stream *steal)
{
    ad_error err;
    ad_async_pump *pump = NULL;
    ad_async_producer *producer;
    Py_BEGIN_CRITICAL_SECTION(self);
    producer = self->producer;
    self->producer = NULL;
    Py_END_CRITICAL_SECTION();
    ad_status status =
        ad_async_pump_start(&ad_interpreter_here()->pumps, producer,
                            self->waker, steal, self->done, &pump, &err);
    Py_BEGIN_CRITICAL_SECTION(self);
    self->pump = pump;
    self->producer = status == AD_OK ? NULL : producer;
    Py_END_CRITICAL_SECTION();
    if (status != AD_OK) {
        ad_array_stream_unref(steal);
        ad_raise(ad_state_of((PyObject *)self), &err);
    }
    return status == AD_OK ? 0 : -1;
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
    if (self->done == NULL && ad_waker_new(&self->done, &err) != AD_OK) {
        leave_call(self);
        return ad_raise(state, &err);
    }
    ad_array_stream *source = ad_array_stream_hand_over(stream);
    int result = source != NULL ? start_pump(self, source) : -1;
    leave_call(self);
    return result == 0 ? Py_NewRef(Py_None) : NULL;
}

PyObject *
ad_array_stream_push(PyObject *object, PyObject *handler)
{
    ad_state *state = ad_state_of(object);
    PyObject *result = NULL;
    if (check_handler(state, handler, "__arrowdev_async_device_stream__()") <
        0) {
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
    ad_async_pump *pump = AD_PY_LOCKED(self, self->pump);
    if (pump == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "no thread was started for this async stream; call "
                        "pump() first");
        return NULL;
    }
    if (check_process(self) < 0) {
        return NULL;
    }
    (void)ad_waker_clear(self->done);
    if (!ad_async_pump_is_over(pump, &status, &err)) {
        Py_RETURN_FALSE;
    }
    if (status != AD_OK) {
        return ad_array_stream_raise(ad_state_of(object),
                                     ad_async_pump_stream(pump), &err);
    }
    Py_RETURN_TRUE;
}

/* --- the type ------------------------------------------------------------ */

static PyObject *
producer_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    dropped taken = {0};
    bool was_busy;
    Py_BEGIN_CRITICAL_SECTION(self);
    was_busy = self->is_busy;
    if (!was_busy) {
        take_all(self, &taken);
    }
    Py_END_CRITICAL_SECTION();
    if (was_busy) {
        return fail_busy(self);
    }
    end_stream(self, &taken);
    Py_RETURN_NONE;
}

/* The descriptor of the pump's waker if there is a pump, else of the
 * producer's. It works in a forked child too, where an event loop needs it to
 * remove its reader. */
static PyObject *
producer_fileno(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    producer_object *self = (producer_object *)object;
    ad_async_pump *pump = AD_PY_LOCKED(self, self->pump);
    return PyLong_FromLong(pump != NULL ? self->done->flag.fd
                                        : self->waker->flag.fd);
}

/* True in a forked child, without a call: another thread may have held the
 * producer's mutex at the fork. */
static PyObject *
get_is_ended(PyObject *object, void *Py_UNUSED(closure))
{
    const producer_object *self = (const producer_object *)object;
    return PyBool_FromLong(AD_PY_LOCKED(
        object, self->producer == NULL || !ad_waker_is_ours(self->waker) ||
                    ad_async_producer_poll(self->producer) == AD_ASYNC_END));
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
