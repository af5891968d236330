#include "python/iterable_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/extension.h"
#include "core/metadata.h"
#include "python/errors.h"
#include "python/functions.h"
#include "python/py_call.h"

typedef struct iterable_source {
    ad_batch_source base;
    ad_state *state;
    PyObject *type;     /* of Array: keeps the module, and so the state */
    PyObject *iterator; /* NULL: used up */
    ad_schema schema;
    bool is_given; /* the caller named the type */
    ad_array first;
    bool has_first;
    long long n_taken;
    PyObject *exception; /* that ended it; NULL once it is taken */
    char *text;          /* of that exception */
    int code;
} iterable_source;

/* --- one schema -------------------------------------------------------------- */

/* The nodes name the same extension, with the same parameters, or none. */
static bool
same_entry(const struct ArrowSchema *a, const struct ArrowSchema *b,
           const char *key)
{
    ad_metadata_pair in_a, in_b;
    bool has_a, has_b;
    if (ad_metadata_find(a->metadata, key, &in_a, &has_a, NULL) != AD_OK ||
        ad_metadata_find(b->metadata, key, &in_b, &has_b, NULL) != AD_OK) {
        return false;
    }
    return has_a == has_b &&
           (!has_a ||
            (in_a.value_length == in_b.value_length &&
             memcmp(in_a.value, in_b.value, (size_t)in_a.value_length) == 0));
}

/* Of trees with the same layout. */
static bool
same_extensions(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    if (!same_entry(a, b, AD_EXTENSION_NAME_KEY) ||
        !same_entry(a, b, AD_EXTENSION_METADATA_KEY)) {
        return false;
    }
    for (int64_t i = 0; i < a->n_children; i++) {
        if (!same_extensions(a->children[i], b->children[i])) {
            return false;
        }
    }
    return a->dictionary == NULL ||
           same_extensions(a->dictionary, b->dictionary);
}

/* Other metadata may differ: pandas writes the row numbers there. */
static int
check_schema(const iterable_source *self, const ad_array *array)
{
    const struct ArrowSchema *wanted = self->schema.node;
    const struct ArrowSchema *found = array->schema.node;
    bool is_equal = found == wanted;
    ad_text from = {0};
    ad_text to = {0};
    ad_error err;
    ad_status status = AD_OK;
    if (!is_equal) {
        status = ad_schema_equal(found, wanted, false, false, &is_equal, &err);
        is_equal = is_equal && same_extensions(found, wanted);
    }
    if (status == AD_OK && is_equal) {
        return 0;
    }
    if (status == AD_OK) {
        status = ad_type_print(found, &from, &err);
    }
    if (status == AD_OK) {
        status = ad_type_print(wanted, &to, &err);
    }
    if (status == AD_OK) {
        ad_fail(&err, AD_ERR_EXCHANGE, "schema",
                "all arrays of a stream have one schema: convert them before, "
                "or name it with schema=",
                "the element is %.200s, but the stream is %.200s",
                ad_text_string(&from), ad_text_string(&to));
    }
    ad_text_clear(&from);
    ad_text_clear(&to);
    ad_raise(self->state, &err);
    return -1;
}

/* --- elements ------------------------------------------------------------------ */

/* Rename the error so that it says which element is wrong. */
static void
fail_element(const iterable_source *self, PyObject *element)
{
    if (ad_exception_is_final(self->state)) {
        return;
    }
    ad_raise_exchange(self->state, "stream", NULL,
                      "element %lld of the iterable (a %.100s) cannot be a "
                      "batch of the stream",
                      self->n_taken, Py_TYPE(element)->tp_name);
}

static int
import_element(iterable_source *self, PyObject *element, ad_array *out)
{
    ad_schema wanted = self->is_given ? self->schema : (ad_schema){0};
    if (ad_as_array_typed(self->state, element, wanted, out) < 0) {
        fail_element(self, element);
        return -1;
    }
    if (self->schema.node == NULL || self->is_given) {
        return 0;
    }
    if (check_schema(self, out) < 0) {
        PyObject *saved = ad_py_save_exception();
        ad_array_clear(out);
        ad_py_reset_exception(saved);
        fail_element(self, element);
        return -1;
    }
    ad_schema old = out->schema;
    out->schema = ad_schema_ref(self->schema);
    ad_schema_unref(old);
    return 0;
}

/* 1 with *out filled, 0 at the end, -1 with an exception. */
static int
take_element(iterable_source *self, ad_array *out)
{
    PyObject *element =
        self->iterator != NULL ? PyIter_Next(self->iterator) : NULL;
    int result = 0;
    if (element != NULL) {
        result = import_element(self, element, out) < 0 ? -1 : 1;
        self->n_taken++;
        PyObject *saved = ad_py_save_exception();
        Py_DECREF(element);
        ad_py_reset_exception(saved);
    } else if (PyErr_Occurred()) {
        result = -1;
    }
    if (result <= 0) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->iterator);
        ad_py_reset_exception(saved);
    }
    return result;
}

/* --- failures --------------------------------------------------------------------- */

static int
errno_of_exception(PyObject *exception)
{
    int code = EINVAL;
    if (PyErr_GivenExceptionMatches(exception, PyExc_MemoryError)) {
        return ENOMEM;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_NotImplementedError)) {
        return ENOSYS;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_KeyboardInterrupt)) {
        return EINTR;
    }
    if (PyErr_GivenExceptionMatches(exception, PyExc_OSError)) {
        PyObject *number = PyObject_GetAttrString(exception, "errno");
        long value = number != NULL && PyLong_Check(number)
                         ? PyLong_AsLong(number)
                         : EIO;
        Py_XDECREF(number);
        PyErr_Clear();
        code = value > 0 && value < 4096 ? (int)value : EIO;
    }
    return code;
}

/* "ValueError: text", malloc'ed; NULL when that cannot be had. */
static char *
text_of_exception(PyObject *exception)
{
    PyObject *text =
        PyUnicode_FromFormat("%s: %S", Py_TYPE(exception)->tp_name, exception);
    if (text == NULL) { /* its __str__ raises */
        PyErr_Clear();
        text = PyUnicode_FromString(Py_TYPE(exception)->tp_name);
    }
    PyObject *bytes =
        text != NULL
            ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace")
            : NULL;
    char *copy = bytes != NULL ? strdup(PyBytes_AS_STRING(bytes)) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    PyErr_Clear();
    return copy;
}

/* Keep the exception that is set, and make an error of it. */
static ad_status
keep_exception(iterable_source *self, ad_error *err)
{
    PyObject *exception = ad_py_take_exception();
    self->code = errno_of_exception(exception);
    self->text = text_of_exception(exception);
    self->exception = exception;
    bool is_memory = self->code == ENOMEM;
    return ad_fail(err, is_memory ? AD_ERR_MEMORY : AD_ERR_EXCHANGE, "stream",
                   NULL, "the iterable of the stream raised %.400s",
                   self->text != NULL ? self->text
                                      : Py_TYPE(exception)->tp_name);
}

static ad_status
next_with_gil(iterable_source *self, ad_array *out, bool *is_end,
              ad_error *err)
{
    int result = take_element(self, out);
    *is_end = result == 0;
    return result < 0 ? keep_exception(self, err) : AD_OK;
}

/* --- as a source -------------------------------------------------------------------- */

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
        self->code = ECANCELED;
        return ad_fail(err, AD_ERR_EXCHANGE, "stream", NULL,
                       "Python is about to exit, so that the iterable of the "
                       "stream cannot be asked for more");
    }
    ad_status status = next_with_gil(self, out, is_end, err);
    ad_py_call_end(gil);
    return status;
}

static const char *
iterable_last_error(ad_batch_source *base, int *code)
{
    const iterable_source *self = (const iterable_source *)base;
    *code = self->code;
    return self->text;
}

static void
iterable_destroy(ad_batch_source *base)
{
    iterable_source *self = (iterable_source *)base;
    PyGILState_STATE gil;
    if (self->has_first) {
        ad_array_clear(&self->first);
    }
    ad_schema_unref(self->schema);
    free(self->text);
    if (ad_py_enter(&gil)) {
        PyObject *saved = ad_py_save_exception();
        Py_CLEAR(self->iterator);
        Py_CLEAR(self->exception);
        Py_CLEAR(self->type);
        ad_py_reset_exception(saved);
        PyGILState_Release(gil);
    }
    /* Otherwise the interpreter is gone: its objects leak on purpose. */
    free(self);
}

/* --- making one ------------------------------------------------------------------------ */

/* The schema and the device type, from the first element where they were not
 * given. */
static int
learn(iterable_source *self, const int32_t *given, int32_t *device_type)
{
    *device_type = given != NULL ? *given : ARROW_DEVICE_CPU;
    if (self->schema.node != NULL && given != NULL) {
        return 0;
    }
    int result = take_element(self, &self->first);
    if (result < 0) {
        return -1;
    }
    self->has_first = result > 0;
    if (self->has_first) {
        *device_type = given != NULL ? *given : self->first.device.type;
        if (self->schema.node == NULL) {
            self->schema = ad_schema_ref(self->first.schema);
        }
    } else if (self->schema.node == NULL) {
        PyErr_SetString(PyExc_ValueError,
                        "the iterable has no elements, from which the schema "
                        "could be known; name it with schema=");
        return -1;
    }
    return 0;
}

ad_array_stream *
ad_iterable_stream(ad_state *state, PyObject *iterable, ad_schema wanted,
                   const int32_t *given)
{
    PyObject *iterator = PyObject_GetIter(iterable);
    ad_array_stream *stream = NULL;
    int32_t device_type;
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
    self->base = (ad_batch_source){iterable_next, iterable_last_error,
                                   iterable_destroy};
    self->state = state;
    self->type = Py_NewRef(state->array_type);
    self->iterator = iterator;
    self->schema = ad_schema_ref(wanted);
    self->is_given = wanted.node != NULL;
    if (learn(self, given, &device_type) == 0) {
        if (ad_array_stream_from_source(&self->base, self->schema, device_type,
                                        &stream, &err) == AD_OK) {
            return stream;
        }
        ad_raise(state, &err);
    }
    iterable_destroy(&self->base);
    return NULL;
}

PyObject *
ad_iterable_take_exception(ad_batch_source *source)
{
    if (source == NULL || source->next != iterable_next) {
        return NULL;
    }
    iterable_source *self = (iterable_source *)source;
    PyObject *exception = self->exception;
    self->exception = NULL;
    return exception;
}

int
ad_iterable_traverse(ad_batch_source *source, visitproc visit, void *arg)
{
    if (source != NULL && source->next == iterable_next) {
        iterable_source *self = (iterable_source *)source;
        Py_VISIT(self->iterator);
        Py_VISIT(self->exception);
    }
    return 0;
}
