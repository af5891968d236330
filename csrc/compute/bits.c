#include "compute/bits.h"

#include "order/device_owner.h"
#include "base/owner.h"
#include "copy/copy.h"

/* --- kernels ------------------------------------------------------------- */

/* Opens a session on the device of the bits. */
static ad_status
open_session(const ad_bits *bits, const ad_stream_ref *stream,
             const char *operation, ad_session *out, ad_error *err)
{
    const ad_session_request request = ad_session_within(
        bits->device, bits->data, bits->sync, stream, operation);
    return ad_session_open(&request, out, err);
}

/* Launches a kernel that reads `bits` and writes `nbytes` of new memory. The
 * caller ends the session, also after a failure. */
static ad_status
launch_on_bits(ad_session *session, const ad_bits *bits, ad_launch launch,
               int64_t nbytes, ad_allocation *out, ad_error *err)
{
    AD_RETURN_IF_ERR(
        ad_session_allocate(session, nbytes, &out->data, &out->owner, err));
    if (session->backend != NULL) {
        AD_RETURN_IF_ERR(
            ad_owner_record_stream(bits->owner, &session->on, err));
    }
    return ad_session_kernel(session, bits->data, out->data, launch, err);
}

/* --- copying bits -------------------------------------------------------- */

ad_status
ad_copy_bits(ad_session *session, const void *source, int64_t from,
             void *target, int64_t to, int64_t n, ad_bits_operation how,
             ad_error *err)
{
    /* A launch needs a source: the target serves as one. */
    bool has_source = how < AD_BITS_ONES;
    const ad_launch launch = {
        .kernel = AD_KERNEL_COPY_BITS,
        .bit_offset = has_source ? from : to,
        .length = n,
        .numbers = {to, how},
    };
    return ad_session_kernel(session, has_source ? source : target, target,
                             launch, err);
}

/* --- expanding bits to bytes --------------------------------------------- */

ad_status
ad_unpack_bits(const ad_bits *bits, const ad_stream_ref *stream,
               ad_allocation *out, ad_error *err)
{
    const ad_launch launch = {
        .kernel = AD_KERNEL_UNPACK_BITS,
        .bit_offset = bits->offset,
        .length = bits->length,
    };
    ad_session session;
    *out = (ad_allocation){0};
    if (bits->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        open_session(bits, stream, "expanding bits to bytes", &session, err));
    ad_status status =
        launch_on_bits(&session, bits, launch, bits->length, out, err);
    return ad_session_end(&session, status, bits->owner, NULL, out, err);
}

/* --- counting ------------------------------------------------------------ */

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

/* Bitmaps up to this size are copied to the host and counted there, which
 * takes less time than a kernel. */
#define SMALL_BITMAP 4096

static ad_status
count_small(const ad_bits *self, const ad_stream_ref *stream, int64_t *zeros,
            ad_error *err)
{
    uint8_t bytes[SMALL_BITMAP + 8];
    int64_t first = self->offset / 8;
    int64_t end = ad_bitmap_bytes(self->offset + self->length);
    AD_RETURN_IF_ERR(ad_read_device(self->device, self->data, self->owner,
                                    (uint64_t)first, (size_t)(end - first),
                                    self->sync, stream, bytes, err));
    *zeros =
        ad_bitmap_count_zeros(bytes, self->offset - first * 8, self->length);
    return AD_OK;
}

/* The sum of the results of a kernel, or the smallest of the first bad rows. */
static ad_launch
reduce_launch(ad_kernel of, int64_t n)
{
    return (ad_launch){
        .kernel = AD_KERNEL_REDUCE,
        .target.offset = (uint64_t)n * sizeof(int64_t),
        .length = n,
        .numbers = {of == AD_KERNEL_CHECK_OFFSETS},
    };
}

/* Launches a kernel that reads `from` and writes one number per work item, and
 * reads these *n numbers back to new host memory. Many are reduced to fewer
 * before, which are written behind them. */
static ad_status
launch_and_read(const ad_bits *from, ad_launch launch, const char *operation,
                const ad_stream_ref *stream, ad_host_block **out, int64_t *n,
                ad_error *err)
{
    ad_allocation partial = {0};
    ad_session session;
    AD_RETURN_IF_ERR(open_session(from, stream, operation, &session, err));
    const int64_t size = (int64_t)sizeof(int64_t);
    launch.n_items = *n = ad_session_items(&session, &launch);
    ad_launch reduce = reduce_launch(launch.kernel, launch.n_items);
    bool has_many = launch.n_items > AD_FEW_RESULTS;
    if (has_many) {
        reduce.n_items = *n = ad_session_items(&session, &reduce);
    }
    AD_RETURN_IF_ERR(ad_host_block_new(*n * size, out, err));
    ad_status status = launch_on_bits(&session, from, launch,
                                      (launch.n_items + reduce.n_items) * size,
                                      &partial, err);
    if (status == AD_OK && has_many) {
        status = ad_session_kernel(&session, partial.data, partial.data,
                                   reduce, err);
    }
    if (status == AD_OK) {
        uint64_t first = has_many ? reduce.target.offset : 0;
        status = ad_session_read(&session, NULL, partial.data, first,
                                 (size_t)(*n * size), (*out)->data, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(&session, from->owner, NULL, partial.owner);
        ad_owner_unref(&(*out)->base);
    }
    ad_owner_unref(partial.owner);
    return status;
}

static ad_status
count_by_kernel(const ad_bits *self, const ad_stream_ref *stream,
                int64_t *zeros, ad_error *err)
{
    const ad_launch launch = {
        .kernel = AD_KERNEL_COUNT_BITS,
        .bit_offset = self->offset,
        .length = self->length,
    };
    ad_host_block *sums;
    int64_t n;
    AD_RETURN_IF_ERR(launch_and_read(self, launch, "counting nulls", stream,
                                     &sums, &n, err));
    *zeros = self->length;
    for (int64_t i = 0; i < n; i++) {
        *zeros -= ((const int64_t *)sums->data)[i];
    }
    ad_owner_unref(&sums->base);
    return AD_OK;
}

ad_status
ad_bitmap_count_zeros_of(const ad_array *array, const void *data,
                         int64_t offset, int64_t length,
                         const ad_stream_ref *stream, int64_t *out,
                         ad_error *err)
{
    const ad_bits self = {
        .device = array->memory.device,
        .data = data,
        .owner = array->memory.owner,
        .sync = array->memory.sync,
        .offset = offset,
        .length = length,
    };
    if (ad_host_accessible(array->memory.device)) {
        AD_RETURN_IF_ERR(
            ad_sync_wait(array->memory.sync, "counting nulls", err));
        *out = ad_bitmap_count_zeros(data, offset, length);
        return AD_OK;
    }
    return length <= SMALL_BITMAP * 8
               ? count_small(&self, stream, out, err)
               : count_by_kernel(&self, stream, out, err);
}

ad_status
ad_array_count_nulls(const ad_array *array, const ad_stream_ref *stream,
                     int64_t *out, ad_error *err)
{
    const void *validity = ad_array_validity(array);
    if (validity == NULL || ad_array_has_no_nulls(array)) {
        *out = ad_array_count_nulls_host(array); /* without a read */
        return AD_OK;
    }
    return ad_bitmap_count_zeros_of(array, validity, array->offset,
                                    array->length, stream, out, err);
}

/* --- offsets ------------------------------------------------------------- */

ad_status
ad_find_bad_offset(const ad_array *array, const void *offsets, int64_t width,
                   int64_t limit, int64_t *out, ad_error *err)
{
    static const char operation[] = "checking offsets";
    const ad_bits from = {
        .device = array->memory.device,
        .data = offsets,
        .owner = array->memory.owner,
        .sync = array->memory.sync,
    };
    ad_host_block *found;
    int64_t n, first = array->length + 1;
    const ad_launch launch = {
        .kernel = AD_KERNEL_CHECK_OFFSETS,
        .source = {.data = (void *)offsets,
                   .offset = (uint64_t)(array->offset * width)},
        .length = array->length,
        .numbers = {width, limit},
        .n_items = 1,
    };
    *out = -1;
    if (array->length == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        launch_and_read(&from, launch, operation, NULL, &found, &n, err));
    for (int64_t i = 0; i < n; i++) {
        int64_t row = ((const int64_t *)found->data)[i];
        first = row < first ? row : first;
    }
    ad_owner_unref(&found->base);
    *out = first < array->length ? first : -1;
    return AD_OK;
}
