/* arrowdev.array(), tensor(), from_dlpack(), schema(), convert(), ... */
#include "python/functions.h"

#include <string.h>

#include "core/array_copy.h"
#include "core/type.h"
#include "protocol/dlpack_tensor.h"
#include "protocol/protocol.h"
#include "python/fill_value.h"
#include "python/record_batch.h"

/* --- shared -------------------------------------------------------------------- */

PyObject *
ad_call_helper(const char *submodule, const char *function,
               PyObject *const *args, size_t n_args)
{
    char name[64];
    PyOS_snprintf(name, sizeof(name), "arrowdev.%s", submodule);
    PyObject *module = PyImport_ImportModule(name);
    if (module == NULL) {
        return NULL;
    }
    PyObject *callable = PyObject_GetAttrString(module, function);
    Py_DECREF(module);
    if (callable == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_Vectorcall(callable, args, n_args, NULL);
    Py_DECREF(callable);
    return result;
}

int
ad_check_device(ad_state *state, ad_device found, ad_device wanted)
{
    if (ad_device_equal(found, wanted)) {
        return 0;
    }
    char from[AD_DEVICE_NAME_SIZE];
    char to[AD_DEVICE_NAME_SIZE];
    ad_error err;
    ad_fail(&err, AD_ERR_EXCHANGE, "device",
            "copy it in the producing library",
            "memory on %s cannot be brought to %s: no runtime that could copy "
            "it is supported by this version",
            ad_device_format(found, from), ad_device_format(wanted, to));
    ad_error_device(&err, found);
    ad_raise(state, &err);
    return -1;
}

/* Read device=, stream= and copy= into a request. */
static int
parse_request(ad_state *state, PyObject *device, PyObject *stream,
              PyObject *copy, ad_request *out)
{
    int copy_value = AD_COPY_IF_NEEDED;
    *out = (ad_request){.stream = ad_is_none(stream) ? NULL : stream};
    if (!ad_is_none(device)) {
        if (ad_parse_device(state, device, &out->device) < 0) {
            return -1;
        }
        out->has_device = true;
    }
    if (copy != NULL && ad_parse_copy(copy, &copy_value) < 0) {
        return -1;
    }
    out->copy = (ad_copy)copy_value;
    return 0;
}

/* What was imported, as an array; `imported` is used up. */
static int
imported_as_array(ad_state *state, ad_imported *imported, ad_copy copy,
                  ad_array *out)
{
    ad_error err;
    ad_status status;
    if (!imported->is_array) {
        ad_tensor *tensor = &imported->tensor.tensor;
        bool is_copied = tensor->flags & AD_TENSOR_COPIED;
        status = ad_array_from_tensor(
            tensor, is_copied && copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED
                                                        : copy,
            out, &err);
        ad_tensor_clear(tensor);
    } else if (copy == AD_COPY_ALWAYS) {
        status = ad_array_copy(&imported->array, out, &err);
        ad_array_clear(&imported->array);
    } else {
        *out = imported->array;
        return 0;
    }
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    return 0;
}

PyObject *
ad_as_array_object(ad_state *state, PyObject *value)
{
    if (ad_is_array(state, value)) {
        return Py_NewRef(value);
    }
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    ad_imported imported;
    ad_array array;
    if (ad_import(state, value, &request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        imported_as_array(state, &imported, AD_COPY_IF_NEEDED, &array) < 0) {
        return NULL;
    }
    return ad_array_object_new(state, &array);
}

/* --- array() --------------------------------------------------------------------- */

static ad_status
same_layout(const struct ArrowSchema *a, const struct ArrowSchema *b,
            bool *out, ad_error *err)
{
    bool equal = strcmp(a->format, b->format) == 0 &&
                 a->n_children == b->n_children &&
                 (a->dictionary == NULL) == (b->dictionary == NULL);
    for (int64_t i = 0; equal && i < a->n_children; i++) {
        AD_RETURN_IF_ERR(
            same_layout(a->children[i], b->children[i], &equal, err));
    }
    if (equal && a->dictionary != NULL) {
        AD_RETURN_IF_ERR(
            same_layout(a->dictionary, b->dictionary, &equal, err));
    }
    *out = equal;
    return AD_OK;
}

/* Give the array the asked-for type: names, nullability, metadata and
 * extensions are relabelled without a copy; anything else is refused. */
static int
apply_type(ad_state *state, ad_array *array, ad_schema wanted)
{
    bool same;
    ad_error err;
    ad_status status =
        same_layout(array->schema.node, wanted.node, &same, &err);
    bool loses_nulls = !(wanted.node->flags & ARROW_FLAG_NULLABLE) &&
                       !ad_array_has_no_nulls(array);
    if (status == AD_OK && same && !loses_nulls) {
        ad_schema_unref(array->schema);
        array->schema = ad_schema_ref(wanted);
        return 0;
    }
    ad_text from = {0};
    ad_text to = {0};
    if (status == AD_OK) {
        status = ad_type_print(array->schema.node, &from, &err);
    }
    if (status == AD_OK) {
        status = ad_type_print(wanted.node, &to, &err);
    }
    if (status == AD_OK && same) {
        ad_fail(&err, AD_ERR_EXCHANGE, "nulls",
                "ask for a nullable type, or fill the nulls first",
                "the data have (or may have) nulls, and the type that was "
                "asked for is not nullable");
    } else if (status == AD_OK) {
        ad_fail(&err, AD_ERR_EXCHANGE, "dtype",
                "leave the type out and use .view(type) for the same bytes, "
                "or convert in the producing library",
                "the data are %s, not %s", ad_text_string(&from),
                ad_text_string(&to));
        ad_error_dtype(&err, ad_text_string(&from));
    }
    ad_text_clear(&from);
    ad_text_clear(&to);
    ad_raise(state, &err);
    return -1;
}

/* Combine with validity=, which is anything boolean. */
static int
apply_validity(ad_state *state, ad_array *array, PyObject *validity)
{
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    const ad_bridge_options options = {.copy = AD_COPY_IF_NEEDED};
    ad_imported imported;
    ad_error err;
    if (ad_import(state, validity, &request, AD_ALL_PROTOCOLS, &imported) <
        0) {
        return -1;
    }
    ad_status status = AD_OK;
    if (imported.is_array) {
        ad_array bits = imported.array;
        status = ad_tensor_from_array(&bits, &options, &imported.tensor, &err);
        ad_array_clear(&bits);
    }
    if (status == AD_OK) {
        ad_array combined;
        status = ad_array_with_validity(array, &imported.tensor.tensor, 1,
                                        &combined, &err);
        ad_tensor_clear(&imported.tensor.tensor);
        if (status == AD_OK) {
            ad_array_clear(array);
            *array = combined;
            return 0;
        }
    }
    ad_raise(state, &err);
    return -1;
}

static const ad_signature array_signature = {
    .function = "array()",
    .n_positional_only = 2,
    .n_positional = 2,
    .n_required = 1,
    .n_parameters = 6,
    .names = {AD_STR_object, AD_STR_type, AD_STR_device, AD_STR_stream,
              AD_STR_copy, AD_STR_validity},
};

/* array() with anything but the object given. */
static int
array_with_options(ad_state *state, PyObject **values, ad_array *out)
{
    ad_request request;
    ad_schema wanted = {0};
    ad_imported imported;
    int result = -1;
    if (parse_request(state, values[2], values[3], values[4], &request) < 0) {
        return -1;
    }
    if (!ad_is_none(values[1])) {
        if (ad_parse_schema(state, values[1], &wanted) < 0) {
            return -1;
        }
        request.schema = ad_schema_object_new(state, ad_schema_ref(wanted));
        if (request.schema == NULL) {
            goto done;
        }
    }
    if (ad_import(state, values[0], &request, AD_ALL_PROTOCOLS, &imported) <
            0 ||
        imported_as_array(state, &imported, request.copy, out) < 0) {
        goto done;
    }
    if ((request.has_device &&
         ad_check_device(state, out->device, request.device) < 0) ||
        (wanted.node != NULL && apply_type(state, out, wanted) < 0) ||
        (!ad_is_none(values[5]) &&
         apply_validity(state, out, values[5]) < 0)) {
        ad_array_clear(out);
        goto done;
    }
    result = 0;
done:
    Py_XDECREF(request.schema);
    ad_schema_unref(wanted);
    return result;
}

static PyObject *
function_array(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
               PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    if (n_args == 1 && kwnames == NULL) {
        return ad_as_array_object(state, args[0]);
    }
    PyObject *values[6];
    ad_array array;
    if (ad_parse_args(state, &array_signature, args, n_args, kwnames, values) <
            0 ||
        array_with_options(state, values, &array) < 0) {
        return NULL;
    }
    return ad_array_object_new(state, &array);
}

/* --- tensor() --------------------------------------------------------------------- */

/* What tensor() was asked for, beyond the request. */
typedef struct tensor_options {
    ad_bridge_options bridge;
    PyObject *fill_value; /* borrowed, or NULL */
    char order;           /* 'C', 'F', or 0 */
    int readonly;         /* -1: as it is */
} tensor_options;

static int
parse_nulls(PyObject *nulls, PyObject *fill_value, tensor_options *out)
{
    static const struct {
        const char *name;
        ad_nulls value;
    } choices[] = {{"raise", AD_NULLS_RAISE},
                   {"ignore", AD_NULLS_IGNORE},
                   {"fill", AD_NULLS_FILL}};
    int choice = nulls == NULL ? 0 : -1;
    for (int i = 0; choice < 0 && i < 3 && PyUnicode_Check(nulls); i++) {
        if (PyUnicode_CompareWithASCIIString(nulls, choices[i].name) == 0) {
            choice = i;
        }
    }
    if (choice < 0) {
        PyErr_Format(PyExc_ValueError,
                     "nulls must be \"raise\", \"ignore\" or \"fill\", not %R",
                     nulls);
        return -1;
    }
    out->bridge.nulls = choices[choice].value;
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
    PyErr_Format(PyExc_ValueError, "order must be \"C\", \"F\" or None, "
                 "not %R", order);
    return -1;
}

/* The bridge, with the fill value in the array's own element type. */
static int
bridge_to_tensor(ad_state *state, const ad_array *array,
                 tensor_options *options, ad_tensor_value *out)
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
    return 0;
}

/* What was imported, as a tensor; `imported` is used up. */
static int
imported_as_tensor(ad_state *state, ad_imported *imported,
                   tensor_options *options)
{
    if (!imported->is_array) {
        return 0;
    }
    ad_array array = imported->array;
    int result =
        bridge_to_tensor(state, &array, options, &imported->tensor);
    ad_array_clear(&array);
    return result;
}

/* Make a copy when one was asked for, or when the order demands it. */
static int
apply_layout(ad_state *state, const tensor_options *options,
             ad_tensor_value *value)
{
    ad_copy copy = options->bridge.copy;
    bool is_copied = value->tensor.flags & AD_TENSOR_COPIED;
    char order = options->order;
    bool fits = order == 0 || ad_tensor_is_compact(&value->tensor, order);
    if (fits && (copy != AD_COPY_ALWAYS || is_copied)) {
        return 0;
    }
    ad_error err;
    ad_tensor_value result;
    ad_status status;
    if (copy == AD_COPY_NEVER) {
        status = ad_fail(&err, AD_ERR_EXCHANGE, "copy",
                         "leave order= or copy=False out",
                         "order=\"%c\" needs a copy of this tensor", order);
    } else {
        status = ad_tensor_copy(&value->tensor, order != 0 ? order : 'C',
                                &result, &err);
    }
    ad_tensor_clear(&value->tensor);
    if (status != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    *value = result;
    value->tensor.shape = value->dims;
    value->tensor.strides = value->dims + value->tensor.ndim;
    return 0;
}

static void
apply_readonly(int readonly, ad_tensor *tensor)
{
    if (readonly == 1) {
        tensor->flags |= AD_TENSOR_READONLY;
    } else if (readonly == 0) {
        tensor->flags &=
            ~(uint32_t)(AD_TENSOR_READONLY | AD_TENSOR_IMMUTABLE);
    }
}

static PyObject *
import_tensor(ad_state *state, PyObject *object, const ad_request *request,
              uint32_t among, tensor_options *options)
{
    ad_imported imported;
    options->bridge.copy = request->copy;
    if (ad_import(state, object, request, among, &imported) < 0 ||
        imported_as_tensor(state, &imported, options) < 0 ||
        apply_layout(state, options, &imported.tensor) < 0) {
        return NULL;
    }
    ad_tensor *tensor = &imported.tensor.tensor;
    apply_readonly(options->readonly, tensor);
    if (request->has_device &&
        ad_check_device(state, tensor->device, request->device) < 0) {
        ad_tensor_clear(tensor);
        return NULL;
    }
    return ad_tensor_object_new(state, tensor);
}

static const ad_signature tensor_signature = {
    .function = "tensor()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 7,
    .names = {AD_STR_object, AD_STR_stream, AD_STR_copy, AD_STR_nulls,
              AD_STR_fill_value, AD_STR_order, AD_STR_readonly},
};

static PyObject *
function_tensor(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[7];
    ad_request request;
    tensor_options options = {0};
    if (ad_parse_args(state, &tensor_signature, args, n_args, kwnames,
                      values) < 0 ||
        parse_request(state, NULL, values[1], values[2], &request) < 0 ||
        parse_nulls(values[3], values[4], &options) < 0 ||
        parse_order(values[5], &options.order) < 0 ||
        ad_parse_optional_bool(values[6], "readonly", &options.readonly) < 0) {
        return NULL;
    }
    return import_tensor(state, values[0], &request, AD_ALL_PROTOCOLS,
                         &options);
}

static const ad_signature from_dlpack_signature = {
    .function = "from_dlpack()",
    .n_positional_only = 1,
    .n_positional = 1,
    .n_required = 1,
    .n_parameters = 3,
    .names = {AD_STR_object, AD_STR_device, AD_STR_copy},
};

static PyObject *
function_from_dlpack(PyObject *module, PyObject *const *args,
                     Py_ssize_t n_args, PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[3];
    ad_request request;
    tensor_options options = {.readonly = -1};
    if (ad_parse_args(state, &from_dlpack_signature, args, n_args, kwnames,
                      values) < 0 ||
        parse_request(state, values[1], NULL, values[2], &request) < 0) {
        return NULL;
    }
    return import_tensor(state, values[0], &request,
                         AD_PROTOCOL_BIT(dlpack_exchange) |
                             AD_PROTOCOL_BIT(dlpack),
                         &options);
}

/* --- convert() ---------------------------------------------------------------------- */

static PyObject *
convert_by_exchange_api(ad_state *state, PyObject *self,
                        const ad_dl_exchange_api *api, int copy)
{
    tensor_options options = {.bridge = {.copy = (ad_copy)copy}};
    ad_imported imported;
    const ad_request request = {.copy = (ad_copy)copy};
    ad_error err;
    if (ad_import(state, self, &request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        imported_as_tensor(state, &imported, &options) < 0 ||
        apply_layout(state, &options, &imported.tensor) < 0) {
        return NULL;
    }
    void *managed = NULL;
    ad_tensor *tensor = &imported.tensor.tensor;
    ad_status status = ad_sync_require_ready(
        tensor->sync, "the C exchange API of another library", &err);
    if (status == AD_OK) {
        bool is_copy = (tensor->flags & AD_TENSOR_COPIED) != 0;
        status = ad_dlpack_give(tensor, true, is_copy, &managed, &err);
    }
    ad_tensor_clear(tensor);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    void *result = NULL;
    if (api->managed_tensor_to_py_object_no_sync(managed, &result) != 0) {
        ((ad_dl_managed_versioned *)managed)->deleter(managed);
        if (!ad_exception_is_final(state)) {
            ad_raise_exchange(state, "refused", NULL,
                              "the target class refused the tensor");
        }
        return NULL;
    }
    return result;
}

PyObject *
ad_convert_into(ad_state *state, PyObject *self, PyObject *cls,
                PyObject *stream, int copy)
{
    if (!PyType_Check(cls)) {
        PyErr_Format(PyExc_TypeError,
                     "the target must be a class such as torch.Tensor, not "
                     "%.200s",
                     Py_TYPE(cls)->tp_name);
        return NULL;
    }
    ad_type_slot scratch;
    const ad_type_slot *slot =
        ad_type_slot_of_type(state, (PyTypeObject *)cls, &scratch);
    if (slot->exchange_api != NULL) {
        return convert_by_exchange_api(state, self, slot->exchange_api, copy);
    }
    PyObject *flag = copy == AD_COPY_IF_NEEDED ? Py_None
                     : copy == AD_COPY_NEVER   ? Py_False
                                               : Py_True;
    PyObject *args[] = {self, cls, stream != NULL ? stream : Py_None, flag};
    return ad_call_helper("_convert", "convert", args, 4);
}

static const ad_signature convert_signature = {
    .function = "convert()",
    .n_positional = 2,
    .n_required = 2,
    .n_parameters = 4,
    .names = {AD_STR_object, AD_STR_cls, AD_STR_stream, AD_STR_copy},
};

static PyObject *
function_convert(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                 PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[4];
    ad_request request;
    ad_imported imported;
    if (ad_parse_args(state, &convert_signature, args, n_args, kwnames,
                      values) < 0 ||
        parse_request(state, NULL, values[2], values[3], &request) < 0 ||
        ad_import(state, values[0], &request, AD_ALL_PROTOCOLS, &imported) <
            0) {
        return NULL;
    }
    PyObject *ours =
        imported.is_array
            ? ad_array_object_new(state, &imported.array)
            : ad_tensor_object_new(state, &imported.tensor.tensor);
    if (ours == NULL) {
        return NULL;
    }
    PyObject *result = ad_convert_into(state, ours, values[1], request.stream,
                                       (int)request.copy);
    Py_DECREF(ours);
    return result;
}

/* --- the rest ------------------------------------------------------------------------ */

static PyObject *
function_schema(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    ad_schema schema;
    if (ad_is_array(state, value)) {
        schema = ad_schema_ref(ad_array_of(value)->schema);
    } else if (ad_parse_schema(state, value, &schema) < 0) {
        return NULL;
    }
    return ad_schema_object_new(state, schema);
}

static const ad_signature validate_signature = {
    .function = "validate()",
    .n_positional = 2,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_object, AD_STR_level},
};

static PyObject *
function_validate(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                  PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    if (ad_parse_args(state, &validate_signature, args, n_args, kwnames,
                      values) < 0) {
        return NULL;
    }
    PyObject *array = ad_as_array_object(state, values[0]);
    if (array == NULL) {
        return NULL;
    }
    PyObject *result =
        values[1] != NULL
            ? PyObject_CallMethod(array, "validate", "O", values[1])
            : PyObject_CallMethod(array, "validate", NULL);
    Py_DECREF(array);
    return result;
}

/* Does the protocol's call succeed? Streams are never called: that would
 * consume them. 1 yes, 0 no, -1 error. */
static int
probe_protocol(ad_state *state, PyObject *object, int index)
{
    if (index == AD_PROTOCOL_arrow_stream ||
        index == AD_PROTOCOL_arrow_device_stream) {
        return 1;
    }
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    ad_imported imported;
    if (ad_import(state, object, &request, (uint32_t)1 << index, &imported) ==
        0) {
        ad_imported_clear(&imported);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception) ||
        PyErr_ExceptionMatches(PyExc_MemoryError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

static const ad_signature protocols_signature = {
    .function = "protocols()",
    .n_positional = 2,
    .n_required = 1,
    .n_parameters = 2,
    .names = {AD_STR_object, AD_STR_probe},
};

static PyObject *
function_protocols(PyObject *module, PyObject *const *args, Py_ssize_t n_args,
                   PyObject *kwnames)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *values[2];
    if (ad_parse_args(state, &protocols_signature, args, n_args, kwnames,
                      values) < 0) {
        return NULL;
    }
    int probe = values[1] != NULL ? PyObject_IsTrue(values[1]) : 0;
    PyObject *names = probe >= 0 ? PyList_New(0) : NULL;
    uint32_t offers = ad_offers(state, values[0]);
    for (int i = 0; names != NULL && i < AD_N_PROTOCOLS; i++) {
        if (!(offers >> i & 1)) {
            continue;
        }
        int works = probe ? probe_protocol(state, values[0], i) : 1;
        PyObject *name =
            works >= 0 ? PyUnicode_FromString(ad_protocols[i]->name) : NULL;
        if (name == NULL || (works && PyList_Append(names, name) < 0)) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    if (names == NULL) {
        return NULL;
    }
    PyObject *result = PyList_AsTuple(names);
    Py_DECREF(names);
    return result;
}

#define AD_FASTCALL(function) (PyCFunction)(void (*)(void))function

PyMethodDef ad_module_functions[] = {
    {"array", AD_FASTCALL(function_array), METH_FASTCALL | METH_KEYWORDS,
     "array(obj, type=None, /, *, device=None, stream=None, copy=None, "
     "validity=None)\n--\n\n"
     "An Array over the memory of any object that speaks an exchange "
     "protocol.\n\n"
     "Tried in this order: arrowdev's own objects, NumPy masked arrays,\n"
     "__arrow_c_device_array__, __arrow_c_array__, __arrow_c_device_stream__,\n"
     "__arrow_c_stream__ (one chunk), DLPack, __sycl_usm_array_interface__,\n"
     "__cuda_array_interface__, __array_interface__, the buffer protocol, a\n"
     "pair of capsules.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "type : str or object with __arrow_c_schema__, optional\n"
     "    The type the array must have: a format string, a name such as\n"
     "    \"timestamp[us, UTC]\". Relabels, never converts.\n"
     "device : Device, str or (type, id), optional\n"
     "    Where the memory must be.\n"
     "stream : int or stream object, optional\n"
     "    On which the caller will use the data; DLPack's meaning for ints.\n"
     "copy : bool, optional\n"
     "    None copies when needed, False never, True always.\n"
     "validity : object, optional\n"
     "    Anything boolean, true = valid, for data without nulls of its own.\n"
     "\n"
     "Raises\n------\n"
     "TypeError\n    The object speaks none of the protocols.\n"
     "ExchangeError\n    All protocols refused, or a meaning would be lost.\n"
     "InvalidArrowError\n    A struct is malformed; `path` leads to the "
     "node."},
    {"tensor", AD_FASTCALL(function_tensor), METH_FASTCALL | METH_KEYWORDS,
     "tensor(obj, /, *, stream=None, copy=None, nulls=\"raise\", "
     "fill_value=None, order=None, readonly=None)\n--\n\n"
     "A Tensor over the memory of any object that speaks an exchange "
     "protocol.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "stream : int or stream object, optional\n"
     "    On which the caller will use the data.\n"
     "copy : bool, optional\n"
     "    None copies when needed, False never, True always.\n"
     "nulls : {\"raise\", \"ignore\", \"fill\"}\n"
     "    What to do with nulls, which a tensor cannot have: refuse, drop the\n"
     "    mask because you said so, or put fill_value in their place (copies).\n"
     "fill_value : number, optional\n"
     "order : {\"C\", \"F\"}, optional\n"
     "    Compact memory in this order; copies when needed.\n"
     "readonly : bool, optional\n"
     "    False drops a read-only flag because you said so; True sets it.\n\n"
     "Raises\n------\n"
     "TypeError, ExchangeError, InvalidArrowError\n    As array()."},
    {"from_dlpack", AD_FASTCALL(function_from_dlpack),
     METH_FASTCALL | METH_KEYWORDS,
     "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
     "A Tensor from an object with __dlpack__, by DLPack alone.\n\n"
     "Source: Python array API standard, from_dlpack."},
    {"record_batch", AD_FASTCALL(ad_function_record_batch),
     METH_FASTCALL | METH_KEYWORDS,
     "record_batch(columns, /, *, names=None)\n--\n\n"
     "A struct Array from a mapping of names to columns, a sequence of "
     "columns\nwith names=, or an object that is already a batch.\n\n"
     "Raises\n------\n"
     "ValueError\n    Columns of different lengths; names that do not fit.\n"
     "ExchangeError\n    Columns on different devices, or with different "
     "events."},
    {"schema", function_schema, METH_O,
     "schema(obj, /)\n--\n\n"
     "A Schema from a format string, a name such as \"timestamp[us, UTC]\", "
     "or\nany object with __arrow_c_schema__.\n\n"
     "Raises TypeError, ValueError for unknown names, InvalidArrowError."},
    {"device", ad_function_device, METH_O,
     "device(spec, /)\n--\n\n"
     "A Device from \"cuda:0\", \"cpu\", (type, id), or a Device."},
    {"convert", AD_FASTCALL(function_convert), METH_FASTCALL | METH_KEYWORDS,
     "convert(obj, cls, *, stream=None, copy=None)\n--\n\n"
     "An instance of another library's class over the memory of `obj`:\n"
     "convert(df[\"x\"], torch.Tensor).\n\n"
     "Raises TypeError for a class that arrowdev does not know, and whatever\n"
     "array() raises."},
    {"validate", AD_FASTCALL(function_validate), METH_FASTCALL | METH_KEYWORDS,
     "validate(obj, level=\"structure\")\n--\n\n"
     "Check what `obj` exports; see Array.validate()."},
    {"protocols", AD_FASTCALL(function_protocols),
     METH_FASTCALL | METH_KEYWORDS,
     "protocols(obj, probe=False)\n--\n\n"
     "Names of the protocols that an object offers, in arrowdev's order of\n"
     "preference, by look-up only. probe=True also calls them (never a "
     "stream)\nand leaves out those that refuse."},
    {NULL, NULL, 0, NULL},
};
