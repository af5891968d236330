/* arrowdev.array_stream(): any source of arrays as an ArrayStream; Python
 * iterators as sources of batches, and as lists of streams. */
#include <limits.h>
#include <stdlib.h>

#include "model/schema_cast.h"
#include "protocol/arrow.h"
#include "python/functions/functions.h"
#include "python/types/array_stream_type.h"
#include "support/args.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* --- elements of an iterable --------------------------------------------- */

static int
import_by_rules(ad_state *state, ad_element_rules *rules, PyObject *element,
                ad_array *out)
{
    ad_schema wanted = rules->is_given ? rules->schema : (ad_schema){0};
    ad_error err;
    if (ad_as_batch(state, element, wanted, out) < 0) {
        return -1;
    }
    if (rules->is_given) {
        return 0;
    }
    if (rules->schema.node == NULL) {
        rules->schema = ad_schema_ref(out->schema);
        return 0;
    }
    if (ad_array_stream_require_schema(
            out->schema.node, rules->schema.node, "it", "the stream",
            "all arrays of a stream have one schema: convert them before, or "
            "name it with schema=",
            &err) != AD_OK) {
        ad_array_clear(out);
        ad_raise(state, &err);
        return -1;
    }
    /* The stream's schema has its metadata as well. */
    ad_schema_unref(out->schema);
    out->schema = ad_schema_ref(rules->schema);
    return 0;
}

int
ad_element_import(ad_state *state, ad_element_rules *rules, PyObject *element,
                  ad_array *out)
{
    int result = import_by_rules(state, rules, element, out);
    if (result < 0 && !ad_exception_is_final(state)) {
        ad_prefix_exception(
            rules->is_mapped
                ? "result %lld of the function of map() (of type %.100s): "
                : "element %lld of the iterable (of type %.100s): ",
            rules->n_taken, Py_TYPE(element)->tp_name);
    }
    rules->n_taken++;
    return result;
}

/* --- iteration ----------------------------------------------------------- */

/* A Python iterator of batches or of streams. */
typedef struct iteration {
    union {
        ad_batch_source source;    /* of batches */
        ad_array_stream_list list; /* of streams */
    } base;
    ad_state *state;
    ad_interpreter *interpreter;
    PyObject *type;     /* keeps the module and its state alive */
    PyObject *iterator; /* NULL: exhausted */
    PyObject *function; /* for each element; NULL: none */
    const char *what;   /* raised the exception; NULL: its text says it */
    bool gives_streams;
    ad_element_rules rules; /* for batches; n_taken for streams as well */
    ad_array first;         /* taken for its schema and device type */
    bool has_first;
    bool is_interrupted; /* a signal ended a wait of the mapped stream */
    ad_saved_exception saved_exception; /* the one that ended the iteration */
} iteration;

/* The function's result for an element (stolen), which is not None. As in
 * PEP 479, a StopIteration of the function becomes a RuntimeError: as an end
 * of the stream it would hide the remaining batches. */
static PyObject *
apply(iteration *self, PyObject *element)
{
    PyObject *result = PyObject_CallOneArg(self->function, element);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        PyObject *cause = ad_py_take_exception();
        PyErr_SetString(PyExc_RuntimeError,
                        "map function raised StopIteration");
        ad_raise_with_cause(ad_py_take_exception(), cause);
    }
    if (result == NULL) {
        self->what = "the function of map()";
    } else if (ad_is_none(result)) {
        Py_CLEAR(result);
        self->what = NULL;
        PyErr_Format(PyExc_TypeError,
                     "the function of map() returned None for batch %lld; "
                     "it must return an array for each batch",
                     self->rules.n_taken);
    }
    PyObject *saved = ad_py_take_exception();
    Py_DECREF(element);
    ad_py_restore_exception(saved);
    return result;
}

/* The stream (a new reference) of an object that array_stream() accepts. */
static int
as_stream(iteration *self, PyObject *element, ad_array_stream **out)
{
    PyObject *object = ad_array_stream_from_object(self->state, element);
    *out = object != NULL ? ad_array_stream_hand_over(object) : NULL;
    if (*out == NULL && !ad_exception_is_final(self->state)) {
        ad_prefix_exception("stream %lld (of type %.100s): ",
                            self->rules.n_taken, Py_TYPE(element)->tp_name);
    }
    self->rules.n_taken++;
    PyObject *saved = ad_py_take_exception();
    Py_XDECREF(object);
    ad_py_restore_exception(saved);
    return *out != NULL ? 0 : -1;
}

static bool
is_interrupted(const iteration *self)
{
    const ad_array_stream_object *stream =
        (const ad_array_stream_object *)self->iterator;
    return ad_is_array_stream(self->state, self->iterator) &&
           __atomic_load_n(&stream->is_interrupted, __ATOMIC_RELAXED);
}

static void
drop_iterator(iteration *self)
{
    PyObject *saved = ad_py_take_exception();
    Py_CLEAR(self->iterator);
    Py_CLEAR(self->function);
    ad_py_restore_exception(saved);
}

/* 1 with *out (an ad_array, or an ad_array_stream *) filled, 0 at the end, -1
 * with an exception. */
static int
take_element(iteration *self, void *out)
{
    PyObject *element =
        self->iterator != NULL ? PyIter_Next(self->iterator) : NULL;
    if (element != NULL && self->function != NULL) {
        element = apply(self, element);
    }
    int result = 0;
    if (element != NULL) {
        int failed =
            self->gives_streams
                ? as_stream(self, element, out)
                : ad_element_import(self->state, &self->rules, element, out);
        result = failed < 0 ? -1 : 1;
        self->what = failed < 0 ? NULL : self->what;
        PyObject *saved = ad_py_take_exception();
        Py_DECREF(element);
        ad_py_restore_exception(saved);
    } else if (PyErr_Occurred()) {
        self->is_interrupted = !self->gives_streams && is_interrupted(self);
        result = -1;
    }
    if (result <= 0) {
        drop_iterator(self);
    }
    return result;
}

/* take_element() on any thread, with or without the GIL. */
static ad_status
next_element(iteration *self, void *out, bool *is_end, ad_error *err)
{
    ad_py_call call;
    ad_status status = AD_OK;
    if (!ad_py_call_begin(self->interpreter, &call)) {
        return ad_save_exit(&self->saved_exception, self->what, err);
    }
    int result = take_element(self, out);
    *is_end = result == 0;
    if (result < 0 && self->is_interrupted) {
        ad_keep_interruption();
        status = ad_fail(err, AD_ERR_INTERRUPTED, NULL, NULL,
                         "a wait of the mapped stream was interrupted");
    } else if (result < 0) {
        status = ad_save_exception(self->state, &self->saved_exception,
                                   self->what, err);
    }
    ad_py_call_end(&call);
    return status;
}

static iteration *
iteration_new(ad_state *state, PyObject *iterable, const char *what)
{
    iteration *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    self->iterator = PyObject_GetIter(iterable);
    if (self->iterator == NULL) {
        free(self);
        return NULL;
    }
    self->state = state;
    self->interpreter = state->interpreter;
    self->type = Py_NewRef(state->array_type);
    self->what = what;
    return self;
}

static const char *
text_of(const iteration *self, int *code)
{
    *code = self->saved_exception.code;
    return self->saved_exception.text;
}

static void
iteration_free(iteration *self)
{
    ad_py_entry entry;
    if (self->has_first) {
        ad_array_clear(&self->first);
    }
    if (ad_py_enter(self->interpreter, &entry)) {
        drop_iterator(self);
        Py_CLEAR(self->type);
        ad_py_leave(&entry);
    }
    /* Otherwise the interpreter is finalized: its objects leak on purpose. */
    ad_schema_unref(self->rules.schema);
    ad_saved_exception_clear(&self->saved_exception);
    free(self);
}

/* --- batches of an iterable ---------------------------------------------- */

static ad_status
source_next(ad_batch_source *base, ad_array *out, bool *is_end, ad_error *err)
{
    iteration *self = (iteration *)base;
    if (self->has_first) {
        self->has_first = false;
        *is_end = false;
        *out = self->first;
        return AD_OK;
    }
    return next_element(self, out, is_end, err);
}

static const char *
source_last_error(ad_batch_source *base, int *code)
{
    return text_of((iteration *)base, code);
}

static void
source_destroy(ad_batch_source *base)
{
    iteration_free((iteration *)base);
}

/* Takes the schema and the device type from the first element unless they are
 * given. */
static int
infer_type(iteration *self, const int32_t *given, int32_t *device_type)
{
    *device_type = given != NULL ? *given : *device_type;
    if (self->rules.schema.node != NULL && given != NULL) {
        return 0;
    }
    int result = take_element(self, &self->first);
    if (result < 0) {
        return -1;
    }
    self->has_first = result > 0;
    if (self->has_first) {
        *device_type = given != NULL ? *given : self->first.memory.device.type;
    } else if (self->rules.schema.node == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "the iterable has no elements to take the schema "
                        "from; name it with schema=");
        return -1;
    }
    return 0;
}

ad_array_stream *
ad_iterable_stream(ad_state *state, PyObject *iterable, PyObject *function,
                   ad_schema wanted, const int32_t *given, int32_t device_type)
{
    ad_array_stream *stream = NULL;
    ad_error err;
    iteration *self =
        iteration_new(state, iterable, "the iterable of the stream");
    if (self == NULL) {
        return NULL;
    }
    ad_element_rules *rules = &self->rules;
    self->base.source =
        (ad_batch_source){.next = source_next,
                          .last_error = source_last_error,
                          .destroy = source_destroy,
                          .saved_exception = &self->saved_exception,
                          .is_borrowed = true};
    self->function = Py_XNewRef(function);
    rules->schema = ad_schema_ref(wanted);
    rules->is_given = wanted.node != NULL;
    rules->is_mapped = function != NULL;
    if (infer_type(self, given, &device_type) == 0) {
        if (ad_array_stream_from_source(&self->base.source, rules->schema,
                                        device_type, &stream, &err) == AD_OK) {
            return stream;
        }
        ad_raise(state, &err);
    }
    iteration_free(self);
    return NULL;
}

bool
ad_is_iterable_source(const ad_batch_source *source)
{
    return source->next == source_next;
}

/* --- streams of an iterable ---------------------------------------------- */

static ad_status
list_next(ad_array_stream_list *base, ad_array_stream **out, ad_error *err)
{
    bool is_end;
    *out = NULL;
    return next_element((iteration *)base, out, &is_end, err);
}

static const char *
list_last_error(ad_array_stream_list *base, int *code)
{
    return text_of((iteration *)base, code);
}

static void
list_destroy(ad_array_stream_list *base)
{
    iteration_free((iteration *)base);
}

ad_array_stream_list *
ad_iterable_stream_list(ad_state *state, PyObject *iterable)
{
    iteration *self =
        iteration_new(state, iterable, "the iterable of streams");
    if (self == NULL) {
        return NULL;
    }
    self->base.list = (ad_array_stream_list){
        list_next, list_last_error, list_destroy, &self->saved_exception};
    self->gives_streams = true;
    return &self->base.list;
}

/* --- garbage collection -------------------------------------------------- */

int
ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg)
{
    ad_array_stream_list *list = ad_array_stream_chain_list(source);
    const iteration *self = NULL;
    if (ad_is_iterable_source(source)) {
        self = (const iteration *)source;
    } else if (list != NULL && list->next == list_next) {
        self = (const iteration *)list;
    }
    if (self != NULL) {
        Py_VISIT(self->iterator);
        Py_VISIT(self->function);
    }
    return 0;
}

/* --- what the caller asks for -------------------------------------------- */

/* The options of the call. */
typedef struct options {
    ad_schema schema; /* without a node: any */
    bool has_device_type;
    int32_t device_type;
} options;

static int
check_device_type(ad_state *state, int32_t device_type, const options *wanted)
{
    if (!wanted->has_device_type || wanted->device_type == device_type) {
        return 0;
    }
    ad_raise_exchange(state, "device",
                      "leave device_type out, or bring the stream there "
                      "with .to(device)",
                      "the stream is on device type %d, not %d",
                      (int)device_type, (int)wanted->device_type);
    return -1;
}

/* True if no child of the type is declared to be without nulls. */
static bool
children_may_be_null(const struct ArrowSchema *node)
{
    bool result = true;
    for (int64_t i = 0; i < node->n_children && result; i++) {
        result = (node->children[i]->flags & ARROW_FLAG_NULLABLE) &&
                 children_may_be_null(node->children[i]);
    }
    return result;
}

/* The stream in `object` (stolen), with the type that was asked for. Names are
 * put on batch by batch, and each batch is checked: a producer that was asked
 * for a type without nulls may only have named it so. */
static PyObject *
with_schema(ad_state *state, PyObject *object, const options *wanted)
{
    const ad_array_stream_object *self =
        (const ad_array_stream_object *)object;
    const struct ArrowSchema *asked = wanted->schema.node;
    ad_array_stream *stream = NULL;
    ad_error err;
    if (check_device_type(state, self->device_type, wanted) < 0) {
        Py_DECREF(object);
        return NULL;
    }
    if (asked == NULL) {
        return object;
    }
    ad_status status = ad_array_stream_require_schema(
        self->schema.node, asked, "the stream", "what was asked for",
        "leave schema out, or convert the stream with .map(function)", &err);
    if (status == AD_OK && children_may_be_null(asked)) {
        return object;
    }
    if (status == AD_OK ||
        ad_schema_cast_fits_type(self->schema.node, asked, AD_CAST_LAYOUT)) {
        stream = ad_iterable_stream(state, object, NULL, wanted->schema,
                                    &self->device_type, self->device_type);
    } else {
        ad_raise(state, &err);
    }
    Py_DECREF(object);
    return stream != NULL ? ad_array_stream_object_new(state, stream) : NULL;
}

/* --- from capsules ------------------------------------------------------- */

static PyObject *
finish(ad_state *state, ad_array_stream *stream, const options *wanted)
{
    PyObject *object = ad_array_stream_object_new(state, stream);
    return object != NULL ? with_schema(state, object, wanted) : NULL;
}

static PyObject *
from_capsule(ad_state *state, PyObject *capsule, ad_capsule_kind kind,
             const char *origin, const options *wanted)
{
    ad_stream_struct taken;
    ad_array_stream *stream;
    ad_status status;
    ad_error err;
    if (ad_stream_struct_take(state, capsule, kind, origin, &taken) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = ad_stream_struct_import(&taken, &stream, &err);
    Py_END_ALLOW_THREADS
    if (status != AD_OK) {
        return ad_array_stream_raise(state, NULL, &err);
    }
    return finish(state, stream, wanted);
}

/* Returns NULL with an exception. *may_go_on is set to true if the object
 * itself refused, so that another protocol may be tried. */
static PyObject *
from_method(ad_state *state, PyObject *object, int method,
            ad_capsule_kind kind, const options *wanted, bool *may_go_on)
{
    const ad_request request = {
        .copy = AD_COPY_IF_NEEDED,
        .schema = wanted->schema,
    };
    char origin[AD_ORIGIN_SIZE];
    if (ad_is_subclass(Py_TYPE(object), "nanoarrow", NULL) &&
        ad_arrow_check_nanoarrow(object) < 0) {
        return NULL;
    }
    PyObject *capsule = ad_arrow_call(state, object, method, &request);
    if (capsule == NULL) {
        *may_go_on = !ad_exception_is_final(state);
        return NULL;
    }
    ad_origin(PyUnicode_AsUTF8(state->strings[method]), object, origin);
    PyObject *result = from_capsule(state, capsule, kind, origin, wanted);
    Py_DECREF(capsule);
    if (result != NULL && ad_is_subclass(Py_TYPE(object), "polars", NULL) &&
        ad_meaning_check_polars(
            state, ((ad_array_stream_object *)result)->schema.node) < 0) {
        PyObject *saved = ad_py_take_exception();
        Py_CLEAR(result);
        ad_py_restore_exception(saved);
    }
    return result;
}

static PyObject *
from_bare_capsule(ad_state *state, PyObject *capsule, const options *wanted)
{
    bool is_host = ad_capsule_has_name(capsule, AD_CAPSULE_STREAM);
    return from_capsule(state, capsule,
                        is_host ? AD_CAPSULE_STREAM : AD_CAPSULE_DEVICE_STREAM,
                        "array_stream()", wanted);
}

/* --- from arrays and iterables ------------------------------------------- */

static PyObject *
from_array(ad_state *state, PyObject *object, const options *wanted)
{
    ad_array array;
    ad_array_stream *stream;
    ad_error err;
    if (ad_as_array(state, object, wanted->schema, AD_COPY_IF_NEEDED, &array) <
        0) {
        return NULL;
    }
    ad_status status = ad_array_stream_from_array(&array, &stream, &err);
    ad_array_clear(&array);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    const options rest = {.has_device_type = wanted->has_device_type,
                          .device_type = wanted->device_type};
    return finish(state, stream, &rest);
}

static PyObject *
from_iterable(ad_state *state, PyObject *object, const options *wanted)
{
    bool has_iter = Py_TYPE(object)->tp_iter != NULL;
    const char *hint = has_iter ? "" : ad_import_hint(object);
    if (!has_iter && (!PySequence_Check(object) || hint[0] != '\0')) {
        PyErr_Format(PyExc_TypeError,
                     "%.200s is no stream (__arrow_c_device_stream__, "
                     "__arrow_c_stream__), no array and no iterable of "
                     "arrays%s",
                     Py_TYPE(object)->tp_name, hint);
        return NULL;
    }
    ad_array_stream *stream = ad_iterable_stream(
        state, object, NULL, wanted->schema,
        wanted->has_device_type ? &wanted->device_type : NULL,
        ARROW_DEVICE_CPU);
    return stream != NULL ? ad_array_stream_object_new(state, stream) : NULL;
}

/* An object without a stream. `absent` (stolen, may be NULL) is what the
 * look-up of its stream's attribute raised. */
static PyObject *
from_other(ad_state *state, PyObject *object, uint32_t offers,
           const options *wanted, PyObject *absent)
{
    PyObject *result = offers != 0 ? from_array(state, object, wanted)
                                   : from_iterable(state, object, wanted);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        return ad_raise_with_cause(ad_py_take_exception(), absent);
    }
    Py_XDECREF(absent);
    return result;
}

/* An error of ours says better what is wrong than a list of one refusal. */
static bool
is_own_exception(ad_state *state)
{
    return PyErr_ExceptionMatches(state->exchange_error) ||
           PyErr_ExceptionMatches(state->invalid_arrow_error);
}

/* Records and clears the exception of a protocol, and keeps it in *absent. -1:
 * it is to be raised. */
static int
note_refusal(ad_state *state, PyObject *object, int protocol, bool is_last,
             ad_refusals *tried, PyObject **absent)
{
    if (is_last && tried->first == NULL && is_own_exception(state)) {
        return -1;
    }
    PyObject *exception = ad_py_take_exception();
    Py_XSETREF(*absent, Py_XNewRef(exception));
    ad_py_restore_exception(exception);
    return ad_refusals_add(state, tried, object, ad_protocols[protocol]);
}

/* Tries the stream protocols of the object, then the others. */
static PyObject *
from_foreign(ad_state *state, PyObject *object, const options *wanted)
{
    static const struct {
        uint8_t protocol;
        int method;
        ad_capsule_kind kind;
    } ways[] = {
        {AD_PROTOCOL_arrow_device_stream, AD_STR_arrow_c_device_stream,
         AD_CAPSULE_DEVICE_STREAM},
        {AD_PROTOCOL_arrow_stream, AD_STR_arrow_c_stream, AD_CAPSULE_STREAM},
    };
    ad_refusals tried = {0};
    PyObject *absent = NULL;
    uint32_t offers;
    if (ad_offers(state, object, &offers) < 0) {
        return NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        const uint32_t bit = (uint32_t)1 << ways[i].protocol;
        if ((offers & bit) == 0) {
            continue;
        }
        bool may_go_on = false;
        offers &= ~bit;
        PyObject *result = from_method(state, object, ways[i].method,
                                       ways[i].kind, wanted, &may_go_on);
        if (result != NULL || !may_go_on ||
            note_refusal(state, object, ways[i].protocol, offers == 0, &tried,
                         &absent) < 0) {
            ad_refusals_clear(&tried);
            Py_XDECREF(absent);
            return result;
        }
    }
    if (offers == 0 && tried.first != NULL) {
        Py_XDECREF(absent);
        return ad_refusals_raise(state, &tried, object);
    }
    ad_refusals_clear(&tried);
    return from_other(state, object, offers, wanted, absent);
}

static PyObject *
make_stream(ad_state *state, PyObject *object, const options *wanted)
{
    if (ad_is_array_stream(state, object)) {
        return with_schema(state, Py_NewRef(object), wanted);
    }
    if (PyCapsule_CheckExact(object)) {
        return from_bare_capsule(state, object, wanted);
    }
    return ad_is_array(state, object) ? from_array(state, object, wanted)
                                      : from_foreign(state, object, wanted);
}

PyObject *
ad_array_stream_from_object(ad_state *state, PyObject *object)
{
    const options none = {.has_device_type = false};
    return make_stream(state, object, &none);
}

/* --- the function -------------------------------------------------------- */

static const ad_signature signature = {
    .function = "array_stream()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_schema, AD_STR_device_type),
};

static int
parse_device_type(PyObject *value, options *out)
{
    if (ad_is_none(value)) {
        return 0;
    }
    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "device_type must be a DeviceType or an int, not %.200s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (number < INT32_MIN || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "device_type is %ld, expected 32 bits",
                     number);
        return -1;
    }
    out->has_device_type = true;
    out->device_type = (int32_t)number;
    return 0;
}

static PyObject *
function_array_stream(ad_state *state, PyObject *const *values)
{
    options wanted = {.has_device_type = false};
    if (parse_device_type(values[2], &wanted) < 0 ||
        (!ad_is_none(values[1]) &&
         ad_parse_schema(state, values[1], &wanted.schema) < 0)) {
        return NULL;
    }
    PyObject *result = make_stream(state, values[0], &wanted);
    ad_schema_unref(wanted.schema);
    return result;
}

AD_ENTRY(ad_function_array_stream, ad_state_of_module, signature,
         function_array_stream(state, values));
