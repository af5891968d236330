/* Device memory of our own, as an owner.
 */
#ifndef AD_ORDER_DEVICE_MEMORY_H
#define AD_ORDER_DEVICE_MEMORY_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/streams.h"

/* `nbytes` of uninitialised memory in `context`, usable by work on `stream`
 * from now on. *owner is a device owner (device_owner.h) whose producer is
 * `stream`; with `stream` one that was given by the caller, `keep` keeps it
 * alive. 0 bytes: *out is NULL and so is *owner. Out of memory: deferred
 * releases are released, and it is tried once more; then AD_ERR_MEMORY. */
AD_MUST_CHECK ad_status ad_device_memory_new(ad_context context,
                                             ad_stream stream, ad_owner *keep,
                                             int64_t nbytes, void **out,
                                             ad_owner **owner, ad_error *err);

#endif /* AD_ORDER_DEVICE_MEMORY_H */
