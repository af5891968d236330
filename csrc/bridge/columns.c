/* A matrix as columns. */
#include <inttypes.h>

#include "bridge/bridge.h"
#include "bridge/flatten.h"
#include "copy/copy.h"

static ad_status
check_matrix(const ad_tensor *matrix, ad_error *err)
{
    char name[AD_DTYPE_NAME_SIZE];
    if (matrix->ndim != 2) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "a tensor of %" PRId32 " dimensions has no columns; "
                       "a matrix of two does",
                       matrix->ndim);
    }
    AD_RETURN_IF_ERR(ad_tensor_require_size(matrix, err));
    if (ad_dtype_bits(matrix->dtype) % 8 != 0) {
        ad_dtype_format(matrix->dtype, name);
        ad_fail(err, AD_ERR_EXCHANGE, "dtype",
                "view it as uint8 in the producing library",
                "elements of %s share bytes, so that a column of them cannot "
                "be taken",
                name);
        ad_error_dtype(err, name);
        return AD_ERR_EXCHANGE;
    }
    return AD_OK;
}

/* The matrix, with an owner that tells its columns, which have the owner in
 * common, that they may become a matrix again. */
static ad_status
share_with_extent(const ad_tensor *matrix, ad_tensor_value *out, ad_error *err)
{
    int64_t low, high;
    ad_tensor_share(matrix, out);
    if (matrix->shape[1] <= 1 || ad_tensor_size(matrix) == 0 ||
        ad_device_uses_handles(matrix->memory.device.type)) {
        return AD_OK;
    }
    ad_tensor_extent(matrix, &low, &high);
    const ad_extent extent = {(const char *)ad_tensor_address(matrix) + low,
                              (size_t)(high - low)};
    ad_status status = ad_owner_with_extent(out->tensor.memory.owner, extent,
                                            &out->tensor.memory.owner, err);
    if (status != AD_OK) {
        ad_tensor_clear(&out->tensor);
    }
    return status;
}

ad_status
ad_matrix_lay_out(const ad_tensor *matrix, ad_copy copy, ad_tensor_value *out,
                  ad_error *err)
{
    AD_RETURN_IF_ERR(check_matrix(matrix, err));
    bool is_zero_copy = matrix->shape[0] <= 1 || matrix->strides[0] == 1 ||
                        ad_tensor_size(matrix) == 0;
    if (is_zero_copy &&
        (copy != AD_COPY_ALWAYS || (matrix->flags & AD_TENSOR_COPIED) != 0)) {
        return share_with_extent(matrix, out, err);
    }
    if (copy == AD_COPY_NEVER) {
        return ad_fail_on(
            err, matrix->memory.device, "copy",
            "allow a copy (copy=None), or pass a matrix in the order "
            "\"F\"",
            "the columns of a matrix whose rows are %" PRId64
            " elements apart are copied, which was ruled out",
            matrix->strides[0]);
    }
    ad_device target = ad_bridge_target(matrix->memory.device, copy);
    return ad_tensor_copy_to(
        matrix, target, NULL, 'F',
        is_zero_copy
            ? "copy=True was passed"
            : "the rows of each column have to lie next to each other",
        out, err);
}

ad_status
ad_matrix_column(const ad_tensor *matrix, int64_t i, ad_array *out,
                 ad_error *err)
{
    int64_t stride = 1;
    ad_tensor column = *matrix;
    column.ndim = 1;
    column.strides = &stride;
    int64_t nbytes = 0;
    if (matrix->shape[0] > 0) { /* no overflow: the element exists */
        nbytes = i * matrix->strides[1] *
                 (int64_t)(ad_dtype_bits(matrix->dtype) / 8);
    }
    if (ad_device_uses_handles(matrix->memory.device.type)) {
        column.byte_offset += (uint64_t)nbytes;
    } else if (matrix->data != NULL) {
        column.data = (char *)matrix->data + nbytes;
    }
    return ad_array_from_tensor(&column, AD_COPY_NEVER, out, err);
}
