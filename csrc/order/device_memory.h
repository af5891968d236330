/* Memory that arrowdev allocates on devices.
 */
#ifndef AD_ORDER_DEVICE_MEMORY_H
#define AD_ORDER_DEVICE_MEMORY_H

#include "base/handles.h"
#include "base/owner.h"
#include "base/status.h"
#include "order/stream_ref.h"

/* The owner that a device owner wraps, see ad_device_owner_set_memory(). */
typedef struct ad_device_memory {
    ad_owner base;
    ad_context context;
    ad_stream_ref on; /* of the allocation; in the end, of the free */
    void *data;       /* NULL: there is nothing to free */
    size_t nbytes;
} ad_device_memory;

/* Allocate `nbytes` of uninitialised memory in `context`, for later work on the
 * stream. *owner is a device owner whose free stream it is. For 0 bytes *out and *owner are
 * NULL, except on devices with AD_ALLOCATIONS. When memory runs out the call
 * waits for the deferred releases and tries once more, then fails with
 * AD_ERR_MEMORY. */
AD_MUST_CHECK ad_status ad_device_memory_new(ad_context context,
                                             const ad_stream_ref *on,
                                             int64_t nbytes, void **out,
                                             ad_owner **owner, ad_error *err);

/* Free memory of the backend's allocate(). The GIL is released meanwhile. False,
 * and nothing is done, where the runtime permits no call on this thread: the
 * destroy function that calls this ends with ad_release_elsewhere() then. Not
 * in a forked child. */
AD_MUST_CHECK bool ad_device_memory_free(ad_context context, ad_stream stream,
                                         void *data, size_t nbytes);

#endif /* AD_ORDER_DEVICE_MEMORY_H */
