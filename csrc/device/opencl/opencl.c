/* OpenCL, with the handles of its C interface.
 *
 * OpenCL differs from the other runtimes:
 *
 * - Memory is a cl_mem, which allows no pointer arithmetic. Every call takes
 *   an offset beside it. SVM has addresses, see opencl_memory.c.
 * - A cl_mem, a queue and an event work together only within one cl_context,
 *   and a device may have many contexts. A stand-in event of the queue's
 *   context replaces an event of another one. The core copies between contexts
 *   through the host.
 * - Work may not begin before clFlush. This backend flushes the queue after
 *   each event that it records, and the queue of each foreign event.
 * - All objects are reference-counted: memory, events and queues may be
 *   released while work on them is pending.
 * - A queue may be out of order. arrowdev's work is then placed between
 *   barriers.
 * - There is no call that waits until the device is idle, see `synchronize`.
 */
#include "device/opencl/opencl_context.h"

#include <stdio.h>

#include "device/queue_registry.h"

static inline ad_cl_queue
handle_of(ad_stream stream)
{
    return (ad_cl_queue)stream.handle;
}

enum {
    INVALID_COMMAND_QUEUE = -36,
    INVALID_EVENT = -58
};

/* A number that is not a handle must not be dereferenced. */
static ad_status
fail_handle(const void *handle, const char *what, int32_t code, ad_error *err)
{
    char subject[80];
    snprintf(subject, sizeof(subject), "%p is no %s of OpenCL's; using it",
             handle, what);
    ad_opencl_fail(err, -1, subject, code);
    ad_error_hint(err, "pass the handle of a %s that is alive", what);
    return AD_ERR_DEVICE;
}

static ad_status
check_queue(ad_stream stream, ad_error *err)
{
    return ad_opencl_is_object(handle_of(stream))
               ? AD_OK
               : fail_handle(handle_of(stream), "command queue",
                             INVALID_COMMAND_QUEUE, err);
}

static ad_status
check_event(ad_event event, ad_error *err)
{
    return ad_opencl_is_object(event.handle)
               ? AD_OK
               : fail_handle(event.handle, "event", INVALID_EVENT, err);
}

/* --- queues -------------------------------------------------------------- */

ad_status
ad_opencl_queue_of(ad_stream stream, ad_opencl_queue *out, ad_error *err)
{
    ad_cl_context handle;
    ad_cl_device device;
    uint64_t properties;
    AD_RETURN_IF_ERR(check_queue(stream, err));
    out->handle = handle_of(stream);
    AD_CL_TRY(err, -1, GetCommandQueueInfo, out->handle, AD_CL_QUEUE_CONTEXT,
              sizeof(handle), &handle, NULL);
    AD_CL_TRY(err, -1, GetCommandQueueInfo, out->handle, AD_CL_QUEUE_DEVICE,
              sizeof(device), &device, NULL);
    AD_CL_TRY(err, -1, GetCommandQueueInfo, out->handle,
              AD_CL_QUEUE_PROPERTIES, sizeof(properties), &properties, NULL);
    /* A runtime that does not validate handles answers for other objects
     * too. */
    if (!ad_opencl_is_object(handle) || !ad_opencl_is_object(device)) {
        return fail_handle(out->handle, "command queue", INVALID_COMMAND_QUEUE,
                           err);
    }
    out->is_in_order =
        (properties & AD_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) == 0;
    return ad_opencl_context(handle, device, &out->cl_context, err);
}

static ad_status
opencl_stream_context(ad_stream stream, ad_context hint, ad_context *out,
                      ad_error *err)
{
    ad_opencl_queue queue;
    AD_RETURN_IF_ERR(ad_opencl_queue_of(stream, &queue, err));
    *out = ad_opencl_as_context(queue.cl_context);
    AD_RETURN_IF_ERR(ad_queue_check_device(out->device, hint.device, err));
    ad_opencl_register_queue(queue.handle, queue.cl_context->id, false);
    return AD_OK;
}

static ad_status
opencl_stream_create(ad_context context, ad_stream *out, ad_error *err)
{
    struct ad_opencl_context *cl_context;
    int32_t code;
    AD_RETURN_IF_ERR(ad_opencl_context_at(context, &cl_context, err));
    ad_cl_queue queue = ad_cl.CreateCommandQueue(cl_context->handle,
                                                 cl_context->device, 0, &code);
    if (queue == NULL) {
        return ad_opencl_fail(err, cl_context->id, "clCreateCommandQueue",
                              code);
    }
    ad_opencl_register_queue(queue, cl_context->id, true);
    out->handle = (uintptr_t)queue;
    return AD_OK;
}

static void
opencl_stream_destroy(ad_context context, ad_stream stream)
{
    (void)ad_cl.ReleaseCommandQueue(handle_of(stream));
}

/* --- events -------------------------------------------------------------- */

/* A barrier rather than a marker: what the queue's user submits next may use
 * the result of our work, also on an out-of-order queue. */
static ad_status
opencl_event_record(ad_context context, ad_stream stream, ad_event *event,
                    ad_error *err)
{
    ad_cl_queue queue = handle_of(stream);
    ad_cl_event barrier;
    AD_RETURN_IF_ERR(check_queue(stream, err));
    AD_CL_TRY(err, context.device.id, EnqueueBarrierWithWaitList, queue, 0,
              NULL, &barrier);
    int32_t code = ad_cl.Flush(queue);
    if (code != AD_CL_SUCCESS) {
        (void)ad_cl.ReleaseEvent(barrier);
        return ad_opencl_fail(err, context.device.id, "clFlush", code);
    }
    event->handle = barrier;
    return AD_OK;
}

/* Without a flush the work may never begin. A user event has no queue. */
static ad_status
flush_for(ad_context context, ad_cl_event event, ad_error *err)
{
    ad_cl_queue queue = NULL;
    AD_CL_TRY(err, context.device.id, GetEventInfo, event,
              AD_CL_EVENT_COMMAND_QUEUE, sizeof(queue), &queue, NULL);
    if (queue != NULL) {
        AD_CL_TRY(err, context.device.id, Flush, queue);
    }
    return AD_OK;
}

/* Callback on an event of another context: completes its stand-in. */
static void
pass_on(ad_cl_event event, int32_t status, void *stand_in)
{
    (void)ad_cl.SetUserEventStatus(stand_in,
                                   status < 0 ? status : AD_CL_COMPLETE);
    (void)ad_cl.ReleaseEvent(stand_in);
}

static ad_status
make_stand_in(const ad_opencl_queue *queue, ad_cl_event event,
              ad_cl_event *out, ad_error *err)
{
    int64_t id = queue->cl_context->id;
    int32_t code;
    *out = ad_cl.CreateUserEvent(queue->cl_context->handle, &code);
    if (*out == NULL) {
        return ad_opencl_fail(err, id, "clCreateUserEvent", code);
    }
    code = ad_cl.RetainEvent(*out);
    if (code != AD_CL_SUCCESS) {
        (void)ad_cl.ReleaseEvent(*out);
        return ad_opencl_fail(err, id, "clRetainEvent", code);
    }
    code = ad_cl.SetEventCallback(event, AD_CL_COMPLETE, pass_on, *out);
    if (code != AD_CL_SUCCESS) {
        (void)ad_cl.ReleaseEvent(*out);
        (void)ad_cl.ReleaseEvent(*out);
        return ad_opencl_fail(err, id, "clSetEventCallback", code);
    }
    return AD_OK;
}

static ad_status
event_status(ad_context context, ad_event event, int32_t *out, ad_error *err)
{
    AD_CL_TRY(err, context.device.id, GetEventInfo, event.handle,
              AD_CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(*out), out, NULL);
    AD_CL_RETURN_IF_ERR(err, context.device.id,
                        "the work that the event stands for",
                        *out < 0 ? *out : AD_CL_SUCCESS);
    return AD_OK;
}

/* An event of the queue's context that stands for `event`, which may belong to
 * another context or platform. NULL: the event is complete. The caller owns
 * the result. */
static ad_status
event_for(const ad_opencl_queue *queue, ad_event event, ad_cl_event *out,
          ad_error *err)
{
    ad_context context = ad_opencl_as_context(queue->cl_context);
    ad_cl_context handle;
    int32_t status;
    *out = NULL;
    /* A wait list may ignore an event that has already failed. */
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    if (status == AD_CL_COMPLETE) {
        return AD_OK;
    }
    AD_CL_TRY(err, context.device.id, GetEventInfo, event.handle,
              AD_CL_EVENT_CONTEXT, sizeof(handle), &handle, NULL);
    AD_RETURN_IF_ERR(flush_for(context, event.handle, err));
    if (handle != queue->cl_context->handle) {
        return make_stand_in(queue, event.handle, out, err);
    }
    AD_CL_TRY(err, context.device.id, RetainEvent, event.handle);
    *out = event.handle;
    return AD_OK;
}

static ad_status
opencl_stream_wait(ad_context context, ad_stream stream, ad_event event,
                   ad_error *err)
{
    ad_opencl_queue queue;
    ad_cl_event dependency;
    AD_RETURN_IF_ERR(check_event(event, err));
    AD_RETURN_IF_ERR(ad_opencl_queue_of(stream, &queue, err));
    AD_RETURN_IF_ERR(event_for(&queue, event, &dependency, err));
    if (dependency == NULL) {
        return AD_OK;
    }
    int32_t code =
        ad_cl.EnqueueBarrierWithWaitList(queue.handle, 1, &dependency, NULL);
    (void)ad_cl.ReleaseEvent(dependency);
    AD_CL_RETURN_IF_ERR(err, queue.cl_context->id,
                        "clEnqueueBarrierWithWaitList", code);
    return AD_OK;
}

static ad_status
opencl_event_query(ad_context context, ad_event event, bool *out,
                   ad_error *err)
{
    int32_t status;
    AD_RETURN_IF_ERR(check_event(event, err));
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    *out = status == AD_CL_COMPLETE;
    return status == AD_CL_QUEUED ? flush_for(context, event.handle, err)
                                  : AD_OK;
}

/* The result of clWaitForEvents does not say how the work failed. */
static ad_status
opencl_event_synchronize(ad_context context, ad_event event, ad_error *err)
{
    ad_cl_event handle = event.handle;
    int32_t status;
    AD_RETURN_IF_ERR(check_event(event, err));
    int32_t code = ad_cl.WaitForEvents(1, &handle);
    AD_RETURN_IF_ERR(event_status(context, event, &status, err));
    AD_CL_RETURN_IF_ERR(err, context.device.id, "clWaitForEvents", code);
    return AD_OK;
}

static void
opencl_event_destroy(ad_context context, ad_event event)
{
    (void)ad_cl.ReleaseEvent(event.handle);
}

/* --- memory -------------------------------------------------------------- */

static bool
is_out_of_memory(int32_t code)
{
    enum {
        MEM_OBJECT_ALLOCATION_FAILURE = -4,
        OUT_OF_RESOURCES = -5,
        OUT_OF_HOST_MEMORY = -6,
        INVALID_BUFFER_SIZE = -61
    };
    return code == MEM_OBJECT_ALLOCATION_FAILURE || code == OUT_OF_RESOURCES ||
           code == OUT_OF_HOST_MEMORY || code == INVALID_BUFFER_SIZE;
}

static ad_status
opencl_allocate(ad_context context, ad_stream stream, size_t nbytes,
                void **out, ad_error *err)
{
    struct ad_opencl_context *cl_context;
    int32_t code;
    AD_RETURN_IF_ERR(ad_opencl_context_at(context, &cl_context, err));
    ad_cl_mem memory = ad_cl.CreateBuffer(
        cl_context->handle, AD_CL_MEM_READ_WRITE, nbytes, NULL, &code);
    if (memory == NULL) {
        return is_out_of_memory(code)
                   ? ad_fail_device_memory(
                         err, ad_opencl_as_context(cl_context).device, nbytes)
                   : ad_opencl_fail(err, cl_context->id, "clCreateBuffer",
                                    code);
    }
    *out = memory;
    return AD_OK;
}

/* Enqueued work keeps a reference. */
static void
opencl_deallocate(ad_context context, ad_stream stream, void *data,
                  size_t nbytes)
{
    (void)ad_cl.ReleaseMemObject(data);
}

/* --- the runtime --------------------------------------------------------- */

static ad_status
opencl_primary_context(ad_device device, ad_context *out, ad_error *err)
{
    struct ad_opencl_context *cl_context;
    AD_RETURN_IF_ERR(ad_opencl_primary_context(device, &cl_context, err));
    *out = ad_opencl_as_context(cl_context);
    return AD_OK;
}

const struct ad_backend ad_backend_opencl = {
    .name = "opencl",
    .device_types = (const int32_t[]){ARROW_DEVICE_OPENCL, 0},
    .capabilities = AD_CAP_ORDERED_DEALLOCATE,
    .load = ad_opencl_load,
    .describe = ad_opencl_describe,
    .count = ad_opencl_count,
    .device_name = ad_opencl_device_name,
    .runs_on_host = ad_opencl_is_cpu,
    .primary_context = opencl_primary_context,
    .synchronize = ad_opencl_synchronize,
    .classify = ad_opencl_classify,
    .allocate = opencl_allocate,
    .deallocate = opencl_deallocate,
    .copy = ad_opencl_copy,
    .launch = ad_opencl_launch,
    .stream_context = opencl_stream_context,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .stream_wait = opencl_stream_wait,
    .event_record = opencl_event_record,
    .event_query = opencl_event_query,
    .event_synchronize = opencl_event_synchronize,
    .event_destroy = opencl_event_destroy,
};
