/* What arrowdev keeps per place, for as long as the process lives: its own
 * streams, and events that wait to be used again. For stream.c, sync.c.
 */
#ifndef AD_CORE_PLACE_RECORD_H
#define AD_CORE_PLACE_RECORD_H

#include <stdatomic.h>

#include "core/place.h"
#include "core/status.h"
#include "device/backend.h"

#define AD_N_SHARED_STREAMS 4
#define AD_EVENT_SHELVES 8
#define AD_EVENTS_PER_SHELF 64

/* Events that nobody owns: a thread has a shelf that it tries first, so that
 * threads do not meet. Each cell is taken and filled by one atomic step of its
 * own, so there is no lock, and no ABA to think of. */
typedef struct ad_event_shelf {
    _Alignas(64) _Atomic(void *) events[AD_EVENTS_PER_SHELF];
} ad_event_shelf;

typedef struct ad_place_record {
    ad_place place;
    struct ad_place_record *next;
    atomic_uintptr_t own;                         /* 0: not made yet */
    atomic_uintptr_t shared[AD_N_SHARED_STREAMS]; /* 0: not made yet */
    atomic_uint turn;
    ad_event_shelf shelves[AD_EVENT_SHELVES];
} ad_place_record;

/* The type under which all memory of one runtime is known: "cuda" for pinned
 * and managed memory, too. */
static inline ad_device
ad_device_of_runtime(ad_device device)
{
    const int32_t main_type = ad_backend_for(device.type)->device_types[0];
    return (ad_device){main_type != 0 ? main_type : device.type, device.id};
}

/* The record of a place, made on first need. NULL: no memory for one. The
 * device is taken as ad_device_of_runtime() has it. */
ad_place_record *ad_place_record_of(ad_place place);

/* An event of the pool, or one with a NULL handle. */
ad_event ad_event_take(ad_place_record *record);

/* False: the pool is full, and the event still the caller's. */
bool ad_event_give(ad_place_record *record, ad_event event);

/* One of the few streams of the place that are lent to consumers, in turn. */
AD_MUST_CHECK ad_status ad_stream_shared(ad_place place, ad_stream *out,
                                         ad_place *out_place, ad_error *err);

/* `place`, with the context that the runtime has for it where none is known.
 * `backend` is open. */
AD_MUST_CHECK ad_status ad_place_complete(const struct ad_backend *backend,
                                          ad_place place, ad_place *out,
                                          ad_error *err);

#endif /* AD_CORE_PLACE_RECORD_H */
