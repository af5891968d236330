/* Work on streams: the memory of pending work is recorded. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static fd_operation *pending; /* submitted and not done, newest first */
static size_t n_pending;

#define N_RANGES (sizeof(((fd_operation *)NULL)->ranges) / sizeof(fd_range))

static bool
overlaps(const fd_range *range, const char *start, size_t nbytes)
{
    const char *other = range->start;
    return range->nbytes > 0 && other < start + nbytes &&
           start < other + range->nbytes;
}

const char *
fd_pending_use_locked(const void *start, size_t nbytes)
{
    for (const fd_operation *o = pending; o != NULL; o = o->next) {
        for (size_t i = 0; i < N_RANGES; i++) {
            if (overlaps(&o->ranges[i], start, nbytes)) {
                return o->name;
            }
        }
    }
    return NULL;
}

size_t
fd_n_pending(void)
{
    fd_lock();
    size_t n = n_pending;
    fd_unlock();
    return n;
}

static void
unlink_locked(fd_operation *o)
{
    if (o->previous != NULL) {
        o->previous->next = o->next;
    } else {
        pending = o->next;
    }
    if (o->next != NULL) {
        o->next->previous = o->previous;
    }
    n_pending--;
}

/* --- running --------------------------------------------------------------- */

/* Memory of the driver must be live now and allocated by its stream. */
static bool
may_run_locked(const fd_operation *o)
{
    for (size_t i = 0; i < N_RANGES; i++) {
        const fd_range *range = &o->ranges[i];
        if (range->nbytes == 0) {
            continue;
        }
        const fd_allocation *a = fd_allocation_find_locked(range->start);
        if (!ad_engine_may_touch(range->start, range->nbytes) ||
            !fd_mapped_locked(range->start, range->nbytes, o->context->device,
                              range->is_written)) {
            fd_violation("%s ran into memory at %p that is not there (%zu "
                         "bytes)",
                         o->name, range->start, range->nbytes);
            return false;
        }
        if (a != NULL && !fd_ipc_may_use_locked(a, o->name)) {
            return false;
        }
        if (a != NULL && !a->is_ready) {
            fd_violation("%s used memory at %p before its stream-ordered "
                         "allocation was reached",
                         o->name, range->start);
        }
    }
    return true;
}

static int
run(void *argument)
{
    fd_operation *o = argument;
    fd_lock();
    bool may_run = may_run_locked(o);
    fd_unlock();
    int status = may_run ? o->run(o) : AD_ENGINE_ILLEGAL_ADDRESS;
    if (status != AD_ENGINE_OK) {
        o->context->broken = fd_code(status);
    }
    fd_lock();
    unlink_locked(o);
    fd_unlock();
    free(o->staging);
    free(o);
    return status;
}

int
fd_submit_locked(fd_stream *stream, const fd_operation *operation)
{
    if (stream->capture != NULL) {
        return fd_capture_add_locked(stream, operation);
    }
    int code = fd_stream_barrier_locked(stream);
    fd_operation *o = code == FD_OK ? malloc(sizeof(*o)) : NULL;
    if (o == NULL) {
        free(operation->staging);
        return code == FD_OK ? FD_OUT_OF_MEMORY : code;
    }
    *o = *operation;
    o->context = stream->context;
    o->queue = stream->queue;
    o->previous = NULL;
    o->next = pending;
    if (pending != NULL) {
        pending->previous = o;
    }
    pending = o;
    n_pending++;
    int status = ad_engine_enqueue(stream->queue, run, o);
    if (status != AD_ENGINE_OK) {
        unlink_locked(o);
        free(o->staging);
        free(o);
    }
    return fd_code(status);
}

int
fd_submit(uintptr_t handle, const fd_operation *operation)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        free(operation->staging);
        return code;
    }
    code = fd_submit_locked(stream, operation);
    fd_unlock();
    return code;
}

/* --- copies ------------------------------------------------------------------ */

static int
run_copy(fd_operation *o)
{
    char *target = ad_engine_inside(o->u.copy.target);
    const char *source = ad_engine_inside(o->u.copy.source);
    for (size_t row = 0; row < o->u.copy.height; row++) {
        memmove(target + row * o->u.copy.target_pitch,
                source + row * o->u.copy.source_pitch, o->u.copy.width);
    }
    return AD_ENGINE_OK;
}

static size_t
extent(size_t pitch, size_t width, size_t height)
{
    return (height - 1) * pitch + width;
}

/* Blocks until the stream's work is done, for synchronous calls and for copies
 * to pageable host memory. */
static int
finish(const char *name, uintptr_t stream)
{
    fd_host_waits(name);
    return fd_stream_synchronize(stream);
}

/* "For transfers from pageable host memory to device memory [of more than 64
 * KB], a stream sync is performed before the copy is initiated"; "if pageable
 * memory must first be staged to pinned memory, the driver may synchronize
 * with the stream" (API synchronization behavior). */
#define STAGED_AT_ONCE ((size_t)64 << 10)

/* Pageable memory of the host is read at the call. */
static int
stage(fd_operation *o)
{
    size_t nbytes = o->ranges[1].nbytes;
    o->staging = malloc(nbytes);
    if (o->staging == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    memcpy(o->staging, o->u.copy.source, nbytes);
    o->u.copy.source = o->staging;
    o->ranges[1].start = o->staging;
    return FD_OK;
}

int
fd_copy_submit(const char *name, const fd_copy *copy, uintptr_t handle,
               bool is_synchronous)
{
    if (copy->width == 0 || copy->height == 0) {
        return FD_OK;
    }
    size_t target_size = extent(copy->target_pitch, copy->width, copy->height);
    size_t source_size = extent(copy->source_pitch, copy->width, copy->height);
    if (!fd_may_use(copy->target, target_size) ||
        !fd_may_use(copy->source, source_size)) {
        return FD_INVALID_VALUE;
    }
    fd_operation o = {
        .name = name,
        .run = run_copy,
        .ranges = {{copy->target, target_size, true},
                   {(void *)copy->source, source_size, false}},
        .u.copy = {copy->target, copy->source, copy->target_pitch,
                   copy->source_pitch, copy->width, copy->height},
    };
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code != FD_OK) {
        return code;
    }
    bool is_captured = stream->capture != NULL;
    bool from_pageable = fd_allocation_find_locked(copy->source) == NULL;
    bool to_pageable = fd_allocation_find_locked(copy->target) == NULL;
    fd_unlock();
    if (is_synchronous && (code = fd_capture_allows()) != FD_OK) {
        return code;
    }
    if (from_pageable && !is_captured && !is_synchronous && fd_stages_host()) {
        code = source_size > STAGED_AT_ONCE ? finish(name, handle) : FD_OK;
        code = code == FD_OK ? stage(&o) : code;
    }
    code = code == FD_OK ? fd_submit(handle, &o) : code;
    bool is_blocking = is_synchronous || (to_pageable && fd_stages_host());
    return code == FD_OK && is_blocking && !is_captured ? finish(name, handle)
                                                        : code;
}

int
fd_copy_bytes(const char *name, void *target, const void *source,
              size_t nbytes, uintptr_t stream, bool is_synchronous)
{
    const fd_copy copy = {target, source, nbytes, nbytes, nbytes, 1};
    return fd_copy_submit(name, &copy, stream, is_synchronous);
}

/* --- fills --------------------------------------------------------------------- */

static int
run_fill(fd_operation *o)
{
    char *row = ad_engine_inside(o->u.fill.target);
    for (size_t y = 0; y < o->u.fill.height; y++, row += o->u.fill.pitch) {
        for (size_t x = 0; x < o->u.fill.width; x++) {
            memcpy(row + x * o->u.fill.size, &o->u.fill.pattern,
                   o->u.fill.size);
        }
    }
    return AD_ENGINE_OK;
}

int
fd_fill_submit(const char *name, void *target, size_t pitch, uint32_t pattern,
               size_t size, size_t width, size_t height, uintptr_t stream,
               bool is_synchronous)
{
    if (width == 0 || height == 0) {
        return FD_OK;
    }
    size_t nbytes = extent(pitch, width * size, height);
    if (!fd_may_use(target, nbytes)) {
        return FD_INVALID_VALUE;
    }
    const fd_operation o = {
        .name = name,
        .run = run_fill,
        .ranges = {{target, nbytes, true}},
        .u.fill = {target, pitch, pattern, size, width, height},
    };
    int code = is_synchronous ? fd_capture_allows() : FD_OK;
    code = code == FD_OK ? fd_submit(stream, &o) : code;
    return code == FD_OK && is_synchronous ? finish(name, stream) : code;
}

/* --- host functions and values --------------------------------------------------- */

static __thread bool is_in_host_function;

bool
fd_is_in_host_function(void)
{
    return is_in_host_function;
}

static int
run_host(fd_operation *o)
{
    is_in_host_function = true;
    o->u.host.function(o->u.host.argument);
    is_in_host_function = false;
    return AD_ENGINE_OK;
}

int
fd_host_function(const char *name, void (*function)(void *), void *argument,
                 uintptr_t stream)
{
    if (function == NULL) {
        return FD_INVALID_VALUE;
    }
    const fd_operation o = {
        .name = name,
        .run = run_host,
        .u.host = {function, argument},
    };
    return fd_submit(stream, &o);
}

static bool
is_met(uint32_t value, uint32_t wanted, unsigned flags)
{
    switch (flags & 3) {
        case 0:
            return (int32_t)(value - wanted) >= 0;
        case 1:
            return value == wanted;
        case 2:
            return (value & wanted) != 0;
        default:
            return ~(value | wanted) != 0;
    }
}

static int
run_wait_value(fd_operation *o)
{
    const uint32_t *address = ad_engine_inside(o->u.value.address);
    const struct timespec pause = {0, 100000};
    while (!fd_is_stopping() &&
           !is_met(__atomic_load_n(address, __ATOMIC_ACQUIRE),
                   o->u.value.value, o->u.value.flags)) {
        nanosleep(&pause, NULL);
    }
    return AD_ENGINE_OK;
}

static int
run_write_value(fd_operation *o)
{
    uint32_t *address = ad_engine_inside(o->u.value.address);
    __atomic_store_n(address, o->u.value.value, __ATOMIC_RELEASE);
    return AD_ENGINE_OK;
}

static int
submit_value(fd_operation *o, void *address, uintptr_t stream)
{
    if ((uintptr_t)address % 4 != 0 || !fd_may_use(address, 4)) {
        return FD_INVALID_VALUE;
    }
    o->ranges[0] =
        (fd_range){address, sizeof(uint32_t), o->run == run_write_value};
    return fd_submit(stream, o);
}

int
fd_wait_value(const char *name, void *address, uint32_t value, unsigned flags,
              uintptr_t stream)
{
    fd_operation o = {
        .name = name,
        .run = run_wait_value,
        .u.value = {address, value, flags},
    };
    return submit_value(&o, address, stream);
}

int
fd_write_value(const char *name, void *address, uint32_t value,
               uintptr_t stream)
{
    fd_operation o = {
        .name = name,
        .run = run_write_value,
        .u.value = {address, value, 0},
    };
    return submit_value(&o, address, stream);
}
