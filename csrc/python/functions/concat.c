/* arrowdev.concat(). */
#include <stdlib.h>

#include "stream/array_stream.h"
#include "compute/concat.h"
#include "model/schema_cast.h"
#include "protocol/protocol.h"
#include "python/functions/functions.h"
#include "python/types/array_stream_type.h"
#include "device/backend.h"

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
    return is_cast(other, first) || is_cast(first, other)
               ? "bring all to one type first: arrowdev.array(x, type)"
               : "bring all to one type first, in the producing library";
}

static ad_status
check_schema(ad_array *arrays, Py_ssize_t i, ad_error *err)
{
    const struct ArrowSchema *found = arrays[i].schema.node;
    const struct ArrowSchema *wanted = arrays[0].schema.node;
    char what[32];
    /* Formatting the array's number takes longer than the comparison. */
    if (ad_array_stream_require_schema(found, wanted, "", "", NULL, NULL) ==
        AD_OK) {
        return AD_OK;
    }
    snprintf(what, sizeof(what), "array %zd", i);
    ad_status status = ad_array_stream_require_schema(found, wanted, what,
                                                      "array 0", NULL, err);
    if (status == AD_ERR_EXCHANGE) {
        ad_error_hint(err, "%s", hint_for(&arrays[0], &arrays[i]));
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
               ? ad_as_tuple(object, "concat() takes a sequence of arrays")
               : NULL;
}

/* Returns 0, or -1 with an exception. The caller clears the arrays in both
 * cases. */
static int
import_arrays(ad_state *state, PyObject *items, ad_array *out)
{
    ad_error err;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
        if (ad_as_array(state, PyTuple_GET_ITEM(items, i), (ad_schema){0},
                        AD_COPY_IF_NEEDED, &out[i]) < 0) {
            ad_prefix_exception("array %zd: ", i);
            return -1;
        }
        if (ad_raise_status(state, check_schema(out, i, &err), &err) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
join(ad_state *state, const ad_array *arrays, size_t n,
     const ad_stream_argument *stream)
{
    bool on_host = ad_host_accessible(arrays[0].memory.device);
    ad_stream_ref choice;
    ad_array joined;
    ad_error err;
    if (ad_choose_stream(state, on_host ? NULL : stream,
                         arrays[0].memory.device, NULL, &choice) < 0) {
        return NULL;
    }
    /* The host copies without the GIL. */
    PyThreadState *thread = on_host ? PyEval_SaveThread() : NULL;
    ad_status status =
        ad_concat_on(arrays[0].schema, arrays, n, &choice, &joined, &err);
    if (thread != NULL) {
        PyEval_RestoreThread(thread);
    }
    ad_stream_ref_clear(&choice);
    return status == AD_OK ? ad_array_object_new(state, &joined)
                           : ad_raise(state, &err);
}

static PyObject *
concat(ad_state *state, PyObject *items, const ad_stream_argument *stream)
{
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    if (n == 0) {
        PyErr_SetString(PyExc_ValueError,
                        "concat() needs one array at least, whose type the "
                        "result has");
        return NULL;
    }
    if (n == 1) {
        return ad_as_array_object(state, PyTuple_GET_ITEM(items, 0),
                                  AD_COPY_IF_NEEDED);
    }
    ad_array *arrays = calloc((size_t)n, sizeof(*arrays));
    if (arrays == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *result = import_arrays(state, items, arrays) == 0
                           ? join(state, arrays, (size_t)n, stream)
                           : NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        ad_array_clear(&arrays[i]);
    }
    free(arrays);
    return result;
}

static const ad_signature signature = {
    .function = "concat()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_stream),
};

static PyObject *
function_concat(ad_state *state, PyObject *const *values)
{
    ad_stream_argument stream;
    if (ad_parse_stream(state, values[1], &stream) < 0) {
        return NULL;
    }
    PyObject *items = read_items(state, values[0]);
    PyObject *result = items != NULL ? concat(state, items, &stream) : NULL;
    Py_XDECREF(items);
    return result;
}

AD_ENTRY(ad_function_concat, ad_state_of_module, signature,
         function_concat(state, values));
