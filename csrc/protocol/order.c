/* Synchronization of imports and exports: the steps that the rows of the two
 * tables in docs/internals/synchronization.md have in common. */
#include "protocol/protocol.h"

#include "abi/arrow_c.h"
#include "order/device_owner.h"
#include "device/backend.h"

bool
ad_default_stream(int32_t device_type, ad_stream *out)
{
    uint32_t traits = ad_device_traits(device_type);
    *out = (ad_stream){traits & AD_CUDA_STREAMS ? 1 : 0};
    return (traits & (AD_CUDA_STREAMS | AD_ROCM_STREAMS)) != 0;
}

int32_t
ad_cuda_means(void)
{
    return !ad_backend_is_there(ARROW_DEVICE_CUDA) &&
                   ad_backend_is_there(ARROW_DEVICE_ROCM)
               ? ARROW_DEVICE_ROCM
               : ARROW_DEVICE_CUDA;
}

/* The context in which the stream runs. The runtime is not asked again if one
 * of our events was recorded on the stream. */
static ad_status
find_context(const struct ad_backend *backend, ad_device device,
             const ad_sync *sync, ad_stream stream, ad_context *out,
             ad_error *err)
{
    bool is_default = stream.handle <= 2;
    ad_context hint = {device, NULL};
    if (sync != NULL && sync->is_own && !is_default &&
        sync->stream.handle == stream.handle) {
        *out = sync->context;
        return AD_OK;
    }
    return backend->stream_context(stream, hint, out, err);
}

ad_status
ad_order_use(ad_device device, ad_sync *sync, ad_owner *owner,
             const ad_stream_choice *consumer, const char *what, ad_error *err)
{
    ad_context context;
    const struct ad_backend *backend = ad_backend_in_use(device.type);
    if (backend == NULL) {
        return ad_sync_order(sync, NULL, consumer->stream, what, err);
    }
    /* Resolved now and on this thread: another thread may have another default
     * stream, and a stream of another device would order nothing. */
    AD_RETURN_IF_ERR(
        find_context(backend, device, sync, consumer->stream, &context, err));
    AD_RETURN_IF_ERR(
        ad_sync_order(sync, &context, consumer->stream, what, err));
    return ad_owner_record_stream(owner, context, consumer->stream,
                                  consumer->keep, err);
}

ad_status
ad_order_thread(const ad_tensor *tensor, const char *what, ad_error *err)
{
    ad_device device = tensor->device;
    ad_stream_choice consumer = {.is_given = false};
    bool has_stream = !(ad_device_traits(device.type) & AD_NO_STREAMS) &&
                      (ad_stream_current(device, &consumer) ||
                       ad_default_stream(device.type, &consumer.stream));
    if (!has_stream) {
        return ad_sync_wait(tensor->sync, what, err);
    }
    return ad_order_use(device, tensor->sync, tensor->owner, &consumer, what,
                        err);
}

ad_status
ad_order_pending(ad_tensor *tensor, const ad_stream_choice *producer,
                 ad_error *err)
{
    ad_context context = {tensor->device, NULL};
    return ad_sync_pending(context, producer->stream, producer->keep,
                           &tensor->sync, err);
}
