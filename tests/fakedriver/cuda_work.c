/* libcuda: copies, fills, streams, events. */
#include "cuda_face.h"

/* --- copies ------------------------------------------------------------------------ */

#define COPY(target, source, stream, is_synchronous)                          \
    fd_copy_bytes(__func__, (void *)(target), (const void *)(source), nbytes, \
                  stream, is_synchronous)

int
cuMemcpy(uintptr_t target, uintptr_t source, size_t nbytes)
{
    FD_ENTER(0);
    return COPY(target, source, 0, true);
}

int
cuMemcpyAsync(uintptr_t target, uintptr_t source, size_t nbytes,
              uintptr_t stream)
{
    FD_ENTER(stream);
    return COPY(target, source, stream, false);
}

/* The direction in a function's name must match the pointers. */
static bool
is_device(uintptr_t pointer)
{
    fd_allocation a;
    return fd_allocation_at((void *)pointer, &a);
}

int
cuMemcpyHtoD_v2(uintptr_t target, const void *source, size_t nbytes)
{
    FD_ENTER(0);
    return is_device(target) ? COPY(target, source, 0, true)
                             : FD_INVALID_VALUE;
}

int
cuMemcpyDtoH_v2(void *target, uintptr_t source, size_t nbytes)
{
    FD_ENTER(0);
    return is_device(source) ? COPY(target, source, 0, true)
                             : FD_INVALID_VALUE;
}

int
cuMemcpyDtoD_v2(uintptr_t target, uintptr_t source, size_t nbytes)
{
    FD_ENTER(0);
    return is_device(source) && is_device(target)
               ? COPY(target, source, 0, true)
               : FD_INVALID_VALUE;
}

int
cuMemcpyHtoDAsync_v2(uintptr_t target, const void *source, size_t nbytes,
                     uintptr_t stream)
{
    FD_ENTER(stream);
    return is_device(target) ? COPY(target, source, stream, false)
                             : FD_INVALID_VALUE;
}

int
cuMemcpyDtoHAsync_v2(void *target, uintptr_t source, size_t nbytes,
                     uintptr_t stream)
{
    FD_ENTER(stream);
    return is_device(source) ? COPY(target, source, stream, false)
                             : FD_INVALID_VALUE;
}

int
cuMemcpyDtoDAsync_v2(uintptr_t target, uintptr_t source, size_t nbytes,
                     uintptr_t stream)
{
    FD_ENTER(stream);
    return is_device(source) && is_device(target)
               ? COPY(target, source, stream, false)
               : FD_INVALID_VALUE;
}

static int
check_peers(const fd_context *target, const fd_context *source)
{
    int code = fd_context_check(target);
    return code == FD_OK ? fd_context_check(source) : code;
}

int
cuMemcpyPeer(uintptr_t target, fd_context *target_context, uintptr_t source,
             fd_context *source_context, size_t nbytes)
{
    FD_ENTER(0);
    int code = check_peers(target_context, source_context);
    return code == FD_OK ? COPY(target, source, 0, true) : code;
}

int
cuMemcpyPeerAsync(uintptr_t target, fd_context *target_context,
                  uintptr_t source, fd_context *source_context, size_t nbytes,
                  uintptr_t stream)
{
    FD_ENTER(stream);
    int code = check_peers(target_context, source_context);
    return code == FD_OK ? COPY(target, source, stream, false) : code;
}

/* NULL for arrays, which this driver does not support. */
static char *
side(int type, const void *host, uintptr_t device, size_t x, size_t y,
     size_t pitch)
{
    char *base = type == CU_HOST                           ? (char *)host
                 : type == CU_DEVICE || type == CU_UNIFIED ? (char *)device
                                                           : NULL;
    return base != NULL ? base + y * pitch + x : NULL;
}

static int
copy_2d(const char *name, const cu_copy_2d *c, uintptr_t stream,
        bool is_synchronous)
{
    fd_copy copy = {
        .target = side(c->target_type, c->target_host, c->target_device,
                       c->target_x, c->target_y, c->target_pitch),
        .source = side(c->source_type, c->source_host, c->source_device,
                       c->source_x, c->source_y, c->source_pitch),
        .target_pitch = c->target_pitch != 0 ? c->target_pitch : c->width,
        .source_pitch = c->source_pitch != 0 ? c->source_pitch : c->width,
        .width = c->width,
        .height = c->height,
    };
    if (copy.target == NULL || copy.source == NULL ||
        copy.target_pitch < c->width || copy.source_pitch < c->width) {
        return FD_INVALID_VALUE;
    }
    return fd_copy_submit(name, &copy, stream, is_synchronous);
}

int
cuMemcpy2D_v2(const cu_copy_2d *copy)
{
    FD_ENTER(0);
    return copy_2d(__func__, copy, 0, true);
}

int
cuMemcpy2DUnaligned_v2(const cu_copy_2d *copy)
{
    FD_ENTER(0);
    return copy_2d(__func__, copy, 0, true);
}

int
cuMemcpy2DAsync_v2(const cu_copy_2d *copy, uintptr_t stream)
{
    FD_ENTER(stream);
    return copy_2d(__func__, copy, stream, false);
}

/* --- fills -------------------------------------------------------------------------- */

#define FILL(size, stream, is_synchronous)                                    \
    fd_fill_submit(__func__, (void *)target, n *(size), value, size, n, 1,    \
                   stream, is_synchronous)

/* On device memory these are asynchronous, as the driver's documentation says,
 * although their names suggest otherwise. */
int
cuMemsetD8_v2(uintptr_t target, unsigned char value, size_t n)
{
    FD_ENTER(0);
    return FILL(1, 0, false);
}

int
cuMemsetD16_v2(uintptr_t target, unsigned short value, size_t n)
{
    FD_ENTER(0);
    return FILL(2, 0, false);
}

int
cuMemsetD32_v2(uintptr_t target, unsigned value, size_t n)
{
    FD_ENTER(0);
    return FILL(4, 0, false);
}

int
cuMemsetD8Async(uintptr_t target, unsigned char value, size_t n,
                uintptr_t stream)
{
    FD_ENTER(stream);
    return FILL(1, stream, false);
}

int
cuMemsetD16Async(uintptr_t target, unsigned short value, size_t n,
                 uintptr_t stream)
{
    FD_ENTER(stream);
    return FILL(2, stream, false);
}

int
cuMemsetD32Async(uintptr_t target, unsigned value, size_t n, uintptr_t stream)
{
    FD_ENTER(stream);
    return FILL(4, stream, false);
}

int
cuMemsetD2D8Async(uintptr_t target, size_t pitch, unsigned char value,
                  size_t width, size_t height, uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_fill_submit(__func__, (void *)target, pitch, value, 1, width,
                          height, stream, false);
}

/* --- streams ------------------------------------------------------------------------- */

int
cuStreamCreate(uintptr_t *out, unsigned flags)
{
    FD_ENTER(0);
    return fd_stream_create(flags, 0, out);
}

int
cuStreamCreateWithPriority(uintptr_t *out, unsigned flags, int priority)
{
    FD_ENTER(0);
    return fd_stream_create(flags, priority, out);
}

int
cuStreamDestroy_v2(uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_stream_destroy(stream);
}

int
cuStreamQuery(uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_stream_query(stream);
}

int
cuStreamSynchronize(uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_stream_synchronize(stream);
}

int
cuStreamWaitEvent(uintptr_t stream, uintptr_t event, unsigned flags)
{
    FD_ENTER(stream);
    return fd_stream_wait_event(stream, event);
}

int
cuStreamGetCtx(uintptr_t stream, fd_context **out)
{
    FD_ENTER(stream);
    return fd_stream_context(stream, out);
}

int
cuStreamGetCtx_v2(uintptr_t stream, fd_context **out, void **green)
{
    FD_ENTER(stream);
    *green = NULL;
    return fd_stream_context(stream, out);
}

int
cuStreamGetDevice(uintptr_t stream, int *out)
{
    fd_context *context;
    FD_ENTER(stream);
    int code = fd_stream_context(stream, &context);
    if (code == FD_OK) {
        *out = context->device;
    }
    return code;
}

int
cuStreamGetFlags(uintptr_t stream, unsigned *out)
{
    FD_ENTER(stream);
    return fd_stream_flags(stream, out);
}

int
cuStreamGetId(uintptr_t stream, unsigned long long *out)
{
    uint64_t id = 0;
    FD_ENTER(stream);
    int code = fd_stream_id(stream, &id);
    *out = id;
    return code;
}

int
cuStreamGetPriority(uintptr_t stream, int *out)
{
    FD_ENTER(stream);
    return fd_stream_priority(stream, out);
}

int
cuStreamWaitValue32_v2(uintptr_t stream, uintptr_t address, uint32_t value,
                       unsigned flags)
{
    FD_ENTER(stream);
    return fd_wait_value(__func__, (void *)address, value, flags, stream);
}

int
cuStreamWriteValue32_v2(uintptr_t stream, uintptr_t address, uint32_t value,
                        unsigned flags)
{
    FD_ENTER(stream);
    return fd_write_value(__func__, (void *)address, value, stream);
}

int
cuLaunchHostFunc(uintptr_t stream, void (*function)(void *), void *argument)
{
    FD_ENTER(stream);
    return fd_host_function(__func__, function, argument, stream);
}

/* --- events ----------------------------------------------------------------------------- */

int
cuEventCreate(uintptr_t *out, unsigned flags)
{
    FD_ENTER(0);
    return fd_event_create(flags, out);
}

int
cuEventDestroy_v2(uintptr_t event)
{
    FD_ENTER(0);
    return fd_event_destroy(event);
}

int
cuEventRecord(uintptr_t event, uintptr_t stream)
{
    FD_ENTER(stream);
    return fd_event_record(event, stream);
}

int
cuEventRecordWithFlags(uintptr_t event, uintptr_t stream, unsigned flags)
{
    FD_ENTER(stream);
    return fd_event_record(event, stream);
}

int
cuEventQuery(uintptr_t event)
{
    FD_ENTER(0);
    return fd_event_query(event);
}

int
cuEventSynchronize(uintptr_t event)
{
    FD_ENTER(0);
    return fd_event_synchronize(event);
}

int
cuEventElapsedTime(float *out, uintptr_t start, uintptr_t end)
{
    FD_ENTER(0);
    return fd_event_elapsed(start, end, out);
}

int
cuEventElapsedTime_v2(float *out, uintptr_t start, uintptr_t end)
{
    FD_ENTER(0);
    return fd_event_elapsed(start, end, out);
}
