#include "bridge/bridge.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "compute/bits.h"
#include "order/device_owner.h"
#include "base/log.h"
#include "base/owner.h"
#include "model/map_buffers.h"
#include "copy/copy.h"
#include "copy/session.h"

static const char operation[] = "making a validity bitmap";

/* --- masks --------------------------------------------------------------- */

#define PACKED_HINT                                                           \
    "bits that are packed already are passed as an array of bools: "          \
    "arrowdev.Array.from_buffers(\"bool\", n, [None, bits])"

static ad_status
check_mask(const ad_tensor *tensor, ad_error *err)
{
    ad_dl_dtype dtype = tensor->dtype;
    if ((dtype.code != AD_DL_BOOL && dtype.code != AD_DL_UINT) ||
        dtype.bits != 8 || dtype.lanes != 1) {
        char name[AD_DTYPE_NAME_SIZE];
        return ad_fail(err, AD_ERR_TYPE, NULL,
                       "compare it with what marks a valid row first",
                       "a mask must have elements of bool or uint8, not %s",
                       ad_dtype_format(dtype, name));
    }
    if (tensor->ndim != 1) {
        return ad_fail(
            err, AD_ERR_VALUE, NULL, "Arrow has one validity bit per row",
            "a mask must have one dimension, not %" PRId32, tensor->ndim);
    }
    return AD_OK;
}

ad_status
ad_mask_from_tensor(const ad_tensor *tensor, bool marks_nulls,
                    const ad_stream_ref *stream, ad_mask *out, ad_error *err)
{
    ad_tensor_value contiguous;
    AD_RETURN_IF_ERR(check_mask(tensor, err));
    if (!ad_tensor_is_contiguous(tensor, 'C')) {
        ad_device device = ad_host_accessible(tensor->memory.device)
                               ? AD_CPU
                               : tensor->memory.device;
        AD_RETURN_IF_ERR(ad_tensor_copy_to(
            tensor, device, stream, 'C',
            "the mask's strides leave gaps between its elements", &contiguous,
            err));
        ad_status status = ad_mask_from_tensor(&contiguous.tensor, marks_nulls,
                                               stream, out, err);
        ad_tensor_clear(&contiguous.tensor);
        return status;
    }
    *out = (ad_mask){
        .device = tensor->memory.device,
        .data = tensor->data,
        .offset = (int64_t)tensor->byte_offset,
        .length = tensor->shape[0],
        .marks_nulls = marks_nulls,
        .owner = ad_owner_ref(tensor->memory.owner),
        .sync = ad_sync_ref(tensor->memory.sync),
    };
    return AD_OK;
}

/* Refuses a column without plain values here, so that the message can speak of
 * a mask. */
static ad_status
check_flat(const struct ArrowSchema *schema, ad_error *err)
{
    ad_type type;
    ad_text text = {0};
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    if (type.layout == AD_LAYOUT_FIXED && schema->dictionary == NULL) {
        return AD_OK;
    }
    bool is_printed = ad_type_print(schema, &text, NULL) == AD_OK;
    ad_fail(err, AD_ERR_TYPE, NULL,
            "make one flag per row first, true where the row is valid",
            "a mask must be a column of bool or uint8, not %.120s",
            is_printed ? ad_text_string(&text) : schema->format);
    ad_text_clear(&text);
    return AD_ERR_TYPE;
}

static ad_status
check_no_nulls(const ad_array *array, const ad_stream_ref *stream,
               ad_error *err)
{
    int64_t n_nulls;
    AD_RETURN_IF_ERR(ad_array_count_nulls(array, stream, &n_nulls, err));
    if (n_nulls == 0) {
        return AD_OK;
    }
    char nulls[AD_COUNT_SIZE], values[AD_COUNT_SIZE];
    return ad_fail(err, AD_ERR_EXCHANGE, "nulls",
                   "fill them first: what is unknown is neither valid nor "
                   "null",
                   "the mask itself has %s among %s",
                   ad_count_text(n_nulls, "null", "nulls", nulls),
                   ad_count_text(array->length, "value", "values", values));
}

/* A column of bytes as flags, without a copy. */
static ad_status
mask_from_bytes(const ad_array *array, const ad_stream_ref *stream,
                ad_mask *out, ad_error *err)
{
    const ad_bridge_options options = {.copy = AD_COPY_NEVER,
                                       .nulls = AD_NULLS_IGNORE};
    ad_tensor_value bytes;
    AD_RETURN_IF_ERR(ad_tensor_from_array(array, &options, &bytes, err));
    ad_status status =
        ad_mask_from_tensor(&bytes.tensor, false, stream, out, err);
    ad_tensor_clear(&bytes.tensor);
    return status;
}

ad_status
ad_mask_from_array(const ad_array *array, const ad_stream_ref *stream,
                   ad_mask *out, ad_error *err)
{
    const struct ArrowSchema *schema = array->schema.node;
    AD_RETURN_IF_ERR(check_flat(schema, err));
    AD_RETURN_IF_ERR(check_no_nulls(array, stream, err));
    if (strcmp(schema->format, "b") == 0 && schema->dictionary == NULL) {
        *out = (ad_mask){
            .device = array->memory.device,
            .data = array->node->buffers[1],
            .offset = array->offset,
            .length = array->length,
            .is_bits = true,
            .owner = ad_owner_ref(array->memory.owner),
            .sync = ad_sync_ref(array->memory.sync),
        };
        return AD_OK;
    }
    return mask_from_bytes(array, stream, out, err);
}

void
ad_mask_clear(ad_mask *mask)
{
    ad_sync_unref(mask->sync);
    ad_owner_unref(mask->owner);
    *mask = (ad_mask){0};
}

/* --- checks of array and mask -------------------------------------------- */

static ad_status
check_length(const ad_array *array, const ad_mask *mask, ad_error *err)
{
    if (mask->length == array->length) {
        return AD_OK;
    }
    bool is_packed =
        !mask->is_bits && mask->length == ad_bitmap_bytes(array->length);
    return ad_fail(err, AD_ERR_VALUE, NULL, is_packed ? PACKED_HINT : NULL,
                   "a mask must have one element per row: %" PRId64
                   ", not %" PRId64,
                   array->length, mask->length);
}

static ad_status
check_device(const ad_array *array, const ad_mask *mask, ad_error *err)
{
    char data[AD_DEVICE_NAME_SIZE];
    char flags[AD_DEVICE_NAME_SIZE];
    if (ad_device_equal(array->memory.device, mask->device) ||
        (ad_device_equal(array->memory.device, AD_CPU) &&
         ad_host_accessible(mask->device))) {
        return AD_OK;
    }
    ad_device_format(array->memory.device, data);
    ad_device_format(mask->device, flags);
    ad_fail(err, AD_ERR_EXCHANGE, "device",
            "bring one of them there with arrowdev.array(x, device=...)",
            "the data are on %s, but their mask is on %s", data, flags);
    /* Names the device that is not the host. */
    ad_error_device(err, ad_device_equal(array->memory.device, AD_CPU)
                             ? mask->device
                             : array->memory.device);
    return AD_ERR_EXCHANGE;
}

static ad_status
check_type(const ad_array *array, ad_error *err)
{
    const struct ArrowSchema *schema = array->schema.node;
    ad_type type;
    AD_RETURN_IF_ERR(ad_type_parse(schema->format, &type, err));
    if (type.has_validity) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_TYPE, NULL,
                   type.id == AD_TYPE_NULL
                       ? "leave the mask out: every row is null already"
                       : "put the mask on its children, which have bitmaps",
                   "arrays of format \"%.40s\" have no validity bitmap, "
                   "so that no mask can be put on one",
                   schema->format);
}

static ad_status
check_nullable(const ad_array *array, int64_t n_nulls, ad_error *err)
{
    if (n_nulls == 0 || (array->schema.node->flags & ARROW_FLAG_NULLABLE)) {
        return AD_OK;
    }
    return ad_fail(err, AD_ERR_VALUE, NULL,
                   "ask for a nullable type: arrowdev.array(x, type)",
                   "the array's schema says that it has no nulls, but "
                   "the mask marks %" PRId64,
                   n_nulls);
}

/* --- a mask as a bitmap -------------------------------------------------- */

/* Below, an allocation is a bitmap; its sync is also that of the array. */
static void
bitmap_clear(ad_allocation *self)
{
    ad_sync_unref(self->sync);
    ad_owner_unref(self->owner);
}

/* An owner of both the new bitmap and the buffers of the array. */
static ad_status
join_owner(ad_allocation *self, ad_owner *of_array, ad_error *err)
{
    ad_owner *const owners[] = {self->owner, of_array};
    ad_owner *both;
    AD_RETURN_IF_ERR(ad_owner_group_new(owners, 2, &both, err));
    ad_owner_unref(self->owner);
    self->owner = both;
    return AD_OK;
}

/* Writes the flags to the bits [array->offset, ...) of the target. Bits before
 * them are set; bits after them, up to a whole byte, are cleared. */
static ad_status
write_flags(ad_session *session, const ad_array *array, const ad_mask *mask,
            void *target, ad_error *err)
{
    int64_t first = array->offset;
    int64_t end = first + array->length;
    if (mask->is_bits) {
        AD_RETURN_IF_ERR(ad_copy_bits(session, mask->data, mask->offset,
                                      target, first, mask->length,
                                      AD_BITS_COPY, err));
        AD_RETURN_IF_ERR(ad_copy_bits(session, NULL, 0, target, end,
                                      (8 - end % 8) % 8, AD_BITS_ZEROS, err));
    } else {
        const ad_launch launch = {
            .kernel = AD_KERNEL_PACK_BITS,
            .source.offset = (uint64_t)mask->offset,
            .bit_offset = first,
            .length = mask->length,
            .numbers = {mask->marks_nulls},
        };
        AD_RETURN_IF_ERR(
            ad_session_kernel(session, mask->data, target, launch, err));
    }
    return ad_copy_bits(session, NULL, 0, target, 0, first, AD_BITS_ONES, err);
}

static ad_status
fill_bitmap(ad_session *session, const ad_array *array, const ad_mask *mask,
            const void *old, void *target, ad_error *err)
{
    const ad_session_request also = ad_session_within(
        array->memory.device, ad_node_some_buffer(array->node),
        array->memory.sync, NULL, operation);
    if (session->backend != NULL) {
        AD_RETURN_IF_ERR(
            ad_owner_record_stream(mask->owner, &session->on, err));
    }
    if (old != NULL || session->backend != NULL) {
        AD_RETURN_IF_ERR(
            ad_session_use(session, &also, array->memory.owner, err));
    }
    AD_RETURN_IF_ERR(write_flags(session, array, mask, target, err));
    return old == NULL
               ? AD_OK
               : ad_copy_bits(session, old, array->offset, target,
                              array->offset, array->length, AD_BITS_AND, err);
}

static ad_status
make_bitmap(const ad_array *array, const ad_mask *mask, const void *old,
            const ad_stream_ref *stream, ad_allocation *out, ad_error *err)
{
    int64_t nbytes = ad_bitmap_bytes(array->offset + array->length);
    ad_session_request request = ad_session_within(
        mask->device, mask->data, mask->sync, stream, operation);
    ad_session session;
    *out = (ad_allocation){0};
    request.target = array->memory.device;
    request.others_pending = !ad_sync_is_done(array->memory.sync);
    int64_t start = ad_log_start();
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    ad_status status =
        ad_session_allocate(&session, nbytes, &out->data, &out->owner, err);
    if (status == AD_OK) {
        status = fill_bitmap(&session, array, mask, old, out->data, err);
    }
    AD_RETURN_IF_ERR(ad_session_end(&session, status, array->memory.owner,
                                    mask->owner, out, err));
    AD_LOG_COPY(nbytes, mask->device, array->memory.device,
                mask->is_bits ? "the bits of a mask are moved, or joined with "
                                "those of the array"
                              : "flags of a byte become bits",
                start);
    if (out->sync == NULL) {
        out->sync = ad_sync_ref(array->memory.sync);
    }
    return AD_OK;
}

/* Whether the bits of the mask can be shared. Memory that belongs to a context
 * is not shared, since array and mask may have different contexts. */
static bool
can_share(const ad_array *array, const ad_mask *mask, const void *old)
{
    return mask->is_bits && mask->offset == array->offset && old == NULL &&
           ad_device_equal(mask->device, array->memory.device) &&
           (ad_device_traits(array->memory.device.type) & AD_CONTEXTS) == 0;
}

static ad_status
share_bits(const ad_array *array, const ad_mask *mask, ad_allocation *out,
           ad_error *err)
{
    ad_sync *const syncs[] = {mask->sync, array->memory.sync};
    *out = (ad_allocation){.data = (void *)mask->data};
    AD_RETURN_IF_ERR(ad_sync_join(syncs, 2, &out->sync, err));
    out->owner = ad_owner_ref(mask->owner);
    return AD_OK;
}

/* --- the array with the bitmap ------------------------------------------- */

/* The bitmap, or NULL if it is known to have no nulls. */
static ad_status
old_bitmap(const ad_array *array, const void **out, ad_error *err)
{
    int64_t n_nulls = 1;
    *out = NULL;
    if (ad_array_has_no_nulls(array)) {
        return AD_OK;
    }
    if (ad_host_accessible(array->memory.device)) {
        AD_RETURN_IF_ERR(ad_sync_wait(array->memory.sync, operation, err));
        n_nulls = ad_array_count_nulls_host(array);
    }
    *out = n_nulls != 0 ? ad_array_validity(array) : NULL;
    return AD_OK;
}

/* Host nulls are counted, and a bitmap without nulls is dropped. */
static ad_status
attach(const ad_array *array, const ad_mask *mask, const ad_allocation *made,
       ad_array *out, ad_error *err)
{
    bool is_host = ad_device_equal(array->memory.device, AD_CPU);
    if (is_host) {
        AD_RETURN_IF_ERR(ad_sync_wait(mask->sync, operation, err));
    }
    int64_t n_nulls =
        is_host
            ? ad_bitmap_count_zeros(made->data, array->offset, array->length)
            : -1;
    const ad_validity_change change = {
        .null_count = n_nulls,
        .validity = n_nulls != 0 ? made->data : NULL,
        .owner = n_nulls != 0 ? made->owner : array->memory.owner,
        .sync = made->sync,
    };
    return ad_array_with_validity(array, &change, out, err);
}

ad_status
ad_array_apply_mask(const ad_array *array, const ad_mask *mask,
                    const ad_stream_ref *stream, ad_array *out, ad_error *err)
{
    const void *old;
    ad_allocation made;
    AD_RETURN_IF_ERR(check_length(array, mask, err));
    AD_RETURN_IF_ERR(check_type(array, err));
    AD_RETURN_IF_ERR(check_device(array, mask, err));
    if (array->length == 0) {
        ad_array_share(array, out);
        return AD_OK;
    }
    AD_RETURN_IF_ERR(old_bitmap(array, &old, err));
    AD_RETURN_IF_ERR(can_share(array, mask, old)
                         ? share_bits(array, mask, &made, err)
                         : make_bitmap(array, mask, old, stream, &made, err));
    ad_status status = join_owner(&made, array->memory.owner, err);
    if (status == AD_OK) {
        status = attach(array, mask, &made, out, err);
    }
    bitmap_clear(&made);
    if (status != AD_OK) {
        return status;
    }
    int64_t n_nulls = ad_array_null_count(out);
    if (n_nulls < 0 &&
        (array->schema.node->flags & ARROW_FLAG_NULLABLE) == 0) {
        status = ad_array_count_nulls(out, stream, &n_nulls, err);
        ad_array_set_null_count(out, n_nulls);
    }
    if (status == AD_OK) {
        status = check_nullable(array, n_nulls, err);
    }
    if (status != AD_OK) {
        ad_array_clear(out);
    }
    return status;
}

/* --- bools as bits ------------------------------------------------------- */

static ad_status
build_bits(const ad_array *array, const ad_allocation *made, ad_array *out,
           ad_error *err)
{
    const ad_schema_spec bits = {.format = "b", .flags = ARROW_FLAG_NULLABLE};
    const void *buffers[] = {ad_array_validity(array), made->data};
    ad_array_spec spec = {
        .memory = {.owner = made->owner,
                   .sync = made->sync,
                   .device = array->memory.device},
        .length = array->length,
        .offset = array->offset,
        .null_count = ad_array_null_count(array),
        .n_buffers = 2,
        .buffers = buffers,
    };
    AD_RETURN_IF_ERR(ad_schema_build(&bits, &spec.schema, err));
    ad_status status = ad_array_build(&spec, out, err);
    ad_schema_unref(spec.schema);
    return status;
}

ad_status
ad_array_pack_bools(const ad_array *array, const ad_stream_ref *stream,
                    ad_array *out, ad_error *err)
{
    ad_mask mask;
    ad_allocation made;
    AD_RETURN_IF_ERR(mask_from_bytes(array, stream, &mask, err));
    ad_status status = make_bitmap(array, &mask, NULL, stream, &made, err);
    ad_mask_clear(&mask);
    AD_RETURN_IF_ERR(status);
    if (ad_array_validity(array) != NULL) {
        status = join_owner(&made, array->memory.owner, err);
    }
    if (status == AD_OK) {
        status = build_bits(array, &made, out, err);
    }
    bitmap_clear(&made);
    return status;
}
