/* The queues of a runtime that cannot wait until a device is idle.
 * Device.synchronize() waits for these queues one by one.
 *
 * arrowdev's own queues are kept for the life of the process. Of foreign
 * queues, the AD_N_OTHER_QUEUES added last are kept. So the registry serves
 * Device.synchronize() but does not prove that memory is unused: nothing is
 * released because of it.
 */
#ifndef AD_DEVICE_QUEUE_REGISTRY_H
#define AD_DEVICE_QUEUE_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/device.h"
#include "base/os.h"
#include "base/owner.h"
#include "base/status.h"

#define AD_N_OTHER_QUEUES 64

/* A counted reference to a queue. */
typedef struct ad_queue_entry {
    ad_owner base;
    struct ad_queue_entry *next;
    void *queue;
    uintptr_t key; /* the same for all handles of one queue */
    int64_t id;    /* of the queue's device */
    void *where;   /* context of the queue, of the backend's type */
    bool is_own;
    void (*forget)(void *queue);
} ad_queue_entry;

typedef struct ad_queue_registry {
    void (*forget)(void *queue); /* releases one reference to a queue */
    /* Waits for the work on a queue of the device `id`. */
    ad_status (*finish)(void *queue, int64_t id, ad_error *err);
    ad_mutex lock;
    ad_queue_entry *entries; /* newest first */
} ad_queue_registry;

/* Is the queue with this key registered? On success *where is set unless
 * `where` is NULL. */
bool ad_queue_registry_find(ad_queue_registry *self, uintptr_t key,
                            void **where);

/* Register `entry->queue`. The reference is taken over in any case. It is
 * released if there is no memory or the queue is registered already. */
void ad_queue_registry_add(ad_queue_registry *self,
                           const ad_queue_entry *entry);

/* Wait for all registered queues of the device `id`. Fails with the first
 * error. Blocks. */
AD_MUST_CHECK ad_status ad_queue_registry_finish(ad_queue_registry *self,
                                                 int64_t id, ad_error *err);

/* Fail if a queue of the device `found` is passed for data on another one. */
AD_MUST_CHECK ad_status ad_queue_check_device(ad_device found,
                                              ad_device wanted, ad_error *err);

#endif /* AD_DEVICE_QUEUE_REGISTRY_H */
