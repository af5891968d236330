/* arrowdev.record_batch(). */
#include <stdlib.h>
#include <string.h>

#include "python/functions/functions.h"
#include "python/types/types.h"

/* The parsed columns and their names; released by columns_clear(). */
typedef struct columns {
    Py_ssize_t n;
    int64_t length; /* of every column */
    ad_array *arrays;
    ad_schema *schemas;     /* borrowed from the arrays */
    const char **names;     /* borrowed from name_objects */
    PyObject *name_objects; /* a list or tuple of str */
    ad_joined_inputs joined;
} columns;

static void
columns_clear(columns *c)
{
    for (Py_ssize_t i = 0; i < c->n; i++) {
        ad_array_clear(&c->arrays[i]);
    }
    free(c->arrays);
    free(c->schemas);
    free(c->names);
    Py_XDECREF(c->name_objects);
    ad_joined_inputs_clear(&c->joined);
}

static int
read_names(columns *c)
{
    if (PySequence_Fast_GET_SIZE(c->name_objects) != c->n) {
        PyErr_Format(PyExc_ValueError,
                     "there are %zd columns, but names= has %zd", c->n,
                     PySequence_Fast_GET_SIZE(c->name_objects));
        return -1;
    }
    for (Py_ssize_t i = 0; i < c->n; i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(c->name_objects, i);
        Py_ssize_t length;
        if (!PyUnicode_Check(name)) {
            PyErr_Format(PyExc_TypeError,
                         "names of columns must be str, not %.200s",
                         Py_TYPE(name)->tp_name);
            return -1;
        }
        c->names[i] = PyUnicode_AsUTF8AndSize(name, &length);
        if (c->names[i] == NULL) {
            return -1;
        }
        if (strlen(c->names[i]) != (size_t)length) {
            PyErr_Format(PyExc_ValueError,
                         "the name of column %zd has a NUL character", i);
            return -1;
        }
    }
    return 0;
}

/* Allocate room for `n` columns, and read the names in name_objects. */
static int
begin_columns(columns *c, int64_t n)
{
    c->arrays = calloc((size_t)n + 1, sizeof(*c->arrays));
    c->schemas = calloc((size_t)n + 1, sizeof(*c->schemas));
    c->names = calloc((size_t)n + 1, sizeof(*c->names));
    if (c->arrays == NULL || c->schemas == NULL || c->names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    c->n = (Py_ssize_t)n;
    return read_names(c);
}

static int
read_columns(ad_state *state, PyObject *sequence, ad_copy copy, columns *c)
{
    PyObject *items = ad_as_tuple(
        sequence,
        "columns must be a mapping, a sequence, a matrix or a batch");
    if (items == NULL) {
        return -1;
    }
    int result = begin_columns(c, PyTuple_GET_SIZE(items));
    for (Py_ssize_t i = 0; result == 0 && i < c->n; i++) {
        result = ad_as_array(state, PyTuple_GET_ITEM(items, i), (ad_schema){0},
                             copy, &c->arrays[i]);
        if (result < 0) {
            ad_prefix_exception("column \"%.80s\": ", c->names[i]);
        }
    }
    if (result == 0 && c->n > 0) {
        c->length = c->arrays[0].length;
    }
    Py_DECREF(items);
    return result;
}

/* --- a matrix ------------------------------------------------------------ */

static int
is_tensor(ad_state *state, PyObject *object)
{
    uint32_t offers;
    if (ad_is_tensor(state, object)) {
        return 1;
    }
    if (ad_is_array(state, object)) {
        return strcmp(ad_array_of(object)->schema.node->format, "+s") != 0;
    }
    if (ad_offers(state, object, &offers) < 0) {
        return -1;
    }
    return (offers & (AD_ND_PROTOCOLS | AD_PROTOCOL_BIT(masked_array))) != 0 &&
           (offers & AD_ARROW_PROTOCOLS) == 0;
}

/* Make each column of `matrix` an array, which keeps the memory alive. */
static int
take_columns(ad_state *state, const ad_tensor *matrix, columns *c)
{
    ad_error err;
    if (begin_columns(c, matrix->shape[1]) < 0) {
        return -1;
    }
    c->length = matrix->shape[0];
    for (Py_ssize_t i = 0; i < c->n; i++) {
        if (ad_matrix_column(matrix, i, &c->arrays[i], &err) != AD_OK) {
            ad_raise(state, &err);
            return -1;
        }
    }
    return 0;
}

static int
read_matrix(ad_state *state, PyObject *object, ad_copy copy, columns *c)
{
    /* ad_matrix_lay_out() makes the copy, so that a row-major matrix is copied
     * only once. */
    const ad_request request = {
        .copy = copy == AD_COPY_NEVER ? AD_COPY_NEVER : AD_COPY_IF_NEEDED};
    ad_tensor_options options = {.bridge = {.copy = request.copy}};
    ad_imported imported;
    ad_tensor_value laid_out;
    ad_error err;
    if (ad_import(state, object, &request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        ad_imported_as_tensor(state, &imported, &options) < 0) {
        return -1;
    }
    ad_tensor *matrix = &imported.tensor.tensor;
    int result = -1;
    if (ad_matrix_lay_out(matrix, copy, &laid_out, &err) != AD_OK) {
        ad_raise(state, &err);
    } else {
        if (ad_apply_stream_order(state, &request, &laid_out.tensor.memory) ==
            0) {
            result = take_columns(state, &laid_out.tensor, c);
        }
        ad_tensor_clear(&laid_out.tensor);
    }
    ad_tensor_clear(matrix);
    return result;
}

/* --- the batch ----------------------------------------------------------- */

static ad_status
check_column(const columns *c, Py_ssize_t i, ad_error *err)
{
    const ad_array *first = &c->arrays[0];
    const ad_array *column = &c->arrays[i];
    char first_device[AD_DEVICE_NAME_SIZE];
    char device[AD_DEVICE_NAME_SIZE];
    if (column->length != first->length) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "column \"%s\" has length %lld, but \"%s\" has %lld",
                       c->names[i], (long long)column->length, c->names[0],
                       (long long)first->length);
    }
    if (!ad_device_equal(column->memory.device, first->memory.device)) {
        return ad_fail(
            err, AD_ERR_EXCHANGE, "device",
            "bring them to one device first, with .to(device)",
            "column \"%s\" is on %s, but \"%s\" is on %s", c->names[i],
            ad_device_format(column->memory.device, device), c->names[0],
            ad_device_format(first->memory.device, first_device));
    }
    return AD_OK;
}

static ad_status
build_batch(columns *c, ad_array *out, ad_error *err)
{
    for (Py_ssize_t i = 0; i < c->n; i++) {
        const ad_array *column = &c->arrays[i];
        AD_RETURN_IF_ERR(check_column(c, i, err));
        AD_RETURN_IF_ERR(
            ad_joined_inputs_add(&c->joined, &column->memory, err));
        c->schemas[i] = column->schema;
    }
    const ad_schema_spec schema_spec = {
        .format = "+s",
        .n_children = c->n,
        .children = c->schemas,
        .names = c->names,
    };
    ad_schema schema;
    AD_RETURN_IF_ERR(ad_schema_build(&schema_spec, &schema, err));
    const void *no_validity = NULL;
    ad_array_spec spec = {
        .schema = schema,
        .length = c->length,
        .n_buffers = 1,
        .buffers = &no_validity,
        .n_children = c->n,
        .children = c->arrays,
    };
    /* Nested batches may exceed the limit of depth. */
    ad_status status = ad_array_build_joined(&c->joined, &spec, out, err);
    ad_schema_unref(schema);
    return status;
}

/* Import an object that is a batch already. */
static PyObject *
existing_batch(ad_state *state, PyObject *object, ad_copy copy)
{
    const ad_request request = {.copy = copy, .wants_batch = true};
    ad_array imported;
    PyObject *array = NULL;
    if (ad_is_array(state, object) && copy != AD_COPY_ALWAYS) {
        array = Py_NewRef(object);
    } else if (ad_import_array(state, object, &request, (ad_schema){0}, NULL,
                               &imported) == 0) {
        array = ad_array_object_new(state, &imported);
    }
    if (array == NULL) {
        return NULL;
    }
    ad_array *batch = ad_array_of(array);
    if (strcmp(batch->schema.node->format, "+s") != 0) {
        PyErr_Format(PyExc_TypeError,
                     "%.200s is a column, not a batch; pass a mapping of "
                     "names to columns, or a sequence or a matrix with "
                     "names=",
                     Py_TYPE(object)->tp_name);
        Py_CLEAR(array);
    } else if (ad_array_known_null_count(batch) != 0) {
        ad_raise_exchange(
            state, "nulls", "use arrowdev.array() for a struct column",
            "a record batch has no nulls at the top level, and this struct "
            "has (or may have) some");
        Py_CLEAR(array);
    }
    return array;
}

/* Is the object a mapping of names to columns, and not a batch that is a
 * mapping as well? 1 yes, 0 no, -1 with an exception. */
static int
is_plain_mapping(ad_state *state, PyObject *object)
{
    if (PyDict_Check(object)) {
        return 1;
    }
    if (!PyMapping_Check(object) || !PyObject_HasAttrString(object, "keys") ||
        !PyObject_HasAttrString(object, "values")) {
        return 0;
    }
    uint32_t offers;
    return ad_offers(state, object, &offers) < 0 ? -1 : offers == 0;
}

/* Is the object a sequence of columns, and not a pair of capsules? */
static bool
is_plain_sequence(PyObject *object)
{
    return PyList_Check(object) ||
           (PyTuple_Check(object) && !ad_is_capsule_pair(object));
}

static const ad_signature record_batch_signature = {
    .function = "record_batch()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_columns, AD_STR_names, AD_STR_copy),
};

/* Read a sequence of columns or a matrix; `names` has the column names. */
static int
read_named(ad_state *state, PyObject *object, PyObject *names, ad_copy copy,
           columns *c)
{
    if (PyUnicode_Check(names) || PyDict_Check(object)) {
        PyErr_SetString(PyExc_TypeError,
                        "names= is a sequence of str and goes with a "
                        "sequence of columns or a matrix; a mapping has its "
                        "own");
        return -1;
    }
    c->name_objects = ad_as_tuple(names, "names must be a sequence of str");
    if (c->name_objects == NULL) {
        return -1;
    }
    int is_matrix = PyList_Check(object) || PyTuple_Check(object)
                        ? 0
                        : is_tensor(state, object);
    return is_matrix < 0 ? -1
           : is_matrix   ? read_matrix(state, object, copy, c)
                         : read_columns(state, object, copy, c);
}

static int
read_mapping(ad_state *state, PyObject *mapping, ad_copy copy, columns *c)
{
    c->name_objects = PyMapping_Keys(mapping);
    PyObject *values =
        c->name_objects != NULL ? PyMapping_Values(mapping) : NULL;
    int result = values != NULL ? read_columns(state, values, copy, c) : -1;
    Py_XDECREF(values);
    return result;
}

/* Is the object a Series, of pandas, polars or a library like them? */
static bool
is_series(PyObject *object)
{
    PyObject *bases = Py_TYPE(object)->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); i++) {
        const char *name =
            ((PyTypeObject *)PyTuple_GET_ITEM(bases, i))->tp_name;
        const char *dot = strrchr(name, '.');
        if (strcmp(dot != NULL ? dot + 1 : name, "Series") == 0) {
            return true;
        }
    }
    return false;
}

/* The name that a column has of itself: a new reference, None if it has none,
 * or NULL with an exception. */
static PyObject *
own_name(ad_state *state, PyObject *column)
{
    PyObject *name = NULL;
    if (ad_is_array(state, column)) {
        name = ad_decode_text(ad_array_of(column)->schema.node->name);
    } else if (is_series(column)) {
        name = PyObject_GetAttrString(column, "name");
    } else {
        name = Py_NewRef(Py_None);
    }
    if (name != NULL &&
        (!PyUnicode_Check(name) || PyUnicode_GET_LENGTH(name) == 0)) {
        Py_SETREF(name, Py_NewRef(Py_None));
    }
    return name;
}

/* Whether an object has columns itself, as batches and frames have. */
static bool
is_batch(ad_state *state, PyObject *object)
{
    if (ad_is_array(state, object)) {
        const char *format = ad_array_of(object)->schema.node->format;
        return strcmp(format, "+s") == 0;
    }
    PyObject *columns =
        PyObject_GetAttrString((PyObject *)Py_TYPE(object), "columns");
    PyErr_Clear();
    Py_XDECREF(columns);
    return columns != NULL;
}

/* Read a sequence of columns that all have names. */
static int
read_series(ad_state *state, PyObject *sequence, ad_copy copy, columns *c)
{
    PyObject *items = PySequence_Tuple(sequence);
    PyObject *names = PyList_New(0);
    Py_ssize_t n = items != NULL ? PyTuple_GET_SIZE(items) : 0;
    int result = items != NULL && names != NULL ? 0 : -1;
    if (result == 0 && n == 0) {
        PyErr_SetString(PyExc_TypeError,
                        "a sequence of columns needs names=, one per column");
        result = -1;
    }
    for (Py_ssize_t i = 0; result == 0 && i < n; i++) {
        PyObject *column = PyTuple_GET_ITEM(items, i);
        PyObject *name = own_name(state, column);
        if (name == Py_None) {
            PyErr_Format(PyExc_TypeError,
                         "a sequence of columns needs names=, one per column; "
                         "column %zd of type %.200s has no name of its own%s",
                         i, Py_TYPE(column)->tp_name,
                         is_batch(state, column)
                             ? "; arrowdev.array_stream(x) takes batches"
                             : "");
            Py_CLEAR(name);
        }
        result = name != NULL ? PyList_Append(names, name) : -1;
        Py_XDECREF(name);
    }
    if (result == 0) {
        c->name_objects = Py_NewRef(names);
        result = read_columns(state, items, copy, c);
    }
    Py_XDECREF(items);
    Py_XDECREF(names);
    return result;
}

static PyObject *
function_record_batch(ad_state *state, PyObject *const *values)
{
    int copy = AD_COPY_IF_NEEDED;
    if (values[2] != NULL && ad_parse_copy(values[2], &copy) < 0) {
        return NULL;
    }
    columns c = {0};
    int is_mapping = 0;
    int is_read;
    if (!ad_is_none(values[1])) {
        is_read = read_named(state, values[0], values[1], (ad_copy)copy, &c);
    } else if ((is_mapping = is_plain_mapping(state, values[0])) < 0) {
        return NULL;
    } else if (is_mapping) {
        is_read = read_mapping(state, values[0], (ad_copy)copy, &c);
    } else if (is_plain_sequence(values[0])) {
        is_read = read_series(state, values[0], (ad_copy)copy, &c);
    } else {
        return existing_batch(state, values[0], (ad_copy)copy);
    }
    PyObject *result = NULL;
    ad_array batch;
    ad_error err;
    if (is_read == 0 &&
        ad_raise_status(state, build_batch(&c, &batch, &err), &err) == 0) {
        result = ad_array_object_new(state, &batch);
    }
    columns_clear(&c);
    return result;
}

AD_ENTRY(ad_function_record_batch, ad_state_of_module, record_batch_signature,
         function_record_batch(state, values));
