/* NumPy's masked arrays: their mask (true where masked) becomes validity.
 *
 * Every failure is final: a later protocol would import the data without the
 * mask. NumPy is never imported; the class is recognized by its name. Data and
 * mask are imported by the buffer protocol, and times, which it does not
 * support, by __array_interface__.
 *
 * copy=False applies to the data only: the bitmap is always built, since Arrow
 * has no other form for the mask.
 */
#include "bridge/masks.h"
#include "protocol/protocol.h"

#include <string.h>

/* --- types -------------------------------------------------------------- */

static bool
is_masked_array(ad_state *state, PyTypeObject *type)
{
    if (strcmp(type->tp_name, "MaskedArray") != 0) {
        return false;
    }
    PyObject *dict = ad_py_type_dict(type);
    if (dict == NULL) {
        return false;
    }
    PyObject *module = PyDict_GetItemWithError(dict, AD_STR(state, module));
    bool found =
        module != NULL && PyUnicode_Check(module) &&
        (PyUnicode_CompareWithASCIIString(module, "numpy.ma") == 0 ||
         PyUnicode_CompareWithASCIIString(module, "numpy.ma.core") == 0);
    Py_DECREF(dict);
    PyErr_Clear();
    return found;
}

static bool
offers(ad_state *state, PyTypeObject *type)
{
    PyObject *mro = Py_XNewRef(type->tp_mro);
    bool found = false;
    for (Py_ssize_t i = 0; !found && mro != NULL && i < PyTuple_GET_SIZE(mro);
         i++) {
        PyObject *base = PyTuple_GET_ITEM(mro, i);
        found = is_masked_array(state, (PyTypeObject *)base);
    }
    Py_XDECREF(mro);
    return found;
}

/* --- data and mask ------------------------------------------------------ */

static int
import_attribute(ad_state *state, PyObject *object, PyObject *name,
                 const ad_request *request, ad_imported *out)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value == NULL) {
        return -1;
    }
    ad_import_result result =
        ad_protocol_buffer.import(state, value, NULL, request, out);
    if (result == AD_IMPORT_REFUSED &&
        PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        result = ad_protocol_array_interface.import(state, value, NULL,
                                                    request, out);
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

/* --- from elements to rows ---------------------------------------------- */

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
attach_rows(const ad_imported *data, uint8_t *rows, int64_t n_rows,
            ad_copy copy, ad_array *out, ad_error *err)
{
    ad_array plain;
    const ad_mask mask = {
        .device = AD_CPU,
        .data = rows,
        .length = n_rows,
        .marks_nulls = true,
    };
    /* The import of the data has served copy=True. */
    if (copy == AD_COPY_ALWAYS) {
        copy = AD_COPY_IF_NEEDED;
    }
    if (data->is_array) {
        ad_array_share(&data->array, &plain);
    } else {
        AD_RETURN_IF_ERR(
            ad_array_from_tensor(&data->tensor.tensor, copy, &plain, err));
    }
    ad_status status = ad_array_apply_mask(&plain, &mask, NULL, out, err);
    ad_array_clear(&plain);
    return status;
}

/* `mask` is contiguous and has the shape of the data. */
static ad_status
apply_mask(const ad_imported *data, const ad_tensor *mask, ad_copy copy,
           ad_array *out, ad_error *err)
{
    int64_t n_rows = mask->ndim == 0 ? 1 : mask->shape[0];
    uint8_t *bytes = ad_tensor_address(mask);
    if (mask->ndim <= 1) {
        return attach_rows(data, bytes, n_rows, copy, out, err);
    }
    uint8_t *rows = PyMem_Malloc((size_t)n_rows);
    if (rows == NULL) {
        return ad_fail_memory(err, (size_t)n_rows);
    }
    ad_status status =
        reduce_rows(bytes, n_rows, ad_tensor_size(mask) / n_rows, rows, err);
    if (status == AD_OK) {
        status = attach_rows(data, rows, n_rows, copy, out, err);
    }
    PyMem_Free(rows);
    return status;
}

/* --- import ------------------------------------------------------------- */

/* *out is unchanged, or becomes another array if some elements are masked. The
 * shape of its tensor is valid for an array, too. */
static ad_status
add_validity(const ad_tensor *mask, ad_copy copy, ad_imported *out,
             ad_error *err)
{
    const ad_tensor *data = &out->tensor.tensor;
    ad_array masked;
    if (is_nomask(mask, data)) {
        return AD_OK;
    }
    if (ad_dtype_bits(mask->dtype) != 8 || !same_shape(mask, data)) {
        return ad_fail(err, AD_ERR_EXCHANGE, "malformed", NULL,
                       "the mask of a masked array does not fit its data");
    }
    if (!ad_tensor_is_contiguous(mask, 'C')) {
        ad_tensor_value contiguous;
        AD_RETURN_IF_ERR(ad_tensor_copy(mask, 'C', &contiguous, err));
        ad_status status = add_validity(&contiguous.tensor, copy, out, err);
        ad_tensor_clear(&contiguous.tensor);
        return status;
    }
    if (!any_set(ad_tensor_address(mask), ad_tensor_size(mask))) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(apply_mask(out, mask, copy, &masked, err));
    ad_imported_clear(out);
    out->array = masked;
    out->is_array = true;
    return AD_OK;
}

static ad_import_result
import_object(ad_state *state, PyObject *object, const ad_type_slot *slot,
              const ad_request *request, ad_imported *out)
{
    static const ad_request plain = {.copy = AD_COPY_IF_NEEDED};
    ad_imported mask;
    ad_error err;
    (void)slot;
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
    .offers = offers,
    .import = import_object,
};
