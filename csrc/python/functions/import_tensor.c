/* arrowdev.tensor() and from_dlpack(): any object as a Tensor. */
#include <string.h>

#include "copy/copy.h"
#include "python/functions/functions.h"

int
ad_parse_nulls(PyObject *nulls, PyObject *fill_value, ad_tensor_options *out)
{
    static const char *const names[] = {[AD_NULLS_RAISE] = "raise",
                                        [AD_NULLS_IGNORE] = "ignore",
                                        [AD_NULLS_FILL] = "fill"};
    int choice = nulls == NULL ? AD_NULLS_RAISE : -1;
    for (int i = 0; choice < 0 && i < 3 && PyUnicode_Check(nulls); i++) {
        if (PyUnicode_CompareWithASCIIString(nulls, names[i]) == 0) {
            choice = i;
        }
    }
    if (choice < 0) {
        PyErr_Format(PyExc_ValueError,
                     "nulls must be \"raise\", \"ignore\" or \"fill\", not %R",
                     nulls);
        return -1;
    }
    out->bridge.nulls = (ad_nulls)choice;
    out->fill_value = ad_is_none(fill_value) ? NULL : fill_value;
    if ((out->bridge.nulls == AD_NULLS_FILL) != (out->fill_value != NULL)) {
        PyErr_SetString(PyExc_ValueError,
                        "nulls=\"fill\" and fill_value= go together");
        return -1;
    }
    return 0;
}

static int
parse_order(PyObject *order, char *out)
{
    *out = 0;
    if (ad_is_none(order)) {
        return 0;
    }
    if (PyUnicode_Check(order) &&
        (PyUnicode_CompareWithASCIIString(order, "C") == 0 ||
         PyUnicode_CompareWithASCIIString(order, "F") == 0)) {
        *out = (char)PyUnicode_READ_CHAR(order, 0);
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "order must be \"C\", \"F\" or None, "
                 "not %R",
                 order);
    return -1;
}

/* Convert an array through the bridge, with the fill value as an element of
 * the array's dtype. */
static int
bridge_to_tensor(ad_state *state, const ad_array *array,
                 ad_tensor_options *options, ad_tensor_value *out)
{
    unsigned char element[16];
    ad_dl_dtype dtype;
    ad_error err;
    if (options->fill_value != NULL && ad_array_tensor_dtype(array, &dtype)) {
        if (ad_fill_element(options->fill_value, dtype, element) < 0) {
            return -1;
        }
        options->bridge.fill = element;
    }
    if (ad_tensor_from_array(array, &options->bridge, out, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    if (strcmp(array->schema.node->format, "+s") == 0) {
        options->bridge.order = 0;
    }
    return 0;
}

int
ad_imported_as_tensor(ad_state *state, ad_imported *imported,
                      ad_tensor_options *options)
{
    if (!imported->is_array) {
        return 0;
    }
    ad_array array = imported->array;
    int result = bridge_to_tensor(state, &array, options, &imported->tensor);
    ad_array_clear(&array);
    return result;
}

static bool
has_negative_stride(const ad_tensor *tensor)
{
    bool found = false;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        found |= tensor->strides[i] < 0;
    }
    return found;
}

/* Replace the tensor by a copy if one was requested or the order requires one.
 * On failure returns -1 with an exception and clears the tensor. */
static int
apply_layout(ad_state *state, const ad_tensor_options *options,
             ad_tensor_value *value)
{
    ad_tensor *tensor = &value->tensor;
    ad_copy copy = options->bridge.copy;
    char order = options->bridge.order;
    bool is_copied = tensor->flags & AD_TENSOR_COPIED;
    bool fits = order == 0 || ad_tensor_is_contiguous(tensor, order);
    bool is_refused =
        options->no_negative_strides && has_negative_stride(tensor);
    if (fits && !is_refused && (copy != AD_COPY_ALWAYS || is_copied)) {
        return 0;
    }
    if (copy != AD_COPY_NEVER) {
        return ad_replace_by_copy(state, options->stream,
                                  order != 0 ? order : 'C', value);
    }
    ad_tensor_clear(tensor);
    if (is_refused) {
        ad_raise_exchange(state, "strides", "leave copy=False out",
                          "the tensor has a negative stride, which the class "
                          "cannot take without a copy");
    } else {
        ad_raise_exchange(state, "copy", "leave order= or copy=False out",
                          "order=\"%c\" needs a copy of this tensor", order);
    }
    return -1;
}

static void
apply_readonly(int readonly, ad_tensor *tensor)
{
    if (readonly == 1) {
        tensor->memory.readonly = true;
    } else if (readonly == 0) {
        tensor->memory.readonly = false;
        tensor->flags &= ~(uint32_t)AD_TENSOR_IMMUTABLE;
    }
}

/* The masked array itself, or what NumPy makes of one of several dimensions:
 * its data, or a filled copy. Its rows may be masked in part, for which an
 * Array has no validity. */
static PyObject *
without_mask(ad_state *state, PyObject *object,
             const ad_tensor_options *options)
{
    bool fills = options->bridge.nulls == AD_NULLS_FILL;
    if (options->bridge.nulls == AD_NULLS_RAISE ||
        (fills && options->bridge.copy == AD_COPY_NEVER) ||
        !ad_is_subclass(Py_TYPE(object), "numpy.ma", "MaskedArray")) {
        return Py_NewRef(object);
    }
    PyObject *ndim = PyObject_GetAttr(object, AD_STR(state, ndim));
    long n = ndim != NULL ? PyLong_AsLong(ndim) : -1;
    Py_XDECREF(ndim);
    if (n < 0 && PyErr_Occurred()) {
        return NULL;
    }
    return n < 2   ? Py_NewRef(object)
           : fills ? PyObject_CallMethodObjArgs(object, AD_STR(state, filled),
                                                options->fill_value, NULL)
                   : PyObject_GetAttr(object, AD_STR(state, data));
}

/* Imports the object. NumPy rounds a fill value that does not fit, which is
 * refused here. */
static int
import_any(ad_state *state, PyObject *object, const ad_request *request,
           uint32_t among, const ad_tensor_options *options, ad_imported *out)
{
    unsigned char element[16];
    PyObject *source = without_mask(state, object, options);
    if (source == NULL) {
        return -1;
    }
    ad_request as_tensor = *request;
    as_tensor.wants_tensor = true;
    as_tensor.nulls = options->bridge.nulls;
    int result = ad_import(state, source, &as_tensor, among, out);
    if (result == 0 && source != object && !out->is_array &&
        options->fill_value != NULL &&
        ad_fill_element(options->fill_value, out->tensor.tensor.dtype,
                        element) < 0) {
        ad_imported_clear(out);
        result = -1;
    }
    Py_DECREF(source);
    return result;
}

int
ad_imported_to_device(ad_state *state, ad_imported *imported,
                      const ad_request *request, ad_copy *copy)
{
    ad_array *array = imported->is_array ? &imported->array : NULL;
    ad_device device = array != NULL ? array->memory.device
                                     : imported->tensor.tensor.memory.device;
    if (!request->has_device || ad_device_equal(device, request->device)) {
        return 0;
    }
    /* What moves with copy=True is copied. */
    *copy =
        request->copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED : request->copy;
    return ad_move_to(state, array, &imported->tensor, request->device,
                      ad_request_copy_stream(request), request->copy);
}

int
ad_import_tensor(ad_state *state, PyObject *object, const ad_request *request,
                 uint32_t among, ad_tensor_options *options, ad_imported *out)
{
    ad_tensor *tensor = &out->tensor.tensor;
    options->bridge.copy = request->copy;
    options->stream = ad_request_copy_stream(request);
    if (import_any(state, object, request, among, options, out) < 0 ||
        ad_imported_to_device(state, out, request, &options->bridge.copy) <
            0 ||
        ad_imported_as_tensor(state, out, options) < 0 ||
        apply_layout(state, options, &out->tensor) < 0) {
        return -1;
    }
    if (ad_apply_stream_order(state, request, &tensor->memory) < 0) {
        ad_tensor_clear(tensor);
        return -1;
    }
    return 0;
}

static PyObject *
import_object(ad_state *state, PyObject *object, const ad_request *request,
              uint32_t among, ad_tensor_options *options)
{
    ad_imported imported;
    if (ad_import_tensor(state, object, request, among, options, &imported) <
        0) {
        return NULL;
    }
    apply_readonly(options->readonly, &imported.tensor.tensor);
    return ad_tensor_object_new(state, &imported.tensor.tensor);
}

static const ad_signature tensor_signature = {
    .function = "tensor()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_device, AD_STR_stream,
                       AD_STR_copy, AD_STR_nulls, AD_STR_fill_value,
                       AD_STR_order, AD_STR_readonly),
};

static PyObject *
function_tensor(ad_state *state, PyObject *const *values)
{
    ad_request request;
    ad_tensor_options options = {0};
    if (ad_parse_request(state, values[1], values[2], values[3], &request) <
            0 ||
        ad_parse_nulls(values[4], values[5], &options) < 0 ||
        parse_order(values[6], &options.bridge.order) < 0 ||
        ad_parse_optional_bool(values[7], "readonly", &options.readonly) < 0) {
        return NULL;
    }
    return import_object(state, values[0], &request, AD_ALL_PROTOCOLS,
                         &options);
}

AD_ENTRY(ad_function_tensor, ad_state_of_module, tensor_signature,
         function_tensor(state, values));

static const ad_signature from_dlpack_signature = {
    .function = "from_dlpack()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_device, AD_STR_copy),
};

static PyObject *
function_from_dlpack(ad_state *state, PyObject *const *values)
{
    ad_request request;
    ad_tensor_options options = {.readonly = -1};
    if (ad_parse_request(state, values[1], NULL, values[2], &request) < 0) {
        return NULL;
    }
    /* __dlpack__ of a masked array would export the data without the mask. */
    return import_object(state, values[0], &request,
                         AD_PROTOCOL_BIT(masked_array) |
                             AD_PROTOCOL_BIT(dlpack_exchange) |
                             AD_PROTOCOL_BIT(dlpack),
                         &options);
}

AD_ENTRY(ad_function_from_dlpack, ad_state_of_module, from_dlpack_signature,
         function_from_dlpack(state, values));
