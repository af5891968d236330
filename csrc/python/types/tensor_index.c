/* Views: tensor[...], which is NumPy's basic indexing, and permute(). */
#include "python/types/types.h"

#include <inttypes.h>

#include "python/functions/functions.h"
#include "support/errors.h"
#include "support/py_call.h"
#include "base/text.h"

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

PyObject *
ad_tensor_subscript(PyObject *self, PyObject *key)
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

PyObject *
ad_tensor_permute(PyObject *self, PyObject *args)
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

PyObject *
ad_tensor_iterate(PyObject *self)
{
    if (ad_tensor_of(self)->ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "iteration over a 0-d Tensor");
        return NULL;
    }
    PyObject *args[] = {self};
    return ad_call_helper("_pylist", "iterate_tensor", args, 1);
}
