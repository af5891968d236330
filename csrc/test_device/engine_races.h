/* Accesses of queues to the same bytes that nothing orders.
 *
 * Each queue has an `ad_order`: for every queue, how much of its work is done
 * before the next operation begins. It grows by a wait for an event, which has
 * a copy of the order of the queue that it was recorded on. What the host has
 * waited for is before everything that is enqueued later, on any queue. So an
 * access is compared with the earlier accesses to its memory when it is
 * enqueued, and a race is found whenever the work really runs.
 *
 * All threads of the host count as one: their locks cannot be seen here, and
 * what one of them has waited for it may have told the others. Work behind an
 * event that only ad_engine_event_fire completes is left out, as nobody knows
 * yet what it will be behind.
 *
 * What the host knows to be done is forgotten. Beyond a number of accesses the
 * oldest are, and without memory the search ends: races are missed then, and
 * none is made up.
 *
 * The functions are those of the engine's lock, which is held. While the
 * search is off they do nothing, and orders are NULL.
 */
#ifndef AD_TEST_DEVICE_ENGINE_RACES_H
#define AD_TEST_DEVICE_ENGINE_RACES_H

#include "test_device/engine.h"

typedef struct ad_order ad_order;

/* The order of a queue, made on first use; *order may be of an earlier search.
 * `is_own`: of arrowdev. NULL: the search is off. */
ad_order *ad_races_of_queue_locked(ad_order **order, uint64_t handle,
                                   int device, bool is_own, uint32_t place);

/* A copy for a mark, which has everything that is now on the queue. */
ad_order *ad_races_copy_locked(const ad_order *of_queue);

/* An event was recorded behind what is now on the queue. */
void ad_races_recorded_locked(ad_order *of_queue);

/* The order of a mark that is pending until ad_races_fired_locked. */
ad_order *ad_races_armed_locked(void);
void ad_races_fired_locked(ad_order *of_mark);

void ad_races_free_locked(ad_order *order);

/* The queue is gone, its work is not known to be done. Takes the order over. */
void ad_races_queue_ends_locked(ad_order *of_queue);
/* The order of such a queue, borrowed. NULL: the host knows all of it. */
const ad_order *ad_races_ended_locked(uint64_t handle);

/* Later work on the queue waits for the mark. */
void ad_races_wait_locked(ad_order *of_queue, const ad_order *of_mark);

/* The host has seen that all in the order is done. */
void ad_races_host_knows_locked(const ad_order *order);
/* The same of the queues of a device (-1: all) that are gone. */
void ad_races_host_knows_ended_locked(int device);
bool ad_races_is_known_locked(const ad_order *order);

/* Memory was allocated, or is there when the search begins. */
void ad_races_allocated_locked(const ad_engine_allocation *allocation,
                               uint32_t place);
/* The host frees memory, or the device does so behind the order of a destroyed
 * queue. */
void ad_races_freed_locked(const void *base, uint32_t place,
                           const ad_order *behind);

/* Work was enqueued (`is_refused`: was not, since its memory is gone) at this
 * time, which ad_runs_of is told, too. */
void ad_races_work_locked(ad_order *of_queue, const ad_engine_use *uses,
                          size_t n, bool is_refused, uint32_t place,
                          int64_t enqueued);

/* The place of this call, without the lock. 0: unknown, or not asked for. */
uint32_t ad_races_here(void);

#endif /* AD_TEST_DEVICE_ENGINE_RACES_H */
