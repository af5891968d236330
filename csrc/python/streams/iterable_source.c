#include "python/streams/iterable_source.h"

#include <stdlib.h>

#include "support/errors.h"
#include "support/py_call.h"
#include "python/streams/stream_element.h"
#include "python/types/stream_object.h"
#include "support/waiting.h"

typedef struct iterable_source {
    ad_batch_source base;
    ad_state *state;
    PyObject *type;     /* of Array: keeps the module, and so the state */
    PyObject *iterator; /* NULL: used up */
    PyObject *function; /* for each element; NULL: none */
    ad_element_rules rules;
    ad_array first;
    bool has_first;
    bool is_interrupted;    /* a wait of the stream that is mapped was ended */
    ad_kept_exception kept; /* that ended it */
} iterable_source;

/* --- elements ------------------------------------------------------------------ */

/* The function's result for an element (stolen). A StopIteration of its own is
 * no end of the stream, which would leave batches out (as PEP 479 has it). */
static PyObject *
apply(PyObject *function, PyObject *element)
{
    PyObject *result = PyObject_CallOneArg(function, element);
    if (result == NULL && PyErr_ExceptionMatches(PyExc_StopIteration)) {
        PyObject *cause = ad_py_take_exception();
        PyErr_SetString(PyExc_RuntimeError,
                        "map function raised StopIteration");
        ad_raise_with_cause(ad_py_take_exception(), cause);
    }
    PyObject *saved = ad_py_save_exception();
    Py_DECREF(element);
    ad_py_reset_exception(saved);
    return result;
}

static bool
is_interrupted(const iterable_source *self)
{
    return ad_is_array_stream(self->state, self->iterator) &&
           ((const ad_stream_object *)self->iterator)->is_interrupted;
}

/* 1 with *out filled, 0 at the end, -1 with an exception. */
static int
take_element(iterable_source *self, ad_array *out)
{
    PyObject *element =
        self->iterator != NULL ? PyIter_Next(self->iterator) : NULL;
    if (element != NULL && self->function != NULL) {
        element = apply(self->function, element);
    }
    int result = 0;
    if (element != NULL) {
        result = ad_element_import(self->state, &self->rules, element, out) < 0
                     ? -1
                     : 1;
        PyObject *saved = ad_py_save_exception();
        Py_DECREF(element);
        ad_py_reset_exception(saved);
    } else if (PyErr_Occurred()) {
        self->is_interrupted = is_interrupted(self);
        result = -1;
    }
    if (result <= 0) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->iterator);
        Py_CLEAR(self->function);
        ad_py_reset_exception(saved);
    }
    return result;
}

/* --- as a source -------------------------------------------------------------------- */

static ad_status
next_with_gil(iterable_source *self, ad_array *out, bool *is_end,
              ad_error *err)
{
    int result = take_element(self, out);
    *is_end = result == 0;
    if (result < 0 && self->is_interrupted) {
        ad_keep_interruption();
        return ad_fail(err, AD_ERR_INTERRUPTED, NULL, NULL,
                       "a wait of the stream that is mapped was interrupted");
    }
    return result < 0 ? ad_keep_exception(self->state, &self->kept,
                                          "the iterable of the stream", err)
                      : AD_OK;
}

static ad_status
iterable_next(ad_batch_source *base, ad_array *out, bool *is_end,
              ad_error *err)
{
    iterable_source *self = (iterable_source *)base;
    PyGILState_STATE gil;
    if (self->has_first) {
        self->has_first = false;
        *is_end = false;
        *out = self->first;
        return AD_OK;
    }
    if (!ad_py_call_begin(&gil)) {
        return ad_keep_exit(&self->kept, "the iterable of the stream", err);
    }
    ad_status status = next_with_gil(self, out, is_end, err);
    ad_py_call_end(gil);
    return status;
}

static const char *
iterable_last_error(ad_batch_source *base, int *code)
{
    const iterable_source *self = (const iterable_source *)base;
    *code = self->kept.code;
    return self->kept.text;
}

static void
iterable_destroy(ad_batch_source *base)
{
    iterable_source *self = (iterable_source *)base;
    PyGILState_STATE gil;
    if (self->has_first) {
        ad_array_clear(&self->first);
    }
    ad_schema_unref(self->rules.schema);
    if (ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->iterator);
        Py_CLEAR(self->function);
        Py_CLEAR(self->type);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
    }
    /* Otherwise the interpreter is gone: its objects leak on purpose. */
    ad_kept_clear(&self->kept);
    free(self);
}

/* --- making one ------------------------------------------------------------------------ */

/* The schema and the device type, from the first element where they were not
 * given. */
static int
learn(iterable_source *self, const int32_t *given, int32_t *device_type)
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
        *device_type = given != NULL ? *given : self->first.device.type;
    } else if (self->rules.schema.node == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "the iterable has no elements, from which the schema "
                        "could be known; name it with schema=");
        return -1;
    }
    return 0;
}

ad_array_stream *
ad_iterable_stream(ad_state *state, PyObject *iterable, PyObject *function,
                   ad_schema wanted, const int32_t *given, int32_t device_type)
{
    PyObject *iterator = PyObject_GetIter(iterable);
    ad_array_stream *stream = NULL;
    ad_error err;
    if (iterator == NULL) {
        return NULL;
    }
    iterable_source *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        Py_DECREF(iterator);
        PyErr_NoMemory();
        return NULL;
    }
    self->base = (ad_batch_source){.next = iterable_next,
                                   .last_error = iterable_last_error,
                                   .destroy = iterable_destroy,
                                   .saved_exception = &self->kept,
                                   .lends = true};
    self->state = state;
    self->type = Py_NewRef(state->array_type);
    self->iterator = iterator;
    self->function = Py_XNewRef(function);
    self->rules.schema = ad_schema_ref(wanted);
    self->rules.is_given = wanted.node != NULL;
    if (learn(self, given, &device_type) == 0) {
        if (ad_array_stream_from_source(&self->base, self->rules.schema,
                                        device_type, &stream, &err) == AD_OK) {
            return stream;
        }
        ad_raise(state, &err);
    }
    iterable_destroy(&self->base);
    return NULL;
}

bool
ad_is_iterable_source(const ad_batch_source *source)
{
    return source->next == iterable_next;
}

int
ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg)
{
    if (source->next == iterable_next) {
        Py_VISIT(((iterable_source *)source)->iterator);
        Py_VISIT(((iterable_source *)source)->function);
    }
    return 0;
}
