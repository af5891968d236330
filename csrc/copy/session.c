#include "copy/session.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "copy/copy.h"
#include "order/device_owner.h"
#include "base/owner.h"
#include "order/deferred_release.h"

bool
ad_is_host_memory(ad_device device)
{
    uint32_t wanted = AD_HOST_READS | AD_NO_STREAMS;
    return (ad_device_traits(device.type) & wanted) == wanted;
}

/* Nodes without rows are left out: nothing reads their buffers, so their
 * addresses may be invalid. */
const void *
ad_node_some_buffer(const struct ArrowArray *node)
{
    const void *found = NULL;
    int64_t n_buffers = node->length == 0 ? 0 : node->n_buffers;
    for (int64_t i = 0; i < n_buffers && found == NULL; i++) {
        found = node->buffers[i];
    }
    for (int64_t i = 0; i < node->n_children && found == NULL; i++) {
        found = ad_node_some_buffer(node->children[i]);
    }
    return found == NULL && node->dictionary != NULL
               ? ad_node_some_buffer(node->dictionary)
               : found;
}

static bool
is_cpu(ad_device device)
{
    return ad_device_equal(device, AD_CPU);
}

static ad_context
host_context(void)
{
    return (ad_context){.device = AD_CPU};
}

bool
ad_session_is_via_host(ad_device source, ad_device target)
{
    return !ad_is_host_memory(source) && !is_cpu(target) &&
           ad_backend_for(source.type) != ad_backend_for(target.type);
}

/* --- staging buffers ----------------------------------------------------- */

/* A copy from the host reads a staging buffer and not the memory of the user,
 * which may change. Many small copies to the host write a staging buffer
 * together, as do copies ahead of their consumer; the host reads it when they
 * are done. Where the runtime would wait for the stream in order to stage
 * pageable memory itself (AD_CAP_STAGES), large buffers are pinned; the
 * backend keeps their memory for the next copies. The newest buffer owns those
 * before it. They are released after the copies. */
typedef struct ad_staging_buffer {
    ad_owner base;
    struct ad_staging_buffer *next;
    void *data;
    size_t nbytes;
    ad_context context; /* of pinned memory; AD_CPU: malloc */
} staging_buffer;

/* The most bytes of pinned staging buffers at one time. */
#define STAGING_MAX ((size_t)256 << 20)

static atomic_size_t n_pinned; /* bytes in use */

/* The type of the runtime's pinned memory, or 0. */
static int32_t
pinned_type(const struct ad_backend *backend)
{
    const uint32_t wanted = AD_HOST_READS | AD_NO_STREAMS;
    const int32_t *type = backend->device_types;
    while (*type != 0 && (ad_device_traits(*type) & wanted) != wanted) {
        type++;
    }
    return *type;
}

static bool
allocate_pinned(staging_buffer *self, ad_context context)
{
    const struct ad_backend *backend = ad_backend_for(context.device.type);
    self->context = context;
    self->context.device.type = pinned_type(backend);
    if ((backend->capabilities & AD_CAP_STAGES) == 0 ||
        self->context.device.type == 0 || self->nbytes > STAGING_MAX) {
        return false;
    }
    size_t before = atomic_fetch_add(&n_pinned, self->nbytes);
    bool is_there = false;
    if (before <= STAGING_MAX - self->nbytes) {
        void *saved = ad_wait_begin();
        is_there = backend->allocate(self->context, (ad_stream){0},
                                     self->nbytes, &self->data, NULL) == AD_OK;
        ad_wait_end(saved);
    }
    if (!is_there) {
        atomic_fetch_sub(&n_pinned, self->nbytes);
    }
    return is_there;
}

/* False where the runtime permits no call on this thread. */
static bool
free_pinned(const staging_buffer *self)
{
    if (!ad_backend_is_forked(self->context.device.type) &&
        !ad_device_memory_free(self->context, (ad_stream){0}, self->data,
                               self->nbytes)) {
        return false;
    }
    atomic_fetch_sub(&n_pinned, self->nbytes);
    return true;
}

static void
staging_destroy(ad_owner *base)
{
    for (staging_buffer *self = (staging_buffer *)base; self != NULL;) {
        staging_buffer *next = self->next;
        if (ad_device_equal(self->context.device, AD_CPU)) {
            free(self->data);
        } else if (!free_pinned(self)) {
            ad_release_elsewhere(&self->base, self->context);
            return;
        }
        free(self);
        self = next;
    }
}

static const ad_owner_ops staging_ops = {.destroy = staging_destroy,
                                         .name = "staging buffer"};

/* NULL where there is no memory. */
static staging_buffer *
add_staging(staging_buffer **newest, ad_context context, size_t nbytes,
            bool may_be_pinned, bool may_be_pageable)
{
    staging_buffer *self = malloc(sizeof(*self));
    if (self == NULL) {
        return NULL;
    }
    *self = (staging_buffer){.next = *newest, .nbytes = nbytes};
    if (!may_be_pinned || !allocate_pinned(self, context)) {
        self->context = (ad_context){.device = AD_CPU};
        self->data = may_be_pageable ? malloc(nbytes) : NULL;
    }
    if (self->data == NULL) {
        free(self);
        return NULL;
    }
    ad_owner_init(&self->base, &staging_ops);
    *newest = self;
    return self;
}

/* The memory of a new pinned buffer, or NULL where there is none. */
static void *
staging_pinned(staging_buffer **newest, ad_context context, size_t nbytes)
{
    staging_buffer *added = add_staging(newest, context, nbytes, true, false);
    return added != NULL ? added->data : NULL;
}

static void
read_rows(const staging_buffer *self, ad_block_copy *copy)
{
    const char *source = (const char *)copy->source.data + copy->source.offset;
    for (size_t i = 0; i < copy->height; i++) {
        memcpy((char *)self->data + i * copy->width,
               source + i * copy->source_pitch, copy->width);
    }
    copy->source.data = self->data;
    copy->source.offset = 0;
    copy->source_pitch = copy->width;
}

/* Copies the bytes that `copy`, in `context`, reads from host memory to a new
 * buffer, and changes *copy to read them there. With `is_optional` only a
 * pinned buffer serves, and without one *copy stays as it is. */
static ad_status
copy_to_staging(staging_buffer **newest, ad_context context,
                ad_block_copy *copy, bool is_optional, ad_error *err)
{
    const size_t nbytes = copy->width * copy->height;
    const staging_buffer *added = add_staging(
        newest, context, nbytes, nbytes > AD_STAGED_AT_ONCE, !is_optional);
    if (added == NULL) {
        return is_optional ? AD_OK : ad_fail_memory(err, nbytes);
    }
    read_rows(added, copy);
    return AD_OK;
}

/* --- contexts ------------------------------------------------------------ */

/* The context of the source's memory as its runtime reports it. It may have
 * another handle than the context for new work. */
static ad_status
source_context(const struct ad_backend *backend,
               const ad_session_request *request, ad_context *out,
               ad_error *err)
{
    ad_memory_info info;
    char name[AD_DEVICE_NAME_SIZE];
    ad_context hint = {.device = request->source};
    if (request->sync != NULL &&
        ad_device_equal(request->sync->on.context.device, hint.device)) {
        hint.handle = request->sync->on.context.handle;
    }
    if (request->data == NULL && hint.handle != NULL) {
        *out = hint;
        return AD_OK;
    }
    if (request->data == NULL) {
        return backend->primary_context(request->source, out, err);
    }
    AD_RETURN_IF_ERR(backend->classify(request->data, hint, &info, err));
    if (info.kind != AD_MEMORY_UNREGISTERED || info.host_accessible) {
        *out = info.context;
        return AD_OK;
    }
    return ad_fail_on(
        err, request->source, "device",
        "check that the memory was not freed, and that it was allocated "
        "by the runtime of this device, in its default context",
        "the producer declares the memory to be on %s, but the runtime of "
        "that device does not know it",
        ad_device_format(request->source, name));
}

static ad_status
find_contexts(ad_session *self, const ad_session_request *request,
              ad_context *expected, ad_error *err)
{
    if (!ad_is_host_memory(request->source)) {
        AD_RETURN_IF_ERR(
            source_context(self->backend, request, &self->source, err));
    }
    if (is_cpu(request->target) ||
        (ad_device_equal(request->source, request->target) &&
         !ad_is_host_memory(request->source))) {
        *expected = self->source;
        return AD_OK;
    }
    return self->backend->primary_context(request->target, expected, err);
}

/* --- streams ------------------------------------------------------------- */

/* A read by the host waits for the data before it is enqueued where copies to
 * the host block anyway (order_after). */
static ad_stream_use
use_of(const ad_session *self, const ad_session_request *request)
{
    bool is_pending =
        !ad_sync_is_done(request->sync) || request->others_pending;
    bool host_waits_first =
        self->to_host && (self->backend->capabilities & AD_CAP_STAGES) != 0;
    if (is_pending && !host_waits_first) {
        return AD_USE_AFTER;
    }
    return ad_host_accessible(request->target)   ? AD_USE_READ
           : ad_host_accessible(request->source) ? AD_USE_UPLOAD
                                                 : AD_USE_WORK;
}

static ad_status
choose_stream(ad_session *self, const ad_session_request *request,
              ad_context expected, ad_error *err)
{
    ad_stream_ref current;
    self->use = use_of(self, request);
    self->is_own_stream = !ad_stream_is_given(request->stream) &&
                          !ad_stream_current(expected.device, &current);
    AD_RETURN_IF_ERR(ad_stream_choose(expected, request->stream, self->use,
                                      &self->on, err));
    /* arrowdev's own stream is never captured, see ad_stream_own(). */
    if (!self->is_own_stream) {
        AD_RETURN_IF_ERR(
            ad_stream_require_no_capture(&self->on, request->operation, err));
    }
    return ad_sync_require_no_capture(request->sync, request->operation, err);
}

/* True if the stream's context cannot access the source. */
static bool
is_foreign_context(const ad_session *self)
{
    return (ad_device_traits(self->source.device.type) & AD_CONTEXTS) != 0 &&
           self->source.handle != self->on.context.handle;
}

/* The current stream of the thread, or of the target, cannot access the
 * source. Takes arrowdev's own stream in the context of the source, if the
 * work can run there. */
static ad_status
cross_contexts(ad_session *self, const ad_session_request *request,
               bool *is_open, ad_error *err)
{
    bool is_given = ad_stream_is_given(request->stream);
    bool stays = is_cpu(request->target) ||
                 ad_device_equal(request->source, request->target);
    if (is_open != NULL && (is_given ? !is_cpu(request->target) : !stays)) {
        *is_open = false;
        return AD_OK;
    }
    if (!is_given && stays) {
        self->is_own_stream = true;
        return ad_stream_own(self->source, self->use, &self->on, err);
    }
    return ad_fail_on(
        err, request->source, "stream",
        "pass a stream of the context that the memory was allocated in, "
        "or none",
        "the stream belongs to another context than the memory, which %s "
        "cannot access from there",
        request->operation);
}

static bool
is_on_stream_for_reads(const ad_session *self)
{
    return self->is_own_stream && self->use == AD_USE_READ;
}

static ad_status
order_after(const ad_session *self, ad_sync *sync, const char *operation,
            ad_error *err)
{
    /* No stream waits for an event of another runtime, whose pinned memory
     * this one may copy. The stream for reads waits for no event of others. */
    if (sync != NULL &&
        (ad_backend_for(sync->on.context.device.type) != self->backend ||
         is_on_stream_for_reads(self))) {
        return ad_sync_wait(sync, operation, err);
    }
    return ad_sync_order(sync, &self->on, operation, err);
}

/* Opens the runtime that does the work. Without one, the error names the
 * work. */
static ad_status
open_backend(const ad_session_request *request, const struct ad_backend **out,
             ad_error *err)
{
    ad_device working =
        is_cpu(request->target) ? request->source : request->target;
    ad_status status = ad_backend_open(working.type, out, err);
    if (status != AD_OK) {
        char from[AD_DEVICE_NAME_SIZE];
        char to[AD_DEVICE_NAME_SIZE];
        bool stays = ad_device_equal(request->source, request->target);
        ad_error_prefix(err,
                        stays ? "memory on %s needs its runtime for %s: "
                              : "memory on %s cannot be copied to %s: ",
                        ad_device_format(request->source, from),
                        stays ? request->operation
                              : ad_device_format(request->target, to));
        if (stays && ad_host_accessible(working)) {
            ad_error_hint(err, "host-accessible memory needs no runtime as "
                               "CPU memory: use .to(\"cpu\")");
        }
        ad_error_device(err, request->source);
    }
    return status;
}

/* Without `is_open` the caller cannot copy through the host. */
static ad_status
open_session(const ad_session_request *request, bool *is_open, ad_session *out,
             ad_error *err)
{
    ad_context expected;
    *out = (ad_session){
        .source = host_context(),
        .target = host_context(),
        .memory = host_context(),
        .to_host =
            ad_host_accessible(request->target) && !request->non_blocking,
    };
    if (is_cpu(request->source) && request->is_borrowed && !out->to_host) {
        out->reading = AD_READS_BORROWED;
    }
    /* A non-blocking session does not query its stream. It treats the stream
     * as busy, so pageable memory is staged. */
    out->activity = request->non_blocking ? AD_STREAM_BUSY : AD_STREAM_UNKNOWN;
    if (ad_host_accessible(request->source) && is_cpu(request->target)) {
        return ad_sync_wait(request->sync, request->operation, err);
    }
    AD_RETURN_IF_ERR(open_backend(request, &out->backend, err));
    if (out->reading == AD_READS_FREELY && is_cpu(request->source) &&
        (out->backend->capabilities & AD_CAP_STAGES) != 0) {
        out->reading = AD_READS_PAGEABLE;
    }
    AD_RETURN_IF_ERR(find_contexts(out, request, &expected, err));
    AD_RETURN_IF_ERR(choose_stream(out, request, expected, err));
    if (is_foreign_context(out)) {
        AD_RETURN_IF_ERR(cross_contexts(out, request, is_open, err));
        if (is_open != NULL && !*is_open) {
            return AD_OK;
        }
    }
    if (!ad_is_host_memory(request->target)) {
        out->target = out->on.context;
    }
    if (!is_cpu(request->target)) {
        out->memory.device = request->target;
        out->memory.handle = out->on.context.handle;
    }
    if (out->reading == AD_READS_BORROWED ||
        (ad_is_host_memory(request->source) &&
         ad_is_host_memory(request->target))) {
        /* The host copies, or may have to. */
        return ad_sync_wait(request->sync, request->operation, err);
    }
    return order_after(out, request->sync, request->operation, err);
}

ad_status
ad_session_open(const ad_session_request *request, ad_session *out,
                ad_error *err)
{
    return open_session(request, NULL, out, err);
}

ad_status
ad_session_try_open(const ad_session_request *request, bool *is_open,
                    ad_session *out, ad_error *err)
{
    *is_open = true;
    return open_session(request, is_open, out, err);
}

static ad_status
fail_context(const ad_session_request *memory, ad_error *err)
{
    return ad_fail_on(
        err, memory->source, "stream",
        "copy one of them to the other's context in the producing "
        "library",
        "two buffers of one device belong to different contexts, but %s "
        "needs both in one",
        memory->operation);
}

ad_status
ad_session_use(ad_session *self, const ad_session_request *memory,
               ad_owner *owner, ad_error *err)
{
    ad_context context;
    if (self->backend == NULL) {
        return ad_sync_wait(memory->sync, memory->operation, err);
    }
    if (memory->data != NULL &&
        (ad_device_traits(memory->source.type) & AD_CONTEXTS) != 0) {
        AD_RETURN_IF_ERR(source_context(self->backend, memory, &context, err));
        if (context.handle != self->on.context.handle) {
            return fail_context(memory, err);
        }
    }
    AD_RETURN_IF_ERR(
        ad_sync_require_no_capture(memory->sync, memory->operation, err));
    AD_RETURN_IF_ERR(order_after(self, memory->sync, memory->operation, err));
    return ad_owner_record_stream(owner, &self->on, err);
}

/* --- operations ---------------------------------------------------------- */

/* Queries once whether the stream is idle. If it is, a copy on it runs at once. */
static ad_status
query_stream(ad_session *self, ad_error *err)
{
    ad_sync *sync;
    bool is_idle;
    if (self->activity != AD_STREAM_UNKNOWN) {
        return AD_OK;
    }
    /* An idle stream of the user's may still wait for the legacy stream, and
     * only an event shows that. */
    if (self->is_own_stream &&
        self->backend->stream_is_idle(self->on.context, self->on.stream)) {
        self->activity = AD_STREAM_IDLE;
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_sync_record(&self->on, &sync, err));
    ad_status status = ad_sync_query_soon(sync, &is_idle, err);
    ad_sync_unref(sync);
    if (status == AD_OK) {
        self->activity = is_idle ? AD_STREAM_IDLE : AD_STREAM_BUSY;
    }
    return status;
}

ad_status
ad_session_allocate(ad_session *self, int64_t nbytes, void **data,
                    ad_owner **owner, ad_error *err)
{
    /* The allocation is work on the stream, too. */
    if (self->reading == AD_READS_BORROWED) {
        AD_RETURN_IF_ERR(query_stream(self, err));
    }
    if (!is_cpu(self->memory.device)) {
        return ad_device_memory_new(self->memory, &self->on, nbytes, data,
                                    owner, err);
    }
    ad_host_block *memory;
    AD_RETURN_IF_ERR(ad_host_block_new(nbytes, &memory, err));
    *data = memory->data;
    *owner = &memory->base;
    return AD_OK;
}

static void
copy_rows_on_host(const ad_block_copy *copy)
{
    char *target = (char *)copy->target.data + copy->target.offset;
    const char *source = (const char *)copy->source.data + copy->source.offset;
    for (size_t i = 0; i < copy->height; i++) {
        memcpy(target + i * copy->target_pitch,
               source + i * copy->source_pitch, copy->width);
    }
}

static void
drop_last_event(ad_session *self)
{
    if (self->last.handle != NULL) {
        self->backend->event_destroy(self->on.context, self->last);
        self->last = (ad_event){NULL};
    }
}

static void
begin(ad_session *self)
{
    if (self->progress == AD_SESSION_OPEN) {
        self->progress = AD_SESSION_BEGUN;
    }
}

static ad_status
enqueue(ad_session *self, const ad_block_copy *copy, ad_error *err)
{
    const struct ad_backend *backend = self->backend;
    drop_last_event(self);
    return (backend->capabilities & AD_CAP_WORK_HAS_EVENT) != 0
               ? backend->copy_with_event(self->on.context, self->on.stream,
                                          copy, self->to_host, &self->last,
                                          err)
               : backend->copy(self->on.context, self->on.stream, copy, err);
}

/* A copy may block where the runtime stages memory. It also may where the
 * host's processors do the copy, since blocking is quicker there than a
 * waiting thread. */
static bool
may_block_in_copy(const ad_session *self)
{
    return (self->backend->capabilities & AD_CAP_STAGES) != 0 ||
           (self->progress == AD_SESSION_OPEN &&
            ad_backend_wait_helps(self->backend, self->on.context.device.id));
}

/* A blocking copy cannot be interrupted, so the host first waits for the
 * stream in an interruptible way. */
static ad_status
wait_before_copy(ad_session *self, ad_error *err)
{
    ad_sync *sync;
    /* On the stream for reads there is nothing but other reads. */
    if (self->progress == AD_SESSION_WAITED || !self->to_host ||
        is_on_stream_for_reads(self) || !may_block_in_copy(self)) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_sync_record(&self->on, &sync, err));
    ad_status status = ad_sync_wait(sync, "a copy to the host", err);
    ad_sync_unref(sync);
    if (status == AD_OK) {
        self->progress = AD_SESSION_WAITED;
    }
    return status;
}

/* --- staging ------------------------------------------------------------- */

/* Borrowed memory is not read after the return, and its user does not wait for
 * other work on the stream. So the bytes are staged unless the stream is idle.
 * Other memory is staged where a non-blocking copy of it might block. */
static ad_status
stage(ad_session *self, ad_block_copy *copy, ad_error *err)
{
    if (self->reading == AD_READS_BORROWED) {
        AD_RETURN_IF_ERR(query_stream(self, err));
    }
    return self->reading != AD_READS_FREELY && self->activity == AD_STREAM_BUSY
               ? copy_to_staging(&self->staging, self->on.context, copy,
                                 self->reading == AD_READS_PAGEABLE, err)
               : AD_OK;
}

/* --- copies -------------------------------------------------------------- */

ad_status
ad_session_copy(ad_session *self, const ad_block_copy *asked, ad_error *err)
{
    ad_block_copy own = *asked;
    ad_block_copy *copy = &own;
    if (copy->width == 0 || copy->height == 0) {
        return AD_OK;
    }
    bool from_host = is_cpu(copy->source.context.device);
    bool to_host = is_cpu(copy->target.context.device);
    if (from_host && to_host) {
        copy_rows_on_host(copy);
        return AD_OK;
    }
    if (from_host) {
        AD_RETURN_IF_ERR(stage(self, copy, err));
    }
    if (to_host) {
        AD_RETURN_IF_ERR(wait_before_copy(self, err));
    }
    begin(self);
    if (!from_host && !to_host) {
        return enqueue(self, copy, err);
    }
    /* Pageable memory is staged, and the call may block until all earlier work
     * on the stream is done. */
    void *saved = ad_wait_begin();
    ad_status status = enqueue(self, copy, err);
    ad_wait_end(saved);
    return status;
}

/* On a processor each work item is a task of the runtime. A task has to be
 * worth its overhead, and MOST_TASKS are enough for any number of threads. */
#define TASK_BYTES 16384
#define MOST_TASKS 256

static int64_t
tasks_for(ad_launch launch)
{
    launch.n_items = 0; /* the results of the items are few bytes */
    size_t nbytes =
        ad_launch_source_size(&launch) + ad_launch_target_size(&launch);
    int64_t n = (int64_t)(nbytes / TASK_BYTES) + 1;
    return n < MOST_TASKS ? n : MOST_TASKS;
}

int64_t
ad_session_items(const ad_session *self, const ad_launch *launch)
{
    if (self->backend == NULL) {
        return 1;
    }
    return self->backend->runs_on_host(self->on.context.device.id)
               ? tasks_for(*launch)
               : ad_kernel_n_items(launch);
}

static ad_status
launch_on_device(ad_session *self, const ad_launch *launch, ad_error *err)
{
    const struct ad_backend *backend = self->backend;
    begin(self);
    drop_last_event(self);
    /* The first launch may build the kernels. */
    void *saved = ad_wait_begin();
    ad_status status =
        (backend->capabilities & AD_CAP_WORK_HAS_EVENT) != 0
            ? backend->launch_with_event(self->on.context, self->on.stream,
                                         launch, &self->last, err)
            : backend->launch(self->on.context, self->on.stream, launch, err);
    ad_wait_end(saved);
    return status;
}

ad_status
ad_session_kernel(ad_session *self, const void *source, void *target,
                  ad_launch launch, ad_error *err)
{
    if (launch.length == 0) {
        return AD_OK;
    }
    launch.source =
        ad_span_at(self->source, source, (int64_t)launch.source.offset);
    if (launch.values.data != NULL) {
        launch.values.context = self->source;
    }
    launch.target =
        ad_span_at(self->target, target, (int64_t)launch.target.offset);
    if (launch.n_items == 0) {
        launch.n_items = ad_session_items(self, &launch);
    }
    if (self->backend == NULL) {
        ad_kernel_run_on_host(&launch);
        return AD_OK;
    }
    return launch_on_device(self, &launch, err);
}

/* --- end of a session ---------------------------------------------------- */

/* Keeps `owner` alive until all work is done. All work is on one stream;
 * without a sync for it, the context has to become idle. */
static void
defer_release(const ad_session *self, ad_owner *owner, ad_sync *sync)
{
    if (owner != NULL) {
        ad_sync *const syncs[] = {ad_sync_ref(sync)};
        ad_defer_release(ad_owner_ref(owner), self->on.context, syncs,
                         sync != NULL);
    }
}

/* Defers the release of host memory. Pageable memory is staged, so that the
 * runtime has often read it already. A failed query is ignored. */
static void
keep_until_read(const ad_session *self, ad_owner *host, ad_sync *sync)
{
    bool is_done = false;
    if (host != NULL &&
        (ad_sync_query(sync, &is_done, NULL) != AD_OK || !is_done)) {
        defer_release(self, host, sync);
    }
}

static ad_owner *
staging_owner(const ad_session *self)
{
    return self->staging != NULL ? &self->staging->base : NULL;
}

ad_owner *
ad_session_take_staging(ad_session *self)
{
    ad_owner *owner = staging_owner(self);
    self->staging = NULL;
    return owner;
}

void *
ad_session_pinned(ad_session *self, int64_t nbytes)
{
    return self->backend != NULL && is_cpu(self->memory.device)
               ? staging_pinned(&self->staging, self->on.context,
                                (size_t)nbytes)
               : NULL;
}

/* The host waits until the borrowed memory itself is read. */
static bool
is_awaited(const ad_session *self)
{
    return self->reading == AD_READS_BORROWED &&
           self->activity == AD_STREAM_IDLE;
}

/* Ensures that borrowed memory itself is not read after the return. */
static ad_status
finish_reading(ad_session *self, ad_owner *host, ad_sync *sync, ad_error *err)
{
    if (self->reading != AD_READS_BORROWED) {
        keep_until_read(self, host, sync);
    } else if (is_awaited(self)) {
        ad_status status =
            self->backend->runs_on_host(self->on.context.device.id)
                ? ad_sync_wait_briefly(sync, err)
                : ad_sync_wait(sync, "a copy from the host", err);
        /* ad_session_abandon() does not repeat an interrupted wait. */
        if (status == AD_ERR_INTERRUPTED) {
            self->activity = AD_STREAM_BUSY;
        }
        AD_RETURN_IF_ERR(status);
    }
    /* What a copy to the host writes is the caller's. */
    if (!is_cpu(self->memory.device)) {
        keep_until_read(self, staging_owner(self), sync);
        ad_owner_unref(ad_session_take_staging(self));
    }
    return AD_OK;
}

/* The sync of all work of the session. */
static ad_status
record_end(ad_session *self, ad_sync **out, ad_error *err)
{
    ad_event last = self->last;
    self->last = (ad_event){NULL};
    return last.handle != NULL ? ad_sync_adopt(&self->on, last, out, err)
                               : ad_sync_record(&self->on, out, err);
}

void
ad_session_begin_calls(const ad_session *self)
{
    if (self->is_own_stream) {
        ad_deferred_drain();
        ad_deferred_begin_calls(self->on.context);
    }
}

void
ad_session_end_calls(const ad_session *self)
{
    if (self->is_own_stream) {
        ad_deferred_end_calls(self->on.context);
    }
}

ad_status
ad_session_mark_end(ad_session *self, ad_error *err)
{
    bool unused;
    if (self->progress == AD_SESSION_OPEN) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(record_end(self, &self->end, err));
    return self->to_host || is_awaited(self)
               ? ad_sync_query(self->end, &unused, err)
               : AD_OK;
}

ad_status
ad_session_finish(ad_session *self, ad_owner *host, ad_sync **out,
                  ad_error *err)
{
    ad_sync *sync = self->end;
    *out = NULL;
    if (self->progress == AD_SESSION_OPEN) {
        return AD_OK;
    }
    self->end = NULL;
    if (sync == NULL) {
        AD_RETURN_IF_ERR(record_end(self, &sync, err));
    }
    if (!self->to_host) {
        ad_status status = finish_reading(self, host, sync, err);
        if (status != AD_OK) {
            ad_sync_unref(sync);
            return status;
        }
        *out = sync;
        return AD_OK;
    }
    ad_status status = self->progress == AD_SESSION_WAITED
                           ? ad_sync_wait_briefly(sync, err)
                           : ad_sync_wait(sync, "a copy to the host", err);
    ad_sync_unref(sync);
    return status;
}

void
ad_session_abandon(ad_session *self, ad_owner *source, ad_owner *host,
                   ad_owner *target)
{
    ad_sync *sync = NULL;
    if (self->progress == AD_SESSION_OPEN) {
        return;
    }
    drop_last_event(self);
    ad_sync_unref(self->end);
    self->end = NULL;
    if (ad_sync_record(&self->on, &sync, NULL) != AD_OK) {
        sync = NULL;
    }
    /* Borrowed memory must not be read after the return, also after a
     * failure. */
    if (sync != NULL && is_awaited(self) &&
        ad_sync_wait_briefly(sync, NULL) != AD_OK) {
        ad_sync_unref(sync);
        sync = NULL;
    }
    defer_release(self, source, sync);
    defer_release(self, host, sync);
    defer_release(self, target, sync);
    defer_release(self, staging_owner(self), sync);
    ad_owner_unref(ad_session_take_staging(self));
    ad_sync_unref(sync);
}

ad_status
ad_session_end(ad_session *self, ad_status status, ad_owner *source,
               ad_owner *other, ad_allocation *made, ad_error *err)
{
    if (status == AD_OK) {
        status = ad_session_finish(self, NULL, &made->sync, err);
    }
    if (status != AD_OK) {
        ad_session_abandon(self, source, other, made->owner);
        ad_owner_unref(made->owner);
        *made = (ad_allocation){0};
    }
    return status;
}

/* --- reading ------------------------------------------------------------ */

ad_status
ad_session_read(const ad_session *self, ad_owner *source, const void *data,
                uint64_t offset, size_t nbytes, void *out, ad_error *err)
{
    ad_session reading = {
        .backend = self->backend,
        .on = self->on,
        .source = self->source,
        .target = host_context(),
        .memory = host_context(),
        .to_host = true,
    };
    ad_owner *owner;
    void *bounce;
    ad_sync *none;
    /* Not the caller's memory: after a failure the runtime may still write to
     * it. */
    AD_RETURN_IF_ERR(
        ad_session_allocate(&reading, (int64_t)nbytes, &bounce, &owner, err));
    const ad_block_copy copy = {
        .target = ad_span_at(reading.target, bounce, 0),
        .source = ad_span_at(reading.source, data, (int64_t)offset),
        .width = nbytes,
        .height = 1,
    };
    ad_status status = ad_session_copy(&reading, &copy, err);
    if (status == AD_OK) {
        status = ad_session_finish(&reading, NULL, &none, err);
    }
    if (status == AD_OK) {
        memcpy(out, bounce, nbytes);
    } else {
        ad_session_abandon(&reading, source, NULL, owner);
    }
    ad_owner_unref(owner);
    return status;
}

ad_status
ad_read_device(ad_device device, const void *data, ad_owner *source,
               uint64_t offset, size_t nbytes, ad_sync *sync,
               const ad_stream_ref *stream, void *out, ad_error *err)
{
    const ad_session_request request = {
        .source = device,
        .data = data,
        .sync = sync,
        .target = AD_CPU,
        .stream = stream,
        .operation = "reading device memory",
    };
    ad_session session;
    if (nbytes == 0) {
        return AD_OK;
    }
    AD_RETURN_IF_ERR(ad_session_open(&request, &session, err));
    return ad_session_read(&session, source, data, offset, nbytes, out, err);
}
