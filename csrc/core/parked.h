/* Owners that wait for a device before they may be released.
 *
 * The list is bounded: past AD_PARKED_MAX entries the thread that parks waits
 * for the oldest. One thread, started with the first entry, drains it; so do
 * ad_parked_drain() on later calls, Device.synchronize() and a failed
 * allocation. No lock is held while the runtime, a release function or a
 * thread's join is called.
 */
#ifndef AD_CORE_PARKED_H
#define AD_CORE_PARKED_H

#include "core/owner.h"
#include "core/place.h"
#include "core/status.h"
#include "core/sync.h"

#define AD_PARKED_MAX 1024

/* Unref `owner` once all of `syncs` (references that are taken over) are
 * complete and, with `idle`, the whole place has been idle once. Cannot fail:
 * without memory for an entry it waits here and now. */
void ad_park(ad_owner *owner, ad_place place, ad_sync *const *syncs, size_t n,
             bool idle);

/* Release what is ready; never waits. Cheap when the list is empty. */
void ad_parked_drain(void);

/* Wait for and release everything that is parked on the device of this place.
 * Blocks. */
AD_MUST_CHECK ad_status ad_parked_wait(ad_place place, ad_error *err);

size_t ad_parked_count(void);

/* Stop the thread; what is still parked stays so (on purpose: its memory may
 * be read). Called when the interpreter is about to go; parking afterwards is
 * allowed and starts no thread. */
void ad_parked_stop(void);

#endif /* AD_CORE_PARKED_H */
