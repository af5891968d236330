#include "order/deferred_release.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/process.h"
#include "base/thread.h"
#include "base/wait.h"
#include "order/context_cache.h"
#include "device/backend.h"

/* An entry is abandoned after this many failures. Only a wait for its device
 * tries it again. */
#define MAX_FAILURES 8

/* The number of the oldest entries that ad_deferred_drain() checks. */
#define N_IN_PASSING 8

#define SHORTEST_NAP 100000L /* nanoseconds */
#define LONGEST_NAP 10000000L
#define STOP_NAPS 200 /* ad_deferred_stop() waits for at most 2 s */

typedef struct entry {
    struct entry *next;
    struct entry *next_in_pass; /* of a drain pass */
    ad_owner *owner;
    ad_context context;
    bool idle;
    /* An event cannot be queried, so its context has to be idle. */
    bool has_unqueryable_event;
    bool is_abandoned;
    unsigned n_failures;
    size_t n;
    ad_sync *syncs[];
} entry;

/* The treatment of an entry that may not be ready. */
typedef enum mode {
    QUERY,
    WAIT,
    WAIT_OR_BE_INTERRUPTED
} mode;

/* A call that checks entries. They are off the list during the pass. */
typedef struct drain_pass {
    struct drain_pass *next;
    /* Linked by `next_in_pass`; includes the ones released since. */
    entry *entries;
} drain_pass;

typedef struct list {
    entry *first;
    entry **end; /* &first where the list is empty */
} list;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Protected by the lock, except for the atomics. */
static list deferred = {NULL, &deferred.first};
static list abandoned = {NULL, &abandoned.first};
static list kept = {NULL, &kept.first}; /* for the life of the process */
static drain_pass *passes;
static bool has_thread;
static pthread_t thread;
static bool is_forked;
static atomic_bool is_stopping;
static atomic_bool is_thread_done;
static atomic_size_t n_deferred;
static atomic_size_t n_abandoned;
/* This thread is inside drain(). A release may call drain() again. */
static _Thread_local bool is_draining;

/* --- lists --------------------------------------------------------------- */

static void
append(list *to, entry *e)
{
    e->next = NULL;
    *to->end = e;
    to->end = &e->next;
}

/* A selection of entries. */
typedef struct filter {
    size_t max;                /* the limit, from the front */
    const ad_context *context; /* NULL: any context */
    bool idle;                 /* only entries that wait for a context */
} filter;

/* Whether the entry is on the device. The context does not matter, because an
 * owner may not know it. Pinned memory without a device id may be used by any
 * device. */
static bool
is_at(const entry *e, ad_device device)
{
    ad_device mine = ad_device_of_runtime(e->context.device);
    device = ad_device_of_runtime(device);
    return mine.type == device.type &&
           (mine.id == device.id || mine.id < 0 || device.id < 0);
}

static bool
matches(const entry *e, const filter *which)
{
    return (which->context == NULL || is_at(e, which->context->device)) &&
           (!which->idle || e->idle || e->has_unqueryable_event);
}

static void
take(list *from, const filter *which, list *out)
{
    entry **link = &from->first;
    size_t n = 0;
    while (*link != NULL && n < which->max) {
        entry *e = *link;
        if (!matches(e, which)) {
            link = &e->next;
            continue;
        }
        *link = e->next;
        append(out, e);
        n++;
    }
    if (*link == NULL) {
        from->end = link;
    }
}

/* `to` must be empty, or its entries must be on other lists by now. */
static void
move(const list *from, list *to)
{
    to->first = from->first;
    to->end = from->first != NULL ? from->end : &to->first;
}

static void
put_back_in_front(list *to, list *batch)
{
    if (batch->first == NULL) {
        return;
    }
    *batch->end = to->first;
    if (to->first == NULL) {
        to->end = batch->end;
    }
    to->first = batch->first;
}

/* --- one entry ----------------------------------------------------------- */

static void
release(ad_owner *owner, ad_sync *const *syncs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ad_sync_unref(syncs[i]);
    }
    ad_owner_unref(owner);
}

static bool
can_be_idle(ad_context context)
{
    return (ad_backend_for(context.device.type)->capabilities &
            AD_CAP_CONTEXT_IDLE) != 0;
}

static ad_status
fail_never_idle(ad_device device, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_fail(err, AD_ERR_DEVICE, NULL, NULL,
            "memory on %s is not released: nothing says when the work that "
            "uses it is done, and the runtime cannot wait for all work",
            ad_device_format(device, name));
    ad_error_device(err, device);
    return AD_ERR_DEVICE;
}

/* The subject of a wait for a context. */
typedef struct context_owner {
    ad_owner base;
    const struct ad_backend *backend;
    ad_context context;
} context_owner;

static void
context_destroy(ad_owner *base)
{
    free(base);
}

static const ad_owner_ops place_ops = {.destroy = context_destroy,
                                       .name = "device context"};

static ad_status
block_on_context(ad_owner *base, ad_error *err)
{
    const context_owner *self = (const context_owner *)base;
    return self->backend->synchronize(self->context, err);
}

static ad_status
wait_until_idle(const struct ad_backend *backend, ad_context context, mode how,
                ad_error *err)
{
    context_owner *owner =
        how == WAIT_OR_BE_INTERRUPTED ? malloc(sizeof(*owner)) : NULL;
    if (owner == NULL) { /* an uninterruptible wait needs no memory */
        void *saved = ad_wait_begin();
        ad_status status = backend->synchronize(context, err);
        ad_wait_end(saved);
        return status;
    }
    *owner = (context_owner){.backend = backend, .context = context};
    ad_owner_init(&owner->base, &place_ops);
    const ad_wait wait = {.wait = block_on_context, .subject = &owner->base};
    ad_status status = ad_wait_interruptible(&wait, err);
    ad_owner_unref(&owner->base);
    return status;
}

static ad_status
wait_for_context(ad_context context, mode how, ad_error *err)
{
    const struct ad_backend *backend;
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    if (!can_be_idle(context)) {
        return fail_never_idle(context.device, err);
    }
    AD_RETURN_IF_ERR(ad_context_complete(backend, context, &context, err));
    return wait_until_idle(backend, context, how, err);
}

/* Where the wait for an event fails, for example because it was captured into
 * a graph, wait until the context of the event is idle. Its work is complete
 * then. That context may differ from the one of the owner's memory. */
static ad_status
wait_for_event(ad_sync *sync, mode how, ad_error *err)
{
    ad_status status = ad_sync_wait(
        sync, "a release", how == WAIT_OR_BE_INTERRUPTED ? err : NULL);
    return status == AD_OK || status == AD_ERR_INTERRUPTED
               ? status
               : wait_for_context(sync->context, how, err);
}

static ad_status
wait_for(ad_context context, ad_sync *const *syncs, size_t n, bool idle,
         mode how, ad_error *err)
{
    for (size_t i = 0; i < n && !idle; i++) {
        AD_RETURN_IF_ERR(wait_for_event(syncs[i], how, err));
    }
    return idle ? wait_for_context(context, how, err) : AD_OK;
}

static bool
is_capture(const ad_error *err)
{
    return err->reason != NULL && strcmp(err->reason, "capture") == 0;
}

/* Never waits. Where an event cannot be queried, the entry has to wait for the
 * context. That would disturb a capture in progress, so during a capture the
 * event is queried again later. */
static bool
query_entry(entry *e)
{
    bool must_wait = e->idle || e->has_unqueryable_event;
    for (size_t i = 0; i < e->n && !must_wait; i++) {
        bool is_done;
        ad_error err;
        if (ad_sync_query(e->syncs[i], &is_done, &err) != AD_OK) {
            e->has_unqueryable_event = !is_capture(&err);
            return false;
        }
        if (!is_done) {
            return false;
        }
    }
    return !must_wait;
}

static bool
wait_on(entry *e, mode how, ad_error *err)
{
    ad_error mine;
    ad_status status =
        wait_for(e->context, e->syncs, e->n, e->idle, how, &mine);
    if (status == AD_OK || status == AD_ERR_INTERRUPTED) {
        if (status != AD_OK) {
            *err = mine;
        }
        return status == AD_OK;
    }
    if (!is_capture(&mine)) {
        e->has_unqueryable_event = e->n > 0;
        e->n_failures++;
    }
    /* An old failure of an abandoned entry is not an error of this wait. */
    if (err->status == AD_OK && !e->is_abandoned) {
        *err = mine;
    }
    return false;
}

/* --- releasing a batch --------------------------------------------------- */

/* Release the ready entries of `batch` and move them to `done`; the rest stays
 * in `batch`. *err, whose status is AD_OK before the call, gets the first
 * error of a wait, or AD_ERR_INTERRUPTED. Returns false where a release forked
 * and this is the child. All entries belong to the parent then. */
static bool
release_ready(list *batch, list *done, mode how, ad_error *err)
{
    const unsigned generation = ad_process_generation();
    list left = {NULL, &left.first};
    entry *next;
    for (entry *e = batch->first; e != NULL; e = next) {
        next = e->next;
        bool is_ready = how == QUERY ? query_entry(e)
                                     : err->status != AD_ERR_INTERRUPTED &&
                                           wait_on(e, how, err);
        if (is_ready) {
            release(e->owner, e->syncs, e->n);
        }
        if (generation != ad_process_generation()) {
            return false;
        }
        if (is_ready) {
            atomic_fetch_sub(&n_deferred, 1);
        }
        append(is_ready ? done : &left, e);
    }
    move(&left, batch);
    return true;
}

static bool
is_hopeless(const entry *e)
{
    bool can_wait = !e->idle || can_be_idle(e->context);
    for (size_t i = 0; i < e->n && e->has_unqueryable_event; i++) {
        can_wait &=
            ad_sync_is_done(e->syncs[i]) || can_be_idle(e->syncs[i]->context);
    }
    return e->n_failures >= MAX_FAILURES || !can_wait;
}

/* A runtime that fails repeatedly rarely recovers by itself. After a repair by
 * the user a wait for the device tries the entry again. A runtime that cannot
 * wait for an idle context never will, so that memory is kept for the life of
 * the process. */
static void
abandon_locked(entry *e)
{
    bool can_try_again = !e->idle || can_be_idle(e->context);
    e->is_abandoned = true;
    append(can_try_again ? &abandoned : &kept, e);
    atomic_fetch_add(&n_abandoned, can_try_again ? 1 : 0);
}

static void
abandon_hopeless_locked(list *batch)
{
    list left = {NULL, &left.first};
    entry *next;
    for (entry *e = batch->first; e != NULL; e = next) {
        next = e->next;
        if (is_hopeless(e)) {
            abandon_locked(e);
            atomic_fetch_sub(&n_deferred, 1);
        } else {
            append(&left, e);
        }
    }
    move(&left, batch);
}

static void
take_again_locked(const filter *which, list *batch)
{
    list again = {NULL, &again.first};
    take(&abandoned, which, &again);
    for (const entry *e = again.first; e != NULL; e = e->next) {
        atomic_fetch_sub(&n_abandoned, 1);
        atomic_fetch_add(&n_deferred, 1);
    }
    put_back_in_front(batch, &again);
}

/* --- drain passes -------------------------------------------------------- */

static bool
is_in_pass_locked(ad_device device)
{
    for (const drain_pass *l = passes; l != NULL; l = l->next) {
        for (const entry *e = l->entries; e != NULL; e = e->next_in_pass) {
            if (is_at(e, device)) {
                return true;
            }
        }
    }
    return false;
}

static void
begin_pass_locked(drain_pass *self, const filter *which, list *batch)
{
    /* A wait for a device includes the passes of other threads. This thread
     * cannot wait for a pass of its own that is still in progress. */
    while (which->context != NULL && !is_draining &&
           is_in_pass_locked(which->context->device)) {
        pthread_cond_wait(&changed, &lock);
    }
    take(&deferred, which, batch);
    if (which->context != NULL) {
        take_again_locked(which, batch);
    }
    for (entry *e = batch->first; e != NULL; e = e->next) {
        e->next_in_pass = e->next;
    }
    self->entries = batch->first;
    self->next = passes;
    passes = self;
}

static void
end_pass_locked(drain_pass *self, list *left)
{
    drain_pass **link = &passes;
    while (*link != self) {
        link = &(*link)->next;
    }
    *link = self->next;
    abandon_hopeless_locked(left);
    put_back_in_front(&deferred, left);
    pthread_cond_broadcast(&changed);
}

/* Returns true when something was released. */
static bool
drain(const filter *which, mode how, ad_error *err)
{
    list batch = {NULL, &batch.first};
    list done = {NULL, &done.first};
    entry *next;
    drain_pass self;
    bool was_draining = is_draining;
    err->status = AD_OK;
    /* The passes that have to end first may need the GIL, which is released
     * here. */
    void *saved = which->context != NULL ? ad_wait_begin() : NULL;
    pthread_mutex_lock(&lock);
    begin_pass_locked(&self, which, &batch);
    pthread_mutex_unlock(&lock);
    ad_wait_end(saved);

    is_draining = true;
    if (!release_ready(&batch, &done, how, err)) {
        return true;
    }
    is_draining = was_draining;

    pthread_mutex_lock(&lock);
    end_pass_locked(&self, &batch);
    pthread_mutex_unlock(&lock);
    bool progress = done.first != NULL;
    for (entry *e = done.first; e != NULL; e = next) {
        next = e->next;
        free(e);
    }
    return progress;
}

void
ad_deferred_drain(void)
{
    static const filter oldest = {.max = N_IN_PASSING};
    ad_error unused;
    if (atomic_load_explicit(&n_deferred, memory_order_relaxed) != 0) {
        (void)drain(&oldest, QUERY, &unused);
    }
}

ad_status
ad_deferred_wait(ad_context context, ad_error *err)
{
    filter all = {.max = SIZE_MAX, .context = &context};
    ad_error mine;
    if (!ad_deferred_is_any()) {
        return AD_OK;
    }
    /* Without `err` an interruption could not be reported. */
    (void)drain(&all, err != NULL ? WAIT_OR_BE_INTERRUPTED : WAIT, &mine);
    if (mine.status != AD_OK && err != NULL) {
        *err = mine;
    }
    return mine.status;
}

size_t
ad_deferred_count(void)
{
    return atomic_load(&n_deferred);
}

ad_status
ad_context_synchronize(const struct ad_backend *backend, ad_context context,
                       ad_error *err)
{
    AD_RETURN_IF_ERR(
        wait_until_idle(backend, context, WAIT_OR_BE_INTERRUPTED, err));
    return ad_deferred_wait(context, err);
}

bool
ad_deferred_is_any(void)
{
    return atomic_load(&n_deferred) > 0 || atomic_load(&n_abandoned) > 0;
}

/* --- the thread ---------------------------------------------------------- */

static void
nap(long nanoseconds)
{
    struct timespec span = {0, nanoseconds};
    (void)nanosleep(&span, NULL);
}

static bool
wait_for_work(void)
{
    pthread_mutex_lock(&lock);
    while (deferred.first == NULL && !atomic_load(&is_stopping)) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return !atomic_load(&is_stopping);
}

/* Each round first queries all entries, then waits for one entry that needs an
 * idle context. Other threads can drain the other entries during that wait. */
static void *
drain_for_ever(void *unused)
{
    static const filter all = {.max = SIZE_MAX};
    static const filter idle = {.max = 1, .idle = true};
    long span = SHORTEST_NAP;
    while (wait_for_work()) {
        ad_error ignored;
        bool progress = drain(&all, QUERY, &ignored);
        progress |= drain(&idle, WAIT, &ignored);
        span = progress ? SHORTEST_NAP : span * 2;
        span = span < LONGEST_NAP ? span : LONGEST_NAP;
        nap(span);
    }
    atomic_store(&is_thread_done, true);
    return unused;
}

/* The child has no thread, and the deferred releases belong to the parent. */
static void
after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&changed, NULL);
    deferred = (list){NULL, &deferred.first};
    abandoned = (list){NULL, &abandoned.first};
    passes = NULL;
    is_draining = false;
    has_thread = false;
    is_forked = true;
    atomic_store(&n_deferred, 0);
    atomic_store(&n_abandoned, 0);
}

static ad_child_hook child_hook = {.run = after_fork};

/* Where no thread can be started, later calls drain the list. */
static void
start_thread_locked(void)
{
    if (has_thread || is_forked || atomic_load(&is_stopping)) {
        return;
    }
    has_thread = ad_thread_start(drain_for_ever, NULL, &thread) == 0;
}

void
ad_deferred_stop(void)
{
    pthread_mutex_lock(&lock);
    bool had_thread = has_thread;
    has_thread = false;
    atomic_store(&is_stopping, true);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!had_thread) {
        return;
    }
    /* The thread may be in a runtime call that never returns, or may need the
     * GIL, which is released here. */
    void *saved = ad_wait_begin();
    for (int i = 0; i < STOP_NAPS && !atomic_load(&is_thread_done); i++) {
        nap(i == 0 ? SHORTEST_NAP : LONGEST_NAP);
    }
    if (atomic_load(&is_thread_done)) {
        pthread_join(thread, NULL);
    } else {
        pthread_detach(thread);
    }
    ad_wait_end(saved);
}

/* --- deferring a release ------------------------------------------------- */

/* For want of memory for an entry. The owner is not released if the wait
 * fails. */
static void
release_now(ad_owner *owner, ad_context context, ad_sync *const *syncs,
            size_t n, bool idle)
{
    if (wait_for(context, syncs, n, idle, WAIT, NULL) == AD_OK) {
        release(owner, syncs, n);
    }
}

void
ad_defer_release(ad_owner *owner, ad_context context, ad_sync *const *syncs,
                 size_t n, bool idle)
{
    static const filter oldest = {.max = 1};
    ad_error ignored;
    (void)ad_process_add_child_hook(&child_hook);
    entry *e = malloc(sizeof(*e) + n * sizeof(syncs[0]));
    if (e == NULL) {
        release_now(owner, context, syncs, n, idle);
        return;
    }
    *e = (entry){.owner = owner, .context = context, .idle = idle, .n = n};
    if (n > 0) {
        memcpy(e->syncs, syncs, n * sizeof(syncs[0]));
    }
    pthread_mutex_lock(&lock);
    if (is_hopeless(e)) {
        abandon_locked(e);
        pthread_mutex_unlock(&lock);
        return;
    }
    size_t before = atomic_fetch_add(&n_deferred, 1);
    append(&deferred, e);
    start_thread_locked();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (before >= AD_DEFERRED_MAX) {
        (void)drain(&oldest, WAIT, &ignored);
    }
}
