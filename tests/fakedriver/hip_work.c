/* libamdhip64: copies, streams, events, modules, capture. */
#include "hip_face.h"

enum {
    HOST_TO_DEVICE = 1,
    DEVICE_TO_HOST = 2,
    DEVICE_TO_DEVICE = 3,
    LAST_KIND = 4 /* derived from the pointers */
};

/* --- copies and fills ---------------------------------------------------------------- */

static bool
is_device(const void *pointer)
{
    fd_allocation a;
    return fd_allocation_at(pointer, &a);
}

/* The given direction must match the pointers. */
static int
copy_2d(const char *name, const fd_copy *copy, int kind, uintptr_t stream,
        bool is_synchronous)
{
    bool to_device = kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE;
    bool from_device = kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
    bool is_empty = copy->width == 0 || copy->height == 0;
    if (kind < 0 || kind > LAST_KIND || copy->target_pitch < copy->width ||
        copy->source_pitch < copy->width ||
        (!is_empty && to_device && !is_device(copy->target)) ||
        (!is_empty && from_device && !is_device(copy->source))) {
        return FD_INVALID_VALUE;
    }
    return fd_copy_submit(name, copy, stream, is_synchronous);
}

static int
copy_bytes(const char *name, void *target, const void *source, size_t nbytes,
           int kind, uintptr_t stream, bool is_synchronous)
{
    const fd_copy copy = {target, source, nbytes, nbytes, nbytes, 1};
    return copy_2d(name, &copy, kind, stream, is_synchronous);
}

FD_EXPORT int
hipMemcpy(void *target, const void *source, size_t nbytes, int kind)
{
    HIP_CALL(0, copy_bytes(__func__, target, source, nbytes, kind, 0, true));
}

FD_EXPORT int
hipMemcpyAsync(void *target, const void *source, size_t nbytes, int kind,
               uintptr_t stream)
{
    HIP_CALL(stream, copy_bytes(__func__, target, source, nbytes, kind, stream,
                                false));
}

FD_EXPORT int
hipMemcpyPeer(void *target, int to, const void *source, int from,
              size_t nbytes)
{
    HIP_CALL(0, copy_bytes(__func__, target, source, nbytes, DEVICE_TO_DEVICE,
                           0, true));
}

FD_EXPORT int
hipMemcpyPeerAsync(void *target, int to, const void *source, int from,
                   size_t nbytes, uintptr_t stream)
{
    HIP_CALL(stream, copy_bytes(__func__, target, source, nbytes,
                                DEVICE_TO_DEVICE, stream, false));
}

FD_EXPORT int
hipMemcpy2D(void *target, size_t target_pitch, const void *source,
            size_t source_pitch, size_t width, size_t height, int kind)
{
    const fd_copy copy = {target,       source, target_pitch,
                          source_pitch, width,  height};
    HIP_CALL(0, copy_2d(__func__, &copy, kind, 0, true));
}

FD_EXPORT int
hipMemcpy2DAsync(void *target, size_t target_pitch, const void *source,
                 size_t source_pitch, size_t width, size_t height, int kind,
                 uintptr_t stream)
{
    const fd_copy copy = {target,       source, target_pitch,
                          source_pitch, width,  height};
    HIP_CALL(stream, copy_2d(__func__, &copy, kind, stream, false));
}

FD_EXPORT int
hipMemset(void *target, int value, size_t n)
{
    HIP_CALL(0, fd_fill_submit(__func__, target, n, (uint32_t)value, 1, n, 1,
                               0, true));
}

FD_EXPORT int
hipMemsetAsync(void *target, int value, size_t n, uintptr_t stream)
{
    HIP_CALL(stream, fd_fill_submit(__func__, target, n, (uint32_t)value, 1, n,
                                    1, stream, false));
}

/* --- streams --------------------------------------------------------------------------- */

FD_EXPORT int
hipStreamCreate(uintptr_t *out)
{
    HIP_CALL(0, fd_stream_create(0, 0, out));
}

FD_EXPORT int
hipStreamCreateWithFlags(uintptr_t *out, unsigned flags)
{
    HIP_CALL(0, fd_stream_create(flags, 0, out));
}

FD_EXPORT int
hipStreamCreateWithPriority(uintptr_t *out, unsigned flags, int priority)
{
    HIP_CALL(0, fd_stream_create(flags, priority, out));
}

FD_EXPORT int
hipStreamDestroy(uintptr_t stream)
{
    HIP_CALL(stream, fd_stream_destroy(stream));
}

FD_EXPORT int
hipStreamSynchronize(uintptr_t stream)
{
    HIP_CALL(stream, fd_stream_synchronize(stream));
}

FD_EXPORT int
hipStreamQuery(uintptr_t stream)
{
    HIP_CALL(stream, fd_stream_query(stream));
}

FD_EXPORT int
hipStreamWaitEvent(uintptr_t stream, uintptr_t event, unsigned flags)
{
    HIP_CALL(stream, fd_stream_wait_event(stream, event));
}

static int
stream_device(uintptr_t stream, int *out)
{
    fd_context *context;
    int code = fd_stream_context(stream, &context);
    if (code == FD_OK) {
        *out = context->device;
    }
    return code;
}

FD_EXPORT int
hipStreamGetDevice(uintptr_t stream, int *out)
{
    HIP_CALL(stream, stream_device(stream, out));
}

FD_EXPORT int
hipGetStreamDeviceId(uintptr_t stream)
{
    int device = -1;
    return fd_enter(__func__, stream) == FD_OK &&
                   stream_device(stream, &device) == FD_OK
               ? device
               : -1;
}

FD_EXPORT int
hipStreamGetFlags(uintptr_t stream, unsigned *out)
{
    HIP_CALL(stream, fd_stream_flags(stream, out));
}

FD_EXPORT int
hipStreamGetPriority(uintptr_t stream, int *out)
{
    HIP_CALL(stream, fd_stream_priority(stream, out));
}

FD_EXPORT int
hipStreamWaitValue32(uintptr_t stream, void *address, uint32_t value,
                     unsigned flags, uint32_t mask)
{
    HIP_CALL(stream, mask == UINT32_MAX ? fd_wait_value(__func__, address,
                                                        value, flags, stream)
                                        : FD_NOT_SUPPORTED);
}

FD_EXPORT int
hipStreamWriteValue32(uintptr_t stream, void *address, uint32_t value,
                      unsigned flags)
{
    HIP_CALL(stream, fd_write_value(__func__, address, value, stream));
}

FD_EXPORT int
hipLaunchHostFunc(uintptr_t stream, void (*function)(void *), void *argument)
{
    HIP_CALL(stream, fd_host_function(__func__, function, argument, stream));
}

/* --- events ------------------------------------------------------------------------------ */

FD_EXPORT int
hipEventCreate(uintptr_t *out)
{
    HIP_CALL(0, fd_event_create(0, out));
}

FD_EXPORT int
hipEventCreateWithFlags(uintptr_t *out, unsigned flags)
{
    HIP_CALL(0, fd_event_create(flags, out));
}

FD_EXPORT int
hipEventDestroy(uintptr_t event)
{
    HIP_CALL(0, fd_event_destroy(event));
}

FD_EXPORT int
hipEventRecord(uintptr_t event, uintptr_t stream)
{
    HIP_CALL(stream, fd_event_record(event, stream));
}

FD_EXPORT int
hipEventQuery(uintptr_t event)
{
    HIP_CALL(0, fd_event_query(event));
}

FD_EXPORT int
hipEventSynchronize(uintptr_t event)
{
    HIP_CALL(0, fd_event_synchronize(event));
}

FD_EXPORT int
hipEventElapsedTime(float *out, uintptr_t start, uintptr_t end)
{
    HIP_CALL(0, fd_event_elapsed(start, end, out));
}

/* --- modules: of the text that tests/c_helpers/fake_hiprtc.c makes of kernels -------------- */

FD_EXPORT int
hipModuleLoadData(fd_module **out, const void *image)
{
    HIP_CALL(0, fd_module_load(image, out));
}

FD_EXPORT int
hipModuleUnload(fd_module *module)
{
    HIP_CALL(0, fd_module_unload(module));
}

FD_EXPORT int
hipModuleGetFunction(fd_function **out, fd_module *module, const char *name)
{
    HIP_CALL(0, fd_module_function(module, name, out));
}

FD_EXPORT int
hipModuleLaunchKernel(fd_function *function, unsigned grid_x, unsigned grid_y,
                      unsigned grid_z, unsigned block_x, unsigned block_y,
                      unsigned block_z, unsigned shared, uintptr_t stream,
                      void **arguments, void **extra)
{
    HIP_CALL(stream, fd_launch(__func__, function, (int64_t)grid_x * block_x,
                               arguments, stream));
}

/* --- capture ------------------------------------------------------------------------------- */

static int
capture_status(uintptr_t stream, int *out)
{
    uint64_t id;
    fd_graph *graph;
    return fd_capture_info(stream, out, &id, &graph);
}

FD_EXPORT int
hipStreamIsCapturing(uintptr_t stream, int *out)
{
    HIP_CALL(stream, capture_status(stream, out));
}

FD_EXPORT int
hipStreamBeginCapture(uintptr_t stream, int mode)
{
    HIP_CALL(stream, fd_capture_begin(stream, mode));
}

FD_EXPORT int
hipStreamEndCapture(uintptr_t stream, fd_graph **out)
{
    HIP_CALL(stream, fd_capture_end(stream, out));
}

FD_EXPORT int
hipThreadExchangeStreamCaptureMode(int *mode)
{
    HIP_CALL(0, fd_capture_exchange_mode(mode));
}

FD_EXPORT int
hipGraphInstantiate(fd_graph **out, fd_graph *graph, void **node, char *log,
                    size_t size)
{
    HIP_CALL(0, fd_graph_instantiate(graph, out));
}

FD_EXPORT int
hipGraphLaunch(fd_graph *graph, uintptr_t stream)
{
    HIP_CALL(stream, fd_graph_launch(graph, stream));
}

FD_EXPORT int
hipGraphExecDestroy(fd_graph *graph)
{
    HIP_CALL(0, fd_graph_destroy(graph));
}

FD_EXPORT int
hipGraphDestroy(fd_graph *graph)
{
    HIP_CALL(0, fd_graph_destroy(graph));
}
