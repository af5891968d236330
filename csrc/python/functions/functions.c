/* The table of the module's functions, and the short functions. */
#include "python/functions/functions.h"

#include <string.h>

#include "model/extension.h"
#include "python/functions/trace.h"
#include "python/types/array_stream_type.h"
#include "support/shown.h"
#include "support/args.h"
#include "support/logging.h"
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

static PyObject *
function_require_host(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *object;
    const char *what;
    if (!PyArg_ParseTuple(args, "Os", &object, &what)) {
        return NULL;
    }
    if (!ad_is_array(state, object) && !ad_is_tensor(state, object)) {
        PyErr_SetString(PyExc_TypeError, "expected an Array or a Tensor");
        return NULL;
    }
    if (ad_require_host_for(state, ad_memory_of(object), what) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static bool
has_bool8(const struct ArrowSchema *node)
{
    ad_extension extension;
    bool found = node->metadata != NULL && strcmp(node->format, "c") == 0 &&
                 ad_extension_read(node, &extension, NULL) == AD_OK &&
                 extension.kind == AD_EXTENSION_BOOL8;
    for (int64_t i = 0; !found && i < node->n_children; i++) {
        found = has_bool8(node->children[i]);
    }
    return found || (node->dictionary != NULL && has_bool8(node->dictionary));
}

static PyObject *
function_has_bool8(PyObject *module, PyObject *value)
{
    if (!ad_is_array(ad_state_of_module(module), value)) {
        PyErr_SetString(PyExc_TypeError, "expected an Array");
        return NULL;
    }
    return PyBool_FromLong(has_bool8(ad_array_of(value)->schema.node));
}

/* --- the first children -------------------------------------------------- */

static PyObject *
array_child(PyObject *parent, int64_t i)
{
    ad_state *state = ad_state_of(parent);
    ad_array child;
    ad_error err;
    return ad_array_child(ad_array_of(parent), i, &child, &err) == AD_OK
               ? ad_array_object_new(state, &child)
               : ad_raise(state, &err);
}

static PyObject *
schema_child(PyObject *parent, int64_t i)
{
    ad_state *state = ad_state_of(parent);
    ad_schema schema;
    if (ad_parse_schema(state, parent, &schema) < 0) {
        return NULL;
    }
    PyObject *child = ad_schema_object_new(
        state, ad_schema_at(schema, schema.node->children[i]));
    ad_schema_unref(schema);
    return child;
}

static PyObject *
function_first_children(PyObject *module, PyObject *args)
{
    ad_state *state = ad_state_of_module(module);
    PyObject *parent;
    long long n, n_all;
    ad_schema schema;
    if (!PyArg_ParseTuple(args, "OL", &parent, &n)) {
        return NULL;
    }
    bool is_array = ad_is_array(state, parent);
    if (is_array) {
        n_all = (long long)ad_array_of(parent)->node->n_children;
    } else if (ad_parse_schema(state, parent, &schema) == 0) {
        n_all = (long long)schema.node->n_children;
        ad_schema_unref(schema);
    } else {
        return NULL;
    }
    PyObject *first = ad_tuple_of(parent, n < n_all ? n : n_all,
                                  is_array ? array_child : schema_child);
    return first != NULL ? Py_BuildValue("(NL)", first, n_all) : NULL;
}

static const ad_signature validate_signature = {
    .function = "validate()",
    .n_positional = 2,
    .n_required = 1,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_level),
};

static PyObject *
function_validate(ad_state *state, PyObject *const *values)
{
    PyObject *array = ad_as_array_object(state, values[0], AD_COPY_IF_NEEDED);
    if (array == NULL) {
        return NULL;
    }
    PyObject *result = PyObject_CallMethod(
        array, "validate", values[1] != NULL ? "O" : NULL, values[1]);
    Py_DECREF(array);
    return result;
}

static AD_ENTRY(call_function_validate, ad_state_of_module, validate_signature,
                function_validate(state, values));

/* Does the object have the protocol's attribute, as hasattr() would tell? Many
 * types raise AttributeError for some of their instances. Any other exception
 * refuses an export that the object does offer. 1 yes, 0 no, -1 error. */
static int
is_there(ad_state *state, PyObject *object, int index)
{
    PyObject *value = NULL;
    if (index == AD_PROTOCOL_buffer && ad_is_tensor(state, object)) {
        return ad_host_accessible(ad_tensor_of(object)->memory.device);
    }
    if (index == AD_PROTOCOL_buffer && ad_is_array(state, object)) {
        return ad_host_accessible(ad_array_of(object)->memory.device);
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
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_probe),
};

static PyObject *
function_protocols(ad_state *state, PyObject *const *values)
{
    uint32_t offers;
    bool probe = false;
    if (ad_parse_bool(values[1], "probe", &probe) < 0 ||
        ad_offers(state, values[0], &offers) < 0) {
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
        if (works < 0 ||
            (works && ad_py_append(names, PyUnicode_FromString(
                                              ad_protocols[i]->name)) < 0)) {
            Py_CLEAR(names);
        }
    }
    if (names == NULL) {
        return NULL;
    }
    PyObject *result = PyList_AsTuple(names);
    Py_DECREF(names);
    return result;
}

static AD_ENTRY(call_function_protocols, ad_state_of_module,
                protocols_signature, function_protocols(state, values));

PyMethodDef ad_module_functions[] = {
    {"array", AD_METHOD(ad_function_array),
     "array(obj, type=None, /, *, device=None, stream=None, copy=None, "
     "validity=None)\n--\n\n"
     "An Array over the memory of an object that supports an exchange "
     "protocol.\n\n"
     "The protocols are tried in this order: arrowdev's own objects, NumPy\n"
     "masked arrays, jagged tensors of torch, arrays of awkward,\n"
     "__arrow_c_device_array__, __arrow_c_array__,\n"
     "__arrow_c_device_stream__, __arrow_c_stream__ (several chunks are joined\n"
     "as by concat(), unless copy=False), DLPack,\n"
     "__sycl_usm_array_interface__, __cuda_array_interface__,\n"
     "__array_interface__, the buffer protocol, a pair of capsules. An object\n"
     "that is another shape or type by Arrow than by those behind it is\n"
     "refused.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "type : str or object with __arrow_c_schema__, optional\n"
     "    The type of the result: a format string, or a name such as\n"
     "    \"timestamp[us, UTC]\". Names of fields are put on by position. If\n"
     "    more than names differ, the producer is asked for the type, unless\n"
     "    copy=False. arrowdev converts only bools of one byte, to bits; other\n"
     "    data must have the layout of the type.\n"
     "device : Device or str, optional\n"
     "    The device of the result's memory: a Device, a name such as\n"
     "    \"cuda:0\", (type, id), or a device of torch, jax, dpctl or CuPy.\n"
     "stream : int or stream object, optional\n"
     "    The stream on which the caller uses the data. An int has its meaning\n"
     "    in DLPack.\n"
     "copy : bool, optional\n"
     "    None copies if necessary, False never, True always.\n"
     "validity : object, optional\n"
     "    A mask with one element per row, true for valid: a tensor of bool or\n"
     "    uint8, or an Array of bools, on the device of the data or of the\n"
     "    result. Null rows remain null.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\n"
     "TypeError\n    The object supports none of the protocols.\n"
     "ExchangeError\n    All protocols failed, or the data would lose meaning.\n"
     "InvalidArrowError\n    A struct is malformed; `path` leads to the "
     "node.\n\n"
     "Examples\n--------\n"
     ">>> ad.array(b\"abc\")\n"
     "<arrowdev.Array uint8, length 3, on cpu: [97, 98, 99]>\n"
     ">>> ad.array(b\"abc\", validity=bytes([1, 0, 1])).to_pylist()\n"
     "[97, None, 99]"},
    {"array_stream", AD_METHOD(ad_function_array_stream),
     "array_stream(obj, /, *, schema=None, device_type=None)\n--\n\n"
     "An ArrayStream over an object that yields arrays.\n\n"
     "Tried in this order: an ArrayStream, which is returned itself,\n"
     "__arrow_c_device_stream__, __arrow_c_stream__, a capsule of either, an\n"
     "object that array() accepts (a stream of one array), an iterable of such\n"
     "objects.\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "schema : str or object with __arrow_c_schema__, optional\n"
     "    The type of every array, as in array(): names are put on by position.\n"
     "    Required for an empty iterable. The default is the type of the first\n"
     "    array.\n"
     "device_type : DeviceType or int, optional\n"
     "    The device type of every array. Unless both this and schema are\n"
     "    given, the first element of an iterable is read at once.\n\n"
     "Returns\n-------\nArrayStream\n\n"
     "Raises\n------\n"
     "TypeError\n    The object is neither a stream, nor an array, nor an "
     "iterable.\n"
     "ValueError\n    An iterable is empty, and there is no schema.\n"
     "ExchangeError\n    The stream fails, or has another type or device "
     "type.\n"
     "InvalidArrowError\n    The schema of the stream is malformed.\n\n"
     "Source: specification, \"Device Stream Interface\".\n\n"
     "Examples\n--------\n"
     ">>> [len(batch) for batch in ad.array_stream([b\"ab\", b\"c\"])]\n"
     "[2, 1]"},
    {"concat_streams", AD_METHOD(ad_function_concat_streams),
     "concat_streams(streams, /, *, schema=None)\n--\n\n"
     "An ArrayStream of the batches of several streams, one after the "
     "other.\n\n"
     "Parameters\n----------\n"
     "streams : iterable\n"
     "    Objects that array_stream() accepts. The first one is taken at once,\n"
     "    each of the others when the stream before it ends.\n"
     "schema : str or object with __arrow_c_schema__, optional\n"
     "    The schema of all streams. Required if there may be no streams. The\n"
     "    default is the schema of the first stream.\n\n"
     "Returns\n-------\nArrayStream\n\n"
     "Raises\n------\n"
     "ExchangeError\n"
     "    A stream has another schema (reason \"schema\") or device type\n"
     "    (\"device\"). The message names the index of the stream.\n"
     "ValueError\n"
     "    There are no streams and no schema.\n\n"
     "Examples\n--------\n"
     ">>> ad.concat_streams([[b\"ab\"], [b\"c\", b\"d\"]]).read_all().to_pylist()\n"
     "[97, 98, 99, 100]"},
    {"tensor", AD_METHOD(ad_function_tensor),
     "tensor(obj, /, *, device=None, stream=None, copy=None, "
     "nulls=\"raise\", fill_value=None, order=None, readonly=None)\n--\n\n"
     "A Tensor over the memory of an object that supports an exchange "
     "protocol.\n\n"
     "The protocols are those of array(), but DLPack and those behind it come\n"
     "before Arrow's, unless the object is of a library of columns (pyarrow,\n"
     "polars, pandas, nanoarrow, arro3, DuckDB, cuDF).\n\n"
     "Parameters\n----------\n"
     "obj : object\n"
     "device : Device or str, optional\n"
     "    The device of the result's memory, as in array().\n"
     "stream : int or stream object, optional\n"
     "    The stream on which the caller uses the data.\n"
     "copy : bool, optional\n"
     "    None copies if necessary, False never, True always.\n"
     "nulls : {\"raise\", \"ignore\", \"fill\"}\n"
     "    A tensor has no nulls. \"raise\" refuses data with nulls, \"ignore\"\n"
     "    drops the mask, \"fill\" copies and puts fill_value in their place.\n"
     "fill_value : number, optional\n"
     "    Required with nulls=\"fill\".\n"
     "order : {\"C\", \"F\"}, optional\n"
     "    Contiguous memory in this order, by a copy if necessary.\n"
     "readonly : bool, optional\n"
     "    False clears the read-only flag, True sets it, None keeps it.\n\n"
     "Returns\n-------\nTensor\n\n"
     "Raises\n------\n"
     "TypeError, ExchangeError, InvalidArrowError\n    As array().\n\n"
     "Examples\n--------\n"
     ">>> ad.tensor(memoryview(bytes(range(6))).cast(\"B\", (2, 3)))\n"
     "<arrowdev.Tensor uint8 (2, 3) on cpu, read-only:\n"
     "  [[0, 1, 2],\n"
     "   [3, 4, 5]]>"},
    {"from_dlpack", AD_METHOD(ad_function_from_dlpack),
     "from_dlpack(x, /, *, device=None, copy=None)\n--\n\n"
     "A Tensor from an object with __dlpack__; no other protocol is tried.\n\n"
     "DLPack has no masks: a NumPy masked array with masked elements is "
     "refused\n(ExchangeError, reason \"nulls\").\n\n"
     "Source: Python array API standard, from_dlpack.\n\n"
     "Returns\n-------\nTensor\n\n"
     "Examples\n--------\n"
     ">>> ad.from_dlpack(ad.tensor(b\"abc\")).shape\n"
     "(3,)"},
    {"record_batch", AD_METHOD(ad_function_record_batch),
     "record_batch(columns, /, *, names=None, copy=None)\n--\n\n"
     "A struct Array from columns of one length.\n\n"
     "Contiguous columns of a matrix, as in the order \"F\", share its memory;\n"
     "others are copied, all at once. tensor(batch) is the inverse.\n\n"
     "Parameters\n----------\n"
     "columns : object\n"
     "    A mapping of names to columns, a sequence of columns, a matrix (a\n"
     "    tensor of two dimensions), or an object that is a batch already.\n"
     "names : sequence of str, optional\n"
     "    Required for a matrix, and for a sequence unless its columns have "
     "names:\n    Series of pandas, polars and others like them, and Arrays of "
     "a field.\n"
     "copy : bool, optional\n    As for array().\n\n"
     "Returns\n-------\n"
     "Array\n"
     "    Of a struct type; it has the event of all columns.\n"
     "\n"
     "Raises\n------\n"
     "ValueError\n    The lengths of columns differ, or names do not fit.\n"
     "ExchangeError\n    The devices of columns differ, or a matrix needs a "
     "copy, with\n    copy=False.\n\n"
     "Examples\n--------\n"
     ">>> ad.record_batch({\"a\": b\"xy\", \"b\": bytes(2)})\n"
     "<arrowdev.Array struct<a: uint8, b: uint8>, length 2, on cpu:\n"
     "  'a': [120, 121]\n"
     "  'b': [0, 0]>"},
    {"concat", AD_METHOD(ad_function_concat),
     "concat(arrays, /, *, stream=None)\n--\n\n"
     "The rows of several arrays of one type, one after the other.\n\n"
     "The result is in new memory on the device of the arrays. On the host it\n"
     "is ready. On other devices the work is enqueued after the events of the\n"
     "arrays, and the result has an event; the host waits only to read offsets\n"
     "and run ends, and to check views and dense unions. The data buffers of\n"
     "views are shared. Dictionaries that differ are unified by value, for\n"
     "which arrays on a device are joined on the host and copied back. A\n"
     "single array is returned as it is.\n\n"
     "Types are equal if names, formats and nullability are. The result has "
     "the\nmetadata of the first array.\n\n"
     "Parameters\n----------\n"
     "arrays : sequence\n    Objects that array() accepts, all on one device.\n"
     "stream : int or stream object, optional\n"
     "    The stream on which the work runs.\n\n"
     "Returns\n-------\nArray\n\n"
     "Raises\n------\n"
     "ValueError\n    There are no arrays.\n"
     "ExchangeError\n    Types or devices differ; offsets, indices or run ends "
     "exceed their\n    type; there is no runtime.\n"
     "InvalidArrowError\n    Offsets, run ends, type ids or views are "
     "invalid.\n\n"
     "Examples\n--------\n"
     ">>> ad.concat([b\"ab\", b\"c\"]).to_pylist()\n"
     "[97, 98, 99]"},
    {"schema", function_schema, METH_O,
     "schema(obj, /)\n--\n\n"
     "A Schema from a name, a format string, an object with a schema, or named\n"
     "types.\n\n"
     "A name is what str() of a Schema writes, such as \"timestamp[us, UTC]\",\n"
     "\"list<int32>\" or \"struct<a: int32 not null, b: utf8>\". An object has\n"
     "__arrow_c_schema__. Named types are a mapping, or a list of pairs and of\n"
     "named objects with __arrow_c_schema__. They make the schema of a record\n"
     "batch, which is not nullable.\n"
     "Names of extension types, and names of fields with a comma, colon, angle\n"
     "bracket or a blank at an end, are read by none of the names of types.\n\n"
     "Raises TypeError, ValueError for unknown names, InvalidArrowError.\n\n"
     "Returns\n-------\nSchema\n\n"
     "Examples\n--------\n"
     ">>> ad.schema(\"timestamp[us, UTC]\").format\n"
     "'tsu:UTC'\n"
     ">>> str(ad.schema({\"a\": \"int64\", \"b\": \"list<utf8>\"}))\n"
     "'struct<a: int64, b: list<item: string>>'\n"
     ">>> ad.schema(\"list<timestamp[us, UTC]>\").value_type.unit\n"
     "'us'"},
    {"_extension", function_extension, METH_O,
     "(element type, shape of a row, strides of a row) of an extension type, "
     "each\nNone if the type does not say it. For to_pylist().\n\n"
     "Raises InvalidArrowError for invalid metadata."},
    {"_require_host", function_require_host, METH_VARARGS,
     "_require_host($module, x, what, /)\n--\n\n"
     "Raise ExchangeError unless the host can read the memory of an Array or\n"
     "Tensor, once it has waited. The message begins with `what`."},
    {"_has_bool8", function_has_bool8, METH_O,
     "Whether an Array has bools of one byte, at any depth. For _given.py."},
    {"device", ad_function_device, METH_O,
     "device(spec, /)\n--\n\n"
     "A Device from \"cuda:0\", \"cpu\", (type, id), or a Device.\n\n"
     "Returns\n-------\nDevice\n\n"
     "Examples\n--------\n"
     ">>> ad.device(\"cuda:1\").type\n"
     "<DeviceType.CUDA: 2>"},
    {"devices", ad_function_devices, METH_NOARGS,
     "devices()\n--\n\n"
     "A list of the devices that can be used: the host, and those whose "
     "runtime\ncan be loaded. `python -m arrowdev doctor` tells why one is "
     "missing.\n\n"
     "This starts the runtimes. Children that are forked afterwards have no\n"
     "CUDA, in any library.\n\n"
     "Returns\n-------\nlist of Device\n\n"
     "Examples\n--------\n"
     ">>> ad.devices()[0]\n"
     "arrowdev.device(\"cpu\")"},
    {"register_backend", ad_function_register_backend, METH_O,
     "register_backend(capsule, /)\n--\n\n"
     "Register the runtime of a device type that arrowdev does not know: a\n"
     "capsule \"arrowdev_backend\", as ArrowDev_BackendCapsule() of arrowdev.h\n"
     "makes it. Once for a type, and before memory of it is used. Installed\n"
     "packages have entry points of the group \"arrowdev.backends\" instead.\n\n"
     "Parameters\n----------\n"
     "capsule : capsule\n"
     "    The table of the functions, and the number of the type.\n\n"
     "Returns\n-------\nNone\n\n"
     "Raises\n------\n"
     "TypeError\n"
     "    Not such a capsule.\n"
     "ValueError\n"
     "    A table that this version cannot use, or a type beyond 32 bits.\n"
     "    That the functions are valid cannot be checked.\n"
     "ExchangeError\n"
     "    The type has a backend, or there is no such type.\n\n"
     "Examples\n--------\n"
     ">>> ad.register_backend(\"vulkan\")\n"
     "Traceback (most recent call last):\n"
     "    ...\n"
     "TypeError: capsule must be a capsule \"arrowdev_backend\", as "
     "ArrowDev_BackendCapsule() makes it, not str"},
    {"_offer_backend", ad_function_offer_backend, METH_VARARGS,
     "_offer_backend(capsule, device_type, /)\n--\n\n"
     "register_backend() for this type; the same table may come again. For\n"
     "_backends.py and testing/_software.py."},
    {"_warn_if_readonly", AD_METHOD(ad_function_warn_if_readonly),
     "_warn_if_readonly(tensor, result, /)\n--\n\n"
     "Warn that `result` is writable although the memory of `tensor` was\n"
     "flagged as read-only. For _libraries.py and _open_targets.py."},
    {"_copied", ad_function_copied, METH_VARARGS,
     "_copied(value, why, stream, /)\n--\n\n"
     "A copy of an Array or a Tensor on its device, with its reason for the\n"
     "logger. For _given.py, _libraries.py and dask.py."},
    {"_log", ad_function_log, METH_O,
     "_log(text, /)\n--\n\nWrite a message of the logger, if it is on."},
    {"_first_children", function_first_children, METH_VARARGS,
     "_first_children(parent, n, /)\n--\n\n"
     "The first n children of an Array or a Schema, and the number of all.\n"
     "The others are not made. For _repr.py."},
    {"_shown", ad_function_shown, METH_VARARGS,
     "_shown(text, keeps_lines=False, /)\n--\n\n"
     "The text with escapes in place of characters that are not printable."},
    {"_log_turn", ad_function_log_turn, METH_O,
     "_log_turn(is_on, /)\n--\n\nTurn messages on or off, or (None) ask "
     "each time. For _log.py."},
    {"_trace_start", ad_function_trace_start, METH_VARARGS,
     "_trace_start(capacity, folders, /)\n--\n\nTurn a trace on. For "
     "_trace.py."},
    {"_trace_stop", ad_function_trace_stop, METH_NOARGS,
     "_trace_stop()\n--\n\nTurn it off. The events, and the numbers of those "
     "that were dropped, and lost for want of memory."},
    {"_runtimes", ad_function_runtimes, METH_NOARGS,
     "(name, device type, error or None, description, devices, what is "
     "current)\nof each runtime, with (id, error or None) of each device. For "
     "the doctor."},
    {"use_stream", AD_METHOD(ad_function_use_stream),
     "use_stream(stream, device=None)\n--\n\n"
     "Make a stream the current one of its device, inside `with`.\n\n"
     "The current stream is the default of every stream= argument, and the\n"
     "stream that arrowdev's DLPack exchange API reports. It is in a context\n"
     "variable: it holds on this thread, or in this asyncio task and the tasks\n"
     "that it creates. Blocks of one device must nest; leaving them in another\n"
     "order raises RuntimeError.\n\n"
     "Parameters\n----------\n"
     "stream : int or stream object\n"
     "    An int has its meaning in DLPack.\n"
     "device : Device, str or (type, id), optional\n"
     "    Required for ints and default streams, which have no device.\n\n"
     "Returns\n-------\n"
     "context manager\n"
     "    Its attribute `device` is the Device.\n"
     "\n"
     "Raises\n------\n"
     "TypeError\n    The object is not a stream.\n"
     "ValueError\n    A number has no device, or no meaning on the device.\n"
     "ExchangeError\n    The stream is of another device.\n"
     "DeviceError\n    The runtime does not know the stream.\n\n"
     "Examples\n--------\n"
     ">>> from arrowdev.testing import software_device\n"
     ">>> with software_device() as device:\n"
     "...     with ad.use_stream(device.queue()) as scope:\n"
     "...         print(scope.device)\n"
     "ext_dev:0"},
    {"convert", AD_METHOD(ad_function_convert),
     "convert(obj, cls, *, device=None, stream=None, copy=None, "
     "nulls=\"raise\", fill_value=None)\n--\n\n"
     "An instance of another library's class over the memory of `obj`:\n"
     "convert(df[\"x\"], torch.Tensor).\n\n"
     "The parameters have their meaning in tensor(). Classes of Arrow data\n"
     "keep nulls unless nulls= says otherwise.\n\n"
     "Classes that arrowdev does not know are made by what was registered\n"
     "(register_target()), and by the conventions of the field.\n\n"
     "Raises TypeError for a class of which there is no way to make an\n"
     "instance, and the exceptions of array().\n\n"
     "Returns\n-------\nAn instance of `cls`.\n\n"
     "Examples\n--------\n"
     ">>> ad.convert(b\"abc\", memoryview).tolist()\n"
     "[97, 98, 99]"},
    {"validate", AD_METHOD(call_function_validate),
     "validate(obj, level=\"structure\")\n--\n\n"
     "Check the export of `obj`; see Array.validate().\n\n"
     "Returns\n-------\n"
     "tuple of str\n"
     "    Notes on what is unusual but valid.\n\n"
     "Examples\n--------\n"
     ">>> ad.validate(b\"abc\", \"full\")\n"
     "()"},
    {"protocols", AD_METHOD(call_function_protocols),
     "protocols(obj, probe=False)\n--\n\n"
     "A tuple of the names of the protocols that an object offers, in the "
     "order\nof array(). They are looked up only; probe=True also calls them, "
     "except\nstreams, and leaves out those that fail.\n\n"
     "Returns\n-------\ntuple of str\n\n"
     "Examples\n--------\n"
     ">>> ad.protocols(b\"abc\")\n"
     "('buffer protocol',)"},
    {"_parts", ad_function_parts, METH_O,
     "What _pickle.py pickles of an Array, Tensor or Buffer in host memory."},
    {"_array_of_parts", ad_function_array_of_parts, METH_VARARGS, NULL},
    {"_tensor_of_parts", ad_function_tensor_of_parts, METH_VARARGS, NULL},
    {"_schema_parts", ad_function_schema_parts, METH_O,
     "What _pickle.py pickles of a Schema."},
    {"_schema_of_parts", ad_function_schema_of_parts, METH_O, NULL},
    {"_copy_to_file", ad_function_copy_to_file, METH_O,
     "A Buffer over a new memory file with the bytes of Buffers, each at the\n"
     "next multiple of 64 bytes. For _share.py, like those below."},
    {"_find_file", ad_function_find_file, METH_O,
     "Where a Buffer lies in a memory file: (address of the file's memory,\n"
     "offset, size of the file, is it writable); None: in no memory file."},
    {"_receive", ad_function_receive, METH_O, NULL},
    {"_take_file", ad_function_take_file, METH_VARARGS, NULL},
    {"_map_file", ad_function_map_file, METH_VARARGS, NULL},
    {"_buffers_in_files", ad_function_buffers_in_files, METH_VARARGS, NULL},
    {"_export_memory", ad_function_export_memory, METH_O, NULL},
    {"_export_event", ad_function_export_event, METH_O, NULL},
    {"_device_uuid", ad_function_device_uuid, METH_O, NULL},
    {"_device_of_uuid", ad_function_device_of_uuid, METH_VARARGS, NULL},
    {"_open_event", ad_function_open_event, METH_VARARGS, NULL},
    {"_open_memory", ad_function_open_memory, METH_VARARGS, NULL},
    {"_is_readonly", ad_function_is_readonly, METH_O, NULL},
    {"_view_buffer", ad_function_view_buffer, METH_VARARGS, NULL},
    {"_publish", ad_function_publish, METH_VARARGS, NULL},
    {"_published_object", ad_function_published_object, METH_O, NULL},
    {"_unpublish", ad_function_unpublish, METH_O, "Let nobody else attach."},
    {"_published_state", ad_function_published_state, METH_O,
     "(can others attach, number of open connections)"},
    {"_async_consumer", ad_function_async_consumer, METH_VARARGS, NULL},
    {"_async_producer", ad_function_async_producer, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
