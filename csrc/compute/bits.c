#include "compute/bits.h"

#include "order/device_owner.h"
#include "base/memory.h"
#include "copy/copy.h"

/* --- kernels -------------------------------------------------------------- */

/* Launches a kernel that reads `bits` and writes `nbytes` of new memory on the
 * same device. On success the caller finishes the session; on failure it has
 * been abandoned. */
static ad_status
launch_on_bits(ad_session *session, const void *bits, ad_owner *bits_owner,
               ad_launch launch, int64_t nbytes, void **out, ad_owner **owner,
               ad_error *err)
{
    *owner = NULL;
    ad_status status = ad_session_allocate(session, nbytes, out, owner, err);
    if (status == AD_OK && session->backend != NULL) {
        status = ad_owner_record_stream(bits_owner, session->context,
                                        session->stream, session->keep, err);
    }
    if (status == AD_OK) {
        status = ad_session_kernel(session, bits, *out, launch, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(session, bits_owner, NULL, *owner);
        ad_owner_unref(*owner);
        *owner = NULL;
    }
    return status;
}

/* --- copying bits --------------------------------------------------------- */

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

/* A session from the device of the bits to the same device. */
static ad_session_request
same_device_request(const ad_bits *bits, const ad_stream_choice *stream,
                    const char *consumer)
{
    return (ad_session_request){
        .source = bits->device,
        .data = bits->data,
        .sync = bits->sync,
        .target = bits->device,
        .stream = stream,
        .consumer = consumer,
    };
}

/* --- expanding bits to bytes ---------------------------------------------- */

ad_status
ad_unpack_bits(const ad_bits *bits, const ad_stream_choice *stream,
               ad_allocation *out, ad_error *err)
{
    const ad_session_request request =
        same_device_request(bits, stream, "expanding bits to bytes");
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
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    AD_RETURN_IF_ERR(launch_on_bits(&session, bits->data, bits->owner, launch,
                                    bits->length, &out->data, &out->owner,
                                    err));
    ad_status status = ad_session_finish(&session, NULL, &out->sync, err);
    if (status != AD_OK) {
        ad_session_abandon(&session, bits->owner, NULL, out->owner);
        ad_owner_unref(out->owner);
        *out = (ad_allocation){0};
    }
    return status;
}

/* --- counting ------------------------------------------------------------- */

int64_t
ad_bitmap_count_zeros(const void *bitmap, int64_t offset, int64_t length)
{
    int64_t n_set = 0;
    const ad_launch launch = {
        .kernel = AD_KERNEL_COUNT_BITS,
        .source = {.context = {.device = AD_CPU}, .data = (void *)bitmap},
        .target = {.context = {.device = AD_CPU}, .data = &n_set},
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

/* Bitmaps up to this size are copied to the host and counted there, which takes
 * less time than a kernel. */
#define SMALL_BITMAP 4096

static ad_status
count_small(const ad_bits *self, const ad_stream_choice *stream,
            int64_t *zeros, ad_error *err)
{
    uint8_t bytes[SMALL_BITMAP + 8];
    int64_t first = self->offset / 8;
    int64_t end = (self->offset + self->length + 7) / 8;
    AD_RETURN_IF_ERR(ad_read_device(self->device, self->data, self->owner,
                                    (uint64_t)first, (size_t)(end - first),
                                    self->sync, stream, bytes, err));
    *zeros =
        ad_bitmap_count_zeros(bytes, self->offset - first * 8, self->length);
    return AD_OK;
}

/* Launches a kernel that reads `from` and writes one number per work item, and
 * reads these *n numbers back to new host memory. */
static ad_status
launch_and_read(const ad_bits *from, ad_launch launch, const char *consumer,
                const ad_stream_choice *stream, ad_memory **out, int64_t *n,
                ad_error *err)
{
    const ad_session_request request =
        same_device_request(from, stream, consumer);
    void *partial;
    ad_owner *owner;
    ad_sync *sync = NULL;
    ad_session session;
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    launch.n_items = ad_session_items(&session, &launch);
    int64_t nbytes = launch.n_items * (int64_t)sizeof(int64_t);
    *n = launch.n_items;
    AD_RETURN_IF_ERR(ad_memory_new(nbytes, out, err));
    ad_status status = launch_on_bits(&session, from->data, from->owner,
                                      launch, nbytes, &partial, &owner, err);
    if (status != AD_OK) {
        goto failed;
    }
    status = ad_session_finish(&session, NULL, &sync, err);
    if (status == AD_OK) {
        const ad_stream_choice same = {true, session.stream, session.keep};
        status =
            ad_read_device(session.context.device, partial, owner, 0,
                           (size_t)nbytes, sync, &same, (*out)->data, err);
    } else {
        ad_session_abandon(&session, from->owner, NULL, owner);
    }
    ad_sync_unref(sync);
    ad_owner_unref(owner);
    if (status == AD_OK) {
        return AD_OK;
    }

failed:
    ad_owner_unref(&(*out)->base);
    return status;
}

static ad_status
count_by_kernel(const ad_bits *self, const ad_stream_choice *stream,
                int64_t *zeros, ad_error *err)
{
    const ad_launch launch = {
        .kernel = AD_KERNEL_COUNT_BITS,
        .bit_offset = self->offset,
        .length = self->length,
    };
    ad_memory *sums;
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
                         const ad_stream_choice *stream, int64_t *out,
                         ad_error *err)
{
    const ad_bits self = {
        .device = array->device,
        .data = data,
        .owner = array->owner,
        .sync = array->sync,
        .offset = offset,
        .length = length,
    };
    if (ad_host_accessible(array->device)) {
        AD_RETURN_IF_ERR(ad_sync_wait(array->sync, "counting nulls", err));
        *out = ad_bitmap_count_zeros(data, offset, length);
        return AD_OK;
    }
    return length <= SMALL_BITMAP * 8
               ? count_small(&self, stream, out, err)
               : count_by_kernel(&self, stream, out, err);
}

ad_status
ad_array_count_nulls(const ad_array *array, const ad_stream_choice *stream,
                     int64_t *out, ad_error *err)
{
    const void *validity = ad_array_validity(array);
    if (ad_array_has_no_nulls(array)) {
        *out = 0;
        return AD_OK;
    }
    if (validity == NULL) { /* the type null */
        *out = array->length;
        return AD_OK;
    }
    return ad_bitmap_count_zeros_of(array, validity, array->offset,
                                    array->length, stream, out, err);
}

/* --- offsets --------------------------------------------------------------- */

ad_status
ad_find_bad_offset(const ad_array *array, const void *offsets, int64_t width,
                   int64_t limit, int64_t *out, ad_error *err)
{
    static const char consumer[] = "checking offsets";
    const ad_bits from = {
        .device = array->device,
        .data = offsets,
        .owner = array->owner,
        .sync = array->sync,
    };
    bool is_host = ad_host_accessible(array->device);
    int64_t first = array->length + 1;
    ad_launch launch = {
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
    if (is_host) {
        launch.target.data = &first;
        AD_RETURN_IF_ERR(ad_sync_wait(array->sync, consumer, err));
        ad_kernel_run_on_host(&launch);
    } else {
        ad_memory *found;
        int64_t n;
        AD_RETURN_IF_ERR(
            launch_and_read(&from, launch, consumer, NULL, &found, &n, err));
        for (int64_t i = 0; i < n; i++) {
            int64_t row = ((const int64_t *)found->data)[i];
            first = row < first ? row : first;
        }
        ad_owner_unref(&found->base);
    }
    *out = first < array->length ? first : -1;
    return AD_OK;
}
