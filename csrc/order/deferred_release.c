#include "order/deferred_release.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/os.h"
#include "base/process.h"
#include "base/trace.h"
#include "base/wait.h"
#include "base/thread_local.h"
#include "order/streams.h"
#include "device/backend.h"

/* An entry is abandoned after this many failures. Only a wait for its device
 * tries it again. */
#define MAX_FAILURES 8

/* The number of the oldest entries that ad_deferred_drain() checks. */
#define N_IN_PASSING 8

#define SHORTEST_NAP 100000 /* nanoseconds */
#define LONGEST_NAP 10000000
#define STOP_NAPS 200 /* ad_deferred_stop() waits for at most 2 s */

typedef struct entry {
    struct entry *next;
    struct entry *previous;
    struct entry *next_in_pass;
    bool is_in_pass; /* only the pass changes or frees the entry */
    bool is_released;
    bool is_abandoned;
    unsigned n_failures;
    ad_owner *owner;
    ad_stream_ref on; /* of a late entry, owns `keep`; else only the context */
    bool is_ready;    /* nothing is waited for but another thread */
    bool is_late;     /* syncs[0] is to be recorded on the stream, once it is
                         not being captured */
    int64_t since;    /* of ad_log_start() */
    size_t n;         /* 0: is_ready, or the context has to be idle */
    ad_sync *syncs[];
} entry;

/* The treatment of an entry that may not be ready. To wait for a context
 * invalidates all graphs that are being captured in it, so that only calls in
 * which a user waits for the device do so. */
typedef enum mode {
    QUERY,
    WAIT_FOR_EVENTS, /* and for no context */
    WAIT,
    WAIT_OR_BE_INTERRUPTED
} mode;

/* Events that are pending in a pass. An entry that is released later waits for
 * a later event of its stream, which is pending, too: the pass does not ask
 * the runtime for it. */
#define N_BUSY_STREAMS 16

typedef struct busy_streams {
    size_t n;
    const ad_sync *events[N_BUSY_STREAMS]; /* borrowed: own events */
} busy_streams;

typedef enum thread_state {
    NOT_STARTED,
    RUNNING,
    STOPPING,
    STOPPED /* and none is started any more */
} thread_state;

static ad_mutex lock = AD_MUTEX_INIT;
static ad_cond changed = AD_COND_INIT;
/* A circular list, protected by the lock. Abandoned entries stay on it. */
static entry deferred = {.next = &deferred, .previous = &deferred};
static entry *kept;              /* for the life of the process */
static atomic_size_t n_deferred; /* polled entries */
static _Atomic(thread_state) state;
/* This thread is inside drain(). A release may call drain() again. */
static AD_THREAD_LOCAL bool is_draining;
/* Between ad_deferred_begin_calls() and ad_deferred_end_calls(). */
static AD_THREAD_LOCAL bool is_in_calls;
static AD_THREAD_LOCAL ad_context calls_context;

/* --- one entry ----------------------------------------------------------- */

/* Whether the entry is on the device. The context does not matter, because an
 * owner may not know it. Pinned memory without a device id may be used by any
 * device. */
static bool
is_at(const entry *e, ad_device device)
{
    ad_device mine = ad_device_of_runtime(e->on.context.device);
    device = ad_device_of_runtime(device);
    return mine.type == device.type &&
           (mine.id == device.id || mine.id < 0 || device.id < 0);
}

/* Whether the entry may become ready without a wait for its context. */
static bool
is_polled(const entry *e)
{
    return (e->n > 0 || e->is_ready) && !e->is_abandoned;
}

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

static ad_status
block_on_context(const ad_wait *wait, ad_error *err)
{
    return ad_backend_for(wait->context.device.type)
        ->synchronize(wait->context, err);
}

static ad_status
wait_until_idle(ad_context context, mode how, ad_error *err)
{
    const ad_wait wait = {.wait = block_on_context, .context = context};
    if (how == WAIT_OR_BE_INTERRUPTED) {
        return ad_wait_interruptible(&wait, err);
    }
    void *saved = ad_wait_begin();
    ad_status status = block_on_context(&wait, err);
    ad_wait_end(saved);
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
    return wait_until_idle(context, how, err);
}

/* Record the event of a late entry. "capture": the stream is still being
 * captured. */
static ad_status
record_late(entry *e, ad_error *err)
{
    const struct ad_backend *backend;
    bool is_captured;
    AD_RETURN_IF_ERR(
        ad_backend_open(e->on.context.device.type, &backend, err));
    if (!ad_stream_exists(&e->on)) {
        return ad_fail(err, AD_ERR_DEVICE, NULL, NULL,
                       "the stream that used the memory is destroyed");
    }
    AD_RETURN_IF_ERR(backend->stream_is_capturing(e->on.context, e->on.stream,
                                                  &is_captured, err));
    /* The capture may end between the two queries. */
    if (is_captured) {
        AD_RETURN_IF_ERR(
            ad_stream_require_no_capture(&e->on, "a release", err));
    }
    AD_RETURN_IF_ERR(ad_sync_record(&e->on, &e->syncs[0], err));
    e->is_late = false;
    return AD_OK;
}

/* Where the wait for an event fails, for example because it was captured into
 * a graph, wait until the context of the event is idle. Its work is complete
 * then. That context may differ from the one of the owner's memory. */
static ad_status
wait_for_event(ad_sync *sync, mode how, ad_error *err)
{
    ad_status status = ad_sync_wait(
        sync, "a release", how == WAIT_OR_BE_INTERRUPTED ? err : NULL);
    return status == AD_OK || status == AD_ERR_INTERRUPTED ||
                   how == WAIT_FOR_EVENTS
               ? status
               : wait_for_context(sync->on.context, how, err);
}

static ad_status
wait_for_events(ad_sync *const *syncs, size_t n, mode how, ad_error *err)
{
    for (size_t i = 0; i < n; i++) {
        AD_RETURN_IF_ERR(wait_for_event(syncs[i], how, err));
    }
    return AD_OK;
}

static ad_status
wait_for(entry *e, mode how, ad_error *err)
{
    if (e->is_ready) {
        return AD_OK;
    }
    if (e->n == 0) {
        return wait_for_context(e->on.context, how, err);
    }
    ad_status status = e->is_late ? record_late(e, err) : AD_OK;
    if (status == AD_OK) {
        return wait_for_events(e->syncs, e->n, how, err);
    }
    return how == WAIT_FOR_EVENTS || ad_error_has_reason(err, "capture")
               ? status
               : wait_for_context(e->on.context, how, err);
}

static bool
is_of_busy_stream(const busy_streams *busy, const ad_sync *sync)
{
    for (size_t i = 0; i < busy->n; i++) {
        if (sync->is_own && ad_stream_equal(&sync->on, &busy->events[i]->on)) {
            return true;
        }
    }
    return false;
}

static unsigned int
n_refused(const entry *e)
{
    return ad_backend_for(e->on.context.device.type)->n_refused();
}

/* A failure that lasts is counted. These do not: a stream is captured for a
 * while, a captured event may be recorded again, and a call that was refused
 * (n_refused in device/backend.h) is permitted on other threads. */
static void
count_failure(entry *e, const ad_error *err, unsigned int n_before)
{
    if (!ad_error_has_reason(err, "capture") && n_refused(e) == n_before) {
        e->n_failures++;
    }
}

/* Never waits. */
static bool
query_entry(entry *e, busy_streams *busy)
{
    const unsigned int n_before = n_refused(e);
    ad_error err;
    bool is_done = is_polled(e);
    ad_status status = e->is_late ? record_late(e, &err) : AD_OK;
    for (size_t i = 0; i < e->n && is_done && status == AD_OK; i++) {
        const ad_sync *sync = e->syncs[i];
        if (is_of_busy_stream(busy, sync)) {
            return false;
        }
        status = ad_sync_query(e->syncs[i], &is_done, &err);
        if (!is_done && sync->is_own && busy->n < N_BUSY_STREAMS) {
            busy->events[busy->n++] = sync;
        }
    }
    if (status != AD_OK) {
        count_failure(e, &err, n_before);
    }
    return is_done && status == AD_OK;
}

/* *err gets the first error of a pass, or AD_ERR_INTERRUPTED, after which the
 * pass waits for nothing. */
static bool
wait_on(entry *e, mode how, ad_error *err)
{
    const unsigned int n_before = n_refused(e);
    ad_error mine = {.status = AD_OK};
    if (err->status == AD_ERR_INTERRUPTED) {
        return false;
    }
    ad_status status = wait_for(e, how, &mine);
    if (status == AD_OK) {
        return true;
    }
    /* An old failure of an abandoned entry is not an error of this wait. */
    if (status == AD_ERR_INTERRUPTED ||
        (err->status == AD_OK && !e->is_abandoned)) {
        *err = mine;
    }
    if (status != AD_ERR_INTERRUPTED) {
        count_failure(e, &mine, n_before);
    }
    return false;
}

/* --- drain passes -------------------------------------------------------- */

static bool
is_in_pass_locked(ad_device device)
{
    for (const entry *e = deferred.next; e != &deferred; e = e->next) {
        if (e->is_in_pass && is_at(e, device)) {
            return true;
        }
    }
    return false;
}

static bool
is_wanted(const entry *e, const ad_device *device)
{
    return !e->is_in_pass &&
           (device != NULL ? is_at(e, *device) : is_polled(e));
}

/* Returns the entries of a new pass, which stay on the list. */
static entry *
begin_pass(size_t max, const ad_device *device)
{
    entry *first = NULL;
    entry **end = &first;
    /* The passes that have to end first may need the GIL, which is released
     * here. */
    void *saved = device != NULL ? ad_wait_begin() : NULL;
    ad_mutex_lock(&lock);
    /* A wait for a device includes the passes of other threads. This thread
     * cannot wait for a pass of its own that is in progress. */
    while (device != NULL && !is_draining && is_in_pass_locked(*device)) {
        ad_cond_wait(&changed, &lock);
    }
    for (entry *e = deferred.next; e != &deferred && max > 0; e = e->next) {
        if (is_wanted(e, device)) {
            e->is_in_pass = true;
            *end = e;
            end = &e->next_in_pass;
            max--;
        }
    }
    *end = NULL;
    ad_mutex_unlock(&lock);
    ad_wait_end(saved);
    return first;
}

static void
end_pass(entry *first)
{
    entry *next;
    ad_mutex_lock(&lock);
    for (entry *e = first; e != NULL; e = next) {
        next = e->next_in_pass;
        e->is_in_pass = false;
        if (e->is_released) {
            e->previous->next = e->next;
            e->next->previous = e->previous;
            free(e);
        } else if (!e->is_abandoned && e->n_failures >= MAX_FAILURES) {
            atomic_fetch_sub(&n_deferred, is_polled(e) ? 1 : 0);
            e->is_abandoned = true;
        }
    }
    ad_cond_broadcast(&changed);
    ad_mutex_unlock(&lock);
}

void
ad_deferred_begin_calls(ad_context context)
{
    calls_context = context;
    is_in_calls = true;
    ad_backend_for(context.device.type)->begin_calls(context);
}

void
ad_deferred_end_calls(ad_context context)
{
    ad_backend_for(context.device.type)->end_calls(context);
    is_in_calls = false;
}

/* A context in which the queries of a pass can be made, and so exists: of the
 * first entry that names one. It serves for all, because an event needs no
 * current context, or its query enters its own. NULL: none is known, or there
 * is a single entry, which is not worth it. */
static const ad_context *
context_of_pass(const entry *first)
{
    bool has_several = first != NULL && first->next_in_pass != NULL;
    for (const entry *e = first; e != NULL && has_several;
         e = e->next_in_pass) {
        if (e->n > 0 && !e->is_late && e->syncs[0]->is_own) {
            return &e->syncs[0]->on.context;
        }
    }
    return NULL;
}

/* Marks the entries that are ready. Nothing is released meanwhile, so that the
 * context is entered once. */
static void
query_pass(entry *first)
{
    busy_streams busy = {.n = 0};
    const ad_context *context = context_of_pass(first);
    if (context != NULL) {
        ad_deferred_begin_calls(*context);
    }
    for (entry *e = first; e != NULL; e = e->next_in_pass) {
        e->is_released = query_entry(e, &busy);
    }
    if (context != NULL) {
        ad_deferred_end_calls(*context);
    }
}

static bool
drain_outside_calls(size_t max, const ad_device *device, mode how,
                    ad_error *err)
{
    const unsigned generation = ad_process_generation();
    const bool was_draining = is_draining;
    bool progress = false;
    entry *first = begin_pass(max, device);
    err->status = AD_OK;
    is_draining = true;
    if (how == QUERY) {
        query_pass(first);
    }
    for (entry *e = first; e != NULL; e = e->next_in_pass) {
        if (how != QUERY) {
            e->is_released = wait_on(e, how, err);
        }
        if (e->is_released) {
            progress = true;
            atomic_fetch_sub(&n_deferred, is_polled(e) ? 1 : 0);
            release(e->owner, e->syncs, e->is_late ? 0 : e->n);
            if (e->since != 0) {
                ad_trace_deferred(e->on.context.device, e->since);
            }
            ad_owner_unref(e->on.keep);
        }
        /* A release or a signal handler forked, and this is the child. All
         * entries belong to the parent. */
        if (generation != ad_process_generation()) {
            return true;
        }
    }
    is_draining = was_draining;
    end_pass(first);
    return progress;
}

/* Release the ready ones among the oldest `max` entries, on `device` unless it
 * is NULL. *err gets the status AD_OK or the first error of a wait. Returns
 * true when something was released. */
static bool
drain(size_t max, const ad_device *device, mode how, ad_error *err)
{
    const bool was_in_calls = is_in_calls;
    const ad_context context = calls_context;
    if (was_in_calls) {
        ad_deferred_end_calls(context);
    }
    bool progress = drain_outside_calls(max, device, how, err);
    if (was_in_calls) {
        ad_deferred_begin_calls(context);
    }
    return progress;
}

void
ad_deferred_drain(void)
{
    ad_error unused;
    if (!is_in_calls &&
        atomic_load_explicit(&n_deferred, memory_order_relaxed) != 0) {
        (void)drain(N_IN_PASSING, NULL, QUERY, &unused);
    }
}

ad_status
ad_deferred_wait(ad_context context, ad_error *err)
{
    /* Without `err` an interruption could not be reported. */
    mode how = err != NULL ? WAIT_OR_BE_INTERRUPTED : WAIT;
    ad_error mine;
    if (!ad_deferred_is_any()) {
        return AD_OK;
    }
    (void)drain(SIZE_MAX, &context.device, how, &mine);
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
ad_context_synchronize(ad_context context, ad_error *err)
{
    AD_RETURN_IF_ERR(wait_until_idle(context, WAIT_OR_BE_INTERRUPTED, err));
    return ad_deferred_wait(context, err);
}

bool
ad_deferred_is_any(void)
{
    ad_mutex_lock(&lock);
    bool is_any = deferred.next != &deferred;
    ad_mutex_unlock(&lock);
    return is_any;
}

/* --- the thread ---------------------------------------------------------- */

/* The end of a pass signals `changed`. */
static bool
has_work_locked(void)
{
    const entry *e = deferred.next;
    while (e != &deferred && !is_wanted(e, NULL)) {
        e = e->next;
    }
    return e != &deferred;
}

static bool
wait_for_work(void)
{
    ad_mutex_lock(&lock);
    while (!has_work_locked() && atomic_load(&state) == RUNNING) {
        ad_cond_wait(&changed, &lock);
    }
    ad_mutex_unlock(&lock);
    return atomic_load(&state) == RUNNING;
}

static void *
drain_for_ever(void *unused)
{
    int64_t span = SHORTEST_NAP;
    while (wait_for_work()) {
        ad_error ignored;
        bool progress = drain(SIZE_MAX, NULL, QUERY, &ignored);
        span = progress ? SHORTEST_NAP : span * 2;
        span = span < LONGEST_NAP ? span : LONGEST_NAP;
        ad_sleep(span);
    }
    atomic_store(&state, STOPPED);
    return unused;
}

/* The child has no thread, and the deferred releases belong to the parent. */
static void
after_fork(void)
{
    ad_mutex_init(&lock);
    (void)ad_cond_init(&changed);
    deferred = (entry){.next = &deferred, .previous = &deferred};
    is_draining = false;
    atomic_store(&n_deferred, 0);
    atomic_store(&state, STOPPED);
}

static ad_child_hook child_hook = {.run = after_fork};

/* Where no thread can be started, later calls drain the list. */
static void
start_thread_locked(void)
{
    if (atomic_load(&state) == NOT_STARTED &&
        ad_thread_start(drain_for_ever, NULL, NULL) == 0) {
        atomic_store(&state, RUNNING);
    }
}

void
ad_deferred_stop(void)
{
    ad_mutex_lock(&lock);
    bool had_thread = atomic_load(&state) == RUNNING;
    atomic_store(&state, had_thread ? STOPPING : STOPPED);
    ad_cond_broadcast(&changed);
    ad_mutex_unlock(&lock);
    /* The thread may be in a runtime call that never returns, or may need the
     * GIL, which is released here. */
    void *saved = ad_wait_begin();
    for (int i = 0; i < STOP_NAPS && atomic_load(&state) == STOPPING; i++) {
        ad_sleep(i == 0 ? SHORTEST_NAP : LONGEST_NAP);
    }
    ad_wait_end(saved);
}

/* --- deferring a release ------------------------------------------------- */

/* Without memory for an entry. Takes over the references. The wait for a
 * context invalidates graphs that are being captured in it, but device memory
 * would be lost without it. */
static void
release_here(ad_owner *owner, ad_context context, ad_sync *const *syncs,
             size_t n)
{
    ad_status status = n > 0 ? wait_for_events(syncs, n, WAIT_FOR_EVENTS, NULL)
                             : wait_for_context(context, WAIT, NULL);
    if (status == AD_OK) {
        release(owner, syncs, n);
    }
}

/* Takes over the entry. */
static void
append(entry *e)
{
    ad_error ignored;
    ad_mutex_lock(&lock);
    const bool is_ready = e->is_ready;
    if (e->n == 0 && !is_ready && !can_be_idle(e->on.context)) {
        e->next = kept;
        kept = e;
        ad_mutex_unlock(&lock);
        return;
    }
    size_t before = atomic_fetch_add(&n_deferred, is_polled(e) ? 1 : 0);
    e->next = &deferred;
    e->previous = deferred.previous;
    e->previous->next = e;
    deferred.previous = e;
    start_thread_locked();
    ad_cond_broadcast(&changed);
    ad_mutex_unlock(&lock);
    if (before >= AD_DEFERRED_MAX && !is_ready) {
        (void)drain(1, NULL, WAIT_FOR_EVENTS, &ignored);
    }
}

static entry *
new_entry(ad_owner *owner, ad_context context, size_t n)
{
    (void)ad_process_add_child_hook(&child_hook);
    entry *e = malloc(sizeof(*e) + n * sizeof(e->syncs[0]));
    if (e != NULL) {
        *e = (entry){.owner = owner,
                     .on.context = context,
                     .since = ad_log_start(),
                     .n = n};
    }
    return e;
}

void
ad_defer_release(ad_owner *owner, ad_context context, ad_sync *const *syncs,
                 size_t n)
{
    entry *e = new_entry(owner, context, n);
    if (e == NULL) {
        release_here(owner, context, syncs, n);
        return;
    }
    if (n > 0) {
        memcpy(e->syncs, syncs, n * sizeof(syncs[0]));
    }
    append(e);
}

void
ad_release_elsewhere(ad_owner *owner, ad_context context)
{
    atomic_store(&owner->refs, 1);
    entry *e = new_entry(owner, context, 0);
    if (e != NULL) {
        e->is_ready = true;
        append(e);
    }
}

void
ad_defer_release_late(ad_owner *owner, const ad_stream_ref *on)
{
    entry *e = new_entry(owner, on->context, 1);
    if (e != NULL) {
        e->is_late = true;
        e->on = *on;
        (void)ad_owner_ref(on->keep);
        ad_stream_identify(&e->on);
        append(e);
    }
}
