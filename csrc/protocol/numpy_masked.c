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
#include "protocol/protocol.h"

#include <string.h>

#include "copy/copy.h"

/* --- types -------------------------------------------------------------- */

static bool
probe(ad_state *state, PyTypeObject *type, ad_type_slot *slot)
{
    return ad_is_subclass(type, "numpy.ma", "MaskedArray");
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

/* --- import ------------------------------------------------------------- */

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

static ad_import_result
import_object(const ad_protocol *self, ad_state *state, PyObject *object,
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
    .probe = probe,
    .import = import_object,
};
