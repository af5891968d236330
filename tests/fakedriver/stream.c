/* Streams, and the rules of default streams. */
#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/list.h"
#include "controls.h"

static fd_stream *streams; /* live ones */

/* Handles of streams that users destroyed. */
static AD_LIST(uint64_t) destroyed;
static atomic_size_t n_destroyed;
static bool has_reused; /* a handle may differ from its queue */

__thread int fd_null_is_per_thread;

static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

const fd_stream *
fd_stream_list_locked(void)
{
    return streams;
}

static int
new_locked(fd_context *context, fd_stream_kind kind, fd_stream **out)
{
    fd_stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    stream->context = context;
    stream->kind = kind;
    stream->is_blocking = true;
    int status = ad_engine_queue_create(context->device, context, stream,
                                        &stream->queue);
    if (status != AD_ENGINE_OK) {
        free(stream);
        return fd_code(status);
    }
    ad_engine_queue_set_delay(stream->queue, fd_new_delay());
    stream->handle = stream->queue;
    stream->next = streams;
    streams = stream;
    *out = stream;
    return FD_OK;
}

static void
drop_locked(fd_stream *stream)
{
    fd_stream **link = &streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    if (stream->capture != NULL) {
        fd_capture_drop_locked(stream->capture, stream->queue);
    }
    ad_engine_queue_destroy(stream->queue);
    free(stream);
}

int
fd_stream_new_legacy_locked(fd_context *context)
{
    fd_stream *stream;
    int code = new_locked(context, FD_STREAM_LEGACY, &stream);
    if (code == FD_OK) {
        context->legacy = stream->queue;
    }
    return code;
}

void
fd_stream_drop_all_locked(fd_context *context)
{
    fd_stream *stream = streams;
    while (stream != NULL) {
        fd_stream *next = stream->next;
        if (stream->context == context) {
            drop_locked(stream);
        }
        stream = next;
    }
}

/* --- per-thread default streams ------------------------------------------- */

/* One per thread and context, destroyed with the thread. */
typedef struct own_stream {
    struct own_stream *next;
    fd_context *context;
    uint64_t queue;
} own_stream;

static fd_stream *
by_queue(uint64_t queue)
{
    ad_engine_queue found;
    int status = ad_engine_queue_get(queue, &found);
    return status == AD_ENGINE_OK ? found.data : NULL;
}

static void
end_thread(void *argument)
{
    own_stream *own = argument;
    while (own != NULL) {
        own_stream *next = own->next;
        fd_lock();
        fd_stream *stream = by_queue(own->queue);
        if (stream != NULL) {
            drop_locked(stream);
        }
        fd_unlock();
        free(own);
        own = next;
    }
}

static void
make_thread_key(void)
{
    pthread_key_create(&thread_key, end_thread);
}

static int
per_thread_locked(fd_context *context, fd_stream **out)
{
    pthread_once(&thread_once, make_thread_key);
    own_stream *first = pthread_getspecific(thread_key);
    for (own_stream *own = first; own != NULL; own = own->next) {
        if (own->context == context && (*out = by_queue(own->queue)) != NULL) {
            return FD_OK;
        }
    }
    own_stream *own = malloc(sizeof(*own));
    if (own == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    int code = new_locked(context, FD_STREAM_PER_THREAD, out);
    if (code != FD_OK) {
        free(own);
        return code;
    }
    *own = (own_stream){first, context, (*out)->queue};
    pthread_setspecific(thread_key, own);
    return FD_OK;
}

/* --- look-up ---------------------------------------------------------------- */

static fd_stream *
by_handle(uint64_t handle)
{
    fd_stream *s = by_queue(handle);
    if (!has_reused || (s != NULL && s->handle == handle)) {
        return s;
    }
    s = streams;
    while (s != NULL && s->handle != handle) {
        s = s->next;
    }
    return s;
}

int
fd_stream_find_locked(uintptr_t handle, fd_stream **out)
{
    if (handle > FD_PER_THREAD) {
        *out = by_handle(handle);
        bool is_user = *out != NULL && (*out)->kind == FD_STREAM_USER;
        return is_user ? FD_OK : FD_INVALID_HANDLE;
    }
    fd_context *context = fd_context_peek();
    if (context == NULL) {
        return FD_INVALID_CONTEXT;
    }
    if (!context->is_live) {
        return FD_CONTEXT_DESTROYED;
    }
    if (handle == FD_PER_THREAD ||
        (handle == 0 && fd_null_is_per_thread > 0)) {
        return per_thread_locked(context, out);
    }
    *out = by_queue(context->legacy);
    return FD_OK;
}

int
fd_stream_lock(uintptr_t handle, fd_stream **out)
{
    fd_context_peek(); /* creates the implicit one, which takes the lock */
    fd_lock();
    int code = fd_stream_find_locked(handle, out);
    if (code != FD_OK) {
        fd_unlock();
    }
    return code;
}

int
fd_stream_create(unsigned flags, int priority, uintptr_t *out)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    if (flags > 1) {
        return FD_INVALID_VALUE;
    }
    fd_stream *stream;
    fd_lock();
    code = fd_capture_allows_locked();
    if (code == FD_OK) {
        code = new_locked(context, FD_STREAM_USER, &stream);
    }
    if (code == FD_OK) {
        stream->flags = flags;
        stream->is_blocking = flags == 0;
        stream->priority = priority;
        if (fd_reuses_handles() && destroyed.n > 0) {
            has_reused = true;
            stream->handle = destroyed.items[--destroyed.n];
            atomic_store(&n_destroyed, destroyed.n);
        }
        *out = stream->handle;
    }
    fd_unlock();
    return code;
}

bool
fd_stream_is_destroyed(uintptr_t handle)
{
    bool found = false;
    if (atomic_load(&n_destroyed) == 0) {
        return false; /* benchmarks count the instructions */
    }
    fd_lock();
    for (size_t i = 0; i < destroyed.n; i++) {
        found |= destroyed.items[i] == handle;
    }
    fd_unlock();
    return found;
}

int
fd_stream_destroy(uintptr_t handle)
{
    if (handle <= FD_PER_THREAD) {
        return FD_INVALID_HANDLE;
    }
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        if (ad_list_reserve(&destroyed, 1, NULL) == AD_OK) {
            destroyed.items[destroyed.n++] = handle;
            atomic_store(&n_destroyed, destroyed.n);
        }
        drop_locked(stream);
        fd_unlock();
    }
    return code;
}

/* --- the legacy default stream -------------------------------------------------- */

/* Work of the legacy stream waits for all blocking streams of its context, and
 * theirs for the legacy stream. While one of them is captured the legacy
 * stream may not be used. */
int
fd_stream_barrier_locked(fd_stream *stream)
{
    if (!stream->is_blocking) {
        return FD_OK;
    }
    if (stream->kind != FD_STREAM_LEGACY) {
        return fd_code(ad_engine_queue_wait_queue(stream->queue,
                                                  stream->context->legacy));
    }
    fd_stream *captured = fd_stream_captured_locked(stream->context);
    if (captured != NULL) {
        fd_capture_break_locked(captured->capture);
        return FD_CAPTURE_IMPLICIT;
    }
    int code = FD_OK;
    for (fd_stream *s = streams; s != NULL && code == FD_OK; s = s->next) {
        if (s != stream && s->context == stream->context && s->is_blocking) {
            code =
                fd_code(ad_engine_queue_wait_queue(stream->queue, s->queue));
        }
    }
    return code;
}

/* A captured blocking stream of the context. */
fd_stream *
fd_stream_captured_locked(const fd_context *context)
{
    for (fd_stream *s = streams; s != NULL; s = s->next) {
        if (s->context == context && s->is_blocking && s->capture != NULL) {
            return s;
        }
    }
    return NULL;
}

/* End the capture on all its streams. */
void
fd_stream_leave_capture_locked(const fd_capture *capture, bool *others)
{
    int n = 0;
    for (fd_stream *s = streams; s != NULL; s = s->next) {
        if (s->capture == capture) {
            s->capture = NULL;
            n++;
        }
    }
    *others = n > 1;
}

/* --- queries and waits ------------------------------------------------------------ */

/* The queue that a query or host wait uses, after the barrier. */
static int
begin_wait(uintptr_t handle, uint64_t *queue)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    if (stream->capture != NULL) { /* the guide's sentence is in event.c */
        fd_capture_break_locked(stream->capture);
        code = FD_CAPTURE_UNSUPPORTED;
    } else {
        code = stream->kind == FD_STREAM_LEGACY
                   ? fd_stream_barrier_locked(stream)
                   : FD_OK;
    }
    if (code == FD_OK) {
        code = fd_capture_allows_locked();
    }
    *queue = stream->queue;
    fd_unlock();
    return code;
}

int
fd_stream_query(uintptr_t handle)
{
    uint64_t queue;
    int code = begin_wait(handle, &queue);
    return code != FD_OK ? code : fd_code(ad_engine_queue_query(queue));
}

int
fd_stream_synchronize(uintptr_t handle)
{
    uint64_t queue;
    int code = begin_wait(handle, &queue);
    if (code == FD_OK) {
        fd_host_waits("stream");
        code = fd_code(ad_engine_queue_synchronize(queue, fd_patience()));
        fd_pools_release();
    }
    if (code == FD_TIMEOUT) {
        fd_violation("the host waited too long for stream %#zx",
                     (size_t)handle);
    }
    return code;
}

int
fd_stream_wait_event(uintptr_t handle, uintptr_t event_handle)
{
    fd_stream *stream;
    fd_event *event = NULL;
    fd_remote remote;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    code = fd_event_find_locked(event_handle, &event);
    code = code == FD_OK ? fd_event_check_locked(event) : code;
    if (code == FD_OK && (stream->capture != NULL || event->capture != NULL)) {
        code = fd_capture_wait_locked(stream, event);
    } else if (code == FD_OK && fd_event_is_elsewhere_locked(event, &remote)) {
        code = fd_remote_submit_locked(stream, &remote);
    } else if (code == FD_OK) {
        code = fd_stream_barrier_locked(stream);
        if (code == FD_OK) {
            code = fd_code(ad_engine_queue_wait(stream->queue, event->engine));
        }
    }
    fd_unlock();
    return code;
}

int
fd_stream_context(uintptr_t handle, fd_context **out)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        *out = stream->context;
        fd_unlock();
    }
    return code;
}

int
fd_stream_flags(uintptr_t handle, unsigned *out)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        *out = stream->flags;
        fd_unlock();
    }
    return code;
}

/* The number of a queue is never used again. */
int
fd_stream_id(uintptr_t handle, uint64_t *out)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        *out = stream->queue;
        fd_unlock();
    }
    return code;
}

int
fd_stream_priority(uintptr_t handle, int *out)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        *out = stream->priority;
        fd_unlock();
    }
    return code;
}

size_t
fd_stream_count(void)
{
    size_t n = 0;
    fd_lock();
    for (const fd_stream *s = streams; s != NULL; s = s->next) {
        n += s->kind == FD_STREAM_USER;
    }
    fd_unlock();
    return n;
}

/* --- controls ----------------------------------------------------------------------- */

static int
nothing(void *argument)
{
    return AD_ENGINE_OK;
}

/* A held queue without work would count as ready. */
int
fake_hold(uintptr_t handle)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    int status = ad_engine_queue_hold(stream->queue);
    if (status == AD_ENGINE_OK) {
        status = ad_engine_enqueue(stream->queue, nothing, NULL);
    }
    fd_unlock();
    return fd_code(status);
}

int
fake_release(uintptr_t handle)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        code = fd_code(ad_engine_queue_release(stream->queue));
        fd_unlock();
    }
    return code;
}
