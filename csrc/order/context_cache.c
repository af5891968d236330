#include "order/context_cache.h"

#include <stdlib.h>

#include "order/streams.h"

/* A list that only grows: readers need no lock, and there are as many entries
 * as contexts that were ever used. */
ad_place_record *_Atomic ad_place_records;

static ad_place_record *
search(ad_place_record *record, const ad_place_record *end, ad_place place)
{
    while (record != end && !ad_place_record_is_of(record, place)) {
        record = record->next;
    }
    return record != end ? record : NULL;
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
    for (size_t i = 0; i < AD_SYNC_SHELVES; i++) {
        for (size_t j = 0; j < AD_SYNCS_PER_SHELF; j++) {
            atomic_init(&record->shelves[i].cells[j], NULL);
        }
    }
    record->next = head;
    while (!atomic_compare_exchange_weak(&ad_place_records, &record->next,
                                         record)) {
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
ad_place_record_find(ad_place place)
{
    ad_place_record *head =
        atomic_load_explicit(&ad_place_records, memory_order_acquire);
    ad_place_record *found = search(head, NULL, place);
    return found != NULL ? found : insert(head, place);
}

/* --- syncs ----------------------------------------------------------------- */

static unsigned
my_shelf(void)
{
    return (unsigned)(ad_thread_number() % AD_SYNC_SHELVES);
}

static ad_sync *
take_from(ad_sync_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed) != NULL
               ? atomic_exchange_explicit(cell, NULL, memory_order_acquire)
               : NULL;
}

static bool
give_to(ad_sync_cell *cell, ad_sync *sync)
{
    ad_sync *empty = NULL;
    return atomic_load_explicit(cell, memory_order_relaxed) == NULL &&
           atomic_compare_exchange_strong_explicit(
               cell, &empty, sync, memory_order_release, memory_order_relaxed);
}

ad_sync *
ad_sync_take(ad_place_record *record)
{
    unsigned start = my_shelf();
    for (unsigned i = 0; i < AD_SYNC_SHELVES; i++) {
        ad_sync_shelf *shelf = &record->shelves[(start + i) % AD_SYNC_SHELVES];
        for (size_t j = 0; j < AD_SYNCS_PER_SHELF; j++) {
            ad_sync *sync = take_from(&shelf->cells[j]);
            if (sync != NULL) {
                sync->cell = i == 0 ? &shelf->cells[j] : NULL;
                return sync;
            }
        }
    }
    return NULL;
}

bool
ad_sync_give(ad_sync *sync)
{
    if (sync->cell != NULL && give_to(sync->cell, sync)) {
        return true;
    }
    unsigned start = my_shelf();
    for (unsigned i = 0; i < AD_SYNC_SHELVES; i++) {
        ad_sync_shelf *shelf =
            &sync->pool->shelves[(start + i) % AD_SYNC_SHELVES];
        for (size_t j = 0; j < AD_SYNCS_PER_SHELF; j++) {
            if (give_to(&shelf->cells[j], sync)) {
                return true;
            }
        }
    }
    return false;
}
