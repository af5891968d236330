/* What the parts of one array (columns, buffers, children) have in common: the
 * device they must all be on, and the one event that stands for theirs.
 */
#ifndef AD_ORDER_JOINED_INPUTS_H
#define AD_ORDER_JOINED_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/device.h"
#include "base/list.h"
#include "base/status.h"
#include "order/sync.h"

typedef struct ad_parts {
    bool has_device;
    ad_device device;         /* the CPU as long as nothing was added */
    bool readonly;            /* of one of them at least */
    AD_LIST(ad_sync *) syncs; /* distinct; borrowed */
} ad_parts;

#define AD_PARTS_INIT ((ad_parts){.device = AD_CPU})

/* Add a part; `sync` must live as long as `parts`. AD_ERR_EXCHANGE, "device",
 * for one on another device than the parts before it. */
AD_MUST_CHECK ad_status ad_parts_add(ad_parts *parts, ad_device device,
                                     ad_sync *sync, bool readonly,
                                     ad_error *err);

/* The sync of the whole, a new reference: see ad_sync_join. */
AD_MUST_CHECK ad_status ad_parts_join(const ad_parts *parts, ad_sync **out,
                                      ad_error *err);

void ad_parts_clear(ad_parts *parts);

#endif /* AD_ORDER_JOINED_INPUTS_H */
