/* Memory and events of devices, in other processes.
 *
 * An allocation and an event are exported by the runtime, as a descriptor or
 * as bytes, and opened in another process. The producer keeps both for as
 * long as the connection of a consumer is open. So what was opened keeps a
 * descriptor of the connection, and closes it last: memory is given back once
 * the consumer's work on it is done, as all device memory is
 * (order/device_owner.h). A forked child closes its copies of the connections:
 * it has no devices. One lock, for the list of what was opened.
 */
#ifndef AD_SHARE_DEVICE_MEMORY_H
#define AD_SHARE_DEVICE_MEMORY_H

#include <stdbool.h>

#include "device/backend.h"
#include "order/memory.h"

/* The allocation in which `pointer` lies, for other processes. out->file is
 * the caller's to close. AD_ERR_EXCHANGE, "share", if no other process can
 * open it, or if it was opened here: its producer would not keep it for a third
 * process. */
AD_MUST_CHECK ad_status ad_device_memory_export(ad_device device,
                                                const void *pointer,
                                                ad_ipc_memory *out,
                                                ad_error *err);

/* Record an event for other processes, after the work of `sync`. The owner
 * keeps the event. *keep is NULL, and there is no event, if that work is
 * done. The host does not wait. out->file is the caller's to close. */
AD_MUST_CHECK ad_status ad_sync_export(ad_sync *sync, ad_owner **keep,
                                       ad_ipc_event *out, ad_error *err);

/* The device of this process that has the UUID. AD_ERR_EXCHANGE, "device", if
 * this process does not see it; "share", if memory of the type is never
 * exported. */
AD_MUST_CHECK ad_status
ad_device_of_uuid(int32_t type, const unsigned char uuid[AD_UUID_SIZE],
                  ad_device *out, ad_error *err);

/* Open memory of another process. *data is where the allocation begins here,
 * and the owner gives it back. Takes over both descriptors, on failure too. */
AD_MUST_CHECK ad_status ad_device_memory_open(ad_device device,
                                              const ad_ipc_memory *memory,
                                              int connection, void **data,
                                              ad_owner **owner, ad_error *err);

/* A sync for an event of another process. Takes over both descriptors, on
 * failure too. */
AD_MUST_CHECK ad_status ad_sync_open(ad_device device,
                                     const ad_ipc_event *event, int connection,
                                     ad_sync **out, ad_error *err);

#endif /* AD_SHARE_DEVICE_MEMORY_H */
