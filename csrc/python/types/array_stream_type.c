/* The type ad.ArrayStream. The stream itself is stream/array_stream.c; the
 * function array_stream() is python/functions/array_stream.c. */
#include "python/types/array_stream_type.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "compute/concat.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "protocol/arrow.h"
#include "python/functions/functions.h"
#include "python/types/types.h"
#include "stream/adapters.h"
#include "support/args.h"
#include "support/logging.h"
#include "support/py_call.h"

/* --- Python objects that a stream holds ---------------------------------- */

/* The caller must be the only owner of the stream, and the stream must not be
 * read at the time. */
static int
visit_stream(ad_array_stream *stream, visitproc visit, void *arg)
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
    return result != 0 ? result : visit_stream(source->upstream, visit, arg);
}

static bool
is_python(const ad_array_stream *stream)
{
    ad_batch_source *source = ad_array_stream_source(stream);
    return source != NULL && ad_is_iterable_source(source);
}

/* --- construction and destruction ---------------------------------------- */

PyObject *
ad_array_stream_object_new(ad_state *state, ad_array_stream *steal)
{
    ad_logging_connect();
    ad_array_stream_object *self = PyObject_GC_New(
        ad_array_stream_object, (PyTypeObject *)state->array_stream_type);
    if (self == NULL) {
        ad_array_stream_unref(steal);
        return NULL;
    }
    self->stream = steal;
    self->state = state;
    self->is_python = is_python(steal);
    self->schema = ad_schema_ref(ad_array_stream_schema(steal));
    self->device_type = ad_array_stream_device_type(steal);
    self->is_busy = self->is_closing = self->is_closed = false;
    self->is_interrupted = false;
    self->weakrefs = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* The object is the only owner of its stream, so it visits the Python objects
 * of the stream. A read without the GIL may change them, so a busy stream is
 * not visited. */
static int
stream_traverse(PyObject *object, visitproc visit, void *arg)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    Py_VISIT(Py_TYPE(object));
    return self->is_busy ? 0 : visit_stream(self->stream, visit, arg);
}

/* With the lock of the object. The result is to be dropped without it. */
static ad_array_stream *
take_closed(ad_array_stream_object *self)
{
    ad_array_stream *stream = self->stream;
    self->stream = NULL;
    self->is_closed = true;
    return stream;
}

static int
stream_clear(PyObject *object)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_array_stream_unref(AD_PY_LOCKED(object, take_closed(self)));
    return 0;
}

static void
stream_dealloc(PyObject *object)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    ad_py_clear_weakrefs(object, &self->weakrefs);
    stream_clear(object);
    ad_schema_unref(self->schema);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* --- one reader at a time ------------------------------------------------ */

typedef enum condition {
    OPEN,
    BUSY,
    CLOSED,
    HANDED_OVER
} condition;

/* With the lock of the object. */
static inline condition
condition_of(const ad_array_stream_object *self)
{
    return self->is_busy          ? BUSY
           : self->stream != NULL ? OPEN
           : self->is_closed      ? CLOSED
                                  : HANDED_OVER;
}

static int
fail_to_begin(const ad_array_stream_object *self, condition found)
{
    if (found == BUSY) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this ArrayStream is being read already, by another "
                        "thread or by its own iterable; a stream has one "
                        "reader at a time");
        return -1;
    }
    ad_raise_exchange(
        self->state, "consumed",
        found == CLOSED ? "make another one"
                        : "a stream has one reader; make another one",
        found == CLOSED ? "this ArrayStream is closed"
                        : "this ArrayStream was handed over, by its "
                          "capsule or to an adapter");
    return -1;
}

/* Until the read ends, only the caller uses self->stream. */
static int
begin_reading(PyObject *object)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    condition found;
    Py_BEGIN_CRITICAL_SECTION(object);
    found = condition_of(self);
    if (found == OPEN) {
        self->is_busy = true;
    }
    Py_END_CRITICAL_SECTION();
    return found == OPEN ? 0 : fail_to_begin(self, found);
}

/* close() may have been called during the read. */
static void
end_reading(ad_array_stream_object *self)
{
    ad_array_stream *closed = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    self->is_busy = false;
    if (self->is_closing) {
        closed = take_closed(self);
    }
    Py_END_CRITICAL_SECTION();
    if (closed != NULL) {
        ad_array_stream_unref(closed);
    }
}

/* The same, and takes the stream out of the object: a reference. */
static ad_array_stream *
end_reading_and_take(ad_array_stream_object *self)
{
    ad_array_stream *stream;
    Py_BEGIN_CRITICAL_SECTION(self);
    stream = self->stream;
    self->stream = NULL;
    self->is_busy = false;
    self->is_closed = self->is_closing;
    Py_END_CRITICAL_SECTION();
    return stream;
}

ad_array_stream *
ad_array_stream_hand_over(PyObject *object)
{
    return begin_reading(object) == 0
               ? end_reading_and_take((ad_array_stream_object *)object)
               : NULL;
}

/* --- reading ------------------------------------------------------------- */

/* Reads without the GIL, since foreign code may block or take the GIL. Our
 * sources take the GIL themselves. */
static ad_status
next_batch(const ad_array_stream_object *self, ad_array *out, bool *is_end,
           ad_error *err)
{
    ad_array_stream *stream = self->stream;
    ad_status status;
    if (self->is_python) {
        return ad_array_stream_next(stream, out, is_end, err);
    }
    Py_BEGIN_ALLOW_THREADS
    status = ad_array_stream_next(stream, out, is_end, err);
    Py_END_ALLOW_THREADS
    return status;
}

/* Ends a read. The result is the array, or NULL with an exception or at the
 * end. */
static PyObject *
finish_read(ad_array_stream_object *self, ad_status status, bool is_end,
            bool has_array, ad_array *array, const ad_error *err)
{
    ad_state *state = self->state;
    if (status != AD_OK) {
        ad_array_stream_raise(state, self->stream, err);
    } else if (is_end) {
        /* Frees the producer early: no more batches follow. */
        ad_array_stream_close(self->stream);
    }
    end_reading(self);
    return status == AD_OK && has_array
               ? ad_array_object_in_order(state, array)
               : NULL;
}

static PyObject *
stream_iternext(PyObject *object)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_array array;
    bool is_end;
    ad_error err;
    if (begin_reading(object) < 0) {
        return NULL;
    }
    ad_status status = next_batch(self, &array, &is_end, &err);
    __atomic_store_n(&self->is_interrupted, status == AD_ERR_INTERRUPTED,
                     __ATOMIC_RELAXED);
    return finish_read(self, status, is_end, !is_end, &array, &err);
}

static PyObject *
stream_read_all(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_array array;
    ad_status status;
    ad_error err;
    if (begin_reading(object) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = ad_array_stream_join(self->stream, true, &array, &err);
    Py_END_ALLOW_THREADS
    return finish_read(self, status, true, true, &array, &err);
}

/* During a read, the reader closes the stream afterwards. */
static PyObject *
stream_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_array_stream *closed = NULL;
    Py_BEGIN_CRITICAL_SECTION(object);
    if (self->is_busy) {
        self->is_closing = true;
    } else {
        closed = take_closed(self);
    }
    Py_END_CRITICAL_SECTION();
    ad_array_stream_unref(closed);
    Py_RETURN_NONE;
}

static PyObject *
stream_enter(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(object);
}

/* --- adapters ------------------------------------------------------------ */

/* The object of an adapter over the stream of `object`. On success the stream
 * is handed over to the adapter. */
static PyObject *
finish_adapter(PyObject *object, ad_status status, ad_array_stream *adapter,
               const ad_error *err)
{
    ad_state *state = ad_state_of(object);
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    if (status != AD_OK) {
        end_reading(self);
        return ad_raise(state, err);
    }
    ad_array_stream_unref(end_reading_and_take(self));
    return ad_array_stream_object_new(state, adapter);
}

/* --- to() ---------------------------------------------------------------- */

static const ad_signature to_signature = {
    .function = "to()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_device, AD_STR_prefetch, AD_STR_stream),
};

/* Chooses the stream for the copies, if the move needs copies. */
static int
read_stream(ad_state *state, PyObject *stream, int32_t found, ad_device target,
            ad_stream_ref *out)
{
    ad_device source = {found, -1};
    ad_stream_argument argument;
    *out = (ad_stream_ref){.kind = AD_REF_NONE};
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
ad_array_stream_object_to(ad_state *state, PyObject *object, ad_device target,
                          int64_t prefetch, PyObject *stream)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_stream_ref choice;
    ad_array_stream *adapter;
    ad_error err;
    if (read_stream(state, stream, self->device_type, target, &choice) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (begin_reading(object) == 0) {
        ad_status status = ad_array_stream_to(self->stream, target, prefetch,
                                              &choice, &adapter, &err);
        result = finish_adapter(object, status, adapter, &err);
    }
    ad_stream_ref_clear(&choice);
    return result;
}

static PyObject *
stream_to(ad_state *state, PyObject *object, PyObject *const *values)
{
    ad_device target;
    int64_t prefetch = AD_PREFETCH;
    if (ad_parse_device(state, values[0], &target) < 0 ||
        (values[1] != NULL &&
         ad_parse_count(values[1], "prefetch", &prefetch) < 0)) {
        return NULL;
    }
    return ad_array_stream_object_to(state, object, target, prefetch,
                                     values[2]);
}

static AD_ENTRY(call_stream_to, ad_state_of, to_signature,
                stream_to(state, self, values));

/* --- rechunk() ----------------------------------------------------------- */

static PyObject *
stream_rechunk(PyObject *object, PyObject *rows)
{
    int64_t n;
    ad_array_stream *adapter;
    ad_error err;
    if (ad_parse_count(rows, "rows", &n) < 0 || begin_reading(object) < 0) {
        return NULL;
    }
    ad_status status = ad_array_stream_rechunk(
        ((ad_array_stream_object *)object)->stream, n, &adapter, &err);
    return finish_adapter(object, status, adapter, &err);
}

/* --- map() --------------------------------------------------------------- */

static const ad_signature map_signature = {
    .function = "map()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_function, AD_STR_schema),
};

static PyObject *
stream_map(ad_state *state, PyObject *object, PyObject *const *values)
{
    ad_schema schema = {0};
    if (!PyCallable_Check(values[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "function must be callable, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    if (!ad_is_none(values[1]) &&
        ad_parse_schema(state, values[1], &schema) < 0) {
        return NULL;
    }
    ad_array_stream *stream = ad_array_stream_hand_over(object);
    /* A private ArrayStream, since the iterator must be a Python object. */
    PyObject *hidden =
        stream != NULL ? ad_array_stream_object_new(state, stream) : NULL;
    stream = hidden != NULL
                 ? ad_iterable_stream(
                       state, hidden, values[0], schema, NULL,
                       ((ad_array_stream_object *)object)->device_type)
                 : NULL;
    Py_XDECREF(hidden);
    ad_schema_unref(schema);
    return stream != NULL ? ad_array_stream_object_new(state, stream) : NULL;
}

static AD_ENTRY(call_stream_map, ad_state_of, map_signature,
                stream_map(state, self, values));

/* --- into() -------------------------------------------------------------- */

static const ad_signature into_signature = {
    .function = "into()",
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_cls, AD_STR_stream, AD_STR_copy),
};

/* What the helper refuses leaves the stream as it is. */
PyObject *
ad_array_stream_object_into(PyObject *object, PyObject *cls, PyObject *stream,
                            PyObject *copy)
{
    PyObject *args[] = {object, cls, stream, copy};
    PyObject *plan = ad_call_helper("_stream_into", "plan", args, 4);
    ad_array_stream *taken =
        plan != NULL ? ad_array_stream_hand_over(object) : NULL;
    PyObject *hidden =
        taken != NULL ? ad_array_stream_object_new(ad_state_of(object), taken)
                      : NULL;
    PyObject *result =
        hidden != NULL ? PyObject_CallOneArg(plan, hidden) : NULL;
    Py_XDECREF(hidden);
    Py_XDECREF(plan);
    return result;
}

static PyObject *
stream_into(ad_state *state, PyObject *object, PyObject *const *values)
{
    ad_stream_argument argument;
    int copy;
    if (ad_parse_stream(state, values[1], &argument) < 0 ||
        (values[2] != NULL && ad_parse_copy(values[2], &copy) < 0)) {
        return NULL;
    }
    return ad_array_stream_object_into(
        object, values[0], values[1] != NULL ? values[1] : Py_None,
        values[2] != NULL ? values[2] : Py_None);
}

static AD_ENTRY(call_stream_into, ad_state_of, into_signature,
                stream_into(state, self, values));

/* --- concat_streams() ---------------------------------------------------- */

static const ad_signature concat_signature = {
    .function = "concat_streams()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_streams, AD_STR_schema),
};

static PyObject *
concat(ad_state *state, PyObject *streams, ad_schema schema)
{
    ad_array_stream_list *list = ad_iterable_stream_list(state, streams);
    ad_array_stream *chain;
    ad_error err;
    if (list == NULL) {
        return NULL;
    }
    if (ad_array_stream_chain(list, schema, &chain, &err) == AD_OK) {
        return ad_array_stream_object_new(state, chain);
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

static PyObject *
function_concat_streams(ad_state *state, PyObject *const *values)
{
    ad_schema schema = {0};
    if (!ad_is_none(values[1]) &&
        ad_parse_schema(state, values[1], &schema) < 0) {
        return NULL;
    }
    PyObject *result = concat(state, values[0], schema);
    ad_schema_unref(schema);
    return result;
}

AD_ENTRY(ad_function_concat_streams, ad_state_of_module, concat_signature,
         function_concat_streams(state, values));

/* --- export -------------------------------------------------------------- */

/* The struct in the capsule reads the stream from now on. */
static PyObject *
export_stream(PyObject *object, const char *function, ad_capsule_kind kind,
              PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_state *state = ad_state_of(object);
    PyObject *requested;
    PyObject *capsule = NULL;
    if (ad_arrow_parse(state, function, kind == AD_CAPSULE_DEVICE_STREAM, args,
                       n_args, kwnames, &requested) < 0 ||
        begin_reading(object) < 0) {
        return NULL;
    }
    if (ad_arrow_check_requested(state, self->schema, requested) == 0) {
        capsule = ad_array_stream_export(state, self->stream, kind);
    }
    if (capsule != NULL) {
        ad_array_stream_unref(end_reading_and_take(self));
    } else {
        end_reading(self);
    }
    return capsule;
}

static PyObject *
stream_device_stream(PyObject *object, PyObject *const *args,
                     Py_ssize_t n_args, PyObject *kwnames)
{
    return export_stream(object, "__arrow_c_device_stream__()",
                         AD_CAPSULE_DEVICE_STREAM, args, n_args, kwnames);
}

static PyObject *
stream_host_stream(PyObject *object, PyObject *const *args, Py_ssize_t n_args,
                   PyObject *kwnames)
{
    return export_stream(object, "__arrow_c_stream__()", AD_CAPSULE_STREAM,
                         args, n_args, kwnames);
}

static PyMethodDef host_stream_method = {
    "__arrow_c_stream__", AD_METHOD(stream_host_stream),
    "__arrow_c_stream__($self, requested_schema=None)\n--\n\n"
    "Hand the stream over as a capsule \"arrow_array_stream\". Its get_next\n"
    "waits for each batch."};

static PyObject *
get_host_stream(PyObject *object, void *closure)
{
    ad_device device = {((ad_array_stream_object *)object)->device_type, -1};
    if (!ad_host_accessible(device)) {
        char name[AD_DEVICE_NAME_SIZE];
        PyErr_Format(PyExc_AttributeError,
                     "__arrow_c_stream__ is not offered: the batches are on "
                     "%s, which the host cannot read; use "
                     "__arrow_c_device_stream__",
                     ad_device_format(device, name));
        return NULL;
    }
    return PyCFunction_New(closure, object);
}

static PyObject *
stream_schema_capsule(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return ad_schema_capsule(ad_state_of(object),
                             ((ad_array_stream_object *)object)->schema);
}

/* --- members ------------------------------------------------------------- */

static PyObject *
get_schema(PyObject *object, void *Py_UNUSED(closure))
{
    return ad_schema_object_new(
        ad_state_of(object),
        ad_schema_ref(((ad_array_stream_object *)object)->schema));
}

static PyObject *
get_device_type(PyObject *object, void *Py_UNUSED(closure))
{
    return ad_device_type_member(
        ad_state_of(object), ((ad_array_stream_object *)object)->device_type);
}

static PyObject *
stream_repr(PyObject *object)
{
    ad_array_stream_object *self = (ad_array_stream_object *)object;
    ad_device device = {self->device_type, -1};
    char name[AD_DEVICE_NAME_SIZE];
    condition found = AD_PY_LOCKED(object, condition_of(self));
    PyObject *type = ad_short_type(object, self->schema.node);
    if (type == NULL) {
        return NULL;
    }
    PyObject *result =
        PyUnicode_FromFormat("<arrowdev.ArrayStream %U, on %s%s>", type,
                             ad_device_format(device, name),
                             found == CLOSED        ? ", closed"
                             : found == HANDED_OVER ? ", handed over"
                                                    : "");
    Py_DECREF(type);
    return result;
}

static PyObject *
stream_html(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ad_device device = {((ad_array_stream_object *)object)->device_type, -1};
    char name[AD_DEVICE_NAME_SIZE];
    char caption[sizeof("arrowdev.ArrayStream, on ") + AD_DEVICE_NAME_SIZE];
    PyObject *schema = get_schema(object, NULL);
    if (schema == NULL) {
        return NULL;
    }
    PyOS_snprintf(caption, sizeof(caption), "arrowdev.ArrayStream, on %s",
                  ad_device_format(device, name));
    PyObject *result = ad_html_of_schema(schema, caption);
    Py_DECREF(schema);
    return result;
}

/* --- the type ------------------------------------------------------------ */

static PyObject *
stream_reduce(PyObject *self, PyObject *Py_UNUSED(protocol))
{
    PyErr_Format(PyExc_TypeError,
                 "cannot pickle or copy a '%s' object, which can be read only "
                 "once; read_all() gives an Array that can be pickled, and so "
                 "can each Array that the stream gives",
                 Py_TYPE(self)->tp_name);
    return NULL;
}

static PyMethodDef stream_methods[] = {
    {"to", AD_METHOD(call_stream_to),
     "to($self, device, *, prefetch=1, stream=None)\n--\n\n"
     "A stream of the same batches on `device`; this one is handed over to\n"
     "it.\n\n"
     "When a batch is returned, the copies of the next `prefetch` (0 to\n"
     "1024) batches, and of no others, have begun: the stream keeps at most\n"
     "prefetch + 1 batches on the device. Copies run on `stream`, or on\n"
     "arrowdev's own stream, never on the current one, so that they overlap\n"
     "with the caller's work. Each batch carries its own event; a batch in\n"
     "host memory is complete when it is returned. A batch that is already\n"
     "on `device` is not copied.\n\n"
     "Raises ValueError for prefetch out of range. An error of the stream is\n"
     "raised after the batches that preceded it.\n\n"
     "Returns\n-------\nArrayStream\n\n"
     "Examples\n--------\n"
     ">>> ad.array_stream([b\"ab\"]).to(\"cpu\").read_all().to_pylist()\n"
     "[97, 98]"},
    {"rechunk", stream_rechunk, METH_O,
     "rechunk($self, rows, /)\n--\n\n"
     "A stream of batches of `rows` rows each; the last one has the\n"
     "remaining rows. This stream is handed over to it.\n\n"
     "Slices of a batch share its memory. Batches that are joined are copied\n"
     "on their device; ExchangeError if the device cannot do that. Batches\n"
     "without rows are left out; if there are no others, one stays.\n\n"
     "Returns\n-------\nArrayStream\n\n"
     "Examples\n--------\n"
     ">>> [len(batch) for batch in ad.array_stream([b\"ab\", b\"c\"]).rechunk(3)]\n"
     "[3]"},
    {"map", AD_METHOD(call_stream_map),
     "map($self, function, *, schema=None)\n--\n\n"
     "A stream of the results of `function` for each Array. A result is\n"
     "anything that array() takes. This stream is handed over to it.\n\n"
     "Without `schema`, the schema is that of the first result, and the\n"
     "first batch is read at once. An exception of the function ends the\n"
     "stream, as with an iterable.\n\n"
     "Returns\n-------\nArrayStream\n\n"
     "Examples\n--------\n"
     ">>> stream = ad.array_stream([b\"ab\", b\"cd\"]).map(lambda batch: batch[1:])\n"
     ">>> [batch.to_pylist() for batch in stream]\n"
     "[[98], [100]]"},
    {"into", AD_METHOD(call_stream_into),
     "into($self, cls, *, stream=None, copy=None)\n--\n\n"
     "The batches as instances of another library's class, one after another;\n"
     "or the whole stream as one, of a class that takes a stream. This stream\n"
     "is handed over to the result.\n\n"
     "Parameters\n----------\n"
     "cls : type or mapping\n"
     "    A class as in Array.into(), or a class for each column: for each batch\n"
     "    there is a dict of the named columns then. Readers, tables and frames\n"
     "    take the whole stream.\n"
     "stream, copy : optional\n"
     "    As in Array.into(), for each batch.\n\n"
     "Returns\n-------\n"
     "ConvertedStream, or an instance of `cls`\n\n"
     "Raises\n------\n"
     "TypeError\n    There is no way to make an instance of a class.\n"
     "KeyError\n    There is no column of that name.\n"
     "ExchangeError\n    A class has no equivalent of the type of the data.\n"
     "    All of these are raised before a batch is read.\n\n"
     "Examples\n--------\n"
     ">>> stream = ad.array_stream([b\"ab\", b\"c\"])\n"
     ">>> [view.tolist() for view in stream.into(memoryview)]\n"
     "[[97, 98], [99]]"},
    {"read_all", stream_read_all, METH_NOARGS,
     "read_all($self)\n--\n\n"
     "The remaining batches of the stream, as one Array.\n\n"
     "A single batch with rows is returned as it is; several are copied into\n"
     "one, on the host. Raises ExchangeError if the stream fails, and for\n"
     "several batches that the host cannot read.\n\n"
     "Returns\n-------\nArray\n\n"
     "Examples\n--------\n"
     ">>> ad.array_stream([b\"ab\", b\"c\"]).read_all().to_pylist()\n"
     "[97, 98, 99]"},
    {"close", stream_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "Release the producer now, or as soon as the call that is reading it\n"
     "returns. Arrays that were read stay valid."},
    {"_repr_html_", stream_html, METH_NOARGS,
     "_repr_html_($self)\n--\n\nThe schema as a table for a notebook."},
    {"__reduce_ex__", stream_reduce, METH_O,
     "__reduce_ex__($self, protocol, /)\n--\n\n"
     "Raises TypeError: a stream can be read only once."},
    {"__enter__", stream_enter, METH_NOARGS, NULL},
    {"__exit__", stream_close, METH_VARARGS, NULL},
    {"__arrow_c_device_stream__", AD_METHOD(stream_device_stream),
     "__arrow_c_device_stream__($self, requested_schema=None, **kwargs)\n"
     "--\n\n"
     "Hand the stream over as a capsule \"arrow_device_array_stream\". From\n"
     "then on only the consumer of the capsule reads it. Each batch keeps\n"
     "its event.\n\n"
     "Source: Arrow PyCapsule interface, \"Device support\"."},
    {"__arrowdev_async_device_stream__", ad_array_stream_push, METH_O,
     "__arrowdev_async_device_stream__($self, handler, /)\n--\n\n"
     "Push the stream to a handler, a capsule\n"
     "\"arrowdev_async_device_stream_handler\", on a thread. This object is\n"
     "handed over. See arrowdev.aio.connect().\n\n"
     "Source: specification, \"Async Device Stream Interface\"."},
    {"__arrow_c_schema__", stream_schema_capsule, METH_NOARGS,
     "__arrow_c_schema__($self)\n--\n\n"
     "Export the type of all arrays as a capsule \"arrow_schema\"."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_getset[] = {
    {"schema", get_schema, NULL, "The Schema of every array.", NULL},
    {"device_type", get_device_type, NULL,
     "DeviceType of every array (a plain int for an unknown type); the\n"
     "device number may differ from array to array.",
     NULL},
    {"__arrow_c_stream__", get_host_stream, NULL,
     "Method that hands the stream over as a capsule \"arrow_array_stream\"; "
     "AttributeError if the host cannot read the memory.",
     &host_stream_method},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef stream_members[] = {
    {"__weaklistoffset__", T_PYSSIZET,
     offsetof(ad_array_stream_object, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_clear, stream_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, stream_iternext},
    {Py_tp_repr, stream_repr},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_getset},
    {Py_tp_members, stream_members},
    {Py_tp_doc,
     "Arrays of one schema, read one after the other. All are accessible from\n"
     "devices of one type.\n\n"
     "arrowdev.array_stream() creates it. An iterator and a context manager\n"
     "with one reader at a time. The export of a capsule hands the stream\n"
     "over.\n\n"
     "Source: specification, \"Device Stream Interface\"."},
    {0, NULL},
};

PyType_Spec ad_array_stream_type_spec = {
    .name = "arrowdev.ArrayStream",
    .basicsize = sizeof(ad_array_stream_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = stream_slots,
};
