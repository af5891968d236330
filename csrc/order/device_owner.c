#include "order/device_owner.h"

#include <stdlib.h>

#include "abi/arrow_c.h"
#include "base/process.h"
#include "order/deferred_release.h"
#include "order/streams.h"
#include "device/backend.h"
#include "base/wait.h"

#define N_INLINE_STREAMS 2
#define N_ON_STACK 32

/* The work on a stream that used the memory.
 *
 *     state            what happens                        next
 *     MAY_BE_CAPTURED  recorded; a capture runs            IN_GRAPH
 *     MAY_BE_CAPTURED  recorded; no capture runs           ON_STREAM
 *     IN_GRAPH         recorded again after the capture    ON_STREAM
 *     any              the release can record no event     IN_CONTEXT
 */
typedef enum stream_work {
    ON_STREAM,
    MAY_BE_CAPTURED, /* not asked yet; only before the stream is recorded */
    IN_GRAPH,        /* a capture's only, so far */
    IN_CONTEXT       /* no event can mark its end; only in the release */
} stream_work;

typedef struct recorded_stream {
    /* Immutable after publication, until the release, but for `work`. */
    struct recorded_stream *next;
    ad_stream_ref on; /* owns `keep` */
    _Atomic(stream_work) work;
} recorded_stream;

/* Memory that arrowdev has allocated: the owner that its device owner
 * wraps. */
typedef struct device_memory {
    ad_owner base;
    ad_context context;
    ad_stream_ref on; /* of the allocation; in the end, of the free */
    void *data;       /* NULL: there is nothing to free */
    size_t nbytes;
} device_memory;

typedef struct device_owner {
    ad_owner base;
    ad_owner *inner;
    bool is_behind_inner;  /* in the allocation of `inner`, which frees it */
    device_memory *memory; /* `inner`, if arrowdev allocated it */
    ad_context context;
    ad_stream_ref free_stream; /* may be none; owns `keep` */
    ad_stream_ref producer;    /* may be none; its uses are not recorded */
    unsigned generation;       /* of the process that made it */
    _Atomic(recorded_stream *) streams; /* only grows; there is no lock */
    atomic_uint n_streams;              /* at least their number */
    recorded_stream inline_streams[N_INLINE_STREAMS];
    ad_leaf leaf;
} device_owner;

/* --- release ------------------------------------------------------------- */

static void
drop_streams(device_owner *self)
{
    recorded_stream *next;
    for (recorded_stream *r = atomic_load(&self->streams); r != NULL;
         r = next) {
        next = r->next;
        ad_owner_unref(r->on.keep);
        if (r < self->inline_streams ||
            r >= self->inline_streams + N_INLINE_STREAMS) {
            free(r);
        }
    }
}

/* The free stream with its context. False where there is no free stream, or
 * this thread cannot name it. */
static bool
find_free_stream(const device_owner *self, ad_stream_ref *out)
{
    const struct ad_backend *backend;
    if (!ad_stream_is_given(&self->free_stream) ||
        !ad_stream_is_here(&self->free_stream)) {
        return false;
    }
    *out = self->free_stream;
    out->context = self->context;
    out->has_context = true;
    return self->context.handle != NULL ||
           (ad_backend_open(self->context.device.type, &backend, NULL) ==
                AD_OK &&
            ad_stream_resolve(out, backend, self->context, NULL) == AD_OK);
}

/* Another thread may release the memory, so no per-thread stream counts. */
static bool
is_free_stream(const device_owner *self, const recorded_stream *r)
{
    ad_stream_ref found;
    return ad_stream_is_given(&self->free_stream) &&
           r->on.kind != AD_REF_PER_THREAD &&
           self->free_stream.stream.handle == r->on.stream.handle &&
           (r->on.kind != AD_REF_DEFAULT
                ? ad_stream_equal(&self->free_stream, &r->on)
                : find_free_stream(self, &found) &&
                      ad_stream_equal(&found, &r->on));
}

static bool
is_only_on_free_stream(const device_owner *self)
{
    const recorded_stream *r = atomic_load(&self->streams);
    while (r != NULL && is_free_stream(self, r)) {
        r = r->next;
    }
    return r == NULL;
}

/* A captured stream cannot wait for an event from outside of the capture, and
 * the attempt would invalidate the graph. */
static bool
is_free_stream_captured(const device_owner *self)
{
    ad_stream_ref found;
    return find_free_stream(self, &found) && ad_stream_is_captured(&found);
}

/* The stream on which an event marks the end of the work, in a known context.
 * Another thread's per-thread stream has no name here. The legacy stream waits
 * for it, but nothing promises that for a thread that has ended. */
static bool
find_stream(const ad_stream_ref *used, ad_stream_ref *out)
{
    const struct ad_backend *backend;
    *out = *used;
    if (!ad_stream_is_here(used)) {
        *out = ad_stream_named(
            used->context, ad_stream_legacy(used->context.device), used->keep);
    }
    return (ad_stream_is_here(used) || ad_thread_is_there(used->thread)) &&
           ad_backend_open(used->context.device.type, &backend, NULL) ==
               AD_OK &&
           ad_stream_exists(used) &&
           (used->context.handle != NULL ||
            ad_stream_resolve(out, backend, used->context, NULL) == AD_OK);
}

/* Work on a captured stream runs whenever the graph is launched, and no event
 * marks its end: whoever launches a graph keeps its memory, and where nothing
 * else used it, there is no sync. What ran there before the capture is done
 * before an event that is recorded after it. A free stream in the same capture
 * is ordered by the graph. */
static bool
record_event(const device_owner *self, recorded_stream *r,
             bool is_free_captured, ad_sync **out)
{
    ad_stream_ref on;
    ad_error err = {.status = AD_OK};
    if (!find_stream(&r->on, &on)) {
        r->work = IN_CONTEXT;
        return false;
    }
    bool is_captured = ad_stream_is_captured(&on);
    if (is_captured && !is_free_captured && r->work == IN_GRAPH) {
        *out = NULL;
        return true;
    }
    if ((!is_captured || is_free_captured) &&
        ad_sync_record(&on, out, &err) == AD_OK) {
        (*out)->is_captured = is_captured;
        (*out)->on.keep = is_captured ? ad_owner_ref(on.keep) : NULL;
        return true;
    }
    if (!is_captured && !ad_error_has_reason(&err, "capture")) {
        r->work = IN_CONTEXT;
    } else {
        ad_defer_release_late(ad_owner_ref(self->inner), &on);
    }
    return false;
}

static unsigned int
n_refused(const device_owner *self)
{
    return ad_backend_for(self->context.device.type)->n_refused();
}

/* Record an event on every recorded stream; `syncs` has room for them, or is
 * NULL. Returns false where one could not be recorded: its work is marked
 * IN_CONTEXT, or a late release is deferred for it. Ends early where the
 * runtime permits no call. */
static bool
record_events(const device_owner *self, bool is_free_captured, ad_sync **syncs,
              size_t *n)
{
    const unsigned int n_before = n_refused(self);
    bool all = true;
    *n = 0;
    for (recorded_stream *r = atomic_load(&self->streams); r != NULL;
         r = r->next) {
        if (syncs == NULL) {
            r->work = IN_CONTEXT;
            all = false;
            continue;
        }
        stream_work work = r->work;
        if (record_event(self, r, is_free_captured, &syncs[*n])) {
            *n += 1;
            continue;
        }
        all = false;
        if (n_refused(self) != n_before) {
            r->work = work;
            break;
        }
    }
    return all;
}

/* Defer the release until each context with work IN_CONTEXT has been idle. */
static void
defer_for_contexts(const device_owner *self)
{
    for (recorded_stream *r = atomic_load(&self->streams); r != NULL;
         r = r->next) {
        recorded_stream *earlier = atomic_load(&self->streams);
        while (earlier != r &&
               (earlier->work != IN_CONTEXT ||
                !ad_context_equal(earlier->on.context, r->on.context))) {
            earlier = earlier->next;
        }
        if (earlier == r && r->work == IN_CONTEXT) {
            ad_defer_release(ad_owner_ref(self->inner), r->on.context, NULL,
                             0);
        }
    }
}

/* Whether the memory is arrowdev's own, on a stream of arrowdev's own. */
static bool
is_all_own(const device_owner *self)
{
    return self->memory != NULL && self->free_stream.kind == AD_REF_OWN;
}

/* The objects of the streams before are dropped with their owners. */
static void
set_own_free_stream(device_owner *self, const ad_stream_ref *own)
{
    ad_owner *keep = self->free_stream.keep;
    ad_owner *keep_of_memory = self->memory->on.keep;
    self->free_stream = self->memory->on = *own;
    self->free_stream.keep = keep;
    self->memory->on.keep = keep_of_memory;
}

/* Memory with is_all_own() is freed on a stream for this once others have used
 * it, so that no other work waits for them. Each of them has waited for the
 * work that wrote the memory. */
static void
choose_free_stream(device_owner *self)
{
    ad_stream_ref own;
    if (ad_stream_own(self->context, AD_USE_FREE, &own, NULL) == AD_OK) {
        set_own_free_stream(self, &own);
    }
}

/* Make the free stream wait for all events, so that its later work on the
 * memory follows them. */
static bool
order_free_stream(const device_owner *self, bool is_free_captured,
                  ad_sync *const *syncs, size_t n)
{
    ad_stream_ref found;
    bool is_ordered = find_free_stream(self, &found);
    for (size_t i = 0; i < n && is_ordered; i++) {
        is_ordered =
            ad_sync_is_captured(syncs[i]) == is_free_captured &&
            ad_sync_order(syncs[i], &found, "a release", NULL) == AD_OK;
    }
    return is_ordered;
}

/* A captured event for which the free stream does not wait says nothing.
 * Returns the number of the others, which are in front. */
static size_t
defer_captured(const device_owner *self, ad_sync **syncs, size_t n)
{
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ad_sync_is_captured(syncs[i])) {
            syncs[n_left++] = syncs[i];
            continue;
        }
        ad_defer_release_late(ad_owner_ref(self->inner), &syncs[i]->on);
        ad_sync_unref(syncs[i]);
    }
    return n_left;
}

static bool
are_done(ad_sync *const *syncs, size_t n)
{
    bool is_done = true;
    for (size_t i = 0; i < n && is_done; i++) {
        is_done = ad_sync_query(syncs[i], &is_done, NULL) == AD_OK && is_done;
    }
    return is_done;
}

static void
unref_all(ad_sync *const *syncs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ad_sync_unref(syncs[i]);
    }
}

/* Takes over the references on `inner` and the syncs. */
static void
release_after_events(device_owner *self, bool is_recorded,
                     bool is_free_captured, ad_sync **syncs, size_t n)
{
    bool is_ordered = false;
    if (is_recorded) {
        is_ordered = order_free_stream(self, is_free_captured, syncs, n);
    } else {
        defer_for_contexts(self); /* holds its own references on `inner` */
    }
    if (!is_ordered) {
        n = defer_captured(self, syncs, n);
    }
    if (is_ordered || are_done(syncs, n)) {
        unref_all(syncs, n);
        ad_owner_unref(self->inner);
    } else {
        ad_defer_release(self->inner, self->context, syncs, n);
    }
}

/* Takes over the reference on `inner`. False, and nothing is done, where the
 * runtime permits no call. */
static bool
release_after_streams(device_owner *self)
{
    const unsigned int n_before = n_refused(self);
    ad_sync *few[N_ON_STACK];
    ad_sync **syncs = few;
    size_t n;
    if (is_only_on_free_stream(self)) {
        ad_owner_unref(self->inner);
        return true;
    }
    bool is_own = is_all_own(self);
    if (is_own) {
        choose_free_stream(self);
    }
    bool is_free_captured = !is_own && is_free_stream_captured(self);
    if (self->n_streams > N_ON_STACK) {
        syncs = malloc(self->n_streams * sizeof(syncs[0]));
    }
    bool is_recorded = record_events(self, is_free_captured, syncs, &n);
    bool is_permitted = n_refused(self) == n_before;
    if (is_permitted) {
        release_after_events(self, is_recorded, is_free_captured, syncs, n);
    } else {
        unref_all(syncs, n);
    }
    if (syncs != few) {
        free(syncs);
    }
    return is_permitted;
}

/* Whether another stream has the number of the free stream. */
static bool
is_free_stream_lost(const device_owner *self)
{
    return ad_stream_is_given(&self->free_stream) &&
           !ad_stream_exists(&self->free_stream);
}

/* The order of the other stream says nothing about the work on the memory.
 * Without a stream for frees, memory of arrowdev's own is kept. */
static void
replace_free_stream(device_owner *self)
{
    device_memory *memory = self->memory;
    ad_stream_ref own;
    if (memory == NULL) {
        self->free_stream.kind = AD_REF_NONE;
        return;
    }
    if (ad_stream_own(memory->context, AD_USE_FREE, &own, NULL) != AD_OK) {
        memory->data = NULL;
        return;
    }
    set_own_free_stream(self, &own);
    ad_defer_release(ad_owner_ref(self->inner), memory->context, NULL, 0);
}

/* False, and nothing is done, where the runtime permits no call. */
static bool
release_inner(device_owner *self, bool is_used)
{
    const unsigned int n_before = n_refused(self);
    bool is_lost =
        (is_used || self->memory != NULL) && is_free_stream_lost(self);
    if (!is_used && !is_lost) {
        return true;
    }
    if (n_refused(self) != n_before) {
        return false;
    }
    /* A deferred release may complete now and free `inner` and `self`. */
    ad_owner *inner = ad_owner_ref(self->inner);
    if (is_lost) {
        replace_free_stream(self);
    }
    if (!release_after_streams(self)) {
        ad_owner_unref(inner);
        return false;
    }
    drop_streams(self);
    return true;
}

/* A forked child leaves the memory alone, because the parent releases it. */
static inline void
destroy(ad_owner *base, void (*unref)(ad_owner *))
{
    device_owner *self = (device_owner *)base;
    ad_owner *inner = self->inner;
    ad_owner *keep = self->free_stream.keep;
    bool is_here = self->generation == ad_process_generation();
    bool is_used = is_here && atomic_load(&self->streams) != NULL;
    if (is_here && !release_inner(self, is_used)) {
        ad_release_elsewhere(base, self->context);
        return;
    }
    if (!self->is_behind_inner) {
        free(self);
    }
    if (is_here) {
        unref(inner);
        ad_owner_unref(keep);
    }
}

static void
device_owner_destroy(ad_owner *base)
{
    destroy(base, ad_owner_unref);
}

static void
device_owner_destroy_with_gil(ad_owner *base)
{
    destroy(base, ad_owner_unref_with_gil);
}

static ad_extent
device_owner_extent(const ad_owner *base)
{
    const ad_owner *inner = ((const device_owner *)base)->inner;
    return inner->ops->extent != NULL ? inner->ops->extent(inner)
                                      : (ad_extent){NULL, 0};
}

static const ad_owner_ops device_owner_ops = {
    .destroy = device_owner_destroy,
    .destroy_with_gil = device_owner_destroy_with_gil,
    .extent = device_owner_extent,
    .leaf = offsetof(device_owner, leaf),
    .name = "device owner",
};

/* --- construction -------------------------------------------------------- */

/* By assignment: clearing the streams would take longer than all the rest. */
static inline void
init(device_owner *self, ad_owner *inner, ad_context context,
     const ad_stream_ref *free_stream)
{
    ad_owner_init(&self->base, &device_owner_ops);
    self->inner = inner;
    self->is_behind_inner = false;
    self->memory = NULL;
    self->context = context;
    self->free_stream.kind = AD_REF_NONE;
    self->free_stream.keep = NULL;
    self->producer.kind = AD_REF_NONE;
    self->generation = ad_process_generation();
    atomic_init(&self->streams, NULL);
    atomic_init(&self->n_streams, 0);
    /* On a stream that is out of order a wait does not order later work. */
    if (ad_stream_is_given(free_stream) &&
        (ad_backend_for(context.device.type)->capabilities &
         AD_CAP_IN_ORDER) != 0) {
        self->free_stream = *free_stream;
        (void)ad_owner_ref(free_stream->keep);
    }
}

ad_status
ad_device_owner_new(ad_owner *inner, ad_context context,
                    const ad_stream_ref *free_stream, ad_owner **out,
                    ad_error *err)
{
    if (inner == NULL || !ad_backend_has_events(context.device.type)) {
        *out = inner;
        return AD_OK;
    }
    device_owner *self = malloc(sizeof(*self));
    if (self == NULL) {
        return ad_fail_memory(err, sizeof(*self));
    }
    init(self, inner, context, free_stream);
    if (ad_stream_is_given(&self->free_stream) &&
        ad_backend_in_use(context.device.type) != NULL) {
        ad_stream_identify(&self->free_stream);
    }
    *out = &self->base;
    return AD_OK;
}

ad_status
ad_device_owner_alloc(size_t size, const ad_owner_ops *ops, ad_context context,
                      const ad_stream_ref *free_stream, ad_owner **inner,
                      ad_owner **out, ad_error *err)
{
    const size_t step = _Alignof(device_owner);
    const size_t behind = (size + step - 1) / step * step;
    /* The first condition avoids the look-up for host memory. */
    bool is_wrapped = context.device.type != ARROW_DEVICE_CPU &&
                      ad_backend_has_events(context.device.type);
    size_t nbytes = is_wrapped ? behind + sizeof(device_owner) : size;
    *inner = malloc(nbytes);
    if (*inner == NULL) {
        return ad_fail_memory(err, nbytes);
    }
    ad_owner_init(*inner, ops);
    *out = *inner;
    if (is_wrapped) {
        device_owner *self = (device_owner *)((char *)*inner + behind);
        init(self, *inner, context, free_stream);
        self->is_behind_inner = true;
        *out = &self->base;
    }
    return AD_OK;
}

void
ad_device_owner_set_producer(ad_owner *owner, const ad_stream_ref *producer)
{
    device_owner *self = (device_owner *)owner;
    if (owner == NULL || owner->ops != &device_owner_ops ||
        atomic_load(&owner->refs) != 1 ||
        atomic_load(&self->streams) != NULL) {
        return;
    }
    self->producer = *producer;
    self->producer.keep = NULL;
    ad_stream_recall(&self->producer);
}

/* --- recording streams --------------------------------------------------- */

static bool
is_recorded(const device_owner *self, const recorded_stream *wanted)
{
    for (recorded_stream *r =
             atomic_load_explicit(&self->streams, memory_order_acquire);
         r != NULL; r = r->next) {
        if (ad_stream_equal(&r->on, &wanted->on)) {
            if (r->work == IN_GRAPH && !ad_stream_is_captured(&r->on)) {
                r->work = ON_STREAM;
            }
            return true;
        }
    }
    return false;
}

/* The free stream need not be recorded, because it orders the release. A
 * per-thread stream is recorded, because the release may come on another
 * thread; and one of arrowdev's own, because the release may be ordered on
 * another one (choose_free_stream). */
static bool
is_ordered_by_release(const device_owner *self, const recorded_stream *wanted)
{
    return is_free_stream(self, wanted) && !is_all_own(self) &&
           !is_free_stream_lost(self);
}

static bool
is_producer(const device_owner *self, const recorded_stream *wanted)
{
    return ad_stream_is_given(&self->producer) &&
           ad_stream_equal(&self->producer, &wanted->on) &&
           ad_stream_exists(&self->producer);
}

/* Two threads may both record a stream: a second event at the release. */
static ad_status
add_stream(device_owner *self, const recorded_stream *wanted, ad_error *err)
{
    unsigned index = atomic_fetch_add(&self->n_streams, 1);
    recorded_stream *added = index < N_INLINE_STREAMS
                                 ? &self->inline_streams[index]
                                 : malloc(sizeof(*added));
    if (added == NULL) {
        return ad_fail_memory(err, sizeof(*added));
    }
    *added = *wanted;
    ad_owner_ref(added->on.keep);
    added->next = atomic_load_explicit(&self->streams, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&self->streams, &added->next,
                                                  added, memory_order_release,
                                                  memory_order_relaxed)) {
    }
    return AD_OK;
}

static ad_status
record_stream(device_owner *self, recorded_stream *wanted, ad_error *err)
{
    if (is_recorded(self, wanted) || is_producer(self, wanted) ||
        is_ordered_by_release(self, wanted)) {
        return AD_OK;
    }
    ad_stream_identify(&wanted->on);
    if (wanted->work == MAY_BE_CAPTURED) {
        wanted->work =
            ad_stream_is_captured(&wanted->on) ? IN_GRAPH : ON_STREAM;
    }
    return add_stream(self, wanted, err);
}

/* One stream for all device owners of a tree. */
typedef struct recording {
    recorded_stream *wanted;
    ad_status status;
    ad_error *err;
} recording;

static bool
record_visited(ad_owner *owner, void *data)
{
    recording *self = data;
    if (owner->ops == &device_owner_ops) {
        self->status =
            record_stream((device_owner *)owner, self->wanted, self->err);
    }
    return self->status != AD_OK;
}

static ad_status
record_in(ad_owner *owner, recorded_stream *wanted, ad_error *err)
{
    recording self = {.wanted = wanted, .status = AD_OK, .err = err};
    if (owner->ops == &device_owner_ops) {
        return record_stream((device_owner *)owner, wanted, err);
    }
    AD_RETURN_IF_ERR(ad_owner_walk(owner, record_visited, &self, err));
    return self.status;
}

static bool
find_device_owner(ad_owner *owner, void *data)
{
    *(bool *)data = owner->ops == &device_owner_ops;
    return *(bool *)data;
}

bool
ad_owner_records(ad_owner *owner)
{
    bool is_found = false;
    return ad_owner_walk(owner, find_device_owner, &is_found, NULL) == AD_OK &&
           is_found;
}

static ad_status
record(ad_owner *owner, const ad_stream_ref *on, stream_work work,
       ad_error *err)
{
    recorded_stream wanted = {.on = *on, .work = work};
    /* Without a runtime no event could be recorded at the release. The memory
     * is released when its consumer releases it. */
    if (owner == NULL || ad_backend_in_use(on->context.device.type) == NULL) {
        return AD_OK;
    }
    if (on->kind == AD_REF_PER_THREAD) {
        wanted.on.thread = ad_thread_number();
        (void)ad_thread_watch(); /* else it counts as ended */
    }
    return record_in(owner, &wanted, err);
}

ad_status
ad_owner_record_stream(ad_owner *owner, const ad_stream_ref *on, ad_error *err)
{
    return record(owner, on, ON_STREAM, err);
}

ad_status
ad_owner_record_consumer(ad_owner *owner, const ad_stream_ref *on,
                         ad_error *err)
{
    return record(owner, on, MAY_BE_CAPTURED, err);
}

/* Whether there is a legacy stream on which a consumer of memory on this
 * device may have worked, and which one. */
static bool
find_legacy(ad_device device, recorded_stream *out)
{
    device = ad_device_of_runtime(device);
    const struct ad_backend *backend = ad_backend_in_use(device.type);
    if (backend == NULL ||
        (ad_device_traits(device.type) & AD_DEFAULT_STREAMS) == 0) {
        return false;
    }
    *out = (recorded_stream){.on = ad_stream_legacy_ref(device)};
    if (ad_stream_resolve(&out->on, backend, out->on.context, NULL) != AD_OK) {
        out->on.context.handle = NULL; /* the release tries again */
    }
    return true;
}

static void
record_or_defer(device_owner *self, recorded_stream *wanted)
{
    if (record_stream(self, wanted, NULL) != AD_OK) {
        ad_defer_release(ad_owner_ref(self->inner), wanted->on.context, NULL,
                         0);
    }
}

/* `data` is the sync of the content, or NULL. The stream that frees memory of
 * arrowdev's own (choose_free_stream) waits for the recorded streams only, so
 * that the one that writes the memory is recorded, too, until it is done. */
static bool
record_legacy(ad_owner *owner, void *data)
{
    device_owner *self = (device_owner *)owner;
    recorded_stream wanted;
    if (owner->ops != &device_owner_ops ||
        !find_legacy(self->context.device, &wanted)) {
        return false;
    }
    record_or_defer(self, &wanted);
    if (!ad_sync_is_done(data) && is_all_own(self)) {
        record_or_defer(self, &(recorded_stream){.on = self->free_stream});
    }
    return false;
}

void
ad_owner_record_unnamed(ad_owner *owner, ad_device device, ad_sync *written)
{
    recorded_stream wanted;
    if (ad_owner_walk(owner, record_legacy, written, NULL) != AD_OK &&
        find_legacy(device, &wanted)) {
        ad_defer_release(ad_owner_ref(owner), wanted.on.context, NULL, 0);
    }
}

/* --- memory that arrowdev allocates -------------------------------------- */

bool
ad_device_memory_free(ad_context context, ad_stream stream, void *data,
                      size_t nbytes)
{
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    const unsigned int n_refused = backend->n_refused();
    void *saved = ad_wait_begin();
    backend->deallocate(context, stream, data, nbytes);
    ad_wait_end(saved);
    return backend->n_refused() == n_refused;
}

/* The device owner around this one guarantees that the device is done, or that
 * `stream` waits for pending work. */
static void
memory_destroy(ad_owner *base)
{
    device_memory *self = (device_memory *)base;
    if (self->data != NULL &&
        !ad_backend_is_forked(self->context.device.type)) {
        if (!ad_device_memory_free(self->context, self->on.stream, self->data,
                                   self->nbytes)) {
            ad_release_elsewhere(base, self->context);
            return;
        }
        ad_stream_note_free(&self->on);
    }
    ad_owner_unref(self->on.keep);
    free(self);
}

static ad_extent
memory_extent(const ad_owner *base)
{
    const device_memory *self = (const device_memory *)base;
    return (ad_extent){self->data, self->nbytes};
}

static const ad_owner_ops memory_ops = {
    .destroy = memory_destroy,
    .extent = memory_extent,
    .name = "device memory",
};

static ad_status
allocate(const struct ad_backend *backend, device_memory *self, ad_error *err)
{
    void *saved = ad_wait_begin();
    ad_status status = backend->allocate(self->context, self->on.stream,
                                         self->nbytes, &self->data, err);
    ad_wait_end(saved);
    if (status != AD_OK) {
        self->data = NULL;
    }
    return status;
}

/* Deferred releases, and frees on other streams, hold memory that is no longer
 * reachable. Waiting for them is better than a memory error. */
static bool
wait_for_memory(ad_context context)
{
    bool is_any =
        ad_deferred_is_any() && ad_deferred_wait(context, NULL) == AD_OK;
    return ad_stream_wait_for_frees(context) || is_any;
}

static ad_status
allocate_or_drain(const struct ad_backend *backend, device_memory *self,
                  ad_error *err)
{
    ad_deferred_drain();
    ad_status status = allocate(backend, self, err);
    if (status == AD_ERR_MEMORY && wait_for_memory(self->context)) {
        status = allocate(backend, self, err);
    }
    return status;
}

/* Tell the device owner around `memory` that arrowdev has allocated this
 * memory: the owner may choose another stream for the free. Does nothing
 * where `memory` has no device owner. */
static void
set_memory(ad_owner *owner, device_memory *memory)
{
    device_owner *self = (device_owner *)owner;
    if (owner->ops != &device_owner_ops) {
        return;
    }
    self->memory = memory;
    ad_stream_identify(&self->free_stream);
}

ad_status
ad_device_memory_new(ad_context context, const ad_stream_ref *on,
                     int64_t nbytes, void **out, ad_owner **owner,
                     ad_error *err)
{
    const struct ad_backend *backend;
    ad_owner *inner;
    ad_owner *outer = NULL;
    *out = NULL;
    *owner = NULL;
    if (nbytes < 0) {
        return ad_fail(err, AD_ERR_VALUE, NULL, NULL,
                       "a size of %lld was asked for, expected 0 or more "
                       "bytes",
                       (long long)nbytes);
    }
    AD_RETURN_IF_ERR(ad_backend_open(context.device.type, &backend, err));
    if (nbytes == 0) {
        if (!(ad_device_traits(context.device.type) & AD_ALLOCATIONS)) {
            return AD_OK;
        }
        nbytes = 1;
    }
    bool is_ordered =
        (backend->capabilities & AD_CAP_ORDERED_DEALLOCATE) != 0 &&
        context.device.type == backend->device_types[0];
    AD_RETURN_IF_ERR(ad_device_owner_alloc(sizeof(device_memory), &memory_ops,
                                           context, is_ordered ? on : NULL,
                                           &inner, &outer, err));
    device_memory *self = (device_memory *)inner;
    self->context = context;
    self->on = *on;
    (void)ad_owner_ref(on->keep);
    self->data = NULL;
    self->nbytes = (size_t)nbytes;
    ad_status status = allocate_or_drain(backend, self, err);
    if (status == AD_OK) {
        set_memory(outer, self);
    }
    /* A free in order follows the work on the stream, except on a per-thread
     * stream, which only this thread can name. */
    if (status == AD_OK && (!is_ordered || on->kind == AD_REF_PER_THREAD)) {
        status = ad_owner_record_stream(outer, on, err);
    }
    if (status != AD_OK) {
        ad_owner_unref(outer);
        return status;
    }
    *out = self->data;
    *owner = outer;
    return AD_OK;
}
