/* _core._AsyncConsumer: the consumer end of an async stream, and a pull stream
 * that reads it. */
#include <stdlib.h>
#include <string.h>

#include "async/consumer.h"
#include "base/wait.h"
#include "python/functions/functions.h"
#include "python/types/array_stream_type.h"
#include "support/args.h"
#include "support/errors.h"
#include "support/objects.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* The interval for checking signals: a signal that another thread receives
 * does not end the poll() of this one. */
#define SLICE_MS 100

/* A batch source that reads the queue. next() may be called on any thread, with
 * or without the GIL, and waits without it. Python's signal handlers run during
 * the wait, which ends with an error before the interpreter is finalized. */
typedef struct async_source {
    ad_batch_source base;
    ad_consumer_queue *queue;
    ad_state *state;
    ad_owner *type; /* keeps the module and its state alive */
    bool drops_metadata;
    ad_saved_exception saved_exception;
    int code;         /* errno of the last failure */
    bool is_reported; /* the producer has reported that failure */
} async_source;

/* --- errors of the producer ---------------------------------------------- */

/* Whether an error with this code is the one of on_error; *said then holds its
 * arguments. */
static bool
is_reported(ad_consumer_queue *queue, int code, ad_async_error *said)
{
    return code != 0 && ad_async_consumer_error(queue->consumer, said) &&
           said->is_outcome;
}

static PyObject *
raise_reported(ad_state *state, const ad_async_error *said,
               const ad_error *err)
{
    PyObject *text = PyUnicode_DecodeUTF8(
        said->message, (Py_ssize_t)strlen(said->message), "backslashreplace");
    PyObject *metadata =
        text != NULL ? ad_metadata_as_dict(state, said->metadata) : NULL;
    if (metadata != NULL) {
        PyObject *message = PyUnicode_FromFormat(
            "the producer of the async stream reports error %d (%s): %U",
            said->code, strerror(said->code), text);
        ad_raise_text(state, err, message);
    }
    if (metadata != NULL && err->status == AD_ERR_EXCHANGE) {
        PyObject *exception = ad_py_take_exception();
        if (PyObject_SetAttrString(exception, "metadata", metadata) == 0) {
            ad_py_restore_exception(exception);
        } else {
            Py_DECREF(exception);
        }
    }
    Py_XDECREF(text);
    Py_XDECREF(metadata);
    return NULL;
}

/* Raises an error of the queue; an error of the producer with its complete
 * text, its code and its metadata. Returns NULL. */
static PyObject *
raise_error(ad_state *state, ad_consumer_queue *queue, const ad_error *err)
{
    ad_async_error said;
    return is_reported(queue, err->code, &said)
               ? raise_reported(state, &said, err)
               : ad_raise(state, err);
}

/* Saves the metadata of the error in an exception, the cause of the one that a
 * Python reader gets: an ad_error has no room for it. */
static void
save_reported(ad_state *state, const ad_async_error *said, const ad_error *err,
              ad_saved_exception *saved_exception)
{
    ad_py_call call;
    if (said->metadata != NULL &&
        ad_py_call_begin(state->interpreter, &call)) {
        raise_reported(state, said, err);
        saved_exception->interpreter = state->interpreter;
        saved_exception->exception = ad_py_take_exception();
        ad_py_call_end(&call);
    }
}

/* --- to_stream(): waiting ------------------------------------------------ */

static ad_status
run_signal_handlers(ad_error *err)
{
    ad_py_call call;
    if (!ad_py_call_begin(ad_interpreter_of_thread(), &call)) {
        return ad_fail_exit("an async stream", err);
    }
    bool is_interrupted = ad_run_signal_handlers();
    ad_py_call_end(&call);
    return is_interrupted
               ? ad_fail(err, AD_ERR_INTERRUPTED, NULL, NULL,
                         "the wait for an async stream was interrupted")
               : AD_OK;
}

/* Without the GIL. The process is checked after the signal handlers, since a
 * handler may fork. */
static ad_status
wait_for_waker(ad_waker *waker, ad_error *err)
{
    while (!ad_waker_clear(waker)) {
        ad_waker_wait(waker, SLICE_MS);
        if (ad_waker_clear(waker)) {
            return AD_OK;
        }
        AD_RETURN_IF_ERR(run_signal_handlers(err));
        AD_RETURN_IF_ERR(ad_waker_check(waker, err));
    }
    return AD_OK;
}

static ad_status
wait_for_schema(ad_consumer_queue *queue, ad_schema *out, ad_error *err)
{
    bool has_arrived;
    while (true) {
        if (atomic_load(&queue->is_closing)) {
            return ad_fail(err, AD_ERR_EXCHANGE, "consumed",
                           "make another one",
                           "this AsyncArrayStream was closed during the wait "
                           "for its schema");
        }
        AD_RETURN_IF_ERR(
            ad_consumer_queue_schema(queue, out, &has_arrived, err));
        if (has_arrived) {
            return AD_OK;
        }
        AD_RETURN_IF_ERR(wait_for_waker(queue->waker, err));
    }
}

static ad_status
wait_for_batch(async_source *self, ad_async_batch *out, bool *is_end,
               ad_error *err)
{
    ad_async_poll poll;
    while (true) {
        AD_RETURN_IF_ERR(ad_consumer_queue_pop(self->queue, out, &poll, err));
        if (poll != AD_ASYNC_PENDING) {
            *is_end = poll == AD_ASYNC_END;
            return AD_OK;
        }
        AD_RETURN_IF_ERR(wait_for_waker(self->queue->waker, err));
    }
}

/* --- to_stream(): the source --------------------------------------------- */

static ad_status
source_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    async_source *self = (async_source *)base;
    ad_async_batch batch;
    void *saved = ad_wait_begin();
    ad_status status = wait_for_batch(self, &batch, is_end, err);
    ad_wait_end(saved);
    if (status != AD_OK) {
        ad_async_error said;
        self->is_reported = is_reported(self->queue, err->code, &said);
        self->code = self->is_reported ? said.code : err->code;
        if (self->is_reported) {
            save_reported(self->state, &said, err, &self->saved_exception);
        }
        return status;
    }
    if (*is_end) {
        return AD_OK;
    }
    if (batch.metadata != NULL && !self->drops_metadata) {
        ad_async_batch_clear(&batch);
        return ad_fail(err, AD_ERR_EXCHANGE, "metadata",
                       "read the AsyncArrayStream itself, or drop it with "
                       "drop_metadata=True",
                       "a batch of the async stream has metadata of its own, "
                       "which a pull stream cannot pass on");
    }
    free(batch.metadata);
    *out = batch.array;
    return AD_OK;
}

static const char *
source_last_error(ad_batch_source *base, int *code)
{
    async_source *self = (async_source *)base;
    ad_async_error said;
    if (self->saved_exception.code != 0) {
        *code = self->saved_exception.code;
        return self->saved_exception.text;
    }
    *code = self->code;
    return self->is_reported &&
                   ad_async_consumer_error(self->queue->consumer, &said)
               ? said.message
               : NULL;
}

static void
source_destroy(ad_batch_source *base)
{
    async_source *self = (async_source *)base;
    /* Cancelling calls foreign code, which may block or take the GIL. */
    void *saved = ad_wait_begin();
    ad_consumer_queue_cancel(self->queue);
    ad_consumer_queue_unref(self->queue);
    ad_wait_end(saved);
    ad_saved_exception_clear(&self->saved_exception);
    ad_owner_unref(self->type);
    free(self);
}

/* --- to_stream(): the stream --------------------------------------------- */

static ad_status
make_stream(ad_state *state, ad_consumer_queue *queue, bool drops_metadata,
            ad_schema schema, ad_array_stream **out, ad_error *err)
{
    async_source *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    self->base = (ad_batch_source){.next = source_next,
                                   .last_error = source_last_error,
                                   .destroy = source_destroy,
                                   .saved_exception = &self->saved_exception};
    self->state = state;
    self->queue = queue;
    self->drops_metadata = drops_metadata;
    self->type = ad_py_owner_new(state->array_type);
    ad_status status =
        self->type == NULL
            ? ad_fail_memory(err, sizeof(*self))
            : ad_array_stream_from_source(
                  &self->base, schema,
                  ad_async_consumer_device_type(queue->consumer), out, err);
    if (status != AD_OK) {
        PyErr_Clear();
        ad_owner_unref(self->type);
        free(self);
        return status;
    }
    ad_owner_ref(&queue->base);
    return AD_OK;
}

/* A stream that reads the queue from now on and cancels it when closed. Blocks
 * until the schema arrives. A pull stream cannot pass on the metadata of a
 * batch: a batch with metadata is an error unless `drops_metadata`. */
static ad_status
stream_of_queue(ad_state *state, ad_consumer_queue *queue, bool drops_metadata,
                ad_array_stream **out, ad_error *err)
{
    ad_schema schema;
    void *saved = ad_wait_begin();
    ad_status status = wait_for_schema(queue, &schema, err);
    ad_wait_end(saved);
    if (status == AD_OK) {
        status = make_stream(state, queue, drops_metadata, schema, out, err);
        ad_schema_unref(schema);
    }
    return status;
}

/* --- _AsyncConsumer ------------------------------------------------------ */

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
        raise_error(ad_state_of(object), self->queue, &err);
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
        return raise_error(state, queue, &err);
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
    int fd = self->queue->waker->flag.fd;
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
    if (stream_of_queue(state, self->queue, drops, &stream, &err) == AD_OK) {
        Py_BEGIN_CRITICAL_SECTION(object);
        self->is_handed_over = true;
        Py_END_CRITICAL_SECTION();
        result = ad_array_stream_object_new(state, stream);
    } else {
        raise_error(state, self->queue, &err);
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
