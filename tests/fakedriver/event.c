/* Events: positions in the order of a stream. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>

#include "base/list.h"

enum {
    BLOCKING = 1,
    NO_TIMING = 2,
    INTERPROCESS = 4
};

static fd_event *events; /* live ones */
static AD_LIST(uint64_t) destroyed;
static bool has_reused; /* a handle may differ from the engine's */

static fd_event *
by_handle(uintptr_t handle)
{
    void *data = NULL;
    (void)ad_engine_event_data(handle, &data);
    fd_event *e = data;
    if (!has_reused || (e != NULL && e->handle == handle)) {
        return e;
    }
    e = events;
    while (e != NULL && e->handle != handle) {
        e = e->next;
    }
    return e;
}

/* cuStreamGetCtx and others: "Passing an invalid handle will result in
 * undefined behavior", and no probe tells. A driver may answer 400, work on
 * another event, or crash. */
static void
report_destroyed_locked(uintptr_t handle)
{
    for (size_t i = 0; i < destroyed.n; i++) {
        if (destroyed.items[i] == handle) {
            fd_violation("%s used event %#zx, which is destroyed",
                         fd_call_name(), (size_t)handle);
            return;
        }
    }
}

int
fd_event_find_locked(uintptr_t handle, fd_event **out)
{
    *out = by_handle(handle);
    if (*out == NULL) {
        report_destroyed_locked(handle);
        return FD_INVALID_HANDLE;
    }
    return (*out)->context->is_live ? FD_OK : FD_CONTEXT_DESTROYED;
}

static void
link_locked(fd_event *event)
{
    event->handle = event->engine;
    if (fd_reuses_handles() && destroyed.n > 0) {
        has_reused = true;
        event->handle = destroyed.items[--destroyed.n];
    }
    event->next = events;
    if (events != NULL) {
        events->previous = event;
    }
    events = event;
}

static void
unlink_locked(fd_event *event)
{
    if (event->previous != NULL) {
        event->previous->next = event->next;
    } else {
        events = event->next;
    }
    if (event->next != NULL) {
        event->next->previous = event->previous;
    }
    if (ad_list_reserve(&destroyed, 1, NULL) == AD_OK) {
        destroyed.items[destroyed.n++] = event->handle;
    }
}

int
fd_event_create(unsigned flags, uintptr_t *out)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    if ((flags & INTERPROCESS) != 0 && (flags & NO_TIMING) == 0) {
        return FD_INVALID_VALUE; /* "CU_EVENT_DISABLE_TIMING must be set" */
    }
    fd_event *event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    event->context = context;
    event->flags = flags;
    int status = ad_engine_event_create(context->device, context, event,
                                        &event->engine);
    if (status != AD_ENGINE_OK) {
        free(event);
        return fd_code(status);
    }
    fd_lock();
    if ((flags & INTERPROCESS) != 0) {
        code = fd_event_share_locked(event);
    }
    if (code == FD_OK) {
        link_locked(event);
        *out = event->handle;
    } else {
        ad_engine_event_destroy(event->engine);
        free(event);
    }
    fd_unlock();
    return code;
}

int
fd_event_destroy(uintptr_t handle)
{
    fd_event *event;
    fd_lock();
    int code = fd_event_find_locked(handle, &event);
    if (event != NULL) { /* that of a destroyed context, too */
        unlink_locked(event);
        fd_event_unshare_locked(event);
        code = fd_code(ad_engine_event_destroy(event->engine));
        free(event);
    }
    fd_unlock();
    return code;
}

static int
record_locked(fd_stream *stream, fd_event *event)
{
    if (stream->capture != NULL) {
        if (event->link != NULL) {
            fd_violation("event %#zx, which other processes know, is recorded "
                         "into a capture",
                         (size_t)event->handle);
        }
        return fd_capture_record_locked(stream, event);
    }
    int code = fd_stream_barrier_locked(stream);
    if (code == FD_OK) {
        code = fd_event_note_locked(event, stream);
    }
    if (code == FD_OK) {
        code = fd_code(ad_engine_event_record(event->engine, stream->queue));
    }
    if (code == FD_OK) {
        event->capture = NULL;
        event->is_recorded = true;
    }
    return code;
}

int
fd_event_record(uintptr_t handle, uintptr_t stream_handle)
{
    fd_event *event;
    fd_stream *stream;
    int code = fd_stream_lock(stream_handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    code = fd_event_find_locked(handle, &event);
    if (code == FD_OK && event->context != stream->context) {
        code = FD_INVALID_HANDLE;
    }
    code = code == FD_OK ? fd_event_check_locked(event) : code;
    if (code == FD_OK) {
        code = record_locked(stream, event);
    }
    fd_unlock();
    return code;
}

/* Programming guide, "Prohibited and Unhandled Operations": "It is invalid to
 * synchronize or query the execution status of a stream which is being
 * captured or a captured event, because they do not represent items scheduled
 * for execution." "Invalidation": "When an invalid operation is attempted
 * during stream capture, any associated capture graphs are invalidated." The
 * mode of the thread is no matter: cuEventQuery of such an event is the
 * example of what the relaxed mode forbids, too
 * (cuThreadExchangeStreamCaptureMode). */
static int
refuse_captured_locked(const fd_event *event)
{
    if (event->capture == NULL) {
        return FD_OK;
    }
    fd_capture_break_locked(event->capture);
    return FD_CAPTURED_EVENT;
}

/* What is waited for. */
typedef struct awaited {
    uint64_t engine;
    bool is_remote;
    fd_remote remote;
} awaited;

static int
begin_wait(uintptr_t handle, awaited *out)
{
    fd_event *event;
    fd_lock();
    int code = fd_event_find_locked(handle, &event);
    code = code == FD_OK ? fd_event_check_locked(event) : code;
    *out = (awaited){.engine = event != NULL ? event->engine : 0};
    if (code == FD_OK) {
        code = refuse_captured_locked(event);
    }
    if (code == FD_OK) {
        out->is_remote = fd_event_is_elsewhere_locked(event, &out->remote);
    }
    if (code == FD_OK) {
        code = fd_capture_allows_locked();
    }
    fd_unlock();
    return code;
}

/* The event that this thread asks about again and again, and since when. */
static __thread uintptr_t polled;
static __thread int64_t polled_since;
static __thread int64_t polled_last;
#define POLLS_END_MS 1000 /* a later question is another wait */

void
fd_event_end_polls(void)
{
    polled = 0;
}

static int64_t
now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* A thread that asks about one event only is waiting for it. */
static int
poll_again(uintptr_t handle)
{
    const int64_t now = now_ms();
    if (polled != handle || now - polled_last > POLLS_END_MS) {
        polled = handle;
        polled_since = now;
    }
    polled_last = now;
    return fd_patience() >= 0 && now - polled_since > fd_patience()
               ? FD_TIMEOUT
               : FD_NOT_READY;
}

static int
report_timeout(uintptr_t handle, int code)
{
    if (code == FD_TIMEOUT) {
        fd_violation("the host waited too long for event %#zx",
                     (size_t)handle);
    }
    return code;
}

static int
query(const awaited *event)
{
    return event->is_remote ? fd_remote_query(&event->remote)
                            : fd_code(ad_engine_event_query(event->engine));
}

int
fd_event_query(uintptr_t handle)
{
    awaited event;
    int code = begin_wait(handle, &event);
    code = code != FD_OK ? code : query(&event);
    if (code != FD_NOT_READY) {
        polled = 0;
        return code;
    }
    return report_timeout(handle, poll_again(handle));
}

/* cuEventCreate: "A CPU thread that uses cuEventSynchronize() to wait on an
 * event created with this flag [CU_EVENT_BLOCKING_SYNC] will block until the
 * event has actually been recorded." Without the flag it spins. */
static void
note_spin(uintptr_t handle, const awaited *awaited)
{
    fd_event *event;
    fd_lock();
    bool is_blocking = fd_event_find_locked(handle, &event) != FD_OK ||
                       (event->flags & BLOCKING) != 0;
    fd_unlock();
    if (!is_blocking && query(awaited) == FD_NOT_READY) {
        fd_host_spins();
    }
}

int
fd_event_synchronize(uintptr_t handle)
{
    awaited event;
    int code = begin_wait(handle, &event);
    if (code == FD_OK) {
        fd_host_waits("event");
        note_spin(handle, &event);
        code = event.is_remote ? fd_remote_wait(&event.remote, fd_patience())
                               : fd_code(ad_engine_event_synchronize(
                                     event.engine, fd_patience()));
        fd_pools_release();
    }
    return report_timeout(handle, code);
}

int
fd_event_elapsed(uintptr_t start, uintptr_t end, float *out)
{
    const uintptr_t handles[] = {start, end};
    int64_t times[2];
    for (int i = 0; i < 2; i++) {
        fd_event *event;
        fd_lock();
        int code = fd_event_find_locked(handles[i], &event);
        if (code == FD_OK) {
            code = refuse_captured_locked(event);
        }
        if (code == FD_OK &&
            (!event->is_recorded || (event->flags & NO_TIMING) != 0)) {
            code = FD_INVALID_HANDLE;
        }
        const uint64_t engine = event != NULL ? event->engine : 0;
        fd_unlock();
        if (code != FD_OK) {
            return code;
        }
        int status = ad_engine_event_time(engine, &times[i]);
        if (status != AD_ENGINE_OK) {
            return fd_code(status);
        }
    }
    *out = (float)((double)(times[1] - times[0]) / 1e6);
    return FD_OK;
}
