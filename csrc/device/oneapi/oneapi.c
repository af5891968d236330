/* oneAPI (SYCL) through libDPCTLSyclInterface.so, dpctl's C interface.
 *
 * SYCL differs from the other runtimes:
 *
 * - A queue is out of order unless it was created in order. A barrier waits
 *   for all earlier work on the queue and delays all later work. So a barrier
 *   precedes each command of this backend on a queue that needs one.
 * - Handles are the addresses of C++ values that share one object: two
 *   DPCTLSyclContextRefs may be one context. So a context's handle is a struct
 *   ad_oneapi_context (device/oneapi/oneapi_context.h), of which there is one
 *   per context and device.
 * - Failed functions return NULL without a reason. Some let the C++ exception
 *   escape, which ends the process. Those are called only where they cannot
 *   fail (USM_GetPointerType, USM_GetPointerDevice, free_with_context), or not
 *   at all (Queue_Wait, malloc_host).
 * - There is no call that waits until the device is idle, see `synchronize`.
 */
#include "device/oneapi/oneapi_context.h"

#include <stdio.h>
#include <stdlib.h>

static inline ad_sycl_queue
queue_of(ad_stream stream)
{
    return (ad_sycl_queue)stream.handle;
}

/* --- queues -------------------------------------------------------------- */

/* A queue is an address. A number that cannot be one is not dereferenced. */
static ad_status
check_queue(ad_stream stream, ad_device device, ad_error *err)
{
    return stream.handle >= 4096
               ? AD_OK
               : ad_fail_on(err, device, "stream",
                            "pass a dpctl.SyclQueue, or an object with "
                            ".sycl_queue",
                            "oneAPI has no streams with numbers");
}

static ad_status
oneapi_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                      ad_error *err)
{
    struct ad_oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(check_queue(stream, hint.device, err));
    AD_RETURN_IF_ERR(
        ad_oneapi_queue_context(queue_of(stream), &sycl_context, err));
    *out = ad_oneapi_as_context(sycl_context);
    return ad_queue_check_device(out->device, hint.device, err);
}

static void
oneapi_stream_destroy(ad_context context, ad_stream stream)
{
    ad_sycl.Queue_Delete(queue_of(stream));
}

/* stream_is_capturing stays NULL: SYCL's graphs can capture a queue, but dpctl
 * has no call for it. */

/* --- events -------------------------------------------------------------- */

/* The barrier that all ordering between queues is built from. */
static ad_status
submit_barrier(ad_context context, ad_sycl_queue queue, ad_sycl_event *event,
               ad_error *err)
{
    *event = ad_sycl.Queue_SubmitBarrier(queue);
    return *event != NULL ? AD_OK
                          : ad_oneapi_fail_call(err, context.device.id,
                                                "DPCTLQueue_SubmitBarrier");
}

static ad_status
oneapi_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    ad_sycl_event barrier;
    AD_RETURN_IF_ERR(check_queue(stream, context.device, err));
    AD_RETURN_IF_ERR(submit_barrier(context, queue_of(stream), &barrier, err));
    event->handle = barrier;
    return AD_OK;
}

static ad_status
oneapi_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    AD_RETURN_IF_ERR(check_queue(stream, context.device, err));
    ad_sycl_event dependency = event.handle;
    ad_sycl_event barrier =
        ad_sycl.Queue_SubmitBarrierForEvents(queue_of(stream), &dependency, 1);
    if (barrier == NULL) {
        return ad_oneapi_fail_call(err, context.device.id,
                                   "DPCTLQueue_SubmitBarrierForEvents");
    }
    ad_sycl.Event_Delete(barrier);
    return AD_OK;
}

/* Status 0 is "unknown": dpctl caught an exception. */
static ad_status
event_status(ad_context context, ad_sycl_event event, unsigned *out,
             ad_error *err)
{
    *out = ad_sycl.Event_GetCommandExecutionStatus(event);
    return *out != AD_SYCL_UNKNOWN
               ? AD_OK
               : ad_oneapi_fail_call(err, context.device.id,
                                     "DPCTLEvent_GetCommandExecutionStatus");
}

static ad_status
oneapi_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    unsigned status;
    AD_RETURN_IF_ERR(event_status(context, event.handle, &status, err));
    *out = status == AD_SYCL_COMPLETE;
    return AD_OK;
}

/* Event_Wait does not report how the work ended. */
static ad_status
oneapi_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    unsigned status;
    ad_sycl.Event_Wait(event.handle);
    AD_RETURN_IF_ERR(event_status(context, event.handle, &status, err));
    return status == AD_SYCL_COMPLETE
               ? AD_OK
               : ad_oneapi_fail_call(err, context.device.id,
                                     "DPCTLEvent_Wait");
}

static void
oneapi_event_destroy(ad_context context, ad_event event)
{
    ad_sycl.Event_Delete(event.handle);
}

ad_status
ad_oneapi_finish_queue(void *queue, int64_t id, ad_error *err)
{
    const ad_context context = {.device = {ARROW_DEVICE_ONEAPI, id}};
    ad_sycl_event barrier;
    AD_RETURN_IF_ERR(submit_barrier(context, queue, &barrier, err));
    ad_status status =
        oneapi_event_synchronize(context, (ad_event){.handle = barrier}, err);
    ad_sycl.Event_Delete(barrier);
    return status;
}

/* --- memory -------------------------------------------------------------- */

/* Does the pointer belong to this context? */
static bool
classify_in(const void *pointer, struct ad_oneapi_context *sycl_context,
            ad_memory_info *out)
{
    static const ad_memory_kind kinds[] = {
        [AD_SYCL_USM_UNKNOWN] = AD_MEMORY_UNREGISTERED,
        [AD_SYCL_USM_DEVICE] = AD_MEMORY_DEVICE,
        [AD_SYCL_USM_SHARED] = AD_MEMORY_MANAGED,
        [AD_SYCL_USM_HOST] = AD_MEMORY_PINNED,
    };
    ad_sycl_usm usm = (ad_sycl_usm)(uintptr_t)pointer;
    /* The query throws on a device without USM. */
    unsigned type = sycl_context->has_usm
                        ? ad_sycl.USM_GetPointerType(usm, sycl_context->handle)
                        : AD_SYCL_USM_UNKNOWN;
    if (type == AD_SYCL_USM_UNKNOWN || type > AD_SYCL_USM_HOST) {
        return false;
    }
    out->kind = kinds[type];
    out->context = ad_oneapi_as_context(sycl_context);
    out->host_accessible = type != AD_SYCL_USM_DEVICE;
    if (type != AD_SYCL_USM_HOST) {
        /* Several devices may share the context. */
        ad_sycl_device device =
            ad_sycl.USM_GetPointerDevice(usm, sycl_context->handle);
        int64_t id = device != NULL ? ad_oneapi_index(device) : -1;
        if (id >= 0) {
            out->context.device.id = id;
        }
        if (device != NULL) {
            ad_sycl.Device_Delete(device);
        }
    }
    return true;
}

static ad_status
oneapi_classify(const void *pointer, ad_context hint, ad_memory_info *out,
                ad_error *err)
{
    struct ad_oneapi_context *sycl_context = NULL;
    *out = (ad_memory_info){.kind = AD_MEMORY_UNREGISTERED};
    if (pointer == NULL) {
        return AD_OK;
    }
    if (hint.handle != NULL || hint.device.id >= 0) {
        AD_RETURN_IF_ERR(ad_oneapi_context(hint, &sycl_context, err));
        if (classify_in(pointer, sycl_context, out)) {
            return AD_OK;
        }
    }
    for (sycl_context = ad_oneapi_contexts(); sycl_context != NULL;
         sycl_context = sycl_context->next) {
        if (classify_in(pointer, sycl_context, out)) {
            break;
        }
    }
    return AD_OK;
}

static ad_status
oneapi_allocate(ad_context context, ad_stream stream, size_t nbytes,
                void **out, ad_error *err)
{
    struct ad_oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(ad_oneapi_context(context, &sycl_context, err));
    if (!sycl_context->has_usm) {
        return ad_oneapi_fail_no_usm(context.device, err);
    }
    *out = ad_sycl.aligned_alloc_device(64, nbytes, queue_of(stream));
    if (*out == NULL) {
        return ad_fail_device_memory(err, context.device, nbytes);
    }
    return AD_OK;
}

/* OpenCL's free waits for the work that uses the memory. That work may follow
 * dpctl's host tasks, which wait for the interpreter. */
static void
oneapi_deallocate(ad_context context, ad_stream stream, void *data,
                  size_t nbytes)
{
    struct ad_oneapi_context *sycl_context;
    /* The memory was allocated there, so the entry exists. */
    if (ad_oneapi_context(context, &sycl_context, NULL) == AD_OK) {
        ad_sycl.free_with_context(data, sycl_context->handle);
    }
}

/* Work submitted next runs after all work that is now on the queue. *after is
 * an event that it must depend on, or NULL if the queue's own order suffices.
 * A barrier alone does not suffice: SYCL does not delay a copy without
 * dependencies while the barrier itself waits for a host task, as dpctl's
 * are. */
static ad_status
keep_order(ad_context context, ad_sycl_queue queue, ad_sycl_event *after,
           ad_error *err)
{
    *after = NULL;
    return ad_sycl.Queue_IsInOrder(queue)
               ? AD_OK
               : submit_barrier(context, queue, after, err);
}

static void
forget(ad_sycl_event event)
{
    if (event != NULL) {
        ad_sycl.Event_Delete(event);
    }
}

/* `last` is the event of the previous copy, or NULL. It becomes the event of
 * this copy, which runs after the previous one on any queue. `after`: see
 * keep_order(). */
static ad_status
copy_run(ad_context context, ad_sycl_queue queue, char *target,
         const char *source, size_t nbytes, ad_sycl_event after,
         ad_sycl_event *last, ad_error *err)
{
    const ad_sycl_event both[] = {after, *last};
    size_t n = after == NULL ? 0 : *last == NULL ? 1 : 2;
    ad_sycl_event done =
        ad_sycl.Queue_MemcpyWithEvents(queue, target, source, nbytes, both, n);
    if (done == NULL) {
        return ad_oneapi_fail_call(err, context.device.id,
                                   "DPCTLQueue_MemcpyWithEvents");
    }
    forget(*last);
    *last = done;
    return AD_OK;
}

/* OpenCL for CPUs divides a copy into equal parts. 62,497 bytes, a prime
 * number, are copied one by one, in 40 times the time of 62,464. */
#define EVEN_BYTES 256

static ad_status
copy_row(ad_context context, ad_sycl_queue queue, char *target,
         const char *source, size_t nbytes, ad_sycl_event after,
         ad_sycl_event *last, ad_error *err)
{
    size_t uneven = nbytes % EVEN_BYTES;
    if (uneven > 0 && nbytes > 4 * EVEN_BYTES &&
        ad_oneapi_is_cpu(context.device.id)) {
        nbytes -= uneven;
        AD_RETURN_IF_ERR(copy_run(context, queue, target + nbytes,
                                  source + nbytes, uneven, after, last, err));
    }
    return copy_run(context, queue, target, source, nbytes, after, last, err);
}

/* SYCL has pitched copies and dpctl does not: one copy per row. */
static ad_status
copy_rows(ad_context context, ad_sycl_queue queue, const ad_block_copy *copy,
          ad_sycl_event *last, ad_error *err)
{
    char *target = (char *)copy->target.data + copy->target.offset;
    const char *source = (const char *)copy->source.data + copy->source.offset;
    size_t width = copy->width;
    size_t height = copy->height;
    ad_sycl_event after;
    if (copy->target_pitch == width && copy->source_pitch == width) {
        width *= height;
        height = height > 0;
    }
    AD_RETURN_IF_ERR(keep_order(context, queue, &after, err));
    ad_status status = AD_OK;
    for (size_t row = 0; row < height && width > 0 && status == AD_OK; row++) {
        status = copy_row(context, queue, target + row * copy->target_pitch,
                          source + row * copy->source_pitch, width, after,
                          last, err);
    }
    forget(after);
    return status;
}

/* Takes over the event of the last work. Returns it if later work on the queue
 * runs after it, or if the host waits for it. Otherwise releases it and
 * returns NULL. */
static ad_sycl_event
keep_if_enough(ad_sycl_queue queue, bool host_waits, ad_sycl_event last)
{
    if (last != NULL && !host_waits && !ad_sycl.Queue_IsInOrder(queue)) {
        forget(last);
        return NULL;
    }
    return last;
}

static ad_status
oneapi_copy_with_event(ad_context context, ad_stream stream,
                       const ad_block_copy *copy, bool host_waits,
                       ad_event *event, ad_error *err)
{
    ad_sycl_event last = NULL;
    ad_sycl_queue queue = queue_of(stream);
    ad_status status = copy_rows(context, queue, copy, &last, err);
    if (status != AD_OK) {
        forget(last);
        last = NULL;
    }
    event->handle = keep_if_enough(queue, host_waits, last);
    return status;
}

/* --- kernels ------------------------------------------------------------- */

static ad_status
fail_kernel(ad_error *err, struct ad_oneapi_context *sycl_context)
{
    return ad_fail_on(err, ad_oneapi_as_context(sycl_context).device, "kernel",
                      "copy the data to the host (to(\"cpu\")) and do it "
                      "there; DPCTL_VERBOSITY=error shows why",
                      "the kernels cannot be built from OpenCL C for this "
                      "SYCL device");
}

/* Builds all kernels. A thread that loses the race deletes its own. */
static void
build_kernels(struct ad_oneapi_context *sycl_context)
{
    if (ad_sycl.KernelBundle_CreateFromOCLSource == NULL ||
        ad_sycl.KernelBundle_GetKernel == NULL ||
        ad_sycl.KernelBundle_Delete == NULL || ad_sycl.Kernel_Delete == NULL ||
        ad_sycl.Queue_SubmitRange == NULL) {
        atomic_store(&sycl_context->kernels_failed, true);
        return;
    }
    ad_sycl_bundle bundle = ad_sycl.KernelBundle_CreateFromOCLSource(
        sycl_context->handle, sycl_context->device, ad_kernels_opencl,
        sycl_context->is_cpu ? AD_KERNELS_ON_PROCESSOR : "");
    for (int i = 0; i < AD_N_KERNELS && bundle != NULL; i++) {
        ad_sycl_kernel none = NULL;
        ad_sycl_kernel kernel = ad_sycl.KernelBundle_GetKernel(
            bundle, ad_kernel_name((ad_kernel)i));
        if (kernel != NULL && !atomic_compare_exchange_strong(
                                  &sycl_context->kernels[i], &none, kernel)) {
            ad_sycl.Kernel_Delete(kernel);
        }
    }
    if (bundle != NULL) {
        ad_sycl.KernelBundle_Delete(bundle);
    }
    for (int i = 0; i < AD_N_KERNELS; i++) {
        if (atomic_load(&sycl_context->kernels[i]) == NULL) {
            atomic_store(&sycl_context->kernels_failed, true);
        }
    }
}

static ad_status
find_kernel(struct ad_oneapi_context *sycl_context, ad_kernel which,
            ad_sycl_kernel *out, ad_error *err)
{
    *out = atomic_load(&sycl_context->kernels[which]);
    if (*out == NULL && !atomic_load(&sycl_context->kernels_failed)) {
        build_kernels(sycl_context);
        *out = atomic_load(&sycl_context->kernels[which]);
    }
    return *out != NULL ? AD_OK : fail_kernel(err, sycl_context);
}

static ad_status
run_kernel(ad_context context, ad_stream stream, const ad_launch *launch,
           ad_sycl_event *done, ad_error *err)
{
    struct ad_oneapi_context *sycl_context;
    ad_sycl_kernel kernel;
    ad_sycl_event after;
    AD_RETURN_IF_ERR(ad_oneapi_context(context, &sycl_context, err));
    AD_RETURN_IF_ERR(find_kernel(sycl_context, launch->kernel, &kernel, err));
    AD_RETURN_IF_ERR(keep_order(context, queue_of(stream), &after, err));

    ad_launch copy = *launch;
    int64_t *p = copy.numbers;
    /* Pointers are passed by value, numbers by address. */
    void *arguments[] = {
        copy.source.data,
        &copy.source.offset,
        copy.values.data,
        &copy.values.offset,
        copy.target.data,
        &copy.target.offset,
        &copy.bit_offset,
        &copy.length,
        &p[0],
        &p[1],
        &p[2],
        &p[3],
    };
    static const ad_sycl_arg_type types[] = {
        AD_SYCL_ARG_POINTER, AD_SYCL_ARG_INT64,   AD_SYCL_ARG_POINTER,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_POINTER, AD_SYCL_ARG_INT64,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,
        AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64,   AD_SYCL_ARG_INT64};
    const size_t n = sizeof(types) / sizeof(types[0]);
    const size_t range[3] = {(size_t)launch->n_items, 1, 1};
    static const size_t one[3] = {1, 1, 1};
    const size_t n_after = after != NULL;
    *done =
        sycl_context->is_cpu
            ? ad_sycl.Queue_SubmitNDRange(kernel, queue_of(stream), arguments,
                                          types, n, range, one, 1, &after,
                                          n_after)
            : ad_sycl.Queue_SubmitRange(kernel, queue_of(stream), arguments,
                                        types, n, range, 1, &after, n_after);
    forget(after);
    return *done != NULL ? AD_OK
                         : ad_oneapi_fail_call(err, sycl_context->id,
                                               sycl_context->is_cpu
                                                   ? "DPCTLQueue_SubmitNDRange"
                                                   : "DPCTLQueue_SubmitRange");
}

static ad_status
oneapi_launch_with_event(ad_context context, ad_stream stream,
                         const ad_launch *launch, ad_event *event,
                         ad_error *err)
{
    ad_sycl_event done;
    AD_RETURN_IF_ERR(run_kernel(context, stream, launch, &done, err));
    event->handle = keep_if_enough(queue_of(stream), false, done);
    return AD_OK;
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
oneapi_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    struct ad_oneapi_context *sycl_context;
    AD_RETURN_IF_ERR(ad_oneapi_primary_context(device, &sycl_context, err));
    *out = ad_oneapi_as_context(sycl_context);
    return AD_OK;
}

const struct ad_backend ad_backend_oneapi = {
    .name = "oneapi",
    .device_types = (const int32_t[]){ARROW_DEVICE_ONEAPI, 0},
    .capabilities = AD_CAP_SYNC_EVENT_IS_HANDLE | AD_CAP_COPY_BY_ROW |
                    AD_CAP_WORK_HAS_EVENT | AD_CAP_WAIT_HELPS,
    .load = ad_oneapi_load,
    .describe = ad_oneapi_describe,
    .count = ad_oneapi_count,
    .device_name = ad_oneapi_device_name,
    .device_usable = ad_oneapi_device_usable,
    .runs_on_host = ad_oneapi_is_cpu,
    .primary_context = oneapi_primary_context,
    .synchronize = ad_oneapi_synchronize,
    .classify = oneapi_classify,
    .allocate = oneapi_allocate,
    .deallocate = oneapi_deallocate,
    .copy_with_event = oneapi_copy_with_event,
    .launch_with_event = oneapi_launch_with_event,
    .stream_context = oneapi_stream_context,
    .stream_create = ad_oneapi_stream_create,
    .stream_destroy = oneapi_stream_destroy,
    .stream_wait = oneapi_stream_wait,
    .event_record = oneapi_event_record,
    .event_query = oneapi_event_query,
    .event_synchronize = oneapi_event_synchronize,
    .event_destroy = oneapi_event_destroy,
};
