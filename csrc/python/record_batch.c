#include "python/record_batch.h"

#include <stdlib.h>
#include <string.h>

#include "core/parts.h"
#include "core/array.h"
#include "python/args.h"
#include "python/errors.h"
#include "python/functions.h"
#include "protocol/protocol.h"

/* Columns and their names, read; freed by columns_clear. */
typedef struct columns {
    Py_ssize_t n;
    PyObject **arrays;      /* strong, arrowdev.Array */
    const char **names;     /* borrowed from name_objects */
    PyObject *name_objects; /* a list or tuple of str */
} columns;

static void
columns_clear(columns *c)
{
    for (Py_ssize_t i = 0; c->arrays != NULL && i < c->n; i++) {
        Py_XDECREF(c->arrays[i]);
    }
    free(c->arrays);
    free(c->names);
    Py_XDECREF(c->name_objects);
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

/* Take the columns from a sequence; names come from name_objects. */
static int
read_columns(ad_state *state, PyObject *sequence, columns *c)
{
    PyObject *items = ad_as_tuple(
        sequence, "columns must be a mapping, a sequence or a batch");
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    int result = -1;
    c->arrays = calloc((size_t)n + 1, sizeof(*c->arrays));
    c->names = calloc((size_t)n + 1, sizeof(*c->names));
    if (c->arrays == NULL || c->names == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    c->n = n;
    if (read_names(c) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        c->arrays[i] = ad_as_array_object(state, PyTuple_GET_ITEM(items, i));
        if (c->arrays[i] == NULL) {
            goto done;
        }
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

static ad_status
check_column(const columns *c, Py_ssize_t i, ad_error *err)
{
    const ad_array *first = ad_array_of(c->arrays[0]);
    const ad_array *column = ad_array_of(c->arrays[i]);
    char first_device[AD_DEVICE_NAME_SIZE];
    char device[AD_DEVICE_NAME_SIZE];
    if (column->length != first->length) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "column \"%s\" has length %lld, but \"%s\" has %lld",
                       c->names[i], (long long)column->length, c->names[0],
                       (long long)first->length);
    }
    if (!ad_device_equal(column->device, first->device)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "device",
                       "bring them to one device first, with .to(device)",
                       "column \"%s\" is on %s, but \"%s\" is on %s",
                       c->names[i], ad_device_format(column->device, device),
                       c->names[0],
                       ad_device_format(first->device, first_device));
    }
    return AD_OK;
}

static ad_status
collect_columns(const columns *c, ad_array *children, ad_schema *schemas,
                ad_parts *parts, ad_error *err)
{
    for (Py_ssize_t i = 0; i < c->n; i++) {
        const ad_array *column = ad_array_of(c->arrays[i]);
        AD_RETURN_IF_ERR(check_column(c, i, err));
        AD_RETURN_IF_ERR(ad_parts_add(parts, column->device, column->sync,
                                      column->readonly, err));
        children[i] = *column; /* borrowed */
        schemas[i] = column->schema;
    }
    return AD_OK;
}

static ad_status
build_batch(const columns *c, const ad_array *children,
            const ad_schema *schemas, const ad_parts *parts, ad_sync *sync,
            ad_array *out, ad_error *err)
{
    const ad_schema_spec schema_spec = {
        .format = "+s",
        .n_children = c->n,
        .children = schemas,
        .names = c->names,
    };
    ad_schema schema;
    AD_RETURN_IF_ERR(ad_schema_build(&schema_spec, &schema, err));
    const void *no_validity = NULL;
    const ad_array_spec spec = {
        .schema = schema,
        .device = parts->device,
        .length = c->n > 0 ? children[0].length : 0,
        .n_buffers = 1,
        .buffers = &no_validity,
        .n_children = c->n,
        .children = children,
        .sync = sync,
        .readonly = parts->readonly,
    };
    ad_status status = ad_array_build(&spec, out, err);
    if (status == AD_OK) {
        /* Batches of batches must not nest deeper than can be walked. */
        status = ad_array_validate(schema.node, out->node, err);
        if (status != AD_OK) {
            ad_array_clear(out);
        }
    }
    ad_schema_unref(schema);
    return status;
}

static PyObject *
make_batch(ad_state *state, const columns *c)
{
    ad_array batch;
    ad_error err;
    size_t n = (size_t)c->n + 1;
    ad_array *children = malloc(n * sizeof(*children));
    ad_schema *schemas = malloc(n * sizeof(*schemas));
    ad_parts parts = AD_PARTS_INIT;
    ad_sync *sync = NULL;
    ad_status status =
        children == NULL || schemas == NULL
            ? ad_fail_memory(&err, n * sizeof(*children))
            : collect_columns(c, children, schemas, &parts, &err);
    if (status == AD_OK) {
        status = ad_parts_join(&parts, &sync, &err);
    }
    if (status == AD_OK) {
        status = build_batch(c, children, schemas, &parts, sync, &batch, &err);
    }
    ad_sync_unref(sync);
    ad_parts_clear(&parts);
    free(children);
    free(schemas);
    return status == AD_OK ? ad_array_object_new(state, &batch)
                           : ad_raise(state, &err);
}

/* An object that is a batch already. */
static PyObject *
existing_batch(ad_state *state, PyObject *object)
{
    PyObject *array = ad_as_array_object(state, object);
    if (array == NULL) {
        return NULL;
    }
    const ad_array *batch = ad_array_of(array);
    if (strcmp(batch->schema.node->format, "+s") != 0) {
        Py_DECREF(array);
        PyErr_Format(PyExc_TypeError,
                     "%.200s is a column, not a batch; pass a mapping of "
                     "names to columns, or a sequence with names=",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    if (!ad_array_has_no_nulls(batch)) {
        PyObject *count = PyObject_GetAttrString(array, "null_count");
        long long n =
            count != NULL && count != Py_None ? PyLong_AsLongLong(count) : -1;
        Py_XDECREF(count);
        if (n != 0) {
            Py_DECREF(array);
            return ad_raise_exchange(
                state, "nulls", "use arrowdev.array() for a struct column",
                "a record batch has no nulls at the top level, and this "
                "struct has (or may have) some");
        }
    }
    return array;
}

/* A mapping of names to columns, and no batch that is a mapping as well. */
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

/* A sequence of columns, and no pair of capsules. */
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
    .n_parameters = 2,
    .names = {AD_STR_columns, AD_STR_names},
};

PyObject *
ad_function_record_batch(PyObject *module, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    if (ad_parse_args(state, &record_batch_signature, args, n_args, kwnames,
                      values) < 0) {
        return NULL;
    }
    columns c = {0};
    int is_mapping;
    PyObject *result = NULL;
    PyObject *sequence = NULL;
    if (!ad_is_none(values[1])) {
        if (PyUnicode_Check(values[1]) || PyDict_Check(values[0])) {
            PyErr_SetString(PyExc_TypeError,
                            "names= is a sequence of str and goes with a "
                            "sequence of columns; a mapping has its own");
            return NULL;
        }
        c.name_objects =
            ad_as_tuple(values[1], "names must be a sequence of str");
        sequence = Py_NewRef(values[0]);
    } else if ((is_mapping = is_plain_mapping(state, values[0])) < 0) {
        return NULL;
    } else if (is_mapping) {
        c.name_objects = PyMapping_Keys(values[0]);
        sequence = PyMapping_Values(values[0]);
    } else if (is_plain_sequence(values[0])) {
        PyErr_SetString(PyExc_TypeError,
                        "a sequence of columns needs names=, one per column");
        return NULL;
    } else {
        return existing_batch(state, values[0]);
    }
    if (c.name_objects != NULL && sequence != NULL &&
        read_columns(state, sequence, &c) == 0) {
        result = make_batch(state, &c);
    }
    Py_XDECREF(sequence);
    columns_clear(&c);
    return result;
}
