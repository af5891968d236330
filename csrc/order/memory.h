/* ad_memory: where bytes lie, who keeps them, and when they are ready.
 *
 * Arrays and tensors are two shapes over one memory. What concerns a device,
 * readiness or ownership takes the memory of either. It is a value whose
 * references belong to the struct that embeds it.
 */
#ifndef AD_ORDER_MEMORY_H
#define AD_ORDER_MEMORY_H

#include "base/device.h"
#include "base/owner.h"
#include "order/sync.h"

typedef struct ad_memory {
    ad_owner *owner; /* NULL: memory that lives forever */
    ad_sync *sync;   /* NULL: nothing to wait for */
    ad_device device;
} ad_memory;

/* The same memory with references of its own. */
static inline ad_memory
ad_memory_ref(const ad_memory *memory)
{
    return (ad_memory){
        .owner = ad_owner_ref(memory->owner),
        .sync = ad_sync_ref(memory->sync),
        .device = memory->device,
    };
}

/* Drops both references, that on the owner last: it may keep the event of the
 * sync. *memory dangles. */
static inline void
ad_memory_drop(const ad_memory *memory)
{
    ad_sync_unref(memory->sync);
    ad_owner_unref(memory->owner);
}

#endif /* AD_ORDER_MEMORY_H */
