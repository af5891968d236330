/* equals() of Array and Tensor. */
#include <string.h>

#include "compute/equal.h"
#include "copy/copy.h"
#include "python/functions/functions.h"
#include "validate/validate.h"

#define CONSUMER "equals()"
#define REASON "the host compares the values"

/* The same rows in memory that the host can read, after the event. Their
 * offsets are checked, because the comparison follows them. */
static ad_status
read_on_host(const ad_array *array, ad_array *out, ad_error *err)
{
    AD_RETURN_IF_ERR(
        ad_sync_require_no_capture(array->memory.sync, CONSUMER, err));
    if (ad_host_accessible(array->memory.device)) {
        AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, CONSUMER, err));
        ad_array_share(array, out);
    } else {
        AD_RETURN_IF_ERR(
            ad_array_copy_to(array, AD_CPU, NULL, REASON, out, err));
    }
    ad_status status = ad_array_validate_references(out, err);
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

static ad_status
compare(const ad_array *a, const ad_array *b, bool *out, ad_error *err)
{
    ad_array left = {0};
    ad_array right = {0};
    AD_RETURN_IF_ERR(ad_array_same_type(a, b, out, err));
    if (!*out || a->length == 0) {
        return AD_OK;
    }
    ad_status status = read_on_host(a, &left, err);
    if (status == AD_OK) {
        status = read_on_host(b, &right, err);
    }
    if (status == AD_OK) {
        status = ad_array_rows_equal(&left, &right, out, err);
    }
    ad_array_clear(&left);
    ad_array_clear(&right);
    return status;
}

PyObject *
ad_array_equals(PyObject *self, PyObject *object)
{
    ad_state *state = ad_state_of(self);
    ad_array other;
    bool is_equal = false;
    ad_error err;
    if (ad_as_array(state, object, (ad_schema){0}, AD_COPY_IF_NEEDED, &other) <
        0) {
        return NULL;
    }
    ad_status status = compare(ad_array_of(self), &other, &is_equal, &err);
    ad_array_clear(&other);
    return status == AD_OK ? PyBool_FromLong(is_equal) : ad_raise(state, &err);
}

/* --- Tensor.equals() ----------------------------------------------------- */

/* The elements in memory that the host can read, contiguous in `order`, after
 * the event. */
static ad_status
lay_out_on_host(const ad_tensor *tensor, char order, ad_tensor_value *out,
                ad_error *err)
{
    AD_RETURN_IF_ERR(
        ad_sync_require_no_capture(tensor->memory.sync, CONSUMER, err));
    if (!ad_host_accessible(tensor->memory.device)) {
        return ad_tensor_copy_to(tensor, AD_CPU, NULL, order, REASON, out,
                                 err);
    }
    AD_RETURN_IF_ERR(ad_sync_wait(tensor->memory.sync, CONSUMER, err));
    if (!ad_tensor_is_contiguous(tensor, order)) {
        return ad_tensor_copy(tensor, order, out, err);
    }
    ad_tensor_share(tensor, out);
    return AD_OK;
}

static ad_status
compare_tensors(const ad_tensor *a, const ad_tensor *b, bool *out,
                ad_error *err)
{
    ad_tensor_value left, right;
    *out =
        ad_dtype_equal(a->dtype, b->dtype) && a->ndim == b->ndim &&
        memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) == 0;
    if (!*out || ad_tensor_size(a) == 0) {
        return AD_OK;
    }
    char order =
        ad_tensor_is_contiguous(a, 'F') && ad_tensor_is_contiguous(b, 'F')
            ? 'F'
            : 'C';
    AD_RETURN_IF_ERR(lay_out_on_host(a, order, &left, err));
    ad_status status = lay_out_on_host(b, order, &right, err);
    if (status == AD_OK) {
        status =
            ad_tensor_elements_equal(&left.tensor, &right.tensor, out, err);
        ad_tensor_clear(&right.tensor);
    }
    ad_tensor_clear(&left.tensor);
    return status;
}

PyObject *
ad_tensor_equals(PyObject *self, PyObject *object)
{
    ad_state *state = ad_state_of(self);
    const ad_request request = {.copy = AD_COPY_IF_NEEDED};
    ad_tensor_options options = {0};
    ad_imported other;
    bool is_equal = false;
    ad_error err;
    if (ad_import_tensor(state, object, &request, AD_ALL_PROTOCOLS, &options,
                         &other) < 0) {
        return NULL;
    }
    ad_status status = compare_tensors(ad_tensor_of(self),
                                       &other.tensor.tensor, &is_equal, &err);
    ad_tensor_clear(&other.tensor.tensor);
    return status == AD_OK ? PyBool_FromLong(is_equal) : ad_raise(state, &err);
}
