/* Marks and events. */
#include "device/software/engine_internal.h"

#include <stdlib.h>

/* Tag of event handles. */
enum {
    EVENT_TAG = 0x45,
    SLAB_SIZE = 1024,
    MAX_SLABS = 4096
};

/* `handle` is the first member: its address is the event's address. */
typedef struct event {
    uint64_t handle; /* 0: not live */
    uint32_t generation;
    size_t index;
    void *tag;
    void *data;
    ad_engine_mark *mark; /* of the last record; NULL: never recorded */
    struct event *next_free;
} event;

/* Slots are in slabs that never move and are never freed, so an address is
 * recognized by comparison alone. Slots are reused in the order in which they
 * became free, so a stale address is detected for as long as possible. */
static struct {
    event *slabs[MAX_SLABS];
    size_t n_slabs;
    event *free_first;
    event *free_last;
} events;

/* --- marks --------------------------------------------------------------- */

ad_engine_mark *
ad_engine_mark_new(void)
{
    ad_engine_mark *mark = calloc(1, sizeof(*mark));
    if (mark != NULL) {
        mark->n_refs = 1;
    }
    return mark;
}

ad_engine_mark *
ad_engine_mark_ref_locked(ad_engine_mark *mark)
{
    if (mark != NULL) {
        mark->n_refs++;
    }
    return mark;
}

void
ad_engine_mark_unref_locked(ad_engine_mark *mark)
{
    if (mark != NULL && --mark->n_refs == 0) {
        free(mark);
    }
}

void
ad_engine_mark_complete_locked(ad_engine_mark *mark, int error)
{
    if (!mark->is_done) {
        mark->is_done = true;
        mark->is_armed = false;
        mark->error = error;
        mark->time = ad_engine_now();
        ad_engine_progress_locked();
    }
}

/* An armed mark that is replaced can no longer be fired. */
static void
set_mark_locked(event *e, ad_engine_mark *mark)
{
    if (e->mark != NULL && e->mark->is_armed) {
        ad_engine_mark_complete_locked(e->mark, AD_ENGINE_OK);
    }
    ad_engine_mark_unref_locked(e->mark);
    e->mark = mark;
}

/* --- slots --------------------------------------------------------------- */

static void
push_free_locked(event *e)
{
    e->next_free = NULL;
    if (events.free_last != NULL) {
        events.free_last->next_free = e;
    } else {
        events.free_first = e;
    }
    events.free_last = e;
}

static bool
grow_locked(void)
{
    if (events.n_slabs == MAX_SLABS) {
        return false;
    }
    event *slab = calloc(SLAB_SIZE, sizeof(*slab));
    if (slab == NULL) {
        return false;
    }
    for (size_t i = 0; i < SLAB_SIZE; i++) {
        slab[i].index = events.n_slabs * SLAB_SIZE + i;
        push_free_locked(&slab[i]);
    }
    events.slabs[events.n_slabs++] = slab;
    return true;
}

static event *
find_locked(uint64_t handle)
{
    size_t index = ad_engine_handle_index(handle);
    if (handle == 0 || index >= events.n_slabs * SLAB_SIZE) {
        return NULL;
    }
    event *e = &events.slabs[index / SLAB_SIZE][index % SLAB_SIZE];
    return e->handle == handle ? e : NULL;
}

/* Lock and look up. The lock is held only if this returns OK. */
static int
lock_event(uint64_t handle, event **out)
{
    int status = ad_engine_lock();
    if (status != AD_ENGINE_OK) {
        return status;
    }
    *out = find_locked(handle);
    if (*out == NULL) {
        ad_engine_unlock();
        return AD_ENGINE_INVALID_EVENT;
    }
    return AD_ENGINE_OK;
}

int
ad_engine_event_create(int device, void *tag, void *data, uint64_t *out)
{
    int status = ad_engine_lock_device(device);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (events.free_first == NULL && !grow_locked()) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        event *e = events.free_first;
        events.free_first = e->next_free;
        if (events.free_first == NULL) {
            events.free_last = NULL;
        }
        e->handle = ad_engine_handle(EVENT_TAG, ++e->generation, e->index);
        e->tag = tag;
        e->data = data;
        *out = e->handle;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_destroy(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    set_mark_locked(e, NULL);
    e->handle = 0;
    push_free_locked(e);
    ad_engine_unlock();
    return AD_ENGINE_OK;
}

/* --- queries ------------------------------------------------------------- */

int
ad_engine_event_data(uint64_t handle, void **out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        *out = e->data;
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_event_address(uint64_t handle, const uint64_t **out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        *out = &e->handle;
        ad_engine_unlock();
    }
    return status;
}

uint64_t
ad_engine_event_at(const void *address)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return 0;
    }
    uint64_t handle = 0;
    uintptr_t wanted = (uintptr_t)address;
    for (size_t i = 0; i < events.n_slabs; i++) {
        uintptr_t distance = wanted - (uintptr_t)events.slabs[i];
        if (distance < SLAB_SIZE * sizeof(event) &&
            distance % sizeof(event) == 0) {
            handle = events.slabs[i][distance / sizeof(event)].handle;
            break;
        }
    }
    ad_engine_unlock();
    return handle;
}

/* --- recording and waiting ----------------------------------------------- */

int
ad_engine_event_record(uint64_t handle, uint64_t queue)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    ad_engine_mark *mark = ad_engine_mark_new();
    if (mark == NULL) {
        status = AD_ENGINE_OUT_OF_MEMORY;
    } else {
        status = ad_engine_push_mark_locked(queue, mark);
    }
    if (status == AD_ENGINE_OK) {
        set_mark_locked(e, mark);
    } else {
        ad_engine_mark_unref_locked(mark);
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_queue_wait(uint64_t queue, uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status == AD_ENGINE_OK) {
        status = ad_engine_push_wait_locked(queue, e->mark);
        ad_engine_unlock();
    }
    return status;
}

int
ad_engine_event_query(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (e->mark != NULL) {
        status = e->mark->is_done ? e->mark->error : AD_ENGINE_NOT_READY;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_synchronize(uint64_t handle, int64_t timeout_ms)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    ad_engine_mark *mark = ad_engine_mark_ref_locked(e->mark);
    if (mark != NULL) {
        int64_t deadline = ad_engine_deadline_locked(timeout_ms);
        while (!mark->is_done && ad_engine_await_locked(deadline)) {
        }
        status = mark->is_done ? mark->error : AD_ENGINE_TIMEOUT;
        ad_engine_mark_unref_locked(mark);
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_time(uint64_t handle, int64_t *out)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (e->mark != NULL && e->mark->is_done) {
        *out = e->mark->time;
    } else {
        status = AD_ENGINE_NOT_READY;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_arm(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    ad_engine_mark *mark = ad_engine_mark_new();
    if (mark != NULL) {
        mark->is_armed = true;
        set_mark_locked(e, mark);
    } else {
        status = AD_ENGINE_OUT_OF_MEMORY;
    }
    ad_engine_unlock();
    return status;
}

int
ad_engine_event_fire(uint64_t handle)
{
    event *e;
    int status = lock_event(handle, &e);
    if (status != AD_ENGINE_OK) {
        return status;
    }
    if (e->mark != NULL && e->mark->is_armed) {
        ad_engine_mark_complete_locked(e->mark, AD_ENGINE_OK);
    } else {
        status = AD_ENGINE_INVALID_VALUE;
    }
    ad_engine_unlock();
    return status;
}

/* --- reset and count ----------------------------------------------------- */

void
ad_engine_events_reset_locked(void)
{
    for (size_t i = 0; i < events.n_slabs * SLAB_SIZE; i++) {
        event *e = &events.slabs[i / SLAB_SIZE][i % SLAB_SIZE];
        if (e->mark == NULL) {
            continue;
        }
        if (e->mark->is_armed) {
            ad_engine_mark_complete_locked(e->mark, AD_ENGINE_OK);
        }
        e->mark->error = AD_ENGINE_OK;
    }
}

void
ad_engine_events_count_locked(const void *tag, ad_engine_counts *out)
{
    for (size_t i = 0; i < events.n_slabs * SLAB_SIZE; i++) {
        const event *e = &events.slabs[i / SLAB_SIZE][i % SLAB_SIZE];
        if (e->handle != 0 && (tag == NULL || e->tag == tag)) {
            out->events++;
        }
    }
}
