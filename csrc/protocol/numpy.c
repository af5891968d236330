/* NumPy's arrays: the fields of one, without a call into NumPy; masked arrays;
 * and the array inside a pandas.Series. */
#include "protocol/numpy.h"

#include <string.h>

#include "copy/copy.h"
#include "protocol/protocol.h"

/* --- the table of NumPy's C API ------------------------------------------ */

typedef struct element {
    ad_dl_dtype dtype;
    char format; /* of the column; '\0': it needs more than a format */
} element;

#define INTEGERS(number, type, signed_format, unsigned_format)                \
    [number] = {{AD_DL_INT, 8 * sizeof(type), 1}, signed_format},             \
    [number + 1] = {{AD_DL_UINT, 8 * sizeof(type), 1}, unsigned_format}

/* Indexed by NumPy's type number. */
static const element elements[] = {
    [0] = {{AD_DL_BOOL, 8, 1}, '\0'},
    INTEGERS(1, char, 'c', 'C'),
    INTEGERS(3, short, 's', 'S'),
    INTEGERS(5, int, 'i', 'I'),
    INTEGERS(7, long, sizeof(long) == 8 ? 'l' : 'i',
             sizeof(long) == 8 ? 'L' : 'I'),
    INTEGERS(9, long long, 'l', 'L'),
    [11] = {{AD_DL_FLOAT, 32, 1}, 'f'},
    [12] = {{AD_DL_FLOAT, 64, 1}, 'g'},
    [14] = {{AD_DL_COMPLEX, 64, 1}, '\0'},
    [15] = {{AD_DL_COMPLEX, 128, 1}, '\0'},
    [23] = {{AD_DL_FLOAT, 16, 1}, 'e'},
};

#define N_ELEMENTS (int)(sizeof(elements) / sizeof(elements[0]))

/* NumPy's table of functions; NULL without an exception. */
static void **
find_table(void)
{
    void **table = NULL;
    const char *const names[] = {"numpy._core._multiarray_umath",
                                 "numpy.core._multiarray_umath"};
    for (size_t i = 0; table == NULL && i < 2; i++) {
        PyObject *module = ad_py_imported(names[i]);
        PyObject *capsule = module != NULL
                                ? PyObject_GetAttrString(module, "_ARRAY_API")
                                : NULL;
        if (capsule != NULL && PyCapsule_CheckExact(capsule)) {
            table = PyCapsule_GetPointer(capsule, NULL);
        }
        Py_XDECREF(capsule);
        Py_XDECREF(module);
    }
    PyErr_Clear();
    return table;
}

/* The descriptors of plain elements in native byte order, by number. Each is
 * one object; any other of the same number may have fields, which are no plain
 * elements. NULL with an exception. */
static PyObject *
find_descriptors(void **table)
{
    PyObject *(*descr_of)(int) = (PyObject * (*)(int)) table[AD_NUMPY_DESCR];
    PyObject *all = PyTuple_New(N_ELEMENTS);
    for (int i = 0; all != NULL && i < N_ELEMENTS; i++) {
        PyObject *descr =
            elements[i].dtype.bits != 0 ? descr_of(i) : Py_NewRef(Py_None);
        if (descr == NULL) {
            Py_CLEAR(all);
        } else {
            PyTuple_SET_ITEM(all, i, descr);
        }
    }
    return all;
}

void
ad_ndarray_learn(ad_state *state, PyTypeObject *type)
{
    bool is_known = ad_py_once(&state->ndarray_type) != NULL;
    void **table = is_known ? NULL : find_table();
    if (table == NULL || table[AD_NUMPY_TYPE] != type) {
        return;
    }
    unsigned version = ((unsigned (*)(void))table[AD_NUMPY_VERSION])();
    if (version != 0x01000009 && version != 0x02000000) {
        return;
    }
    PyObject *descriptors = find_descriptors(table);
    if (descriptors == NULL) {
        PyErr_Clear();
        return;
    }
    /* In this order: whoever finds the type finds the descriptors. */
    ad_py_set_once(&state->numpy_descriptors, descriptors);
    ad_py_set_once(&state->ndarray_type, Py_NewRef((PyObject *)type));
}

/* --- the fields of an array ---------------------------------------------- */

/* The elements, or NULL for others than plain ones and for unaligned ones. */
static inline const element *
plain_element(const ad_state *state, const ad_numpy_array *array)
{
    int number = array->descr->type_num;
    return (unsigned)number < (unsigned)N_ELEMENTS &&
                   PyTuple_GET_ITEM(state->numpy_descriptors, number) ==
                       (PyObject *)array->descr &&
                   (array->flags & AD_NUMPY_ALIGNED) != 0
               ? &elements[number]
               : NULL;
}

/* As the buffer protocol says it: what will be read-only after a deprecation
 * is so now. */
static inline bool
is_readonly(const ad_numpy_array *array)
{
    return (array->flags & (AD_NUMPY_WRITEABLE | AD_NUMPY_WARN_ON_WRITE)) !=
           AD_NUMPY_WRITEABLE;
}

bool
ad_ndarray_describe(const ad_state *state, PyObject *object,
                    ad_tensor_descriptor *out, int64_t *strides)
{
    const ad_numpy_array *array = (const ad_numpy_array *)object;
    const element *type = plain_element(state, array);
    if (type == NULL || (unsigned)array->nd > AD_MAX_NDIM) {
        return false;
    }
    int64_t nbytes = type->dtype.bits / 8;
    for (int i = 0; i < array->nd; i++) {
        int64_t stride = array->strides[i];
        if (stride == nbytes) {
            strides[i] = 1; /* a division costs as much as all the rest */
        } else if (stride % nbytes == 0) {
            strides[i] = stride / nbytes;
        } else {
            return false;
        }
    }
    *out = (ad_tensor_descriptor){
        .data = array->data,
        .dtype = type->dtype,
        .ndim = array->nd,
        .memory = {.device = AD_CPU, .readonly = is_readonly(array)},
        .shape = (const int64_t *)array->dimensions,
        .strides = strides,
    };
    return true;
}

int
ad_ndarray_column(const ad_state *state, PyObject *object, ad_array *out)
{
    const ad_numpy_array *array = (const ad_numpy_array *)object;
    const element *type = plain_element(state, array);
    uintptr_t start;
    if (type == NULL || type->format == '\0' || array->nd != 1) {
        return 0;
    }
    int64_t n = array->dimensions[0];
    int64_t nbytes = type->dtype.bits / 8;
    if ((array->strides[0] != nbytes && n != 1) ||
        !ad_is_run(array->data, 0, n, nbytes, &start)) {
        return 0;
    }
    ad_owner *owner = ad_py_owner_new(object);
    if (owner == NULL) {
        return -1;
    }
    ad_array_of_leaf((ad_memory){owner, NULL, AD_CPU, is_readonly(array)},
                     &ad_schema_primitives[(int)type->format], array->data, n,
                     out);
    return 1;
}

/* --- masked arrays ------------------------------------------------------- */

/* The mask (true where masked) becomes validity.
 *
 * Every failure is final: a later protocol would import the data without the
 * mask. NumPy is never imported; the class is recognized by its name. Data and
 * mask are imported by the buffer protocol, and times, which it does not
 * support, by __array_interface__.
 *
 * copy=False applies to the data only: the bitmap is always built, since Arrow
 * has no other form for the mask. */
static int
import_attribute(ad_state *state, PyObject *object, PyObject *name,
                 const ad_request *request, ad_imported *out)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    ad_import_result result = ad_protocol_buffer.import(
        &ad_protocol_buffer, state, value, NULL, request, out);
    if (result == AD_IMPORT_REFUSED &&
        PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        result = ad_protocol_array_interface.import(
            &ad_protocol_array_interface, state, value, NULL, request, out);
    }
    Py_DECREF(value);
    if (result == AD_IMPORT_DONE) {
        return 0;
    }
    if (!ad_exception_is_final(state) &&
        !PyErr_ExceptionMatches(state->exchange_error)) {
        ad_raise_exchange(state, "dtype",
                          "fill and convert it first; for dates, "
                          ".view(\"int64\") gives the plain numbers",
                          "the %U of a masked array cannot be read as a "
                          "buffer of numbers",
                          name);
    }
    return -1;
}

static bool
same_shape(const ad_tensor *a, const ad_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) ==
               0;
}

/* `nomask` is a scalar false, whatever the shape of the data. */
static bool
is_nomask(const ad_tensor *mask, const ad_tensor *data)
{
    return mask->ndim == 0 && data->ndim != 0 &&
           *(const uint8_t *)ad_tensor_address(mask) == 0;
}

static bool
any_set(const uint8_t *bytes, int64_t n)
{
    uint8_t seen = 0;
    for (int64_t i = 0; i < n; i++) {
        seen |= bytes[i];
    }
    return seen != 0;
}

static bool
all_set(const uint8_t *bytes, int64_t n)
{
    return n > 0 && memchr(bytes, 0, (size_t)n) == NULL;
}

/* One byte per row, from a contiguous mask. A partly masked row has no
 * equivalent, since there is one validity bit per row. */
static ad_status
reduce_rows(const uint8_t *bytes, int64_t n_rows, int64_t row_size,
            uint8_t *out, ad_error *err)
{
    for (int64_t i = 0; i < n_rows; i++) {
        const uint8_t *row = bytes + i * row_size;
        bool is_masked = all_set(row, row_size);
        if (!is_masked && any_set(row, row_size)) {
            return ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                           "fill it with .filled(value), or mask whole rows",
                           "row %lld of an N-d masked array is masked in "
                           "part, expected all of a row or nothing",
                           (long long)i);
        }
        out[i] = is_masked;
    }
    return AD_OK;
}

static ad_status
attach_rows(ad_imported *data, uint8_t *rows, int64_t n_rows, ad_copy copy,
            ad_error *err)
{
    const ad_mask mask = {
        .device = AD_CPU,
        .data = rows,
        .length = n_rows,
        .marks_nulls = true,
    };
    return ad_imported_apply_mask(data, &mask, copy, err);
}

/* `mask` is contiguous and has the shape of the data. */
static ad_status
apply_mask(ad_imported *data, const ad_tensor *mask, ad_copy copy,
           ad_error *err)
{
    int64_t n_rows = mask->ndim == 0 ? 1 : mask->shape[0];
    uint8_t *bytes = ad_tensor_address(mask);
    if (mask->ndim <= 1) {
        return attach_rows(data, bytes, n_rows, copy, err);
    }
    uint8_t *rows = PyMem_Malloc((size_t)n_rows);
    if (rows == NULL) {
        return ad_fail_memory(err, (size_t)n_rows);
    }
    ad_status status =
        reduce_rows(bytes, n_rows, ad_tensor_size(mask) / n_rows, rows, err);
    if (status == AD_OK) {
        status = attach_rows(data, rows, n_rows, copy, err);
    }
    PyMem_Free(rows);
    return status;
}

/* *out is unchanged, or becomes another array if some elements are masked. The
 * shape of its tensor is valid for an array, too. */
static ad_status
add_validity(const ad_tensor *mask, ad_copy copy, ad_imported *out,
             ad_error *err)
{
    const ad_tensor *data = &out->tensor.tensor;
    if (is_nomask(mask, data)) {
        return AD_OK;
    }
    if (ad_dtype_bits(mask->dtype) != 8 || !same_shape(mask, data)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "the mask of a masked array does not fit its data");
    }
    if (!ad_tensor_is_contiguous(mask, 'C')) {
        ad_tensor_value contiguous;
        AD_RETURN_IF_ERR(ad_tensor_copy_to(
            mask, AD_CPU, NULL, 'C',
            "the mask's strides leave gaps between its elements", &contiguous,
            err));
        ad_status status = add_validity(&contiguous.tensor, copy, out, err);
        ad_tensor_clear(&contiguous.tensor);
        return status;
    }
    if (!any_set(ad_tensor_address(mask), ad_tensor_size(mask))) {
        return AD_OK;
    }
    return apply_mask(out, mask, copy, err);
}

static bool
is_masked_array(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    return ad_is_subclass(type, "numpy.ma", "MaskedArray");
}

static ad_import_result
import_masked(const ad_protocol *self, ad_state *state, PyObject *object,
              const ad_type_slot *slot, const ad_request *request,
              ad_imported *out)
{
    static const ad_request plain = {.copy = AD_COPY_IF_NEEDED};
    ad_imported mask;
    ad_error err;
    if (import_attribute(state, object, AD_STR(state, data), request, out) <
        0) {
        return AD_IMPORT_FAILED;
    }
    if (import_attribute(state, object, AD_STR(state, mask), &plain, &mask) <
        0) {
        ad_imported_clear(out);
        return AD_IMPORT_FAILED;
    }
    ad_status status =
        add_validity(&mask.tensor.tensor, request->copy, out, &err);
    ad_imported_clear(&mask);
    if (status == AD_OK) {
        return AD_IMPORT_DONE;
    }
    ad_imported_clear(out);
    return ad_import_error(state, &err);
}

const ad_protocol ad_protocol_masked_array = {
    .name = "numpy.ma.MaskedArray",
    .attribute = -1,
    .probe = is_masked_array,
    .import = import_masked,
};

/* --- the block of a pandas.Series ---------------------------------------- */

/* The way of its numbers to a tensor. pandas makes an Arrow stream by pyarrow,
 * which takes ten times as long, and copies bools and strided columns. A
 * missing value of floats is NaN in the block and null in the stream: as NaN it
 * would pass for a number, so the stream says it. */

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
