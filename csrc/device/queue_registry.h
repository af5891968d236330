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

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/owner.h"

#define AD_N_OTHER_QUEUES 64

/* A counted reference to a queue. */
typedef struct ad_queue_entry {
    ad_owner base;
    struct ad_queue_entry *next; /* list of own queues */
    void *queue;
    uintptr_t key; /* the same for all handles of one queue */
    int64_t id;    /* of the queue's device */
    void *where;   /* context of the queue, of the backend's type */
    void (*forget)(void *queue);
} ad_queue_entry;

typedef struct ad_queue_registry {
    void (*forget)(void *queue); /* releases one reference to a queue */
    pthread_mutex_t lock;
    ad_queue_entry *own; /* newest first; only ever grows */
    ad_queue_entry *others[AD_N_OTHER_QUEUES];
    size_t next; /* index into `others` of the next write */
} ad_queue_registry;

#define AD_QUEUE_REGISTRY(forget_queue)                                       \
    {                                                                         \
        .forget = (forget_queue), .lock = PTHREAD_MUTEX_INITIALIZER           \
    }

/* Is the queue with this key registered? On success *where is set unless
 * `where` is NULL. */
bool ad_queue_registry_find(ad_queue_registry *self, uintptr_t key,
                            void **where);

/* Register `entry->queue`. The reference is taken over in any case. It is
 * released if there is no memory or the queue is registered already. */
void ad_queue_registry_add(ad_queue_registry *self,
                           const ad_queue_entry *entry, bool is_own);

/* References to the queues of the device `id`, *n of them, in an array that
 * the caller frees. NULL: no memory. */
ad_queue_entry **ad_queue_registry_of(ad_queue_registry *self, int64_t id,
                                      size_t *n);

#endif /* AD_DEVICE_QUEUE_REGISTRY_H */
