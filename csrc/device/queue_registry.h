/* The queues of a runtime that cannot wait until a device is idle, so that
 * Device.synchronize() can wait for them one by one.
 *
 * All of arrowdev's own are kept for as long as the process lives; of others,
 * the AD_N_OTHER_QUEUES that came last. So this is good for a promise to
 * people and no proof that memory is not used any more: nothing is released by
 * it.
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
    struct ad_queue_entry *next; /* of our own ones */
    void *queue;
    uintptr_t key; /* the same for all handles of one queue */
    int64_t id;    /* of its device */
    void *where;   /* the backend's: the context it is in */
    void (*forget)(void *queue);
} ad_queue_entry;

typedef struct ad_queue_registry {
    void (*forget)(void *queue); /* gives a reference of ours up */
    pthread_mutex_t lock;
    ad_queue_entry *own; /* newest first; only ever grows */
    ad_queue_entry *others[AD_N_OTHER_QUEUES];
    size_t next; /* of `others`, to be written */
} ad_queue_registry;

#define AD_QUEUE_REGISTRY(forget_queue)                                       \
    {                                                                         \
        .forget = (forget_queue), .lock = PTHREAD_MUTEX_INITIALIZER           \
    }

/* Is the queue with this key remembered? *where may be wanted (else NULL). */
bool ad_queue_registry_find(ad_queue_registry *self, uintptr_t key,
                            void **where);

/* Remember `entry->queue`, a reference that is taken over in any case: without
 * memory, and where the queue is remembered already, it is given up. */
void ad_queue_registry_add(ad_queue_registry *self,
                           const ad_queue_entry *entry, bool is_own);

/* References to those of the device `id`, `*n` of them, in an array to be
 * freed; NULL: no memory. */
ad_queue_entry **ad_queue_registry_of(ad_queue_registry *self, int64_t id,
                                      size_t *n);

#endif /* AD_DEVICE_QUEUE_REGISTRY_H */
