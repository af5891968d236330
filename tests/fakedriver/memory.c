/* Memory: a registry over the engine's, and the check that no memory with
 * pending work is freed. */
#include "driver.h"

#include <stdlib.h>

static fd_allocation *allocations;
static uint64_t last_id;

fd_allocation *
fd_allocation_find_locked(const void *pointer)
{
    const char *p = pointer;
    fd_allocation *a = allocations;
    while (a != NULL && !(p >= a->base && p < a->base + a->nbytes)) {
        a = a->next;
    }
    return a;
}

bool
fd_allocation_at(const void *pointer, fd_allocation *out)
{
    fd_lock();
    const fd_allocation *a = fd_allocation_find_locked(pointer);
    bool is_there = a != NULL && !a->is_leaving;
    if (is_there) {
        *out = *a;
    }
    fd_unlock();
    return is_there;
}

bool
fd_may_use(const void *start, size_t nbytes)
{
    fd_lock();
    const fd_allocation *a = fd_allocation_find_locked(start);
    bool is_leaving = a != NULL && a->is_leaving;
    bool is_mapped = fd_mapped_locked(start, nbytes, -1, false);
    fd_unlock();
    return !is_leaving && is_mapped && start != NULL &&
           ad_engine_may_touch(start, nbytes);
}

fd_allocation *
fd_allocation_list_locked(void)
{
    return allocations;
}

fd_allocation *
fd_allocation_add_locked(void *base, size_t nbytes, fd_memory_kind kind,
                         fd_context *context, int device)
{
    fd_allocation *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        return NULL;
    }
    a->base = base;
    a->nbytes = nbytes;
    a->kind = kind;
    a->context = context;
    a->device = device;
    a->is_ready = true;
    a->id = ++last_id;
    a->next = allocations;
    allocations = a;
    return a;
}

static void
remove_locked(fd_allocation *allocation)
{
    fd_allocation **link = &allocations;
    while (*link != allocation) {
        link = &(*link)->next;
    }
    *link = allocation->next;
    if (allocation->pool != NULL && !allocation->is_foreign) {
        fd_pool_give_locked(allocation->pool, allocation->nbytes);
    }
    free(allocation);
}

/* Memory that pending work uses is not freed, so that the fault is reported
 * and does not crash the process. */
void
fd_allocation_free_locked(fd_allocation *a, const char *name)
{
    const char *user = fd_pending_use_locked(a->base, a->nbytes);
    fd_physical *physical = a->physical;
    fd_ipc_free_locked(a, name);
    if (user != NULL) {
        fd_violation("%s of memory at %p, which a pending %s uses", name,
                     (void *)a->base, user);
    } else if (a->kind == FD_REGISTERED) {
        ad_engine_unregister(a->base);
    } else if (physical != NULL) {
        fd_unmap_locked(a);
    } else {
        ad_engine_free(a->base);
    }
    remove_locked(a);
    if (physical != NULL) {
        fd_physical_unmapped_locked(physical);
    }
}

void
fd_memory_drop_all_locked(fd_context *context)
{
    fd_allocation *a = allocations;
    while (a != NULL) {
        fd_allocation *next = a->next;
        if (a->context == context && a->pool == NULL) {
            fd_allocation_free_locked(a, "the end of a context");
        }
        a = next;
    }
}

static int
allocate_in(fd_context *context, size_t nbytes, fd_memory_kind kind,
            fd_allocation **out)
{
    static const ad_engine_kind kinds[] = {
        [FD_DEVICE] = AD_ENGINE_DEVICE,
        [FD_PINNED] = AD_ENGINE_PINNED,
        [FD_MANAGED] = AD_ENGINE_MANAGED,
    };
    void *base;
    int status = ad_engine_allocate(context->device, nbytes, kinds[kind],
                                    context, &base);
    if (status != AD_ENGINE_OK) {
        return fd_code(status);
    }
    fd_lock();
    *out =
        fd_allocation_add_locked(base, nbytes, kind, context, context->device);
    fd_unlock();
    if (*out == NULL) {
        ad_engine_free(base);
        return FD_OUT_OF_MEMORY;
    }
    return FD_OK;
}

int
fd_allocate(size_t nbytes, fd_memory_kind kind, unsigned flags, void **out)
{
    fd_context *context;
    fd_allocation *a;
    int code = fd_context_current(&context);
    if (code == FD_OK) {
        code = nbytes == 0 ? FD_INVALID_VALUE : fd_capture_allows();
    }
    if (code == FD_OK) {
        code = allocate_in(context, nbytes, kind, &a);
    }
    if (code == FD_OK) {
        a->flags = flags;
        *out = a->base;
    }
    return code;
}

/* NVIDIA's driver waits, too, but does not promise it: for CUDA, the test
 * selects the behaviour. */
static int
wait_for_use(const fd_allocation *copy)
{
    fd_lock();
    bool is_used = fd_pending_use_locked(copy->base, copy->nbytes) != NULL;
    fd_unlock();
    bool waits = fd_face_here.free_waits || fd_free_waits();
    return is_used && waits ? fd_context_synchronize(copy->context) : FD_OK;
}

static bool
is_kind(const fd_allocation *a, fd_memory_kind kind)
{
    return a->kind == kind || (kind == FD_DEVICE && a->kind == FD_MANAGED);
}

/* Mapped memory and opened memory end otherwise. */
static bool
is_freed_by_base(const fd_allocation *a, fd_memory_kind kind)
{
    return is_kind(a, kind) && a->physical == NULL && a->n_opens == 0;
}

static int
free_copy(const char *name, const fd_allocation *copy)
{
    int code = fd_capture_allows();
    code = code == FD_OK ? wait_for_use(copy) : code;
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(copy->base);
    if (a != NULL && a->id == copy->id && !a->is_leaving) {
        fd_allocation_free_locked(a, name);
    } else {
        code = FD_INVALID_VALUE; /* another thread freed it first */
    }
    fd_unlock();
    return code;
}

int
fd_free(const char *name, void *base, fd_memory_kind kind)
{
    fd_allocation copy;
    return fd_allocation_at(base, &copy) && copy.base == base &&
                   is_freed_by_base(&copy, kind)
               ? free_copy(name, &copy)
               : FD_INVALID_VALUE;
}

int
fd_free_opened(const char *name, void *base)
{
    fd_allocation copy;
    return fd_allocation_at(base, &copy) ? free_copy(name, &copy)
                                         : FD_INVALID_VALUE;
}

int
fd_register(void *base, size_t nbytes, unsigned flags)
{
    fd_context *context;
    int code = fd_context_current(&context);
    if (code != FD_OK) {
        return code;
    }
    if (base == NULL || nbytes == 0) {
        return FD_INVALID_VALUE;
    }
    int status = ad_engine_register(base, nbytes, context->device, context);
    if (status != AD_ENGINE_OK) {
        return status == AD_ENGINE_INVALID_VALUE ? FD_ALREADY_REGISTERED
                                                 : fd_code(status);
    }
    fd_lock();
    fd_allocation *a = fd_allocation_add_locked(base, nbytes, FD_REGISTERED,
                                                context, context->device);
    if (a != NULL) {
        a->flags = flags;
    }
    fd_unlock();
    return a != NULL ? FD_OK : FD_OUT_OF_MEMORY;
}

int
fd_unregister(const char *name, void *base)
{
    int code = FD_NOT_REGISTERED;
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(base);
    if (a != NULL && a->kind == FD_REGISTERED && a->base == base) {
        fd_allocation_free_locked(a, name);
        code = FD_OK;
    }
    fd_unlock();
    return code;
}

int
fd_memory_info(size_t *left, size_t *total)
{
    fd_context *context;
    int code = fd_context_current(&context);
    return code != FD_OK
               ? code
               : fd_code(ad_engine_memory(context->device, total, left));
}

/* --- in the order of a stream -------------------------------------------------- */

static int
run_ready(fd_operation *o)
{
    fd_lock();
    o->u.allocation->is_ready = true;
    fd_ipc_ready_locked(o->u.allocation);
    fd_unlock();
    return AD_ENGINE_OK;
}

static int
run_free(fd_operation *o)
{
    fd_lock();
    fd_allocation_free_locked(o->u.allocation, o->name);
    fd_unlock();
    return AD_ENGINE_OK;
}

static int
submit_allocation(const char *name, int (*run)(fd_operation *),
                  fd_allocation *a, uintptr_t stream)
{
    const fd_operation o = {
        .name = name,
        .run = run,
        .u.allocation = a,
    };
    return fd_submit(stream, &o);
}

static int
stream_state(uintptr_t handle, fd_context **context, bool *is_captured)
{
    fd_stream *stream;
    int code = fd_stream_lock(handle, &stream);
    if (code == FD_OK) {
        *context = stream->context;
        *is_captured = stream->capture != NULL;
        fd_unlock();
    }
    return code;
}

int
fd_allocate_ordered(const char *name, size_t nbytes, fd_pool *pool,
                    uintptr_t handle, void **out)
{
    fd_context *context;
    bool is_captured;
    fd_allocation *a;
    int code = stream_state(handle, &context, &is_captured);
    if (code == FD_OK && pool == NULL) {
        code = fd_pool_current(context->device, &pool);
    } else if (code == FD_OK) {
        code = fd_pool_check(pool);
    }
    /* "Imported memory pools do not support creating new allocations"
     * (cuMemPoolImportFromShareableHandle). */
    if (code == FD_OK && (nbytes == 0 || pool->is_imported)) {
        code = FD_INVALID_VALUE;
    }
    if (code == FD_OK) {
        code = allocate_in(context, nbytes, FD_DEVICE, &a);
    }
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    a->pool = pool;
    a->is_ready = is_captured; /* memory of a graph exists from the start */
    fd_pool_take_locked(pool, nbytes);
    fd_unlock();
    if (!is_captured) {
        code = submit_allocation(name, run_ready, a, handle);
    }
    if (code == FD_OK) {
        *out = a->base;
    } else {
        fd_lock();
        fd_allocation_free_locked(a, name);
        fd_unlock();
    }
    return code;
}

int
fd_free_ordered(const char *name, void *base, uintptr_t handle)
{
    fd_context *context;
    bool is_captured;
    int code = stream_state(handle, &context, &is_captured);
    if (code != FD_OK || base == NULL) {
        return code;
    }
    fd_lock();
    fd_allocation *a = fd_allocation_find_locked(base);
    if (a == NULL || a->base != base || a->pool == NULL || a->is_leaving) {
        code = FD_INVALID_VALUE;
    } else {
        a->is_leaving = !is_captured; /* else it stays with the graph */
    }
    fd_unlock();
    if (code == FD_OK && !is_captured) {
        code = submit_allocation(name, run_free, a, handle);
        if (code != FD_OK) {
            fd_lock();
            a->is_leaving = false;
            fd_unlock();
        }
    }
    return code;
}


void
fd_memory_count(size_t counts[4], size_t *bytes)
{
    fd_lock();
    for (const fd_allocation *a = allocations; a != NULL; a = a->next) {
        counts[a->kind]++;
        *bytes += a->nbytes;
    }
    fd_unlock();
}
