/* Array.from_buffers(): an Array over existing memory. */

#include <stdlib.h>

#include "order/sync.h"
#include "model/array.h"
#include "base/owner.h"
#include "model/extension.h"
#include "model/schema_cast.h"
#include "model/type.h"
#include "protocol/protocol.h"
#include "python/functions/functions.h"
#include "support/args.h"
#include "base/text.h"

#define MAX_BUFFERS 64

/* The parsed arguments; released by inputs_clear(). */
typedef struct inputs {
    ad_schema schema;
    int64_t length;
    int64_t offset;
    int64_t null_count;
    Py_ssize_t n_buffers;
    ad_tensor_value *tensors; /* n_buffers; all zero for None */
    Py_ssize_t n_children;
    ad_array *children;
    ad_array dictionary;
    ad_owner *group;
    ad_joined_inputs joined;
} inputs;

static void
inputs_clear(inputs *in)
{
    for (Py_ssize_t i = 0; in->tensors != NULL && i < in->n_buffers; i++) {
        ad_tensor_clear(&in->tensors[i].tensor);
    }
    for (Py_ssize_t i = 0; in->children != NULL && i < in->n_children; i++) {
        ad_array_clear(&in->children[i]);
    }
    ad_array_clear(&in->dictionary);
    ad_schema_unref(in->schema);
    ad_owner_unref(in->group);
    ad_joined_inputs_clear(&in->joined);
    free(in->tensors);
    free(in->children);
}

static int
read_int(PyObject *value, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (value == NULL) {
        return 0;
    }
    *out = PyLong_AsLongLong(value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
read_tensor(ad_state *state, PyObject *item, ad_tensor_value *out)
{
    const ad_request request = {.copy = AD_COPY_NEVER};
    const ad_bridge_options options = {.copy = AD_COPY_NEVER};
    ad_imported imported;
    ad_error err;
    if (ad_import(state, item, &request, AD_ALL_PROTOCOLS, &imported) < 0) {
        return -1;
    }
    ad_status status = AD_OK;
    if (imported.is_array) {
        status = ad_tensor_from_array(&imported.array, &options, out, &err);
        ad_array_clear(&imported.array);
    } else {
        *out = imported.tensor;
        out->tensor.shape = out->dims;
        out->tensor.strides = out->dims + out->tensor.ndim;
    }
    if (status == AD_OK && !ad_tensor_is_contiguous(&out->tensor, 'C')) {
        status = ad_fail(&err, AD_ERR_EXCHANGE, "strides",
                         "make it contiguous first",
                         "a buffer must be contiguous memory");
        ad_tensor_clear(&out->tensor);
    }
    if (status != AD_OK) {
        out->tensor = (ad_tensor){0};
    }
    return ad_raise_status(state, status, &err);
}

static int
read_buffers(ad_state *state, PyObject *value, inputs *in)
{
    PyObject *items = ad_as_tuple(value, "buffers must be a sequence");
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    int result = -1;
    if (n > MAX_BUFFERS) {
        PyErr_Format(PyExc_ValueError,
                     "%zd buffers are given, at most %d are "
                     "supported",
                     n, MAX_BUFFERS);
        goto done;
    }
    in->tensors = calloc((size_t)n + 1, sizeof(*in->tensors));
    if (in->tensors == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    in->n_buffers = n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(items, i);
        if (item != Py_None && read_tensor(state, item, &in->tensors[i]) < 0) {
            goto done;
        }
    }
    result = 0;
done:
    Py_DECREF(items);
    return result;
}

static int
read_children(ad_state *state, PyObject *value, inputs *in)
{
    if (value == NULL) {
        return 0;
    }
    PyObject *items = ad_as_tuple(value, "children must be a sequence");
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    in->children = calloc((size_t)n + 1, sizeof(*in->children));
    int result = in->children != NULL ? 0 : -1;
    if (result < 0) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; result == 0 && i < n; i++) {
        result = ad_as_array(state, PyTuple_GET_ITEM(items, i), (ad_schema){0},
                             AD_COPY_IF_NEEDED, &in->children[i]);
        in->n_children += result == 0;
    }
    Py_DECREF(items);
    return result;
}

static ad_status
add_all(inputs *in, ad_error *err)
{
    for (Py_ssize_t i = 0; i < in->n_buffers; i++) {
        const ad_tensor *tensor = &in->tensors[i].tensor;
        if (tensor->dtype.bits == 0) {
            continue; /* None */
        }
        if (tensor->byte_offset != 0) {
            return ad_fail(err, AD_ERR_EXCHANGE, "strides",
                           "pass the handle itself and use offset=",
                           "buffer %zd has a byte offset from its handle, "
                           "which an Arrow buffer cannot express",
                           i);
        }
        AD_RETURN_IF_ERR(
            ad_joined_inputs_add(&in->joined, &tensor->memory, err));
    }
    for (Py_ssize_t i = 0; i < in->n_children; i++) {
        AD_RETURN_IF_ERR(
            ad_joined_inputs_add(&in->joined, &in->children[i].memory, err));
    }
    return in->dictionary.node != NULL
               ? ad_joined_inputs_add(&in->joined, &in->dictionary.memory, err)
               : AD_OK;
}

static ad_status
check_size(const inputs *in, const ad_array *array, Py_ssize_t i,
           ad_error *err)
{
    const ad_tensor *tensor = &in->tensors[i].tensor;
    bool is_none = tensor->dtype.bits == 0;
    int64_t needed;
    /* No bitmap means no nulls; an empty buffer is none. */
    if (is_none && (i == 0 || array->offset + array->length == 0)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_array_buffer_needed(array, i, &needed, err));
    int64_t found = is_none ? 0 : ad_tensor_nbytes(tensor);
    if (needed > found) {
        char bytes[AD_COUNT_SIZE];
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "buffer %zd has %s, but offset %lld and length %lld "
                       "need %lld",
                       i, ad_count_text(found, "byte", "bytes", bytes),
                       (long long)array->offset, (long long)array->length,
                       (long long)needed);
    }
    return AD_OK;
}

/* Check that no buffer is smaller than its rows need. The needed size of a
 * buffer may be read from another buffer, which is checked first: offsets come
 * before their data, but the sizes of the data buffers of views come last. */
static ad_status
check_sizes(const inputs *in, const ad_array *array, ad_error *err)
{
    if (in->n_buffers > 0) {
        ad_type type;
        AD_RETURN_IF_ERR(ad_type_parse(in->schema.node->format, &type, err));
        if (type.layout == AD_LAYOUT_VIEWS) {
            AD_RETURN_IF_ERR(check_size(in, array, in->n_buffers - 1, err));
        }
    }
    for (Py_ssize_t i = 0; i < in->n_buffers; i++) {
        AD_RETURN_IF_ERR(check_size(in, array, i, err));
    }
    return AD_OK;
}

/* Check that a child or dictionary has the type that the schema names. */
static ad_status
check_part(const ad_array *part, const struct ArrowSchema *wanted,
           ad_error *err)
{
    const struct ArrowSchema *own = part->schema.node;
    if (ad_schema_cast_fits_type(own, wanted, AD_CAST_LAYOUT)) {
        return ad_schema_all(own, wanted, ad_extension_same_elements)
                   ? AD_OK
                   : ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                             "by its extension the array means other elements "
                             "than the type, or the same at other indices");
    }
    return ad_fail(err, AD_ERR_ARROW, NULL, NULL,
                   "the array has the format \"%.80s\" (or others below it), "
                   "but the type says \"%.80s\"",
                   part->schema.node->format, wanted->format);
}

static ad_status
check_types(const inputs *in, ad_error *err)
{
    const struct ArrowSchema *schema = in->schema.node;
    for (int64_t i = 0; i < in->n_children && i < schema->n_children; i++) {
        if (check_part(&in->children[i], schema->children[i], err) != AD_OK) {
            ad_error_path_prepend(err, "children[%lld]", (long long)i);
            return AD_ERR_ARROW;
        }
    }
    if (schema->dictionary != NULL && in->dictionary.node != NULL &&
        check_part(&in->dictionary, schema->dictionary, err) != AD_OK) {
        ad_error_path_prepend(err, "dictionary");
        return AD_ERR_ARROW;
    }
    return AD_OK;
}

/* Check that the elements given for a buffer are those of the type: bools of
 * one byte are not a bitmap, and offsets have one width. */
static ad_status
check_elements(const inputs *in, ad_error *err)
{
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(in->schema.node->format, &type, err));
    int offset_bits = type.wide_offsets ? 64 : 32;
    for (Py_ssize_t i = 0; i < in->n_buffers; i++) {
        ad_dl_dtype dtype = in->tensors[i].tensor.dtype;
        bool is_bitmap = (i == 0 && type.has_validity) ||
                         (i == 1 && type.id == AD_TYPE_BOOL);
        bool is_offsets = i == 1 && (type.layout == AD_LAYOUT_OFFSETS ||
                                     type.layout == AD_LAYOUT_LIST);
        if (is_bitmap && dtype.code == AD_DL_BOOL) {
            return ad_fail(err, AD_ERR_VALUE, NULL,
                           "pass a bitmap, eight rows a byte, or use "
                           "arrowdev.array(..., validity=)",
                           "buffer %zd is a bitmap, but these are bools of "
                           "one byte each",
                           i);
        }
        if (is_offsets && dtype.bits > 8 && dtype.bits != offset_bits) {
            return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                           "buffer %zd has offsets of %d bits, but these "
                           "elements have %d",
                           i, offset_bits, dtype.bits);
        }
    }
    return AD_OK;
}

static ad_status
build(inputs *in, ad_array *out, ad_error *err)
{
    const void *buffers[MAX_BUFFERS];
    ad_owner *owners[MAX_BUFFERS];
    bool readonly = false;
    AD_RETURN_IF_ERR(check_types(in, err));
    AD_RETURN_IF_ERR(check_elements(in, err));
    AD_RETURN_IF_ERR(add_all(in, err));
    for (Py_ssize_t i = 0; i < in->n_buffers; i++) {
        const ad_tensor *tensor = &in->tensors[i].tensor;
        buffers[i] = tensor->data;
        owners[i] = tensor->memory.owner;
        readonly |= tensor->memory.readonly;
    }
    AD_RETURN_IF_ERR(
        ad_owner_group_new(owners, (size_t)in->n_buffers, &in->group, err));
    ad_array_spec spec = {
        .schema = in->schema,
        .length = in->length,
        .offset = in->offset,
        .null_count = in->null_count,
        .n_buffers = in->n_buffers,
        .buffers = buffers,
        .memory = {.owner = in->group, .readonly = readonly},
        .n_children = in->n_children,
        .children = in->children,
        .dictionary = in->dictionary.node != NULL ? &in->dictionary : NULL,
    };
    AD_RETURN_IF_ERR(ad_array_build_joined(&in->joined, &spec, out, err));
    ad_status status = check_sizes(in, out, err);
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

static const ad_signature from_buffers_signature = {
    .function = "Array.from_buffers()",
    .n_positional = 3,
    .n_required = 3,
    AD_PARAMETER_NAMES(AD_STR_type, AD_STR_length, AD_STR_buffers,
                       AD_STR_null_count, AD_STR_offset, AD_STR_children,
                       AD_STR_dictionary),
};

PyObject *
ad_array_from_buffers(PyObject *cls, PyObject *const *args, Py_ssize_t n_args,
                      PyObject *kwnames)
{
    ad_state *state = PyType_GetModuleState((PyTypeObject *)cls);
    PyObject *values[7];
    inputs in = {0};
    if (ad_parse_args(state, &from_buffers_signature, args, n_args, kwnames,
                      values) < 0 ||
        read_int(values[1], 0, &in.length) < 0 ||
        read_int(values[3], -1, &in.null_count) < 0 ||
        read_int(values[4], 0, &in.offset) < 0 ||
        ad_parse_schema(state, values[0], &in.schema) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (read_buffers(state, values[2], &in) == 0 &&
        read_children(state, values[5], &in) == 0 &&
        (ad_is_none(values[6]) ||
         ad_as_array(state, values[6], (ad_schema){0}, AD_COPY_IF_NEEDED,
                     &in.dictionary) == 0)) {
        ad_array array;
        ad_error err;
        result = build(&in, &array, &err) == AD_OK
                     ? ad_array_object_in_order(state, &array)
                     : ad_raise(state, &err);
    }
    inputs_clear(&in);
    return result;
}
