#include "order/sync.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/trace.h"
#include "base/wait.h"
#include "order/deferred_release.h"
#include "order/streams.h"
#include "device/backend.h"

/* --- construction -------------------------------------------------------- */

/* The cache whose pool keeps an own event with its sync for the next record.
 * NULL where events of this runtime cannot be reused. The work of a pooled
 * event may be pending. Streams that wait for it are not affected, because the
 * runtime remembers the work and not the event. */
static ad_context_cache *
cache_of(const struct ad_backend *backend, const ad_context *context)
{
    return (backend->capabilities & AD_CAP_EVENTS_REUSABLE) != 0
               ? ad_context_cache_of(backend, context)
               : NULL;
}

/* Frees a sync to which there are no references. False, and nothing is done,
 * where the runtime permits no call on this thread. */
static bool
destroy_event(ad_sync *sync)
{
    const int32_t type = sync->on.context.device.type;
    const struct ad_backend *backend = ad_backend_for(type);
    if (sync->is_own && !ad_backend_is_forked(type)) {
        const unsigned int n_refused = backend->n_refused();
        backend->event_destroy(sync->on.context, sync->event);
        if (backend->n_refused() != n_refused) {
            return false;
        }
    }
    free(sync);
    return true;
}

/* Takes over a sync to which there are no references. */
static inline void
give_or_destroy(ad_sync *sync)
{
    if ((sync->cache == NULL || !ad_sync_give(sync)) && !destroy_event(sync)) {
        ad_release_elsewhere(&sync->base, sync->on.context);
    }
}

static void
sync_destroy(ad_owner *base)
{
    ad_sync *sync = (ad_sync *)base;
    ad_owner *keep = sync->on.keep;
    sync->on.keep = NULL;
    give_or_destroy(sync);
    ad_owner_unref(keep);
}

/* The runtime takes the handle of a per-thread stream for this thread's. */
static inline void
set_stream(ad_sync *sync, const ad_stream_ref *on)
{
    sync->on = *on;
    sync->on.keep = NULL;
    if (on->kind == AD_REF_PER_THREAD) {
        sync->on.thread = ad_thread_number();
    }
}

static const ad_owner_ops sync_ops = {.destroy = sync_destroy, .name = "sync"};

/* `on` without its object. */
static ad_sync *
sync_alloc(ad_sync_kind kind, const ad_stream_ref *on, ad_error *err)
{
    ad_sync *sync = malloc(sizeof(*sync));
    if (sync == NULL) {
        ad_fail_memory(err, sizeof(*sync));
        return NULL;
    }
    *sync = (ad_sync){.kind = kind};
    ad_owner_init(&sync->base, &sync_ops);
    set_stream(sync, on);
    return sync;
}

ad_status
ad_sync_new(ad_sync_kind kind, ad_device device, void *handle, ad_owner *keep,
            ad_sync **out, ad_error *err)
{
    const ad_stream_ref unknown = {.context.device = device};
    ad_sync *sync = sync_alloc(kind, &unknown, err);
    if (sync == NULL) {
        return AD_ERR_MEMORY;
    }
    sync->handle = handle;
    sync->on.keep = ad_owner_ref(keep);
    *out = sync;
    return AD_OK;
}

/* Take a sync from the pool and record its event anew. NULL where the pool is
 * empty or the event could not be recorded. Where `is_right` says that the
 * context is certain, a failure means that the event died with its context, or
 * that the runtime permits no call on this thread. */
static inline ad_sync *
record_pooled(const struct ad_backend *backend, const ad_stream_ref *on,
              bool is_right)
{
    ad_context_cache *cache = cache_of(backend, &on->context);
    ad_sync *sync = cache != NULL ? ad_sync_take(cache) : NULL;
    if (sync == NULL) {
        return NULL;
    }
    if (backend->event_record(on->context, on->stream, &sync->event, NULL) ==
        AD_OK) {
        ad_owner_init(&sync->base, &sync_ops);
        sync->is_captured = false;
        atomic_init(&sync->is_done, false);
        set_stream(sync, on);
        return sync;
    }
    if (!is_right || !destroy_event(sync)) {
        give_or_destroy(sync);
    }
    return NULL;
}

ad_status
ad_sync_adopt(const ad_stream_ref *on, ad_event event, ad_sync **out,
              ad_error *err)
{
    const struct ad_backend *backend = ad_backend_for(on->context.device.type);
    ad_sync *sync = sync_alloc(AD_SYNC_EVENT, on, err);
    if (sync == NULL) {
        backend->event_destroy(on->context, event);
        return AD_ERR_MEMORY;
    }
    sync->event = event;
    sync->is_own = true;
    sync->handle = (backend->capabilities & AD_CAP_SYNC_EVENT_IS_HANDLE) != 0
                       ? sync->event.handle
                       : &sync->event.handle;
    sync->cache = cache_of(backend, &on->context);
    *out = sync;
    return AD_OK;
}

static ad_status
record(const struct ad_backend *backend, const ad_stream_ref *on,
       ad_sync **out, ad_error *err)
{
    ad_event event = {NULL};
    *out = record_pooled(backend, on, true);
    if (*out != NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(
        backend->event_record(on->context, on->stream, &event, err));
    return ad_sync_adopt(on, event, out, err);
}

/* Record an event in an unknown context. The runtime is queried for the
 * context only where the likely one fails: a recorded event proves the
 * context. */
static ad_status
record_anywhere(const struct ad_backend *backend, const ad_stream_ref *on,
                ad_sync **out, ad_error *err)
{
    const ad_context unknown = on->context;
    ad_stream_ref found = *on;
    *out = backend->likely_context(on->stream, unknown.device, &found.context)
               ? record_pooled(backend, &found, false)
               : NULL;
    if (*out != NULL) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_stream_resolve(&found, backend, unknown, err));
    return record(backend, &found, out, err);
}

ad_status
ad_sync_record(const ad_stream_ref *on, ad_sync **out, ad_error *err)
{
    const struct ad_backend *backend;
    AD_RETURN_IF_ERR(ad_backend_open(on->context.device.type, &backend, err));
    return record(backend, on, out, err);
}

ad_status
ad_sync_pending(const ad_stream_ref *on, ad_sync **out, ad_error *err)
{
    const struct ad_backend *backend =
        ad_backend_in_use(on->context.device.type);
    if (backend == NULL) {
        *out = sync_alloc(on->keep != NULL ? AD_SYNC_QUEUE : AD_SYNC_STREAM,
                          on, err);
        if (*out == NULL) {
            return AD_ERR_MEMORY;
        }
        (*out)->handle = (void *)on->stream.handle;
    } else {
        AD_RETURN_IF_ERR(on->context.handle == NULL
                             ? record_anywhere(backend, on, out, err)
                             : record(backend, on, out, err));
        (*out)->is_captured = ad_stream_is_captured(&(*out)->on);
    }
    (*out)->on.keep = ad_owner_ref(on->keep);
    return AD_OK;
}

/* --- queries and waits --------------------------------------------------- */

static ad_status
fail_unknown(const ad_sync *sync, ad_error *err)
{
    return ad_fail_on(
        err, sync->on.context.device, "event",
        "synchronize in the producing library and import with stream=-1, "
        "or hand over an object that names its queue",
        "the data came with the context or the device of their memory and "
        "without a queue, so nobody knows which work on them may be "
        "pending");
}

ad_status
ad_sync_event(const ad_sync *sync, void **out, ad_error *err)
{
    if (sync->kind == AD_SYNC_EVENT) {
        *out = sync->handle;
        return AD_OK;
    }
    if (sync->kind == AD_SYNC_UNKNOWN) {
        return fail_unknown(sync, err);
    }
    return ad_fail_on(
        err, sync->on.context.device, "event",
        "synchronize in the producing library and import with stream=-1, "
        "or use the interface the data came by",
        "work may be pending on the producer's %s, and no runtime is "
        "loaded that could record an event on it",
        sync->kind == AD_SYNC_STREAM ? "stream" : "queue");
}

static ad_status
fail_no_runtime(const ad_sync *sync, const char *operation, ad_error *err)
{
    ad_error why;
    const struct ad_backend *backend;
    ad_device device = sync->on.context.device;
    if (sync->kind == AD_SYNC_UNKNOWN) {
        return fail_unknown(sync, err);
    }
    bool has_reason = ad_backend_has_events(device.type) &&
                      ad_backend_open(device.type, &backend, &why) != AD_OK;
    if (has_reason && ad_backend_is_forked(device.type)) {
        if (err != NULL) {
            *err = why;
        }
        return why.status;
    }
    return ad_fail_on(
        err, device, "event",
        "synchronize in the producing library and import with stream=-1, "
        "or hand the data over by __arrow_c_device_array__, which carries "
        "the event",
        "the data are ready only after an event, and no runtime is loaded "
        "with which %s could wait for it%s%s",
        operation, has_reason ? ": " : "", has_reason ? why.message : "");
}

/* The runtime that can wait for the event, or NULL. */
static const struct ad_backend *
backend_of_event(const ad_sync *sync)
{
    const struct ad_backend *backend =
        sync->kind == AD_SYNC_EVENT
            ? ad_backend_in_use(sync->on.context.device.type)
            : NULL;
    return backend != NULL &&
                   (sync->is_own || backend->claims_event(sync->handle))
               ? backend
               : NULL;
}

bool
ad_sync_can_wait(const ad_sync *sync)
{
    return ad_sync_is_done(sync) || backend_of_event(sync) != NULL;
}

/* The backend and the event of a sync that is not done. */
typedef struct subject {
    const struct ad_backend *backend;
    ad_event event;
} subject;

static ad_status
open_event(const ad_sync *sync, const char *operation, subject *out,
           ad_error *err)
{
    out->backend = backend_of_event(sync);
    if (out->backend == NULL) {
        return fail_no_runtime(sync, operation, err);
    }
    if (sync->is_own) {
        out->event = sync->event;
        return AD_OK;
    }
    out->event.handle =
        (out->backend->capabilities & AD_CAP_SYNC_EVENT_IS_HANDLE) != 0
            ? sync->handle
            : *(void *const *)sync->handle;
    if (out->event.handle == NULL) {
        return ad_fail_on(
            err, sync->on.context.device, "event",
            "report it to the producing library",
            "sync_event points to an event handle that is NULL; without "
            "anything to wait for it has to be NULL itself");
    }
    return AD_OK;
}

/* To ask the runtime about a captured event would invalidate the graph. */
static ad_status
open_for_host(const ad_sync *sync, const char *operation, subject *out,
              ad_error *err)
{
    if (!ad_sync_is_captured(sync)) {
        return open_event(sync, operation, out, err);
    }
    return ad_fail_on(
        err, sync->on.context.device, "capture",
        "wait for them on a stream of the same capture (stream=...), or "
        "import them again after the graph was launched",
        "the data were imported with a stream that was being captured into "
        "a graph, so their work runs when the graph is launched, and %s "
        "cannot say when that is done",
        operation);
}

static void
set_done(ad_sync *sync)
{
    atomic_store_explicit(&sync->is_done, true, memory_order_release);
}

/* A foreign event has no known context, and its query needs none. */
ad_status
ad_sync_query(ad_sync *sync, bool *out, ad_error *err)
{
    subject on;
    *out = true;
    if (ad_sync_is_done(sync)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(open_for_host(sync, "is_ready()", &on, err));
    AD_RETURN_IF_ERR(
        on.backend->event_query(sync->on.context, on.event, out, err));
    if (*out) {
        set_done(sync);
    }
    return AD_OK;
}

static ad_status
block_on_event(const ad_wait *wait, ad_error *err)
{
    const ad_sync *sync = (const ad_sync *)wait->subject;
    subject on;
    AD_RETURN_IF_ERR(open_for_host(sync, "the host", &on, err));
    return on.backend->event_synchronize(sync->on.context, on.event, err);
}

static bool
is_event_over(const ad_wait *wait)
{
    bool is_done;
    return ad_sync_query((ad_sync *)wait->subject, &is_done, NULL) != AD_OK ||
           is_done;
}

static ad_wait
wait_for(ad_sync *sync, const struct ad_backend *backend)
{
    return (ad_wait){
        .wait = block_on_event,
        .is_over = is_event_over,
        .subject = &sync->base,
        .on_host = ad_backend_wait_helps(backend, sync->on.context.device.id),
    };
}

ad_status
ad_sync_query_soon(ad_sync *sync, bool *out, ad_error *err)
{
    AD_RETURN_IF_ERR(ad_sync_query(sync, out, err));
    if (*out) {
        return AD_OK;
    }
    const ad_wait wait = wait_for(sync, backend_of_event(sync));
    void *saved = ad_wait_begin();
    bool is_over = ad_wait_is_over_soon(&wait);
    ad_wait_end(saved);
    return is_over ? ad_sync_query(sync, out, err) : AD_OK;
}

static __attribute__((cold, noinline)) ad_status
wait_and_log(const ad_sync *sync, ad_event event, const ad_wait *wait,
             const char *operation, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    ad_log("wait: the host waits for work on %s, for %s",
           ad_device_format(sync->on.context.device, name), operation);
    int64_t start = ad_log_start();
    ad_status status = ad_wait_interruptible(wait, err);
    if (start != 0) {
        ad_trace_wait(sync->on.context.device, (const void *)event.handle,
                      operation, start);
    }
    return status;
}

ad_status
ad_sync_wait(ad_sync *sync, const char *operation, ad_error *err)
{
    subject on = {.backend = NULL};
    bool is_done;
    if (ad_sync_is_done(sync)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(open_for_host(sync, operation, &on, err));
    /* A query costs less than releasing and reacquiring the GIL. */
    AD_RETURN_IF_ERR(
        on.backend->event_query(sync->on.context, on.event, &is_done, err));
    if (!is_done) {
        const ad_wait wait = wait_for(sync, on.backend);
        AD_RETURN_IF_ERR(ad_log_is_on() ? wait_and_log(sync, on.event, &wait,
                                                       operation, err)
                                        : ad_wait_interruptible(&wait, err));
    }
    set_done(sync);
    return AD_OK;
}

ad_status
ad_sync_wait_briefly(ad_sync *sync, ad_error *err)
{
    bool is_done;
    AD_RETURN_IF_ERR(ad_sync_query(sync, &is_done, err));
    if (is_done) {
        return AD_OK;
    }
    const ad_wait wait = {.wait = block_on_event, .subject = &sync->base};
    void *saved = ad_wait_begin();
    ad_status status = block_on_event(&wait, err);
    ad_wait_end(saved);
    if (status == AD_OK) {
        set_done(sync);
    }
    return status;
}

/* --- graphs -------------------------------------------------------------- */

ad_status
ad_sync_require_no_capture(const ad_sync *sync, const char *operation,
                           ad_error *err)
{
    if (!ad_sync_is_captured(sync)) {
        return AD_OK;
    }
    return ad_fail_on(
        err, sync->on.context.device, "capture",
        "import the data before the capture begins or after it has ended",
        "the data were imported with a stream that was being captured into "
        "a graph, and %s would become a part of the graph too",
        operation);
}

ad_status
ad_sync_require_outside_done(ad_sync *sync, const ad_stream_ref *on,
                             const char *operation, ad_error *err)
{
    bool is_done;
    if (ad_sync_is_done(sync) || !sync->is_own || sync->is_captured ||
        !ad_stream_is_captured(on)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_sync_query(sync, &is_done, err));
    return is_done
               ? AD_OK
               : ad_fail_on(err, sync->on.context.device, "capture",
                            "call synchronize() on the data before the "
                            "capture begins",
                            "work on the data from before the capture is "
                            "pending, and the stream of %s, which is being "
                            "captured into a graph, cannot wait for it",
                            operation);
}

/* --- stream order -------------------------------------------------------- */

/* Whether later work on `stream` follows the event without a wait, because the
 * event was recorded there. Only default streams can be compared by handle:
 * any other stream may have been destroyed while its work continues, and a new
 * one created at its address. */
static bool
follows(const ad_sync *sync, const struct ad_backend *backend,
        const ad_stream_ref *on)
{
    return sync->is_own &&
           (on->kind == AD_REF_DEFAULT || on->kind == AD_REF_PER_THREAD) &&
           ad_stream_equal(&sync->on, on) && ad_stream_is_here(on) &&
           (backend->capabilities & AD_CAP_IN_ORDER) != 0;
}

static inline ad_status
wait_on(const ad_sync *sync, const subject *of, const ad_stream_ref *on,
        ad_error *err)
{
    if ((of->backend->capabilities & AD_CAP_EVENT_HAS_CONTEXT) != 0) {
        return of->backend->stream_wait_in(on->context, on->stream, of->event,
                                           sync->on.context, err);
    }
    return of->backend->stream_wait(on->context, on->stream, of->event, err);
}

/* A release, which passes no `err`, may be between begin_calls() and
 * end_calls(): its reason is not reported. */
static __attribute__((cold, noinline)) ad_status
wait_and_log_on(const ad_sync *sync, const subject *of,
                const ad_stream_ref *on, const char *operation, ad_error *err)
{
    char name[AD_DEVICE_NAME_SIZE];
    char other[AD_DEVICE_NAME_SIZE];
    if (err != NULL) {
        ad_log("wait: stream 0x%" PRIxPTR " of %s waits for an event of %s, "
               "for %s; the host does not wait",
               on->stream.handle, ad_device_format(on->context.device, name),
               ad_device_format(sync->on.context.device, other), operation);
    }
    ad_trace_set_why(err != NULL ? operation : NULL);
    ad_status status = wait_on(sync, of, on, err);
    ad_trace_set_why(NULL);
    return status;
}

static ad_status
order_resolved(ad_sync *sync, const subject *of, const ad_stream_ref *on,
               const char *operation, ad_error *err)
{
    if (follows(sync, of->backend, on)) {
        return AD_OK;
    }
    /* The legacy stream cannot join a capture. An attempt would invalidate the
     * graph. */
    if (on->kind == AD_REF_DEFAULT) {
        AD_RETURN_IF_ERR(ad_sync_require_no_capture(sync, operation, err));
    }
    return ad_log_is_on() ? wait_and_log_on(sync, of, on, operation, err)
                          : wait_on(sync, of, on, err);
}

ad_status
ad_sync_order(ad_sync *sync, const ad_stream_ref *on, const char *operation,
              ad_error *err)
{
    subject of;
    if (ad_sync_is_done(sync)) {
        return AD_OK;
    }
    if (sync->kind != AD_SYNC_EVENT) {
        return sync->kind != AD_SYNC_UNKNOWN &&
                       ad_stream_equal(&sync->on, on) && ad_stream_is_here(on)
                   ? AD_OK
                   : fail_no_runtime(sync, operation, err);
    }
    AD_RETURN_IF_ERR(open_event(sync, operation, &of, err));
    ad_stream_ref found;
    if (!on->has_context) {
        found = *on;
        if (sync->is_own) {
            found.context = sync->on.context;
        } else {
            AD_RETURN_IF_ERR(
                ad_stream_resolve(&found, of.backend, sync->on.context, err));
        }
        on = &found;
    }
    return order_resolved(sync, &of, on, operation, err);
}

ad_status
ad_sync_stream(ad_sync *sync, ad_stream_ref *out, ad_error *err)
{
    static const char operation[] = "a consumer's stream";
    if (sync == NULL) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "a stream was asked for that waits, and there is "
                       "nothing to wait for");
    }
    if (!ad_sync_can_wait(sync)) {
        return fail_no_runtime(sync, operation, err);
    }
    AD_RETURN_IF_ERR(ad_sync_require_no_capture(sync, operation, err));
    AD_RETURN_IF_ERR(ad_stream_shared(sync->on.context, out, err));
    return ad_sync_order(sync, out, operation, err);
}

/* --- joining ------------------------------------------------------------- */

static ad_status
fail_other_device(const ad_sync *a, const ad_sync *b, ad_error *err)
{
    char first[AD_DEVICE_NAME_SIZE];
    char second[AD_DEVICE_NAME_SIZE];
    return ad_fail_on(
        err, b->on.context.device, "device",
        "bring the parts to one device with .to(), or call "
        "synchronize() on them first",
        "parts become ready on %s and on %s, and one event stands for "
        "one device",
        ad_device_format(a->on.context.device, first),
        ad_device_format(b->on.context.device, second));
}

/* *first is the first pending one of `syncs`, or NULL. True where another one
 * is pending too. */
static bool
find_two(ad_sync *const *syncs, size_t n, ad_sync **first)
{
    *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (ad_sync_is_done(syncs[i]) || ad_sync_same(syncs[i], *first)) {
            continue;
        }
        if (*first != NULL) {
            return true;
        }
        *first = syncs[i];
    }
    return false;
}

ad_status
ad_sync_join(ad_sync *const *syncs, size_t n, ad_sync **out, ad_error *err)
{
    static const char operation[] = "one event for several parts";
    ad_sync *first;
    ad_stream_ref own;
    ad_context context;
    if (!find_two(syncs, n, &first)) {
        *out = ad_sync_ref(first);
        return AD_OK;
    }
    ad_device device = ad_device_of_runtime(first->on.context.device);
    for (size_t i = 0; i < n; i++) {
        if (!ad_sync_is_done(syncs[i]) &&
            !ad_device_equal(ad_device_of_runtime(syncs[i]->on.context.device),
                             device)) {
            return fail_other_device(first, syncs[i], err);
        }
        AD_RETURN_IF_ERR(ad_sync_require_no_capture(syncs[i], operation, err));
    }
    if (!ad_sync_can_wait(first)) {
        return fail_no_runtime(first, operation, err);
    }
    AD_RETURN_IF_ERR(ad_context_complete(ad_backend_for(device.type),
                                         first->on.context, &context, err));
    AD_RETURN_IF_ERR(ad_stream_own(context, AD_USE_AFTER, &own, err));
    for (size_t i = 0; i < n; i++) {
        AD_RETURN_IF_ERR(ad_sync_order(syncs[i], &own, operation, err));
    }
    return ad_sync_record(&own, out, err);
}
