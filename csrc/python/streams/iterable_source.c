#include "python/streams/iterable_source.h"

#include <stdlib.h>

#include "python/types/array_stream_type.h"
#include "python/functions/functions.h"
#include "support/py_call.h"
#include "support/waiting.h"

/* --- elements ------------------------------------------------------------ */

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
    PyGILState_STATE gil;
    ad_status status = AD_OK;
    if (!ad_py_call_begin(&gil)) {
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
    ad_py_call_end(gil);
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
    if (ad_py_enter(&entry)) {
        drop_iterator(self);
        Py_CLEAR(self->type);
        ad_py_leave(&entry);
    }
    /* Otherwise the interpreter is finalized: its objects leak on purpose. */
    ad_schema_unref(self->rules.schema);
    ad_saved_exception_clear(&self->saved_exception);
    free(self);
}

/* --- batches ------------------------------------------------------------- */

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

/* --- streams ------------------------------------------------------------- */

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
