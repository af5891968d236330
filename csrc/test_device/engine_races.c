#include "test_device/engine_races.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/os.h"
#include "test_device/engine_memory.h"

enum {
    MAX_ACCESSES = 4096, /* that are kept of an allocation */
    MAX_FREED = 1024,    /* allocations that are freed and still known */
    MAX_ENDED = 1024,    /* orders of queues that are gone */
    MAX_RACES = 4096
};

/* Whose work is ordered: a queue, or an event that only the host completes. */
typedef struct worker {
    size_t n_refs;
    uint64_t now;   /* number of the last operation */
    uint64_t known; /* the last one that the host knows to be done */
    bool is_armed;
    bool is_own;
    int number;
    int device;
    uint64_t handle;
    uint32_t place;
    uint64_t recorded; /* the operation before the last event */
    int64_t recorded_at;
    uintptr_t recorded_by;
} worker;

/* An operation of a worker, and all before it. */
typedef struct point {
    worker *worker; /* a reference */
    uint64_t number;
} point;

struct ad_order {
    unsigned search;
    worker *self;         /* of a queue: a reference; else NULL */
    AD_LIST(point) after; /* one of each worker; none that the host knows */
};

typedef struct access {
    point by;
    ad_engine_use use; /* a height of 1 where there are no gaps */
    uint32_t place;
    int64_t enqueued;
} access;

typedef struct allocation {
    uint64_t number;
    uintptr_t base;
    size_t nbytes;
    uint32_t place;
    AD_LIST(access) accesses; /* oldest first */
    uint64_t freed; /* 0: it is live; the last number is the newest */
    ad_engine_party freed_by;
} allocation;

static struct {
    atomic_bool is_on;
    bool is_out_of_memory;
    unsigned search; /* number of the search */
    uint32_t (*_Atomic place)(void);
    int n_queues[2]; /* by worker.is_own */
    uint64_t n_allocations;
    uint64_t n_frees;
    size_t n_freed; /* that are known */
    size_t n_dropped;
    AD_LIST(allocation *) allocations; /* sorted by address, freed ones too */
    allocation host; /* all memory that is not the engine's */
    AD_LIST(ad_order *) ended;
    AD_LIST(ad_engine_race) found;
    AD_LIST(ad_engine_queue_number) numbers;
} races;

static bool
is_on(void)
{
    return atomic_load_explicit(&races.is_on, memory_order_relaxed);
}

/* Whether there is room; without memory the search ends. */
#define HAS_ROOM(list)                                                        \
    (ad_list_reserve(list, 1, NULL) == AD_OK || (give_up_locked(), false))

static void
give_up_locked(void)
{
    atomic_store(&races.is_on, false);
    races.is_out_of_memory = true;
}

uint32_t
ad_races_here(void)
{
    uint32_t (*place)(void) =
        atomic_load_explicit(&races.place, memory_order_acquire);
    return place != NULL ? place() : 0;
}

/* --- workers and orders -------------------------------------------------- */

static worker *
new_worker_locked(worker value)
{
    worker *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        give_up_locked();
        return NULL;
    }
    *self = value;
    self->n_refs = 1;
    return self;
}

static void
unref_worker_locked(worker *self)
{
    if (self != NULL && --self->n_refs == 0) {
        free(self);
    }
}

static bool
is_known(const point *p)
{
    return p->number <= p->worker->known;
}

/* A new order. Takes `self` over. */
static ad_order *
new_order_locked(worker *self)
{
    ad_order *order = calloc(1, sizeof(*order));
    if (order == NULL) {
        unref_worker_locked(self);
        give_up_locked();
        return NULL;
    }
    order->search = races.search;
    order->self = self;
    return order;
}

void
ad_races_free_locked(ad_order *order)
{
    if (order != NULL) {
        for (size_t i = 0; i < order->after.n; i++) {
            unref_worker_locked(order->after.items[i].worker);
        }
        unref_worker_locked(order->self);
        free(order->after.items);
        free(order);
    }
}

static bool
is_current(const ad_order *order)
{
    return order != NULL && is_on() && order->search == races.search;
}

ad_order *
ad_races_of_queue_locked(ad_order **order, uint64_t handle, int device,
                         bool is_own, uint32_t place)
{
    if (!is_on()) {
        return NULL;
    }
    if (!is_current(*order)) {
        ad_races_free_locked(*order);
        *order = NULL;
        worker *self = new_worker_locked((worker){
            .is_own = is_own,
            .number = ++races.n_queues[is_own],
            .device = device,
            .handle = handle,
            .place = place,
        });
        if (self != NULL && HAS_ROOM(&races.numbers)) {
            races.numbers.items[races.numbers.n++] =
                (ad_engine_queue_number){device, handle, self->number, is_own};
        }
        *order = self != NULL ? new_order_locked(self) : NULL;
    }
    return *order;
}

/* The last point of the worker that the order is after; 0: none. */
static uint64_t
last_of(const ad_order *order, const worker *of)
{
    for (size_t i = 0; i < order->after.n; i++) {
        if (order->after.items[i].worker == of) {
            return order->after.items[i].number;
        }
    }
    return 0;
}

static void
forget_known_locked(ad_order *order)
{
    size_t n = 0;
    for (size_t i = 0; i < order->after.n; i++) {
        point p = order->after.items[i];
        if (is_known(&p)) {
            unref_worker_locked(p.worker);
        } else {
            order->after.items[n++] = p;
        }
    }
    order->after.n = n;
}

static void
add_point_locked(ad_order *order, point p)
{
    if (is_known(&p) || p.worker == order->self) {
        return;
    }
    for (size_t i = 0; i < order->after.n; i++) {
        point *old = &order->after.items[i];
        if (old->worker == p.worker) {
            old->number = old->number > p.number ? old->number : p.number;
            return;
        }
    }
    if (HAS_ROOM(&order->after)) {
        p.worker->n_refs++;
        order->after.items[order->after.n++] = p;
    }
}

static void
add_order_locked(ad_order *order, const ad_order *other)
{
    forget_known_locked(order);
    for (size_t i = 0; i < other->after.n; i++) {
        add_point_locked(order, other->after.items[i]);
    }
    if (other->self != NULL) {
        add_point_locked(order, (point){other->self, other->self->now});
    }
}

ad_order *
ad_races_copy_locked(const ad_order *of_queue)
{
    if (!is_current(of_queue)) {
        return NULL;
    }
    ad_order *order = new_order_locked(NULL);
    if (order != NULL) {
        add_order_locked(order, of_queue);
    }
    return order;
}

void
ad_races_recorded_locked(ad_order *of_queue)
{
    if (is_current(of_queue)) {
        of_queue->self->recorded = of_queue->self->now;
        of_queue->self->recorded_at = ad_now();
        of_queue->self->recorded_by = ad_thread_self();
    }
}

ad_order *
ad_races_armed_locked(void)
{
    worker *armed =
        is_on() ? new_worker_locked((worker){.is_armed = true, .now = 1})
                : NULL;
    ad_order *order = armed != NULL ? new_order_locked(NULL) : NULL;
    if (order != NULL) {
        add_point_locked(order, (point){armed, 1});
    }
    unref_worker_locked(armed);
    return order;
}

void
ad_races_fired_locked(ad_order *of_mark)
{
    ad_races_host_knows_locked(of_mark);
}

void
ad_races_wait_locked(ad_order *of_queue, const ad_order *of_mark)
{
    if (is_current(of_queue) && is_current(of_mark)) {
        add_order_locked(of_queue, of_mark);
    }
}

/* --- what the host knows ------------------------------------------------- */

static void
host_knows_point(point p)
{
    if (p.worker->known < p.number) {
        p.worker->known = p.number;
    }
}

void
ad_races_host_knows_locked(const ad_order *order)
{
    if (!is_current(order)) {
        return;
    }
    for (size_t i = 0; i < order->after.n; i++) {
        host_knows_point(order->after.items[i]);
    }
    if (order->self != NULL) {
        host_knows_point((point){order->self, order->self->now});
    }
}

bool
ad_races_is_known_locked(const ad_order *order)
{
    bool is_all = true;
    for (size_t i = 0; is_current(order) && i < order->after.n; i++) {
        is_all = is_all && is_known(&order->after.items[i]);
    }
    return is_all;
}

void
ad_races_queue_ends_locked(ad_order *of_queue)
{
    if (!is_current(of_queue) ||
        is_known(&(point){of_queue->self, of_queue->self->now})) {
        ad_races_free_locked(of_queue);
        return;
    }
    if (races.ended.n == MAX_ENDED) { /* what is forgotten counts as done */
        ad_races_host_knows_locked(races.ended.items[0]);
        ad_races_free_locked(races.ended.items[0]);
        races.ended.n--;
        memmove(races.ended.items, races.ended.items + 1,
                races.ended.n * sizeof(races.ended.items[0]));
    }
    if (HAS_ROOM(&races.ended)) {
        races.ended.items[races.ended.n++] = of_queue;
    } else {
        ad_races_free_locked(of_queue);
    }
}

const ad_order *
ad_races_ended_locked(uint64_t handle)
{
    for (size_t i = 0; is_on() && i < races.ended.n; i++) {
        if (races.ended.items[i]->self->handle == handle) {
            return races.ended.items[i];
        }
    }
    return NULL;
}

void
ad_races_host_knows_ended_locked(int device)
{
    size_t n = 0;
    for (size_t i = 0; is_on() && i < races.ended.n; i++) {
        ad_order *order = races.ended.items[i];
        if (device < 0 || order->self->device == device) {
            ad_races_host_knows_locked(order);
            ad_races_free_locked(order);
        } else {
            races.ended.items[n++] = order;
        }
    }
    races.ended.n = is_on() ? n : races.ended.n;
}

/* --- allocations --------------------------------------------------------- */

/* Index of the first allocation that begins after `address`. */
static size_t
position_locked(uintptr_t address)
{
    size_t low = 0;
    size_t high = races.allocations.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (races.allocations.items[middle]->base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static allocation *
allocation_locked(const void *data)
{
    size_t position = position_locked((uintptr_t)data);
    allocation *a =
        position > 0 ? races.allocations.items[position - 1] : NULL;
    return a != NULL && (uintptr_t)data - a->base < a->nbytes ? a
                                                              : &races.host;
}

static void
clear_locked(allocation *a)
{
    for (size_t i = 0; i < a->accesses.n; i++) {
        unref_worker_locked(a->accesses.items[i].by.worker);
    }
    free(a->accesses.items);
    memset(&a->accesses, 0, sizeof(a->accesses));
}

static void
remove_locked(size_t position)
{
    allocation *a = races.allocations.items[position];
    races.n_freed -= a->freed != 0;
    races.allocations.n--;
    memmove(&races.allocations.items[position],
            &races.allocations.items[position + 1],
            (races.allocations.n - position) * sizeof(a));
    clear_locked(a);
    free(a);
}

void
ad_races_allocated_locked(const ad_engine_allocation *made, uint32_t place)
{
    if (!is_on() || made->kind == AD_ENGINE_REGISTERED) {
        return;
    }
    uintptr_t base = (uintptr_t)made->base;
    size_t at = position_locked(base);
    /* Its addresses may be those of freed memory. */
    while (at > 0 && base - races.allocations.items[at - 1]->base <
                         races.allocations.items[at - 1]->nbytes) {
        remove_locked(--at);
    }
    while (at < races.allocations.n &&
           races.allocations.items[at]->base - base < made->nbytes) {
        remove_locked(at);
    }
    allocation *a = calloc(1, sizeof(*a));
    if (a == NULL || !HAS_ROOM(&races.allocations)) {
        free(a);
        give_up_locked();
        return;
    }
    *a = (allocation){.number = ++races.n_allocations,
                      .base = base,
                      .nbytes = made->nbytes,
                      .place = place};
    memmove(&races.allocations.items[at + 1], &races.allocations.items[at],
            (races.allocations.n - at) * sizeof(a));
    races.allocations.items[at] = a;
    races.allocations.n++;
}

static void
forget_oldest_freed_locked(void)
{
    size_t oldest = 0;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < races.allocations.n; i++) {
        uint64_t freed = races.allocations.items[i]->freed;
        if (freed != 0 && freed < least) {
            least = freed;
            oldest = i;
        }
    }
    remove_locked(oldest);
}

static void
set_freed_locked(allocation *a, ad_engine_party by)
{
    a->freed = ++races.n_frees;
    a->freed_by = by;
    clear_locked(a);
    if (++races.n_freed > MAX_FREED) {
        forget_oldest_freed_locked();
    }
}

/* --- ranges -------------------------------------------------------------- */

static uintptr_t
begin_of(const ad_engine_use *use)
{
    return (uintptr_t)use->data;
}

static uintptr_t
end_of(const ad_engine_use *use)
{
    return begin_of(use) + (use->height - 1) * use->pitch + use->width;
}

static ad_engine_use
without_gaps(ad_engine_use use)
{
    if (use.pitch == use.width) {
        use.width *= use.height;
        use.height = 1;
    }
    return use;
}

/* The bytes of [begin, end) that `use` has, in one of its rows. */
static bool
cut(const ad_engine_use *use, uintptr_t begin, uintptr_t end,
    uintptr_t *common_begin, uintptr_t *common_end)
{
    if (end <= begin_of(use) || begin >= end_of(use)) {
        return false;
    }
    size_t row = 0;
    if (use->height > 1) {
        row = (end - 1 - begin_of(use)) / use->pitch;
        row = row < use->height ? row : use->height - 1;
    }
    uintptr_t row_begin = begin_of(use) + row * use->pitch;
    uintptr_t row_end = row_begin + use->width;
    *common_begin = row_begin > begin ? row_begin : begin;
    *common_end = row_end < end ? row_end : end;
    return *common_begin < *common_end;
}

/* Bytes that both use. Looks at the rows of the one that has fewer. */
static bool
overlap(const ad_engine_use *a, const ad_engine_use *b, uintptr_t *begin,
        uintptr_t *end)
{
    const ad_engine_use *few = a->height <= b->height ? a : b;
    const ad_engine_use *many = few == a ? b : a;
    for (size_t row = 0; row < few->height; row++) {
        uintptr_t at = begin_of(few) + row * few->pitch;
        if (cut(many, at, at + few->width, begin, end)) {
            return true;
        }
    }
    return false;
}

/* --- races --------------------------------------------------------------- */

static ad_engine_party
party_of(const access *a)
{
    const worker *by = a->by.worker;
    return (ad_engine_party){
        .access = a->use.access,
        .queue = by != NULL ? by->number : 0,
        .is_own = by != NULL && by->is_own,
        .device = by != NULL ? by->device : 0,
        .handle = by != NULL ? by->handle : 0,
        .place = a->place,
        .made_at = by != NULL ? by->place : 0,
        .enqueued = a->enqueued,
        .recorded =
            by != NULL && by->recorded >= a->by.number ? by->recorded_at : 0,
        .recorded_by = by != NULL ? by->recorded_by : 0,
    };
}

/* Both of the same place, or of the same queue where no place is known. */
static bool
is_like(const ad_engine_party *a, const ad_engine_party *b)
{
    return a->access == b->access && a->place == b->place &&
           (a->place != 0 || (a->queue == b->queue && a->is_own == b->is_own));
}

static void
report_locked(ad_engine_race race, const allocation *a)
{
    for (size_t i = 0; i < races.found.n; i++) {
        const ad_engine_race *old = &races.found.items[i];
        if (is_like(&old->first, &race.first) &&
            is_like(&old->second, &race.second) &&
            old->is_after_free == race.is_after_free) {
            return;
        }
    }
    race.allocation = a->number;
    race.made_at = a->place;
    race.nbytes = a->nbytes;
    race.begin -= a->base;
    if (races.found.n == MAX_RACES) {
        races.n_dropped++;
    } else if (HAS_ROOM(&races.found)) {
        races.found.items[races.found.n++] = race;
    }
}

/* Compare with an earlier access, which the host does not know to be done.
 * `order` is that of the later one; NULL: the host. */
static void
compare_locked(const access *first, const access *second,
               const ad_order *order, const allocation *a)
{
    uintptr_t begin;
    uintptr_t end;
    uint64_t last = order != NULL ? last_of(order, first->by.worker) : 0;
    bool is_ordered =
        first->by.worker == second->by.worker || last >= first->by.number;
    bool both_read = first->use.access == AD_ENGINE_READ &&
                     second->use.access == AD_ENGINE_READ;
    if (!is_ordered && !both_read &&
        overlap(&first->use, &second->use, &begin, &end)) {
        report_locked((ad_engine_race){.first = party_of(first),
                                       .second = party_of(second),
                                       .begin = begin,
                                       .n_common = end - begin,
                                       .waits_too_early = last != 0},
                      a);
    }
}

static bool
is_repeated(const access *a, const access *b)
{
    return a->by.worker == b->by.worker && a->place == b->place &&
           a->place != 0 && a->use.access == b->use.access &&
           a->use.data == b->use.data && a->use.pitch == b->use.pitch &&
           a->use.width == b->use.width && a->use.height == b->use.height;
}

/* Compares with all earlier accesses, and drops those that the host knows and
 * those that the new one repeats: a race with them is one with it. */
static void
compare_all_locked(allocation *a, const access *now, const ad_order *order)
{
    size_t n = 0;
    for (size_t i = 0; i < a->accesses.n; i++) {
        access old = a->accesses.items[i];
        bool is_kept = !is_known(&old.by) && !is_repeated(&old, now);
        if (!is_known(&old.by)) {
            compare_locked(&old, now, order, a);
        }
        if (is_kept) {
            a->accesses.items[n++] = old;
        } else {
            unref_worker_locked(old.by.worker);
        }
    }
    a->accesses.n = n;
}

static void
keep_locked(allocation *a, access now)
{
    if (a->accesses.n == MAX_ACCESSES) {
        size_t half = MAX_ACCESSES / 2;
        for (size_t i = 0; i < half; i++) {
            unref_worker_locked(a->accesses.items[i].by.worker);
        }
        memmove(a->accesses.items, a->accesses.items + half,
                half * sizeof(now));
        a->accesses.n = half;
        races.n_dropped += half;
    }
    if (HAS_ROOM(&a->accesses)) {
        now.by.worker->n_refs++;
        a->accesses.items[a->accesses.n++] = now;
    }
}

static void
report_after_free_locked(allocation *a, const access *now)
{
    uintptr_t end = end_of(&now->use);
    uintptr_t end_of_all = a->base + a->nbytes;
    report_locked(
        (ad_engine_race){.first = a->freed_by,
                         .second = party_of(now),
                         .begin = begin_of(&now->use),
                         .n_common = (end < end_of_all ? end : end_of_all) -
                                     begin_of(&now->use),
                         .is_after_free = true},
        a);
}

static void
use_locked(ad_order *order, access now, bool is_refused)
{
    allocation *a = allocation_locked(now.use.data);
    if (a->freed != 0) {
        report_after_free_locked(a, &now);
    } else if (!is_refused) {
        compare_all_locked(a, &now, order);
        if (now.use.access == AD_ENGINE_FREE) {
            set_freed_locked(a, party_of(&now));
        } else {
            keep_locked(a, now);
        }
    }
}

static bool
is_behind_armed_locked(const ad_order *order)
{
    for (size_t i = 0; i < order->after.n; i++) {
        const point *p = &order->after.items[i];
        if (p->worker->is_armed && !is_known(p)) {
            return true;
        }
    }
    return false;
}

void
ad_races_work_locked(ad_order *of_queue, const ad_engine_use *uses, size_t n,
                     bool is_refused, uint32_t place, int64_t enqueued)
{
    if (!is_current(of_queue)) {
        return;
    }
    for (size_t i = 0; i < n; i++) { /* the work will not touch any of it */
        is_refused = is_refused || allocation_locked(uses[i].data)->freed != 0;
    }
    point by = {of_queue->self, of_queue->self->now + !is_refused};
    of_queue->self->now = by.number;
    for (size_t i = 0; i < n && !is_behind_armed_locked(of_queue); i++) {
        if (uses[i].width > 0 && uses[i].height > 0) {
            use_locked(of_queue,
                       (access){by, without_gaps(uses[i]), place, enqueued},
                       is_refused);
        }
    }
}

void
ad_races_freed_locked(const void *base, uint32_t place, const ad_order *behind)
{
    allocation *a = is_on() ? allocation_locked(base) : NULL;
    if (a == NULL || a->base != (uintptr_t)base || a->freed != 0) {
        return; /* of a search before, or registered */
    }
    worker *queue = is_current(behind) ? behind->self : NULL;
    const access now = {
        .by = {queue, queue != NULL ? queue->now : 0},
        .use = {AD_ENGINE_FREE, base, a->nbytes, a->nbytes, 1, false},
        .place = place,
        .enqueued = ad_now(),
    };
    compare_all_locked(a, &now, queue != NULL ? behind : NULL);
    set_freed_locked(a, party_of(&now));
}

/* --- the search ---------------------------------------------------------- */

static void
forget_all_locked(void)
{
    while (races.allocations.n > 0) {
        remove_locked(races.allocations.n - 1);
    }
    clear_locked(&races.host);
    for (size_t i = 0; i < races.ended.n; i++) {
        ad_races_free_locked(races.ended.items[i]);
    }
    races.ended.n = 0;
}

void
ad_engine_set_place(uint32_t (*place)(void))
{
    atomic_store(&races.place, place);
}

void
ad_engine_races_start(void)
{
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return;
    }
    forget_all_locked();
    races.found.n = 0;
    races.numbers.n = 0;
    races.search++;
    races.is_out_of_memory = false;
    races.n_dropped = 0;
    races.n_allocations = 0;
    memset(races.n_queues, 0, sizeof(races.n_queues));
    atomic_store(&races.is_on, true);
    ad_engine_memory_each_locked(ad_races_allocated_locked, 0);
    ad_engine_unlock();
}

void
ad_engine_races_stop(void)
{
    if (ad_engine_lock() == AD_ENGINE_OK) {
        atomic_store(&races.is_on, false);
        forget_all_locked();
        ad_engine_unlock();
    }
}

size_t
ad_engine_races(size_t from, ad_engine_race *out, size_t capacity)
{
    size_t n = 0;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        for (; n < capacity && from + n < races.found.n; n++) {
            out[n] = races.found.items[from + n];
        }
        ad_engine_unlock();
    }
    return n;
}

size_t
ad_engine_queue_numbers(size_t from, ad_engine_queue_number *out,
                        size_t capacity)
{
    size_t n = 0;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        for (; n < capacity && from + n < races.numbers.n; n++) {
            out[n] = races.numbers.items[from + n];
        }
        ad_engine_unlock();
    }
    return n;
}

size_t
ad_engine_races_unawaited(size_t from, ad_engine_race *out, size_t capacity)
{
    size_t n = 0;
    size_t n_before = 0;
    if (ad_engine_lock() != AD_ENGINE_OK) {
        return 0;
    }
    for (size_t i = 0; n < capacity && i < races.host.accesses.n; i++) {
        const access *a = &races.host.accesses.items[i];
        if (a->use.access == AD_ENGINE_WRITE && !a->use.is_waited_for &&
            !is_known(&a->by) && n_before++ >= from) {
            out[n++] = (ad_engine_race){
                .first = party_of(a),
                .begin = begin_of(&a->use),
                .n_common = end_of(&a->use) - begin_of(&a->use),
            };
        }
    }
    ad_engine_unlock();
    return n;
}

size_t
ad_engine_races_dropped(void)
{
    size_t n = 0;
    if (ad_engine_lock() == AD_ENGINE_OK) {
        n = races.is_out_of_memory ? SIZE_MAX : races.n_dropped;
        ad_engine_unlock();
    }
    return n;
}
