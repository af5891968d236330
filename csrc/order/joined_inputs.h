/* The common device and the joined event of the parts of one array (columns,
 * buffers, children). All parts must be on one device.
 */
#ifndef AD_ORDER_JOINED_INPUTS_H
#define AD_ORDER_JOINED_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/device.h"
#include "base/list.h"
#include "base/status.h"
#include "order/sync.h"

typedef struct ad_joined_inputs {
    bool has_device;
    ad_device device;         /* the CPU until a part is added */
    bool readonly;            /* at least one part is read-only */
    AD_LIST(ad_sync *) syncs; /* distinct; borrowed */
} ad_joined_inputs;

#define AD_JOINED_INPUTS_INIT ((ad_joined_inputs){.device = AD_CPU})

/* Add a part. `sync` must live as long as `joined`. AD_ERR_EXCHANGE, "device",
 * where the part is on another device than the parts before it. */
AD_MUST_CHECK ad_status ad_joined_inputs_add(ad_joined_inputs *joined,
                                             ad_device device, ad_sync *sync,
                                             bool readonly, ad_error *err);

/* The sync of the whole array, as a new reference (see ad_sync_join). */
AD_MUST_CHECK ad_status ad_joined_inputs_join(const ad_joined_inputs *joined,
                                              ad_sync **out, ad_error *err);

void ad_joined_inputs_clear(ad_joined_inputs *joined);

#endif /* AD_ORDER_JOINED_INPUTS_H */
