/* The table of the module's functions, and the short functions. */
#include "python/functions/functions.h"

#include "model/extension.h"
#include "python/types/async_types.h"
#include "python/testing/testing.h"
#include "support/args.h"
#include "device/backend.h"

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

/* The logical shape of a row and its strides in storage. The strides cannot
 * overflow: ad_extension_read has checked the product of all extents that are
 * not 0. */
static PyObject *
describe_rows(const ad_extension *tensor)
{
    int64_t shape[AD_MAX_NDIM], strides[AD_MAX_NDIM];
    ad_extension_row(tensor, shape, strides);
    return Py_BuildValue("sNN", NULL, ad_int_tuple(shape, tensor->ndim, 1),
                         ad_int_tuple(strides, tensor->ndim, 1));
}

static PyObject *
function_extension(PyObject *module, PyObject *value)
{
    ad_state *state = ad_state_of_module(module);
    char name[AD_DTYPE_NAME_SIZE];
    ad_extension extension;
    ad_schema schema;
    ad_error err;
    if (ad_parse_schema(state, value, &schema) < 0) {
        return NULL;
    }
    ad_status status = ad_extension_read(schema.node, &extension, &err);
    ad_schema_unref(schema);
    if (status != AD_OK) {
        return ad_raise(state, &err);
    }
    switch (extension.kind) {
        case AD_EXTENSION_BOOL8:
            return Py_BuildValue("sOO", "bool", Py_None, Py_None);
        case AD_EXTENSION_DLPACK:
            return Py_BuildValue("sOO", ad_dtype_format(extension.dtype, name),
                                 Py_None, Py_None);
        case AD_EXTENSION_FIXED_SHAPE_TENSOR:
            return describe_rows(&extension);
        default:
            return Py_BuildValue("OOO", Py_None, Py_None, Py_None);
    }
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
    PyObject *array = ad_as_array_object(state, values[0], AD_COPY_IF_NEEDED);
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

/* Does the object have the protocol's attribute, as hasattr() would tell? Many
 * types raise AttributeError for some of their instances. Any other exception
 * refuses an export that the object does offer. 1 yes, 0 no, -1 error. */
static int
is_there(ad_state *state, PyObject *object, int index)
{
    PyObject *value = NULL;
    if (index == AD_PROTOCOL_buffer && ad_is_tensor(state, object)) {
        return ad_host_accessible(ad_tensor_of(object)->device);
    }
    if (index == AD_PROTOCOL_buffer && ad_is_array(state, object)) {
        return ad_host_accessible(ad_array_of(object)->device);
    }
    if (ad_protocols[index]->attribute < 0) {
        return 1;
    }
    int found = ad_py_lookup_attr(
        object, state->strings[ad_protocols[index]->attribute], &value);
    Py_XDECREF(value);
    if (found < 0 && !ad_exception_is_final(state)) {
        PyErr_Clear();
        found = 1;
    }
    return found;
}

/* Does the protocol's call succeed? Streams and bare capsules are not tried,
 * because a trial would consume them. 1 yes, 0 no, -1 error. */
static int
probe_protocol(ad_state *state, PyObject *object, int index)
{
    if (index == AD_PROTOCOL_arrow_stream ||
        index == AD_PROTOCOL_arrow_device_stream ||
        index == AD_PROTOCOL_capsules) {
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
    uint32_t offers;
    int probe = values[1] != NULL ? PyObject_IsTrue(values[1]) : 0;
    if (probe < 0 || ad_offers(state, values[0], &offers) < 0) {
        return NULL;
    }
    PyObject *names = PyList_New(0);
    for (int i = 0; names != NULL && i < AD_N_PROTOCOLS; i++) {
        if (!(offers >> i & 1)) {
            continue;
        }
        int works = is_there(state, values[0], i);
        if (works == 1 && probe) {
            works = probe_protocol(state, values[0], i);
        }
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

PyMethodDef ad_module_functions[] = {
    {"array", AD_METHOD(ad_function_array),
     "array(obj, type=None, /, *, device=None, stream=None, copy=None, "
     "validity=None)\n--\n\n"
     "An Array over the memory of any object that speaks an exchange "
     "protocol.\n\n"
     "Tried in this order: arrowdev's own objects, NumPy masked arrays,\n"
     "__arrow_c_device_array__, __arrow_c_array__, __arrow_c_device_stream__,\n"
     "__arrow_c_stream__ (several chunks are put together as concat() does,\n"
     "unless copy=False), DLPack, __sycl_usm_array_interface__,\n"
     "__cuda_array_interface__, __array_interface__, the buffer protocol, a\n"
     "pair of capsules.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "type : str or object with __arrow_c_schema__, optional\n"
     "    The type the array must have: a format string, a name such as\n"
     "    \"timestamp[us, UTC]\". The producer is asked for it, unless\n"
     "    copy=False; what it gives is relabelled or refused, not converted,\n"
     "    but for bools, which become bits.\n"
     "device : Device, str or (type, id), optional\n"
     "    Where the memory must be.\n"
     "stream : int or stream object, optional\n"
     "    On which the caller will use the data; DLPack's meaning for ints.\n"
     "copy : bool, optional\n"
     "    None copies when needed, False never, True always.\n"
     "validity : object, optional\n"
     "    Anything boolean with one element per row, true = valid: a tensor of\n"
     "    bool or uint8, an Array of bools, on the data's device or on that of\n"
     "    device=. Rows that are null already stay so.\n"
     "\n"
     "Raises\n------\n"
     "TypeError\n    The object speaks none of the protocols.\n"
     "ExchangeError\n    All protocols refused, or a meaning would be lost.\n"
     "InvalidArrowError\n    A struct is malformed; `path` leads to the "
     "node."},
    {"array_stream", AD_METHOD(ad_function_array_stream),
     "array_stream(obj, /, *, schema=None, device_type=None)\n--\n\n"
     "An ArrayStream over anything that gives arrays one after the other.\n\n"
     "Tried in this order: an ArrayStream (itself), __arrow_c_device_stream__,\n"
     "__arrow_c_stream__, a capsule of either, anything that array() takes (a\n"
     "stream of one), and any iterable of what array() takes.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "schema : str or object with __arrow_c_schema__, optional\n"
     "    The type of every array. Needed for an iterable without elements;\n"
     "    otherwise the first one's, and all others must have it too.\n"
     "device_type : DeviceType or int, optional\n"
     "    On which all arrays are. An iterable's first element is asked for at\n"
     "    once, unless both this and schema are given.\n\n"
     "Raises\n------\n"
     "TypeError\n    No stream, no array and no iterable.\n"
     "ValueError\n    An iterable without elements, and no schema.\n"
     "ExchangeError\n    The stream fails, or is not of that type or device.\n"
     "InvalidArrowError\n    Its schema is malformed.\n\n"
     "Source: specification, \"Device Stream Interface\"."},
    {"concat_streams", AD_METHOD(ad_function_concat_streams),
     "concat_streams(streams, /, *, schema=None)\n--\n\n"
     "An ArrayStream of the batches of one stream after another.\n\n"
     "Parameters\n----------\n"
     "streams : iterable\n"
     "    Of anything that array_stream() takes. Each is taken over when the\n"
     "    one before it has ended; the first one at once.\n"
     "schema : str or object with __arrow_c_schema__, optional\n"
     "    What all streams have to have. Needed where there may be none of\n"
     "    them; otherwise the first one's.\n\n"
     "Raises\n------\n"
     "ExchangeError\n"
     "    A stream, named by its index, has another schema (reason\n"
     "    \"schema\") or is on another type of device (\"device\").\n"
     "ValueError\n"
     "    There are no streams and no schema."},
    {"tensor", AD_METHOD(ad_function_tensor),
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
    {"from_dlpack", AD_METHOD(ad_function_from_dlpack),
     "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
     "A Tensor from an object with __dlpack__, by DLPack alone.\n\n"
     "A NumPy masked array with masked elements is refused (reason "
     "\"nulls\"):\nDLPack has no masks.\n\n"
     "Source: Python array API standard, from_dlpack."},
    {"record_batch", AD_METHOD(ad_function_record_batch),
     "record_batch(columns, /, *, names=None, copy=None)\n--\n\n"
     "A struct Array from a mapping of names to columns, a sequence of "
     "columns\nwith names=, a matrix (a tensor of two dimensions) with "
     "names=, or an\nobject that is already a batch.\n\n"
     "Columns of a matrix share its memory where each of them is one run, "
     "as in\nthe order \"F\"; others are copied, at once. tensor(batch) is "
     "the way back.\n\n"
     "Parameters\n----------\n"
     "columns : object\n"
     "names : sequence of str, optional\n"
     "copy : bool, optional\n    As for array().\n\n"
     "Raises\n------\n"
     "ValueError\n    Columns of different lengths; names that do not fit.\n"
     "ExchangeError\n    Columns on different devices, or with different "
     "events; a\n    matrix that needs a copy, with copy=False."},
    {"concat", AD_METHOD(ad_function_concat),
     "concat(arrays, /, *, stream=None)\n--\n\n"
     "The rows of several arrays of one type, one after the other.\n\n"
     "In new memory, where the arrays are: what the host can read is joined\n"
     "in host memory; on a device the runtime copies bytes, kernels copy\n"
     "bits and move offsets, all after the events of all arrays, and the\n"
     "result carries one event. The host waits there to read where strings,\n"
     "lists and runs begin and end, and whether views and dense unions point\n"
     "to what is there. The data of views are shared. Dictionaries that\n"
     "differ are put behind one another. One array is returned as it is.\n"
     "Types are equal where names, formats and nullability are: name and\n"
     "metadata of the result, and metadata of its fields, are the first\n"
     "array's.\n\n"
     "Parameters\n----------\n"
     "arrays : sequence\n    Anything that array() takes, all on one device.\n"
     "stream : int or stream object, optional\n"
     "    On which the work is done.\n\n"
     "Raises\n------\n"
     "ValueError\n    No arrays.\n"
     "ExchangeError\n    Types or devices differ; offsets, indices or run ends "
     "do not fit their\n    type; a runtime is not there.\n"
     "InvalidArrowError\n    Offsets, run ends, type ids or views that make no "
     "sense."},
    {"schema", function_schema, METH_O,
     "schema(obj, /)\n--\n\n"
     "A Schema from a format string, a name such as \"timestamp[us, UTC]\", "
     "or\nany object with __arrow_c_schema__.\n\n"
     "Raises TypeError, ValueError for unknown names, InvalidArrowError."},
    {"_extension", function_extension, METH_O,
     "(type of the elements, shape of a row, strides of a row) as an extension "
     "type\nsays it; each None where it does not. For to_pylist().\n\n"
     "Raises InvalidArrowError where the metadata make no sense."},
    {"device", ad_function_device, METH_O,
     "device(spec, /)\n--\n\n"
     "A Device from \"cuda:0\", \"cpu\", (type, id), or a Device."},
    {"devices", ad_function_devices, METH_NOARGS,
     "devices()\n--\n\n"
     "A list of every Device that can be used now: the host, and those whose\n"
     "runtime can be loaded. `python -m arrowdev doctor` says why one is "
     "missing."},
    {"_runtimes", ad_function_runtimes, METH_NOARGS,
     "(name, device type, why it cannot be used, description, devices, what "
     "is\ncurrent) per runtime; a device is (id, why it cannot be used). For "
     "the doctor."},
    {"use_stream", AD_METHOD(ad_function_use_stream),
     "use_stream(stream, device=None)\n--\n\n"
     "Make a stream the current one of its device, inside `with`.\n\n"
     "On this thread, or in this asyncio task and those made inside of it:\n"
     "what is current is in a context variable. Blocks of one device end in\n"
     "the reverse order of their beginning; else RuntimeError.\n\n"
     "It is the default for every stream= that is left out, and what\n"
     "arrowdev's DLPack exchange API names as the stream of its work.\n\n"
     "Parameters\n----------\n"
     "stream : int or stream object\n"
     "    DLPack's meaning for ints.\n"
     "device : Device, str or (type, id), optional\n"
     "    Needed for ints and default streams, which do not say it.\n\n"
     "Raises\n------\n"
     "TypeError\n    Not a stream.\n"
     "ValueError\n    A number without a device, or without a meaning there.\n"
     "ExchangeError\n    A stream of another device.\n"
     "DeviceError\n    The runtime does not know the stream."},
    {"convert", AD_METHOD(ad_function_convert),
     "convert(obj, cls, *, stream=None, copy=None)\n--\n\n"
     "An instance of another library's class over the memory of `obj`:\n"
     "convert(df[\"x\"], torch.Tensor).\n\n"
     "Raises TypeError for a class that arrowdev does not know, and whatever\n"
     "array() raises."},
    {"validate", AD_METHOD(function_validate),
     "validate(obj, level=\"structure\")\n--\n\n"
     "Check what `obj` exports; see Array.validate()."},
    {"protocols", AD_METHOD(function_protocols),
     "protocols(obj, probe=False)\n--\n\n"
     "Names of the protocols that an object offers, in arrowdev's order of\n"
     "preference, by look-up only. probe=True also calls them (never a "
     "stream)\nand leaves out those that refuse."},
    AD_ASYNC_FUNCTIONS,
    /* clang-format off */
    AD_TESTING_FUNCTIONS(AD_TESTING_ENTRY)
    /* clang-format on */
    {NULL, NULL, 0, NULL},
};
