/* .into(cls) and arrowdev.convert(): conversion to another library's class. */
#include "protocol/dlpack_tensor.h"
#include "python/functions/functions.h"
#include "python/types/array_stream_type.h"
#include "support/py_call.h"

/* Warns where `result` lets its users write memory that its producer flagged
 * as read-only. Memory that is immutable only by Arrow's convention gets no
 * warning: that would be every column. `level` is the number of Python frames
 * up to the caller's. Returns 0, or -1 with the warning as an exception. */
static int
warn_if_readonly(const ad_tensor *tensor, PyObject *result, int level)
{
    if (!tensor->memory.readonly) {
        return 0;
    }
    return PyErr_WarnFormat(
        PyExc_UserWarning, level,
        "the producer flagged the memory as read-only, and %R can write it; "
        "take a copy with copy=True, or say that writing is fine with "
        "arrowdev.tensor(x, readonly=False)",
        (PyObject *)Py_TYPE(result));
}

PyObject *
ad_function_warn_if_readonly(PyObject *module, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *Py_UNUSED(kwnames))
{
    ad_state *state = ad_state_of_module(module);
    if (n_args != 2 || !ad_is_tensor(state, args[0])) {
        PyErr_SetString(PyExc_TypeError, "expected a Tensor and an object");
        return NULL;
    }
    /* The caller's frame is above convert(), a constructor and its check. */
    return warn_if_readonly(ad_tensor_of(args[0]), args[1], 4) == 0
               ? Py_NewRef(Py_None)
               : NULL;
}

/* The object as a tensor for a library that uses its own current stream; the
 * caller uses the stream of the request. For an Array that is ready in host
 * memory there is nothing to order and nothing to move. */
static int
tensor_for_library(ad_state *state, PyObject *self, const ad_request *request,
                   ad_imported *out)
{
    /* torch's exchange API aborts the process on a negative stride, which no
     * Array has. */
    ad_tensor_options options = {.no_negative_strides = true};
    ad_error err;
    if (ad_is_array(state, self) && request->copy == AD_COPY_IF_NEEDED &&
        request->stream.kind == AD_STREAM_ABSENT &&
        ad_is_plain(&ad_array_of(self)->memory)) {
        ad_status status = ad_tensor_from_array(
            ad_array_of(self), &options.bridge, &out->tensor, &err);
        return ad_raise_status(state, status, &err);
    }
    return ad_import_tensor(state, self, request, AD_ALL_PROTOCOLS, &options,
                            out);
}

static PyObject *
convert_by_exchange_api(ad_state *state, PyObject *self, PyObject *cls,
                        const ad_type_slot *slot,
                        const ad_stream_argument *stream, int copy)
{
    const ad_request request = {.copy = (ad_copy)copy, .stream = *stream};
    ad_imported imported;
    if (tensor_for_library(state, self, &request, &imported) < 0) {
        return NULL;
    }
    PyObject *result =
        ad_dlpack_exchange_into(state, slot, &imported.tensor.tensor,
                                stream->kind != AD_STREAM_ABSENT);
    if (result != NULL && PyObject_TypeCheck(result, (PyTypeObject *)cls) &&
        warn_if_readonly(&imported.tensor.tensor, result, 1) < 0) {
        Py_CLEAR(result);
    }
    ad_tensor_clear(&imported.tensor.tensor);
    return result;
}

/* A function of arrowdev._convert; borrowed. */
static PyObject *
find_once(PyObject **member, const char *function)
{
    PyObject *helper = ad_py_once(member);
    if (helper == NULL) {
        helper = ad_find_helper("_convert", function);
        helper = helper != NULL ? ad_py_set_once(member, helper) : NULL;
    }
    return helper;
}

/* The arguments of a helper; borrowed. */
static PyObject *
stream_object(const ad_stream_argument *stream)
{
    return stream->value != NULL ? stream->value : Py_None;
}

static PyObject *
copy_object(int copy)
{
    return copy == AD_COPY_IF_NEEDED ? Py_None
           : copy == AD_COPY_NEVER   ? Py_False
                                     : Py_True;
}

PyObject *
ad_convert_into(ad_state *state, PyObject *self, PyObject *cls,
                const ad_stream_argument *stream, int copy)
{
    if (!PyType_Check(cls)) {
        bool is_data = !PyUnicode_Check(cls) && !PyModule_Check(cls) &&
                       !PyCallable_Check(cls) && !ad_is_none(cls);
        PyErr_Format(PyExc_TypeError,
                     "the target must be a class such as torch.Tensor, not "
                     "%s%.200s; %s",
                     is_data ? "an instance of " : "", Py_TYPE(cls)->tp_name,
                     is_data ? "pass its class, as type(x)"
                             : "import the class, and pass it itself");
        return NULL;
    }
    ad_type_slot slot;
    ad_type_slot_get(state, (PyTypeObject *)cls, &slot);
    /* Our own table would want a current stream of the device. */
    if (slot.exchange_api != NULL && cls != state->tensor_type) {
        PyObject *made =
            convert_by_exchange_api(state, self, cls, &slot, stream, copy);
        if (made == NULL || PyObject_TypeCheck(made, (PyTypeObject *)cls)) {
            return made;
        }
        Py_DECREF(made); /* the class has the table of another one */
    }
    PyObject *helper = find_once(&state->convert_helper, "convert");
    if (helper == NULL) {
        return NULL;
    }
    PyObject *args[] = {self, cls, stream_object(stream), copy_object(copy)};
    return PyObject_Vectorcall(helper, args, 4, NULL);
}

/* Whether an object of this type may be a column as well as a tensor. */
static bool
has_two_kinds(const ad_type_slot *slot)
{
    return slot->has_numpy_block ||
           (!slot->is_column && ((slot->offers & AD_ARROW_PROTOCOLS) != 0 ||
                                 slot->may_have_dict || slot->has_own_lookup));
}

/* Whether it is a stream of arrays, and no array. */
static bool
is_stream(const ad_type_slot *slot)
{
    const uint32_t arrays =
        AD_PROTOCOL_BIT(arrow_device_array) | AD_PROTOCOL_BIT(arrow_array);
    const uint32_t streams =
        AD_PROTOCOL_BIT(arrow_device_stream) | AD_PROTOCOL_BIT(arrow_stream);
    return (slot->offers & arrays) == 0 && (slot->offers & streams) != 0;
}

/* What the class wants, where that matters for the object. */
typedef enum wanted {
    WANTS_ANY = 0,
    WANTS_TENSOR,
    WANTS_STREAM
} wanted;

/* Returns 0, or -1 with an exception. */
static int
find_kind(ad_state *state, PyObject *object, PyObject *cls, wanted *out)
{
    ad_type_slot slot;
    *out = cls == state->tensor_type ? WANTS_TENSOR : WANTS_ANY;
    if (*out == WANTS_TENSOR || !PyType_Check(cls) ||
        ad_is_array(state, object) || ad_is_tensor(state, object)) {
        return 0;
    }
    ad_type_slot_get(state, Py_TYPE(object), &slot);
    const bool may_be_stream = is_stream(&slot);
    if (!may_be_stream && !has_two_kinds(&slot)) {
        return 0;
    }
    ad_type_slot_get(state, (PyTypeObject *)cls, &slot);
    if (slot.exchange_api != NULL) {
        *out = WANTS_TENSOR;
        return 0;
    }
    PyObject *helper = find_once(&state->kind_of_helper, "kind_of");
    PyObject *kind = helper != NULL ? PyObject_CallOneArg(helper, cls) : NULL;
    if (kind == NULL) {
        return -1;
    }
    if (PyUnicode_CompareWithASCIIString(kind, "tensor") == 0) {
        *out = WANTS_TENSOR;
    } else if (may_be_stream &&
               PyUnicode_CompareWithASCIIString(kind, "stream") == 0) {
        *out = WANTS_STREAM;
    }
    Py_DECREF(kind);
    return 0;
}

/* Imports the object of convert() as an Array or a Tensor: as a Tensor if
 * nulls= says what becomes of nulls. *copy is what is still to be done. */
static PyObject *
import_for_convert(ad_state *state, PyObject *object,
                   const ad_request *request, ad_tensor_options *options,
                   ad_copy *copy)
{
    ad_imported imported;
    *copy = request->copy;
    if (options->bridge.nulls != AD_NULLS_RAISE) {
        /* It copies as far as it is asked to. */
        *copy = *copy == AD_COPY_ALWAYS ? AD_COPY_IF_NEEDED : *copy;
        return ad_import_tensor(state, object, request, AD_ALL_PROTOCOLS,
                                options, &imported) == 0
                   ? ad_tensor_object_new(state, &imported.tensor.tensor)
                   : NULL;
    }
    if (ad_import(state, object, request, AD_ALL_PROTOCOLS, &imported) < 0 ||
        ad_imported_to_device(state, &imported, request, copy) < 0) {
        return NULL;
    }
    if (imported.is_array) {
        return ad_array_object_new(state, &imported.array);
    }
    /* A copy made by the producer satisfies copy=True. */
    if (*copy == AD_COPY_ALWAYS &&
        (imported.tensor.tensor.flags & AD_TENSOR_COPIED)) {
        *copy = AD_COPY_IF_NEEDED;
    }
    return ad_tensor_object_new(state, &imported.tensor.tensor);
}

/* A stream as an instance of a class that takes it as a whole. */
static PyObject *
convert_stream(ad_state *state, PyObject *object, PyObject *cls,
               const ad_request *request)
{
    PyObject *stream = ad_array_stream_from_object(state, object);
    if (stream == NULL) {
        return NULL;
    }
    PyObject *result = ad_array_stream_object_into(
        stream, cls, stream_object(&request->stream),
        copy_object((int)request->copy));
    Py_DECREF(stream);
    return result;
}

PyObject *
ad_convert(ad_state *state, PyObject *object, PyObject *cls,
           const ad_request *request, ad_tensor_options *options)
{
    ad_copy copy;
    ad_request as_wanted = *request;
    wanted kind;
    if (find_kind(state, object, cls, &kind) < 0) {
        return NULL;
    }
    /* A device, or a value for nulls, is asked for of an array. */
    if (kind == WANTS_STREAM && !request->has_device &&
        options->bridge.nulls == AD_NULLS_RAISE) {
        return convert_stream(state, object, cls, request);
    }
    as_wanted.wants_tensor = kind == WANTS_TENSOR;
    PyObject *ours =
        import_for_convert(state, object, &as_wanted, options, &copy);
    if (ours == NULL) {
        return NULL;
    }
    PyObject *result =
        ad_convert_into(state, ours, cls, &request->stream, (int)copy);
    Py_DECREF(ours);
    return result;
}

static const ad_signature convert_signature = {
    .function = "convert()",
    .n_positional = 2,
    .n_required = 2,
    AD_PARAMETER_NAMES(AD_STR_object, AD_STR_cls, AD_STR_device, AD_STR_stream,
                       AD_STR_copy, AD_STR_nulls, AD_STR_fill_value),
};

static PyObject *
function_convert(ad_state *state, PyObject *const *values)
{
    ad_request request;
    ad_tensor_options options = {.readonly = -1};
    if (ad_parse_request(state, values[2], values[3], values[4], &request) <
            0 ||
        ad_parse_nulls(values[5], values[6], &options) < 0) {
        return NULL;
    }
    return ad_convert(state, values[0], values[1], &request, &options);
}

AD_ENTRY(ad_function_convert, ad_state_of_module, convert_signature,
         function_convert(state, values));
