/* The NumPy block of a pandas.Series: the way of its numbers to a tensor.
 *
 * pandas makes an Arrow stream by pyarrow, which takes ten times as long, and
 * copies bools and strided columns. A missing value of floats is NaN in the
 * block and null in the stream: as NaN it would pass for a number, so the
 * stream says it.
 */
#include "protocol/protocol.h"

#include <string.h>

/* --- missing values ------------------------------------------------------ */

/* A NaN is above infinity as an integer without the sign: `carry` takes it,
 * and it alone, to the highest bit. The stride counts values. */
#define AD_DEFINE_HAS_NAN(name, type, carry)                                  \
    static bool name(const void *data, int64_t n, int64_t stride)             \
    {                                                                         \
        const type *values = data;                                            \
        const type sign = (type)((type)1 << (8 * sizeof(type) - 1));          \
        type seen = 0;                                                        \
        for (int64_t i = 0; i < n; i++) {                                     \
            type magnitude = values[i * stride] & (type)~sign;                \
            seen |= (type)(magnitude + (type)(carry));                        \
        }                                                                     \
        return (seen & sign) != 0;                                            \
    }

AD_DEFINE_HAS_NAN(has_nan16, uint16_t, 0x03ff)
AD_DEFINE_HAS_NAN(has_nan32, uint32_t, 0x007fffff)
AD_DEFINE_HAS_NAN(has_nan64, uint64_t, 0x000fffffffffffff)

/* Whether a value counts as missing to pandas. Complex numbers have two
 * parts. */
static bool
has_missing(const ad_tensor *tensor)
{
    int parts = tensor->dtype.code == AD_DL_COMPLEX ? 2 : 1;
    if (tensor->dtype.code != AD_DL_FLOAT && parts == 1) {
        return false;
    }
    const unsigned char *data = ad_tensor_address(tensor);
    int32_t bits = ad_dtype_bits(tensor->dtype) / parts;
    int64_t stride = tensor->strides[0] * parts;
    bool found = false;
    for (int i = 0; i < parts && !found; i++, data += bits / 8) {
        found = bits == 16   ? has_nan16(data, tensor->shape[0], stride)
                : bits == 32 ? has_nan32(data, tensor->shape[0], stride)
                             : has_nan64(data, tensor->shape[0], stride);
    }
    return found;
}

/* Whether has_missing() may read it: one dimension of aligned elements. */
static bool
is_readable(const ad_tensor *tensor)
{
    int32_t nbytes = ad_dtype_bits(tensor->dtype) / 8;
    return tensor->ndim == 1 &&
           (uintptr_t)ad_tensor_address(tensor) % (uintptr_t)nbytes == 0;
}

/* --- the import ---------------------------------------------------------- */

/* The block, or NULL without an exception if the elements are not NumPy's. */
static PyObject *
find_block(ad_state *state, PyObject *object)
{
    PyObject *dtype = PyObject_GetAttr(object, AD_STR(state, dtype));
    bool is_numpy =
        dtype != NULL && ad_is_subclass(Py_TYPE(dtype), "numpy", "dtype");
    Py_XDECREF(dtype);
    return is_numpy
               ? PyObject_CallMethodNoArgs(object, AD_STR(state, to_numpy))
               : NULL;
}

/* pandas shows its memory as read-only, since columns may share it: a
 * convention as Arrow's, not a flag of the memory. */
static void
flag_as_shared(ad_tensor *tensor)
{
    if ((tensor->flags & AD_TENSOR_COPIED) == 0) {
        tensor->memory.readonly = false;
        tensor->flags |= AD_TENSOR_IMMUTABLE;
    }
}

int
ad_pandas_block_import(ad_state *state, PyObject *object,
                       const ad_request *request, ad_imported *out)
{
    PyObject *block = find_block(state, object);
    ad_import_result result = AD_IMPORT_REFUSED;
    if (block != NULL) {
        result = ad_protocol_buffer.import(&ad_protocol_buffer, state, block,
                                           NULL, request, out);
        Py_DECREF(block);
    }
    if (result != AD_IMPORT_DONE) {
        /* Without a block, or of other elements: the stream knows more. */
        if (PyErr_Occurred() && ad_exception_is_final(state)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    if (out->is_array || !is_readable(&out->tensor.tensor) ||
        has_missing(&out->tensor.tensor)) {
        ad_imported_clear(out);
        return 0;
    }
    flag_as_shared(&out->tensor.tensor);
    return 1;
}
