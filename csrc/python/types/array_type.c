/* ad.Array: a typed Arrow array on a device. */
#include "support/objects.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "compute/bits.h"
#include "compute/trim.h"
#include "copy/copy.h"
#include "device/backend.h"
#include "model/type.h"
#include "python/functions/functions.h"
#include "python/types/types.h"
#include "support/py_call.h"
#include "support/args.h"
#include "support/shown.h"
#include "validate/validate.h"

/* --- attributes ---------------------------------------------------------- */

static PyObject *
get_schema(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_schema_object_new(ad_state_of(self),
                                ad_schema_ref(ad_array_of(self)->schema));
}

int64_t
ad_array_known_null_count(ad_array *array)
{
    int64_t count = ad_array_null_count(array);
    if (count >= 0) {
        return count;
    }
    if (ad_array_has_no_nulls(array)) {
        count = 0;
    } else if (ad_host_accessible(array->memory.device) &&
               ad_sync_is_done(array->memory.sync)) {
        count = ad_array_count_nulls_host(array);
    }
    if (count >= 0) {
        ad_array_set_null_count(array, count);
    }
    return count;
}

static PyObject *
get_null_count(PyObject *self, void *Py_UNUSED(closure))
{
    int64_t count = ad_array_known_null_count(ad_array_of(self));
    if (count < 0) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(count);
}

static PyObject *
get_nbytes(PyObject *self, void *Py_UNUSED(closure))
{
    int64_t nbytes;
    ad_error err;
    if (ad_array_nbytes(ad_array_of(self), &nbytes, &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    if (nbytes == AD_SIZE_UNKNOWN) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(nbytes);
}

static PyObject *
make_buffer(PyObject *self, int64_t i)
{
    const ad_array *array = ad_array_of(self);
    const void *data = array->node->buffers[i];
    if (data == NULL) {
        Py_RETURN_NONE;
    }
    ad_state *state = ad_state_of(self);
    int64_t nbytes;
    ad_error err;
    if (ad_array_buffer_size(array, i, &nbytes, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_buffer_object_new(state, (void *)data, 0, nbytes,
                                AD_TENSOR_IMMUTABLE, &array->memory);
}

static PyObject *
get_buffers(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_tuple_of(self, ad_array_of(self)->node->n_buffers, make_buffer);
}

static PyObject *
make_child(PyObject *self, int64_t i)
{
    ad_array child;
    ad_error err;
    return ad_array_child(ad_array_of(self), i, &child, &err) == AD_OK
               ? ad_array_object_new(ad_state_of(self), &child)
               : ad_raise(ad_state_of(self), &err);
}

static PyObject *
get_children(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_tuple_of(self, ad_array_of(self)->node->n_children, make_child);
}

static PyObject *
get_dictionary(PyObject *self, void *Py_UNUSED(closure))
{
    ad_state *state = ad_state_of(self);
    const ad_array *array = ad_array_of(self);
    ad_array values;
    ad_error err;
    if (array->node->dictionary == NULL) {
        Py_RETURN_NONE;
    }
    if (ad_array_dictionary(array, &values, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    return ad_array_object_new(state, &values);
}

/* --- parts of an array --------------------------------------------------- */

/* The index of the field that a name or an index means. Returns 0, or -1 with
 * an exception. */
static int
find_field(PyObject *self, PyObject *key, int64_t *out)
{
    const ad_array *array = ad_array_of(self);
    ad_error err;
    if (PyBool_Check(key)) { /* of a mask */
        PyErr_Format(PyExc_TypeError,
                     "a column is named by its name or index, not by %R", key);
        return -1;
    }
    if (!PyUnicode_Check(key)) {
        *out = PyLong_AsLongLong(key);
        if (*out == -1 && PyErr_Occurred()) {
            return -1;
        }
        *out += *out < 0 ? array->node->n_children : 0;
        return 0;
    }
    Py_ssize_t size;
    const char *name = PyUnicode_AsUTF8AndSize(key, &size);
    if (name == NULL) {
        return -1;
    }
    if (strlen(name) != (size_t)size) {
        PyErr_SetObject(PyExc_KeyError, key); /* names have no NUL */
        return -1;
    }
    ad_status status = ad_array_find_field(array, name, out, &err);
    if (status == AD_ERR_INDEX) {
        ad_raise_shown(PyExc_KeyError, "%s", err.message);
        return -1;
    }
    return ad_raise_status(ad_state_of(self), status, &err);
}

static PyObject *
make_field(PyObject *self, int64_t i)
{
    ad_array *array = ad_array_of(self);
    ad_array field;
    ad_error err;
    /* Only a struct without nulls gives its fields. */
    (void)ad_array_known_null_count(array);
    return ad_array_field(array, i, &field, &err) == AD_OK
               ? ad_array_object_new(ad_state_of(self), &field)
               : ad_raise(ad_state_of(self), &err);
}

static PyObject *
array_field(PyObject *self, PyObject *key)
{
    int64_t i;
    return find_field(self, key, &i) == 0 ? make_field(self, i) : NULL;
}

static PyObject *
get_columns(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_require_batch(self, "columns") == 0
               ? ad_tuple_of(self, ad_array_of(self)->node->n_children,
                             make_field)
               : NULL;
}

/* The struct with the fields of a tuple of keys. */
static PyObject *
select_fields(PyObject *self, PyObject *keys)
{
    Py_ssize_t n = PyTuple_GET_SIZE(keys);
    ad_array selected;
    ad_error err;
    PyObject *result = NULL;
    int64_t *fields = PyMem_New(int64_t, (size_t)n + 1);
    if (fields == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (find_field(self, PyTuple_GET_ITEM(keys, i), &fields[i]) < 0) {
            goto done;
        }
    }
    result =
        ad_array_select(ad_array_of(self), fields, n, &selected, &err) == AD_OK
            ? ad_array_object_new(ad_state_of(self), &selected)
            : ad_raise(ad_state_of(self), &err);
done:
    PyMem_Free(fields);
    return result;
}

static PyObject *
array_select(PyObject *self, PyObject *columns)
{
    static const char expected[] =
        "select() takes a sequence of names and indices";
    if (PyUnicode_Check(columns)) {
        PyErr_Format(PyExc_TypeError, "%s; one column is x[%R]", expected,
                     columns);
        return NULL;
    }
    PyObject *keys = ad_as_tuple(columns, expected);
    PyObject *result = keys != NULL ? select_fields(self, keys) : NULL;
    Py_XDECREF(keys);
    return result;
}

static PyObject *
array_to_pydict(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ad_error err;
    if (ad_array_require_struct(ad_array_of(self), &err) != AD_OK) {
        return ad_raise(ad_state_of(self), &err);
    }
    return ad_call_helper("_pylist", "to_pydict", &self, 1);
}

/* The rows of `array` as another type of two buffers. */
static ad_status
build_view(const ad_array *array, ad_schema schema, const void **buffers,
           int64_t null_count, ad_array *out, ad_error *err)
{
    const ad_array_spec spec = {
        .schema = schema,
        .memory = array->memory,
        .length = array->length,
        .offset = array->offset,
        .null_count = null_count,
        .n_buffers = 2,
        .buffers = buffers,
    };
    return ad_array_build(&spec, out, err);
}

static PyObject *
get_validity(PyObject *self, void *Py_UNUSED(closure))
{
    ad_state *state = ad_state_of(self);
    const ad_array *array = ad_array_of(self);
    const void *bitmap = ad_array_validity(array);
    if (bitmap == NULL) {
        Py_RETURN_NONE;
    }
    ad_error err;
    ad_schema schema;
    ad_array validity;
    const void *buffers[] = {NULL, bitmap};
    const ad_schema_spec bits = {.format = "b"};
    if (ad_schema_build(&bits, &schema, &err) != AD_OK) {
        return ad_raise(state, &err);
    }
    ad_status status = build_view(array, schema, buffers, 0, &validity, &err);
    ad_schema_unref(schema);
    return status == AD_OK ? ad_array_object_new(state, &validity)
                           : ad_raise(state, &err);
}

static PyObject *
make_slice(PyObject *self, int64_t offset, int64_t length)
{
    ad_array slice;
    ad_error err;
    return ad_array_slice(ad_array_of(self), offset, length, &slice, &err) ==
                   AD_OK
               ? ad_array_object_new(ad_state_of(self), &slice)
               : ad_raise(ad_state_of(self), &err);
}

static const ad_signature slice_signature = {
    .function = "Array.slice()",
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_offset, AD_STR_length),
};

static PyObject *
array_slice(ad_state *state, PyObject *self, PyObject *const *values)
{
    const ad_array *array = ad_array_of(self);
    long long offset = PyLong_AsLongLong(values[0]);
    if (offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    long long length = 0;
    if (!ad_is_none(values[1])) {
        length = PyLong_AsLongLong(values[1]);
        if (length == -1 && PyErr_Occurred()) {
            return NULL;
        }
    } else if (offset >= 0 && offset <= array->length) {
        length = array->length - offset;
    } /* else ad_array_slice() reports the offset */
    return make_slice(self, offset, length);
}

static AD_ENTRY(call_array_slice, ad_state_of, slice_signature,
                array_slice(state, self, values));

/* --- view() -------------------------------------------------------------- */

static ad_status
make_view(ad_array *array, ad_schema schema, ad_array *out, ad_error *err)
{
    ad_type from;
    ad_type to;
    AD_RETURN_IF_ERR(ad_type_parse(array->schema.node->format, &from, err));
    AD_RETURN_IF_ERR(ad_type_parse(schema.node->format, &to, err));
    if (!ad_type_same_width(&from, &to) || schema.node->dictionary != NULL) {
        ad_text from_name = {0};
        ad_text to_name = {0};
        ad_status status = ad_type_print(array->schema.node, &from_name, err);
        if (status == AD_OK) {
            status = ad_type_print(schema.node, &to_name, err);
        }
        if (status == AD_OK) {
            status =
                ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                        "view() needs two fixed-width types of the same "
                        "width",
                        "%s cannot be viewed as %s",
                        ad_text_string(&from_name), ad_text_string(&to_name));
            ad_error_dtype(err, ad_text_string(&from_name));
        }
        ad_text_clear(&from_name);
        ad_text_clear(&to_name);
        return status;
    }
    if (!(schema.node->flags & ARROW_FLAG_NULLABLE) &&
        ad_array_known_null_count(array) != 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                       "view it as a nullable type",
                       "the array has (or may have) nulls, and the type that "
                       "was asked for is not nullable");
    }
    return build_view(array, schema, array->node->buffers,
                      ad_array_null_count(array), out, err);
}

static PyObject *
array_view(PyObject *self, PyObject *type)
{
    ad_state *state = ad_state_of(self);
    ad_schema schema;
    if (ad_parse_schema(state, type, &schema) < 0) {
        return NULL;
    }
    ad_array view;
    ad_error err;
    ad_status status = make_view(ad_array_of(self), schema, &view, &err);
    ad_schema_unref(schema);
    return status == AD_OK ? ad_array_object_new(state, &view)
                           : ad_raise(state, &err);
}

/* --- null counts, compact(), validate() ---------------------------------- */

static const ad_signature count_nulls_signature = {
    .function = "Array.count_nulls()",
    .n_positional = 1,
    AD_PARAMETER_NAMES(AD_STR_stream),
};

static PyObject *
array_count_nulls(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_array *array = ad_array_of(self);
    ad_stream_argument stream;
    ad_stream_ref choice;
    ad_error err;
    int64_t count;
    if (ad_parse_stream(state, values[0], &stream) < 0) {
        return NULL;
    }
    count = ad_array_known_null_count(array);
    if (count >= 0) {
        return PyLong_FromLongLong(count);
    }
    if (ad_choose_stream(state, &stream, array->memory.device, NULL, &choice) <
        0) {
        return NULL;
    }
    ad_status status = ad_array_count_nulls(array, &choice, &count, &err);
    ad_stream_ref_clear(&choice);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    ad_array_set_null_count(array, count);
    return PyLong_FromLongLong(count);
}

static AD_ENTRY(call_array_count_nulls, ad_state_of, count_nulls_signature,
                array_count_nulls(state, self, values));

static const ad_signature compact_signature = {
    .function = "Array.compact()",
    .n_positional = 1,
    AD_PARAMETER_NAMES(AD_STR_stream),
};

static PyObject *
array_compact(ad_state *state, PyObject *self, PyObject *const *values)
{
    ad_array *array = ad_array_of(self);
    ad_stream_argument stream;
    ad_stream_ref choice;
    ad_array trimmed;
    ad_error err;
    if (ad_parse_stream(state, values[0], &stream) < 0) {
        return NULL;
    }
    if (ad_array_is_trimmed(array)) {
        return Py_NewRef(self);
    }
    if (ad_choose_stream(
            state,
            ad_device_equal(array->memory.device, AD_CPU) ? NULL : &stream,
            array->memory.device, NULL, &choice) < 0) {
        return NULL;
    }
    ad_status status = ad_array_trim(array, &choice, &trimmed, &err);
    ad_stream_ref_clear(&choice);
    return status == AD_OK ? ad_array_object_new(state, &trimmed)
                           : ad_raise(state, &err);
}

static AD_ENTRY(call_array_compact, ad_state_of, compact_signature,
                array_compact(state, self, values));

static const ad_signature validate_signature = {
    .function = "validate()",
    .n_positional = 1,
    AD_PARAMETER_NAMES(AD_STR_level),
};

/* 0: "structure", 1: "full", -1: an exception. */
static int
parse_level(PyObject *level)
{
    if (level == NULL) {
        return 0;
    }
    if (!PyUnicode_Check(level)) {
        PyErr_Format(PyExc_TypeError, "level must be a str, not %.200s",
                     Py_TYPE(level)->tp_name);
        return -1;
    }
    if (PyUnicode_CompareWithASCIIString(level, "structure") == 0) {
        return 0;
    }
    if (PyUnicode_CompareWithASCIIString(level, "full") == 0) {
        return 1;
    }
    PyErr_Format(PyExc_ValueError,
                 "unknown level %R; there are \"structure\" and \"full\"",
                 level);
    return -1;
}

/* The lines of the text as a tuple of str. */
static PyObject *
tuple_of_lines(const ad_text *text)
{
    PyObject *whole = PyUnicode_FromString(ad_text_string(text));
    PyObject *lines = whole != NULL ? PyUnicode_Splitlines(whole, 0) : NULL;
    Py_XDECREF(whole);
    if (lines == NULL) {
        return NULL;
    }
    PyObject *result = PyList_AsTuple(lines);
    Py_DECREF(lines);
    return result;
}

static PyObject *
array_validate(ad_state *state, PyObject *self, PyObject *const *values)
{
    const ad_array *array = ad_array_of(self);
    ad_text notes = {0};
    ad_error err;
    int full = parse_level(values[0]);
    if (full < 0) {
        return NULL;
    }
    ad_status status =
        full ? ad_array_validate_full(array, &err)
             : ad_array_validate(array->schema.node, array->node, &err);
    if (status == AD_OK) {
        status = ad_array_notes(array, &notes, &err);
    }
    PyObject *result =
        status == AD_OK ? tuple_of_lines(&notes) : ad_raise(state, &err);
    ad_text_clear(&notes);
    return result;
}

static AD_ENTRY(call_array_validate, ad_state_of, validate_signature,
                array_validate(state, self, values));

/* --- the sequence -------------------------------------------------------- */

static Py_ssize_t
array_length(PyObject *self)
{
    return (Py_ssize_t)ad_array_of(self)->length;
}

/* --- subscripts ---------------------------------------------------------- */

static PyObject *
subscript_slice(PyObject *self, PyObject *key)
{
    const ad_array *array = ad_array_of(self);
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) {
        return NULL;
    }
    Py_ssize_t length =
        PySlice_AdjustIndices((Py_ssize_t)array->length, &start, &stop, step);
    if (step != 1) {
        PyErr_Format(PyExc_ValueError,
                     "an Array can be sliced with a step of 1 only, not %zd, "
                     "because slices share memory; pyarrow.array(x)[::%zd] is "
                     "a copy, numpy.asarray(x)[::%zd] a view of numbers",
                     step, step, step);
        return NULL;
    }
    return make_slice(self, start, length);
}

static PyObject *
array_item(PyObject *self, Py_ssize_t i)
{
    const ad_array *array = ad_array_of(self);
    if (i < 0 || i >= array->length) {
        /* CPython has added the length to a negative index. */
        i -= i < 0 ? (Py_ssize_t)array->length : 0;
        PyErr_Format(PyExc_IndexError,
                     "index %zd is out of range for an Array of length %lld",
                     i, (long long)array->length);
        return NULL;
    }
    return ad_array_row(self, i);
}

static PyObject *
array_iterate(PyObject *self)
{
    PyObject *args[] = {self};
    return ad_call_helper("_pylist", "iterate", args, 1);
}

/* A list of int or bool is no list of names: elsewhere it takes rows. */
static bool
is_list_of_names(PyObject *key)
{
    bool is_all = PyList_Check(key);
    for (Py_ssize_t i = 0; is_all && i < PyList_GET_SIZE(key); i++) {
        is_all = PyUnicode_Check(PyList_GET_ITEM(key, i));
    }
    return is_all;
}

static PyObject *
array_subscript(PyObject *self, PyObject *key)
{
    if (PySlice_Check(key)) {
        return subscript_slice(self, key);
    }
    if (is_list_of_names(key)) {
        return array_select(self, key);
    }
    if (PyUnicode_Check(key)) {
        return array_field(self, key);
    }
    Py_ssize_t i =
        PyIndex_Check(key) ? PyNumber_AsSsize_t(key, PyExc_IndexError) : -1;
    bool has_failed = i == -1 && PyErr_Occurred();
    if (has_failed && !PyErr_ExceptionMatches(PyExc_TypeError)) {
        return NULL;
    }
    if (has_failed || !PyIndex_Check(key)) { /* an ndarray is an index, too */
        PyErr_Format(
            PyExc_TypeError,
            "an Array is indexed by int, slice, field name or list of "
            "names, not %.200s; masks and lists make a copy, which the library "
            "of the data can do, as pyarrow.array(x).take(rows)",
            Py_TYPE(key)->tp_name);
        return NULL;
    }
    return array_item(self, i < 0 ? i + array_length(self) : i);
}

static int
array_contains(PyObject *self, PyObject *item)
{
    PyObject *args[] = {self, item};
    PyObject *found = ad_call_helper("_pylist", "contains", args, 2);
    int result = found != NULL ? found == Py_True : -1;
    Py_XDECREF(found);
    return result;
}

/* --- the type ------------------------------------------------------------ */

static PyMethodDef array_methods[] = {
    {"from_buffers", AD_METHOD(ad_array_from_buffers) | METH_CLASS,
     "from_buffers($cls, type, length, buffers, *, null_count=-1, offset=0, "
     "children=(), dictionary=None)\n--\n\n"
     "An Array over existing memory, without a copy.\n\n"
     "Parameters\n----------\n"
     "type : str or object with __arrow_c_schema__\n"
     "length : int\n    Number of rows.\n"
     "buffers : sequence\n    One entry per buffer of the type, in the order "
     "of the Arrow C data\n    interface: None, or anything that "
     "arrowdev.tensor() takes without a copy.\n"
     "null_count : int\n    -1 if it is not known.\n"
     "offset : int\n    First row within the buffers.\n"
     "children : sequence\n    Anything that arrowdev.array() takes.\n"
     "dictionary : object, optional\n    Values of a dictionary-encoded "
     "type.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\n"
     "ValueError\n    A buffer is too small, or one is missing.\n"
     "InvalidArrowError\n    The buffers and children are no array of this "
     "type.\n"
     "ExchangeError\n    Buffers are on different devices or not contiguous.\n\n"
     "Examples\n--------\n"
     ">>> ad.Array.from_buffers(\"int8\", 3, [bytes([5]), b\"abc\"])\n"
     "<arrowdev.Array int8, length 3, on cpu: [97, None, 99]>"},
    {"field", array_field, METH_O,
     "field($self, key, /)\n--\n\n"
     "A column of a struct by name or index, cut to this array's slice.\n\n"
     "Raises KeyError or IndexError if there is no such column, and\n"
     "ExchangeError if the struct itself has nulls, which the column would\n"
     "lose (see children and validity).\n\n"
     "Returns\n-------\nArray\n\n"
     "Examples\n--------\n"
     ">>> ad.record_batch({\"a\": b\"xy\"}).field(\"a\").to_pylist()\n"
     "[120, 121]"},
    {"select", array_select, METH_O,
     "select($self, columns, /)\n--\n\n"
     "The struct with these columns only, in this order, without a copy:\n"
     "names, or indices as field() takes them. x[[name, ...]] is the same. A\n"
     "column that is named twice is there twice, as in pyarrow. Nulls of the\n"
     "struct and its metadata are kept; of an extension type it becomes a plain\n"
     "struct.\n\n"
     "Raises KeyError or IndexError if there is no such column, and TypeError\n"
     "for an Array that is no struct.\n\n"
     "Returns\n-------\nArray\n\n"
     "Examples\n--------\n"
     ">>> batch = ad.record_batch({\"a\": b\"xy\", \"b\": b\"zz\", \"c\": b\"..\"})\n"
     ">>> batch.select([\"c\", \"a\"]).column_names, batch[[\"b\"]].column_names\n"
     "(['c', 'a'], ['b'])\n"
     ">>> [column.to_pylist() for column in batch[[\"a\", \"b\"]].columns]\n"
     "[[120, 121], [122, 122]]"},
    {"slice", AD_METHOD(call_array_slice),
     "slice($self, offset, length=None)\n--\n\n"
     "`length` rows (default: all) from `offset` on, without a copy. Raises\n"
     "IndexError past the end.\n\n"
     "Returns\n-------\nArray\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abcd\").slice(1, 2).to_pylist()\n"
     "[98, 99]"},
    {"view", array_view, METH_O,
     "view($self, type, /)\n--\n\n"
     "The same memory as another fixed-width type of the same width.\n"
     "Nulls stay nulls. Raises ExchangeError for types of other widths.\n\n"
     "Returns\n-------\nArray\n\n"
     "Examples\n--------\n"
     ">>> ad.array(bytes([1, 255])).view(\"int8\").to_pylist()\n"
     "[1, -1]"},
    {"count_nulls", AD_METHOD(call_array_count_nulls),
     "count_nulls($self, stream=None)\n--\n\n"
     "Number of nulls. An unknown number is counted on `stream` and stored.\n\n"
     "Raises ExchangeError if the bitmap is on a device whose runtime is not\n"
     "supported.\n\n"
     "Returns\n-------\nint\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\", validity=bytes([1, 0, 1])).count_nulls()\n"
     "1"},
    {"compact", AD_METHOD(call_array_compact),
     "compact($self, stream=None)\n--\n\n"
     "The same rows in the layout that cuDF and other strict consumers need:\n"
     "every node begins at row 0 and has a null count; bitmaps exist only for\n"
     "nulls, are aligned to 64 bytes and padded with zeros.\n\n"
     "Bitmaps and the values of bools are copied on their device, because the\n"
     "bytes behind foreign ones are unknown. Other buffers are not copied,\n"
     "except on OpenCL, whose memory is named by handles. An array that is\n"
     "compact already is returned itself.\n\n"
     "Parameters\n----------\n"
     "stream : int or stream object, optional\n"
     "    The stream for the work. The host waits for unknown null counts and\n"
     "    for the run ends of a slice.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\n"
     "ExchangeError\n    The device has no runtime.\n"
     "InvalidArrowError\n    The run ends are invalid.\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abcd\")[2:].compact().offset\n"
     "0"},
    {"validate", AD_METHOD(call_array_validate),
     "validate($self, level=\"structure\")\n--\n\n"
     "Check that this is a valid Arrow array.\n\n"
     "Parameters\n----------\n"
     "level : {\"structure\", \"full\"}\n"
     "    \"structure\" checks the structs once more and reads no buffer.\n"
     "    \"full\" checks every row too: null counts, offsets, sizes, type\n"
     "    ids, run ends, dictionary indices, views, UTF-8, decimals, dates\n"
     "    and times. The host waits for the event. Device memory that the host\n"
     "    cannot read is copied to it in pieces of 1 MiB.\n\n"
     "Returns\n-------\ntuple of str\n    Notes on what is unusual but valid.\n\n"
     "Raises\n------\n"
     "InvalidArrowError\n    The message has the row and the value of the first "
     "fault, `path` the\n    node.\n"
     "ExchangeError\n    The device has no runtime, or a graph is being "
     "captured.\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\").validate(\"full\")\n"
     "()"},
    {"to_pylist", ad_array_to_pylist, METH_NOARGS,
     "to_pylist($self)\n--\n\n"
     "The values as a list of Python objects, for interactive use.\n\n"
     "Nanoseconds that datetime cannot hold are pandas' Timestamp and\n"
     "Timedelta where pandas is imported, else a ValueError. Raises\n"
     "ExchangeError if the host cannot read the memory, and ValueError for\n"
     "structs with two fields of one name.\n\n"
     "Returns\n-------\nlist\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\").to_pylist()\n"
     "[97, 98, 99]"},
    {"to_pydict", array_to_pydict, METH_NOARGS,
     "to_pydict($self)\n--\n\n"
     "The columns of a record batch as a dict of lists of Python objects.\n\n"
     "Raises as to_pylist(), TypeError for an Array that is no struct, and as\n"
     "field() for a struct with nulls.\n\n"
     "Returns\n-------\ndict\n\n"
     "Examples\n--------\n"
     ">>> ad.record_batch({\"a\": b\"xy\", \"b\": b\"zz\"}).to_pydict()\n"
     "{'a': [120, 121], 'b': [122, 122]}"},
    {"equals", ad_array_equals, METH_O,
     "equals($self, other, /)\n--\n\n"
     "Whether both have the same type, length, nulls and values.\n\n"
     "The bytes behind nulls are ignored. Dictionaries and run ends are\n"
     "compared by the values that they stand for. NaN is not equal to NaN, and\n"
     "-0.0 equals 0.0, as in pyarrow; all but floats is compared bit by bit.\n"
     "The type is that of Schema.equals() together with the extension; whether\n"
     "the arrays themselves are nullable does not matter.\n\n"
     "The host waits for the events, and copies to itself what it cannot read.\n"
     "Overlapping list views stand for any number of rows; Ctrl-C ends the\n"
     "comparison.\n\n"
     "Parameters\n----------\n"
     "other : object\n    Anything that arrowdev.array() takes.\n\n"
     "Returns\n-------\nbool\n\n"
     "Raises\n------\n"
     "InvalidArrowError\n    Offsets, run ends, indices or views are invalid.\n"
     "ExchangeError\n    The device has no runtime, or a graph is being "
     "captured.\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\").equals(bytearray(b\"abc\"))\n"
     "True"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef array_getset[] = {
    {"schema", get_schema, NULL, "The Schema.", NULL},
    {"null_count", get_null_count, NULL,
     "Number of nulls; None if the producer did not count them and the host\n"
     "cannot read the bitmap. In host memory they are counted once.",
     NULL},
    {"nbytes", get_nbytes, NULL,
     "Bytes of all buffers of the tree, up to the last row; None if the sizes\n"
     "stand in memory that the host cannot read.",
     NULL},
    {"buffers", get_buffers, NULL,
     "Buffers of this node, in the order of the Arrow C data interface, as a\n"
     "tuple of Buffer or None. They start at row 0, not at `offset`.",
     NULL},
    {"children", get_children, NULL,
     "Children of the node as a tuple of Array, not cut to this array's\n"
     "slice. field() gives a column.",
     NULL},
    {"columns", get_columns, NULL,
     "Columns of a record batch as a tuple of Array, cut to its slice.\n"
     "AttributeError for other arrays; raises as field() for a struct with\n"
     "nulls. column_names has their names.",
     NULL},
    {"dictionary", get_dictionary, NULL,
     "Values of a dictionary-encoded array, or None.", NULL},
    {"validity", get_validity, NULL,
     "The validity bitmap as a bool Array (true = valid), or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ad_array_object, weakrefs),
     READONLY, NULL},
    {"offset", T_LONGLONG, offsetof(ad_array_object, array.offset), READONLY,
     "First row within the buffers, in elements."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot array_slots[] = {
    {Py_tp_dealloc, ad_array_object_dealloc},
    {Py_tp_repr, ad_array_repr},
    {Py_tp_iter, array_iterate},
    {Py_tp_members, array_members},
    {Py_tp_getset, array_getset},
    {Py_tp_methods, array_methods},
    {Py_mp_length, array_length},
    {Py_mp_subscript, array_subscript},
    {Py_nb_int, ad_scalar_as_int},
    {Py_nb_float, ad_scalar_as_float},
    {Py_sq_length, array_length},
    {Py_sq_item, array_item},
    {Py_sq_contains, array_contains},
    {Py_bf_getbuffer, ad_buffer_get},
    {Py_bf_releasebuffer, ad_buffer_release},
    {Py_tp_doc,
     "A typed Arrow array on a device: a column, or a record batch (struct).\n"
     "Immutable; created by arrowdev.array() or arrowdev.record_batch().\n\n"
     "array[i] is a value, array[i:j], array[name] and array[[name, ...]] are "
     "views. \"name in "
     "array\"\n"
     "looks for a field of a struct, \"value in array\" for a row of any other "
     "array.\n"
     "Iteration and array[i] need memory that the host can read.\n\n"
     "It is exported by the Arrow PyCapsule protocol, device and host. A type\n"
     "that has a tensor is also exported by DLPack, the array interfaces and\n"
     "the buffer protocol. hasattr() tells which of them this array supports."},
    {0, NULL},
};

/* IMMUTABLETYPE is set once the protocols have added their methods. */
PyType_Spec ad_array_type_spec = {
    .name = "arrowdev.Array",
    .basicsize = sizeof(ad_array_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
