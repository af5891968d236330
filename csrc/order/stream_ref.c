#include "order/stream_ref.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/os.h"
#include "base/thread_local.h"

/* --- threads ------------------------------------------------------------- */

uint64_t
ad_thread_number(void)
{
    static atomic_uint_fast64_t n_threads;
    static AD_THREAD_LOCAL uint64_t mine;
    if (mine == 0) {
        mine = 1 + atomic_fetch_add(&n_threads, 1);
    }
    return mine;
}

/* One for each watched thread. The list only grows, and entries of threads
 * that ended (number 0) are used again, so there is no lock. */
typedef struct watched_thread {
    struct watched_thread *next;
    atomic_uint_fast64_t number;
} watched_thread;

static watched_thread *_Atomic watched_threads;
static ad_thread_key watch_key;
static bool has_watch_key;
static ad_once watch_once = AD_ONCE_INIT;

static void
end_watch(void *watch)
{
    atomic_store(&((watched_thread *)watch)->number, 0);
}

static void
make_watch_key(void)
{
    has_watch_key = ad_thread_key_new(&watch_key, end_watch);
}

static watched_thread *
find_watch(uint64_t number)
{
    watched_thread *watch = atomic_load(&watched_threads);
    while (watch != NULL && atomic_load(&watch->number) != number) {
        watch = watch->next;
    }
    return watch;
}

static watched_thread *
take_watch(uint64_t number)
{
    uint64_t none = 0;
    watched_thread *watch = find_watch(0);
    if (watch == NULL ||
        !atomic_compare_exchange_strong(&watch->number, &none, number)) {
        watch = malloc(sizeof(*watch));
        if (watch == NULL) {
            return NULL;
        }
        atomic_init(&watch->number, number);
        watch->next = atomic_load(&watched_threads);
        while (!atomic_compare_exchange_weak(&watched_threads, &watch->next,
                                             watch)) {
        }
    }
    return watch;
}

bool
ad_thread_watch(void)
{
    static AD_THREAD_LOCAL bool is_watched;
    ad_once_call(&watch_once, make_watch_key);
    if (!is_watched && has_watch_key) {
        watched_thread *watch = take_watch(ad_thread_number());
        is_watched = watch != NULL && ad_thread_key_set(watch_key, watch);
        if (watch != NULL && !is_watched) {
            end_watch(watch);
        }
    }
    return is_watched;
}

bool
ad_thread_is_there(uint64_t number)
{
    return find_watch(number) != NULL;
}

/* --- identity ------------------------------------------------------------ */

ad_status
ad_stream_resolve(ad_stream_ref *self, const struct ad_backend *backend,
                  ad_context expected, ad_error *err)
{
    if (self->kind == AD_REF_PER_THREAD) {
        self->thread = ad_thread_number();
    }
    AD_RETURN_IF_ERR(
        backend->stream_context(self->stream, expected, &self->context, err));
    self->has_context = true;
    return AD_OK;
}

void
ad_stream_identify(ad_stream_ref *self)
{
    if (self->kind == AD_REF_GIVEN && !self->has_id) {
        self->has_id = ad_backend_for(self->context.device.type)
                           ->stream_id(self->context, self->stream, &self->id);
    }
}

/* The id that was seen last under a handle. Where two stores mix, the id is
 * that of a stream with another handle, which is the same as none. */
#define SEEN_BITS 6
typedef struct seen_stream {
    atomic_uintptr_t handle;
    _Atomic(uint64_t) id;
} seen_stream;
static seen_stream seen[1 << SEEN_BITS];

static seen_stream *
seen_at(ad_stream stream)
{
    uint64_t hash = (uint64_t)stream.handle * UINT64_C(0x9E3779B97F4A7C15);
    return &seen[hash >> (64 - SEEN_BITS)];
}

static void
see(ad_stream stream, uint64_t id)
{
    seen_stream *at = seen_at(stream);
    atomic_store(&at->handle, stream.handle);
    atomic_store(&at->id, id);
}

void
ad_stream_recall(ad_stream_ref *self)
{
    const seen_stream *at = seen_at(self->stream);
    if (self->kind == AD_REF_GIVEN &&
        atomic_load(&at->handle) == self->stream.handle) {
        self->id = atomic_load(&at->id);
        self->has_id = true;
        return;
    }
    ad_stream_identify(self);
    if (self->has_id) {
        see(self->stream, self->id);
    }
}

bool
ad_stream_exists(const ad_stream_ref *self)
{
    uint64_t id;
    if (!self->has_id) {
        return true;
    }
    if (!ad_backend_for(self->context.device.type)
             ->stream_id(self->context, self->stream, &id)) {
        return false;
    }
    if (id != self->id) {
        see(self->stream, id);
    }
    return id == self->id;
}

/* --- capture ------------------------------------------------------------- */

ad_status
ad_stream_require_no_capture(const ad_stream_ref *self, const char *operation,
                             ad_error *err)
{
    if (!ad_stream_is_captured(self)) {
        return AD_OK;
    }
    return ad_fail_on(
        err, self->context.device, "capture",
        "do it before the capture begins, or on a stream that is not "
        "captured (stream=...)",
        "the stream is being captured into a graph, and %s allocates, "
        "waits or records an event, which a graph cannot do again",
        operation);
}
