/* The buffer protocol: host memory, strides in bytes, one code per element.
 *
 * Most NumPy arrays are imported by this protocol, so the import builds no
 * string and allocates nothing but the owner.
 */
#include "protocol/numpy.h"
#include "protocol/protocol.h"
#include "device/backend.h"

#include <string.h>

#include "base/text.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t),
               "dimensions are handed over without a copy");

/* --- import ------------------------------------------------------------- */

/* For an exact ndarray the buffer protocol has the same result as DLPack in
 * two thirds of the time; if it refuses, the usual order follows. */
static bool
probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    if (strcmp(type->tp_name, "numpy.ndarray") == 0 &&
        !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        slot->first = AD_PROTOCOL_buffer;
        ad_ndarray_learn(state, type);
    }
    return type->tp_as_buffer != NULL &&
           type->tp_as_buffer->bf_getbuffer != NULL;
}

/* Pointers to pointers (old PIL images) are not a strided block. */
static ad_status
check_suboffsets(const Py_buffer *view, ad_error *err)
{
    for (int i = 0; i < view->ndim; i++) {
        if (view->suboffsets[i] >= 0) {
            return ad_fail(err, AD_ERR_EXCHANGE, "strides",
                           "make a contiguous copy first",
                           "the buffer has suboffsets (dimension %d), "
                           "expected one strided block",
                           i);
        }
    }
    return AD_OK;
}

/* The stride of a dimension of extent 1, or of a buffer without elements, is
 * never used and may be anything. */
static ad_status
check_remainder(const Py_buffer *view, int i, ad_error *err)
{
    if (view->len == 0 || view->shape[i] == 1) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_EXCHANGE, "strides",
                   "make a contiguous copy first",
                   "the stride of %zd bytes in dimension %d of the buffer is "
                   "no multiple of the itemsize %zd",
                   view->strides[i], i, view->itemsize);
}

static ad_status
read_strides(const Py_buffer *view, int64_t *strides, ad_error *err)
{
    for (int i = 0; i < view->ndim; i++) {
        Py_ssize_t stride = view->strides[i];
        if (stride == view->itemsize) {
            strides[i] = 1; /* a division costs as much as all the rest */
            continue;
        }
        if (stride % view->itemsize != 0) {
            AD_RETURN_IF_ERR(check_remainder(view, i, err));
        }
        strides[i] = stride / view->itemsize;
    }
    return AD_OK;
}

static ad_status
check_dimensions(const Py_buffer *view, ad_error *err)
{
    if (view->ndim < 0 || view->ndim > AD_MAX_NDIM) {
        return ad_fail(err, AD_ERR_EXCHANGE, "ndim", NULL,
                       "the buffer has %d dimensions, expected 0 to %d",
                       view->ndim, AD_MAX_NDIM);
    }
    if (view->ndim > 0 && view->shape == NULL) {
        char dimensions[AD_COUNT_SIZE];
        return ad_fail(
            err, AD_ERR_EXCHANGE, "malformed", NULL,
            "the buffer has %s but no shape",
            ad_count_text(view->ndim, "dimension", "dimensions", dimensions));
    }
    return AD_OK;
}

static ad_status
read_view(const Py_buffer *view, ad_element *element, ad_tensor_value *out,
          ad_error *err)
{
    int64_t strides[AD_MAX_NDIM];
    ad_tensor_descriptor descriptor;
    AD_RETURN_IF_ERR(
        ad_dtype_from_buffer(view->format, view->itemsize, element, err));
    AD_RETURN_IF_ERR(check_dimensions(view, err));
    if (view->suboffsets != NULL) {
        AD_RETURN_IF_ERR(check_suboffsets(view, err));
    }
    if (view->strides != NULL) {
        AD_RETURN_IF_ERR(read_strides(view, strides, err));
    }
    descriptor.dtype = element->dtype;
    descriptor.data = view->buf;
    descriptor.byte_offset = 0;
    descriptor.ndim = view->ndim;
    descriptor.flags = 0;
    descriptor.memory =
        (ad_memory){.device = AD_CPU, .readonly = view->readonly};
    descriptor.shape = (const int64_t *)view->shape;
    descriptor.strides = view->strides != NULL ? strides : NULL;
    return ad_tensor_check(&descriptor, "buffer", out, err);
}

/* Takes over `owner`. */
static ad_import_result
fail_read(ad_state *state, ad_owner *owner, const ad_error *err)
{
    ad_owner_unref(owner); /* may run Python code: raise afterwards */
    ad_raise(state, err);
    return AD_IMPORT_REFUSED;
}

static ad_import_result
import_ndarray(ad_state *state, PyObject *object, const ad_request *request,
               const ad_tensor_descriptor *descriptor, ad_imported *out)
{
    ad_error err;
    ad_owner *owner = ad_py_owner_new(object);
    if (owner == NULL) {
        return AD_IMPORT_FAILED;
    }
    if (ad_tensor_check(descriptor, "buffer", &out->tensor, &err) != AD_OK) {
        return fail_read(state, owner, &err);
    }
    out->is_array = false;
    out->tensor.tensor.memory.owner = owner;
    return ad_finish_tensor(state, request, &out->tensor);
}

static ad_import_result
import_object(const ad_protocol *self, ad_state *state, PyObject *object,
              const ad_type_slot *slot, const ad_request *request,
              ad_imported *out)
{
    const Py_buffer *view;
    int64_t strides[AD_MAX_NDIM];
    ad_tensor_descriptor descriptor;
    ad_element element;
    ad_error err;
    if (ad_is_ndarray(state, object) &&
        ad_ndarray_describe(state, object, &descriptor, strides)) {
        return import_ndarray(state, object, request, &descriptor, out);
    }
    ad_owner *owner = ad_py_owner_of_buffer(object, PyBUF_RECORDS_RO, &view);
    if (owner == NULL) {
        return ad_import_exception(state);
    }
    if (read_view(view, &element, &out->tensor, &err) != AD_OK) {
        return fail_read(state, owner, &err);
    }
    out->is_array = false;
    out->tensor.tensor.memory.owner = owner;
    return ad_finish_elements(state, request, &element, out);
}

/* --- export ------------------------------------------------------------- */

/* Dimensions that are not stored elsewhere, in view->internal. */
typedef struct view_block {
    ad_owner *owner; /* of an Array's tensor; NULL for others */
    Py_ssize_t dims[];
} view_block;

static ad_status
check_memory(const ad_tensor *tensor, ad_error *err)
{
    if (!ad_host_accessible(tensor->memory.device)) {
        char name[AD_DEVICE_NAME_SIZE];
        return ad_fail_on(
            err, tensor->memory.device, "device",
            "bring the data to the host with .to(\"cpu\")",
            "the buffer protocol needs memory that the host can read, "
            "found memory of %s",
            ad_device_format(tensor->memory.device, name));
    }
    if (tensor->memory.sync == NULL) {
        return AD_OK;
    }
    return ad_sync_wait(tensor->memory.sync, "the buffer protocol", err);
}

static ad_status
find_format(const ad_tensor *tensor, const char **out, ad_error *err)
{
    const ad_dtype_info *row = ad_dtype_find(tensor->dtype);
    if (row != NULL && row->buffer[0] != '\0' && tensor->dtype.lanes == 1) {
        *out = row->buffer;
        return AD_OK;
    }
    char name[AD_DTYPE_NAME_SIZE];
    ad_dtype_format(tensor->dtype, name);
    ad_fail(err, AD_ERR_EXCHANGE, "dtype", NULL,
            "the buffer protocol has no code for elements of type %s", name);
    ad_error_dtype(err, name);
    return AD_ERR_EXCHANGE;
}

static bool
has_all(int flags, int wanted)
{
    return (flags & wanted) == wanted;
}

static ad_status
check_flags(const ad_tensor *tensor, int flags, ad_error *err)
{
    if (has_all(flags, PyBUF_WRITABLE) && ad_tensor_is_readonly(tensor)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "readonly",
                       "ask for a read-only buffer, or make a copy",
                       "the consumer wants to write, but the memory is "
                       "read-only");
    }
    const char *layout = NULL;
    if (!has_all(flags, PyBUF_STRIDES) || has_all(flags, PyBUF_C_CONTIGUOUS)) {
        layout = ad_tensor_is_contiguous(tensor, 'C') ? NULL : "C-contiguous";
    } else if (has_all(flags, PyBUF_F_CONTIGUOUS)) {
        layout = ad_tensor_is_contiguous(tensor, 'F') ? NULL : "F-contiguous";
    } else if (has_all(flags, PyBUF_ANY_CONTIGUOUS)) {
        layout = ad_tensor_is_contiguous(tensor, 'C') ||
                         ad_tensor_is_contiguous(tensor, 'F')
                     ? NULL
                     : "contiguous";
    }
    if (layout != NULL) {
        return ad_fail(err, AD_ERR_EXCHANGE, "strides",
                       "ask for strides, or make a contiguous copy",
                       "the consumer wants a %s buffer, which this is not",
                       layout);
    }
    return AD_OK;
}

/* Creates a block with the shape, and the strides in bytes. */
static int
fill_block(const ad_tensor *tensor, ad_owner *owner, Py_buffer *view)
{
    size_t n = (size_t)tensor->ndim;
    view_block *block =
        PyMem_Malloc(sizeof(*block) + 2 * n * sizeof(Py_ssize_t));
    if (block == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    block->owner = ad_owner_ref(owner);
    for (size_t i = 0; i < n; i++) {
        block->dims[i] = tensor->shape[i];
        block->dims[n + i] = tensor->strides[i] * view->itemsize;
    }
    view->internal = block;
    view->shape = block->dims;
    view->strides = block->dims + n;
    return 0;
}

/* Sets view->shape and view->strides, both as for PyBUF_STRIDES. `owner` must
 * live as long as the view, besides the exporting object; with NULL the
 * tensor's dimensions live as long as that object. */
static int
fill_dimensions(const ad_tensor *tensor, ad_owner *owner, Py_buffer *view)
{
    view->internal = NULL;
    view->shape = NULL;
    view->strides = NULL;
    if (tensor->ndim == 0 && owner == NULL) {
        return 0;
    }
    if (tensor->ndim == 1 && owner == NULL && tensor->strides[0] == 1) {
        view->shape = (Py_ssize_t *)tensor->shape;
        view->strides = &view->itemsize;
        return 0;
    }
    return fill_block(tensor, owner, view);
}

static int
fill_view(ad_state *state, const ad_tensor *tensor, ad_owner *owner,
          Py_buffer *view, int flags)
{
    const char *format;
    ad_error err;
    if (check_memory(tensor, &err) != AD_OK ||
        find_format(tensor, &format, &err) != AD_OK ||
        check_flags(tensor, flags, &err) != AD_OK) {
        ad_raise(state, &err);
        return -1;
    }
    void *data = ad_tensor_address(tensor);
    view->buf = data != NULL ? data : ""; /* some consumers refuse NULL */
    view->len = ad_tensor_nbytes(tensor);
    view->itemsize = ad_dtype_bits(tensor->dtype) / 8;
    view->readonly = ad_tensor_is_readonly(tensor);
    view->ndim = tensor->ndim;
    view->format = has_all(flags, PyBUF_FORMAT) ? (char *)format : NULL;
    view->suboffsets = NULL;
    if (fill_dimensions(tensor, owner, view) < 0) {
        return -1;
    }
    if (!has_all(flags, PyBUF_ND)) {
        view->ndim = 1; /* as in CPython's memoryview for a simple request */
        view->shape = NULL;
    }
    if (!has_all(flags, PyBUF_STRIDES)) {
        view->strides = NULL;
    }
    return 0;
}

static int
fill_from_array(ad_state *state, PyObject *self, Py_buffer *view, int flags)
{
    ad_tensor_value value;
    ad_error err;
    ad_status status =
        ad_refuse_batch(ad_array_of(self), "the buffer protocol", &err);
    if (ad_raise_status(state, status, &err) < 0 ||
        ad_self_as_tensor(state, self, &value) < 0) {
        return -1;
    }
    int result = fill_view(state, &value.tensor, value.tensor.memory.owner,
                           view, flags);
    ad_tensor_clear(&value.tensor);
    return result;
}

int
ad_buffer_get(PyObject *self, Py_buffer *view, int flags)
{
    if (view == NULL) {
        PyErr_SetString(PyExc_BufferError, "there is no view to fill");
        return -1;
    }
    ad_state *state = ad_state_of(self);
    view->obj = NULL;
    int result = ad_is_array(state, self)
                     ? fill_from_array(state, self, view, flags)
                     : fill_view(state, ad_tensor_of(self), NULL, view, flags);
    if (result == 0) {
        view->obj = Py_NewRef(self);
    }
    return result;
}

void
ad_buffer_release(PyObject *self, Py_buffer *view)
{
    view_block *block = view->internal;
    if (block != NULL) {
        ad_owner_unref(block->owner);
        PyMem_Free(block);
    }
}

const ad_protocol ad_protocol_buffer = {
    .name = "buffer protocol",
    .attribute = -1,
    .probe = probe,
    .import = import_object,
};
