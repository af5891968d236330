#include "base/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/process.h"
#include "base/thread_local.h"

struct ad_trace_ring {
    ad_trace_ring *next;  /* rings are never freed */
    atomic_bool is_taken; /* by a thread that lives */
    atomic_bool is_writing;
    size_t index;
    uint64_t thread;
    unsigned trace; /* which the events are of */
    uint64_t n;     /* written so far */
    size_t size;    /* there is room for, doubled up to `capacity` */
    size_t capacity;
    ad_trace_event *events;
    /* Objects by their address: open addressing, half full at most. */
    void **kept;
    size_t n_kept;
    size_t n_cells; /* a power of 2, or 0 */
};

static ad_trace_ring *_Atomic rings;
static atomic_uint number;
static atomic_size_t capacity_now;
static atomic_uint_least64_t n_lost; /* for want of memory */
static AD_THREAD_LOCAL ad_trace_ring *mine;
static AD_THREAD_LOCAL const char *why_next;
static ad_thread_key at_thread_end;
static ad_once once = AD_ONCE_INIT;
static bool has_key;
void (*_Atomic ad_trace_add_with_line)(ad_trace_event *event);

bool
ad_trace_is_on(void)
{
    return (atomic_load(&ad_log_state_now) & AD_LOG_TRACED) != 0;
}

unsigned
ad_trace_number(void)
{
    return atomic_load(&number);
}

/* --- rings --------------------------------------------------------------- */

/* Another thread may take the ring over, and its events stay. */
static void
end_thread(void *ring)
{
    mine = NULL;
    atomic_store(&((ad_trace_ring *)ring)->is_taken, false);
}

/* The child has this thread only, and its trace ends with the fork: the file is
 * the parent's. */
static void
after_fork(void)
{
    atomic_fetch_and(&ad_log_state_now, ~AD_LOG_TRACED);
    for (ad_trace_ring *r = atomic_load(&rings); r != NULL; r = r->next) {
        atomic_store(&r->is_writing, false);
        atomic_store(&r->is_taken, r == mine);
    }
}

static ad_child_hook child_hook = {.run = after_fork};

static void
make_key(void)
{
    has_key = ad_thread_key_new(&at_thread_end, end_thread);
}

/* A ring of no thread, whose events are of a trace that is over. */
static ad_trace_ring *
find_ring(void)
{
    for (ad_trace_ring *r = atomic_load(&rings); r != NULL; r = r->next) {
        bool expected = false;
        if (atomic_compare_exchange_strong(&r->is_taken, &expected, true)) {
            if (r->n == 0) {
                return r;
            }
            atomic_store(&r->is_taken, false);
        }
    }
    return NULL;
}

static ad_trace_ring *
new_ring(void)
{
    static atomic_size_t n_rings;
    ad_trace_ring *ring = calloc(1, sizeof(*ring));
    if (ring != NULL) {
        ring->index = atomic_fetch_add(&n_rings, 1);
        atomic_init(&ring->is_taken, true);
        ring->next = atomic_load(&rings);
        while (!atomic_compare_exchange_weak(&rings, &ring->next, ring)) {
        }
    }
    return ring;
}

static ad_trace_ring *
take_ring(void)
{
    ad_once_call(&once, make_key);
    ad_trace_ring *ring = find_ring();
    if (ring == NULL) {
        ring = new_ring();
    }
    if (ring == NULL || !has_key || !ad_thread_key_set(at_thread_end, ring)) {
        if (ring != NULL) {
            atomic_store(&ring->is_taken, false);
        }
        return NULL;
    }
    ring->thread = ad_thread_self();
    mine = ring;
    return ring;
}

/* Within begin() and end(): room for one more event of this trace. */
static bool
make_room(ad_trace_ring *ring)
{
    enum {
        FIRST_SIZE = 256
    };
    if (ring->trace != ad_trace_number()) {
        ring->trace = ad_trace_number();
        ring->capacity = atomic_load(&capacity_now);
        ring->n = 0; /* of a trace that was not collected */
    }
    if (ring->n < ring->size || ring->size == ring->capacity) {
        return true;
    }
    size_t size = ring->size > 0 ? 2 * ring->size : FIRST_SIZE;
    if (size > ring->capacity) {
        size = ring->capacity;
    }
    ad_trace_event *events = realloc(ring->events, size * sizeof(*events));
    if (events == NULL) {
        return false;
    }
    ring->events = events;
    ring->size = size;
    return true;
}

ad_trace_ring *
ad_trace_begin(const ad_trace_event *event)
{
    if (!ad_trace_is_on()) {
        return NULL;
    }
    ad_trace_ring *ring = mine != NULL ? mine : take_ring();
    if (ring == NULL) {
        atomic_fetch_add(&n_lost, 1);
        return NULL;
    }
    /* The thread that stops the trace sees this, or this thread sees that the
     * trace is off. */
    atomic_store(&ring->is_writing, true);
    if (ad_trace_is_on() && event->trace == ad_trace_number()) {
        if (make_room(ring)) {
            return ring;
        }
        atomic_fetch_add(&n_lost, 1);
    }
    atomic_store(&ring->is_writing, false);
    return NULL;
}

static size_t
hash(const void *object)
{
    uint64_t value = (uint64_t)(uintptr_t)object >> 4;
    return (size_t)(value * 0x9E3779B97F4A7C15u >> 20);
}

static void
put(ad_trace_ring *ring, void *object)
{
    size_t i = hash(object) & (ring->n_cells - 1);
    while (ring->kept[i] != NULL) {
        i = (i + 1) & (ring->n_cells - 1);
    }
    ring->kept[i] = object;
}

static bool
grow(ad_trace_ring *ring)
{
    void **old = ring->kept;
    size_t n_old = ring->n_cells;
    size_t n = n_old > 0 ? 2 * n_old : 64;
    void **cells = calloc(n, sizeof(*cells));
    if (cells == NULL) {
        return false;
    }
    ring->kept = cells;
    ring->n_cells = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != NULL) {
            put(ring, old[i]);
        }
    }
    free(old);
    return true;
}

bool
ad_trace_keep(ad_trace_ring *ring, void **object)
{
    if (*object == NULL) {
        return false;
    }
    for (size_t i = hash(*object); ring->n_cells > 0; i++) {
        void *found = ring->kept[i & (ring->n_cells - 1)];
        if (found == *object) {
            return false;
        }
        if (found == NULL) {
            break;
        }
    }
    if (2 * (ring->n_kept + 1) > ring->n_cells && !grow(ring)) {
        *object = NULL;
        return false;
    }
    put(ring, *object);
    ring->n_kept++;
    return true;
}

void
ad_trace_end(ad_trace_ring *ring, const ad_trace_event *event)
{
    ring->events[ring->n++ % ring->capacity] = *event;
    atomic_store_explicit(&ring->is_writing, false, memory_order_release);
}

void
ad_trace_add(const ad_trace_event *event)
{
    ad_trace_ring *ring = ad_trace_begin(event);
    if (ring != NULL) {
        ad_trace_end(ring, event);
    }
}

uint64_t
ad_trace_new_memory(void)
{
    static atomic_uint_least64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* --- copies, waits, refusals --------------------------------------------- */

static void
add_with_line(ad_trace_event *event, const char *why)
{
    void (*add)(ad_trace_event *) = atomic_load(&ad_trace_add_with_line);
    event->trace = ad_trace_number();
    event->end = ad_now();
    if (event->start == 0) {
        event->start = event->end;
    }
    event->ndim = -1;
    strncpy(event->why, why, sizeof(event->why) - 1);
    if (add != NULL) {
        add(event);
    } else {
        ad_trace_add(event);
    }
}

void
ad_trace_copy(int64_t nbytes, ad_device from, ad_device to, const char *why,
              int64_t start)
{
    ad_trace_event event = {
        .kind = AD_TRACE_COPY,
        .start = start,
        .nbytes = nbytes,
        .device = from,
        .target = to,
    };
    add_with_line(&event, why);
}

void
ad_trace_wait(ad_device device, const void *handle, const char *why,
              int64_t start)
{
    ad_trace_event event = {
        .kind = AD_TRACE_WAIT,
        .start = start,
        .device = device,
        .event = handle,
    };
    add_with_line(&event, why);
}

void
ad_trace_set_why(const char *why)
{
    why_next = why;
}

/* Without a reason the wait is that of a release, or of a copy's stream, and may
 * be between begin_calls() and end_calls(): no line is looked for. */
void
ad_trace_add_stream_wait(ad_trace_event *event)
{
    if (why_next != NULL) {
        add_with_line(event, why_next);
    } else {
        ad_trace_add(event);
    }
}

void
ad_trace_deferred(ad_device device, int64_t start)
{
    const ad_trace_event event = {
        .kind = AD_TRACE_DEFERRED,
        .trace = ad_trace_number(),
        .start = start,
        .end = ad_now(),
        .device = device,
        .ndim = -1,
    };
    ad_trace_add(&event);
}

void
ad_trace_refusal(const char *reason, const char *text)
{
    ad_trace_event event = {.kind = AD_TRACE_REFUSAL};
    strncpy(event.type, reason, sizeof(event.type) - 1);
    add_with_line(&event, text);
}

/* --- begin and end of a trace -------------------------------------------- */

void
ad_trace_start(size_t capacity)
{
    (void)ad_process_add_child_hook(&child_hook);
    atomic_store(&capacity_now, capacity);
    atomic_store(&n_lost, 0);
    atomic_fetch_add(&number, 1);
    atomic_fetch_or(&ad_log_state_now, AD_LOG_TRACED);
}

void
ad_trace_stop(void)
{
    atomic_fetch_and(&ad_log_state_now, ~AD_LOG_TRACED);
    for (ad_trace_ring *r = atomic_load(&rings); r != NULL; r = r->next) {
        while (atomic_load(&r->is_writing)) {
            ad_yield();
        }
    }
}

static bool
collect_ring(ad_trace_ring *ring, ad_trace_visitor *visitor)
{
    uint64_t first = ring->n > ring->capacity ? ring->n - ring->capacity : 0;
    bool goes_on = true;
    visitor->dropped += first;
    for (uint64_t i = first; i < ring->n && goes_on; i++) {
        goes_on = visitor->event(visitor->data, ring->index, ring->thread,
                                 &ring->events[i % ring->capacity]);
    }
    for (size_t i = 0; i < ring->n_cells; i++) {
        void *object = ring->kept[i];
        ring->kept[i] = NULL; /* a child forked meanwhile collects once more */
        if (object != NULL) {
            visitor->object(visitor->data, object);
        }
    }
    free(ring->events);
    free(ring->kept);
    ring->events = NULL;
    ring->kept = NULL;
    ring->n_cells = ring->n_kept = 0;
    ring->n = ring->size = 0;
    return goes_on;
}

bool
ad_trace_collect(ad_trace_visitor *visitor)
{
    bool goes_on = true;
    visitor->dropped = 0;
    visitor->lost = atomic_load(&n_lost);
    for (ad_trace_ring *r = atomic_load(&rings); r != NULL; r = r->next) {
        goes_on = collect_ring(r, visitor) && goes_on;
    }
    return goes_on;
}
