/* arrowdev.concat(). */
#include <stdlib.h>

#include "stream/array_stream.h"
#include "compute/concat.h"
#include "model/schema_cast.h"
#include "protocol/protocol.h"
#include "python/functions/functions.h"
#include "python/types/array_stream_type.h"
#include "device/backend.h"

/* The arrays to join: Array objects, and their core values (borrowed). */
typedef struct parts {
    PyObject *objects; /* a tuple of Array */
    ad_array *arrays;
    size_t n;
} parts;

static void
parts_clear(parts *self)
{
    PyObject *saved = ad_py_save_exception();
    Py_XDECREF(self->objects);
    ad_py_reset_exception(saved);
    free(self->arrays);
}

static bool
is_cast(ad_array *array, const ad_array *other)
{
    return ad_schema_cast_check(array, ad_array_known_null_count(array),
                                other->schema.node,
                                AD_CAST_LAYOUT) == AD_CAST_FITS;
}

/* The hint on how to bring both arrays to one type. */
static const char *
hint_for(ad_array *first, ad_array *other)
{
    if (is_cast(other, first) || is_cast(first, other)) {
        return "bring all to one type first: arrowdev.array(x, type)";
    }
    return ad_schema_cast_is_view(other->schema.node, first->schema.node)
               ? "bring all to one type first, in the producing library; "
                 "arrowdev.array(x).view(type) takes the same bytes as "
                 "another type"
               : "bring all to one type first, in the producing library";
}

static ad_status
check_schema(const parts *self, size_t i, ad_error *err)
{
    ad_array *first = &self->arrays[0], *array = &self->arrays[i];
    const struct ArrowSchema *found = array->schema.node;
    const struct ArrowSchema *wanted = first->schema.node;
    char what[32];
    /* Formatting the array's number takes longer than the comparison. */
    if (ad_array_stream_require_schema(found, wanted, "", "", NULL, NULL) ==
        AD_OK) {
        return AD_OK;
    }
    snprintf(what, sizeof(what), "array %zu", i);
    ad_status status = ad_array_stream_require_schema(found, wanted, what,
                                                      "array 0", NULL, err);
    if (status == AD_ERR_EXCHANGE) {
        ad_error_hint(err, "%s", hint_for(first, array));
    }
    return status;
}

/* Is the object an iterable of arrays? An array, a table, a dict or a str is
 * iterable as well, but yields scalars, columns, keys or characters, which are
 * not meant to be joined. 1 yes, 0 no, -1 with an exception. */
static int
is_of_arrays(ad_state *state, PyObject *object)
{
    uint32_t offers;
    if (PyList_CheckExact(object) || ad_is_array_stream(state, object)) {
        return 1;
    }
    if (PyUnicode_Check(object) || PyDict_Check(object)) {
        return 0;
    }
    return ad_offers(state, object, &offers) < 0 ? -1 : offers == 0;
}

/* The objects to join as a tuple, or NULL with an exception. */
static PyObject *
read_items(ad_state *state, PyObject *object)
{
    int found = is_of_arrays(state, object);
    if (found == 0) {
        PyErr_Format(PyExc_TypeError,
                     "concat() takes a sequence of arrays, not one %.200s; "
                     "arrowdev.array() joins the chunks of a stream or table",
                     Py_TYPE(object)->tp_name);
    }
    return found == 1
               ? ad_as_tuple(object,
                             "concat() takes a sequence of arrays, not one")
               : NULL;
}

/* Returns 0, or -1 with an exception. The caller clears `out` in both
 * cases. */
static int
read_parts(ad_state *state, PyObject *sequence, parts *out)
{
    ad_error err;
    *out = (parts){0};
    PyObject *items = read_items(state, sequence);
    if (items == NULL) {
        return -1;
    }
    out->n = (size_t)PyTuple_GET_SIZE(items);
    out->objects = PyTuple_New((Py_ssize_t)out->n);
    out->arrays = malloc((out->n + 1) * sizeof(*out->arrays));
    int result = out->objects != NULL && out->arrays != NULL ? 0 : -1;
    if (out->arrays == NULL) {
        PyErr_NoMemory();
    }
    for (size_t i = 0; result == 0 && i < out->n; i++) {
        PyObject *array =
            ad_as_array_object(state, PyTuple_GET_ITEM(items, (Py_ssize_t)i));
        if (array == NULL) {
            result = -1;
            break;
        }
        PyTuple_SET_ITEM(out->objects, (Py_ssize_t)i, array);
        out->arrays[i] = *ad_array_of(array);
        if (check_schema(out, i, &err) != AD_OK) {
            ad_raise(state, &err);
            result = -1;
        }
    }
    Py_DECREF(items);
    return result;
}

/* The host copies without the GIL. */
static ad_status
join(const parts *self, const ad_stream_choice *stream, ad_array *out,
     ad_error *err)
{
    ad_status status;
    ad_schema schema = self->arrays[0].schema;
    if (!ad_host_accessible(self->arrays[0].device)) {
        return ad_concat_on(schema, self->arrays, self->n, stream, out, err);
    }
    Py_BEGIN_ALLOW_THREADS
    status = ad_concat_on(schema, self->arrays, self->n, stream, out, err);
    Py_END_ALLOW_THREADS
    return status;
}

static PyObject *
concat(ad_state *state, const parts *self, const ad_stream_argument *stream)
{
    ad_stream_choice choice;
    ad_array joined;
    ad_error err;
    if (self->n == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "concat() needs one array at least, whose type the "
                        "result has");
        return NULL;
    }
    if (self->n == 1) {
        return Py_NewRef(PyTuple_GET_ITEM(self->objects, 0));
    }
    ad_device device = self->arrays[0].device;
    if (ad_choose_stream(state, ad_host_accessible(device) ? NULL : stream,
                         device, NULL, &choice) < 0) {
        return NULL;
    }
    ad_status status = join(self, &choice, &joined, &err);
    ad_choice_clear(&choice);
    return status == AD_OK ? ad_array_object_new(state, &joined)
                           : ad_raise(state, &err);
}

static const ad_signature signature = {
    .function = "concat()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_object, AD_STR_stream},
};

PyObject *
ad_function_concat(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                   PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    ad_stream_argument stream;
    parts all;
    if (ad_parse_args(state, &signature, args, n_args, kwnames, values) < 0 ||
        ad_parse_stream(state, values[1], &stream) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (read_parts(state, values[0], &all) == 0) {
        result = concat(state, &all, &stream);
    }
    parts_clear(&all);
    return result;
}
