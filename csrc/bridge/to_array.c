#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge/bridge.h"
#include "bridge/flatten.h"
#include "model/extension.h"
#include "base/owner.h"
#include "copy/copy.h"
#include "base/unaligned.h"
#include "device/backend.h"

/* --- storage of one element ---------------------------------------------- */

/* An element is `n_leaves` values of `format`, with an extension if the format
 * alone does not define it. */
typedef struct storage {
    char format[24];
    int64_t n_leaves; /* 2 for complex numbers, else 1 */
    int64_t leaf_nbytes;
    ad_extension_kind kind;
    bool has_nat; /* INT64_MIN is null */
} storage;

/* The widest fixed-size binary, since its size in bits is an int32. */
#define MAX_BINARY_WIDTH (INT32_MAX / 8)

static ad_status
fail_dtype(const ad_tensor *tensor, const char *hint, const char *problem,
           ad_error *err)
{
    char name[AD_DTYPE_NAME_SIZE];
    ad_dtype_format(tensor->dtype, name);
    ad_fail(err, AD_ERR_EXCHANGE, "dtype", hint, "a tensor of %s %s", name,
            problem);
    ad_error_dtype(err, name);
    ad_error_device(err, tensor->memory.device);
    return AD_ERR_EXCHANGE;
}

static void
set_storage(storage *out, const char *format, int64_t n_leaves,
            int64_t leaf_nbytes, ad_extension_kind kind)
{
    /* printf takes a thousand instructions once NumPy's libquadmath is
     * loaded. */
    memccpy(out->format, format, '\0', sizeof(out->format) - 1);
    out->format[sizeof(out->format) - 1] = '\0';
    out->n_leaves = n_leaves;
    out->leaf_nbytes = leaf_nbytes;
    out->kind = kind;
    out->has_nat = false;
}

/* An element is a fixed-size binary. */
static void
set_binary(storage *out, int64_t nbytes)
{
    char format[24];
    snprintf(format, sizeof(format), "w:%" PRId64, nbytes);
    set_storage(out, format, 1, nbytes, AD_EXTENSION_DLPACK);
}

static const ad_extension_kind extension_kinds[] = {
    [AD_DTYPE_NONE] = AD_EXTENSION_NONE,
    [AD_DTYPE_BOOL8] = AD_EXTENSION_BOOL8,
    [AD_DTYPE_DLPACK] = AD_EXTENSION_DLPACK,
};

/* Requires an element whose number of bits is a multiple of 8. */
static void
find_storage(ad_dl_dtype dtype, storage *out)
{
    const ad_dtype_info *info = ad_dtype_find(dtype);
    int64_t nbytes = ad_dtype_bits(dtype) / 8;
    if (info == NULL || dtype.lanes != 1 || info->arrow[0] == '\0') {
        set_binary(out, nbytes);
    } else if (info->arrow[0] == '+') {
        ad_dl_dtype half = {AD_DL_FLOAT, (uint8_t)(dtype.bits / 2), 1};
        set_storage(out, ad_dtype_find(half)->arrow, 2, nbytes / 2,
                    AD_EXTENSION_DLPACK);
    } else {
        set_storage(out, info->arrow, 1, nbytes,
                    extension_kinds[info->extension]);
    }
}

/* --- order of a row's dimensions ----------------------------------------- */

static bool
nests(const ad_tensor *tensor, const int32_t *order)
{
    const int64_t *shape = tensor->shape + 1;
    const int64_t *strides = tensor->strides + 1;
    int64_t expected = 1;
    for (int32_t k = tensor->ndim - 2; k >= 0; k--) {
        int32_t i = order[k];
        if (shape[i] != 1) {
            if (strides[i] != expected) {
                return false;
            }
            expected *= shape[i];
        }
    }
    return tensor->shape[0] <= 1 || tensor->strides[0] == expected;
}

/* Finds the memory order of a row's dimensions: order[k] is the k-th of them,
 * counted from dimension 1. Returns false if rows have gaps, overlap or are
 * not contiguous. */
static bool
find_order(const ad_tensor *tensor, int32_t *order)
{
    int32_t n = tensor->ndim - 1;
    for (int32_t i = 0; i < n; i++) {
        order[i] = i;
    }
    if (n < 0 || ad_tensor_size(tensor) == 0 || nests(tensor, order)) {
        return true;
    }
    const int64_t *strides = tensor->strides + 1;
    for (int32_t i = 1; i < n; i++) {
        int32_t k = i;
        for (; k > 0 && strides[order[k - 1]] < strides[i]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    return nests(tensor, order);
}

/* --- schema and array, from the leaf up ---------------------------------- */

/* A fixed-size list over all elements of `child`. */
static ad_status
wrap_list(const ad_array *child, int64_t list_size, int64_t length,
          const char *metadata, ad_array *out, ad_error *err)
{
    static const char *const names[] = {"item"};
    static const void *const buffers[] = {NULL};
    char format[32];
    ad_schema schema;
    snprintf(format, sizeof(format), "+w:%" PRId64, list_size);
    ad_schema_spec schema_spec = {
        .format = format,
        .metadata = metadata,
        .flags = ARROW_FLAG_NULLABLE,
        .n_children = 1,
        .children = &child->schema,
        .names = names,
    };
    AD_RETURN_IF_ERR(ad_schema_build(&schema_spec, &schema, err));
    ad_array_spec spec = {
        .schema = schema,
        .memory = {.sync = child->memory.sync, .device = child->memory.device},
        .length = length,
        .n_buffers = 1,
        .buffers = buffers,
        .n_children = 1,
        .children = child,
    };
    ad_status status = ad_array_build(&spec, out, err);
    ad_schema_unref(schema);
    return status;
}

/* A handle allows no address arithmetic: the memory before the first element
 * becomes rows that the array skips. */
static ad_status
leaf_offset(const ad_tensor *tensor, const storage *how, int64_t *out,
            ad_error *err)
{
    *out = 0;
    if (!ad_device_uses_handles(tensor->memory.device.type) ||
        tensor->byte_offset == 0) {
        return AD_OK;
    }
    if (tensor->byte_offset % (uint64_t)how->leaf_nbytes != 0) {
        return ad_fail_on(
            err, tensor->memory.device, "strides",
            "copy it to a buffer of its own in the producing library",
            "the tensor begins %" PRIu64
            " bytes into an opaque buffer, which is no multiple of its "
            "%" PRId64 "-byte elements, so that Arrow cannot express it",
            tensor->byte_offset, how->leaf_nbytes);
    }
    *out = (int64_t)(tensor->byte_offset / (uint64_t)how->leaf_nbytes);
    return AD_OK;
}

/* --- NaT ----------------------------------------------------------------- */

static void
mark_valid(const ad_at_any_i64 *values, int64_t n, uint8_t *bitmap)
{
    for (int64_t i = 0; i < n; i += 8) {
        int64_t left = n - i < 8 ? n - i : 8;
        uint8_t byte = 0;
        for (int64_t k = 0; k < left; k++) {
            byte |= (uint8_t)((values[i + k] != INT64_MIN) << k);
        }
        bitmap[i / 8] = byte;
    }
}

/* Adds a bitmap to `spec` if there is a NaT among the values, which are host
 * memory. spec->owner becomes *made, which also owns the bitmap; the caller
 * drops it. */
static ad_status
add_nat_bitmap(ad_array_spec *spec, const void **buffers, ad_owner **made,
               ad_error *err)
{
    ad_host_block *bitmap;
    const ad_at_any_i64 *values = buffers[1];
    int64_t n_nat = 0;
    AD_RETURN_IF_ERR(ad_sync_wait(spec->memory.sync, "looking for NaT", err));
    for (int64_t i = 0; i < spec->length; i++) {
        n_nat += values[i] == INT64_MIN;
    }
    if (n_nat == 0) {
        return AD_OK;
    }
    spec->null_count = n_nat;
    AD_RETURN_IF_ERR(
        ad_host_block_new(ad_bitmap_bytes(spec->length), &bitmap, err));
    mark_valid(values, spec->length, bitmap->data);
    ad_owner *const owners[] = {&bitmap->base, spec->memory.owner};
    buffers[0] = bitmap->data;
    ad_status status = ad_owner_group_new(owners, 2, made, err);
    ad_owner_unref(&bitmap->base);
    spec->memory.owner = *made;
    return status;
}

/* --- values -------------------------------------------------------------- */

/* The array of the values; `schema` is borrowed. */
static ad_status
build_leaf(const ad_tensor *tensor, ad_schema schema, int64_t offset,
           int64_t length, bool has_nat, bool gives_owner, ad_array *out,
           ad_error *err)
{
    const void *buffers[] = {NULL,
                             ad_device_uses_handles(tensor->memory.device.type)
                                 ? tensor->data
                                 : ad_tensor_address(tensor)};
    ad_owner *made = NULL;
    ad_array_spec spec = {
        .schema = schema,
        .length = length,
        .offset = offset,
        .n_buffers = 2,
        .buffers = buffers,
        .memory = tensor->memory,
        .is_given = gives_owner,
    };
    if (!has_nat) {
        return ad_array_build(&spec, out, err);
    }
    AD_RETURN_IF_ERR(add_nat_bitmap(&spec, buffers, &made, err));
    ad_status status = ad_array_build(&spec, out, err);
    ad_owner_unref(made);
    return status;
}

static ad_status
leaf_schema(const storage *how, const char *metadata, ad_schema *out,
            ad_error *err)
{
    if (metadata == NULL && !how->has_nat) {
        *out = ad_schema_primitive(how->format);
        return AD_OK;
    }
    ad_schema_spec spec = {
        .format = how->format,
        .metadata = metadata,
        .flags = ARROW_FLAG_NULLABLE,
    };
    return ad_schema_build(&spec, out, err);
}

/* All elements as one flat array. */
static ad_status
build_elements(const ad_tensor *tensor, const storage *how,
               const char *metadata, ad_array *out, ad_error *err)
{
    ad_array leaf;
    ad_schema schema;
    int64_t offset;
    int64_t length = ad_tensor_size(tensor);
    bool is_pair = how->n_leaves > 1;
    AD_RETURN_IF_ERR(leaf_offset(tensor, how, &offset, err));
    AD_RETURN_IF_ERR(
        leaf_schema(how, is_pair ? NULL : metadata, &schema, err));
    ad_status status =
        build_leaf(tensor, schema, offset, length * how->n_leaves,
                   how->has_nat, false, is_pair ? &leaf : out, err);
    ad_schema_unref(schema);
    if (status == AD_OK && is_pair) {
        status = wrap_list(&leaf, how->n_leaves, length, metadata, out, err);
        ad_array_clear(&leaf);
    }
    return status;
}

static ad_status
element_metadata(const ad_tensor *tensor, const storage *how, char **out,
                 ad_error *err)
{
    bool is_scalar = tensor->ndim == 0;
    *out = NULL;
    if (how->kind == AD_EXTENSION_NONE && !is_scalar) {
        return AD_OK;
    }
    ad_extension extension;
    extension.kind = is_scalar ? AD_EXTENSION_DLPACK : how->kind;
    extension.dtype = tensor->dtype;
    extension.is_scalar = is_scalar;
    extension.ndim = 0;
    return ad_extension_metadata(&extension, out, err);
}

static ad_status
row_metadata(const ad_tensor *tensor, const int32_t *order, char **out,
             int64_t *row_size, ad_error *err)
{
    ad_extension extension;
    extension.kind = AD_EXTENSION_FIXED_SHAPE_TENSOR;
    extension.dtype = tensor->dtype;
    extension.is_scalar = false;
    extension.ndim = tensor->ndim - 1;
    *row_size = 1;
    for (int32_t k = 0; k < extension.ndim; k++) {
        extension.shape[k] = tensor->shape[1 + order[k]];
        extension.permutation[order[k]] = k;
        /* The extents of an empty tensor may overflow without the 0 among
         * them. */
        if (extension.shape[k] == 0) {
            *row_size = 0;
        }
    }
    for (int32_t k = 0; *row_size != 0 && k < extension.ndim; k++) {
        *row_size *= extension.shape[k];
    }
    return ad_extension_metadata(&extension, out, err);
}

/* Builds the array of rows, whose dimensions nest in this order. */
static ad_status
build_rows(const ad_tensor *tensor, const storage *how, const int32_t *order,
           ad_array *out, ad_error *err)
{
    char *metadata = NULL;
    int64_t row_size;
    ad_array elements = {0};
    AD_RETURN_IF_ERR(element_metadata(tensor, how, &metadata, err));
    ad_status status = build_elements(tensor, how, metadata, &elements, err);
    free(metadata);
    if (status != AD_OK || tensor->ndim <= 1) {
        *out = elements;
        return status;
    }
    metadata = NULL;
    status = row_metadata(tensor, order, &metadata, &row_size, err);
    if (status == AD_OK) {
        status = wrap_list(&elements, row_size, tensor->shape[0], metadata,
                           out, err);
    }
    free(metadata);
    ad_array_clear(&elements);
    return status;
}

/* --- entry --------------------------------------------------------------- */

static ad_status
fail_strides(const ad_tensor *tensor, const char *problem, const char *hint,
             ad_error *err)
{
    return ad_fail_on(
        err, tensor->memory.device, "strides", hint,
        "the tensor's strides have no equivalent in Arrow, which needs "
        "rows without gaps, one after the other; %s",
        problem);
}

static ad_status from_elements(const ad_tensor *tensor, const storage *how,
                               ad_copy copy, ad_array *out, ad_error *err);

static ad_status
copy_first(const ad_tensor *tensor, const storage *how, ad_copy copy,
           ad_array *out, ad_error *err)
{
    ad_tensor_value copied;
    ad_device target = ad_bridge_target(tensor->memory.device, copy);
    const char *why = copy == AD_COPY_ALWAYS
                          ? "copy=True was passed"
                          : "the tensor's strides have no equivalent in Arrow";
    AD_RETURN_IF_ERR(
        ad_tensor_copy_to(tensor, target, NULL, 'C', why, &copied, err));
    ad_status status =
        from_elements(&copied.tensor, how, AD_COPY_NEVER, out, err);
    ad_tensor_clear(&copied.tensor);
    return status;
}

/* For elements of whole bytes. */
static ad_status
from_bytes(const ad_tensor *tensor, const storage *how, ad_copy copy,
           ad_array *out, ad_error *err)
{
    int32_t order[AD_MAX_NDIM];
    if (find_order(tensor, order)) {
        return build_rows(tensor, how, order, out, err);
    }
    if (copy == AD_COPY_NEVER) {
        return fail_strides(tensor, "a copy was ruled out",
                            "allow a copy (copy=None), or make it contiguous "
                            "in the producing library",
                            err);
    }
    if (!ad_host_accessible(tensor->memory.device) &&
        !ad_backend_is_there(tensor->memory.device.type)) {
        return fail_strides(tensor, "no runtime is there that could copy it",
                            "make it contiguous in the producing library",
                            err);
    }
    return copy_first(tensor, how, copy, out, err);
}

/* For packed elements of less than a byte: the innermost dimension becomes one
 * fixed-size binary, so that all other indices fall on whole bytes. */
static ad_status
from_packed(const ad_tensor *tensor, ad_array *out, ad_error *err)
{
    storage how;
    int32_t order[AD_MAX_NDIM];
    int64_t bits = ad_dtype_bits(tensor->dtype);
    int64_t inner = tensor->ndim > 1 ? tensor->shape[tensor->ndim - 1] : 0;
    int64_t rest = inner % 8 * bits;
    int64_t nbytes = inner / 8 * bits + rest / 8;
    if (rest % 8 != 0 || nbytes == 0 || nbytes > MAX_BINARY_WIDTH) {
        return fail_dtype(tensor,
                          "reshape it to two or more dimensions of which the "
                          "last fills whole bytes, or view it as uint8 in "
                          "the producing library",
                          "packs elements into parts of bytes, which Arrow "
                          "can store only where the last dimension of "
                          "several fills whole bytes",
                          err);
    }
    if (!ad_tensor_is_contiguous(tensor, 'C')) {
        return fail_strides(tensor,
                            "elements that share bytes are copied only as "
                            "they lie",
                            "make it contiguous in the producing library",
                            err);
    }
    ad_tensor rows = *tensor;
    rows.ndim--;
    for (int32_t i = 0; i < rows.ndim; i++) {
        order[i] = i;
    }
    set_binary(&how, nbytes);
    return build_rows(&rows, &how, order, out, err);
}

static ad_status
from_elements(const ad_tensor *tensor, const storage *how, ad_copy copy,
              ad_array *out, ad_error *err)
{
    if (copy == AD_COPY_ALWAYS) {
        return copy_first(tensor, how, copy, out, err);
    }
    return ad_dtype_bits(tensor->dtype) % 8 == 0
               ? from_bytes(tensor, how, copy, out, err)
               : from_packed(tensor, out, err);
}

/* The type of a column of plain numbers that needs no copy; else NULL. */
static const ad_dtype_info *
plain_column(const ad_tensor *tensor, ad_copy copy)
{
    if (copy == AD_COPY_ALWAYS || tensor->ndim != 1 ||
        (tensor->strides[0] != 1 && tensor->shape[0] > 1) ||
        tensor->dtype.lanes != 1 ||
        (tensor->byte_offset != 0 &&
         ad_device_uses_handles(tensor->memory.device.type))) {
        return NULL;
    }
    const ad_dtype_info *info = ad_dtype_find(tensor->dtype);
    return info != NULL && info->extension == AD_DTYPE_NONE ? info : NULL;
}

ad_status
ad_array_from_tensor(const ad_tensor *tensor, ad_copy copy, ad_array *out,
                     ad_error *err)
{
    const ad_dtype_info *plain = plain_column(tensor, copy);
    if (plain != NULL) {
        return build_leaf(tensor, ad_schema_primitive(plain->arrow), 0,
                          tensor->shape[0], false, false, out, err);
    }
    if (tensor->dtype.bits < 8 &&
        (tensor->flags & AD_TENSOR_SUBBYTE_PADDED) != 0) {
        return fail_dtype(tensor,
                          "pack it, or view it as uint8 in the producing "
                          "library",
                          "has one byte per element, which has no equivalent "
                          "in Arrow in this version",
                          err);
    }
    storage how;
    find_storage(tensor->dtype, &how);
    return from_elements(tensor, &how, copy, out, err);
}

ad_status
ad_array_from_times(const ad_tensor *tensor, const char *format, ad_copy copy,
                    ad_array *out, ad_error *err)
{
    storage how;
    AD_RETURN_IF_ERR(ad_require_host(tensor->memory.device, err));
    if (tensor->ndim == 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "ndim",
                       "pass .reshape(1) for a column of one row",
                       "a datetime64 or timedelta64 without dimensions has "
                       "no equivalent in Arrow");
    }
    set_storage(&how, format, 1, 8, AD_EXTENSION_NONE);
    how.has_nat = true;
    return from_elements(tensor, &how, copy, out, err);
}

ad_status
ad_array_from_tensor_steal(ad_tensor *tensor, ad_copy copy, ad_array *out,
                           ad_error *err)
{
    const ad_dtype_info *plain = plain_column(tensor, copy);
    ad_status status;
    if (plain != NULL && ad_owner_has_leaf(tensor->memory.owner)) {
        ad_array_of_leaf(tensor->memory,
                         ad_schema_primitive(plain->arrow).node,
                         ad_tensor_address(tensor), tensor->shape[0], out);
        return AD_OK;
    }
    if (plain != NULL) {
        status = build_leaf(tensor, ad_schema_primitive(plain->arrow), 0,
                            tensor->shape[0], false, true, out, err);
        if (status == AD_OK) {
            tensor->memory.owner = NULL;
            tensor->memory.sync = NULL;
        }
    } else {
        status = ad_array_from_tensor(tensor, copy, out, err);
    }
    ad_tensor_clear(tensor);
    return status;
}

/* --- columns of a matrix ------------------------------------------------- */

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
