/* What arrowdev keeps per place, for as long as the process lives: its own
 * streams, and syncs whose events wait to be used again. For order/streams.c, sync.c.
 */
#ifndef AD_ORDER_CONTEXT_CACHE_H
#define AD_ORDER_CONTEXT_CACHE_H

#include <stdatomic.h>

#include "base/handles.h"
#include "base/status.h"
#include "order/sync.h"
#include "device/backend.h"

#define AD_N_SHARED_STREAMS 4
#define AD_SYNC_SHELVES 8
#define AD_SYNCS_PER_SHELF 64

/* A sync with an event, that nobody owns, or NULL. */
typedef ad_sync *_Atomic ad_sync_cell;

/* A thread has a shelf that it tries first, so that threads do not meet, and
 * what it took there goes back there. Each cell is taken and filled by one
 * atomic step of its own, so there is no lock, and no ABA to think of. */
typedef struct ad_sync_shelf {
    _Alignas(64) ad_sync_cell cells[AD_SYNCS_PER_SHELF];
} ad_sync_shelf;

typedef struct ad_place_record {
    ad_place place;
    struct ad_place_record *next;
    atomic_uintptr_t own;                         /* 0: not made yet */
    atomic_uintptr_t shared[AD_N_SHARED_STREAMS]; /* 0: not made yet */
    atomic_uint turn;
    ad_sync_shelf shelves[AD_SYNC_SHELVES];
} ad_place_record;

/* The type under which all memory of one runtime is known: "cuda" for pinned
 * and managed memory, too. */
static inline ad_device
ad_device_of_runtime(ad_device device)
{
    const int32_t main_type = ad_backend_for(device.type)->device_types[0];
    return (ad_device){main_type != 0 ? main_type : device.type, device.id};
}

static inline bool
ad_place_record_is_of(const ad_place_record *record, ad_place place)
{
    return record->place.context == place.context &&
           record->place.device.id == place.device.id &&
           record->place.device.type == place.device.type;
}

/* The youngest first; for what follows. */
extern ad_place_record *_Atomic ad_place_records;
ad_place_record *ad_place_record_find(ad_place place);

/* The record of a place of this backend, made on first need. NULL: no memory
 * for one. The device is taken as ad_device_of_runtime() has it. */
static inline ad_place_record *
ad_place_record_of(const struct ad_backend *backend, ad_place place)
{
    place.device.type = backend->device_types[0];
    ad_place_record *youngest =
        atomic_load_explicit(&ad_place_records, memory_order_acquire);
    return youngest != NULL && ad_place_record_is_of(youngest, place)
               ? youngest
               : ad_place_record_find(place);
}

/* A sync of the pool with its event, or NULL. */
ad_sync *ad_sync_take(ad_place_record *record);

/* To its pool. False: that is full, and the sync still the caller's. */
bool ad_sync_give(ad_sync *sync);

/* One of the few streams of the place that are lent to consumers, in turn. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_place place, ad_stream *out,
                                         ad_place *out_place, ad_error *err);

/* `place`, with the context that the runtime has for it where none is known.
 * `backend` is open. */
AD_MUST_CHECK ad_status ad_place_complete(const struct ad_backend *backend,
                                          ad_place place, ad_place *out,
                                          ad_error *err);

#endif /* AD_ORDER_CONTEXT_CACHE_H */
