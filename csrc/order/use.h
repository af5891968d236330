/* Use: memory is used on a stream from now on.
 *
 * The stream waits for the sync of the memory, without the host, and the owner
 * of the memory records the stream. Every way out of arrowdev for device
 * memory ends here.
 */
#ifndef AD_ORDER_USE_H
#define AD_ORDER_USE_H

#include "order/memory.h"
#include "order/stream_ref.h"
#include "order/streams.h"
#include "order/sync.h"

/* Use on the stream `consumer`, which is found out now and on this thread. A
 * stream of another device is refused (AD_ERR_EXCHANGE, "stream"), even if no
 * work is pending. `what` is for the message. */
AD_MUST_CHECK ad_status ad_use(const ad_memory *memory,
                               const ad_stream_ref *consumer, const char *what,
                               ad_error *err);

/* The same for a consumer on this thread's current stream, or else the default
 * stream. The host waits if there is none, or if memory of this type is
 * exchanged without streams. */
AD_MUST_CHECK ad_status ad_use_on_thread(const ad_memory *memory,
                                         const char *what, ad_error *err);

/* The stream that None means on this device: the legacy default stream. False,
 * and *out is not given, if the type has none. */
static inline bool
ad_default_stream(ad_device device, ad_stream_ref *out)
{
    *out = ad_stream_legacy_ref(device);
    if ((ad_device_traits(device.type) &
         (AD_CUDA_STREAMS | AD_ROCM_STREAMS)) == 0) {
        out->kind = AD_REF_NONE;
    }
    return out->kind != AD_REF_NONE;
}

/* A sync for work on memory of `device` that may be pending on `producer`. */
static inline ad_status
ad_pending_on(ad_device device, const ad_stream_ref *producer, ad_sync **out,
              ad_error *err)
{
    ad_stream_ref on = *producer;
    on.context = (ad_context){device, NULL};
    on.has_context = false;
    return ad_sync_pending(&on, out, err);
}

#endif /* AD_ORDER_USE_H */
