#include "core/place_record.h"

#include <stdlib.h>

#include "core/stream.h"

/* A list that only grows: readers need no lock, and there are as many entries
 * as contexts that were ever used. */
static _Atomic(ad_place_record *) records;

static ad_place_record *
search(ad_place_record *record, const ad_place_record *end, ad_place place)
{
    for (; record != end; record = record->next) {
        if (record->place.context == place.context &&
            record->place.device.id == place.device.id &&
            record->place.device.type == place.device.type) {
            return record;
        }
    }
    return NULL;
}

static ad_place_record *
insert(ad_place_record *head, ad_place place)
{
    ad_place_record *record = aligned_alloc(64, sizeof(*record));
    if (record == NULL) {
        return NULL;
    }
    record->place = place;
    atomic_init(&record->own, 0);
    atomic_init(&record->turn, 0);
    for (size_t i = 0; i < AD_N_SHARED_STREAMS; i++) {
        atomic_init(&record->shared[i], 0);
    }
    for (size_t i = 0; i < AD_EVENT_SHELVES; i++) {
        for (size_t j = 0; j < AD_EVENTS_PER_SHELF; j++) {
            atomic_init(&record->shelves[i].events[j], NULL);
        }
    }
    record->next = head;
    while (!atomic_compare_exchange_weak(&records, &record->next, record)) {
        /* Others were faster; one of theirs may be the same. */
        ad_place_record *other = search(record->next, head, place);
        if (other != NULL) {
            free(record);
            return other;
        }
    }
    return record;
}

ad_place_record *
ad_place_record_of(ad_place place)
{
    place.device = ad_device_of_runtime(place.device);
    ad_place_record *head =
        atomic_load_explicit(&records, memory_order_acquire);
    ad_place_record *found = search(head, NULL, place);
    return found != NULL ? found : insert(head, place);
}

/* --- events ---------------------------------------------------------------- */

static unsigned
my_shelf(void)
{
    return (unsigned)(ad_thread_number() % AD_EVENT_SHELVES);
}

ad_event
ad_event_take(ad_place_record *record)
{
    unsigned start = my_shelf();
    for (unsigned i = 0; i < AD_EVENT_SHELVES; i++) {
        ad_event_shelf *shelf =
            &record->shelves[(start + i) % AD_EVENT_SHELVES];
        for (size_t j = 0; j < AD_EVENTS_PER_SHELF; j++) {
            _Atomic(void *) *cell = &shelf->events[j];
            void *handle = NULL;
            if (atomic_load_explicit(cell, memory_order_relaxed) != NULL) {
                handle =
                    atomic_exchange_explicit(cell, NULL, memory_order_acquire);
            }
            if (handle != NULL) {
                return (ad_event){handle};
            }
        }
    }
    return (ad_event){NULL};
}

bool
ad_event_give(ad_place_record *record, ad_event event)
{
    unsigned start = my_shelf();
    for (unsigned i = 0; i < AD_EVENT_SHELVES; i++) {
        ad_event_shelf *shelf =
            &record->shelves[(start + i) % AD_EVENT_SHELVES];
        for (size_t j = 0; j < AD_EVENTS_PER_SHELF; j++) {
            void *empty = NULL;
            if (atomic_compare_exchange_strong_explicit(
                    &shelf->events[j], &empty, event.handle,
                    memory_order_release, memory_order_relaxed)) {
                return true;
            }
        }
    }
    return false;
}
