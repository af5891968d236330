#include "python/streams/async_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "support/errors.h"
#include "python/functions/functions.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* The interval for checking signals: a signal that another thread receives
 * does not end the poll() of this one. */
#define SLICE_MS 100

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

PyObject *
ad_async_raise(ad_state *state, ad_consumer_queue *queue, const ad_error *err)
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
    PyGILState_STATE gil;
    if (said->metadata != NULL && ad_py_call_begin(&gil)) {
        raise_reported(state, said, err);
        saved_exception->exception = ad_py_take_exception();
        ad_py_call_end(gil);
    }
}

/* --- waiting ------------------------------------------------------------- */

static ad_status
run_signal_handlers(ad_error *err)
{
    PyGILState_STATE gil;
    if (!ad_py_call_begin(&gil)) {
        return ad_fail_exit("an async stream", err);
    }
    bool is_interrupted = ad_run_signal_handlers();
    ad_py_call_end(gil);
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

/* --- the source ---------------------------------------------------------- */

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

/* --- construction -------------------------------------------------------- */

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

ad_status
ad_async_source_stream(ad_state *state, ad_consumer_queue *queue,
                       bool drops_metadata, ad_array_stream **out,
                       ad_error *err)
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
