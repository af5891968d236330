/* Capture of streams into graphs.
 *
 * A graph is the list of its operations in the order in which they were
 * captured. That order satisfies every dependency that events created, so a
 * launch runs them in sequence on the launch stream. Captures are never freed:
 * events keep pointers to the capture in which they were recorded.
 */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>

struct fd_graph {
    fd_graph *next;
    fd_operation *first;
    fd_operation **end;
    size_t n;
};

struct fd_capture {
    fd_capture *next;
    uint64_t id;
    int mode;
    int status;
    pthread_t thread;
    uint64_t origin; /* the queue that started it */
    fd_graph *graph;
};

static fd_graph *graphs; /* including executable ones */
static fd_capture *captures;
static uint64_t last_id;
static __thread int thread_mode;

/* --- graphs -------------------------------------------------------------------- */

static fd_graph *
new_graph_locked(void)
{
    fd_graph *graph = calloc(1, sizeof(*graph));
    if (graph != NULL) {
        graph->end = &graph->first;
        graph->next = graphs;
        graphs = graph;
    }
    return graph;
}

static int
append(fd_graph *graph, const fd_operation *operation)
{
    fd_operation *copy = malloc(sizeof(*copy));
    if (copy == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    *copy = *operation;
    copy->next = NULL;
    copy->previous = NULL;
    *graph->end = copy;
    graph->end = &copy->next;
    graph->n++;
    return FD_OK;
}

static bool
is_graph_locked(const fd_graph *graph)
{
    const fd_graph *g = graphs;
    while (g != NULL && g != graph) {
        g = g->next;
    }
    return g != NULL;
}

static void
free_graph_locked(fd_graph *graph)
{
    fd_graph **link = &graphs;
    while (*link != graph) {
        link = &(*link)->next;
    }
    *link = graph->next;
    while (graph->first != NULL) {
        fd_operation *o = graph->first;
        graph->first = o->next;
        free(o);
    }
    free(graph);
}

int
fd_graph_create(fd_graph **out)
{
    fd_lock();
    *out = new_graph_locked();
    fd_unlock();
    return *out != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_graph_destroy(fd_graph *graph)
{
    fd_lock();
    bool is_good = is_graph_locked(graph);
    if (is_good) {
        free_graph_locked(graph);
    }
    fd_unlock();
    return is_good ? FD_OK : FD_INVALID_VALUE;
}

int
fd_graph_count(fd_graph *graph, size_t *out)
{
    fd_lock();
    bool is_good = is_graph_locked(graph);
    if (is_good) {
        *out = graph->n;
    }
    fd_unlock();
    return is_good ? FD_OK : FD_INVALID_VALUE;
}

int
fd_graph_instantiate(fd_graph *graph, fd_graph **out)
{
    fd_lock();
    fd_graph *copy = is_graph_locked(graph) ? new_graph_locked() : NULL;
    int code = copy != NULL ? FD_OK : FD_INVALID_VALUE;
    for (const fd_operation *o = code == FD_OK ? graph->first : NULL;
         o != NULL && code == FD_OK; o = o->next) {
        code = append(copy, o);
    }
    if (copy != NULL && code != FD_OK) {
        free_graph_locked(copy);
    }
    fd_unlock();
    *out = copy;
    return code;
}

int
fd_graph_launch(fd_graph *graph, uintptr_t handle)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    if (!is_graph_locked(graph)) {
        code = FD_INVALID_VALUE;
    }
    for (const fd_operation *o = code == FD_OK ? graph->first : NULL;
         o != NULL && code == FD_OK; o = o->next) {
        code = fd_submit_locked(stream, o);
    }
    fd_unlock();
    return code;
}

/* --- captures ------------------------------------------------------------------- */

int
fd_capture_begin(uintptr_t handle, int mode)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    fd_capture *capture = calloc(1, sizeof(*capture));
    if (stream->kind == FD_STREAM_LEGACY) {
        code = FD_CAPTURE_UNSUPPORTED;
    } else if (stream->capture != NULL) {
        code = FD_CAPTURE_UNSUPPORTED;
    } else if (capture == NULL ||
               (capture->graph = new_graph_locked()) == NULL) {
        code = FD_OUT_OF_MEMORY;
    }
    if (code == FD_OK) {
        capture->id = ++last_id;
        capture->mode = mode;
        capture->status = FD_CAPTURE_ACTIVE;
        capture->thread = pthread_self();
        capture->origin = stream->queue;
        capture->next = captures;
        captures = capture;
        stream->capture = capture;
        stream->n_captured = 0;
    } else {
        free(capture);
    }
    fd_unlock();
    return code;
}

/* Whether every other stream of the capture was joined. */
static bool
is_joined_locked(const fd_capture *capture)
{
    for (const fd_stream *s = fd_stream_list_locked(); s != NULL;
         s = s->next) {
        if (s->capture == capture && s->queue != capture->origin &&
            !s->is_joined) {
            return false;
        }
    }
    return true;
}

int
fd_capture_end(uintptr_t handle, fd_graph **out)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    fd_capture *capture = stream->capture;
    if (capture == NULL) {
        code = FD_INVALID_VALUE;
    } else if (capture->origin != stream->queue) {
        code = FD_CAPTURE_UNMATCHED;
    } else if (capture->mode != FD_MODE_RELAXED &&
               !pthread_equal(capture->thread, pthread_self())) {
        code = FD_CAPTURE_WRONG_THREAD;
    } else {
        bool others;
        code = capture->status == FD_CAPTURE_BROKEN ? FD_CAPTURE_INVALIDATED
               : is_joined_locked(capture)          ? FD_OK
                                                    : FD_CAPTURE_UNJOINED;
        fd_stream_leave_capture_locked(capture, &others);
        capture->status = FD_CAPTURE_NONE;
        if (code != FD_OK) {
            free_graph_locked(capture->graph);
        }
        *out = code == FD_OK ? capture->graph : NULL;
    }
    fd_unlock();
    return code;
}

int
fd_capture_info(uintptr_t handle, int *status, uint64_t *id, fd_graph **graph)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    const fd_capture *capture = stream->capture;
    if (stream->kind == FD_STREAM_LEGACY &&
        fd_stream_captured_locked(stream->context) != NULL) {
        code = FD_CAPTURE_IMPLICIT;
    } else {
        *status = capture != NULL ? capture->status : FD_CAPTURE_NONE;
        *id = capture != NULL ? capture->id : 0;
        *graph = capture != NULL ? capture->graph : NULL;
    }
    fd_unlock();
    return code;
}

int
fd_capture_exchange_mode(int *mode)
{
    if (*mode < FD_MODE_GLOBAL || *mode > FD_MODE_RELAXED) {
        return FD_INVALID_VALUE;
    }
    int before = thread_mode;
    fd_event_end_polls();
    thread_mode = *mode;
    *mode = before;
    return FD_OK;
}

void
fd_capture_break_locked(fd_capture *capture)
{
    if (capture->status == FD_CAPTURE_ACTIVE) {
        capture->status = FD_CAPTURE_BROKEN;
    }
}

void
fd_capture_end_all(void)
{
    fd_lock();
    for (fd_capture *c = captures; c != NULL; c = c->next) {
        if (c->status != FD_CAPTURE_NONE) {
            bool others;
            fd_stream_leave_capture_locked(c, &others);
            c->status = FD_CAPTURE_NONE;
            free_graph_locked(c->graph);
        }
    }
    fd_unlock();
}

void
fd_capture_drop_locked(fd_capture *capture, uint64_t queue)
{
    fd_capture_break_locked(capture);
    if (capture->origin == queue) {
        bool others;
        fd_stream_leave_capture_locked(capture, &others);
        capture->status = FD_CAPTURE_NONE;
        free_graph_locked(capture->graph);
    }
}

/* cuThreadExchangeStreamCaptureMode: "If the local thread has an ongoing
 * capture sequence that was not initiated with RELAXED at
 * cuStreamBeginCapture, or if any other thread has a concurrent capture
 * sequence initiated with GLOBAL, this thread is prohibited from potentially
 * unsafe API calls." Programming guide, "Invalidation": an invalid operation
 * invalidates any associated capture graph. Which calls are unsafe is listed
 * nowhere: allocations are named there, streams, pools and modules were seen
 * on drivers by others (NVIDIA/warp #1410, mujoco_warp #425). */
int
fd_capture_allows_locked(void)
{
    if (thread_mode == FD_MODE_RELAXED) {
        return FD_OK;
    }
    for (fd_capture *c = captures; c != NULL; c = c->next) {
        bool is_own = pthread_equal(c->thread, pthread_self());
        bool forbids =
            c->status != FD_CAPTURE_NONE && c->mode != FD_MODE_RELAXED &&
            (is_own ||
             (c->mode == FD_MODE_GLOBAL && thread_mode == FD_MODE_GLOBAL));
        if (forbids) {
            fd_capture_break_locked(c);
            return FD_CAPTURE_UNSUPPORTED;
        }
    }
    return FD_OK;
}

/* Programming guide, "Prohibited and Unhandled Operations": "It is also invalid
 * to query the execution status of or synchronize a broader handle which
 * encompasses an active stream capture, such as a device or context handle
 * when any associated stream is in capture mode." A wait necessarily conflicts
 * with the capture, so that the relaxed mode does not allow it either; seen on
 * drivers of NVIDIA and AMD (TensorRT #2888, ROCm/rocm-systems #4508). */
int
fd_capture_none_in_locked(const fd_context *context)
{
    int code = FD_OK;
    for (const fd_stream *s = fd_stream_list_locked(); s != NULL;
         s = s->next) {
        if (s->context == context && s->capture != NULL) {
            fd_capture_break_locked(s->capture);
            code = FD_CAPTURE_UNSUPPORTED;
        }
    }
    return code;
}

int
fd_capture_allows(void)
{
    fd_lock();
    int code = fd_capture_allows_locked();
    fd_unlock();
    return code;
}

int
fd_capture_add_locked(fd_stream *stream, const fd_operation *operation)
{
    if (stream->capture->status == FD_CAPTURE_BROKEN) {
        return FD_CAPTURE_INVALIDATED;
    }
    stream->n_captured++;
    stream->is_joined = false;
    return append(stream->capture->graph, operation);
}

int
fd_capture_record_locked(fd_stream *stream, fd_event *event)
{
    if (stream->capture->status == FD_CAPTURE_BROKEN) {
        return FD_CAPTURE_INVALIDATED;
    }
    event->capture = stream->capture;
    event->captured_queue = stream->queue;
    event->n_captured = stream->n_captured;
    return FD_OK;
}

static void
mark_joined_locked(const fd_event *event)
{
    ad_engine_queue found;
    if (ad_engine_queue_get(event->captured_queue, &found) == AD_ENGINE_OK &&
        found.data != NULL) {
        fd_stream *other = found.data;
        other->is_joined = other->capture == event->capture &&
                           other->n_captured == event->n_captured;
    }
}

int
fd_capture_wait_locked(fd_stream *stream, fd_event *event)
{
    if (event->capture == NULL) {
        fd_capture_break_locked(stream->capture);
        return FD_CAPTURE_ISOLATION;
    }
    if (event->capture->status == FD_CAPTURE_BROKEN) {
        return FD_CAPTURE_INVALIDATED;
    }
    if (event->capture->status == FD_CAPTURE_NONE) {
        return FD_CAPTURED_EVENT;
    }
    if (stream->kind == FD_STREAM_LEGACY) {
        fd_capture_break_locked(event->capture);
        return FD_CAPTURE_IMPLICIT;
    }
    if (stream->capture != NULL && stream->capture != event->capture) {
        fd_capture_break_locked(stream->capture);
        fd_capture_break_locked(event->capture);
        return FD_CAPTURE_MERGE;
    }
    if (stream->queue != event->captured_queue) {
        mark_joined_locked(event);
        stream->capture = event->capture;
        stream->n_captured++;
        stream->is_joined = false;
    }
    return FD_OK;
}
