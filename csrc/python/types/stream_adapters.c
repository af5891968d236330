#include "python/types/stream_adapters.h"

#include "stream/adapters.h"
#include "copy/copy.h"
#include "protocol/protocol.h"
#include "support/args.h"
#include "python/types/array_stream_type.h"
#include "python/streams/async_source.h"
#include "python/functions/functions.h"
#include "python/streams/iterable_source.h"
#include "python/types/stream_object.h"
#include "support/parse.h"

/* --- Python objects below adapters ---------------------------------------------- */

static ad_array_stream *
upstream_of(ad_batch_source *source)
{
    return source->upstream != NULL ? source->upstream(source) : NULL;
}

int
ad_stream_traverse(ad_array_stream *stream, visitproc visit, void *arg)
{
    ad_batch_source *source =
        stream != NULL ? ad_array_stream_source(stream) : NULL;
    if (source == NULL) {
        return 0;
    }
    ad_saved_exception *saved_exception = source->saved_exception;
    if (saved_exception != NULL) {
        Py_VISIT(saved_exception->exception);
    }
    int result = ad_iterable_traverse(source, visit, arg);
    return result != 0 ? result
                       : ad_stream_traverse(upstream_of(source), visit, arg);
}

bool
ad_stream_is_python(const ad_array_stream *stream)
{
    ad_batch_source *source = ad_array_stream_source(stream);
    return source != NULL && ad_is_iterable_source(source);
}

/* --- construction -------------------------------------------------------------- */

/* The object of an adapter over the stream of `object`. On success the stream
 * is handed over to the adapter. */
static PyObject *
finish_adapter(PyObject *object, ad_status status, ad_array_stream *adapter,
               const ad_error *err)
{
    ad_state *state = ad_state_of(object);
    ad_stream_object *self = (ad_stream_object *)object;
    if (status != AD_OK) {
        ad_stream_end_reading(self);
        return ad_raise(state, err);
    }
    ad_array_stream *stream = self->stream;
    self->stream = NULL;
    ad_array_stream_unref(stream);
    ad_stream_end_reading(self);
    return ad_stream_object_new(state, adapter);
}

/* --- to() ------------------------------------------------------------------------ */

static const ad_signature to_signature = {
    .function = "to()",
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 3,
    .names = {AD_STR_device, AD_STR_prefetch, AD_STR_stream},
};

/* Chooses the stream for the copies, if the move needs copies. */
static int
read_stream(ad_state *state, PyObject *stream, int32_t found, ad_device target,
            ad_stream_choice *out)
{
    ad_device source = {found, -1};
    ad_stream_argument argument;
    *out = (ad_stream_choice){.is_given = false};
    if (ad_parse_stream(state, stream, &argument) < 0) {
        return -1;
    }
    return ad_move_for(source, target) != AD_MOVE_COPY
               ? 0
               : ad_choose_stream(state, &argument,
                                  ad_device_of_copy(source, target), NULL,
                                  out);
}

PyObject *
ad_array_stream_to(PyObject *object, PyObject *const *args, Py_ssize_t n_args,
                   PyObject *kwnames)
{
    ad_state *state = ad_state_of(object);
    ad_stream_object *self = (ad_stream_object *)object;
    PyObject *values[3];
    ad_device target;
    int64_t prefetch = 1;
    ad_stream_choice choice;
    ad_array_stream *adapter;
    ad_error err;
    if (ad_parse_args(state, &to_signature, args, n_args, kwnames, values) <
            0 ||
        ad_parse_device(state, values[0], &target) < 0 ||
        (values[1] != NULL &&
         ad_parse_count(values[1], "prefetch", &prefetch) < 0) ||
        read_stream(state, values[2], self->device_type, target, &choice) <
            0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (ad_stream_begin_reading(object) == 0) {
        ad_status status = ad_stream_to(self->stream, target, prefetch,
                                        &choice, &adapter, &err);
        result = finish_adapter(object, status, adapter, &err);
    }
    ad_choice_clear(&choice);
    return result;
}

/* --- rechunk() ------------------------------------------------------------------- */

PyObject *
ad_array_stream_rechunk(PyObject *object, PyObject *rows)
{
    int64_t n;
    ad_array_stream *adapter;
    ad_error err;
    if (ad_parse_count(rows, "rows", &n) < 0 ||
        ad_stream_begin_reading(object) < 0) {
        return NULL;
    }
    ad_status status = ad_stream_rechunk(((ad_stream_object *)object)->stream,
                                         n, &adapter, &err);
    return finish_adapter(object, status, adapter, &err);
}

/* --- map() ----------------------------------------------------------------------- */

static const ad_signature map_signature = {
    .function = "map()",
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_function, AD_STR_schema},
};

PyObject *
ad_array_stream_map(PyObject *object, PyObject *const *args, Py_ssize_t n_args,
                    PyObject *kwnames)
{
    ad_state *state = ad_state_of(object);
    PyObject *values[2];
    ad_schema schema = {0};
    if (ad_parse_args(state, &map_signature, args, n_args, kwnames, values) <
        0) {
        return NULL;
    }
    if (!PyCallable_Check(values[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "function must be callable, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    if (!ad_is_none(values[1]) &&
        ad_parse_schema(state, values[1], &schema) < 0) {
        return NULL;
    }
    ad_array_stream *stream = ad_stream_hand_over(object);
    /* A private ArrayStream, since the iterator must be a Python object. */
    PyObject *hidden =
        stream != NULL ? ad_stream_object_new(state, stream) : NULL;
    stream =
        hidden != NULL
            ? ad_iterable_stream(state, hidden, values[0], schema, NULL,
                                 ((ad_stream_object *)object)->device_type)
            : NULL;
    Py_XDECREF(hidden);
    ad_schema_unref(schema);
    return stream != NULL ? ad_stream_object_new(state, stream) : NULL;
}

/* --- concat_streams() --------------------------------------------------------------- */

static const ad_signature concat_signature = {
    .function = "concat_streams()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_streams, AD_STR_schema},
};

static PyObject *
concat(ad_state *state, PyObject *streams, ad_schema schema)
{
    ad_stream_list *list = ad_iterable_stream_list(state, streams);
    ad_array_stream *chain;
    ad_error err;
    if (list == NULL) {
        return NULL;
    }
    if (ad_stream_chain(list, schema, &chain, &err) == AD_OK) {
        return ad_stream_object_new(state, chain);
    }
    ad_saved_exception *saved_exception = list->saved_exception;
    if (saved_exception->exception != NULL) {
        ad_py_restore_exception(saved_exception->exception);
        saved_exception->exception = NULL;
    } else {
        ad_raise(state, &err);
    }
    list->destroy(list);
    return NULL;
}

PyObject *
ad_function_concat_streams(PyObject *module, PyObject *const *args,
                           Py_ssize_t n_args, PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    ad_schema schema = {0};
    if (ad_parse_args(state, &concat_signature, args, n_args, kwnames,
                      values) < 0 ||
        (!ad_is_none(values[1]) &&
         ad_parse_schema(state, values[1], &schema) < 0)) {
        return NULL;
    }
    PyObject *result = concat(state, values[0], schema);
    ad_schema_unref(schema);
    return result;
}
