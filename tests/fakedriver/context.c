/* Contexts, and each thread's stack of current contexts. */
#include "driver.h"

#include <stdlib.h>

enum {
    MAX_DEPTH = 64
};

static fd_context *contexts; /* all that were ever created */
static fd_context *primary[FD_MAX_DEVICES];
static uint64_t last_id;

static __thread fd_context *stack[MAX_DEPTH];
static __thread int depth;

fd_context *
fd_context_peek(void)
{
    if (depth == 0 && fd_face_here.has_implicit_context) {
        fd_context *context;
        if (fd_context_primary(0, &context) == FD_OK) {
            stack[depth++] = context;
        }
    }
    return depth > 0 ? stack[depth - 1] : NULL;
}

int
fd_context_current(fd_context **out)
{
    *out = fd_context_peek();
    if (*out == NULL) {
        return FD_INVALID_CONTEXT;
    }
    return (*out)->is_live ? FD_OK : FD_CONTEXT_DESTROYED;
}

int
fd_context_check(const fd_context *context)
{
    fd_lock();
    const fd_context *c = contexts;
    while (c != NULL && c != context) {
        c = c->next;
    }
    bool is_good = c != NULL && c->is_live;
    fd_unlock();
    return is_good ? FD_OK : FD_INVALID_CONTEXT;
}

int
fd_context_set(fd_context *context)
{
    if (context == NULL) {
        depth -= depth > 0;
        return FD_OK;
    }
    int code = fd_context_check(context);
    if (code == FD_OK) {
        depth += depth == 0;
        stack[depth - 1] = context;
    }
    return code;
}

int
fd_context_push(fd_context *context)
{
    int code = fd_context_check(context);
    if (code == FD_OK && depth == MAX_DEPTH) {
        code = FD_OUT_OF_MEMORY;
    }
    if (code == FD_OK) {
        stack[depth++] = context;
    }
    return code;
}

int
fd_context_pop(fd_context **out)
{
    if (depth == 0) {
        return FD_INVALID_CONTEXT;
    }
    depth--;
    if (out != NULL) {
        *out = stack[depth];
    }
    return FD_OK;
}

int
fd_context_depth(void)
{
    return depth;
}

static int
open_locked(fd_context *context)
{
    context->broken = FD_OK;
    context->id = ++last_id;
    int code = fd_stream_new_legacy_locked(context);
    context->is_live = code == FD_OK;
    return code;
}

static int
new_locked(int device, unsigned flags, fd_context **out)
{
    fd_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        return FD_OUT_OF_MEMORY;
    }
    context->device = device;
    context->flags = flags;
    context->next = contexts;
    contexts = context;
    *out = context;
    return FD_OK;
}

int
fd_context_create(int device, unsigned flags, fd_context **out)
{
    if (device < 0 || device >= fd_n_devices()) {
        return FD_INVALID_DEVICE;
    }
    fd_context *context;
    fd_lock();
    int code = new_locked(device, flags, &context);
    if (code == FD_OK) {
        code = open_locked(context);
    }
    fd_unlock();
    if (code == FD_OK) {
        code = fd_context_push(context);
        *out = context;
    }
    return code;
}

static void
close_locked(fd_context *context)
{
    context->is_live = false;
    fd_stream_drop_all_locked(context);
    fd_memory_drop_all_locked(context);
}

int
fd_context_destroy(fd_context *context)
{
    int code = fd_context_check(context);
    if (code != FD_OK) {
        return code;
    }
    if (context->is_primary) {
        return FD_INVALID_CONTEXT;
    }
    if (depth > 0 && stack[depth - 1] == context) {
        depth--;
    }
    (void)fd_context_synchronize(context);
    fd_lock();
    close_locked(context);
    fd_unlock();
    return FD_OK;
}

int
fd_context_primary(int device, fd_context **out)
{
    if (device < 0 || device >= fd_n_devices()) {
        return FD_INVALID_DEVICE;
    }
    int code = FD_OK;
    fd_lock();
    if (primary[device] == NULL) {
        code = new_locked(device, 0, &primary[device]);
        if (code == FD_OK) {
            primary[device]->is_primary = true;
        }
    }
    if (code == FD_OK && fd_face_here.has_implicit_context &&
        !primary[device]->is_live) {
        code = open_locked(primary[device]);
    }
    *out = primary[device];
    fd_unlock();
    return code;
}

int
fd_context_retain(int device, fd_context **out)
{
    int code = fd_context_primary(device, out);
    if (code != FD_OK) {
        return code;
    }
    fd_lock();
    if (!(*out)->is_live) {
        code = open_locked(*out);
    }
    (*out)->n_retained += code == FD_OK;
    fd_unlock();
    return code;
}

static int
close_primary(fd_context *context)
{
    int code = fd_context_synchronize(context);
    fd_lock();
    context->n_retained = 0;
    close_locked(context);
    fd_pools_end_locked(context->device);
    fd_unlock();
    return code;
}

int
fd_context_release(int device)
{
    fd_context *context;
    int code = fd_context_primary(device, &context);
    if (code != FD_OK) {
        return code;
    }
    if (context->n_retained == 0) {
        return FD_INVALID_CONTEXT;
    }
    fd_lock();
    bool is_last = --context->n_retained == 0;
    fd_unlock();
    return is_last ? close_primary(context) : FD_OK;
}

int
fd_context_reset(int device)
{
    fd_context *context;
    int code = fd_context_primary(device, &context);
    if (code == FD_OK && context->is_live) {
        code = close_primary(context);
    }
    return code;
}

int
fd_context_synchronize(fd_context *context)
{
    fd_host_waits("context");
    int status =
        ad_engine_synchronize(context->device, context, fd_patience());
    fd_pools_release();
    if (status == AD_ENGINE_TIMEOUT) {
        fd_violation("the host waited too long for a context");
    }
    return fd_code(status);
}

int
fd_context_wait(fd_context *context)
{
    fd_lock();
    int code = fd_capture_none_in_locked(context);
    if (code == FD_OK) {
        code = fd_capture_allows_locked();
    }
    fd_unlock();
    return code == FD_OK ? fd_context_synchronize(context) : code;
}

size_t
fd_context_count(void)
{
    size_t n = 0;
    fd_lock();
    for (const fd_context *c = contexts; c != NULL; c = c->next) {
        n += c->is_live;
    }
    fd_unlock();
    return n;
}

void
fd_context_mend_all(void)
{
    fd_lock();
    for (fd_context *c = contexts; c != NULL; c = c->next) {
        c->broken = FD_OK;
    }
    fd_unlock();
}
