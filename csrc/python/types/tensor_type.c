/* ad.Tensor, a strided N-d block on a device, and ad.Buffer, a contiguous
 * region of memory that exchanges as 1-D uint8. */
#include "support/objects.h"

#include <string.h>
#include <structmember.h>

#include "order/device_owner.h"
#include "device/backend.h"
#include "protocol/protocol.h"
#include "python/types/types.h"
#include "support/args.h"
#include "python/functions/functions.h"
#include "base/text.h"

static void
tensor_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ad_py_clear_weakrefs(self, &((ad_tensor_object *)self)->weakrefs);
    ad_tensor_clear(ad_tensor_of(self));
    PyObject_Free(self);
    Py_DECREF(type);
}

/* --- attributes ---------------------------------------------------------- */

static PyObject *
get_shape(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_int_tuple(ad_tensor_of(self)->shape, ad_tensor_of(self)->ndim,
                        1);
}

static PyObject *
get_strides(PyObject *self, void *Py_UNUSED(closure))
{
    return ad_int_tuple(ad_tensor_of(self)->strides, ad_tensor_of(self)->ndim,
                        1);
}

static PyObject *
get_dtype(PyObject *self, void *Py_UNUSED(closure))
{
    char name[AD_DTYPE_NAME_SIZE];
    return PyUnicode_FromString(
        ad_dtype_format(ad_tensor_of(self)->dtype, name));
}

static PyObject *
get_ndim(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(ad_tensor_of(self)->ndim);
}

static PyObject *
get_size(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(ad_tensor_size(ad_tensor_of(self)));
}

static PyObject *
get_itemsize(PyObject *self, void *Py_UNUSED(closure))
{
    uint32_t bits = ad_dtype_bits(ad_tensor_of(self)->dtype);
    return PyLong_FromUnsignedLong((bits + 7) / 8);
}

static PyObject *
get_nbytes(PyObject *self, void *Py_UNUSED(closure))
{
    if (ad_tensor_of(self)->flags & AD_TENSOR_SIZE_UNKNOWN) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(ad_tensor_nbytes(ad_tensor_of(self)));
}

static PyObject *
get_readonly(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(ad_tensor_is_readonly(ad_tensor_of(self)));
}

static PyObject *
get_data_ptr(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(ad_tensor_of(self)->data);
}

static PyObject *
tensor_repr(PyObject *self)
{
    const ad_tensor *tensor = ad_tensor_of(self);
    char device[AD_DEVICE_NAME_SIZE];
    char dtype[AD_DTYPE_NAME_SIZE];
    PyObject *shape = get_shape(self, NULL);
    if (shape == NULL) {
        return NULL;
    }
    bool can_show = ad_can_show_tensor(tensor);
    PyObject *result = PyUnicode_FromFormat(
        can_show ? "<arrowdev.Tensor %s %R on %s%s%s"
                 : "<arrowdev.Tensor %s %R on %s%s%s>",
        ad_dtype_format(tensor->dtype, dtype), shape,
        ad_device_format(tensor->memory.device, device),
        ad_tensor_is_readonly(tensor) ? ", read-only" : "",
        ad_readiness(tensor->memory.sync));
    Py_DECREF(shape);
    return can_show ? ad_append_values(result, "of_tensor", self) : result;
}

static PyObject *
buffer_repr(PyObject *self)
{
    const ad_tensor *tensor = ad_tensor_of(self);
    char device[AD_DEVICE_NAME_SIZE];
    ad_device_format(tensor->memory.device, device);
    if (tensor->flags & AD_TENSOR_SIZE_UNKNOWN) {
        return PyUnicode_FromFormat(
            "<arrowdev.Buffer of unknown size on %s%s>", device,
            ad_readiness(tensor->memory.sync));
    }
    char bytes[AD_COUNT_SIZE];
    return PyUnicode_FromFormat(
        "<arrowdev.Buffer %s on %s%s>",
        ad_count_text(tensor->shape[0], "byte", "bytes", bytes), device,
        ad_readiness(tensor->memory.sync));
}

/* A 0-d Tensor is its element. All others are true: `if buffer:` tests for
 * None. */
static int
tensor_bool(PyObject *self)
{
    if (ad_tensor_of(self)->ndim > 0) {
        return 1;
    }
    PyObject *element = ad_scalar(self);
    int is_true = element != NULL ? PyObject_IsTrue(element) : -1;
    Py_XDECREF(element);
    return is_true;
}

/* Each view is a new object, so the default would always be false. */
static int
tensor_contains(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(value))
{
    PyErr_SetString(PyExc_TypeError,
                    "`in` is for an Array: x in arrowdev.array(tensor)");
    return -1;
}

static Py_ssize_t
tensor_length(PyObject *self)
{
    const ad_tensor *tensor = ad_tensor_of(self);
    if (tensor->ndim == 0 || (tensor->flags & AD_TENSOR_SIZE_UNKNOWN)) {
        PyErr_SetString(PyExc_TypeError,
                        tensor->ndim == 0
                            ? "len() of a 0-d Tensor"
                            : "len() of a Buffer of unknown size");
        return -1;
    }
    return (Py_ssize_t)tensor->shape[0];
}

/* --- Tensor.from_pointer ------------------------------------------------- */

static const ad_signature from_pointer_signature = {
    .function = "Tensor.from_pointer()",
    .n_positional = 4,
    .n_required = 4,
    AD_PARAMETER_NAMES(AD_STR_ptr, AD_STR_shape, AD_STR_dtype, AD_STR_device,
                       AD_STR_strides, AD_STR_byte_offset, AD_STR_owner,
                       AD_STR_stream, AD_STR_readonly),
};

int
ad_parse_dims(PyObject *value, const char *name, int64_t *out)
{
    char message[120];
    PyOS_snprintf(message, sizeof(message),
                  "%s must be a sequence of ints, not %.60s", name,
                  Py_TYPE(value)->tp_name);
    PyObject *items = ad_as_tuple(value, message);
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    if (n > AD_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError,
                     "%s has %zd dimensions, at most %d are "
                     "supported",
                     name, n, AD_MAX_NDIM);
        n = -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyOS_snprintf(message, sizeof(message), "%s[%zd]", name, i);
        if (ad_parse_count(PyTuple_GET_ITEM(items, i), message, &out[i]) < 0) {
            n = -1;
        }
    }
    Py_DECREF(items);
    return (int)n;
}

static int
parse_unsigned(PyObject *value, const char *name, uint64_t *out)
{
    PyObject *number = PyNumber_Index(value);
    if (number == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "%s must be an int, not %.200s",
                         name, Py_TYPE(value)->tp_name);
        }
        return -1;
    }
    *out = PyLong_AsUnsignedLongLong(number);
    bool is_outside = *out == (uint64_t)-1 && PyErr_Occurred();
    if (is_outside) {
        PyErr_Format(PyExc_ValueError,
                     "%s must be from 0 to 2**64 - 1, not %S", name, number);
    }
    Py_DECREF(number);
    return is_outside ? -1 : 0;
}

static int
parse_dtype(PyObject *value, ad_dl_dtype *out)
{
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "dtype must be a name such as \"float32\", not %.200s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    const char *name = ad_c_string(value);
    if (name == NULL) {
        return -1;
    }
    if (!ad_dtype_from_name(name, out)) {
        PyErr_Format(PyExc_ValueError, "unknown dtype %R", value);
        return -1;
    }
    return 0;
}

/* Parse the arguments into a descriptor. `dims` receives the shape, then the
 * strides. */
static int
parse_descriptor(ad_state *state, PyObject **values, int64_t *dims,
                 ad_tensor_descriptor *descriptor)
{
    uint64_t address;
    *descriptor = (ad_tensor_descriptor){0};
    if (parse_unsigned(values[0], "ptr", &address) < 0) {
        return -1;
    }
    descriptor->data = (void *)(uintptr_t)address;
    int n_shape = ad_parse_dims(values[1], "shape", dims);
    if (n_shape < 0 || parse_dtype(values[2], &descriptor->dtype) < 0 ||
        ad_parse_device(state, values[3], &descriptor->memory.device) < 0) {
        return -1;
    }
    descriptor->ndim = n_shape;
    descriptor->shape = dims;
    if (!ad_is_none(values[4])) {
        int n_strides =
            ad_parse_dims(values[4], "strides", dims + AD_MAX_NDIM);
        if (n_strides >= 0 && n_strides != n_shape) {
            char entries[AD_COUNT_SIZE];
            PyErr_Format(PyExc_ValueError, "strides has %s, but shape has %d",
                         ad_count_text(n_strides, "entry", "entries", entries),
                         n_shape);
            n_strides = -1;
        }
        if (n_strides < 0) {
            return -1;
        }
        descriptor->strides = dims + AD_MAX_NDIM;
    }
    if (values[5] != NULL && parse_unsigned(values[5], "byte_offset",
                                            &descriptor->byte_offset) < 0) {
        return -1;
    }
    bool readonly = false;
    if (ad_parse_bool(values[8], "readonly", &readonly) < 0) {
        return -1;
    }
    descriptor->memory.readonly = readonly;
    return 0;
}

/* Check that the memory is on the named device, if the device's runtime is
 * available. */
static ad_status
check_pointer(const ad_tensor *tensor, ad_error *err)
{
    const struct ad_backend *backend;
    ad_memory_info info;
    ad_context hint = {tensor->memory.device, NULL};
    char name[AD_DEVICE_NAME_SIZE];
    char said[AD_DEVICE_NAME_SIZE];
    if (tensor->data == NULL ||
        ad_device_equal(tensor->memory.device, AD_CPU) ||
        !ad_backend_is_there(tensor->memory.device.type)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_backend_open(tensor->memory.device.type, &backend, err));
    AD_RETURN_IF_ERR(backend->classify(tensor->data, hint, &info, err));
    if (info.kind == AD_MEMORY_UNREGISTERED ||
        ad_device_equal(info.context.device, tensor->memory.device)) {
        return AD_OK;
    }
    return ad_fail_on(err, info.context.device, "device",
                      "name the device that the memory is on",
                      "from_pointer(): the memory is on %s, not on %s",
                      ad_device_format(info.context.device, name),
                      ad_device_format(tensor->memory.device, said));
}

/* The pending work of an owner that is an Array, Tensor or Buffer on `device`,
 * or NULL. */
static ad_sync *
pending_on_owner(ad_state *state, PyObject *object, ad_device device)
{
    ad_device where = device;
    ad_sync *sync = NULL;
    if (object != NULL && ad_is_array(state, object)) {
        where = ad_array_of(object)->memory.device;
        sync = ad_array_of(object)->memory.sync;
    } else if (object != NULL && ad_is_tensor(state, object)) {
        where = ad_tensor_of(object)->memory.device;
        sync = ad_tensor_of(object)->memory.sync;
    }
    return ad_device_equal(where, device) ? sync : NULL;
}

/* Attach the owner of the memory, and the work that may be pending on the
 * stream. */
static int
attach_owner(ad_state *state, PyObject *object, PyObject *stream,
             ad_tensor *tensor)
{
    ad_context context = {tensor->memory.device, NULL};
    ad_stream_ref producer;
    bool no_sync;
    ad_error err;
    if (ad_read_stream(state, stream, tensor->memory.device, &no_sync,
                       &producer) < 0) {
        return -1;
    }
    if (!ad_is_none(object)) {
        tensor->memory.owner = ad_py_owner_new(object);
    }
    if (ad_is_none(stream)) {
        tensor->memory.sync = ad_sync_ref(
            pending_on_owner(state, object, tensor->memory.device));
    }
    ad_status status = ad_is_none(object) || tensor->memory.owner != NULL
                           ? check_pointer(tensor, &err)
                           : ad_fail_memory(&err, sizeof(ad_owner));
    if (status == AD_OK && ad_stream_is_given(&producer) &&
        tensor->memory.device.type != ARROW_DEVICE_CPU) {
        status = ad_sync_pending(&producer, &tensor->memory.sync, &err);
    }
    if (status == AD_OK && tensor->memory.owner != NULL) {
        status = ad_device_owner_new(tensor->memory.owner, context, &producer,
                                     &tensor->memory.owner, &err);
    }
    ad_stream_ref_clear(&producer);
    return ad_raise_status(state, status, &err);
}

static PyObject *
tensor_from_pointer(PyObject *cls, PyObject *const *args, Py_ssize_t n_args,
                    PyObject *kwnames)
{
    ad_state *state = PyType_GetModuleState((PyTypeObject *)cls);
    PyObject *values[9];
    int64_t dims[2 * AD_MAX_NDIM];
    ad_tensor_descriptor descriptor;
    ad_tensor_value value;
    ad_error err;
    if (ad_parse_args(state, &from_pointer_signature, args, n_args, kwnames,
                      values) < 0 ||
        parse_descriptor(state, values, dims, &descriptor) < 0) {
        return NULL;
    }
    if (ad_tensor_check(&descriptor, "from_pointer()", &value, &err) !=
        AD_OK) {
        return ad_raise(state, &err);
    }
    if (attach_owner(state, values[6], values[7], &value.tensor) < 0) {
        ad_tensor_clear(&value.tensor);
        return NULL;
    }
    return ad_tensor_object_new(state, &value.tensor);
}

/* --- the types ----------------------------------------------------------- */

static PyMethodDef tensor_methods[] = {
    {"from_pointer", AD_METHOD(tensor_from_pointer) | METH_CLASS,
     "from_pointer($type, ptr, shape, dtype, device, *, strides=None, "
     "byte_offset=0, owner=None, stream=None, readonly=False)\n--\n\n"
     "A Tensor over memory at an address.\n\n"
     "Parameters\n----------\n"
     "ptr : int\n    Address, or opaque handle, of the memory on the device.\n"
     "shape : sequence of int\n    In elements.\n"
     "dtype : str\n    Name of the element type, \"float32\".\n"
     "device : Device, str or (type, id)\n"
     "strides : sequence of int, optional\n    In elements. The default is "
     "row-major.\n"
     "byte_offset : int\n    Bytes from ptr to the first element.\n"
     "owner : object, optional\n    Kept alive as long as the memory is used. "
     "Without an owner the memory\n    must outlive every use.\n"
     "stream : int or stream object, optional\n    The stream that produces the "
     "data. By default the data are ready, unless\n    the owner is an Array, "
     "Tensor or Buffer on this device: its event is kept.\n"
     "readonly : bool\n\n"
     "Returns\n-------\nTensor\n\n"
     "Raises\n------\n"
     "ExchangeError\n    An extent is negative, the size overflows, a null "
     "pointer has elements,\n    or the memory is on another device.\n"
     "ValueError, TypeError\n    An argument has a wrong value or type.\n\n"
     "Examples\n--------\n"
     ">>> import array\n"
     ">>> owner = array.array(\"i\", [1, 2, 3])\n"
     ">>> address, length = owner.buffer_info()\n"
     ">>> ad.Tensor.from_pointer(address, (length,), \"int32\", \"cpu\", owner=owner)\n"
     "<arrowdev.Tensor int32 (3,) on cpu: [1, 2, 3]>"},
    {"permute", ad_tensor_permute, METH_VARARGS,
     "permute($self, *axes)\n--\n\n"
     "A view whose dimension i is dimension axes[i] of this Tensor, without a\n"
     "copy, on any device. The axes are ints, or one sequence of them; negative\n"
     "ones count from the last. Without axes the order is reversed: permute()\n"
     "of a matrix is its transpose.\n\n"
     "Raises ValueError unless each axis is there once.\n\n"
     "Returns\n-------\nTensor\n\n"
     "Examples\n--------\n"
     ">>> x = ad.tensor(memoryview(b\"abcdef\").cast(\"B\", (1, 2, 3)))\n"
     ">>> x.permute(2, 0, 1).shape, x[0].permute().tolist()\n"
     "((3, 1, 2), [[97, 100], [98, 101], [99, 102]])"},
    {"tolist", ad_tensor_tolist, METH_NOARGS,
     "tolist($self)\n--\n\n"
     "The elements as Python numbers, in lists as deep as the Tensor has\n"
     "dimensions. Waits for the data.\n\n"
     "Raises ExchangeError if the host cannot read the memory, and\n"
     "NotImplementedError for elements of several lanes or of less than a byte.\n\n"
     "Returns\n-------\nlist; of a 0-d Tensor its element\n\n"
     "Examples\n--------\n"
     ">>> x = ad.tensor(memoryview(b\"abcd\").cast(\"B\", (2, 2)))\n"
     ">>> x.tolist(), x.size\n"
     "([[97, 98], [99, 100]], 4)"},
    {"item", ad_tensor_item, METH_NOARGS,
     "item($self)\n--\n\n"
     "The only element as a Python number. Waits for the data.\n\n"
     "Raises ValueError unless there is one element, and else as tolist().\n\n"
     "Returns\n-------\nbool, int, float or complex\n\n"
     "Examples\n--------\n"
     ">>> ad.tensor(b\"abc\")[1].item()\n"
     "98"},
    {"equals", ad_tensor_equals, METH_O,
     "equals($self, other, /)\n--\n\n"
     "Whether both have the same dtype, shape and elements, in any layout.\n\n"
     "As in Array.equals(), NaN is not equal to NaN, and -0.0 equals 0.0, for\n"
     "floats of 16, 32 and 64 bits, bfloat16 and complex numbers; all else is\n"
     "compared bit by bit. The host waits for the events, and copies to itself\n"
     "what it cannot read.\n\n"
     "Parameters\n----------\n"
     "other : object\n    Anything that arrowdev.tensor() takes.\n\n"
     "Returns\n-------\nbool\n\n"
     "Raises\n------\n"
     "ExchangeError\n    `other` has nulls, the device has no runtime, or a graph "
     "is being\n    captured.\n\n"
     "Examples\n--------\n"
     ">>> ad.tensor(b\"abc\").equals(bytearray(b\"abc\"))\n"
     "True"},
    {NULL, NULL, 0, NULL},
};

#define AD_MEMORY_GETSET                                                      \
    {"nbytes", get_nbytes, NULL, "Size of the elements, in bytes.", NULL},    \
        {"readonly", get_readonly, NULL,                                      \
         "Whether the memory must not be written: the producer says so, or\n" \
         "it is Arrow memory, which is immutable.",                           \
         NULL},                                                               \
    {                                                                         \
        "data_ptr", get_data_ptr, NULL,                                       \
            "Address on the device, or opaque handle; 0 if there are no\n"    \
            "elements.",                                                      \
            NULL                                                              \
    }

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "Extent of each dimension, in elements.", NULL},
    {"strides", get_strides, NULL,
     "Distance between neighbours in each dimension, in elements.", NULL},
    {"dtype", get_dtype, NULL, "Name of the element type, \"float32\".", NULL},
    {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
    {"size", get_size, NULL, "Number of elements.", NULL},
    {"itemsize", get_itemsize, NULL,
     "Size of an element in bytes, rounded up for sub-byte types.", NULL},
    AD_MEMORY_GETSET,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef buffer_getset[] = {
    AD_MEMORY_GETSET,
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ad_tensor_object, weakrefs),
     READONLY, NULL},
    {"byte_offset", T_ULONGLONG,
     offsetof(ad_tensor_object, tensor.byte_offset), READONLY,
     "Bytes from an opaque handle to the first element; 0 for an address,\n"
     "which includes the offset."},
    {NULL, 0, 0, 0, NULL},
};

#define AD_TENSOR_SLOTS                                                       \
    {Py_tp_dealloc, tensor_dealloc}, {Py_tp_members, tensor_members},         \
        {Py_mp_length, tensor_length}, {Py_nb_bool, tensor_bool},             \
        {Py_nb_int, ad_scalar_as_int}, {Py_nb_float, ad_scalar_as_float},     \
        {Py_bf_getbuffer, ad_buffer_get},                                     \
    {                                                                         \
        Py_bf_releasebuffer, ad_buffer_release                                \
    }

static PyType_Slot tensor_slots[] = {
    AD_TENSOR_SLOTS,
    {Py_mp_subscript, ad_tensor_subscript},
    {Py_sq_contains, tensor_contains},
    {Py_tp_iter, ad_tensor_iterate},
    {Py_tp_repr, tensor_repr},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_getset},
    {Py_tp_doc,
     "A strided N-dimensional array on a device. Immutable; created by\n"
     "arrowdev.tensor(), arrowdev.from_dlpack() or Tensor.from_pointer().\n\n"
     "tensor[key] is a view, with ints, slices, ... and None as in NumPy, on any\n"
     "device; an int for every dimension gives a 0-d Tensor, for int(),\n"
     "float() and bool().\n\n"
     "It is exported by DLPack, the array interfaces, the buffer protocol and\n"
     "Arrow; hasattr() tells which of them this tensor supports."},
    {0, NULL},
};

static PyType_Slot buffer_slots[] = {
    AD_TENSOR_SLOTS,
    {Py_tp_repr, buffer_repr},
    {Py_tp_getset, buffer_getset},
    {Py_tp_doc,
     "A contiguous region of device memory: an address, or an opaque handle\n"
     "and an offset. It is exported as a one-dimensional Tensor of uint8."},
    {0, NULL},
};

/* IMMUTABLETYPE is set once the protocols have added their methods. */
PyType_Spec ad_tensor_type_spec = {
    .name = "arrowdev.Tensor",
    .basicsize = sizeof(ad_tensor_object),
    .itemsize = sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_slots,
};

PyType_Spec ad_buffer_type_spec = {
    .name = "arrowdev.Buffer",
    .basicsize = sizeof(ad_tensor_object),
    .itemsize = sizeof(int64_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};
