/* Events: positions in the order of a stream. */
#include "driver.h"

#include <stdlib.h>

enum {
    NO_TIMING = 2
};

int
fd_event_find_locked(uintptr_t handle, fd_event **out)
{
    void *data = NULL;
    if (ad_engine_event_data(handle, &data) != AD_ENGINE_OK || data == NULL) {
        return FD_INVALID_HANDLE;
    }
    *out = data;
    return (*out)->context->is_live ? FD_OK : FD_CONTEXT_DESTROYED;
}

int
fd_event_create(unsigned flags, uintptr_t *out)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    fd_event *event = calloc(1, sizeof(*event));
    if (event == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    event->context = context;
    event->flags = flags;
    int status = ad_engine_event_create(context->device, context, event,
                                        &event->handle);
    if (status != AD_ENGINE_OK) {
        free(event);
        return fd_code(status);
    }
    *out = event->handle;
    return FD_OK;
}

int
fd_event_destroy(uintptr_t handle)
{
    void *data = NULL;
    fd_lock();
    int status = ad_engine_event_data(handle, &data);
    if (status == AD_ENGINE_OK) {
        status = ad_engine_event_destroy(handle);
        free(data);
    }
    fd_unlock();
    return fd_code(status);
}

static int
record_locked(fd_stream *stream, fd_event *event)
{
    if (stream->capture != NULL) {
        return fd_capture_record_locked(stream, event);
    }
    int code = fd_stream_barrier_locked(stream);
    if (code == FD_OK) {
        code = fd_code(ad_engine_event_record(event->handle, stream->queue));
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

static int
begin_wait(uintptr_t handle)
{
    fd_event *event;
    fd_lock();
    int code = fd_event_find_locked(handle, &event);
    if (code == FD_OK) {
        code = refuse_captured_locked(event);
    }
    if (code == FD_OK) {
        code = fd_capture_allows_locked();
    }
    fd_unlock();
    return code;
}

int
fd_event_query(uintptr_t handle)
{
    int code = begin_wait(handle);
    return code != FD_OK ? code : fd_code(ad_engine_event_query(handle));
}

int
fd_event_synchronize(uintptr_t handle)
{
    int code = begin_wait(handle);
    if (code == FD_OK) {
        fd_host_waits("event");
        code = fd_code(ad_engine_event_synchronize(handle, fd_patience()));
        fd_pools_release();
    }
    if (code == FD_TIMEOUT) {
        fd_violation("the host waited too long for event %#zx",
                     (size_t)handle);
    }
    return code;
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
        fd_unlock();
        if (code != FD_OK) {
            return code;
        }
        int status = ad_engine_event_time(handles[i], &times[i]);
        if (status != AD_ENGINE_OK) {
            return fd_code(status);
        }
    }
    *out = (float)((double)(times[1] - times[0]) / 1e6);
    return FD_OK;
}
