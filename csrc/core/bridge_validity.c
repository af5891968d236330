#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/bridge.h"
#include "core/bridge_internal.h"
#include "core/memory.h"
#include "core/owner_group.h"
#include "device/backend.h"
#include "kernels/kernels.h"

/* --- counting ----------------------------------------------------------- */

int64_t
ad_bitmap_count_zeros(const void *bitmap, int64_t offset, int64_t length)
{
    int64_t n_set = 0;
    const ad_launch launch = {
        .kernel = AD_KERNEL_COUNT_BITS,
        .source = {.place = {.device = AD_CPU}, .data = (void *)bitmap},
        .target = {.place = {.device = AD_CPU}, .data = &n_set},
        .bit_offset = offset,
        .length = length,
        .n_items = 1,
    };
    if (length > 0) {
        ad_kernel_run_on_host(&launch);
    }
    return length - n_set;
}

int64_t
ad_array_count_nulls_host(const ad_array *array)
{
    const void *validity = ad_array_validity(array);
    if (ad_array_has_no_nulls(array)) {
        return 0;
    }
    /* The type null has nulls without a bitmap. */
    return validity == NULL
               ? array->length
               : ad_bitmap_count_zeros(validity, array->offset, array->length);
}

/* --- a mask as a bitmap ------------------------------------------------- */

static ad_status
check_mask(const ad_array *array, const ad_tensor *mask, ad_error *err)
{
    ad_dl_dtype dtype = mask->dtype;
    if ((dtype.code != AD_DL_BOOL && dtype.code != AD_DL_UINT) ||
        dtype.bits != 8 || dtype.lanes != 1) {
        char name[AD_DTYPE_NAME_SIZE];
        return ad_fail(err, AD_ERR_TYPE, NULL, NULL,
                       "a mask must have elements of bool or uint8, not %s",
                       ad_dtype_format(dtype, name));
    }
    if (mask->ndim != 1 || mask->shape[0] != array->length) {
        int64_t n = mask->ndim == 1 ? mask->shape[0] : -1;
        return n < 0 ? ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                               "a mask must have one dimension, not %" PRId32,
                               mask->ndim)
                     : ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                               "a mask must have one element per row: %" PRId64
                               ", not %" PRId64,
                               array->length, n);
    }
    AD_RETURN_IF_ERR(ad_require_host(mask->device, err));
    return ad_sync_wait(mask->sync, "a mask on the host", err);
}

static ad_status
check_rows(const ad_array *array, ad_error *err)
{
    const struct ArrowSchema *schema = array->schema.node;
    ad_type type;
    AD_RETURN_IF_ERR(ad_require_host(array->device, err));
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    if (!type.has_validity) {
        return ad_fail(err, AD_ERR_TYPE, NULL, NULL,
                       "arrays of format \"%.40s\" have no validity bitmap, "
                       "so that no mask can be put on one",
                       schema->format);
    }
    if (ad_array_has_no_nulls(array)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        ad_sync_wait(array->sync, "counting nulls on the host", err));
    if (ad_array_count_nulls_host(array) > 0) {
        return ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                       "combine the mask with the array's own nulls first",
                       "the array has nulls already, to which a mask would "
                       "be added");
    }
    return AD_OK;
}

/* Bits [offset, offset + length) are set where the mask says valid; those
 * before are set, those behind are not. */
static int64_t
fill_bitmap(uint8_t *bitmap, int64_t nbytes, int64_t offset,
            const ad_tensor *mask, int valid_value)
{
    const uint8_t *source = ad_tensor_address(mask);
    int64_t length = mask->shape[0];
    int64_t stride = mask->strides[0];
    int64_t n_nulls = 0;
    if (nbytes == 0) {
        return 0;
    }
    memset(bitmap, 0, (size_t)nbytes);
    memset(bitmap, 0xff, (size_t)(offset / 8));
    for (int64_t i = offset / 8 * 8; i < offset; i++) {
        bitmap[i / 8] |= (uint8_t)(1 << (i % 8));
    }
    for (int64_t i = 0; i < length; i++) {
        bool is_valid = (source[i * stride] != 0) == (valid_value != 0);
        int64_t bit = offset + i;
        bitmap[bit / 8] |= (uint8_t)(is_valid << (bit % 8));
        n_nulls += !is_valid;
    }
    return n_nulls;
}

/* The array's own node again, over new buffers. */
static ad_status
rebuild(const ad_array *array, const void *const *buffers, ad_owner *owner,
        int64_t n_nulls, ad_array *out, ad_error *err)
{
    const struct ArrowArray *node = array->node;
    ad_array dictionary = {0};
    size_t n = (size_t)node->n_children;
    ad_array *children = calloc(n + 1, sizeof(*children));
    ad_status status = AD_OK;
    if (children == NULL) {
        return ad_fail_memory(err, (n + 1) * sizeof(*children));
    }
    for (size_t i = 0; i < n && status == AD_OK; i++) {
        status = ad_array_child(array, (int64_t)i, &children[i], err);
    }
    if (status == AD_OK && node->dictionary != NULL) {
        status = ad_array_dictionary(array, &dictionary, err);
    }
    if (status == AD_OK) {
        ad_array_spec spec = {
            .schema = array->schema,
            .device = array->device,
            .length = array->length,
            .offset = array->offset,
            .null_count = n_nulls,
            .n_buffers = node->n_buffers,
            .buffers = buffers,
            .owner = owner,
            .n_children = node->n_children,
            .children = children,
            .dictionary = node->dictionary != NULL ? &dictionary : NULL,
            .sync = array->sync,
            .readonly = array->readonly,
        };
        status = ad_array_build(&spec, out, err);
    }
    for (size_t i = 0; i < n; i++) {
        ad_array_clear(&children[i]);
    }
    ad_array_clear(&dictionary);
    free(children);
    return status;
}

/* A bitmap, and an owner that keeps both it and the memory of the rows. */
static ad_status
make_bitmap(const ad_array *array, const ad_tensor *mask, int valid_value,
            ad_owner **owner, const void **data, int64_t *n_nulls,
            ad_error *err)
{
    ad_memory *bitmap;
    /* No overflow: a validated offset + length is below 2^63. */
    int64_t nbytes = (array->offset + array->length) / 8 + 1;
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, &bitmap, err));
    *data = bitmap->data;
    *n_nulls =
        fill_bitmap(bitmap->data, nbytes, array->offset, mask, valid_value);
    ad_owner *const owners[] = {&bitmap->base, array->owner};
    ad_status status = ad_owner_group_new(owners, 2, owner, err);
    ad_owner_unref(&bitmap->base);
    return status;
}

ad_status
ad_array_with_validity(const ad_array *array, const ad_tensor *mask,
                       int valid_value, ad_array *out, ad_error *err)
{
    const void **buffers = NULL;
    ad_owner *owner = NULL;
    const void *bitmap;
    int64_t n_nulls;
    AD_RETURN_IF_ERR(check_mask(array, mask, err));
    AD_RETURN_IF_ERR(check_rows(array, err));
    AD_RETURN_IF_ERR(
        make_bitmap(array, mask, valid_value, &owner, &bitmap, &n_nulls, err));
    /* A validated array of a type with a bitmap has at least one buffer. */
    size_t nbytes = (size_t)array->node->n_buffers * sizeof(*buffers);
    ad_status status;
    if (n_nulls > 0 &&
        (array->schema.node->flags & ARROW_FLAG_NULLABLE) == 0) {
        status = ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                         "the array's schema says that it has no nulls, but "
                         "the mask marks %" PRId64,
                         n_nulls);
        goto done;
    }
    buffers = malloc(nbytes);
    if (buffers == NULL) {
        status = ad_fail_memory(err, nbytes);
        goto done;
    }
    memcpy(buffers, array->node->buffers, nbytes);
    buffers[0] = bitmap;
    status = rebuild(array, buffers, owner, n_nulls, out, err);

done:
    free(buffers);
    ad_owner_unref(owner);
    return status;
}

/* --- bools as bits ------------------------------------------------------- */

ad_status
ad_array_pack_bools(const ad_array *array, ad_array *out, ad_error *err)
{
    const ad_bridge_options options = {.copy = AD_COPY_NEVER,
                                       .nulls = AD_NULLS_IGNORE};
    const ad_schema_spec bits = {.format = "b", .flags = ARROW_FLAG_NULLABLE};
    int64_t nbytes = (array->offset + array->length + 7) / 8;
    ad_tensor_value bools = {0};
    ad_schema schema = {0};
    ad_memory *bitmap = NULL;
    ad_owner *owner = NULL;
    AD_RETURN_IF_ERR(ad_require_host(array->device, err));
    AD_RETURN_IF_ERR(ad_sync_wait(array->sync, "a copy on the host", err));
    AD_RETURN_IF_ERR(ad_tensor_from_array(array, &options, &bools, err));
    ad_status status = ad_schema_build(&bits, &schema, err);
    if (status == AD_OK) {
        status = ad_memory_new(nbytes, &bitmap, err);
    }
    if (status == AD_OK) {
        ad_owner *owners[] = {array->owner, &bitmap->base};
        status = ad_owner_group_new(owners, 2, &owner, err);
    }
    if (status == AD_OK) {
        fill_bitmap(bitmap->data, nbytes, array->offset, &bools.tensor, 1);
        const void *buffers[] = {ad_array_validity(array), bitmap->data};
        const ad_array_spec spec = {
            .schema = schema,
            .device = array->device,
            .length = array->length,
            .offset = array->offset,
            .null_count = array->null_count,
            .n_buffers = 2,
            .buffers = buffers,
            .owner = owner,
        };
        status = ad_array_build(&spec, out, err);
    }
    ad_owner_unref(owner);
    ad_owner_unref(bitmap != NULL ? &bitmap->base : NULL);
    ad_schema_unref(schema);
    ad_tensor_clear(&bools.tensor);
    return status;
}
