/* ad_sync: "the data are ready when ...", shared by everything that was made
 * from one import (slices, children, tensors, re-exports) and never dropped.
 *
 * A NULL ad_sync is the promise that nothing has to be waited for.
 *
 * Foreign protocols state readiness in three ways, and each is carried as it
 * came until a runtime turns it into another (issue "Devices"):
 *
 *   AD_SYNC_EVENT   address of an event handle, as the table "Synchronization
 *                   event types" of the specification has it per device type;
 *                   valid while `keep` lives
 *   AD_SYNC_STREAM  work may be pending on the stream with this number (CUDA
 *                   Array Interface); nothing was recorded
 *   AD_SYNC_QUEUE   work may be pending on this queue object (SYCL), an
 *                   opaque pointer that `keep` keeps alive
 */
#ifndef AD_CORE_SYNC_H
#define AD_CORE_SYNC_H

#include "core/device.h"
#include "core/owner.h"
#include "core/status.h"

typedef enum ad_sync_kind {
    AD_SYNC_EVENT,
    AD_SYNC_STREAM,
    AD_SYNC_QUEUE
} ad_sync_kind;

typedef struct ad_sync {
    ad_owner base;
    ad_sync_kind kind;
    ad_device device;
    void *handle;   /* event address, stream number or queue; by `kind` */
    ad_owner *keep; /* keeps `handle` valid; NULL: the caller's duty */
} ad_sync;

/* A new sync with one reference. Takes a reference of its own on `keep`. */
AD_MUST_CHECK ad_status ad_sync_new(ad_sync_kind kind, ad_device device,
                                    void *handle, ad_owner *keep,
                                    ad_sync **out, ad_error *err);

static inline ad_sync *
ad_sync_ref(ad_sync *sync)
{
    if (sync != NULL) {
        ad_owner_ref(&sync->base);
    }
    return sync;
}

static inline void
ad_sync_unref(ad_sync *sync)
{
    if (sync != NULL) {
        ad_owner_unref(&sync->base);
    }
}

/* One and the same thing to wait for (NULL is none). */
static inline bool
ad_sync_same(const ad_sync *a, const ad_sync *b)
{
    return a == b || (a != NULL && b != NULL && a->kind == b->kind &&
                      a->kind != AD_SYNC_EVENT && a->handle == b->handle &&
                      ad_device_equal(a->device, b->device));
}

/* The address of the event handle that a device array carries for `sync`:
 * NULL for a NULL sync. Fails for a stream or queue, of which no event can be
 * made without a runtime. */
AD_MUST_CHECK ad_status ad_sync_event(const ad_sync *sync, void **out,
                                      ad_error *err);

/* Fail where `consumer` (a protocol, a method) would have to wait or to be
 * told to, and cannot. Succeeds for a NULL sync. */
AD_MUST_CHECK ad_status ad_sync_require_ready(const ad_sync *sync,
                                              const char *consumer,
                                              ad_error *err);

#endif /* AD_CORE_SYNC_H */
