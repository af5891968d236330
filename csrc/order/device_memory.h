/* An owner of device memory that arrowdev allocates.
 */
#ifndef AD_ORDER_DEVICE_MEMORY_H
#define AD_ORDER_DEVICE_MEMORY_H

#include "base/owner.h"
#include "base/handles.h"
#include "base/status.h"
#include "order/streams.h"

/* Allocate `nbytes` of uninitialised memory in `context`, for later work on
 * `stream`. *owner is a device owner (device_owner.h) whose free stream is
 * `stream`. Where the user gave the stream, `keep` keeps it alive. For 0 bytes
 * *out and *owner are NULL. When memory runs out the call waits for the
 * deferred releases and tries once more, then fails with AD_ERR_MEMORY. */
AD_MUST_CHECK ad_status ad_device_memory_new(ad_context context,
                                             ad_stream stream, ad_owner *keep,
                                             int64_t nbytes, void **out,
                                             ad_owner **owner, ad_error *err);

#endif /* AD_ORDER_DEVICE_MEMORY_H */
