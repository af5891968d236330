/* ad.Tensor, a strided N-d block on a device, and ad.Buffer, a contiguous
 * region of memory that exchanges as 1-D uint8. */
#include "support/objects.h"

#include <inttypes.h>
#include <string.h>
#include <structmember.h>

#include "order/device_owner.h"
#include "device/backend.h"
#include "protocol/protocol.h"
#include "python/types/types.h"
#include "support/args.h"
#include "support/errors.h"
#include "support/py_call.h"
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

/* The memory of an owner that is an Array, Tensor or Buffer on `device`, or
 * NULL. */
static const ad_memory *
memory_of_owner(ad_state *state, PyObject *object, ad_device device)
{
    const ad_memory *memory = NULL;
    if (object != NULL &&
        (ad_is_array(state, object) || ad_is_tensor(state, object))) {
        memory = ad_memory_of(object);
    }
    return memory != NULL && ad_device_equal(memory->device, device) ? memory
                                                                     : NULL;
}

/* The owner of memory that `object` keeps. Memory of arrowdev's own objects is
 * released in an order of its own, and not in that of the stream. */
static ad_status
make_owner(PyObject *object, const ad_memory *known,
           const ad_stream_ref *producer, ad_memory *out, ad_error *err)
{
    if (known != NULL) {
        out->owner = ad_owner_ref(known->owner);
        return ad_stream_is_given(producer)
                   ? ad_owner_record_stream(out->owner, producer, err)
                   : AD_OK;
    }
    out->owner = ad_py_owner_new(object);
    if (out->owner == NULL) {
        PyErr_Clear();
        return ad_fail_memory(err, sizeof(ad_owner));
    }
    return ad_device_owner_new(out->owner, (ad_context){out->device, NULL},
                               producer, &out->owner, err);
}

/* Attach the owner of the memory, and the work that may be pending on the
 * stream. */
static int
attach_owner(ad_state *state, PyObject *object, PyObject *stream,
             ad_tensor *tensor)
{
    ad_memory *memory = &tensor->memory;
    const ad_memory *known = memory_of_owner(state, object, memory->device);
    ad_stream_ref producer;
    bool no_sync;
    ad_error err;
    if (ad_read_stream(state, stream, memory->device, &no_sync, &producer) <
        0) {
        return -1;
    }
    if (ad_is_none(stream) && known != NULL) {
        memory->sync = ad_sync_ref(known->sync);
    }
    ad_status status = check_pointer(tensor, &err);
    if (status == AD_OK && ad_stream_is_given(&producer) &&
        memory->device.type != ARROW_DEVICE_CPU) {
        status = ad_sync_pending(&producer, &memory->sync, &err);
    }
    if (status == AD_OK && !ad_is_none(object)) {
        status = make_owner(object, known, &producer, memory, &err);
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

/* --- views: tensor[...], which is NumPy's basic indexing, and permute() ---- */

/* The dimensions of the view, while the key is read. */
typedef struct view {
    const ad_tensor *tensor;
    int32_t next;  /* the first dimension of the tensor that is not read yet */
    int32_t ndim;  /* of the view */
    int64_t first; /* its first element, from that of the tensor */
    bool is_empty;
    int64_t shape[AD_MAX_NDIM];
    int64_t strides[AD_MAX_NDIM];
} view;

static int
add_dimension(view *self, int64_t extent, int64_t stride)
{
    if (self->ndim == AD_MAX_NDIM) {
        PyErr_Format(PyExc_IndexError,
                     "the result has more than the %d dimensions that are "
                     "supported",
                     AD_MAX_NDIM);
        return -1;
    }
    self->shape[self->ndim] = extent;
    self->strides[self->ndim++] = stride;
    self->is_empty |= extent == 0;
    return 0;
}

/* All of the next `n` dimensions. */
static int
add_whole(view *self, int32_t n)
{
    for (; n > 0; n--, self->next++) {
        if (add_dimension(self, self->tensor->shape[self->next],
                          self->tensor->strides[self->next]) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
add_slice(view *self, PyObject *slice)
{
    int64_t extent = self->tensor->shape[self->next];
    int64_t stride = self->tensor->strides[self->next++];
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
        return -1;
    }
    Py_ssize_t n =
        PySlice_AdjustIndices((Py_ssize_t)extent, &start, &stop, step);
    if (n > 0) { /* so start is an element, whose address does not overflow */
        self->first += start * stride;
    }
    /* The step of one element may be any number. */
    return add_dimension(self, n, n > 1 ? stride * step : 1);
}

static int
take_index(view *self, PyObject *index)
{
    int32_t dimension = self->next++;
    int64_t extent = self->tensor->shape[dimension];
    Py_ssize_t i = PyNumber_AsSsize_t(index, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (i < -extent || i >= extent) {
        char elements[AD_COUNT_SIZE];
        PyErr_Format(PyExc_IndexError,
                     "index %zd is out of range for dimension %d, which has "
                     "%s",
                     i, (int)dimension,
                     ad_count_text(extent, "element", "elements", elements));
        return -1;
    }
    self->first += (i < 0 ? i + extent : i) * self->tensor->strides[dimension];
    return 0;
}

/* bool is an int, but NumPy takes it for a mask. */
static bool
is_index(PyObject *item)
{
    return PyIndex_Check(item) && !PyBool_Check(item);
}

/* How many dimensions the items index. Returns -1 with an exception. */
static int32_t
count_indexed(PyObject *const *items, Py_ssize_t n, int32_t ndim)
{
    Py_ssize_t n_indexed = 0, n_ellipses = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (PySlice_Check(items[i]) || is_index(items[i])) {
            n_indexed++;
        } else if (items[i] == Py_Ellipsis) {
            n_ellipses++;
        } else if (items[i] != Py_None) {
            PyErr_Format(PyExc_TypeError,
                         "a Tensor is indexed by ints, slices, ... and None, "
                         "not %.200s; masks and lists make a copy, which the "
                         "library of the data can do",
                         Py_TYPE(items[i])->tp_name);
            return -1;
        }
    }
    if (n_ellipses > 1) {
        PyErr_SetString(PyExc_IndexError,
                        "an index has at most one ellipsis (...)");
        return -1;
    }
    if (n_indexed > ndim) {
        PyErr_Format(PyExc_IndexError,
                     "%zd dimensions are indexed, but the Tensor has %d",
                     n_indexed, (int)ndim);
        return -1;
    }
    return (int32_t)n_indexed;
}

static int
read_key(view *self, PyObject *const *items, Py_ssize_t n)
{
    int32_t ndim = self->tensor->ndim;
    int32_t n_indexed = count_indexed(items, n, ndim);
    int result = n_indexed < 0 ? -1 : 0;
    for (Py_ssize_t i = 0; i < n && result == 0; i++) {
        if (items[i] == Py_None) {
            result = add_dimension(self, 1, 1);
        } else if (items[i] == Py_Ellipsis) {
            result = add_whole(self, ndim - n_indexed);
        } else if (PySlice_Check(items[i])) {
            result = add_slice(self, items[i]);
        } else {
            result = take_index(self, items[i]);
        }
    }
    return result == 0 ? add_whole(self, ndim - self->next) : -1;
}

/* The bytes from the first element of the tensor to that of the view. */
static ad_status
offset_of(const view *self, int64_t *out, ad_error *err)
{
    const ad_tensor *tensor = self->tensor;
    int64_t bits = ad_element_bits(tensor->dtype, tensor->flags);
    int64_t first = self->is_empty ? 0 : self->first;
    if (first % 8 * bits % 8 != 0) {
        char name[AD_DTYPE_NAME_SIZE];
        return ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                       "begin at an element that begins at a byte",
                       "element %" PRId64 " of %s is within a byte, where no "
                       "tensor can begin",
                       first, ad_dtype_format(tensor->dtype, name));
    }
    *out = first / 8 * bits + first % 8 * bits / 8;
    return AD_OK;
}

static ad_status
make_view(const view *self, ad_tensor_value *out, ad_error *err)
{
    const ad_tensor *tensor = self->tensor;
    int64_t offset = 0;
    AD_RETURN_IF_ERR(offset_of(self, &offset, err));
    bool is_handle = ad_device_uses_handles(tensor->memory.device.type);
    const ad_tensor_descriptor descriptor = {
        .data = is_handle
                    ? tensor->data
                    : (void *)((uintptr_t)tensor->data + (uintptr_t)offset),
        .byte_offset =
            tensor->byte_offset + (is_handle ? (uint64_t)offset : 0),
        .dtype = tensor->dtype,
        .ndim = self->ndim,
        .flags = tensor->flags,
        .memory = tensor->memory,
        .shape = self->shape,
        .strides = self->strides,
    };
    AD_RETURN_IF_ERR(ad_tensor_check(&descriptor, "the view", out, err));
    ad_memory_ref(&out->tensor.memory);
    return AD_OK;
}

static PyObject *
view_object(ad_state *state, const view *self)
{
    ad_tensor_value value;
    ad_error err;
    return make_view(self, &value, &err) == AD_OK
               ? ad_tensor_object_new(state, &value.tensor)
               : ad_raise(state, &err);
}

/* The view tensor[key]: 0-d where every dimension has an int. IndexError,
 * TypeError, or ExchangeError for a view that begins within a byte. */
static PyObject *
tensor_subscript(PyObject *self, PyObject *key)
{
    view of = {.tensor = ad_tensor_of(self)};
    bool is_tuple = PyTuple_Check(key);
    PyObject *const *items = is_tuple ? ((PyTupleObject *)key)->ob_item : &key;
    if (read_key(&of, items, is_tuple ? PyTuple_GET_SIZE(key) : 1) < 0) {
        return NULL;
    }
    return view_object(ad_state_of(self), &of);
}

/* --- permute() ----------------------------------------------------------- */

/* Adds the dimensions in the order of the axes. False unless each is there
 * once. */
static bool
add_permuted(view *self, const int64_t *axes, int n)
{
    const ad_tensor *tensor = self->tensor;
    uint64_t taken = 0; /* a bit for each dimension */
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + tensor->ndim : axes[i];
        if (axis < 0 || axis >= tensor->ndim ||
            (taken & (uint64_t)1 << axis) != 0) {
            return false;
        }
        taken |= (uint64_t)1 << axis;
        (void)add_dimension(self, tensor->shape[axis], tensor->strides[axis]);
    }
    return n == tensor->ndim;
}

/* permute(*axes), which may be one sequence: dimension i of the view is
 * dimension axes[i] of the tensor; the reverse order without axes. */
static PyObject *
tensor_permute(PyObject *self, PyObject *args)
{
    view of = {.tensor = ad_tensor_of(self)};
    int64_t axes[AD_MAX_NDIM];
    int n = of.tensor->ndim;
    if (PyTuple_GET_SIZE(args) == 1 &&
        !PyIndex_Check(PyTuple_GET_ITEM(args, 0))) {
        args = PyTuple_GET_ITEM(args, 0);
    } else if (PyTuple_GET_SIZE(args) == 0) {
        args = NULL;
        for (int i = 0; i < n; i++) {
            axes[i] = n - 1 - i;
        }
    }
    if (args != NULL && (n = ad_parse_dims(args, "axes", axes)) < 0) {
        return NULL;
    }
    if (add_permuted(&of, axes, n)) {
        return view_object(ad_state_of(self), &of);
    }
    PyErr_Format(PyExc_ValueError,
                 "permute() takes each of the %d axes once, found %R",
                 (int)of.tensor->ndim, args);
    return NULL;
}

/* --- iteration ----------------------------------------------------------- */

/* The views tensor[0], tensor[1], ... */
static PyObject *
tensor_iterate(PyObject *self)
{
    if (ad_tensor_of(self)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d Tensor");
        return NULL;
    }
    PyObject *args[] = {self};
    return ad_call_helper("_pylist", "iterate_tensor", args, 1);
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
    {"permute", tensor_permute, METH_VARARGS,
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
    {Py_mp_subscript, tensor_subscript},
    {Py_sq_contains, tensor_contains},
    {Py_tp_iter, tensor_iterate},
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
