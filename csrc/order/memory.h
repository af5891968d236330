/* ad_memory: where bytes lie, who keeps them, and when they are ready.
 *
 * Arrays and tensors are two shapes over one memory. What concerns a device,
 * readiness or ownership takes the memory of either. It is a value whose
 * references belong to the struct that embeds it.
 */
#ifndef AD_ORDER_MEMORY_H
#define AD_ORDER_MEMORY_H

#include <stdbool.h>

#include "base/device.h"
#include "base/list.h"
#include "base/owner.h"
#include "order/stream_ref.h"
#include "order/sync.h"

typedef struct ad_memory {
    ad_owner *owner; /* NULL: memory that lives forever */
    ad_sync *sync;   /* NULL: nothing to wait for */
    ad_device device;
    bool readonly; /* the producer flagged it as read-only */
} ad_memory;

/* The same memory with references of its own. */
static inline ad_memory
ad_memory_ref(const ad_memory *memory)
{
    return (ad_memory){
        .owner = ad_owner_ref(memory->owner),
        .sync = ad_sync_ref(memory->sync),
        .device = memory->device,
        .readonly = memory->readonly,
    };
}

/* The memory is ready, or whoever asks takes it as it is. */
static inline void
ad_memory_drop_sync(ad_memory *memory)
{
    ad_sync *sync = memory->sync;
    memory->sync = NULL;
    ad_sync_unref(sync);
}

/* Drops both references, that on the owner last: it may keep the event of the
 * sync. *memory dangles. */
static inline void
ad_memory_drop(const ad_memory *memory)
{
    ad_sync_unref(memory->sync);
    ad_owner_unref(memory->owner);
}

/* --- use ----------------------------------------------------------------- */

/* The stream waits for the sync of the memory, without the host, and the
 * owner of the memory records the stream. Every way out of arrowdev for
 * device memory ends here. */

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

/* --- joined inputs ------------------------------------------------------- */

/* The common device and the syncs of the parts of one array (columns, buffers,
 * children), all zero before the first part. All parts must be on one
 * device. */
typedef struct ad_joined_inputs {
    bool has_device;
    ad_device device;
    AD_LIST(ad_sync *) syncs; /* distinct; borrowed */
} ad_joined_inputs;

/* Add a part, which must live as long as `joined`. AD_ERR_EXCHANGE, "device",
 * where the part is on another device than the parts before it. */
AD_MUST_CHECK ad_status ad_joined_inputs_add(ad_joined_inputs *joined,
                                             const ad_memory *memory,
                                             ad_error *err);

void ad_joined_inputs_clear(ad_joined_inputs *joined);

#endif /* AD_ORDER_MEMORY_H */
